"""Measures pairs of tensor files inside a worker: open, check, read window by window, feed the pass, read the metrics.

One odd pair becomes a row with a reason, never the end of its shard. Segments have a fixed size and are merged in
order, so the rows do not depend on how the work was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from opassay.kernels.joining import ShapesDoNotFit
from opassay.kernels.pair_pass import PairPass, make_pass
from opassay.kernels.pair_sums import BLOCK, SEGMENT, merge, rescale
from opassay.kernels.rounding import beyond_rounding, noise_floor
from opassay.kernels.tensor_metrics import TensorMetrics, read_out
from opassay.pipeline.measure.jobs import (
    Found,
    Header,
    MeasureJob,
    Part,
    PartSums,
    Place,
    Row,
    Shard,
    metric_row,
)
from opassay.pipeline.measure.joined import JoinedTensor, Opened
from opassay.pipeline.measure.settling import open_joined, open_questions, source_name
from opassay.pipeline.read.tensor_layout import one_line, shape_text, shown
from opassay.pipeline.read.tensors import (
    PageBuffer,
    TensorFile,
    TensorMissing,
    TensorUnreadable,
    open_tensor,
    tensor_path,
)
from opassay.schemas.metric_rows import PairSums
from opassay.schemas.vocab import MetricState

READ_WINDOW: Final = 1 << 20  # bytes of a preadv; larger ones leave the cache
ROUNDING_BELOW: Final = 0.6  # decision 18 asks about pairs whose thousandth ratio breaks the document's rule only


class _OpenPair:
    """Both files of a job, open, with the buffers of this worker."""

    __slots__ = ("golden", "nbytes", "place", "target")

    def __init__(self, place: Place, job: MeasureJob) -> None:
        self.place = place
        self.target: Opened
        self.golden: Opened
        if isinstance(job.target, str) and isinstance(job.golden, str):
            self.target = _open_side("target", place.target_folder, job.target, place.mapped)
            try:
                self.golden = _open_side("golden", place.golden_folder, job.golden, place.mapped)
            except BaseException:
                self.target.close()
                raise
        else:
            self.target, self.golden = _open_joined_pair(place, job)
        self.nbytes = self.target.nbytes + self.golden.nbytes

    @property
    def found(self) -> Found:
        """What the two files hold."""
        return self.target.found, self.golden.found

    @property
    def joined(self) -> str | None:
        """How the sides were put together from several files; None where nothing was."""
        told = [f"{text}{side.plan.told}" for text, side in (("", self.target), ("golden: ", self.golden))
                if isinstance(side, JoinedTensor) and side.plan.told]  # fmt: skip
        return "; ".join(told) or None

    def settled(self, job: MeasureJob) -> MeasureJob:
        """The job with nothing left to find out about how its parts join."""
        sides: dict[str, Any] = {name: side.plan for name, side in (("target", self.target), ("golden", self.golden))
                 if isinstance(side, JoinedTensor)}  # fmt: skip
        return replace(job, **sides) if sides else job

    def __enter__(self) -> _OpenPair:
        return self

    def __exit__(self, *_: object) -> None:
        self.target.close()
        self.golden.close()

    def windows(self, segment: int) -> Iterator[tuple[Any, Any]]:
        """The stored arrays of one segment, window by window."""
        start = segment * SEGMENT
        stop = min(start + SEGMENT, self.target.size)
        step = self._window_elements()
        for at in range(start, stop, step):
            count = min(step, stop - at)
            yield self.target.read(at, count, _TARGET_BUFFER), self.golden.read(at, count, _GOLDEN_BUFFER)

    def sums(self, segment: int, scales: tuple[int, int, int] | None) -> PairSums:
        """The sums of one segment."""
        one_pass = self._pass(scales)
        size = self.target.size
        if size <= min(SEGMENT, self._window_elements()):  # most pairs of a dump
            one_pass.feed(self.target.read(0, size, _TARGET_BUFFER), self.golden.read(0, size, _GOLDEN_BUFFER))
            return one_pass.result()
        for target, golden in self.windows(segment):
            one_pass.feed(target, golden)
        return one_pass.result()

    def beyond(self, segments: range, noise: float) -> bool:
        """Whether any element of some segments differs by more than rounding."""
        kinds = self.target.dtype, self.golden.dtype
        return any(
            beyond_rounding(target, golden, *kinds, noise, self.place.engine) > 0
            for segment in segments
            for target, golden in self.windows(segment)
        )

    def _window_elements(self) -> int:
        """Elements of one window; whole blocks."""
        window_bytes = self.place.window_bytes if self.place.mapped else min(self.place.window_bytes, READ_WINDOW)
        width = max(self.target.dtype.width, self.golden.dtype.width)
        return max(BLOCK, window_bytes // width // BLOCK * BLOCK)

    def _pass(self, scales: tuple[int, int, int] | None) -> PairPass:
        if self.place.device == "cpu" or scales is not None:
            return make_pass(self.target.dtype, self.golden.dtype, self.place.engine, scales)
        from opassay.kernels.torch_pass import make_torch_pass

        return make_torch_pass(self.target.dtype, self.golden.dtype, self.place.device)


_TARGET_BUFFER: Final = PageBuffer()
_GOLDEN_BUFFER: Final = PageBuffer()


def _open_side(side: str, folder: str, name: str, mapped: bool) -> TensorFile:
    try:
        file = open_tensor(tensor_path(folder, name), mapped=mapped)
    except TensorUnreadable as error:
        raise type(error)(f"{side} file {error}") from None
    file.side = f"{side} file "
    return file


def _open_joined_pair(place: Place, job: MeasureJob) -> tuple[Opened, Opened]:
    """Both sides of a job of which one stands in several files; a side that must see the other one comes second."""
    sides = (("target", place.target_folder, job.target), ("golden", place.golden_folder, job.golden))
    opened: dict[str, Opened] = {}
    try:
        for side, folder, source in sorted(sides, key=lambda each: open_questions(each[2])):
            if isinstance(source, str):
                opened[side] = _open_side(side, folder, source, place.mapped)
            else:
                other = next(iter(opened.values()), None)
                opened[side] = open_joined(side, folder, source, place.mapped, other)
    except BaseException:
        for one in opened.values():
            one.close()
        raise
    return opened["target"], opened["golden"]


def measure_shard(shard: Shard) -> list[Row]:
    """Measure the pairs of a shard, whatever their size.

    Parameters
    ----------
    shard : Shard
        At least one pair.

    Returns
    -------
    list of Row
        One for each pair, in order.
    """
    return [_guarded(job, _whole, shard.place, job) for job in shard.jobs]


def probe_pair(shard: Shard) -> list[Row] | Header:
    """Look at a big pair: its header if it is worth cutting, else its row.

    Parameters
    ----------
    shard : Shard
        Exactly one pair.
    """
    (job,) = shard.jobs

    def look() -> Row | Header:
        with _OpenPair(shard.place, job) as pair:
            odd = _unfit(shard.place, pair.target, pair.golden)
            if odd is None and not pair.target.whole and not pair.golden.whole:
                kinds = pair.target.dtype, pair.golden.dtype
                if pair.target.size * (kinds[0].width + kinds[1].width) > shard.place.part_bytes:
                    return Header(pair.settled(job), pair.target.size, *kinds, pair.nbytes, pair.found, pair.joined)
            settled = pair.settled(job)
        return _whole(shard.place, settled)

    found = _guarded(job, look)
    return found if isinstance(found, Header) else [found]


def measure_part(part: Part) -> PartSums | list[Row]:
    """Measure some segments of a big pair; a row where it can no longer be read."""

    def work() -> PartSums | Row:
        with _OpenPair(part.place, part.job) as pair:
            segments = range(part.first, part.stop)
            if part.noise is not None:
                return PartSums(part.job.pair, part.first, (), pair.beyond(segments, part.noise))
            return PartSums(part.job.pair, part.first, tuple(pair.sums(index, part.scales) for index in segments))

    found = _guarded(part.job, work)
    return found if isinstance(found, PartSums) else [found]


def join_segments(parts: Sequence[PairSums]) -> PairSums:
    """Sums of a whole pair from the sums of its segments, in order; a single segment is the whole."""
    return parts[0] if len(parts) == 1 else merge(parts, [index * SEGMENT for index in range(len(parts))])


def finish_row(
    pair: int,
    state: MetricState,
    sums: PairSums,
    found: Found,
    nbytes: int,
    beyond: Callable[[PairSums], bool],
    joined: str | None = None,
) -> Row:
    """The row of a pair whose sums are complete.

    Parameters
    ----------
    pair, state : int, MetricState
        Which pair; COMPUTED or ONE_ELEMENT.
    sums : PairSums
        Of the whole pair.
    found, nbytes : tuple of str, int
        Of both tensors.
    beyond : callable
        Answers whether any element differs by more than rounding; asked only where `asks_rounding`.
    joined : str, optional
        How a side was put together from several files.
    """
    metrics = read_out(sums)
    within = not beyond(sums) if asks_rounding(state, metrics) else None
    return metric_row(pair, state, sums=sums, metrics=metrics, within=within, found=found, joined=joined, nbytes=nbytes)


def asks_rounding(state: MetricState, metrics: TensorMetrics) -> bool:
    """Whether decision 18 wants to know if the differences of this pair are rounding."""
    return state == MetricState.COMPUTED and metrics.thousandth is not None and metrics.thousandth < ROUNDING_BELOW


def _whole(place: Place, job: MeasureJob) -> Row:
    with _OpenPair(place, job) as pair:
        odd = _unfit(place, pair.target, pair.golden)
        if odd is not None:
            return metric_row(job.pair, *odd, found=pair.found, joined=pair.joined, nbytes=pair.nbytes)
        segments = range(-(-pair.target.size // SEGMENT))
        sums = join_segments([pair.sums(index, None) for index in segments])
        scales = rescale(sums)
        if scales is not None:
            sums = join_segments([pair.sums(index, scales) for index in segments])
        kinds = pair.target.dtype, pair.golden.dtype
        return finish_row(
            job.pair,
            MetricState.ONE_ELEMENT if pair.target.size == 1 else MetricState.COMPUTED,
            sums,
            pair.found,
            pair.nbytes,
            lambda sums: pair.beyond(segments, noise_floor(sums, *kinds)),
            pair.joined,
        )


def _unfit(place: Place, target: Opened, golden: Opened) -> tuple[MetricState, str | None] | None:
    """State and reason of two tensors that are not measured element by element."""
    same_shape = target.shape == golden.shape
    if target.size == 0 and golden.size == 0 and same_shape:
        if target.dtype is golden.dtype or target.dtype == golden.dtype:
            return MetricState.EMPTY_EQUAL, None
        return MetricState.SHAPE, f"no elements, and dtypes differ: {target.dtype.name} against {golden.dtype.name}"
    if same_shape:
        return None
    bare = [[n for n in shape if n != 1] for shape in (target.shape, golden.shape)]
    if target.size and (bare[0] == bare[1] or (place.merge_heads and _are_heads(*bare))):
        return None
    return (
        MetricState.SHAPE,
        f"shapes in the files differ: {shape_text(target.shape)} against {shape_text(golden.shape)}",
    )


def _are_heads(one: list[int], other: list[int]) -> bool:
    """Whether the longer of two shapes has the last dimension of the other in two."""
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    return len(longer) == 3 and len(shorter) == 2 and longer[0] == shorter[0] and longer[1] * longer[2] == shorter[1]


def _guarded(job: MeasureJob, work: Callable[..., Any], *given: Any) -> Any:
    """Run the work of one pair; whatever goes wrong becomes its row."""
    try:
        return work(*given)
    except TensorMissing as error:
        return metric_row(job.pair, MetricState.FILE_MISSING, str(error))
    except TensorUnreadable as error:
        return metric_row(job.pair, MetricState.UNREADABLE, str(error))
    except ShapesDoNotFit as error:
        return metric_row(job.pair, MetricState.SHAPE, str(error))
    except Exception as error:  # one odd pair must not cost the shard
        names = f"measuring {shown(source_name(job.target))} against {shown(source_name(job.golden))}"
        text = one_line(f"{type(error).__name__}: {error}", 300)
        return metric_row(job.pair, MetricState.UNREADABLE, f"{names} failed: {text}")
