"""From pairs of file names to metric rows: cuts the work by bytes, spreads it over the pool, joins the parts in order.

Stands between the pair table and the rules. The rows are the same bytes for any number of workers, way of reading or
window.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

import polars as pl
from opassay.kernels.pair_pass import Engine
from opassay.kernels.pair_sums import rescale
from opassay.kernels.rounding import noise_floor
from opassay.kernels.tensor_metrics import read_out
from opassay.pipeline.measure.jobs import (
    PART_BYTES,
    SHARD_PAIRS,
    Header,
    MeasureJob,
    Part,
    PartSums,
    Place,
    Row,
    Shard,
    Source,
    cut_parts,
    cut_shards,
    metric_row,
    single_jobs,
)
from opassay.pipeline.measure.work import asks_rounding, join_segments, measure_part, measure_shard, probe_pair
from opassay.pipeline.read.tensor_layout import one_line
from opassay.pipeline.read.tensors import TensorUnreadable, choose_io, tensor_path
from opassay.pipeline.run.budget import Budget
from opassay.pipeline.run.pool import Pool, WorkerLost
from opassay.schemas.dump_rows import Join
from opassay.schemas.metric_rows import METRIC_ROWS, PairSums
from opassay.schemas.vocab import MetricState

Progress = Callable[[int, int], None]

_LOST: Final = "the worker process died twice while it measured this pair (out of memory, or a file that shrank)"
_APART_BYTES: Final = 4 << 30  # of files; from here on the faster way to read pays for the start of a process
_KEEP_ROWS: Final = 20_000  # rows held as Python objects before they become a frame


def measure_tensors(
    pairs: pl.DataFrame,
    target_folder: Path,
    golden_folder: Path,
    *,
    pool: Pool,
    io: Literal["auto", "map", "read"] = "auto",
    device: str = "cpu",
    engine: Engine = "auto",
    budget: Budget,
    target_joins: Mapping[int, Join] = MappingProxyType({}),
    golden_joins: Mapping[int, Join] = MappingProxyType({}),
    merge_heads: bool = False,
    on_progress: Progress = lambda nbytes, pairs: None,
) -> pl.DataFrame:
    """Measure pairs of tensor files.

    Files are mapped in worker processes only: a mapped file that shrinks kills the process that reads it. A pool that
    runs tasks in the calling process gets its files read by ``preadv``, or, where they are large, one worker process.

    Parameters
    ----------
    pairs : polars.DataFrame
        Columns ``pair`` (u32), ``target_file`` and ``golden_file`` (names inside the folders; null for none).
    target_folder, golden_folder : Path
        Folders of the tensor files.
    pool : Pool
        Where the work runs.
    io : {"auto", "map", "read"}
        Map files or read them; ``auto`` reads on network file systems.
    device : str
        ``cpu``, or a torch device.
    engine : {"auto", "numba", "numpy"}
        Which kernels measure on the CPU.
    budget : Budget
        Gives the size of the windows.
    target_joins, golden_joins : mapping of int to Join
        Pairs, by number, whose tensor on that side stands in several files; they take the place of the file's name.
    merge_heads : bool
        Compare (tokens, heads, size) with (tokens, heads x size), element by element.
    on_progress : callable
        Called with bytes of tensors and pairs finished since the last call.

    Returns
    -------
    polars.DataFrame
        METRIC_ROWS, one row a pair, sorted by ``pair``.
    """
    modes = {choose_io(folder) for folder in (target_folder, golden_folder)} if io == "auto" else {io}
    place = Place(
        str(target_folder),
        str(golden_folder),
        modes == {"map"},
        budget.window_bytes,
        device,
        PART_BYTES,
        engine,
        merge_heads,
    )
    rows = _Rows(on_progress)
    small, big, nbytes = _sort_by_size(pairs, place, rows, target_joins, golden_joins)
    with contextlib.ExitStack() as stack:
        if pool.inline and place.mapped:
            if nbytes >= _APART_BYTES and not multiprocessing.current_process().daemon:
                pool = stack.enter_context(_OneWorker(1))
            else:
                place = replace(place, mapped=False)
        _measure(pool, place, small, big, rows)
    return rows.frame()


class _OneWorker(Pool):
    """A pool of one process that is not the calling one."""

    @property
    def inline(self) -> bool:
        """Never, so that a mapped file that shrinks does not end the run."""
        return False


def _measure(pool: Pool, place: Place, small: list[tuple[MeasureJob, int]], big: list[MeasureJob], rows: _Rows) -> None:
    """Rows of all pairs that have two files."""
    most_pairs = max(25, min(SHARD_PAIRS, -(-len(small) // (4 * pool.workers))))
    shards = cut_shards(place, small, most_pairs)
    headers = _run_probes(pool, [Shard(place, (job,)) for job in big], rows)
    whole = _run_parts(pool, place, [(header, None) for header in headers], shards, rows)
    again = []
    for header, sums in whole:
        scales = rescale(sums)
        if scales is not None:
            again.append((header, scales))
    redone = {header.job.pair: sums for header, sums in _run_parts(pool, place, again, (), rows)} if again else {}
    lost_again = {header.job.pair for header, _ in again} - set(redone)
    kept = [(h, redone.get(h.job.pair, s)) for h, s in whole if h.job.pair not in lost_again]
    _finish_big(pool, place, kept, rows)


class _Rows:
    """Rows as they come in; the first row of a pair wins, so that a pair lost in several parts stays one row."""

    def __init__(self, on_progress: Progress) -> None:
        self._on_progress = on_progress
        self._frames: list[pl.DataFrame] = []
        self._rows: list[Row] = []
        self.failed: set[int] = set()

    def add(self, rows: Sequence[Row]) -> None:
        self._rows += rows
        self._on_progress(sum(row[-1] for row in rows), len(rows))
        if len(self._rows) >= _KEEP_ROWS:
            self._flush()

    def fail(self, row: Row) -> None:
        """A big pair that ends here; later parts of it are ignored."""
        if row[0] not in self.failed:
            self.failed.add(row[0])
            self.add([row])

    def _flush(self) -> None:
        if self._rows:
            columns = zip(*self._rows, strict=True)
            self._frames.append(
                pl.DataFrame(
                    [
                        pl.Series(name, values, kind)
                        for (name, kind), values in zip(METRIC_ROWS.items(), columns, strict=True)
                    ]
                )
            )
            self._rows = []

    def frame(self) -> pl.DataFrame:
        self._flush()
        if not self._frames:
            return pl.DataFrame(schema=dict(METRIC_ROWS))
        return pl.concat(self._frames).sort("pair")


def _sort_by_size(
    pairs: pl.DataFrame,
    place: Place,
    rows: _Rows,
    target_joins: Mapping[int, Join],
    golden_joins: Mapping[int, Join],
) -> tuple[list[tuple[MeasureJob, int]], list[MeasureJob], int]:
    """Small pairs with their bytes, pairs that may be worth cutting, bytes of all; pairs without a file become rows."""
    small: list[tuple[MeasureJob, int]] = []
    big: list[MeasureJob] = []
    total = 0
    for pair, target_file, golden_file in pairs.select("pair", "target_file", "golden_file").iter_rows():
        target, golden = _source(target_file, target_joins.get(pair)), _source(golden_file, golden_joins.get(pair))
        if target is None or golden is None:
            sides = (
                "both sides" if target is None and golden is None else "the target" if target is None else "the golden"
            )
            rows.add([metric_row(pair, MetricState.NO_FILE_RECORDED, f"{sides} recorded no tensor file")])
            continue
        job = MeasureJob(pair, target, golden)
        # the golden tensor is about as large, or does not fit; of a joined one all the files count
        nbytes = 2 * max(_source_bytes(place.target_folder, target), _joined_bytes(place.golden_folder, golden))
        total += nbytes
        if nbytes > place.part_bytes:
            big.append(job)
        else:
            small.append((job, nbytes))
    return small, big, total


def _source(name: str | None, join: Join | None) -> str | Join | None:
    """Where a side's tensor stands, None for nowhere."""
    return join if join is not None and join.parts else name


