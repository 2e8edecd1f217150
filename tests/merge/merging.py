"""What tests of merges share: reports made on the spot, the command run in this process, sheets read back."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from opassay.pipeline.cli.main import main
from opassay.schemas.headers import report_columns
from opassay.schemas.vocab import DumpMode

DATA = Path(__file__).parents[1] / "data" / "merge"
STAMP = "20260101120000"
ALL_REDUCE = "api:\n- Distributed.all_reduce\ncompare_index:\n- Max diff\n"
Sheet = list[list[Any]]


class Merge:
    """Runs ``merge_result`` in a folder of its own and keeps what came of it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.input = folder / "input"
        self.output = folder / "output"
        self.input.mkdir()
        self._capsys = capsys
        self.lines: list[str] = []  # of the log and of stderr, without time and level

    def __call__(self, config: str | bytes = ALL_REDUCE, *options: str) -> int:
        path = self.folder / "config.yaml"
        path.write_bytes(config if isinstance(config, bytes) else config.encode())
        words = ["merge_result", "-i", str(self.input), "-o", str(self.output), "-config", str(path), *options]
        status = main(words)
        told = self._capsys.readouterr()
        assert "Traceback" not in told.out + told.err
        self.lines = [re.sub(r"^.*?\[(INFO|WARNING|ERROR)\] ", "", line) for line in (told.out + told.err).splitlines()]
        return status

    def sheets(self) -> dict[str, Sheet]:
        """Rows of each sheet of the only workbook, the header included; None where a cell is blank."""
        (path,) = self.output.glob("multi_ranks_compare_merge_*.xlsx")
        book = openpyxl.load_workbook(path)
        return {sheet.title: [[cell.value for cell in row] for row in sheet.iter_rows()] for sheet in book}

    def told(self, *words: str) -> bool:
        """Whether one line has all the words."""
        return any(all(word in line for word in words) for line in self.lines)

    def left(self) -> list[str]:
        """Names of whatever stands in the output folder."""
        return sorted(path.name for path in self.output.iterdir()) if self.output.is_dir() else []


def row(name: str, mode: DumpMode = DumpMode.STATISTICS, **cells: str) -> dict[str, str]:
    """A row of a report: a tensor that agrees, but for `cells` (internal names)."""
    columns = report_columns(mode, stack=False)
    usual = {"target_name": name, "golden_name": name, "result": "pass", "requires_grad_consistent": "True"}
    return {
        title: {**usual, **cells}.get(key, "1.5" if key in ("target_max", "golden_max") else "0")
        for key, title in columns.items()
    }


def write_csv(path: Path, rows: Sequence[Mapping[str, str]], header: Sequence[str] | None = None, **form: Any) -> Path:
    """A report as csv."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n", **form)
        writer.writerow(header or rows[0].keys())
        writer.writerows(one.values() for one in rows)
    return path


def write_xlsx(path: Path, *sheets: Iterable[Mapping[str, Any]], shared: bool = True) -> Path:
    """A report as a spreadsheet program writes it (`shared`), or with texts in their cells, as xlsx writers in a hurry do."""
    import xlsxwriter

    book = xlsxwriter.Workbook(path, {"constant_memory": not shared})
    for rows in sheets:
        sheet = book.add_worksheet()
        for place, one in enumerate(rows):
            if place == 0:
                for column, title in enumerate(one):
                    sheet.write_string(0, column, title)
            for column, value in enumerate(one.values()):
                (sheet.write_string if isinstance(value, str) else sheet.write)(place + 1, column, value)
    book.close()
    return path


def report_name(rank: int, suffix: str = ".csv", stamp: str = STAMP) -> str:
    """The documented name."""
    return f"compare_result_rank{rank}_{stamp}{suffix}"
