"""Every other way to meet: fuzzy, data mapping, cell mapping, wrappers. Each target row once, whatever the way."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opassay.kernels.match_keys import fuzzy_key, unwrapped
from opassay.pipeline.match.pairing import pair_dumps
from opassay.schemas.options import WRAPPERS, Matching
from opassay.schemas.vocab import MatchKind

from tests.match.tables import Ops, met, names_of, ops, table

FUZZY = Matching(fuzzy=True)
RELU, GELU = "Functional.relu.{}.forward", "Functional.gelu.{}.forward"


def partners(shown: Sequence[tuple[str | None, str | None]]) -> dict[str, str | None]:
    """Target row -> golden row, of single-slot ops, by op name."""
    return {mine.removesuffix(".input.0"): other and other.removesuffix(".input.0") for mine, other in shown if mine}


def test_fuzzy_example_of_the_specification() -> None:
    target = ops(RELU.format(0), GELU.format(0), RELU.format(1))
    shown, found = met(target, ops(RELU.format(7), RELU.format(8)), FUZZY)
    assert partners(shown) == {RELU.format(0): RELU.format(7), GELU.format(0): None, RELU.format(1): RELU.format(8)}
    assert found.rows["match"].to_list() == [MatchKind.FUZZY, MatchKind.NONE, MatchKind.FUZZY]
    assert "2 of 2 ops pair with another call index" in found.notes[0]


def test_fuzzy_lets_the_structure_decide_which_call_is_extra() -> None:
    """One more relu at the start, on another shape: the other three are the golden side's three."""
    target = table(ops(*[RELU.format(call) for call in range(4)]), ["[5]", "[2, 4]", "[2, 4]", "[2, 4]"])
    golden = table(ops(*[RELU.format(call) for call in range(3)]), ["[2, 4]"] * 3)
    found = pair_dumps(target, golden, FUZZY).rows
    assert found.select("target_row", "golden_row").rows() == [(0, None), (1, 0), (2, 1), (3, 2)]


def test_fuzzy_pairs_equal_names_where_structure_says_nothing() -> None:
    shown, found = met(ops(*[RELU.format(call) for call in range(3)]), ops(RELU.format(0), RELU.format(1)), FUZZY)
    assert partners(shown) == {RELU.format(0): RELU.format(0), RELU.format(1): RELU.format(1), RELU.format(2): None}
    assert found.rows["match"].to_list() == [MatchKind.EXACT] * 2 + [MatchKind.NONE]


def test_fuzzy_knows_modules_gradients_debug_saves_and_directions_apart() -> None:
    target = ops(
        "Module.a.fc.Linear.forward.3",
        "Module.a.fc.Linear.backward.3",
        "Module.a.fc.Linear.parameters_grad.2",
        "pos.4.debug",
        "Torch.relu.1.backward",
    )
    golden = ops(
        "Module.a.fc.Linear.forward.0",
        "Module.a.fc.Linear.backward.1",
        "Module.a.fc.Linear.parameters_grad",
        "pos.0.debug",
        "Torch.relu.0.forward",
    )
    shown, _ = met(target, golden, FUZZY)
    assert partners(shown) == {
        **{mine: other for (mine, _), (other, _) in zip(target[:4], golden[:4], strict=True)},
        "Torch.relu.1.backward": None,
    }


def test_fuzzy_keeps_surplus_rows_of_a_pair_on_their_side() -> None:
    shown, _ = met([(RELU.format(0), [".input.0", ".output.0"])], [(RELU.format(3), [".input.0", ".input.1"])], FUZZY)
    assert shown == [
        (f"{RELU.format(0)}.input.0", f"{RELU.format(3)}.input.0"),
        (f"{RELU.format(0)}.output.0", None),
        (None, f"{RELU.format(3)}.input.1"),
    ]


def test_fuzzy_leaves_wrappers_out_where_the_full_name_is_unknown() -> None:
    shown, found = met(ops("Module._orig_mod.fc.Linear.forward.2"), ops("Module.fc.Linear.forward.0"), FUZZY)
    assert partners(shown) == {"Module._orig_mod.fc.Linear.forward.2": "Module.fc.Linear.forward.0"}
    assert found.rows["match"].to_list() == [MatchKind.WRAPPER]


def test_fuzzy_keys() -> None:
    names = [
        "Torch.a.b.3.forward",
        "Module.a.L.forward.3",
        "Cell.x.backward.0",
        "a.parameters_grad",
        "x.y.3.debug",
        "?",
    ]
    found = pl.DataFrame({"name": names}).select(fuzzy_key(pl.col("name"))).to_series().to_list()
    assert found == [
        "Torch.a.b.forward",
        "Module.a.L.forward",
        "Cell.x.backward",
        "a.parameters_grad",
        "x.y.debug",
        "?",
    ]


