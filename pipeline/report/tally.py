"""Counts of a report while its slices pass: what the closing panel and the exit status are made of. Counts add up on both sides."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import polars as pl
from opassay.schemas.vocab import Result

WORST = 5
_MORE_THAN_ROWS = 1 << 40
_LIBRARY = re.compile(r"(?:site|dist)-packages|(?:^File |/)(?:torch|torch_npu|msprobe|mindspore)/")
"""Files of the frameworks and of the dump tool itself: a call stack's own line is the first outside them."""


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
    order : int
        Place in the panel: rules about numbers before formal differences, errors before warnings, then order of execution.
    source : str
        Innermost line of the user's own code in the op's call stack, "" where it is not known.
    """

    op: str
    row: str
    result: str
    message: str
    order: int
    source: str = ""

    @property
    def formal(self) -> bool:
        """Whether only how it is declared differs, not its numbers."""
        return self.order >= 2 * _MORE_THAN_ROWS

    @property
    def told(self) -> str:
        """The first of its messages whose level is the row's, without the level: what made it an error, not what it warns of too."""
        texts: list[str] = json.loads(self.message)
        first = next((text for text in texts if text.startswith(f"{self.result}: ")), texts[0])
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
    reused : int
        Matched rows whose golden row serves another target row too: they count once on the golden side.
    compared : Counter
        Result word -> matched rows that were compared; an error counts here however it was found.
    uncompared : Counter
        Rule name -> matched rows that were not (fully) compared.
    results : Counter
        Result word -> rows of the report, compared or not.
    worst : list of WorstOp
        At most ``WORST`` ops, those to look at first in front.
    """

    target_rows: int = 0
    golden_rows: int = 0
    target_ops: int = 0
    golden_ops: int = 0
    matched: int = 0
    target_only: int = 0
    golden_only: int = 0
    reused: int = 0
    compared: Counter[str] = field(default_factory=Counter)
    uncompared: Counter[str] = field(default_factory=Counter)
    results: Counter[str] = field(default_factory=Counter)
    worst: list[WorstOp] = field(default_factory=list)

    def add(self, judged: pl.DataFrame) -> None:
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
        self._rank(judged, place)

    def _rank(self, judged: pl.DataFrame, place: int) -> None:
        formal = (~pl.col("telling")).cast(pl.Int64)
        kind = formal * 2 + (pl.col("result") == Result.WARNING).cast(pl.Int64)
        found = (
            judged.lazy()
            .with_row_index("place", offset=place)
            .filter((pl.col("result") == Result.ERROR) | ((pl.col("result") == Result.WARNING) & pl.col("telling")))
            .with_columns(order=kind * _MORE_THAN_ROWS + pl.col("place").cast(pl.Int64))
            .sort("order")
            .unique("group", keep="first", maintain_order=True)
            .head(WORST)
            .select(
                pl.coalesce("target_op_name", "golden_op_name"),
                pl.coalesce("target_name", "golden_name"),
                "result",
                "message",
                "order",
            )
            .collect()
        )
        worst = [
            WorstOp(op, row, Result(result).word, text, order) for op, row, result, text, order in found.iter_rows()
        ]
        known = {one.op for one in self.worst}
        self.worst = sorted([*self.worst, *(one for one in worst if one.op not in known)], key=lambda one: one.order)[
            :WORST
        ]

    def locate(self, stacks: Callable[[Sequence[str]], list[str | None]]) -> None:
        """Fill in where in the user's code the worst ops were called, from the call stacks by record name."""
        texts = stacks([one.op for one in self.worst])
        self.worst = [replace(one, source=own_line(text)) for one, text in zip(self.worst, texts, strict=True)]


def own_line(stack: str | None) -> str:
    """``train.py, line 41, loss = model(batch)`` of a printed stack: its first line that is not of an installed package."""
    try:
        lines = [line for line in ast.literal_eval(stack or "[]") if isinstance(line, str)]
    except (ValueError, SyntaxError):
        return ""
    own = [line for line in lines if not _LIBRARY.search(line.partition(", line ")[0])]
    if not own:
        return ""
    place, _, code = own[0].partition(" \n ")
    parts = place.strip().removeprefix("File ").rstrip(",").split(", in ")[0]
    return f"{parts}: {' '.join(code.split())}" if code else parts
