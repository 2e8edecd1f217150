"""Tokenizer of dump.json: whole records out of a buffer of bytes, into arrays of rows.

It understands the plain leaves (tensors, int, float, bool and str values, null), nested lists and objects, and any
white space. A record with anything else in it is handed back by position, so that the rules for odd leaves stand in one
place only, outside. Sections are numbered as in ``vocab.Section``, kinds as in ``RowKind`` and ``StatKind`` there.
"""

from __future__ import annotations

from typing import Any, Final

from opassay.kernels import json_parts as parts
from opassay.kernels.json_arrays import FULL, MAX_DEPTH, MAX_KEYS, MAX_PATH, STATE_NEXT, U64, jit, null_row
from opassay.kernels.json_leaf import read_leaf
from opassay.kernels.json_numbers import INCOMPLETE, SURPRISE
from opassay.kernels.json_parts import (
    equals,
    literal,
    read_key,
    record_kind,
    skip_any,
    skip_plain,
    skip_space,
    string_end,
)

MORE: Final = 0  # the buffer ends inside a record
END: Final = 1  # the closing brace of ``data`` was read
BAD: Final = 2  # between two records there is something that is no JSON
NO_ROOM: Final = 3  # an output array or a text table is full

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
def _append(path: Any, length: Any, text: Any, first: Any, last: Any) -> Any:
    """Append "." and a key to the path; its new length, or SURPRISE where it does not fit."""
    if length + 1 + last - first > MAX_PATH:
        return SURPRISE
    path[length] = 46
    for k in range(first, last):
        path[length + 1 + k - first] = text[k]
    return length + 1 + last - first


@jit
def _append_index(path: Any, length: Any, index: Any) -> Any:
    """Append "." and a number to the path; its new length, or SURPRISE where it does not fit."""
    width = 1
    rest = index // 10
    while rest:
        width += 1
        rest //= 10
    if length + 1 + width > MAX_PATH:
        return SURPRISE
    path[length] = 46
    for k in range(width):
        path[length + width - k] = 48 + index % 10
        index //= 10
    return length + 1 + width


@jit
def _new_key(room: Any, base: Any, count: Any, text: Any, first: Any, last: Any) -> Any:
    """Whether a key is new among those from ``base`` on (by hash; a false alarm only costs time) and fits."""
    if count >= MAX_KEYS:
        return False
    value = U64(last - first)
    for k in range(first, last):
        value = (value ^ U64(text[k])) * U64(0x100000001B3)
    for k in range(base, count):
        if room.keys[k] == value:
            return False
    room.keys[count] = value
    return True


@jit
def _walk(
    text: Any, at: Any, end: Any, ascii_only: Any, rows: Any, tables: Any, room: Any,
    section: Any, path_length: Any, numbered: Any, key_count: Any,
) -> Any:  # fmt: skip
    """Rows of the value at ``at``, depth first; place behind it or a negative reason."""
    depth = 0
    stack = room.stack
    while True:
        # a value begins here
        char = text[at]
        fresh = False  # a container was opened and stands before its first member
        if char == 110:
            at, _ = literal(text, at, end)
            if at < 0:
                return at
            done = null_row(rows, tables, room, section, path_length)
            if done < 0:
                return done
        elif char == 91 or char == 123:
            if depth == MAX_DEPTH:
                return SURPRISE
            stack[depth, 0] = 1 if char == 123 else 0
            stack[depth, 1] = path_length
            stack[depth, 2] = 0
            stack[depth, 3] = key_count
            depth += 1
            at += 1
            fresh = True
        else:
            return SURPRISE
        # go on behind a value, or before the first member
        while True:
            if depth == 0:
                return at
            at = skip_space(text, at, end)
            if at >= end:
                return INCOMPLETE
            is_object = stack[depth - 1, 0]
            if text[at] == (125 if is_object else 93):
                at += 1
                depth -= 1
                key_count = stack[depth, 3]
                fresh = False
                continue
            if not fresh:
                if text[at] != 44:
                    return SURPRISE
                at = skip_space(text, at + 1, end)
                if at >= end:
                    return INCOMPLETE
            base = stack[depth - 1, 1]
            if not is_object:
                path_length = _append_index(room.path, base, stack[depth - 1, 2]) if numbered else base
                stack[depth - 1, 2] += 1
                if path_length < 0:
                    return path_length
                break
            at, first, last = read_key(text, at, end, ascii_only)
            if at < 0:
                return at
            if equals(text, first, last, _CLASS_TYPE):
                return SURPRISE
            if text[at] == 34 and equals(text, first, last, _TYPE):
                if not fresh:
                    return SURPRISE
                depth -= 1
                key_count = stack[depth, 3]
                at = read_leaf(text, at, end, ascii_only, rows, tables, room, section, stack[depth, 1])
                if at < 0:
                    return at
                fresh = False
                continue
            if not _new_key(room, stack[depth - 1, 3], key_count, text, first, last):
                return SURPRISE
            key_count += 1
            path_length = _append(room.path, base, text, first, last)
            if path_length < 0:
                return path_length
            break


