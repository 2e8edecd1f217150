"""One report against the stored one: rows aligned, every cell put into equal, explained or unexplained."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.parity.dump import Dump
from tests.parity.oracle import Pair, agrees, right_cells, slack
from tests.parity.pairing import Matching, pair_by
from tests.parity.rules import cell_reason, pairing_reason, verdict_reason
from tests.parity.tables import NOT_APPLICABLE, TENSOR_METRICS, Cells, Table, levels, same
from tests.parity.verdict import Firing, judge

RANK = {"pass": 0, "warning": 1, "error": 2}
VERDICT = ("Result", "Err_message")
NAMES = ("NPU Name", "Bench Name")
GOLDEN_ONLY = "(golden only) "
OTHER_COLUMNS = "first: statistics"

RowKey = tuple[str, int]


@dataclass(frozen=True)
class Finding:
    """Something unexplained.

    Attributes
    ----------
    file, row, column : str
        Report, row name and title (``""`` where the whole file or row is meant).
    expected, ours : str
        Cells, or whatever stands for them.
    note : str
        What is wrong.
    context : str
        Both Results and messages.
    """

    file: str
    row: str
    column: str
    expected: str
    ours: str
    note: str
    context: str = ""


@dataclass
class Tally:
    """Counts of one case: cells that are equal, cells by (reason, column), and everything unexplained."""

    equal: int = 0
    explained: Counter[tuple[str, str]] = field(default_factory=Counter)
    unexplained: list[Finding] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add another tally to this one."""
        self.equal += other.equal
        self.explained.update(other.explained)
        self.unexplained += other.unexplained


@dataclass(frozen=True)
class Judged:
    """A pair with its record around it, and its right cells."""

    pair: Pair
    at: int
    group: Sequence[Pair]
    firings: Sequence[Sequence[Firing]]
    right: dict[str, Any]


def work_out(
    target: Dump,
    golden: Dump,
    mode: str,
    matching: Matching = Matching(),  # noqa: B008 - frozen
    shown: Sequence[tuple[str, str]] = (),
) -> list[Judged]:
    """Every row of the right report, in order.

    Parameters
    ----------
    target, golden : Dump
        The two sides.
    mode : str
        ``tensor``, ``statistics`` or ``md5``.
    matching : Matching
        How the sides meet.
    shown : sequence of (str, str)
        Names that our report puts side by side, which decide between equally good alignments.
    """
    met = pair_by(matching, target, golden, shown)
    pairs = [Pair(m.target, m.golden, mode, how=m.how, peer=m.peer, matching=matching) for m in met]
    groups: dict[Hashable, list[Pair]] = defaultdict(list)
    for one, pair in zip(met, pairs, strict=True):
        groups[one.group].append(pair)
    verdicts = {key: judge(group) for key, group in groups.items()}
    seen: Counter[Hashable] = Counter()
    begun: set[str] = set()
    rows = []
    for one, pair in zip(met, pairs, strict=True):
        at = seen[one.group]
        seen[one.group] += 1
        right = right_cells(pair, target, first_of_record=pair.target is not None and pair.row.record not in begun)
        if pair.target is not None:
            begun.add(pair.row.record)
        rows.append(Judged(pair, at, groups[one.group], verdicts[one.group], right))
    return rows


def right_mode(target: Dump, golden: Dump) -> str:
    """What both sides have decides (decision 10); a side without its folder of tensors has statistics only."""
    folders = [(dump.path.parent / "dump_tensor_data").is_dir() for dump in (target, golden)]
    if target.task == golden.task == "tensor" and all(folders):
        return "tensor"
    both_md5 = target.has_md5 and golden.has_md5
    return "md5" if both_md5 and "tensor" not in (target.task, golden.task) else "statistics"


def _verdict_fault(row: Judged, cells: Cells) -> str:
    """What is wrong with our Result and Err_message by the specification; ``""`` if nothing is."""
    firings = row.firings[row.at]
    found = levels(cells["Err_message"])
    if found is None:
        return "the message is no list of texts that begin with error, warning or note"
    result = max((RANK[level] for level in found), default=0)
    if RANK.get(cells["Result"], -1) != result:
        return f"Result {cells['Result']!r} is not the gravest level of its message"
    stray = found - {f.level for f in firings}
    if stray:
        return f"no rule gives {', '.join(sorted(stray))} here (rules: {_names(firings)})"
    least = max((RANK[f.level] for f in firings if f.sure), default=0)
    if result < least:
        word = next(w for w, r in RANK.items() if r == least)
        return f"should be at least {word}: {_names(f for f in firings if f.sure)}"
    lacking = {f.level for f in firings if f.sure and f.text} - found
    return f"the message lacks its {', '.join(sorted(lacking))}: {_names(firings)}" if lacking else ""


