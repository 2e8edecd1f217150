"""What two dumps are compared on: what both sides have decides (decision 10)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from opassay.kernels import api_names
from opassay.schemas.dump_rows import STATISTICS, DumpTable
from opassay.schemas.errors import NothingToCompare, UsageError
from opassay.schemas.vocab import DumpMode, RowKind, StatKind

TENSOR_FOLDER: Final = "dump_tensor_data"
_TASKS: Final = ("tensor", "statistics")
_FRAMEWORKS: Final = ("pytorch", "mindtorch", "mindspore")


def check_framework(table: DumpTable, side: str) -> str | None:
    """A note if the header names no framework.

    Raises
    ------
    UsageError
        The framework is not one that this command compares.
    """
    if not table.framework:
        return (
            f"{side} {table.path} names no framework; taken as {api_names.framework_of(table.framework, table.dtypes)}"
        )
    if table.framework not in _FRAMEWORKS:
        raise UsageError(
            f"{side} {table.path} is a dump of framework {table.framework!r}; "
            f"compare takes {', '.join(_FRAMEWORKS[:-1])} and {_FRAMEWORKS[-1]} dumps"
        )
    return None


def choose_mode(target: DumpTable, golden: DumpTable) -> tuple[DumpMode, list[str], bool]:
    """Decide the mode of a pair of dumps.

    Parameters
    ----------
    target, golden : DumpTable
        The two sides.

    Returns
    -------
    mode : DumpMode
        What both sides have.
    notes : list of str
        Why, where the sides differ.
    lost : bool
        Whether data that a header promises are not there (exit status 3).

    Raises
    ------
    UsageError
        A task that holds nothing to compare, or md5 against xor checksums.
    NothingToCompare
        The sides have no kind of data in common.
    """
    for side, table in (("target", target), ("golden", golden)):
        if table.task not in _TASKS:
            raise NothingToCompare(
                f"{side} {table.path} is a dump of task {table.task!r}, which holds nothing to compare; dump with task tensor or statistics"
            )
    notes: list[str] = []
    lost = False
    tasks = (target.task, golden.task)
    if tasks == ("tensor", "tensor"):
        bare = [table for table in (target, golden) if not tensor_folder(table).is_dir()]
        if not bare:
            return DumpMode.TENSOR, notes, False
        if all(has_statistics(table) for table in (target, golden)):
            missing = " and ".join(str(tensor_folder(table)) for table in bare)
            notes.append(f"{missing} is missing: tensors cannot be read, compared on the statistics of the JSON files")
            return DumpMode.STATISTICS, notes, True
        raise NothingToCompare(
            f"{tensor_folder(bare[0])} is missing, and the JSON files hold no statistics to compare instead"
        )
    if tasks == ("statistics", "statistics") and target.checksum and golden.checksum:
        if target.checksum != golden.checksum:
            raise UsageError(
                f"target holds {target.checksum} checksums and golden {golden.checksum}: they are computed differently and never agree; "
                "dump both sides with the same summary_mode"
            )
        return DumpMode.MD5, notes, False
    if not all(has_statistics(table) for table in (target, golden)):
        raise NothingToCompare(
            f"target ({_describe(target)}) and golden ({_describe(golden)}) have no kind of data in common; "
            "dump both with the same task and summary_mode"
        )
    if tasks[0] != tasks[1] or target.checksum != golden.checksum:
        notes.append(
            f"target is {_describe(target)}, golden is {_describe(golden)}: compared on statistics, which both have"
        )
    return DumpMode.STATISTICS, notes, lost


def has_statistics(table: DumpTable) -> bool:
    """Whether any tensor of a dump has any statistic; true for a dump without tensors."""
    import polars as pl

    tensors = table.rows.lazy().filter(pl.col("kind") == RowKind.TENSOR)
    kinds = [pl.col(f"{stat}_kind") != StatKind.NONE for stat in STATISTICS]
    found = tensors.select(pl.any_horizontal(kinds).any().alias("any"), pl.len().alias("rows")).collect()
    return bool(found["any"][0]) or found["rows"][0] == 0


def tensor_folder(table: DumpTable) -> Path:
    """The folder beside the JSON file that holds the tensors; the path in the header is often stale and never used."""
    return table.path.parent / TENSOR_FOLDER


def _describe(table: DumpTable) -> str:
    return f"{table.task} with {table.checksum} checksums" if table.checksum else table.task
