"""MindSpore's figures against long double, and each branch of its verdict with a near miss."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from opassay.kernels.precision.mindspore import compare_lists, compare_values, dtype_name, measure
from opassay.schemas.check_rows import Status

FLOATS = st.floats(-1e6, 1e6, width=32)


def single(*values: float) -> torch.Tensor:
    """A float32 vector."""
    return torch.tensor(values, dtype=torch.float32)


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=40), st.integers(1, 50))
def test_figures_are_those_of_long_double_whatever_the_chunk(pairs: list[tuple[float, float]], chunk: int) -> None:
    bench, tested = (torch.tensor(side, dtype=torch.float64) for side in zip(*pairs, strict=True))
    found = measure(bench, tested, chunk)
    a, t = (np.array(side, dtype=np.longdouble) for side in zip(*pairs, strict=True))
    eps = np.longdouble(1e-8)
    cosine = (eps + (a * t).sum()) / (eps + np.sqrt((a * a).sum()) * np.sqrt((t * t).sum()))
    assert found.cosine == pytest.approx(float(cosine), abs=1e-9)
    assert found.max_absolute == float(abs(a - t).max())
    relative = abs(a - t) / np.where(a == 0, eps, abs(a))
    assert found.max_relative == pytest.approx(float(relative.max()), rel=1e-14)
    assert found.scale == float(abs(a).max())


@pytest.mark.parametrize("scale", [1e-200, 1e-12, 1.0, 1e200])
def test_cosine_is_finite_at_every_scale(scale: float) -> None:
    bench = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64) * scale
    assert measure(bench, bench).cosine == pytest.approx(1.0)
    if scale >= 1.0:
        assert measure(bench, -bench).cosine == pytest.approx(-1.0)


def test_the_limits_are_those_of_the_document() -> None:
    bench = single(1.0, 2.0)
    assert compare_values(bench, bench + 0.00009).status is Status.PASS
    row = compare_values(bench, bench + 0.00011)
    assert (row.status, row.message) == (Status.ERROR, "max absolute difference is greater than threshold: 0.0001 ")
    turned = compare_values(single(1e-5, 0.0), single(0.0, 1e-5))
    assert turned.status is Status.PASS  # the constant of the cosine is larger than these products
    row = compare_values(single(1.0, 0.0), single(0.0, 1.0))
    assert row.message.startswith("cosine similarity is less than threshold: 0.99 max absolute difference")
    assert compare_values(single(1.0, 0.0), single(0.9905, 0.1375)).metrics["cosine"] > 0.99


def test_zero_tensors_agree() -> None:
    row = compare_values(torch.zeros(3), torch.zeros(3))
    assert (row.status, row.metrics) == (Status.PASS, {"cosine": 1.0, "max_absolute": 0.0, "max_relative": 0.0})


def test_nan_and_inf_agree_by_position() -> None:
    bench = single(math.nan, math.inf, -math.inf, 1.0)
    row = compare_values(bench, bench.clone())
    assert (row.status, row.metrics["max_absolute"]) == (Status.PASS, 0.0)
    for tested, absolute in (
        (single(math.nan, math.inf, math.inf, 1.0), math.inf),
        (single(math.nan, math.inf, -math.inf, math.nan), math.nan),
        (single(1.0, math.inf, -math.inf, 1.0), math.nan),
        (single(math.nan, 3e38, -math.inf, 1.0), math.inf),
    ):
        row = compare_values(bench, tested)
        assert (row.status, row.message) == (Status.ERROR, "inf/nan differ at 1 of 4 positions ")
        assert row.metrics["max_absolute"] == pytest.approx(absolute, nan_ok=True)
        assert math.isnan(row.metrics["cosine"])


def test_the_reference_is_rounded_to_the_dtype_under_test() -> None:
    bench = torch.rand(100, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 100
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        row = compare_values(bench, bench.to(dtype))
        assert (row.status, row.metrics["max_absolute"]) == (Status.PASS, 0.0)
        assert (row.bench_dtype, row.device_dtype) == ("Float64", dtype_name(dtype))
    overflow = compare_values(torch.tensor([1e5], dtype=torch.float64), torch.tensor([math.inf]).half())
    assert overflow.status is Status.PASS
    wider = compare_values(single(0.1), torch.tensor([0.1], dtype=torch.float64))
    assert wider.metrics["max_absolute"] == float(np.float32(0.1)) - 0.1  # never rounded up to more digits


def test_rounding_at_a_large_scale_is_told_and_stays_an_error() -> None:
    bench = single(2000.0, 10.0)
    near = compare_values(bench, bench + single(5 * 2.0**-14, 0.0))
    assert near.status is Status.ERROR
    assert "within 10 roundings of Float32" in near.message
    far = compare_values(bench, bench + single(20 * 2.0**-13, 0.0))
    assert (far.status, "roundings" in far.message) == (Status.ERROR, False)
    whole = compare_values(torch.tensor([1 << 40]), torch.tensor([(1 << 40) + 1]))
    assert (whole.status, "roundings" in whole.message) == (Status.ERROR, False)


def test_what_the_limits_cannot_see_is_told_and_stays_a_pass() -> None:
    blind = compare_values(single(2e-6, 0.0), single(3e-6, 0.0))
    assert (blind.status, "50.00% of it" in blind.message) == (Status.PASS, True)
    assert compare_values(single(0.02), single(0.02009)).message == ""


def test_integers_are_exact() -> None:
    big = 1 << 60
    for dtype in (torch.int64, torch.uint64):
        row = compare_values(torch.tensor([big, 1], dtype=dtype), torch.tensor([big + 1, 1], dtype=dtype))
        assert (row.status, row.metrics["max_absolute"]) == (Status.ERROR, 1.0)
    assert compare_values(torch.tensor([big]), torch.tensor([big])).status is Status.PASS
    assert compare_values(torch.tensor([True, False]), torch.tensor([True, True])).status is Status.ERROR


def test_shapes_and_types_must_be_the_same() -> None:
    row = compare_values(torch.zeros(2, 3), torch.zeros(3, 2))
    assert (row.status, row.shape) == (Status.ERROR, "(2, 3)")
    assert row.message == "shape differs: (2, 3) in the reference, (3, 2) here "
    assert row.metrics == {}
    assert compare_values(None, torch.zeros(1)).message.startswith("the types differ: NoneType")
    assert compare_values(torch.zeros(0, 3), torch.zeros(0, 3)).status is Status.PASS
    assert compare_values(torch.zeros(0, 3), torch.zeros(0, 3)).metrics == {}


@pytest.mark.parametrize(
    ("bench", "tested", "status"),
    [
        (1.0, 1.0, Status.PASS), (1.0, 1.001, Status.ERROR), (True, True, Status.PASS), (True, False, Status.ERROR),
        (1 << 70, 1 << 70, Status.PASS), (1 << 70, (1 << 70) + 1, Status.ERROR), ("a", "a", Status.PASS),
        ("a", "b", Status.ERROR), (None, None, Status.PASS), (math.nan, math.nan, Status.PASS), (None, 1, Status.ERROR),
        (True, torch.tensor(True), Status.PASS), (2.5, torch.tensor(2.0), Status.ERROR),
    ],
)  # fmt: skip
def test_plain_values_are_compared(bench: object, tested: object, status: Status) -> None:
    row = compare_values(bench, tested)
    assert (row.status, row.shape) == (status, "()")
    assert (row.message == "") == (status is Status.PASS)


def test_complex_numbers_are_compared_by_both_parts() -> None:
    bench = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex128)
    assert compare_values(bench, bench.to(torch.complex64)).status is Status.PASS
    assert compare_values(bench, bench.conj().resolve_conj()).status is Status.ERROR


def test_outputs_that_one_side_lacks_are_errors() -> None:
    rows = compare_lists([single(1.0), single(2.0)], [single(1.0)])
    assert [row.status for row in rows] == [Status.PASS, Status.ERROR]
    assert rows[1].message == "the tested side has no such output: 2 in the reference, 1 here "
    rows = compare_lists([], [single(1.0)])
    assert (rows[0].message[:13], rows[0].device_dtype) == ("the reference", "Float32")