def _source_bytes(folder: str, source: Source) -> int:
    return _file_bytes(folder, source) if isinstance(source, str) else _joined_bytes(folder, source)


def _joined_bytes(folder: str, source: Source) -> int:
    """Bytes of all files of a joined tensor; 0 for one that stands in a single file."""
    return 0 if isinstance(source, str) else sum(_file_bytes(own or folder, name) for own, name in source.parts)


def _file_bytes(folder: str, name: str) -> int:
    """Bytes of a file; 0 where it cannot be looked at (the worker finds the reason)."""
    try:
        return os.stat(tensor_path(folder, name)).st_size
    except (OSError, ValueError, TensorUnreadable):
        return 0


def _take_shard(shard: Shard, result: Any, rows: _Rows) -> None:
    """Rows of a shard that came back, raised, or was lost."""
    if isinstance(result, WorkerLost):
        lost: Shard = result.task
        rows.add([metric_row(job.pair, MetricState.WORKER_LOST, _LOST) for job in lost.jobs])
    elif isinstance(result, Exception):
        text = one_line(f"{type(result).__name__}: {result}", 300)
        rows.add([metric_row(job.pair, MetricState.UNREADABLE, f"measuring failed: {text}") for job in shard.jobs])
    else:
        rows.add(result)


def _run_probes(pool: Pool, shards: list[Shard], rows: _Rows) -> list[Header]:
    headers = []
    for index, result in pool.map_unordered(probe_pair, shards):
        if isinstance(result, Header):
            headers.append(result)
        else:
            _take_shard(shards[index], result, rows)
    return sorted(headers, key=lambda header: header.job.pair)


