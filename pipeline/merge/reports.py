"""One rank's report, xlsx or csv, either tool's -> the rows that are asked for, with the cells that the merged table shows."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import polars as pl
from opassay.kernels.merge_cells import (
    COPY,
    GOLDEN_MAX,
    METRICS,
    NAME,
    TARGET_MAX,
    cell,
    copies,
    found,
    maxima,
    metric_title,
    mode_of,
    selected,
)
from opassay.pipeline.merge.errors import BrokenReport
from opassay.pipeline.merge.inputs import RankReport
from opassay.pipeline.merge.xlsx_file import read_sheets
from opassay.pipeline.read.json_text import open_regular
from opassay.pipeline.watch.logs import clip, one_line
from opassay.schemas.headers import VERDICT
from opassay.schemas.vocab import DumpMode

_NEEDED: Final = (NAME, TARGET_MAX, GOLDEN_MAX)
_RESULT: Final = VERDICT["result"]
_FEW: Final = 6  # headers named in a message
_Rows = Callable[[dict[str, str], pl.Expr], Iterator[pl.DataFrame]]


@dataclass(frozen=True, slots=True)
class RankRows:
    """What the merged table takes from one rank.

    Attributes
    ----------
    report : RankReport
        Where it comes from.
    mode : DumpMode
        Tensor or statistics.
    metrics : tuple of str
        Metrics that the report has, our spelling, in the order of its mode.
    rows : polars.DataFrame
        NAME and COPY, then a String column for each of `metrics` that is wanted: the cells as they are to be shown.
    entries : frozenset of str
        The entries that name at least one row.
    notes : tuple of str
        Lines about sheets that were passed over.
    """

    report: RankReport
    mode: DumpMode
    metrics: tuple[str, ...]
    rows: pl.DataFrame
    entries: frozenset[str]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Table:
    """A csv file or one sheet: where it is, its headers as they are written, and what gives its rows."""

    place: str
    headers: Sequence[str]
    read: _Rows
    titles: dict[str, str] = field(init=False)  # header in our spelling -> as written; the first where one occurs twice

    def __post_init__(self) -> None:
        self.titles = {}
        for header in self.headers:
            self.titles.setdefault(metric_title(header) or header.strip(), header)

    def rows(self, names: Sequence[str], keep: pl.Expr) -> Iterator[pl.DataFrame]:
        return self.read({self.titles[name]: name for name in names}, keep)


def read_report(report: RankReport, entries: Sequence[str], wanted: Sequence[str]) -> RankRows:
    """Read the report of one rank.

    Parameters
    ----------
    report : RankReport
        Its files.
    entries : sequence of str
        What names a row (see `kernels.merge_cells.selected`).
    wanted : sequence of str
        Metrics, our spelling; none: all that the report has.

    Raises
    ------
    BrokenReport
        If a file cannot be read, is no comparison report, or compares checksums: there are no metrics to merge then. The text
        names the file.
    """
    mode: DumpMode | None = None
    metrics: tuple[str, ...] = ()
    frames: list[pl.DataFrame] = []
    notes: list[str] = []
    keep = selected(pl.col(NAME), entries)
    for path in report.files:
        try:
            with closing(_report_tables(path, notes)) as tables:
                for table in tables:
                    here = mode_of(table.titles)
                    if here is DumpMode.MD5:
                        raise BrokenReport("it compares checksums (md5 or xor): such reports have no metrics to merge")
                    if mode is None and here is not None:
                        mode, metrics = here, tuple(name for name in METRICS[here] if name in table.titles)
                    if here is not mode or not set(metrics) <= table.titles.keys():
                        raise BrokenReport(f"{table.place} has other columns than the part before it")
                    chosen = [name for name in metrics if not wanted or name in wanted]
                    frames += [_shown(frame, chosen) for frame in table.rows([*_NEEDED, *chosen], keep)]
        except BrokenReport as error:
            raise BrokenReport(f"{one_line(path.name)}: {error}") from error
        except OSError as error:
            raise BrokenReport(f"{one_line(path.name)}: {error.strerror or error}") from error
    assert mode is not None  # a file without a report's columns has been refused
    rows = pl.concat(frames) if frames else pl.DataFrame(schema=dict.fromkeys([NAME, *chosen], pl.String))
    rows = rows.select(NAME, copies(pl.col(NAME)).alias(COPY), *chosen)
    return RankRows(report, mode, metrics, rows, frozenset(found(rows[NAME], entries)), tuple(notes))


def _shown(frame: pl.DataFrame, metrics: Sequence[str]) -> pl.DataFrame:
    # an xlsx breaks the line between the names of a joined row, a csv does not
    return frame.with_columns(maxima()).select(
        pl.col(NAME).str.replace_all(";\n", ";  ", literal=True), *(cell(name) for name in metrics)
    )


def _report_tables(path: Path, notes: list[str]) -> Generator[_Table, None, None]:
    """The tables of a file that are parts of a report, one at a time; at least one."""
    others: list[_Table] = []
    good = 0
    with closing(_tables(path, notes)) as tables:
        for table in tables:
            if mode_of(table.titles) is None:
                others.append(table)
            else:
                good += 1
                yield table
    if not good:
        if not others or not others[0].headers:
            raise BrokenReport("it is empty")
        begin = ", ".join(clip(one_line(header)) for header in others[0].headers[:_FEW])
        raise BrokenReport(f"{others[0].place} has not the columns of a comparison report; it begins with {begin}")
    notes += [f"{one_line(path.name)}: {one_line(table.place)} is passed over, it is no report" for table in others]


def _tables(path: Path, notes: list[str]) -> Generator[_Table, None, None]:
    if path.suffix.lower() != ".xlsx":
        yield _csv(path)
        return
    with closing(read_sheets(path, notes)) as sheets:
        for sheet in sheets:
            yield _Table(f"sheet {sheet.name}", sheet.headers, partial(sheet.rows, first=NAME))


def _csv(path: Path) -> _Table:
    with open_regular(path) as file:  # says by itself what is the matter with it, and never waits
        ended = _ends_with_a_line(file.fileno())
    scan = pl.scan_csv(path, infer_schema=False, glob=False, low_memory=True)
    try:
        headers = scan.collect_schema().names()
        if not ended and _RESULT in headers and scan.select(pl.col(_RESULT).last()).collect().item() is None:
            raise BrokenReport("it ends in the middle of a row: it was cut")
    except pl.exceptions.NoDataError:
        headers = []
    except pl.exceptions.PolarsError as error:
        raise _no_csv(error) from error
    return _Table("the file", headers, partial(_csv_rows, scan))


def _csv_rows(scan: pl.LazyFrame, columns: dict[str, str], keep: pl.Expr) -> Iterator[pl.DataFrame]:
    names = [pl.col(header).alias(name) for header, name in columns.items()]
    try:
        yield scan.select(names).filter((pl.col(NAME) != "") & keep).collect()
    except pl.exceptions.PolarsError as error:
        raise _no_csv(error) from error


def _no_csv(error: pl.exceptions.PolarsError) -> BrokenReport:
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return BrokenReport(f"it is no sound csv file in UTF-8: {clip(reason)}")


def _ends_with_a_line(file: int) -> bool:
    size = os.fstat(file).st_size
    return size == 0 or os.pread(file, 1, size - 1) == b"\n"
