"""npu_apply_adam and npu_apply_adam_w: one step; ``out`` is left alone, its new values are what comes back.

They have no gradient (a call with ``out=`` cannot be differentiated). Scalars are computed in float64; each result has the
dtype of the tensor it replaces.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from opassay.kernels.fused.widening import wide
from torch import Tensor

Three = tuple[Tensor, Tensor, Tensor]


def npu_apply_adam(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: Tensor,
    use_locking: bool | None,
    use_nesterov: bool | None,
    *,
    out: Sequence[Tensor],
) -> Three:
    """Adam; ``beta1_power`` and ``beta2_power`` are the powers of this step.

    Parameters
    ----------
    beta1_power, beta2_power, lr, beta1, beta2, epsilon : float
        Scalars.
    grad : Tensor
        Gradient.
    use_locking, use_nesterov : bool or None
        The first changes no number; None is False.
    out : sequence of three Tensor, shaped as grad
        Variable, first and second moment before the step.

    Returns
    -------
    tuple of Tensor
        The three after it.
    """
    var, m, v, g = wide((*out, grad))
    new_m = m + (1 - beta1) * (g - m)
    new_v = v + (1 - beta2) * (g * g - v)
    rate = lr * math.sqrt(1 - beta2_power) / (1 - beta1_power)
    step = beta1 * new_m + (1 - beta1) * g if use_nesterov else new_m
    return _as(out, var - rate * step / (epsilon + new_v.sqrt()), new_m, new_v)


def npu_apply_adam_w(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    weight_decay: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: Tensor,
    max_grad_norm: Tensor | None = None,
    amsgrad: bool | None = None,
    maximize: bool | None = None,
    *,
    out: Sequence[Tensor],
) -> Three:
    """Adam with decoupled weight decay; ``beta1_power`` and ``beta2_power`` are the powers before this step.

    Parameters
    ----------
    beta1_power, beta2_power, lr, weight_decay, beta1, beta2, epsilon : float
        Scalars. Where a correction 1 - power beta would be exactly 0, the power is made smaller by epsilon.
    grad : Tensor
        Gradient.
    max_grad_norm : Tensor, shaped as grad, or None
        Largest second moment so far; needed with ``amsgrad`` alone.
    amsgrad, maximize : bool or None
        None is False.
    out : sequence of three Tensor, shaped as grad
        Variable, first and second moment before the step.

    Returns
    -------
    tuple of Tensor
        The three after it.

    Raises
    ------
    ValueError
        If ``amsgrad`` is set without ``max_grad_norm``.
    """
    var, m, v, g = wide((*out, grad))
    if maximize:
        g = -g
    new_m = beta1 * m + (1 - beta1) * g
    new_v = beta2 * v + (1 - beta2) * g * g
    second = new_v
    if amsgrad:
        if max_grad_norm is None:
            raise ValueError("npu_apply_adam_w with amsgrad needs max_grad_norm")
        second = torch.maximum(wide(max_grad_norm), new_v)
    first_correction = _correction(beta1_power, beta1, epsilon)
    second_correction = _correction(beta2_power, beta2, epsilon)
    step = new_m / ((second / second_correction).sqrt() + epsilon)
    return _as(out, var * (1 - lr * weight_decay) - lr / first_correction * step, new_m, new_v)


def _correction(power: float, beta: float, epsilon: float) -> float:
    return (1 - power * beta) or (1 - (power - epsilon) * beta)


def _as(out: Sequence[Tensor], *values: Tensor) -> Three:
    var, m, v = (value.to(old.dtype) for value, old in zip(values, out, strict=True))
    return var, m, v
