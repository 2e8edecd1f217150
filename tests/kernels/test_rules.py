"""The verdict table: every rule fires where it must and stays silent a hair away."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import opassay
import polars as pl
import pytest
from opassay.kernels.rules import NOT_COMPARED, RULES, rules_for
from opassay.schemas.vocab import DumpMode, Result

from benchmarks.pt_files import write_pt
from tests.dumps import call, saved, scalar, tensor, tensor_call, write_dump

CASES = json.loads(Path(__file__).parents[1].joinpath("conformance", "rules_statistics.json").read_text())
OP = "Torch.mul.0.forward"


def compare(folder: Path, target: Any, golden: Any, **options: Any) -> pl.DataFrame:
    """Rows of a comparison of two single records (or data objects) in statistics mode."""
    sides = [side if "input_args" not in side else {OP: side} for side in (target, golden)]
    paths = [write_dump(folder / name, side) for name, side in zip(("target", "golden"), sides, strict=True)]
    return opassay.compare(*paths, **options).rows


def row(rows: pl.DataFrame, name: str) -> dict[str, Any]:
    found = rows.filter(pl.col("target_name") == name)
    assert found.height == 1, rows["target_name"].to_list()
    return found.row(0, named=True)


def says(message: str, rule: str) -> bool:
    """Whether a message cell holds the message of a rule: judged by the rule's fixed words."""
    words = {
        "norm-error": "error: NormRelativeErr",
        "norm-growth": "more than ten times",
        "own-statistics": "rule own-statistics",
        "nan-or-inf": "nan or inf differ",
        "statistic-missing": "statistic",
    }
    return words[rule] in message


def number(value: Any) -> Any:
    return float(value.replace("Infinity", "inf")) if isinstance(value, str) else value


@pytest.mark.parametrize("case", CASES, ids=[f"{c['rule']}: {c['why']}" for c in CASES])
def test_statistics_rule(case: dict[str, Any], tmp_path: Path) -> None:
    def record(side: dict[str, Any]) -> dict[str, Any]:
        leaves = {k: [tensor(stats=tuple(number(x) for x in stats)) for stats in side[k]] for k in ("in", "out")}
        return call(leaves["in"], leaves["out"])

    found = row(compare(tmp_path, record(case["target"]), record(case["golden"])), f"{OP}.output.0")
    if case["rule"] != "own-statistics":
        assert found["result"] == case["result"], found["message"]
    assert says(found["message"], case["rule"]) is case["fires"], found["message"]


def test_the_output_that_violates_is_marked_and_no_other(tmp_path: Path) -> None:
    good, bad = tensor(stats=(1, -1, 0, 10)), tensor(stats=(1, -1, 0, 20))
    rows = compare(tmp_path, call([good], [good, bad]), call([good], [good, good]))
    assert rows["result"].to_list() == ["pass", "pass", "error"]


def test_a_module_path_that_says_output_changes_nothing(tmp_path: Path) -> None:
    good, bad = tensor(stats=(1, -1, 0, 10)), tensor(stats=(1, -1, 0, 20))
    name = "Module.bert.output.dense.Linear.forward.0"
    rows = compare(tmp_path, {name: call([bad], [bad])}, {name: call([good], [good])})
    assert row(rows, f"{name}.output.0")["result"] == "pass"  # its input differs as much


@pytest.mark.parametrize("api", ["empty_like", "to", "__setitem__", "setitem"])
def test_redundant_apis_are_not_judged(api: str, tmp_path: Path) -> None:
    good, bad = tensor(stats=(1, -1, 0, 10)), tensor(stats=(math.nan, -1, 0, 20), requires_grad=True)
    op = f"Torch.{api}.0.forward"
    rows = compare(tmp_path, {op: call([good], [bad])}, {op: call([good], [good])})
    assert set(rows["result"]) == {"pass"}


