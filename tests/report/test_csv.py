from __future__ import annotations

import csv
import errno
import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opassay.pipeline.report.csv import CsvWriter
from opassay.pipeline.report.files import WholeFile
from opassay.schemas.errors import OutputError

MakeSlice = Callable[..., pl.DataFrame]
TWO = {"a": "First, one", "b": "Second"}


def read(path: Path) -> list[list[str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def write(path: Path, rows: list[tuple[str, str]], **options: object) -> list[Path]:
    frame = pl.DataFrame(rows, schema={"a": pl.String, "b": pl.String}, orient="row")
    with CsvWriter(path, TWO, **options) as writer:  # type: ignore[arg-type]
        writer.add(frame)
    return sorted(path.parent.glob("*.csv"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]), max_size=8)] * 2), max_size=8))
def test_any_text_comes_back_as_it_was(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    (path,) = write(tmp_path / "a.csv", rows)
    assert read(path) == [list(TWO.values()), *map(list, rows)]


def test_a_report_comes_back_in_both_readers(tmp_path: Path, columns: dict[str, str], make_slice: MakeSlice) -> None:
    writer = CsvWriter(tmp_path / "a.csv", columns)
    for start in (0, 50, 57):
        writer.add(make_slice(50 if start == 0 else 7, start))
    (path,) = writer.close()
    wanted = make_slice(64).select(list(columns))
    assert pl.read_csv(path, infer_schema=False).rows() == wanted.rows()
    assert read(path)[0] == list(columns.values())
    assert [tuple(row) for row in read(path)[1:]] == wanted.rows()


def test_the_bytes_are_plain(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "a.csv", [("é", 'q"'), ("x,y", "1.5")])
    assert path.read_bytes() == '"First, one",Second\né,"q"""\n"x,y",1.5\n'.encode()


def test_parts_have_headers_and_no_suffix_without_need(tmp_path: Path) -> None:
    rows = [(str(place), "b") for place in range(7)]
    assert [path.name for path in write(tmp_path / "a.csv", rows, max_rows=7)] == ["a.csv"]
    (tmp_path / "a.csv").unlink()
    paths = write(tmp_path / "a.csv", rows, max_rows=3)
    assert [path.name for path in paths] == ["a_part_1.csv", "a_part_2.csv", "a_part_3.csv"]
    assert [len(read(path)) for path in paths] == [4, 4, 2]
    assert all(read(path)[0] == list(TWO.values()) for path in paths)
    assert [row[0] for path in paths for row in read(path)[1:]] == [row[0] for row in rows]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"])
def test_formulas_are_neutralised_on_request_only(tmp_path: Path, start: str) -> None:
    cell = f"{start}1+cmd"
    (path,) = write(tmp_path / "a.csv", [(cell, "b")])
    assert read(path)[1][0] == cell
    (path,) = write(tmp_path / "a.csv", [(cell, "b")], safe=True)
    assert read(path)[1][0] == f"'{cell}"


@pytest.mark.parametrize("cell", ["-1.5", "+3", "-1e-20", "-inf", "-Nan", "1.5", "N/A", "-.5", " =1"])
def test_numbers_stay_numbers(tmp_path: Path, cell: str) -> None:
    (path,) = write(tmp_path / "a.csv", [(cell, "b")], safe=True)
    assert read(path)[1][0] == cell


def test_no_rows_give_a_header(tmp_path: Path) -> None:
    (path,) = CsvWriter(tmp_path / "a.csv", TWO).close()
    assert read(path) == [list(TWO.values())]


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = CsvWriter(tmp_path / "a.csv", TWO)

    def full(self: WholeFile, data: bytes) -> int:
        from opassay.pipeline.report.files import output_error

        raise output_error(self.path, OSError(errno.ENOSPC, "no room"))

    monkeypatch.setattr(WholeFile, "write", full)
    with pytest.raises(OutputError, match="the disk is full"), writer:
        writer.add(pl.DataFrame({"a": ["1"], "b": ["2"]}))
    assert os.listdir(tmp_path) == []
