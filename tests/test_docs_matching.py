"""The page on matching shows what really happens: its commands run, and what it shows of their output and reports is printed."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from opassay.pipeline.cli.main import main
from opassay.schemas.options import WRAPPERS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "matching.md").read_text(encoding="utf-8")
SECTIONS = {text.splitlines()[0]: text for text in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$|(^\|.*?)(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)
MOST_BYTES = 1_500_000
Printed = list[str]


def blocks(section: str) -> Iterator[tuple[str, str]]:
    """Fenced blocks with their language and tables (``table``), in order."""
    for kind, text, table in BLOCK.findall(section):
        yield (kind, text) if kind else ("table", table)


def bare(line: str) -> str:
    """A line without the panel's border, what a log line begins with, and the blanks around it."""
    return re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(\d+\) \[[A-Z]+\] ", "", line.strip("│ \n"))


def printed_by(command: str, status: int, capsys: pytest.CaptureFixture[str]) -> Printed:
    name, *words = command.split()
    assert name == "opassay"
    one = ["--workers", "1"] if words[0] == "compare" else []
    assert main([*words, *one]) == status, command
    told = capsys.readouterr()
    return [bare(line) for line in (told.err + told.out).splitlines()]


def output_of(command: str) -> str:
    words = command.split()
    return words[words.index("-o") + 1] if "-o" in words else "output"


def assert_shown_is_printed(shown: str, printed: Printed) -> None:
    """Every shown line is printed whole, in this order, wherever the panel breaks it; ``...`` stands for lines left out."""
    text, at = "\n".join(printed), 0
    for line in filter(None, map(bare, shown.splitlines())):
        if line != "...":
            wanted = r"\s*".join(re.escape(sign) for sign in line if not sign.isspace())
            found = re.compile(rf"^{wanted}$", re.MULTILINE).search(text, at)
            assert found, f"not printed, or not in this order: {line}\n{text}"
            at = found.end()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def assert_rows_are_in_report(table: str, folder: Path) -> int:
    """Each row of a table headed by report columns is in the report; the number of rows."""
    heads, _, *shown = map(cells, table.splitlines())
    (path,) = folder.glob("*.csv")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["Err_message"] = "; ".join(json.loads(row["Err_message"]))
    there = {tuple(row[head] for head in heads) for row in rows}
    for row in shown:
        assert tuple(row) in there, f"not in the report: {row}"
    return len(shown)


@pytest.fixture(autouse=True)
def _beside_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples" / "matching", tmp_path / "examples" / "matching")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("title", SECTIONS)
def test_what_a_section_shows_is_so(title: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed: Printed = []
    folder = Path()
    for kind, text in blocks(SECTIONS[title]):
        if kind == "sh":
            printed = []
            for command in text.splitlines():
                printed += printed_by(command, 0, capsys)
                folder = Path(output_of(command))
        elif kind == "console":
            command, *shown = text.splitlines()
            assert_shown_is_printed("\n".join(shown), printed_by(command.removeprefix("$ "), 2, capsys))
        elif kind == "text":
            assert_shown_is_printed(text, printed)
        elif kind == "yaml":
            (named,) = [path for path in Path("examples").rglob("*.yaml") if path.read_text(encoding="utf-8") == text]
            assert named.as_posix() in SECTIONS[title]
        elif kind == "table":
            if "Result" in cells(text.splitlines()[0]):
                assert assert_rows_are_in_report(text, folder)
        else:
            raise AssertionError(f"a block of an unknown kind: {kind}")


def test_the_page_shows_every_option() -> None:
    shown = " ".join(text for section in SECTIONS.values() for kind, text in blocks(section) if kind == "sh")
    for flag in (" -fm", " -dm ", " -cm ", " --wrapper ", " --consistent_check", " --backend ", " --shards auto"):
        assert flag in shown


def test_the_table_of_wrappers_is_the_codes() -> None:
    table = next(text for kind, text in blocks(SECTIONS["Wrappers"]) if kind == "table")
    assert [cells(line) for line in table.splitlines()[2:]] == [[f"`{part}`", what] for part, what in WRAPPERS.items()]


def test_links_within_the_page_lead_somewhere() -> None:
    anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in SECTIONS}
    links = set(re.findall(r"\]\(#([^)]+)\)", PAGE))
    assert links
    assert links <= anchors


def test_the_examples_are_small_and_name_no_machine() -> None:
    files = [path for path in Path("examples/matching").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    for path in files:
        if path.suffix == ".json":
            text = path.read_text(encoding="utf-8")
            assert not re.search(r'File /|"/', text), path
