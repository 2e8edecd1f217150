from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openpyxl
import polars as pl
import pytest
from opassay.pipeline.report import xlsx
from opassay.pipeline.report.xlsx import XlsxWriter, shortened
from opassay.schemas.errors import OutputError
from opassay.schemas.headers import STATISTICS

MakeSlice = Callable[..., pl.DataFrame]


def book(path: Path, columns: dict[str, str], *slices: pl.DataFrame, **options: Any) -> Any:
    writer = XlsxWriter(path, columns, **options)
    for frame in slices:
        writer.add(frame)
    assert writer.close() == [path]
    return openpyxl.load_workbook(path)


def test_values_types_and_order_come_back(tmp_path: Path, columns: dict[str, str], make_slice: MakeSlice) -> None:
    sheet = book(tmp_path / "a.xlsx", columns, make_slice(9), make_slice(4, 9))["Sheet1"]
    rows = list(sheet.iter_rows(values_only=True))
    assert rows[0] == tuple(columns.values())
    for row, wanted in zip(rows[1:], make_slice(13).iter_rows(named=True), strict=True):
        assert row == tuple(float(wanted[name]) if name in STATISTICS else wanted[name] for name in columns)


def test_sheet_is_made_for_reading(tmp_path: Path, columns: dict[str, str], make_slice: MakeSlice) -> None:
    workbook = book(tmp_path / "a.xlsx", columns, make_slice(3))
    sheet = workbook["Sheet1"]
    assert workbook.sheetnames == ["Sheet1"]
    assert sheet.freeze_panes == "B2"
    assert sheet.auto_filter.ref == sheet.dimensions == "A1:AA4"
    assert all(cell.font.b for cell in sheet[1])
    place = list(columns).index("result") + 1
    fills = [sheet.cell(row, place).fill for row in (2, 3, 4)]
    assert [fill.fill_type for fill in fills] == [None, "solid", "solid"]
    assert [fill.fgColor.rgb for fill in fills[1:]] == ["FFFFEB84", "FFFF9999"]


@pytest.mark.parametrize(("longest", "width"), [(3, len("NPU Name") + 5), (61, 63), (300, 100)])
def test_name_columns_fit_their_longest_line(
    longest: int, width: int, tmp_path: Path, columns: dict[str, str], make_slice: MakeSlice
) -> None:
    several = f"{'y' * longest};  {'z' * longest}"  # a row of joined names: a line each
    sheet = book(tmp_path / "a.xlsx", columns, make_slice(3, target_name=["x", several, "x"]))["Sheet1"]
    assert sheet.column_dimensions["A"].width == pytest.approx(width, abs=2)


def test_joined_names_stand_in_lines_of_a_row_that_is_high_enough(
    tmp_path: Path, columns: dict[str, str], make_slice: MakeSlice
) -> None:
    frame = make_slice(3, target_name=["one", "q.input.0;  k.input.0;  v.input.0", "two"])
    sheet = book(tmp_path / "x.xlsx", columns, frame).active
    place = list(columns).index("target_name") + 1
    assert sheet.cell(3, place).value == "q.input.0;\nk.input.0;\nv.input.0"
    assert sheet.cell(3, place).alignment.wrap_text
    assert sheet.row_dimensions[3].height == 45
    assert [sheet.row_dimensions[row].height for row in (2, 4)] == [None, None]


def test_words_for_what_is_no_number(tmp_path: Path, columns: dict[str, str], make_slice: MakeSlice) -> None:
    cells = ["inf", " -inf", "Nan", "None", "N/A", "True", "3", "-1e-20", "1152921504606846977", "0.30000001192092896"]
    frame = make_slice(len(cells), target_max=cells)
    frame = frame.with_columns(
        pl.Series(
            "target_max_number", [float("inf"), None, None, None, None, 1.0, 3.0, -1e-20, 2.0**60, 0.30000001192092896]
        )
    )
    sheet = book(tmp_path / "a.xlsx", columns, frame)["Sheet1"]
    place = list(columns).index("target_max") + 1
    values = [sheet.cell(row, place).value for row in range(2, len(cells) + 2)]
    assert values == [*cells[:6], 3, -1e-20, 1152921504606846977, 0.30000001192092896]


