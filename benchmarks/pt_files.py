"""Writes a tensor the way torch.save lays it out (a stored zip with a small pickle), without torch."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64
STORAGES = {
    "bfloat16": "BFloat16Storage",
    "float16": "HalfStorage",
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "bool": "BoolStorage",
}
_LOCAL_HEADER_BYTES = 30
_PAD_HEADER_BYTES = 4
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_pt(path: Path, data: npt.NDArray[Any], dtype: str, shape: tuple[int, ...]) -> None:
    """Write one contiguous tensor.

    Parameters
    ----------
    path : Path
        The file; replaced if it exists.
    data : ndarray
        The elements in row-major order, in the stored width (bfloat16 as uint16 bits).
    dtype : str
        A key of `STORAGES`.
    shape : tuple of int
        Shape of the tensor; ``()`` for a scalar.

    Raises
    ------
    ValueError
        If `data` does not hold as many elements as `shape` says.
    """
    size = int(np.prod(shape, dtype=np.int64))
    if data.size != size:
        raise ValueError(f"{path}: {data.size} elements do not fill shape {shape}")
    stem = path.stem
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        _member(archive, f"{stem}/data.pkl", _pickle(dtype, shape, size))
        _member(archive, f"{stem}/byteorder", b"little")
        _member(archive, f"{stem}/data/0", np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)
        _member(archive, f"{stem}/version", b"3\n")


def _member(archive: zipfile.ZipFile, name: str, payload: bytes | memoryview) -> None:
    """Store one member, padded by an extra field so that its bytes start at a multiple of `ALIGNMENT`."""
    entry = zipfile.ZipInfo(name, _EPOCH)
    assert archive.fp is not None
    start = archive.fp.tell() + _LOCAL_HEADER_BYTES + len(name.encode()) + _PAD_HEADER_BYTES
    pad = -start % ALIGNMENT
    entry.extra = b"FB" + struct.pack("<H", pad) + b"Z" * pad
    archive.writestr(entry, payload)


def _pickle(dtype: str, shape: tuple[int, ...], size: int) -> bytes:
    """Return the program that rebuilds the tensor: protocol 2, one storage, offset 0, row-major strides."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    storage = (
        b"(" + _text("storage") + f"ctorch\n{STORAGES[dtype]}\n".encode() + _text("0") + _text("cpu") + _integer(size)
    )
    return b"".join(
        (
            b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(",
            storage + b"tQ",
            _integer(0) + _integers(shape) + _integers(tuple(reversed(strides))),
            b"\x89ccollections\nOrderedDict\n)RtR.",
        )
    )


def _text(word: str) -> bytes:
    return b"X" + struct.pack("<I", len(word)) + word.encode()


def _integer(value: int) -> bytes:
    return b"J" + struct.pack("<i", value) if value < 1 << 31 else b"\x8a\x08" + struct.pack("<q", value)


def _integers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(_integer(value) for value in values) + b"t"
