"""Opens one tensor file and hands its elements out in runs, mapped or read into a reused buffer.

Stands between the dump tables (which name the file) and ``pipeline.measure``. It never runs code of a file.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import stat
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from opassay.pipeline.read.numpy_file import parse_numpy
from opassay.pipeline.read.tensor_layout import (
    Layout,
    Source,
    TensorMissing,
    TensorUnreadable,
    Unusual,
    count_elements,
    file_name,
    one_line,
    shape_text,
    shown,
)
from opassay.pipeline.read.torch_alike import known_layout
from opassay.pipeline.read.torch_fallback import load_by_torch
from opassay.pipeline.read.torch_zip import LEGACY_MAGIC, ZIP_MAGIC, parse_legacy, parse_zip
from opassay.schemas.dtypes import BY_NAME, DType

__all__ = ["PageBuffer", "TensorFile", "TensorMissing", "TensorUnreadable", "choose_io", "open_tensor", "tensor_path"]

_LINE: Final = 64  # bytes read around an element that stands alone
HEAD_BYTES: Final = 1 << 16  # read at once when a file is opened; the whole of a small file
_GATHER: Final = {1: "|u1", 2: "<u2", 4: "<u4", 8: "<u8", 16: "<c16"}  # types that move an element's bits as they are
_STORAGE_TYPES: Final = {row.storage: np.dtype(row.storage) for row in BY_NAME.values()}
_NETWORK: Final = (
    "nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "fuse", "9p", "gluster", "afs", "pvfs", "orangefs", "dpc",
    "virtiofs",
)  # fmt: skip


class PageBuffer:
    """A page-aligned buffer, used again; ``preadv`` into it is several times faster than into odd addresses."""

    __slots__ = ("_memory",)

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None

    def take(self, count: int) -> memoryview:
        """A view of ``count`` bytes; it shares memory with every view taken before."""
        if self._memory is None or len(self._memory) < count:
            pages = -(-count // mmap.PAGESIZE)
            self._memory = mmap.mmap(-1, max(pages, 1) * mmap.PAGESIZE)
        return memoryview(self._memory)[:count]


class TensorFile:
    """One tensor in a file.

    Made by :func:`open_tensor`; close it, or use it in a ``with`` statement.

    Attributes
    ----------
    dtype : DType
        Element type.
    shape : tuple of int
        Shape; ``()`` for 0-d.
    size, nbytes : int
        Elements; bytes of those that the file holds (fewer where the tensor shows some more than once).
    side : str
        What messages say before the file's name: ``"target file "``; set by the caller.
    found : str
        Element type and shape as the file has them: ``torch.int32 [4]``; for quantised tensors the quantised type.
    whole : bool
        The elements are in memory already (small file, or read by torch): splitting the work would read them again.
    """

    __slots__ = ("_descriptor", "_file_size", "_head", "_kept", "_layout", "_loaded", "_map", "_mapped", "_path",
                 "_storage", "_touched", "dtype", "nbytes", "shape", "side", "size")  # fmt: skip

    def __init__(self, path: str, layout: Layout, descriptor: int, file_size: int, head: bytes, mapped: bool) -> None:
        self.dtype: DType = layout.dtype
        self.shape: tuple[int, ...] = layout.shape
        self.size: int = count_elements(layout.shape)
        self.nbytes: int = layout.held * layout.dtype.width
        self.side: str = ""
        self._kept: str = layout.dtype.name
        self._path = path
        self._layout = layout
        self._storage = _STORAGE_TYPES[layout.dtype.storage]
        self._descriptor = descriptor
        self._file_size = file_size
        self._head: bytes | None = head if len(head) >= file_size else None
        self._mapped = mapped
        self._map: mmap.mmap | None = None
        self._touched: tuple[int, int] | None = None
        self._loaded: NDArray[Any] | None = None

    @property
    def whole(self) -> bool:
        """True where the elements are in memory already."""
        return self._loaded is not None or self._head is not None

    @property
    def found(self) -> str:
        """Element type and shape as the file has them."""
        return _found(self._kept, self.shape)

    def read(self, start: int, count: int, out: PageBuffer | None = None) -> NDArray[Any]:
        """Elements ``start`` to ``start + count`` in C order.

        Parameters
        ----------
        start, count : int
            In elements; must lie within ``size``.
        out : PageBuffer, optional
            Reused memory for files that are not mapped; a new buffer without it.

        Returns
        -------
        numpy.ndarray
            1-D, dtype ``self.dtype.storage`` (complex: real and imaginary parts in turn), perhaps read-only; valid
            until the next ``read`` or ``close``.

        Raises
        ------
        TensorUnreadable
            If the file shrank or cannot be read any more.
        """
        if start < 0 or count < 0 or start + count > self.size:
            raise IndexError(f"elements {start} to {start + count} of {self.size}")
        parts = self.dtype.width // self._storage.itemsize
        if self._loaded is not None:
            return self._loaded[start * parts : (start + count) * parts]
        if count == 0:
            return np.empty(0, self._storage)
        if self._layout.strides is not None:
            return self._in_order(self._gather(start, count))
        begin = self._layout.offset + start * self.dtype.width
        length = count * self.dtype.width
        if self._head is not None:
            values = np.frombuffer(self._head, self._storage, count * parts, begin)
        elif self._mapped:
            memory = self._mapping()
            self._forget()
            self._touched = (begin, begin + length)
            values = np.frombuffer(memory, self._storage, count * parts, begin)
        else:
            values = np.frombuffer(self._fill(begin, length, out or PageBuffer()), self._storage)
        return self._in_order(values)

    def close(self) -> None:
        """Let go of the file; arrays handed out keep their memory until they go."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if self._map is not None:
            self._forget()
            with contextlib.suppress(BufferError):
                self._map.close()
            self._map = None

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _in_order(self, values: NDArray[Any]) -> NDArray[Any]:
        """Little endian and aligned."""
        if self._layout.swapped and self._storage.itemsize > 1:
            return values.byteswap()
        return values if values.flags.aligned else values.copy()

    def _mapping(self) -> mmap.mmap:
        if os.fstat(self._descriptor).st_size < self._file_size:
            raise self._shrank()
        if self._map is None:
            self._map = mmap.mmap(self._descriptor, self._file_size, prot=mmap.PROT_READ)
        return self._map

    def _forget(self) -> None:
        """Give the pages of the last run back, so that the process stays as small as one run."""
        if self._map is not None and self._touched is not None:
            begin = self._touched[0] // mmap.PAGESIZE * mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, begin, min(self._touched[1], self._file_size) - begin)
            self._touched = None

    def _shrank(self) -> TensorUnreadable:
        return TensorUnreadable(f"{self.side}{file_name(self._path)}: shrank while it was read")

    def _fill(self, begin: int, length: int, out: PageBuffer) -> memoryview:
        view = out.take(length)
        self._read_into(view, begin)
        return view

    def _read_into(self, view: memoryview, begin: int) -> None:
        length, done = len(view), 0
        while done < length:
            try:
                got = os.preadv(self._descriptor, [view[done:]], begin + done)
            except OSError as error:
                raise TensorUnreadable(
                    f"{self.side}{file_name(self._path)}: reading failed ({error.strerror})"
                ) from None
            if got == 0:
                raise self._shrank()
            done += got

    def _gather(self, start: int, count: int) -> NDArray[Any]:
        """Elements of a view that does not lie in C order, copied one by one."""
        assert self._layout.strides is not None
        width = self.dtype.width
        kept = [(n, stride) for n, stride in zip(self.shape, self._layout.strides, strict=True) if n != 1]
        shape = tuple(n for n, _ in kept)  # NumPy knows 64 dimensions; those of length 1 do not matter
        strides = tuple(stride for _, stride in kept)
        if self._head is None and not self._mapped:
            return self._gather_read(shape, strides, start, count)
        memory: bytes | mmap.mmap = self._head if self._head is not None else self._mapping()
        steps = tuple(stride * width for stride in strides)
        view = np.ndarray(shape, _GATHER[width], memory, self._layout.offset, steps)
        values: NDArray[Any] = view.flat[start : start + count].view(self._storage)
        del view
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)
        return values

    def _gather_read(self, shape: tuple[int, ...], strides: tuple[int, ...], start: int, count: int) -> NDArray[Any]:
        """The same without a map: the lines of the file that hold the elements, each run of lines read once."""
        width = self.dtype.width
        places = np.zeros(count, np.int64)
        rest = np.arange(start, start + count, dtype=np.int64)
        for length, stride in zip(reversed(shape), reversed(strides), strict=True):
            rest, index = np.divmod(rest, length)
            places += index * stride
        lines, line = np.unique(places * width // _LINE, return_inverse=True)
        breaks = np.flatnonzero(np.diff(lines) != 1) + 1
        data = np.empty(len(lines) * _LINE // width, _GATHER[width])
        memory: memoryview = data.data.cast("B")
        for first, stop in zip([0, *breaks.tolist()], [*breaks.tolist(), len(lines)], strict=True):
            begin = self._layout.offset + int(lines[first]) * _LINE
            end = min(self._layout.offset + (int(lines[stop - 1]) + 1) * _LINE, self._file_size)
            self._read_into(memory[first * _LINE : first * _LINE + end - begin], begin)
        each = _LINE // width
        values: NDArray[Any] = data[line * each + places % each].view(self._storage)
        return values


@functools.lru_cache(4096)
def _found(name: str, shape: tuple[int, ...]) -> str:
    """As the dumps write them; a shape of more dimensions than any tensor has is cut."""
    return f"torch.{name} {list(shape) if len(shape) <= 128 else shape_text(shape)}"


def tensor_path(folder: str, name: str) -> str:
    """Path of a tensor file that a dump names.

    Parameters
    ----------
    folder : str
        Folder of the dump's tensor files.
    name : str
        The record's ``data_name``.

    Raises
    ------
    TensorUnreadable
        If the name would leave the folder.
    """
    if not name or name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise TensorUnreadable(
            f"{shown(name) or 'an empty name'}: not a plain file name; tensor files are looked up in their folder only"
        )
    return f"{folder}/{name}"


def open_tensor(path: Path | str, *, mapped: bool = True) -> TensorFile:
    """Open a ``.pt`` or ``.npy`` file and find its tensor; elements are read later.

    Parameters
    ----------
    path : Path or str
        The file.
    mapped : bool, default True
        Map the file, or read it by ``preadv`` (network file systems; files that may shrink).

    Returns
    -------
    TensorFile
        Open.

    Raises
    ------
    TensorMissing
        If there is no such file.
    TensorUnreadable
        Empty, cut, damaged, of another type, refused, not permitted, a folder, or without one tensor inside.
    """
    text = os.fspath(path)
    suffix = text[-4:].lower()
    if not suffix.endswith((".pt", ".npy")):
        raise TensorUnreadable(f"{file_name(text)}: neither .pt nor .npy")
    try:
        descriptor = os.open(text, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise TensorMissing(f"{file_name(text)}: no such file in {shown(os.path.dirname(text) or '.')}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TensorUnreadable(f"{file_name(text)}: cannot be opened ({reason})") from None
    try:
        return _open(descriptor, text, suffix, mapped)
    except OSError as error:
        os.close(descriptor)
        raise TensorUnreadable(
            f"{file_name(text)}: reading failed ({one_line(error.strerror or str(error))})"
        ) from None
    except BaseException:
        os.close(descriptor)
        raise


def _open(descriptor: int, path: str, suffix: str, mapped: bool) -> TensorFile:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise TensorUnreadable(f"{file_name(path)}: {kind}, not a tensor file")
    if not status.st_size:
        raise TensorUnreadable(f"{file_name(path)}: empty (0 bytes); copy or dump it again")
    size = status.st_size
    head = os.pread(descriptor, min(HEAD_BYTES, size), 0)
    if len(head) == size and suffix != ".npy":
        known = known_layout(head)
        if known is not None:
            return TensorFile(path, known, descriptor, size, head, mapped)
    source = Source(descriptor, path, size, head)
    if suffix == ".npy":
        return TensorFile(path, parse_numpy(source), descriptor, source.size, head, mapped)
    try:
        if head.startswith(ZIP_MAGIC):
            layout = parse_zip(source)
        elif head.startswith(LEGACY_MAGIC):
            layout = parse_legacy(source)
        elif len(head) < len(LEGACY_MAGIC) and (ZIP_MAGIC.startswith(head) or LEGACY_MAGIC.startswith(head)):
            raise source.refuse(f"cut short: {source.size} bytes, inside the header; copy or dump it again")
        else:
            raise source.refuse("not a file of torch.save (its first bytes say otherwise)")
    except Unusual as error:
        dtype, kept, shape, values = load_by_torch(path, file_name(path), str(error))
        layout = Layout(dtype, shape, None, 0, False, count_elements(shape))
        file = TensorFile(path, layout, descriptor, source.size, b"", mapped)
        file._loaded, file._kept = values, kept
        return file
    return TensorFile(path, layout, descriptor, source.size, head, mapped)


def choose_io(folder: Path, mounts: str | None = None) -> Literal["map", "read"]:
    """``read`` for folders on network file systems, ``map`` for all others.

    Parameters
    ----------
    folder : Path
        Folder of tensor files.
    mounts : str, optional
        Text in the form of ``/proc/self/mountinfo``; the machine's own without it.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text("utf-8", "replace")
        except OSError:
            return "read"
    place = os.path.realpath(folder) + "/"
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if "-" not in fields or len(fields) < 7:
            continue
        point = fields[4].replace("\\040", " ").rstrip("/") + "/"
        if place.startswith(point) and len(point) >= best:
            best, kind = len(point), fields[fields.index("-") + 1]
    return "read" if kind.startswith(_NETWORK) else "map"
