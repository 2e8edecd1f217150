"""The harness itself: a right report is fully explained, and every sort of wrong one is not."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.parity.__main__ import main
from tests.parity.cases import dumps_of, read_case
from tests.parity.compare import Judged, Tally, compare_tables, right_mode, work_out
from tests.parity.dump import Dump, read_dump
from tests.parity.judge import judge_case
from tests.parity.pairing import Matching, pair_by
from tests.parity.reference import right_table
from tests.parity.tables import NUMERIC, Cells, Table, levels, number, read_table, same
from tests.parity.verdict import Firing

CASES = Path(__file__).parent.parent / "data" / "cases"
PAIRS = ("c17_odd_tensor", "c05_stat_l1_recompute", "c08_debug_statistics", "c08_debug_md5")


@lru_cache(maxsize=8)
def material(name: str) -> tuple[Table, Table, Dump, Dump]:
    """The incumbent's report, the right report and the two dumps of a case."""
    case = read_case(CASES / name)
    dumps = dumps_of(case, case.folder / "output" / case.files[0])
    assert dumps is not None
    return read_table(case.folder / "expected" / case.files[0]), right_table(*dumps), *dumps


@lru_cache(maxsize=8)
def worked_out(name: str) -> list[Judged]:
    _, _, target, golden = material(name)
    return work_out(target, golden, right_mode(target, golden))


def judged(name: str, rows: list[Cells], header: list[str] | None = None) -> Tally:
    expected, right, target, golden = material(name)
    ours = Table(right.path, header or right.header, rows, [])
    return compare_tables(name, expected, ours, target, golden, "incumbent stops", worked_out(name))


def rows_of(name: str) -> list[Cells]:
    return [dict(row) for row in material(name)[1].rows]


@pytest.mark.parametrize("name", PAIRS)
def test_right_report_is_equal_or_explained(name: str) -> None:
    tally = judged(name, rows_of(name))
    assert tally.unexplained == []
    assert tally.equal > 100
    assert sum(tally.explained.values()) > 10


@pytest.mark.parametrize("name", PAIRS)
def test_a_report_says_the_same_as_itself(name: str) -> None:
    for row in material(name)[0].rows:
        assert all(same(column, cell, cell) for column, cell in row.items())


def test_the_incumbents_own_errors_do_not_pass() -> None:
    """Unmatched rows that it passes, epsilon divisions, pairs it hides: equal to the incumbent is not enough."""
    expected = material("c17_odd_tensor")[0]
    tally = judged("c17_odd_tensor", [dict(r) for r in expected.rows], expected.header)
    notes = {(f.column, f.note.partition(":")[0]) for f in tally.unexplained}
    assert ("Result", "should be at least warning") in notes
    assert ("MaxRelativeErr", "should be inf") in notes
    assert any(column == "Bench Name" for column, _ in notes)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=50, deadline=None)
def test_no_wrong_cell_is_explained(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(PAIRS))
    rows = rows_of(name)
    row = data.draw(st.sampled_from(rows))
    column = data.draw(st.sampled_from([c for c in row if c != "Err_message"]))
    value = number(row[column]) if column in NUMERIC else None
    if value is not None:
        row[column] = f"{value[0] + abs(value[0]) / 1000 + 1e-3!r}{value[1]}"
    elif column == "Result":
        row[column] = data.draw(st.sampled_from([w for w in ("pass", "warning", "error") if w != row[column]]))
    else:
        row[column] = data.draw(st.sampled_from([w for w in ("0", "1.5", "inf", "N/A", "x") if w != row[column]]))
    assert any(f.column == column or column == "NPU Name" for f in judged(name, rows).unexplained)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=25, deadline=None)
def test_no_wrong_verdict_is_explained(data: st.DataObject) -> None:
    """A verdict two steps off, with a message that fits it, is never explained."""
    name = data.draw(st.sampled_from(PAIRS))
    rows = rows_of(name)
    row = data.draw(st.sampled_from(rows))
    if row["Result"] == "error" or row["Bench Name"] == "N/A" or row["NPU Name"] == "N/A":
        row["Result"], row["Err_message"] = "pass", "[]"
    elif row["NPU Dtype"] == row["Bench Dtype"] and "tensor" not in row["NPU Name"]:
        row["Result"], row["Err_message"] = "error", '["error: dtype differs"]'
        if any(f.level == "error" for f in _allowed(name, row)):
            return
    else:
        return
    assert judged(name, rows).unexplained


def _allowed(name: str, row: Cells) -> Sequence[Firing]:
    return next(r.firings[r.at] for r in worked_out(name) if r.right["NPU Name"] == row["NPU Name"])


