"""From files to metric rows: right numbers, one row a pair whatever happens, the same bytes however the work is cut."""

from __future__ import annotations

import functools
import math
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from opassay.pipeline.measure import tensors as measuring
from opassay.pipeline.measure import work
from opassay.pipeline.measure.tensors import measure_tensors
from opassay.pipeline.run.budget import Budget
from opassay.pipeline.run.pool import Pool
from opassay.schemas.metric_rows import METRIC_ROWS
from opassay.schemas.vocab import MetricState

pytestmark = pytest.mark.slow  # kernels compile on the first run

BUDGET = Budget(1 << 30, 1)


class Dumps:
    """Two folders of tensor files and the pairs between them."""

    def __init__(self, root: Path) -> None:
        self.target, self.golden = root / "target", root / "golden"
        self.target.mkdir()
        self.golden.mkdir()
        self.names: list[tuple[str | None, str | None]] = []

    def add(self, target: Any, golden: Any) -> None:
        name = f"op.{len(self.names)}.npy"
        np.save(self.target / name, target, allow_pickle=True)
        np.save(self.golden / name, golden, allow_pickle=True)
        self.names.append((name, name))

    def measure(self, pool: Pool | None = None, **options: Any) -> pl.DataFrame:
        pairs = pl.DataFrame(
            {
                "pair": range(len(self.names)),
                "target_file": [target for target, _ in self.names],
                "golden_file": [golden for _, golden in self.names],
            },
            schema={"pair": pl.UInt32, "target_file": pl.String, "golden_file": pl.String},
        )
        options.setdefault("budget", BUDGET)
        return measure_tensors(pairs, self.target, self.golden, pool=pool or Pool(1), **options)


@pytest.fixture
def dumps(tmp_path: Path) -> Dumps:
    return Dumps(tmp_path)


