from __future__ import annotations

import errno
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from opassay.pipeline.report.parquet import ParquetWriter
from opassay.schemas.errors import OutputError
from polars.testing import assert_frame_equal

MakeSlice = Callable[..., pl.DataFrame]


def test_typed_rows_come_back_in_order(tmp_path: Path, columns: dict[str, str], make_slice: MakeSlice) -> None:
    slices = [make_slice(5).with_columns(extra=pl.lit(1)), make_slice(3, 5).with_columns(extra=pl.lit(2))]
    with ParquetWriter(tmp_path / "a.parquet", columns) as writer:
        for frame in slices:
            writer.add(frame)
        assert not (tmp_path / "a.parquet").exists()
    read = pl.read_parquet(tmp_path / "a.parquet")
    assert_frame_equal(read, pl.concat(slices))
    assert read.schema["target_max_number"] == pl.Float64
    assert os.listdir(tmp_path) == ["a.parquet"]


def test_equal_rows_give_equal_bytes(tmp_path: Path, columns: dict[str, str], make_slice: MakeSlice) -> None:
    for name, cuts in (("a", (0, 60)), ("b", (0, 17, 60))):
        with ParquetWriter(tmp_path / name, columns) as writer:
            for start, stop in pairwise(cuts):
                writer.add(make_slice(stop - start, start))
    assert_frame_equal(pl.read_parquet(tmp_path / "a"), pl.read_parquet(tmp_path / "b"))
    with ParquetWriter(tmp_path / "c", columns) as writer:
        writer.add(make_slice(60))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "c").read_bytes()


def test_no_rows_give_the_columns(tmp_path: Path, columns: dict[str, str]) -> None:
    (path,) = ParquetWriter(tmp_path / "a.parquet", columns).close()
    assert pl.read_parquet(path).columns == list(columns)


def test_a_failure_leaves_nothing(
    tmp_path: Path, columns: dict[str, str], make_slice: MakeSlice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    writer = ParquetWriter(tmp_path / "a.parquet", columns)
    writer.add(make_slice(2))
    monkeypatch.setattr(pl.LazyFrame, "sink_parquet", full)
    with pytest.raises(OutputError, match="the disk is full"):
        writer.close()
    assert os.listdir(tmp_path) == []
