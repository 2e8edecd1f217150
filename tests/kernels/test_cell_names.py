"""Cell names: whole names win, then the longest part, and replaced text is never looked at again."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opassay.kernels.cell_names import mapped_names


def mapped(table: Mapping[str, str], *names: str) -> list[str]:
    return mapped_names(pl.Series("name", names, dtype=pl.String), table)[0].to_list()


def used(table: Mapping[str, str], *names: str) -> set[str]:
    return mapped_names(pl.Series("name", names, dtype=pl.String), table)[1]


FUSED = (
    "Module.dense_in.Linear.forward.0",
    "Module.norm.TeLayerNorm.parameters_grad.0",
    "Module.fc2.FusedLinear.backward.0",
    "Module.head.FusedLinear.parameters_grad",
)


@pytest.mark.parametrize(
    ("table", "middles"),
    [
        ({}, ["dense_in.Linear", "norm.TeLayerNorm", "fc2.FusedLinear", "head.FusedLinear"]),
        (
            {
                "dense_in.Linear": "fc1.Linear",
                "norm.TeLayerNorm": "norm.LayerNorm",
                "head.FusedLinear": "head.Linear",
                "fc2.FusedLinear": "fc2.Linear",
            },
            ["fc1.Linear", "norm.LayerNorm", "fc2.Linear", "head.Linear"],
        ),
        (
            {"FusedLinear": "Linear", "TeLayerNorm": "LayerNorm", "dense_in": "fc1"},
            ["fc1.Linear", "norm.LayerNorm", "fc2.Linear", "head.Linear"],
        ),
        (
            {"FusedLinear": "Linear", "head.FusedLinear": "fc2.Linear", "Te": ""},
            ["dense_in.Linear", "norm.LayerNorm", "fc2.Linear", "fc2.Linear"],
        ),
    ],
    ids=["no file", "whole names", "parts", "both"],
)
def test_a_fused_model_meets_a_plain_one(table: dict[str, str], middles: list[str]) -> None:
    tails = ("forward.0", "parameters_grad.0", "backward.0", "parameters_grad")
    assert mapped(table, *FUSED) == [f"Module.{middle}.{tail}" for middle, tail in zip(middles, tails, strict=True)]
    assert used(table, *FUSED) == set(table)


@pytest.mark.parametrize(
    ("name", "becomes"),
    [
        ("Cell.fc.Dense.backward.1", "Module.fc.Dense.backward.1"),
        ("Cell.fc.Dense.parameters_grad.0", "Module.fc.Dense.parameters_grad.0"),
        ("Cell.forward.0", "Module.forward.0"),
        ("Cell.Cell.forward.0", "Module.Cell.forward.0"),
        ("Module.rnn.LSTMCell.forward.0", "Module.rnn.LSTMCell.forward.0"),
        ("MyCell.fc.Dense.forward.0", "MyCell.fc.Dense.forward.0"),
        ("Cells.fc.Dense.forward.0", "Cells.fc.Dense.forward.0"),
        ("Torch.Cell.0.forward", "Torch.Cell.0.forward"),
        ("Cell.0.debug", "Cell.0.debug"),
        ("Cell.fc.Dense", "Cell.fc.Dense"),
    ],
)
def test_cell_becomes_module_only_as_the_whole_first_component(name: str, becomes: str) -> None:
    assert mapped({}, name) == [becomes]
    assert mapped({"never there": "x"}, name) == [becomes]


@pytest.mark.parametrize(
    ("name", "middle"),
    [
        ("Module.a.Linear.forward.0", "a.Linear"),
        ("Module.a.Linear.backward.11", "a.Linear"),
        ("Module.a.Linear.parameters_grad", "a.Linear"),
        ("Module.a.Linear.parameters_grad.3", "a.Linear"),
        ("Module.0.a.Linear.forward.0", "0.a.Linear"),
        ("Torch.matmul.0.forward", "matmul.0"),
        ("NPU.a.b.0.backward", "a.b.0"),
        ("Torch.forward.0.forward", "forward.0"),
        ("Module.forward.Net.forward.0", "forward.Net"),
        ("Module.backward.0.Net.parameters_grad", "backward.0.Net"),
        ("Module.a.parameters_grad.backward.0", "a.parameters_grad"),
        ("Module.a b\nc.Net.forward.0", "a b\nc.Net"),
    ],
)
def test_the_text_that_is_looked_up_ends_at_the_records_own_direction(name: str, middle: str) -> None:
    assert mapped({middle: "X"}, name) == [name.replace(middle, "X", 1)]
    assert used({middle: "X"}, name) == {middle}


@pytest.mark.parametrize("name", ["pos.0.debug", "pos_grad.0.debug", "a.b", "Module", "", "a.forward.b.c", "forward"])
def test_names_without_a_direction_stay(name: str) -> None:
    table = {"pos": "x", "a": "x", "0": "x", "Module": "x", "forward": "x", "b": "x"}
    assert mapped(table, name) == [name]
    assert used(table, name) == set()


@pytest.mark.parametrize(
    ("table", "middle", "becomes", "hit"),
    [
        # the whole name wins over any part, also a longer-lived one
        ({"fc.Lin": "A", "Lin": "B"}, "fc.Lin", "A", {"fc.Lin"}),
        ({"Lin": "B", "Lin.": "C"}, "Lin", "B", {"Lin"}),
        # a key with a dot: the end of the text, at a component boundary
        ({"fc.Lin": "A"}, "enc.fc.Lin", "enc.A", {"fc.Lin"}),
        ({"fc.Lin": "A"}, "myfc.Lin", "myfc.Lin", set()),
        ({"fc.Lin": "A"}, "fc.Linear", "fc.Linear", set()),
        ({"fc.Lin": "A"}, "fc.Lin.act.ReLU", "fc.Lin.act.ReLU", set()),
        ({".Lin": ".A"}, "fc.Lin", "fc.A", {".Lin"}),
        ({"fc.Lin": "A", "enc.fc.Lin": "B"}, "m.enc.fc.Lin", "m.B", {"enc.fc.Lin"}),
        # a part with and one without a dot both act where they do not meet
        ({"fc.Lin": "A", "enc": "dec"}, "enc.fc.Lin", "dec.A", {"fc.Lin", "enc"}),
        ({"fc.Lin": "A", "Lin": "B"}, "enc.fc.Lin", "enc.A", {"fc.Lin"}),
        # parts: first occurrence only
        ({"fc": "gc"}, "fc.fc.fc", "gc.fc.fc", {"fc"}),
        # the longest first, whatever the order of the file
        ({"Par": "P", "RowPar": "TE"}, "x.RowPar", "x.TE", {"RowPar"}),
        ({"Row": "R", "Par": "P"}, "x.RowPar", "x.RP", {"Row", "Par"}),
        # ties in length: the order of the file
        ({"ab": "1", "bc": "2"}, "abc", "1c", {"ab"}),
        ({"bc": "2", "ab": "1"}, "abc", "a2", {"bc"}),
        # replaced text is never looked at again, nor what closes up around deleted text
        ({"A": "B", "B": "A"}, "A.B", "B.A", {"A", "B"}),
        ({"RowParallelLinear": "TERowParallelLinear", "Row": "Col"}, "x.RowParallelLinear", "x.TERowParallelLinear",
         {"RowParallelLinear"}),
        ({"bb": "", "ac": "X"}, "abbc", "ac", {"bb"}),
        ({"long": "a", "a.b": "X"}, "long.b", "a.b", {"long"}),
        ({"a.b": "X", "long": ""}, "a.blong", "a.b", {"long"}),
        ({"long": "", "o.b": "X"}, "zlongo.b", "zo.b", {"long"}),
        # the second occurrence counts where the first has gone into a longer key
        ({"xab": "Y", "ab": "1"}, "xab.ab", "Y.1", {"xab", "ab"}),
        # a key that maps to itself has met its name
        ({"fc": "fc"}, "fc.Lin", "fc.Lin", {"fc"}),
        ({"(.*)": "x", "$1": "y"}, "a.b", "a.b", set()),
        ({"fc": "$0\\1"}, "fc.Lin", "$0\\1.Lin", {"fc"}),
        ({"": "x"}, "fc.Lin", "fc.Lin", set()),
    ],
)  # fmt: skip
def test_entries_act_in_order_of_length(table: dict[str, str], middle: str, becomes: str, hit: set[str]) -> None:
    name = f"Module.{middle}.forward.0"
    assert mapped(table, name) == [f"Module.{becomes}.forward.0"]
    assert used(table, name) == hit


def test_an_api_keeps_its_index_and_its_type() -> None:
    assert mapped({"npu_scale": "mul", "Torch": "x"}, "NPU.npu_scale.3.backward", "Torch.Torch.0.forward") == [
        "NPU.mul.3.backward",
        "Torch.x.0.forward",
    ]


def test_recurring_calls_keep_their_order_and_the_series_its_name() -> None:
    names = pl.Series("name", [f"Cell.a.Dense.{way}.{n}" for way in ("forward", "backward") for n in (1, 0)])
    found, hit = mapped_names(names, {"Dense": "Linear"})
    expected = [f"Module.a.Linear.{way}.{n}" for way in ("forward", "backward") for n in (1, 0)]
    assert found.to_list() == expected
    assert found.name == "name"
    assert found.dtype == pl.String()
    assert hit == {"Dense"}


def test_no_names_are_no_trouble() -> None:
    assert mapped({"a": "b"}) == []
    assert used({"a": "b"}) == set()


def one_by_one(name: str, table: Mapping[str, str]) -> str:
    """The rule again, name by name: taken text is marked place by place."""
    parts = name.split(".")
    back = next((n for n in (1, 2) if len(parts) > n and parts[-n] in ("forward", "backward", "parameters_grad")), 0)
    if not back:
        return name
    head, middle, tail = parts[0], ".".join(parts[1:-back]), parts[-back:]
    if len(parts) > back + 1:
        if middle in table:
            middle = table[middle]
        else:
            signs: list[str | None] = list(middle)
            put_in: dict[int, str] = {}
            for key in sorted(table, key=len, reverse=True):
                for start in range(len(middle) - len(key) + 1):
                    free = all(signs[start + n] == sign for n, sign in enumerate(key))
                    ends = start + len(key) == len(middle) and ((start and middle[start - 1] == ".") or key[0] == ".")
                    if free and ("." not in key or ends):
                        signs[start : start + len(key)] = [None] * len(key)
                        put_in[start] = table[key]
                        break
            middle = "".join(put_in.get(n, "") + (sign or "") for n, sign in enumerate(signs))
    return ".".join(["Module" if head == "Cell" else head, *([middle] if len(parts) > back + 1 else []), *tail])


word = st.text("ab.", min_size=1, max_size=4)
component = st.text("ab", max_size=4) | st.sampled_from(["forward", "Cell", "backward", "0"])


@given(
    st.lists(st.lists(component, min_size=1, max_size=6).map(".".join), max_size=8),
    st.sampled_from(["", ".forward", ".forward.0", ".parameters_grad", ".backward.1", ".debug"]),
    st.dictionaries(word, st.text("abX.", max_size=4), max_size=5),
)
def test_every_name_is_what_the_rule_gives_by_itself(names: list[str], tail: str, table: dict[str, str]) -> None:
    names = [name + tail for name in names]
    assert mapped(table, *names) == [one_by_one(name, table) for name in names]
    assert used(table, *names) <= set(table)
    changed = mapped(table, *names) != mapped({}, *names)
    assert not changed or used(table, *names)
