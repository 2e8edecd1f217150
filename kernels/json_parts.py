"""Small parts of the tokenizer: places in a buffer, words, keys and the values it steps over.

Every reader gives the place behind what it read, or INCOMPLETE, or SURPRISE.
"""

from __future__ import annotations

from typing import Any

from opassay.kernels.json_memory import b1, byte, i64, jit, pair, put_byte, word
from opassay.kernels.json_numbers import INCOMPLETE, SURPRISE, read_number

WORD = pair(i64, i64, i64)


@jit(i64(i64, i64, i64))
def skip_space(text: Any, at: Any, end: Any) -> Any:
    """First place from ``at`` on that is no white space, or ``end``."""
    while at < end and (byte(text, at) == 32 or byte(text, at) == 10 or byte(text, at) == 13 or byte(text, at) == 9):
        at += 1
    return at


@jit(i64(i64, i64, i64, b1))
def string_end(text: Any, at: Any, end: Any, ascii_only: Any) -> Any:
    """Place of the quote that closes the string with its first character at ``at``; SURPRISE if it is no plain text."""
    while at < end:
        char = byte(text, at)
        if char == 34:
            return at
        if char == 92 or char < 32 or (ascii_only and char >= 128):
            return SURPRISE
        at += 1
    return INCOMPLETE


@jit(i64(i64, i64, i64))
def skip_any(text: Any, at: Any, end: Any) -> Any:
    """Place behind the value at ``at``, found by brackets and quotes alone, or INCOMPLETE."""
    depth = 0
    while at < end:
        char = byte(text, at)
        if char == 34:
            at += 1
            while at < end and byte(text, at) != 34:
                at += 2 if byte(text, at) == 92 else 1
            if at >= end:
                return INCOMPLETE
            if depth == 0:
                return at + 1
        elif char == 123 or char == 91:
            depth += 1
        elif char == 125 or char == 93:
            if depth == 0:
                return at
            depth -= 1
            if depth == 0:
                return at + 1
        elif depth == 0 and (char == 44 or char <= 32):
            return at
        at += 1
    return INCOMPLETE


def word_of(text: str) -> tuple[int, int, int]:
    """A word as the tokenizer compares it: length, first and last (up to) 8 bytes. Exact up to 16 bytes."""
    data = text.encode()
    return len(data), int.from_bytes(data[:8], "little"), int.from_bytes(data[-8:], "little")


@jit(WORD(i64, i64, i64))
def span_word(text: Any, first: Any, last: Any) -> Any:
    """Length, first and last 8 bytes of a span, as ``word_of`` gives them."""
    length = last - first
    if length >= 8:
        return length, word(text + first, 0), word(text + last - 8, 0)
    head = 0
    for k in range(length):
        head |= byte(text, first + k) << (8 * k)
    return length, head, head


@jit(b1(WORD, WORD))
def same(a: Any, b: Any) -> Any:
    """Whether two words are the same (for more than 16 bytes: may be)."""
    return a[0] == b[0] and a[1] == b[1] and a[2] == b[2]


_NULL, _TRUE, _FALSE, _NAN, _INFINITY = map(word_of, ("null", "true", "false", "NaN", "Infinity"))
_SRC, _DST, _GROUP_SRC, _GROUP_DST = map(word_of, ("src", "dst", "group_src", "group_dst"))
_FORWARD, _BACKWARD, _PARAMETERS_GRAD = map(word_of, ("forward", "backward", "parameters_grad"))


@jit(pair(i64, i64)(i64, i64, i64))
def literal(text: Any, at: Any, end: Any) -> Any:
    """Place behind null, true, false, NaN or Infinity, and the word's first letter."""
    char = byte(text, at)
    wanted = _NULL
    if char == 116:
        wanted = _TRUE
    elif char == 102:
        wanted = _FALSE
    elif char == 78:
        wanted = _NAN
    elif char == 73:
        wanted = _INFINITY
    elif char != 110:
        return SURPRISE, char
    if at + wanted[0] >= end:
        return INCOMPLETE, char
    return (at + wanted[0] if same(span_word(text, at, at + wanted[0]), wanted) else SURPRISE), char


@jit(i64(i64, i64, i64))
def _part(text: Any, first: Any, last: Any) -> Any:
    """1 for a direction, 2 for parameters_grad, 0 for any other name component."""
    found = span_word(text, first, last)
    if same(found, _PARAMETERS_GRAD):
        return 2
    return 1 if same(found, _FORWARD) or same(found, _BACKWARD) else 0


