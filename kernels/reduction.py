"""Is a result the reduction of these inputs? Any order of summation is allowed, and the rounding it brings; no more."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from opassay.kernels.decode import is_exact, to_float64
from opassay.schemas.dtypes import DType

FLOAT_OPS: Final = ("SUM", "AVG", "PRODUCT", "MAX", "MIN")
EXACT_OPS: Final = ("SUM", "PRODUCT", "MAX", "MIN", "BAND", "BOR", "BXOR")

_EXACT: Final[dict[str, np.ufunc]] = {
    "SUM": np.add, "PRODUCT": np.multiply, "MAX": np.maximum, "MIN": np.minimum,
    "BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor,
}  # fmt: skip
_BOOL: Final[dict[str, np.ufunc]] = {**_EXACT, "SUM": np.logical_or, "PRODUCT": np.logical_and}


class Misfit(NamedTuple):
    """What does not fit in a run of elements.

    ``bad`` elements are further from the reduction than rounding explains; ``first`` is the place of the first of them (in
    elements of the run), ``found`` what stands there and ``due`` what should.
    """

    bad: int
    first: int
    found: float
    due: float


def can_reduce(op: str, dtype: DType) -> bool:
    """Whether the reduction of this op and element type can be verified."""
    return op in (EXACT_OPS if is_exact(dtype) else FLOAT_OPS) and not (dtype.kind == "complex" and op != "SUM")


class Reduction:
    """Takes the inputs of a reduction one by one, then judges results.

    Parameters
    ----------
    op : str
        ``SUM``, ``AVG`` ... (see ``can_reduce``).
    dtype : DType
        Element type of inputs and results.

    Notes
    -----
    A sum of n terms x, in whatever order and rounded after each step, lies within (n - 1) u sum|x| of the exact sum, u being
    half the distance from 1 to the next number (to first order). Twice that and two more steps are allowed (averages divide,
    before or after). Integers are exact, modulo their width.
    """

    def __init__(self, op: str, dtype: DType) -> None:
        self._op = op
        self._dtype = dtype
        self._count = 0
        self._total: NDArray[Any] = np.empty(0)
        self._size: NDArray[np.float64] = np.empty(0)
        self._nan: NDArray[np.bool_] = np.empty(0, bool)

    def add(self, stored: NDArray[Any]) -> None:
        """Take one input.

        Parameters
        ----------
        stored : ndarray, shape (n,), or (2n,) for complex
            Of ``dtype.storage``; the same n each time.
        """
        first = self._count == 0
        self._count += 1
        if is_exact(self._dtype):
            table = _BOOL if self._dtype.kind == "bool" else _EXACT
            with np.errstate(over="ignore"):
                self._total = stored.copy() if first else table[self._op](self._total, stored).astype(stored.dtype)
            return
        values = to_float64(stored, self._dtype)
        if first:
            self._total, self._size, self._nan = values.copy(), np.abs(values), np.isnan(values)
            return
        with np.errstate(all="ignore"):
            self._nan |= np.isnan(values)
            self._size += np.abs(values)
            if self._op in ("SUM", "AVG"):
                self._total += values
            elif self._op == "PRODUCT":
                self._total *= values
            else:
                self._total = (np.fmax if self._op == "MAX" else np.fmin)(self._total, values)

    def misfit(self, stored: NDArray[Any]) -> Misfit:
        """Judge a result against the inputs taken so far.

        Parameters
        ----------
        stored : ndarray, shape as the inputs'
            Of ``dtype.storage``.
        """
        if is_exact(self._dtype):
            found, due = stored, self._total
            bad = found != due
        else:
            found = to_float64(stored, self._dtype)
            with np.errstate(all="ignore"):
                due = self._total / self._count if self._op == "AVG" else self._total
                bad = self._too_far(found, due)
        count = int(np.count_nonzero(bad))
        if not count:
            return Misfit(0, 0, 0.0, 0.0)
        place = int(np.argmax(bad))
        parts = 2 if self._dtype.kind == "complex" else 1
        return Misfit(count, place // parts, float(found[place]), float(due[place]))

    def _too_far(self, found: NDArray[np.float64], due: NDArray[np.float64]) -> NDArray[np.bool_]:
        dtype, count = self._dtype, self._count
        smallest = 2.0 ** (dtype.min_exponent - dtype.digits + 1)
        if self._op in ("MAX", "MIN"):
            bad = ~((found == due) | self._nan)  # libraries differ in whether a nan wins
            return np.asarray(bad | (np.isnan(found) & ~self._nan))
        scale = np.abs(due) if self._op == "PRODUCT" else self._size / (count if self._op == "AVG" else 1)
        allowed = (count + 1) * dtype.eps * scale + count * smallest
        finite = np.isfinite(found) & np.isfinite(due)
        same = np.where(finite, np.abs(found - due) <= allowed, (found == due) | (np.isnan(found) & np.isnan(due)))
        largest = (2.0 - dtype.eps) * 2.0 ** (1 - dtype.min_exponent)
        # a partial sum that overflows may come out as an infinity, or as nan where two of them meet
        overflow = (
            np.isfinite(self._size) & ((scale if self._op == "PRODUCT" else self._size) > largest) & ~np.isfinite(found)
        )
        return np.asarray(~(same | overflow))
