"""stack.json: both formats, damage, and what a record's stack prints as."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from opassay.pipeline.read.stacks import read_stacks

from tests.read.dump_cases import DATA

LINES = ["File net.py, line 12, in forward, \n y = a * b", "File run.py, line 3, in <module>, \n net(x)"]


def _write(folder: Path, content: object) -> Path:
    path = folder / "stack.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_grouped_format(tmp_path: Path) -> None:
    table = read_stacks(_write(tmp_path, {"0": [["A", "B"], LINES], "1": [["C"], ["x"]], "2": [[], ["y"]]}))
    assert table.text_for(["C", "A", "nobody", "B"]) == ["['x']", str(LINES), None, str(LINES)]
    assert "\\n" in str(table.text_for(["A"])[0])
    assert "\n" not in str(table.text_for(["A"])[0])
    assert table.problems == []


def test_older_format_keeps_equal_stacks_once(tmp_path: Path) -> None:
    table = read_stacks(_write(tmp_path, {"A": LINES, "B": LINES, "C": []}))
    assert table.text_for(["A", "B", "C"]) == [str(LINES), str(LINES), "[]"]
    assert len(table.texts) == 2


def test_the_last_entry_of_a_name_counts(tmp_path: Path) -> None:
    table = read_stacks(_write(tmp_path, {"0": [["A"], ["x"]], "1": [["A"], ["y"]]}))
    assert table.text_for(["A"]) == ["['y']"]


def test_odd_entries_are_left_out_and_told(tmp_path: Path) -> None:
    content = {"0": [["A"], ["x"], 3], "1": "text", "2": [["B"]], "3": [["C", 5], ["z"]], "4": [["D"], "line"]}
    table = read_stacks(_write(tmp_path, content))
    assert table.text_for(["A", "B", "C", "D"]) == [None, None, "['z']", None]
    assert {(p.kind, p.fatal) for p in table.problems} == {("stack", False)}
    assert sum(p.count for p in table.problems) == 4


def test_a_cut_at_every_byte_never_fails(tmp_path: Path) -> None:
    text = json.dumps({"0": [["A", "B"], LINES], "1": [["C"], ["é"]]}, ensure_ascii=False)
    for end in range(len(text)):
        table = read_stacks(_write(tmp_path, text[:end]))
        assert table.problems
        assert table.text_for(["A"])[0] in (None, str(LINES))
        assert table.text_for(["C"])[0] in (None, "['é']")
    assert read_stacks(_write(tmp_path, text[:-1])).text_for(["C"]) == ["['é']"]


@pytest.mark.parametrize("content", ["", "[]", "no json", "{", '{"0"', "[" * 100_000])
def test_files_that_hold_nothing(tmp_path: Path, content: str) -> None:
    table = read_stacks(_write(tmp_path, content))
    assert table.text_for(["A"]) == [None]
    assert len(table.problems) == 1


def test_no_file(tmp_path: Path) -> None:
    table = read_stacks(tmp_path / "stack.json")
    assert table.text_for(["A"]) == [None]
    assert "cannot be read" in table.problems[0].text


@pytest.mark.parametrize("name", ["odd_md5", "collectives"])
def test_real_files(name: str) -> None:
    path = DATA / name / "stack.json"
    wanted = {record: str(lines) for records, lines in json.loads(path.read_text()).values() for record in records}
    table = read_stacks(path)
    assert table.text_for(list(wanted)) == list(wanted.values())
    assert table.problems == []
    assert len(table.texts) <= len(wanted)


def test_many_names_of_one_stack(tmp_path: Path) -> None:
    names = [f"Torch.mul.{k}.forward" for k in range(70_000)]
    table = read_stacks(_write(tmp_path, {"0": [names, ["x"]], "1": [["last"], ["y"]]}))
    assert set(table.text_for(names)) == {"['x']"}
    assert table.text_for(["last"]) == ["['y']"]
    assert table.name_hashes.nbytes + table.stack_codes.nbytes == 12 * 70_001


def test_a_file_that_is_none_or_in_another_encoding_is_one_problem(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "stack.json")
    (tmp_path / "folder").mkdir()
    (tmp_path / "wide.json").write_text("{}", "utf-16")
    for name, words in (("stack.json", "a pipe"), ("folder", "Is a directory"), ("wide.json", "UTF-16")):
        (problem,) = read_stacks(tmp_path / name).problems
        assert words in problem.text


def test_names_that_are_no_list_are_told(tmp_path: Path) -> None:
    table = read_stacks(_write(tmp_path, {"0": ["A", ["x"]], "1": [["B"], ["y"]]}))
    assert table.text_for(["A", "0", "B"]) == [None, None, "['y']"]
    (problem,) = table.problems
    assert (problem.where, problem.count) == ("0", 1)
