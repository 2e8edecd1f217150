"""Properties of the whole comparison, on small random dumps."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import opassay
import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from opassay.kernels.rules import NOT_COMPARED
from opassay.pipeline.cli.main import main
from opassay.pipeline.report.csv import CsvWriter
from opassay.pipeline.run.rank import RankReport

from tests.dumps import call, scalar, tensor, tensor_call, write_dump

few = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])

numbers = st.one_of(
    st.floats(-1e3, 1e3, width=32),
    st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf, -math.inf, 1e30, -1e-30]),
    st.integers(-(2**62), 2**62),
)
cells = st.one_of(numbers, st.none(), st.booleans())
leaves = st.one_of(
    st.none(),
    st.builds(
        lambda stats, dtype, shape, grad: tensor(stats=tuple(stats), dtype=dtype, shape=shape, requires_grad=grad),
        st.lists(cells, min_size=4, max_size=4),
        st.sampled_from(["torch.float32", "torch.bfloat16", "torch.int64", "torch.bool"]),
        st.sampled_from([(2, 3), (), (0,), (1, 4)]),
        st.booleans(),
    ),
    st.builds(scalar, st.one_of(st.integers(-5, 5), st.booleans(), st.text(max_size=3), st.floats(-2, 2, width=16))),
    st.builds(lambda n: {"type": "slice", "value": [n, None, None]}, st.integers(0, 3)),
    st.builds(lambda n: {"type": "torch.device", "value": f"npu:{n}"}, st.integers(0, 2)),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)),
    max_leaves=3,
)
records = st.builds(call, st.lists(values, max_size=2), st.lists(values, max_size=2))
names = st.sampled_from(
    [f"Torch.{api}.{index}.{way}" for api in ("mul", "to", "_all_gather_base") for index in (0, 1) for way in ("forward", "backward")]
    + ["Module.a.output.b.Linear.forward.0"]
)  # fmt: skip
dumps = st.dictionaries(names, records, min_size=1, max_size=5)


@contextmanager
def compared(target: Mapping[str, Any], golden: Mapping[str, Any]) -> Iterator[RankReport | None]:
    """The report of two statistics dumps; None where they have nothing to compare."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [write_dump(Path(folder, name), side) for name, side in (("target", target), ("golden", golden))]
        try:
            report = opassay.compare(*paths).ranks[0]
        except opassay.OpassayError:
            report = None
        yield report


def adds_up(report: RankReport) -> None:
    tally = report.tally()
    for judged in report.judged():
        tally.add(judged)
    assert tally.target_rows == tally.matched + tally.target_only
    assert tally.golden_rows == tally.matched + tally.golden_only
    assert tally.matched == sum(tally.compared.values()) + sum(tally.uncompared.values())
    assert sum(tally.results.values()) == report.rows.height == tally.matched + tally.target_only + tally.golden_only


@few
@given(dumps)
def test_equal_dumps_are_no_error_and_add_up(data: dict[str, Any]) -> None:
    """Equal dumps pass row by row, but for what could not be compared: statistics that are missing altogether."""
    with compared(data, data) as report:
        if report is None:
            return
        adds_up(report)
        rows = report.rows
        assert rows["target_name"].to_list() == rows["golden_name"].to_list()
        assert rows.filter(pl.col("compared") & (pl.col("result") != "pass")).is_empty(), rows["message"].to_list()
        assert set(rows["uncompared"].drop_nulls()) <= {"statistic-missing"}
        assert set(rows["result"]) <= {"pass", "warning"}


@few
@given(dumps, dumps)
def test_no_row_passes_unless_it_was_compared(target: dict[str, Any], golden: dict[str, Any]) -> None:
    with compared(target, golden) as report:
        if report is None:
            return
        adds_up(report)
        rows = report.rows
        lone = (pl.col("target_name") == "N/A") | (pl.col("golden_name") == "N/A")
        assert rows.filter((pl.col("result") == "pass") & (lone | ~pl.col("compared"))).is_empty()
        assert rows.filter((pl.col("result") != "pass") & (pl.col("message") == "[]")).is_empty()
        assert set(rows["uncompared"].drop_nulls()) <= set(NOT_COMPARED)


