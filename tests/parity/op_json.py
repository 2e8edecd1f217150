"""``compare_result_rank{N}_{timestamp}.json`` of ``-da`` against the dumps and the incumbent's file, cell by cell."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.parity.compare import VERDICT, Comparison, Finding, Judged, Tally, right_mode, work_out
from tests.parity.differs import same_fault, same_reason
from tests.parity.dump import INFIX, INPUTS, Dump
from tests.parity.pairing import Matching
from tests.parity.rules import pairing_reason
from tests.parity.tables import GOLDEN_STATISTICS, NOT_APPLICABLE, TARGET_STATISTICS, Cells, Table, number

P2P = tuple(f"{side} P2POp {what}" for what in ("op", "peer") for side in ("NPU", "Bench"))
TAIL = ("state", "api_origin_name", *P2P)
CONSISTENT, STACK = "Requires_grad Consistent", "NPU_Stack_Info"
NO_TARGET = " (Bench)"
"""Ending of the key of a golden record whose name a target record has that it does not meet."""


@dataclass(frozen=True)
class RankSide:
    """One rank of a run: its dumps and the right rows.

    Attributes
    ----------
    target, golden : Dump
        The two sides.
    rows : list of Judged
        What ``work_out`` gives.
    """

    target: Dump
    golden: Dump
    rows: list[Judged]

    @property
    def mode(self) -> str:
        """``statistics`` or ``md5``."""
        return first_mode(self.target, self.golden)

    @property
    def records(self) -> dict[str, list[Judged]]:
        """Target record -> its rows, in order."""
        found: dict[str, list[Judged]] = {}
        for row in self.rows:
            if row.pair.target is not None:
                found.setdefault(row.pair.row.record, []).append(row)
        return found

    @property
    def lacking(self) -> set[str]:
        """Target records that lack an output which their golden partner has."""
        met = {
            r.pair.golden.record: r.pair.row.record for r in self.rows if r.pair.paired and r.pair.golden is not None
        }
        alone = [r.pair.row for r in self.rows if r.pair.target is None]
        return {met[row.record] for row in alone if row.is_output and row.record in met}


@dataclass
class OpFile:
    """A file: the text's faults, and record -> (is_same, rows)."""

    path: Path
    faults: list[str] = field(default_factory=list)
    ops: dict[str, tuple[Any, list[dict[str, Any]]]] = field(default_factory=dict)


def first_mode(target: Dump, golden: Dump) -> str:
    """The mode of the search: tensor dumps are handled on their statistics."""
    return "md5" if right_mode(target, golden) == "md5" else "statistics"


def side_of(target: Dump, golden: Dump, matching: Matching) -> RankSide:
    """Work out one rank."""
    return RankSide(target, golden, work_out(target, golden, first_mode(target, golden), matching))


def read_strictly(path: Path) -> tuple[Any, list[str]]:
    """Content of a JSON file, and what strict readers would not take: names that occur twice, NaN and Infinity."""
    faults: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(items)) != len(items):
            faults.append("a name occurs twice")
        return dict(items)

    def constant(text: str) -> float:
        faults.append(f"{text} is not JSON")
        return float(text)

    text = path.read_text(encoding="utf-8")
    return json.loads(text, object_pairs_hook=pairs, parse_constant=constant), faults


def read_ops(path: Path) -> OpFile:
    """Read one file of either tool."""
    content, faults = read_strictly(path)
    found = OpFile(path, faults)
    for name, entry in content.items():
        if (
            not isinstance(entry, dict)
            or list(entry) != ["is_same", "op_items"]
            or not isinstance(entry["op_items"], list)
        ):
            found.faults.append(f"{name}: an entry has is_same and op_items")
            continue
        found.ops[name] = (entry["is_same"], entry["op_items"])
    return found


def as_text(value: Any) -> str:
    """A JSON value as the report's cell; the incumbent's bare NaN of a text is nothing."""
    if isinstance(value, float) and math.isnan(value):
        return "Nan"
    return value if isinstance(value, str) else str(value)


def _table(file: OpFile, header: Sequence[str]) -> Table:
    """The rows as a report has them."""
    rows = []
    for _, items in file.ops.values():
        for item in items:
            cells = {title: as_text(item.get(title, "")).strip() for title in header}
            if isinstance(item.get("Err_message"), float):
                cells["Err_message"] = ""
            rows.append(cells)
    return Table(file.path, list(header), rows, [])


