"""Dumps with the incumbent's own files: every row and verdict is its, or a named rule says why the right one differs."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest

from tests.check.checking import Checked, Checker, Row, expected, input_of

FIGURES = ("Cosine", "MaxAbsErr")
FLOAT32_STEP = 2.0**-19
"""Distance of float32 numbers between 16 and 32, where the largest values of these networks are."""
SEED_LIMIT = {
    "Mint.matmul.0.forward.output.0", "Mint.clamp.0.backward.output.0", "Mint.tanh.0.forward.output.0",
    "Mint.add.1.forward.output.0",
}  # fmt: skip
"""Errors between 0.0001, the documented limit, and 0.001, the incumbent's."""

REAL = pytest.mark.skipif(importlib.util.find_spec("mindspore") is None, reason="MindSpore is not installed")


def run(checker: Checker, case: str, folder: Path, command: str = "run_ut", *options: str) -> Checked:
    """The command on a case."""
    words = ["-f", "mindspore", command, "-api_info", str(input_of(case, folder)), "-o", str(folder / "out"), *options]
    return Checked(*checker.main(*words), folder / "out")


def by_name(rows: list[Row]) -> dict[str, Row]:
    """Rows by their first column."""
    return {row["API Name"]: row for row in rows}


def agree(ours: Row, theirs: Row, *, numbers: bool, seed_limit: bool = False) -> None:
    """Everything but the reference's dtype, which is float64 here, and numbers where inputs are drawn."""
    name = ours["API Name"]
    for column in ("Tested Dtype", "Shape"):
        assert ours[column] == theirs[column], (name, column)
    bench = theirs["Bench Dtype"]
    assert ours["Bench Dtype"] == ("Float64" if bench.startswith("Float") else bench), name
    status = "error" if name in SEED_LIMIT and seed_limit else theirs["Status"]
    assert ours["Status"] == status, name
    if not numbers:
        return
    cosine, error = (float(ours[column]) for column in FIGURES)
    assert cosine == pytest.approx(float(theirs["Cosine"]), abs=1e-6, nan_ok=True), name
    other = float(theirs["MaxAbsErr"])
    if math.isnan(other):
        assert math.isnan(error), name
    else:
        close = abs(error - other) <= 1e-6 or other / 2 <= error <= other * 2
        # the incumbent's reference is rounded at every step, ours once: it may be nearer to the truth
        assert close or (error < other <= FLOAT32_STEP), name


@pytest.mark.parametrize("case", ["ms_net_tensor", "ms_net_fault"])
def test_recorded_results_are_judged_without_mindspore(checker: Checker, tmp_path: Path, case: str) -> None:
    done = run(checker, case, tmp_path)
    assert done.status == 0
    theirs = expected(case, "details")
    assert [row["API Name"] for row in done.details] == [row["API Name"] for row in theirs]
    for ours, other in zip(done.details, theirs, strict=True):
        agree(ours, other, numbers=True, seed_limit=case == "ms_net_fault")
    errors = {row["API Name"] for row in done.details if row["Status"] == "error"}
    for ours, other in zip(done.result, expected(case, "result"), strict=True):
        name = ours["API Name"]
        assert name == other["API Name"]
        for column, direction in (("Forward Test Success", "forward"), ("Backward Test Success", "backward")):
            wrong = any(row.startswith(f"{name}.{direction}.") for row in errors)
            assert ours[column] == ("error" if wrong else other[column]), (name, column)
        if name == "Mint.cat.0":
            assert ours["Message"].endswith("the dump has no gradients of the inputs")
        else:
            assert (ours["Message"] == "") == ("error" not in ours.values())
    assert not [row for row in done.details if "0.001 " in row["Message"]]  # the limit used is the one that is named


