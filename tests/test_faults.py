"""Bad paths and bad JSON: one clear line for each fault, never a traceback, and everything else is compared all the same."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.commands import OP, OTHER, STATISTICS, Runner, rows, tensors, three_ranks
from tests.dumps import call, scalar, tensor, write_dump


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPASSAY_LOG_LEVEL", "MSPROBE_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Runner:
    return Runner(capsys)


@pytest.fixture
def ranks(tmp_path: Path) -> tuple[Path, Path]:
    return three_ranks(tmp_path)


# --- paths -----------------------------------------------------------------------------------------------------------


def test_a_path_that_is_not_there(ranks: tuple[Path, Path], run: Runner) -> None:
    status, lines = run(ranks[0], Path("nowhere"))
    assert (status, lines) == (2, ["opassay: error: golden path nowhere does not exist; check -gp"])


def test_a_file_against_a_folder(ranks: tuple[Path, Path], run: Runner) -> None:
    status, (line,) = run(ranks[0] / "rank0" / "dump.json", ranks[1])
    assert status == 2
    assert "is a file" in line
    assert "give two files or two folders" in line


def test_dump_against_debug(ranks: tuple[Path, Path], run: Runner, tmp_path: Path) -> None:
    other = write_dump(tmp_path / "d", {"x.0.debug": tensor()}, name="debug.json", level="debug")
    status, (line,) = run(ranks[0] / "rank0" / "dump.json", other)
    assert status == 2
    assert "compare dump.json with dump.json" in line


def test_a_tensor_folder_in_place_of_a_dump(run: Runner, tmp_path: Path) -> None:
    target, golden = tensors(tmp_path)
    status, (line,) = run(target.parent / "dump_tensor_data", golden.parent)
    assert status == 2
    assert "holds no dump.json" in line
    assert "-tp" in line


def test_a_folder_without_ranks(ranks: tuple[Path, Path], run: Runner, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    status, (line,) = run(tmp_path / "empty", ranks[1])
    assert status == 2
    assert "found nothing" in line


def test_ranks_without_a_file(run: Runner, tmp_path: Path) -> None:
    for side in ("a", "b"):
        (tmp_path / side / "rank0").mkdir(parents=True)
    status, (line,) = run(tmp_path / "a", tmp_path / "b")
    assert status == 2
    assert "rank0: no dump.json or debug.json on either side" in line


def test_swapped_sides_of_a_rank(ranks: tuple[Path, Path], run: Runner) -> None:
    """The golden rank has a debug.json where the target has a dump.json: that rank is lost, the others are not."""
    (ranks[1] / "rank1" / "dump.json").rename(ranks[1] / "rank1" / "debug.json")
    status, lines = run(*ranks)
    assert status == 3
    assert all(line.startswith("rank1: ") for line in lines)
    assert len(list(Path("output").iterdir())) == 2


ODD_NAMES = ["lr=0.1 +x", "[run] {1}", "模型", "a'b\"c", "100%", "new\nline", "-dash"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_folder_name_will_do(name: str, run: Runner, tmp_path: Path) -> None:
    target, golden = tensors(tmp_path, (f"{name}/target", f"{name}/golden"))
    status, lines = run(target, golden, "-o", str(tmp_path / name / "out"))
    assert (status, lines) == (0, [])
    found = rows(folder=tmp_path / name / "out")
    assert [row["Result"] for row in found] == ["pass"] * 4
    assert {row["Cosine"] for row in found} == {"1.0"}


@pytest.mark.parametrize("name", ["a b", "鸟", "=1+1", "[0]", "a;b", 'q"q', "x" * 300])
def test_any_record_name_will_do(name: str, run: Runner, tmp_path: Path) -> None:
    op = f"Torch.{name}.0.forward"
    for side in ("t", "g"):
        write_dump(tmp_path / side, {op: call([tensor()], [], **{f"k {name}": scalar(f"-{name}")})})
    status, lines = run(tmp_path / "t" / "dump.json", tmp_path / "g" / "dump.json")
    assert (status, lines) == (0, [])
    assert [row["NPU Name"] for row in rows()] == [f"{op}.input.0", f"{op}.input.k {name}"]


def test_read_only_dumps(ranks: tuple[Path, Path], run: Runner) -> None:
    places = [path for side in ranks for path in (side, *side.rglob("*"))]
    for path in places:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert run(*ranks) == (0, [])
    finally:
        for path in places:
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert len(list(Path("output").iterdir())) == 3


# --- JSON ------------------------------------------------------------------------------------------------------------


def dump_text(**more: Any) -> str:
    header = {"task": "statistics", "level": "L1", "framework": "pytorch"}
    return json.dumps({**header, "data": STATISTICS, **more})


BROKEN = [  # text of the file, words of the line
    ("", "is empty"),
    ("   \n", "not a JSON object"),
    ("[]", "top level is not a JSON object"),
    ('"dump"', "top level is not a JSON object"),
    ("{", "cannot be read"),
    ("{}", "no key 'data'"),
    ('{"task": "statistics"}', "no key 'data'"),
    ('{"task": "statistics", "data": []}', "'data' is not an object"),
    ('{"task": "statistics", "data": null}', "'data' is not an object"),
    (json.dumps({"data": STATISTICS}), "no key 'task'"),
    ('{"task": "statistics", "data": {}}', "holds no records"),
    ('{"task": "statistics", "data": {"a": ', "cannot be read"),
    (dump_text(task="structure"), "task 'structure'"),
    (dump_text(task=7), "no key 'task'"),
    (dump_text(framework="tensorflow"), "'tensorflow'"),
    ("\x00\x01\x02", "not a JSON object"),
    ("PK\x03\x04 a zip", "not a JSON object"),
]


@pytest.mark.parametrize("number", range(len(BROKEN)), ids=[words for _, words in BROKEN])
def test_a_file_that_is_no_dump(number: int, ranks: tuple[Path, Path], run: Runner) -> None:
    (text, words), side = BROKEN[number], number % 2
    path = ranks[side] / "rank1" / "dump.json"
    path.write_text(text)
    status, lines = run(*ranks)
    assert status == 3
    (line,) = [line for line in lines if line.startswith("rank1 is not compared: ")]
    assert words in line
    assert str(path) in line
    assert len(lines) == 1 or "task" in lines[0]
    assert sorted(name.split("_")[2] for name in os.listdir("output")) == ["rank0", "rank2"]
    assert run(path, ranks[1 - side] / "rank1" / "dump.json")[0] == 2


def test_every_place_to_cut_a_file(run: Runner, tmp_path: Path) -> None:
    whole = dump_text()
    golden = tmp_path / "golden" / "dump.json"
    golden.parent.mkdir()
    golden.write_text(whole)
    target = tmp_path / "target" / "dump.json"
    target.parent.mkdir()
    first = whole.index(f'"{OTHER}"')
    for cut in range(0, len(whole), 41):
        shutil.rmtree("output", ignore_errors=True)
        target.write_text(whole[:cut])
        status, lines = run(target, golden)
        assert len(lines) == 1, (cut, lines)
        assert status == (3 if cut >= first else 2), (cut, lines)
        if status == 3:
            assert "the file is cut" in lines[0]
            found = rows("compare_result_partial_*.csv")
            assert [row["NPU Name"] for row in found[:2]] == [f"{OP}.input.0", f"{OP}.output.0"]
            assert {row["Result"] for row in found[:2]} == {"pass"}
            assert len(found) == 4  # golden's other rows stand there as unmatched
            assert {row["Result"] for row in found if "N/A" in (row["NPU Name"], row["Bench Name"])} <= {"warning"}
        else:
            assert not list(Path("output").glob("*.csv"))


WRONG: list[tuple[str, Any, bool]] = [  # a record of the target that is not as it should be; whether rows are lost
    ("a record that is a list", [1, 2], True),
    ("a record that is null", None, True),
    ("a record that is a text", "x", True),
    ("a section that is a number", {"input_args": 3, "output": []}, True),
    ("a bare number in a section", {"input_args": [3], "output": []}, False),
    ("a shape that is a text", call([{**tensor(), "shape": "2x3"}], []), False),
    ("requires_grad that is a number", call([{**tensor(), "requires_grad": 1}], []), False),
    ("a dtype that is a number", call([{**tensor(), "dtype": 32}], []), False),
    ("statistics that are texts", call([{**tensor(), "Max": "big", "Min": [1]}], []), False),
    ("a value that is a list", call([{"type": "thing", "value": [1, {"a": 2}]}], []), False),
    ("a leaf that has a type alone", call([{"type": "torch.Tensor"}], []), False),
    ("a point-to-point op without a tensor", call([{"class_type": "torch.distributed.P2POp"}], []), False),
    ("a record that nests too deep", {"input_args": json.loads("[" * 500 + "]" * 500), "output": []}, True),
    ("a number of ten thousand digits", {"input_args": [{"type": "int", "value": "DIGITS"}], "output": []}, True),
]


@pytest.mark.parametrize(("why", "record", "lost"), WRONG, ids=[case[0] for case in WRONG])
def test_a_record_that_is_not_as_it_should_be(
    why: str, record: Any, lost: bool, ranks: tuple[Path, Path], run: Runner
) -> None:
    """The odd record costs itself at most; the others are compared, and the status says whether rows were lost."""
    path = ranks[0] / "rank0" / "dump.json"
    path.write_text(dump_text(data={"Torch.odd.0.forward": record, **STATISTICS}).replace('"DIGITS"', "9" * 10_000))
    status, lines = run(path, ranks[1] / "rank0" / "dump.json")
    assert status == (3 if lost else 0), lines
    assert len(lines) <= 1, lines
    if lost:
        assert "Torch.odd.0.forward" in lines[0]
        assert str(path) in lines[0]
    good = [row for row in rows() if "odd" not in row["NPU Name"]]
    assert [row["Result"] for row in good] == ["pass"] * 4
    assert {row["Result"] for row in rows() if "odd" in row["NPU Name"]} <= {"warning"}


def test_many_faults_of_one_kind_are_one_line(ranks: tuple[Path, Path], run: Runner) -> None:
    path = ranks[0] / "rank0" / "dump.json"
    path.write_text(dump_text(data={**{f"Torch.odd.{n}.forward": None for n in range(50)}, **STATISTICS}))
    status, (line,) = run(path, ranks[1] / "rank0" / "dump.json")
    assert status == 3
    assert "(and 49 more like it)" in line


def test_a_key_that_occurs_twice_is_told(ranks: tuple[Path, Path], run: Runner) -> None:
    path = ranks[0] / "rank0" / "dump.json"
    path.write_text(path.read_text().replace(OTHER, OP))
    status, (line,) = run(path, ranks[1] / "rank0" / "dump.json")
    assert status == 0
    assert OP in line
    found = rows()
    assert [row["NPU Name"] for row in found[:2]] == [f"{OP}.input.0", f"{OP}.output.0"]
    assert len(found) == 4


def test_records_without_a_direction_are_told(ranks: tuple[Path, Path], run: Runner) -> None:
    path = ranks[0] / "rank0" / "dump.json"
    path.write_text(dump_text(data={"a.b": call([tensor()], []), **STATISTICS}))
    status, (line,) = run(path, ranks[1] / "rank0" / "dump.json")
    assert status == 0
    assert "a.b" in line
    assert "no direction" in line


@pytest.mark.parametrize("text", ["", "[]", '{"0": [["x"]]}', '{"0": 3}', "{", '{"a": "b"}'])
def test_an_odd_stack_file_never_stops_a_comparison(text: str, ranks: tuple[Path, Path], run: Runner) -> None:
    (ranks[0] / "rank0" / "stack.json").write_text(text)
    status, lines = run(ranks[0] / "rank0", ranks[1] / "rank0")
    assert status in (0, 3)
    assert len(lines) <= 1
    found = rows()
    assert [row["Result"] for row in found] == ["pass"] * 4


def test_one_bad_rank_does_not_stop_the_others(ranks: tuple[Path, Path], run: Runner) -> None:
    (ranks[0] / "rank0" / "dump.json").write_bytes(b"\xff\xfe{}")
    (ranks[1] / "rank2" / "dump.json").unlink()
    (ranks[1] / "rank2" / "dump.json").mkdir()
    status, lines = run(*ranks)
    assert status == 3
    assert len(lines) == 2
    assert [name.split("_")[2] for name in os.listdir("output")] == ["rank1"]