def messages(dump: Dump) -> dict[tuple[str, str], tuple[str, str]]:
    """(record, slot) -> op and peer of every operation of a batch."""
    data = json.loads(dump.path.read_text(encoding="utf-8"))["data"]
    found: dict[tuple[str, str], tuple[str, str]] = {}

    def walk(record: str, value: Any, slot: str) -> None:
        if isinstance(value, list):
            for at, one in enumerate(value):
                walk(record, one, f"{slot}.{at}")
        elif isinstance(value, dict) and "class_type" in value:
            found[record, slot] = (str(value.get("op")), str(value.get("peer")))
        elif isinstance(value, dict) and not isinstance(value.get("type"), str):
            for key, one in value.items():
                walk(record, one, f"{slot}.{key}")

    for record, content in data.items():
        for section, infix in INFIX.items():
            if isinstance(content, dict) and section in content:
                walk(record, content[section], infix)
    return found


def is_short(record: str) -> bool:
    """Whether the incumbent leaves the record out: fewer than four parts in its name."""
    return record.count(".") < 3


def _state(section: str) -> str:
    return "input" if section in INPUTS else section


def _listed(rows: Sequence[Judged]) -> list[Judged]:
    """Rows that the file has: all of the target's, and those of golden records that meet no target record."""
    met = {r.pair.golden.record for r in rows if r.pair.target is not None and r.pair.golden is not None}
    return [r for r in rows if r.pair.target is not None or r.pair.row.record not in met]


class _Cells(Comparison):
    """The columns of the report that a file shares with it."""

    def left_out(self, row: Judged) -> str:
        return "first: extra ops" if is_short(row.pair.row.record) else ""

    def reason(self, column: str, row: Judged, expected: Cells, cells: Cells) -> str | None:
        found = super().reason(column, row, expected, cells)
        if found is None and column in VERDICT and expected["Result"] in ("", NOT_APPLICABLE):
            return pairing_reason(expected, row.pair) or "first: verdict"
        return found


