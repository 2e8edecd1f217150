"""Finds the tensor in a ``.npy`` file: its own header reader. Pickled objects are never loaded."""

from __future__ import annotations

import ast
import re
from typing import Final

from opassay.pipeline.read.tensor_layout import MAX_ELEMENTS, Layout, Source, count_elements, lay_out
from opassay.schemas.dtypes import BY_NAME, DType

NUMPY_MAGIC: Final = b"\x93NUMPY"
_MAX_HEADER: Final = 1 << 16
_USUAL: Final = re.compile(
    rb"\{'descr': '([<>|=][A-Za-z]\d+)', 'fortran_order': (True|False), 'shape': \(((?:\d{1,19}(?:, ?|(?=\))))*)\),? *\}\s*"
)
_TYPES: Final = {
    "f8": "float64", "f4": "float32", "f2": "float16", "i8": "int64", "i4": "int32", "i2": "int16", "i1": "int8",
    "u8": "uint64", "u4": "uint32", "u2": "uint16", "u1": "uint8", "b1": "bool", "c16": "complex128", "c8": "complex64",
}  # fmt: skip
_OTHER: Final = {
    "O": "Python objects (never unpickled)",
    "U": "text",
    "S": "text",
    "a": "text",
    "M": "dates",
    "m": "time spans",
}


def parse_numpy(source: Source) -> Layout:
    """The tensor of a ``.npy`` file.

    Parameters
    ----------
    source : Source
        The file.

    Returns
    -------
    Layout
        Fortran order becomes strides.

    Raises
    ------
    TensorUnreadable
        Not a NumPy file, cut, damaged, or of a type that is no tensor of numbers.
    """
    head = source.at(0, 12)
    if not head.startswith(NUMPY_MAGIC):
        if NUMPY_MAGIC.startswith(head):
            raise source.refuse(f"cut short: {source.size} bytes, inside the header; copy or dump it again")
        raise source.refuse("not a NumPy file (its first bytes are not those of .npy)")
    wide = head[6:7] != b"\x01"
    start = 12 if wide else 10
    length = int.from_bytes(head[8:start], "little")
    if length > _MAX_HEADER:
        raise source.refuse(f"damaged: a header of {length} bytes")
    header = source.at(start, length)
    if len(head) < start or len(header) < length:
        raise source.refuse(f"cut short: {source.size} bytes, inside the header; copy or dump it again")
    descr, fortran, shape = _fields(source, header)
    dtype = _dtype(source, descr)
    strides = _strides(shape, fortran)
    swapped = descr[0] == ">" and dtype.width > 1
    begin = start + length
    stored = (source.size - begin) // dtype.width
    needed = count_elements(shape)
    if stored < needed <= MAX_ELEMENTS:
        end = begin + needed * dtype.width
        raise source.refuse(f"cut short: {source.size} bytes, the header promises {end}; copy or dump it again")
    return lay_out(source, dtype, shape, strides, begin, 0, stored, swapped)


def _fields(source: Source, header: bytes) -> tuple[str, bool, tuple[int, ...]]:
    """Type text, Fortran order and shape of a header."""
    usual = _USUAL.fullmatch(header)
    if usual is not None:
        numbers = usual[3].replace(b" ", b"").split(b",")
        return usual[1].decode(), usual[2] == b"True", tuple(int(text) for text in numbers if text)
    try:
        fields = ast.literal_eval(header.decode("utf-8").strip())
        descr, fortran, shape = fields["descr"], fields["fortran_order"], fields["shape"]
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError):
        raise source.refuse("damaged: its header cannot be read") from None
    if isinstance(descr, list):
        raise source.refuse("not a tensor: holds records with fields")
    sound = isinstance(shape, tuple) and all(type(item) is int and item >= 0 for item in shape)
    if not sound or not isinstance(descr, str) or len(descr) < 2 or not isinstance(fortran, bool):
        raise source.refuse("damaged: its header has parts of the wrong type")
    return descr, fortran, shape


def _dtype(source: Source, descr: str) -> DType:
    name = _TYPES.get(descr.lstrip("<>|="))
    if name is not None:
        return BY_NAME[name]
    letter = descr.lstrip("<>|=")[:1]
    if letter in _OTHER:
        raise source.refuse(f"not a tensor: holds {_OTHER[letter]}")
    if letter == "V":
        raise source.refuse(f"holds raw bytes ({descr[:20]}) without a number type; save it as float32 or as .pt")
    raise source.refuse(f"holds numbers of type {descr[:20]!r}, which is not supported; save it as float64")


def _strides(shape: tuple[int, ...], fortran: bool) -> tuple[int, ...]:
    """Strides in elements of a dense array."""
    strides: list[int] = []
    step = 1
    for length in shape if fortran else reversed(shape):
        strides.append(step)
        step *= length
    return tuple(strides if fortran else reversed(strides))
