"""The harness of ``merge_result``: a right workbook is explained, a wrong one is not."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from tests.parity.cases import Case
from tests.parity.compare import Tally
from tests.parity.judge import judge_case
from tests.parity.merging import NAME, compare_merge, is_selected, right_merge

HEADER = (NAME, "Max diff", "NormRelativeErr", "NPU max", "Bench max", "Requires_grad Consistent", "Result")
ROWS = [
    ("Distributed.reduce.9.forward.input.0", "0.5", "50.0%", "1.5", "1.0", "True", "error"),
    ("Distributed.reduce.9.forward.input.group", "0", "0", "[0, 1]", "[0, 1]", "True", "pass"),
    ("Distributed.reduce.2.forward.output.0", "N/A", "N/A", "None", "N/A", "True", "warning"),
    ("Distributed.reduce.2.forward.output.1", "inf", "inf", "inf", "3.0", "True", "error"),
    ("Distributed.reduce_scatter.0.forward.output.0", "7", "7.0%", "8", "1", "True", "pass"),
]
LATE = ("Distributed.reduce.5.forward.output.0", "3", "4.0%", "1", "1", "False", "pass")
CONFIG = "api:\n- Distributed.reduce\ncompare_index:\n- NormRelativeErr\n- Max diff\n- Nonsense\n"
GROUP = "NPU:[0, 1]  Bench:[0, 1]"
Book = dict[str, list[list[Any]]]


def write_report(path: Path, rows: list[tuple[str, ...]]) -> None:
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([HEADER, *rows])


def write_book(path: Path, sheets: Book) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, lines in sheets.items():
        sheet = book.create_sheet(title)
        for line in lines:
            sheet.append(line)
    book.save(path)
    return path


@pytest.fixture
def case(tmp_path: Path) -> Case:
    folder = tmp_path / "case"
    (folder / "input").mkdir(parents=True)
    write_report(folder / "input" / "compare_result_rank0_20260101120000.csv", ROWS)
    write_report(folder / "input" / "compare_result_rank2_20260101120000.csv", [ROWS[0], LATE, *ROWS[1:3]])
    (folder / "config.yaml").write_text(CONFIG)
    argv = ["merge_result", "-i", "./input", "-o", "./output", "-config", "./config.yaml"]
    return Case(folder, argv, 0, [])


def right_book() -> Book:
    names = [row[0] for row in ROWS[:4]]
    cells: dict[str, list[list[Any]]] = {
        "NormRelativeErr": [["50.0%"] * 2, [GROUP] * 2, ["NPU:None  Bench:N/A"] * 2, ["inf", None], [None, "4.0%"]],
        "Max diff": [[0.5, 0.5], [GROUP] * 2, ["NPU:None  Bench:N/A"] * 2, ["inf", None], [None, 3]],
    }
    heads = [NAME, "rank0", "rank2"]
    return {
        metric: [heads, *([name, *line] for name, line in zip([*names, LATE[0]], lines, strict=True))]
        for metric, lines in cells.items()
    }


def incumbents() -> Book:
    """Sorted by name, process groups as 0."""
    book = right_book()
    for lines in book.values():
        lines[1:] = sorted(lines[1:], key=lambda line: line[0])
        for line in lines[1:]:
            line[1:] = [0 if cell == GROUP else cell for cell in line[1:]]
    return book


def judged(case: Case, ours: Book, theirs: Book | None = None) -> Tally:
    mine = write_book(case.folder / "ours.xlsx", ours)
    other = write_book(case.folder / "theirs.xlsx", theirs) if theirs is not None else None
    return compare_merge(case, right_merge(case), mine, other, "incumbent stops")


def test_a_right_workbook_is_explained(case: Case) -> None:
    assert judged(case, right_book()).unexplained == []
    found = judged(case, right_book(), incumbents())
    assert found.unexplained == []
    assert found.equal > 10
    assert found.explained["merge: groups", "Max diff"] == 2
    assert found.explained["merge: first-seen order", "Max diff"] == 1
    # a row that rank 2 adds may stand behind the one that it follows there
    spliced = right_book()
    for lines in spliced.values():
        lines.insert(2, lines.pop())
    assert judged(case, spliced).unexplained == []


def moved(book: Book) -> None:
    book["Max diff"].insert(1, book["Max diff"].pop(3))


def cell(row: int, column: int, value: Any, sheet: str = "Max diff") -> Callable[[Book], None]:
    def change(book: Book) -> None:
        book[sheet][row][column] = value

    return change


WRONG = [
    moved,
    cell(0, 1, "rank1"),
    cell(1, 1, 0.25),
    cell(1, 1, "0.5"),
    cell(1, 2, None),
    cell(2, 1, 0),
    cell(3, 1, "N/A"),
    cell(4, 1, "NPU:inf  Bench:3.0"),
    cell(4, 2, "inf"),
    cell(1, 1, 0.5, "NormRelativeErr"),
    cell(5, 0, "Distributed.reduce.6.forward.output.0"),
    lambda book: book["Max diff"].pop(),
    lambda book: book["Max diff"].append(["Distributed.reduce_scatter.0.forward.output.0", 7, None]),
    lambda book: book.pop("Max diff"),
    lambda book: book.update({"Min diff": book["Max diff"]}),
    lambda book: book.update({"Max diff": book.pop("NormRelativeErr"), "NormRelativeErr": book["Max diff"]}),
]


@pytest.mark.parametrize("change", WRONG)
def test_no_wrong_workbook_is_explained(case: Case, change: Callable[[Book], Any]) -> None:
    for theirs in (None, incumbents()):
        book = right_book()
        change(book)
        assert judged(case, book, theirs).unexplained


def test_a_difference_without_a_reason(case: Case) -> None:
    theirs = incumbents()
    theirs["Max diff"][1][1] = 0.75
    assert [f.note for f in judged(case, right_book(), theirs).unexplained] == [
        "right by the reports, but no rule says why it differs"
    ]


def test_entries_name_whole_components() -> None:
    assert is_selected("Distributed.reduce.0.forward.input.0", ["Distributed.reduce"])
    assert not is_selected("Distributed.reduce_scatter.0.forward.input.0", ["Distributed.reduce"])
    assert not is_selected("Distributed.all_reduce.0.forward.input.0", ["reduce"])
    assert is_selected("Module.a.b.Linear.forward.0.input.0", ["a.b"])
    assert not is_selected("Module.a.b.Linear.forward.0.input.0", ["b"])


FAKE = """
import pathlib, shutil, sys
plan = sys.argv[1:5]
if plan[0]:
    pathlib.Path("output").mkdir()
    shutil.copy(plan[0], "output/multi_ranks_compare_merge_20260101000000.xlsx")
