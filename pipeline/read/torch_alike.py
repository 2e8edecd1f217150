"""Recognises small torch files that are like one read before in every byte that the reader looks at.

A dump has thousands of files that differ only in the archive's name, the checksums and the elements. What
``torch_zip`` found in one of them is then true of all; whatever is not fully alike is left to ``torch_zip``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from opassay.pipeline.read.tensor_layout import Layout

_END_BYTES: Final = 22  # the record that ends an archive without a comment
_NAME_LENGTHS: Final = slice(26, 30)  # in the first member's header: bytes of its name and of the padding after it
_ENTRY_MAGIC: Final = b"PK\x01\x02"
_ENTRY_BYTES: Final = 46
_CHECKSUM: Final = slice(16, 20)  # in an entry of the directory; nobody reads it here
_LENGTHS: Final = struct.Struct("<3H")  # name, extra, note: at byte 28 of an entry
_SIGHTINGS: Final = 2  # before a kind is worth describing: one pair of files may be all there is
_MOST_KINDS: Final = 2048
_MOST_LAYOUTS: Final = 64  # of one kind: pickles of equal length

Span = tuple[int, int]
"""First byte, and the byte after the last."""


class _Kind:
    """Files of one size, one length of the archive's name and one list of members."""

    __slots__ = ("directory", "entries", "expected", "fixed", "layouts", "pickle", "roots", "size", "storage")

    def __init__(
        self, head: bytes, fixed: Sequence[Span], pickle: Span, storage: str, names: Sequence[Span], directory: Span
    ) -> None:
        self.size = len(head)
        self.fixed = _taker(fixed)
        self.expected = self.fixed(head)
        self.roots = _taker(names)
        self.entries = len(names)
        self.directory = directory
        self.pickle = slice(*pickle)
        self.storage = storage
        self.layouts: dict[bytes, Layout] = {}

    def holds(self, head: bytes) -> bool:
        """Whether a file of this size is alike in all that is read but the pickle.

        The archive's name may be any, as long as it is the same in all entries. No other bytes look like an entry, so
        a search for a member ends where it ended in the first file.
        """
        if self.fixed(head) != self.expected:
            return False
        roots = self.roots(head)
        return roots.count(roots[0]) == self.entries == head.count(_ENTRY_MAGIC, *self.directory)


_KINDS: Final[dict[bytes, _Kind | int | None]] = {}
# by bytes of the first and the last record; a number: seen so often; None: no kind to be sure of


def known_layout(head: bytes) -> Layout | None:
    """The tensor of a file that is like one read before.

    Parameters
    ----------
    head : bytes
        The whole file.

    Returns
    -------
    Layout or None
        What ``torch_zip.parse_zip`` would answer; None where that is not certain.
    """
    kind = _KINDS.get(head[_NAME_LENGTHS] + head[-_END_BYTES:])
    if not isinstance(kind, _Kind) or kind.size != len(head):
        return None
    layout = kind.layouts.get(head[kind.pickle])
    return layout if layout is not None and kind.holds(head) else None


def learn(head: bytes, name: bytes, pickle: Span, storage: str, members: Sequence[Span], layout: Layout) -> None:
    """Remember a file that was read; built for kinds that come more than once.

    Parameters
    ----------
    head : bytes
        The whole file.
    name : bytes
        Name of the member with the pickle, as in the directory.
    pickle : tuple of int
        Where the pickle lies.
    storage : str
        Key of the tensor's storage.
    members : sequence of (int, int)
        For each member that was read: its local header's byte, and the end of what was read after that header (the
        header's byte again where its contents do not matter).
    layout : Layout
        What was found.
    """
    key = head[_NAME_LENGTHS] + head[-_END_BYTES:]
    kind = _KINDS.get(key, 0)
    if isinstance(kind, int):
        if len(_KINDS) >= _MOST_KINDS:
            _KINDS.clear()
        if kind < _SIGHTINGS:
            _KINDS[key] = kind + 1
            return
        kind = _KINDS[key] = _describe(head, name, pickle, storage, members)
    if kind is not None and kind.size == len(head) and kind.storage == storage and kind.holds(head):
        if len(kind.layouts) >= _MOST_LAYOUTS:
            kind.layouts.clear()
        kind.layouts[head[kind.pickle]] = layout


def _describe(head: bytes, name: bytes, pickle: Span, storage: str, members: Sequence[Span]) -> _Kind | None:
    """The kind of a file; None where it is not plain enough to be sure of others by it."""
    end = len(head) - _END_BYTES
    if head.rfind(b"PK\x05\x06") != end or not name.endswith(b"/data.pkl"):
        return None
    count, length, start = struct.unpack_from("<HLL", head, end + 10)
    root = name[: -len(b"/data.pkl")]
    if count == 0xFFFF or 0xFFFFFFFF in (length, start) or start + length > end:
        return None
    fixed: list[Span] = [(0, 4)]
    for header, stop in members:
        fixed += [(header, header + 4), (header + 26, header + 30)]
        if stop > header:
            name_length, extra_length = struct.unpack_from("<HH", head, header + 26)
            fixed.append((header + 30 + name_length + extra_length, stop))
    names: list[Span] = []
    at = start
    while at + _ENTRY_BYTES <= start + length:
        first = at + _ENTRY_BYTES
        if not (head.startswith(_ENTRY_MAGIC, at) and head.startswith(root + b"/", first)):
            return None
        names.append((first, first + len(root)))
        lengths = _LENGTHS.unpack_from(head, at + 28)
        if lengths[0] <= len(root):
            return None
        fixed += [(at, at + _CHECKSUM.start), (at + _CHECKSUM.stop, first)]
        at = first + sum(lengths)
        fixed.append((first + len(root), at))
    if at != start + length or head.count(_ENTRY_MAGIC, start, at) != len(names) or not names:
        return None
    return _Kind(head, fixed, pickle, storage, names, (start, at))


def _taker(spans: Sequence[Span]) -> Callable[[bytes], tuple[Any, ...]]:
    """A compiled slicer: the bytes of all spans, neighbours and overlaps joined."""
    joined: list[list[int]] = []
    for first, stop in sorted(spans):
        if joined and first <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], stop)
        else:
            joined.append([first, stop])
    text, at = "<", 0
    for first, stop in joined:
        text += f"{first - at}x{stop - first}s"
        at = stop
    return struct.Struct(text).unpack_from
