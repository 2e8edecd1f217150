"""Finds the tensor in a file of ``torch.save`` without torch: the zip container and the older one made of pickles.

No code of a file is ever run: ``torch_pickle`` reads the pickle inside. What is not plain makes the file ``Unusual``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from opassay.pipeline.read import torch_alike
from opassay.pipeline.read.tensor_layout import Layout, Source, Unusual, lay_out
from opassay.pipeline.read.torch_pickle import MAX_PICKLE, View, checked_view, unpickle
from opassay.schemas.dtypes import BY_NAME

ZIP_MAGIC: Final = b"PK\x03\x04"
LEGACY_MAGIC: Final = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_MAX_DIRECTORY: Final = 64 << 20  # bytes; far more than a file with one tensor could have
_END: Final = struct.Struct("<4s4H2LH")
_END64: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64: Final = struct.Struct("<4sLQL")
_ENTRY: Final = struct.Struct("<4s4xHH8xLLHHH8xL")
_LOCAL_NAMES: Final = struct.Struct("<HH")

_MOST_KNOWN: Final = 4096
_KNOWN: Final[dict[bytes, View]] = {}  # short pickles seen before: a dump has thousands of tensors of few shapes


# --- the zip container --------------------------------------------------------------------------------------------


def _directory(source: Source) -> bytes:
    """The central directory.

    Raises
    ------
    TensorUnreadable
        If there is none: the file was cut.
    """
    for reach in (4096, 66000):
        start = max(0, source.size - reach)
        tail = source.at(start, source.size - start)
        at = tail.rfind(b"PK\x05\x06")
        if at >= 0 and len(tail) - at >= _END.size:
            break
    else:
        raise source.refuse(
            f"cut short: {source.size} bytes and no archive directory at the end; copy or dump it again"
        )
    _, _, _, _, entries, length, offset, _ = _END.unpack_from(tail, at)
    end = start + at
    if entries == 0xFFFF or length == 0xFFFFFFFF or offset == 0xFFFFFFFF:
        locator = source.at(end - _LOCATOR64.size, _LOCATOR64.size)
        if len(locator) == _LOCATOR64.size and locator.startswith(b"PK\x06\x07"):
            record = source.at(_LOCATOR64.unpack(locator)[2], _END64.size)
            if len(record) == _END64.size and record.startswith(b"PK\x06\x06"):
                length, offset = _END64.unpack(record)[8:10]
    if offset + length > end or length > _MAX_DIRECTORY:
        raise source.refuse(
            f"damaged: its archive directory ({length} bytes at {offset}) does not fit its {source.size} bytes"
        )
    return source.at(offset, length)


Member = tuple[int, int, int]
"""Offset of the local header, stored bytes, compression method (255 for encrypted)."""


def _member(directory: bytes, name: bytes) -> Member | None:
    """One entry of the directory, found by its name; None where there is none."""
    at = directory.find(name)
    while at >= 0:
        if at >= _ENTRY.size:
            entry = _ENTRY.unpack_from(directory, at - _ENTRY.size)
            if entry[0] == b"PK\x01\x02" and entry[5] == len(name):
                _, flags, method, packed, size, _, extra_length, _, header = entry
                if 0xFFFFFFFF in (packed, size, header):
                    start = at + len(name)
                    packed, header = _wide(directory[start : start + extra_length], size, packed, header)
                return header, packed, 255 if flags & 1 else method
        at = directory.find(name, at + 1)
    return None


def _names(source: Source, directory: bytes) -> Iterator[bytes]:
    """Names in a directory, in order.

    Raises
    ------
    TensorUnreadable
        If it is not a directory.
    """
    at = 0
    while at + _ENTRY.size <= len(directory):
        magic, _, _, _, _, name_length, extra_length, note_length, _ = _ENTRY.unpack_from(directory, at)
        if magic != b"PK\x01\x02":
            raise source.refuse("damaged: its archive directory is not one")
        at += _ENTRY.size
        yield directory[at : at + name_length]
        at += name_length + extra_length + note_length


def _wide(extra: bytes, size: int, packed: int, header: int) -> tuple[int, int]:
    """Stored bytes and header offset from an entry's zip64 field, where the short ones are all ones."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = _LOCAL_NAMES.unpack_from(extra, at)
        if kind == 1:
            numbers = iter(struct.unpack_from(f"<{min(length, len(extra) - at - 4) // 8}Q", extra, at + 4))
            if size == 0xFFFFFFFF:
                next(numbers, size)
            packed = next(numbers, packed) if packed == 0xFFFFFFFF else packed
            header = next(numbers, header) if header == 0xFFFFFFFF else header
        at += 4 + length
    return packed, header


