"""Why an answer is one: reasons say what was measured, name what stands beside the op, and blame nobody for what is by design."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opassay.kernels.first_difference import Node, Origin, Stage
from opassay.kernels.op_facts import LACKS
from opassay.pipeline.difference.search import NOT_OF_NUMBERS, of_numbers, reason_of

from tests.difference.searching import facts_of_ranks, search
from tests.dumps import call, scalar, tensor, tensor_call, write_dump

Data = Mapping[str, Any]


def values(norm: float = 10.0, *, shape: tuple[int, ...] = (5, 5), scale: float = 1.0) -> dict[str, Any]:
    return tensor(shape=shape, stats=(4.0 * scale, -4.0 * scale, 0.5 * scale, norm * scale))


GOOD, BAD = values(), values(scale=4.0)
MUL, ADD, SUB, NEG, RELU = (f"Torch.{api}.0.forward" for api in ("mul", "add", "sub", "neg", "relu"))
RIGHT, INHERITING = call([GOOD], [GOOD]), call([BAD], [BAD])


def node(folder: Path, target: Data, golden: Data, **options: Any) -> Node:
    """The only answer of two dumps of one rank."""
    (found,) = nodes(folder, target, golden, **options)
    return found


def nodes(folder: Path, target: Data, golden: Data, *, level: str = "L1", **options: Any) -> tuple[Node, ...]:
    paths = [write_dump(folder / side, data, level=level) for side, data in (("target", target), ("golden", golden))]
    found = search(*paths, folder / "out", **options)
    assert found.independent == ()
    return found.nodes


# ---- what is measured


@pytest.mark.parametrize(
    ("target", "golden", "told"),
    [
        ([values(shape=(3, 16))], [values(shape=(16, 3))], "shape [3, 16] against [16, 3]"),
        ([scalar(3)], [scalar(8)], "3 against 8"),
        ([GOOD, GOOD], [GOOD], "only the target has this input"),
        ([GOOD], [None], "a tensor against None"),
        ([BAD], [GOOD], "max 16.0 against 4.0, min -16.0 against -4.0, mean 2.0 against 0.5, norm 40.0 against 10.0"),
    ],
    ids=["shape", "scalar", "not paired", "kinds", "statistics"],
)
def test_figures_are_those_that_were_measured(tmp_path: Path, target: Any, golden: Any, told: str) -> None:
    found = node(tmp_path, {MUL: call(target, [BAD])}, {MUL: call(golden, [GOOD])})
    assert found.origin is Origin.INHERITED
    assert reason_of(found) == f"its inputs differ already, and nothing before it in the dump says why: {told}"


def test_a_shape_among_tensors_has_no_figures_of_elements(tmp_path: Path) -> None:
    data = [np.linspace(1, 2, 12, dtype=np.float32).reshape(shape) for shape in ((3, 4), (4, 3))]
    sides = [
        write_dump(tmp_path / side, {MUL: tensor_call(tmp_path / side, MUL, [one], [one])}, task="tensor")
        for side, one in zip(("target", "golden"), data, strict=True)
    ]
    (found,) = search(*sides, tmp_path / "out").nodes
    assert found.figures == "shape [3, 4] against [4, 3]"


def test_nan_among_tensors_is_counted(tmp_path: Path) -> None:
    good = np.linspace(1, 2, 12, dtype=np.float32)
    bad = good.copy()
    bad[3] = np.nan
    sides = [
        write_dump(tmp_path / side, {MUL: tensor_call(tmp_path / side, MUL, [one], [one])}, task="tensor")
        for side, one in (("target", bad), ("golden", good))
    ]
    (found,) = search(*sides, tmp_path / "out").nodes
    assert found.figures == "1 nan and 0 infinities that the other side does not share"


def test_statistics_that_one_side_does_not_know_are_left_out(tmp_path: Path) -> None:
    known, partial = values(10.0), tensor(shape=(5, 5), stats=(None, -40.0, None, 40.0))
    found = node(tmp_path, {MUL: call([partial], [BAD])}, {MUL: call([known], [GOOD])})
    assert found.figures == "min -40.0 against -4.0, norm 40.0 against 10.0"


def test_a_tensor_that_is_not_known_whole_is_no_input_that_agrees(tmp_path: Path) -> None:
    partial = tensor(shape=(5, 5), stats=(None, None, 0.5, None))
    target, golden = {MUL: call([partial, scalar(1)], [BAD])}, {MUL: call([GOOD, scalar(1)], [GOOD])}
    assert node(tmp_path, target, golden).origin is Origin.UNSEEN


def test_statistics_that_overflow_on_both_sides_say_nothing(tmp_path: Path) -> None:
    huge = tensor(shape=(5, 5), stats=(3e38, 3e38, float("inf"), float("inf")))
    data = {MUL: call([scalar(1)], [huge])}
    assert nodes(tmp_path, data, data) == ()


# ---- what stands beside it


def test_only_the_op_directly_before_it_is_named(tmp_path: Path) -> None:
    target = {NEG: RIGHT, MUL: RIGHT, ADD: INHERITING}
    assert node(tmp_path / "far", target, {MUL: RIGHT, ADD: RIGHT}).hint == ""
    target = {MUL: RIGHT, NEG: RIGHT, RELU: RIGHT, ADD: INHERITING}
    found = node(tmp_path / "near", target, {MUL: RIGHT, ADD: RIGHT})
    assert reason_of(found).endswith(f"; before it stands {RELU}, which only the target has")


def test_of_the_golden_side_the_op_before_the_partner_counts(tmp_path: Path) -> None:
    golden = {MUL: RIGHT, NEG: RIGHT, SUB: RIGHT, ADD: RIGHT}
    target = {MUL: RIGHT, SUB: INHERITING, ADD: RIGHT}
    assert node(tmp_path / "near", target, golden).hint == f"before it stands {NEG}, which only the golden side has"
    golden = {MUL: RIGHT, SUB: RIGHT, NEG: RIGHT, ADD: RIGHT}  # behind it
    assert node(tmp_path / "behind", target, golden).hint == ""


def test_a_golden_op_that_is_used_twice_keeps_the_places(tmp_path: Path) -> None:
    golden = {NEG: RIGHT, MUL: RIGHT, RELU: RIGHT, ADD: RIGHT}
    target = {MUL: RIGHT, "Torch.mul.7.forward": RIGHT, ADD: RIGHT, SUB: INHERITING}
    slots = (".input.0", ".output.0")
    lines = {f"Torch.mul.7.forward{slot}": f"{MUL}{slot}" for slot in slots}
    lines |= {f"{SUB}{slot}": f"{ADD}{slot}" for slot in slots}
    mapping = tmp_path / "m.yaml"
    mapping.write_text("".join(f"{ours}: {theirs}\n" for ours, theirs in lines.items()))
    paths = [write_dump(tmp_path / side, data) for side, data in (("target", target), ("golden", golden))]
    (facts,) = facts_of_ranks(*paths, tmp_path / "out", data_mapping=mapping)
    assert facts.missing.rows() == [(0, NEG), (0, RELU)]
    (found,) = search(*paths, tmp_path / "out", data_mapping=mapping).nodes
    assert (found.name, found.hint) == (SUB, f"before it stands {RELU}, which only the golden side has")


def test_an_input_that_holds_what_another_golden_op_was_given(tmp_path: Path) -> None:
    """Experts in another order."""
    names = [f"Functional.linear.{number}.forward" for number in range(4)]
    weights = [values(norm) for norm in (30.0, 60.0, 90.0, 30.0)]
    golden = {name: call([GOOD, weight], [GOOD]) for name, weight in zip(names, weights, strict=True)}
    order = (1, 0, 2, 3)
    target = {name: call([GOOD, weights[at]], [BAD]) for name, at in zip(names, order, strict=True)}
    found = node(tmp_path, {names[0]: target[names[0]]}, golden)
    assert found.row == f"{names[0]}.input.1"
    assert reason_of(found).endswith(f"; it has the values of the golden side's {names[1]}")


# ---- mapping files


def test_an_input_that_the_mapping_does_not_name_does_not_differ(tmp_path: Path) -> None:
    ours, theirs = "Module.dense.Linear.forward.0", "Module.fc1.Linear.forward.0"
    record = {**call([GOOD], [GOOD]), "parameters": {"weight": GOOD, "bias": GOOD}}
    parts = (".input.0", ".parameters.weight", ".output.0")
    mapping = tmp_path / "m.yaml"
    mapping.write_text("".join(f"{ours}{part}: {theirs}{part}\n" for part in parts))
    assert nodes(tmp_path, {ours: record}, {theirs: record}, level="L0", data_mapping=mapping) == ()
    wrong = {**record, "output": [BAD]}
    found = node(tmp_path / "wrong", {ours: wrong}, {theirs: record}, level="L0", data_mapping=mapping)
    assert (found.origin, found.row) == (Origin.ADDED, f"{ours}.output.0")


def test_an_input_that_the_golden_op_does_not_have_differs_under_a_mapping_too(tmp_path: Path) -> None:
    ours, theirs = "Module.dense.Linear.forward.0", "Module.fc1.Linear.forward.0"
    mapping = tmp_path / "m.yaml"
    mapping.write_text("".join(f"{ours}{part}: {theirs}{part}\n" for part in (".input.0", ".output.0")))
    found = node(
        tmp_path, {ours: call([GOOD, GOOD], [BAD])}, {theirs: RIGHT}, level="L0", data_mapping=mapping
    )  # fmt: skip
    assert reason_of(found).endswith("only the target has this input")


# ---- weights


def module(weight: dict[str, Any], out: dict[str, Any], given: dict[str, Any] = GOOD) -> dict[str, Any]:
    return {**call([given], [out]), "parameters": {"weight": weight}}


FC, HEAD = "Module.fc.Linear.forward.0", "Module.head.Linear.forward.0"


def test_a_weight_that_differs_is_named_wherever_it_stands(tmp_path: Path) -> None:
    golden = {FC: module(GOOD, GOOD), HEAD: module(GOOD, GOOD)}
    target = {FC: module(BAD, BAD), HEAD: module(BAD, BAD)}
    paths = [write_dump(tmp_path / side, data, level="L0") for side, data in (("t", target), ("g", golden))]
    found = search(*paths, tmp_path / "out")
    (first,), (then,) = found.nodes, found.independent
    assert (first.row, then.row) == (f"{FC}.parameters.weight", f"{HEAD}.parameters.weight")
    assert reason_of(first) == (
        "its weight differs, and no other input of it does: max 16.0 against 4.0, min -16.0 against -4.0, mean 2.0 against 0.5, "
        "norm 40.0 against 10.0"
    )


def test_a_weight_is_held_to_less_than_what_ops_compute(tmp_path: Path) -> None:
    """The module around it would be blamed: its own inputs are equal, its output is not."""
    off, block = values(scale=1 / 1.1), "Module.fc.Block.forward.0"
    inner = "Module.fc.down.Linear.forward.0"
    golden = {inner: module(GOOD, GOOD), block: RIGHT}
    found = node(tmp_path, {inner: module(off, off), block: call([GOOD], [BAD])}, golden, level="L0")
    assert (found.origin, found.row) == (Origin.WEIGHT, f"{inner}.parameters.weight")
    little = values(scale=1.005)
    assert nodes(tmp_path / "little", {inner: module(little, little), block: RIGHT}, golden, level="L0") == ()
    assert nodes(tmp_path / "harmless", {inner: module(off, GOOD), block: RIGHT}, golden, level="L0")[0].origin is (
        Origin.INHERITED
    )


def test_a_weight_beside_another_input_that_differs_is_none_of_its_own(tmp_path: Path) -> None:
    found = node(tmp_path, {FC: module(BAD, BAD, BAD)}, {FC: module(GOOD, GOOD)}, level="L0")
    assert (found.origin, found.row) == (Origin.INHERITED, f"{FC}.input.0")


# ---- training against inference

TRAINED = "Module._fsdp_wrapped_module.model.layers.0._fsdp_wrapped_module."
ROW, FLAT = (1, 6, 8), (6, 8)


def trained(weight: float = 1.0) -> dict[str, Any]:
    row, out = values(shape=ROW), values(shape=ROW, scale=weight)
    fused = module(values(shape=(8, 8), scale=weight), out, row)
    return {
        f"{TRAINED}mlp.act_fn.SiLU.forward.0": call([row], [values(shape=ROW, scale=3.0)]),
        f"{TRAINED}mlp.down_proj.Linear.forward.0": fused,
        f"{TRAINED}Qwen2DecoderLayer.forward.0": call([row], [values(shape=ROW, scale=5.0)]),
    }


def inferred() -> dict[str, Any]:
    flat, wide = values(shape=FLAT), values(shape=(6, 16))
    return {
        "Module.model.layers.0.attn.Attention.forward.0": call([flat], [flat]),
        "Module.model.layers.0.mlp.act_fn.SiluAndMul.forward.0": call([wide], [flat]),
        "Module.model.layers.0.mlp.down_proj.RowParallelLinear.forward.0": {
            **module(values(shape=(8, 8)), flat, flat), "output": [flat, None]
        },
        "Module.model.layers.0.Qwen2DecoderLayer.forward.0": call([flat], [flat, flat]),
    }  # fmt: skip


def test_fused_ops_of_an_inference_engine_are_no_answer(tmp_path: Path) -> None:
    """An activation that multiplies as well, a layer that hands its residual on: what they give is another thing by design."""
    assert nodes(tmp_path, trained(), inferred(), level="L0", backend="fsdp") == ()
    found = node(tmp_path / "weight", trained(1 / 1.1), inferred(), level="L0", backend="fsdp")
    assert (found.origin, found.hint) == (Origin.WEIGHT, "")
    assert found.row.endswith("down_proj.Linear.forward.0.parameters.weight")


# ---- communication

BATCH = "Distributed.batch_isend_irecv.0.forward"
ZERO = values(scale=0.0)


def batch(before: dict[str, Any], got: dict[str, Any]) -> dict[str, Any]:
    def ends(one: dict[str, Any]) -> list[dict[str, Any]]:
        plain = {"class_type": "torch.distributed.P2POp", "peer": 1, "tag": 0, "group_id": "0"}
        return [{**plain, "tensor": GOOD, "op": "isend"}, {**plain, "tensor": one, "op": "irecv"}]

    return call([ends(before)], [ends(got)])


@pytest.mark.parametrize(
    ("target", "golden", "named"),
    [((ZERO, GOOD), (ZERO, ZERO), False), ((ZERO, ZERO), (ZERO, GOOD), False), ((ZERO, BAD), (ZERO, GOOD), True)],
    ids=["golden too early", "target too early", "other values"],
)
def test_a_buffer_that_was_recorded_too_early_is_no_fault(
    tmp_path: Path, target: Any, golden: Any, named: bool
) -> None:
    found = nodes(tmp_path, {BATCH: batch(*target)}, {BATCH: batch(*golden)})
    assert len(found) == named
    for one in found:
        assert reason_of(one).endswith("; no rule of the report judges this row")


def test_a_group_of_another_size_is_told(tmp_path: Path) -> None:
    name = "Distributed.all_reduce.0.forward"

    def group(*ranks: int) -> dict[str, Any]:
        return {"type": "torch.ProcessGroup", "group_ranks": list(ranks), "group_id": "0"}

    paths = []
    for side, ranks, out in (("target", (0, 1, 2, 3), BAD), ("golden", (0, 1), GOOD)):
        paths.append(tmp_path / side)
        for rank in ranks:
            write_dump(tmp_path / side / f"rank{rank}", {name: call([GOOD], [out], group=group(*ranks))})
    found = search(*paths, tmp_path / "out").nodes
    assert [(one.rank, one.origin) for one in found] == [(0, Origin.UNSEEN), (1, Origin.UNSEEN)]
    assert all(reason_of(one).endswith("; 4 ranks take part, 2 on the golden side") for one in found)


# ---- nothing to find


def test_two_dumps_without_a_common_row_have_no_answer(tmp_path: Path) -> None:
    assert nodes(tmp_path, {MUL: RIGHT}, {ADD: RIGHT}) == ()


@pytest.mark.parametrize(
    ("target", "golden", "rest"),
    [
        ({MUL: RIGHT, NEG: RIGHT}, {MUL: RIGHT}, "; the golden side does not have it"),
        ({MUL: RIGHT}, {MUL: RIGHT, NEG: RIGHT}, "; the golden side has it, the target does not"),
        ({MUL: RIGHT}, {MUL: call([GOOD], [GOOD, GOOD])}, f"; {LACKS}"),
        (
            {MUL: call([GOOD], [tensor(shape=(5, 5), stats=(4.0, -4.0, 0.5, 10.0), dtype="torch.bfloat16")])},
            {MUL: RIGHT},
            " but the dtype: dtype differs: NPU torch.bfloat16, Bench torch.float32 [dtype]",
        ),
    ],
    ids=["target only", "golden only", "an output", "dtype"],
)
def test_what_is_no_difference_of_numbers_says_so(tmp_path: Path, target: Data, golden: Data, rest: str) -> None:
    answer = node(tmp_path, target, golden)
    assert reason_of(answer) == f"{NOT_OF_NUMBERS}{rest}"
    assert not of_numbers(answer)


# ---- messages


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        (
            ["warning: not fully compared: x [statistic-missing]", "error: NormRelativeErr 60.0% [norm-error]"],
            "NormRelativeErr 60.0% [norm-error]",
        ),
        (["warning: more [norm-growth]", "error: much [norm-error]"], "much [norm-error]"),
        (["error: Requires_grad differs [requires-grad]", "warning: far [own-statistics]"], "far [own-statistics]"),
        (["error: shape differs [shape]"], "figures"),
        (["note: equal on 2 ranks"], "figures; no rule of the report judges this row"),
        ([], "figures; no rule of the report judges this row"),
    ],
)
def test_the_gravest_message_about_numbers_is_told(messages: list[str], told: str) -> None:
    one = Node(0, 0, MUL, MUL, Origin.ADDED, Stage.BEFORE, 0, 0, "figures", json.dumps(messages), 0.0, 2.0)
    assert reason_of(one) == f"its inputs agree, its output does not: {told}"
