"""The options of matching on the command line: what the report says of them, what is refused, and the dry run."""

from __future__ import annotations

import json
from pathlib import Path

import opassay
import pytest
from opassay.pipeline.cli.main import main

from tests.commands import Runner, rows
from tests.dumps import call, tensor, write_dump

SHAPED = {
    (5,): call([tensor(shape=(5,))], [tensor(shape=(5,))]),
    (2, 4): call([tensor(shape=(2, 4))], [tensor(shape=(2, 4))]),
}
RELU = "Functional.relu.{}.forward"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Runner:
    return Runner(capsys)


def drifted(folder: Path) -> tuple[Path, Path]:
    """One more call at the start of the target; the others are the golden side's."""
    target = {RELU.format(0): SHAPED[5,], **{RELU.format(index): SHAPED[2, 4] for index in (1, 2, 3)}}
    golden = {RELU.format(index): SHAPED[2, 4] for index in (0, 1, 2)}
    return write_dump(folder / "target", target), write_dump(folder / "golden", golden)


def modules(folder: Path) -> tuple[Path, Path]:
    """A module that is called otherwise on the two sides, with a wrapper on the target's."""
    record = call([tensor()], [tensor()])
    target = {"Module.head.Dense.forward.0": record, "Module._orig_mod.fc.Linear.forward.0": record}
    golden = {"Module.head.Linear.forward.0": record, "Module.fc.Linear.forward.0": record}
    return write_dump(folder / "target", target), write_dump(folder / "golden", golden)


@pytest.mark.parametrize("flag", ["-fm", "--fuzzy_match"])
def test_fuzzy_match(tmp_path: Path, run: Runner, flag: str) -> None:
    status, _ = run(*drifted(tmp_path), flag)
    assert status == 0
    found = {row["NPU Name"]: row for row in rows()}
    assert len(found) == 8
    assert found[f"{RELU.format(0)}.output.0"]["Bench Name"] == "N/A"
    assert found[f"{RELU.format(0)}.output.0"]["Result"] == "warning"
    for index in (1, 2, 3):
        row = found[f"{RELU.format(index)}.output.0"]
        assert row["Bench Name"] == f"{RELU.format(index - 1)}.output.0"
        assert row["Result"] == "pass"
        assert json.loads(row["Err_message"]) == ["note: paired with another call index (fuzzy match)"]


def test_data_mapping(tmp_path: Path, run: Runner, capsys: pytest.CaptureFixture[str]) -> None:
    mapping = tmp_path / "rows.yml"
    mapping.write_text(
        "Module.head.Dense.forward.0.output.0: Module.head.Linear.forward.0.output.0\n"
        "Module.head.Dense.forward.0.input.0: Module.head.Linear.forward.7.input.0\n"
        "Module.gone.Dense.forward.0.input.0: Module.head.Linear.forward.0.input.0\n"
    )
    status, told = run(*modules(tmp_path), "-dm", str(mapping))
    assert status == 0
    found = {row["NPU Name"]: row for row in rows()}
    assert found["Module.head.Dense.forward.0.output.0"]["Bench Name"] == "Module.head.Linear.forward.0.output.0"
    assert found["Module.head.Dense.forward.0.input.0"]["Bench Name"] == "N/A"
    assert any("no target row has: Module.gone.Dense.forward.0.input.0" in line for line in told)
    assert any("do not exist in the dump: Module.head.Linear.forward.7.input.0" in line for line in told)


def test_cell_mapping_and_wrappers(tmp_path: Path, run: Runner) -> None:
    mapping = tmp_path / "cells.yaml"
    mapping.write_text("Dense: Linear\n")
    assert run(*modules(tmp_path), "-cm", str(mapping))[0] == 0
    found = {row["NPU Name"]: row for row in rows()}
    assert found["Module.head.Dense.forward.0.input.0"]["Bench Name"] == "Module.head.Linear.forward.0.input.0"
    assert "by the mapping file" in found["Module.head.Dense.forward.0.input.0"]["Err_message"]
    wrapped = found["Module._orig_mod.fc.Linear.forward.0.input.0"]
    assert wrapped["Bench Name"] == "Module.fc.Linear.forward.0.input.0"
    assert "wrappers" in wrapped["Err_message"]


