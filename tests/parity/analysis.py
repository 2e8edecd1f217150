"""``diff_analyze_{timestamp}.json`` against an independent search and the incumbent's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.parity.compare import Finding, Judged, Tally
from tests.parity.differs import inputs_state, op_differences
from tests.parity.dump import INPUTS
from tests.parity.first_op import Answer, ranked, search
from tests.parity.op_json import RankSide, as_text, messages, read_strictly
from tests.parity.oracle import agrees
from tests.parity.tables import DIFFERENCES, GOLDEN_STATISTICS, RELATIVES, TARGET_STATISTICS, same

DOCUMENTED = ("op_name", "data_info", "stack_info")
OURS = ("op_type", "row", "reason", "origin", "stage", "layer", "sub_layer", "input_gap", "output_gap")
PEER = "NPU P2POp peer"
FIGURES = {
    "statistics": (*TARGET_STATISTICS, *GOLDEN_STATISTICS, *DIFFERENCES, *RELATIVES, PEER),
    "md5": ("NPU MD5", "BENCH MD5", PEER),
}
INDEPENDENT = ("rank", "op_name", "row", "reason", "origin", "stage", "layer", "sub_layer")


class _Analysis:
    def __init__(self, name: str, sides: Mapping[int, RankSide], instead: str) -> None:
        self.name, self.sides, self.instead = name, sides, instead
        self.tally = Tally()
        self.right = search(sides)

    def fault(self, row: str, column: str, expected: Any, ours: Any, note: str) -> None:
        self.tally.unexplained.append(Finding(self.name, row, column, str(expected), str(ours), note))

    def explain(self, reason: str, column: str) -> None:
        self.tally.explained[reason, column] += 1

    def run(self, ours: Path | None, theirs: Path | None) -> Tally:
        content, faults = read_strictly(ours) if ours is not None else ({}, [])
        expected = read_strictly(theirs)[0] if theirs is not None else None if self.instead else {}
        for text in faults:
            self.fault("", "", "", "", text)
        independent = content.pop("independent", [])
        found = {rank: [node.get("op_name") for node in nodes] for rank, nodes in content.items()}
        before = None if expected is None else {r: [n["op_name"] for n in nodes] for r, nodes in expected.items()}
        if ours is not None and not found:
            self.fault("", "", "", "", "a file without an answer")
        self.answer(found, before)
        for rank, nodes in content.items():
            for node in nodes:
                other = next((n for n in (expected or {}).get(rank, []) if n["op_name"] == node.get("op_name")), None)
                self.node(rank, node, other)
        self.others(independent, found)
        return self.tally

    def answer(self, found: dict[str, list[str]], before: dict[str, list[str]] | None) -> None:
        """The incumbent's answer needs no more reason; another has to be that of the independent search."""
        right = ranked(self.right)
        cells = sum(map(len, found.values())) or 1
        if before is not None and found == before:
            self.tally.equal += cells
            if not found and right:
                self.fault(
                    "", "(answer)", right, found, "nothing is reported, as by the incumbent, but something differs"
                )
        elif found != right:
            self.fault("", "(answer)", right, found, f"is not the answer of the search; the incumbent has {before}")
        elif before is None:
            self.explain(self.instead, "(answer)")
        else:
            reason = "op: right answer" if found else "op: nothing differs"
            self.tally.explained[reason, "(answer)"] += cells

    def node(self, rank: str, node: Mapping[str, Any], theirs: Mapping[str, Any] | None) -> None:
        number = int(rank.rpartition("_")[2])
        side = self.sides.get(number)
        name = node.get("op_name", "")
        rows = side.records.get(name) if side is not None else None
        if rows is None and side is not None and node.get("origin") == "missing" and name in side.golden.records:
            self.lacking(number, node)
            return
        if side is None or rows is None or list(node) != [*DOCUMENTED, *OURS]:
            self.fault(
                name, "", [*DOCUMENTED, *OURS], list(node), "no such operator, or the names are not the documented ones"
            )
            return
        self.figures(side, rows, node, theirs)
        right = {
            "stack_info": side.target.stacks.get(name),
            "op_type": name.partition(".")[0],
        }
        mine = next((a for a in self.right if a.rank == number and a.record == name), None)
        right |= self.place(mine)
        for key, value in right.items():
            if node[key] != value:
                self.fault(name, key, value, node[key], "is not what the dumps say")
            elif theirs is not None and key in theirs:
                self.compared(name, key, node[key], theirs[key])
            else:
                self.explain("op: more keys" if key not in DOCUMENTED else self.instead or "op: right answer", key)
        self.words(rows, node, name)

    def lacking(self, number: int, node: Mapping[str, Any]) -> None:
        """An operator of the golden side alone: it has a place and no figures."""
        name = node["op_name"]
        mine = next((a for a in self.right if a.rank == number and a.record == name), None)
        right = {"data_info": {"input": {}, "output": {}}, "stack_info": None, "row": name, **self.place(mine)}
        for key, value in right.items():
            if node[key] != value:
                self.fault(name, key, value, node[key], "is not what the dumps say")
            else:
                self.explain(self.instead or "op: right answer", key)

    def place(self, mine: Answer | None) -> dict[str, Any]:
        return {} if mine is None else {key: getattr(mine, key) for key in ("stage", "layer", "sub_layer", "origin")}

    def words(self, rows: Sequence[Judged], node: Mapping[str, Any], name: str) -> None:
        """Row and reason: a row that differs, an input or parameter of what the operator has not made itself, and some text."""
        side = inputs_state if node["origin"] in ("inherited", "given", "weight") else None
        differing = {
            r.pair.row.name
            for r in rows
            if (side([r])[0] == "differ" if side else not r.pair.row.is_input and bool(op_differences([r])))
        }
        if node["row"] not in differing:
            self.fault(name, "row", sorted(differing), node["row"], "is no row that differs")
        if not isinstance(node["reason"], str) or not node["reason"].strip():
            self.fault(name, "reason", "a text", node["reason"], "no reason")
        for key in ("row", "reason"):
            self.explain("op: more keys", key)

    def figures(
        self, side: RankSide, rows: Sequence[Judged], node: Mapping[str, Any], theirs: Mapping[str, Any] | None
    ) -> None:
        """Rows and figures of data_info."""
        peers = messages(side.target)
        info = node["data_info"]
        parts = {
            "input": [r for r in rows if r.pair.row.section in INPUTS],
            "output": [r for r in rows if r.pair.row.section not in (*INPUTS, "parameters")],
        }
        if list(info) != list(parts):
            self.fault(node["op_name"], "data_info", list(parts), list(info), "the parts are input and output")
            return
        for part, wanted in parts.items():
            if [r.pair.row.name for r in wanted] != list(info[part]):
                self.fault(
                    node["op_name"],
                    part,
                    [r.pair.row.name for r in wanted],
                    list(info[part]),
                    "the rows are not the dump's",
                )
                continue
            for row in wanted:
                name = row.pair.row.name
                peer = peers.get((row.pair.row.record, row.pair.row.slot), ("", "None"))[1]
                before = None if theirs is None else theirs["data_info"][part].get(name, {})
                self.row(name, info[part][name], {**row.right, PEER: peer}, before, FIGURES[side.mode])

    def row(
        self,
        name: str,
        cells: Mapping[str, Any],
        right: Mapping[str, Any],
        before: Mapping[str, Any] | None,
        titles: Sequence[str],
    ) -> None:
        if list(cells) != list(titles):
            self.fault(name, "data_info", list(titles), list(cells), "the figures are not the documented ones")
            return
        for title, value in cells.items():
            if not agrees(title, right[title], as_text(value)):
                self.fault(name, title, right[title], value, "is not what the dumps say")
            elif before is not None and title in before:
                self.compared(name, title, value, before[title])
            else:
                self.explain("op: more keys" if before is not None else self.instead or "op: right answer", title)

    def compared(self, name: str, title: str, value: Any, before: Any) -> None:
        """A right value beside the incumbent's."""
        if value == before and type(value) is type(before):
            self.tally.equal += 1
        elif same(title, as_text(before), as_text(value)):
            self.explain("first: number as number", title)
        else:
            self.fault(name, title, before, value, "right by the dumps, but no rule says why it differs")

    def others(self, independent: Any, found: Mapping[str, list[str]]) -> None:
        """Later differences of their own: operators that differ and are not in the answer."""
        for entry in independent if isinstance(independent, list) else [None]:
            if not isinstance(entry, dict) or list(entry) != list(INDEPENDENT):
                self.fault("", "independent", INDEPENDENT, entry, "the names are not the documented ones")
                continue
            side = self.sides.get(entry["rank"])
            rows = side.records.get(entry["op_name"], []) if side is not None else []
            if not rows or (entry["origin"] != "given" and not op_differences(rows)):
                self.fault(entry["op_name"], "independent", "", entry["rank"], "no operator that differs")
            elif entry["op_name"] in found.get(f"rank_{entry['rank']}", []):
                self.fault(entry["op_name"], "independent", "", entry["rank"], "is in the answer already")
            else:
                self.explain("op: more keys", "independent")


def compare_analysis(
    name: str, ours: Path | None, theirs: Path | None, sides: Mapping[int, RankSide], instead: str
) -> Tally:
    """Compare one answer.

    Parameters
    ----------
    name : str
        The file in messages.
    ours, theirs : Path
        The files; None where a tool wrote none, because it found nothing or does not search here.
    sides : mapping of int to RankSide
        Rank -> its dumps.
    instead : str
        Key of ``rules.REASONS`` where the incumbent does not search this form of input, ``""`` where it does.
    """
    return _Analysis(name, sides, instead).run(ours, theirs)