def test_a_module_called_to_is_judged(tmp_path: Path) -> None:
    good, bad = tensor(stats=(1, -1, 0, 10)), tensor(stats=(1, -1, 0, 20))
    op = "Module.to.Linear.forward.0"
    rows = compare(tmp_path, {op: call([good], [bad])}, {op: call([good], [good])})
    assert row(rows, f"{op}.output.0")["result"] == "error"


def test_placeholder_inputs_are_no_reason(tmp_path: Path) -> None:
    good, bad = tensor(stats=(1, -1, 0, 10)), tensor(stats=(1, -1, 0, 20))
    op = "Distributed._all_gather_base.0.forward"
    rows = compare(tmp_path, {op: call([good], [bad])}, {op: call([good], [good])})
    assert row(rows, f"{op}.output.0")["result"] == "pass"
    named = compare(tmp_path, {op: call([good], [tensor(dtype="torch.float16")])}, {op: call([good], [tensor()])})
    assert row(named, f"{op}.output.0")["result"] == "error"


@pytest.mark.parametrize(
    ("target", "golden", "slot", "result", "word"),
    [
        (scalar(3), scalar(4), "input.1", "error", "scalar argument"),
        (scalar(3), scalar(3), "input.1", "pass", ""),
        (scalar("a"), scalar("b"), "input.1", "error", "scalar argument"),
        (scalar(True), scalar(False), "input.1", "error", "scalar argument"),
        ({"type": "torch.device", "value": "npu:0"}, {"type": "torch.device", "value": "cuda:0"}, "input.1", "pass", ""),
        ({"type": "torch.device", "value": "npu:0"}, {"type": "torch.device", "value": "cpu"}, "input.1", "pass", ""),
        ({"type": "torch.Size", "value": [2, 3]}, {"type": "torch.Size", "value": [3, 2]}, "input.1", "error", "value-changed"),
        ({"type": "slice", "value": [0, 2, None]}, {"type": "slice", "value": [0, 3, None]}, "input.1", "warning", "value-changed"),
        ({"type": "slice", "value": [0, 2, None]}, {"type": "slice", "value": [0, 2, None]}, "input.1", "pass", ""),
    ],
)  # fmt: skip
def test_arguments(target: Any, golden: Any, slot: str, result: str, word: str, tmp_path: Path) -> None:
    good = tensor()
    found = row(compare(tmp_path, call([good, target], [good]), call([good, golden], [good])), f"{OP}.{slot}")
    assert found["result"] == result
    assert word in found["message"]


def test_requires_grad_dtype_and_shape(tmp_path: Path) -> None:
    good = tensor()
    for changed, word in (
        (tensor(requires_grad=True), "Requires_grad differs"),
        (tensor(dtype="torch.int64"), "dtype differs"),
        (tensor(shape=(3, 2)), "shape differs"),
    ):
        found = row(compare(tmp_path, call([good], [changed]), call([good], [good])), f"{OP}.output.0")
        assert found["result"] == "error"
        assert word in found["message"]
        assert found["golden_name"] == f"{OP}.output.0"


def test_parameter_gradients_stand_for_themselves(tmp_path: Path) -> None:
    name = "Module.fc.Linear.parameters_grad.0"
    for norm, result in ((16.0, "warning"), (14.0, "pass")):
        rows = compare(
            tmp_path,
            {name: {"weight": [tensor(stats=(1, -1, 0, norm))]}},
            {name: {"weight": [tensor(stats=(1, -1, 0, 10))]}},
        )
        assert row(rows, f"{name}.weight")["result"] == result
    rows = compare(
        tmp_path,
        {name: {"weight": [tensor(stats=(1, -1, 0, 16))]}},
        {name: {"weight": [tensor(stats=(1, -1, 0, 10))]}},
        document_rules=True,
    )
    assert row(rows, f"{name}.weight")["result"] == "pass"


