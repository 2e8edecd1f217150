"""The files of ``-da``: their names, keys and values, whatever the dumps hold."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from opassay.pipeline.cli.main import main

from tests.difference.searching import only, strict
from tests.dumps import call, scalar, tensor, write_dump

OP, OTHER, THIRD = "Torch.mul.0.forward", "Torch.add.0.forward", "Torch.sub.0.forward"
GOOD = tensor(shape=(5, 5), stats=(4.0, -4.0, 0.5, 10.0))
BAD = tensor(shape=(5, 5), stats=(16.0, -16.0, 2.0, 40.0))
RIGHT = {OP: call([GOOD], [GOOD]), OTHER: call([GOOD], [GOOD]), THIRD: call([GOOD], [GOOD])}
WRONG = {**RIGHT, OTHER: call([GOOD], [BAD]), THIRD: call([BAD], [BAD])}
FIGURES = ["max", "min", "mean", "l2norm"]
ROW = [
    "NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype", "NPU Tensor Shape", "Bench Tensor Shape", "NPU Requires_grad",
    "Bench Requires_grad",
]  # fmt: skip
ERRORS = [
    "Max diff",
    "Min diff",
    "Mean diff",
    "L2norm diff",
    "MaxRelativeErr",
    "MinRelativeErr",
    "MeanRelativeErr",
    "NormRelativeErr",
]
END = ["Requires_grad Consistent", "Result", "Err_message"]
ADDED = ["state", "api_origin_name", "NPU P2POp op", "Bench P2POp op", "NPU P2POp peer", "Bench P2POp peer"]


class Compare:
    """Runs ``compare -da`` in this process and gives the status and the lines of the log."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, target: Path, golden: Path, *options: str) -> tuple[int, list[str]]:
        words = ["compare", "-tp", str(target), "-gp", str(golden), "-o", "output", "-da", "--workers", "1", *options]
        status = main(words)
        told = self._capsys.readouterr()
        assert "Traceback" not in told.out + told.err
        return status, [
            re.sub(r"^.*?\[(INFO|WARNING|ERROR)\] ", "", line) for line in (told.out + told.err).splitlines()
        ]