def test_wrong_number_where_a_rule_exists() -> None:
    """MaxRelativeErr against golden zeros is inf: any other number, the incumbent's included, stays unexplained."""
    for value in ("1e300", "8388608.0", "0.0", "Nan"):
        rows = rows_of("c17_odd_tensor")
        row = next(r for r in rows if r["NPU Name"] == "Torch.tan.0.forward.input.0")
        assert row["MaxRelativeErr"] == "inf"
        row["MaxRelativeErr"] = value
        assert [f.column for f in judged("c17_odd_tensor", rows).unexplained] == ["MaxRelativeErr"]


def test_wrong_complex_number() -> None:
    rows = rows_of("c17_odd_tensor")
    row = next(r for r in rows if "complex" in r["NPU Dtype"] and (number(r["MaxAbsErr"]) or (0, ""))[0] > 0)
    row["MaxAbsErr"] = repr(float(row["MaxAbsErr"]) * (1 + 1e-7))
    assert [f.column for f in judged("c17_odd_tensor", rows).unexplained] == ["MaxAbsErr"]


@pytest.mark.parametrize("name", PAIRS)
def test_missing_extra_and_moved_rows(name: str) -> None:
    for at in (0, len(rows_of(name)) // 2, -1):
        rows = rows_of(name)
        del rows[at]
        assert "the row is missing" in [f.note for f in judged(name, rows).unexplained]
    rows = rows_of(name)
    rows.append(dict(rows[0]))
    assert "a row too many" in [f.note for f in judged(name, rows).unexplained]
    rows = rows_of(name)
    rows[0], rows[1] = rows[1], rows[0]
    assert any("another order" in f.note for f in judged(name, rows).unexplained)


def test_golden_only_rows_must_be_there_and_warn() -> None:
    name = "c17_odd_tensor"
    rows = [r for r in rows_of(name) if r["NPU Name"] != "N/A"]
    assert len(rows) < len(rows_of(name))
    assert any("row is missing" in f.note for f in judged(name, rows).unexplained)
    rows = rows_of(name)
    rows[-1]["Result"], rows[-1]["Err_message"] = "pass", "[]"
    assert judged(name, rows).unexplained


def test_wrong_pairing_of_backward_rows() -> None:
    """The golden halves of two calls exchanged: nothing may explain it, though a rule about backward pairs exists."""
    name = "c05_stat_l1_recompute"
    rows = rows_of(name)
    calls = [r for r in rows if ".backward." in r["NPU Name"] and r["NPU Name"].startswith("Functional.linear.")]
    one, other = calls[0], next(r for r in calls if r["Bench mean"] != calls[0]["Bench mean"])
    for column in one:
        if column.startswith("Bench"):
            one[column], other[column] = other[column], one[column]
    assert any("row is missing" in f.note or f.column == "Bench Name" for f in judged(name, rows).unexplained)


def dump_of(folder: Path, records: list[str]) -> Dump:
    leaf = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [1],
        "Max": 1.0,
        "Min": 1.0,
        "Mean": 1.0,
        "Norm": 1.0,
    }
    folder.mkdir()
    content = {"task": "statistics", "data": {r: {"input": [leaf]} for r in records}}
    (folder / "dump.json").write_text(json.dumps(content))
    return read_dump(folder / "dump.json")


@pytest.mark.parametrize(
    ("target", "golden", "pairs"),
    [
        ([1, 0], [0, 1], {1: 1, 0: 0}),  # the same calls: by index
        ([3, 2], [1, 0], {3: 1, 2: 0}),  # as many, other indexes: by appearance
        ([2, 1, 0], [1, 0], {2: None, 1: 1, 0: 0}),  # not as many: by index
    ],
)
def test_pairs_of_backward_calls(
    tmp_path: Path, target: list[int], golden: list[int], pairs: dict[int, int | None]
) -> None:
    sides = [
        dump_of(tmp_path / str(at), [f"Torch.relu.{n}.backward" for n in calls])
        for at, calls in enumerate((target, golden))
    ]
    found = {
        int(m.target.record.split(".")[2]): None if m.golden is None else int(m.golden.record.split(".")[2])
        for m in pair_by(Matching(), sides[0], sides[1])
        if m.target
    }
    assert found == pairs


def test_header_mode_and_message_faults() -> None:
    name = "c08_debug_statistics"
    right = material(name)[1]
    assert any(f.column == "header" for f in judged(name, rows_of(name), right.header[::-1]).unexplained)
    other = judged(name, rows_of("c08_debug_md5"), material("c08_debug_md5")[1].header)
    assert [f.note for f in other.unexplained] == ["the report is of another mode than the dumps"]
    rows = rows_of(name)
    rows[0]["Err_message"] = "free text"
    assert {f.column for f in judged(name, rows).unexplained} == {"Result", "Err_message"}


