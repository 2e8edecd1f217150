"""Reports as different programs write them give the same rows; broken ones cost one rank and one line."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opassay.pipeline.merge import xlsx_file
from opassay.pipeline.merge.errors import BrokenReport
from opassay.pipeline.merge.inputs import RankReport
from opassay.pipeline.merge.reports import read_report
from opassay.pipeline.report.csv import CsvWriter
from opassay.pipeline.report.xlsx import XlsxWriter
from opassay.schemas.headers import report_columns
from opassay.schemas.vocab import DumpMode

from tests.merge.merging import STAMP, Merge, report_name, row, write_csv, write_xlsx

ROWS = [
    row("Distributed.all_reduce.0.forward.input.0", max_diff="0.1", max_relative="100.0%"),
    row("Torch.mul.0.forward.input.0", max_diff="7"),
    row("Distributed.all_reduce.0.forward.input.group", target_max="[0, 1]", golden_max="[0, 1]"),
    row("Distributed.all_reduce.0.forward.output.0", max_diff="-3.25", target_max="<&> \"a\" 'b'", mean_diff="N/A"),
    row("Distributed.all_reduce.1.forward.input.0", max_diff="12345678.12345679"),
]
GOOD = ["Distributed.all_reduce.0.forward.input.0", "0.1"]
SHEET = "xl/worksheets/sheet1.xml"


def table(*paths: Path, entries: tuple[str, ...] = ("Distributed",)) -> list[tuple[Any, ...]]:
    """Name, Max diff and Mean diff of the rows that are read."""
    read = read_report(RankReport(0, paths, STAMP, False), entries, ["Max diff", "Mean diff"])
    return [tuple(one) for one in read.rows.select("NPU Name", "Max diff", "Mean diff").iter_rows()]


EXPECTED = [
    ("Distributed.all_reduce.0.forward.input.0", "0.1", "0"),
    ("Distributed.all_reduce.0.forward.input.group", "NPU:[0, 1]  Bench:[0, 1]", "NPU:[0, 1]  Bench:[0, 1]"),
    ("Distributed.all_reduce.0.forward.output.0", "-3.25", "NPU:<&> \"a\" 'b'  Bench:1.5"),
    ("Distributed.all_reduce.1.forward.input.0", "12345678.12345679", "0"),
]


def by_openpyxl(path: Path) -> Path:
    """The report as the incumbent's library writes it."""
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()
    sheet.append(list(ROWS[0]))
    for one in ROWS:
        sheet.append(list(one.values()))
    book.save(path)
    return path


def by_our_writer(path: Path) -> Path:
    """The report as compare writes it: numbers are numeric cells."""
    columns = report_columns(DumpMode.STATISTICS, stack=False)
    frame = pl.DataFrame({key: [one[title] for one in ROWS] for key, title in columns.items()})
    frame = frame.with_columns(pl.col("max_diff").cast(pl.Float64, strict=False).alias("max_diff_number"))
    with (XlsxWriter if path.suffix == ".xlsx" else CsvWriter)(path, columns) as writer:
        writer.add(frame)
    return path


def rewritten(path: Path, change: Any, part: str = SHEET) -> Path:
    """The file with one part changed."""
    old = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, change(old.read(name)) if name == part else old.read(name))
    return path


@pytest.mark.parametrize(
    "make",
    [
        by_openpyxl,
        by_our_writer,
        lambda path: write_xlsx(path, ROWS),
        lambda path: write_xlsx(path, ROWS, shared=False),
    ],
)
def test_xlsx_files_of_any_writer_read_the_same(tmp_path: Path, make: Any) -> None:
    assert table(make(tmp_path / "report.xlsx")) == EXPECTED


@pytest.mark.parametrize("make", [lambda path: write_csv(path, ROWS), by_our_writer])
def test_csv_files_read_as_xlsx(tmp_path: Path, make: Any) -> None:
    assert table(make(tmp_path / "report.csv")) == EXPECTED


def test_csv_files_of_other_systems_read_the_same(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "report.csv", ROWS)
    text = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))
    assert table(path) == EXPECTED


