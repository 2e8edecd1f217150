"""Whether an error is what rounding makes of it: as large as what the reference itself moves by when its inputs are rounded."""

from __future__ import annotations

from typing import Final

import torch

MAGNIFIED: Final = 8.0
"""A correct operator rounds a few times where the reference was moved once."""


def rounded_at_random(values: torch.Tensor, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Raised values, each moved by half a unit in the last place of a narrower dtype, up or down.

    Parameters
    ----------
    values : torch.Tensor
        Floating or complex, on the CPU.
    dtype : torch.dtype
        Floating or complex; gives the size of the step.
    generator : torch.Generator
        Draws the signs.

    Returns
    -------
    torch.Tensor
        Of the dtype of `values`.
    """
    half = torch.finfo(dtype).eps / 2
    up = torch.randint(0, 2, values.shape, generator=generator, dtype=torch.int8).bool()
    return values + values * torch.where(up, half, -half).to(values.dtype)


def rounding_of(bench: torch.Tensor, device: torch.Tensor, moved: torch.Tensor) -> tuple[float, float] | None:
    """Compare the device's error with what rounded inputs do to the reference.

    Parameters
    ----------
    bench, device, moved : torch.Tensor
        Reference, device under test, reference of rounded inputs; of one shape.

    Returns
    -------
    tuple of float, or None
        Largest error of the device and largest move of the reference, where rounding explains the error; None where it
        does not, or where there is nothing finite to compare.
    """
    if not (bench.shape == device.shape == moved.shape) or not bench.numel():
        return None
    if not all(side.is_floating_point() or side.is_complex() for side in (bench, device, moved)):
        return None
    exact = bench.detach()
    error = (device.detach().to("cpu", exact.dtype) - exact).abs()
    move = (moved.detach().to(exact.dtype) - exact).abs()
    finite = torch.isfinite(exact)
    if not bool(torch.isfinite(error[finite]).all()) or not bool(finite.any()):
        return None
    worst, moves = float(error[finite].max()), float(move[finite].nan_to_num(0.0, 0.0, 0.0).max())
    return (worst, moves) if 0 < worst <= MAGNIFIED * moves else None