def test_wrappers_off_and_of_ones_own(tmp_path: Path, run: Runner) -> None:
    sides = modules(tmp_path)
    run(*sides, "-o", "off", "--no-wrappers")
    run(*sides, "-o", "own", "--no-wrappers", "--wrapper", "_orig.*", "--wrapper", "other")
    wrapped = "Module._orig_mod.fc.Linear.forward.0.input.0"
    for folder, partner in (("off", "N/A"), ("own", "Module.fc.Linear.forward.0.input.0")):
        found = {row["NPU Name"]: row["Bench Name"] for row in rows(folder=Path(folder))}
        assert found[wrapped] == partner


def test_a_golden_row_that_serves_twice_adds_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = call([tensor()], [tensor()])
    target = write_dump(tmp_path / "t", {f"Module.{name}.L.forward.0": record for name in ("a", "b")})
    golden = write_dump(tmp_path / "g", {"Module.a.L.forward.0": record, "Module.c.L.forward.0": record})
    (tmp_path / "m.yaml").write_text("b.L: a.L\n")
    assert main(["compare", "-tp", str(target), "-gp", str(golden), "-cm", "m.yaml"]) == 0
    told = capsys.readouterr().out
    assert "= 2 matched + 2 golden only, 2 of the matched used again" in told
    assert "do not add up" not in told


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-dm", "m.yaml", "-fm"], "-dm and -fm"),
        (["-dm", "m.yaml", "-cm"], "-dm and -cm"),
        (["-dm", "none.yaml"], "none.yaml"),
        (["-cm", "none.yaml"], "none.yaml"),
        (["--consistent_check"], "--backend fsdp"),
        (["--consistent_check", "--backend", "vllm"], "invalid choice"),
        (["--consistent_check", "--backend", "fsdp", "-fm"], "-fm"),
        (["--consistent_check", "--backend", "fsdp", "--shards", "auto"], "--shards"),
        (["--wrapper", "("], "--wrapper '(' is no regular expression: unclosed group\n"),
        (["--wrapper", ".*"], "empty part"),
        (["--wrapper", ""], "empty part"),
        (["--wrapper", "a)|(b"], "'a)|(b' is no regular expression"),
        (["--wrapper", "(?P<x>a)", "--wrapper", "(?P<x>b)"], "6 patterns together"),
        (["--shards", "yes"], "invalid choice"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["compare", "plan"])
def test_wrong_options_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, options: list[str], words: str
) -> None:
    target, golden = modules(tmp_path)
    (tmp_path / "m.yaml").write_text("a: b\n")
    assert main([command, "-tp", str(target), "-gp", str(golden), *options]) == 2
    told = capsys.readouterr()
    assert words in told.err
    assert len(told.err.splitlines()) == 1
    assert not Path("output").exists()


def test_a_malformed_mapping_names_every_problem_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, golden = modules(tmp_path)
    (tmp_path / "m.yaml").write_text("a: b\nc: [1]\na: d\n")
    assert main(["compare", "-tp", str(target), "-gp", str(golden), "-dm", "m.yaml"]) == 2
    told = capsys.readouterr().err
    assert "m.yaml" in told
    assert "line 2" in told
    assert "line 3" in told


def test_a_backend_alone_has_no_effect(tmp_path: Path, run: Runner) -> None:
    status, told = run(*modules(tmp_path), "--backend", "fsdp")
    assert status == 0
    assert "--backend has no effect without --consistent_check" in told
    assert {row["Bench Name"] for row in rows()} >= {"Module.fc.Linear.forward.0.input.0"}


