"""Dumps of MindSpore, read, compared with each other and with PyTorch's: a difference of spelling is none, any other stays one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import opassay
import polars as pl
import pytest
from numpy.typing import NDArray
from opassay.kernels.api_names import framework_of
from opassay.pipeline.cli.main import main
from opassay.pipeline.read.dump_json import read_dump
from opassay.pipeline.run.mode import check_framework
from opassay.schemas.dtypes import BY_NAME, mindspore_dtype, parse_dtype
from opassay.schemas.vocab import RowKind

from tests.dumps import call, saved, write_dump

EXAMPLE = Path(__file__).parents[2] / "examples" / "mindspore"
MOST_BYTES = 300_000
SPELT = {
    "Float64": "float64", "Float32": "float32", "Float16": "float16", "BFloat16": "bfloat16", "Int64": "int64", "Int8": "int8",
    "UInt8": "uint8", "UInt64": "uint64", "Bool": "bool", "Complex64": "complex64", "Float8E4M3FN": "float8_e4m3fn",
    "Float8E5M2": "float8_e5m2", "mindspore.float32": "float32", "mindspore.bool_": "bool",
}  # fmt: skip


def leaf(folder: Path, name: str, values: NDArray[Any], dtype: str) -> dict[str, Any]:
    """A tensor leaf as MindSpore's dump has it: its own type and dtype, no requires_grad."""
    plain = saved(folder, name, values, dtype=dtype)
    return {key: value for key, value in plain.items() if key != "requires_grad"} | {"type": "mindspore.Tensor"}


def one_op(folder: Path, values: NDArray[Any], dtype: str, **header: Any) -> Path:
    """A tensor dump of one op whose input is all ones and whose output are the values."""
    name = "Mint.add.0.forward" if header["framework"] == "mindspore" else "Torch.add.0.forward"
    make = leaf if header["framework"] == "mindspore" else (lambda f, n, v, d: saved(f, n, v, dtype=d))
    plain = "Float32" if header["framework"] == "mindspore" else "torch.float32"
    record = call(
        [make(folder, f"{name}.input.0", np.ones(3, np.float32), plain)],
        [make(folder, f"{name}.output.0", values, dtype)],
    )
    return write_dump(folder, {name: record}, task="tensor", **header)


def rows_of(target: Path, golden: Path, **options: Any) -> pl.DataFrame:
    report = opassay.compare(target, golden, **options)
    return report.rows.rename(report.ranks[0].columns)


@pytest.mark.parametrize(("text", "name"), SPELT.items())
def test_dtype_spellings(text: str, name: str) -> None:
    assert mindspore_dtype(text) is parse_dtype(text) is BY_NAME[name]


@pytest.mark.parametrize("text", ["torch.float32", "float32", "Int4", "HiFloat8", "<class 'int'>", "Float", "", "None"])
def test_spellings_that_are_not_mindspores(text: str) -> None:
    assert mindspore_dtype(text) is None


def test_the_header_decides_and_dtypes_only_where_it_is_silent() -> None:
    assert framework_of("", ["Float32"]) == "mindspore"
    assert framework_of("", ["torch.float32", "<class 'int'>"]) == "pytorch"
    assert framework_of("pytorch", ["Float32"]) == "pytorch"


def test_a_real_dump_is_read() -> None:
    table = read_dump(EXAMPLE / "mindspore" / "step0" / "rank0" / "dump.json")
    assert table.problems == []
    assert (table.framework, check_framework(table, "target")) == ("mindspore", None)
    names = set(table.ops["name"])
    assert {
        "Primitive.dense.Dense.0.forward",
        "Cell.fc1.Linear.forward.0",
        "Cell.fc2.Linear.parameters_grad.0",
    } <= names
    assert {"Float32", "BFloat16", "Bool", "Int64"} <= set(table.dtypes)
    tensors = table.rows.filter(pl.col("kind") == RowKind.TENSOR)
    assert tensors["requires_grad"].unique().to_list() == [-1]
    assert tensors["data_name"].str.ends_with(".npy").all()


