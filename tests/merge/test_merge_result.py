"""The workbook of a merge, and the command around it."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import openpyxl
import pytest
from opassay.pipeline.cli.main import main
from opassay.pipeline.merge import run as merge_run
from opassay.pipeline.merge.config import MergeConfig
from opassay.pipeline.merge.run import merge as merge_reports
from opassay.schemas.errors import OutputError
from opassay.schemas.vocab import DumpMode

from tests.merge.merging import Merge, report_name, row, write_csv, write_xlsx

NAME = "Distributed.all_reduce.0.forward.input.0"
EXAMPLES = Path(__file__).parents[2] / "examples" / "two_ranks"


def put(merge: Merge, *ranks: list[dict[str, str]]) -> None:
    """A csv for each rank."""
    for rank, rows in enumerate(ranks):
        write_csv(merge.input / report_name(rank), rows)


def test_the_workbook_has_its_documented_name_and_form(merge: Merge) -> None:
    put(merge, [row(NAME)], [row(NAME)])
    assert merge("api: [Distributed]\ncompare_index: [NormRelativeErr, Max diff]") == 0
    (name,) = merge.left()
    assert re.fullmatch(r"multi_ranks_compare_merge_\d{14}\.xlsx", name)
    assert merge.told("merged and saved in", name)
    book = openpyxl.load_workbook(merge.output / name)
    assert book.sheetnames == ["NormRelativeErr", "Max diff"]
    for sheet in book:
        assert sheet.freeze_panes == "B2"
        assert sheet.auto_filter.ref == "A1:C2"
        assert sheet["A1"].font.bold
        assert sheet.column_dimensions["A"].width > 40


def test_columns_of_ranks_fit_their_cells(merge: Merge) -> None:
    wide = row(NAME, norm_relative="N/A", target_max="None", golden_max="None")
    put(merge, [row(NAME)], [wide])
    assert merge("api: [Distributed]\ncompare_index: [NormRelativeErr]") == 0
    sheet = openpyxl.load_workbook(merge.output / merge.left()[0])["NormRelativeErr"]
    assert sheet["C2"].value == "NPU:None  Bench:None"
    assert sheet.column_dimensions["C"].width > len("NPU:None  Bench:None") > sheet.column_dimensions["B"].width


def test_numbers_are_numbers_and_all_else_is_text(merge: Merge) -> None:
    cells = {
        "max_diff": "0.125",
        "mean_diff": "12345678901234567",
        "norm_diff": "inf",
        "max_relative": "0",
        "min_relative": "5.0%",
    }
    put(
        merge, [row(NAME, **cells)], [row(NAME, max_diff="=1+1", mean_diff="@x", norm_diff="-3e-5", max_relative="N/A")]
    )
    assert merge("api: [Distributed]") == 0
    sheets = merge.sheets()
    assert sheets["Max diff"][1][1:] == [0.125, "=1+1"]
    assert sheets["Mean diff"][1][1:] == [12345678901234567, "@x"]
    assert sheets["L2norm diff"][1][1:] == ["inf", -3e-5]
    assert sheets["MaxRelativeErr"][1][1:] == ["0", "NPU:1.5  Bench:1.5"]
    assert sheets["MinRelativeErr"][1][1:] == ["5.0%", "0"]
    assert sheets["Requires_grad Consistent"][1][1:] == ["True", "True"]
    book = openpyxl.load_workbook(next(merge.output.iterdir()))
    assert {cell.data_type for cell in (book["Max diff"]["C2"], book["Mean diff"]["C2"])} == {"s"}


def test_a_name_that_looks_like_a_formula_stays_text(merge: Merge) -> None:
    put(merge, [row('=HYPERLINK("x").a')], [row('=HYPERLINK("x").a')])
    assert merge("""api: ['=HYPERLINK("x")']""") == 0
    book = openpyxl.load_workbook(next(merge.output.iterdir()))
    assert (book["Max diff"]["A2"].value, book["Max diff"]["A2"].data_type) == ('=HYPERLINK("x").a', "s")


def test_either_spelling_of_a_header_and_of_compare_index(merge: Merge) -> None:
    ours = [row(NAME, DumpMode.TENSOR, five_thousandth="0.75")]
    theirs = [
        {
            title.replace("Thousandth Err", "Thousandths Err") if "Five" in title else title: cell
            for title, cell in ours[0].items()
        }
    ]
    assert "Five Thousandths Err Ratio" in theirs[0]
    put(merge, ours, theirs)
    assert merge("api: [Distributed]\ncompare_index: [Five Thousandths Err Ratio, five thousandth err ratio]") == 0
    assert merge.sheets() == {"Five Thousandth Err Ratio": [["NPU Name", "rank0", "rank1"], [NAME, 0.75, 0.75]]}


def test_unknown_metrics_are_told_with_those_there_are(merge: Merge) -> None:
    put(merge, [row(NAME)], [row(NAME)])
    assert merge("api: [Distributed]\ncompare_index: [Max diff, Max dif, Cosine]") == 0
    assert merge.told("'Max dif' is no metric", "there are Max diff, Min diff")
    assert merge.told("no report has the column Cosine", "they have Max diff")
    assert list(merge.sheets()) == ["Max diff"]
    assert merge("api: [Distributed]\ncompare_index: [Max dif]") == 2
    assert merge.told("error: compare_index: 'Max dif' is no metric")


def test_a_rank_without_a_row_is_blank_and_columns_go_by_number(merge: Merge) -> None:
    for rank in (10, 9, 2):
        rows = (
            [row("Distributed.send.0.forward.input.0")]
            if rank == 9
            else [row(NAME), row("Distributed.recv.0.forward.input.0")]
        )
        write_csv(merge.input / report_name(rank), rows)
    assert merge("api: [Distributed.all_reduce, Distributed.send, Distributed.none]\ncompare_index: [Max diff]") == 0
    assert merge.sheets()["Max diff"] == [
        ["NPU Name", "rank2", "rank9", "rank10"],
        ["Distributed.send.0.forward.input.0", None, 0, None],
        [NAME, 0, None, 0],
    ]
    assert merge.told("Distributed.send names no row of rank2, rank10")
    assert merge.told("Distributed.none names no row of any report")


def test_entries_that_are_found_nowhere_give_a_header_alone(merge: Merge) -> None:
    put(merge, [row(NAME)], [row(NAME)])
    assert merge("api: [Torch]\ncompare_index: [Max diff]") == 0
    assert merge.sheets() == {"Max diff": [["NPU Name", "rank0", "rank1"]]}


def test_the_newest_report_counts_and_the_rest_of_the_folder_is_told(merge: Merge) -> None:
    put(merge, [row(NAME, max_diff="1")], [row(NAME)])
    write_xlsx(merge.input / report_name(0, ".xlsx", "20270101000000"), [row(NAME, max_diff="2")])
    (merge.input / "notes.csv").write_text("mine")
    assert merge() == 3
    assert merge.sheets()["Max diff"][1] == [NAME, 2, 0]
    assert merge.told("not read", report_name(0))
    assert merge.told("notes.csv is left out")


def test_the_number_of_readers_changes_no_byte(tmp_path: Path, merge: Merge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_run, "timestamp", lambda: "20260101120000")
    names = [f"Distributed.op{number}.0.forward.input.0" for number in range(300)]
    put(merge, *([row(name, max_diff=str(rank)) for name in names[rank::2] + names[:rank]] for rank in range(5)))
    config = MergeConfig(("Distributed",), ())
    first, second = (merge_reports(merge.input, tmp_path / str(count), config, readers=count).path for count in (1, 4))
    assert first.read_bytes() == second.read_bytes()
    assert openpyxl.load_workbook(first)["Max diff"].max_row == 301


def test_rows_of_many_slices_stand_where_they_belong(merge: Merge) -> None:
    count = 5_000
    names = [f"Torch.op.{number}.forward.input.0" for number in range(count)]
    put(
        merge,
        [row(name, max_diff=str(place)) for place, name in enumerate(names)],
        [row(names[-1], max_diff="7"), row(names[0])],
    )
    assert merge("api: [Torch]\ncompare_index: [Max diff, Min diff]") == 0
    sheet = merge.sheets()["Max diff"]
    assert [line[:2] for line in sheet[1:]] == [[name, place] for place, name in enumerate(names)]
    assert [place for place, line in enumerate(sheet[1:]) if line[2] is not None] == [0, count - 1]
    assert sheet[count][2] == 7


def test_results_may_go_to_the_folder_of_the_reports(merge: Merge) -> None:
    put(merge, [row(NAME)], [row(NAME)])
    merge.output = merge.input
    assert merge() == 0
    assert merge() == 0
    assert len(list(merge.input.glob("multi_ranks_compare_merge_*.xlsx"))) == 2
    assert not [path for path in merge.input.iterdir() if path.name.startswith(".")]


def test_nothing_is_left_when_the_workbook_cannot_be_written(merge: Merge, monkeypatch: pytest.MonkeyPatch) -> None:
    put(merge, [row(NAME)], [row(NAME)])

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("opassay.pipeline.report.xlsx.XlsxWriter._add_piece", full)
    assert merge() == 2
    assert merge.told("error: cannot write", "the disk is full")
    assert merge.left() == []


def test_an_output_that_is_a_file_is_one_line(merge: Merge) -> None:
    put(merge, [row(NAME)], [row(NAME)])
    merge.output.write_text("a file")
    assert merge() == 2
    assert merge.told("error: cannot write", "choose another folder with -o")


def test_a_bug_costs_one_rank(merge: Merge, monkeypatch: pytest.MonkeyPatch) -> None:
    put(merge, [row(NAME)], [row(NAME)], [row(NAME)])
    real = merge_run.read_report

    def fails(report: merge_run.RankReport, *rest: list[str]) -> merge_run.RankRows:
        if report.rank == 1:
            raise ZeroDivisionError("a\nbug")
        return real(report, *rest)

    monkeypatch.setattr(merge_run, "read_report", fails)
    assert merge() == 3
    assert merge.told("rank1 is left out", "unexpected ZeroDivisionError: a\\nbug")
    assert merge.sheets()["Max diff"][0] == ["NPU Name", "rank0", "rank2"]


def test_quiet_prints_the_workbook_alone(merge: Merge) -> None:
    put(merge, [row(NAME)], [row(NAME)])
    assert merge("api: [Distributed]", "--quiet") == 0
    assert merge.lines == [str(next(merge.output.iterdir()))]


@pytest.mark.parametrize("missing", ["-i", "-o", "-config"])
def test_all_three_options_are_needed(missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for option in ("-i", "-o", "-config") if option != missing for word in (option, "x")]
    assert main(["merge_result", *words]) == 2
    assert missing in capsys.readouterr().err


def test_the_long_options_are_understood(merge: Merge) -> None:
    put(merge, [row(NAME)], [row(NAME)])
    (merge.folder / "c.yaml").write_text("api: [Distributed]")
    words = [
        "--input_dir",
        str(merge.input),
        "--output_dir",
        str(merge.output),
        "--config-path",
        str(merge.folder / "c.yaml"),
    ]
    assert main(["merge_result", *words]) == 0


def test_a_temporary_folder_that_cannot_be_made(tmp_path: Path) -> None:
    from opassay.pipeline.merge.workbook import Shelf

    with pytest.raises(OutputError, match=r"cannot write .*nowhere"):
        Shelf(tmp_path / "nowhere")


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".xlsx"])
def test_reports_of_compare_merge(merge: Merge, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(EXAMPLES / side / "step0") for side in ("target", "golden")]
    options = ["--xlsx"] if suffix == ".xlsx" else []
    assert main(["compare", "-tp", paths[0], "-gp", paths[1], "-o", str(merge.input), "--workers", "1", *options]) == 0
    capsys.readouterr()
    assert len(list(merge.input.glob(f"*{suffix}"))) == 2
    for other in merge.input.iterdir():
        if not other.name.startswith("compare_result"):
            shutil.rmtree(other) if other.is_dir() else other.unlink()
    assert merge("api: [Module, Functional, Torch, Tensor, Distributed]") == 0
    sheets = merge.sheets()
    assert list(sheets)[:2] in (["Cosine", "EucDist"], ["Max diff", "Min diff"])
    for sheet in sheets.values():
        assert sheet[0] == ["NPU Name", "rank0", "rank1"]
        assert len(sheet) > 5