@few
@given(dumps, dumps)
def test_swapping_the_sides_flips_the_differences(target: dict[str, Any], golden: dict[str, Any]) -> None:
    with compared(target, golden) as there, compared(golden, target) as back:
        if there is None or back is None:
            assert there is back
            return
        cells_of = [f"{stat}_{what}" for stat in ("max", "min", "mean", "norm") for what in ("diff", "diff_number")]
        keyed = [
            report.rows.select(pl.col(f"{side}_name").alias("name"), *cells_of).filter(
                pl.col("name") != "N/A", pl.col("max_diff") != "N/A"
            )
            for side, report in (("target", there), ("golden", back))
        ]
        ours, theirs = (frame.sort("name") for frame in keyed)
        if ours["name"].n_unique() != ours.height:
            return  # names that stand for several rows (a dictionary key beside a list index)
        assert ours["name"].to_list() == theirs["name"].to_list()
        for stat in ("max", "min", "mean", "norm"):
            pairs = zip(ours[f"{stat}_diff_number"], theirs[f"{stat}_diff_number"], strict=True)
            assert all(a == b or (a is not None and b is not None and a == -b) for a, b in pairs)
            zero = [frame[f"{stat}_diff"].to_list() for frame in (ours, theirs)]
            assert [cell == "0" for cell in zero[0]] == [cell == "0" for cell in zero[1]]


def csv_bytes(report: RankReport, slice_rows: int, path: Path) -> bytes:
    with CsvWriter(path, report.columns) as writer:
        for judged in report.judging.slices(slice_rows):
            writer.add(report.cells(judged))
    return path.read_bytes()


@settings(few, max_examples=8)
@given(dumps, dumps)
def test_slices_of_any_size_give_the_same_bytes(target: dict[str, Any], golden: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder, compared(target, golden) as report:
        if report is None:
            return
        whole = csv_bytes(report, 10**6, Path(folder, "whole.csv"))
        for slice_rows in (1, 3):
            assert csv_bytes(report, slice_rows, Path(folder, "sliced.csv")) == whole


@few
@given(dumps, st.data())
def test_removed_ops_are_missed_on_the_other_side(data: dict[str, Any], draw: st.DataObject) -> None:
    kept = draw.draw(st.sets(st.sampled_from(sorted(data)), min_size=1))
    less = {name: record for name, record in data.items() if name in kept}
    for flip in (False, True):
        with compared(*((less, data) if flip else (data, less))) as report:
            if report is None:
                continue
            adds_up(report)
            side = "target" if flip else "golden"
            rows = report.rows
            lone = rows.filter(pl.col(f"{side}_name") == "N/A")
            assert rows.filter(pl.col("golden_name" if flip else "target_name") == "N/A").is_empty()
            backward = [name for name in data if name.endswith("backward")]
            if not backward:  # backward calls may meet in order of appearance
                assert set(lone["op"]) == {op for op in rows["op"] if op not in kept}
            assert set(lone["result"]) <= {"warning", "error"}


LAST = "Torch.zzz.0.forward"


def verdicts(target: Mapping[str, Any], golden: Mapping[str, Any]) -> list[tuple[Any, ...]] | None:
    with compared(target, golden) as report:
        if report is None:
            return None
        rows = report.rows.filter(pl.col("op") != LAST)
        return rows.select("target_name", "golden_name", "result", "message").rows()


INTEGERS = [tensor(dtype="torch.int64", stats=(top, 1, None, None)) for top in (3, 4)]


@few
@given(dumps, dumps)
@example(
    {"Torch.mul.0.forward": call([tensor()], INTEGERS[:1])}, {"Torch.mul.0.forward": call([tensor()] * 2, INTEGERS[1:])}
)
def test_neighbours_change_no_verdict(target: dict[str, Any], golden: dict[str, Any]) -> None:
    alone = verdicts(target, golden)
    if alone is not None:
        last = {LAST: call([tensor()], [tensor()])}
        assert verdicts({**target, **last}, {**golden, **last}) == alone


arrays = st.one_of(
    st.lists(st.floats(width=32), min_size=0, max_size=6).map(lambda held: np.array(held, np.float32)),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4).map(lambda held: np.array(held, np.int64)),
    st.lists(st.booleans(), min_size=1, max_size=4).map(np.array),
)


