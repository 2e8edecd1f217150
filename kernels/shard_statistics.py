"""Statistics of a row of a whole model from those of the same row on the ranks that share the model.

What the shapes tell (a `Way`) is given; here the numbers decide the rest: whether ranks of one shape hold copies or partial
sums, whether copies agree, and which of several copies is shown. All ranks' rows stand in one long frame.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import polars as pl
from opassay.kernels.joined_statistics import merged
from opassay.schemas.dump_rows import STATISTICS
from opassay.schemas.vocab import StatKind

_NEAR: Final = 1e-3  # of the largest value: copies that were computed twice differ by less, partial sums by more
_KINDS: Final = tuple(f"{stat}_kind" for stat in STATISTICS)
_FIRST: Final = pl.col("rank") == 0
_NUMBERS: Final = [int(StatKind.FLOAT), int(StatKind.INT)]


class Way(IntEnum):
    """What the shapes of a row say about its ranks."""

    KEEP = 0  # nothing: the first rank that has the row is shown
    CONCAT = 1  # they add up along an axis
    FUSED = 2  # fused q, k, v, where neighbours share k and v
    SAME = 3  # every rank has the shape of the whole
    CHECKSUM = 4  # there are only checksums, and every rank has the shape of the whole


class Finding(IntEnum):
    """What the numbers made of it."""

    KEPT = 0
    CONCATENATED = 1
    UNEQUAL_COPIES = 2  # concatenated, but ranks that should hold the same do not
    FUSED = 3
    EQUAL = 4
    UNEQUAL = 5  # copies that are nearly equal, or whose checksums differ: the one furthest from golden is shown
    SUMMED = 6


def join_statistics(ranks: pl.DataFrame) -> pl.DataFrame:
    """Join the rows of several ranks.

    Parameters
    ----------
    ranks : polars.DataFrame
        One row a rank and key, sorted by both; every rank, from 0 on, of a key that is joined: ``key``, ``rank``, ``way``
        (`Way`), ``copies`` (neighbouring ranks that hold the same), the four statistics and their kinds, ``value``,
        ``elements``, ``md5``, and of the golden row ``golden_max``, ``golden_min``, ``golden_norm``, ``golden_md5``.

    Returns
    -------
    polars.DataFrame
        One row a key, in order of first appearance: ``key``, ``shown`` (the rank whose row is shown), ``finding`` (`Finding`),
        the four statistics and their kinds. Statistics that cannot be known from those of the ranks have kind NONE.
    """
    way = pl.col("way")
    plain = _taken(ranks.filter(way == Way.KEEP).group_by("key", maintain_order=True).first(), Finding.KEPT)
    found = [
        plain,
        _concatenated(ranks.filter(way == Way.CONCAT)),
        _fused(ranks.filter(way == Way.FUSED)),
        _of_one_shape(ranks.filter(way == Way.SAME)),
        _checksums(ranks.filter(way == Way.CHECKSUM)),
    ]
    order = ranks.select("key").unique(maintain_order=True)
    return order.join(pl.concat(found), on="key", how="left", maintain_order="left")


def _taken(rows: pl.DataFrame, finding: Finding | pl.Expr) -> pl.DataFrame:
    """The statistics of single rows as they are."""
    told = pl.lit(int(finding)) if isinstance(finding, Finding) else finding
    return rows.select(
        "key", pl.col("rank").cast(pl.UInt32).alias("shown"), told.cast(pl.UInt8).alias("finding"), *STATISTICS, *_KINDS
    )


def _same(first: pl.Expr, *names: str) -> pl.Expr:
    """Whether the rows of a key agree with the row before them but for those that are ``first`` of their kind; nan equals nan."""
    agree = [pl.col(name).eq_missing(pl.col(name).shift(1)) for name in names]
    return first | pl.all_horizontal(agree)


def _concatenated(ranks: pl.DataFrame) -> pl.DataFrame:
    """Merged statistics; of copies one, or, where they differ, all of them, so that a bad one shows."""
    alike = _same(pl.col("rank") % pl.col("copies") == 0, *STATISTICS, *_KINDS)
    every = _same(_FIRST, *STATISTICS, *_KINDS)
    rated = ranks.with_columns(alike=alike, every=every).with_columns(
        alike=pl.col("alike").all().over("key"), every=pl.col("every").all().over("key") & (pl.col("copies") > 1)
    )
    counted = rated.filter(~pl.col("every"))  # ranks that all hold the same are copies of a tensor of another shape
    kept = _taken(rated.filter("every").group_by("key", maintain_order=True).first(), Finding.KEPT)
    parts = counted.filter(~pl.col("alike") | (pl.col("rank") % pl.col("copies") == 0))
    first = counted.group_by("key", maintain_order=True).agg(pl.col("rank", "alike", "copies").first())
    repeated = pl.when(pl.col("alike")).then(1.0).otherwise(pl.col("copies").cast(pl.Float64).sqrt())
    whole = merged(parts, "key").join(first, on="key", maintain_order="left").with_columns(pl.col("norm") / repeated)
    finding = pl.when(pl.col("alike")).then(int(Finding.CONCATENATED)).otherwise(int(Finding.UNEQUAL_COPIES))
    return pl.concat([_taken(whole, finding), kept])


def _fused(ranks: pl.DataFrame) -> pl.DataFrame:
    """Largest and smallest values; k and v count more than once in the means and norms of the ranks."""
    whole = merged(ranks, "key").with_columns(
        *(pl.lit(None, dtype=pl.Float64).alias(stat) for stat in ("mean", "norm")),
        *(pl.lit(int(StatKind.NONE), dtype=pl.UInt8).alias(f"{stat}_kind") for stat in ("mean", "norm")),
    )
    return _taken(whole.with_columns(rank=0), Finding.FUSED)


def _of_one_shape(ranks: pl.DataFrame) -> pl.DataFrame:
    """Copies, or partial sums of which only the mean is known."""
    scale = pl.max_horizontal(pl.col("max").abs(), pl.col("min").abs()).max().over("key")
    size = {"max": scale, "min": scale, "norm": pl.col("norm").max().over("key")}
    spread = {stat: pl.col(stat).max().over("key") - pl.col(stat).min().over("key") for stat in size}
    finite = pl.all_horizontal(pl.col(stat).is_finite().fill_null(False) for stat in size)
    near = finite & pl.all_horizontal((spread[stat] <= _NEAR * size[stat]).fill_null(False) for stat in size)
    distance = pl.sum_horizontal(
        ((pl.col(stat) - pl.col(f"golden_{stat}")).abs() / size[stat]).fill_nan(0.0).fill_null(0.0) for stat in size
    )
    equal = _same(_FIRST, *STATISTICS, *_KINDS, "value")
    rated = ranks.with_columns(
        equal=equal, near=near & pl.all_horizontal(pl.col(list(_KINDS)).is_in(_NUMBERS)), distance=distance
    ).with_columns(pl.col("equal", "near").all().over("key"))
    furthest = pl.int_range(pl.len()).over("key") == pl.col("distance").arg_max().over("key")
    copies = rated.filter(pl.when(pl.col("equal")).then(_FIRST).otherwise(pl.col("near") & furthest))
    finding = pl.when(pl.col("equal")).then(int(Finding.EQUAL)).otherwise(int(Finding.UNEQUAL))
    return pl.concat([_taken(copies, finding), _summed(rated.filter(~pl.col("equal") & ~pl.col("near")))])


def _summed(ranks: pl.DataFrame) -> pl.DataFrame:
    """The mean of a sum is the sum of the means."""
    known = pl.col("mean_kind").is_in(_NUMBERS).all() & pl.col("mean").is_not_null().all()
    whole = ranks.group_by("key", maintain_order=True).agg(
        pl.col("rank").first(),
        mean=pl.when(known).then(pl.col("mean").sum()),
        mean_kind=pl.when(known).then(int(StatKind.FLOAT)).otherwise(int(StatKind.NONE)).cast(pl.UInt8),
    )
    others = [stat for stat in STATISTICS if stat != "mean"]
    return _taken(
        whole.with_columns(
            *(pl.lit(None, dtype=pl.Float64).alias(stat) for stat in others),
            *(pl.lit(int(StatKind.NONE), dtype=pl.UInt8).alias(f"{stat}_kind") for stat in others),
        ),
        Finding.SUMMED,
    )


def _checksums(ranks: pl.DataFrame) -> pl.DataFrame:
    """Of ranks whose checksums differ the first one that is not golden's."""
    equal = _same(_FIRST, "md5")
    other = pl.col("md5").ne_missing(pl.col("golden_md5")) & pl.col("golden_md5").is_not_null()
    shown = pl.int_range(pl.len()).over("key") == other.arg_max().over("key").fill_null(0)
    rated = ranks.with_columns(equal=equal).with_columns(pl.col("equal").all().over("key")).filter(shown)
    return _taken(rated, pl.when(pl.col("equal")).then(int(Finding.EQUAL)).otherwise(int(Finding.UNEQUAL)))
