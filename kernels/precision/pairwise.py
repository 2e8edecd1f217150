"""One pass over a reference tensor and a device tensor: counts, maxima and sums of which every figure is made.

Pieces of a fixed size go through float64 on the device (cuda) or on the CPU (everything else). Sums are taken over fixed blocks
and added exactly, so that neither the size of the pieces nor the layout in memory changes a digit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import torch
from opassay.kernels.pair_sums import BLOCK, exact_sum
from opassay.kernels.precision.tables import (
    ABSOLUTE,
    ACCUMULATIVE,
    ACCUMULATIVE_SMALL,
    BENCHMARK,
    BINARY,
    HUNDREDTH_LIMIT,
    THOUSANDTH_LIMIT,
    ULP,
    Limits,
)

CHUNK: Final = 1 << 14
"""Elements that are in work together on the CPU, a multiple of ``BLOCK``: all intermediate arrays stay in the cache, and torch
starts no threads, whose barriers cost more than they save in two dozen short operations, most of all on a busy machine."""

_CUDA_CHUNK: Final = 1 << 24
_FETCH: Final = 1 << 21  # a multiple of BLOCK
_CUDA_FROM: Final = 1 << 15  # fewer elements are compared faster on the CPU than by starting kernels
_DOUBLES: Final = (torch.float64, torch.complex128)
_HUGE: Final = 1e70  # the product of two sums of squares of larger values may overflow float64

_SUMS: Final = ("dot", "bench_sq", "device_sq", "error_sq", "relative", "ulp")


@dataclass(slots=True)
class Totals:
    """What one pass found.

    Attributes
    ----------
    size : int
        Elements; a complex number counts as two.
    alike, apart, apart_nan : int
        Positions without a finite pair: the same nan or infinity on both sides, anything else, a nan among those. Neither
        enters a statistic.
    first_apart : tuple of (int, float, float) or None
        Flat index, reference and device value of the first position that is apart.
    error_max, bench_max, device_max : float
        Largest difference and magnitudes over the finite pairs.
    within, close : dict of float to int
        Relative limit -> finite pairs that differ by less, the document's way (epsilon in the denominator); at any scale (no
        epsilon, but a difference of one step of the dtype counts as close).
    small, small_beyond, normal_beyond : int
        Pairs in the small-value domain, those of them beyond the absolute tolerance, others beyond the relative one.
    above, below, differ : int
        Device greater than, less than, unequal to the reference rounded to the device's dtype.
    relative_max, ulp_max : float
        Largest relative error outside the small-value domain, largest error in units of the last place.
    ulp_beyond : int
        Errors of more such units than allowed.
    sums : dict of str to float
        ``dot``, ``bench_sq``, ``device_sq``, ``error_sq`` and ``relative`` (outside the small-value domain), ``ulp``.
    """

    size: int = 0
    alike: int = 0
    apart: int = 0
    apart_nan: int = 0
    first_apart: tuple[int, float, float] | None = None
    error_max: float = 0.0
    bench_max: float = 0.0
    device_max: float = 0.0
    within: dict[float, int] = field(default_factory=dict)
    close: dict[float, int] = field(default_factory=dict)
    small: int = 0
    small_beyond: int = 0
    normal_beyond: int = 0
    above: int = 0
    below: int = 0
    differ: int = 0
    relative_max: float = 0.0
    ulp_max: float = 0.0
    ulp_beyond: int = 0
    sums: dict[str, float] = field(default_factory=dict)

    @property
    def finite(self) -> int:
        """Pairs that are finite on both sides."""
        return self.size - self.alike - self.apart


def measure(
    bench: torch.Tensor,
    device: torch.Tensor,
    standard: str,
    limits: Limits,
    *,
    clip: bool = False,
    chunk: int | None = None,
) -> Totals:
    """Measure a pair of float or complex tensors of equal shape.

    Parameters
    ----------
    bench : torch.Tensor
        The reference, in a precision at least the device's.
    device : torch.Tensor
        The output under test, on any device; strided, any layout.
    standard : str
        Name of the standard whose figures are wanted beside those of Status.
    limits : Limits
        Thresholds that apply.
    clip : bool
        Limit the reference to the finite numbers of the device's dtype first (operators that depend on them).
    chunk : int, optional
        Elements in work together, a multiple of ``BLOCK``; changes no result.

    Returns
    -------
    Totals
        Sums in float64.

    Raises
    ------
    ValueError
        If the shapes differ.
    """
    if bench.shape != device.shape:
        raise ValueError(f"shapes {tuple(bench.shape)} and {tuple(device.shape)}")
    where, pieces = _place(device)
    work = _Pass(standard, limits, bench.dtype, device.dtype, clip)
    with torch.no_grad():
        for reference, output in _pairs(bench, device, where, chunk or pieces):
            work.feed(reference, output)
        if work.overflows():
            work.rescale(_pairs(bench, device, where, chunk or pieces))
    return work.result()


def count_unequal(bench: torch.Tensor, device: torch.Tensor, *, chunk: int | None = None) -> int:
    """Elements of two integer or bool tensors of equal shape whose values differ; exact for every width and sign."""
    where, pieces = _place(device)
    unequal = 0
    with torch.no_grad():
        for reference, output in _pairs(bench, device, where, chunk or pieces):
            left, right = _whole(reference), _whole(output)
            differ = left != right
            if torch.uint64 in (bench.dtype, device.dtype) and bench.dtype != device.dtype:
                differ |= (left < 0) | (right < 0)  # beyond the other's range: the bits alone may coincide
            unequal += int(differ.sum())
    return unequal


def _whole(values: torch.Tensor) -> torch.Tensor:
    """Integers as int64; uint64 by its bits."""
    return values.view(torch.int64) if values.dtype == torch.uint64 else values.to(torch.int64)


def _place(device: torch.Tensor) -> tuple[torch.device, int]:
    """Where to compute, and how many elements at a time: only the CPU and cuda have float64."""
    if device.device.type == "cuda" and device.numel() >= _CUDA_FROM:
        return device.device, _CUDA_CHUNK
    return torch.device("cpu"), CHUNK


def _pairs(
    bench: torch.Tensor, device: torch.Tensor, where: torch.device, chunk: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Pieces of both sides, 1-d, in order; fetched in larger parts, since every copy from a device costs its start."""
    bench, device = bench.detach(), device.detach()
    part = max(_FETCH, chunk)
    for start in range(0, device.numel(), part):
        stop = min(start + part, device.numel())
        left, right = flat_part(bench, start, stop).to(where), flat_part(device, start, stop).to(where)
        for first in range(0, stop - start, chunk):
            yield left[first : first + chunk], right[first : first + chunk]