def test_texts_are_never_formulas_or_links(tmp_path: Path, columns: dict[str, str], make_slice: MakeSlice) -> None:
    cells = ["=1+1", "+cmd|' /C calc'!A0", "-x", "@SUM(A1)", "http://a.b/c", "a&b<c>\"'", " edge ", "two\nlines", ""]
    sheet = book(tmp_path / "a.xlsx", columns, make_slice(len(cells), target_name=cells))["Sheet1"]
    read = [sheet.cell(row, 1) for row in range(2, len(cells) + 2)]
    assert [cell.value for cell in read] == [*cells[:-1], None]
    assert {cell.data_type for cell in read[:-1]} == {"s"}
    assert all(cell.hyperlink is None for cell in read)
    assert [cell.quotePrefix for cell in read[:5]] == [True, True, True, True, False]


def test_markup_of_the_library_is_text(tmp_path: Path, columns: dict[str, str], make_slice: MakeSlice) -> None:
    cells = ["<r><t>a</t></r>", "<r>\n</r>", "<r>&", "<r></r>"]
    sheet = book(tmp_path / "a.xlsx", columns, make_slice(len(cells), target_name=cells))["Sheet1"]
    assert [cell.value for cell in sheet["A"]][1:] == cells


def test_characters_that_xml_cannot_hold(tmp_path: Path, columns: dict[str, str], make_slice: MakeSlice) -> None:
    cells = ["bell\x07", "cr\r", "_x0041_", "_x_", "\uffff", "tab\t"]
    sheet = book(tmp_path / "a.xlsx", columns, make_slice(len(cells), golden_name=cells))["Sheet1"]
    read = [sheet.cell(row, 2).value for row in range(2, len(cells) + 2)]
    assert read == ["bell_x0007_", "cr_x000D_", "_x005F_x0041_", "_x_", "_xFFFF_", "tab\t"]


def test_long_cells_are_cut_with_a_mark(tmp_path: Path, columns: dict[str, str], make_slice: MakeSlice) -> None:
    cells = ["a" * 32_767, "a" * 32_768, "é" * 20_000, "😀" * 20_000]
    writer = XlsxWriter(tmp_path / "a.xlsx", columns)
    writer.add(make_slice(4, message=cells))
    writer.close()
    sheet = openpyxl.load_workbook(tmp_path / "a.xlsx")["Sheet1"]
    place = list(columns).index("message") + 1
    values = [sheet.cell(row, place).value for row in range(2, 6)]
    assert values == [cells[0], "a" * 32_766 + "…", cells[2], "😀" * 16_383 + "…"]
    assert writer.shortened == 2


def test_shortened_never_splits_a_pair_of_units() -> None:
    assert shortened("a😀😀", 4) == "a😀…"
    assert shortened("a😀b", 4) == "a😀b"


def test_sheets_split(tmp_path: Path, columns: dict[str, str], make_slice: MakeSlice) -> None:
    assert book(tmp_path / "a.xlsx", columns, make_slice(5), max_rows=5).sheetnames == ["Sheet1"]
    workbook = book(tmp_path / "b.xlsx", columns, make_slice(4), make_slice(8, 4), max_rows=5)
    assert workbook.sheetnames == ["part_0", "part_1", "part_2"]
    assert [sheet.max_row for sheet in workbook] == [6, 6, 3]
    assert all([cell.value for cell in sheet[1]] == list(columns.values()) for sheet in workbook)
    assert [sheet.auto_filter.ref for sheet in workbook] == ["A1:AA6", "A1:AA6", "A1:AA3"]
    names = [row[0] for sheet in workbook for row in sheet.iter_rows(min_row=2, values_only=True)]
    assert names == [f"target_name.{place}" for place in range(12)]