@pytest.mark.slow  # compiles a kernel for each pair of dtypes
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(arrays, arrays), min_size=1, max_size=4))
def test_tensors_pass_against_themselves_and_metrics_are_symmetric(pairs: list[tuple[Any, Any]]) -> None:
    def dump(folder: Path, side: int) -> Path:
        ops = {
            f"Torch.mul.{number}.forward": tensor_call(folder, f"Torch.mul.{number}.forward", [], [pair[side]])
            for number, pair in enumerate(pairs)
        }
        return write_dump(folder, ops, task="tensor")

    with tempfile.TemporaryDirectory() as root:
        one, other = dump(Path(root, "one"), 0), dump(Path(root, "other"), 1)
        itself = opassay.compare(one, one).rows
        assert set(itself["result"]) == {"pass"}, itself["message"].to_list()
        assert set(itself["cosine"]) <= {"1.0", "unsupported"}
        assert set(itself["error_max"]) <= {"0.0", "unsupported"}
        there, back = opassay.compare(one, other).rows, opassay.compare(other, one).rows
        for name in ("cosine", "euclidean", "error_max"):  # relative errors have golden below the line
            assert there[name].to_list() == back[name].to_list()


def run(root: Path, out: Path, workers: str, *options: str) -> int:
    words = ["-tp", str(root / "target"), "-gp", str(root / "golden"), "-o", str(out), "--workers", workers, "--quiet"]
    return main(["compare", *words, *options])


@pytest.mark.slow
@pytest.mark.parametrize("option", [(), ("--io", "read"), ("--io", "map")], ids=" ".join)
def test_workers_change_no_byte(option: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks of tensors, large enough for the pool and for a tensor in several parts."""
    from opassay.pipeline.run import rank

    monkeypatch.setattr(rank, "_INLINE_BYTES", 0)
    rng = np.random.default_rng(3)
    for side, noise in (("target", 1e-4), ("golden", 0.0)):
        for number in range(2):
            folder = tmp_path / side / f"rank{number}"
            ops = {}
            for place in range(6):
                base = np.random.default_rng(place).normal(size=(40, 500 * (place + 1))).astype(np.float32)
                moved = (base * (1 + noise * rng.normal(size=base.shape))).astype(np.float32)
                op = f"Torch.mul.{place}.forward"
                ops[op] = tensor_call(folder, op, [base], [moved])
            write_dump(folder, ops, task="tensor")
    found = {}
    for workers in ("1", "2", "3"):
        out = tmp_path / f"out{workers}"
        assert run(tmp_path, out, workers, *option) == 0
        found[workers] = [path.read_bytes() for path in sorted(out.iterdir())]
    assert len(found["1"]) == 2
    assert found["1"] == found["2"] == found["3"]


@pytest.mark.slow
def test_workers_change_no_byte_of_statistics(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for side in ("target", "golden"):
        for number in range(3):
            ops = {
                f"Torch.mul.{place}.forward": call(
                    [tensor(stats=tuple(rng.normal(size=4)))], [tensor(stats=tuple(rng.normal(size=4)))]
                )
                for place in range(200)
            }
            write_dump(tmp_path / side / f"rank{number}", ops)
    found = []
    for workers in ("1", "2"):
        out = tmp_path / f"out{workers}"
        assert run(tmp_path, out, workers) == 0
        found.append([path.read_bytes() for path in sorted(out.iterdir())])
    assert len(found[0]) == 3
    assert found[0] == found[1]
