"""``api_precision_compare``: two details files in, a details and a result file out, both whole or neither."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl
import polars.selectors as cs
from opassay.kernels.precision.ratio_results import results
from opassay.kernels.precision.ratio_rows import compare_rows
from opassay.pipeline.check.details_file import DetailsFile, read_details
from opassay.pipeline.report.csv import formula_like
from opassay.pipeline.report.files import WholeFile, make_folder, output_error, timestamp
from opassay.schemas.check_rows import Status
from opassay.schemas.precision_rows import COMPARED, COMPARED_RESULT

DETAILS_STEM: Final = "api_precision_compare_details"
RESULT_STEM: Final = "api_precision_compare_result"
MODE: Final = 0o640
_NAMED: Final = 3  # rows that a line names


@dataclass(frozen=True, slots=True)
class PrecisionCompared:
    """What a comparison gave.

    Attributes
    ----------
    rows : polars.DataFrame
        One row an output, see ``kernels.precision.ratio_rows.compare_rows``.
    results : polars.DataFrame
        One row a call, columns ``COMPARED_RESULT``.
    files : tuple of Path
        The result and the details file.
    problems : tuple of str
        Lines about what could not be read, or stands more than once.
    notes : tuple of str
        Lines about what was read and not compared.
    counts : mapping of str to int
        Calls by their gravest verdict.
    """

    rows: pl.DataFrame
    results: pl.DataFrame
    files: tuple[Path, ...]
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def judged(self) -> int:
        """Outputs that got a verdict."""
        return self.rows.filter(pl.col("kind") == "judged").height


def compare_files(npu: Path, gpu: Path, folder: Path, *, csv_safe: bool = False) -> PrecisionCompared:
    """Judge the NPU's accuracy against the GPU's.

    Parameters
    ----------
    npu, gpu : Path
        accuracy_checking_details files of either tool.
    folder : Path
        Where the two files go; made if needed.
    csv_safe : bool
        Put an apostrophe before cells that a spreadsheet would run as a formula.

    Returns
    -------
    PrecisionCompared
        The tables, and where the files are.

    Raises
    ------
    OpassayError
        If a file cannot be used at all, or the folder cannot be written.
    """
    sides = read_details(npu, "npu_csv"), read_details(gpu, "gpu_csv")
    make_folder(folder)
    rows = compare_rows(sides[0].rows, sides[1].rows)
    calls = results(rows)
    files = _write(folder, {RESULT_STEM: (calls, COMPARED_RESULT), DETAILS_STEM: (rows, COMPARED)}, safe=csv_safe)
    problems, notes = _told(rows, *sides)
    return PrecisionCompared(rows, calls, files, problems, notes, _counts(calls))


def _counts(calls: pl.DataFrame) -> dict[str, int]:
    counts = {}
    left = calls.select("forward", "backward")
    for word in (Status.ERROR, Status.WARNING, Status.PASS, Status.SKIP):
        here = pl.any_horizontal(pl.all() == word.value)
        counts[word.value] = left.filter(here).height
        left = left.filter(~here)
    return counts


def _told(rows: pl.DataFrame, npu: DetailsFile, gpu: DetailsFile) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Lines on what could not be read, and on what was not compared; each names a few rows."""
    ours = pl.col("in_npu")
    kinds = {
        f"{gpu.path} has more than one row of this name, the first was used": ours & (pl.col("gpu_rows") > 1)
        & (pl.col("kind") != "repeated"),
        f"{npu.path} has this name already, the first row was compared": pl.col("kind") == "repeated",
        f"a figure in {npu.path} or {gpu.path} is no number": pl.col("why") == "text",
    }  # fmt: skip
    notes = {
        f"not in {gpu.path}": ours & (pl.col("gpu_rows") == 0) & pl.col("call").is_not_null(),
        f"not in {npu.path}": ~ours,
        f"a figure is blank in {npu.path} or {gpu.path}": pl.col("why") == "blank",
        f"no name of an output in {npu.path}": ours & pl.col("call").is_null(),
    }
    told = [[line for text, where in table.items() if (line := _line(rows, text, where))] for table in (kinds, notes)]
    return (*npu.problems, *gpu.problems, *told[0]), tuple(told[1])


def _line(rows: pl.DataFrame, text: str, where: pl.Expr) -> str:
    names = rows.filter(where).get_column("name").to_list()
    if not names:
        return ""
    more = ", ..." if len(names) > _NAMED else ""
    count = "1 row" if len(names) == 1 else f"{len(names)} rows"
    return f"{count}: {text}: {', '.join(names[:_NAMED])}{more}"


def _write(folder: Path, tables: Mapping[str, tuple[pl.DataFrame, dict[str, str]]], *, safe: bool) -> tuple[Path, ...]:
    """Write the tables under one timestamp; a file has its name only when all are complete."""
    stamp = _free_stamp(folder, list(tables))
    held = [WholeFile(folder / f"{stem}_{stamp}.csv") for stem in tables]
    try:
        for file, (frame, columns) in zip(held, tables.values(), strict=True):
            file.write(csv_bytes(frame.select(list(columns)).rename(columns), safe=safe))
            try:
                os.chmod(file.temporary, MODE)
            except OSError as error:
                raise output_error(file.path, error) from error
        return tuple(file.commit() for file in held)
    finally:
        for file in held:
            file.discard()


def _free_stamp(folder: Path, stems: list[str]) -> str:
    """The time, or the first second after it under which no file of that name stands."""
    moment = datetime.strptime(timestamp(time.time()), "%Y%m%d%H%M%S")
    while any((folder / f"{stem}_{moment:%Y%m%d%H%M%S}.csv").exists() for stem in stems):
        moment += timedelta(seconds=1)
    return f"{moment:%Y%m%d%H%M%S}"


def csv_bytes(frame: pl.DataFrame, *, safe: bool = False) -> bytes:
    """A table of the checker as its files hold it: UTF-8 with byte order mark, CRLF, quotes where RFC 4180 needs them.

    Parameters
    ----------
    frame : polars.DataFrame
        Columns by their headers, String; null becomes an empty cell.
    safe : bool
        Put an apostrophe before cells that a spreadsheet would run as a formula.
    """
    if safe:
        text = cs.string()
        frame = frame.with_columns(pl.when(formula_like(text)).then("'" + text).otherwise(text).name.keep())
    buffer = io.BytesIO()
    frame.write_csv(buffer, include_bom=True, line_terminator="\r\n")
    return buffer.getvalue()