def test_a_sheet_also_ends_before_a_zip_needs_extensions(
    tmp_path: Path, columns: dict[str, str], make_slice: MakeSlice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xlsx, "MAX_SHEET_BYTES", 10_000)
    monkeypatch.setattr(xlsx, "_PIECE", 4)
    workbook = book(tmp_path / "a.xlsx", columns, make_slice(40))
    assert len(workbook.sheetnames) > 1
    assert sum(sheet.max_row - 1 for sheet in workbook) == 40


def test_limit_of_rows_is_the_documented_one() -> None:
    assert xlsx.MAX_ROWS == 1_048_500 - 1


def test_equal_cells_give_equal_bytes(tmp_path: Path, columns: dict[str, str], make_slice: MakeSlice) -> None:
    cells = ["=1", " a", "b&", "c"]
    book(tmp_path / "a.xlsx", columns, make_slice(4, target_name=cells))
    book(tmp_path / "b.xlsx", columns, make_slice(4, target_name=cells))
    assert (tmp_path / "a.xlsx").read_bytes() == (tmp_path / "b.xlsx").read_bytes()
    pieces = [make_slice(4, target_name=cells).slice(place, 1) for place in range(4)]
    split = book(tmp_path / "c.xlsx", columns, *pieces)["Sheet1"]
    assert [cell.value for cell in split["A"]][1:] == cells
    assert (tmp_path / "c.xlsx").read_bytes() == (tmp_path / "a.xlsx").read_bytes()


def test_no_rows_give_a_header(tmp_path: Path, columns: dict[str, str]) -> None:
    assert book(tmp_path / "a.xlsx", columns)["Sheet1"].dimensions == "A1:AA1"


def refuse(*_: object) -> int:
    raise OSError(errno.ENOSPC, "no room")


def test_a_disk_full_of_rows_leaves_nothing(
    tmp_path: Path, columns: dict[str, str], make_slice: MakeSlice, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = XlsxWriter(tmp_path / "a.xlsx", columns)
    monkeypatch.setattr(writer._sheets[0], "fh", SimpleNamespace(write=refuse, close=lambda: None))
    with pytest.raises(OutputError, match=r"a\.xlsx: the disk is full"), writer:
        writer.add(make_slice(3))
    assert os.listdir(tmp_path) == []
    with pytest.raises(OutputError, match="does not exist"):
        XlsxWriter(tmp_path / "missing" / "a.xlsx", columns)


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_disk_full_at_the_end_leaves_nothing_and_says_it_once(
    tmp_path: Path, columns: dict[str, str], make_slice: MakeSlice, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = XlsxWriter(tmp_path / "a.xlsx", columns)
    writer.add(make_slice(3))
    monkeypatch.setattr(writer._archive, "_file", SimpleNamespace(write=refuse, tell=lambda: 0, seek=lambda *_: 0))
    with pytest.raises(OutputError, match=r"a\.xlsx: the disk is full"):
        writer.close()
    assert os.listdir(tmp_path) == []
    gc.collect()


def test_rows_wait_beside_the_report_and_leave_nothing(
    tmp_path: Path, columns: dict[str, str], make_slice: MakeSlice
) -> None:
    writer = XlsxWriter(tmp_path / "a.xlsx", columns, max_rows=5)
    writer.add(make_slice(12))
    waiting = [place for place in tmp_path.iterdir() if place.is_dir()]
    assert len(list(waiting[0].iterdir())) == 3
    writer.discard()
    assert os.listdir(tmp_path) == []
    writer = XlsxWriter(tmp_path / "a.xlsx", columns)
    writer.close()
    writer.discard()
    assert os.listdir(tmp_path) == ["a.xlsx"]
