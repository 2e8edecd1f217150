"""What the tokenizer writes to: rows, marks, texts that repeat, and scratch; one place for the layout of each.

All of it is reached by address (see ``json_memory``); ``TokenizerArrays`` owns the arrays.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types
from opassay.kernels.json_memory import b1, byte, f64, i64, jit, put_byte, put_float, put_word, word

FULL: Final = -3  # an output array or the text table has no room left

MAX_ROWS: Final = 1 << 15  # rows, records, records handed back and open numbers of one call
MAX_DEPTH: Final = 48
MAX_KEYS: Final = 192  # keys of the objects that are open at one time
MAX_PATH: Final = 2048
MAX_TEXT: Final = 4096  # bytes of a value's text

# Columns of the grid. A text's column holds its code, a span's two columns start (-1: none) and length in the buffer.
OP, SECTION, KIND, GRAD, STAT_KIND, SLOT, DTYPE, SHAPE, VALUE, MD5, DATA_NAME = 0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 14
GRID_COLUMNS: Final = 16

# Columns of the marks: three lists beside one another.
NAME, NAME_LENGTH, RECORD_END = 0, 1, 2  # one row a record
SURPRISE_OP, SURPRISE_START = 3, 4  # one row a record that is handed back
OPEN_ROW, OPEN_STAT, OPEN_START, OPEN_LENGTH = 5, 6, 7, 8  # one row an open number; statistic 4 means all four
MARK_COLUMNS: Final = 9

# Places in the work array.
ROW_COUNT, OP_COUNT, SURPRISE_COUNT, OPEN_COUNT, TEXT_COUNT = 0, 1, 2, 3, 4
STACK: Final = 8  # four a level: is object, path length, index, first key
KEYS: Final = STACK + 4 * MAX_DEPTH
WORK_SIZE: Final = KEYS + MAX_KEYS

# Columns of the text table: hash and start of text ``code``; place of a hash -> code + 1, 0 for a free one.
HASH, START, PLACE = 0, 1, 2
TABLE_SIZE: Final = 1 << 16
MAX_TEXTS: Final = TABLE_SIZE // 2

# Places in the store.
PATH: Final = 0
SHAPE_TEXT: Final = MAX_PATH
ARENA: Final = 1 << 13
ARENA_SIZE: Final = 1 << 20

# First byte of a coded text: its column and how it is to be printed.
T_SLOT, T_DTYPE, T_SHAPE, T_NO_SHAPE = 115, 100, 104, 101  # s, d, h, e
T_TEXT, T_INT, T_FLOAT, T_WORD = 116, 105, 102, 119  # t, i, f, w: values
T_CLASS_INT, T_CLASS_FLOAT, T_CLASS_BOOL, T_CLASS_STR, T_CLASS_NONE = 73, 70, 66, 83, 78  # I, F, B, S, N: dtypes

U64 = np.uint64
_SEED: Final = U64(0xCBF29CE484222325)
_PRIME: Final = U64(0x100000001B3)
_MIX: Final = U64(0x9E3779B97F4A7C15)


class Memory(NamedTuple):
    """Addresses of the buffer and of the arrays of ``TokenizerArrays``."""

    text: int
    grid: int
    cells: int
    marks: int
    work: int
    table: int
    store: int


M: Final = types.NamedUniTuple(i64, 7, Memory)  # type: ignore[no-untyped-call]


class TokenizerArrays:
    """The arrays of one tokenizer.

    Attributes
    ----------
    grid : ndarray of int64, shape (MAX_ROWS, GRID_COLUMNS)
        Rows.
    cells : ndarray of float64, shape (MAX_ROWS, 4)
        Statistics of the rows, nan where there is no number.
    marks : ndarray of int64, shape (MAX_ROWS, MARK_COLUMNS)
        Records, records handed back, open numbers.
    work : ndarray of int64
        Counts, then scratch.
    """

    def __init__(self) -> None:
        self.grid = np.zeros((MAX_ROWS, GRID_COLUMNS), np.int64)
        self.cells = np.zeros((MAX_ROWS, 4))
        self.marks = np.zeros((MAX_ROWS, MARK_COLUMNS), np.int64)
        self.work = np.zeros(WORK_SIZE, np.int64)
        self._table = np.zeros((TABLE_SIZE, 3), np.int64)
        self._store = np.zeros(ARENA + ARENA_SIZE, np.uint8)

    def memory(self, text: npt.NDArray[np.uint8]) -> Memory:
        """Addresses, with ``text`` as the buffer; valid as long as the arrays live."""
        arrays = (text, self.grid, self.cells, self.marks, self.work, self._table, self._store)
        return Memory(*(array.ctypes.data for array in arrays))

    def texts(self, known: int) -> list[bytes]:
        """Coded texts from code ``known`` on, each with its tag before it."""
        starts = self._table[known : int(self.work[TEXT_COUNT]) + 1, START].tolist()
        arena = self._store[ARENA : ARENA + starts[-1]].tobytes()
        return [arena[a:b] for a, b in zip(starts, starts[1:], strict=False)]  # noqa: RUF007 (a list of two slices is quicker)

    def clear(self) -> None:
        """Forget all texts."""
        self._table.fill(0)
        self.work[TEXT_COUNT] = 0


@jit(i64(M, i64, i64, i64, i64))
def text_code(m: Any, source: Any, first: Any, last: Any, tag: Any) -> Any:
    """Code of ``tag`` and the bytes ``first`` to ``last`` behind ``source``, or FULL. Equal hashes are compared in full."""
    value = (_SEED ^ U64(tag)) * _PRIME
    for k in range(first, last):
        value = (value ^ U64(byte(source, k))) * _PRIME
    value *= _MIX
    key = np.int64(value)
    place = np.int64(value >> U64(40)) & (TABLE_SIZE - 1)
    arena = m.store + ARENA
    length = last - first + 1
    while True:
        code = word(m.table, 3 * place + PLACE) - 1
        if code < 0:
            break
        if word(m.table, 3 * code + HASH) == key:
            start = word(m.table, 3 * code + START)
            if word(m.table, 3 * code + 3 + START) - start == length and byte(arena, start) == tag:
                k = 1
                while k < length and byte(arena, start + k) == byte(source, first + k - 1):
                    k += 1
                if k == length:
                    return code
        place = (place + 1) & (TABLE_SIZE - 1)
    code = word(m.work, TEXT_COUNT)
    start = word(m.table, 3 * code + START)
    if code + 1 >= MAX_TEXTS or start + length > ARENA_SIZE:
        return FULL
    put_word(m.table, 3 * place + PLACE, code + 1)
    put_word(m.table, 3 * code + HASH, key)
    put_word(m.table, 3 * code + 3 + START, start + length)
    put_byte(arena, start, tag)
    for k in range(1, length):
        put_byte(arena, start + k, byte(source, first + k - 1))
    put_word(m.work, TEXT_COUNT, code + 1)
    return code


@jit(types.void(M, i64, i64, i64, f64))
def put_cell(m: Any, row: Any, statistic: Any, kind: Any, value: Any) -> None:
    """Kind and number of one statistic."""
    put_word(m.grid, row * GRID_COLUMNS + STAT_KIND + statistic, kind)
    put_float(m.cells, row * 4 + statistic, value)


@jit(i64(M, i64, i64, i64, i64))
def put_texts(m: Any, row: Any, dtype: Any, shape: Any, value: Any) -> Any:
    """Codes of a row's texts; with them the row counts. Gives FULL where one is not a code, else 0."""
    if dtype < 0 or shape < 0 or value < 0:
        return FULL
    put_word(m.grid, row * GRID_COLUMNS + DTYPE, dtype)
    put_word(m.grid, row * GRID_COLUMNS + SHAPE, shape)
    put_word(m.grid, row * GRID_COLUMNS + VALUE, value)
    put_word(m.work, ROW_COUNT, row + 1)
    return 0


