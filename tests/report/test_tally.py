"""Counts: they add up on both sides, however the rows come in slices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import opassay
import pytest
from opassay.kernels.rules import NOT_COMPARED
from opassay.pipeline.api import CompareReport
from opassay.pipeline.report.tally import WORST, Tally, WorstOp

from tests.dumps import call, scalar, tensor, write_dump

GOOD = tensor(stats=(1, -1, 0, 10))


def off(norm: float) -> dict[str, Any]:
    return tensor(stats=(1, -1, 0, norm))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> CompareReport:
    """One op of every kind: equal, off by ever more, lone, with a statistic missing, with another scalar."""
    folder = tmp_path_factory.mktemp("tally")
    target = {
        "Torch.same.0.forward": call([GOOD, None, scalar(3)], [GOOD]),
        **{f"Torch.off.{n}.forward": call([GOOD], [off(10 + n), off(11 + n)]) for n in range(10)},
        "Torch.lone.0.forward": call([GOOD], [GOOD]),
        "Torch.less.0.forward": call([tensor(stats=(1, -1, 0, None))], []),
        "Torch.arg.0.forward": call([scalar(3)], []),
    }
    golden = {
        "Torch.same.0.forward": call([GOOD, None, scalar(3)], [GOOD]),
        **{f"Torch.off.{n}.forward": call([GOOD], [GOOD, GOOD]) for n in range(10)},
        "Torch.less.0.forward": call([GOOD], []),
        "Torch.arg.0.forward": call([scalar(4)], []),
        "Torch.other.0.forward": call([GOOD], [GOOD, GOOD]),
    }
    paths = [write_dump(folder / name, side) for name, side in (("target", target), ("golden", golden))]
    return opassay.compare(*paths)


def counted(report: CompareReport, slice_rows: int) -> Tally:
    rank = report.ranks[0]
    tally = rank.tally()
    for judged in rank.judging.slices(slice_rows):
        tally.add(judged)
    return tally


@pytest.mark.parametrize("slice_rows", [1, 3, 7, 1000])
def test_counts_add_up(report: CompareReport, slice_rows: int) -> None:
    tally = counted(report, slice_rows)
    assert tally.target_rows == tally.matched + tally.target_only == 38
    assert tally.golden_rows == tally.matched + tally.golden_only == 39
    assert tally.matched == sum(tally.compared.values()) + sum(tally.uncompared.values())
    assert (tally.target_only, tally.golden_only, tally.target_ops, tally.golden_ops) == (2, 3, 14, 14)
    assert tally.uncompared == {"statistic-missing": 1}
    assert set(tally.uncompared) <= set(NOT_COMPARED)
    assert sum(tally.results.values()) == tally.matched + tally.target_only + tally.golden_only
    assert tally == counted(report, 1000)


def test_results_are_those_of_the_rows(report: CompareReport) -> None:
    tally = counted(report, 1000)
    words = report.rows["result"].to_list()
    assert {word: words.count(word) for word in ("pass", "warning", "error")} == dict(tally.results)
    assert [report.count(word) for word in ("pass", "warning", "error")] == [
        tally.results[word] for word in ("pass", "warning", "error")
    ]


def test_the_worst_ops_come_first_and_each_once(report: CompareReport) -> None:
    tally = counted(report, 4)
    assert len(tally.worst) == WORST
    assert len({one.op for one in tally.worst}) == WORST
    assert {one.result for one in tally.worst} == {"error"}
    names = report.rows["target_name"].to_list()
    places = [names.index(one.row) for one in tally.worst]
    assert places == sorted(places)  # as they were executed
    assert tally.worst[0].row == report.rows.filter(report.rows["result"] == "error")["target_name"][0]
    assert "NormRelativeErr" in tally.worst[0].told


def test_rules_about_numbers_stand_before_formal_differences(tmp_path: Path) -> None:
    good, other, bad = tensor(), tensor(dtype="torch.bfloat16"), tensor(stats=(9.0, -9.0, 0.0, 20.0))
    target = {"Torch.a.0.forward": call([good], [other]), "Torch.b.0.forward": call([good], [bad])}
    golden = {op: call([good], [good]) for op in target}
    found = opassay.compare(write_dump(tmp_path / "t", target), write_dump(tmp_path / "g", golden))
    ((_, tally),) = found.tallies()
    assert [one.op for one in tally.worst] == ["Torch.b.0.forward", "Torch.a.0.forward"]


def test_worst_ops_are_found_in_the_users_code(tmp_path: Path) -> None:
    lines = [
        "File site-packages/torch/nn/linear.py, line 1, in forward, \n x",
        "File train.py, line 41, in step, \n y = op(x)",
    ]
    target, golden = (
        write_dump(tmp_path / side, {"Torch.a.0.forward": call([tensor()], [tensor(stats=stats)])})
        for side, stats in (("t", (9.0, -9.0, 0.0, 20.0)), ("g", (1.0, -1.0, 0.0, 2.0)))
    )
    (tmp_path / "t" / "stack.json").write_text(json.dumps({"0": [["Torch.a.0.forward"], lines]}))
    report = opassay.compare(target, golden)
    ((_, tally),) = report.tallies()
    stacks = report.ranks[0].stacks
    assert stacks is not None
    tally.locate(stacks.text_for)
    assert [one.source for one in tally.worst] == ["train.py, line 41: y = op(x)"]


def test_an_error_in_a_row_that_was_not_fully_compared_counts_as_error(tmp_path: Path) -> None:
    nan = float("nan")
    target = {"Torch.a.0.forward": call([], [tensor(stats=(nan, nan, nan, None))])}
    golden = {"Torch.a.0.forward": call([], [tensor()])}
    found = opassay.compare(write_dump(tmp_path / "t", target), write_dump(tmp_path / "g", golden))
    ((_, tally),) = found.tallies()
    assert (tally.compared, tally.uncompared) == ({"error": 1}, {})


def test_an_op_is_told_by_what_made_it_what_it_is() -> None:
    texts = [
        "warning: not compared: shapes in the files differ [not-measured]",
        "error: shape differs: NPU [2], Bench [3] [shape]",
    ]
    told = [WorstOp("x", "x", result, json.dumps(texts), 0).told for result in ("error", "warning")]
    assert told == [
        "shape differs: NPU [2], Bench [3] [shape]",
        "not compared: shapes in the files differ [not-measured]",
    ]