@pytest.mark.parametrize("fuzzy", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_the_example_pairs_and_passes(fuzzy: bool, swapped: bool) -> None:
    sides = [EXAMPLE / name / "step0" for name in ("mindspore", "pytorch")]
    found = rows_of(*(sides[::-1] if swapped else sides), cell_mapping=True, fuzzy=fuzzy)
    by_name = {name: row for row in found.iter_rows(named=True) for name in (row["NPU Name"], row["Bench Name"])}
    paired = found.filter((pl.col("NPU Name") != "N/A") & (pl.col("Bench Name") != "N/A"))
    off = paired.filter(pl.col("Result") != "pass")
    # the two frameworks list the gradients of a linear in another order; the shapes tell
    assert {name.rpartition(".output.")[0] for name in off["NPU Name" if swapped else "Bench Name"]} == {
        "Functional.linear.0.backward",
        "Functional.linear.1.backward",
    }
    assert off["Err_message"].str.contains("[shape]", literal=True).all()
    assert paired.height == 90
    for name in ("Torch.mean.0.forward.output.0", "Module.fc1.Linear.parameters_grad.0.weight", "Torch.gt.0.forward.output.0",
                 "Tensor.add.0.forward.output.0", "Functional.relu.1.backward.input.0"):  # fmt: skip
        assert by_name[name]["Result"] == "pass"
        assert "N/A" not in (by_name[name]["NPU Name"], by_name[name]["Bench Name"])
    alone = found.filter((pl.col("NPU Name") == "N/A") | (pl.col("Bench Name") == "N/A"))
    assert set(alone["Result"]) == {"warning"}


def test_the_example_is_small_and_names_no_machine() -> None:
    files = [path for path in EXAMPLE.rglob("*") if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in files) < MOST_BYTES
    for path in files:
        if path.suffix == ".json":
            assert "/" not in path.read_text().replace("./dump_tensor_data", "")


@pytest.mark.parametrize("words", [[], ["-f", "mindspore"], ["-f", "pytorch"]])
def test_the_command(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = [str(EXAMPLE / name / "step0") for name in ("mindspore", "pytorch")]
    status = main(
        [*words, "compare", "-tp", sides[0], "-gp", sides[1], "-cm", "-o", str(tmp_path / "out"), "--workers", "1"]
    )
    assert status == 0
    assert "24 ops pair by the table of MindSpore and PyTorch names" in capsys.readouterr().out


VALUES = {
    "Float32": np.array([1.5, -2.0, 0.25], np.float32),
    "Float16": np.array([1.5, -2.0, 0.25], np.float16),
    "BFloat16": np.array([1.5, -2.0, 0.25], np.float32),  # NumPy has no bfloat16: MindSpore saves float32
    "Bool": np.array([True, False, True]),
    "Int64": np.array([3, -1, 2**40]),
    "UInt8": np.array([3, 0, 255], np.uint8),
    "Complex64": np.array([1 + 2j, 3j, 0], np.complex64),
}


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("frameworks", [("mindspore", "mindspore"), ("mindspore", "pytorch"), ("pytorch", "mindspore")])
def test_every_dtype_across_frameworks(dtype: str, frameworks: tuple[str, str], tmp_path: Path) -> None:
    names = {"mindspore": dtype, "pytorch": f"torch.{SPELT[dtype]}"}
    if dtype == "BFloat16":  # PyTorch's are in .pt files; the example has one
        frameworks = ("mindspore", "mindspore")
    paths = [
        one_op(tmp_path / side, VALUES[dtype], names[framework], framework=framework)
        for side, framework in zip(("target", "golden"), frameworks, strict=True)
    ]
    assert set(rows_of(*paths)["Result"]) == {"pass"}


@pytest.mark.parametrize("other", ["Float64", "torch.float16", "torch.int32", "BFloat16", "Int4", "HiFloat8"])
def test_another_dtype_stays_an_error(other: str, tmp_path: Path) -> None:
    values = VALUES["Float32"]
    framework = "pytorch" if other.startswith("torch.") else "mindspore"
    kind = BY_NAME.get(SPELT.get(other, other.removeprefix("torch.")))
    stored = values.astype(kind.name) if kind and kind.name != "bfloat16" else values
    target = one_op(tmp_path / "target", values, "Float32", framework="mindspore")
    golden = one_op(tmp_path / "golden", stored, other, framework=framework)
    output = rows_of(target, golden).row(1, named=True)
    assert output["Result"] == "error"
    assert f"dtype differs: NPU Float32, Bench {other}" in output["Err_message"]


def test_another_value_is_seen(tmp_path: Path) -> None:
    target = one_op(tmp_path / "target", np.array([1.5, 2.0, -0.25], np.float32), "Float32", framework="mindspore")
    golden = one_op(tmp_path / "golden", VALUES["Float32"], "torch.float32", framework="pytorch")
    output = rows_of(target, golden).row(1, named=True)
    assert output["Result"] == "error"
    assert "paired by the table of MindSpore and PyTorch names" in output["Err_message"]


@pytest.mark.parametrize("dtype", ["Int64", "Bool"])
def test_a_changed_integer_is_seen(dtype: str, tmp_path: Path) -> None:
    """A rule that looks for integers by their dtype must know MindSpore's."""
    values = VALUES[dtype]
    changed = values.copy()
    changed[0] = not changed[0] if dtype == "Bool" else changed[0] + 1
    target = one_op(tmp_path / "target", changed, dtype, framework="mindspore")
    golden = one_op(tmp_path / "golden", values, dtype, framework="mindspore")
    output = rows_of(target, golden).row(1, named=True)
    assert output["Result"] != "pass"
    assert "[value-changed]" in output["Err_message"]


def test_a_file_that_contradicts_the_json_is_seen(tmp_path: Path) -> None:
    paths = [
        one_op(tmp_path / side, VALUES["Float16"], "Float32", framework="mindspore") for side in ("target", "golden")
    ]
    output = rows_of(*paths).row(1, named=True)
    assert output["Result"] == "warning"
    assert "the file holds torch.float16 [3], the JSON says Float32 [3]" in output["Err_message"]


def test_arrays_of_any_layout_and_size(tmp_path: Path) -> None:
    """Fortran order, a transposed view, 0-d, nothing at all."""
    square = np.arange(6, dtype=np.float32).reshape(2, 3)
    op = "Mint.transpose.0.forward"
    for side, arrays in (
        ("target", [np.asfortranarray(square), square.T, np.float32(3).reshape(()), np.zeros((0, 2), np.float32)]),
        ("golden", [square, np.ascontiguousarray(square.T), np.float32(3).reshape(()), np.zeros((0, 2), np.float32)]),
    ):
        leaves = [leaf(tmp_path / side, f"{op}.input.{i}", array, "Float32") for i, array in enumerate(arrays)]
        write_dump(tmp_path / side, {op: call(leaves, [])}, task="tensor", framework="mindspore")
    assert set(rows_of(tmp_path / "target" / "dump.json", tmp_path / "golden" / "dump.json")["Result"]) == {"pass"}


@pytest.mark.parametrize(
    ("mindspore", "pytorch", "result"),
    [("Float16", "torch.float16", "pass"), ("mindspore.float16", "torch.float16", "pass"), ("Float16", "torch.float32", "error")],
)  # fmt: skip
def test_a_dtype_as_an_argument(mindspore: str, pytorch: str, result: str, tmp_path: Path) -> None:
    for side, framework, value in (("target", "mindspore", mindspore), ("golden", "pytorch", pytorch)):
        argument = {"type": f"{framework.replace('py', '')}.dtype", "value": value}
        name = "Mint.ones.0.forward" if framework == "mindspore" else "Torch.ones.0.forward"
        write_dump(
            tmp_path / side, {name: call([{"type": "int", "value": 3}], [], dtype=argument)}, framework=framework
        )
    found = rows_of(tmp_path / "target" / "dump.json", tmp_path / "golden" / "dump.json")
    assert found.filter(pl.col("NPU Name").str.ends_with("dtype"))["Result"].to_list() == [result]


def test_requires_grad_counts_where_both_sides_tell_it(tmp_path: Path) -> None:
    def results(told: Any) -> set[str]:
        for side, framework, grad in (("target", "mindspore", told), ("golden", "pytorch", True)):
            name = "Mint.add.0.forward" if framework == "mindspore" else "Torch.add.0.forward"
            path = one_op(
                tmp_path / side,
                VALUES["Float32"],
                "Float32" if framework == "mindspore" else "torch.float32",
                framework=framework,
            )
            document = json.loads(path.read_text())
            for item in document["data"][name]["input_args"]:
                if grad is not None:
                    item["requires_grad"] = grad
            path.write_text(json.dumps(document))
        found = rows_of(tmp_path / "target" / "dump.json", tmp_path / "golden" / "dump.json")
        return set(found["Result"][:1])

    assert results(None) == {"pass"}
    assert results(True) == {"pass"}
    assert results(False) == {"error"}


def test_an_unknown_framework_is_refused_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(write_dump(tmp_path / side, {"A.b.0.forward": call([], [])}, framework="jax")) for side in ("t", "g")]
    assert main(["compare", "-tp", paths[0], "-gp", paths[1], "-o", str(tmp_path / "out")]) == 2
    told = [line for line in capsys.readouterr().err.splitlines() if "error" in line.lower()]
    assert any("framework 'jax'; compare takes pytorch, mindtorch and mindspore dumps" in line for line in told)
