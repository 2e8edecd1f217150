"""The harness's own arithmetic against figures worked out by hand (compare.md section 17, decisions 8, 18 and 20)."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.parity.dump import DumpRow, operator_and_index
from tests.parity.oracle import agrees, compare_values, same_but_for_device_kind
from tests.parity.tables import TENSOR_METRICS
from tests.parity.tensors import Measured, measure

torch = pytest.importorskip("torch")
NAN, INF = math.nan, math.inf


def measured(folder: Path, target: Any, golden: Any) -> Measured:
    rows = []
    for at, tensor in enumerate((target, golden)):
        torch.save(tensor, folder / f"{at}.pt")
        dtype, shape = str(tensor.dtype), str(list(tensor.shape))
        rows.append(DumpRow("r", "output", ".output.0", "r", "tensor", dtype, shape, "", (), "", f"{at}.pt", folder))
    return measure(*rows)


VECTORS = [
    (
        [1, 2, 3],
        [1.0005, 2.004, 3.1],
        "float64",
        (None, math.hypot(0.0005, 0.004, 0.1), 0.1, 0.1 / 3.1, 1 / 3, 2 / 3),
    ),
    ([0, 0, 0], [0, 0, 0], "float32", (1.0, 0.0, 0.0, 0.0, 1.0, 1.0)),
    ([0, 0, 0], [1, 1, 1], "float32", (NAN, math.sqrt(3), 1.0, 1.0, 0.0, 0.0)),
    ([1, 1, 1], [0, 0, 0], "float32", (NAN, math.sqrt(3), 1.0, INF, 0.0, 0.0)),
    ([1, NAN, 3], [1, NAN, 3.5], "float32", (None, 0.5, 0.5, 0.5 / 3.5, 0.5, 0.5)),
    ([1, NAN, 3], [1, 2, 3.5], "float32", (None, NAN, NAN, 0.5 / 3.5, 0.5, 0.5)),
    ([1, INF, 3], [1, -INF, 3.5], "float32", (None, INF, INF, 0.5 / 3.5, 0.5, 0.5)),
    ([2**60 + 1, 5], [2**60, 5], "int64", (1.0, 1.0, 1.0, 2.0**-60, 1.0, 1.0)),
    ([1 + 1j, 2], [1 + 9j, 2 + 5j], "complex64", (None, math.sqrt(89), 8.0, 5 / math.sqrt(29), 0.0, 0.0)),
    ([1e-20, 2e-20], [-1e-20, -2e-20], "float64", (-1.0, math.sqrt(20) * 1e-20, 4e-20, 2.0, 0.0, 0.0)),
    ([1e200, 1e200], [1e200, 1e200], "float64", (1.0, 0.0, 0.0, 0.0, 1.0, 1.0)),
]


@pytest.mark.parametrize(("target", "golden", "dtype", "wanted"), VECTORS)
def test_figures(
    tmp_path: Path, target: list[float], golden: list[float], dtype: str, wanted: tuple[float | None, ...]
) -> None:
    from tests.parity import tensors

    tensors.load.cache_clear()
    kind = getattr(torch, dtype)
    found = measured(tmp_path, torch.tensor(target, dtype=kind), torch.tensor(golden, dtype=kind))
    for title, value in zip(TENSOR_METRICS, wanted, strict=True):
        if value is not None:
            assert found.figures[title] == pytest.approx(value, rel=1e-12, nan_ok=True), title


def test_states(tmp_path: Path) -> None:
    from tests.parity import tensors

    pairs = {
        "one element": (torch.tensor([3], dtype=torch.uint8), torch.tensor([4], dtype=torch.uint8)),
        "shape": (torch.zeros(2, 3), torch.zeros(3, 2)),
        "computed": (torch.ones(1, 3), torch.ones(3, 1)),
        "empty": (torch.zeros(0, 3), torch.zeros(0, 3)),
    }
    for state, (target, golden) in pairs.items():
        tensors.load.cache_clear()
        found = measured(tmp_path, target, golden)
        assert found.state == state
    tensors.load.cache_clear()
    (tmp_path / "1.pt").write_bytes((tmp_path / "1.pt").read_bytes()[:100])
    row = DumpRow("r", "output", ".output.0", "r", "tensor", "torch.float32", "[2]", "", (), "", "1.pt", tmp_path)
    assert measure(row, row).state == "unreadable"
    assert measure(row, replace(row, data_name="none.pt")).state == "missing"
    assert measure(row, replace(row, data_name="")).state == "no file recorded"


def test_within_rounding(tmp_path: Path) -> None:
    from tests.parity import tensors

    golden = torch.tensor([1.0, 2.0, -4.0, 0.0], dtype=torch.bfloat16)
    for steps, within in ((1, True), (2, False)):
        tensors.load.cache_clear()
        target = golden * (1 + steps * 2.0**-7)
        assert measured(tmp_path, target, golden).within_rounding is within
    tensors.load.cache_clear()
    whole = torch.tensor([1, 2, 3])
    assert not measured(tmp_path, whole + 1, whole).within_rounding


@pytest.mark.parametrize(
    ("target", "golden", "difference", "relative"),
    [
        (2.0, 0.0, 2.0, "inf"),
        (0.0, -0.0, 0, 0),
        (3, 3.0, 0, 0),
        (3, 4, -1, 25.0),
        (2**60 + 1, 2**60, 1, 2.0**-60 * 100),
        (2.0, NAN, "Nan", "Nan"),
        (NAN, NAN, 0, 0),
        (2.0, INF, "-inf", "inf"),
        (-INF, INF, "-inf", "inf"),
        (None, 2.0, "Diff", "Diff"),
        (None, None, 0, 0),
        (True, False, "Diff", "Diff"),
        ("npu:0", "cpu:0", "N/A", "N/A"),
        ("sum", "mean", "Diff", "Diff"),
    ],
)
def test_statistics(target: object, golden: object, difference: object, relative: object) -> None:
    found = compare_values(target, golden)
    assert found.difference == difference
    assert found.relative == pytest.approx(relative) if isinstance(relative, float) else found.relative == relative


def test_devices() -> None:
    assert same_but_for_device_kind("npu:0", "cuda:0")
    assert same_but_for_device_kind("cpu", "npu:3")
    assert not same_but_for_device_kind("npu:0", "npu:1")
    assert not same_but_for_device_kind("sum", "mean")


def test_right_cells_allow_no_more_than_the_last_digits() -> None:
    assert agrees("EucDist", 0.1, "0.1")
    assert agrees("EucDist", 0.1, repr(0.1 * (1 + 1e-12)))
    assert not agrees("EucDist", 0.1, "0.10000001")
    assert agrees("NPU max", 2**60 + 1, str(2**60 + 1))
    assert not agrees("NPU max", 2**60 + 1, str(2**60))
    assert agrees("MaxAbsErr", INF, "inf")
    assert not agrees("MaxAbsErr", INF, "1e308")
    assert not agrees("NPU Name", "3", "3.0")


def test_operator_and_index() -> None:
    assert operator_and_index("Tensor.__add__.12.backward") == ("Tensor.__add__.backward", 12)
    assert operator_and_index("Module.a.0.fc.Linear.forward.3") == ("Module.a.0.fc.Linear.forward", 3)
    assert operator_and_index("Module.fc.Linear.parameters_grad") == ("Module.fc.Linear.parameters_grad", None)
