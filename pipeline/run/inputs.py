"""The two tables of a pair of dump files, read and checked: what a comparison and its dry run both begin with."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from opassay.pipeline.read.dump_json import read_dump
from opassay.pipeline.run.mode import check_framework, choose_mode, has_statistics
from opassay.pipeline.run.plan import RankPair
from opassay.schemas.dump_rows import DumpProblem, DumpTable
from opassay.schemas.errors import NothingToCompare
from opassay.schemas.vocab import DumpMode

_LARGE_JSON = 16 << 20

ON_STATISTICS = "-da compares tensor dumps on the statistics of their JSON files; without -da the tensors are read"
"""A note that holds for the run: every rank brings it."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Both sides of a pair.

    Attributes
    ----------
    target, golden : DumpTable
        The sides; the target's shards are joined already.
    mode : DumpMode
        What they are compared on.
    problems : list of str
        One line each: what was odd.
    damaged : bool
        Whether something could not be read (exit status 3).
    partial : bool
        Whether a JSON file is cut.
    """

    target: DumpTable
    golden: DumpTable
    mode: DumpMode
    problems: list[str]
    damaged: bool
    partial: bool


def read_inputs(pair: RankPair, *, side_by_side: bool, on_statistics: bool = False, total_bytes: int = 0) -> Inputs:
    """Read the JSON files of a pair; no tensor is opened.

    Parameters
    ----------
    pair : RankPair
        The files.
    side_by_side : bool
        Read large files in two threads (the tokenizer runs without the lock).
    on_statistics : bool
        Compare tensor dumps on the statistics of their JSON files, where both have them.
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
    target, golden = _read_both(pair, side_by_side, total_bytes)
    shards = [read_dump(path, total_bytes=total_bytes) for path in pair.shards]
    read = [("target", target), *(("target", table) for table in shards), ("golden", golden)]
    problems = [_told(side, table, problem) for side, table in read for problem in table.problems]
    damaged = any(problem.fatal for _, table in read for problem in table.problems)
    partial = any(problem.kind == "cut" for _, table in read for problem in table.problems)
    for side, table in read:
        if note := check_framework(table, side):
            problems.append(note)
    for side, table in read:
        if table.rows.is_empty():
            raise NothingToCompare(
                f"{side} {table.path} holds no records to compare (task {table.task or 'unknown'}, data is empty); was the run dumped?"
            )
    if shards:
        from opassay.pipeline.match.shards import join_ranks

        target = join_ranks([target, *shards], golden)
        if lacking := sum("ranks only" in join.told for join in target.joins.values()):
            problems.append(
                f"{lacking:,} rows stand on some of the {len(shards) + 1} joined ranks only; their notes say on which"
            )
    mode, notes, lost = choose_mode(target, golden)
    if on_statistics and mode is DumpMode.TENSOR and has_statistics(target) and has_statistics(golden):
        mode = DumpMode.STATISTICS
        notes.append(ON_STATISTICS)
    return Inputs(target, golden, mode, problems + notes, damaged or lost, partial)


def _read_both(pair: RankPair, side_by_side: bool, total_bytes: int) -> tuple[DumpTable, DumpTable]:
    paths = pair.target, pair.golden
    if side_by_side and min(path.stat().st_size for path in paths) > _LARGE_JSON:
        with ThreadPoolExecutor(2) as threads:
            tables = threads.map(read_dump, paths)
            return next(tables), next(tables)
    target, golden = (read_dump(path, total_bytes=total_bytes) for path in paths)
    return target, golden


def _told(side: str, table: DumpTable, problem: DumpProblem) -> str:
    more = f" (and {problem.count - 1:,} more like it)" if problem.count > 1 else ""
    return f"{side} {table.path}: {problem.where}: {problem.text}{more}"
