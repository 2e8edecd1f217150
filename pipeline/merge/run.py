"""A merge from folder to workbook: reports are read side by side and taken in the order of their ranks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opassay.kernels.merge_cells import CONSISTENT, METRICS, metric_title
from opassay.pipeline.merge.config import MergeConfig
from opassay.pipeline.merge.errors import BrokenReport
from opassay.pipeline.merge.inputs import RankReport, find_reports
from opassay.pipeline.merge.reports import RankRows, read_report
from opassay.pipeline.merge.workbook import Shelf, write_workbook
from opassay.pipeline.report.files import make_folder, result_path, timestamp
from opassay.pipeline.run.budget import usable_cores
from opassay.pipeline.watch.logs import clip, one_line
from opassay.schemas.errors import NothingToCompare, UsageError
from polars.exceptions import PanicException

LOGGER: Final = logging.getLogger("opassay.merge")
STEM: Final = "multi_ranks_compare_merge"
_READERS: Final = 4  # reports in work at once: each holds up to half a gigabyte, one of them more (see `xlsx_file`)
_TOLD: Final = 8  # ranks named in a line
_ALL: Final = tuple(dict.fromkeys(name for names in METRICS.values() for name in names))


@dataclass(frozen=True, slots=True)
class Merged:
    """What came of a merge.

    Attributes
    ----------
    path : Path
        The workbook.
    ranks : tuple of str
        Labels of its columns.
    metrics : tuple of str
        Names of its sheets.
    rows : int
        Rows of a sheet.
    lost : int
        Files that could not be used.
    """

    path: Path
    ranks: tuple[str, ...]
    metrics: tuple[str, ...]
    rows: int
    lost: int


def merge(folder: Path, output: Path, config: MergeConfig, *, readers: int = 0) -> Merged:
    """Merge the reports of a folder into one workbook.

    Parameters
    ----------
    folder : Path
        Holds one report a rank.
    output : Path
        Where the workbook goes; made if needed.
    config : MergeConfig
        Rows and metrics.
    readers : int, default 0
        Reports read at once; 0: one a core, at most four. It changes no cell.

    Raises
    ------
    UsageError
        If the folder cannot be listed.
    NothingToCompare
        If fewer than two reports can be used, or none has a metric that is asked for.
    OutputError
        If the workbook cannot be written.
    """
    found = find_reports(folder)
    for line in found.lost:
        LOGGER.error("%s", line)
    for line in found.notes:
        LOGGER.warning("%s", line)
    _enough(found.reports, folder)
    wanted = _known(config.metrics)
    make_folder(output)
    taken: list[RankRows] = []
    metrics: dict[str, None] = {}
    with Shelf(output) as shelf:
        for report, rank in _read_all(found.reports, config.entries, wanted, readers):
            if isinstance(rank, BrokenReport):
                found.lost.append(str(rank))
                LOGGER.error("%s is left out: %s", report.label, rank)
                continue
            for line in rank.notes:
                LOGGER.warning("%s", line)
            LOGGER.info(
                "%s: %s rows of %s", report.label, f"{rank.rows.height:,}", ", ".join(p.name for p in report.files)
            )
            shelf.put(rank)
            metrics |= dict.fromkeys(rank.metrics)
            taken.append(_without_rows(rank))
        _enough([rank.report for rank in taken], folder)
        sheets = _sheets(wanted, list(metrics))
        _tell_gaps(taken, config.entries, sheets)
        labels = [rank.report.label for rank in taken]
        path = write_workbook(result_path(output, STEM, ".xlsx", timestamp()), shelf, labels, sheets)
        return Merged(path, tuple(labels), tuple(sheets), shelf.order.height, len(found.lost))


def _read_all(
    reports: Sequence[RankReport], entries: Sequence[str], wanted: Sequence[str], readers: int
) -> Iterator[tuple[RankReport, RankRows | BrokenReport]]:
    """Reports in their order, several being read at a time; what is wrong with one takes its place."""

    def read(report: RankReport) -> RankRows | BrokenReport:
        try:
            return read_report(report, entries, wanted)
        except BrokenReport as error:
            return error
        except (Exception, PanicException) as error:  # a bug of ours, or of a library, costs one rank
            LOGGER.debug("%s", report.label, exc_info=error)
            return BrokenReport(
                f"{report.files[0].name}: unexpected {type(error).__name__}: {clip(one_line(str(error)))}"
            )

    with ThreadPoolExecutor(readers or min(usable_cores(), _READERS)) as pool:
        try:
            yield from zip(reports, pool.map(read, reports), strict=True)
        finally:
            pool.shutdown(cancel_futures=True)


def _without_rows(rank: RankRows) -> RankRows:
    return RankRows(rank.report, rank.mode, rank.metrics, rank.rows.clear(), rank.entries)


def _enough(reports: Sequence[RankReport], folder: Path) -> None:
    if len(reports) < 2:
        have = f"only that of {reports[0].label}" if reports else "none"
        raise NothingToCompare(
            f"a merge needs the reports of two ranks or more, and {folder} has {have} that can be used; "
            "check -i: the files are compare_result_rank<number>_<14 digits>.xlsx or .csv"
        )


def _known(names: Sequence[str]) -> list[str]:
    """Metrics of ``compare_index`` in our spelling; unknown ones are told of."""
    titles = {name: metric_title(name) for name in names}
    if unknown := [name for name, title in titles.items() if title is None]:
        text = f"compare_index: {', '.join(map(repr, unknown))} is no metric; there are {', '.join(_ALL)}"
        if len(unknown) == len(names):
            raise UsageError(text)
        LOGGER.warning("%s", text)
    return list(dict.fromkeys(title for title in titles.values() if title is not None))


def _sheets(wanted: Sequence[str], there: Sequence[str]) -> list[str]:
    """The sheets: what is wanted and there, else all there is, with the agreement of requires_grad behind the metrics."""
    if not wanted:
        return sorted(there, key=lambda name: name == CONSISTENT)
    sheets = [name for name in wanted if name in there]
    if missing := [name for name in wanted if name not in there]:
        text = f"compare_index: no report has the column {', '.join(missing)}; they have {', '.join(there)}"
        if not sheets:
            raise NothingToCompare(text)
        LOGGER.warning("%s", text)
    return sheets


def _tell_gaps(taken: Sequence[RankRows], entries: Sequence[str], sheets: Sequence[str]) -> None:
    """Which ranks have no row for an entry, and which no column for a sheet."""
    for entry in entries:
        if without := [rank for rank in taken if entry not in rank.entries]:
            LOGGER.warning("api: %s names no row of %s", entry, _ranks(without, taken))
    for sheet in sheets:
        if without := [rank for rank in taken if sheet not in rank.metrics]:
            modes = " and ".join(sorted({rank.mode.value for rank in without}))
            LOGGER.warning("%s is blank for %s: %s reports have no such column", sheet, _ranks(without, taken), modes)


def _ranks(some: Sequence[RankRows], taken: Sequence[RankRows]) -> str:
    if len(some) == len(taken):
        return "any report"
    labels = [rank.report.label for rank in some]
    return ", ".join(labels[:_TOLD]) + (f" and {len(labels) - _TOLD} more" if len(labels) > _TOLD else "")