@pytest.fixture
def compare(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compare:
    monkeypatch.chdir(tmp_path)
    return Compare(capsys)


def sides(
    folder: Path, target: Mapping[str, Any], golden: Mapping[str, Any], *, within: str = ".", **header: Any
) -> list[Path]:
    return [
        write_dump(folder / side / within, data, **header) for side, data in (("target", target), ("golden", golden))
    ]


def answer() -> Any:
    return only(Path("output"), "diff_analyze_*.json")


def ops() -> Any:
    return only(Path("output"), "compare_result_rank*.json")


def test_single_files(compare: Compare, tmp_path: Path) -> None:
    status, lines = compare(*sides(tmp_path, WRONG, RIGHT))
    assert status == 0
    names = sorted(path.name for path in Path("output").iterdir())
    stamp = re.fullmatch(r"compare_result_(\d{14})\.csv", names[0])
    assert stamp
    assert names[1:] == [f"compare_result_rank0_{stamp[1]}.json", f"diff_analyze_{stamp[1]}.json"]
    assert f"Saving json file to disk: output/{names[1]}" in lines
    assert f"The analyze result is saved in: output/{names[2]}" in lines


def test_every_op_with_the_documented_keys_in_order(compare: Compare, tmp_path: Path) -> None:
    compare(*sides(tmp_path, WRONG, RIGHT))
    found = ops()
    assert list(found) == [OP, OTHER, THIRD]
    assert {name: one["is_same"] for name, one in found.items()} == {OP: True, OTHER: False, THIRD: False}
    given, got = found[OTHER]["op_items"]
    sided = [f"{side} {figure}" for side in ("NPU", "Bench") for figure in FIGURES]
    assert list(given) == list(got) == [*ROW, *ERRORS, *sided, *END, *ADDED]
    assert (given["state"], got["state"]) == ("input", "output")
    assert got["api_origin_name"] == OTHER
    assert (got["NPU l2norm"], got["Bench l2norm"]) == (40.0, 10.0)
    assert (got["L2norm diff"], got["NormRelativeErr"]) == ("30.0", "300.0%")
    assert (got["NPU Requires_grad"], got["Requires_grad Consistent"]) == ("False", True)
    assert (got["Result"], got["NPU P2POp op"], got["Bench P2POp peer"]) == ("error", "None", "None")
    assert "norm-error" in got["Err_message"]


def test_the_answer_with_the_documented_keys_first(compare: Compare, tmp_path: Path) -> None:
    compare(*sides(tmp_path, WRONG, RIGHT))
    ((rank, (node,)),) = answer().items()
    assert rank == "rank_0"
    assert list(node)[:3] == ["op_name", "data_info", "stack_info"]
    assert (node["op_name"], node["op_type"], node["row"]) == (OTHER, "Torch", f"{OTHER}.output.0")
    assert (node["origin"], node["stage"], node["layer"], node["sub_layer"]) == ("added", "before", 0, 1)
    assert (node["input_gap"], node["output_gap"], node["stack_info"]) == (0.0, 3.0, None)
    assert node["reason"].startswith("its inputs agree, its output does not: NormRelativeErr 300.0%")
    figures = node["data_info"]["output"][f"{OTHER}.output.0"]
    assert list(figures)[:4] == [f"NPU {figure}" for figure in FIGURES]
    assert list(figures)[-1] == "NPU P2POp peer"
    assert (figures["NPU l2norm"], figures["Bench l2norm"], figures["NormRelativeErr"]) == (40.0, 10.0, "300.0%")
    assert list(node["data_info"]["input"]) == [f"{OTHER}.input.0"]


def test_checksums(compare: Compare, tmp_path: Path) -> None:
    def leaf(md5: str) -> dict[str, Any]:
        return {**GOOD, "md5": md5}

    data = [{OP: call([leaf("aa")], [leaf("bb")]), OTHER: call([leaf("bb")], [leaf(md5)])} for md5 in ("cc", "c0")]
    compare(*sides(tmp_path, *data))
    got = ops()[OTHER]["op_items"][1]
    assert list(got) == [*ROW, "NPU MD5", "BENCH MD5", *END, *ADDED]
    assert (got["NPU MD5"], got["BENCH MD5"], got["Result"]) == ("cc", "c0", "error")
    (node,) = answer()["rank_0"]
    assert node["data_info"]["output"] == {
        f"{OTHER}.output.0": {"NPU MD5": "cc", "BENCH MD5": "c0", "NPU P2POp peer": "None"}
    }
    assert (node["op_name"], node["input_gap"], node["output_gap"]) == (OTHER, None, None)


def test_values_that_json_does_not_know(compare: Compare, tmp_path: Path) -> None:
    odd = tensor(stats=(math.inf, -math.inf, math.nan, None))
    target = {
        OP: call([GOOD, scalar("text"), None, scalar(2**70)], [odd]),
        OTHER: call([odd], [tensor(stats=(1e-7, 2e22, 5, 0))]),
    }
    golden = {OP: call([GOOD, scalar("text"), None, scalar(2**70)], [GOOD]), OTHER: call([GOOD], [GOOD])}
    compare(*sides(tmp_path, target, golden))
    shown = ops()[OP]["op_items"]
    assert [shown[-1][f"NPU {figure}"] for figure in FIGURES] == ["inf", "-inf", "Nan", "None"]
    assert [row["NPU max"] for row in shown[:-1]] == [4.0, "text", "None", 2**70]
    small = ops()[OTHER]["op_items"][-1]
    assert [small[f"NPU {figure}"] for figure in FIGURES] == [1e-7, 2e22, 5, 0]
    (node,) = answer()["rank_0"]
    assert node["op_name"] == OP
    assert node["output_gap"] == "inf"
    assert node["data_info"]["output"][f"{OP}.output.0"]["NPU max"] == "inf"


@pytest.mark.parametrize(
    "name",
    ['Torch.we"ird.0.forward', "Torch.back\\slash.0.forward", "Torch.tab\there.0.forward", "Torch.Größe.0.forward",
     "Torch.\u4e2d\U0001f600.0.forward", "Torch.line\nbreak\x01.0.forward", "Torch.\u2028.0.forward", "a b.0.forward"],
)  # fmt: skip
def test_odd_names(compare: Compare, tmp_path: Path, name: str) -> None:
    compare(*sides(tmp_path, {name: call([GOOD], [BAD])}, {name: call([GOOD], [GOOD])}))
    ((key, found),) = ops().items()
    assert key == name
    assert found["is_same"] is False
    assert {row["api_origin_name"] for row in found["op_items"]} == {name}
    assert answer()["rank_0"][0]["op_name"] == name


def test_call_stacks(compare: Compare, tmp_path: Path) -> None:
    lines = ['File "net.py", line 12, in forward, \n y = a * "b"', "File x.py, line 3"]
    paths = sides(tmp_path, WRONG, RIGHT)
    for path in paths:
        path.with_name("stack.json").write_text(json.dumps({"0": [[OTHER, THIRD], lines]}))
    compare(*paths)
    (node,) = answer()["rank_0"]
    assert node["stack_info"] == lines
    found = ops()
    assert [row["NPU_Stack_Info"] for row in found[OTHER]["op_items"]] == [lines, lines]
    assert [row["NPU_Stack_Info"] for row in found[OP]["op_items"]] == [None, None]
    assert list(found[OP]["op_items"][0]).index("NPU_Stack_Info") == list(found[OP]["op_items"][0]).index("state") - 1


def test_point_to_point_columns(compare: Compare, tmp_path: Path) -> None:
    name = "Distributed.batch_isend_irecv.0.forward"

    def ends(got: Any) -> list[dict[str, Any]]:
        return [
            {"class_type": "torch.distributed.P2POp", "tensor": one, "op": op, "peer": peer, "tag": 0, "group_id": "0"}
            for op, peer, one in (("isend", 1, GOOD), ("irecv", 0, got))
        ]

    def batch(got: Any) -> dict[str, Any]:
        return call([ends(tensor(stats=(0.0, 0.0, 0.0, 0.0)))], [ends(got)])

    compare(*sides(tmp_path, {name: batch(BAD)}, {name: batch(GOOD)}))
    rows = ops()[name]["op_items"]
    assert [(row["state"], row["NPU P2POp op"], row["Bench P2POp peer"]) for row in rows] == [
        ("input", "isend", "1"), ("input", "irecv", "0"), ("output", "isend", "1"), ("output", "irecv", "0"),
    ]  # fmt: skip
    (node,) = answer()["rank_0"]
    assert [one["NPU P2POp peer"] for one in node["data_info"]["output"].values()] == ["1", "0"]


def test_parameters_and_their_gradients_have_their_own_state(compare: Compare, tmp_path: Path) -> None:
    name, grad = "Module.fc.Linear.forward.0", "Module.fc.Linear.parameters_grad.0"
    record = {**call([GOOD], [GOOD]), "parameters": {"weight": GOOD}}
    data = [{name: record, grad: {"weight": [leaf]}} for leaf in (BAD, GOOD)]
    compare(*sides(tmp_path, *data, level="L0"))
    found = ops()
    assert [row["state"] for row in found[name]["op_items"]] == ["input", "parameters", "output"]
    assert [row["state"] for row in found[grad]["op_items"]] == ["parameters_grad"]
    assert found[grad]["is_same"] is False
    (node,) = answer()["rank_0"]
    assert (node["op_name"], node["origin"]) == (grad, "inputless")


def test_ops_of_one_side(compare: Compare, tmp_path: Path) -> None:
    target = {OP: RIGHT[OP], "Torch.relu.0.forward": call([GOOD], [GOOD]), THIRD: RIGHT[THIRD]}
    compare(*sides(tmp_path, target, RIGHT))
    found = ops()
    assert {name: one["is_same"] for name, one in found.items()} == {
        OP: True, "Torch.relu.0.forward": False, THIRD: True, OTHER: False,
    }  # fmt: skip
    assert found[OTHER]["op_items"][0]["NPU Name"] == "N/A"
    alone, missing = answer()["rank_0"][0], found["Torch.relu.0.forward"]["op_items"][0]
    assert missing["Bench Name"] == "N/A"
    assert (alone["op_name"], alone["origin"]) == (OTHER, "missing")
    assert alone["data_info"] == {"input": {}, "output": {}}


def test_nothing_differs(compare: Compare, tmp_path: Path) -> None:
    status, lines = compare(*sides(tmp_path, RIGHT, RIGHT))
    assert status == 0
    assert not list(Path("output").glob("diff_analyze_*"))
    assert all(one["is_same"] for one in ops().values())
    assert "no op differs; there is nothing to analyze" in lines


def test_a_rank_that_cannot_be_compared_leaves_no_file(compare: Compare, tmp_path: Path) -> None:
    status, _ = compare(*sides(tmp_path, {}, RIGHT))
    assert status == 2
    assert not list(Path("output").iterdir())


@pytest.mark.parametrize(("folder", "number"), [("rank3", 3), ("proc4242", 0)])
def test_a_folder_of_one_process(compare: Compare, tmp_path: Path, folder: str, number: int) -> None:
    sides(tmp_path, WRONG, RIGHT, within=f"step0/{folder}")
    compare(tmp_path / "target" / "step0", tmp_path / "golden" / "step0")
    assert list(answer()) == [f"rank_{number}"]
    assert len(list(Path("output").glob(f"compare_result_rank{number}_*.json"))) == 1


def test_processes_without_a_rank_have_an_answer_each(compare: Compare, tmp_path: Path) -> None:
    other = {**RIGHT, OP: call([GOOD], [BAD])}
    for process, target in (("proc11", WRONG), ("proc7", other), ("proc33", RIGHT)):
        sides(tmp_path, target, RIGHT, within=f"step0/{process}")
    _, lines = compare(tmp_path / "target" / "step0", tmp_path / "golden" / "step0")
    assert [node["op_name"] for node in answer()["rank_0"]] == [OP, OTHER]
    figures = [node["data_info"]["output"] for node in answer()["rank_0"]]
    assert [list(one) for one in figures] == [[f"{OP}.output.0"], [f"{OTHER}.output.0"]]
    shown = [line.strip("│ ") for line in lines]
    assert f"proc7 {OP}.output.0" in shown
    assert f"proc11 {OTHER}.output.0" in shown
    assert len(list(Path("output").glob("compare_result_rank0_*.json"))) == 3


def test_single_files_are_named_by_their_folder(compare: Compare, tmp_path: Path) -> None:
    compare(*sides(tmp_path, WRONG, RIGHT, within="rank7"))
    assert list(answer()) == ["rank_7"]


def test_each_step_has_its_own_answer(compare: Compare, tmp_path: Path) -> None:
    for step, target in ((0, RIGHT), (1, WRONG), (2, {**RIGHT, THIRD: call([GOOD], [BAD])})):
        for rank in (0, 1):
            sides(tmp_path, target if rank else RIGHT, RIGHT, within=f"step{step}/rank{rank}")
    _, lines = compare(tmp_path / "target", tmp_path / "golden")
    named = {path.parent.name: strict(path) for path in Path("output").rglob("diff_analyze_*.json")}
    assert {step: [(rank, nodes[0]["op_name"]) for rank, nodes in found.items()] for step, found in named.items()} == {
        "step1": [("rank_1", OTHER)], "step2": [("rank_1", THIRD)],
    }  # fmt: skip
    assert len(list(Path("output").rglob("compare_result_rank*.json"))) == 6
    assert "step0: no op differs; there is nothing to analyze" in lines


def renamed(data: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): record for name, record in data.items()}


