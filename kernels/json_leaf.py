"""One plain leaf of a dump (a tensor or a scalar) -> one row of the tokenizer's arrays."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from opassay.kernels import json_parts as parts
from opassay.kernels.json_arrays import (
    FULL,
    MAX_TEXT,
    TAG_FLOAT,
    TAG_INT,
    TAG_TEXT,
    TAG_WORD,
    add_row,
    jit,
    leave_open,
    text_code,
)
from opassay.kernels.json_numbers import HARD, INCOMPLETE, INT, SURPRISE, read_number
from opassay.kernels.json_parts import (
    equals,
    is_rank_slot,
    literal,
    read_key,
    read_shape,
    skip_plain,
    skip_space,
    string_end,
)

_TYPE, _CLASS_TYPE, _DTYPE, _SHAPE, _VALUE = (
    parts.W_TYPE,
    parts.W_CLASS_TYPE,
    parts.W_DTYPE,
    parts.W_SHAPE,
    parts.W_VALUE,
)
_MAX, _MIN, _MEAN, _NORM, _GRAD = parts.W_MAX, parts.W_MIN, parts.W_MEAN, parts.W_NORM, parts.W_GRAD
_MD5, _DATA_NAME, _STAT_INDEX = parts.W_MD5, parts.W_DATA_NAME, parts.W_STAT_INDEX
_SIZE, _SLICE, _ELLIPSIS, _GROUP = parts.W_SIZE, parts.W_SLICE, parts.W_ELLIPSIS, parts.W_GROUP
_ARGS, _KWARGS, _INPUT, _OUTPUT = parts.W_ARGS, parts.W_KWARGS, parts.W_INPUT, parts.W_OUTPUT
_PARAMETERS, _EMPTY, _NO_SHAPE = parts.W_PARAMETERS, parts.W_EMPTY, parts.W_NO_SHAPE
_DOT_INPUT, _DOT_OUTPUT, _DOT_PARAMETERS = parts.W_DOT_INPUT, parts.W_DOT_OUTPUT, parts.W_DOT_PARAMETERS
_INT_CLASS, _FLOAT_CLASS, _BOOL_CLASS, _STR_CLASS, _NONE_CLASS = map(
    parts.word_bytes,
    ("<class 'int'>", "<class 'float'>", "<class 'bool'>", "<class 'str'>", "<class 'NoneType'>"),
)
_SECTIONS: Final = ((_ARGS, 0), (_KWARGS, 1), (_INPUT, 2), (_PARAMETERS, 3), (_OUTPUT, 4))
_BIT_DTYPE, _BIT_SHAPE, _BIT_GRAD, _BIT_MD5, _BIT_DATA_NAME, _BIT_VALUE, _BIT_FIRST_STAT = 1, 2, 4, 8, 16, 32, 64


@jit
def _field(text: Any, first: Any, last: Any) -> Any:
    """Bit of a leaf's key, 0 for one that is not needed, -1 for one that only Python may see."""
    size = last - first
    if size == 3:
        if equals(text, first, last, _MAX):
            return _BIT_FIRST_STAT
        if equals(text, first, last, _MIN):
            return _BIT_FIRST_STAT << 1
        return _BIT_MD5 if equals(text, first, last, _MD5) else 0
    if size == 4:
        if equals(text, first, last, _MEAN):
            return _BIT_FIRST_STAT << 2
        if equals(text, first, last, _NORM):
            return _BIT_FIRST_STAT << 3
        return -1 if equals(text, first, last, _TYPE) else 0
    if size == 5:
        if equals(text, first, last, _DTYPE):
            return _BIT_DTYPE
        if equals(text, first, last, _SHAPE):
            return _BIT_SHAPE
        return _BIT_VALUE if equals(text, first, last, _VALUE) else 0
    if equals(text, first, last, _GRAD):
        return _BIT_GRAD
    if equals(text, first, last, _DATA_NAME):
        return _BIT_DATA_NAME
    return -1 if equals(text, first, last, _STAT_INDEX) else 0


@jit
def _read_cell(text: Any, at: Any, end: Any, rows: Any, row: Any, statistic: Any, room: Any) -> Any:
    """Read one statistic of a tensor; place behind it or a negative reason."""
    char = text[at]
    if char == 45 or 48 <= char <= 57:
        first = at
        at, kind, value = read_number(text, at, end, room.high, room.low, room.bits)
        if at < 0:
            return at
        if kind == HARD:
            if not leave_open(rows, row, statistic, first, at):
                return FULL
            kind = 0
        rows.kinds[row, statistic] = kind
        rows.cells[row, statistic] = value
        return at
    at, char = literal(text, at, end)
    if at < 0:
        return at
    if char == 110:
        rows.kinds[row, statistic] = 2
        rows.cells[row, statistic] = np.nan
    elif char == 116 or char == 102:
        rows.kinds[row, statistic] = 3
        rows.cells[row, statistic] = 1.0 if char == 116 else 0.0
    else:
        rows.kinds[row, statistic] = 0
        rows.cells[row, statistic] = np.inf if char == 73 else np.nan
    return at


@jit
def _read_span(text: Any, at: Any, end: Any, ascii_only: Any, spans: Any, row: Any) -> Any:
    """Read a string or null into a span; an empty string counts as null."""
    if text[at] != 34:
        at, char = literal(text, at, end)
        return SURPRISE if at >= 0 and char != 110 else at
    last = string_end(text, at + 1, end, ascii_only)
    if last < 0:
        return last
    if last > at + 1:
        spans[row, 0] = at + 1
        spans[row, 1] = last - at - 1
    return last + 1


