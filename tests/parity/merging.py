"""The workbook of ``merge_result`` against a plain merge of the input files and the incumbent's workbook, cell by cell."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.parity.cases import Case
from tests.parity.compare import Finding, Tally
from tests.parity.tables import DIFFERENCES, HEADER_SPELLINGS, NOT_APPLICABLE, RELATIVES, TENSOR_METRICS, close, number

REPORT = re.compile(r"compare_result_rank(\d+)(?:-rank(\d+))?_(\d{14})\.(xlsx|csv)")
CONSISTENT = "Requires_grad Consistent"
METRICS = {"statistics": (*DIFFERENCES, *RELATIVES, CONSISTENT), "tensor": (*TENSOR_METRICS, CONSISTENT)}
NOT_MEASURED = (NOT_APPLICABLE, "unsupported", "Nan", "nan")
NAME = "NPU Name"

RowKey = tuple[str, int]
Rows = dict[RowKey, dict[str, str]]
Cells = dict[RowKey, dict[int, Any]]


@dataclass
class Merge:
    """What a merge of a case's files comes to.

    Attributes
    ----------
    usable : bool
        Whether there is anything to merge: a good configuration, two reports or more, and a metric.
    lost : list of str
        Files that cannot be used.
    ranks : list of int
        Ranks in order.
    sheets : dict of str to Cells
        Metric -> row -> rank -> text.
    orders : list of list of RowKey
        Orders that rows may stand in: first seen, with what later ranks add at the end, or behind the row that it follows there.
    """

    usable: bool = False
    lost: list[str] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    sheets: dict[str, Cells] = field(default_factory=dict)
    orders: list[list[RowKey]] = field(default_factory=list)


def _lines(path: Path) -> Iterable[list[list[str]]]:
    """The sheets of a file as texts."""
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as stream:
            yield list(csv.reader(stream))
        return
    import openpyxl

    for sheet in openpyxl.load_workbook(path, data_only=True).worksheets:
        yield [["" if v is None else str(v) for v in row] for row in sheet.iter_rows(values_only=True)]


def read_report(path: Path) -> tuple[str, Rows]:
    """Mode and rows of one report by name and occurrence; mode ``""`` for what has no metrics to merge."""
    mode, rows = "", Rows()
    seen: Counter[str] = Counter()
    for lines in _lines(path):
        header = [HEADER_SPELLINGS.get(title, title) for title in lines[0]] if lines else []
        if NAME not in header or "NPU max" not in header:
            return "", {}
        mode = "tensor" if "Cosine" in header else "statistics"
        for line in lines[1:]:
            cells = dict(zip(header, line, strict=False))
            rows[cells[NAME], seen[cells[NAME]]] = cells
            seen[cells[NAME]] += 1
    return mode, rows


def is_selected(name: str, entries: Sequence[str]) -> bool:
    """Whether an entry names a row: whole components from the start, or from behind ``Module`` or ``Cell``."""
    starts = [name.split(".")]
    if starts[0][0] in ("Module", "Cell"):
        starts.append(starts[0][1:])
    return any(parts[: len(entry)] == entry for entry in (e.split(".") for e in entries) for parts in starts)


def right_cell(metric: str, cells: Mapping[str, str]) -> str:
    """What a row shows: its figure; both maxima where there is none, and for process groups."""
    text = cells[metric]
    group = cells[NAME].endswith(".group") and metric != CONSISTENT
    return f"NPU:{cells['NPU max']}  Bench:{cells['Bench max']}" if group or text in NOT_MEASURED else text


def read_config(path: Path) -> tuple[list[str], list[str]] | None:
    """``api`` and ``compare_index``, None where the file is not as documented."""
    import yaml

    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        return None
    entries, metrics = content.get("api"), content.get("compare_index") or []
    if not isinstance(entries, list) or not entries or not isinstance(metrics, list):
        return None
    return [str(e) for e in entries], [str(m) for m in metrics]


def right_merge(case: Case) -> Merge:
    """Merge the files of a case."""
    folder, config = case.folder / (case.option("-i", "--input_dir") or ""), case.option("-config", "--config-path")
    merge, chosen = Merge(), read_config(case.folder / (config or ""))
    reports: dict[int, Path] = {}
    for path in sorted(folder.iterdir(), key=lambda p: p.name):
        if path.suffix not in (".xlsx", ".csv"):
            continue
        found = REPORT.fullmatch(path.name)
        if found is None or (found[2] and found[2] != found[1]):
            merge.lost.append(path.name)
        else:
            reports[int(found[1])] = path  # sorted by time: the newest stays
    if chosen is None:
        return merge
    read = {}
    for rank in sorted(reports):
        mode, rows = read_report(reports[rank])
        if mode:
            read[rank] = (mode, {k: cells for k, cells in rows.items() if is_selected(k[0], chosen[0])})
        else:
            merge.lost.append(reports[rank].name)
    merge.ranks = list(read)
    metrics = _sheets(chosen[1], [mode for mode, _ in read.values()])
    merge.usable = len(read) >= 2 and bool(metrics)
    merge.orders = _orders([list(rows) for _, rows in read.values()])
    for metric in metrics:
        sheet: Cells = {key: {} for key in merge.orders[0]}
        for rank, (mode, rows) in read.items():
            for key, cells in rows.items() if metric in METRICS[mode] else ():
                sheet[key][rank] = right_cell(metric, cells)
        merge.sheets[metric] = sheet
    return merge


def _sheets(wanted: Sequence[str], modes: Sequence[str]) -> list[str]:
    there = list(dict.fromkeys(metric for mode in modes for metric in METRICS[mode]))
    if not wanted:
        return [*(m for m in there if m != CONSISTENT), CONSISTENT]
    return list(dict.fromkeys(m for m in (HEADER_SPELLINGS.get(w, w) for w in wanted) if m in there))


def _orders(ranks: Sequence[Sequence[RowKey]]) -> list[list[RowKey]]:
    appended = list(dict.fromkeys(key for rows in ranks for key in rows))
    spliced: list[RowKey] = []
    for rows in ranks:
        known, behind = set(spliced), -1
        for key in rows:
            if key in known:
                behind = spliced.index(key)
            else:
                behind += 1
                spliced.insert(behind, key)
    return [appended, spliced]


def read_book(path: Path) -> dict[str, list[list[Any]]]:
    """Sheets of a merged workbook, cells with their types."""
    import openpyxl

    book = openpyxl.load_workbook(path)
    return {sheet.title: [list(row) for row in sheet.iter_rows(values_only=True)] for sheet in book.worksheets}


def _agree(right: str, mine: Any, tolerance: float = 0.0) -> bool:
    one, other = number(right), number("" if mine is None else str(mine))
    if one is None or other is None:
        return right == ("" if mine is None else str(mine))
    return one[1] == other[1] and close(one[0], other[0], tolerance, 0.0)


class _Comparison:
    def __init__(self, name: str, right: Merge, instead: str) -> None:
        self.name, self.right, self.instead = name, right, instead
        self.tally = Tally()

    def fault(self, row: str, column: str, expected: Any, ours: Any, note: str) -> None:
        self.tally.unexplained.append(Finding(self.name, row, column, str(expected), str(ours), note))

    def explain(self, reason: str, column: str) -> None:
        self.tally.explained[reason, column] += 1

    def run(self, ours: dict[str, list[list[Any]]], theirs: dict[str, list[list[Any]]] | None) -> Tally:
        if list(ours) != list(self.right.sheets):
            self.fault(
                "", "(sheet)", list(self.right.sheets), list(ours), "the sheets are not those that are asked for"
            )
        known = {HEADER_SPELLINGS.get(title, title): title for title in theirs or {}}
        for metric in ours:
            title = known.get(metric)
            if theirs is None:
                self.explain(self.instead, "(sheet)")
            elif title is None:
                self.fault("", "(sheet)", list(theirs), metric, "the incumbent has no such sheet")
            elif title != metric:
                self.explain("merge: header spelling", "(sheet)")
            else:
                self.tally.equal += 1
            if metric in self.right.sheets:
                self.sheet(metric, ours[metric], None if theirs is None or title is None else theirs[title])
        for metric in set(known) - set(ours):
            self.fault("", "(sheet)", metric, "", "the sheet is missing")
        return self.tally

    def sheet(self, metric: str, lines: list[list[Any]], theirs: list[list[Any]] | None) -> None:
        heads = [NAME, *(f"rank{rank}" for rank in self.right.ranks)]
        if not lines or lines[0] != heads:
            self.fault(metric, "header", heads, lines[:1], "the columns are not the ranks")
            return
        if theirs is not None and theirs[0] != heads:
            self.fault(metric, "header", theirs[0], heads, "the incumbent has other columns")
            return
        mine, expected = _keyed(lines[1:]), None if theirs is None else _keyed(theirs[1:])
        right = self.right.sheets[metric]
        for key in [k for k in right if k not in mine] + [k for k in mine if k not in right]:
            self.fault(key[0], metric, key in right, key in mine, "a row is missing or too many")
        if list(mine) not in self.right.orders:
            self.fault(
                metric, "(order)", self.right.orders[0][:9], list(mine)[:9], "rows do not stand in first-seen order"
            )
        elif expected is not None and set(expected) == set(mine):
            alike = list(expected) == list(mine)
            if not alike and list(expected) != sorted(expected):
                self.fault(metric, "(order)", list(expected)[:9], list(mine)[:9], "no rule says why the order differs")
            self.tally.equal += alike
            self.tally.explained["merge: first-seen order", metric] += not alike
        for key, line in mine.items():
            if key not in right:
                continue
            before = None if expected is None else expected.get(key)
            if expected is not None and before is None:
                self.fault(key[0], metric, "", "", "the incumbent has no such row")
            for at, rank in enumerate(self.right.ranks):
                self.cell(key[0], metric, right[key].get(rank, ""), line[at], None if before is None else (before[at],))

    def cell(self, name: str, metric: str, right: str, mine: Any, theirs: tuple[Any] | None) -> None:
        """A cell; ``theirs`` is None where the incumbent has none."""
        if not _agree(right, mine) or not _is_typed(metric, right, mine):
            self.fault(name, metric, right, repr(mine), "is not what the reports say")
        elif theirs is None:
            self.explain(self.instead, metric)
        elif _agree("" if theirs[0] is None else str(theirs[0]), mine, 1e-12):
            self.tally.equal += 1
        elif name.endswith(".group") and str(theirs[0]) == "0":
            self.explain("merge: groups", metric)
        else:
            self.fault(name, metric, theirs[0], mine, "right by the reports, but no rule says why it differs")


def _is_typed(metric: str, right: str, mine: Any) -> bool:
    """Whether figures are numbers, percentages and truth values texts; MaxRelativeErr is either, by the mode of the report."""
    if not right or metric == "MaxRelativeErr":
        return True
    return isinstance(mine, str) != (number(right) is not None and metric not in (*RELATIVES, CONSISTENT))


def _keyed(lines: Sequence[list[Any]]) -> dict[RowKey, list[Any]]:
    seen: Counter[str] = Counter()
    found = {}
    for line in lines:
        found[line[0], seen[line[0]]] = line[1:]
        seen[line[0]] += 1
    return found


def compare_merge(case: Case, right: Merge, ours: Path, theirs: Path | None, instead: str) -> Tally:
    """Compare one workbook.

    Parameters
    ----------
    case : Case
        The case.
    right : Merge
        What ``right_merge`` gives.
    ours, theirs : Path
        The workbooks; None where the incumbent stops, then ``instead`` explains what is right.
    instead : str
        Key of ``rules.REASONS``.
    """
    comparison = _Comparison(f"{case.name}/{ours.name}", right, instead)
    return comparison.run(read_book(ours), None if theirs is None else read_book(theirs))
