"""The compiled pass's face: picks how the loops see each dtype; compiled once a pair of dtypes, then cached on disk."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from opassay.kernels import numba_loops as loops
from opassay.kernels.decode import float8_table, is_exact, is_float8
from opassay.kernels.pair_pass import PairPass, elements_of
from opassay.kernels.pair_sums import BLOCK
from opassay.schemas.dtypes import BY_NAME, DType
from opassay.schemas.metric_rows import PairSums

_NO_TABLE: Final = np.zeros(1, np.float32)


@cache
def numba_view(dtype: DType) -> tuple[NDArray[Any], np.dtype[Any], NDArray[np.float32]]:
    """How the compiled loops see a dtype.

    Parameters
    ----------
    dtype : DType
        Element type.

    Returns
    -------
    like : ndarray, shape (0,)
        An array of the type that the stored bits are seen as; together with ``room`` it names the decoder (see
        `numba_loops.opened`).
    room : numpy.dtype
        Of the decoded numbers.
    table : ndarray of float32
        256 values of an 8-bit float; one unused number for others.
    """
    if is_float8(dtype):
        return np.empty(0, np.uint8), np.dtype(np.float32), float8_table(dtype.name).astype(np.float32)
    if dtype.name in ("float16", "complex32"):
        return np.empty(0, np.int16), np.dtype(np.float32), _NO_TABLE
    if dtype.name == "bfloat16":
        return np.empty(0, np.uint16), np.dtype(np.float32), _NO_TABLE
    stored = np.dtype(dtype.storage)
    return np.empty(0, stored), stored if stored.kind == "f" else np.dtype(np.float64), _NO_TABLE


_START: Final = np.zeros(loops.PLACES)
_START[loops.WORST_INDEX] = _START[loops.ERROR_MAX] = -1.0


@cache
def _plan(target_name: str, golden_name: str) -> tuple[Any, ...]:
    target, golden = BY_NAME[target_name], BY_NAME[golden_name]
    exact = is_exact(target) and is_exact(golden) and 8 in (target.width, golden.width)
    parts = 2 if target.kind == "complex" else None
    return *numba_view(target), *numba_view(golden), exact, parts


class NumbaPass(PairPass):
    """The pass for real pairs, and for pairs that are complex on both sides."""

    def __init__(self, target: DType, golden: DType) -> None:
        super().__init__(target, golden)
        (
            self._target_like,
            target_room,
            self._target_table,
            self._golden_like,
            golden_room,
            self._golden_table,
            exact,
            self._parts,
        ) = _plan(target.name, golden.name)
        room = BLOCK * (self._parts or 1)
        self._target_rooms = np.empty((2, room), target_room)
        self._golden_rooms = np.empty((2, room), golden_room)
        self._error_room = np.empty(BLOCK) if exact else None
        self._state = _START.copy()
        self._fed = 0

    def feed(self, target: NDArray[Any], golden: NDArray[Any]) -> None:
        count = elements_of(target, golden, self, self._fed)
        target, golden = readable(target, self._target_like), readable(golden, self._golden_like)
        self._fed += count
        loops.measure(
            target.ctypes.data,
            golden.ctypes.data,
            target.size,
            self._target_like,
            self._golden_like,
            self._target_rooms,
            self._golden_rooms,
            self._error_room,
            self._target_table,
            self._golden_table,
            self._parts,
            self._state,
        )

    def result(self) -> PairSums:
        state = self._state.tolist()
        sums = [state[k] + state[k + loops.RESTS] if math.isfinite(state[k]) else state[k] for k in range(loops.RESTS)]
        return PairSums(
            size=int(state[loops.SIZE]),
            finite=int(state[loops.FINITE]),
            dot=sums[loops.DOT],
            target_sq=sums[loops.TARGET_SQ],
            golden_sq=sums[loops.GOLDEN_SQ],
            error_sq=sums[loops.ERROR_SQ],
            error_max=max(0.0, state[loops.ERROR_MAX]),
            relative_max=state[loops.RELATIVE_MAX],
            golden_abs_max=state[loops.GOLDEN_MAX],
            target_abs_max=state[loops.TARGET_MAX],
            within_thousandth=int(state[loops.THOUSANDTH]),
            within_five_thousandth=int(state[loops.FIVE_THOUSANDTH]),
            equal_nan=int(state[loops.EQUAL_NAN]),
            equal_inf=int(state[loops.EQUAL_INF]),
            nan_mismatch=int(state[loops.NAN_MISMATCH]),
            inf_mismatch=int(state[loops.INF_MISMATCH]),
            worst_index=int(state[loops.WORST_INDEX]),
            worst_target=state[loops.WORST_TARGET],
            worst_golden=state[loops.WORST_GOLDEN],
        )


def readable(values: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
    """The array itself, or a copy where compiled code could not read it in place.

    Raises
    ------
    ValueError
        If its elements have another size than those of ``like``: the address would be read beyond the array.
    """
    if values.itemsize != like.itemsize:
        raise ValueError(f"an array of {values.dtype} came where {like.itemsize} bytes an element were promised")
    return values if values.flags.aligned and values.flags.c_contiguous else np.array(values, order="C")