@jit
def read_leaf(
    text: Any, at: Any, end: Any, ascii_only: Any, rows: Any, tables: Any, room: Any, section: Any, path_length: Any
) -> Any:
    """Read a leaf whose ``type`` string begins at ``at`` (its opening quote) into one row; place behind its brace."""
    first = at + 1
    at = string_end(text, first, end, ascii_only)
    if at < 0:
        return at
    special = (
        equals(text, first, at, _SIZE)
        or equals(text, first, at, _SLICE)
        or equals(text, first, at, _ELLIPSIS)
        or equals(text, first, at, _GROUP)
    )
    if special:
        return SURPRISE
    at += 1
    row = add_row(rows, tables, room, section, path_length)
    if row < 0:
        return row
    seen = 0
    dtype_first, dtype_last = 0, 0
    shape_length = 0
    tag, value_first, value_last = TAG_WORD, 0, 0
    while True:
        at = skip_space(text, at, end)
        if at >= end:
            return INCOMPLETE
        if text[at] == 125:
            at += 1
            break
        if text[at] != 44:
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
            at = _read_cell(text, at, end, rows, row, statistic, room)
        elif bit == _BIT_SHAPE:
            at, shape_length = read_shape(text, at, end, room.text)
        elif bit == _BIT_DTYPE:
            if text[at] != 34:
                return SURPRISE
            dtype_first = at + 1
            dtype_last = string_end(text, at + 1, end, ascii_only)
            at = dtype_last + 1 if dtype_last >= 0 else dtype_last
        elif bit == _BIT_GRAD:
            at, char = literal(text, at, end)
            if at >= 0:
                if char == 78 or char == 73:
                    return SURPRISE
                rows.requires_grad[row] = 1 if char == 116 else (0 if char == 102 else -1)
        elif bit == _BIT_MD5:
            at = _read_span(text, at, end, ascii_only, rows.md5, row)
        elif bit == _BIT_DATA_NAME:
            at = _read_span(text, at, end, ascii_only, rows.data_name, row)
        elif bit == _BIT_VALUE:
            value_first = at
            if text[at] == 34:
                tag, value_first = TAG_TEXT, at + 1
                value_last = string_end(text, at + 1, end, ascii_only)
                at = value_last + 1 if value_last >= 0 else value_last
            elif text[at] == 45 or 48 <= text[at] <= 57:
                at, kind, _ = read_number(text, at, end, room.high, room.low, room.bits)
                value_last = at
                tag = TAG_INT if kind == INT else TAG_FLOAT
            else:
                at, char = literal(text, at, end)
                value_last = at
                tag = TAG_FLOAT if char == 78 or char == 73 else TAG_WORD
        else:
            at = skip_plain(text, at, end, ascii_only, room)
        if at < 0:
            return at
    if seen & _BIT_DTYPE:
        rows.kind[row] = 0
        dtype = text_code(tables[1], text, dtype_first, dtype_last, TAG_TEXT)
        shape = text_code(tables[2], room.text, 0, shape_length, TAG_TEXT)
        value = text_code(tables[3], _EMPTY, 0, 0, TAG_TEXT)
    else:
        if seen >= _BIT_FIRST_STAT or is_rank_slot(room.path, path_length) or value_last - value_first > MAX_TEXT:
            return SURPRISE
        rows.kind[row] = 1
        rows.requires_grad[row] = -1
        rows.md5[row, 0] = -1
        done, dtype = _scalar_cells(text, value_first, value_last, tag, rows, row, tables, room)
        if not done:
            return FULL
        shape = text_code(tables[2], _NO_SHAPE, 0, 2, TAG_TEXT)
        value = text_code(tables[3], text, value_first, value_last, tag)
    if dtype < 0 or shape < 0 or value < 0:
        return FULL
    rows.codes[row, 1] = dtype
    rows.codes[row, 2] = shape
    rows.codes[row, 3] = value
    rows.counts[0] += 1
    return at


@jit
def _scalar_cells(text: Any, first: Any, last: Any, tag: Any, rows: Any, row: Any, tables: Any, room: Any) -> Any:
    """Put a scalar into all four statistics; False where there is no room, and the code of its class text."""
    kind, number = 2, np.nan
    name = _NONE_CLASS
    if tag == TAG_TEXT:
        kind, name = 4, _STR_CLASS
    elif tag in (TAG_INT, TAG_FLOAT):
        kind, name = (1, _INT_CLASS) if tag == TAG_INT else (0, _FLOAT_CLASS)
        if text[first] == 78:
            number = np.nan
        elif text[first] == 73:
            number = np.inf
        else:
            _, found, number = read_number(text, first, last + 2, room.high, room.low, room.bits)
            if found == HARD and not leave_open(rows, row, 4, first, last):
                return False, 0
    elif last > first and text[first] != 110:
        kind, name = 3, _BOOL_CLASS
        number = 1.0 if text[first] == 116 else 0.0
    for k in range(4):
        rows.kinds[row, k] = kind
        rows.cells[row, k] = number
    return True, text_code(tables[1], name, 0, name.size, TAG_TEXT)
