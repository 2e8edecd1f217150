"""Random tensors that look like the ones a dump recorded: by dtype, shape, extremes, mean and norm.

Pure: the same key and statistics give the same bits on every machine. Only Philox numbers, comparisons, + - * / and
square roots are used, which IEEE 754 fixes to the last bit; no logarithm or cosine, which differ between processors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

Number = int | float

_CHUNK: Final = 1 << 20  # elements made at a time; fixed, because complex elements take two numbers each
_EVEN: Final = 1.0 / 3.0  # mean square of a number drawn evenly from [0, 1]
_STATISTICS_EPS: Final = 2.0**-20  # mean and norm of a dump are float32 sums at best
_MOST_HALVINGS: Final = 6
_INTEGERS: Final[dict[torch.dtype, Any]] = {
    torch.int8: np.int8, torch.int16: np.int16, torch.int32: np.int32, torch.int64: np.int64,
    torch.uint8: np.uint8, torch.uint16: np.uint16, torch.uint32: np.uint32, torch.uint64: np.uint64,
}  # fmt: skip
_EXACT: Final = 1 << 52


class NotPossible(ValueError):
    """No tensor has these statistics; the message says which."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a dump says about the values of a tensor.

    Attributes
    ----------
    low, high : int or float
        Smallest and largest finite element where the dump has them, else the same as ``least`` and ``most``.
    least, most : int or float
        ``Min`` and ``Max`` as they stand, perhaps nan or inf.
    mean, norm : float or None
        None where the dump has no number.
    """

    low: Number
    high: Number
    least: Number
    most: Number
    mean: float | None = None
    norm: float | None = None


@dataclass(frozen=True, slots=True)
class Law:
    """A distribution on [0, 1].

    Attributes
    ----------
    middle : float
        Its mean m.
    spread : float
        Its variance, divided by m (1 - m), the largest one possible; 0 to 1.
    """

    middle: float = 0.5
    spread: float = _EVEN


def generate(dtype: torch.dtype, shape: tuple[int, ...], recorded: Recorded, key: int) -> torch.Tensor:
    """Make a tensor.

    Parameters
    ----------
    dtype : torch.dtype
        Any float, integer, bool or complex type.
    shape : tuple of int
        Perhaps without dimensions or elements.
    recorded : Recorded
        Statistics; those of complex tensors are of the modulus.
    key : int
        128 bits; names the stream of random numbers.

    Returns
    -------
    torch.Tensor
        On the CPU, contiguous. Its first and last element are the recorded extremes, all others lie between them.

    Raises
    ------
    NotPossible
        If an integer's bounds are no numbers.
    RuntimeError
        By torch, if there is not enough memory.
    """
    out = torch.empty(shape, dtype=dtype)
    flat = out.reshape(-1)
    if not len(flat):
        return out
    stream = _Stream(key, len(flat))
    if dtype is torch.bool:
        _fill_bool(flat, recorded, stream)
    elif dtype in _INTEGERS:
        _fill_integers(flat, recorded, stream)
    elif dtype.is_complex:
        _fill_complex(flat, recorded, stream)
    else:
        _fill_floats(flat, recorded, stream, row=len(flat) // shape[0] if shape else 0)
    return out


class _Stream:
    """Random numbers for the elements of one tensor, chunk by chunk."""

    def __init__(self, key: int, count: int) -> None:
        self._bits = np.random.Philox(key=key)
        self.count = count

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Begin and end of each chunk of elements."""
        for start in range(0, self.count, _CHUNK):
            yield start, min(start + _CHUNK, self.count)

    def words(self, count: int) -> NDArray[np.uint64]:
        """Even 64-bit numbers."""
        drawn: NDArray[np.uint64] = self._bits.random_raw(count)
        return drawn

    def units(self, count: int) -> NDArray[np.float64]:
        """Even numbers in [0, 1), of 53 bits."""
        drawn: NDArray[np.float64] = np.ldexp((self.words(count) >> np.uint64(11)).astype(np.float64), -53)
        return drawn


def law_of(recorded: Recorded, count: int, eps: float) -> Law | None:
    """The law of the elements between the two extremes, so that the whole tensor has the recorded mean and norm.

    Parameters
    ----------
    recorded : Recorded
        Finite bounds, low < high.
    count : int
        Elements of the whole tensor.
    eps : float
        Relative precision of mean and norm.

    Returns
    -------
    Law or None
        None where there is no mean, or one that no such tensor has.
    """
    low, high = float(recorded.low), float(recorded.high)
    size = max(abs(low), abs(high))
    rest = count - 2
    if recorded.mean is None or not math.isfinite(recorded.mean) or rest < 1:
        return None
    low, high, mean = low / size, high / size, recorded.mean / size  # squares must not overflow
    width = high - low
    mean += (2.0 * mean - low - high) / rest
    middle = (mean - low) / width
    slack = 8.0 * eps * count / rest / width + 1e-9
    if not -slack <= middle <= 1.0 + slack:
        return None
    middle = min(max(middle, 0.0), 1.0)
    room = width * width * middle * (1.0 - middle)
    if recorded.norm is None or not math.isfinite(recorded.norm) or room <= 0.0:
        return Law(middle)
    norm = recorded.norm / size
    squares = norm * norm / rest
    variance = squares - (low * low + high * high) / rest - mean * mean
    if variance <= 4.0 * eps * squares or not math.isfinite(variance):
        return Law(middle)  # it vanishes in the rounding of the norm, or contradicts it
    return Law(middle, min(variance / room, 1.0))