def _data_start(source: Source, member: Member) -> int:
    """Byte where a stored member's data starts.

    Raises
    ------
    Unusual
        If it is compressed or encrypted.
    TensorUnreadable
        If there is no local header.
    """
    header, _, method = member
    if method:
        raise Unusual("compressed members")
    local = source.at(header, 30)
    if len(local) < 30 or not local.startswith(ZIP_MAGIC):
        raise source.refuse(f"damaged: no archive member at byte {header} of {source.size}")
    name_length, extra_length = _LOCAL_NAMES.unpack_from(local, 26)
    return int(header + 30 + name_length + extra_length)


def _find_pickle(source: Source, directory: bytes) -> bytes:
    """Name of the member with the object.

    Raises
    ------
    TensorUnreadable
        If there is none.
    """
    names = list(_names(source, directory))
    for name in names:
        if name.endswith(b"/data.pkl") or name == b"data.pkl":
            return name
    if any(name.endswith(b"/constants.pkl") for name in names):
        raise source.refuse("holds a TorchScript program, not one tensor")
    raise source.refuse("an archive, but not of torch.save (no data.pkl inside)")


def parse_zip(source: Source) -> Layout:
    """The tensor of a zip-format torch file.

    Parameters
    ----------
    source : Source
        A file that starts with ``ZIP_MAGIC``.

    Raises
    ------
    TensorUnreadable
        Cut, damaged, refused, or no single tensor inside.
    Unusual
        Sparse, quantised, compressed ...: torch may read it.
    """
    directory = _directory(source)
    name = next(_names(source, directory), b"")
    if not name.endswith(b"/data.pkl"):
        name = _find_pickle(source, directory)
    pickled = _member(directory, name)
    assert pickled is not None
    prefix = name[: -len(b"data.pkl")]
    start = _data_start(source, pickled)
    length = pickled[1]
    if length > MAX_PICKLE:
        raise source.refuse(f"its pickle has {length} bytes; a file with one tensor has a few hundred")
    text = source.at(start, length)
    if len(text) < length:
        raise source.refuse(f"cut short: {source.size} bytes, its pickle ends at byte {start + length}")
    view = _KNOWN.get(text)
    if view is None:
        view = checked_view(source, unpickle(source, text)[0])
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        if length <= 1024:
            _KNOWN[text] = view
    storage, dtype, shape, strides, first = view
    swapped = False
    seen = [(pickled[0], pickled[0])]
    order = _member(directory, prefix + b"byteorder")
    if order is not None:
        at = _data_start(source, order)
        mark = source.at(at, order[1])
        seen.append((order[0], at + order[1]))
        if mark not in (b"little", b"big"):
            raise source.refuse("damaged: its byte order is neither little nor big")
        swapped = mark == b"big"
    member = _member(directory, prefix + b"data/" + storage.key.encode("utf-8", "replace"))
    if member is None:
        if 0 in shape:
            return lay_out(source, dtype, shape, strides, 0, 0, 0, swapped)
        raise source.refuse(f"damaged: its storage {storage.key[:40]!r} is not in the archive")
    data = _data_start(source, member)
    layout = lay_out(source, dtype, shape, strides, data, first, member[1] // dtype.width, swapped)
    if len(source.head) >= source.size:
        seen.append((member[0], member[0]))
        torch_alike.learn(source.head, name, (start, start + length), storage.key, seen, layout)
    return layout


# --- the older container ------------------------------------------------------------------------------------------


def parse_legacy(source: Source) -> Layout:
    """The tensor of a file in the container that was the only one before torch 1.6.

    Five pickles (magic number, protocol, machine, object, storage keys), then each storage: int64 count, elements.

    Raises
    ------
    TensorUnreadable
        Cut, damaged, refused, or no single tensor inside.
    Unusual
        Several storages, sparse, quantised ...: torch may read it.
    """
    text = source.at(0, MAX_PICKLE)
    protocol, at = unpickle(source, text, len(LEGACY_MAGIC))
    machine, at = unpickle(source, text, at)
    value, at = unpickle(source, text, at)
    keys, at = unpickle(source, text, at)
    if protocol != 1001 or not isinstance(machine, dict):
        raise Unusual("an older torch protocol")
    swapped = machine.get("little_endian") is False
    storage, dtype, shape, strides, first = checked_view(source, value)
    if keys != [storage.key]:
        raise Unusual("several storages in the older torch format")
    start = at + 8
    head = source.at(start - 8, 8)
    if len(head) < 8:
        raise source.refuse(f"cut short: {source.size} bytes, before the tensor's data")
    count = int.from_bytes(head, "big" if swapped else "little")
    stored = count * (BY_NAME[storage.dtype].width if storage.dtype else 1) // dtype.width
    return lay_out(source, dtype, shape, strides, start, first, stored, swapped)
