"""The command line: exit statuses, options, what is printed where, and how result files are called."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from opassay.pipeline.cli.main import COMMANDS, build_parser, main
from opassay.pipeline.cli.usage_examples import USAGE_EXAMPLES

from tests.dumps import call, scalar, tensor, tensor_call, write_dump

OP = "Torch.mul.0.forward"
ROOT = Path(__file__).parents[1]
GOOD, BAD = tensor(stats=(1, -1, 0, 10)), tensor(stats=(1, -1, 0, 20))
WARN = tensor(stats=(1, -1, 0, 11.5))
STAMP = r"\d{14}"

Tree = Callable[..., tuple[Path, Path]]


class _Lacking:
    """A finder before all others that knows one package not to be there."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] == self._package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder of its own, one worker, and no words of the environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("OPASSAY_LOG_LEVEL", "MSPROBE_LOG_LEVEL", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Two step folders; ``outputs`` are those of the target's ranks, golden's are good."""

    def make(*outputs: object, name: str = "dump.json") -> tuple[Path, Path]:
        for number, output in enumerate(outputs or (GOOD,)):
            for side, leaf in (("target", output), ("golden", GOOD)):
                write_dump(tmp_path / side / f"rank{number}", {OP: call([GOOD], [leaf])}, name=name)
        return tmp_path / "target", tmp_path / "golden"

    return make


def compare(target: Path, golden: Path, *options: str) -> int:
    return main(["compare", "-tp", str(target), "-gp", str(golden), "--workers", "1", *options])


def reports(folder: str = "output") -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file())


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# --- exit statuses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", [GOOD, WARN, BAD], ids=["pass", "warning", "error"])
def test_0_whatever_the_verdicts(output: object, tree: Tree) -> None:
    assert compare(*tree(output)) == 0


@pytest.mark.parametrize(
    ("output", "level", "status"),
    [(GOOD, "warning", 0), (GOOD, "error", 0), (WARN, "warning", 1), (WARN, "error", 0), (BAD, "warning", 1), (BAD, "error", 1)],
)  # fmt: skip
def test_1_where_fail_on_is_met(output: object, level: str, status: int, tree: Tree) -> None:
    assert compare(*tree(output), "--fail-on", level) == status
    assert len(reports()) == 1  # the report is written all the same