def tensor_rows(folder: Path, inputs: list[Any], target: list[Any], golden: list[Any], **options: Any) -> pl.DataFrame:
    """Rows of a tensor comparison with equal inputs and the given outputs."""
    paths = [
        write_dump(folder / side, {OP: tensor_call(folder / side, OP, inputs, outputs)}, task="tensor")
        for side, outputs in (("target", target), ("golden", golden))
    ]
    return opassay.compare(*paths, **options).rows


BASE = np.linspace(1, 2, 100, dtype=np.float32)


@pytest.mark.parametrize(("off", "result"), [(41, "error"), (40, "pass")])
def test_ratio_collapse_at_the_documents_threshold(off: int, result: str, tmp_path: Path) -> None:
    changed = BASE.copy()
    changed[:off] *= 1.01
    found = row(tensor_rows(tmp_path, [BASE], [changed], [BASE]), f"{OP}.output.0")
    assert (found["result"], found["thousandth_number"]) == (result, pytest.approx(1 - off / 100))


def write_bfloat16(folder: Path, name: str, bits: np.ndarray) -> dict[str, Any]:
    """Save bfloat16 bits as a ``.pt`` file and return its leaf."""
    write_pt(folder / "dump_tensor_data" / f"{name}.pt", bits, "bfloat16", bits.shape)
    return tensor(dtype="torch.bfloat16", shape=bits.shape, data_name=f"{name}.pt")


def test_rounding_is_a_warning_unless_strict(tmp_path: Path) -> None:
    golden = np.arange(0x3F80, 0x3FE4, dtype=np.uint16)  # bfloat16 from 1 upwards, step by step
    for steps, result, strictly in ((1, "warning", "error"), (2, "error", "error")):
        paths = []
        for side, bits in (("target", golden + np.uint16(steps)), ("golden", golden)):
            folder = tmp_path / str(steps) / side
            (folder / "dump_tensor_data").mkdir(parents=True)
            leaves = [saved(folder, f"{OP}.input.0", BASE)], [write_bfloat16(folder, f"{OP}.output.0", bits)]
            paths.append(write_dump(folder, {OP: call(*leaves)}, task="tensor"))
        found = row(opassay.compare(*paths).rows, f"{OP}.output.0")
        assert (found["result"], found["thousandth_number"]) == (result, 0.0)
        assert ("within rounding" in found["message"]) is (steps == 1)
        assert row(opassay.compare(*paths, strict=True).rows, f"{OP}.output.0")["result"] == strictly


