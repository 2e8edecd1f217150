"""npu_layer_norm_eval, npu_rms_norm, npu_group_norm_silu. Every function computes in the dtype of its inputs.

Outputs beside the first (rstd, mean) carry no gradient: on the device they are kept for its own backward only.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def npu_layer_norm_eval(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) weight + bias over the last ``len(normalized_shape)`` axes; var is the biased one.

    Raises
    ------
    ValueError
        If ``normalized_shape`` is not the end of the input's shape.
    """
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if tuple(input.shape[input.dim() - len(shape) :]) != shape:
        raise ValueError(f"normalized_shape {shape} is not the end of the input's shape {tuple(input.shape)}")
    axes = tuple(range(-len(shape), 0))
    centred = input - input.mean(axes, keepdim=True)
    y = centred * torch.rsqrt(centred.square().mean(axes, keepdim=True) + eps)
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias


def npu_rms_norm(self: Tensor, gamma: Tensor, epsilon: float = 1e-06) -> tuple[Tensor, Tensor]:
    """x / sqrt(mean(x^2) + epsilon) gamma over the last axes, as many as gamma has.

    Returns
    -------
    tuple of Tensor
        y of the shape of x, and rstd = 1 / sqrt(mean(x^2) + epsilon), whose normalised axes have length 1.
    """
    rstd = _rstd(self, gamma, epsilon)
    return self * rstd * gamma, rstd.detach()


def npu_rms_norm_backward(grad: Tensor, self: Tensor, gamma: Tensor, epsilon: float = 1e-06) -> dict[str, Tensor]:
    """dx = rstd (g gamma - h mean(g gamma h)) with h = x rstd; dgamma = the sum of g h over the leading axes."""
    rstd = _rstd(self, gamma, epsilon)
    unit = self * rstd
    scaled = grad * gamma
    mean = (scaled * unit).mean(_axes(gamma), keepdim=True)
    return {"self": rstd * (scaled - unit * mean), "gamma": (grad * unit).sum_to_size(gamma.shape)}


def npu_group_norm_silu(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, group: int, eps: float = 0.00001
) -> tuple[Tensor, Tensor, Tensor]:
    """Group norm, then silu.

    Parameters
    ----------
    input : Tensor, shape (N, C, ...)
        2 to 8 axes; C is a multiple of ``group``.
    weight, bias : Tensor of shape (C,), or None
        Scale and shift of the channels.
    group, eps : int, float
        Number of groups; added to the (biased) variance.

    Returns
    -------
    tuple of Tensor
        h sigmoid(h) of the shape of the input; mean and rstd of shape (N, group).

    Raises
    ------
    ValueError
        If the channels do not part into the groups.
    """
    if input.dim() < 2 or input.shape[1] % group:
        raise ValueError(
            f"npu_group_norm_silu cannot part the channels of shape {tuple(input.shape)} into {group} groups"
        )
    parts = input.reshape(input.shape[0], group, -1)
    mean = parts.mean(-1, keepdim=True)
    centred = parts - mean
    rstd = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    channels = (1, -1, *[1] * (input.dim() - 2))
    h = (centred * rstd).reshape(input.shape)
    if weight is not None:
        h = h * weight.reshape(channels)
    if bias is not None:
        h = h + bias.reshape(channels)
    return h * torch.sigmoid(h), mean.squeeze(-1).detach(), rstd.squeeze(-1).detach()


def _axes(gamma: Tensor) -> tuple[int, ...]:
    return tuple(range(-gamma.dim(), 0))


def _rstd(x: Tensor, gamma: Tensor, epsilon: float) -> Tensor:
    return torch.rsqrt(x.square().mean(_axes(gamma), keepdim=True) + epsilon)
