"""Slices as the report writers get them."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest
from opassay.schemas.headers import STATISTIC_METRICS, STATISTICS, report_columns
from opassay.schemas.vocab import DumpMode

COLUMNS = report_columns(DumpMode.STATISTICS, stack=False)

MakeSlice = Callable[..., pl.DataFrame]


def slice_of(rows: int, start: int = 0, **cells: list[str]) -> pl.DataFrame:
    """A slice of statistics rows; `cells` replaces whole columns."""
    places = range(start, start + rows)
    texts: dict[str, list[str]] = {name: [f"{name}.{place}" for place in places] for name in COLUMNS}
    for name in STATISTICS:
        texts[name] = [str(place + 0.5) for place in places]
    for name in STATISTIC_METRICS:
        texts[name] = [["0.0", "N/A", "-1.5"][place % 3] for place in places]
    texts["result"] = [["pass", "warning", "error"][place % 3] for place in places]
    texts["message"] = [["[]", '["warning: a"]', "[\"error: b, 'c'\"]"][place % 3] for place in places]
    texts |= cells
    frame = pl.DataFrame(texts, schema=dict.fromkeys(COLUMNS, pl.String))
    numbers = {name: frame[name].cast(pl.Float64, strict=False) for name in STATISTICS}
    return frame.with_columns(
        column.set(~column.is_finite(), None).alias(f"{name}_number") for name, column in numbers.items()
    )


@pytest.fixture
def columns() -> dict[str, str]:
    """Columns of a statistics report."""
    return COLUMNS


@pytest.fixture
def make_slice() -> MakeSlice:
    """See `slice_of`."""
    return slice_of
