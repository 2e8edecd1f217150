"""Reports of the command line: names, formats, and the options that change them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from opassay.pipeline.cli.main import main

from benchmarks.pt_files import write_pt
from tests.dumps import call, scalar, tensor, write_dump

OP = "Torch.mul.0.forward"
GOOD, BAD = tensor(stats=(1, -1, 0, 10)), tensor(stats=(1, -1, 0, 20))
STAMP = r"\d{14}"

Tree = Callable[..., tuple[Path, Path]]


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


def test_names_for_single_files(tree: Tree) -> None:
    target, golden = tree()
    assert compare(target / "rank0" / "dump.json", golden / "rank0" / "dump.json") == 0
    (name,) = reports()
    assert re.fullmatch(rf"compare_result_{STAMP}\.csv", name)


def test_names_for_ranks_and_procs(tree: Tree, tmp_path: Path) -> None:
    assert compare(*tree(GOOD, GOOD)) == 0
    assert [re.sub(STAMP, "T", name) for name in reports()] == [f"compare_result_rank{n}_T.csv" for n in (0, 1)]
    assert len({re.findall(STAMP, name)[0] for name in reports()}) == 1  # one timestamp a run
    for side, label in (("t", "proc77"), ("g", "proc99")):
        write_dump(tmp_path / side / label, {OP: call([GOOD], [GOOD])})
    assert compare(tmp_path / "t", tmp_path / "g", "-o", "procs") == 0
    assert [re.sub(STAMP, "T", name) for name in reports("procs")] == ["compare_result_proc77_T.csv"]


def test_several_steps_have_a_folder_each(tmp_path: Path) -> None:
    for side in ("t", "g"):
        for step in (0, 12):
            write_dump(tmp_path / side / f"step{step}" / "rank0", {OP: call([GOOD], [GOOD])})
    assert compare(tmp_path / "t", tmp_path / "g") == 0
    assert [re.sub(STAMP, "T", name) for name in reports()] == [f"step{n}/compare_result_rank0_T.csv" for n in (0, 12)]


def test_names_for_debug_saves(tmp_path: Path) -> None:
    for side in ("t", "g"):
        write_dump(tmp_path / side / "rank0", {"pos.0.debug": {"k": GOOD}}, name="debug.json", level="debug")
        write_dump(tmp_path / side / "rank0", {OP: call([GOOD], [GOOD])})
    assert compare(tmp_path / "t", tmp_path / "g") == 0
    names = [re.sub(STAMP, "T", name) for name in reports()]
    assert names == ["compare_result_rank0_T.csv", "debug_compare_result_rank0_T.csv"]
    files = [tmp_path / side / "rank0" / "debug.json" for side in ("t", "g")]
    assert compare(files[0], files[1], "-o", "one") == 0
    (name,) = reports("one")
    assert re.fullmatch(rf"debug_compare_result_{STAMP}\.csv", name)
    assert [row["NPU Name"] for row in rows_of(Path("one", name))] == ["pos.0.debug.k"]


def test_csv_bytes(tree: Tree) -> None:
    target, golden = tree(BAD)
    assert compare(target, golden) == 0
    data = Path("output", reports()[0]).read_bytes()
    assert data.startswith(b"NPU Name,Bench Name,NPU Dtype,")
    assert data.endswith(b"\n")
    assert b"\r" not in data
    rows = rows_of(Path("output", reports()[0]))
    assert [row["Result"] for row in rows] == ["pass", "error"]
    assert all(isinstance(json.loads(row["Err_message"]), list) for row in rows)


def test_xlsx_stands_in_place_of_csv(tree: Tree) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    assert compare(*tree(BAD), "--xlsx") == 0
    (name,) = reports()
    assert re.fullmatch(rf"compare_result_rank0_{STAMP}\.xlsx", name)
    sheet = openpyxl.load_workbook(Path("output", name)).active
    assert sheet.title == "Sheet1"
    assert [cell.value for cell in sheet[1]][:2] == ["NPU Name", "Bench Name"]
    assert sheet.max_row == 3


def test_parquet_stands_beside_the_report(tree: Tree) -> None:
    import polars as pl

    assert compare(*tree(BAD), "--parquet") == 0
    assert [Path(name).suffix for name in reports()] == [".csv", ".parquet"]
    frame = pl.read_parquet(Path("output", reports()[1]))
    assert frame["result"].to_list() == ["pass", "error"]


FORMULAS = ["=1+1", "+cmd", "-x", "@sum", "-1.5", "＝a"]


def test_csv_safe(tmp_path: Path) -> None:
    for side in ("t", "g"):
        write_dump(tmp_path / side, {OP: call([scalar(text) for text in FORMULAS], [])})
    for words, folder in (((), "plain"), (("--csv-safe",), "safe")):
        assert compare(tmp_path / "t" / "dump.json", tmp_path / "g" / "dump.json", "-o", folder, *words) == 0
    plain, safe = (
        [row["NPU max"] for row in rows_of(Path(folder, reports(folder)[0]))] for folder in ("plain", "safe")
    )
    assert plain == FORMULAS
    assert safe == ["'=1+1", "'+cmd", "'-x", "'@sum", "-1.5", "'＝a"]


def test_strict_and_document_rules_reach_the_verdict(tmp_path: Path) -> None:
    flipped = tensor(stats=(1, -5, -2, 10))
    for side, leaf in (("t", flipped), ("g", tensor(stats=(5, -1, 2, 10)))):
        write_dump(tmp_path / side, {OP: call([GOOD], [leaf])})
    paths = (tmp_path / "t" / "dump.json", tmp_path / "g" / "dump.json")
    assert compare(*paths, "--fail-on", "warning") == 1
    assert compare(*paths, "--fail-on", "warning", "--document-rules", "-o", "b") == 0
    bits = np.arange(0x3F80, 0x3FC0, dtype=np.uint16)  # bfloat16 from 1 on; one step is up to 0.8 %
    for side, step in (("tt", 1), ("gg", 0)):
        store = tmp_path / side / "dump_tensor_data"
        store.mkdir(parents=True)
        write_pt(store / "in.pt", bits, "bfloat16", (64,))
        write_pt(store / "out.pt", bits + np.uint16(step), "bfloat16", (64,))
        leaves = [tensor(dtype="torch.bfloat16", shape=(64,), data_name=f"{name}.pt") for name in ("in", "out")]
        write_dump(tmp_path / side, {OP: call(leaves[:1], leaves[1:])}, task="tensor")
    paths = (tmp_path / "tt" / "dump.json", tmp_path / "gg" / "dump.json")
    loose = compare(*paths, "--fail-on", "error", "-o", "c")
    strict = compare(*paths, "--fail-on", "error", "--strict", "-o", "d")
    row = rows_of(next(Path("c").iterdir()))[1]
    assert float(row["One Thousandth Err Ratio"]) < 0.6
    assert (row["Result"], "within rounding" in row["Err_message"]) == ("warning", True)
    assert (loose, strict) == (0, 1)