@jit(i64(i64, i64, i64))
def record_kind(text: Any, first: Any, last: Any) -> Any:
    """What the last two components of a record name say: 0 no direction, 1 a call, 2 parameters_grad."""
    dot = last - 1
    while dot >= first and byte(text, dot) != 46:
        dot -= 1
    found = _part(text, dot + 1, last)
    if dot >= first:
        before = dot - 1
        while before >= first and byte(text, before) != 46:
            before -= 1
        found = max(found, _part(text, before + 1, dot))
    return found


@jit(b1(i64, i64))
def is_rank_slot(path: Any, length: Any) -> Any:
    """Whether the last component of a slot is the key of a rank."""
    dot = length - 1
    while dot >= 0 and byte(path, dot) != 46:
        dot -= 1
    found = span_word(path, dot + 1, length)
    return same(found, _SRC) or same(found, _DST) or same(found, _GROUP_SRC) or same(found, _GROUP_DST)


@jit(i64(i64, i64, i64, b1))
def skip_plain(text: Any, at: Any, end: Any, ascii_only: Any) -> Any:
    """Place behind a value that is not needed; strict, so that nothing passes here that is no JSON."""
    closers = 0  # one bit a level: 1 object, 0 list
    depth = 0
    while True:
        char = byte(text, at)
        opened = False
        if char == 34:
            at = string_end(text, at + 1, end, ascii_only)
            if at < 0:
                return at
            at += 1
        elif char == 91 or char == 123:
            if depth == 24:
                return SURPRISE
            closers = closers * 2 + (1 if char == 123 else 0)
            depth += 1
            opened = True
            at += 1
        elif char == 45 or 48 <= char <= 57:
            at, _, _ = read_number(text, at, end)
        else:
            at, _ = literal(text, at, end)
        if at < 0:
            return at
        while depth:
            at = skip_space(text, at, end)
            if at >= end:
                return INCOMPLETE
            char = byte(text, at)
            if char == (125 if closers & 1 else 93):
                closers //= 2
                depth -= 1
                at += 1
                opened = False
                continue
            if not opened:
                if char != 44:
                    return SURPRISE
                at = skip_space(text, at + 1, end)
                if at >= end:
                    return INCOMPLETE
            if closers & 1:
                if byte(text, at) != 34:
                    return SURPRISE
                at = string_end(text, at + 1, end, ascii_only)
                if at < 0:
                    return at
                at = skip_space(text, at + 1, end)
                if at >= end:
                    return INCOMPLETE
                if byte(text, at) != 58:
                    return SURPRISE
                at = skip_space(text, at + 1, end)
                if at >= end:
                    return INCOMPLETE
            break
        if depth == 0:
            return at


@jit(pair(i64, i64, i64)(i64, i64, i64, b1))
def read_key(text: Any, at: Any, end: Any, ascii_only: Any) -> Any:
    """Span of the key whose opening quote is at ``at``, and the place of its value."""
    if byte(text, at) != 34:
        return SURPRISE, at, at
    first = at + 1
    last = string_end(text, first, end, ascii_only)
    if last < 0:
        return last, first, first
    at = skip_space(text, last + 1, end)
    if at >= end:
        return INCOMPLETE, first, last
    if byte(text, at) != 58:
        return SURPRISE, first, last
    at = skip_space(text, at + 1, end)
    return (at if at < end else INCOMPLETE), first, last


@jit(pair(i64, i64)(i64, i64, i64, i64))
def read_shape(text: Any, at: Any, end: Any, scratch: Any) -> Any:
    """Place behind a list of whole numbers, and the length of its text without white space."""
    if byte(text, at) != 91:
        return SURPRISE, 0
    put_byte(scratch, 0, 91)
    length = 1
    at = skip_space(text, at + 1, end)
    if at < end and byte(text, at) == 93:
        put_byte(scratch, 1, 93)
        return at + 1, 2
    while at < end:
        if byte(text, at) == 45:
            return SURPRISE, 0
        first = at
        while at < end and 48 <= byte(text, at) <= 57:
            if length > 1000:
                return SURPRISE, 0
            put_byte(scratch, length, byte(text, at))
            length += 1
            at += 1
        if at >= end:
            return INCOMPLETE, 0
        if at == first or (byte(text, first) == 48 and at > first + 1):
            return SURPRISE, 0
        at = skip_space(text, at, end)
        if at >= end:
            return INCOMPLETE, 0
        put_byte(scratch, length, byte(text, at))
        length += 1
        if byte(text, at) == 93:
            return at + 1, length
        if byte(text, at) != 44:
            return SURPRISE, 0
        at = skip_space(text, at + 1, end)
    return INCOMPLETE, 0
