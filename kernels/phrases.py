"""Texts with figures in them, as polars expressions."""

from __future__ import annotations

import polars as pl


def phrase(template: str, *parts: pl.Expr) -> pl.Expr:
    """A text with ``{}`` filled by expressions; null where any of them is null.

    Stands in for ``polars.format``, which panics on columns of several chunks (polars 2.1).

    Parameters
    ----------
    template : str
        Text with one ``{}`` for each part.
    *parts : polars.Expr
        Columns of any type.
    """
    texts = template.split("{}")
    if len(texts) != len(parts) + 1:
        raise ValueError(f"{len(parts)} parts for {len(texts) - 1} places in {template!r}")
    pieces = [pl.lit(texts[0])]
    for part, text in zip(parts, texts[1:], strict=True):
        pieces += [part.cast(pl.String), pl.lit(text)]
    return pl.concat_str(pieces)