@pytest.mark.mindspore
@REAL
def test_a_network_with_statistics_is_run(checker: Checker, tmp_path: Path) -> None:
    done = run(checker, "ms_net_statistics", tmp_path)
    assert done.status == 0
    ours, theirs = by_name(done.details), by_name(expected("ms_net_statistics", "details"))
    assert set(ours) - set(theirs) == {"Mint.cat.0.backward.output.0", "Mint.cat.0.backward.output.1"}
    assert set(theirs) <= set(ours)  # the incumbent finds no gradients through lists
    for name, row in theirs.items():
        agree(ours[name], row, numbers=False)
    for row, other in zip(done.result, expected("ms_net_statistics", "result"), strict=True):
        assert row["API Name"] == other["API Name"]
        assert row["Forward Test Success"] == other["Forward Test Success"]
        assert row["Backward Test Success"] == other["Backward Test Success"].replace("SKIP", "pass")


BETTER = {
    "Mint.mul.1": "bfloat16 has a kernel on the cpu from 2.10 on",
    "Mint.cat.0": "gradients through lists",
    "Tensor.item.0": "plain values are compared",
    "Mint.div.1": "nan is placed as on the PyTorch side, and agrees by position",
    "Mint.add.4": "tensors without elements agree",
}
LISTED = {
    "Tensor.foo.0": "Tensor.foo is not supported", "Functional.relu.0": "of mindspore.ops only flash_attention_score",
    "Primitive.ReLU.0": "Primitive calls are not supported", "Distributed.all_reduce.0": "Distributed calls are not",
}  # fmt: skip
REASONS = {
    "Mint.acos.0": "no CPU kernel (", "Mint.topk.0": "no CPU kernel (", "MintFunctional.gelu.0": "no CPU kernel (",
    "Functional.flash_attention_score.0": "no CPU kernel (", "Mint.full.0": "no CPU kernel (",
    "Mint.zeros_like.0": "no CPU kernel (", "Mint.add.1": "no output depends on an input that requires a gradient",
    "Tensor.numpy.0": "the result of Tensor.numpy is no tensor", "Tensor.size.0": "the result of Tensor.size",
    "Tensor.tolist.0": "the result of Tensor.tolist", "Mint.nonexist.0": "API nonexist not found in torch",
    "Mint.add.6": "argument 0: Data info Min: None", "Mint.sin.0": "the dump has a backward record",
    "Mint.a.b.0": "API a.b not found in torch", "Mint.add.5": "Failed calling add", "Mint.add.3": "Type implicit conversion",
    **LISTED,
}  # fmt: skip


@pytest.mark.mindspore
@REAL
@pytest.mark.parametrize("command", ["run_ut", "multi_run_ut"])
def test_a_handwritten_dump(checker: Checker, tmp_path: Path, command: str) -> None:
    options = ("-d", "0", "1") if command == "multi_run_ut" else ()
    done = run(checker, "ms_handmade", tmp_path, command, *options)
    assert done.status == 0
    theirs = by_name(expected("ms_handmade", "result"))
    ours = by_name(done.result)
    assert set(ours) == set(theirs) | set(LISTED)  # nothing is dropped silently, by several processes neither
    assert [name for name in ours if name in theirs] == list(theirs)
    for name, row in theirs.items():
        if name in BETTER:
            continue
        forward = row["Forward Test Success"] or "SKIP"  # a call with a backward record only was not run
        assert (ours[name]["Forward Test Success"], name) == (forward, name)
        assert (ours[name]["Backward Test Success"], name) == (row["Backward Test Success"], name)
    assert ours["Mint.cat.0"]["Backward Test Success"] == "pass"
    for name in ("Tensor.item.0", "Mint.div.1", "Mint.add.4"):
        assert ours[name]["Forward Test Success"] == "pass"
    for name, reason in REASONS.items():
        assert ours[name]["Message"].startswith(reason), name
        assert "\n" not in ours[name]["Message"]
    details = by_name(done.details)
    for name, row in by_name(expected("ms_handmade", "details")).items():
        if name.rpartition(".forward")[0] not in BETTER:
            agree(details[name], row, numbers=False)
    assert [details["Mint.add.4.forward.output.0"][column] for column in (*FIGURES, "MaxRelativeErr")] == ["", "", ""]
    assert "within 10 roundings of Float32" in ours["Mint.matmul.0"]["Message"]