def draw(law: Law, units: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers of a law.

    A number goes to the left of the middle m with probability 1 - m and to the right with m, by a part A of the way to
    the end: its mean is m and its variance m (1 - m) E[A^2], whatever A is. A is Beta(1, k) for k = 1, 2, 4 ... 64,
    mixed so that E[A^2] is the spread: nearly normal where the ends lie four deviations off, with longer tails where
    they lie further off. Beyond an even A it grows towards 1, that is two points at the ends.

    Parameters
    ----------
    law : Law
        The law.
    units : ndarray of float64
        Even numbers in [0, 1), one for each result.

    Returns
    -------
    ndarray of float64
        In [0, 1].
    """
    m = law.middle
    if m <= 0.0 or m >= 1.0:
        return np.full(len(units), m)
    is_left = units < 1.0 - m
    with np.errstate(over="ignore"):  # of a side that is not taken
        inner = np.where(is_left, units / (1.0 - m), (units - (1.0 - m)) / m)
    away = _part(law.spread, np.minimum(np.maximum(inner, 0.0), 1.0))
    drawn: NDArray[np.float64] = np.where(is_left, m - m * away, m + (1.0 - m) * away)
    return drawn


def _part(spread: float, units: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers in [0, 1] of the given mean square, from even ones."""
    if spread >= _EVEN:
        return 1.0 - 1.5 * (1.0 - math.sqrt(max(4.0 * spread - 1.0, 0.0) / 3.0)) * units
    halvings = 0
    while halvings < _MOST_HALVINGS and _mean_square(halvings + 1) > spread:
        halvings += 1
    upper, lower = _mean_square(halvings), _mean_square(halvings + 1)
    if halvings == _MOST_HALVINGS:
        return math.sqrt(spread / upper) * (1.0 - _roots(1.0 - units, halvings))
    share = (spread - lower) / (upper - lower)
    is_upper = units < share
    inner = np.where(is_upper, units / share if share > 0.0 else units, (units - share) / (1.0 - share))
    root = _roots(1.0 - np.minimum(np.maximum(inner, 0.0), 1.0), halvings)
    return 1.0 - np.where(is_upper, root, np.sqrt(root))


def _mean_square(halvings: int) -> float:
    """E[A^2] of Beta(1, k), k = 2 ** halvings."""
    k = float(1 << halvings)
    return 2.0 / ((k + 1.0) * (k + 2.0))


def _roots(values: NDArray[np.float64], times: int) -> NDArray[np.float64]:
    for _ in range(times):
        values = np.sqrt(values)
    return values


def _fill_bool(flat: torch.Tensor, recorded: Recorded, stream: _Stream) -> None:
    """An element is true where an even integer of the range is positive, or at the rate of the mean."""
    low, high = sorted((_whole(recorded.low), _whole(recorded.high)))
    count = len(flat)
    share = max(high - max(low, 1) + 1, 0) / (high - low + 1)
    is_mixed = low <= 0 < high
    if is_mixed and count > 2 and recorded.mean is not None and 0.0 < recorded.mean < 1.0:
        share = min(max((recorded.mean * count - 1.0) / (count - 2), 0.0), 1.0)
    view = flat.numpy()
    for start, stop in stream.chunks():
        view[start:stop] = stream.units(stop - start) < share
    view[0], view[-1] = low > 0, high > 0


def _fill_integers(flat: torch.Tensor, recorded: Recorded, stream: _Stream) -> None:
    kind = _INTEGERS[flat.dtype]
    bounds = np.iinfo(kind)
    least, most = int(bounds.min), int(bounds.max)
    low, high = sorted(min(max(_whole(bound), least), most) for bound in (recorded.low, recorded.high))
    span = high - low
    limits = Recorded(low, high, low, high, recorded.mean, recorded.norm)
    law = law_of(limits, len(flat), _STATISTICS_EPS) if 0 < span < _EXACT else None
    view = flat.numpy()
    base = np.uint64(low % (1 << 64))
    for start, stop in stream.chunks():
        if law is not None:
            steps = np.floor(draw(law, stream.units(stop - start)) * float(span) + 0.5).astype(np.uint64)
        else:
            steps = _below(stream.words(stop - start), span + 1)
        with np.errstate(over="ignore"):
            view[start:stop] = (steps + base).view(np.int64).astype(kind, casting="unsafe")
    view[0], view[-1] = low, high


def _below(words: NDArray[np.uint64], count: int) -> NDArray[np.uint64]:
    """Even integers 0 ... count - 1: the upper half of a 128-bit product."""
    if count >= 1 << 64:
        return words
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    above, below = np.uint64(count >> 32), np.uint64(count & 0xFFFFFFFF)
    first, second = words >> half, words & mask
    middle = first * below + (second * below >> half)
    upper: NDArray[np.uint64] = first * above + (middle >> half) + (second * above + (middle & mask) >> half)
    return upper


def _fill_floats(flat: torch.Tensor, recorded: Recorded, stream: _Stream, *, row: int) -> None:
    low, high = float(recorded.low), float(recorded.high)
    count = len(flat)
    if math.isnan(high) or math.isnan(low):
        flat.fill_(math.nan)
        return
    if math.isinf(high):
        flat.fill_(high)
        flat[count - row :] = low
        _pin(flat, _edges(recorded, low, high, count))
        return
    limit = torch.finfo(flat.dtype)
    floor, ceiling = (min(max(bound, limit.min), limit.max) for bound in sorted((low, high)))
    is_finite = math.isfinite(low) and recorded.least == recorded.low and recorded.most == recorded.high
    law: Law | None = None
    if is_finite and floor < ceiling:
        eps = max(limit.eps, _STATISTICS_EPS)
        law = law_of(Recorded(floor, ceiling, floor, ceiling, recorded.mean, recorded.norm), count, eps)
    for start, stop in stream.chunks():
        values = _between(draw(law or Law(), stream.units(stop - start)), floor, ceiling)
        flat[start:stop] = torch.from_numpy(values).to(flat.dtype)
    finite_low = low if math.isinf(low) else min(max(low, limit.min), limit.max)
    _pin(flat, _edges(recorded, finite_low, min(max(high, limit.min), limit.max), count))


def _between(units: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Numbers of [0, 1] as numbers of [low, high]; the width may be larger than any float64."""
    return np.minimum(np.maximum(low * (1.0 - units) + high * units, low), high)


def _edges(recorded: Recorded, low: float, high: float, count: int) -> dict[int, float]:
    """Elements that are set at the end, by place: the extremes, and nan or inf where the tensor had some."""
    most, least = float(recorded.most), float(recorded.least)
    if math.isnan(most):
        return {0: low, 1: math.nan, count - 1: high} if count > 2 else {count - 1: high, 0: math.nan}
    first = least if math.isinf(least) else low
    return {0: first, count - 1: most if math.isinf(most) else high}


def _pin(flat: torch.Tensor, edges: dict[int, float]) -> None:
    for place, value in edges.items():
        flat[place : place + 1] = torch.tensor([value], dtype=torch.float64).to(flat.dtype)


def _fill_complex(flat: torch.Tensor, recorded: Recorded, stream: _Stream) -> None:
    """Modulus by the law, direction by a rational point of the circle."""
    low, high = float(recorded.low), float(recorded.high)
    count = len(flat)
    if math.isnan(high) or math.isnan(low):
        flat.fill_(complex(math.nan, math.nan))
        return
    part = torch.empty((), dtype=flat.dtype).real.dtype
    limit = torch.finfo(part)
    ceiling = min(max(abs(low), abs(high)), limit.max)
    floor = min(max(min(low, high), 0.0), limit.max)  # a modulus is never negative
    law: Law | None = None
    if floor < ceiling:
        law = law_of(Recorded(floor, ceiling, floor, ceiling, recorded.mean), count, max(limit.eps, _STATISTICS_EPS))
    inside = 1.0 - 4.0 * limit.eps  # rounding the two parts must not push the modulus over the largest one
    step = 2.0 * limit.smallest_normal * limit.eps  # the same for numbers too small to have all bits
    for start, stop in stream.chunks():
        modulus = _between(draw(law or Law(), stream.units(stop - start)), floor, ceiling) * inside
        modulus = np.maximum(modulus - step, 0.0)
        flat[start:stop] = torch.from_numpy(modulus * _directions(stream.words(stop - start))).to(flat.dtype)
    last = math.inf if math.isinf(float(recorded.most)) else ceiling
    for place, value in ((0, floor), (count - 1, last)):
        flat[place : place + 1] = torch.tensor([complex(value, 0.0)], dtype=torch.complex128).to(flat.dtype)


def _directions(words: NDArray[np.uint64]) -> NDArray[Any]:
    """Points of the unit circle, in all four quadrants."""
    tangent = (words >> np.uint64(11)) * 2.0**-53  # of half the angle, 0 to 1: the first quadrant
    square = tangent * tangent
    real, imaginary = (1.0 - square) / (1.0 + square), 2.0 * tangent / (1.0 + square)
    real = np.where(words & np.uint64(1), -real, real)
    imaginary = np.where(words & np.uint64(2), -imaginary, imaginary)
    return real + 1j * imaginary


def _whole(bound: Number) -> int:
    if isinstance(bound, float) and not math.isfinite(bound):
        raise NotPossible(f"{bound} is no bound of integers")
    return int(bound)