def test_levels() -> None:
    assert levels("[]") == levels("") == frozenset()
    assert levels('["error: a: b", "note: c"]') == frozenset({"error"})
    assert levels('["fatal: a"]') is None
    assert levels('{"error": 1}') is None


def test_rounding_of_the_incumbent_counts_as_equal() -> None:
    assert same("Cosine", "0.999988", "0.9999876512")
    assert not same("Cosine", "0.999988", "0.9999866512")
    assert same("MaxAbsErr", "0.0", "1e-13")
    assert not same("MaxAbsErr", "0.0", "1e-11")
    assert same("NPU max", "3.0", "3")
    assert not same("NPU Name", "3.0", "3")
    assert not same("MaxRelativeErr", "25.0%", "25.0")


FAKE = """
import csv, json, pathlib, sys
plan = json.loads(pathlib.Path({plan!r}).read_text())
if plan["rows"]:
    pathlib.Path("output").mkdir()
    with open("output/debug_compare_result_20260101000000.csv", "w", newline="") as stream:
        csv.writer(stream).writerows(plan["rows"])
sys.stderr.write(plan["err"])
sys.exit(plan["status"])
"""


def fake_tool(folder: Path, rows: list[list[str]], status: int, err: str) -> list[str]:
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"rows": rows, "status": status, "err": err}))
    script = folder / "fake.py"
    script.write_text(FAKE.format(plan=str(plan)))
    return [sys.executable, str(script)]


def lines_of(name: str) -> list[list[str]]:
    right = material(name)[1]
    return [right.header, *([row[title] for title in right.header] for row in right.rows)]


def notes(name: str, folder: Path, rows: list[list[str]], status: int, err: str = "") -> list[str]:
    tool = fake_tool(folder, rows, status, err)
    return [f.note for f in judge_case(read_case(CASES / name), tool, folder / "run").tally.unexplained]


def test_a_run_is_judged_by_its_status_and_output(tmp_path: Path) -> None:
    name = "c08_debug_statistics"
    assert notes(name, tmp_path, lines_of(name), 0) == []
    assert notes(name, tmp_path, lines_of(name), 2) == ["exit status 2 although files were written"]
    assert len(notes(name, tmp_path, lines_of(name), 3)) == 2
    assert "exit status 1" in notes(name, tmp_path, lines_of(name), 1)
    trace = "Traceback (most recent call last):\n"
    assert notes(name, tmp_path, lines_of(name), 0, trace) == ["a traceback in the output"]
    assert "0 such files" in notes(name, tmp_path, [], 2, "error: cannot\n")


def test_where_the_incumbent_stops_we_say_why_in_one_line(tmp_path: Path) -> None:
    assert notes("c18_truncated", tmp_path, [], 2, "error: target dump.json is cut at byte 1898\n") == []
    assert notes("c18_truncated", tmp_path, [], 2, "") != []
    assert notes("c18_truncated", tmp_path, [], 2, "one\ntwo\n") != []
    assert notes("c18_truncated", tmp_path, [], 0, "error: x\n") != []


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "c08_debug_statistics"
    tool = " ".join(fake_tool(tmp_path, lines_of(name), 0, ""))
    page = tmp_path / "page.md"
    arguments = [str(CASES), "--tool", tool, "--case", name, "--markdown", str(page)]
    assert main(arguments) == 0
    assert "1 cases (0 skipped)" in capsys.readouterr().out
    assert "decision 2" in page.read_text()
    rows = lines_of(name)
    rows[1][rows[0].index("NPU max")] = "7"
    fake_tool(tmp_path, rows, 0, "")
    assert main(arguments) == 1
    assert "should be" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([str(tmp_path / "none")])


def test_later_commands_are_told_from_the_arguments(tmp_path: Path) -> None:
    text = "argv: [{}]\npeer_exit_code: 0\nexpected_files: []\n"
    for command, later in (("run_ut, -da", True), ("compare, -da", False), ("merge_result, -i, x", False)):
        (tmp_path / "case.yaml").write_text(text.format(command))
        assert bool(read_case(tmp_path).later) is later
        assert read_case(tmp_path).wants_first is ("-da" in command)


def test_stored_reports_are_csv_with_one_header() -> None:
    for path in CASES.glob("*/expected/*.csv"):
        with path.open(newline="") as stream:
            assert next(csv.reader(stream))[0] == "NPU Name"
