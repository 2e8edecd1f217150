"""Sums of consecutive segments become sums of the whole pair; says when a second, scaled pass is needed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from opassay.schemas.metric_rows import PairSums

BLOCK: Final = 4096
"""Elements that are summed together before they meet the running sums; fits the first-level cache."""

SEGMENT: Final = 1 << 22
"""Elements of one unit of work. Fixed, so that the answer never depends on workers or windows."""

_SMALLEST_SAFE: Final = 2.0**-480  # squares of smaller numbers lose bits to float64's underflow
_SCALE_LIMIT: Final = 1000  # 2.0**1000 and 2.0**-1000 are both ordinary float64 numbers


def exact_sum(values: Iterable[float]) -> float:
    """Correctly rounded sum that does not raise: inf where float64 overflows, nan for inf - inf."""
    listed = list(values)
    try:
        return math.fsum(listed)
    except (OverflowError, ValueError):
        return sum(listed)


def _common_scale(parts: Sequence[tuple[float, int]]) -> int:
    """The scale of the part that holds the largest true value; ``(sum of squares, scale)`` each."""
    scales = {scale for value, scale in parts if value}
    if len(scales) < 2:
        return next(iter(scales), parts[0][1])
    return max((math.frexp(value)[1] + 2 * scale, scale) for value, scale in parts if value)[1]


def _ldexp(value: float, exponent: int) -> float:
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)


def merge(parts: Sequence[PairSums], offsets: Sequence[int]) -> PairSums:
    """Sums of the whole from the sums of its consecutive segments.

    Parameters
    ----------
    parts : sequence of PairSums
        In the order of the segments; scales may differ between them.
    offsets : sequence of int
        Flat index (elements) at which each part starts; added to its ``worst_index``.

    Returns
    -------
    PairSums
        The same bytes for the same parts, whoever measured them. Without parts: the sums of an empty pair.

    Raises
    ------
    ValueError
        If the two sequences differ in length.
    """
    if len(parts) != len(offsets):
        raise ValueError(f"merge got {len(parts)} parts but {len(offsets)} offsets")
    if not parts:
        return PairSums()
    target_scale = _common_scale([(p.target_sq, p.target_scale) for p in parts])
    golden_scale = _common_scale([(p.golden_sq, p.golden_scale) for p in parts])
    error_scale = _common_scale([(p.error_sq, p.error_scale) for p in parts])
    whole = PairSums(
        dot=exact_sum(_ldexp(p.dot, p.target_scale + p.golden_scale - target_scale - golden_scale) for p in parts),
        target_sq=exact_sum(_ldexp(p.target_sq, 2 * (p.target_scale - target_scale)) for p in parts),
        golden_sq=exact_sum(_ldexp(p.golden_sq, 2 * (p.golden_scale - golden_scale)) for p in parts),
        error_sq=exact_sum(_ldexp(p.error_sq, 2 * (p.error_scale - error_scale)) for p in parts),
        target_scale=target_scale,
        golden_scale=golden_scale,
        error_scale=error_scale,
    )
    for part, offset in zip(parts, offsets, strict=True):
        if _is_worse(part, whole):
            whole.worst_index = part.worst_index + offset
            whole.worst_target = part.worst_target
            whole.worst_golden = part.worst_golden
        whole.size += part.size
        whole.finite += part.finite
        whole.error_max = max(whole.error_max, part.error_max)
        whole.relative_max = max(whole.relative_max, part.relative_max)
        whole.golden_abs_max = max(whole.golden_abs_max, part.golden_abs_max)
        whole.target_abs_max = max(whole.target_abs_max, part.target_abs_max)
        whole.within_thousandth += part.within_thousandth
        whole.within_five_thousandth += part.within_five_thousandth
        whole.equal_nan += part.equal_nan
        whole.equal_inf += part.equal_inf
        whole.nan_mismatch += part.nan_mismatch
        whole.inf_mismatch += part.inf_mismatch
    return whole


def _is_worse(part: PairSums, whole: PairSums) -> bool:
    """Whether the worst element of ``part`` replaces that of all the parts before it."""
    if part.worst_index < 0 or whole.nan_mismatch + whole.inf_mismatch:
        return False
    if part.nan_mismatch + part.inf_mismatch or whole.worst_index < 0:
        return True
    return part.error_max > whole.error_max


def rescale(sums: PairSums) -> tuple[int, int, int] | None:
    """The powers of two that a second pass must divide by, or None where the first pass is good.

    Only float64 and complex128 data can need it: squares above 1e308 or below 1e-308. All segments of a pair must be
    measured again with the scales of the merged sums.

    Parameters
    ----------
    sums : PairSums
        Sums of the whole pair (merged), from a pass without scales.

    Returns
    -------
    tuple of int or None
        Exponents for target, golden and error, each in -1000..1000; None for sums that are good or scaled already.
    """
    if sums.target_scale or sums.golden_scale or sums.error_scale:
        return None
    sides = (
        (sums.target_sq, sums.target_abs_max),
        (sums.golden_sq, sums.golden_abs_max),
        (sums.error_sq, sums.error_max),
    )
    if not any(not math.isfinite(square) or 0.0 < largest < _SMALLEST_SAFE for square, largest in sides):
        return None
    target, golden, error = (_exponent(largest) for _, largest in sides)
    return target, golden, error


def _exponent(largest: float) -> int:
    if math.isinf(largest):
        return _SCALE_LIMIT
    return max(-_SCALE_LIMIT, min(_SCALE_LIMIT, math.frexp(largest)[1]))


def needs_scaling(sums: PairSums) -> bool:
    """Whether squares overflowed or underflowed float64, so that the pair needs a second pass (see `rescale`)."""
    return rescale(sums) is not None