def test_1_where_any_rank_meets_it(tree: Tree) -> None:
    assert compare(*tree(GOOD, BAD), "--fail-on=error") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["compare"],
        ["compare", "-tp", "x"],
        ["compare", "-tp", "x", "-gp", "y", "--no-such-option"],
        ["compare", "-tp", "x", "-gp", "y", "--fail-on", "pass"],
        ["compare", "-tp", "x", "-gp", "y", "--workers", "many"],
        ["compare", "-tp", "x", "-gp", "y", "--memory", "much"],
        ["compare", "-tp", "x", "-gp", "y", "--workers", "-1"],
        ["compare", "-tp", "missing", "-gp", "missing"],
        ["compare", "-tp", "x", "-gp", "y", "stray"],
        ["compare", "--target", "x", "-gp", "y"],  # no abbreviations: a later option could make them ambiguous
        ["no-such-command"],
        ["explain", "no-such-rule"],
        ["-f", "mindspore", "compare", "-tp", "x", "-gp", "y"],
    ],
    ids=" ".join,
)
def test_2_and_one_line_where_the_usage_is_wrong(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert re.fullmatch(r"opassay( \w+)?: error: .+\n", told.err)
    assert not Path("output").exists()


def test_2_where_nothing_could_be_compared(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    target, golden = tree()
    write_dump(target / "rank0", {}, task="statistics")
    assert compare(target, golden) == 2
    assert reports() == []
    assert "holds no records to compare" in capsys.readouterr().err


@pytest.mark.parametrize(("word", "told"), [("plna", "did you mean plan?"), ("xyzzy", "opassay --help lists them")])
def test_2_and_a_hint_for_a_command_that_there_is_not(word: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word, "-tp", "x"]) == 2
    assert capsys.readouterr().err == f"opassay: error: there is no command {word}; {told}\n"


@pytest.mark.parametrize(("name", "what"), [("polars", "opassay"), ("torch.fx", "'opassay[torch]'")])
def test_2_and_one_line_where_a_package_is_missing(
    name: str, what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking(_: object) -> int:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setitem(COMMANDS, "plan", lacking)
    assert main(["plan", "-tp", "x", "-gp", "x"]) == 2
    package = name.partition(".")[0]
    assert capsys.readouterr().err == f"opassay: error: {package} is not installed: pip install --upgrade {what}\n"


def test_a_package_of_the_reports_that_is_missing_is_one_line(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "xlsxwriter"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Lacking("xlsxwriter"), *sys.meta_path])
    assert compare(*tree(GOOD), "--xlsx") == 2
    told = capsys.readouterr().err
    assert "rank0 is not compared: xlsxwriter is not installed: pip install --upgrade opassay\n" in told
    assert "unexpected" not in told


def test_2_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().out


def test_3_where_a_part_could_not_be_read(tree: Tree) -> None:
    target, golden = tree(GOOD, GOOD, GOOD)
    (target / "rank1" / "dump.json").write_text("")
    (golden / "rank2" / "dump.json").unlink()
    assert compare(target, golden) == 3
    assert [re.sub(STAMP, "T", name) for name in reports()] == ["compare_result_rank0_T.csv"]


def test_130_where_it_is_interrupted_and_finished_reports_are_kept(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from opassay.pipeline.run import compare as running

    def stop_at_the_second(task: running._RankTask, *more: object) -> running.RankOutcome:
        if task.pair.label == "rank1":
            raise KeyboardInterrupt
        return first(task, *more)  # type: ignore[arg-type]

    first = running.compare_and_write
    monkeypatch.setattr(running, "compare_and_write", stop_at_the_second)
    assert compare(*tree(GOOD, GOOD)) == 130
    assert [re.sub(STAMP, "T", name) for name in reports()] == ["compare_result_rank0_T.csv"]
    assert "1 of 2 comparisons are finished and kept" in capsys.readouterr().err


# --- spellings ---------------------------------------------------------------------------------------------------------


def test_the_incumbents_spellings(tree: Tree) -> None:
    target, golden = map(str, tree())
    for number, words in enumerate(
        [
            ["-tp", target, "-gp", golden, "-o", "out0"],
            ["--target_path", target, "--golden_path", golden, "--output_path", "out1"],
            [f"--target_path={target}", f"--golden_path={golden}", "--output_path=out2"],
            ["-gp", golden, "-o", "out3", "-tp", target],
        ]
    ):
        assert main(["compare", *words, "--workers", "1"]) == 0
        assert len(reports(f"out{number}")) == 1


@pytest.mark.parametrize("words", [[], ["-o"], ["--output_path"]])
def test_the_output_folder_without_a_value_is_output(words: list[str], tree: Tree) -> None:
    assert compare(*tree(), *words) == 0
    assert len(reports()) == 1


def test_the_output_folder_is_made_with_its_parents(tree: Tree) -> None:
    assert compare(*tree(), "-o", "a/b c/ö") == 0
    assert len(reports("a/b c/ö")) == 1


def test_an_older_spelling_in_front_is_accepted(tree: Tree) -> None:
    target, golden = map(str, tree())
    assert main(["-f", "pytorch", "compare", "-tp", target, "-gp", golden]) == 0
    assert main(["-f", "pytorch", "explain"]) == 0


# --- what is printed ---------------------------------------------------------------------------------------------------


def test_the_success_line_stands_once_a_report(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(*tree(GOOD, BAD)) == 0
    told = capsys.readouterr()
    assert told.err == ""
    lines = told.out.splitlines()
    places = [place for place, line in enumerate(lines) if "msprobe compare ends successfully." in line]
    assert len(places) == 2
    for place in places:
        assert re.search(r"\*{20,}$", lines[place - 1])
        assert re.search(r"\*.*\*$", lines[place])
        assert re.search(r"\*{20,}$", lines[place + 1])
        assert re.search(r"Result of rank\d: output/compare_result_rank\d_\d{14}\.csv$", lines[place - 2])
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(\d+\) \[INFO\] ", lines[0])
    assert "Plan: " in told.out


def test_the_panel_adds_up_and_names_the_worst(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(*tree(GOOD, BAD)) == 0
    told = capsys.readouterr().out
    assert re.search(r"target rows +4 += 4 matched", told)
    assert re.search(r"matched +4 += 3 pass .* 1 error", told)
    assert "do not add up" not in told
    assert f"{OP}.output.0" in told


def test_quiet_says_one_line_a_report(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(*tree(BAD), "--quiet") == 0
    told = capsys.readouterr()
    assert told.err == ""
    lines = told.out.splitlines()
    assert re.fullmatch(r"rank0: 1 error, 0 warning, 1 pass: output/compare_result_rank0_\d{14}\.csv", lines[0])
    assert lines[1].startswith(f"first difference: rank0 {OP}.output.0: its inputs agree, its output does not: ")
    assert len(lines) == 2
    assert len(reports()) == 1


def test_quiet_says_that_nothing_differs(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(*tree(GOOD), "--quiet") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "first difference: none"


def test_quiet_still_tells_what_went_wrong(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    target, golden = tree(GOOD, GOOD)
    (target / "rank1" / "dump.json").write_text("")
    assert compare(target, golden, "--quiet") == 3
    assert "rank1 is not compared" in capsys.readouterr().err


def test_no_colours_where_nobody_looks_or_nobody_wants_them(
    tree: Tree, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(*tree(BAD))
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    compare(*tree(BAD))
    assert "\x1b[3" not in capsys.readouterr().out


def test_the_environment_sets_the_level(
    tree: Tree, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSPROBE_LOG_LEVEL", "3")
    compare(*tree())
    assert "[INFO]" not in capsys.readouterr().out
    compare(*tree(), "--verbose")
    assert "[DEBUG]" in capsys.readouterr().out


def test_one_sided_ranks_are_told(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    target, golden = tree(GOOD)
    write_dump(golden / "rank5", {OP: call([GOOD], [GOOD])})
    assert compare(target, golden) == 0
    assert "golden rank5 has no partner" in capsys.readouterr().err


def tensor_dumps(folder: Path) -> tuple[Path, Path]:
    values = np.arange(4, dtype=np.float32)
    paths = [
        write_dump(
            folder / side,
            {OP: tensor_call(folder / side, OP, [values, scalar(3)], [values + number])},
            task="tensor",
        )
        for number, side in enumerate(("target", "golden"))
    ]
    return paths[0], paths[1]


@pytest.mark.parametrize("flag", ["-tensor_log", "--is_print_compare_log"])
def test_tensor_log_has_two_lines_a_row_in_row_order(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(*tensor_dumps(tmp_path), flag) == 0
    lines = [
        line.split("[INFO] ")[1] for line in capsys.readouterr().out.splitlines() if OP in line and "[INFO] " in line
    ]
    names = [f"{OP}.input.0", f"{OP}.input.1", f"{OP}.output.0"]
    logged = [line for line in lines if line.startswith(("compare: ", "["))]
    assert logged[0::2] == [f"compare: {name}" for name in names]
    assert [line.split("]")[0] for line in logged[1::2]] == [f"[{name}" for name in names]
    first = "Cosine 1.0, EucDist 0.0, MaxAbsErr 0.0, MaxRelativeErr 0.0"
    assert logged[1] == f"[{names[0]}] {first}, One Thousandth Err Ratio 1.0, Five Thousandth Err Ratio 1.0"
    assert "Cosine" not in logged[3]  # a scalar has no tensor data


def test_tensor_log_names_what_only_golden_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, golden = tensor_dumps(tmp_path)
    text = golden.read_text(encoding="utf-8")
    golden.write_text(
        text.replace('"data": {', '"data": {"Torch.only.0.forward": {"output": [null]}, ', 1), encoding="utf-8"
    )
    assert compare(target, golden, "-tensor_log") == 0
    told = capsys.readouterr().out
    assert "compare: Torch.only.0.forward.output.0" in told
    assert "compare: N/A" not in told


def test_what_diff_analyze_compares_is_said_once_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        for side in ("target", "golden"):
            values = np.ones(3, np.float32)
            record = tensor_call(tmp_path / side / f"rank{rank}", OP, [values], [values])
            write_dump(tmp_path / side / f"rank{rank}", {OP: record}, task="tensor")
    assert compare(tmp_path / "target", tmp_path / "golden", "-da") == 0
    told = capsys.readouterr()
    assert told.err.count("-da compares tensor dumps on the statistics") == 1
    assert told.out.count("-da compares tensor dumps on the statistics") == 1  # in the panel
    assert "rank0: -da" not in told.err + told.out


def test_without_the_option_no_row_is_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(*tensor_dumps(tmp_path)) == 0
    assert "compare: Torch" not in capsys.readouterr().out


# --- explain, help, weight -------------------------------------------------------------------------------------------


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    from opassay.kernels.rules import RULES

    assert main(["explain"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == [rule.name for rule in RULES]
    assert main(["explain", "ratio-collapse"]) == 0
    told = capsys.readouterr().out
    assert all(word in told for word in ("ratio-collapse", "error", "0.6", "msprobe documents it"))
    assert main(["explain", "ratio-colapse"]) == 2
    assert "did you mean ratio-collapse" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    import opassay

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"opassay {opassay.__version__}\n"


@pytest.mark.parametrize("command", USAGE_EXAMPLES)
def test_help_ends_with_examples_that_are_understood(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out.splitlines()[-3:]
    assert shown == ["examples:", *(f"  {line}" for line in USAGE_EXAMPLES[command])]
    for line in USAGE_EXAMPLES[command]:
        words = line.split()[1:]
        assert build_parser().parse_args(words).command == words[0] == command


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    from opassay.pipeline.cli.options_table import COMPARE

    assert main(["compare", "--help"]) == 0
    told = capsys.readouterr().out
    assert all(flag in told for option in COMPARE for flag in option.flags)
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(word in told for word in ("compare", "explain", "shim", "exit status"))


def python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "COLUMNS": "100"}, cwd=ROOT
    )  # fmt: skip


HEAVY = ("numpy", "polars", "numba", "torch", "xlsxwriter", "rich", "pyarrow", "pandas")


@pytest.mark.parametrize(
    "code",
    [
        "import opassay",
        "from opassay.pipeline.cli.main import main; main(['--help'])",
        "from opassay.pipeline.cli.main import main; main(['compare', '--help'])",
        "from opassay.pipeline.cli.main import main; main(['compare', '-tp', 'x'])",
    ],
    ids=["import", "help", "compare help", "wrong usage"],
)
def test_nothing_heavy_is_imported_before_it_is_needed(code: str) -> None:
    done = python("-c", f"import sys\n{code}\nprint('LOADED', *[name for name in {HEAVY} if name in sys.modules])")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "LOADED"


def test_the_module_runs_as_the_command_does() -> None:
    done = python("-m", "opassay", "compare", "-tp", "nowhere", "-gp", "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "opassay: error: target path nowhere does not exist; check -tp\n"


def test_a_reader_that_has_gone_is_no_error() -> None:
    done = subprocess.run(
        ["bash", "-c", '"$0" -m opassay explain --markdown | head -c 20; echo "${PIPESTATUS[0]}"', sys.executable],
        capture_output=True, text=True, timeout=60, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.stdout.startswith("# Verdict rules")
    assert "Traceback" not in done.stderr