def flat_part(values: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """Elements ``start`` to ``stop`` in row-major order, 1-d, without copying the whole of a strided or expanded tensor."""
    if values.is_contiguous():
        return values.view(-1)[start:stop]
    if values.dim() == 1:
        return values[start:stop]
    row = values.numel() // values.shape[0]
    first, last = start // row, (stop - 1) // row
    if first == last:
        return flat_part(values[first], start - first * row, stop - first * row)
    parts = [flat_part(values[first], start - first * row, row)]
    if last > first + 1:
        parts.append(values[first + 1 : last].reshape(-1))
    parts.append(flat_part(values[last], 0, stop - last * row))
    return torch.cat(parts)


def _real(values: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs of their parts."""
    return torch.view_as_real(values.resolve_conj()).reshape(-1) if values.is_complex() else values


def _wide(values: torch.Tensor) -> torch.Tensor:
    """Float64; eight-bit floats by way of float32."""
    return (values.to(torch.float32) if values.dtype.itemsize == 1 else values).to(torch.float64)


def round_to(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Real numbers as ``dtype`` holds them, in float64; narrow dtypes by way of float32, as torch converts."""
    if dtype.itemsize == 1:
        values = values.to(torch.float32)
    return _wide(values.to(dtype))


class _Pass:
    """Adds pieces to ``Totals``."""

    def __init__(self, standard: str, limits: Limits, bench: torch.dtype, device: torch.dtype, clip: bool) -> None:
        self._standard, self._limits = standard, limits
        self._dtype = device.to_real() if device.is_complex else device
        self._rounds = bench != device
        self._top = torch.finfo(self._dtype).max if clip else None
        # Machine epsilon of the reference, for bfloat16 outputs too: 2**-8 would understate errors of values below that.
        self._eps = torch.finfo(torch.float64 if bench in _DOUBLES else torch.float32).eps
        self._blocks: dict[str, list[float]] = {name: [] for name in _SUMS}
        counted = {HUNDREDTH_LIMIT} if limits.error_limit >= HUNDREDTH_LIMIT else set()
        counted |= {THOUSANDTH_LIMIT, limits.error_limit, limits.pass_limit}
        self._totals = Totals(within=dict.fromkeys(sorted(counted), 0), close=dict.fromkeys(sorted(counted), 0))
        if standard == ACCUMULATIVE:
            self._small, self._atol, self._rtol = (
                ACCUMULATIVE_SMALL,
                limits.accumulative_bound,
                limits.accumulative_bound,
            )
        else:
            self._small, self._atol, self._rtol = limits.small_value, limits.small_atol, limits.rtol

    def feed(self, bench: torch.Tensor, device: torch.Tensor) -> None:
        """Measure one piece."""
        totals = self._totals
        b, d, r = self._sides(bench, device)
        odd = ~(torch.isfinite(d) & torch.isfinite(r))
        dropped = int(odd.sum())
        if dropped:
            self._account(odd, b, d, r)
            b, d, r = (side.masked_fill(odd, 0.0) for side in (b, d, r))
        totals.size += b.numel()
        error, size = (d - b).abs_(), b.abs()
        peaks = {"error_max": error.max(), "bench_max": size.max(), "device_max": d.abs().max()}
        counts: dict[str, torch.Tensor] = {}
        relative = error / (size + self._eps)
        scaled = (error / size).masked_fill_(error <= self._limits.step, 0.0)
        for limit in totals.within:
            counts[f"within {limit}"], counts[f"close {limit}"] = (relative < limit).sum(), (scaled < limit).sum()
        self._add("dot", b * d)
        self._add("bench_sq", b * b)
        self._add("device_sq", d * d)
        if self._standard in (ABSOLUTE, ACCUMULATIVE, BENCHMARK):
            self._domains(error, size, relative, counts, peaks)
        if self._standard in (ACCUMULATIVE, BENCHMARK):
            counts["above"], counts["below"] = (d > r).sum(), (d < r).sum()
        if self._standard == BINARY:
            counts["differ"] = (d != r).sum()
        if self._standard == ULP:
            units = self._units(error, size)
            peaks["ulp_max"], counts["ulp_beyond"] = units.max(), (units > self._limits.ulp_above).sum()
            self._add("ulp", units)
        self._merge(peaks, counts, dropped)

    def _sides(self, bench: torch.Tensor, device: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Reference, output and the reference as the device's dtype holds it, all float64."""
        reference, output = _real(bench), _real(device)
        if self._top is not None:
            reference = _wide(reference).clamp(-self._top, self._top)
        b, d = _wide(reference), _wide(output)
        return b, d, round_to(reference, self._dtype) if self._rounds or self._top is not None else b

    def _account(self, odd: torch.Tensor, b: torch.Tensor, d: torch.Tensor, r: torch.Tensor) -> None:
        """Count positions that are not finite on both sides."""
        totals = self._totals
        either_nan = d.isnan() | r.isnan()
        apart = odd & ~((d.isnan() & r.isnan()) | (d == r))
        count = int(apart.sum())
        totals.alike += int(odd.sum()) - count
        totals.apart += count
        totals.apart_nan += int((apart & either_nan).sum())
        if count and totals.first_apart is None:
            at = int(apart.to(torch.uint8).argmax())
            totals.first_apart = (totals.size + at, float(b[at]), float(d[at]))

    def _domains(
        self,
        error: torch.Tensor,
        size: torch.Tensor,
        relative: torch.Tensor,
        counts: dict[str, torch.Tensor],
        peaks: dict[str, torch.Tensor],
    ) -> None:
        """The small-value domain and the rest."""
        small = size <= self._small
        counts["small"] = small.sum()
        counts["small_beyond"] = (small & (error > self._atol)).sum()
        relative = relative.masked_fill(small, 0.0)
        if self._standard != BENCHMARK:
            counts["normal_beyond"] = (relative > self._rtol).sum()
            return
        peaks["relative_max"] = relative.max()
        self._add("relative", relative)
        self._add("error_sq", error.masked_fill(small, 0.0).square_())

    def _units(self, error: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
        """Errors in units of the last place of the reference, in the device's dtype."""
        limits = self._limits
        exponent = torch.frexp(size).exponent.to(torch.int64) - 1
        exponent = exponent.masked_fill_(size == 0, limits.min_exponent).clamp_(min=limits.min_exponent)
        scale = ((1023 + limits.mantissa_bits - exponent) << 52).view(torch.float64)  # 2 ** (bits - exponent), exactly
        return error * scale

    def _add(self, name: str, values: torch.Tensor) -> None:
        whole = values.numel() // BLOCK * BLOCK
        if whole:
            self._blocks[name] += values[:whole].view(-1, BLOCK).sum(dim=1).tolist()
        if whole < values.numel():
            self._blocks[name].append(float(values[whole:].sum()))

    def _merge(self, peaks: dict[str, torch.Tensor], counts: dict[str, torch.Tensor], dropped: int) -> None:
        totals = self._totals
        for name, value in zip(peaks, torch.stack(list(peaks.values())).tolist(), strict=True):
            setattr(totals, name, max(getattr(totals, name), value))
        found = dict(zip(counts, torch.stack(list(counts.values())).tolist(), strict=True))
        for limit in totals.within:
            totals.within[limit] += found.pop(f"within {limit}") - dropped  # what was dropped stands as 0 against 0
            totals.close[limit] += found.pop(f"close {limit}") - dropped
        if "small" in found:
            found["small"] -= dropped
        for name, value in found.items():
            setattr(totals, name, getattr(totals, name) + value)

    def overflows(self) -> bool:
        """Whether sums of squares may have left float64's range."""
        return max(self._totals.bench_max, self._totals.device_max) > _HUGE

    def rescale(self, pairs: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Take the cosine's sums again, each side divided by its largest magnitude."""
        for name in ("dot", "bench_sq", "device_sq"):
            self._blocks[name] = []
        for bench, device in pairs:
            b, d, r = self._sides(bench, device)
            odd = ~(torch.isfinite(d) & torch.isfinite(r))
            b = b.masked_fill(odd, 0.0) / (self._totals.bench_max or 1.0)
            d = d.masked_fill(odd, 0.0) / (self._totals.device_max or 1.0)
            self._add("dot", b * d)
            self._add("bench_sq", b * b)
            self._add("device_sq", d * d)

    def result(self) -> Totals:
        """The totals, sums added exactly."""
        self._totals.sums = {name: exact_sum(blocks) for name, blocks in self._blocks.items() if blocks}
        return self._totals