names = st.builds(
    "{}.{}.{}".format,
    st.sampled_from(["Torch.a", "Torch.b", "Tensor.c"]),
    st.integers(0, 9),
    st.sampled_from(["forward", "backward"]),
)
held = st.lists(st.sampled_from([".input.0", ".input.1", ".output.0"]), max_size=3)
sides = st.dictionaries(names, held, max_size=12).map(lambda found: list(found.items()))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sides, sides)
def test_fuzzy_pairs_each_row_once_in_order_and_the_same_from_either_side(target: Ops, golden: Ops) -> None:
    shown, found = met(target, golden, FUZZY)
    for side, given_ops in (("target", target), ("golden", golden)):
        assert sorted(found.rows[f"{side}_row"].drop_nulls()) == list(range(sum(len(slots) for _, slots in given_ops)))
    both = found.rows.drop_nulls(["target_row", "golden_row"])
    matched_ops = [
        (int(found.target.rows["op"][mine]), int(found.golden.rows["op"][other]))
        for mine, other in both.select("target_row", "golden_row").rows()
    ]
    assert matched_ops == sorted(matched_ops)
    assert [other for _, other in matched_ops] == sorted(other for _, other in matched_ops)
    back = {(other, mine) for mine, other in met(golden, target, FUZZY)[0]}
    assert set(shown) == back


def test_data_mapping_pairs_the_rows_it_names_and_leaves_the_rest() -> None:
    target = [("NPU.npu_scale.0.forward", [".input.0", ".output.0"]), ("Torch.add.0.forward", [".input.0"])]
    golden = [("Torch.mul.0.forward", [".input.0", ".input.1", ".output.0"]), ("Torch.add.0.forward", [".input.0"])]
    mapping = {
        "NPU.npu_scale.0.forward.input.0": "Torch.mul.0.forward.input.1",
        "NPU.npu_scale.0.forward.output.0": "Torch.mul.0.forward.output.0",
    }
    shown, found = met(target, golden, Matching(data_mapping=mapping))
    assert shown == [
        *mapping.items(),
        ("Torch.add.0.forward.input.0",) * 2,
        (None, "Torch.mul.0.forward.input.0"),
    ]
    assert found.rows["match"].to_list() == [MatchKind.MAPPED] * 2 + [MatchKind.EXACT, MatchKind.NONE]
    assert found.warnings == []


def test_data_mapping_lets_a_golden_row_serve_twice_and_names_what_it_lacks() -> None:
    one = "Torch.a.0.forward.input.0"
    mapping = {
        "Torch.b.0.forward.input.0": one,
        "Torch.c.0.forward.input.0": "Torch.gone.0.forward.input.0",
        "Torch.never.0.forward.input.0": one,
    }
    shown, found = met(
        ops("Torch.a.0.forward", "Torch.b.0.forward", "Torch.c.0.forward"),
        ops("Torch.a.0.forward", "Torch.c.0.forward"),
        Matching(data_mapping=mapping),
    )
    assert shown == [
        (one, one),
        ("Torch.b.0.forward.input.0", one),
        ("Torch.c.0.forward.input.0", None),  # the line names another row, which does not exist
        (None, "Torch.c.0.forward.input.0"),
    ]
    assert found.rows["group"].to_list() == [0, 1, 2, 2]
    told = " ".join(found.warnings)
    assert "Torch.never.0.forward.input.0" in told
    assert "Torch.gone.0.forward.input.0" in told


def test_data_mapping_takes_the_shown_name_and_the_place_in_the_record() -> None:
    """A saved keyword tensor shows as ``.kwargs.bias``, a report of statistics as ``.input.bias`` (dump_format.md, 3.2)."""
    target, golden = table([("Torch.f.0.forward", [".input.bias"])]), table([("Torch.g.0.forward", [".input.bias"])])
    golden.rows = golden.rows.with_columns(name=pl.lit("Torch.g.0.forward.kwargs.bias"))
    for value in ("Torch.g.0.forward.kwargs.bias", "Torch.g.0.forward.input.bias"):
        matching = Matching(data_mapping={"Torch.f.0.forward.input.bias": value})
        found = pair_dumps(target, golden, matching)
        assert found.rows["golden_row"].to_list() == [0]
        assert found.warnings == []


