"""One plain leaf of a dump (a tensor or a scalar) -> one row of the tokenizer's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from opassay.kernels.json_memory import b1, byte, f64, i64, jit, put_word
from opassay.kernels.json_numbers import HARD, INCOMPLETE, INT, SURPRISE, read_number
from opassay.kernels.json_parts import (
    is_rank_slot,
    literal,
    read_key,
    read_shape,
    same,
    skip_plain,
    skip_space,
    span_word,
    string_end,
    word_of,
)
from opassay.kernels.json_tables import (
    DATA_NAME,
    FULL,
    GRAD,
    GRID_COLUMNS,
    KIND,
    MAX_TEXT,
    MD5,
    PATH,
    SHAPE_TEXT,
    T_CLASS_BOOL,
    T_CLASS_FLOAT,
    T_CLASS_INT,
    T_CLASS_NONE,
    T_CLASS_STR,
    T_DTYPE,
    T_FLOAT,
    T_INT,
    T_NO_SHAPE,
    T_SHAPE,
    T_TEXT,
    T_WORD,
    M,
    begin_row,
    leave_open,
    put_cell,
    put_texts,
    text_code,
)

_DTYPE, _SHAPE, _VALUE, _TYPE, _GRAD = map(word_of, ("dtype", "shape", "value", "type", "requires_grad"))
_MAX, _MIN, _MEAN, _NORM = map(word_of, ("Max", "Min", "Mean", "Norm"))
_MD5, _DATA_NAME, _STAT_INDEX = map(word_of, ("md5", "data_name", "tensor_stat_index"))
_SIZE, _SLICE, _ELLIPSIS, _GROUP = map(word_of, ("torch.Size", "slice", "ellipsis", "torch.ProcessGroup"))
_BIT_DTYPE, _BIT_SHAPE, _BIT_GRAD, _BIT_MD5, _BIT_DATA_NAME, _BIT_VALUE, _BIT_FIRST_STAT = 1, 2, 4, 8, 16, 32, 64


@jit(i64(i64, i64, i64))
def _field(text: Any, first: Any, last: Any) -> Any:
    """Bit of a leaf's key, 0 for one that is not needed, -1 for one that only Python may see."""
    found = span_word(text, first, last)
    size = found[0]
    if size == 3:
        if same(found, _MAX):
            return _BIT_FIRST_STAT
        if same(found, _MIN):
            return _BIT_FIRST_STAT << 1
        return _BIT_MD5 if same(found, _MD5) else 0
    if size == 4:
        if same(found, _MEAN):
            return _BIT_FIRST_STAT << 2
        if same(found, _NORM):
            return _BIT_FIRST_STAT << 3
        return -1 if same(found, _TYPE) else 0
    if size == 5:
        if same(found, _DTYPE):
            return _BIT_DTYPE
        if same(found, _SHAPE):
            return _BIT_SHAPE
        return _BIT_VALUE if same(found, _VALUE) else 0
    if same(found, _GRAD):
        return _BIT_GRAD
    if same(found, _DATA_NAME):
        return _BIT_DATA_NAME
    return -1 if same(found, _STAT_INDEX) else 0


@jit(i64(M, i64, i64, i64, i64))
def _read_cell(m: Any, at: Any, end: Any, row: Any, statistic: Any) -> Any:
    """Read one statistic of a tensor; place behind it or a negative reason."""
    char = byte(m.text, at)
    if char == 45 or 48 <= char <= 57:
        first = at
        at, kind, value = read_number(m.text, at, end)
        if at < 0:
            return at
        if kind == HARD:
            if not leave_open(m, row, statistic, first, at):
                return FULL
            kind = 0
        put_cell(m, row, statistic, kind, value)
        return at
    at, char = literal(m.text, at, end)
    if at < 0:
        return at
    if char == 110:
        put_cell(m, row, statistic, 2, np.nan)
    elif char == 116 or char == 102:
        put_cell(m, row, statistic, 3, 1.0 if char == 116 else 0.0)
    else:
        put_cell(m, row, statistic, 0, np.inf if char == 73 else np.nan)
    return at


@jit(i64(M, i64, i64, b1, i64))
def _read_span(m: Any, at: Any, end: Any, ascii_only: Any, place: Any) -> Any:
    """Read a string or null into the two words of the grid at ``place``; an empty string counts as null."""
    if byte(m.text, at) != 34:
        at, char = literal(m.text, at, end)
        return SURPRISE if at >= 0 and char != 110 else at
    last = string_end(m.text, at + 1, end, ascii_only)
    if last < 0:
        return last
    if last > at + 1:
        put_word(m.grid, place, at + 1)
        put_word(m.grid, place + 1, last - at - 1)
    return last + 1


