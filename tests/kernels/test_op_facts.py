"""What judged rows say about an op and about a call, for each kind of dump."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import opassay
import polars as pl
import pytest
from opassay.kernels.communication import communication_calls, communication_tensors
from opassay.kernels.op_facts import (
    added,
    added_first,
    call_facts,
    candidates,
    facts_of,
    forward_gaps,
    other_weight,
    other_weight_first,
    row_facts,
)
from opassay.kernels.op_partners import met_ops, missing_ops
from opassay.pipeline.read.dump_json import read_dump
from opassay.schemas.op_facts import CALL_FACTS, MISSING, OP_FACTS, Kind, Seen

from tests.dumps import call, scalar, tensor, tensor_call, write_dump

OP = "Torch.mul.0.forward"
GOOD = (4.0, -4.0, 0.5, 10.0)
Data = Mapping[str, Any]


def stats(norm: float = 10.0, *, top: float = 4.0, mean: float = 0.5, **more: Any) -> dict[str, Any]:
    return tensor(shape=(5, 5), stats=(top, -4.0, mean, norm), **more)


def slices(folder: Path, target: Data, golden: Data, **header: Any) -> tuple[list[pl.DataFrame], Any]:
    paths = [write_dump(folder / side, data, **header) for side, data in (("target", target), ("golden", golden))]
    (report,) = opassay.compare(*paths).ranks
    return list(report.judged()), report.mode


def facts(folder: Path, target: Data, golden: Data, **header: Any) -> dict[str, dict[str, Any]]:
    """Op -> facts."""
    judged, mode = slices(folder, target, golden, **header)
    frames = [facts_of(row_facts(one, mode)) for one in judged]
    assert all(dict(frame.schema) == dict(OP_FACTS) for frame in frames)
    return {row["name"]: row for frame in frames for row in frame.iter_rows(named=True)}


def one(folder: Path, target: Any, golden: Any, **header: Any) -> dict[str, Any] | None:
    return facts(folder, {OP: target}, {OP: golden}, **header).get(OP)


def test_an_op_that_agrees_is_no_fact(tmp_path: Path) -> None:
    same = call([stats(), scalar(2)], [stats()])
    assert one(tmp_path, same, same) is None


def test_an_output_that_differs_while_the_input_agrees(tmp_path: Path) -> None:
    found = one(tmp_path, call([stats()], [stats(), stats(40.0)]), call([stats()], [stats(), stats()]))
    assert found is not None
    assert (found["kind"], found["inputs"], found["inputless"]) == (Kind.NUMBERS, Seen.AGREE, False)
    assert (found["input_gap"], found["output_gap"]) == (0.0, 3.0)
    assert found["row"] == f"{OP}.output.1"
    assert (
        found["figures"] == "max 4.0 against 4.0, min -4.0 against -4.0, mean 0.5 against 0.5, norm 40.0 against 10.0"
    )
    assert "norm-error" in found["message"]
    assert found["input_row"] is None


@pytest.mark.parametrize(
    ("target", "golden", "kind"),
    [
        (stats(math.nan, top=math.nan, mean=math.nan), stats(), Kind.NUMBERS),
        (stats(math.inf, top=math.inf, mean=math.inf), stats(), Kind.NUMBERS),
        (stats(2.0), tensor(shape=(5, 5), stats=(0.0, 0.0, 0.0, 0.0)), Kind.NUMBERS),
        (tensor(shape=(5, 6), stats=GOOD), tensor(shape=(5, 5), stats=GOOD), Kind.NUMBERS),
        (stats(dtype="torch.bfloat16"), stats(), Kind.DTYPE),
        (stats(16.0, dtype="torch.bfloat16"), stats(), Kind.NUMBERS),
        (stats(mean=2e-9), stats(mean=1e-9), None),
        (stats(10.4), stats(), None),
        (stats(requires_grad=True), stats(), None),
    ],
    ids=["nan", "inf", "golden zero", "shape", "dtype", "dtype and numbers", "mean of noise", "little", "requires grad"],
)  # fmt: skip
def test_kinds_of_difference(tmp_path: Path, target: Any, golden: Any, kind: Kind | None) -> None:
    found = one(tmp_path, call([stats()], [target]), call([stats()], [golden]))
    assert (None if found is None else found["kind"]) == kind


def test_an_op_of_one_side(tmp_path: Path) -> None:
    op = call([stats()], [stats()])
    found = facts(tmp_path, {OP: op, "Torch.relu.0.forward": op}, {OP: op})
    assert {name: (row["kind"], row["inputs"]) for name, row in found.items()} == {
        "Torch.relu.0.forward": (Kind.ALONE, Seen.NOTHING)
    }


@pytest.mark.parametrize(
    ("target", "golden", "expected"),
    [
        ([stats()], [stats()], Seen.AGREE),
        ([stats(), None], [stats(), None], Seen.AGREE),
        ([None], [None], Seen.NOTHING),
        ([], [], Seen.NOTHING),
        ([scalar(3)], [scalar(3)], Seen.AGREE),
        ([stats(13.0)], [stats()], Seen.DIFFER),
        ([stats(10.9)], [stats()], Seen.AGREE),
        ([stats(), scalar(3)], [stats(), scalar(4)], Seen.DIFFER),
        ([stats(), scalar("npu:0")], [stats(), scalar("cuda:0")], Seen.AGREE),
        ([stats(), stats()], [stats()], Seen.DIFFER),
        ([stats(), scalar(1)], [stats()], Seen.AGREE),
        ([stats()], [None], Seen.DIFFER),
    ],
    ids=["equal", "a None beside it", "masked", "none at all", "a scalar alone", "another norm", "within a tenth",
         "another scalar", "another device", "one tensor more", "one scalar more", "a tensor against None"],
)  # fmt: skip
def test_inputs(tmp_path: Path, target: list[Any], golden: list[Any], expected: Seen) -> None:
    found = one(tmp_path, call(target, [stats(40.0)]), call(golden, [stats()]))
    assert found is not None
    assert found["inputs"] == expected


@pytest.mark.parametrize(
    ("weight", "out", "inputs", "weighs"),
    [(10.05, 13.0, Seen.AGREE, False), (10.5, 10.5, Seen.DIFFER, True), (10.5, 10.05, Seen.DIFFER, False)],
    ids=["held", "off", "without effect"],
)
def test_a_parameter_agrees_up_to_a_hundredth(
    tmp_path: Path, weight: float, out: float, inputs: Seen, weighs: bool
) -> None:
    name = "Module.fc.Linear.forward.0"
    target = {**call([stats()], [stats(out)]), "parameters": {"weight": stats(weight)}}
    golden = {**call([stats()], [stats()]), "parameters": {"weight": stats()}}
    found = facts(tmp_path, {name: target}, {name: golden}, level="L0")[name]
    assert (found["inputs"], found["fed"], found["fed_gap"], found["weighs"]) == (inputs, Seen.AGREE, 0.0, weighs)


def test_parameters_are_inputs(tmp_path: Path) -> None:
    name = "Module.fc.Linear.forward.0"
    target, golden = (
        {**call([stats()], [stats(norm)]), "parameters": {"weight": stats(norm)}} for norm in (30.0, 10.0)
    )
    found = facts(tmp_path, {name: target}, {name: golden}, level="L0")[name]
    assert (found["inputs"], found["input_gap"], found["far_in"]) == (Seen.DIFFER, 2.0, True)
    assert found["input_row"] == f"{name}.parameters.weight"
    assert found["input_figures"].endswith("norm 30.0 against 10.0")


def test_an_input_far_off_is_a_fact_although_the_output_agrees(tmp_path: Path) -> None:
    found = one(tmp_path, call([stats(16.0)], [stats()]), call([stats()], [stats()]))
    assert found is not None
    assert (found["kind"], found["far_in"]) == (Kind.SAME, True)


def test_ops_that_compute_nothing_never_differ(tmp_path: Path) -> None:
    name = "Torch.empty.0.forward"
    assert facts(tmp_path, {name: call([], [stats(1e9)])}, {name: call([], [stats()])}) == {}


def test_gradients_of_parameters_have_no_inputs(tmp_path: Path) -> None:
    name = "Module.fc.Linear.parameters_grad.0"
    found = facts(tmp_path, {name: {"weight": [stats(40.0)]}}, {name: {"weight": [stats()]}}, level="L0")[name]
    assert (found["kind"], found["inputless"], found["inputs"]) == (Kind.NUMBERS, True, Seen.NOTHING)


def test_checksums(tmp_path: Path) -> None:
    def leaf(md5: str) -> dict[str, Any]:
        return {**stats(), "md5": md5}

    target = {OP: call([leaf("aa"), None], [leaf("bb")]), "Torch.add.0.forward": call([leaf("bb")], [leaf("cc")])}
    golden = {OP: call([leaf("aa"), None], [leaf("b0")]), "Torch.add.0.forward": call([leaf("b0")], [leaf("c0")])}
    target["Torch.sub.0.forward"], golden["Torch.sub.0.forward"] = (call([None], [leaf(md5)]) for md5 in ("dd", "d0"))
    found = facts(tmp_path, target, golden)
    seen = {name: (row["kind"], row["inputs"], row["input_gap"], row["figures"]) for name, row in found.items()}
    assert seen == {
        OP: (Kind.NUMBERS, Seen.AGREE, None, "checksum bb against b0"),
        "Torch.add.0.forward": (Kind.NUMBERS, Seen.DIFFER, None, "checksum cc against c0"),
        "Torch.sub.0.forward": (Kind.NUMBERS, Seen.NOTHING, None, "checksum dd against d0"),
    }


def test_tensors(tmp_path: Path) -> None:
    good, bad = np.linspace(1, 2, 100, dtype=np.float32), np.linspace(1, 2, 100, dtype=np.float32)
    bad[:70] *= 2
    sides = {
        side: {OP: tensor_call(tmp_path / side, OP, [good], [out])} for side, out in (("target", bad), ("golden", good))
    }
    found = facts(tmp_path, sides["target"], sides["golden"], task="tensor")[OP]
    assert (found["kind"], found["inputs"], found["input_gap"]) == (Kind.NUMBERS, Seen.AGREE, 0.0)
    assert found["output_gap"] == pytest.approx(0.7)
    assert found["figures"].startswith("30.0% of the elements within a thousandth, MaxAbsErr ")


# ---- calls


def group(*ranks: int) -> dict[str, Any]:
    return {"type": "torch.ProcessGroup", "group_ranks": list(ranks), "group_id": "0"}


def calls(folder: Path, target: Data, golden: Data) -> pl.DataFrame:
    judged, mode = slices(folder, target, golden)
    table = read_dump(folder / "target" / "dump.json")
    tensors = communication_tensors(table, communication_calls(table))
    frame = pl.concat([call_facts(row_facts(part, mode), tensors) for part in judged])
    assert dict(frame.schema) == dict(CALL_FACTS)
    return frame


def p2p(op: str, norm: float) -> dict[str, Any]:
    return {
        "class_type": "torch.distributed.P2POp",
        "tensor": stats(norm),
        "op": op,
        "peer": 1,
        "tag": 0,
        "group_id": "0",
    }


@pytest.mark.parametrize(
    ("api", "target", "golden", "gives", "gets"),
    [
        ("all_reduce", ([stats()], [stats(40.0)]), ([stats()], [stats()]), Seen.AGREE, Seen.DIFFER),
        ("all_reduce", ([stats(40.0)], [stats(40.0)]), ([stats()], [stats()]), Seen.DIFFER, Seen.DIFFER),
        ("send", ([None, scalar(1)], [None, scalar(1)]), ([None, scalar(1)], [None, scalar(1)]), Seen.NOTHING, Seen.NOTHING),
        ("send", ([stats(40.0), scalar(1)], [None]), ([stats(), scalar(1)], [None]), Seen.DIFFER, Seen.NOTHING),
        ("recv", ([None, scalar(1)], [stats(12.0)]), ([None, scalar(1)], [stats()]), Seen.NOTHING, Seen.DIFFER),
        ("recv", ([None, scalar(1)], [None]), ([None, scalar(1)], [None]), Seen.NOTHING, Seen.NOTHING),
        ("all_gather", ([[stats(40.0)], stats()], [[stats()], stats()]), ([[stats()], stats()], [[stats()], stats()]),
         Seen.AGREE, Seen.AGREE),
        ("reduce_scatter", ([None, [stats(), stats(40.0)]], [stats()]), ([None, [stats(), stats()]], [stats()]),
         Seen.DIFFER, Seen.AGREE),
    ],
    ids=["got", "given", "masked send", "send", "recv", "masked recv", "receive buffer", "a part of a list"],
)  # fmt: skip
def test_what_a_call_gives_and_gets(
    tmp_path: Path, api: str, target: Any, golden: Any, gives: Seen, gets: Seen
) -> None:
    name = f"Distributed.{api}.0.forward"
    found = calls(tmp_path, {name: call(*target)}, {name: call(*golden)})
    seen = found.select("gives", "gets").rows() or [(Seen.NOTHING, Seen.NOTHING)]
    assert seen == [(gives, gets)]
    shown = found.filter(pl.col("row").is_not_null())
    assert (shown.height == 1) == (gives == Seen.DIFFER)


def test_operations_of_a_batch_are_told_apart(tmp_path: Path) -> None:
    """What the buffer of a receive held before says nothing."""
    name = "Distributed.batch_isend_irecv.0.forward"
    target = call([[p2p("isend", 10.0), p2p("irecv", 77.0)]], [[p2p("isend", 10.0), p2p("irecv", 40.0)]])
    golden = call([[p2p("isend", 10.0), p2p("irecv", 0.5)]], [[p2p("isend", 10.0), p2p("irecv", 10.0)]])
    found = calls(tmp_path, {name: target}, {name: golden})
    assert found.select("item", "gives", "gets").rows() == [
        (0, Seen.AGREE, Seen.NOTHING),
        (1, Seen.NOTHING, Seen.DIFFER),
    ]


# ---- tables of a rank


def row(number: int, **facts: Any) -> dict[str, Any]:
    plain = dict.fromkeys(OP_FACTS)
    known = {
        "op": number,
        "name": f"Torch.op.{number}.forward",
        "kind": Kind.NUMBERS,
        "inputs": Seen.AGREE,
        "input_gap": 0.0,
    }
    flags = {"output_gap": 2.0, "far_in": False, "weighs": False, "inputless": False, "follows": False, "fed_gap": 0.0}
    made = {**plain, **known, **flags, **facts}
    return made | {"fed": int(facts.get("fed", made["inputs"]))}


def table(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(
        [{**one, "kind": int(one["kind"]), "inputs": int(one["inputs"])} for one in rows], schema=dict(OP_FACTS)
    )


@pytest.mark.parametrize(
    ("facts", "always", "first"),
    [
        ({}, True, True),
        ({"input_gap": 0.0011}, False, True),
        ({"input_gap": None}, True, True),
        ({"inputs": Seen.NOTHING, "input_gap": None}, False, False),
        ({"inputs": Seen.DIFFER, "input_gap": 0.15}, False, True),
        ({"inputs": Seen.DIFFER, "input_gap": 0.25}, False, False),
        ({"inputs": Seen.DIFFER, "input_gap": 0.0}, False, False),
        ({"inputs": Seen.DIFFER, "input_gap": math.inf, "output_gap": math.inf}, False, False),
        ({"inputs": Seen.DIFFER, "input_gap": None, "output_gap": None}, False, False),
        ({"follows": True}, False, True),
        ({"inputless": True}, False, False),
        ({"kind": Kind.DTYPE}, False, False),
    ],
)
def test_an_error_of_its_own(facts: dict[str, Any], always: bool, first: bool) -> None:
    assert table(row(0, **facts)).select(a=added(), b=added_first()).row(0) == (always, first)


@pytest.mark.parametrize(
    ("facts", "always", "first"),
    [
        ({"fed": Seen.AGREE}, True, True),
        ({"fed": Seen.AGREE, "fed_gap": None}, True, True),
        ({"fed": Seen.AGREE, "fed_gap": 0.0011}, False, True),
        ({"fed": Seen.NOTHING, "fed_gap": None}, False, True),
        ({"fed": Seen.DIFFER}, False, False),
        ({"fed": Seen.AGREE, "weighs": False}, False, True),
        ({"fed": Seen.AGREE, "follows": True}, False, True),
    ],
)
def test_a_weight_of_its_own(facts: dict[str, Any], always: bool, first: bool) -> None:
    made = row(0, **{"inputs": Seen.DIFFER, "input_gap": 2.0, "weighs": True, **facts})
    assert table(made).select(a=other_weight(), b=other_weight_first()).row(0) == (always, first)


def test_candidates_keep_the_first_of_each_kind_and_every_error_of_its_own() -> None:
    off = {"inputs": Seen.DIFFER, "input_gap": 2.0}
    rows = [
        row(0, **off), row(1, **off), row(2), row(3, kind=Kind.ALONE), row(4, kind=Kind.ALONE), row(5, kind=Kind.DTYPE),
        row(6, name="Distributed.send.0.forward", kind=Kind.SAME), row(7, name="Distributed.send.1.forward", kind=Kind.SAME),
        row(8, inputless=True), row(9, inputless=True), row(10, **off, kind=Kind.SAME, far_in=True), row(11, **off), row(12),
        row(13, **off, weighs=True, fed=Seen.AGREE),
    ]  # fmt: skip
    kept = candidates(table(*rows))
    assert kept["op"].to_list() == [0, 2, 3, 5, 6, 7, 8, 10, 12, 13]
    assert candidates(pl.concat([candidates(table(*rows[:5])), table(*rows[5:])])).equals(kept)


def test_forward_calls_that_are_off(tmp_path: Path) -> None:
    target = {
        OP: call([stats(10.5)], [stats(11.0)]),
        "Torch.mul.0.backward": {"input": [stats(12.0)], "output": [stats()]},
    }
    golden = {OP: call([stats()], [stats()]), "Torch.mul.0.backward": {"input": [stats()], "output": [stats()]}}
    target["Torch.add.0.forward"] = golden["Torch.add.0.forward"] = call([stats()], [stats()])
    judged, mode = slices(tmp_path, target, golden)
    (found,) = pl.concat([forward_gaps(row_facts(one, mode)) for one in judged]).rows()
    assert found == (OP, pytest.approx(0.1))


def test_ops_that_the_target_lacks_stand_behind_the_one_before_them(tmp_path: Path) -> None:
    op = call([stats()], [stats()])
    names = [f"Torch.{word}.0.forward" for word in ("first", "second", "third", "empty", "fourth", "fifth")]
    golden = dict.fromkeys(names, op)
    target = {
        name: op for name in names if not name.startswith(("Torch.first", "Torch.third", "Torch.fif", "Torch.empty"))
    }
    judged, _ = slices(tmp_path, target, golden)
    found = missing_ops(pl.concat([met_ops(one) for one in judged]))
    assert dict(found.schema) == dict(MISSING)
    assert found.rows() == [(0, names[0]), (0, names[2]), (1, names[5])]
