"""The third table: what measuring one pair of tensors gave, and the sums it is read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl


@dataclass(slots=True)
class PairSums:
    """What one pass over a pair of tensors remembers; sums of segments add up to sums of the whole.

    Elements that are not finite on both sides enter the counters only (decision 8, 20): ``size`` counts all element pairs,
    ``finite`` those that the sums run over.

    Attributes
    ----------
    size, finite : int
        Element pairs seen; those finite on both sides.
    dot, target_sq, golden_sq, error_sq : float
        Sums of t*g, t*t, g*g and |t-g|**2 in float64 (complex: Re(t*conj(g)) and squared moduli), divided by the powers of two
        in ``target_scale`` and ``golden_scale``.
    target_scale, golden_scale, error_scale : int
        Exponents: the true sum of t*t is ``target_sq * 2**(2*target_scale)`` and so on. 0 but for float64/complex128/64-bit data
        that would overflow or underflow float64 when squared.
    error_max, relative_max, golden_abs_max : float
        Largest |t-g|, |t-g|/|g| (0/0 is 0, x/0 is inf) and |g|.
    within_thousandth, within_five_thousandth : int
        Elements with relative error below 0.001 and 0.005 (strict).
    equal_nan, equal_inf : int
        Places where both sides are nan, or the same infinity.
    nan_mismatch, inf_mismatch : int
        Places where exactly one side is nan; where an infinity meets a finite number or the other infinity.
    worst_index : int
        Flat index (C order) of the first element with the largest |t-g|; of the first mismatched non-finite place where there is
        one; -1 for no elements.
    worst_target, worst_golden : float
        The two values there (complex: moduli).
    target_abs_max : float
        Largest |t|; with ``golden_abs_max`` it says which powers of two a second, scaled pass needs.
    """

    size: int = 0
    finite: int = 0
    dot: float = 0.0
    target_sq: float = 0.0
    golden_sq: float = 0.0
    error_sq: float = 0.0
    target_scale: int = 0
    golden_scale: int = 0
    error_scale: int = 0
    error_max: float = 0.0
    relative_max: float = 0.0
    golden_abs_max: float = 0.0
    within_thousandth: int = 0
    within_five_thousandth: int = 0
    equal_nan: int = 0
    equal_inf: int = 0
    nan_mismatch: int = 0
    inf_mismatch: int = 0
    worst_index: int = -1
    worst_target: float = 0.0
    worst_golden: float = 0.0
    target_abs_max: float = 0.0


METRIC_ROWS: Final[Mapping[str, pl.DataType]] = {
    "pair": pl.UInt32(),  # row number in the pair table; one row here for every pair that was to be measured
    "state": pl.UInt8(),  # vocab.MetricState
    "reason": pl.String(),  # detail for UNREADABLE, FILE_MISSING, SHAPE ...: one sentence that names the file; else null
    "cosine": pl.Float64(),  # null where not computed; nan where undefined (one zero vector)
    "euclidean": pl.Float64(),
    "error_max": pl.Float64(),
    "relative_max": pl.Float64(),
    "thousandth": pl.Float64(),  # share of finite element pairs, 0..1; also set (0 or 1) for ONE_ELEMENT, not shown there
    "five_thousandth": pl.Float64(),
    "size": pl.UInt64(),
    "equal_nan": pl.UInt64(),
    "equal_inf": pl.UInt64(),
    "nan_mismatch": pl.UInt64(),
    "inf_mismatch": pl.UInt64(),
    "golden_abs_max": pl.Float64(),
    "worst_index": pl.Int64(),  # flat index, -1 for none
    "worst_target": pl.Float64(),
    "worst_golden": pl.Float64(),
    "within_rounding": pl.Boolean(),  # decision 18; null where it was not asked (thousandth >= 0.6)
    "target_found": pl.String(),  # dtype and shape in the file: ``torch.int32 [4]``; null where not both were opened
    "golden_found": pl.String(),
    "joined": pl.String(),  # how a tensor was put together from several files; null where it stands in one
    "bytes": pl.UInt64(),  # bytes of both tensors
}
