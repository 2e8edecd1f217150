"""The plain pass: what every number means, in NumPy; also serves where numba is missing, and for scaled passes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from opassay.kernels.decode import is_exact, to_float64
from opassay.kernels.pair_pass import PairPass, Scales, elements_of
from opassay.kernels.pair_sums import BLOCK
from opassay.schemas.dtypes import DType
from opassay.schemas.metric_rows import PairSums

_PIECE: Final = 4 * BLOCK  # elements that are decoded together
_HUGE: Final = 2.0**500
_STEP: Final = 2.0**600

Reals = NDArray[np.float64]


@dataclass(slots=True)
class OpenPair:
    """Decoded elements of both sides, n of them.

    Attributes
    ----------
    target, golden : ndarray of float64, shape (n,), or (2n,) where a side is complex
        The values; real and imaginary parts in turn.
    target_abs, golden_abs, error : ndarray of float64, shape (n,)
        |t|, |g| and |t - g|; moduli for complex; the error of integers is exact before it becomes float64.
    parts : int
        Numbers an element: 1, or 2 for complex.
    """

    target: Reals
    golden: Reals
    target_abs: Reals
    golden_abs: Reals
    error: Reals
    parts: int


def modulus(values: Reals) -> Reals:
    """|re + i im| of interleaved parts, free of overflow and underflow; shape (2n,) -> (n,)."""
    re, im = np.abs(values[0::2]), np.abs(values[1::2])
    larger = np.maximum(re, im)
    factor = np.where(larger > _HUGE, 1.0 / _STEP, np.where(larger < 1.0 / _HUGE, _STEP, 1.0))
    re, im = re * factor, im * factor
    return np.asarray(np.sqrt(re * re + im * im) / factor)


def exact_error(target: NDArray[Any], golden: NDArray[Any]) -> Reals:
    """|t - g| of two integer arrays: exact as unsigned 64-bit magnitude, then float64."""
    if target.dtype == np.uint64 or golden.dtype == np.uint64:
        if target.dtype != golden.dtype:
            unsigned, signed = (target, golden) if target.dtype == np.uint64 else (golden, target)
            return _mixed_error(unsigned.astype(np.uint64), signed.astype(np.int64))
        above = target >= golden
        t, g = target.astype(np.uint64), golden.astype(np.uint64)
    else:
        t, g = target.astype(np.int64), golden.astype(np.int64)
        above = t >= g
        t, g = t.view(np.uint64), g.view(np.uint64)
    return np.where(above, t - g, g - t).astype(np.float64)


def _mixed_error(unsigned: NDArray[np.uint64], signed: NDArray[np.int64]) -> Reals:
    bits = signed.view(np.uint64)
    size = np.where(signed < 0, np.uint64(0) - bits, bits)
    apart = unsigned + size  # for negative ones; wraps past 2**64
    below = np.where(unsigned >= size, unsigned - size, size - unsigned)
    carry = np.where((signed < 0) & (apart < size), 2.0**64, 0.0)
    return np.where(signed < 0, apart, below).astype(np.float64) + carry


def open_pair(target: NDArray[Any], golden: NDArray[Any], target_type: DType, golden_type: DType) -> OpenPair:
    """Decode equally many elements of both sides; overflow gives inf without a warning."""
    t, g = to_float64(target, target_type), to_float64(golden, golden_type)
    with np.errstate(all="ignore"):
        if target_type.kind == "complex" or golden_type.kind == "complex":
            t = t if target_type.kind == "complex" else _with_imaginary(t)
            g = g if golden_type.kind == "complex" else _with_imaginary(g)
            return OpenPair(t, g, modulus(t), modulus(g), modulus(t - g), 2)
        exact = is_exact(target_type) and is_exact(golden_type)
        error = exact_error(target, golden) if exact else np.abs(t - g)
    return OpenPair(t, g, np.abs(t), np.abs(g), error, 1)


def _with_imaginary(values: Reals) -> Reals:
    both = np.zeros(2 * values.size)
    both[0::2] = values
    return both


@dataclass(slots=True)
class NonFinite:
    """Where elements are not finite on both sides; boolean arrays of shape (n,)."""

    bad: NDArray[np.bool_]
    equal_nan: NDArray[np.bool_]
    nan_mismatch: NDArray[np.bool_]
    equal_inf: NDArray[np.bool_]
    inf_mismatch: NDArray[np.bool_]


def find_nonfinite(pair: OpenPair) -> NonFinite:
    """Sort the elements that are not finite on both sides; a complex one is nan where a part is."""
    shape = (-1, pair.parts)
    t, g = pair.target.reshape(shape), pair.golden.reshape(shape)
    target_nan: NDArray[np.bool_] = np.asarray(np.isnan(t).any(axis=1))
    golden_nan: NDArray[np.bool_] = np.asarray(np.isnan(g).any(axis=1))
    infinite = (np.isinf(t).any(axis=1) | np.isinf(g).any(axis=1)) & ~target_nan & ~golden_nan
    same = (t == g).all(axis=1)
    return NonFinite(
        bad=target_nan | golden_nan | infinite,
        equal_nan=target_nan & golden_nan,
        nan_mismatch=target_nan ^ golden_nan,
        equal_inf=infinite & same,
        inf_mismatch=infinite & ~same,
    )


def relative_error(error: Reals, golden_abs: Reals) -> Reals:
    """|t - g| / |g|; 0/0 is 0, x/0 is inf."""
    with np.errstate(all="ignore"):
        return np.where(error == 0.0, 0.0, error / golden_abs)


class _Compensated:
    """A running float64 sum with Neumaier's correction."""

    __slots__ = ("rest", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self.rest = 0.0

    def add(self, value: float) -> None:
        total = self.total + value
        if math.isfinite(total):
            if abs(self.total) >= abs(value):
                self.rest += (self.total - total) + value
            else:
                self.rest += (value - total) + self.total
        self.total = total

    def value(self) -> float:
        return self.total + self.rest if math.isfinite(self.total) else self.total


class NumpyPass(PairPass):
    """The pass for every dtype, in blocks of float64.

    Parameters
    ----------
    target, golden : DType
        The two sides' element types.
    scales : tuple of int, optional
        Powers of two that target, golden and error are divided by before they are squared.
    """

    def __init__(self, target: DType, golden: DType, scales: Scales | None = None) -> None:
        super().__init__(target, golden)
        self._scales = scales
        self._dot, self._target_sq, self._golden_sq, self._error_sq = (_Compensated() for _ in range(4))
        self._sums = PairSums()
        if scales is not None:
            self._sums.target_scale, self._sums.golden_scale, self._sums.error_scale = scales

    def feed(self, target: NDArray[Any], golden: NDArray[Any]) -> None:
        count = elements_of(target, golden, self, self._sums.size)
        target_parts = 2 if self.target.kind == "complex" else 1
        golden_parts = 2 if self.golden.kind == "complex" else 1
        for start in range(0, count, _PIECE):
            stop = min(start + _PIECE, count)
            pair = open_pair(
                target[start * target_parts : stop * target_parts],
                golden[start * golden_parts : stop * golden_parts],
                self.target,
                self.golden,
            )
            self._add(pair)

    def _add(self, pair: OpenPair) -> None:
        sums = self._sums
        count = pair.error.size
        finite = count
        scored = sums.finite > 0
        mismatched = sums.nan_mismatch + sums.inf_mismatch > 0
        bad: NDArray[np.bool_] | None = None
        if not (np.isfinite(pair.target).all() and np.isfinite(pair.golden).all()):
            odd = find_nonfinite(pair)
            bad = odd.bad
            sums.equal_nan += int(np.count_nonzero(odd.equal_nan))
            sums.equal_inf += int(np.count_nonzero(odd.equal_inf))
            sums.nan_mismatch += int(np.count_nonzero(odd.nan_mismatch))
            sums.inf_mismatch += int(np.count_nonzero(odd.inf_mismatch))
            mismatch = odd.nan_mismatch | odd.inf_mismatch
            if not mismatched and mismatch.any():
                self._remember(int(np.argmax(mismatch)), pair)
            mismatched = mismatched or bool(mismatch.any())
            finite = count - int(np.count_nonzero(bad))
            zeroed = np.repeat(bad, pair.parts)
            pair.target, pair.golden = np.where(zeroed, 0.0, pair.target), np.where(zeroed, 0.0, pair.golden)
            pair.target_abs, pair.golden_abs = np.where(bad, 0.0, pair.target_abs), np.where(bad, 0.0, pair.golden_abs)
            pair.error = np.where(bad, 0.0, pair.error)
        with np.errstate(all="ignore"):
            self._add_squares(pair)
        relative = self._relative(pair)
        if finite:
            error_max = float(pair.error.max())
            if not mismatched and (not scored or error_max > sums.error_max):
                hit = pair.error == error_max
                self._remember(int(np.argmax(hit if bad is None else hit & ~bad)), pair)
            sums.error_max = max(sums.error_max, error_max)
            sums.relative_max = max(sums.relative_max, float(relative.max()))
            sums.golden_abs_max = max(sums.golden_abs_max, float(pair.golden_abs.max()))
            sums.target_abs_max = max(sums.target_abs_max, float(pair.target_abs.max()))
            sums.within_thousandth += int(np.count_nonzero(relative < 0.001)) - (count - finite)
            sums.within_five_thousandth += int(np.count_nonzero(relative < 0.005)) - (count - finite)
        sums.size += count
        sums.finite += finite

    def _relative(self, pair: OpenPair) -> Reals:
        relative = relative_error(pair.error, pair.golden_abs)
        if self._scales is not None and np.isinf(pair.error).any():  # t - g itself overflowed: halve both sides
            halves = np.abs(pair.target * 0.5 - pair.golden * 0.5)
            if pair.parts == 2:
                halves = modulus(pair.target * 0.5 - pair.golden * 0.5)
            relative = np.where(np.isinf(pair.error), relative_error(halves, pair.golden_abs * 0.5), relative)
        return relative

    def _add_squares(self, pair: OpenPair) -> None:
        t, g = pair.target, pair.golden
        if self._scales is None:
            error = pair.error if pair.parts == 1 else t - g
        else:
            target_scale, golden_scale, error_scale = self._scales
            before = math.ldexp(1.0, -max(error_scale, 0))
            error = (t * before - g * before) * math.ldexp(1.0, -min(error_scale, 0))
            t, g = t * math.ldexp(1.0, -target_scale), g * math.ldexp(1.0, -golden_scale)
        for total, product in (
            (self._dot, t * g),
            (self._target_sq, t * t),
            (self._golden_sq, g * g),
            (self._error_sq, error * error),
        ):
            for value in _block_sums(product, BLOCK * pair.parts):
                total.add(value)

    def _remember(self, index: int, pair: OpenPair) -> None:
        sums = self._sums
        sums.worst_index = sums.size + index
        if pair.parts == 1:
            sums.worst_target, sums.worst_golden = float(pair.target[index]), float(pair.golden[index])
        else:
            sums.worst_target, sums.worst_golden = float(pair.target_abs[index]), float(pair.golden_abs[index])

    def result(self) -> PairSums:
        sums = self._sums
        sums.dot, sums.target_sq = self._dot.value(), self._target_sq.value()
        sums.golden_sq, sums.error_sq = self._golden_sq.value(), self._error_sq.value()
        return sums


def _block_sums(values: Reals, block: int) -> list[float]:
    """Sum of every block; blocks start at the front, the last may be short."""
    whole = values.size // block * block
    totals: list[float] = np.add.reduce(values[:whole].reshape(-1, block), axis=1).tolist()
    if whole < values.size:
        totals.append(float(np.add.reduce(values[whole:])))
    return totals
