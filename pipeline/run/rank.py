"""One pair of dump files from beginning to end: read, match, measure, and hand out judged rows as often as wanted."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import polars as pl
from opassay.kernels.scopes import elements_of
from opassay.pipeline.judge import Judging, empty_metrics
from opassay.pipeline.match.pairing import pair_dumps
from opassay.pipeline.read.stacks import StackTable, read_stacks
from opassay.pipeline.report.layout import cells
from opassay.pipeline.report.tally import Tally
from opassay.pipeline.run.budget import Budget
from opassay.pipeline.run.inputs import read_inputs
from opassay.pipeline.run.mode import tensor_folder
from opassay.pipeline.run.plan import RankPair
from opassay.pipeline.run.pool import Pool
from opassay.schemas import headers
from opassay.schemas.dtypes import parse_dtype
from opassay.schemas.dump_rows import DumpTable, Join
from opassay.schemas.options import CompareOptions, Matching
from opassay.schemas.vocab import DumpMode, MetricState, RowKind

LOGGER = logging.getLogger("opassay")

_STACKS = "stack.json"
_INLINE_BYTES = 64 << 20  # less than this, and fewer pairs than that, is done before workers have started
_INLINE_PAIRS = 2_000
_TINY_BYTES = (
    4 << 20
)  # numpy is done with these before compiled kernels would have loaded (or, the first time, been compiled)
_TINY_PAIRS = 1_000


class Watcher(Protocol):
    """Who wants to know how far the measuring is; ``watch.progress.Progress`` is one."""

    def start(self, total_bytes: int, total_pairs: int, label: str) -> None:
        """A step of known size begins."""

    def advance(self, bytes: int = 0, pairs: int = 0) -> None:
        """So much more is done."""

    def finish(self) -> None:
        """The step has ended."""


@dataclass(slots=True)
class RankReport:
    """The comparison of one pair of dump files.

    Attributes
    ----------
    pair : RankPair
        What was compared.
    mode : DumpMode
        On what.
    judging : Judging
        The tables behind the rows.
    stacks : StackTable or None
        Call stacks of the target, where a stack.json stands beside it.
    problems : list of str
        One line each: what was odd in the input.
    damaged : bool
        Whether a record or file could not be read (exit status 3).
    partial : bool
        Whether a JSON file is cut and the rows end at the cut; the report's name says so, lest it passes for a whole one.
    bytes_read : int
        Size of the dumps behind it: JSON files and the tensors that were measured, both sides.
    reused : int
        Pairs whose golden row serves another target row as well, as a mapping may have it.
    """

    pair: RankPair
    mode: DumpMode
    judging: Judging
    stacks: StackTable | None
    problems: list[str] = field(default_factory=list)
    damaged: bool = False
    partial: bool = False
    bytes_read: int = 0
    reused: int = 0

    @property
    def label(self) -> str:
        """What the report's name has between ``compare_result`` and the timestamp."""
        return "_".join(part for part in (self.pair.label, "partial" if self.partial else "") if part)

    @property
    def columns(self) -> dict[str, str]:
        """Internal column -> report header, in order."""
        return headers.report_columns(self.mode, stack=self.stacks is not None)

    def judged(self) -> Iterator[pl.DataFrame]:
        """Judged rows, slice by slice, in report order."""
        return self.judging.slices()

    def cells(self, judged: pl.DataFrame, *, typed: bool = False) -> pl.DataFrame:
        """Report cells of one slice."""
        return cells(judged, self.mode, stacks=self.stacks.text_for if self.stacks else None, typed=typed)

    @property
    def rows(self) -> pl.DataFrame:
        """The whole report as one frame: report columns and the numbers behind them."""
        return pl.concat([self.cells(judged, typed=True) for judged in self.judged()])

    def tally(self) -> Tally:
        """Counts with the sizes of both sides; rows are added as slices pass."""
        sides = self.judging.target, self.judging.golden
        rows, ops = [side.rows.height for side in sides], [side.ops.height for side in sides]
        return Tally(rows[0], rows[1], ops[0], ops[1], reused=self.reused)


