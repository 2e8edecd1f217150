"""The compiled count of differences beyond rounding, for pairs of real floats. Imported only by `rounding`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray
from opassay.kernels.numba_loops import intrinsic, jit, opened, unlocked
from opassay.kernels.numba_pass import numba_view, readable
from opassay.kernels.pair_sums import BLOCK
from opassay.schemas.dtypes import DType


@intrinsic
def _bits(typing_context: Any, value: Any) -> Any:
    """The 64 bits of a float64, as an integer."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], context.get_value_type(types.int64))

    return types.int64(types.float64), build


@intrinsic
def _number(typing_context: Any, value: Any) -> Any:
    """The float64 with these 64 bits."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], context.get_value_type(types.float64))

    return types.float64(types.int64), build


_EXPONENT_BITS = 0x7FF0000000000000


@jit()
def _count_block(target: Any, golden: Any, smallest: float, eps: float, noise: float) -> int:
    beyond = 0
    for i in range(target.size):
        t, g = np.float64(target[i]), np.float64(golden[i])
        power = _number(_bits(g) & _EXPONENT_BITS)  # the power of two at or below |g|; 0 for subnormal numbers
        allowed = max(max(power, smallest) * eps, noise)
        same = (t == g) | ((t != t) & (g != g))
        within = (abs(t - g) <= allowed) & (abs(g) != np.inf)
        beyond += not (same | within)
    return beyond


@jit()
def _count(
    target_side: Any,
    golden_side: Any,
    target_table: Any,
    golden_table: Any,
    smallest: float,
    eps: float,
    noise: float,
) -> int:
    target, golden = unlocked(target_side), unlocked(golden_side)
    target_room, golden_room = np.empty(BLOCK, target_table.dtype), np.empty(BLOCK, golden_table.dtype)
    beyond = 0
    for start in range(0, target.size, BLOCK):
        stop = min(start + BLOCK, target.size)
        t = opened(target, target_room, target_table, start, stop)
        g = opened(golden, golden_room, golden_table, start, stop)
        beyond += _count_block(t, g, smallest, eps, noise)
    return beyond


def count_beyond(
    target_arr: NDArray[Any], golden_arr: NDArray[Any], target: DType, golden: DType, rule: DType, noise: float
) -> int:
    """Elements beyond rounding; see `rounding.beyond_rounding`.

    Parameters
    ----------
    target_arr, golden_arr : ndarray, shape (n,)
        Of the storage dtypes.
    target, golden, rule : DType
        The two sides, and the coarser of them.
    noise : float
        Differences up to this are noise.
    """
    target_stored, target_table = numba_view(target)
    golden_stored, golden_table = numba_view(golden)
    return int(
        _count(
            readable(target_arr, target_stored),
            readable(golden_arr, golden_stored),
            target_table,
            golden_table,
            2.0**rule.min_exponent,
            rule.eps,
            noise,
        )
    )
