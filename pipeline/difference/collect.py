"""Gathers what one rank contributes to the search of the first difference, while its judged slices pass to the writers."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import polars as pl
from opassay.kernels.communication import communication_calls, communication_tensors
from opassay.kernels.consequences import Consequences, forward_of
from opassay.kernels.op_facts import (
    call_facts,
    candidates,
    facts_of,
    forward_gaps,
    of_one_op,
    other_weight,
    row_facts,
    with_lacking,
)
from opassay.kernels.op_partners import (
    fused_otherwise,
    groups_of_other_size,
    loosely_mapped,
    met_ops,
    missing_ops,
    partners,
    recorded_early,
    standing_before,
    twins,
)
from opassay.pipeline.difference.parents import read_parents
from opassay.pipeline.judge import Judging
from opassay.schemas import headers
from opassay.schemas.dump_rows import STATISTICS, DumpTable
from opassay.schemas.op_facts import CALL_FACTS, MISSING, OP_FACTS, Kind, RankFacts, Seen
from opassay.schemas.vocab import DumpMode, Section

_DETAILED: Final = 64  # ops a rank of which -da keeps the rows: an answer is among the first of its rank
_IDLE: Final = ("Torch.empty.", "Torch.fill.", "Torch.fill_.", "Tensor.fill_.", "Tensor.__setitem__.")
"""Ops that compute nothing and do not count in the sub-layer (diff_analyze.md, 3)."""

StackTexts = Callable[[Sequence[str]], list[str | None]]


class FactsCollector:
    """Facts of one rank.

    Parameters
    ----------
    judging : Judging
        What the slices are made of.
    detailed : bool
        Keep the rows of the ops that may be an answer, for ``diff_analyze``.
    """

    def __init__(self, judging: Judging, *, detailed: bool) -> None:
        self._table, self._mode, self._detailed = judging.target, judging.mode, detailed
        self._golden = judging.golden
        self._calls = communication_calls(self._table)
        self._rows = _ops_of_rows(judging)
        self._pairs = partners(self._rows)
        self._matched = self._pairs["golden_op"].is_not_null().any()
        self._loose = loosely_mapped(self._rows)
        self._lacking = _lacking(judging)
        self._lenient = judging.lenient
        self._fused = fused_otherwise(self._rows)
        tensors = communication_tensors(self._table, self._calls)
        self._tensors = tensors.select("op", "item", "side", "row")
        self._early, self._sizes = self._both_sides(tensors)
        self._ops = pl.DataFrame(schema=dict(OP_FACTS))
        self._exchanged = [pl.DataFrame(schema=dict(CALL_FACTS))]
        self._met: list[pl.DataFrame] = []
        self._forwards: list[pl.DataFrame] = []
        self._consequences: Consequences | None = None
        self._details: dict[int, dict[str, Any]] = {}

    def add(self, judged: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
        """Take one slice.

        Parameters
        ----------
        judged, cells : polars.DataFrame
            The slice, judged and as cells of the report.

        Returns
        -------
        polars.DataFrame
            Facts of the slice, schema ``OP_FACTS``.
        """
        rows = row_facts(judged, self._mode, self._loose)
        facts = told = with_lacking(facts_of(rows), rows, self._lacking)
        if not self._matched:  # two dumps that have nothing in common: there is no answer to look for
            return told
        if self._lenient:  # training and inference have ops and outputs of their own, by design
            rows = of_one_op(rows, self._fused)
            facts = facts_of(rows).filter(pl.col("kind") != Kind.ALONE)
        else:
            self._met.append(met_ops(judged))
        self._forwards.append(forward_gaps(rows))
        facts = self._with_consequences(facts)
        exchanged = call_facts(rows, self._tensors, self._early)
        self._ops = candidates(pl.concat([self._ops, facts]))
        self._exchanged.append(exchanged)
        if self._detailed and len(self._details) < _DETAILED:
            odd = exchanged.filter((pl.col("gives") == Seen.DIFFER) | (pl.col("gets") == Seen.DIFFER))
            idle = pl.col("op").is_in(self._calls["op"].implode()) & ~pl.col("op").is_in(odd["op"].implode())
            wanted = self._ops.filter(pl.col("op").is_in(facts["op"].implode()) & ~idle)["op"]
            self._keep_rows(judged, cells, wanted.head(_DETAILED - len(self._details)))
        return told

    def finish(self, rank: int, label: str, stacks: StackTexts | None) -> RankFacts:
        """Everything the search wants to know of this rank.

        Parameters
        ----------
        rank, label : int, str
            Its number and folder.
        stacks : callable, optional
            Gives the printed call stacks of records.
        """
        names = self._table.ops["name"]
        called = self._calls["op"].unique()
        counts = (~names.is_in(names.gather(called).implode())) & ~names.str.contains_any(list(_IDLE))
        before = pl.concat([pl.Series([0], dtype=pl.UInt32), counts.cast(pl.UInt32).cum_sum()])  # one more: the end
        missing = missing_ops(pl.concat(self._met)) if self._met else pl.DataFrame(schema=dict(MISSING))
        wanted = pl.concat([self._ops["op"], called, missing["op"]]).unique().sort()
        places = pl.DataFrame({"op": wanted, "counted": before.gather(wanted)})
        if stacks is not None and self._details:
            known = list(self._details)
            for op, text in zip(known, stacks(names.gather(known).to_list()), strict=True):
                self._details[op]["stack"] = stack_lines(text)
        exchanged = pl.concat(self._exchanged).drop("sizes")
        exchanged = exchanged.join(self._sizes, on=["op", "item"], how="left", maintain_order="left")
        return RankFacts(rank, label, self._explained(), self._calls, exchanged, missing, places, self._details)

    def _both_sides(self, tensors: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """``op`` and ``item`` of the target's communications that one side recorded too early, and of those that another number of
        ranks makes on the golden side, with ``sizes``."""
        early = recorded_early(self._calls, tensors)
        golden = communication_calls(self._golden) if self._calls.height else self._calls
        if golden.height:
            theirs = recorded_early(golden, communication_tensors(self._golden, golden)).rename({"op": "golden_op"})
            early = pl.concat([early, theirs.join(self._pairs, on="golden_op").select("op", "item")]).unique()
        return early, groups_of_other_size(self._pairs, self._calls, golden)

    def _explained(self) -> pl.DataFrame:
        """The ops that may be an answer, with what stands before them and which golden op has the values that they were given."""
        ops = self._ops.drop("before", "twin")
        before = standing_before(self._rows, self._pairs, self._table.ops["name"], self._golden.ops["name"])
        given = ops.filter(pl.col("input_at").is_not_null()).select("op", "input_at")
        wanted = _described(self._table, given["input_at"]).with_columns(given["op"])
        slots = set(wanted["slot"].to_list())
        codes = [code for code, slot in enumerate(self._golden.slots) if slot in slots]
        same = pl.any_horizontal(pl.col(name).is_in(wanted[name].drop_nulls().implode()) for name in ("norm", "md5"))
        rows = self._golden.rows.with_row_index("at")  # few of them get a name and a shape
        near = rows.filter(pl.col("slot").is_in(codes) & same)["at"]
        found = twins(wanted, _described(self._golden, near))
        for told in (before, found):
            ops = ops.join(told, on="op", how="left", maintain_order="left")
        return ops.select(list(OP_FACTS))

    def _with_consequences(self, facts: pl.DataFrame) -> pl.DataFrame:
        """Facts that know which ops an earlier one explains, and how far off the forward of a backward is."""
        wrong = facts.filter((pl.col("kind") == Kind.NUMBERS) | other_weight())["name"].to_list()
        if not wrong:
            return facts
        if self._consequences is None:  # modules are of no use before something differs
            self._consequences = Consequences(read_parents(self._table.path.parent, self._table.ops["name"]))
        following = []
        for name in wrong:
            if self._consequences.follows(name):
                following.append(name)
            self._consequences.tell(name)
        forwards = pl.DataFrame({"name": wrong, "forward": [forward_of(name) for name in wrong]})
        gaps = pl.concat(self._forwards).rename({"name": "forward", "gap": "forward_gap"})
        forwards = forwards.join(gaps, on="forward").unique("name", keep="first", maintain_order=True)
        facts = facts.join(forwards, on="name", how="left", maintain_order="left")
        return facts.with_columns(
            follows=pl.col("name").is_in(following), input_gap=pl.max_horizontal("input_gap", "forward_gap")
        ).select(list(OP_FACTS))

    def _keep_rows(self, judged: pl.DataFrame, cells: pl.DataFrame, wanted: pl.Series) -> None:
        """Input and output rows of these ops."""
        if wanted.is_empty():
            return
        shown = ["target_name", *_figures(self._mode)]
        rows = cells.select(shown).with_columns(judged.select("target_row", "target_op", "section"))
        for row in rows.filter(pl.col("target_op").is_in(wanted.implode())).iter_rows(named=True):
            side = (
                "input" if row["section"] <= Section.INPUT else "output" if row["section"] >= Section.OUTPUT else None
            )
            if side is None:
                continue
            kept = self._details.setdefault(row["target_op"], {"input": {}, "output": {}, "stack": None})
            figures = {header: as_number(row[column]) for column, header in _figures(self._mode).items()}
            message = self._table.p2p.get(row["target_row"])
            figures["NPU P2POp peer"] = "None" if message is None else str(message.peer)
            kept[side][row["target_name"]] = figures


def _ops_of_rows(judging: Judging) -> pl.DataFrame:
    """Ops of the rows that meet: ``target_op`` and ``golden_op``, null for a side that is not there, ``golden_section``,
    ``golden_kind`` and ``match``."""
    pairs = judging.pairs
    golden = judging.golden.rows.select(pl.col("op", "section", "kind").gather(pairs["golden_row"]))
    return pl.DataFrame(
        [
            judging.target.rows["op"].gather(pairs["target_row"]).alias("target_op"),
            golden["op"].alias("golden_op"),
            golden["section"].alias("golden_section"),
            golden["kind"].alias("golden_kind"),
            pairs["match"],
        ]
    )


def _described(table: DumpTable, rows: pl.Series) -> pl.DataFrame:
    """What ``twins`` wants to know of these rows."""
    picked = table.rows[rows]
    return picked.select("kind", "md5", *STATISTICS).with_columns(
        table.ops["name"].gather(picked["op"]).alias("name"),
        pl.Series("slot", table.slots, dtype=pl.String).gather(picked["slot"]),
        pl.Series("shape", table.shapes, dtype=pl.String).gather(picked["shape"]),
    )


def _lacking(judging: Judging) -> pl.DataFrame:
    """``op`` and ``row`` of the results that only the golden op of a pair has: its rows come behind all others."""
    golden = judging.golden
    alone = judging.pairs.filter(pl.col("target_row").is_null() & (pl.col("group") < judging.target.ops.height))
    rows = golden.rows[alone["golden_row"]].select("op", "section", "slot", "name").with_columns(alone["group"])
    placed = golden.ops["name"].gather(rows["op"]) + pl.Series(golden.slots, dtype=pl.String).gather(rows["slot"])
    found = rows.select("section", op="group", row=pl.coalesce("name", placed)).filter(
        pl.col("section") >= Section.OUTPUT
    )
    return found.unique("op", keep="first", maintain_order=True).select("op", "row")


def _figures(mode: DumpMode) -> dict[str, str]:
    """Columns of a row in ``diff_analyze``: the target's figures first, as documented, then the golden ones and the errors."""
    if mode is DumpMode.MD5:
        return dict(headers.CHECKSUMS)
    errors = headers.TENSOR_METRICS if mode is DumpMode.TENSOR else headers.STATISTIC_METRICS
    return {**headers.STATISTICS, **errors}


def as_number(text: str) -> float | int | str:
    """A cell as JSON should have it: a finite number where it is one, else its text."""
    if not re.fullmatch(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", text):
        return text
    return float(text) if re.search(r"[.eE]", text) else int(text)


def stack_lines(text: str | None) -> list[str] | None:
    """The lines of a printed call stack."""
    if text is None:
        return None
    try:
        lines = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return [text]
    return [str(line) for line in lines] if isinstance(lines, list) else [text]