def noise(count: int, kind: str = "f4", seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal(count).astype(kind)


def test_metrics_agree_with_plain_float64(dumps: Dumps) -> None:
    golden = noise(10_001)
    target = (golden * (1 + 3e-3 * noise(10_001, seed=2))).astype("f4")
    dumps.add(target.reshape(73, 137), golden.reshape(73, 1, 137))
    frame = dumps.measure()
    assert frame.schema == pl.Schema(METRIC_ROWS)
    row = frame.row(0, named=True)
    t, g = target.astype("f8"), golden.astype("f8")
    relative = abs(t - g) / abs(g)
    assert row["state"] == MetricState.COMPUTED
    assert row["cosine"] == pytest.approx(t @ g / math.sqrt((t @ t) * (g @ g)), rel=1e-12)
    assert row["euclidean"] == pytest.approx(math.sqrt(((t - g) ** 2).sum()), rel=1e-12)
    assert row["error_max"] == abs(t - g).max()
    assert row["relative_max"] == pytest.approx(relative.max(), rel=1e-12)
    assert row["thousandth"] == pytest.approx((relative < 1e-3).mean(), abs=2e-4)
    assert row["five_thousandth"] == pytest.approx((relative < 5e-3).mean(), abs=2e-4)
    assert row["size"] == 10_001
    assert row["golden_abs_max"] == abs(g).max()
    assert row["worst_index"] == abs(t - g).argmax()
    assert row["within_rounding"] is False
    assert row["bytes"] == 2 * 4 * 10_001
    assert (row["target_found"], row["golden_found"]) == ("torch.float32 [73, 137]", "torch.float32 [73, 1, 137]")


def test_states_of_pairs_that_are_not_computed(dumps: Dumps) -> None:
    dumps.add(np.float32(2.0), np.float32([[2.5]]))
    dumps.add(np.zeros((0, 3), "f4"), np.zeros((0, 3), "f4"))
    dumps.add(np.zeros((0, 3), "f4"), np.zeros((0, 3), "f8"))
    dumps.add(np.zeros((0, 3), "f4"), np.zeros((0, 4), "f4"))
    dumps.add(noise(6).reshape(2, 3), noise(6).reshape(3, 2))
    dumps.add(np.array(["x"]), noise(1))
    dumps.add(noise(6), noise(6))
    (dumps.golden / "op.6.npy").unlink()
    dumps.add(noise(6), noise(6))
    (dumps.golden / "op.7.npy").write_bytes((dumps.target / "op.7.npy").read_bytes()[:-5])
    dumps.names += [(None, "op.0.npy"), (None, None), ("../golden/op.0.npy", "op.0.npy"), ("op.0.npy", None)]
    frame = dumps.measure()
    state = MetricState
    assert frame["state"].to_list() == [
        state.ONE_ELEMENT, state.EMPTY_EQUAL, state.SHAPE, state.SHAPE, state.SHAPE, state.UNREADABLE,
        state.FILE_MISSING, state.UNREADABLE, state.NO_FILE_RECORDED, state.NO_FILE_RECORDED, state.UNREADABLE,
        state.NO_FILE_RECORDED,
    ]  # fmt: skip
    reasons = frame["reason"].to_list()
    assert reasons[0] is reasons[1] is None
    assert reasons[2] == "no elements, and dtypes differ: float32 against float64"
    assert reasons[4] == "shapes in the files differ: [2, 3] against [3, 2]"
    assert reasons[5] == "target file op.5.npy: not a tensor: holds text"
    assert reasons[6].startswith("golden file op.6.npy: no such file in ")
    assert reasons[7].startswith("golden file op.7.npy: cut short")
    assert reasons[8:10] == ["the target recorded no tensor file", "both sides recorded no tensor file"]
    assert "not a plain file name" in reasons[10]
    one = frame.row(0, named=True)
    assert (one["cosine"], one["euclidean"], one["error_max"], one["relative_max"]) == (None, None, 0.5, 0.2)
    assert frame["size"].to_list()[1:] == [None] * 11
    found = list(zip(frame["target_found"], frame["golden_found"], strict=True))
    assert found[:3] == [
        ("torch.float32 []", "torch.float32 [1, 1]"),
        ("torch.float32 [0, 3]", "torch.float32 [0, 3]"),
        ("torch.float32 [0, 3]", "torch.float64 [0, 3]"),
    ]
    assert found[4] == ("torch.float32 [2, 3]", "torch.float32 [3, 2]")
    assert found[5:] == [(None, None)] * 7


def test_dtypes_may_differ(dumps: Dumps) -> None:
    values = np.arange(50)
    for kind in ("f8", "i8", "c8"):
        dumps.add(values.astype("f4"), values.astype(kind))
    frame = dumps.measure()
    assert frame["state"].to_list() == [MetricState.COMPUTED] * 3
    assert frame["error_max"].to_list() == [0.0] * 3


def test_rounding_is_asked_only_where_the_ratio_is_low(dumps: Dumps) -> None:
    golden = (1 + np.arange(3000) % 1024 / 1024).astype("f2")
    step = np.nextafter(golden, np.float16(4))
    far = np.nextafter(np.nextafter(step, np.float16(4)), np.float16(4))
    dumps.add(golden, golden)
    dumps.add(step, golden)
    coarse = np.where(np.arange(3000) % 2 == 0, far * np.float16(1.01), golden)
    dumps.add(coarse, golden)
    frame = dumps.measure()
    asked = frame["thousandth"] < 0.6
    assert (frame["within_rounding"].is_not_null() == asked).all()
    assert frame["within_rounding"][2] is False


def test_huge_and_tiny_numbers_are_measured_again_with_scales(dumps: Dumps) -> None:
    base = noise(5000, "f8")
    dumps.add(base * 1e200, base * 1e200 * 1.5)
    dumps.add(base * 1e-200, base * -1e-200)
    frame = dumps.measure()
    assert frame["cosine"].to_list() == pytest.approx([1.0, -1.0], abs=1e-12)
    assert frame["euclidean"][0] == pytest.approx(0.5e200 * math.sqrt((base**2).sum()), rel=1e-9)
    assert frame["euclidean"][1] == pytest.approx(2e-200 * math.sqrt((base**2).sum()), rel=1e-9)


@pytest.mark.parametrize("mode", ["map", "read"])
def test_a_file_that_shrinks_costs_only_its_pair(mode: str, dumps: Dumps, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the calling process too, where a mapped file would end the run."""
    for _ in range(3):
        dumps.add(noise(400_000), noise(400_000, seed=2))
    opened = work.open_tensor

    def open_and_cut(path: str, *, mapped: bool) -> Any:
        assert not mapped
        file = opened(path, mapped=mapped)
        if path == str(dumps.golden / "op.1.npy"):
            os.truncate(path, 100_000)
        return file

    monkeypatch.setattr(work, "open_tensor", open_and_cut)
    frame = dumps.measure(io=mode)
    assert frame["state"].to_list() == [MetricState.COMPUTED, MetricState.UNREADABLE, MetricState.COMPUTED]
    assert frame["reason"][1] == "golden file op.1.npy: shrank while it was read"


def test_large_files_get_a_process_of_their_own(dumps: Dumps, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed(dumps)
    expected = dumps.measure()
    seen: list[tuple[bool, bool]] = []
    inner = measuring._measure

    def watched(pool: Pool, place: work.Place, *given: Any) -> None:
        seen.append((pool.inline, place.mapped))
        inner(pool, place, *given)

    monkeypatch.setattr(measuring, "_measure", watched)
    assert same(dumps.measure(io="map"), expected)
    monkeypatch.setattr(measuring, "_APART_BYTES", 1 << 20)
    assert same(dumps.measure(io="map"), expected)
    assert same(dumps.measure(io="read"), expected)
    assert seen == [(True, False), (False, True), (True, False)]


def test_progress_adds_up(dumps: Dumps) -> None:
    for size in (3, 300, 30_000):
        dumps.add(noise(size), noise(size, seed=3))
    seen: list[tuple[int, int]] = []
    frame = dumps.measure(on_progress=lambda nbytes, pairs: seen.append((nbytes, pairs)))
    assert sum(pairs for _, pairs in seen) == 3
    assert sum(nbytes for nbytes, _ in seen) == frame["bytes"].sum()


def test_no_pairs_give_an_empty_frame(dumps: Dumps) -> None:
    frame = dumps.measure()
    assert frame.schema == pl.Schema(METRIC_ROWS)
    assert frame.height == 0


def mixed(dumps: Dumps) -> None:
    """Small and large pairs, one of them cut, one that needs scales, one within rounding."""
    for size in (1, 2, 4095, 4097, 100_003):
        dumps.add(noise(size), noise(size, seed=2))
    many = np.random.default_rng(5).integers(-100, 100, 4_300_001, dtype=np.int8)
    near = many.copy()
    near[4_250_000:] += 1
    dumps.add(near, many)
    dumps.add(np.full(4_300_000, 1e200), np.full(4_300_000, 3e200))
    half = (1 + np.arange(4_300_000) % 1024 / 1024).astype("f2")
    dumps.add(np.nextafter(half, np.float16(4)), half)
    dumps.add(noise(200_000).reshape(400, 500), np.asfortranarray(noise(200_000, seed=9).reshape(400, 500)))
    dumps.add(noise(7), noise(8))


def test_rows_do_not_depend_on_how_the_work_is_cut(dumps: Dumps, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed(dumps)
    expected = dumps.measure()
    assert expected["state"].to_list() == [MetricState.ONE_ELEMENT] + [MetricState.COMPUTED] * 8 + [MetricState.SHAPE]
    tiny = Budget(1 << 30, 1, window_bytes=1)
    assert same(dumps.measure(io="read"), expected)
    assert same(dumps.measure(budget=Budget(1 << 30, 1, window_bytes=100_000)), expected)
    monkeypatch.setattr(measuring, "PART_BYTES", 1 << 20)
    assert same(dumps.measure(), expected)
    for workers in (2, 3):
        with Pool(workers) as pool:
            assert same(dumps.measure(pool), expected)
            assert same(dumps.measure(pool, io="read", budget=tiny), expected)


def same(frame: pl.DataFrame, expected: pl.DataFrame) -> bool:
    """Byte for byte: nan equals nan, and 0.0 is not -0.0."""
    columns = zip(frame.iter_columns(), expected.iter_columns(), strict=True)
    return all(repr(one.to_list()) == repr(other.to_list()) for one, other in columns)


def kill_on(function: Callable[[Any], Any], name: str, task: Any) -> Any:
    """Runs a task, but dies like a process out of memory if it holds a certain file."""
    jobs = task.jobs if hasattr(task, "jobs") else (task.job,)
    if any(job.target == name for job in jobs):
        os.kill(os.getpid(), signal.SIGKILL)
    return function(task)


class DeadlyPool(Pool):
    """A pool whose workers die on one file."""

    deadly = "op.3.npy"

    def map_unordered(self, function: Any, tasks: Iterable[Any], **options: Any) -> Iterator[Any]:
        return super().map_unordered(functools.partial(kill_on, function, self.deadly), tasks, **options)


@pytest.mark.parametrize("part_bytes", [1 << 28, 1 << 16])
def test_a_pair_that_kills_its_worker_is_the_only_one_lost(
    part_bytes: int, dumps: Dumps, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(6):
        dumps.add(noise(20_000), noise(20_000, seed=2))
    expected = dumps.measure()
    monkeypatch.setattr(measuring, "PART_BYTES", part_bytes)
    with DeadlyPool(2) as pool:
        frame = dumps.measure(pool)
    assert frame["state"][3] == MetricState.WORKER_LOST
    assert "died twice" in frame["reason"][3]
    others = pl.Series(range(6)) != 3
    assert same(frame.filter(others), expected.filter(others))


SCRIPT = """
    import sys
    from pathlib import Path
    import polars as pl
    from opassay.pipeline.measure.tensors import measure_tensors
    from opassay.pipeline.run.budget import Budget, PeakSampler
    from opassay.pipeline.run.pool import Pool

    root = Path(sys.argv[1])
    names = ["op.0.npy", "op.1.npy"]
    columns = {"pair": [0, 1], "target_file": names, "golden_file": names}
    pairs = pl.DataFrame(columns, schema_overrides={"pair": pl.UInt32})
    budget = Budget((300 << 20) + 2 * (16 << 20), 2)
    with PeakSampler(0.02) as sampler, Pool(budget.workers) as pool:
        frame = measure_tensors(pairs, root / "target", root / "golden", pool=pool, io=sys.argv[2], budget=budget)
        peak = sampler.peak_tree_bytes()
    print(frame["state"].to_list(), peak, budget.memory_bytes)
"""


@pytest.mark.parametrize("io", ["map", "read"])
def test_the_peak_stays_below_the_smallest_budget(io: str, dumps: Dumps, tmp_path: Path) -> None:
    values = noise(25_000_000)
    for _ in range(2):
        dumps.add(values, values)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), tmp_path, io], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    states, _, numbers = done.stdout.rpartition("]")
    peak, limit = map(int, numbers.split())
    assert states == f"[{MetricState.COMPUTED:d}, {MetricState.COMPUTED:d}"
    assert peak < limit
