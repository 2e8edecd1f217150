"""fast_gelu, npu_mish, npu_swiglu: value and gradient. Every function computes in the dtype of its inputs."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

GELU_SLOPE: Final = 1.702
"""The sigmoid with this slope stands in for the normal distribution in fast_gelu."""


def fast_gelu(self: Tensor) -> Tensor:
    """x sigmoid(1.702 x), any shape; the closed form x / (1 + e^(-1.702 |x|)) e^(0.851 (x - |x|)) is the same number."""
    return self * torch.sigmoid(GELU_SLOPE * self)


def fast_gelu_backward(grad: Tensor, self: Tensor) -> dict[str, Tensor]:
    """With e = exp(-1.702 |x|): (e + 1.702 x e + exp(1.702 (x - |x|))) / (1 + e)^2, which overflows nowhere."""
    size = self.abs()
    shrunk = torch.exp(-GELU_SLOPE * size)
    slope = shrunk + GELU_SLOPE * self * shrunk + torch.exp(GELU_SLOPE * (self - size))
    return {"self": grad * slope / (1 + shrunk).square()}


def npu_fast_gelu(input: Tensor) -> Tensor:
    """``fast_gelu`` under its other name, whose argument is called otherwise."""
    return fast_gelu(input)


def npu_fast_gelu_backward(grad: Tensor, input: Tensor) -> dict[str, Tensor]:
    """Gradient of ``npu_fast_gelu``."""
    return {"input": fast_gelu_backward(grad, input)["self"]}


def npu_mish(self: Tensor) -> Tensor:
    """x tanh(log(1 + e^x)), any shape."""
    return self * torch.tanh(functional.softplus(self))


def npu_mish_backward(grad: Tensor, self: Tensor) -> dict[str, Tensor]:
    """With t = tanh(softplus(x)): t + x (1 - t^2) sigmoid(x)."""
    bent = torch.tanh(functional.softplus(self))
    return {"self": grad * (bent + self * (1 - bent.square()) * torch.sigmoid(self))}


def npu_swiglu(self: Tensor, dim: int = -1) -> Tensor:
    """silu(A) B of the two halves A, B along ``dim``; that axis comes out half as long.

    Raises
    ------
    ValueError
        If the axis has an odd length.
    """
    gate, value = _halves(self, dim)
    return gate * torch.sigmoid(gate) * value


def npu_swiglu_backward(grad: Tensor, self: Tensor, dim: int = -1) -> dict[str, Tensor]:
    """With s = sigmoid(A): dA = g B (s + A s (1 - s)) and dB = g A s, side by side along ``dim``."""
    gate, value = _halves(self, dim)
    share = torch.sigmoid(gate)
    d_gate = grad * value * (share + gate * share * (1 - share))
    return {"self": torch.cat([d_gate, grad * gate * share], dim)}


def _halves(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    if x.shape[dim] % 2:
        raise ValueError(f"npu_swiglu halves axis {dim} of shape {tuple(x.shape)}: its length must be even")
    first, second = x.chunk(2, dim)
    return first, second