def test_with_fuzzy_matching(compare: Compare, tmp_path: Path) -> None:
    other = renamed(RIGHT, {OTHER: "Torch.add.4.forward", THIRD: "Torch.sub.9.forward"})
    compare(*sides(tmp_path, WRONG, other), "-fm")
    (node,) = answer()["rank_0"]
    assert (node["op_name"], node["origin"]) == (OTHER, "added")
    assert ops()[OTHER]["op_items"][0]["Bench Name"] == "Torch.add.4.forward.input.0"


def test_with_a_data_mapping(compare: Compare, tmp_path: Path) -> None:
    other = renamed(RIGHT, {OTHER: "Functional.sum.0.forward", THIRD: "Functional.minus.0.forward"})
    pairs = {OTHER: "Functional.sum.0.forward", THIRD: "Functional.minus.0.forward"}
    text = "".join(f"{a}.{slot}.0: {b}.{slot}.0\n" for a, b in pairs.items() for slot in ("input", "output"))
    (tmp_path / "names.yaml").write_text(text)
    compare(*sides(tmp_path, WRONG, other), "-dm", str(tmp_path / "names.yaml"))
    assert [node["op_name"] for node in answer()["rank_0"]] == [OTHER]


def test_with_a_cell_mapping(compare: Compare, tmp_path: Path) -> None:
    (name, bad), theirs = ("Module.head.Linear.forward.0", call([GOOD], [BAD])), "Module.out.Dense.forward.0"
    (tmp_path / "cells.yaml").write_text("head.Linear: out.Dense\n")
    paths = sides(tmp_path, {name: bad}, {theirs: call([GOOD], [GOOD])}, level="L0")
    compare(*paths, "-cm", str(tmp_path / "cells.yaml"))
    (node,) = answer()["rank_0"]
    assert (node["op_name"], node["origin"]) == (name, "added")
    assert ops()[name]["op_items"][0]["Bench Name"] == f"{theirs}.input.0"


