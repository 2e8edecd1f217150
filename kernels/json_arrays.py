"""Arrays of the tokenizer: what it writes to, its text tables and its scratch."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

FULL: Final = -3  # an output array or a text table has no room left

MAX_DEPTH: Final = 48
MAX_KEYS: Final = 192  # keys of the objects that are open at one time
MAX_PATH: Final = 2048
MAX_TEXT: Final = 4096  # bytes of a text that is coded

STATE_FIRST: Final = 0  # behind the opening brace of ``data``
STATE_NEXT: Final = 1  # behind a record

TAG_TEXT, TAG_INT, TAG_FLOAT, TAG_WORD = 116, 105, 102, 119  # first byte of a coded text: t, i, f, w

U64 = np.uint64
Bytes = npt.NDArray[np.uint8]
_SEED: Final = U64(0xCBF29CE484222325)
_PRIME: Final = U64(0x100000001B3)
_MIX: Final = U64(0x9E3779B97F4A7C15)


class TextTable(NamedTuple):
    """Texts -> codes, exact (equal hashes are compared byte by byte).

    ``places`` (power of two) holds codes or -1; text ``c`` is ``arena[starts[c] : starts[c + 1]]``; ``used[0]`` texts.
    """

    places: npt.NDArray[np.int32]
    hashes: npt.NDArray[np.uint64]
    starts: npt.NDArray[np.int32]
    arena: Bytes
    used: npt.NDArray[np.int64]


class Rows(NamedTuple):
    """Output: rows (first axis), ops, records handed back, numbers left open; ``counts`` says how many of each.

    Spans are (start, length) in the buffer, start -1 for none. A statistic without a number is nan.
    """

    op: npt.NDArray[np.uint32]
    section: npt.NDArray[np.uint8]
    kind: npt.NDArray[np.uint8]
    requires_grad: npt.NDArray[np.int8]
    cells: npt.NDArray[np.float64]  # (rows, 4)
    kinds: npt.NDArray[np.uint8]  # (rows, 4)
    codes: npt.NDArray[np.uint32]  # (rows, 4): slot, dtype, shape, value
    md5: npt.NDArray[np.int64]  # (rows, 2)
    data_name: npt.NDArray[np.int64]  # (rows, 2)
    op_name: npt.NDArray[np.int64]  # (ops, 2)
    op_end: npt.NDArray[np.int64]  # (ops,): place behind the record
    surprises: npt.NDArray[np.int64]  # (surprises, 2): op, start of the value
    open_numbers: npt.NDArray[np.int64]  # (numbers, 4): row, statistic (4: all), start, length
    counts: npt.NDArray[np.int64]


class Room(NamedTuple):
    """Scratch of one tokenizer."""

    path: Bytes
    text: Bytes
    keys: npt.NDArray[np.uint64]
    stack: npt.NDArray[np.int64]  # (MAX_DEPTH, 4): is object, path length, index, first key
    bits: npt.NDArray[np.uint64]
    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]


Tables = tuple[TextTable, TextTable, TextTable, TextTable]


def make_text_table(texts: int = 1 << 15, arena_bytes: int = 1 << 20) -> TextTable:
    """An empty table for up to ``texts`` texts of ``arena_bytes`` together."""
    return TextTable(
        np.full(texts * 2, -1, np.int32),
        np.zeros(texts, np.uint64),
        np.zeros(texts + 1, np.int32),
        np.zeros(arena_bytes, np.uint8),
        np.zeros(1, np.int64),
    )


def make_rows(rows: int = 1 << 15) -> Rows:
    """Room for ``rows`` rows and as many ops; a quarter of it for what is handed back."""
    return Rows(
        np.zeros(rows, np.uint32), np.zeros(rows, np.uint8), np.zeros(rows, np.uint8), np.zeros(rows, np.int8),
        np.zeros((rows, 4)), np.zeros((rows, 4), np.uint8), np.zeros((rows, 4), np.uint32),
        np.zeros((rows, 2), np.int64), np.zeros((rows, 2), np.int64),
        np.zeros((rows, 2), np.int64), np.zeros(rows, np.int64),
        np.zeros((rows // 4, 2), np.int64), np.zeros((rows // 4, 4), np.int64), np.zeros(4, np.int64),
    )  # fmt: skip


def make_room(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> Room:
    """Scratch arrays; ``high`` and ``low`` from ``json_numbers.power_table``."""
    return Room(
        np.zeros(MAX_PATH, np.uint8), np.zeros(MAX_TEXT + 1, np.uint8), np.zeros(MAX_KEYS, np.uint64),
        np.zeros((MAX_DEPTH, 4), np.int64), np.zeros(1, np.uint64), high, low,
    )  # fmt: skip


def clear(tables: Tables) -> None:
    """Forget all texts."""
    for table in tables:
        table.places.fill(-1)
        table.used[0] = 0


_NOTHING: Final = np.zeros(0, np.uint8)

jit: Final = njit(nogil=True, cache=True, error_model="numpy")


@jit
def text_code(table: Any, text: Any, first: Any, last: Any, tag: Any) -> Any:
    """Code of ``tag`` + ``text[first:last]``, or FULL."""
    value = (_SEED ^ U64(tag)) * _PRIME
    for k in range(first, last):
        value = (value ^ U64(text[k])) * _PRIME
    value *= _MIX
    mask = table.places.size - 1
    place = np.int64(value >> U64(32)) & mask
    length = last - first + 1
    while True:
        code = table.places[place]
        if code < 0:
            break
        if table.hashes[code] == value:
            start = table.starts[code]
            if table.starts[code + 1] - start == length and table.arena[start] == tag:
                same = True
                for k in range(1, length):
                    if table.arena[start + k] != text[first + k - 1]:
                        same = False
                        break
                if same:
                    return np.int64(code)
        place = (place + 1) & mask
    count = table.used[0]
    start = table.starts[count]
    if count >= table.hashes.size or start + length > table.arena.size:
        return np.int64(FULL)
    table.places[place] = count
    table.hashes[count] = value
    table.arena[start] = tag
    for k in range(1, length):
        table.arena[start + k] = text[first + k - 1]
    table.starts[count + 1] = start + length
    table.used[0] = count + 1
    return np.int64(count)


@jit
def add_row(rows: Any, tables: Any, room: Any, section: Any, path_length: Any) -> Any:
    """A new row with a slot and nothing else, or FULL."""
    row = rows.counts[0]
    if row >= rows.op.size:
        return np.int64(FULL)
    slot = text_code(tables[0], room.path, 0, path_length, TAG_TEXT)
    if slot < 0:
        return slot
    rows.op[row] = rows.counts[1]
    rows.section[row] = section
    rows.requires_grad[row] = -1
    rows.codes[row, 0] = slot
    for k in range(4):
        rows.cells[row, k] = np.nan
        rows.kinds[row, k] = 2
    rows.md5[row, 0] = -1
    rows.md5[row, 1] = 0
    rows.data_name[row, 0] = -1
    rows.data_name[row, 1] = 0
    return np.int64(row)


@jit
def null_row(rows: Any, tables: Any, room: Any, section: Any, path_length: Any) -> Any:
    row = add_row(rows, tables, room, section, path_length)
    if row < 0:
        return row
    rows.kind[row] = 2
    dtype = text_code(tables[1], _NOTHING, 0, 0, TAG_TEXT)
    shape = text_code(tables[2], _NOTHING, 0, 0, TAG_TEXT)
    value = text_code(tables[3], _NOTHING, 0, 0, TAG_TEXT)
    if dtype < 0 or shape < 0 or value < 0:
        return np.int64(FULL)
    rows.codes[row, 1] = dtype
    rows.codes[row, 2] = shape
    rows.codes[row, 3] = value
    rows.counts[0] += 1
    return np.int64(0)


@jit
def leave_open(rows: Any, row: Any, statistic: Any, first: Any, last: Any) -> Any:
    """Note a number that Python has to read; False where there is no room."""
    count = rows.counts[3]
    if count >= rows.open_numbers.shape[0]:
        return False
    rows.open_numbers[count, 0] = row
    rows.open_numbers[count, 1] = statistic
    rows.open_numbers[count, 2] = first
    rows.open_numbers[count, 3] = last - first
    rows.counts[3] += 1
    return True
