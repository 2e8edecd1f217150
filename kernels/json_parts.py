"""Small parts of the tokenizer: places in a buffer, words, keys and the values it steps over."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from opassay.kernels.json_arrays import jit
from opassay.kernels.json_numbers import INCOMPLETE, SURPRISE, read_number

Bytes = npt.NDArray[np.uint8]


@jit
def skip_space(text: Any, at: Any, end: Any) -> Any:
    """First place from ``at`` on that is no white space, or ``end``."""
    while at < end and (text[at] == 32 or text[at] == 10 or text[at] == 13 or text[at] == 9):
        at += 1
    return at


@jit
def string_end(text: Any, at: Any, end: Any, ascii_only: Any) -> Any:
    """Place of the quote that closes the string with its first character at ``at``; SURPRISE if it is no plain text."""
    while at < end:
        char = text[at]
        if char == 34:
            return at
        if char == 92 or char < 32 or (ascii_only and char >= 128):
            return SURPRISE
        at += 1
    return INCOMPLETE


@jit
def skip_any(text: Any, at: Any, end: Any) -> Any:
    """Place behind the value at ``at``, found by brackets and quotes alone, or INCOMPLETE."""
    depth = 0
    while at < end:
        char = text[at]
        if char == 34:
            at += 1
            while at < end and text[at] != 34:
                at += 2 if text[at] == 92 else 1
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


@jit
def equals(text: Any, first: Any, last: Any, word: Any) -> Any:
    if last - first != word.size:
        return False
    for k in range(word.size):  # noqa: SIM110 (numba has no all())
        if text[first + k] != word[k]:
            return False
    return True


@jit
def literal(text: Any, at: Any, end: Any) -> Any:
    """Place behind null, true, false or NaN or Infinity, and the word's first letter."""
    char = text[at]
    word = W_NULL
    if char == 116:
        word = W_TRUE
    elif char == 102:
        word = W_FALSE
    elif char == 78:
        word = W_NAN
    elif char == 73:
        word = W_INFINITY
    elif char != 110:
        return SURPRISE, char
    if at + word.size >= end:
        return INCOMPLETE, char
    return (at + word.size if equals(text, at, at + word.size, word) else SURPRISE), char


def word_bytes(text: str) -> Bytes:
    return np.frombuffer(text.encode(), np.uint8)


W_NULL, W_TRUE, W_FALSE, W_NAN, W_INFINITY = map(word_bytes, ("null", "true", "false", "NaN", "Infinity"))
W_TYPE, W_CLASS_TYPE, W_DTYPE, W_SHAPE, W_VALUE = map(word_bytes, ("type", "class_type", "dtype", "shape", "value"))
W_MAX, W_MIN, W_MEAN, W_NORM = map(word_bytes, ("Max", "Min", "Mean", "Norm"))
W_GRAD, W_MD5, W_DATA_NAME = map(word_bytes, ("requires_grad", "md5", "data_name"))
W_STAT_INDEX = word_bytes("tensor_stat_index")
W_SIZE, W_SLICE, W_ELLIPSIS, W_GROUP = map(word_bytes, ("torch.Size", "slice", "ellipsis", "torch.ProcessGroup"))
W_SRC, W_DST, W_GROUP_SRC, W_GROUP_DST = map(word_bytes, ("src", "dst", "group_src", "group_dst"))
W_FORWARD, W_BACKWARD, W_PARAMETERS_GRAD = map(word_bytes, ("forward", "backward", "parameters_grad"))
W_ARGS, W_KWARGS, W_INPUT = map(word_bytes, ("input_args", "input_kwargs", "input"))
W_OUTPUT, W_PARAMETERS = map(word_bytes, ("output", "parameters"))
W_DOT_INPUT, W_DOT_OUTPUT, W_DOT_PARAMETERS = map(word_bytes, (".input", ".output", ".parameters"))
W_EMPTY, W_NO_SHAPE = word_bytes(""), word_bytes("[]")


