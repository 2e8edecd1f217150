"""The pass on a torch device (cuda, npu, cpu): raw bytes go up, block sums come back. torch is imported inside."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from opassay.kernels.decode import float8_table, is_exact, is_float8
from opassay.kernels.pair_pass import PairPass, elements_of, make_pass
from opassay.kernels.pair_sums import BLOCK, exact_sum
from opassay.schemas.dtypes import DType
from opassay.schemas.metric_rows import PairSums

_FLOAT64_DEVICES: Final = ("cpu", "cuda")
_VIEWS: Final = {"float16": "float16", "bfloat16": "bfloat16", "complex32": "float16"}
_PIECE: Final = 512 * BLOCK  # elements that are on the device together


def make_torch_pass(target: DType, golden: DType, device: str) -> PairPass:
    """A pass that measures one segment on a torch device.

    Parameters
    ----------
    target, golden : DType
        The two sides' element types.
    device : str
        ``cuda``, ``cuda:1``, ``npu:0``, ``cpu`` ...

    Returns
    -------
    PairPass
        On the device. Pairs with complex, uint64 or uint32 data, and 64-bit data where the device has no quick
        float64 (anything but cuda and cpu), are measured on the host instead.

    Raises
    ------
    ImportError
        If torch (or, for npu, torch_npu) is not installed.
    """
    exact_device = device.split(":")[0] in _FLOAT64_DEVICES
    for side in (target, golden):
        if side.kind == "complex" or side.name in ("uint64", "uint32"):
            return make_pass(target, golden)
        if not exact_device and (side.width == 8 or side.name == "int32"):
            return make_pass(target, golden)
    return TorchPass(target, golden, device, exact_device)


class TorchPass(PairPass):
    """Block sums in float64, or in the device's float32 with float64 across blocks."""

    def __init__(self, target: DType, golden: DType, device: str, exact_device: bool) -> None:
        super().__init__(target, golden)
        import torch

        if device.startswith("npu"):
            import torch_npu  # noqa: F401
        self._torch = torch
        self._device = device
        self._work = torch.float64 if exact_device else torch.float32
        self._exact = is_exact(target) and is_exact(golden) and 8 in (target.width, golden.width)
        self._blocks: list[NDArray[np.float64]] = []
        self._sums = PairSums()

    def _upload(self, stored: NDArray[Any], dtype: DType) -> Any:
        """Raw bytes to the device, seen as what they mean."""
        torch = self._torch
        if is_float8(dtype):
            table = torch.from_numpy(float8_table(dtype.name).copy()).to(self._device, self._work)
            return table[self._bytes(stored).to(torch.int64)]
        names = {"uint16": "int16", "bool": "uint8"}
        view = getattr(torch, _VIEWS.get(dtype.name, names.get(dtype.name, dtype.name)))
        values = self._bytes(stored).view(view)
        return values.to(torch.int32) & 0xFFFF if dtype.name == "uint16" else values

    def _bytes(self, stored: NDArray[Any]) -> Any:
        return self._torch.from_numpy(np.array(stored).view(np.uint8)).to(self._device)

    def feed(self, target: NDArray[Any], golden: NDArray[Any]) -> None:
        count = elements_of(target, golden, self, self._sums.size)
        for start in range(0, count, _PIECE):
            piece = slice(start, min(start + _PIECE, count))
            self._add(self._upload(target[piece], self.target), self._upload(golden[piece], self.golden))

    def _exact_error(self, t: Any, g: Any) -> Any:
        """|t - g| of 64-bit integers: the wrapped difference is the exact unsigned magnitude."""
        torch = self._torch
        t, g = t.to(torch.int64), g.to(torch.int64)
        magnitude = torch.where(t >= g, t - g, g - t)
        high, low = (magnitude >> 1) & 0x7FFFFFFFFFFFFFFF, magnitude & 1
        wide = (high | low).to(torch.float64) * 2.0  # a sticky last bit, so that rounding is right
        return torch.where(magnitude >= 0, magnitude.to(torch.float64), wide)

    def _add(self, target: Any, golden: Any) -> None:
        torch, sums = self._torch, self._sums
        t, g = target.to(self._work), golden.to(self._work)
        error = self._exact_error(target, golden) if self._exact else (t - g).abs()
        count = error.numel()
        target_nan, golden_nan = t.isnan(), g.isnan()
        infinite = (t.isinf() | g.isinf()) & ~target_nan & ~golden_nan
        bad = target_nan | golden_nan | infinite
        nan_mismatch, inf_mismatch = target_nan ^ golden_nan, infinite & (t != g)
        mismatch = nan_mismatch | inf_mismatch
        counts = torch.stack([k.sum() for k in (bad, target_nan & golden_nan, infinite, nan_mismatch, inf_mismatch)])
        odd, equal_nan, infinities, nans_apart, infs_apart = counts.tolist()
        finite = count - odd
        mismatched = sums.nan_mismatch + sums.inf_mismatch > 0
        if not mismatched and nans_apart + infs_apart:
            self._remember(int(mismatch.to(torch.uint8).argmax()), t, g)
        mismatched = mismatched or nans_apart + infs_apart > 0
        if odd:
            zero = torch.zeros((), dtype=self._work, device=t.device)
            t, g, error = (torch.where(bad, zero, side) for side in (t, g, error))
        relative = torch.where(error == 0, torch.zeros_like(error), error / g.abs())
        self._blocks.append(np.stack([self._block_sums(x) for x in (t * g, t * t, g * g, error * error)]))
        if finite:
            peaks = torch.stack([x.max() for x in (error, relative, t.abs(), g.abs())]).tolist()
            error_max, relative_max, target_max, golden_max = peaks
            if not mismatched and (not sums.finite or error_max > sums.error_max):
                self._remember(int(((error == error_max) & ~bad).to(torch.uint8).argmax()), t, g)
            sums.error_max = max(sums.error_max, error_max)
            sums.relative_max = max(sums.relative_max, relative_max)
            sums.target_abs_max = max(sums.target_abs_max, target_max)
            sums.golden_abs_max = max(sums.golden_abs_max, golden_max)
            sums.within_thousandth += int((relative < 0.001).sum()) - odd
            sums.within_five_thousandth += int((relative < 0.005).sum()) - odd
        sums.size += count
        sums.finite += finite
        sums.equal_nan += equal_nan
        sums.equal_inf += infinities - infs_apart
        sums.nan_mismatch += nans_apart
        sums.inf_mismatch += infs_apart

    def _block_sums(self, values: Any) -> NDArray[np.float64]:
        """Sum of every block; the last is filled up with zeros."""
        short = -values.numel() % BLOCK
        if short:
            values = self._torch.nn.functional.pad(values, (0, short))
        sums: NDArray[np.float64] = values.view(-1, BLOCK).sum(dim=1).cpu().numpy().astype(np.float64)
        return sums

    def _remember(self, index: int, t: Any, g: Any) -> None:
        sums = self._sums
        sums.worst_index = sums.size + index
        sums.worst_target, sums.worst_golden = float(t[index]), float(g[index])

    def result(self) -> PairSums:
        sums = self._sums
        if self._blocks:
            rows = np.concatenate(self._blocks, axis=1)
            sums.dot, sums.target_sq, sums.golden_sq, sums.error_sq = (exact_sum(row.tolist()) for row in rows)
        return sums
