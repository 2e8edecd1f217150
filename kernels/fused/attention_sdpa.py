"""torch's own scaled_dot_product_attention in the place of the attention core: what a cuda device runs."""

from __future__ import annotations

import torch
from opassay.kernels.fused.attention_core import Setting
from torch import Tensor
from torch.nn import functional


def sdpa(q: Tensor, k: Tensor, v: Tensor, pse: Tensor | None, setting: Setting) -> tuple[Tensor, Tensor, Tensor]:
    """As ``attention_core.attention``, in the dtype of the inputs; the last two outputs, which torch does not give, are nan.

    Raises
    ------
    ValueError
        If weights are dropped: torch draws its own mask.
    """
    if setting.keep is not None:
        raise ValueError("dropout inside the operator: scaled_dot_product_attention draws its own mask")
    size = q.shape[1] // k.shape[1]
    all_of_it = slice(0, q.shape[0]), slice(0, q.shape[1]), slice(0, q.shape[2])
    left_out = setting.mask.piece(*all_of_it, k.shape[2], q.device)
    empty: Tensor | None = None
    bias: Tensor | None = None
    if left_out is not None:
        # A row without any key is nan in some backends: all its keys take part, and its output is set to 0.
        empty = left_out.all(-1, keepdim=True)
        bias = ~left_out | empty
    if pse is not None:
        shift = pse * setting.scale
        bias = shift if bias is None else shift.masked_fill(~bias, -torch.inf)
    out = functional.scaled_dot_product_attention(
        q, k.repeat_interleave(size, 1), v.repeat_interleave(size, 1), attn_mask=bias, scale=setting.scale
    )
    if empty is not None:
        out = out.masked_fill(empty, 0)
    unknown = q.new_full(q.shape[:3], torch.nan)
    return out, unknown, unknown
