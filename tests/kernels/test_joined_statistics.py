"""Statistics merged from parts against the statistics of the concatenated numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opassay.kernels.joined_statistics import merged
from opassay.schemas.dump_rows import STATISTICS
from opassay.schemas.vocab import StatKind

FLOAT, INT, NONE, BOOL, TEXT = StatKind.FLOAT, StatKind.INT, StatKind.NONE, StatKind.BOOL, StatKind.TEXT

Part = tuple[Sequence[float | None], float | None]


def parts(*tensors: Sequence[Part], kinds: Sequence[int] = (FLOAT,) * 4) -> pl.DataFrame:
    """A frame of parts: of each tensor the statistics and numbers of elements of its parts."""
    flat = [(number, *part) for number, tensor in enumerate(tensors) for part in tensor]
    columns: dict[str, Any] = {"joined": [number for number, _, _ in flat]}
    for place, stat in enumerate(STATISTICS):
        columns[stat] = pl.Series([stats[place] for _, stats, _ in flat], dtype=pl.Float64)
        columns[f"{stat}_kind"] = pl.Series([kinds[place]] * len(flat), dtype=pl.UInt8)
    columns["elements"] = pl.Series([elements for *_, elements in flat], dtype=pl.Float64)
    return pl.DataFrame(columns)


def one(frame: pl.DataFrame) -> dict[str, Any]:
    found = merged(frame)
    assert found.height == 1
    return found.row(0, named=True)


def facts(values: np.ndarray[Any, Any]) -> Part:
    return (values.max(), values.min(), values.mean(), np.linalg.norm(values)), float(values.size)


numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9).map(np.array)


@given(st.lists(numbers, min_size=1, max_size=4))
def test_merged_statistics_are_those_of_the_whole(tensors: list[Any]) -> None:
    whole = np.concatenate(tensors)
    found = one(parts([facts(values) for values in tensors]))
    assert found["max"] == whole.max()
    assert found["min"] == whole.min()
    assert found["mean"] == pytest.approx(whole.mean(), rel=1e-9, abs=1e-9 * np.abs(whole).max())
    assert found["norm"] == pytest.approx(np.linalg.norm(whole), rel=1e-12, abs=1e-300)
    assert found["elements"] == whole.size


def test_tensors_are_kept_apart_and_in_order() -> None:
    found = merged(parts([((3, 0, 1, 3), 2), ((5, 1, 4, 4), 4)], [((9, 9, 9, 9), 1)]))
    assert found.select("joined", "max", "min", "mean", "norm", "elements").rows() == [
        (0, 5, 0, 3, 5, 6),
        (1, 9, 9, 9, 9, 1),
    ]


@pytest.mark.parametrize(("norms", "want"), [((3e200, 4e200), 5e200), ((3e-200, 4e-200), 5e-200), ((0.0, 0.0), 0.0)])
def test_squares_neither_overflow_nor_vanish(norms: tuple[float, float], want: float) -> None:
    assert one(parts([((1, 1, 1, norm), 1) for norm in norms]))["norm"] == pytest.approx(want, rel=1e-15)


def test_nan_and_infinity_are_not_lost() -> None:
    nan, inf = math.nan, math.inf
    found = one(parts([((1, 1, 1, 1), 1), ((nan, nan, nan, nan), 1)]))
    assert all(math.isnan(found[stat]) for stat in STATISTICS)
    found = one(parts([((1, 1, 1, 1), 1), ((inf, 0, inf, inf), 1)]))
    assert [found[stat] for stat in STATISTICS] == [inf, 0, inf, inf]


def test_what_one_part_lacks_the_whole_lacks() -> None:
    frame = parts([((1, -1, 0, 2), 2), ((None, -3, 1, None), 2)])
    frame = frame.with_columns(max_kind=pl.Series([FLOAT, NONE], dtype=pl.UInt8))
    frame = frame.with_columns(norm_kind=pl.Series([FLOAT, TEXT], dtype=pl.UInt8))
    found = one(frame)
    assert (found["max"], found["max_kind"]) == (None, NONE)
    assert (found["norm"], found["norm_kind"]) == (None, NONE)
    assert (found["min"], found["min_kind"]) == (-3, FLOAT)
    assert (found["mean"], found["mean_kind"]) == (0.5, FLOAT)


def test_unknown_sizes_cost_the_mean_only_where_means_differ() -> None:
    differ = one(parts([((1, 1, 1, 1), None), ((1, 1, 2, 1), 4)]))
    assert (differ["mean"], differ["mean_kind"], differ["max"], differ["elements"]) == (None, NONE, 1, None)
    assert one(parts([((1, 1, 0.1, 1), None), ((1, 1, 0.1, 1), None)]))["mean"] == 0.1


def test_kinds_are_kept_where_the_number_is_of_that_kind() -> None:
    found = one(parts([((7, 1, 3, 2), 2), ((9, 0, 4, 2), 2)], kinds=(INT,) * 4))
    assert [found[f"{stat}_kind"] for stat in STATISTICS] == [INT, INT, FLOAT, FLOAT]
    found = one(parts([((1, 0, None, None), 2), ((1, 1, None, None), 2)], kinds=(BOOL, BOOL, NONE, NONE)))
    assert [found[f"{stat}_kind"] for stat in STATISTICS] == [BOOL, BOOL, NONE, NONE]
    mixed = parts([((1, 0, 0.5, 1), 2), ((3, 0, 0.5, 1), 2)]).with_columns(
        max_kind=pl.Series([BOOL, INT], dtype=pl.UInt8)
    )
    assert one(mixed)["max_kind"] == FLOAT


def test_a_part_without_elements_counts_for_nothing() -> None:
    nothing = (None,) * 4
    frame = parts([(nothing, 0), ((2, 1, 1.5, 3), 2)], [(nothing, 0)])
    frame = frame.with_columns(
        pl.when(pl.col("elements") == 0)
        .then(int(NONE))
        .otherwise(pl.col(f"{stat}_kind"))
        .cast(pl.UInt8)
        .alias(f"{stat}_kind")
        for stat in STATISTICS
    )
    found = merged(frame)
    assert found.row(0)[1:5] == (2, 1, 1.5, 3)
    assert found.row(1)[1:5] == nothing
    assert found["max_kind"].to_list() == [FLOAT, NONE]


def test_no_parts() -> None:
    assert merged(parts()).height == 0
