"""Benchmarks: the dumps they make are what they claim, and the harness measures and tells."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import __main__ as command_line
from benchmarks.harness import Setup, run
from benchmarks.limits import read_files, sum_memory
from benchmarks.make_dumps import DumpSpec, Numbers, as_bfloat16, build, main, refill_cache
from benchmarks.process_tree import measure
from benchmarks.pt_files import STORAGES, write_pt

WIDTHS = {
    "bfloat16": np.uint16,
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
    "int64": np.int64,
    "int32": np.int32,
    "bool": np.bool_,
}


@pytest.mark.parametrize("dtype", STORAGES)
@pytest.mark.parametrize("shape", [(), (3, 4), (2, 1, 5), (0, 3)])
def test_torch_loads_what_is_written(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    data = (np.arange(math.prod(shape)) % 2).astype(WIDTHS[dtype])
    path = tmp_path / "Torch.mul.0.forward.input.0.pt"
    write_pt(path, data, dtype, shape)
    loaded = torch.load(path, weights_only=True)
    assert loaded.dtype == getattr(torch, dtype)
    assert tuple(loaded.shape) == shape
    assert loaded.is_contiguous()
    stored = loaded.view(torch.uint16) if dtype == "bfloat16" else loaded
    np.testing.assert_array_equal(stored.numpy().reshape(-1), data)
    if data.size:
        assert torch.load(path, weights_only=True, mmap=True).data_ptr() % 64 == 0


def test_wrong_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="do not fill"):
        write_pt(tmp_path / "x.pt", np.zeros(5, np.float32), "float32", (2, 3))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**100), max_value=2.0**100),
        min_size=1,
    )
)
def test_bfloat16_rounds_as_torch_does(values: list[float]) -> None:
    array = np.array(values, dtype=np.float32)
    expected = torch.from_numpy(array).to(torch.bfloat16).view(torch.uint16).numpy()
    np.testing.assert_array_equal(as_bfloat16(array), expected)


def test_numbers_go_round_the_pool() -> None:
    numbers = Numbers(0, 10)
    whole = numbers.take(0, 10)
    np.testing.assert_array_equal(numbers.take(7, 6), np.r_[whole[7:], whole[:3]])
    assert len(numbers.take(3, 25)) == 25


def test_tensor_dump_agrees_with_its_json(tmp_path: Path) -> None:
    info = build(DumpSpec("tensor", gb=0.0005, model="tiny", fault_every=5), tmp_path / "a")
    faults = 0
    for side in ("target", "golden"):
        rank = tmp_path / "a" / side / "step0" / "rank0"
        dump = json.loads((rank / "dump.json").read_text())
        assert dump["task"] == "tensor"
        slots = 0
        for record in dump["data"].values():
            for leaf in [*record.get("input_args", []), *record.get("input", []), *record["output"]]:
                slots += 1
                tensor = torch.load(rank / "dump_tensor_data" / leaf["data_name"], weights_only=True)
                assert str(tensor.dtype) == leaf["dtype"]
                assert list(tensor.shape) == leaf["shape"]
                assert tensor.max().item() == pytest.approx(leaf["Max"], rel=1e-2)
        assert slots == info.pairs
    for path in (tmp_path / "a" / "target").rglob("*.output.0.pt"):
        twin = tmp_path / "a" / "golden" / path.relative_to(tmp_path / "a" / "target")
        target, golden = torch.load(path).double().flatten(), torch.load(twin).double().flatten()
        faults += bool((target - golden).norm() > 0.1 * golden.norm())
    assert faults >= 1
    assert refill_cache(tmp_path / "a") > info.tensor_bytes


@pytest.mark.parametrize("kind", ["small", "statistics", "md5"])
def test_same_options_same_bytes(tmp_path: Path, kind: str) -> None:
    spec = DumpSpec(kind, pairs=12, json_mb=0.05, ranks=2)  # type: ignore[arg-type]
    first, second = build(spec, tmp_path / "a"), build(spec, tmp_path / "b")
    assert first == second
    names = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert any("rank1" in str(name) for name in names)
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    dump = json.loads((tmp_path / "a" / "target" / "step0" / "rank0" / "dump.json").read_text())
    assert ("md5" in json.dumps(dump)) == (kind == "md5")
    stacks = json.loads((tmp_path / "a" / "target" / "step0" / "rank0" / "stack.json").read_text())
    listed = {name for names, _ in stacks.values() for name in names}
    assert listed == {name for name in dump["data"] if name.endswith(".forward")}


def test_a_filled_folder_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_text("")
    assert main(["small", "--pairs", "2", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_measure_counts_children(tmp_path: Path) -> None:
    child = "import time\nx = bytearray(80_000_000)\nt = time.process_time()\nwhile time.process_time() - t < 0.4: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    usage = measure([sys.executable, "-c", parent], log=tmp_path / "log", cap_s=60)
    assert usage.status == 0
    assert usage.cpu_s >= 0.4
    assert usage.peak_bytes >= 80_000_000
    assert not usage.capped


def test_measure_ends_what_runs_too_long(tmp_path: Path) -> None:
    usage = measure([sys.executable, "-c", "import time; time.sleep(60)"], log=tmp_path / "log", cap_s=0.5)
    assert usage.capped
    assert usage.status < 0
    assert usage.wall_s < 30


def test_limits_move_all_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 2_500_000)
    (tmp_path / "b").write_bytes(b"")
    limit = read_files([tmp_path / "a", tmp_path / "b"])
    assert limit.bytes == 2_500_000
    assert limit.gb_per_s > 0
    assert sum_memory(1 << 20).bytes == 1 << 20


def test_wrong_rival_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command_line.main(["--rival", str(tmp_path / "none")])
    assert stopped.value.code == 2
    assert "BENCH_RIVAL" in capsys.readouterr().err


@pytest.mark.slow
def test_harness_measures_ours_and_a_rival(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rival = tmp_path / "msprobe"
    rival.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "msprobe 0.0.1"\nexit 0\n')
    rival.chmod(0o755)
    assert run(Setup(scale="tiny", rounds=1, cap_s=300, rival=rival, folder=tmp_path / "build")) == 0
    printed = capsys.readouterr().out
    assert "large tensors   opassay -w2" in printed
    assert "rival 0.0.1" in printed
    records = [json.loads(line) for line in (tmp_path / "build" / "bench.jsonl").read_text().splitlines()]
    ours = [record for record in records if record["tool"] == "opassay"]
    rows = {"--help", "2 pairs", "1 statistics op", "large tensors", "small tensors", "statistics"}
    assert {record["row"] for record in ours} == rows
    for record in ours:
        assert record["status"] == 0
        assert record["wall_s"] > 0
        assert record["cache"]
        assert record["versions"]["opassay"]
    assert sum(record["tool"] == "rival" for record in records) == 6
    assert os.listdir(tmp_path / "build" / "bench")