def test_cosine_drop_and_local_fault(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    golden = rng.normal(size=1000).astype(np.float32)
    spiked = golden.copy()
    spiked[:20] = 10 * spiked[:20] + 3
    found = row(tensor_rows(tmp_path, [BASE], [spiked], [golden]), f"{OP}.output.0")
    assert found["result"] == "warning"
    assert "Cosine" in found["message"]
    assert "local-fault" in found["message"]
    one = golden.copy()
    one[7] += np.float32(0.11) * np.abs(golden).max()
    found = row(tensor_rows(tmp_path, [BASE], [one], [golden]), f"{OP}.output.0")
    assert found["result"] == "warning"
    assert "local-fault" in found["message"]
    assert "Cosine 0" not in found["message"]
    assert "[7]" in found["message"]  # where the worst element is
    one[7] = golden[7] + np.float32(0.09) * np.abs(golden).max()
    assert row(tensor_rows(tmp_path, [BASE], [one], [golden]), f"{OP}.output.0")["result"] == "pass"
    plain = row(tensor_rows(tmp_path, [BASE], [one], [golden], document_rules=True), f"{OP}.output.0")
    assert plain["result"] == "pass"


def test_inputs_that_cannot_be_compared_say_nothing_about_the_op(tmp_path: Path) -> None:
    """An input of another shape already differs: no rule that rests on equal inputs fires on the output."""
    rng = np.random.default_rng(2)
    golden = rng.normal(size=100).astype(np.float32)
    paths = []
    for side, given, made in (("target", BASE[:50], -golden), ("golden", BASE, golden)):
        leaves = [saved(tmp_path / side, f"{OP}.input.0", given)], [saved(tmp_path / side, f"{OP}.output.0", made)]
        paths.append(write_dump(tmp_path / side, {OP: call(*leaves)}, task="tensor"))
    found = row(opassay.compare(*paths).rows, f"{OP}.output.0")
    assert found["result"] == "pass"
    assert found["cosine_number"] == pytest.approx(-1)


def test_moved_nan_and_equal_nan(tmp_path: Path) -> None:
    target, golden = BASE.copy(), BASE.copy()
    target[3] = golden[3] = np.nan
    found = row(tensor_rows(tmp_path, [BASE], [target], [golden]), f"{OP}.output.0")
    assert (found["result"], found["error_max"]) == ("pass", "0.0")
    assert "1 nan" in found["message"]
    target[4], golden[5] = np.nan, np.nan
    found = row(tensor_rows(tmp_path, [BASE], [target], [golden]), f"{OP}.output.0")
    assert (found["result"], found["euclidean"], found["error_max"]) == ("error", "Nan", "Nan")
    assert "other positions" in found["message"]


def test_integers_that_change_while_inputs_are_equal(tmp_path: Path) -> None:
    golden = np.arange(1000, 1100)
    target = golden.copy()
    target[5] += 1
    found = row(tensor_rows(tmp_path, [BASE], [target], [golden]), f"{OP}.output.0")
    assert found["result"] == "warning"
    assert "value-changed" in found["message"]
    assert row(tensor_rows(tmp_path, [BASE], [golden], [golden]), f"{OP}.output.0")["result"] == "pass"


def test_what_cannot_be_measured_says_so(tmp_path: Path) -> None:
    rows = tensor_rows(tmp_path, [BASE], [BASE], [BASE])
    assert set(rows["result"]) == {"pass"}
    (tmp_path / "golden" / "dump_tensor_data" / f"{OP}.output.0.npy").unlink()
    paths = [tmp_path / side / "dump.json" for side in ("target", "golden")]
    report = opassay.compare(*paths)
    found = row(report.rows, f"{OP}.output.0")
    assert (found["result"], found["cosine"]) == ("warning", "unsupported")
    assert f"{OP}.output.0.npy" in found["message"]
    assert report.ranks[0].damaged


def test_a_file_that_contradicts_its_json_says_so(tmp_path: Path) -> None:
    tensor_rows(tmp_path, [BASE], [BASE], [BASE])
    np.save(tmp_path / "target" / "dump_tensor_data" / f"{OP}.output.0.npy", BASE.astype(np.float64))
    found = row(
        opassay.compare(*[tmp_path / side / "dump.json" for side in ("target", "golden")]).rows, f"{OP}.output.0"
    )
    assert found["result"] == "warning"
    assert "NPU: the file holds torch.float64 [100], the JSON says torch.float32 [100]" in found["message"]
    assert "Bench:" not in found["message"]


def test_empty_tensors_are_equal_without_a_file(tmp_path: Path) -> None:
    hollow = tensor(shape=(0, 3), stats=(None,) * 4)
    paths = [
        write_dump(tmp_path / side, {OP: call([hollow], [hollow])}, task="tensor") for side in ("target", "golden")
    ]
    for side in ("target", "golden"):
        (tmp_path / side / "dump_tensor_data").mkdir()
    assert set(opassay.compare(*paths).rows["result"]) == {"pass"}
    saved(tmp_path / "target", "x", BASE)


def test_every_rule_is_a_row_with_all_its_words() -> None:
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))
    for rule in RULES:
        assert rule.condition
        assert rule.why
        assert rule.source
        assert not rule.ours or rule.result is Result.WARNING  # decision 19
        assert not rule.always or rule.name in NOT_COMPARED
    for mode in DumpMode:
        ours = {rule.name for rule in rules_for(mode, document_rules=False) if rule.ours}
        assert not ours & {rule.name for rule in rules_for(mode, document_rules=True)}
