"""What the xlsx library gives, and what it must never meet: digits, layouts, cells far off, large files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import openpyxl
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opassay.pipeline.merge import xlsx_file
from opassay.pipeline.merge.errors import BrokenReport

from tests.merge.merging import Merge, report_name, row, write_csv, write_xlsx
from tests.merge.test_merge_files import EXPECTED, ROWS, by_openpyxl, rewritten, table

FIRST = ROWS[0]["NPU Name"]


@pytest.mark.parametrize("together", [1, 2, 5])
def test_batches_change_nothing(tmp_path: Path, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx_file, "_TOGETHER", together)
    assert table(write_xlsx(tmp_path / "shared.xlsx", ROWS)) == EXPECTED
    assert table(by_openpyxl(tmp_path / "inline.xlsx")) == EXPECTED


def prefixed(data: bytes) -> bytes:
    space = b'<worksheet xmlns:x="http://schemas.openxmlformats.org/spreadsheetml/2006/main" '
    data = data.replace(b"<worksheet ", space)
    for tag in (b"row", b"c"):
        data = data.replace(b"<" + tag + b" ", b"<x:" + tag + b" ").replace(b"</" + tag + b">", b"</x:" + tag + b">")
    return data


@pytest.mark.parametrize(
    "change",
    [
        prefixed,
        lambda data: data.replace(b"<c r=", b"<c q='' r="),
        lambda data: re.sub(rb'<c r="[A-Z]+[0-9]+"', b"<c", data),
        lambda data: re.sub(rb'<dimension ref="[^"]*"', b'<dimension ref="A1:XFD1048576"', data),
    ],
)
def test_whatever_xml_allows_reads_the_same(tmp_path: Path, change: Any) -> None:
    path = write_xlsx(tmp_path / "report.xlsx", ROWS)
    before = path.stat().st_size
    assert rewritten(path, change).stat().st_size != before
    assert table(path) == EXPECTED


NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53).map(float)
NUMBERS = NUMBERS.map(lambda value: value + 0.0)  # openpyxl forgets the sign of zero
TEXTS = st.text("0.5%-eN/A ", max_size=8).filter(lambda text: not text or text.strip())  # the reader drops a lone blank
VALUES = NUMBERS | st.booleans() | st.none() | TEXTS


@settings(max_examples=40, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=8))
def test_cells_are_those_that_openpyxl_reads_with_every_digit(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("cells") / "report.xlsx"
    book = openpyxl.Workbook()
    book.active.append(["key", "value"])
    for value in values:
        book.active.append(["row", value])
    book.save(path)
    (sheet,) = openpyxl.load_workbook(path)
    expected = [value for _, value in sheet.iter_rows(min_row=2, values_only=True)]
    frames: list[pl.DataFrame] = []
    for read in xlsx_file.read_sheets(path, []):
        assert read.headers == ["key", "value"]
        frames += read.rows({"value": "v", "key": "k"}, pl.lit(True), first="k")
    got = pl.concat(frames)
    assert got.schema == {"v": pl.String, "k": pl.String}
    for text, value in zip(got["v"], expected, strict=True):
        if value is None or isinstance(value, bool | str):
            assert text == (str(value) if value not in (None, "") else None)
        else:
            assert text == repr(float(value)).removesuffix(".0")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("0.30000000000000004", "0.30000000000000004"),
        ("0.10000000000000001", "0.1"),
        ("1E-05", "1e-05"),
        ("-2.50", "-2.5"),
        ("7.0", "7"),
        ("5e-324", "5e-324"),
    ],
)
def test_digits_are_the_shortest_of_the_same_number(tmp_path: Path, written: str, shown: str) -> None:
    path = write_xlsx(tmp_path / "report.xlsx", [{**ROWS[0], "Max diff": 0.25}])
    rewritten(path, lambda data: data.replace(b"<v>0.25</v>", f"<v>{written}</v>".encode()))
    assert table(path) == [(FIRST, shown, "0")]


def test_empty_rows_and_columns_charts_and_empty_sheets_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "report.xlsx"
    book = openpyxl.Workbook()
    book.create_chartsheet("chart")
    sheet = book.create_sheet("late")
    sheet["C3"], sheet["D3"], sheet["E3"] = "key", "value", "key"
    sheet["C5"], sheet["D5"], sheet["E5"] = "row", 7, "other"
    book.save(path)
    read = [
        (sheet.name, sheet.headers, list(sheet.rows({"key": "k", "value": "v"}, pl.lit(True), first="k")))
        for sheet in xlsx_file.read_sheets(path, [])
    ]
    assert [one[:2] for one in read] == [("late", ["key", "value"])]
    assert pl.concat(read[0][2]).rows() == [("row", "7")]


def test_cells_that_show_an_error_are_blank_and_told_of(merge: Merge) -> None:
    write_csv(merge.input / report_name(1), ROWS[:1])
    path = write_xlsx(merge.input / report_name(0, ".xlsx"), [{**ROWS[0], "Max diff": 0.1}])
    rewritten(path, lambda data: data.replace(b"><v>0.1</v>", b' t="e"><v>#DIV/0!</v>'))
    assert merge() == 0
    assert merge.told(path.name, "#DIV/0!", "taken as empty")
    assert merge.sheets()["Max diff"][1] == [FIRST, None, 0.1]


@pytest.mark.parametrize("cell", ["XFD2", "CA3", "A4294967295", "B2000000"])
@pytest.mark.parametrize("block", [64, 4 << 20])
def test_a_cell_far_off_costs_its_report_not_the_process(
    tmp_path: Path, cell: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library lays a sheet out up to its last cell; without a look before, that can end the process."""
    monkeypatch.setattr(xlsx_file, "_BLOCK", block)
    path = write_xlsx(tmp_path / "report.xlsx", ROWS)
    far = f'<row><c s="0" r="{cell}"><v>1</v></c></row></sheetData>'.encode()
    rewritten(path, lambda data: data.replace(b"</sheetData>", far))
    with pytest.raises(BrokenReport, match=rf"a cell {cell}, far beyond"):
        table(path)


@pytest.mark.parametrize("block", [64, 4 << 20])
def test_a_text_that_looks_like_a_cell_far_off_is_read(
    tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xlsx_file, "_BLOCK", block)
    told = ' r="XFD1048576" ' * 20 + "c r='ZZ4294967295'"
    path = tmp_path / "report.xlsx"
    for shared in (True, False):
        assert table(write_xlsx(path, [row(FIRST, max_diff=told)], shared=shared)) == [(FIRST, told, "0")]


def test_large_reports_are_read_one_at_a_time_and_a_broken_one_holds_none_up(
    merge: Merge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xlsx_file, "_LARGE", 0)
    checksums = [{"NPU Name": "Distributed.a.0", "NPU MD5": "1"}]
    for rank in range(6):
        write_xlsx(merge.input / report_name(rank, ".xlsx"), checksums if rank % 3 == 0 else ROWS)
    assert merge() == 3
    assert merge.told("rank3 is left out", "checksums")
    assert merge.sheets()["Max diff"][0] == ["NPU Name", "rank1", "rank2", "rank4", "rank5"]


def test_a_panic_of_the_library_costs_one_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        """As libraries in Rust raise it."""

    class Panics:
        @staticmethod
        def from_path(path: Path) -> None:
            raise PanicException("index out of bounds")

    path = write_xlsx(tmp_path / "report.xlsx", ROWS)
    monkeypatch.setattr(xlsx_file, "CalamineWorkbook", Panics)
    with pytest.raises(BrokenReport, match=r"report\.xlsx: the xlsx library fails on it: index out of bounds; .*csv"):
        table(path)
