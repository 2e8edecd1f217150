"""Scheduling: order, the longest first, and what a dead or hanging worker costs."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from opassay.kernels.call_cost import call_cost
from opassay.kernels.precision.status import format_metric
from opassay.pipeline.check.files import CheckFiles
from opassay.pipeline.check.resume import Journal
from opassay.pipeline.check.schedule import InOrder, ask_worker, longest_first, run_tasks, workers_for
from opassay.schemas.errors import OpassayError

from tests.check.tasks import do, passed


def run(names: list[str], workers: int = 2, timeout_s: float = 0.0) -> dict[str, tuple[str, bool]]:
    """Message and loss of each task."""
    running = run_tasks(do, names, range(len(names)), name_of=lambda name: name, workers=workers, timeout_s=timeout_s)
    return {names[place]: (outcome.result.message, outcome.lost) for place, outcome in running}


@pytest.mark.slow
def test_a_dead_worker_costs_its_call_alone() -> None:
    found = run(["a.0", "die.1", "b.2", "leave.3", "skip.4", "fail.5", "c.6"])
    assert len(found) == 7
    assert found["die.1"] == ("the process that ran the call died (SIGKILL, often a lack of memory), twice", True)
    assert found["leave.3"] == ("the process that ran the call died (exit status 3), twice", True)
    assert found["fail.5"] == ("ValueError: told so", True)
    assert found["skip.4"] == ("as it should be", False)
    assert all(found[name] == ("", False) for name in ("a.0", "b.2", "c.6"))


@pytest.mark.slow
def test_one_worker_is_a_process_of_its_own() -> None:
    assert run(["die.0", "a.1"], workers=1)["a.1"] == ("", False)


@pytest.mark.slow
def test_a_call_that_hangs_is_ended_once() -> None:
    begun = time.monotonic()
    found = run(["a.0", "hang.1", "b.2", "c.3"], timeout_s=1.0)
    assert time.monotonic() - begun < 15
    assert found["hang.1"] == ("the call took more than 1 s and was ended; --timeout allows more", True)
    assert sum(lost for _, lost in found.values()) == 1


@pytest.mark.slow
def test_workers_sit_on_different_seats_and_a_new_one_takes_the_free_seat() -> None:
    names = [f"a.{number}" for number in range(40)] + ["die.0"] + [f"b.{number}" for number in range(40)]
    running = run_tasks(do, names, range(len(names)), name_of=str, workers=2, timeout_s=0.0)
    assert {outcome.note for _, outcome in running if not outcome.lost} == {"seat 0", "seat 1"}


def test_no_more_than_eight_processes_a_device() -> None:
    assert [workers_for(splits, devices) for splits, devices in ((1, 1), (8, 1), (9, 1), (64, 2), (16, 2))] == [
        1, 8, 8, 16, 16,
    ]  # fmt: skip


def test_the_longest_first() -> None:
    assert longest_first([1.0, 5.0, 2.0, 5.0]) == [1, 3, 2, 0]


def test_costs_grow_with_the_work() -> None:
    small = call_cost("add", [(4, 4), (4, 4)], [(4, 4)])
    assert call_cost("add", [(4, 4), (4, 4)], [(4, 4)], backward=True) > small
    assert call_cost("matmul", [(512, 512), (512, 512)], [(512, 512)]) > call_cost(
        "add", [(512, 512)] * 2, [(512, 512)]
    )
    assert call_cost("conv2d", [(1, 8, 64, 64), (8, 8, 3, 3)], [(1, 8, 64, 64)]) > call_cost(
        "relu", [(1, 8, 64, 64)], [(1, 8, 64, 64)]
    )
    assert call_cost("scaled_dot_product_attention", [(1, 8, 4096, 64)] * 3, [(1, 8, 4096, 64)]) > call_cost(
        "scaled_dot_product_attention", [(1, 8, 1024, 64)] * 3, [(1, 8, 1024, 64)]
    )
    assert call_cost("matmul", [(), ()], []) > 0  # nonsense costs what a call costs


@pytest.mark.parametrize("seed", range(5))
def test_results_leave_in_the_order_of_the_dump(seed: int, tmp_path: Path) -> None:
    names = [f"Torch.add.{number}" for number in range(30)]
    places = list(range(30))
    random.Random(seed).shuffle(places)
    with CheckFiles.create(tmp_path, format_metric) as files:
        writer = InOrder(files, Journal(tmp_path, files.stamp), 30, {})
        for place in places:
            writer.put(place, passed(names[place]))
        assert not writer.waiting
        writer.close()
    lines = files.result.read_text(encoding="utf-8-sig").splitlines()[1:]
    assert [line.partition(",")[0] for line in lines] == names
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".csv", ".csv"]


def test_results_ahead_of_their_turn_outlive_the_run(tmp_path: Path) -> None:
    with CheckFiles.create(tmp_path, format_metric) as files:
        writer = InOrder(files, Journal(tmp_path, files.stamp), 3, {})
        writer.put(2, passed("Torch.add.2"))
        writer.put(0, passed("Torch.add.0"))
        writer.close()
        assert writer.waiting == 1
    assert Journal.read(tmp_path, files.stamp) == {"Torch.add.2": passed("Torch.add.2")}


@pytest.mark.slow
def test_asking_a_worker() -> None:
    assert ask_worker(abs, -3) == 3
    with pytest.raises(TypeError):
        ask_worker(abs, "x")
    with pytest.raises(OpassayError, match="before the first call"):
        ask_worker(do, "die.0")
