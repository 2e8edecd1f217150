"""Any order of a reduction is one; a wrong element is not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from opassay.kernels.reduction import Reduction, can_reduce
from opassay.schemas.dtypes import BY_NAME

FLOATS = {"float64": np.float64, "float32": np.float32, "float16": np.float16}


def judged(op: str, dtype: str, inputs: list[np.ndarray], result: np.ndarray) -> tuple[int, int]:
    """Elements that do not fit, and the first of them."""
    reduction = Reduction(op, BY_NAME[dtype])
    for values in inputs:
        reduction.add(values.view(BY_NAME[dtype].storage))
    misfit = reduction.misfit(np.asarray(result).view(BY_NAME[dtype].storage))
    return misfit.bad, misfit.first


@st.composite
def terms(draw: st.DrawFn) -> tuple[str, np.ndarray, list[int]]:
    """A dtype, values of 2 to 9 ranks, and an order of the ranks."""
    dtype = draw(st.sampled_from(sorted(FLOATS)))
    width = np.dtype(FLOATS[dtype]).itemsize * 8
    values = draw(
        arrays.arrays(
            FLOATS[dtype],
            st.tuples(st.integers(2, 9), st.integers(1, 6)),
            elements=st.floats(-1000, 1000, width=width, allow_subnormal=False),  # type: ignore[arg-type]
        )
    )
    return dtype, values, draw(st.permutations(range(len(values))))


@given(case=terms())
def test_any_order_of_summation_is_the_sum(case: tuple[str, np.ndarray, list[int]]) -> None:
    dtype, values, order = case
    total = values[order[0]].copy()
    for rank in order[1:]:
        total = (total + values[rank]).astype(values.dtype)
    assert judged("SUM", dtype, list(values), total) == (0, 0)
    assert judged("AVG", dtype, list(values), (total / values.dtype.type(len(values))).astype(values.dtype)) == (0, 0)
    assert judged("MAX", dtype, list(values), values.max(axis=0)) == (0, 0)
    assert judged("MIN", dtype, list(values), values.min(axis=0)) == (0, 0)


@given(case=terms(), place=st.integers(0, 5))
def test_one_wrong_element_is_found(case: tuple[str, np.ndarray, list[int]], place: int) -> None:
    dtype, values, _ = case
    place %= values.shape[1]
    total = values.astype(np.float64).sum(axis=0)
    size = np.abs(values.astype(np.float64)).sum(axis=0)[place]
    total[place] += max(0.02 * size, 1e-3) * len(values)
    assert judged("SUM", dtype, list(values), total.astype(values.dtype)) == (1, place)


def test_what_is_no_rounding_is_found_at_the_edge() -> None:
    ones = [np.ones(3, np.float32)] * 4
    eps = BY_NAME["float32"].eps
    within, beyond = np.float32(4 * (1 + 4 * eps)), np.float32(4 * (1 + 8 * eps))
    assert judged("SUM", "float32", ones, np.array([4, within, 4], np.float32)) == (0, 0)
    assert judged("SUM", "float32", ones, np.array([4, 4, beyond], np.float32)) == (1, 2)


def test_nan_and_infinity_come_from_inputs_or_from_overflow_only() -> None:
    big, nan, inf = 60000.0, np.nan, np.inf
    inputs = [np.array([1, nan, inf, big], np.float16), np.array([1, 1, 1, big], np.float16)]
    assert judged("SUM", "float16", inputs, np.array([2, nan, inf, inf], np.float16)) == (0, 0)
    assert judged("SUM", "float16", inputs, np.array([nan, nan, inf, inf], np.float16)) == (1, 0)
    assert judged("SUM", "float16", inputs, np.array([inf, nan, inf, inf], np.float16)) == (1, 0)
    assert judged("SUM", "float16", inputs, np.array([2, 1, inf, inf], np.float16)) == (1, 1)
    assert judged("SUM", "float16", inputs, np.array([2, nan, -inf, inf], np.float16)) == (1, 2)
    assert judged("MAX", "float16", inputs, np.array([nan, nan, inf, big], np.float16)) == (1, 0)


def test_integers_are_exact_and_wrap() -> None:
    inputs = [np.array([200, 3], np.uint8), np.array([100, 5], np.uint8)]
    assert judged("SUM", "uint8", inputs, np.array([44, 8], np.uint8)) == (0, 0)
    assert judged("SUM", "uint8", inputs, np.array([44, 9], np.uint8)) == (1, 1)
    assert judged("BXOR", "uint8", inputs, np.array([200 ^ 100, 6], np.uint8)) == (0, 0)
    flags = [np.array([True, False]), np.array([True, False])]
    assert judged("SUM", "bool", flags, np.array([True, False])) == (0, 0)
    assert judged("SUM", "bool", flags, np.array([True, True])) == (1, 1)


def test_complex_elements_are_counted_whole() -> None:
    inputs = [np.array([1 + 1j, 2j], np.complex64)] * 2
    assert judged("SUM", "complex64", inputs, np.array([2 + 2j, 4j], np.complex64)) == (0, 0)
    assert judged("SUM", "complex64", inputs, np.array([2 + 2j, 5j], np.complex64)) == (1, 1)


@pytest.mark.parametrize(
    ("op", "dtype", "answer"),
    [("SUM", "bfloat16", True), ("AVG", "int64", False), ("PREMUL_SUM", "float32", False), ("BOR", "float32", False),
     ("PRODUCT", "complex64", False), ("BOR", "int32", True)],
)  # fmt: skip
def test_which_reductions_can_be_verified(op: str, dtype: str, answer: bool) -> None:
    assert can_reduce(op, BY_NAME[dtype]) is answer