@jit
def _part(text: Any, first: Any, last: Any) -> Any:
    """1 for a direction, 2 for parameters_grad, 0 for any other name component."""
    if equals(text, first, last, W_PARAMETERS_GRAD):
        return 2
    return 1 if equals(text, first, last, W_FORWARD) or equals(text, first, last, W_BACKWARD) else 0


@jit
def record_kind(text: Any, first: Any, last: Any) -> Any:
    """What the last two components of a record name say: 0 no direction, 1 a call, 2 parameters_grad."""
    dot = last - 1
    while dot >= first and text[dot] != 46:
        dot -= 1
    found = _part(text, dot + 1, last)
    if dot >= first:
        before = dot - 1
        while before >= first and text[before] != 46:
            before -= 1
        found = max(found, _part(text, before + 1, dot))
    return found


@jit
def is_rank_slot(path: Any, length: Any) -> Any:
    dot = length - 1
    while dot >= 0 and path[dot] != 46:
        dot -= 1
    return (
        equals(path, dot + 1, length, W_SRC)
        or equals(path, dot + 1, length, W_DST)
        or equals(path, dot + 1, length, W_GROUP_SRC)
        or equals(path, dot + 1, length, W_GROUP_DST)
    )


@jit
def skip_plain(text: Any, at: Any, end: Any, ascii_only: Any, room: Any) -> Any:
    """Place behind a value that is not needed; strict, so that nothing passes here that is no JSON."""
    closers = 0  # one bit a level: 1 object, 0 list
    depth = 0
    while True:
        char = text[at]
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
            at, _, _ = read_number(text, at, end, room.high, room.low, room.bits)
        else:
            at, _ = literal(text, at, end)
        if at < 0:
            return at
        while depth:
            at = skip_space(text, at, end)
            if at >= end:
                return INCOMPLETE
            char = text[at]
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
                if text[at] != 34:
                    return SURPRISE
                at = string_end(text, at + 1, end, ascii_only)
                if at < 0:
                    return at
                at = skip_space(text, at + 1, end)
                if at >= end:
                    return INCOMPLETE
                if text[at] != 58:
                    return SURPRISE
                at = skip_space(text, at + 1, end)
                if at >= end:
                    return INCOMPLETE
            break
        if depth == 0:
            return at


@jit
def read_key(text: Any, at: Any, end: Any, ascii_only: Any) -> Any:
    """Span of the key whose opening quote is at ``at``, and the place of its value."""
    if text[at] != 34:
        return SURPRISE, at, at
    first = at + 1
    last = string_end(text, first, end, ascii_only)
    if last < 0:
        return last, first, first
    at = skip_space(text, last + 1, end)
    if at >= end:
        return INCOMPLETE, first, last
    if text[at] != 58:
        return SURPRISE, first, last
    at = skip_space(text, at + 1, end)
    return (at if at < end else INCOMPLETE), first, last


@jit
def read_shape(text: Any, at: Any, end: Any, scratch: Any) -> Any:
    """Place behind a list of whole numbers, and the length of its text without white space."""
    if text[at] != 91:
        return SURPRISE, 0
    scratch[0] = 91
    length = 1
    at = skip_space(text, at + 1, end)
    if at < end and text[at] == 93:
        scratch[1] = 93
        return at + 1, 2
    while at < end:
        if text[at] == 45:
            return SURPRISE, 0
        first = at
        while at < end and 48 <= text[at] <= 57:
            if length > 1000:
                return SURPRISE, 0
            scratch[length] = text[at]
            length += 1
            at += 1
        if at >= end:
            return INCOMPLETE, 0
        if at == first or (text[first] == 48 and at > first + 1):
            return SURPRISE, 0
        at = skip_space(text, at, end)
        if at >= end:
            return INCOMPLETE, 0
        scratch[length] = text[at]
        length += 1
        if text[at] == 93:
            return at + 1, length
        if text[at] != 44:
            return SURPRISE, 0
        at = skip_space(text, at + 1, end)
    return INCOMPLETE, 0
