"""Bad tensor files, output folders, disks and workers: one clear line, never a traceback, the rest is compared."""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands import OP, OTHER, VALUES, Runner, rows, tensors, three_ranks


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


# --- tensor files ------------------------------------------------------------------------------------------------------


def missing(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def text_file(path: Path) -> None:
    path.write_text("no tensor")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def objects(path: Path) -> None:
    np.save(path, np.array([{"a": 1}, None], dtype=object), allow_pickle=True)


def texts(path: Path) -> None:
    np.save(path, np.array(["a", "b"]))


def other_shape(path: Path) -> None:
    np.save(path, np.zeros((3, 3), np.float32))


@pytest.mark.parametrize("spoil", [missing, empty, cut, text_file, folder, loop, objects, texts, other_shape])
@pytest.mark.parametrize("side", [0, 1])
def test_a_tensor_file_that_cannot_be_used(
    spoil: Callable[[Path], None], side: int, run: Runner, tmp_path: Path
) -> None:
    paths = tensors(tmp_path)
    name = f"{OP}.output.0.npy"
    spoil(paths[side].parent / "dump_tensor_data" / name)
    status, lines = run(*paths)
    found = {row["NPU Name"]: row for row in rows()}
    bad = found.pop(f"{OP}.output.0")
    assert bad["Result"] in ("warning", "error")
    assert {row["Result"] for row in found.values()} == {"pass"}
    if spoil is other_shape:
        assert (status, lines, bad["Cosine"]) == (0, [], "shape unmatched")
        return
    assert status == 3
    (line,) = lines
    assert "1 tensor pairs could not be read" in line
    assert name in line
    assert bad["Cosine"] == "unsupported"
    assert name in bad["Err_message"]


@pytest.mark.parametrize(
    "name", ["../secret.npy", "/etc/hostname", "sub/../../secret.npy", "..", "a\x00b.npy", "x.txt"]
)
def test_a_data_name_never_leads_out_of_its_folder(name: str, run: Runner, tmp_path: Path) -> None:
    target, golden = tensors(tmp_path)
    np.save(tmp_path / "target" / "secret.npy", VALUES)
    document = json.loads(target.read_text())
    document["data"][OP]["output"][0]["data_name"] = name
    target.write_text(json.dumps(document))
    status, lines = run(target, golden)
    assert status == 3
    assert len(lines) == 1
    found = rows()
    assert [row["Result"] for row in found] == ["pass", "warning", "pass", "pass"]
    assert found[1]["Cosine"] == "unsupported"


@pytest.mark.parametrize("side", [0, 1])
def test_a_tensor_folder_that_is_gone(side: int, run: Runner, tmp_path: Path) -> None:
    paths = tensors(tmp_path)
    gone = paths[side].parent / "dump_tensor_data"
    shutil.rmtree(gone)
    status, (line,) = run(*paths)
    assert status == 3
    assert f"{gone} is missing" in line
    assert "compared on the statistics" in line
    assert "Max diff" in rows()[0]


def test_a_file_that_asks_to_be_run_is_not_run(run: Runner, tmp_path: Path) -> None:
    import pickle

    class Harm:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.mkdir, (str(tmp_path / "harm"),)

    paths = tensors(tmp_path)
    store = paths[0].parent / "dump_tensor_data"
    array = np.empty(1, dtype=object)
    array[0] = Harm()
    np.save(store / f"{OP}.output.0.npy", array, allow_pickle=True)
    (store / "harm.pt").write_bytes(pickle.dumps(Harm()))
    document = json.loads(paths[0].read_text())
    document["data"][OTHER]["output"][0]["data_name"] = "harm.pt"
    paths[0].write_text(json.dumps(document))
    status, _ = run(*paths)
    assert status == 3
    assert not (tmp_path / "harm").exists()


# --- output --------------------------------------------------------------------------------------------------------------


def test_an_output_folder_that_is_a_file(ranks: tuple[Path, Path], run: Runner, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    for place in ("taken", "taken/below"):
        status, (line,) = run(*ranks, "-o", place)
        assert status == 2
        assert line.startswith(f"opassay: error: cannot write {place}: ")
        assert "-o" in line


def test_an_output_folder_that_cannot_be_written(
    ranks: tuple[Path, Path], run: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "locked").mkdir()

    def refuse(self: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "touch", refuse)  # a user without rights, whoever runs this test
    status, (line,) = run(*ranks, "-o", "locked")
    assert status == 2
    assert line == "opassay: error: cannot write locked: no permission to write; choose a folder of your own with -o"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(("option", "suffix"), [((), ".csv"), (("--xlsx",), ".xlsx"), (("--parquet",), ".parquet")])
def test_a_full_disk(
    option: tuple[str, ...], suffix: str, ranks: tuple[Path, Path], run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full while the second rank is written: that rank says so, and nothing half is left."""
    from opassay.pipeline.report import files

    real = files.WholeFile.__init__

    def open_on_a_full_disk(self: files.WholeFile, path: Path) -> None:
        real(self, path)
        if "rank1" in path.name and path.suffix == suffix:
            self.file.close()
            self.temporary.unlink()
            self.temporary.symlink_to("/dev/full")
            self.file = open(self.temporary, "wb")  # noqa: SIM115

    monkeypatch.setattr(files.WholeFile, "__init__", open_on_a_full_disk)
    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: ignored.append(told.exc_value))
    status, (line,) = run(*ranks, *option)
    gc.collect()
    assert ignored == []  # Python would print each of them with a traceback
    assert status == 3
    assert line.startswith("rank1 is not compared: cannot write ")
    assert "the disk is full; free some space" in line
    left = sorted(os.listdir("output"))
    assert not [name for name in left if "rank1" in name or name.startswith(".")]
    assert {name.split("_")[2] for name in left} == {"rank0", "rank2"}


def test_a_disk_that_is_full_from_the_start_leaves_nothing(
    ranks: tuple[Path, Path], run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header of the csv is the first thing written; a failure there removes the temporary file too."""
    from opassay.pipeline.report import files

    def refuse(self: files.WholeFile, data: bytes | memoryview) -> int:
        raise files.output_error(self.path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    monkeypatch.setattr(files.WholeFile, "write", refuse)
    status, lines = run(*ranks)
    assert status == 2
    assert len(lines) == 3
    assert all("the disk is full" in line for line in lines)
    assert os.listdir("output") == []


# --- processes -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_workers_and_a_bad_rank(ranks: tuple[Path, Path], run: Runner) -> None:
    (ranks[0] / "rank1" / "dump.json").write_text("{")
    status, lines = run(*ranks, workers=2)
    assert status == 3
    assert len(lines) == 1
    assert lines[0].startswith("rank1 is not compared: ")
    assert sorted(name.split("_")[2] for name in os.listdir("output")) == ["rank0", "rank2"]


@pytest.mark.slow
def test_a_rank_that_kills_its_worker_costs_that_rank_alone(
    ranks: tuple[Path, Path], run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opassay.pipeline.run import compare as running

    monkeypatch.setattr(running, "_in_worker", die_on_rank1)
    status, lines = run(*ranks, workers=2)
    assert status == 3
    (line,) = lines
    assert line.startswith("rank1 is not compared: the worker process died twice")
    assert "--workers" in line
    assert sorted(name.split("_")[2] for name in os.listdir("output")) == ["rank0", "rank2"]


def die_on_rank1(task: Any) -> Any:
    """What a worker does when memory is out."""
    from opassay.pipeline.run.compare import compare_and_write
    from opassay.pipeline.run.pool import Pool

    if task.pair.label == "rank1":
        os.kill(os.getpid(), signal.SIGKILL)
    return compare_and_write(task, Pool(1), None)


def test_a_bug_of_ours_costs_one_rank_and_says_what_to_do(
    ranks: tuple[Path, Path], run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opassay.pipeline.run import rank

    real = rank.compare_pair

    def fail(pair: Any, *more: Any, **options: Any) -> Any:
        if pair.label == "rank1":
            raise ZeroDivisionError("division\nby zero")
        return real(pair, *more, **options)

    monkeypatch.setattr(rank, "compare_pair", fail)
    status, lines = run(*ranks)
    assert status == 3
    assert lines == [
        "rank1 is not compared: unexpected ZeroDivisionError: division by zero; run with --verbose for the traceback"
    ]
    assert len(os.listdir("output")) == 2
