"""Cells: which text stands in which column, and what stands where there is nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import opassay
import polars as pl
import pytest
from opassay.schemas.headers import TENSOR_METRICS, report_columns
from opassay.schemas.vocab import DumpMode

from tests.dumps import call, saved, scalar, tensor, tensor_call, write_dump

OP = "Torch.mul.0.forward"
SEED_HEAD = [
    "NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype", "NPU Tensor Shape", "Bench Tensor Shape", "NPU Requires_grad",
    "Bench Requires_grad",
]  # fmt: skip
STATS = ["NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm"]
VERDICT = ["Requires_grad Consistent", "Result", "Err_message"]


def compare(folder: Path, target: dict[str, Any], golden: dict[str, Any], **header: Any) -> opassay.CompareReport:
    return opassay.compare(
        *[write_dump(folder / name, side, **header) for name, side in (("target", target), ("golden", golden))]
    )


def test_headers_are_the_documents() -> None:
    metrics = [
        "Cosine",
        "EucDist",
        "MaxAbsErr",
        "MaxRelativeErr",
        "One Thousandth Err Ratio",
        "Five Thousandth Err Ratio",
    ]
    relative = ["MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"]
    diffs = ["Max diff", "Min diff", "Mean diff", "L2norm diff"]
    wanted: dict[DumpMode, Callable[[list[str]], list[str]]] = {
        DumpMode.TENSOR: lambda stack: [*SEED_HEAD, *metrics, *STATS, *VERDICT, *stack, "Data_Name"],
        DumpMode.STATISTICS: lambda stack: [*SEED_HEAD, *diffs, *relative, *STATS, *VERDICT, *stack],
        DumpMode.MD5: lambda stack: [*SEED_HEAD, "NPU MD5", "BENCH MD5", *VERDICT, *stack],
    }
    for mode, columns in wanted.items():
        assert list(report_columns(mode, stack=False).values()) == columns([])
        assert list(report_columns(mode, stack=True).values()) == columns(["NPU_Stack_Info"])


LEAVES: list[tuple[Any, str, str, str]] = [  # leaf, dtype, shape, the four statistic cells
    (tensor(stats=(1.5, -1e-20, 3, None)), "torch.float32", "[2, 3]", "1.5 -1e-20 3 None"),
    (tensor(shape=(), stats=(2.0, 2.0, 2.0, -2.0)), "torch.float32", "[]", "2.0 2.0 2.0 -2.0"),
    (tensor(dtype="torch.bool", stats=(True, False, None, None)), "torch.bool", "[2, 3]", "True False None None"),
    (tensor(stats=(float("nan"), float("-inf"), float("inf"), 0.0)), "torch.float32", "[2, 3]", "Nan -inf inf 0.0"),
    (tensor(dtype="torch.int64", stats=(2**60 + 1, -3, None, None)), "torch.int64", "[2, 3]", "1152921504606846977 -3 None None"),
    ({"type": "torch.Size", "value": [4, 6]}, "torch.Size", "[4, 6]", "None None None None"),
    ({"type": "slice", "value": [None, 2, None]}, "slice", "(3,)", "None None None None"),
    ({"type": "ellipsis", "value": "..."}, "ellipsis", "[]", "... ... ... ..."),
    ({"type": "torch.ProcessGroup", "group_ranks": [0, 1]}, "torch.ProcessGroup", "[]", "[0, 1]|[0, 1]|[0, 1]|[0, 1]"),
    (scalar(3), "<class 'int'>", "[]", "3 3 3 3"),
    (scalar(2.5), "<class 'float'>", "[]", "2.5 2.5 2.5 2.5"),
    (scalar(True), "<class 'bool'>", "[]", "True True True True"),
    (scalar("ij,kj->ik"), "<class 'str'>", "[]", "ij,kj->ik ij,kj->ik ij,kj->ik ij,kj->ik"),
    ({"type": "torch.memory_format", "format": "contiguous_format"}, "<class 'NoneType'>", "[]", "None None None None"),
    ({"type": "torch.dtype", "value": "torch.bfloat16"}, "<class 'str'>", "[]", " ".join(["torch.bfloat16"] * 4)),
    (None, "N/A", "N/A", "None None None None"),
]  # fmt: skip


def test_cells_of_every_kind_of_leaf(tmp_path: Path) -> None:
    """Section 4.2 of the specification, cell by cell."""
    data = {f"Torch.op.{number}.forward": call([leaf], []) for number, (leaf, *_) in enumerate(LEAVES)}
    rows = compare(tmp_path, data, data).rows
    for row, (_, dtype, shape, stats) in zip(rows.iter_rows(named=True), LEAVES, strict=True):
        found = [row[f"target_{stat}"] for stat in ("max", "min", "mean", "norm")]
        assert [row["target_dtype"], row["target_shape"]] == [dtype, shape]
        assert found == (stats.split("|") if "|" in stats else stats.split(" "))
        assert row["result"] == "pass", row["message"]
        assert [row[f"{stat}_diff"] for stat in ("max", "min", "mean", "norm")] == ["0"] * 4


def test_requires_grad_cells(tmp_path: Path) -> None:
    leaves = [tensor(requires_grad=True), tensor(requires_grad=False), scalar(3), None]
    rows = compare(tmp_path, {OP: call(leaves, [])}, {OP: call(leaves, [])}).rows
    assert rows["target_requires_grad"].to_list() == ["True", "False", "N/A", "N/A"]
    assert rows["requires_grad_consistent"].to_list() == ["True"] * 4
    rows = compare(tmp_path, {OP: call(leaves[:1], [])}, {OP: call(leaves[1:2], [])}).rows
    assert rows["requires_grad_consistent"].to_list() == ["False"]


@pytest.mark.parametrize("flip", [False, True])
def test_a_side_that_is_not_there_is_not_applicable(flip: bool, tmp_path: Path) -> None:
    more, less = {OP: call([tensor(), tensor()], [])}, {OP: call([tensor()], [])}
    rows = compare(tmp_path, *((less, more) if flip else (more, less))).rows
    lone = rows.row(1, named=True)
    side = "target" if flip else "golden"
    assert {lone[name] for name in rows.columns if name.startswith(side) and not name.endswith("number")} == {"N/A"}
    assert {lone[name] for name in ("max_diff", "min_relative", "norm_relative")} == {"N/A"}
    assert lone["result"] == "warning"
    assert f"no matching {'NPU' if flip else 'Bench'} value" in lone["message"]


def test_data_names(tmp_path: Path) -> None:
    values = np.arange(3, dtype=np.float32)
    target = {OP: tensor_call(tmp_path / "target", OP, [values, scalar(3)], [values])}
    golden = {OP: tensor_call(tmp_path / "golden", OP, [values, scalar(3)], [])}
    rows = compare(tmp_path, target, golden, task="tensor").rows
    first = f"{OP}.input.0.npy"
    assert rows["data_name"].to_list() == [f"['{first}', '{first}']", "['-1', '-1']", f"['{OP}.output.0.npy', 'N/A']"]
    assert [rows[name][1] for name in TENSOR_METRICS] == ["unsupported"] * 6
    assert [rows[name][2] for name in TENSOR_METRICS] == ["unsupported"] * 6


def test_a_tensor_is_called_as_its_file_is(tmp_path: Path) -> None:
    """Saved keyword tensors are called ``kwargs`` in the file name; they meet their partner by place."""
    values = np.arange(3, dtype=np.float32)
    data = {}
    for side in ("target", "golden"):
        leaf = saved(tmp_path / side, f"{OP}.kwargs.bias", values)
        data[side] = {OP: {"input_args": [], "input_kwargs": {"bias": leaf, "n": scalar(3)}, "output": []}}
    rows = compare(tmp_path, data["target"], data["golden"], task="tensor").rows
    assert rows["target_name"].to_list() == [f"{OP}.kwargs.bias", f"{OP}.input.n"]
    bare = {OP: {"input_args": [], "input_kwargs": {"bias": tensor(), "n": scalar(3)}, "output": []}}
    (tmp_path / "bare").mkdir()
    mixed = opassay.compare(write_dump(tmp_path / "bare", bare), tmp_path / "golden" / "dump.json").rows
    assert mixed.select("target_name", "golden_name").rows()[0] == (f"{OP}.input.bias", f"{OP}.kwargs.bias")


def test_stacks_stand_on_the_first_row_of_each_record(tmp_path: Path) -> None:
    other = "Torch.add.0.forward"
    data = {OP: call([tensor(), tensor()], [tensor()]), other: call([tensor()], [tensor()])}
    extra = {**data, "Torch.sub.0.forward": call([tensor()], [])}
    lines = ["File a.py, line 1, in f, \n x = 1", "File b.py, line 2, in g, \n y"]
    for side, content in (("target", data), ("golden", extra)):
        write_dump(tmp_path / side, content)
    stack = json.dumps({"0": [[OP], lines]})
    (tmp_path / "target" / "stack.json").write_text(stack)
    report = opassay.compare(tmp_path / "target" / "dump.json", tmp_path / "golden" / "dump.json")
    assert report.rows["stack"].to_list() == [str(lines), *["N/A"] * 5]
    back = opassay.compare(tmp_path / "golden" / "dump.json", tmp_path / "target" / "dump.json")
    assert "stack" not in back.rows.columns  # only the target's stack.json is used


def test_nothing_is_null_and_numbers_stand_beside_the_texts(tmp_path: Path) -> None:
    leaves = [tensor(stats=(1.5, float("nan"), float("inf"), None)), scalar("a"), None]
    report = compare(tmp_path, {OP: call(leaves, [tensor()])}, {OP: call(leaves, [])})
    rows = report.rows
    texts = rows.select(list(report.ranks[0].columns))
    assert sum(texts.null_count().row(0)) == 0
    assert set(texts.dtypes) == {pl.String}
    assert rows["target_max_number"].to_list() == [1.5, None, None, 1.0]
    assert rows["target_min_number"].to_list() == [None, None, None, -1.0]
    assert rows["compared"].to_list() == [True, True, True, False]
    assert rows["op"].to_list() == [OP] * 4