class _OpComparison:
    """What a file has beside the cells of the report."""

    def __init__(self, name: str, ours: OpFile, theirs: OpFile | None, side: RankSide, instead: str) -> None:
        self.name, self.ours, self.theirs, self.side, self.instead = name, ours, theirs, side, instead
        self.tally = Tally()
        self.messages = {"NPU": messages(side.target), "Bench": messages(side.golden)}

    def fault(self, row: str, column: str, expected: Any, ours: Any, note: str) -> None:
        self.tally.unexplained.append(Finding(self.name, row, column, str(expected), str(ours), note))

    def cell(self, row: str, column: str, right: Any, mine: Any, theirs: Any, reason: str) -> None:
        """One cell that is either right or not; ``theirs`` is () where the incumbent has none."""
        if mine != right or type(mine) is not type(right):
            self.fault(row, column, right, mine, "is not what the dumps say")
        elif theirs == ():
            self.tally.explained[self.instead if self.theirs is None else "first: extra ops", column] += 1
        elif theirs == right:
            self.tally.equal += 1
        elif reason:
            self.tally.explained[reason, column] += 1
        else:
            self.fault(row, column, theirs, mine, "right by the dumps, but no rule says why it differs")

    def run(self, header: Sequence[str]) -> Tally:
        for text in self.ours.faults:
            self.fault("", "", "", "", text)
        if not self.ours.path.read_text(encoding="utf-8").startswith('{\n    "'):
            self.fault("", "", "", "", "the file is not indented by four")
        records = self.side.records
        alone: dict[str, list[Judged]] = {}
        for row in _listed(self.side.rows):
            if row.pair.target is None:
                record = row.pair.row.record
                alone.setdefault(record + NO_TARGET if record in records else record, []).append(row)
        wanted = [*((name, rows, False) for name, rows in records.items()), *((n, r, True) for n, r in alone.items())]
        if [name for name, _, _ in wanted] != list(self.ours.ops):
            self.fault(
                "", "", [name for name, _, _ in wanted], list(self.ours.ops), "the records are not those of the dumps"
            )
        for name, rows, lonely in wanted:
            if name in self.ours.ops:
                self.op(name, rows, lonely, header)
        return self.tally

    def op(self, name: str, rows: Sequence[Judged], lonely: bool, header: Sequence[str]) -> None:
        same, items = self.ours.ops[name]
        theirs = None if self.theirs is None or lonely else self.theirs.ops.get(name)
        fault = (
            "" if isinstance(same, bool) and not (lonely and same) else "is_same is not false where there is no target"
        )
        if not lonely and not (name in self.side.lacking and not same):
            fault = fault or (
                "an output of the golden side is missing" if name in self.side.lacking else same_fault(rows, same)
            )
        if fault:
            self.fault(name, "is_same", "" if theirs is None else theirs[0], same, fault)
        else:
            right = same  # whatever the rules leave open is ours to say
            expected = [{k: as_text(v) for k, v in item.items()} for item in theirs[1]] if theirs else []
            reason = "" if lonely else same_reason(rows, expected, same) or ""
            reason = reason or ("same: one side" if name in self.side.lacking else "")
            self.cell(name, "is_same", right, same, () if theirs is None else theirs[0], reason)
        if len(items) == len(rows):
            for at, (row, item) in enumerate(zip(rows, items, strict=True)):
                other = theirs[1][at] if theirs is not None and at < len(theirs[1]) else None
                self.item(name, row, item, other, header)

    def item(
        self, name: str, row: Judged, item: Mapping[str, Any], theirs: Mapping[str, Any] | None, header: Sequence[str]
    ) -> None:
        pair = row.pair
        where = pair.row.name
        if list(item) != [*header, *TAIL]:
            self.fault(where, "", [*header, *TAIL], list(item), "the names are not the documented ones")
            return
        if theirs is not None and list(theirs) != list(item):
            self.fault(where, "", list(theirs), list(item), "the names are not the incumbent's")
            return
        right: dict[str, Any] = {"state": _state(pair.row.section), "api_origin_name": pair.row.record}
        for side, one in (("NPU", pair.target), ("Bench", pair.golden)):
            found = None if one is None else self.messages[side].get((one.record, one.slot))
            right[f"{side} P2POp op"], right[f"{side} P2POp peer"] = found or ("None", "None")
        for title, value in right.items():
            reason = "first: valid JSON" if theirs is not None and _is_nan(theirs[title]) else ""
            self.cell(where, title, value, item[title], () if theirs is None else theirs[title], reason)
        self.types(where, item, theirs)
        if STACK in header:
            lines = self.side.target.stacks.get(pair.row.record) if pair.target is not None else None
            reason = "first: stack on every row" if theirs is not None and theirs[STACK] in ("N/A", None) else ""
            other = () if theirs is None else theirs[STACK]
            self.cell(where, STACK, lines, item[STACK], other, reason)

    def types(self, where: str, item: Mapping[str, Any], theirs: Mapping[str, Any] | None) -> None:
        """JSON types: a finite figure is a number, everything else a text, but for the one truth value."""
        for title, value in item.items():
            if title == STACK:
                continue
            figure = title in TARGET_STATISTICS + GOLDEN_STATISTICS
            text = as_text(value)
            spelled = number(text)
            wanted: type | tuple[type, ...] = bool if title == CONSISTENT else str
            if figure and spelled is not None and not spelled[1]:
                wanted = (int, float)
            if not isinstance(value, wanted) or (isinstance(value, bool) and title != CONSISTENT):
                self.fault(where, title, "", repr(value), f"is no {wanted}")
            elif theirs is not None and figure and type(theirs[title]) is not type(value):
                self.tally.explained["first: number as number", f"{title} (type)"] += 1


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def compare_ops(
    name: str, ours: Path, theirs: Path | None, side: RankSide, header: Sequence[str], instead: str, matching: Matching
) -> Tally:
    """Compare one file.

    Parameters
    ----------
    name : str
        The file in messages.
    ours, theirs : Path
        Our file and the incumbent's; None where it has none, then ``instead`` explains what is right.
    side : RankSide
        The rank.
    header : sequence of str
        Titles that the file has from the report.
    instead : str
        Key of ``rules.REASONS``.
    matching : Matching
        How the sides meet.
    """
    mine = read_ops(ours)
    other = read_ops(theirs) if theirs is not None else None
    found = _OpComparison(name, mine, other, side, instead).run(header)
    shared = [title for title in header if title != STACK]
    expected = None if other is None else _table(other, shared)
    cells = _Cells(name, expected, _table(mine, shared), instead, matching, side.mode)
    found.add(cells.run(side.target, side.golden, _listed(side.rows)))
    return found
