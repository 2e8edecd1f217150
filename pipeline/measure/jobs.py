"""What a worker is given and what it hands back: pairs of tensor files in tasks of about equal size, and the rows they become.

Cuts depend on sizes alone, so rows do not depend on how many workers there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from opassay.kernels.pair_pass import Engine
from opassay.kernels.pair_sums import SEGMENT
from opassay.kernels.tensor_metrics import TensorMetrics
from opassay.pipeline.measure.joined import JoinPlan
from opassay.schemas.dtypes import DType
from opassay.schemas.dump_rows import Join
from opassay.schemas.metric_rows import PairSums
from opassay.schemas.vocab import MetricState

SHARD_BYTES: Final = 64 << 20
SHARD_PAIRS: Final = 2000
PART_BYTES: Final = 256 << 20

Row = tuple[Any, ...]
"""One row of METRIC_ROWS, in its order."""

Found = tuple[str | None, str | None]
"""Type and shape in the target's file and in the golden's."""

Source = str | Join | JoinPlan
"""Where one side's tensor stands: the name of a file, or several files and how they join."""

_NOT_OPENED: Final[Found] = (None, None)


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """One pair: its row number and the names of its two files, as the dumps record them, or how several make a tensor."""

    pair: int
    target: Source
    golden: Source


@dataclass(frozen=True, slots=True)
class Place:
    """What all jobs of a rank share.

    Attributes
    ----------
    target_folder, golden_folder : str
        Where the tensor files are.
    mapped : bool
        Map files, or read them by preadv. Only for worker processes: a mapped file that shrinks kills its reader.
    window_bytes : int
        Bytes of each side in memory at a time.
    device : str
        ``cpu``, or where torch shall compute.
    part_bytes : int
        Pairs above are cut into parts of about this size.
    engine : {"auto", "numba", "numpy"}
        Which kernels measure on the CPU.
    merge_heads : bool
        Shapes (tokens, heads, size) and (tokens, heads x size) fit: training against inference.
    """

    target_folder: str
    golden_folder: str
    mapped: bool
    window_bytes: int
    device: str
    part_bytes: int = PART_BYTES
    engine: Engine = "auto"
    merge_heads: bool = False


@dataclass(frozen=True, slots=True)
class Shard:
    """Small pairs that one task measures."""

    place: Place
    jobs: tuple[MeasureJob, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Segments ``first`` to ``stop`` (without it) of one big pair.

    Attributes
    ----------
    scales : tuple of int or None
        From `rescale`, on the second pass of a pair that needs one.
    noise : float or None
        With a number the task asks for rounding in place of sums.
    """

    place: Place
    job: MeasureJob
    first: int
    stop: int
    scales: tuple[int, int, int] | None = None
    noise: float | None = None


@dataclass(frozen=True, slots=True)
class Header:
    """What a big pair is, before it is cut into parts; ``elements`` of each side, ``nbytes`` of both.

    ``found`` is the type and shape of the target's file and of the golden's, ``joined`` how a side was put together, as
    METRIC_ROWS wants them.
    """

    job: MeasureJob
    elements: int
    target: DType
    golden: DType
    nbytes: int
    found: Found
    joined: str | None = None


@dataclass(frozen=True, slots=True)
class PartSums:
    """The result of a `Part`: sums of each of its segments, or whether any element differs by more than rounding."""

    pair: int
    first: int
    sums: tuple[PairSums, ...]
    beyond: bool = False


def cut_shards(place: Place, jobs: Iterable[tuple[MeasureJob, int]], most_pairs: int = SHARD_PAIRS) -> Iterator[Shard]:
    """Group small pairs, in order.

    Parameters
    ----------
    place : Place
        Common to all.
    jobs : iterable of (MeasureJob, int)
        Each with the bytes of its two files.
    most_pairs : int
        Pairs of a shard at most; bytes are limited by ``SHARD_BYTES``.
    """
    held: list[MeasureJob] = []
    held_bytes = 0
    for job, nbytes in jobs:
        if held and (len(held) >= most_pairs or held_bytes + nbytes > SHARD_BYTES):
            yield Shard(place, tuple(held))
            held, held_bytes = [], 0
        held.append(job)
        held_bytes += nbytes
    if held:
        yield Shard(place, tuple(held))


def cut_parts(
    place: Place, header: Header, scales: tuple[int, int, int] | None = None, noise: float | None = None
) -> Iterator[Part]:
    """Cut a big pair into runs of whole segments of about ``place.part_bytes``."""
    segments = -(-header.elements // SEGMENT)
    step = max(1, place.part_bytes // (SEGMENT * (header.target.width + header.golden.width)))
    for first in range(0, segments, step):
        yield Part(place, header.job, first, min(first + step, segments), scales, noise)


def single_jobs(shard: Shard) -> list[Shard]:
    """The shard's pairs one by one: the second try after a worker died, so that one pair takes no other with it."""
    return [Shard(shard.place, (job,)) for job in shard.jobs]


def metric_row(
    pair: int,
    state: MetricState,
    reason: str | None = None,
    *,
    sums: PairSums | None = None,
    metrics: TensorMetrics | None = None,
    within: bool | None = None,
    found: Found = _NOT_OPENED,
    joined: str | None = None,
    nbytes: int = 0,
) -> Row:
    """A row of METRIC_ROWS.

    Parameters
    ----------
    pair : int
        Row of the pair table.
    state, reason : MetricState, str or None
        What came of it.
    sums, metrics : PairSums, TensorMetrics, optional
        Where it was computed. For ONE_ELEMENT the cosine and the distance stay empty.
    within : bool, optional
        Whether all differences are rounding.
    found : tuple of (str or None)
        What the two files hold; none where they were not both opened.
    joined : str, optional
        How a tensor was put together from several files.
    nbytes : int
        Bytes of both tensors; 0 where they were not both opened.
    """
    if sums is None or metrics is None:
        return (pair, int(state), reason, *(None,) * 16, *found, joined, nbytes)
    vector = state == MetricState.COMPUTED
    return (
        pair, int(state), reason,
        metrics.cosine if vector else None, metrics.euclidean if vector else None,
        metrics.error_max, metrics.relative_max, metrics.thousandth, metrics.five_thousandth,
        sums.size, sums.equal_nan, sums.equal_inf, sums.nan_mismatch, sums.inf_mismatch, sums.golden_abs_max,
        sums.worst_index, sums.worst_target, sums.worst_golden, within, *found, joined, nbytes,
    )  # fmt: skip
