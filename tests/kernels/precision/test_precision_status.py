"""Status of a pair: every step decides where it must and lets pass what only comes near."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from opassay.kernels.precision.outputs import compare_tensors
from opassay.kernels.precision.status import format_metric, verdict
from opassay.schemas.check_rows import DetailRow, Status

PASS, WARNING, ERROR, SKIP = Status.PASS, Status.WARNING, Status.ERROR, Status.SKIP
HALVES = [torch.float16, torch.bfloat16]


def ramp(size: int = 1000, scale: float = 40.0) -> torch.Tensor:
    """Exact in every float dtype: powers of two up to ``scale`` or so, both signs."""
    steps = torch.arange(size) % 5
    return scale * 2.0 ** -steps.to(torch.float64) * (1 - 2 * (torch.arange(size) % 2))


def changed(bench: torch.Tensor, dtype: torch.dtype, count: int, factor: float) -> torch.Tensor:
    """The reference with ``count`` elements off by a factor."""
    device = bench.clone()
    device[:count] *= factor
    return device.to(dtype)


def compare(bench: torch.Tensor, device: torch.Tensor, api: str = "exp", **options: Any) -> DetailRow:
    return compare_tensors(bench, device, api, **options)


def test_cosine_decides_at_0_99() -> None:
    bench = torch.tensor([1.0, 0.0], dtype=torch.float64)
    for angle, status in ((0.141, PASS), (0.142, ERROR)):
        device = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
        row = compare(bench, device)
        failed = (
            "Cosine similarity is less than 0.99, consider as error, skip other check and set to SPACE.\n"
            in row.message
        )
        assert failed is (status is ERROR)
        assert row.metrics["cosine"] == pytest.approx(math.cos(angle))
        assert ("error_max" in row.metrics) is not failed


def test_zeros_on_one_side_are_an_error_and_on_both_pass() -> None:
    zeros, ones = torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    for bench, device, text in ((ones, zeros, "device"), (zeros, ones, "bench")):
        row = compare(bench, device.to(torch.float32))
        assert row.status is ERROR
        assert row.message.startswith(f"All the data is zero in {text} dump data.\nCosine similarity is less")
        assert "cosine" not in row.metrics
    row = compare(zeros, zeros.to(torch.float32))
    assert row.status is PASS
    assert row.message.startswith(
        "All the data in device and bench outputs are zero.\nMax abs error is less than 0.001"
    )


def test_zero_means_within_2_2e_16() -> None:
    bench = torch.full((4,), 2e-16, dtype=torch.float64)
    assert compare(bench, torch.zeros(4)).status is PASS
    assert compare(bench * 1.2, torch.zeros(4)).status is ERROR


def test_what_the_dtype_rounds_to_zero_may_be_zero() -> None:
    bench = torch.full((4,), 2e-8, dtype=torch.float64)
    assert compare(bench, torch.zeros(4, dtype=torch.float16)).status is PASS
    assert compare(bench * 2, torch.zeros(4, dtype=torch.float16)).status is ERROR
    assert compare(bench, torch.zeros(4, dtype=torch.float32)).status is ERROR


def test_one_element_has_no_cosine() -> None:
    row = compare(torch.tensor(-4.0, dtype=torch.float64), torch.tensor(-4.0))
    assert "cosine" not in row.metrics
    assert row.message.startswith(
        "All the data in device dump data is scalar. Please refer to other compare algorithms.\nMax"
    )
    assert compare(torch.tensor(-4.0, dtype=torch.float64), torch.tensor(4.0)).status is ERROR


@pytest.mark.parametrize(("error", "decides"), [(0.00099, True), (0.00101, False)])
def test_a_small_largest_error_passes(error: float, decides: bool) -> None:
    bench = torch.tensor([0.5, -0.25], dtype=torch.float64)
    row = compare(bench, (bench + error).to(torch.float32))
    text = "\nMax abs error is less than 0.001, consider as pass, skip other check and set to SPACE.\n"
    assert (row.message == text) is decides
    assert (row.status is PASS) is decides
    assert ("thousandth" in row.metrics) is not decides


@pytest.mark.parametrize(("largest", "status"), [(0.1, PASS), (0.099, ERROR)])
def test_that_shortcut_needs_values_of_a_tenth(largest: float, status: Status) -> None:
    bench = torch.tensor([largest] * 3, dtype=torch.float64)
    assert compare(bench, (bench + 0.0009).to(torch.float32)).status is status


@pytest.mark.parametrize(
    ("dtype", "relative", "decides"),
    [
        (torch.float32, 0.9e-4, True),
        (torch.float32, 1.1e-4, False),
        (torch.float16, 0.9e-3, True),
        (torch.float16, 1.9e-3, False),
    ],
)
def test_small_tensors_may_differ_by_a_share_of_their_largest_value(
    dtype: torch.dtype, relative: float, decides: bool
) -> None:
    bench = torch.tensor([2.0**-6, 2.0**-8, 2.0**-14], dtype=torch.float64)
    device = bench.clone()
    device[2] += relative * 2.0**-6
    row = compare(bench, device.to(dtype))
    assert ("of the largest value, consider as pass" in row.message) is decides
    assert row.status is (PASS if decides else ERROR)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e-9, 1e-12])
def test_no_tensor_is_too_small_to_be_wrong(dtype: torch.dtype, scale: float) -> None:
    bench = torch.linspace(1, 2, 45, dtype=torch.float32) * scale
    assert compare(bench, (bench * 1.5).to(dtype)).status is ERROR
    assert compare(bench, bench.to(dtype)).status is PASS


def test_one_step_of_a_narrow_dtype_is_rounding() -> None:
    bench = torch.full((200,), 3.4 * 2.0**-24, dtype=torch.float64)
    assert compare(bench, bench.to(torch.float16)).status is PASS
    assert compare(bench, (bench + 2.0**-23).to(torch.float16)).status is ERROR


def test_16_bit_error_at_the_hundredth() -> None:
    for dtype in HALVES:
        for count, status in ((9, WARNING), (10, ERROR)):
            bench = ramp()
            row = compare(bench, changed(bench, dtype, count, 1.0625))
            assert row.status is status
            assert row.metrics["hundredth"] == (1000 - count) / 1000
            assert ("Relative error is greater than 0.01, consider as error" in row.message) is (status is ERROR)
            assert ("thousandth" in row.metrics) is (status is WARNING)


def test_float16_warning_at_the_thousandth() -> None:
    bench = ramp(2000)
    for count, status in ((1, PASS), (2, WARNING)):
        row = compare(bench, changed(bench, torch.float16, count, 1 + 2.0**-9))
        assert row.status is status
        assert row.metrics["thousandth"] == (2000 - count) / 2000
        word = "less than 0.001, consider as pass" if status is PASS else "greater than 0.001, consider as warning"
        assert row.message == f"\nRelative error is {word}, skip other check and set to SPACE.\n"


def test_bfloat16_is_held_to_a_hundredth() -> None:
    bench = ramp(2000)
    assert compare(bench, changed(bench, torch.bfloat16, 2000, 1 + 2.0**-7)).status is PASS
    for count, status in ((1, PASS), (2, WARNING)):
        assert compare(bench, changed(bench, torch.bfloat16, count, 1 + 2.0**-6)).status is status


def test_float32_error_at_the_thousandth() -> None:
    bench = ramp(20000)
    for count, status in ((19, WARNING), (20, ERROR)):
        row = compare(bench, changed(bench, torch.float32, count, 1.002))
        assert row.status is status
        assert row.metrics["thousandth"] == (20000 - count) / 20000
        assert ("Relative error is greater than 0.001, consider as error" in row.message) is (status is ERROR)


def test_float32_warning_at_the_ten_thousandth() -> None:
    bench = ramp(20000)
    for count, status in ((1, PASS), (2, WARNING)):
        row = compare(bench, changed(bench, torch.float32, count, 1.0005))
        assert row.status is status
        assert row.metrics["ten_thousandth"] == (20000 - count) / 20000
    assert (
        row.message
        == "\nRelative error is greater than 0.0001, consider as warning, skip other check and set to SPACE.\n"
    )
    passed = compare(bench, changed(bench, torch.float32, 1, 1.0005))
    assert passed.message == "\nRelative error is less than 0.0001, consider as pass.\n"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("api", ["exp", "mul", "abs", "matmul", "conv2d", "test_api"])
def test_nan_and_inf_are_compared_by_position_under_every_standard(dtype: torch.dtype, api: str) -> None:
    wide = torch.complex128 if dtype.is_complex else torch.float64
    bench = ramp(50).to(wide)
    bench[3], bench[7], bench[9] = math.nan, math.inf, -math.inf
    row = compare(bench, bench.to(dtype), api)
    assert row.status is PASS
    assert "alike on both sides, and left out" in row.message
    assert row.metrics.get("inf_nan", 0) == 0
    for place, value in ((0, math.nan), (0, math.inf), (7, -math.inf), (3, 1.0), (7, 1.0), (9, math.nan)):
        device = bench.to(dtype, copy=True)
        device[place] = value
        row = compare(bench, device, api)
        assert row.status is ERROR
        assert f"inf/nan differ at 1 of {100 if dtype.is_complex else 50} positions\n" in row.message
        assert f"The first is ({place},)" in row.message
        assert row.metrics["inf_nan"] == 1 / (100 if dtype.is_complex else 50)
        assert "cosine" not in row.metrics


def test_overflow_of_the_devices_dtype_is_no_difference() -> None:
    bench = torch.tensor([1e5, -1e6, 2.0, 4.0], dtype=torch.float64)
    assert compare(bench, bench.to(torch.float16)).status is PASS
    assert compare(bench, bench.to(torch.float16).clamp(-65504, 65504)).status is ERROR


def test_a_tensor_of_the_same_nan_passes() -> None:
    row = compare(torch.full((3,), math.nan, dtype=torch.float64), torch.full((3,), math.nan))
    assert (row.status, row.message) == (PASS, "All 3 positions are inf or nan, alike on both sides.\n")
    assert row.metrics == {"balance": 0, "rmse": 0, "small_value": 0, "relative_max": 0, "relative_mean": 0}


def test_float64_and_complex_are_judged_without_figures_of_a_standard() -> None:
    bench = ramp(40)
    row = compare(bench, bench * (1 + 1e-9), "mul")
    assert set(row.metrics) == {"cosine", "error_max"}
    assert row.message.startswith(
        "The data type torch.float64 is not supported for new precision standard.\nMax abs error"
    )
    assert compare(bench, -bench).status is ERROR
    wide = torch.complex(bench, bench)
    assert compare(wide, wide.to(torch.complex64)).status is PASS
    assert compare(wide, wide.conj()).status is ERROR


def test_wider_results_can_be_judged_by_a_narrower_dtype() -> None:
    bench = ramp(2000)
    device = changed(bench, torch.float32, 2000, 1 + 2.0**-9)
    assert compare(bench, device).status is ERROR
    row = compare(bench, device, judged_as=torch.bfloat16)
    assert (row.status, row.device_dtype) == (PASS, "torch.float32")
    ulps = compare(bench, device, "matmul", judged_as=torch.bfloat16).metrics["ulp_max"]
    assert 0 < ulps < 1


def row(status: Status) -> DetailRow:
    return DetailRow("", status=status)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([ERROR, WARNING, PASS, SKIP], ERROR),
        ([WARNING, PASS, ERROR], ERROR),
        ([PASS, WARNING, SKIP], WARNING),
        ([SKIP, PASS], PASS),
        ([SKIP, SKIP], SKIP),
        ([], SKIP),
    ],
)
def test_verdict_of_a_direction(found: list[Status], expected: Status) -> None:
    assert verdict(row(status) for status in found) is expected


@pytest.mark.parametrize(
    ("value", "precision", "text"),
    [
        (0.99999997503731, 14, "0.99999997503731"),
        (0.0, 14, "0.00000000000000"),
        (0, 14, "0"),
        (1e-10, 14, "0.00000000010000"),
        (9.9e-11, 14, "9.90000000000000e-11"),
        (-2.5e-11, 14, "-2.50000000000000e-11"),
        (math.nan, 14, "nan"),
        (-math.inf, 14, "-inf"),
        (12345.678, 2, "12345.68"),
        (0.05, 2, "5.00e-02"),
        (0.25, 2, "0.25"),
        (1e-7, 10, "1.0000000000e-07"),
        (2.6, 0, "3"),
    ],
)
def test_text_of_a_figure(value: float, precision: int, text: str) -> None:
    assert format_metric(value, precision) == text


@pytest.mark.parametrize("precision", range(21))
def test_no_figure_is_written_as_zero(precision: int) -> None:
    for exponent in range(-40, 5):
        assert float(format_metric(10.0**exponent, precision)) == pytest.approx(10.0**exponent, rel=0.5)
