"""JSON numbers -> float64, correctly rounded, for the tokenizer. Same values as Python's ``float``.

Most numbers of a dump are float32 values printed with up to 17 digits, too many for one exact multiplication, so the
second way is the 128-bit product with a power of ten of Eisel and Lemire; the few that it leaves open go back to the
caller by position.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import types
from opassay.kernels.json_memory import b1, byte, f64, i64, jit, pair, u64, word

INCOMPLETE: Final = -2  # the buffer ends too early
SURPRISE: Final = -1  # for the caller's other reader

FLOAT: Final = 0  # the numbers of vocab.StatKind
INT: Final = 1
HARD: Final = 9  # a float whose value the caller has to find

LOWEST_POWER: Final = -342
HIGHEST_POWER: Final = 308

U64 = np.uint64
_MASK32: Final = U64(0xFFFFFFFF)
_ZERO, _ONE, _TEN = U64(0), U64(1), U64(10)
_EXACT: Final = U64(1 << 53)
_HIDDEN: Final = U64(1 << 52)
_LOW9: Final = U64(0x1FF)
_ALL: Final = U64(0xFFFFFFFFFFFFFFFF)
_INFINITY: Final = int.from_bytes(b"Infinity", "little")
_POWERS: Final = np.array([10.0**k for k in range(23)])


def power_table() -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """The leading 128 bits of 10**q (that is, of 5**q) for q from -342 to 308.

    Returns
    -------
    high, low : ndarray of uint64, shape (651,)
        Halves of a number in [2**127, 2**128): rounded up for -27 <= q < 0, else cut off.
    """
    values = []
    for q in range(LOWEST_POWER, HIGHEST_POWER + 1):
        five = 5 ** abs(q)
        if q >= 0:
            shift = five.bit_length() - 128
            values.append(five >> shift if shift > 0 else five << -shift)
        elif q >= -27:
            values.append((1 << (five - 1).bit_length() + 127) // five + 1)
        else:
            inverse = (1 << 2 * five.bit_length() + 128) // five + 1
            values.append(inverse >> (inverse.bit_length() - 128))
    low = (1 << 64) - 1
    return np.array([v >> 64 for v in values], U64), np.array([v & low for v in values], U64)


_HIGH, _LOW = power_table()
_TWO: Final = np.ldexp(1.0, np.arange(-1074, 972))  # exact, subnormal powers too


@jit(pair(u64, u64)(u64, u64))
def _multiply(a: Any, b: Any) -> Any:
    """Both halves of the 128-bit product of two uint64."""
    a_low, a_high = a & _MASK32, a >> U64(32)
    b_low, b_high = b & _MASK32, b >> U64(32)
    low = a_low * b_low
    one = a_high * b_low + (low >> U64(32))
    two = a_low * b_high + (one & _MASK32)
    high = a_high * b_high + (one >> U64(32)) + (two >> U64(32))
    return high, (two << U64(32)) | (low & _MASK32)


@jit(i64(u64))
def _leading_zeros(value: Any) -> Any:
    """Leading zero bits of a uint64 that is not 0."""
    count = 0
    for shift in (32, 16, 8, 4, 2, 1):
        if value >> U64(64 - shift) == _ZERO:
            value <<= U64(shift)
            count += shift
    return count


@jit(pair(f64, b1)(u64, i64))
def scale(digits: Any, power: Any) -> Any:
    """``digits * 10**power``, rounded to nearest even.

    Parameters
    ----------
    digits : uint64
        At most 19 decimal digits, not 0.
    power : int
        Power of ten.

    Returns
    -------
    value : float
        The number, where it was decided.
    decided : bool
        False for subnormal numbers, overflow and the rare cases that 128 bits leave open.
    """
    if -22 <= power <= 22 and digits <= _EXACT:
        if power < 0:
            return np.float64(digits) / _POWERS[-power], True
        return np.float64(digits) * _POWERS[power], True
    if power < LOWEST_POWER or power > HIGHEST_POWER:
        return 0.0, False
    zeros = _leading_zeros(digits)
    digits <<= U64(zeros)
    place = power - LOWEST_POWER
    upper, lower = _multiply(digits, _HIGH[place])
    if upper & _LOW9 == _LOW9:
        more, _ = _multiply(digits, _LOW[place])
        lower += more
        if more > lower:
            upper += _ONE
        if lower == _ALL:
            return 0.0, False
    top = upper >> U64(63)
    shift = top + U64(9)
    mantissa = upper >> shift
    exponent = ((217706 * power) >> 16) + 63 + np.int64(top) - zeros + 1023
    if exponent <= 0 or exponent >= 2046:
        return 0.0, False
    if lower <= _ONE and -4 <= power <= 23 and mantissa & U64(3) == _ONE and mantissa << shift == upper:
        mantissa &= ~_ONE  # exactly between two floats: to the even one
    mantissa = (mantissa + (mantissa & _ONE)) >> _ONE
    if mantissa >= _HIDDEN << _ONE:
        mantissa = _HIDDEN
        exponent += 1
    return np.float64(mantissa) * _TWO[exponent - 1], True


@jit(pair(i64, i64, f64)(i64, i64, i64))
def read_number(text: Any, at: Any, end: Any) -> Any:
    """The number (or -Infinity) that begins at ``at``.

    Parameters
    ----------
    text : int
        Address of the buffer.
    at, end : int
        Place of the first character, end of the buffer.

    Returns
    -------
    at : int
        Place behind the number, or INCOMPLETE, or SURPRISE (no number, or a whole number beyond 2**53).
    kind : int
        FLOAT, INT or HARD.
    value : float
        The value, 0.0 for HARD.
    """
    negative = byte(text, at) == 45
    if negative:
        at += 1
        if at >= end:
            return INCOMPLETE, FLOAT, 0.0
    digits, count, power, cut = _ZERO, 0, 0, False
    char = byte(text, at)
    if char == 48:
        at += 1
    elif 49 <= char <= 57:
        while at < end and 48 <= byte(text, at) <= 57:
            if count < 19:
                digits = digits * _TEN + U64(byte(text, at) - 48)
                count += 1
            else:
                cut = True
            at += 1
    elif char == 73 and negative:
        if at + 8 > end:
            return INCOMPLETE, FLOAT, 0.0
        if word(text + at, 0) != _INFINITY:
            return SURPRISE, FLOAT, 0.0
        return at + 8, FLOAT, -np.inf
    else:
        return SURPRISE, FLOAT, 0.0
    if at + 1 >= end:
        return INCOMPLETE, FLOAT, 0.0
    whole = True
    if byte(text, at) == 46 and 48 <= byte(text, at + 1) <= 57:
        whole = False
        at += 1
        while at < end and 48 <= byte(text, at) <= 57:
            if count < 19:
                digits = digits * _TEN + U64(byte(text, at) - 48)
                power -= 1
                if digits != _ZERO:
                    count += 1
            else:
                cut = True
            at += 1
    if at >= end:
        return INCOMPLETE, FLOAT, 0.0
    if byte(text, at) == 101 or byte(text, at) == 69:
        place = at + 1
        if place < end and (byte(text, place) == 43 or byte(text, place) == 45):
            place += 1
        if place >= end:
            return INCOMPLETE, FLOAT, 0.0
        if 48 <= byte(text, place) <= 57:
            whole = False
            exponent = 0
            minus = byte(text, place - 1) == 45
            while place < end and 48 <= byte(text, place) <= 57:
                exponent = exponent * 10 + (byte(text, place) - 48) if exponent < 100000 else exponent
                place += 1
            if place >= end:
                return INCOMPLETE, FLOAT, 0.0
            power += -exponent if minus else exponent
            at = place
    if whole:
        if cut or digits > _EXACT:
            return SURPRISE, INT, 0.0
        value = np.float64(digits)
        return at, INT, (-value if negative and digits != _ZERO else value)
    if cut:
        return at, HARD, 0.0
    if digits == _ZERO:
        return at, FLOAT, (-0.0 if negative else 0.0)
    value, decided = scale(digits, power)
    if not decided:
        return at, HARD, 0.0
    return at, FLOAT, (-value if negative else value)


@jit(types.void(i64, types.Array(i64, 1, "C"), i64, types.Array(f64, 1, "C"), types.Array(i64, 1, "C")))
def read_all(text: Any, starts: Any, end: Any, values: Any, kinds: Any) -> None:
    """Read the numbers that begin at ``starts`` into ``values`` and ``kinds``; for tests and measurements."""
    for k in range(starts.size):
        _, kind, value = read_number(text, starts[k], end)
        kinds[k], values[k] = kind, value
