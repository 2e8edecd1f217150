"""The compare command's work: every pair of the plan compared and written, one after the other or side by side.

One bad rank or file never stops the rest: it becomes a line and exit status 3.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from opassay.pipeline.run.budget import Budget
from opassay.pipeline.run.missing import missing_package
from opassay.pipeline.run.plan import Plan, RankPair
from opassay.pipeline.run.pool import Pool, WorkerLost
from opassay.schemas.errors import OpassayError
from opassay.schemas.options import CompareOptions, Matching
from opassay.schemas.vocab import DumpMode

if TYPE_CHECKING:
    from opassay.pipeline.report.op_json import OpJsonWriter
    from opassay.pipeline.report.tally import Tally
    from opassay.pipeline.run.rank import RankReport, Watcher
    from opassay.schemas.op_facts import RankFacts

LOGGER = logging.getLogger("opassay")

_WORKER_BYTES = 200 << 20
_TABLE_SHARE = 0.9


@dataclass(slots=True)
class RankOutcome:
    """What became of one pair of the plan.

    Attributes
    ----------
    pair : RankPair
        Which.
    mode : DumpMode or None
        None if it was not compared.
    tally : Tally or None
        Counts of its report.
    files : list of Path
        Reports written.
    problems : list of str
        One line each.
    damaged : bool
        Part of the input could not be read.
    error : str
        Why it was not compared or written; "" if it was.
    bytes_read : int
        Size of the dumps behind it, both sides.
    facts : RankFacts or None
        What this rank contributes to the search of the first difference.
    """

    pair: RankPair
    mode: DumpMode | None = None
    tally: Tally | None = None
    files: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    damaged: bool = False
    error: str = ""
    bytes_read: int = 0
    facts: RankFacts | None = None


@dataclass(frozen=True, slots=True)
class _RankTask:
    pair: RankPair
    options: CompareOptions
    matching: Matching
    folder: Path
    stamp: str
    budget: Budget
    total_bytes: int = 0


def run_plan(
    plan: Plan,
    options: CompareOptions,
    *,
    matching: Matching,
    stamp: str,
    pool: Pool,
    budget: Budget,
    progress: Watcher | None = None,
) -> Iterator[RankOutcome]:
    """Compare and write every pair of a plan.

    Parameters
    ----------
    plan : Plan
        The pairs.
    options : CompareOptions
        As given.
    matching : Matching
        How ops and rows may meet; the same for all ranks.
    stamp : str
        Timestamp of all result names.
    pool : Pool
        Workers: whole ranks side by side where there are several and no tensors; tensors of one rank after the other otherwise.
    budget : Budget
        Memory of the run.
    progress : Watcher, optional
        Told how far the measuring is.

    Yields
    ------
    RankOutcome
        One a pair, as they finish.
    """
    sizes = [_json_bytes(pair) for pair in plan.pairs]
    tasks = [
        _RankTask(pair, options, matching, report_folder(pair, options), stamp, budget, sum(sizes))
        for pair in plan.pairs
    ]
    if pool.inline or len(tasks) < 2 or any(_task_of(task.pair.target) == "tensor" for task in tasks):
        for task in tasks:
            yield compare_and_write(task, pool, progress)
        return
    side_by_side = ranks_side_by_side(sizes, budget)
    if side_by_side < min(pool.workers, len(tasks)):
        LOGGER.warning(
            "%d ranks side by side in place of %d: the memory budget holds no more; --memory raises it",
            side_by_side,
            min(pool.workers, len(tasks)),
        )
    with Pool(side_by_side) as ranks:
        yield from _spread(tasks, ranks)


def ranks_side_by_side(json_bytes: Sequence[int], budget: Budget) -> int:
    """How many ranks fit into the budget at once.

    Parameters
    ----------
    json_bytes : sequence of int
        Bytes of both JSON files of each rank.
    budget : Budget
        Memory and workers of the run.

    Returns
    -------
    int
        At least 1; two tables and a slice cost about 0.8 bytes a byte of JSON (measured), a worker about 200 MB.
    """
    largest = _WORKER_BYTES + int(_TABLE_SHARE * max(json_bytes))
    return max(1, min(budget.workers, budget.memory_bytes // largest))


def _json_bytes(pair: RankPair) -> int:
    return sum(path.stat().st_size for path in (pair.target, pair.golden) if path.exists())


def _spread(tasks: Sequence[_RankTask], pool: Pool) -> Iterator[RankOutcome]:
    for index, result in pool.map_unordered(_in_worker, tasks):
        if isinstance(result, RankOutcome):
            yield result
        elif isinstance(result, WorkerLost):
            text = f"the worker process died twice (exit code {result.exit_code}; out of memory?); try fewer --workers"
            yield RankOutcome(tasks[index].pair, damaged=True, error=text)
        else:
            yield RankOutcome(tasks[index].pair, damaged=True, error=_one_line(result))


def _in_worker(task: _RankTask) -> RankOutcome:
    return compare_and_write(task, Pool(1), None)


def compare_and_write(task: _RankTask, pool: Pool, progress: Watcher | None) -> RankOutcome:
    """Compare one pair and write its reports; an error becomes part of the outcome, never an exception."""
    from opassay.pipeline.run.rank import compare_pair
    from polars.exceptions import PanicException  # what polars raises when it fails inside; no Exception

    outcome = RankOutcome(task.pair)
    try:
        report = compare_pair(
            task.pair,
            task.options,
            matching=task.matching,
            pool=pool,
            budget=task.budget,
            progress=progress,
            total_bytes=task.total_bytes,
        )
        outcome.mode, outcome.problems = report.mode, report.problems
        outcome.damaged, outcome.bytes_read = report.damaged, report.bytes_read
        outcome.tally, outcome.files, outcome.facts = write_reports(report, task.options, task.folder, task.stamp)
    except OpassayError as error:
        outcome.error = _one_line(error)
    except (Exception, PanicException) as error:  # the edge of a task: a bug must not cost the other ranks
        LOGGER.debug("%s", task.pair.name, exc_info=True)
        unexpected = f"unexpected {type(error).__name__}: {_one_line(error)}; run with --verbose for the traceback"
        outcome.error = missing_package(error) or unexpected
    outcome.damaged = outcome.damaged or bool(outcome.error)
    return outcome


def write_reports(
    report: RankReport, options: CompareOptions, folder: Path, stamp: str
) -> tuple[Tally, list[Path], RankFacts]:
    """Write one pair's report in the formats that were asked for, in one pass over its rows.

    Returns
    -------
    tally : Tally
        Counts of the report.
    files : list of Path
        What was written.
    facts : RankFacts
        For the search of the first difference.

    Raises
    ------
    OutputError
        If a file cannot be written; nothing is left under a final name.
    """
    import polars as pl
    from opassay.pipeline.difference.collect import FactsCollector
    from opassay.pipeline.report import open_writers
    from opassay.pipeline.report.files import make_folder
    from opassay.pipeline.report.tensor_log import log_rows
    from opassay.schemas.op_facts import Kind

    make_folder(folder)
    typed = options.xlsx or options.parquet
    tally = report.tally()
    facts = FactsCollector(report.judging, detailed=options.diff_analyze)
    with (
        open_writers(folder, report.label, report.columns, options, debug=report.pair.debug, stamp=stamp) as writers,
        _ops_file(report, options, folder, stamp) as ops_file,
    ):
        for judged in report.judged():
            tally.add(judged)
            shown = report.cells(judged, typed=typed)
            found = facts.add(judged, shown)
            if ops_file is not None:
                ops_file.add(judged, shown, found.filter(pl.col("kind") > Kind.SAME)["op"])
            if options.parquet:
                shown = shown.with_columns(
                    step=pl.lit(report.pair.step, dtype=pl.UInt32), rank=pl.lit(report.pair.label)
                )
            if options.tensor_log and report.mode is DumpMode.TENSOR:
                log_rows(judged, shown)
            for writer in writers:
                writer.add(shown)
        files: list[Path] = []
        try:
            for writer in writers:
                files += writer.close()
            files += ops_file.close() if ops_file is not None else []
        except BaseException:
            for path in files:  # one format without the other would pass for the whole report
                path.unlink(missing_ok=True)
            raise
    if report.stacks is not None:
        tally.locate(report.stacks.text_for)
    stacks = report.stacks.text_for if report.stacks is not None else None
    return tally, files, facts.finish(report.pair.rank, report.pair.label, stacks)


@contextmanager
def _ops_file(report: RankReport, options: CompareOptions, folder: Path, stamp: str) -> Iterator[OpJsonWriter | None]:
    """The writer of ``-da``'s file of this rank, where it is wanted; discarded if the block ends by an exception."""
    if not options.diff_analyze:
        yield None
        return
    from opassay.pipeline.report.files import result_path
    from opassay.pipeline.report.op_json import OpJsonWriter

    path = result_path(folder, f"compare_result_rank{report.pair.rank}", ".json", stamp)
    writer = OpJsonWriter(path, report.columns, report.judging.target, report.judging.golden)
    try:
        yield writer
    finally:
        writer.discard()


def report_folder(pair: RankPair, options: CompareOptions) -> Path:
    """Where the reports of a pair go: a folder a step where there are several."""
    return options.output if pair.step is None else options.output / f"step{pair.step}"


def _task_of(path: Path) -> str:
    """The task a header names within its first kilobytes, "" where it stands elsewhere."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:
        return ""
    found = re.search(rb'"task"\s*:\s*"(\w+)"', head)
    return found[1].decode() if found else ""


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