def test_all_sheets_are_read_and_a_sheet_of_notes_passed_over(merge: Merge) -> None:
    write_xlsx(merge.input / report_name(0, ".xlsx"), ROWS[:2], ROWS[2:], [{"remarks": "mine"}])
    write_csv(merge.input / report_name(1), ROWS)
    assert merge() == 0
    assert merge.told("Sheet3 is passed over")
    (sheet,) = merge.sheets().values()
    assert [line[0] for line in sheet[1:]] == [name for name, *_ in EXPECTED]
    assert [line[1] for line in sheet] != [line[2] for line in sheet]
    assert [line[1] for line in sheet[1:]] == [line[2] for line in sheet[1:]]


def test_parts_of_a_csv_are_one_report(tmp_path: Path) -> None:
    parts = [write_csv(tmp_path / f"{name}.csv", rows) for name, rows in (("a", ROWS[:2]), ("b", ROWS[2:]))]
    assert table(*parts) == EXPECTED
    other = write_csv(tmp_path / "c.csv", [row("a.b.0.forward.input.0", DumpMode.TENSOR)])
    with pytest.raises(BrokenReport, match=r"c\.csv: the file has other columns"):
        table(parts[0], other)


def test_truth_rich_texts_and_escapes_of_a_spreadsheet(tmp_path: Path) -> None:
    rows = [dict(one) for one in ROWS[:1]]
    rows[0]["NPU Name"] = "Distributed.a_x0041_.0"
    path = write_xlsx(tmp_path / "report.xlsx", [{**rows[0], "Max diff": True, "Mean diff": "N/A"}])

    def rich(data: bytes) -> bytes:
        return data.replace(
            b"<si><t>N/A</t></si>", b"<si><r><t>N</t></r><r><rPr><b/></rPr><t xml:space='preserve'>/A</t></r></si>"
        )

    assert b"_x005F_x0041_" in zipfile.ZipFile(path).read("xl/sharedStrings.xml")
    rewritten(path, rich, "xl/sharedStrings.xml")
    assert table(path) == [("Distributed.a_x0041_.0", "True", "NPU:1.5  Bench:1.5")]


def test_names_of_joined_rows_are_one_row_whatever_the_file(merge: Merge) -> None:
    name = "Distributed.a.0.forward.input.0;{}Distributed.b.0.forward.input.0"
    write_xlsx(merge.input / report_name(0, ".xlsx"), [row(name.format("\n"))])
    write_csv(merge.input / report_name(1), [row(name.format("  "))])
    assert merge("api: [Distributed.a]") == 0
    assert merge.sheets()["Max diff"][1:] == [[name.format("\n"), 0, 0]]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]), min_size=1, max_size=12),
            st.text(st.sampled_from('0.5%-e\n";,<&>_x0041'), min_size=1, max_size=12),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_any_text_comes_back(tmp_path_factory: pytest.TempPathFactory, cells: list[tuple[str, str]]) -> None:
    """Line breaks inside quotes, separators, markup and escapes: csv and both kinds of xlsx tell the same."""
    folder = tmp_path_factory.mktemp("any")
    rows = [row(f"D.{name}.end", max_diff=text) for name, text in cells]
    expected = [(one["NPU Name"].replace(";\n", ";  "), one["Max diff"], "0") for one in rows]
    assert table(write_csv(folder / "a.csv", rows), entries=("D",)) == expected
    assert table(write_xlsx(folder / "a.xlsx", rows), entries=("D",)) == expected
    assert table(write_xlsx(folder / "b.xlsx", rows, shared=False), entries=("D",)) == expected


def not_zip(path: Path) -> None:
    path.write_bytes(b"no zip" * 100)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    entry = zipfile.ZipFile(path).getinfo(SHEET)
    place = entry.header_offset + 30 + len(SHEET) + entry.compress_size // 2
    data[place] ^= 0xFF
    path.write_bytes(bytes(data))


def cdata(path: Path) -> None:
    rewritten(path, lambda data: data.replace(b"<v>0.1</v>", b"<v><![CDATA[0.1]]></v>"))


