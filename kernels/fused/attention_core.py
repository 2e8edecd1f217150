"""Attention on (B, N, S, D), piece by piece so that no score matrix is kept whole, with its gradient in closed form.

Z = (Q K^T + pse) scale, -inf where left out;  P = softmax(Z), 0 in rows that are left out whole
out = (P keep / keep_prob) V
dV = (P keep / keep_prob)^T dO;  dP = (dO V^T) keep / keep_prob;  dZ = P (dP - sum_j dP P)
dQ = dZ K scale;  dK = dZ^T Q scale;  dpse = dZ scale;  dK, dV summed over the query heads of a group
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import torch
from opassay.kernels.fused.attention_mask import Mask, cut
from torch import Tensor
from torch.autograd.function import once_differentiable

PIECE: Final = 1 << 23
"""Scores of a piece: 64 MiB in float64."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a call asks for besides its tensors.

    Attributes
    ----------
    scale : float
        Factor of the scores.
    mask : Mask
        Pairs that are left out.
    keep : Tensor of bool, shape (B or 1, N or 1, Sq, Skv), or None
        Weights that dropout keeps.
    keep_prob : float
        Weights that are kept are divided by it.
    """

    scale: float = 1.0
    mask: Mask = field(default_factory=Mask)
    keep: Tensor | None = None
    keep_prob: float = 1.0


class _Piece(NamedTuple):
    batch: slice
    groups: slice
    rows: slice


def attention(q: Tensor, k: Tensor, v: Tensor, pse: Tensor | None, setting: Setting) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of one batch.

    Parameters
    ----------
    q : Tensor, shape (B, N1, Sq, D)
        Queries.
    k, v : Tensor, shapes (B, N2, Skv, D) and (B, N2, Skv, Dv)
        Keys and values; key head j serves the query heads j N1 / N2 and following.
    pse : Tensor, shape (B or 1, N1 or 1, Sq or 1, Skv or 1), or None
        Added to the scores before they are scaled.
    setting : Setting
        The rest.

    Returns
    -------
    tuple of Tensor
        Output (B, N1, Sq, Dv), greatest score and sum of exponentials (B, N1, Sq), of the inputs' dtype. The last two carry
        no gradient; in rows that are left out whole they are -inf and 0.
    """
    out, top, total = _Attention.apply(q, k, v, pse, setting)  # type: ignore[no-untyped-call]
    return out, top, total


def gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, pse: Tensor | None, setting: Setting
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of q, k, v and pse, where ``grad`` is that of the output; shapes as of ``attention``."""
    d_q, d_k, d_v = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    d_pse = None if pse is None else torch.zeros_like(pse)
    for piece in _pieces(q, k):
        heads = _heads(piece, q, k)
        q_part, k_part, v_part = _parts(q, k, v, piece)
        grad_part = _grouped(grad[piece.batch, heads, piece.rows], k_part.shape[1])
        weights, _, _ = _weights(q_part, k_part, pse, piece, heads, setting)
        keep = _keep(piece, heads, setting, weights)
        d_weights = (grad_part @ v_part.mT).reshape(weights.shape)
        kept = weights
        if keep is not None:
            d_weights, kept = d_weights * keep, weights * keep
        d_scores = weights * (d_weights - (d_weights * weights).sum(-1, keepdim=True)) * setting.scale
        flat = d_scores.reshape(*grad_part.shape[:3], -1)
        d_q[piece.batch, heads, piece.rows] = (flat @ k_part).reshape(d_q[piece.batch, heads, piece.rows].shape)
        d_k[piece.batch, piece.groups] += flat.mT @ q_part
        d_v[piece.batch, piece.groups] += kept.reshape(flat.shape).mT @ grad_part
        if d_pse is not None:
            place = cut(d_pse, piece.batch, heads, piece.rows)
            place += d_scores.sum_to_size(place.shape)
    return d_q, d_k, d_v, d_pse


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, pse: Tensor | None, setting: Setting) -> Any:
        out = q.new_zeros((*q.shape[:3], v.shape[-1]))
        top = q.new_full(q.shape[:3], -torch.inf)
        total = q.new_zeros(q.shape[:3])
        for piece in _pieces(q, k):
            heads = _heads(piece, q, k)
            q_part, k_part, v_part = _parts(q, k, v, piece)
            weights, top_part, total_part = _weights(q_part, k_part, pse, piece, heads, setting)
            keep = _keep(piece, heads, setting, weights)
            kept = weights if keep is None else weights * keep
            place = (piece.batch, heads, piece.rows)
            out[place] = (kept.reshape(*q_part.shape[:3], -1) @ v_part).reshape(out[place].shape)
            top[place], total[place] = top_part, total_part
        ctx.save_for_backward(q, k, v, pse)
        ctx.setting = setting
        ctx.mark_non_differentiable(top, total)
        return out, top, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> Any:
        q, k, v, pse = ctx.saved_tensors
        return *gradients(grad, q, k, v, pse, ctx.setting), None


def _pieces(q: Tensor, k: Tensor) -> Iterator[_Piece]:
    """Cuts by shape alone, so that sums are formed in the same order in every run."""
    batch, heads, rows, _ = q.shape
    groups, keys = k.shape[1], k.shape[2]
    if not batch or not heads or not rows or not keys:
        return
    row = heads // groups * keys
    rows_each = min(rows, max(1, PIECE // row))
    groups_each = min(groups, max(1, PIECE // (row * rows))) if rows_each == rows else 1
    batch_each = min(batch, max(1, PIECE // (row * rows * groups))) if groups_each == groups else 1
    for b in range(0, batch, batch_each):
        for g in range(0, groups, groups_each):
            for r in range(0, rows, rows_each):
                yield _Piece(
                    slice(b, min(b + batch_each, batch)),
                    slice(g, min(g + groups_each, groups)),
                    slice(r, min(r + rows_each, rows)),
                )


def _heads(piece: _Piece, q: Tensor, k: Tensor) -> slice:
    size = q.shape[1] // k.shape[1]
    return slice(piece.groups.start * size, piece.groups.stop * size)


def _parts(q: Tensor, k: Tensor, v: Tensor, piece: _Piece) -> tuple[Tensor, Tensor, Tensor]:
    k_part, v_part = k[piece.batch, piece.groups], v[piece.batch, piece.groups]
    return _grouped(q[piece.batch, _heads(piece, q, k), piece.rows], k_part.shape[1]), k_part, v_part


def _grouped(x: Tensor, groups: int) -> Tensor:
    """(b, heads, rows, D) as (b, groups, heads of a group x rows, D): one product a group, no key is copied."""
    return x.reshape(x.shape[0], groups, -1, x.shape[-1])


def _weights(
    q: Tensor, k: Tensor, pse: Tensor | None, piece: _Piece, heads: slice, setting: Setting
) -> tuple[Tensor, Tensor, Tensor]:
    """P (b, heads, rows, Skv), and the greatest score and sum of exponentials of each row."""
    rows = piece.rows.stop - piece.rows.start
    scores = (q @ k.mT).reshape(q.shape[0], heads.stop - heads.start, rows, k.shape[2])
    if pse is not None:
        scores = scores + cut(pse, piece.batch, heads, piece.rows)
    scores = scores * setting.scale
    left_out = setting.mask.piece(piece.batch, heads, piece.rows, k.shape[2], q.device)
    if left_out is not None:
        scores = scores.masked_fill(left_out, -torch.inf)
    top = scores.amax(-1, keepdim=True)
    parts = torch.exp(scores - top.masked_fill(top == -torch.inf, 0))
    total = parts.sum(-1, keepdim=True)
    return parts / total.masked_fill(total == 0, 1), top.squeeze(-1), total.squeeze(-1)


def _keep(piece: _Piece, heads: slice, setting: Setting, like: Tensor) -> Tensor | None:
    if setting.keep is None:
        return None
    return cut(setting.keep, piece.batch, heads, piece.rows).to(like.dtype) / setting.keep_prob