def _dispatch(task: Shard | Part) -> list[Row] | PartSums:
    """One function for both kinds of task, so that they share the pool without a barrier."""
    return measure_part(task) if isinstance(task, Part) else measure_shard(task)


def _pieces(task: Shard | Part) -> Sequence[Shard | Part]:
    return [task] if isinstance(task, Part) else single_jobs(task)


def _run_parts(
    pool: Pool,
    place: Place,
    wanted: Sequence[tuple[Header, tuple[int, int, int] | None]],
    shards: Iterable[Shard],
    rows: _Rows,
) -> list[tuple[Header, PairSums]]:
    """Sums of big pairs (merged in order of their segments), and the rows of small shards beside them."""
    tasks: dict[int, Shard | Part] = {}

    def numbered() -> Iterator[Shard | Part]:
        parts = chain.from_iterable(cut_parts(place, header, scales) for header, scales in wanted)
        everything: Iterator[Shard | Part] = chain(parts, shards)
        for index, task in enumerate(everything):
            tasks[index] = task
            yield task

    found: dict[int, list[PartSums]] = {header.job.pair: [] for header, _ in wanted}
    for index, result in pool.map_unordered(_dispatch, numbered(), pieces=_pieces):
        task = tasks.get(index)
        if isinstance(result, PartSums):
            found[result.pair].append(result)
            tasks.pop(index, None)
        elif isinstance(task, Shard):
            _take_shard(task, result, rows)
        elif isinstance(task, Part):
            rows.fail(_part_row(task, result))
    whole = []
    for header, _ in wanted:
        pair = header.job.pair
        if pair not in rows.failed:
            sums = [one for part in sorted(found[pair], key=lambda part: part.first) for one in part.sums]
            whole.append((header, join_segments(sums)))
    return whole


def _part_row(part: Part, result: Any) -> Row:
    """The row of a big pair one part of which came to nothing."""
    if isinstance(result, list):
        return tuple(result[0])
    if isinstance(result, WorkerLost):
        return metric_row(part.job.pair, MetricState.WORKER_LOST, _LOST)
    text = one_line(f"{type(result).__name__}: {result}", 300)
    return metric_row(part.job.pair, MetricState.UNREADABLE, f"measuring failed: {text}")


def _finish_big(pool: Pool, place: Place, whole: Sequence[tuple[Header, PairSums]], rows: _Rows) -> None:
    """Rows of big pairs, with the rounding pass over those that need it."""
    results = [(header, sums, read_out(sums)) for header, sums in whole]
    tasks: list[Part] = []
    for header, sums, metrics in results:
        if asks_rounding(MetricState.COMPUTED, metrics):
            tasks += cut_parts(place, header, None, noise_floor(sums, header.target, header.golden))
    within = {task.job.pair: True for task in tasks}
    for index, result in pool.map_unordered(measure_part, tasks):
        pair = tasks[index].job.pair
        if isinstance(result, PartSums):
            within[pair] = within[pair] and not result.beyond
        else:
            rows.fail(_part_row(tasks[index], result))
    for header, sums, metrics in results:
        pair = header.job.pair
        if pair not in rows.failed:
            answer = within.get(pair)
            rows.add(
                [
                    metric_row(
                        pair,
                        MetricState.COMPUTED,
                        sums=sums,
                        metrics=metrics,
                        within=answer,
                        found=header.found,
                        joined=header.joined,
                        nbytes=header.nbytes,
                    )
                ]
            )
