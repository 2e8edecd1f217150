"""Is a difference more than rounding? Counts elements beyond one unit in the last place, and beyond the noise floor."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from opassay.kernels.decode import is_exact
from opassay.kernels.numpy_pass import OpenPair, find_nonfinite, open_pair
from opassay.kernels.pair_sums import BLOCK
from opassay.kernels.tensor_metrics import scaled_root
from opassay.schemas.dtypes import DType
from opassay.schemas.metric_rows import PairSums


def coarser(target: DType, golden: DType) -> DType:
    """The dtype with fewer significand bits; integers are exact, so a float beside them is the coarser."""
    if is_exact(golden) or (not is_exact(target) and target.digits < golden.digits):
        return target
    return golden


def noise_floor(sums: PairSums, target: DType, golden: DType) -> float:
    """Size of a difference that is noise around exact zeros: the coarser dtype's eps times golden's root mean square.

    Parameters
    ----------
    sums : PairSums
        Of the whole pair.
    target, golden : DType
        The two sides' element types.

    Returns
    -------
    float
        In the tensor's own unit; 0.0 where both sides are integers or nothing is finite.
    """
    if not sums.finite:
        return 0.0
    return coarser(target, golden).eps * scaled_root(sums.golden_sq / sums.finite, sums.golden_scale)


def last_place(values: NDArray[np.float64], dtype: DType) -> NDArray[np.float64]:
    """One unit in the last place of ``dtype`` at each magnitude; 0.0 for integers. Finite values only."""
    if not dtype.digits:
        return np.zeros(values.shape)
    _, exponents = np.frexp(values)
    exponents = np.where(values == 0.0, dtype.min_exponent, exponents - 1)
    return np.asarray(np.ldexp(1.0, np.maximum(exponents, dtype.min_exponent) - (dtype.digits - 1)))


def beyond_rounding(
    target_arr: NDArray[Any],
    golden_arr: NDArray[Any],
    target: DType,
    golden: DType,
    noise: float,
    engine: str = "auto",
) -> int:
    """Elements that differ by more than rounding explains.

    Parameters
    ----------
    target_arr, golden_arr : ndarray, shape (n,), or (2n,) for complex
        Of the storage dtypes, as for `PairPass.feed`.
    target, golden : DType
        What the bits mean.
    noise : float
        Differences up to this are noise (see `noise_floor`).
    engine : {"auto", "numba", "numpy"}
        ``auto`` takes numba for real floats where it can be imported, else numpy.

    Returns
    -------
    int
        Count of |t-g| above both one unit in the last place of the coarser dtype at golden's element and ``noise``; any
        difference of two integers counts, and so does a nan or an infinity that the other side does not share.
    """
    real_floats = target.kind == golden.kind == "float"
    if engine != "numpy" and real_floats:
        try:
            from opassay.kernels.numba_rounding import count_beyond
        except ImportError:
            if engine == "numba":
                raise
        else:
            return count_beyond(target_arr, golden_arr, target, golden, coarser(target, golden), noise)
    target_parts = 2 if target.kind == "complex" else 1
    golden_parts = 2 if golden.kind == "complex" else 1
    rule = coarser(target, golden)
    beyond = 0
    for start in range(0, golden_arr.size // golden_parts, 16 * BLOCK):
        stop = start + 16 * BLOCK
        beyond += _count(
            open_pair(
                target_arr[start * target_parts : stop * target_parts],
                golden_arr[start * golden_parts : stop * golden_parts],
                target,
                golden,
            ),
            rule,
            noise,
        )
    return beyond


def _count(pair: OpenPair, rule: DType, noise: float) -> int:
    odd = find_nonfinite(pair)
    good = ~odd.bad
    error, size = pair.error[good], pair.golden_abs[good]
    allowed = np.maximum(last_place(size, rule), noise)
    mismatched = int(np.count_nonzero(odd.nan_mismatch)) + int(np.count_nonzero(odd.inf_mismatch))
    return int(np.count_nonzero(error > allowed)) + mismatched
