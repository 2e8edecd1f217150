"""RULES applied: the Result of every row, its messages, and whether it was compared at all."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Final

import polars as pl
from opassay.kernels.phrases import phrase
from opassay.kernels.rules import Rule, short
from opassay.schemas.vocab import DumpMode, MatchKind, Result

NOTHING_SAID = "[]"
_HOW: Final = {
    MatchKind.WRAPPER: "paired without what wrappers add to the module path",
    MatchKind.FUZZY: "paired with another call index (fuzzy match)",
    MatchKind.MAPPED: "paired by the mapping file",
    MatchKind.MAPPED_WRAPPER: "paired by the mapping file, without what wrappers add to the module path",
    MatchKind.API_TABLE: "paired by the table of MindSpore and PyTorch names",
}
"""How a row found its partner, where that should stand in the report."""


def judge(frame: pl.DataFrame, rules: Sequence[Rule], mode: DumpMode) -> pl.DataFrame:
    """Add ``result``, ``message``, ``compared`` and ``rules`` to a frame of pairs with scopes.

    Parameters
    ----------
    frame : polars.DataFrame
        Whole ops, with the columns that the rules look at.
    rules : sequence of Rule
        Those of the mode.
    mode : DumpMode
        What was compared.

    Returns
    -------
    polars.DataFrame
        ``result`` is ``vocab.Result`` as UInt8; ``message`` a JSON array of texts, each beginning ``error: ``, ``warning: `` or
        ``note: ``, in ASCII; ``compared`` is false where the row was not (fully) compared; ``uncompared`` names the first rule
        that says so, else null; ``telling`` is true where a rule about the numbers fired, not only one about how they are
        declared.
    """
    hits = frame.lazy().with_columns([rule.fires().alias(_hit(rule)) for rule in rules])
    severities = [pl.when(pl.col(_hit(rule))).then(int(rule.result)).otherwise(0) for rule in rules]
    lost = [rule for rule in rules if rule.always]
    hits = hits.with_columns(
        result=pl.max_horizontal(severities).cast(pl.UInt8),
        uncompared=pl.coalesce([pl.when(pl.col(_hit(rule))).then(pl.lit(rule.name)) for rule in lost]),
        telling=pl.any_horizontal([pl.col(_hit(rule)) for rule in rules if not (rule.formal or rule.always)]),
        notable=_notes(mode)[0],
    ).with_columns(compared=pl.col("uncompared").is_null())
    judged = hits.collect()
    speaking = judged.with_row_index("at").filter((pl.col("result") > 0) | pl.col("notable"))
    messages = _messages(speaking, rules, mode)
    told = pl.DataFrame({"at": pl.int_range(judged.height, dtype=pl.UInt32, eager=True)}).join(
        messages, on="at", how="left", maintain_order="left"
    )
    return judged.drop([_hit(rule) for rule in rules] + ["notable"]).with_columns(
        message=told["message"].fill_null(NOTHING_SAID)
    )


def _hit(rule: Rule) -> str:
    return f"hit:{rule.name}"


def _notes(mode: DumpMode) -> tuple[pl.Expr, list[pl.Expr]]:
    """Remarks that are no verdict: whether a row that passes has one, and the remarks themselves."""
    kinds, words = [int(kind) for kind in _HOW], [f"note: {text}" for text in _HOW.values()]
    how = pl.col("match").replace_strict(kinds, words, default=None, return_dtype=pl.String)
    told = ["joined", "how_joined"] if mode is DumpMode.TENSOR else ["how_joined"]
    joined = pl.lit("note: ") + pl.coalesce([pl.when(pl.col(name) != "").then(name) for name in told])
    odd = how.is_not_null() | joined.is_not_null()
    if mode is not DumpMode.TENSOR:
        return odd, [how, joined]
    equal_nan, equal_inf = pl.col("equal_nan").fill_null(0), pl.col("equal_inf").fill_null(0)
    left_out = pl.when((equal_nan + equal_inf) > 0).then(
        phrase("note: left out, equal on both sides: {} nan, {} inf", equal_nan, equal_inf)
    )
    worst = pl.when((pl.col("result") > 0) & (pl.col("worst_index") >= 0) & (pl.col("error_max") > 0)).then(
        phrase(
            "note: largest difference at {}: NPU {}, Bench {}",
            pl.col("worst_position"),
            short(pl.col("worst_target")),
            short(pl.col("worst_golden")),
        )
    )
    return odd | ((equal_nan + equal_inf) > 0), [worst, left_out, how, joined]


def _messages(speaking: pl.DataFrame, rules: Sequence[Rule], mode: DumpMode) -> pl.DataFrame:
    """``at`` and ``message`` of the rows that have something to say."""
    if mode is DumpMode.TENSOR:
        places = [position(*pair) for pair in zip(speaking["target_shape"], speaking["worst_index"], strict=True)]
        speaking = speaking.with_columns(worst_position=pl.Series(places, dtype=pl.String))
    texts = [
        pl.when(pl.col(_hit(rule))).then(
            phrase(f"{rule.result.word}: {{}} [{rule.name}]", rule.says.fill_null(rule.condition))
        )
        for rule in rules
    ] + _notes(mode)[1]
    escaped = [
        text.str.replace_all("\\", "\\\\", literal=True).str.replace_all('"', '\\"', literal=True) for text in texts
    ]
    joined = speaking.select(
        "at",
        message=pl.lit('["') + pl.concat_list(escaped).list.drop_nulls().list.join('", "') + pl.lit('"]'),
    )
    odd = joined["message"].str.contains(r"[^\x20-\x7e]")
    if odd.any():
        repaired = [_ascii(text) if strange else text for text, strange in zip(joined["message"], odd, strict=True)]
        joined = joined.with_columns(message=pl.Series(repaired, dtype=pl.String))
    return joined


def position(shape: str | None, flat: int | None) -> str | None:
    """Index text of a flat C-order index in a shape text: ``[1, 3]``; ``element 7`` where the shape does not hold it."""
    if flat is None or flat < 0:
        return None
    sizes = [int(size) for size in re.findall(r"\d+", shape or "")]
    if math.prod(sizes) <= flat:
        return f"element {flat}"
    index: list[int] = []
    for size in reversed(sizes):
        flat, place = divmod(flat, size)
        index.append(place)
    return str(index[::-1])


def _ascii(text: str) -> str:
    """The same JSON array in ASCII, control characters escaped."""
    return json.dumps(json.loads(text, strict=False))


def words(result: pl.Expr) -> pl.Expr:
    """Cell text of the Result column."""
    return result.replace_strict([int(r) for r in Result], [r.word for r in Result], return_dtype=pl.String)