def _names(firings: Any) -> str:
    return ", ".join(f"{f.rule} {f.level}{'' if f.sure else '?'}" for f in firings) or "none"


def _key_rows(rows: Sequence[Cells]) -> dict[RowKey, int]:
    """Row numbers by name and occurrence; rows without a target name go by their golden name."""
    seen: Counter[str] = Counter()
    keys = {}
    for at, cells in enumerate(rows):
        name = cells.get("NPU Name", "")
        if name == NOT_APPLICABLE:
            name = GOLDEN_ONLY + cells.get("Bench Name", "")
        keys[name, seen[name]] = at
        seen[name] += 1
    return keys


class Comparison:
    """State of one file's comparison. Parameters as in ``compare_tables``."""

    def __init__(
        self, file: str, expected: Table | None, ours: Table, instead: str, matching: Matching, mode: str = ""
    ) -> None:
        self.file, self.expected, self.ours, self.instead = file, expected, ours, instead
        self.matching, self.mode = matching, mode
        self.tally = Tally()

    def fault(self, row: str, column: str, expected: str, ours: str, note: str, context: str = "") -> None:
        """Record something unexplained."""
        self.tally.unexplained.append(Finding(self.file, row, column, expected, ours, note, context))

    def explain(self, reason: str, column: str) -> None:
        """Count an explained cell."""
        self.tally.explained[reason, column] += 1

    def row(self, row: Judged, cells: Cells, expected: Cells | None) -> None:
        """Compare one row of ours with the right one, and with the incumbent's where it has one."""
        name = row.pair.row.name if row.pair.target is not None else GOLDEN_ONLY + row.pair.row.name
        context = f"ours {cells.get('Result')} {cells.get('Err_message')}"
        if expected is not None:
            context = f"expected {expected.get('Result')} {expected.get('Err_message')}; {context}"
        fault = _verdict_fault(row, cells)
        for column in self.ours.header:
            mine = cells[column]
            theirs = expected.get(column) if expected is not None else None
            wrong = fault if column in VERDICT else ""
            right = self.spelled(column, row.right.get(column))
            if column in row.right and not agrees(column, right, mine, slack(row.pair, column)):
                wrong = f"should be {right}"
            if wrong:
                self.fault(name, column, theirs if theirs is not None else "", mine, wrong, context)
            elif theirs is None and expected is not None:
                if self.instead == OTHER_COLUMNS:
                    self.explain(OTHER_COLUMNS, column)
                continue  # a column that the incumbent lacks; the titles were compared before
            elif theirs is None:
                lacking = self.left_out(row) or "golden only"
                self.explain(lacking if self.expected is not None else self.instead, column)
            elif same(column, theirs, mine):
                self.tally.equal += 1
            else:
                reason = self.reason(column, row, expected or {}, cells)
                if reason is None:
                    self.fault(
                        name, column, theirs, mine, "right by the dumps, but no rule says why it differs", context
                    )
                else:
                    self.explain(reason, column)

    def left_out(self, row: Judged) -> str:
        """Why the incumbent lacks a target row; ``""`` where nothing says."""
        return ""

    def reason(self, column: str, row: Judged, expected: Cells, cells: Cells) -> str | None:
        """Why this right cell differs from the incumbent's."""
        if self.instead == "rank by number":
            return self.instead
        if self.instead == OTHER_COLUMNS and (column in VERDICT or column in TENSOR_METRICS):
            return self.instead
        if column not in VERDICT:
            return cell_reason(column, expected, row.pair, row.right.get(column))
        names = [self.spelled("NPU Name", p.row.name) for p in row.group]
        shown = [self.by_name.get(name, {"Bench Name": NOT_APPLICABLE}) for name in names]
        moved = [pairing_reason(cells, pair) for cells, pair in zip(shown, row.group, strict=True)]
        found = levels(cells["Err_message"]) or frozenset()
        return verdict_reason(expected["Err_message"], found, row.at, row.group, row.firings, moved)

    def run(self, target: Dump, golden: Dump, right: list[Judged] | None = None) -> Tally:
        """Compare the whole file."""
        mode = self.mode or right_mode(target, golden)
        if self.ours.mode != mode:
            self.fault("", "", mode, self.ours.mode, "the report is of another mode than the dumps")
            return self.tally
        for text in self.ours.faults:
            self.fault("", "", "", "", text)
        apart = self.instead in ("rank by number", OTHER_COLUMNS)
        if self.expected is not None and self.expected.header != self.ours.header and not apart:
            self.fault("", "header", str(self.expected.header), str(self.ours.header), "the titles differ")
        lacking = {"NPU Name", "Bench Name", *VERDICT} - set(self.ours.header)
        if lacking:
            self.fault("", "header", "", str(self.ours.header), f"columns are missing: {sorted(lacking)}")
            return self.tally
        shown = [(c["NPU Name"], c["Bench Name"]) for c in self.ours.rows]
        rows = right if right is not None else work_out(target, golden, mode, self.matching, shown)
        self.by_name = {c["NPU Name"]: c for c in (self.expected.rows if self.expected is not None else [])}
        theirs = _key_rows(self.expected.rows) if self.expected is not None else {}
        mine = _key_rows(self.ours.rows)
        keys = _key_rows([self.head(row) for row in rows])
        for (key, at), row in zip(keys.items(), rows, strict=True):
            before = theirs.pop(key, None)
            expected = None if before is None or self.expected is None else self.expected.rows[before]
            if self.expected is not None and before is None and row.pair.target is not None and not self.left_out(row):
                self.fault(key[0], "", "", "", "the incumbent has no such row")
            found = mine.pop(key, None)
            if found is None:
                self.fault(key[0], "", f"row {at + 2}", "", "the row is missing")
            else:
                self.row(row, self.ours.rows[found], expected)
        for (name, _), at in mine.items():
            self.fault(name, "", "", f"row {at + 2}", "a row too many")
        tabled = {row.pair.golden.name for row in rows if row.pair.how == "train table" and row.pair.golden is not None}
        for (name, _), at in theirs.items():
            if name.startswith(GOLDEN_ONLY) and name.removeprefix(GOLDEN_ONLY) in tabled:
                self.explain("train table", "(row)")
                continue
            self.fault(name, "", f"row {at + 2}", "", "the incumbent has a row that the dumps do not have")
        self.order(keys, rows)
        return self.tally

    def order(self, keys: dict[RowKey, int], rows: Sequence[Judged]) -> None:
        """Whether our rows stand in the right order."""
        order = self.runs([k for k in keys if k in _key_rows(self.ours.rows)], rows, keys)
        found_order = self.runs([k for k in _key_rows(self.ours.rows) if k in keys], rows, keys)
        if order != found_order:
            at = next(i for i, (one, other) in enumerate(zip(order, found_order, strict=True)) if one != other)
            self.fault(
                found_order[at][0],
                "",
                order[at][0],
                found_order[at][0],
                f"rows stand in another order from row {at + 2} on",
            )

    def runs(self, order: list[RowKey], rows: Sequence[Judged], keys: dict[RowKey, int]) -> list[RowKey]:
        """The order of rows up to what is free.

        Where golden-only rows stand among the others (``--consistent_check``), those between two pairs may stand before or behind
        the target-only ones: they come last here.
        """
        if self.matching.kind != "train":
            return order
        sorted_runs: list[RowKey] = []
        waiting: list[RowKey] = []
        for key in order:
            pair = rows[keys[key]].pair
            if pair.target is None:
                waiting.append(key)
                continue
            if pair.golden is not None:
                sorted_runs += waiting
                waiting = []
            sorted_runs.append(key)
        return sorted_runs + waiting

    def head(self, row: Judged) -> Cells:
        """The two names of a right row."""
        return {title: str(self.spelled(title, row.right[title])) for title in NAMES}

    def spelled(self, column: str, value: Any) -> Any:
        """A right cell as our kind of file spells it: joined names stand on lines of their own in a workbook."""
        if column in NAMES and self.ours.path.suffix == ".xlsx":
            return str(value).replace(";  ", ";\n")
        return value


def compare_tables(
    file: str,
    expected: Table | None,
    ours: Table,
    target: Dump,
    golden: Dump,
    instead: str,
    right: list[Judged] | None = None,
    matching: Matching = Matching(),  # noqa: B008 - frozen
    mode: str = "",
) -> Tally:
    """Compare one report.

    Parameters
    ----------
    file : str
        Its name in messages.
    expected : Table or None
        The incumbent's report; None where it wrote none, then ``instead`` explains every cell that is right.
    ours : Table
        Our report.
    target, golden : Dump
        The dumps that belong together by the specification.
    instead : str
        Key of ``rules.REASONS`` for a report without a counterpart, or ``rank by number`` where the
        counterpart compares other dumps.
    right : list of Judged, optional
        What ``work_out`` gives for the dumps, where it is known already.
    matching : Matching
        How the sides meet.
    mode : str
        ``tensor``, ``statistics`` or ``md5`` where the command says which; ``""``: what both sides have.
    """
    return Comparison(file, expected, ours, instead, matching, mode).run(target, golden, right)
