"""The layout TND of npu_fusion_attention: tokens of all sequences one after the other, each sequence attended by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import torch
from opassay.kernels.fused.attention_core import Setting
from opassay.kernels.fused.attention_layout import slid
from opassay.kernels.fused.attention_mask import is_compressed, mask_of, sequence_mode
from torch import Tensor

VARIABLE_LENGTH_MODES: Final = (7, 8)
"""Modes of a long sequence cut between devices; they exist for this layout alone."""

Core = Callable[[Tensor, Tensor, Tensor, "Tensor | None", Setting], tuple[Tensor, Tensor, Tensor]]
"""``attention_core.attention``, or what takes its place."""


@dataclass(frozen=True, slots=True)
class Sequences:
    """Options of a TND call, under the operator's names; ``ends`` are those of query and key."""

    ends: tuple[tuple[int, ...], tuple[int, ...]]
    pse: Tensor | None
    atten_mask: Tensor | None
    sparse_mode: int
    windows: tuple[int, int]
    prefix: tuple[int, ...]
    scale: float


def attend_sequences(
    query: Tensor, key: Tensor, value: Tensor, call: Sequences, core: Core
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of each sequence.

    Parameters
    ----------
    query, key, value : Tensor, shapes (T, N1, D), (T', N2, D), (T', N2, Dv)
        Tokens.
    call : Sequences
        Options.
    core : callable
        Attention of one sequence.

    Returns
    -------
    tuple of Tensor
        Output (T, N1, Dv), greatest score and sum (T, N1); tokens after the last sequence have 0, -inf, 0.

    Raises
    ------
    ValueError
        If the ends do not fit the tokens, or an option does not exist for this layout.
    """
    _known(call)
    spans = list(_spans(call.ends, (query.shape[0], key.shape[0])))
    filled = [number for number, (q_span, _) in enumerate(spans) if q_span.stop > q_span.start]
    compressed = call.atten_mask is not None and is_compressed(call.atten_mask, call.sparse_mode)
    if call.sparse_mode in VARIABLE_LENGTH_MODES and call.atten_mask is not None and not compressed:
        raise ValueError(f"sparse_mode {call.sparse_mode} needs the compressed mask of 2048 x 2048")
    parts = []
    used = 0
    for number, (q_span, k_span) in enumerate(spans):
        q, k, v = _bnsd(query[q_span]), _bnsd(key[k_span]), _bnsd(value[k_span])
        shape = (1, q.shape[1], q.shape[2], k.shape[2])
        mask = mask_of(
            call.atten_mask if compressed else _corner(call.atten_mask, number, shape),
            sequence_mode(call.sparse_mode, number, filled),
            shape,
            call.windows,
            call.prefix[number : number + 1],
            compressed,
        )
        pse = _pse_of(call.pse, number, shape, used)
        used += q.shape[1] * q.shape[2] * k.shape[2]
        parts.append([part[0].transpose(0, 1) for part in core(q, k, v, pse, Setting(call.scale, mask))])
    rest = query[spans[-1][0].stop :]
    parts.append([
        rest.new_zeros((*rest.shape[:2], value.shape[2])),
        rest.new_full(rest.shape[:2], -torch.inf),
        rest.new_zeros(rest.shape[:2]),
    ])  # fmt: skip
    out, top, total = (torch.cat(column) for column in zip(*parts, strict=True))
    return out, top, total


def _known(call: Sequences) -> None:
    counts = [len(ends) for ends in call.ends]
    if not counts[0] or counts[0] != counts[1]:
        raise ValueError(
            f"layout TND needs actual_seq_qlen and actual_seq_kvlen of one length, {counts[0]} and {counts[1]} numbers are given"
        )
    if call.sparse_mode == 5 or not 0 <= call.sparse_mode <= 8:
        raise ValueError(f"sparse_mode is {call.sparse_mode}, expected 0 to 4 or 6 to 8 with the layout TND")
    if call.sparse_mode in VARIABLE_LENGTH_MODES and call.pse is not None:
        raise ValueError(f"sparse_mode {call.sparse_mode} takes no pse")


def _spans(ends: tuple[tuple[int, ...], tuple[int, ...]], tokens: tuple[int, int]) -> Iterator[tuple[slice, slice]]:
    starts = [0, 0]
    for number, pair in enumerate(zip(*ends, strict=True)):
        # Zeros at the end are sequences that take no part.
        stops = [start if end == 0 else end for start, end in zip(starts, pair, strict=True)]
        if any(not start <= stop <= there for start, stop, there in zip(starts, stops, tokens, strict=True)):
            raise ValueError(
                f"sequence {number} of TND ends at {pair[0]} and {pair[1]}: ends must not fall, nor pass the {tokens[0]} and "
                f"{tokens[1]} tokens there are"
            )
        yield slice(starts[0], stops[0]), slice(starts[1], stops[1])
        starts = stops


def _bnsd(tokens: Tensor) -> Tensor:
    return tokens.transpose(0, 1)[None]


def _corner(mask: Tensor | None, number: int, shape: tuple[int, int, int, int]) -> Tensor | None:
    """Part of a mask for the longest sequence that belongs to this one."""
    if mask is None:
        return None
    mask = mask[(None,) * (4 - mask.dim())]
    if mask.shape[0] > 1:
        mask = mask[number : number + 1]
    return mask[..., : shape[2], : shape[3]]


def _pse_of(pse: Tensor | None, number: int, shape: tuple[int, int, int, int], used: int) -> Tensor | None:
    """Position codes of one sequence: its share of a flat list, or its part of the last rows of the longest sequence."""
    _, heads, rows, keys = shape
    if pse is None:
        return None
    if pse.dim() == 1:
        end = used + heads * rows * keys
        if end > pse.shape[0]:
            raise ValueError(
                f"pse has {pse.shape[0]} numbers, too few for sequence {number}, which needs them up to {end}"
            )
        return pse[used:end].reshape(shape)
    if pse.dim() != 4 or rows != keys:
        raise ValueError(
            f"pse of shape {tuple(pse.shape)} goes with sequences of equal query and key length, {number} has {rows} and {keys}"
        )
    part = pse if pse.shape[0] == 1 else pse[number : number + 1]
    # Codes depend on the distance alone, so that a shorter sequence shares those of the lower right corner.
    whole = slid(part, part.shape[3])
    return whole[:, :, whole.shape[2] - rows :, whole.shape[3] - keys :]