@pytest.mark.parametrize("matching", [Matching(data_mapping={"x": "y"}), Matching(cell_mapping={})])
def test_a_mapping_never_renumbers_backward_calls(matching: Matching) -> None:
    backward = "Module.fc.Linear.backward.{}"
    shown, _ = met(ops(*map(backward.format, (1, 0))), ops(*map(backward.format, (0, 1))), matching)
    assert partners(shown) == {backward.format(call): backward.format(call) for call in (1, 0)}
    shown, _ = met(ops(*map(backward.format, (5, 3))), ops(*map(backward.format, (1, 0))), matching)
    assert all(None in pair for pair in shown)


def test_cell_mapping_pairs_modules_and_may_use_a_golden_module_twice() -> None:
    target = ops("Cell.fc.Dense.forward.0", "Module.head.FusedLinear.forward.0", "Module.x.Te.parameters_grad.0")
    golden = ops("Module.fc.Linear.forward.0", "Module.x.Te.parameters_grad.0")
    matching = Matching(cell_mapping={"Dense": "Linear", "head.FusedLinear": "fc.Linear", "Nobody": "X"})
    shown, found = met(target, golden, matching)
    assert partners(shown) == {
        "Cell.fc.Dense.forward.0": "Module.fc.Linear.forward.0",
        "Module.head.FusedLinear.forward.0": "Module.fc.Linear.forward.0",
        "Module.x.Te.parameters_grad.0": "Module.x.Te.parameters_grad.0",
    }
    assert found.rows["match"].to_list() == [MatchKind.MAPPED, MatchKind.MAPPED, MatchKind.EXACT]
    assert found.warnings == [
        "lines of the cell mapping that no target module has: Nobody",
        "the cell mapping gives several target modules one golden module: "
        "Module.fc.Linear serves Cell.fc.Dense, Module.head.FusedLinear",
    ]
    one = Matching(cell_mapping={"Dense": "Linear"})
    assert met(target, golden, one)[1].warnings == []


def test_bare_cell_mapping_reads_cells_as_modules_and_leaves_debug_saves_alone() -> None:
    cells, modules = [ops(f"{first}.fc.LSTMCell.forward.0", "pos.0.debug") for first in ("Cell", "Module")]
    for target, golden in ((cells, modules), (cells, cells), (modules, cells)):
        assert all(None not in pair for pair in met(target, golden, Matching(cell_mapping={}))[0])


@pytest.mark.parametrize("first", ["Cell", "Module"])
def test_a_golden_side_with_a_cell_and_a_module_of_one_name_moves_no_other_op(first: str) -> None:
    """Both are one name where Cell is read as Module: the one that is called so itself is taken, and each target op stays one."""
    target = ops(f"{first}.fc.L.forward.0", "Module.next.L.forward.0", "Torch.relu.0.forward")
    golden = ops("Cell.fc.L.forward.0", "Module.fc.L.forward.0", "Module.next.L.forward.0", "Torch.relu.0.forward")
    shown, found = met(target, golden, Matching(cell_mapping={}))
    assert partners(shown) == {name: name for name, _ in target}
    assert found.rows["target_row"].drop_nulls().to_list() == [0, 1, 2]


def test_of_a_cell_and_a_module_that_are_both_mapped_to_the_first_is_taken() -> None:
    golden = ops("Cell.b.L.forward.0", "Module.b.L.forward.0", "Torch.relu.0.forward")
    shown, _ = met(ops("Module.a.L.forward.0", "Torch.relu.0.forward"), golden, Matching(cell_mapping={"a": "b"}))
    assert partners(shown) == {
        "Module.a.L.forward.0": "Cell.b.L.forward.0",
        "Torch.relu.0.forward": "Torch.relu.0.forward",
    }


