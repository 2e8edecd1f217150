"""Layouts of npu_fusion_attention, to (B, N, S, D) and back, and position codes (pse) given in short."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

ALIBI_ROWS: Final = 1024
"""Rows of a compressed pse: the last ones."""


def to_bnsd(x: Tensor, layout: str, heads: int) -> Tensor:
    """Query, key or value as (B, N, S, D).

    Parameters
    ----------
    x : Tensor
        (B, N, S, D), (B, S, N, D), (B, S, N D) or (S, B, N D).
    layout : str
        BNSD, BSND, BSH or SBH.
    heads : int
        N, for the layouts that do not tell it.

    Raises
    ------
    ValueError
        If the last axis does not part into the heads.
    """
    if layout == "BNSD":
        return x
    if layout == "BSND":
        return x.transpose(1, 2)
    if not heads or x.shape[2] % heads:
        raise ValueError(f"the last axis of shape {tuple(x.shape)} in layout {layout} does not part into {heads} heads")
    parted = x.reshape(*x.shape[:2], heads, -1)
    return parted.transpose(1, 2) if layout == "BSH" else parted.permute(1, 2, 0, 3)


def from_bnsd(x: Tensor, layout: str) -> Tensor:
    """The reverse of ``to_bnsd``."""
    if layout == "BNSD":
        return x
    if layout == "SBH":
        return x.permute(2, 0, 1, 3).flatten(2)
    rows = x.transpose(1, 2)
    return rows.flatten(2) if layout == "BSH" else rows


def whole_pse(pse: Tensor | None, rows: int, keys: int) -> Tensor | None:
    """Position codes for all rows.

    Parameters
    ----------
    pse : Tensor, shape (B or 1, N, rows or 1, keys), or the last 1024 of more rows; or None
        As passed.
    rows, keys : int
        Sq, Skv.

    Raises
    ------
    ValueError
        If it is neither.
    """
    if pse is None or (pse.dim() == 4 and pse.shape[2] in (1, rows)):
        return pse
    if pse.dim() == 4 and pse.shape[2] == ALIBI_ROWS < rows == keys:
        return slid(pse, rows)
    raise ValueError(
        f"pse of shape {tuple(pse.shape)} fits neither {rows} x {keys} scores nor is it the last {ALIBI_ROWS} rows of them"
    )


def slid(pse: Tensor, rows: int) -> Tensor:
    """All rows of position codes that depend on i - j alone, of which the last ones are given: the first of them, slid to the
    left.

    Keys after the query come out as 0: a compressed pse goes with a causal mask, which leaves them out.
    """
    missing = rows - pse.shape[2]
    if missing <= 0:
        return pse
    keys = pse.shape[3]
    steps = torch.arange(missing, 0, -1, device=pse.device)
    columns = torch.arange(keys, device=pse.device) + steps[:, None]
    first = pse[:, :, :1].expand(-1, -1, missing, -1)
    above = first.gather(3, columns.clamp(max=keys - 1).expand(*pse.shape[:2], -1, -1))
    return torch.cat([above.masked_fill(columns >= keys, 0), pse], 2)
