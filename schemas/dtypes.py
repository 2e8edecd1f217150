"""One table: every spelling of a dtype in a dump -> canonical name, bytes an element, kind, significand bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["float", "int", "uint", "bool", "complex"]


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    Attributes
    ----------
    name : str
        Canonical name, as in PyTorch without the prefix: ``bfloat16``, ``float8_e4m3fn`` ...
    width : int
        Bytes an element.
    kind : {"float", "int", "uint", "bool", "complex"}
        Family.
    digits : int
        Bits of the significand with the hidden one (IEEE 754 precision p); eps is ``2 ** (1 - digits)``. 0 where there is none.
    min_exponent : int
        Exponent of the smallest normal number (``2 ** min_exponent``); 0 where there is none.
    storage : str
        NumPy dtype string that has the same bits, little endian.
    """

    name: str
    width: int
    kind: Kind
    digits: int
    min_exponent: int
    storage: str

    @property
    def eps(self) -> float:
        """Distance from 1.0 to the next larger number; 0.0 for exact kinds."""
        return 2.0 ** (1 - self.digits) if self.digits else 0.0


_ROWS: Final = (
    DType("float64", 8, "float", 53, -1022, "<f8"),
    DType("float32", 4, "float", 24, -126, "<f4"),
    DType("float16", 2, "float", 11, -14, "<u2"),
    DType("bfloat16", 2, "float", 8, -126, "<u2"),
    DType("float8_e4m3fn", 1, "float", 4, -6, "|u1"),
    DType("float8_e4m3fnuz", 1, "float", 4, -7, "|u1"),
    DType("float8_e5m2", 1, "float", 3, -14, "|u1"),
    DType("float8_e5m2fnuz", 1, "float", 3, -15, "|u1"),
    DType("float8_e8m0fnu", 1, "float", 1, -127, "|u1"),
    DType("int64", 8, "int", 0, 0, "<i8"),
    DType("int32", 4, "int", 0, 0, "<i4"),
    DType("int16", 2, "int", 0, 0, "<i2"),
    DType("int8", 1, "int", 0, 0, "|i1"),
    DType("uint64", 8, "uint", 0, 0, "<u8"),
    DType("uint32", 4, "uint", 0, 0, "<u4"),
    DType("uint16", 2, "uint", 0, 0, "<u2"),
    DType("uint8", 1, "uint", 0, 0, "|u1"),
    DType("bool", 1, "bool", 0, 0, "|u1"),
    DType("complex128", 16, "complex", 53, -1022, "<f8"),
    DType("complex64", 8, "complex", 24, -126, "<f4"),
    DType("complex32", 4, "complex", 11, -14, "<u2"),
)

BY_NAME: Final[dict[str, DType]] = {row.name: row for row in _ROWS}

_ALIASES: Final = {
    "half": "float16", "float": "float32", "double": "float64", "bfloat": "bfloat16",
    "int": "int32", "long": "int64", "short": "int16", "byte": "uint8", "char": "int8", "bool_": "bool",
    "chalf": "complex32", "cfloat": "complex64", "cdouble": "complex128",
}  # fmt: skip

_FLOAT8: Final = {"float8e4m3fn": "float8_e4m3fn", "float8e5m2": "float8_e5m2"}
_MINDSPORE_PREFIX: Final = "mindspore."


def parse_dtype(text: str) -> DType | None:
    """The table's row for a spelling, or None.

    Parameters
    ----------
    text : str
        ``torch.float32``, ``float32``, ``Float32`` (MindSpore), ``torch.half``, ``<class 'float'>`` (gives None) ...
    """
    name = text.removeprefix("torch.").removeprefix("mindspore.").removeprefix("numpy.").lower()
    return BY_NAME.get(_ALIASES.get(name, _FLOAT8.get(name, name)))


def mindspore_dtype(text: str) -> DType | None:
    """The table's row for a spelling that only MindSpore has, or None.

    Parameters
    ----------
    text : str
        ``Float32``, ``BFloat16``, ``Bool``, ``Float8E4M3FN``, ``mindspore.float32``; None for ``torch.float32``, ``float32``.
    """
    if text.startswith(_MINDSPORE_PREFIX):
        return parse_dtype(text)
    name = text.lower()
    return BY_NAME.get(_FLOAT8.get(name, name)) if text[:1].isupper() else None
