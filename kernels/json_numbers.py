"""JSON numbers -> float64, correctly rounded, for the tokenizer. Same values as Python's ``float``.

Most numbers of a dump are float32 values printed with up to 17 digits, too many for one exact multiplication, so the
second way is the 128-bit product with a power of ten of Eisel and Lemire; the few that it leaves open go back to the
caller by position.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import njit

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


@njit(nogil=True, cache=True, error_model="numpy")
def _multiply(a: Any, b: Any) -> Any:
    """Both halves of the 128-bit product of two uint64."""
    a_low, a_high = a & _MASK32, a >> U64(32)
    b_low, b_high = b & _MASK32, b >> U64(32)
    low = a_low * b_low
    one = a_high * b_low + (low >> U64(32))
    two = a_low * b_high + (one & _MASK32)
    high = a_high * b_high + (one >> U64(32)) + (two >> U64(32))
    return high, (two << U64(32)) | (low & _MASK32)


@njit(nogil=True, cache=True, error_model="numpy")
def _leading_zeros(value: Any) -> Any:
    """Leading zero bits of a uint64 that is not 0."""
    count = 0
    for shift in (32, 16, 8, 4, 2, 1):
        if value >> U64(64 - shift) == _ZERO:
            value <<= U64(shift)
            count += shift
    return count


@njit(nogil=True, cache=True, error_model="numpy")
def scale(digits: Any, power: Any, high: Any, low: Any, bits: Any) -> Any:
    """``digits * 10**power``, rounded to nearest even.

    Parameters
    ----------
    digits : uint64
        At most 19 decimal digits, not 0.
    power : int
        Power of ten.
    high, low : ndarray of uint64
        ``power_table()``.
    bits : ndarray of uint64, shape (1,)
        Room for the bit pattern.

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
    upper, lower = _multiply(digits, high[place])
    if upper & _LOW9 == _LOW9:
        more, _ = _multiply(digits, low[place])
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
    bits[0] = (mantissa & ~_HIDDEN) | (U64(exponent) << U64(52))
    return bits.view(np.float64)[0], True


@njit(nogil=True, cache=True, error_model="numpy")
def read_number(text: Any, at: Any, end: Any, high: Any, low: Any, bits: Any) -> Any:
    """The number (or -Infinity) that begins at ``at``.

    Parameters
    ----------
    text : ndarray of uint8
        The buffer.
    at, end : int
        Place of the first character, end of the buffer.
    high, low, bits : ndarray of uint64
        As for ``scale``.

    Returns
    -------
    at : int
        Place behind the number, or INCOMPLETE, or SURPRISE (no number, or a whole number beyond 2**53).
    kind : int
        FLOAT, INT or HARD.
    value : float
        The value, 0.0 for HARD.
    """
    negative = text[at] == 45
    if negative:
        at += 1
        if at >= end:
            return INCOMPLETE, FLOAT, 0.0
    digits, count, power, cut = _ZERO, 0, 0, False
    char = text[at]
    if char == 48:
        at += 1
    elif 49 <= char <= 57:
        while at < end and 48 <= text[at] <= 57:
            if count < 19:
                digits = digits * _TEN + U64(text[at] - 48)
                count += 1
            else:
                cut = True
            at += 1
    elif char == 73 and negative:
        if at + 8 > end:
            return INCOMPLETE, FLOAT, 0.0
        for k in range(8):
            if text[at + k] != _INFINITY[k]:
                return SURPRISE, FLOAT, 0.0
        return at + 8, FLOAT, -np.inf
    else:
        return SURPRISE, FLOAT, 0.0
    if at + 1 >= end:
        return INCOMPLETE, FLOAT, 0.0
    whole = True
    if text[at] == 46 and 48 <= text[at + 1] <= 57:
        whole = False
        at += 1
        while at < end and 48 <= text[at] <= 57:
            if count < 19:
                digits = digits * _TEN + U64(text[at] - 48)
                power -= 1
                if digits != _ZERO:
                    count += 1
            else:
                cut = True
            at += 1
    if at >= end:
        return INCOMPLETE, FLOAT, 0.0
    if text[at] == 101 or text[at] == 69:
        place = at + 1
        if place < end and (text[place] == 43 or text[place] == 45):
            place += 1
        if place >= end:
            return INCOMPLETE, FLOAT, 0.0
        if 48 <= text[place] <= 57:
            whole = False
            exponent = 0
            minus = text[place - 1] == 45
            while place < end and 48 <= text[place] <= 57:
                exponent = exponent * 10 + (text[place] - 48) if exponent < 100000 else exponent
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
    value, decided = scale(digits, power, high, low, bits)
    if not decided:
        return at, HARD, 0.0
    return at, FLOAT, (-value if negative else value)


_INFINITY: Final = np.frombuffer(b"Infinity", np.uint8)


@njit(nogil=True, cache=True)
def read_all(text: Any, starts: Any, end: Any, high: Any, low: Any, values: Any, kinds: Any) -> None:
    """Read the numbers that begin at ``starts`` into ``values`` and ``kinds``; for tests and measurements."""
    bits = np.zeros(1, np.uint64)
    for k in range(starts.size):
        _, kind, value = read_number(text, starts[k], end, high, low, bits)
        kinds[k], values[k] = kind, value
