"""Rows of several ranks in one frame: what the numbers make of them."""

from __future__ import annotations

from typing import Any

import polars as pl
from opassay.kernels.shard_statistics import Finding, Way, join_statistics
from opassay.schemas.dump_rows import STATISTICS
from opassay.schemas.vocab import StatKind

FLOAT, INT, NONE = StatKind.FLOAT, StatKind.INT, StatKind.NONE


def ranks(key: int, way: Way, *stats: tuple[Any, Any, Any, Any], copies: int = 1, **more: Any) -> list[dict[str, Any]]:
    """One key: the four statistics of each rank; None is no number."""
    return [
        {
            "key": key, "rank": rank, "way": int(way), "copies": copies, "value": 0, "elements": 4.0, "md5": None,
            "golden_max": 1.0, "golden_min": -1.0, "golden_norm": 2.0, "golden_md5": None,
            **dict(zip(STATISTICS, one, strict=True)),
            **{f"{stat}_kind": int(NONE if value is None else FLOAT) for stat, value in zip(STATISTICS, one, strict=True)},
            **{name: values[rank] if isinstance(values, list) else values for name, values in more.items()},
        }
        for rank, one in enumerate(stats)
    ]  # fmt: skip


def joined(*keys: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kinds = {
        "key": pl.UInt32, "rank": pl.Int32, "way": pl.UInt8, "copies": pl.UInt32, "value": pl.UInt32, "md5": pl.String,
        "golden_md5": pl.String, "elements": pl.Float64,
        **dict.fromkeys(("golden_max", "golden_min", "golden_norm", *STATISTICS), pl.Float64),
        **{f"{stat}_kind": pl.UInt8 for stat in STATISTICS},
    }  # fmt: skip
    frame = pl.DataFrame([row for key in keys for row in key], schema_overrides=kinds)
    return join_statistics(frame).to_dicts()


def stats(row: dict[str, Any]) -> list[Any]:
    return [row[stat] for stat in STATISTICS]


A, B = (1.0, -1.0, 0.5, 3.0), (2.0, -0.5, 0.25, 4.0)


def test_keys_keep_their_order_whatever_becomes_of_them() -> None:
    rows = joined(
        ranks(4, Way.SAME, A, A),
        ranks(1, Way.KEEP, A, B),
        ranks(7, Way.CONCAT, A, B),
        ranks(2, Way.CHECKSUM, A, A, md5="x"),
        ranks(3, Way.FUSED, A, B, copies=2),
        ranks(9, Way.SAME, A, B),
    )
    assert [row["key"] for row in rows] == [4, 1, 7, 2, 3, 9]
    assert [row["finding"] for row in rows] == [
        Finding.EQUAL, Finding.KEPT, Finding.CONCATENATED, Finding.EQUAL, Finding.FUSED, Finding.SUMMED,
    ]  # fmt: skip
    assert [stats(row) for row in rows] == [
        [*A], [*A], [2.0, -1.0, 0.375, 5.0], [*A], [2.0, -1.0, None, None], [None, None, 0.75, None],
    ]  # fmt: skip
    assert [rows[5][f"{stat}_kind"] for stat in STATISTICS] == [NONE, NONE, FLOAT, NONE]


def test_neighbouring_copies_count_once() -> None:
    (row,) = joined(ranks(0, Way.CONCAT, A, A, B, B, copies=2))
    assert (row["finding"], stats(row)) == (Finding.CONCATENATED, [2.0, -1.0, 0.375, 5.0])
    (row,) = joined(ranks(0, Way.CONCAT, A, (9.0, -1.0, 0.5, 3.0), B, B, copies=2))
    assert (row["finding"], stats(row)) == (Finding.UNEQUAL_COPIES, [9.0, -1.0, 0.375, 5.0])
    (row,) = joined(ranks(0, Way.CONCAT, A, A, A, A, copies=2))
    assert (row["finding"], stats(row)) == (Finding.KEPT, [*A])


def test_copies_that_are_nearly_equal_show_the_furthest() -> None:
    off = (1.0005, -1.0, 0.5, 3.0)
    for place in range(3):
        ours = [A, A, A]
        ours[place] = off
        (row,) = joined(ranks(0, Way.SAME, *ours))
        assert (row["finding"], row["shown"], stats(row)) == (Finding.UNEQUAL, place, [*off])
    (row,) = joined(ranks(0, Way.SAME, A, (1.002, -1.0, 0.5, 3.0)))
    assert row["finding"] == Finding.SUMMED


def test_nan_is_equal_to_nan_and_to_nothing_else() -> None:
    odd = (float("nan"),) * 4
    (row,) = joined(ranks(0, Way.SAME, odd, odd))
    assert row["finding"] == Finding.EQUAL
    (row,) = joined(ranks(0, Way.SAME, A, odd))
    assert row["finding"] == Finding.SUMMED
    assert row["mean"] != row["mean"]


def test_means_that_are_not_known_have_no_sum() -> None:
    (row,) = joined(ranks(0, Way.SAME, (3, 1, None, None), (4, 1, None, None)))
    assert (row["finding"], stats(row)) == (Finding.SUMMED, [None] * 4)


def test_a_checksum_that_is_not_golden_s_is_shown() -> None:
    for sums, shown in ((["g", "x", "y"], 1), (["x", "g", "y"], 0), (["g", "g", "y"], 2)):
        (row,) = joined(ranks(0, Way.CHECKSUM, A, A, A, md5=sums, golden_md5="g"))
        assert (row["finding"], row["shown"]) == (Finding.UNEQUAL, shown)
    (row,) = joined(ranks(0, Way.CHECKSUM, A, A, md5=["g", None], golden_md5="g"))
    assert (row["finding"], row["shown"]) == (Finding.UNEQUAL, 1)