def test_an_op_that_lacks_an_output_of_its_partner_is_not_the_same(tmp_path: Path) -> None:
    """The golden-only row comes behind all others; the op it belongs to must know of it before."""
    record = {count: call([tensor()], [tensor()] * count) for count in (1, 2)}
    target = write_dump(tmp_path / "t", {"Torch.mul.0.forward": record[1], "Torch.add.0.forward": record[1]})
    golden = write_dump(tmp_path / "g", {"Torch.mul.0.forward": record[2], "Torch.add.0.forward": record[1]})
    assert main(["compare", "-tp", str(target), "-gp", str(golden), "-o", str(tmp_path / "out"), "-da"]) == 0
    (ops,) = (json.loads(path.read_text()) for path in (tmp_path / "out").glob("compare_result_rank0_*.json"))
    assert {name: entry["is_same"] for name, entry in ops.items()} == {
        "Torch.mul.0.forward": False,
        "Torch.add.0.forward": True,
    }
    (answer,) = (json.loads(path.read_text()) for path in (tmp_path / "out").glob("diff_analyze_*.json"))
    assert answer["rank_0"][0]["reason"] == (
        "nothing that was compared differs; its golden partner has an output that it lacks"
    )
    assert answer["rank_0"][0]["row"] == "Torch.mul.0.forward.output.1"
