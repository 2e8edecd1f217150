from __future__ import annotations

import io
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opassay.pipeline.report.console import (
    MAX_WIDTH,
    USUAL_WIDTH,
    FirstOp,
    Summary,
    WorstOp,
    merge,
    render,
    show,
    size_text,
    time_text,
)

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "panel.txt"

SUMMARY = Summary(
    title="tensor, 2 ranks",
    target_rows=12_345,
    golden_rows=12_100,
    passed=11_000,
    warnings=700,
    errors=290,
    not_compared={"shapes differ": 6, "file missing": 4},
    target_only=345,
    golden_only=100,
    ops=1_400,
    first=(
        FirstOp(
            "Functional.softmax.3.forward.output.0",
            "its inputs agree, its output does not: 41% of the elements are within a thousandth [ratio-collapse]",
            "before any communication",
            "rank0, rank3",
            "train.py, line 41: p = F.softmax(s)",
        ),
        FirstOp(
            "Distributed.all_reduce.7.forward.output.0", "communication fault", "in communications", "rank1", "", False
        ),
    ),
    worst=(
        WorstOp(
            "Module.decoder.layers.11.self_attention.query_key_value.ColumnParallelLinear.forward.0",
            "error",
            "inputs agree (0.9998 within 0.1 %), the output does not",
            "thousandth ratio 0.41",
            3,
        ),
        WorstOp("Functional.归一化.0.forward", "error", "dtype differs:\nbfloat16", "", 0, formal=True),
    ),
    problems=("rank3/dump.json: the record of Tensor.add.7.forward ends early; dump this rank again",),
    files=(
        Path("output/compare_result_rank0_20260101120000.csv"),
        Path("output/compare_result_rank3_20260101120000.csv"),
    ),
    elapsed_s=75.2,
    dump_bytes=15_300_000_000,
    peak_bytes=1_250_000_000,
    budget_bytes=4_000_000_000,
    workers=8,
    exit_status=3,
)


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def cells(line: str) -> int:
    from rich.cells import cell_len

    return cell_len(line)


def test_panel_is_the_golden_one() -> None:
    text = render(SUMMARY)
    if os.environ.get("OPASSAY_REWRITE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_sums_are_there_to_be_added_up() -> None:
    text = render(SUMMARY)
    assert re.search(r"target rows +12,345 += 12,000 matched \+ 345 target only", text)
    assert re.search(r"golden rows +12,100 += 12,000 matched \+ 100 golden only", text)
    assert re.search(r"matched +12,000 += 11,000 pass \+ 700 warning \+ 290 error \+ 10 not compared", text)
    assert re.search(r"not compared +10 +shapes differ 6, file missing 4", text)
    assert "do not add up" not in text
    assert "do not add up" in render(replace(SUMMARY, target_rows=1))


def test_nothing_is_said_of_what_did_not_happen() -> None:
    text = render(Summary("md5", target_rows=2, golden_rows=2, passed=2, ops=1))
    for word in ("look first", "worth knowing", "files", "GB/s", "peak", "at least warning"):
        assert word not in text


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=120), st.text(max_size=60), st.integers(40, 200), st.booleans())
def test_no_text_breaks_the_frame(name: str, message: str, width: int, ascii_only: bool) -> None:
    op = WorstOp(name, "error", message, message, 1)
    text = render(replace(SUMMARY, title=name[:20], worst=(op,), problems=(name,)), width, ascii_only=ascii_only)
    lines = text.removesuffix("\n").split("\n")
    assert {cells(line) for line in lines} == {min(width, MAX_WIDTH)}
    assert {line[0] for line in lines} <= set("╭│╰|+")
    if ascii_only:
        assert text.isascii()


def test_the_answer_stands_first_and_then_only_what_it_leaves_open() -> None:
    """Ops whose numbers differ are the search's matter; what is left for the list are differences of declaration."""
    text = render(SUMMARY)
    assert (
        text.index("first difference") < text.index("softmax") < text.index("independent of it") < text.index("归一化")
    )
    assert "rank0, rank3 Functional.softmax.3.forward.output.0" in text
    assert "at train.py, line 41" in text
    assert "query_key_value" not in text
    assert "query_key_value" in render(replace(SUMMARY, first=()))


def test_names_fold_at_their_dots_and_words_at_their_blanks() -> None:
    name = "Module._fsdp_wrapped_module.model.layers.0._fsdp_wrapped_module.self_attn.o_proj.Linear.forward.0.input.0"
    reason = " ".join(["elements"] * 12)
    for width in (60, 80, 100):
        text = render(replace(SUMMARY, first=(FirstOp(name, reason),), worst=()), width)
        inner = [line.strip("│ ") for line in text.splitlines()]
        at = next(place for place, line in enumerate(inner) if line.startswith("Module."))
        folded = inner[at : next(place for place in range(at, len(inner)) if inner[place].startswith("elements"))]
        assert "".join(folded) == name
        assert all(line.endswith(".") for line in folded[:-1])
        assert {word for line in inner for word in line.split() if word.startswith("elem")} == {"elements"}


def test_a_wide_terminal_gets_a_wide_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, width in ((60, 60), (140, 140), (300, MAX_WIDTH)):
        monkeypatch.setenv("COLUMNS", str(columns))
        terminal, file = Terminal(), io.StringIO()
        monkeypatch.setenv("TERM", "dumb")
        show(SUMMARY, terminal)
        show(SUMMARY, file)
        assert {cells(line) for line in terminal.getvalue().splitlines()} == {width}
        assert {cells(line) for line in file.getvalue().splitlines()} == {USUAL_WIDTH}