def compare_pair(
    pair: RankPair,
    options: CompareOptions,
    *,
    matching: Matching,
    pool: Pool,
    budget: Budget,
    progress: Watcher | None = None,
    total_bytes: int = 0,
) -> RankReport:
    """Compare two dump files.

    Parameters
    ----------
    pair : RankPair
        The files.
    options : CompareOptions
        As given.
    matching : Matching
        How ops and rows may meet.
    pool : Pool
        Where tensors are measured.
    budget : Budget
        Memory of the run.
    progress : Watcher, optional
        Told how far the measuring is.
    total_bytes : int
        Bytes of JSON of the whole run.

    Raises
    ------
    DumpError
        A file cannot be read at all.
    NothingToCompare
        A side has no records, or the sides no data in common.
    UsageError
        Frameworks, tasks or checksums that cannot be compared.
    """
    read = read_inputs(pair, side_by_side=not pool.inline, on_statistics=options.diff_analyze, total_bytes=total_bytes)
    mode, problems, damaged = read.mode, list(read.problems), read.damaged
    pairing = pair_dumps(read.target, read.golden, matching)
    target, golden = pairing.target, pairing.golden
    for note in pairing.notes:
        LOGGER.info("%s: %s", pair.name, note)
    problems += pairing.warnings
    lenient = matching.backend is not None
    metrics = None
    if mode is DumpMode.TENSOR:
        metrics = _measure(pair, target, golden, pairing.rows, options, pool, budget, progress, lenient)
        broken = metrics.filter(
            pl.col("state").is_in([MetricState.FILE_MISSING, MetricState.UNREADABLE, MetricState.WORKER_LOST])
        )
        if broken.height:
            damaged = True
            problems.append(
                f"{broken.height:,} tensor pairs could not be read; the first: {broken['reason'].drop_nulls().head(1).to_list()[0]}"
            )
    stacks = _stacks(pair.target.parent)
    if stacks is not None and stacks.problems:
        damaged = True
        problems += [f"{pair.target.parent / _STACKS}: {problem.text} ({problem.where})" for problem in stacks.problems]
    judging = Judging(target, golden, pairing.rows, metrics, mode, options.strict, options.document_rules, lenient)
    size = sum(path.stat().st_size for path in (pair.target, *pair.shards, pair.golden)) + (
        int(metrics["bytes"].sum()) if metrics is not None else 0
    )
    met = pairing.rows["golden_row"].drop_nulls()
    reused = met.len() - met.n_unique()
    return RankReport(pair, mode, judging, stacks, problems, damaged, read.partial, size, reused)


def _measure(
    pair: RankPair,
    target: DumpTable,
    golden: DumpTable,
    pairs: pl.DataFrame,
    options: CompareOptions,
    pool: Pool,
    budget: Budget,
    progress: Watcher | None,
    lenient: bool,
) -> pl.DataFrame:
    """Metrics of every pair of tensors; pairs of anything else are left out and read as NOT_A_TENSOR."""
    from opassay.pipeline.measure.tensors import measure_tensors

    files = pairs.with_row_index("pair").select(
        "pair",
        "target_row",
        "golden_row",
        target_file=target.rows["data_name"].gather(pairs["target_row"]),
        golden_file=golden.rows["data_name"].gather(pairs["golden_row"]),
        target_kind=target.rows["kind"].gather(pairs["target_row"]),
        golden_kind=golden.rows["kind"].gather(pairs["golden_row"]),
    )
    tensors = files.filter((pl.col("target_kind") == RowKind.TENSOR) & (pl.col("golden_kind") == RowKind.TENSOR))
    if tensors.is_empty():
        return empty_metrics(tensors)
    size = _bytes_of(target, pairs["target_row"]) + _bytes_of(golden, pairs["golden_row"])
    if progress is not None:
        progress.start(size, tensors.height, f"measuring {pair.name}")
    if size < _INLINE_BYTES and tensors.height < _INLINE_PAIRS:
        pool = Pool(1)
    tiny = size < _TINY_BYTES and tensors.height < _TINY_PAIRS
    metrics = measure_tensors(
        tensors.select("pair", "target_file", "golden_file"),
        tensor_folder(target),
        tensor_folder(golden),
        pool=pool,
        io=options.io,
        device=options.device,
        engine="numpy" if tiny else "auto",
        budget=budget,
        target_joins=_joins(target, tensors["target_row"], tensors["pair"]),
        golden_joins=_joins(golden, tensors["golden_row"], tensors["pair"]),
        merge_heads=lenient,
        on_progress=progress.advance if progress is not None else (lambda _bytes, _pairs: None),
    )
    if progress is not None:
        progress.finish()
    return metrics


def _joins(table: DumpTable, rows: pl.Series, pairs: pl.Series) -> dict[int, Join]:
    """Pairs whose tensor on this side stands in several files."""
    if not table.joins:
        return {}
    return {pair: table.joins[row] for pair, row in zip(pairs, rows, strict=True) if row in table.joins}


def _bytes_of(table: DumpTable, rows: pl.Series) -> int:
    """Bytes of the saved tensors among these rows, by the shapes and dtypes of the JSON."""
    sizes = pl.Series([elements_of(shape) or 0.0 for shape in table.shapes], dtype=pl.Float64)
    widths = pl.Series([kind.width if (kind := parse_dtype(text)) else 0 for text in table.dtypes], dtype=pl.Float64)
    picked = table.rows.select(pl.col("shape", "dtype", "data_name").gather(rows.drop_nulls())).filter(
        pl.col("data_name").is_not_null()
    )
    return int((sizes.gather(picked["shape"]) * widths.gather(picked["dtype"])).sum())


def _stacks(folder: Path) -> StackTable | None:
    path = folder / _STACKS
    return read_stacks(path) if os.path.lexists(path) else None
