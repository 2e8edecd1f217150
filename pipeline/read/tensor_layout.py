"""Where the elements of a tensor lie in its file, and the errors of tensor files. Reads nothing itself."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from opassay.schemas.dtypes import DType
from opassay.schemas.errors import OpassayError

MAX_ELEMENTS: Final = 1 << 46  # beyond any file system; a larger view is damage or an expansion made to keep us busy
_MAX_EXPANDED: Final = 1 << 31  # elements of a view that shows those of its storage over and over
_MAX_REPEATS: Final = 64  # times, on average, that a larger view may show an element
_MAX_INTEGER: Final = 1 << 63
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|.)")


class TensorUnreadable(OpassayError):
    """A tensor file cannot be read; the message is one line that starts with the file's name.

    Not raised for a tensor that can be read but not compared (empty, other shape): that is the pair's state.
    """


class TensorMissing(TensorUnreadable):
    """The tensor file does not exist."""


class Unusual(Exception):
    """A torch file this package does not read by itself; torch may (sparse, quantised, compressed members ...)."""


def shown(name: str) -> str:
    """A file name fit for one line of a message: odd characters escaped, the middle of a very long one left out."""
    text = name if name.isprintable() else ascii(name)[1:-1]
    return text if len(text) <= 300 else f"{text[:180]}...{text[-80:]}"


def file_name(path: str) -> str:
    """The last part of a path, as messages show it."""
    return shown(path.rpartition("/")[2])


def one_line(text: str, most: int = 200) -> str:
    """Text from a file or a library, fit for a message: one line, no control characters, at most ``most`` long."""
    head = _ESCAPES.sub("", text[: 4 * most])
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in head).split())
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 3]}..."


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape as messages show it: ``[2, 3]``; of very many dimensions only the first."""
    return str(list(shape)) if len(shape) <= 16 else f"{str(list(shape[:8]))[:-1]}, ... {len(shape)} dimensions]"


class Source:
    """An open file: its size, its first bytes, and a way to fetch more.

    Parameters
    ----------
    descriptor : int
        Open for reading; not closed here.
    path : str
        The file; messages call it by its last part.
    size : int
        Bytes of the file.
    head : bytes
        The first bytes; the whole of a small file.
    """

    __slots__ = ("descriptor", "head", "path", "size")

    def __init__(self, descriptor: int, path: str, size: int, head: bytes) -> None:
        self.descriptor = descriptor
        self.path = path
        self.size = size
        self.head = head

    def at(self, offset: int, count: int) -> bytes:
        """``count`` bytes from ``offset``; fewer where the file ends sooner."""
        if offset < 0:
            return b""
        if offset + count <= len(self.head) or len(self.head) >= self.size:
            return self.head[offset : offset + count]
        return os.pread(self.descriptor, count, offset)

    def refuse(self, why: str) -> TensorUnreadable:
        """The error for this file."""
        return TensorUnreadable(f"{file_name(self.path)}: {one_line(why, 600)}")


@dataclass(frozen=True, slots=True)
class Layout:
    """The place of every element.

    Attributes
    ----------
    dtype : DType
        Element type.
    shape : tuple of int
        Lengths of the dimensions; ``()`` for a 0-d tensor.
    strides : tuple of int or None
        Elements between neighbours of each dimension; None where the elements lie one after the other in C order.
    offset : int
        Byte of the file where the first element starts.
    swapped : bool
        Big endian.
    held : int
        Elements of the file that the view covers; fewer than it has where it shows some more than once.
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    offset: int
    swapped: bool
    held: int


def count_elements(shape: tuple[int, ...]) -> int:
    """Product of the lengths; 1 for ``()``; any number beyond ``MAX_ELEMENTS`` where the product is."""
    if 0 in shape:
        return 0
    size = 1
    for length in shape:
        size *= length
        if size > MAX_ELEMENTS:
            break
    return size


def lay_out(
    source: Source,
    dtype: DType,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    start: int,
    first: int,
    stored: int,
    swapped: bool,
) -> Layout:
    """Check a view of a storage against the storage and the file.

    Parameters
    ----------
    source : Source
        The file.
    dtype, shape, strides : DType, tuple of int, tuple of int
        The view; strides in elements.
    start : int
        Byte of the file where the storage starts.
    first : int
        Element of the storage where the view starts.
    stored : int
        Elements the file says the storage has.
    swapped : bool
        Big endian.

    Raises
    ------
    TensorUnreadable
        If the view leaves its storage, the storage leaves the file, or the size is beyond reason.
    """
    if max(*shape, *strides, first, stored, 0, 0) >= _MAX_INTEGER:
        raise source.refuse("damaged: its shape or strides have a number of more than 64 bits")
    size = count_elements(shape)
    if size > MAX_ELEMENTS:
        raise source.refuse(
            f"shape {shape_text(shape)} has more elements than any file can mean; the header is damaged"
        )
    contiguous = True
    step = 1
    last = first
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != step:
            contiguous = False
        step *= length
        last += (length - 1) * stride
    offset = start + first * dtype.width
    if size == 0:
        return Layout(dtype, shape, None, 0, swapped, 0)
    if last >= stored:
        raise source.refuse(
            f"the tensor needs {last + 1} elements of its storage, which has {stored}; the file is damaged"
        )
    end = start + (last + 1) * dtype.width
    if end > source.size:
        raise source.refuse(
            f"cut short: {source.size} bytes, the tensor's data ends at byte {end}; copy or dump it again"
        )
    if size > _MAX_EXPANDED and size > _MAX_REPEATS * stored:
        raise source.refuse(
            f"shape {shape_text(shape)} shows the {stored} elements of its storage over and over ({size} in all), "
            "which would take hours to measure; dump the tensor before it is expanded"
        )
    held = min(size, last + 1 - first)
    return Layout(dtype, shape, None if contiguous else strides, offset, swapped, held)


Parser = Callable[[Source], Layout]
