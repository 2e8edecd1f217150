"""Rules applied: severity only moves upward, messages are JSON in ASCII, and what was not compared says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import opassay
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opassay.kernels import verdict
from opassay.kernels.rules import Rule
from opassay.schemas.vocab import DumpMode, Result

from tests.dumps import call, scalar, tensor, tensor_call, write_dump

OP = "Torch.mul.0.forward"


def rule(name: str, result: Result, *, says: str | None = None, **more: Any) -> Rule:
    """A rule that fires where the column of its name is true and repeats the column ``text``."""
    return Rule(
        name=name, result=result, modes=frozenset(DumpMode), on="every row", when=pl.col(name),
        says=pl.lit(says) if says else pl.col("text"), condition=f"{name} is so", why="", source="", **more,
    )  # fmt: skip


def judged(rules: list[Rule], **columns: list[Any]) -> pl.DataFrame:
    height = len(next(iter(columns.values())))
    plain: dict[str, Any] = {
        "redundant": [False] * height,
        "placeholder": [False] * height,
        "text": ["t"] * height,
        "match": [1] * height,
        "how_joined": pl.Series([None] * height, dtype=pl.String),
    }
    plain["never"] = [False] * height
    table = [*rules, rule("never", Result.WARNING, always=True)]  # every table has rules of that kind
    return verdict.judge(pl.DataFrame({**plain, **columns}), table, DumpMode.MD5)


def test_severity_only_moves_upward_and_messages_keep_the_order_of_the_table() -> None:
    rules = [rule("a", Result.ERROR, says="A"), rule("b", Result.WARNING, says="B")]
    found = judged(rules, a=[True, False, True, False], b=[True, True, False, False])
    assert found["result"].to_list() == [Result.ERROR, Result.WARNING, Result.ERROR, Result.PASS]
    assert [json.loads(text) for text in found["message"]] == [
        ["error: A [a]", "warning: B [b]"],
        ["warning: B [b]"],
        ["error: A [a]"],
        [],
    ]
    assert found["message"][3] == "[]"
    assert not [name for name in found.columns if name.startswith("hit:")]


def test_a_condition_that_cannot_be_told_is_none() -> None:
    assert judged([rule("a", Result.ERROR)], a=[None, True])["result"].to_list() == [Result.PASS, Result.ERROR]


def test_a_message_without_its_figures_falls_back_to_the_condition() -> None:
    found = judged([rule("a", Result.ERROR)], a=[True], text=[None])
    assert json.loads(found["message"][0]) == ["error: a is so [a]"]


def test_exempt_ops_and_rules_that_hold_for_them_too() -> None:
    rules = [
        rule("a", Result.ERROR),
        rule("b", Result.WARNING, uses_inputs=True),
        rule("c", Result.WARNING, always=True, says="C"),
    ]
    every = [True] * 3
    found = judged(rules, a=every, b=every, c=every, redundant=[True, False, False], placeholder=[False, True, False])
    assert [json.loads(text) for text in found["message"]] == [
        ["warning: C [c]"],
        ["error: t [a]", "warning: C [c]"],
        ["error: t [a]", "warning: t [b]", "warning: C [c]"],
    ]


def test_what_was_not_compared_is_named_by_the_first_rule_that_says_so() -> None:
    rules = [rule("a", Result.WARNING, always=True), rule("b", Result.WARNING, always=True), rule("c", Result.ERROR)]
    found = judged(rules, a=[True, False, False], b=[True, True, False], c=[True, False, True])
    assert found["uncompared"].to_list() == ["a", "b", None]
    assert found["compared"].to_list() == [False, False, True]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), min_size=1, max_size=5))
def test_any_text_becomes_json_in_ascii(texts: list[str]) -> None:
    found = judged([rule("a", Result.ERROR)], a=[True] * len(texts), text=texts)
    for cell, text in zip(found["message"], texts, strict=True):
        assert json.loads(cell) == [f"error: {text} [a]"]
        assert cell.isascii()
        assert cell.isprintable()


@pytest.mark.parametrize(
    ("shape", "flat", "place"),
    [("[2, 3]", 5, "[1, 2]"), ("[2, 3]", 0, "[0, 0]"), ("[]", 0, "[]"), ("[7]", 6, "[6]"), ("[2, 3]", 6, "element 6"),
     (None, 4, "element 4"), ("[2]", -1, None), ("[2]", None, None), ("[3, 1, 2]", 3, "[1, 0, 1]")],
)  # fmt: skip
def test_positions(shape: str | None, flat: int | None, place: str | None) -> None:
    assert verdict.position(shape, flat) == place


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_a_position_is_where_numpy_has_it(shape: list[int], data: st.DataObject) -> None:
    flat = data.draw(st.integers(0, int(np.prod(shape)) - 1))
    assert verdict.position(str(shape), flat) == str([int(place) for place in np.unravel_index(flat, shape)])


def test_words() -> None:
    assert pl.select(verdict.words(pl.lit(pl.Series([0, 1, 2], dtype=pl.UInt8)))).to_series().to_list() == [
        "pass",
        "warning",
        "error",
    ]


def test_messages_of_a_comparison_name_the_figures(tmp_path: Path) -> None:
    odd = 'say "\\x"\nnow 鸟'
    sides = [{OP: call([scalar(text), tensor()], [tensor()])} for text in (odd, "x")]
    rows = opassay.compare(*[write_dump(tmp_path / name, side) for name, side in zip("tg", sides, strict=True)]).rows
    (told,) = json.loads(rows["message"][0])
    assert told == f"error: scalar argument differs: NPU {odd}, Bench x [scalar]"
    assert rows["message"][0].isascii()


def test_the_worst_element_is_named(tmp_path: Path) -> None:
    golden = np.ones((2, 3), np.float32)
    target = golden.copy()
    target[1, 0] = 4
    paths = [
        write_dump(tmp_path / side, {OP: tensor_call(tmp_path / side, OP, [golden], [values])}, task="tensor")
        for side, values in (("target", target), ("golden", golden))
    ]
    told = json.loads(opassay.compare(*paths).rows["message"][1])
    assert "note: largest difference at [1, 0]: NPU 4.0, Bench 1.0" in told
    assert [text.split(":")[0] for text in told] == ["warning", "warning", "note"]
