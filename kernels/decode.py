"""Stored bits -> numbers: exact float64 values of every dtype, and the tables of the 8-bit floats."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from opassay.schemas.dtypes import DType


class _Float8(NamedTuple):
    mantissa_bits: int
    bias: int
    codes: str  # "ieee": inf and nan in the top exponent; "fn": nan in the last code; "fnuz": nan is minus zero's code


_FLOAT8: Final = {
    "float8_e4m3fn": _Float8(3, 7, "fn"),
    "float8_e4m3fnuz": _Float8(3, 8, "fnuz"),
    "float8_e5m2": _Float8(2, 15, "ieee"),
    "float8_e5m2fnuz": _Float8(2, 16, "fnuz"),
}


def _float8_value(code: int, layout: _Float8) -> float:
    mantissa = code & ((1 << layout.mantissa_bits) - 1)
    exponent = (code & 0x7F) >> layout.mantissa_bits
    top = 0x7F >> layout.mantissa_bits
    sign = -1.0 if code & 0x80 else 1.0
    if layout.codes == "fnuz" and code == 0x80:
        return float("nan")
    if layout.codes == "fn" and code & 0x7F == 0x7F:
        return float("nan")
    if layout.codes == "ieee" and exponent == top:
        return float("nan") if mantissa else sign * float("inf")
    significand = mantissa + ((1 << layout.mantissa_bits) if exponent else 0)
    return sign * significand * 2.0 ** (max(exponent, 1) - layout.bias - layout.mantissa_bits)


@cache
def float8_table(name: str) -> NDArray[np.float64]:
    """The 256 values of an 8-bit float, by code.

    Parameters
    ----------
    name : str
        Canonical dtype name, such as ``float8_e4m3fn``.

    Returns
    -------
    ndarray of float64, shape (256,)
        Read-only; every value is exact in float32 too.

    Raises
    ------
    KeyError
        If ``name`` is not an 8-bit float.
    """
    if name == "float8_e8m0fnu":
        table = np.ldexp(1.0, np.arange(256) - 127)
        table[255] = np.nan
    else:
        layout = _FLOAT8[name]
        table = np.array([_float8_value(code, layout) for code in range(256)])
    table.flags.writeable = False
    return table


def is_exact(dtype: DType) -> bool:
    """Whether the dtype holds integers (bool too), which are compared without rounding."""
    return dtype.kind in ("int", "uint", "bool")


def is_float8(dtype: DType) -> bool:
    """Whether the dtype is one of the 8-bit floats."""
    return dtype.width == 1 and dtype.kind == "float"


def to_float64(stored: NDArray[Any], dtype: DType) -> NDArray[np.float64]:
    """Values of a 1-D array of stored bits.

    Parameters
    ----------
    stored : ndarray, shape (n,) or (2n,) for complex
        Of ``dtype.storage``; may be read-only and unaligned.
    dtype : DType
        What the bits mean.

    Returns
    -------
    ndarray of float64, same shape
        A new array (or the input itself for aligned float64). Exact but for integers above 2**53.
    """
    with np.errstate(invalid="ignore"):  # a signalling nan is just a nan
        return _decoded(stored, dtype)


def _decoded(stored: NDArray[Any], dtype: DType) -> NDArray[np.float64]:
    if is_float8(dtype):
        return np.asarray(float8_table(dtype.name)[stored])
    if dtype.name == "bfloat16":
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if dtype.name in ("float16", "complex32"):
        return np.asarray(_half_table()[stored])
    if stored.dtype == np.float64 and stored.flags.aligned:
        return stored
    return stored.astype(np.float64)


@cache
def _half_table() -> NDArray[np.float64]:
    """All 65536 halves: a look-up is ten times quicker than NumPy's own conversion."""
    table = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    table.flags.writeable = False
    return table