@jit(i64(M, i64, i64, i64))
def begin_row(m: Any, kind: Any, section: Any, path_length: Any) -> Any:
    """A row with a kind, a slot and nothing else, not yet counted; its number, or FULL."""
    row = word(m.work, ROW_COUNT)
    if row >= MAX_ROWS:
        return FULL
    slot = text_code(m, m.store, PATH, PATH + path_length, T_SLOT)
    if slot < 0:
        return slot
    place = row * GRID_COLUMNS
    put_word(m.grid, place + OP, word(m.work, OP_COUNT))
    put_word(m.grid, place + SECTION, section)
    put_word(m.grid, place + KIND, kind)
    put_word(m.grid, place + GRAD, -1)
    put_word(m.grid, place + SLOT, slot)
    for k in range(4):
        put_cell(m, row, k, 2, np.nan)
    put_word(m.grid, place + MD5, -1)
    put_word(m.grid, place + MD5 + 1, 0)
    put_word(m.grid, place + DATA_NAME, -1)
    put_word(m.grid, place + DATA_NAME + 1, 0)
    return row


@jit(b1(M, i64, i64, i64, i64))
def leave_open(m: Any, row: Any, statistic: Any, first: Any, last: Any) -> Any:
    """Note a number that the caller has to read; False where there is no room."""
    count = word(m.work, OPEN_COUNT)
    if count >= MAX_ROWS:
        return False
    place = count * MARK_COLUMNS
    put_word(m.marks, place + OPEN_ROW, row)
    put_word(m.marks, place + OPEN_STAT, statistic)
    put_word(m.marks, place + OPEN_START, first)
    put_word(m.marks, place + OPEN_LENGTH, last - first)
    put_word(m.work, OPEN_COUNT, count + 1)
    return True
