"""npu_fusion_attention: its options and outputs around the attention core, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from opassay.kernels.fused.attention_core import Setting, attention
from opassay.kernels.fused.attention_layout import from_bnsd, to_bnsd, whole_pse
from opassay.kernels.fused.attention_mask import mask_of
from opassay.kernels.fused.attention_sdpa import sdpa
from opassay.kernels.fused.attention_sequences import Core, Sequences, attend_sequences
from torch import Tensor

LAYOUTS: Final = ("BNSD", "BSND", "BSH", "SBH", "TND")
ALL_TOKENS: Final = 2147483647
"""Default of the token windows: no bound."""
STATISTIC_COPIES: Final = 8
"""softmax_max and softmax_sum stand that many times in a trailing axis."""


def npu_fusion_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = ALL_TOKENS,
    next_tockens: int = ALL_TOKENS,
    inner_precise: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    softmax_layout: str = "",
    *,
    drop_mask: Tensor | None = None,
    core: Core = attention,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention with the operator's options.

    Parameters
    ----------
    query, key, value : Tensor
        In ``input_layout``; keys and values may have fewer heads, values another depth.
    head_num : int
        Heads of the query.
    input_layout : str
        BNSD, BSND, BSH, SBH or TND, in small letters too.
    pse : Tensor or None
        Added to the scores before scaling: (B or 1, N, Sq or 1, Skv), or its last 1024 rows where Sq = Skv is longer (position
        codes that depend on i - j alone, under a causal mask). With TND also one axis, the N x Sq x Skv of all sequences.
    padding_mask : None
        The operator takes none yet.
    atten_mask : Tensor or None
        True is left out; full or compressed, see ``attention_mask``. None leaves nothing out, whatever ``sparse_mode`` says.
    scale : float
        Factor of the scores; 1 unless given, not 1 / sqrt(D).
    keep_prob : float
        Below 1 the operator drops weights at random.
    pre_tockens, next_tockens : int
        Width of the band of sparse_mode 4, 7 and 8, counted from the lower right corner.
    prefix : sequence of int or None
        Of sparse_mode 6, one a batch element.
    actual_seq_qlen, actual_seq_kvlen : sequence of int or None
        Of TND: where each sequence ends; a sequence may be empty, and zeros at the end are sequences left out.
    sparse_mode : int
        0 to 6, with TND also 7 and 8 and not 5.
    inner_precise, gen_mask_parallel, sync, softmax_layout : object
        Without effect on the numbers compared.
    drop_mask : Tensor of bool or None
        Weights that dropout keeps, (B or 1, N or 1, Sq, Skv). Not an argument of the operator: for callers that know its mask.
    core : callable
        Attention on (B, N, S, D). Not an argument of the operator either.

    Returns
    -------
    tuple of Tensor
        Output in ``input_layout``; softmax_max and softmax_sum, (B, N, Sq, 8), with TND (T, N, 8). The operator's other four
        outputs (reserved, seed, offset, mask length) have no reference.

    Raises
    ------
    ValueError
        If an option cannot be followed; the text says which and why. Dropout without ``drop_mask`` is one: its mask comes from
        the device's generator.
    """
    layout = input_layout.upper()
    if layout not in LAYOUTS:
        raise ValueError(f"input_layout is {input_layout!r}, expected one of {', '.join(LAYOUTS)}")
    if padding_mask is not None:
        raise ValueError("padding_mask was given, which the operator does not take yet")
    if keep_prob < 1 and drop_mask is None:
        raise ValueError(
            f"dropout inside the operator (keep_prob {keep_prob}): its mask comes from the device's own generator"
        )
    windows = (pre_tockens, next_tockens)
    ends = (_integers(actual_seq_qlen), _integers(actual_seq_kvlen))
    if layout == "TND":
        if drop_mask is not None:
            raise ValueError("drop_mask goes with layouts of equal lengths, input_layout is TND")
        _same_heads(query.shape[1], key.shape[1], value.shape[1], head_num)
        call = Sequences(ends, pse, atten_mask, sparse_mode, windows, _integers(prefix), scale)
        out, top, total = attend_sequences(query, key, value, call, core)
        return out, _copies(top), _copies(total)
    if any(ends):
        raise ValueError(
            f"actual_seq_qlen and actual_seq_kvlen belong to the layout TND, input_layout is {input_layout}"
        )
    q = to_bnsd(query, layout, head_num)
    key_heads = key.shape[-1] // q.shape[-1]  # of the layouts that do not show it
    k, v = to_bnsd(key, layout, key_heads), to_bnsd(value, layout, key_heads)
    _same_heads(q.shape[1], k.shape[1], v.shape[1], head_num)
    mask = mask_of(atten_mask, sparse_mode, (*q.shape[:3], k.shape[2]), windows, _integers(prefix))
    setting = Setting(scale, mask, drop_mask, keep_prob)
    out, top, total = core(q, k, v, whole_pse(pse, q.shape[2], k.shape[2]), setting)
    return from_bnsd(out, layout), _copies(top), _copies(total)


scaled_dot_product: Final = partial(npu_fusion_attention, core=sdpa)
"""The same call through ``torch.nn.functional.scaled_dot_product_attention``; softmax_max and softmax_sum are nan."""


def _integers(values: Any) -> tuple[int, ...]:
    return () if values is None else tuple(int(value) for value in values)


def _same_heads(query: int, key: int, value: int, head_num: int) -> None:
    if query != head_num or not key or head_num % key or key != value:
        raise ValueError(f"head_num {head_num} does not fit query, key and value with {query}, {key} and {value} heads")


def _copies(statistic: Tensor) -> Tensor:
    return statistic.unsqueeze(-1).repeat(*[1] * statistic.dim(), STATISTIC_COPIES)