@jit
def _read_record(text: Any, at: Any, end: Any, ascii_only: Any, rows: Any, tables: Any, room: Any, what: Any) -> Any:
    """Rows of the record at ``at``; ``what`` as ``record_kind``, 3 for debug. Place behind it or a negative reason."""
    if what == 3:
        return _walk(text, at, end, ascii_only, rows, tables, room, 6, 0, True, 0)
    if text[at] != 123:
        return SURPRISE
    at += 1
    seen = 0
    keys = 0
    while True:
        at = skip_space(text, at, end)
        if at >= end:
            return INCOMPLETE
        if text[at] == 125:
            return at + 1
        if keys:
            if text[at] != 44:
                return SURPRISE
            at = skip_space(text, at + 1, end)
            if at >= end:
                return INCOMPLETE
        at, first, last = read_key(text, at, end, ascii_only)
        if at < 0:
            return at
        if what == 2:
            if not _new_key(room, 0, keys, text, first, last):
                return SURPRISE
            length = _append(room.path, 0, text, first, last)
            if length < 0:
                return length
            at = _walk(text, at, end, ascii_only, rows, tables, room, 5, length, False, keys + 1)
        else:
            section = -1
            if equals(text, first, last, _ARGS):
                section = 0
            elif equals(text, first, last, _KWARGS):
                section = 1
            elif equals(text, first, last, _INPUT):
                section = 2
            elif equals(text, first, last, _PARAMETERS):
                section = 3
            elif equals(text, first, last, _OUTPUT):
                section = 4
            if section < 0:
                at = skip_plain(text, at, end, ascii_only, room)
            else:
                if seen & (1 << section):
                    return SURPRISE
                seen |= 1 << section
                if text[at] == 110:
                    at, _ = literal(text, at, end)
                else:
                    infix = _DOT_INPUT if section < 3 else (_DOT_PARAMETERS if section == 3 else _DOT_OUTPUT)
                    for k in range(infix.size):
                        room.path[k] = infix[k]
                    at = _walk(text, at, end, ascii_only, rows, tables, room, section, infix.size, True, 0)
        if at < 0:
            return at
        keys += 1


@jit
def read_records(
    text: Any, start: Any, end: Any, state: Any, is_debug: Any, ascii_only: Any, rows: Any, tables: Any, room: Any
) -> Any:
    """Read records from ``text[start:end]`` until the buffer, the arrays or the object end.

    Parameters
    ----------
    text : ndarray of uint8
        The buffer.
    start, end : int
        The part to read.
    state : int
        STATE_FIRST or STATE_NEXT.
    is_debug : bool
        Whether the values of the members are values, not records of sections.
    ascii_only : bool
        Hand back every record with a byte beyond ASCII (for a buffer that is no UTF-8).
    rows : Rows
        Written from its beginning; ``counts`` is reset.
    tables : tuple of TextTable, length 4
        Codes of slots, dtypes, shapes and values; texts are added.
    room : Room
        Scratch.

    Returns
    -------
    status : int
        MORE, END, BAD or NO_ROOM.
    at : int
        Place behind the last complete record (or behind the closing brace).
    """
    rows.counts[:] = 0
    done = start
    while True:
        at = skip_space(text, done, end)
        if at >= end:
            return MORE, done
        if text[at] == 125:
            return END, at + 1
        if state == STATE_NEXT:
            if text[at] != 44:
                return BAD, done
            at = skip_space(text, at + 1, end)
            if at >= end:
                return MORE, done
        if text[at] != 34:
            return BAD, done
        first = at + 1
        last = string_end(text, first, end, ascii_only)
        odd_name = last == SURPRISE
        if odd_name:
            last = skip_any(text, at, end) - 1
        if last < 0:
            return MORE, done
        at = skip_space(text, last + 1, end)
        if at >= end:
            return MORE, done
        if text[at] != 58:
            return BAD, done
        at = skip_space(text, at + 1, end)
        if at >= end:
            return MORE, done
        op, row, left_open = rows.counts[1], rows.counts[0], rows.counts[3]
        if op >= rows.op_end.size:
            return NO_ROOM, done
        what = 3 if is_debug else record_kind(text, first, last)
        value = at
        at = SURPRISE
        if what and not odd_name:
            at = _read_record(text, value, end, ascii_only, rows, tables, room, what)
        if at < 0:
            rows.counts[0] = row
            rows.counts[3] = left_open
            if at == INCOMPLETE:
                return MORE, done
            if at == FULL or rows.counts[2] >= rows.surprises.shape[0]:
                return NO_ROOM, done
            at = skip_any(text, value, end)
            if at < 0:
                return MORE, done
            rows.surprises[rows.counts[2], 0] = op
            rows.surprises[rows.counts[2], 1] = value
            rows.counts[2] += 1
        rows.op_name[op, 0] = first
        rows.op_name[op, 1] = last - first
        rows.op_end[op] = at
        rows.counts[1] += 1
        done = at
        state = STATE_NEXT


@jit
def gather_texts(text: Any, spans: Any, count: Any, offsets: Any, out: Any) -> Any:
    """Copy texts out of the buffer, one behind the other.

    Parameters
    ----------
    text : ndarray of uint8
        The buffer.
    spans : ndarray of int64, shape (>= count, 2)
        Start (negative: no text) and length.
    count : int
        Texts.
    offsets : ndarray of int32, shape (count + 1,)
        Gets their places in ``out``.
    out : ndarray of uint8
        Gets the bytes; large enough.

    Returns
    -------
    int
        How many have no text.
    """
    missing = 0
    at = 0
    offsets[0] = 0
    for k in range(count):
        first = spans[k, 0]
        if first < 0:
            missing += 1
        else:
            for place in range(spans[k, 1]):
                out[at + place] = text[first + place]
            at += spans[k, 1]
        offsets[k + 1] = at
    return missing
