"""npu_linear and npu_rotary_mul: value and gradient. Every function computes in the dtype of its inputs."""

from __future__ import annotations

import torch
from torch import Tensor


def npu_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input weight^T + bias; input (..., k), weight (n, k), bias (n)."""
    y = input @ weight.T
    return y if bias is None else y + bias


def npu_linear_backward(grad: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> dict[str, Tensor]:
    """d input = g weight, d weight = g^T input, d bias = the sum of g over its rows."""
    rows = grad.flatten(0, -2)
    gradients = {"input": grad @ weight, "weight": rows.T @ input.flatten(0, -2)}
    return gradients if bias is None else {**gradients, "bias": rows.sum(0)}


def npu_rotary_mul(input: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half") -> Tensor:
    """r1 x + r2 x', where x' is x turned by a right angle.

    Parameters
    ----------
    input : Tensor
        4 axes; the last one has an even length.
    r1, r2 : Tensor
        Cosines and sines, broadcast to the input (1S1D, 11SD, S11D, B1SD, BNSD ...).
    rotary_mode : str
        ``half`` turns element k with element k + D/2, ``interleave`` each even one with the next.

    Raises
    ------
    ValueError
        If the mode is neither of them or the last axis odd.
    """
    return r1 * input + r2 * _turned(input, rotary_mode)


def npu_rotary_mul_backward(
    grad: Tensor, input: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half"
) -> dict[str, Tensor]:
    """dx = r1 g + (r2 g turned back); dr1 = x g and dr2 = x' g, summed over the axes that were broadcast."""
    back = -_turned(r2 * grad, rotary_mode)
    return {
        "input": (r1 * grad + back).sum_to_size(input.shape),
        "r1": (input * grad).sum_to_size(r1.shape),
        "r2": (_turned(input, rotary_mode) * grad).sum_to_size(r2.shape),
    }


def _turned(x: Tensor, mode: str) -> Tensor:
    if x.shape[-1] % 2:
        raise ValueError(
            f"npu_rotary_mul pairs the elements of the last axis of shape {tuple(x.shape)}: it must be even"
        )
    if mode == "half":
        first, second = x.chunk(2, -1)
        return torch.cat([-second, first], -1)
    if mode == "interleave":
        return torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)
    raise ValueError(f"rotary_mode is {mode!r}, expected 'half' or 'interleave'")
