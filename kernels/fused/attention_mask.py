"""Which pairs of query and key npu_fusion_attention leaves out: the sparse modes, full masks and compressed ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import torch
from torch import Tensor

SIDE: Final = 2048
"""Side of the triangle that stands for a causal mask of any size."""
COMPRESSED_MODES: Final = (2, 3, 4, 6, 7, 8)
"""Sparse modes whose mask is passed compressed."""


@dataclass(frozen=True, slots=True)
class Mask:
    """Left out are (query i, key j) where ``given`` is true, j - i > ``upper``, or j - i < ``lower``; keys before the prefix of
    the batch element stay whatever ``upper`` says.

    Attributes
    ----------
    given : Tensor of bool, shape (B or 1, N or 1, Sq or 1, Skv or 1), or None
        A mask taken as it is.
    upper, lower : int or None
        Bounds of j - i; None is no bound.
    prefix : tuple of int
        Length of the prefix, one a batch element; empty where there is none.
    """

    given: Tensor | None = None
    upper: int | None = None
    lower: int | None = None
    prefix: tuple[int, ...] = ()

    def piece(self, batch: slice, heads: slice, rows: slice, keys: int, device: torch.device) -> Tensor | None:
        """What is left out in these rows.

        Returns
        -------
        Tensor of bool, shape (b or 1, n or 1, rows or 1, Skv or 1), or None
            None where nothing is left out.
        """
        if self.given is not None:
            return cut(self.given, batch, heads, rows)
        if self.upper is None and self.lower is None:
            return None
        row = torch.arange(rows.start, rows.stop, device=device)[:, None]
        column = torch.arange(keys, device=device)[None, :]
        out = torch.zeros((1, 1, rows.stop - rows.start, keys), dtype=torch.bool, device=device)
        if self.upper is not None:
            out = out | (column - row > self.upper)
        if self.prefix:
            prefix = torch.tensor(self.prefix[batch], device=device)[:, None, None, None]
            out = out & (column >= prefix)
        if self.lower is not None:
            out = out | (column - row < self.lower)
        return out


def compressed_mask(sparse_mode: int) -> Tensor | None:
    """The mask that the operator expects for a sparse mode, whatever the lengths are.

    Parameters
    ----------
    sparse_mode : int
        0 to 8.

    Returns
    -------
    Tensor of bool, or None
        2048 x 2048 with a true strict upper triangle for modes 2, 3, 4, 7 and 8; for mode 6, 1024 rows more, false in their
        left half and true in their right. None for modes with a full mask.
    """
    return _expected(sparse_mode == 6).clone() if sparse_mode in COMPRESSED_MODES else None


def is_compressed(mask: Tensor, sparse_mode: int) -> bool:
    """Whether a mask is the compressed one of this mode, axes of length 1 before it aside."""
    rows = SIDE + SIDE // 2 if sparse_mode == 6 else SIDE
    if sparse_mode not in COMPRESSED_MODES or mask.shape[-2:] != (rows, SIDE) or mask.numel() != rows * SIDE:
        return False
    return torch.equal(mask.reshape(rows, SIDE).bool().cpu(), _expected(sparse_mode == 6))


def mask_of(
    atten_mask: Tensor | None,
    sparse_mode: int,
    shape: tuple[int, int, int, int],
    windows: tuple[int, int],
    prefix: tuple[int, ...] = (),
    compressed: bool | None = None,
) -> Mask:
    """What a call leaves out.

    Parameters
    ----------
    atten_mask : Tensor or None
        As passed; none leaves nothing out, whatever the mode.
    sparse_mode : int
        0 to 6 (7 and 8 are mode 3, 2 or 4 in each sequence, see ``sequence_mode``).
    shape : tuple of int
        B, N, Sq, Skv.
    windows : tuple of int
        ``pre_tockens``, ``next_tockens``: of mode 4 only. In mode 0 they must agree with the mask, which is used.
    prefix : tuple of int
        Of mode 6, one a batch element.
    compressed : bool or None
        Whether the mask is the compressed one, where that is known; a look at all of it is spared then.

    Raises
    ------
    ValueError
        If the mask fits neither the scores nor the compressed form, the prefix does not fit, or the mode is unknown.
    """
    if atten_mask is None:
        return Mask()
    if not 0 <= sparse_mode <= 6:
        raise ValueError(f"sparse_mode is {sparse_mode}, expected 0 to 6, or 7 or 8 with the layout TND")
    if compressed is None:
        compressed = is_compressed(atten_mask, sparse_mode)
    if compressed:
        return _by_rule(sparse_mode, shape, windows, prefix)
    given = atten_mask.bool()[(None,) * (4 - atten_mask.dim())]
    if given.dim() > 4 or any(have not in (1, need) for have, need in zip(given.shape, shape, strict=True)):
        other = " nor is the compressed mask of this mode" if sparse_mode in COMPRESSED_MODES else ""
        raise ValueError(
            f"atten_mask of shape {tuple(atten_mask.shape)} in sparse_mode {sparse_mode} does not fit scores of shape {shape}{other}"
        )
    return Mask(given=given)


def sequence_mode(sparse_mode: int, number: int, filled: Sequence[int]) -> int:
    """Mode of one sequence of a TND call: in mode 7 the last sequence with tokens is a band and the others end at the lower
    right corner, in mode 8 the first one is a band and the others begin at the upper left.

    Parameters
    ----------
    sparse_mode : int
        As passed.
    number : int
        Which sequence.
    filled : sequence of int
        Numbers of the sequences that have tokens.
    """
    if sparse_mode not in (7, 8) or not filled:
        return sparse_mode
    band, others = (filled[-1], 3) if sparse_mode == 7 else (filled[0], 2)
    return 4 if number == band else others


def cut(tensor: Tensor, batch: slice, heads: slice, rows: slice) -> Tensor:
    """Part of a tensor of four axes, of which those of length 1 are broadcast and stay whole."""
    wanted = (batch, heads, rows)
    return tensor[tuple(slice(None) if have == 1 else part for have, part in zip(tensor.shape, wanted, strict=False))]


@cache
def _expected(with_prefix: bool) -> Tensor:
    """Kept, since every call of a model passes the same one; 4 to 6 MiB, not to be written to."""
    triangle = torch.ones((SIDE, SIDE), dtype=torch.bool).triu(1)
    if not with_prefix:
        return triangle
    block = torch.zeros((SIDE // 2, SIDE), dtype=torch.bool)
    block[:, SIDE // 2 :] = True
    return torch.cat([triangle, block])


def _by_rule(
    sparse_mode: int, shape: tuple[int, int, int, int], windows: tuple[int, int], prefix: tuple[int, ...]
) -> Mask:
    batch, _, rows, keys = shape
    corner = keys - rows  # j - i on the diagonal that ends at the lower right
    if sparse_mode == 2:
        return Mask(upper=0)
    if sparse_mode == 3:
        return Mask(upper=corner)
    if sparse_mode == 4:
        before, after = windows
        return Mask(upper=corner + after, lower=corner - before)
    if len(prefix) != batch:
        raise ValueError(f"sparse_mode 6 needs a prefix for each of {batch} batch elements, {len(prefix)} are given")
    return Mask(upper=corner, prefix=prefix)
