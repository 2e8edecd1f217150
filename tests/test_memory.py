"""Memory of the whole process tree, measured from outside: bounded by the budget, not by the dump."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from opassay.pipeline.run.budget import FLOOR_BYTES, WINDOW_BYTES, WORKER_BYTES

from benchmarks.make_dumps import DumpSpec, build
from benchmarks.process_tree import Usage, measure
from tests.dumps import call, saved, write_dump

pytestmark = pytest.mark.slow

MB = 1_000_000
TENSOR_BYTES = 64 << 20
# a dump.json of 60 MB a side: both tables, their join and one slice of rows; measured 378 to 391 MB, the rest is margin
STATISTICS_BYTES = 520 * MB


def run(target: Path, golden: Path, out: Path, workers: int, *options: str) -> Usage:
    command = [sys.executable, "-m", "opassay", "compare", "-tp", str(target), "-gp", str(golden), "-o", str(out)]
    command += ["--workers", str(workers), "--quiet"]
    log = out.with_suffix(".log")
    usage = measure([*command, *options], log=log, cap_s=300)
    assert usage.status == 0, log.read_text()
    assert len(list(out.iterdir())) == 1
    return usage


@pytest.fixture(scope="module")
def tensor_dumps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two ops with tensors of 64 MiB, 16 windows each; 512 MiB to read, less on the disk as inputs are shared."""
    root = tmp_path_factory.mktemp("large")
    base = np.random.default_rng(1).normal(size=TENSOR_BYTES // 4).astype(np.float32).reshape(-1, 1024)
    assert base.nbytes >= 16 * WINDOW_BYTES
    paths = []
    for side, factor in (("target", np.float32(1 + 2**-12)), ("golden", np.float32(1))):
        leaf = saved(root / side, "Torch.mul.0.forward.input.0", base * factor)
        data = {f"Torch.mul.{number}.forward": call([leaf], [leaf]) for number in range(2)}
        paths.append(write_dump(root / side, data, task="tensor"))
    return paths[0], paths[1]


@pytest.fixture(scope="module")
def compiled(tensor_dumps: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Kernels are in the cache: compiling takes memory of its own, once for each machine."""
    run(*tensor_dumps, tmp_path_factory.mktemp("warm") / "out", 1)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("way", ["map", "read"])
@pytest.mark.parametrize("workers", [1, 2])
def test_tensors_of_any_size_fit_into_the_budget(
    workers: int, way: str, tensor_dumps: tuple[Path, Path], tmp_path: Path
) -> None:
    budget = FLOOR_BYTES + workers * WORKER_BYTES
    usage = run(*tensor_dumps, tmp_path / "out", workers, "--memory", str(budget), "--io", way)
    print(f"peak {usage.peak_bytes / MB:.0f} MB of {budget / MB:.0f} MB, {workers} workers, {way}")
    assert usage.peak_bytes < budget


def test_a_large_statistics_dump_is_bounded(tmp_path: Path) -> None:
    build(DumpSpec("statistics", json_mb=60, ranks=1), tmp_path / "dumps")
    target, golden = (next((tmp_path / "dumps" / side).rglob("dump.json")) for side in ("target", "golden"))
    assert all(os.path.getsize(path) > 50 * MB for path in (target, golden))
    usage = run(target, golden, tmp_path / "out", 1)
    print(f"peak {usage.peak_bytes / MB:.0f} MB for two dump.json of {os.path.getsize(target) / MB:.0f} MB")
    assert usage.peak_bytes < STATISTICS_BYTES
