"""Counts of a report while its slices pass: what the closing panel and the exit status are made of. Counts add up on both sides."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

import polars as pl
from opassay.kernels import verdict
from opassay.schemas.vocab import DumpMode, Result

WORST = 5


@dataclass(frozen=True, slots=True)
class WorstOp:
    """An op that stands out.

    Attributes
    ----------
    op : str
        Record name.
    row : str
        The row of it that is worst.
    result : str
        ``error`` or ``warning``.
    message : str
        Its messages, a JSON array.
    badness : float
        For ranking within a result; larger is worse.
    place : int
        Row number in the report, counted from 0.
    """

    op: str
    row: str
    result: str
    message: str
    badness: float
    place: int

    @property
    def told(self) -> str:
        """The first of its messages, without the level."""
        first: str = json.loads(self.message)[0]
        return first.partition(": ")[2]


@dataclass(slots=True)
class Tally:
    """Counts of one pair of dumps.

    Attributes
    ----------
    target_rows, golden_rows : int
        Rows read on each side; each is the matched rows plus those of that side alone.
    target_ops, golden_ops : int
        Records read on each side.
    matched, target_only, golden_only : int
        Rows of the report.
    compared : Counter
        Result word -> matched rows that were compared; an error counts here however it was found.
    uncompared : Counter
        Rule name -> matched rows that were not (fully) compared.
    results : Counter
        Result word -> rows of the report, compared or not.
    worst : list of WorstOp
        At most ``WORST`` ops, worst first.
    """

    target_rows: int = 0
    golden_rows: int = 0
    target_ops: int = 0
    golden_ops: int = 0
    matched: int = 0
    target_only: int = 0
    golden_only: int = 0
    compared: Counter[str] = field(default_factory=Counter)
    uncompared: Counter[str] = field(default_factory=Counter)
    results: Counter[str] = field(default_factory=Counter)
    worst: list[WorstOp] = field(default_factory=list)

    def add(self, judged: pl.DataFrame, mode: DumpMode) -> None:
        """Count one slice of judged rows."""
        place = sum(self.results.values())
        target, golden = judged["target_row"].is_not_null(), judged["golden_row"].is_not_null()
        self.matched += int((target & golden).sum())
        self.target_only += int((target & ~golden).sum())
        self.golden_only += int((~target & golden).sum())
        counts = judged.group_by("result", "uncompared", "paired").len()
        for result, reason, paired, rows in counts.iter_rows():
            word = Result(result).word
            self.results[word] += rows
            if paired and (reason is None or result == Result.ERROR):
                self.compared[word] += rows
            elif paired:
                self.uncompared[reason] += rows
        self._rank(judged, mode, place)

    def _rank(self, judged: pl.DataFrame, mode: DumpMode, place: int) -> None:
        speaking = (
            judged.lazy()
            .with_row_index("place", offset=place)
            .filter(pl.col("result") == Result.ERROR)
            .with_columns(badness=verdict.worst_first(mode))
            .sort("badness", "place", descending=[True, False])
            .unique("group", keep="first", maintain_order=True)
            .head(WORST)
            .select(
                pl.coalesce("target_op_name", "golden_op_name"),
                pl.coalesce("target_name", "golden_name"),
                "result",
                "message",
                "badness",
                "place",
            )
            .collect()
        )
        found = [
            WorstOp(op, row, Result(result).word, text, bad, at)
            for op, row, result, text, bad, at in speaking.iter_rows()
        ]
        self.worst = sorted([*self.worst, *found], key=lambda one: (-one.badness, one.place))[:WORST]
