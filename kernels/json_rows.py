"""Tokenizer of dump.json: whole records out of a buffer of bytes, into arrays of rows.

It understands the plain leaves (tensors; int, float, bool, str and null values), null, nested lists and objects, and
any white space. A record with anything else in it is handed back by position, so that the rules for odd leaves stand in one
place only, outside. Sections are numbered as in ``vocab.Section``, kinds as in ``RowKind`` and ``StatKind`` there.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types
from opassay.kernels.json_leaf import read_leaf
from opassay.kernels.json_memory import b1, byte, i64, jit, pair, put_byte, put_word, word
from opassay.kernels.json_numbers import INCOMPLETE, SURPRISE
from opassay.kernels.json_parts import (
    literal,
    read_key,
    record_kind,
    same,
    skip_any,
    skip_plain,
    skip_space,
    span_word,
    string_end,
    word_of,
)
from opassay.kernels.json_tables import (
    FULL,
    KEYS,
    MARK_COLUMNS,
    MAX_DEPTH,
    MAX_KEYS,
    MAX_PATH,
    MAX_ROWS,
    NAME,
    NAME_LENGTH,
    OP_COUNT,
    OPEN_COUNT,
    PATH,
    RECORD_END,
    ROW_COUNT,
    STACK,
    SURPRISE_COUNT,
    SURPRISE_OP,
    SURPRISE_START,
    T_DTYPE,
    T_SHAPE,
    T_TEXT,
    U64,
    M,
    begin_row,
    put_texts,
    text_code,
)

MORE: Final = 0  # the buffer ends inside a record
END: Final = 1  # the closing brace of ``data`` was read
BAD: Final = 2  # between two records there is something that is no JSON
NO_ROOM: Final = 3  # an output array or the text table is full

STATE_FIRST: Final = 0  # behind the opening brace of ``data``
STATE_NEXT: Final = 1  # behind a record

_TYPE, _CLASS_TYPE = word_of("type"), word_of("class_type")
_ARGS, _KWARGS, _INPUT = map(word_of, ("input_args", "input_kwargs", "input"))
_OUTPUT, _PARAMETERS = word_of("output"), word_of("parameters")


def _infix(text: str) -> tuple[int, int, int]:
    """Length, bytes 0 to 7 and bytes 8 to 15 of the beginning of a slot."""
    data = text.encode()
    return len(data), int.from_bytes(data[:8], "little"), int.from_bytes(data[8:16], "little")


_DOT_INPUT, _DOT_OUTPUT, _DOT_PARAMETERS = map(_infix, (".input", ".output", ".parameters"))


@jit(i64(i64, i64, i64, i64, i64))
def _append(path: Any, length: Any, text: Any, first: Any, last: Any) -> Any:
    """Append "." and a key to the path; its new length, or SURPRISE where it does not fit."""
    if length + 1 + last - first > MAX_PATH:
        return SURPRISE
    put_byte(path, length, 46)
    for k in range(first, last):
        put_byte(path, length + 1 + k - first, byte(text, k))
    return length + 1 + last - first


@jit(i64(i64, i64, i64))
def _append_index(path: Any, length: Any, index: Any) -> Any:
    """Append "." and a number to the path; its new length, or SURPRISE where it does not fit."""
    width = 1
    rest = index // 10
    while rest:
        width += 1
        rest //= 10
    if length + 1 + width > MAX_PATH:
        return SURPRISE
    put_byte(path, length, 46)
    for k in range(width):
        put_byte(path, length + width - k, 48 + index % 10)
        index //= 10
    return length + 1 + width


@jit(b1(M, i64, i64, i64, i64))
def _new_key(m: Any, base: Any, count: Any, first: Any, last: Any) -> Any:
    """Whether a key is new among those from ``base`` on (by hash; a false alarm only costs time) and fits."""
    if count >= MAX_KEYS:
        return False
    value = U64(last - first)
    for k in range(first, last):
        value = (value ^ U64(byte(m.text, k))) * U64(0x100000001B3)
    key = np.int64(value)
    for k in range(base, count):
        if word(m.work, KEYS + k) == key:
            return False
    put_word(m.work, KEYS + count, key)
    return True


@jit(i64(M, i64, i64))
def _null_row(m: Any, section: Any, path_length: Any) -> Any:
    """The row of a null; 0 or FULL."""
    row = begin_row(m, 2, section, path_length)
    if row < 0:
        return row
    text = m.text
    dtype, shape = text_code(m, text, 0, 0, T_DTYPE), text_code(m, text, 0, 0, T_SHAPE)
    return put_texts(m, row, dtype, shape, text_code(m, text, 0, 0, T_TEXT))


@jit(i64(M, i64, i64, b1, i64, i64, b1, i64))
def _walk(
    m: Any, at: Any, end: Any, ascii_only: Any, section: Any, path_length: Any, numbered: Any, key_count: Any
) -> Any:  # fmt: skip
    """Rows of the value at ``at``, depth first; place behind it or a negative reason."""
    depth = 0
    text = m.text
    path = m.store + PATH
    stack = m.work + 8 * STACK
    while True:
        # a value begins here
        char = byte(text, at)
        fresh = False  # a container was opened and stands before its first member
        if char == 110:
            at, _ = literal(text, at, end)
            if at < 0:
                return at
            done = _null_row(m, section, path_length)
            if done < 0:
                return done
        elif char == 91 or char == 123:
            if depth == MAX_DEPTH:
                return SURPRISE
            put_word(stack, 4 * depth, 1 if char == 123 else 0)
            put_word(stack, 4 * depth + 1, path_length)
            put_word(stack, 4 * depth + 2, 0)
            put_word(stack, 4 * depth + 3, key_count)
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
            is_object = word(stack, 4 * depth - 4)
            if byte(text, at) == (125 if is_object else 93):
                at += 1
                depth -= 1
                key_count = word(stack, 4 * depth + 3)
                fresh = False
                continue
            if not fresh:
                if byte(text, at) != 44:
                    return SURPRISE
                at = skip_space(text, at + 1, end)
                if at >= end:
                    return INCOMPLETE
            base = word(stack, 4 * depth - 3)
            if not is_object:
                path_length = _append_index(path, base, word(stack, 4 * depth - 2)) if numbered else base
                put_word(stack, 4 * depth - 2, word(stack, 4 * depth - 2) + 1)
                if path_length < 0:
                    return path_length
                break
            at, first, last = read_key(text, at, end, ascii_only)
            if at < 0:
                return at
            found = span_word(text, first, last)
            if same(found, _CLASS_TYPE):
                return SURPRISE
            if byte(text, at) == 34 and same(found, _TYPE):
                if not fresh:
                    return SURPRISE
                depth -= 1
                key_count = word(stack, 4 * depth + 3)
                at = read_leaf(m, at, end, ascii_only, section, word(stack, 4 * depth + 1))
                if at < 0:
                    return at
                fresh = False
                continue
            if not _new_key(m, word(stack, 4 * depth - 1), key_count, first, last):
                return SURPRISE
            key_count += 1
            path_length = _append(path, base, text, first, last)
            if path_length < 0:
                return path_length
            break


@jit(i64(M, i64, i64, b1, i64))
def _read_record(m: Any, at: Any, end: Any, ascii_only: Any, what: Any) -> Any:
    """Rows of the record at ``at``; ``what`` as ``record_kind``, 3 for debug. Place behind it or a negative reason."""
    if what == 3:
        return _walk(m, at, end, ascii_only, 6, 0, True, 0)
    text = m.text
    path = m.store + PATH
    if byte(text, at) != 123:
        return SURPRISE
    at += 1
    seen = 0
    keys = 0
    while True:
        at = skip_space(text, at, end)
        if at >= end:
            return INCOMPLETE
        if byte(text, at) == 125:
            return at + 1
        if keys:
            if byte(text, at) != 44:
                return SURPRISE
            at = skip_space(text, at + 1, end)
            if at >= end:
                return INCOMPLETE
        at, first, last = read_key(text, at, end, ascii_only)
        if at < 0:
            return at
        if what == 2:
            if not _new_key(m, 0, keys, first, last):
                return SURPRISE
            length = _append(path, 0, text, first, last)
            if length < 0:
                return length
            at = _walk(m, at, end, ascii_only, 5, length, False, keys + 1)
        else:
            section = -1
            found = span_word(text, first, last)
            if same(found, _ARGS):
                section = 0
            elif same(found, _KWARGS):
                section = 1
            elif same(found, _INPUT):
                section = 2
            elif same(found, _PARAMETERS):
                section = 3
            elif same(found, _OUTPUT):
                section = 4
            if section < 0:
                at = skip_plain(text, at, end, ascii_only)
            else:
                if seen & (1 << section):
                    return SURPRISE
                seen |= 1 << section
                if byte(text, at) == 110:
                    at, _ = literal(text, at, end)
                else:
                    length, head, tail = _DOT_INPUT
                    if section == 3:
                        length, head, tail = _DOT_PARAMETERS
                    elif section == 4:
                        length, head, tail = _DOT_OUTPUT
                    put_word(path, 0, head)
                    put_word(path, 1, tail)
                    at = _walk(m, at, end, ascii_only, section, length, True, 0)
        if at < 0:
            return at
        keys += 1


@jit(pair(i64, i64)(M, i64, i64, i64, b1, b1))
def read_records(m: Any, start: Any, end: Any, state: Any, is_debug: Any, ascii_only: Any) -> Any:
    """Read records from a buffer until it, the arrays or the object end.

    Parameters
    ----------
    m : Memory
        The buffer (``text``) and the arrays that are written, each from its beginning; texts are added.
    start, end : int
        The part of the buffer to read.
    state : int
        STATE_FIRST or STATE_NEXT.
    is_debug : bool
        Whether the values of the members are values, not records of sections.
    ascii_only : bool
        Hand back every record with a byte beyond ASCII (for a buffer that is no UTF-8).

    Returns
    -------
    status : int
        MORE, END, BAD or NO_ROOM.
    at : int
        Place behind the last complete record (or behind the closing brace).
    """
    text = m.text
    for k in range(OPEN_COUNT + 1):
        put_word(m.work, k, 0)
    done = start
    while True:
        at = skip_space(text, done, end)
        if at >= end:
            return MORE, done
        if byte(text, at) == 125:
            return END, at + 1
        if state == STATE_NEXT:
            if byte(text, at) != 44:
                return BAD, done
            at = skip_space(text, at + 1, end)
            if at >= end:
                return MORE, done
        if byte(text, at) != 34:
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
        if byte(text, at) != 58:
            return BAD, done
        at = skip_space(text, at + 1, end)
        if at >= end:
            return MORE, done
        op, row, left_open = word(m.work, OP_COUNT), word(m.work, ROW_COUNT), word(m.work, OPEN_COUNT)
        if op >= MAX_ROWS:
            return NO_ROOM, done
        what = 3 if is_debug else record_kind(text, first, last)
        value = at
        at = SURPRISE
        if what and not odd_name:
            at = _read_record(m, value, end, ascii_only, what)
        if at < 0:
            put_word(m.work, ROW_COUNT, row)
            put_word(m.work, OPEN_COUNT, left_open)
            if at == INCOMPLETE:
                return MORE, done
            if at == FULL:
                return NO_ROOM, done
            at = skip_any(text, value, end)
            if at < 0:
                return MORE, done
            surprises = word(m.work, SURPRISE_COUNT)
            put_word(m.marks, surprises * MARK_COLUMNS + SURPRISE_OP, op)
            put_word(m.marks, surprises * MARK_COLUMNS + SURPRISE_START, value)
            put_word(m.work, SURPRISE_COUNT, surprises + 1)
        put_word(m.marks, op * MARK_COLUMNS + NAME, first)
        put_word(m.marks, op * MARK_COLUMNS + NAME_LENGTH, last - first)
        put_word(m.marks, op * MARK_COLUMNS + RECORD_END, at)
        put_word(m.work, OP_COUNT, op + 1)
        done = at
        state = STATE_NEXT


_GATHER: Final = i64(
    types.Array(types.uint8, 1, "C", readonly=True),
    types.Array(i64, 2, "A"),
    types.Array(types.int32, 1, "C"),
    types.Array(types.uint8, 1, "C"),
)


@jit(_GATHER)
def gather_texts(text: Any, spans: Any, offsets: Any, out: Any) -> Any:
    """Copy texts out of the buffer, one behind the other.

    Parameters
    ----------
    text : ndarray of uint8
        The buffer.
    spans : ndarray of int64, shape (count, 2)
        Start (negative: no text) and length.
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
    for k in range(len(spans)):
        first = spans[k, 0]
        if first < 0:
            missing += 1
        else:
            for place in range(spans[k, 1]):
                out[at + place] = text[first + place]
            at += spans[k, 1]
        offsets[k + 1] = at
    return missing
