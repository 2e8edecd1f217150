"""Figures of every standard at their thresholds: one side counts, the other does not."""

from __future__ import annotations

import pytest
import torch
from opassay.kernels.precision.outputs import compare_tensors
from opassay.kernels.precision.standards import standard_of

THRESHOLDS = [
    # dtype, small-value limit, its absolute tolerance, relative tolerance, units in the last place
    (torch.float16, 2.0**-10, 2.0**-16, 2.0**-10, 1),
    (torch.bfloat16, 2.0**-10, 2.0**-16, 2.0**-8, 1),
    (torch.float32, 2.0**-20, 2.0**-30, 2.0**-20, 32),
]


def figures(bench: list[float], device: list[float], dtype: torch.dtype, api: str) -> dict[str, float | int]:
    """The reference is chosen freely (float64), the device's values are exact in its dtype."""
    exact = torch.tensor(device, dtype=torch.float64)
    assert torch.equal(exact.to(dtype).to(torch.float64), exact)
    return compare_tensors(torch.tensor(bench, dtype=torch.float64), exact.to(dtype), api).metrics


@pytest.mark.parametrize(("dtype", "small", "atol", "rtol", "ulps"), THRESHOLDS)
class TestDomains:
    def test_the_limit_belongs_to_the_small_values(
        self, dtype: torch.dtype, small: float, atol: float, rtol: float, ulps: int
    ) -> None:
        inside = figures([small, 8.0], [0.0, 8.0], dtype, "exp")
        assert (inside["small_value"], inside["relative_max"]) == (1.0, 0.0)
        outside = figures([small * (1 + 1e-9), 8.0], [0.0, 8.0], dtype, "exp")
        assert (outside["small_value"], outside["relative_max"]) == (0, pytest.approx(1.0))

    @pytest.mark.parametrize("api", ["exp", "mul"])
    def test_absolute_tolerance(
        self, dtype: torch.dtype, small: float, atol: float, rtol: float, ulps: int, api: str
    ) -> None:
        name = "small_value" if api == "exp" else "absolute_rate"
        assert figures([small / 2 + atol, 8.0], [small / 2, 8.0], dtype, api)[name] == 0
        assert figures([small / 2 + atol * (1 + 1e-9), 8.0], [small / 2, 8.0], dtype, api)[name] == 1

    def test_relative_tolerance(self, dtype: torch.dtype, small: float, atol: float, rtol: float, ulps: int) -> None:
        assert figures([8.0, 8 - 8 * rtol * (1 - 2 * rtol)], [8.0, 8.0], dtype, "mul")["relative_rate"] == 0
        assert figures([8.0, 8 - 8 * rtol], [8.0, 8.0], dtype, "mul")["relative_rate"] == 0.5

    def test_units_in_the_last_place(
        self, dtype: torch.dtype, small: float, atol: float, rtol: float, ulps: int
    ) -> None:
        last = torch.finfo(dtype).eps * 4  # of values from 4 to 8
        near = figures([4.0, 5.0], [4.0, 5.0 + ulps * last], dtype, "matmul")
        assert (near["ulp_max"], near["ulp_mean"], near["ulp_share"]) == (ulps, ulps / 2, 0)
        beyond = figures([4.0, 5.0], [4.0, 5.0 + (ulps + 1) * last], dtype, "matmul")
        assert (beyond["ulp_max"], beyond["ulp_share"]) == (ulps + 1, 0.5)

    def test_the_unit_at_zero_is_the_smallest_numbers(
        self, dtype: torch.dtype, small: float, atol: float, rtol: float, ulps: int
    ) -> None:
        found = figures([0.0, 4.0], [torch.finfo(dtype).tiny, 4.0], dtype, "matmul")
        assert found["ulp_max"] == 1 / torch.finfo(dtype).eps


def test_thousandth_share() -> None:
    found = figures([1.0, 1.0, 8.0, 8.0], [1.00098, 1.00102, 8.0, 8.0], torch.float64, "exp")
    assert found["thousandth"] == 0.75
    found = figures([64 - 0.0639, 64 - 0.0641], [64.0, 64.0], torch.float32, "conv2d")
    assert found["thousandth"] == 0.5


def test_binary_compares_what_the_dtype_holds() -> None:
    third = 1 / 3
    nearest = float(torch.tensor(third, dtype=torch.float16))
    assert figures([third, 1.0], [nearest, 1.0], torch.float16, "abs")["binary"] == 0
    assert figures([third, 1.0], [nearest + 2.0**-12, 1.0], torch.float16, "abs")["binary"] == 0.5
    assert figures([0.0, 1.0], [-0.0, 1.0], torch.float16, "abs")["binary"] == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_balance_compares_what_the_dtype_holds(dtype: torch.dtype) -> None:
    last = torch.finfo(dtype).eps
    assert figures([1 + last / 3, 1 + last / 3, 8.0, 8.0], [1.0, 1.0, 8.0, 8.0], dtype, "exp")["balance"] == 0
    assert figures([1.0, 1.0, 8.0, 8.0], [1 + last, 1.0, 8.0, 8.0], dtype, "exp")["balance"] == 0.25
    assert figures([1.0, 1 + last, 8.0, 8.0], [1 + last, 1.0, 8.0, 8.0], dtype, "exp")["balance"] == 0


def test_root_mean_square_leaves_small_values_out() -> None:
    found = figures([3.0, 4.0, 2.0**-24], [3.5, 4.5, 2.0**-21], torch.float32, "exp")
    assert found["rmse"] == 0.5
    assert figures([2.0**-24, 2.0**-25], [2.0**-21] * 2, torch.float32, "exp")["rmse"] == 0.0


def test_nothing_to_count_is_the_integer_zero() -> None:
    found = figures([2.0**-24, 2.0**-25], [2.0**-24, 2.0**-25], torch.float32, "exp")
    assert (found["relative_max"], found["relative_mean"]) == (0, 0)
    assert type(found["relative_max"]) is int
    assert type(figures([4.0, 8.0], [4.0, 8.0], torch.float32, "exp")["small_value"]) is int


def test_accumulative_standard_has_one_bound() -> None:
    bound = 2.0**-11
    found = figures([1.0, 4.0], [1.0 - bound, 4.0], torch.float32, "test_api")
    assert (found["absolute_rate"], found["relative_rate"], found["balance"]) == (0, 0, 0.5)
    found = figures([1.0, 4.0], [1.0 - bound * 1.5, 4.0 + 6 * bound], torch.float32, "test_api")
    assert (found["absolute_rate"], found["relative_rate"], found["balance"]) == (1, 1, 0)


@pytest.mark.parametrize("api", ["exp", "mul", "abs", "matmul", "conv2d", "test_api"])
def test_only_the_columns_of_the_standard_are_filled(api: str) -> None:
    found = figures([4.0, 8.0], [4.0, 8.0], torch.float32, api)
    assert set(found) == set(standard_of(api, torch.float32).columns) | {"cosine", "error_max"}