def not_utf8(path: Path) -> None:
    rewritten(path, lambda data: data.replace(b"all_reduce", b"all\xffeduce"))


def no_strings(path: Path) -> None:
    rewritten(path, lambda data: data[:-200] + b"</sst>", "xl/sharedStrings.xml")


def entities(path: Path) -> None:
    rewritten(
        path, lambda data: data.replace(b"<workbook", b"<!DOCTYPE x [<!ENTITY a 'b'>]><workbook"), "xl/workbook.xml"
    )


def no_workbook(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("readme.txt", "a document of another kind")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (not_zip, "no sound xlsx file"),
        (cut, "no sound xlsx file"),
        (flipped, "no sound xlsx file"),
        (cdata, "as csv"),
        (not_utf8, "UTF-8"),
        (no_strings, "no sound xlsx file"),
        (entities, "as csv"),
        (no_workbook, "no sound xlsx file"),
    ],
)
def test_a_broken_xlsx_costs_its_rank_and_a_line(merge: Merge, harm: Any, words: str) -> None:
    for rank in (1, 2):
        write_csv(merge.input / report_name(rank), ROWS)
    path = merge.input / report_name(0, ".xlsx")
    shared = harm is not not_utf8
    write_xlsx(path, [{**one, "Max diff": 0.1} for one in ROWS], shared=shared)
    harm(path)
    assert merge() == 3
    assert merge.told("rank0 is left out", path.name, words)
    (sheet,) = merge.sheets().values()
    assert sheet[0] == ["NPU Name", "rank1", "rank2"]


def test_a_zip_bomb_is_refused_before_it_is_unpacked(merge: Merge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx_file, "ENTRY_LIMIT", 1 << 20)
    for rank in (0, 1):
        write_csv(merge.input / report_name(rank), ROWS)
    path = write_xlsx(merge.input / report_name(2, ".xlsx"), ROWS)
    rewritten(path, lambda data: data + b" " * (1 << 20))
    assert path.stat().st_size < 20_000
    assert merge() == 3
    assert merge.told("rank2 is left out", "unpack to more than")


def test_a_part_that_says_it_is_small_is_read_no_further(tmp_path: Path) -> None:
    """The size in a zip's list may be a lie; what is behind it is never unpacked."""
    path = write_xlsx(tmp_path / "report.xlsx", ROWS)
    real = zipfile.ZipFile(path).getinfo(SHEET).file_size
    data = path.read_bytes()
    path.write_bytes(data.replace(real.to_bytes(4, "little"), (real // 2).to_bytes(4, "little")))
    with pytest.raises(BrokenReport, match=r"no sound xlsx file"):
        table(path)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (b"a,b\n1,2\n", "it begins with a, b"),
        (b"\x00\x01\x02", "report"),
        ("NPU Name;NPU max;Bench max;Max diff\n".encode("utf-16"), "rank0 is left out"),
    ],
)
def test_a_csv_that_is_no_report_costs_its_rank_and_a_line(merge: Merge, data: bytes, words: str) -> None:
    for rank in (1, 2):
        write_csv(merge.input / report_name(rank), ROWS)
    (merge.input / report_name(0)).write_bytes(data)
    assert merge() == 3
    assert merge.told("rank0 is left out", report_name(0), words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[: len(data) - len(data.splitlines()[-1]) // 2], "cut"),
        (lambda data: data.replace(b"all_reduce", b"all\xff"), "UTF-8"),
    ],
)
def test_a_damaged_csv_costs_its_rank_and_a_line(merge: Merge, change: Any, words: str) -> None:
    for rank in (0, 1, 2):
        write_csv(merge.input / report_name(rank), ROWS)
    path = merge.input / report_name(0)
    path.write_bytes(change(path.read_bytes()))
    assert merge() == 3
    assert merge.told("rank0 is left out", path.name, words)


def test_a_csv_without_a_last_line_end_is_whole(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "report.csv", ROWS)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert table(path) == EXPECTED


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    for suffix in (".csv", ".xlsx"):
        with pytest.raises(BrokenReport, match=rf"gone{suffix}: No such file"):
            table(tmp_path / f"gone{suffix}")
