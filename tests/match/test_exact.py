"""Exact matching: every row of either side exactly once, backward calls by index first, k-th with k-th."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opassay.kernels.match_keys import api_name, parts
from opassay.pipeline.read.dump_json import read_dump
from opassay.schemas.vocab import MatchKind, RowKind

from tests.dumps import scalar, tensor, write_dump
from tests.match.tables import Ops, met, ops


def test_same_names_meet_in_target_order_whatever_the_golden_order() -> None:
    names = ["Torch.mul.0.forward", "Torch.add.0.forward", "Torch.mul.1.forward"]
    shown, found = met(ops(*names), ops(*reversed(names)))
    assert shown == [(f"{name}.input.0", f"{name}.input.0") for name in names]
    assert found.rows["match"].to_list() == [MatchKind.EXACT] * 3
    assert found.rows["group"].to_list() == [0, 1, 2]
    assert found.notes == []


def test_golden_only_rows_stand_behind_in_golden_order() -> None:
    shown, found = met(
        [("Torch.a.0.forward", [".input.0", ".output.0"]), ("Torch.c.0.forward", [".input.0"])],
        [
            ("Torch.x.0.forward", [".input.0"]),
            ("Torch.a.0.forward", [".input.0", ".input.1", ".output.0"]),
            ("Torch.b.0.forward", [".output.0"]),
        ],
    )
    assert shown == [
        ("Torch.a.0.forward.input.0", "Torch.a.0.forward.input.0"),
        ("Torch.a.0.forward.output.0", "Torch.a.0.forward.output.0"),
        ("Torch.c.0.forward.input.0", None),
        (None, "Torch.x.0.forward.input.0"),
        (None, "Torch.a.0.forward.input.1"),
        (None, "Torch.b.0.forward.output.0"),
    ]
    assert found.rows["match"].to_list() == [MatchKind.EXACT] * 2 + [MatchKind.NONE] * 4
    assert found.rows["group"].to_list() == [0, 0, 1, 2, 0, 4]  # ops of golden alone are numbered behind the target's


def test_duplicates_meet_kth_with_kth() -> None:
    twice = [("Torch.a.0.forward", [".input.0", ".input.0", ".output.0"])]
    _, found = met(twice, twice)
    assert found.rows.select("target_row", "golden_row").rows() == [(0, 0), (1, 1), (2, 2)]
    _, found = met(twice, [("Torch.a.0.forward", [".output.0", ".input.0"])])
    assert found.rows.select("target_row", "golden_row").rows() == [(0, 1), (1, None), (2, 0)]


def test_a_name_that_occurs_twice_keeps_the_last_record_and_says_so(tmp_path: Path) -> None:
    twice = {"Torch.a.0.forward": {"output": [tensor()]}, "Torch.b.0.forward": {"output": [scalar(7)]}}
    path = write_dump(tmp_path, twice)
    path.write_text(path.read_text().replace("Torch.b.0.forward", "Torch.a.0.forward"))
    side = read_dump(path)
    assert side.ops["name"].to_list() == ["Torch.a.0.forward"]
    assert side.rows["kind"].to_list() == [RowKind.SCALAR]
    assert [problem.kind for problem in side.problems] == ["duplicate"]


BACKWARD = "Functional.relu.{}.backward"


def test_backward_calls_meet_by_index_first() -> None:
    """Same indexes in another order: the index decides, not the order of appearance."""
    target = ops(*[BACKWARD.format(index) for index in (1, 0)])
    shown, found = met(target, ops(*[BACKWARD.format(index) for index in (0, 1)]))
    assert shown == [(f"{name}.input.0", f"{name}.input.0") for name, _ in target]
    assert found.notes == []


def test_backward_calls_of_recomputation_meet_in_order_of_appearance() -> None:
    target = ops(*[BACKWARD.format(index) for index in (5, 3)], "Torch.mul.0.backward")
    golden = ops(*[BACKWARD.format(index) for index in (1, 0)], "Torch.mul.0.backward")
    shown, found = met(target, golden)
    assert shown == [(f"{a}.input.0", f"{b}.input.0") for (a, _), (b, _) in zip(target, golden, strict=True)]
    assert found.rows["match"].to_list() == [MatchKind.APPEARANCE] * 2 + [MatchKind.EXACT]
    assert len(found.notes) == 1
    assert "order of appearance" in found.notes[0]
    assert "Functional.relu" in found.notes[0]


def test_backward_calls_of_other_counts_meet_by_index_alone() -> None:
    shown, found = met(
        ops(*[BACKWARD.format(index) for index in (2, 1, 0)]), ops(*[BACKWARD.format(index) for index in (1, 0)])
    )
    names = [f"{BACKWARD.format(index)}.input.0" for index in (2, 1, 0)]
    assert shown == [(names[0], None), (names[1], names[1]), (names[2], names[2])]
    assert found.notes == []


def test_forward_calls_never_meet_by_appearance() -> None:
    shown, _ = met(ops("Torch.a.0.forward", "Torch.a.1.forward"), ops("Torch.a.2.forward", "Torch.a.3.forward"))
    assert all(None in pair for pair in shown)
    assert len(shown) == 4


def test_modules_have_the_index_behind_the_direction() -> None:
    target = ops("Module.fc.Linear.backward.1", "Module.fc.Linear.forward.0")
    golden = ops("Module.fc.Linear.backward.0", "Module.fc.Linear.forward.0")
    shown, found = met(target, golden)
    assert shown[0] == ("Module.fc.Linear.backward.1.input.0", "Module.fc.Linear.backward.0.input.0")
    assert found.rows["match"].to_list() == [MatchKind.APPEARANCE, MatchKind.EXACT]


def test_wrapper_names_are_left_out_where_nothing_else_pairs() -> None:
    target = ops("Module._fsdp_wrapped_module.net.0._orig_mod.fc.Linear.forward.0", "Module.same.Linear.forward.0")
    golden = ops("Module.net.0.fc.Linear.forward.0", "Module.same.Linear.forward.0")
    shown, found = met(target, golden)
    assert shown == [
        (f"{mine}.input.0", f"{other}.input.0") for (mine, _), (other, _) in zip(target, golden, strict=True)
    ]
    assert found.rows["match"].to_list() == [MatchKind.WRAPPER, MatchKind.EXACT]
    assert "wrappers" in found.notes[0]


def test_wrapper_names_never_take_an_exact_partner_or_pair_what_is_ambiguous() -> None:
    exact = ops("Module._orig_mod.fc.Linear.forward.0", "Module.fc.Linear.forward.0")
    shown, _ = met(exact, ops("Module.fc.Linear.forward.0"))
    assert shown == [
        ("Module._orig_mod.fc.Linear.forward.0.input.0", None),
        ("Module.fc.Linear.forward.0.input.0",) * 2,
    ]
    twice = ops("Module._orig_mod.fc.Linear.forward.0", "Module._fsdp_wrapped_module.fc.Linear.forward.0")
    shown, _ = met(twice, ops("Module.fc.Linear.forward.0"))
    assert [other for _, other in shown if other] == ["Module.fc.Linear.forward.0.input.0"]
    assert all(mine is None or other is None for mine, other in shown)


@pytest.mark.parametrize("flip", [False, True])
def test_old_and_numbered_parameter_gradients_meet(flip: bool) -> None:
    old = [("Module.fc.Linear.parameters_grad", [".weight", ".bias"])]
    new = [
        ("Module.fc.Linear.parameters_grad.0", [".weight", ".bias"]),
        ("Module.fc.Linear.parameters_grad.1", [".weight"]),
    ]
    shown, found = met(new, old) if flip else met(old, new)
    assert sum(None not in pair for pair in shown) == 2
    assert found.rows["match"].to_list() == [MatchKind.LAYOUT] * 2 + [MatchKind.NONE]
    assert "layout" in found.notes[0]


ODD = ["a b", "x.y", "鸟", "=1+1", "[0]", '"', "\\", "forward", "backward.0.forward", "", "É" * 40]


@pytest.mark.parametrize("odd", ODD)
def test_names_with_odd_parts(odd: str) -> None:
    target = ops(f"Torch.{odd}.0.forward", f"Torch.{odd}.3.backward", f"Module.{odd}.Linear.forward.0", odd)
    golden = ops(odd, f"Module.{odd}.Linear.forward.0", f"Torch.{odd}.3.backward", f"Torch.{odd}.0.forward")
    shown, _ = met(target, golden)
    assert shown == [(f"{name}.input.0", f"{name}.input.0") for name, _ in target]


def test_slots_do_not_run_over_into_names() -> None:
    """The same long name, cut elsewhere into record and slot, is another row."""
    shown, _ = met([("Torch.a.0.forward", [".input.0"])], [("Torch.a.0.forward.input", [".0"])])
    assert shown == [("Torch.a.0.forward.input.0", None), (None, "Torch.a.0.forward.input.0")]


def test_parts_of_names() -> None:
    names = [
        "Torch.mul.3.forward",
        "Tensor.__add__.0.backward",
        "Module.a.b.Linear.forward.2",
        "x.0.debug",
        "a.b.parameters_grad.1",
    ]
    found = pl.DataFrame({"name": names}).select(*parts(pl.col("name")), api_name(pl.col("name")).alias("api")).rows()
    assert found == [
        ("Torch.mul", "forward", "3", "mul"),
        ("Tensor.__add__", "backward", "0", "__add__"),
        ("Module.a.b.Linear", "forward", "2", None),
        (None, None, None, None),
        (None, None, None, None),
    ]


api_names = st.builds(
    "{}.{}.{}.{}".format,
    st.sampled_from(["Torch", "Tensor"]),
    st.sampled_from(["a", "b.c"]),
    st.integers(0, 3),
    st.sampled_from(["forward", "backward"]),
)
held_slots = st.lists(st.sampled_from([".input.0", ".input.1", ".input.k", ".output.0", ".output.0.1"]), max_size=4)
random_ops = st.dictionaries(api_names, held_slots, max_size=8).map(lambda held: list(held.items()))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random_ops, random_ops)
def test_every_row_of_either_side_stands_there_once(target: Ops, golden: Ops) -> None:
    shown, found = met(target, golden)
    count = {
        "target": sum(len(held) for _, held in target),
        "golden": sum(len(held) for _, held in golden),
    }
    for side in ("target", "golden"):
        assert sorted(found.rows[f"{side}_row"].drop_nulls()) == list(range(count[side]))
    ours = found.rows["target_row"].to_list()
    tail = found.rows["golden_row"].to_list()[count["target"] :]
    assert ours[: count["target"]] == list(range(count["target"]))
    assert tail == sorted(tail)
    assert (None, None) not in shown
    assert all(mine == other for mine, other in shown if mine and other and "forward" in mine)
    paired = sum(None not in pair for pair in shown)
    assert paired + sum(a is None for a, _ in shown) == count["golden"]