EQUAL = Summary("statistics", target_rows=2, golden_rows=2, passed=2, ops=1)


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        (EQUAL, "none"),
        (replace(EQUAL, worst=(WorstOp("x", "error", formal=True),)), "none"),
        (replace(EQUAL, target_rows=3, target_only=1), "none in what was compared"),
        (replace(EQUAL, passed=1, not_compared={"file missing": 1}), "none in what was compared"),
        (replace(EQUAL, exit_status=3), "none in what was compared"),
        (replace(EQUAL, worst=(WorstOp("x", "error"),)), ""),
        (replace(EQUAL, first=SUMMARY.first), ""),
        (replace(EQUAL, passed=0, target_only=2, golden_only=2), ""),
    ],
)
def test_that_nothing_differs_is_said_where_it_is_known(summary: Summary, said: str) -> None:
    assert summary.no_difference == said
    found = re.search(r"first difference  (\S.*?)  ", render(summary))
    assert (found[1] if found else "") == said


def test_what_is_no_difference_of_numbers_is_not_called_one() -> None:
    formal = FirstOp(
        "Torch.a.0.forward.output.0",
        "nothing that was compared differs; the golden side does not have it",
        of_numbers=False,
    )
    text = render(replace(SUMMARY, first=(formal,)))
    assert "not a difference of numbers" in text
    assert "first difference" not in text
    assert "query_key_value" in text  # the search has no numbers to show, so the list shows what rules found
    assert "\x1b[1;31m" not in render(replace(EQUAL, first=(formal,)), color=True)


def test_where_nothing_met_there_is_no_answer() -> None:
    nothing = Summary("statistics", target_rows=2, golden_rows=2, target_only=2, golden_only=2, first=SUMMARY.first)
    text = render(nothing)
    assert "difference" not in text
    assert "opassay plan" in text


def test_many_rows_of_one_side_point_to_the_plan() -> None:
    assert "opassay plan" not in render(SUMMARY)  # 345 of 12,345
    assert "opassay plan" in render(replace(SUMMARY, target_rows=14_000, target_only=2_000))
    assert "opassay plan" in render(replace(SUMMARY, golden_rows=14_000, golden_only=2_000))


def test_markup_is_text() -> None:
    assert "[red]x[/red] :smile:" in render(
        replace(SUMMARY, first=(), worst=(WorstOp("[red]x[/red] :smile:", "error"),))
    )


def test_long_lists_are_counted_not_shown() -> None:
    many = replace(
        SUMMARY,
        first=(),
        worst=SUMMARY.worst * 10,
        problems=("p",) * 2_000,
        files=tuple(Path(f"f{n}.csv") for n in range(64)),
    )
    text = render(many)
    assert "look first at  (990 rows are error or warning)" in text
    assert text.count("归一化") == 4  # eight ops in all
    assert "and 1,995 more" in text
    assert "and 52 more" in text
    assert len(text.splitlines()) < 60


def test_colours_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal, file = Terminal(), io.StringIO()
    show(SUMMARY, terminal)
    show(SUMMARY, file)
    assert "\x1b[" in terminal.getvalue()
    assert "\x1b" not in file.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    show(SUMMARY, terminal)
    assert "\x1b" not in terminal.getvalue()
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in render(SUMMARY)


def test_a_stream_without_unicode_gets_ascii() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="latin-1")
    show(SUMMARY, stream)
    text = raw.getvalue().decode("ascii")
    assert text.startswith("+- opassay - tensor, 2 ranks")
    assert "\\u5f52" in text


def test_a_path_that_is_no_unicode_can_be_shown() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8")
    show(replace(SUMMARY, files=(Path("out\udcff.csv"),)), stream)
    assert b"out\\udcff.csv" in raw.getvalue()


def test_merging_adds_counts_and_keeps_the_worst() -> None:
    other = Summary(
        "tensor rank1",
        target_rows=3,
        golden_rows=3,
        passed=1,
        not_compared={"file missing": 1, "no tensor": 1},
        worst=(WorstOp("x", "error"),),
        elapsed_s=4.8,
        dump_bytes=5,
        peak_bytes=9_000_000_000,
        workers=2,
    )
    both = merge([SUMMARY, other], title="tensor")
    assert both.adds_up
    assert both.target_rows == 12_348
    assert both.not_compared == {"shapes differ": 6, "file missing": 5, "no tensor": 1}
    assert [op.result for op in both.worst] == ["error", "error", "error"]
    assert both.first == SUMMARY.first
    assert (both.elapsed_s, both.peak_bytes, both.workers, both.title) == (80.0, 9_000_000_000, 8, "tensor")
    assert merge([SUMMARY, other], elapsed_s=5.0).elapsed_s == 5.0


@pytest.mark.parametrize(
    ("parts", "whole"),
    [([0, 0], 0), ([0, 1], 1), ([1, 3], 3), ([2, 0], 3), ([2, 2], 2), ([3, 130], 130), ([2, 1], 3)],
)
def test_exit_status_of_a_whole(parts: list[int], whole: int) -> None:
    assert merge([replace(SUMMARY, exit_status=status) for status in parts]).exit_status == whole


def test_quantities_read_well() -> None:
    sizes = [0, 999, 1_000, 15_300_000, 999_000_000, 1_250_000_000, 12_345_000_000_000]
    assert [size_text(size) for size in sizes] == [
        "0 B",
        "999 B",
        "1.00 kB",
        "15.3 MB",
        "999 MB",
        "1.25 GB",
        "12,345 GB",
    ]
    assert [time_text(t) for t in (0.04, 59.9, 184, 7_500)] == ["0.0 s", "59.9 s", "3 min 04 s", "2 h 05 min"]
