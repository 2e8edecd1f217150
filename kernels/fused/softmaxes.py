"""npu_scaled_masked_softmax and npu_moe_gating_top_k_softmax. Every function computes in the dtype of its inputs."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

MASKED_SCORE: Final = -10000.0
"""What the operator writes over masked scores; not -inf, so that a row masked as a whole comes out uniform."""


def npu_scaled_masked_softmax(x: Tensor, mask: Tensor, scale: float = 1.0, fixed_triu_mask: bool = False) -> Tensor:
    """Softmax over the last axis of x scale, masked positions at -10000.

    Parameters
    ----------
    x : Tensor
        Scores.
    mask : Tensor
        Broadcast to x; True is masked.
    scale : float
        Factor of the scores.
    fixed_triu_mask : bool
        Take the strict upper triangle of the mask's last two axes in place of what the mask holds.
    """
    return torch.softmax((x * scale).masked_fill(_mask(mask, fixed_triu_mask), MASKED_SCORE), -1)


def npu_scaled_masked_softmax_backward(
    grad: Tensor, x: Tensor, mask: Tensor, scale: float = 1.0, fixed_triu_mask: bool = False
) -> dict[str, Tensor]:
    """scale y (g - sum(g y)), and 0 where masked."""
    y = npu_scaled_masked_softmax(x, mask, scale, fixed_triu_mask)
    d_scores = y * (grad - (grad * y).sum(-1, keepdim=True))
    return {"x": (scale * d_scores).masked_fill(_mask(mask, fixed_triu_mask), 0)}


def npu_moe_gating_top_k_softmax(
    x: Tensor, finished: Tensor | None = None, k: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """The k likeliest experts of each row.

    Parameters
    ----------
    x : Tensor, shape (..., E)
        Scores of E experts, 2 or 3 axes.
    finished : Tensor of bool, shape (...), or None
        Rows that are done: their experts become E, which no expert is.
    k : int
        How many experts of a row.

    Returns
    -------
    tuple of Tensor
        Shapes (..., k): probabilities in falling order (equal ones by the lower expert), experts (int32), and row numbers
        (int32): column c of row r out of R holds c R + r, rows counted through all leading axes.

    Raises
    ------
    ValueError
        If there are fewer than k experts.
    """
    experts = x.shape[-1]
    if not 1 <= k <= experts:
        raise ValueError(f"npu_moe_gating_top_k_softmax takes the first {k} of {experts} experts")
    probabilities, order = torch.softmax(x, -1).sort(dim=-1, descending=True, stable=True)
    expert = order[..., :k].to(torch.int32)
    if finished is not None:
        expert = expert.masked_fill(finished.bool().unsqueeze(-1), experts)
    rows = expert.numel() // k
    row = torch.arange(rows * k, dtype=torch.int32, device=x.device).reshape(k, rows).T.reshape(expert.shape)
    return probabilities[..., :k], expert, row


def experts_tie(x: Tensor, expert: Tensor, reference: Tensor, dtype: torch.dtype) -> Tensor:
    """Where another choice of experts is as good, because a device of this dtype cannot tell the two apart.

    Parameters
    ----------
    x : Tensor, shape (..., E)
        Scores, in the reference's precision.
    expert, reference : Tensor of int, shape (..., k)
        Experts as the device and as the reference chose them.
    dtype : torch.dtype
        Floating dtype of the device's probabilities.

    Returns
    -------
    Tensor of bool, shape (..., k)
        True where the experts are the same, or their probabilities less than one unit in the last place of ``dtype`` apart.
    """
    probabilities = torch.softmax(x, -1)
    count = x.shape[-1]
    real = (expert >= 0) & (expert < count) & (reference >= 0) & (reference < count)
    ours, theirs = (probabilities.gather(-1, chosen.long().clamp(0, count - 1)) for chosen in (expert, reference))
    limits = torch.finfo(dtype)
    larger = torch.maximum(ours, theirs).clamp(min=limits.smallest_normal)
    unit = torch.ldexp(torch.full_like(larger, limits.eps), torch.frexp(larger).exponent - 1)
    return (expert == reference) | (real & ((ours - theirs).abs() < unit))


def _mask(mask: Tensor, triangle: bool) -> Tensor:
    return torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).triu(1) if triangle else mask.bool()
