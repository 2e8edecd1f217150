"""Statistics of a tensor that stands in several parts, from the statistics of the parts. Pure: columns in, columns out.

Concatenation loses nothing: the largest of the maxima, the smallest of the minima, the mean weighted by the number of elements, the
root of the sum of the squared norms.
"""

from __future__ import annotations

from typing import Final

import polars as pl
from opassay.schemas.dump_rows import STATISTICS
from opassay.schemas.vocab import StatKind

_NUMBERS: Final = [int(StatKind.FLOAT), int(StatKind.INT), int(StatKind.BOOL)]


def merged(parts: pl.DataFrame, key: str = "joined") -> pl.DataFrame:
    """Statistics of concatenated tensors.

    Parameters
    ----------
    parts : polars.DataFrame
        One row a part: the column ``key`` (any type; parts of one tensor share it), ``max``, ``min``, ``mean``, ``norm`` (Float64),
        ``max_kind``, ``min_kind``, ``mean_kind``, ``norm_kind`` (``StatKind``) and ``elements`` (Float64; null where unknown).
        Other columns are ignored.
    key : str
        Name of the key column.

    Returns
    -------
    polars.DataFrame
        One row a tensor, in order of first appearance: ``key``, the four statistics, their kinds, and ``elements`` (the sum, null
        where a part's is unknown). A statistic that is no number in some part has kind NONE and is null; a mean has besides where
        means differ and the number of elements of a part is unknown. nan in a part is nan in the whole. A part without elements
        counts for nothing, unless all are.
    """
    empty = (pl.col("elements") == 0).fill_null(False)
    counted = parts.filter(~empty | empty.all().over(key))
    total = pl.col("elements").sum().over(key)
    known = pl.col("elements").is_not_null().all().over(key)
    weighted = counted.with_columns(
        share=pl.when(known & (total > 0)).then(pl.col("elements") / total),
        largest=pl.col("norm").nan_max().over(key),
        elements=pl.when(known).then(pl.col("elements")),
    )
    return (
        weighted.group_by(key, maintain_order=True)
        .agg(
            *(_number(stat).alias(stat) for stat in STATISTICS),
            *(_kind(stat).alias(f"{stat}_kind") for stat in STATISTICS),
            elements=pl.when(pl.col("elements").is_not_null().all()).then(pl.col("elements").sum()),
        )
        .with_columns(
            *(pl.when(pl.col(f"{stat}_kind") != StatKind.NONE).then(pl.col(stat)).alias(stat) for stat in STATISTICS)
        )
        .select(key, *STATISTICS, *(f"{stat}_kind" for stat in STATISTICS), "elements")
    )


def _number(stat: str) -> pl.Expr:
    """The statistic of the whole, whether or not every part has a number."""
    column = pl.col(stat)
    if stat == "max":
        return column.nan_max()
    if stat == "min":
        return column.nan_min()
    if stat == "mean":
        return pl.when(column.n_unique() == 1).then(column.first()).otherwise((column * pl.col("share")).sum())
    largest = pl.col("largest").first()
    # scaled by the largest norm, lest squares overflow or vanish
    scaled = largest * ((column / largest) ** 2).sum().sqrt()
    return pl.when((largest > 0) & largest.is_finite()).then(scaled).otherwise(largest)


def _kind(stat: str) -> pl.Expr:
    """Kind of the statistic of the whole: that of the parts where they agree and the number is one of theirs."""
    kind = pl.col(f"{stat}_kind")
    number = kind.is_in(_NUMBERS).all() & pl.col(stat).is_not_null().all()
    kept = kind.n_unique() == 1
    if stat == "mean":
        one = pl.col(stat).n_unique() == 1
        number &= one | pl.col("share").is_not_null().all()
        kept &= one
    elif stat == "norm":
        kept &= pl.len() == 1
    return (
        pl.when(~number)
        .then(pl.lit(int(StatKind.NONE)))
        .when(kept)
        .then(kind.first())
        .otherwise(pl.lit(int(StatKind.FLOAT)))
        .cast(pl.UInt8)
    )