def test_cell_mapping_and_fuzzy_together() -> None:
    matching = Matching(fuzzy=True, cell_mapping={"Dense": "Linear"})
    shown, found = met(ops("Module.fc.Dense.forward.4"), ops("Module.fc.Linear.forward.0"), matching)
    assert partners(shown) == {"Module.fc.Dense.forward.4": "Module.fc.Linear.forward.0"}
    assert found.rows["match"].to_list() == [MatchKind.FUZZY]


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("Module.module.fc.Linear.forward.0", "Module.fc.Linear.forward.0"),
        ("Module.module.module.decoder.fc.Linear.backward.1", "Module.decoder.fc.Linear.backward.1"),
        ("Module._fsdp_wrapped_module.a._orig_mod.fc.Linear.forward.0", "Module.a.fc.Linear.forward.0"),
        ("Module.0.net.fc.Linear.forward.0", "Module.net.fc.Linear.forward.0"),
        ("Module.0.module._orig_mod.fc.Linear.forward.0", "Module.fc.Linear.forward.0"),
        ("Cell.1.fc.Dense.forward.0", "Cell.fc.Dense.forward.0"),
        ("Module.layers.0.fc.Linear.forward.0", "Module.layers.0.fc.Linear.forward.0"),  # an index inside the path stays
        ("Module.submodule.fc.Linear.forward.0", "Module.submodule.fc.Linear.forward.0"),  # a whole part or nothing
        ("Torch.module.0.forward", "Torch.module.0.forward"),  # an API has no path
        ("Module.fc.module.forward.0", "Module.fc.module.forward.0"),  # a class of that name is no wrapper
        ("Module._orig_mod.Net.parameters_grad", "Module.Net.parameters_grad"),
        ("Module._orig_mod.Net.forward.0", "Module.Net.forward.0"),
        ("Module.fc._checkpoint_wrapped_module.L.parameters_grad.0", "Module.fc.L.parameters_grad.0"),
    ],
)  # fmt: skip
def test_what_wrappers_add_to_names(name: str, bare: str) -> None:
    assert pl.select(unwrapped(pl.lit(name), tuple(WRAPPERS))).item() == bare


def test_wrappers_and_the_old_layout_of_gradients_at_once() -> None:
    shown, found = met(ops("Module.module.fc.L.parameters_grad"), ops("Module.fc.L.parameters_grad.0"))
    assert partners(shown) == {"Module.module.fc.L.parameters_grad": "Module.fc.L.parameters_grad.0"}
    assert found.rows["match"].to_list() == [MatchKind.WRAPPER]


def test_wrappers_and_recomputation_at_once() -> None:
    """Checkpointing wraps modules and moves their backward calls: the k-th backward meets the k-th, not the one of equal number."""
    wrapped = "Module._checkpoint_wrapped_module.fc.L"
    target = ops(
        *(f"{wrapped}.forward.{call}" for call in range(4)), *(f"{wrapped}.backward.{call}" for call in (1, 3))
    )
    golden = ops(*(f"Module.fc.L.{way}.{call}" for way in ("forward", "backward") for call in (0, 1)))
    shown, found = met(target, golden)
    assert partners(shown) == {
        f"{wrapped}.forward.0": "Module.fc.L.forward.0",
        f"{wrapped}.forward.1": "Module.fc.L.forward.1",
        f"{wrapped}.forward.2": None,
        f"{wrapped}.forward.3": None,
        f"{wrapped}.backward.1": "Module.fc.L.backward.0",
        f"{wrapped}.backward.3": "Module.fc.L.backward.1",
    }
    assert set(found.rows["match"]) == {MatchKind.WRAPPER, MatchKind.NONE}
    assert "order of appearance" in found.notes[0]
    assert found.notes[1].startswith("4 ops pair only without what wrappers add")
    assert None in [other for _, other in met(target, golden, Matching(wrappers=()))[0]]


def test_fuzzy_calls_a_gradient_of_the_other_layout_what_it_is() -> None:
    found = met(ops("Module.fc.L.parameters_grad"), ops("Module.fc.L.parameters_grad.0"), FUZZY)[1]
    assert found.rows["match"].to_list() == [MatchKind.LAYOUT]


def test_a_line_break_in_a_name_hides_no_call_index() -> None:
    shown, _ = met(ops("Torch.a\nb.1.forward"), ops("Torch.a\nb.0.forward"), FUZZY)
    assert partners(shown) == {"Torch.a\nb.1.forward": "Torch.a\nb.0.forward"}


def test_wrappers_can_be_turned_off_and_added() -> None:
    target, golden = ops("Module._orig_mod.my_wrap_3.fc.L.forward.0"), ops("Module.fc.L.forward.0")
    for matching, paired in (
        (Matching(), False),
        (Matching(wrappers=(*WRAPPERS, r"my_wrap_\d+")), True),
        (Matching(wrappers=(r"my_wrap_\d+",)), False),
        (Matching(wrappers=()), False),
    ):
        shown, found = met(target, golden, matching)
        assert (None not in shown[0]) is paired
        assert bool(found.notes) is paired
    assert None in met(ops("Module._orig_mod.fc.L.forward.0"), golden, Matching(wrappers=()))[0][0]


def test_the_tables_of_the_tests_name_their_rows() -> None:
    side = table([("Torch.a.0.forward", [".input.0", ".output.0"])], ["[2]"])
    assert names_of(side) == ["Torch.a.0.forward.input.0", "Torch.a.0.forward.output.0"]
    assert side.shapes == ["[2]"]
