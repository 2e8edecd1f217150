"""The compiled pass's face: picks how the loops see each dtype; compiled once a pair of dtypes, then cached on disk."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from opassay.kernels import numba_loops as loops
from opassay.kernels.decode import float8_table, is_exact, is_float8
from opassay.kernels.pair_pass import PairPass, elements_of
from opassay.schemas.dtypes import BY_NAME, DType
from opassay.schemas.metric_rows import PairSums

_NO_TABLES: Final = {np.dtype(kind): np.zeros(1, kind) for kind in (np.float32, np.float64)}


@cache
def numba_view(dtype: DType) -> tuple[np.dtype[Any], NDArray[Any]]:
    """How the compiled loops see a dtype.

    Parameters
    ----------
    dtype : DType
        Element type.

    Returns
    -------
    stored : numpy.dtype
        What the stored bits are seen as; together with the table's dtype it names the decoder (see
        `numba_loops.opened`).
    table : ndarray of float32 or float64
        Of the dtype of the decoded numbers: 256 values of an 8-bit kind that is looked up; one unused number for others.
    """
    if is_float8(dtype):
        return np.dtype(np.uint8), float8_table(dtype.name).astype(np.float32)
    if dtype.name in ("float16", "complex32"):
        return np.dtype(np.int16), _NO_TABLES[np.dtype(np.float32)]
    if dtype.name == "bfloat16":
        return np.dtype(np.uint16), _NO_TABLES[np.dtype(np.float32)]
    stored = np.dtype(dtype.storage)
    if dtype.name == "int8":
        return stored, _NO_TABLES[np.dtype(np.float32)]
    return stored, _NO_TABLES[stored if stored.kind == "f" else np.dtype(np.float64)]


_START: Final = np.zeros(loops.PLACES)
_START[loops.WORST_INDEX] = _START[loops.ERROR_MAX] = -1.0


@cache
def _plan(target_name: str, golden_name: str) -> tuple[Any, ...]:
    target, golden = BY_NAME[target_name], BY_NAME[golden_name]
    exact = 1 if is_exact(target) and is_exact(golden) and 8 in (target.width, golden.width) else None
    parts = 2 if target.kind == "complex" else None
    return *numba_view(target), *numba_view(golden), exact, parts


class NumbaPass(PairPass):
    """The pass for real pairs, and for pairs that are complex on both sides."""

    def __init__(self, target: DType, golden: DType) -> None:
        self.target = target
        self.golden = golden
        self._plan = _plan(target.name, golden.name)
        self._state = _START.copy()
        self._fed = 0
        self._found: tuple[Any, ...] = ()  # fields of PairSums, in its order

    def feed(self, target: NDArray[Any], golden: NDArray[Any]) -> None:
        target_stored, target_table, golden_stored, golden_table, exact, parts = self._plan
        count = elements_of(target, golden, self, self._fed)
        target, golden = readable(target, target_stored), readable(golden, golden_stored)
        self._fed += count
        self._found = loops.measure(target, golden, target_table, golden_table, exact, parts, self._state)

    def result(self) -> PairSums:
        return PairSums(*self._found)


def readable(values: NDArray[Any], stored: np.dtype[Any]) -> NDArray[Any]:
    """A read-only view for compiled code, or a copy where it could not read the array in place.

    All views are read-only, so that arrays that can be written are no second type to compile for.

    Raises
    ------
    ValueError
        If its elements have another size than those of ``stored``: that many were not promised.
    """
    if values.itemsize != stored.itemsize:
        raise ValueError(f"an array of {values.dtype} came where {stored.itemsize} bytes an element were promised")
    flags = values.flags
    view = (values if flags.aligned and flags.c_contiguous else np.array(values, order="C")).view(stored)
    view.setflags(write=False)
    return view