def test_the_library_has_the_same_options(tmp_path: Path) -> None:
    target, golden = drifted(tmp_path)
    report = opassay.compare(target, golden, fuzzy=True)
    assert report.rows.filter(report.rows["golden_name"] == "N/A")["target_name"].to_list() == [
        f"{RELU.format(0)}.input.0",
        f"{RELU.format(0)}.output.0",
    ]


def test_plan_counts_the_ways_and_names_what_has_no_partner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, golden = modules(tmp_path)
    assert main(["plan", "-tp", str(target), "-gp", str(golden)]) == 0
    told = capsys.readouterr().out
    assert "mode    statistics" in told
    assert "1  pair without wrappers" in told
    assert "1  of the target have no partner" in told
    lines = told.splitlines()
    for op, near in (("Dense", "Linear"), ("Linear", "Dense")):  # of the target, of the golden side
        at = lines.index(f"    Module.head.{op}.forward.0")
        assert lines[at + 1] == f"      ~ Module.head.{near}.forward.0"
    assert "rows    2 compared, of 4 target and 4 golden" in told


def test_plan_says_what_fuzzy_matching_would_add(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = SHAPED[2, 4]
    target = write_dump(tmp_path / "t", {RELU.format(index): record for index in (7, 8)})
    golden = write_dump(tmp_path / "g", {RELU.format(index): record for index in (0, 1)})
    assert main(["plan", "-tp", str(target), "-gp", str(golden)]) == 0
    assert "-fm would pair 2 more ops" in capsys.readouterr().out
    assert main(["plan", "-tp", str(target), "-gp", str(golden), "-fm"]) == 0
    assert "2  pair with another call index (-fm)" in capsys.readouterr().out


def test_plan_says_what_fuzzy_matching_would_undo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One more call at the start: the others move by one, so the call that met the extra one's number is alone."""
    target, golden = drifted(tmp_path)
    assert main(["plan", "-tp", str(target), "-gp", str(golden)]) == 0
    told = capsys.readouterr().out
    assert (
        "-fm would pair 1 more op, 2 with another call and leave 1 alone that pairs now: look at its plan too" in told
    )
    assert f"    {RELU.format(3)}\n      pairs with -fm: {RELU.format(2)}\n" in told


def many(folder: Path) -> list[str]:
    """Twelve ops of the target without a partner, of which two are calls of one; names like one of them are taken."""
    record = SHAPED[2, 4]
    names = [f"Functional.lone{number:02d}.0.forward" for number in range(11)] + ["Functional.lone00.1.forward"]
    both = {"Functional.softmax.0.forward": record, "Torch.zzzzzz.0.backward": {"input": [tensor()], "output": []}}
    target = write_dump(
        folder / "t", {**both, **dict.fromkeys(names, record), "Functional.softmax_2.0.forward": record}
    )
    golden = write_dump(folder / "g", both)
    return ["plan", "-tp", str(target), "-gp", str(golden)]


def test_plan_names_the_first_and_counts_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = many(tmp_path)
    assert main(words) == 0
    told = capsys.readouterr().out
    assert told.count("    Functional.lone") == 8
    assert "and 5 more; --all lists them" in told
    assert main([*words, "--all"]) == 0
    told = capsys.readouterr().out
    assert told.count("    Functional.lone") == 12
    assert "more; --all" not in told
    assert "golden side, without" not in told


def test_plan_offers_free_names_of_the_same_direction_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, back = SHAPED[2, 4], {"input": [tensor()], "output": [tensor()]}
    ours = {
        "Functional.softmax.0.forward": record,
        "Functional.softmax_2.0.forward": record,
        "Torch.none.0.forward": record,
    }
    theirs = {"Functional.softmax.0.forward": record, "Functional.softmax_3.0.backward": back}
    target, golden = write_dump(tmp_path / "t", ours), write_dump(tmp_path / "g", theirs)
    assert main(["plan", "-tp", str(target), "-gp", str(golden)]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("    Functional.softmax_2.0.forward")
    assert lines[at + 1] == "      all names like it have a partner"
    assert lines[at + 2] == "    Torch.none.0.forward"  # and nothing looks like this one
    assert lines[-1] == "    Functional.softmax_3.0.backward"


def test_plan_of_several_ranks_goes_on_where_one_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = {RELU.format(0): SHAPED[2, 4]}
    for side in ("target", "golden"):
        for rank in range(3):
            write_dump(tmp_path / side / f"rank{rank}", record)
    (tmp_path / "target" / "rank1" / "dump.json").write_text("[]")
    assert main(["plan", "-tp", str(tmp_path / "target"), "-gp", str(tmp_path / "golden")]) == 3
    told = capsys.readouterr().out
    assert "3 pairs of dumps: 3 ranks (rank0, rank1, rank2)" in told
    assert told.count("1  pair by name") == 2
    assert "! cannot be compared" in told


def test_plan_of_a_cut_file_says_so_in_its_status_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, golden = drifted(tmp_path)
    target.write_bytes(target.read_bytes()[:-400])
    assert main(["plan", "-tp", str(target), "-gp", str(golden)]) == 3
    assert "the file is cut" in capsys.readouterr().out


def test_plan_reads_no_tensor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = {RELU.format(0): call([tensor(data_name="gone.pt")], [tensor(data_name="gone.pt")])}
    for side in ("target", "golden"):
        write_dump(tmp_path / side, record, task="tensor")
        (tmp_path / side / "dump_tensor_data").mkdir()
    assert main(["plan", "-tp", "target", "-gp", "golden"]) == 0
    assert "mode    tensor" in capsys.readouterr().out


def sharded(folder: Path, ranks: int, golden: int) -> tuple[str, str]:
    """A step with so many ranks on either side, all alike."""
    record = {RELU.format(0): SHAPED[2, 4]}
    for side, count in (("target", ranks), ("golden", golden)):
        for rank in range(count):
            write_dump(folder / side / f"rank{rank}", record)
    return str(folder / "target"), str(folder / "golden")


def test_shards_that_do_not_divide_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, golden = sharded(tmp_path, 3, 2)
    assert main(["compare", "-tp", target, "-gp", golden, "--shards", "auto"]) == 2
    assert "must be a multiple of the second" in capsys.readouterr().err


def test_shards_of_one_step_that_do_not_divide_cost_no_other_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step, ranks in ((0, 2), (1, 3)):
        record = {RELU.format(0): SHAPED[2, 4]}
        for side, count in (("target", ranks), ("golden", 2 if step else 1)):
            for rank in range(count):
                write_dump(tmp_path / side / f"step{step}" / f"rank{rank}", record)
    assert main(["compare", "-tp", "target", "-gp", "golden", "--shards", "auto"]) == 3
    assert "must be a multiple of the second" in capsys.readouterr().err
    assert len(list(Path("output/step0").glob("*.csv"))) == 1


def test_a_missing_shard_shows_in_the_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, golden = sharded(tmp_path, 3, 1)
    Path(target, "rank1").rename(Path(target, "rank7"))
    assert main(["compare", "-tp", target, "-gp", golden, "--shards", "auto"]) == 0
    assert "gaps in their numbers" in capsys.readouterr().err


def test_rows_that_some_shards_lack_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, golden = sharded(tmp_path, 2, 1)
    more = {RELU.format(0): SHAPED[2, 4], RELU.format(1): SHAPED[2, 4]}
    write_dump(Path(target, "rank1"), more)
    write_dump(Path(golden, "rank0"), more)
    assert main(["compare", "-tp", target, "-gp", golden, "--shards", "auto"]) == 0
    assert "2 rows stand on some of the 2 joined ranks only" in capsys.readouterr().err


def test_a_rank_that_meets_nothing_was_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, golden = sharded(tmp_path, 2, 2)
    write_dump(Path(golden, "rank1"), {"Torch.other.0.forward": SHAPED[2, 4]})
    assert main(["compare", "-tp", target, "-gp", golden]) == 3
    assert main(["compare", "-tp", target, "-gp", golden, "--fail-on", "warning"]) == 1
    assert "nothing was compared" in capsys.readouterr().err
