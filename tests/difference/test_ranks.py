"""Dumps of real processes with real collectives: each planted fault is attributed to its op, rank and stage."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from opassay.pipeline.cli.main import main

from tests.difference.plants import PLANTS
from tests.difference.searching import only, search, told

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dumps of every scenario."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-W", "ignore", "-m", "tests.difference.run_ranks", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def sides(dumps: Path, name: str, mode: str) -> tuple[Path, Path]:
    return dumps / name / "target" / mode / "step0", dumps / name / "golden" / mode / "step0"


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name, plant in PLANTS.items() for mode in plant.modes])
def test_a_planted_fault_is_attributed(dumps: Path, tmp_path: Path, name: str, mode: str) -> None:
    plant = PLANTS[name]
    found = search(*sides(dumps, name, mode), tmp_path / "out")
    assert [told(node) for node in found.nodes] == list(plant.first)
    assert [told(node) for node in found.independent] == list(plant.then)


@pytest.mark.parametrize("name", ["reduction", "two", "backward"])
def test_tensor_dumps_are_analysed_on_their_statistics(dumps: Path, tmp_path: Path, name: str) -> None:
    mode = "tensor" if "tensor" in PLANTS[name].modes else "statistics"
    target, golden = sides(dumps, name, mode)
    assert main(["compare", "-tp", str(target), "-gp", str(golden), "-o", str(tmp_path), "-da", "--workers", "1"]) == 0
    document = only(tmp_path, "diff_analyze_*.json")
    named = [
        (int(rank.removeprefix("rank_")), node["op_name"], node["origin"], node["stage"])
        for rank, nodes in document.items()
        if rank != "independent"
        for node in nodes
    ]
    assert named == list(PLANTS[name].first)
    then = [(node["rank"], node["op_name"], node["origin"], node["stage"]) for node in document.get("independent", [])]
    assert then == list(PLANTS[name].then)


def test_the_files_do_not_depend_on_the_number_of_workers(
    dumps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, golden = sides(dumps, "two", "statistics")
    written = {}
    for workers in ("1", "2"):
        folder = tmp_path / workers
        main(["compare", "-tp", str(target), "-gp", str(golden), "-o", str(folder), "-da", "--workers", workers])
        panel = capsys.readouterr().out.partition("first difference")[2].partition("files")[0]
        files = {re.sub(r"\d{14}", "", path.name): path.read_bytes() for path in folder.iterdir()}
        assert len(files) == 9
        written[workers] = files, panel
    assert written["1"] == written["2"]


def test_the_panel_names_rank_op_and_reason(dumps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, golden = sides(dumps, "sent", "statistics")
    main(["compare", "-tp", str(target), "-gp", str(golden), "-o", str(tmp_path), "--workers", "1"])
    told_so = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "first difference rank0 Distributed.send.0.forward.input.0 this rank gives other values" in told_so
    assert not list(tmp_path.glob("*.json"))