@jit(i64(M, i64, i64, i64, i64, i64, f64))
def _put_scalar(m: Any, row: Any, first: Any, last: Any, tag: Any, kind: Any, number: Any) -> Any:
    """Finish the row of a scalar: its value into all four statistics, and its texts. Gives 0 or FULL.

    ``tag`` and the span say what the value is; ``kind`` and ``number`` are those of ``read_number``, for a number.
    """
    text = m.text
    class_tag = T_CLASS_NONE
    cell = 2
    letter = byte(text, first)
    if tag == T_TEXT:
        class_tag, cell, number = T_CLASS_STR, 4, np.nan
    elif tag == T_INT:
        class_tag, cell = T_CLASS_INT, 1
    elif tag == T_FLOAT:
        class_tag, cell = T_CLASS_FLOAT, 0
        if letter == 78 or letter == 73:
            number = np.nan if letter == 78 else np.inf
        elif kind == HARD and not leave_open(m, row, 4, first, last):
            return FULL
    elif last > first and letter != 110:
        class_tag, cell, number = T_CLASS_BOOL, 3, 1.0 if letter == 116 else 0.0
    else:
        number = np.nan
    for k in range(4):
        put_cell(m, row, k, cell, number)
    dtype = text_code(m, text, 0, 0, class_tag)
    return put_texts(m, row, dtype, text_code(m, text, 0, 0, T_NO_SHAPE), text_code(m, text, first, last, tag))


@jit(i64(M, i64, i64, b1, i64, i64))
def read_leaf(m: Any, at: Any, end: Any, ascii_only: Any, section: Any, path_length: Any) -> Any:
    """Read a leaf whose ``type`` string begins at ``at`` (its opening quote) into one row; place behind its brace."""
    text = m.text
    first = at + 1
    at = string_end(text, first, end, ascii_only)
    if at < 0:
        return at
    found = span_word(text, first, at)
    if same(found, _SIZE) or same(found, _SLICE) or same(found, _ELLIPSIS) or same(found, _GROUP):
        return SURPRISE
    at += 1
    row = begin_row(m, 1, section, path_length)
    if row < 0:
        return row
    seen = 0
    dtype_first, dtype_last = 0, 0
    shape_length = 0
    tag, value_first, value_last, kind, number = T_WORD, 0, 0, 0, 0.0
    while True:
        at = skip_space(text, at, end)
        if at >= end:
            return INCOMPLETE
        if byte(text, at) == 125:
            at += 1
            break
        if byte(text, at) != 44:
            return SURPRISE
        at = skip_space(text, at + 1, end)
        if at >= end:
            return INCOMPLETE
        at, first, last = read_key(text, at, end, ascii_only)
        if at < 0:
            return at
        bit = _field(text, first, last)
        if bit < 0 or seen & bit:
            return SURPRISE
        seen |= bit
        if bit >= _BIT_FIRST_STAT:
            statistic = 0
            while bit > _BIT_FIRST_STAT << statistic:
                statistic += 1
            at = _read_cell(m, at, end, row, statistic)
        elif bit == _BIT_SHAPE:
            at, shape_length = read_shape(text, at, end, m.store + SHAPE_TEXT)
        elif bit == _BIT_DTYPE:
            if byte(text, at) != 34:
                return SURPRISE
            dtype_first = at + 1
            dtype_last = string_end(text, at + 1, end, ascii_only)
            at = dtype_last + 1 if dtype_last >= 0 else dtype_last
        elif bit == _BIT_GRAD:
            at, char = literal(text, at, end)
            if at >= 0:
                if char == 78 or char == 73:
                    return SURPRISE
                put_word(m.grid, row * GRID_COLUMNS + GRAD, 1 if char == 116 else (0 if char == 102 else -1))
        elif bit == _BIT_MD5:
            at = _read_span(m, at, end, ascii_only, row * GRID_COLUMNS + MD5)
        elif bit == _BIT_DATA_NAME:
            at = _read_span(m, at, end, ascii_only, row * GRID_COLUMNS + DATA_NAME)
        elif bit == _BIT_VALUE:
            value_first = at
            if byte(text, at) == 34:
                tag, value_first = T_TEXT, at + 1
                value_last = string_end(text, at + 1, end, ascii_only)
                at = value_last + 1 if value_last >= 0 else value_last
            elif byte(text, at) == 45 or 48 <= byte(text, at) <= 57:
                at, kind, number = read_number(text, at, end)
                value_last = at
                tag = T_INT if kind == INT else T_FLOAT
            else:
                at, char = literal(text, at, end)
                value_last = at
                tag = T_FLOAT if char == 78 or char == 73 else T_WORD
        else:
            at = skip_plain(text, at, end, ascii_only)
        if at < 0:
            return at
    if seen & _BIT_DTYPE:
        put_word(m.grid, row * GRID_COLUMNS + KIND, 0)
        dtype = text_code(m, text, dtype_first, dtype_last, T_DTYPE)
        shape = text_code(m, m.store + SHAPE_TEXT, 0, shape_length, T_SHAPE)
        done = put_texts(m, row, dtype, shape, text_code(m, text, 0, 0, T_TEXT))
        return at if done == 0 else done
    if not seen & _BIT_VALUE or seen >= _BIT_FIRST_STAT or value_last - value_first > MAX_TEXT:
        return SURPRISE
    if is_rank_slot(m.store + PATH, path_length):
        return SURPRISE
    put_word(m.grid, row * GRID_COLUMNS + GRAD, -1)
    put_word(m.grid, row * GRID_COLUMNS + MD5, -1)
    done = _put_scalar(m, row, value_first, value_last, tag, kind, number)
    return at if done == 0 else done
