"""Read-outs: the six numbers of the tensor mode from the sums of one pair; no array is touched here."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from opassay.schemas.metric_rows import PairSums


@dataclass(frozen=True, slots=True)
class TensorMetrics:
    """The six metrics of one pair; nan where undefined, all None where there is nothing to compute (no elements).

    Attributes
    ----------
    cosine : float or None
        -1..1.
    euclidean, error_max : float or None
        In the tensor's own unit, 0 and up; inf where infinities differ, nan where a nan is on one side only.
    relative_max : float or None
        0 and up; inf where a golden zero is missed.
    thousandth, five_thousandth : float or None
        Share of finite element pairs, 0..1.
    """

    cosine: float | None
    euclidean: float | None
    error_max: float | None
    relative_max: float | None
    thousandth: float | None
    five_thousandth: float | None


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: what it is called, how it is defined, and how it is read from the sums.

    Attributes
    ----------
    name : str
        Field of `TensorMetrics` and column of the metric table.
    unit, formula, limits : str
        For people: the unit, the definition with its special cases, the range.
    read : callable
        From the sums of at least one finite pair to the value.
    """

    name: str
    unit: str
    formula: str
    limits: str
    read: Callable[[PairSums], float]


def _cosine(sums: PairSums) -> float:
    if sums.error_max == 0.0:
        return 1.0
    if sums.target_sq == 0.0 or sums.golden_sq == 0.0:
        return math.nan
    if not (math.isfinite(sums.dot) and math.isfinite(sums.target_sq) and math.isfinite(sums.golden_sq)):
        return math.nan
    dot, dot_exponent = math.frexp(sums.dot)
    target, target_exponent = math.frexp(sums.target_sq)
    golden, golden_exponent = math.frexp(sums.golden_sq)
    exponent = target_exponent + golden_exponent
    odd = exponent % 2  # the scales cancel; mantissas keep the product from overflow, and equal vectors at exactly 1
    value = math.ldexp(dot / math.sqrt(math.ldexp(target * golden, odd)), dot_exponent - (exponent - odd) // 2)
    return max(-1.0, min(1.0, value))


def _euclidean(sums: PairSums) -> float:
    if sums.nan_mismatch:
        return math.nan
    if sums.inf_mismatch:
        return math.inf
    return scaled_root(sums.error_sq, sums.error_scale)


def scaled_root(square_sum: float, scale: int) -> float:
    """``sqrt(square_sum) * 2**scale``; inf where float64 overflows."""
    try:
        return math.ldexp(math.sqrt(square_sum), scale)
    except OverflowError:
        return math.inf


def _error_max(sums: PairSums) -> float:
    if sums.nan_mismatch:
        return math.nan
    return math.inf if sums.inf_mismatch else sums.error_max


TENSOR_METRICS: Final = (
    Metric(
        "cosine",
        "1",
        "sum(t*g) / (|t| |g|); 1 where both are all zeros, nan where one is; complex: real part of the inner product",
        "-1..1",
        _cosine,
    ),
    Metric(
        "euclidean",
        "as the tensor",
        "sqrt(sum(|t-g|^2)); inf where infinities differ, nan where a nan is on one side only",
        "0..inf",
        _euclidean,
    ),
    Metric(
        "error_max",
        "as the tensor",
        "max |t-g|; inf where infinities differ, nan where a nan is on one side only",
        "0..inf",
        _error_max,
    ),
    Metric("relative_max", "1", "max |t-g|/|g|; 0/0 is 0, x/0 is inf", "0..inf", lambda sums: sums.relative_max),
    Metric(
        "thousandth",
        "1",
        "share of the elements finite on both sides with |t-g|/|g| < 0.001",
        "0..1",
        lambda sums: sums.within_thousandth / sums.finite,
    ),
    Metric(
        "five_thousandth",
        "1",
        "share of the elements finite on both sides with |t-g|/|g| < 0.005",
        "0..1",
        lambda sums: sums.within_five_thousandth / sums.finite,
    ),
)

_READERS: Final = tuple(metric.read for metric in TENSOR_METRICS)
_NOTHING: Final = TensorMetrics(None, None, None, None, None, None)
_EQUAL: Final = TensorMetrics(1.0, 0.0, 0.0, 0.0, 1.0, 1.0)


def read_out(sums: PairSums) -> TensorMetrics:
    """The metrics of one pair.

    Parameters
    ----------
    sums : PairSums
        Of the whole pair (merged, and scaled where `rescale` asked for it).

    Returns
    -------
    TensorMetrics
        All None for no elements. Where no element is finite on both sides: the metrics of equal tensors if every one is
        the same nan or infinity; otherwise only euclidean and error_max say something, the others are nan.
    """
    if not sums.size:
        return _NOTHING
    if not sums.finite:
        if not sums.nan_mismatch and not sums.inf_mismatch:
            return _EQUAL
        return TensorMetrics(math.nan, _euclidean(sums), _error_max(sums), math.nan, math.nan, math.nan)
    return TensorMetrics(*[read(sums) for read in _READERS])