sys.stderr.write(plan[2])
sys.exit(int(plan[1]))
"""


def notes(case: Case, tmp_path: Path, book: Book | None, status: int, err: str = "") -> list[str]:
    script = tmp_path / "fake.py"
    script.write_text(FAKE)
    made = str(write_book(tmp_path / "book.xlsx", book)) if book is not None else ""
    tool = [sys.executable, str(script), made, str(status), err]
    return [f.note for f in judge_case(case, tool, tmp_path / "run").tally.unexplained]


def test_a_merge_is_judged_by_its_status_and_output(case: Case, tmp_path: Path) -> None:
    assert notes(case, tmp_path, right_book(), 0) == []
    assert "exit status 3 although everything can be read" in notes(case, tmp_path, right_book(), 3, "lost\n")
    assert "0 files were written, and there is something to merge" in notes(case, tmp_path, None, 2, "error: x\n")
    (case.folder / "input" / "other.csv").write_text("a,b\n")
    assert "exit status 0 although something cannot be read" in notes(case, tmp_path, right_book(), 0)
    assert notes(case, tmp_path, right_book(), 3, "other.csv is lost\n") == []


def test_where_there_is_nothing_to_merge(case: Case, tmp_path: Path) -> None:
    shutil.move(case.folder / "config.yaml", tmp_path / "good.yaml")
    for text in ("", "api: x\n", "compare_index: [Max diff]\n", "api: [a]\ncompare_index: Max diff\n"):
        (case.folder / "config.yaml").write_text(text)
        assert not right_merge(case).usable, json.dumps(text)
        assert notes(case, tmp_path, None, 2, "error: the configuration\n") == []
        assert "1 files were written, and there is nothing to merge" in notes(case, tmp_path, right_book(), 0)
    shutil.copy(tmp_path / "good.yaml", case.folder / "config.yaml")
    next((case.folder / "input").iterdir()).unlink()
    assert not right_merge(case).usable
    assert notes(case, tmp_path, None, 2, "one report only\nand more\n") != []
