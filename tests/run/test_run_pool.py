"""Worker processes: results come back whole, and a dead worker costs its own task only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opassay.pipeline.run import pool as module
from opassay.pipeline.run.pool import Pool, WorkerLost


def test_one_worker_runs_here() -> None:
    with Pool(1) as pool:
        assert pool.inline
        assert list(pool.map_unordered(abs, [-1, 2, "x"]))[:2] == [(0, 1), (1, 2)]
        (_, error) = next(pool.map_unordered(abs, ["x"]))
        assert isinstance(error, TypeError)
    with pytest.raises(RuntimeError, match="closed"):
        list(pool.map_unordered(abs, [1]))


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(2, preload=()) as made:
        yield made


@pytest.mark.slow
def test_every_task_comes_back_once(pool: Pool) -> None:
    found = dict(pool.map_unordered(abs, range(-50, 0)))
    assert found == {index: 50 - index for index in range(50)}


@pytest.mark.slow
def test_tasks_are_taken_only_as_workers_become_free(pool: Pool) -> None:
    taken: list[int] = []

    def tasks() -> Iterator[int]:
        for number in range(30):
            taken.append(number)
            yield number

    for count, _ in enumerate(pool.map_unordered(abs, tasks()), 1):
        assert len(taken) <= count + 2 * pool.workers


@pytest.mark.slow
def test_large_tasks_and_results(pool: Pool) -> None:
    tasks = [bytes([number]) * 3_000_000 for number in range(8)]
    found = dict(pool.map_unordered(bytes, tasks))
    assert [found[index] for index in range(8)] == tasks


@pytest.mark.slow
def test_errors_come_back_as_values(pool: Pool) -> None:
    found = dict(pool.map_unordered(int, ["1", "x", "3"]))
    assert (found[0], found[2]) == (1, 3)
    assert isinstance(found[1], ValueError)


@pytest.mark.slow
def test_a_function_that_cannot_travel_is_an_error_of_its_task(pool: Pool) -> None:
    function: Callable[[int], int] = lambda value: value  # noqa: E731
    assert [type(result) for _, result in pool.map_unordered(function, [1])] != [int]
    assert dict(pool.map_unordered(abs, [-1])) == {0: 1}


@pytest.mark.slow
def test_a_task_that_kills_its_worker_twice_is_lost_alone(pool: Pool) -> None:
    code = "__import__('os').kill(__import__('os').getpid(), 9)"
    found: dict[int, Any] = dict(pool.map_unordered(eval, ["1", code, "3", code, "5"]))
    assert (found[0], found[2], found[4]) == (1, 3, 5)
    for index in (1, 3):
        assert isinstance(found[index], WorkerLost)
        assert found[index].task == code
        assert found[index].exit_code == -signal.SIGKILL


@pytest.mark.slow
def test_a_worker_killed_once_costs_nothing(pool: Pool, tmp_path: Path) -> None:
    flag = tmp_path / "died"
    code = (
        f"(lambda os: os.path.exists({str(flag)!r}) and 'second' or "
        f"(open({str(flag)!r}, 'w').close(), os.kill(os.getpid(), 9)))(__import__('os'))"
    )
    assert dict(pool.map_unordered(eval, [code])) == {0: "second"}


@pytest.mark.slow
def test_pieces_of_a_lost_task_come_back_one_by_one(pool: Pool) -> None:
    kill = "__import__('os').kill(__import__('os').getpid(), 9)"
    task = f"[1, {kill}, 3]"
    found = list(pool.map_unordered(eval, [task], pieces=lambda _: ["1", kill, "3"]))
    assert sorted(str(result) for _, result in found if not isinstance(result, WorkerLost)) == ["1", "3"]
    assert [result.task for _, result in found if isinstance(result, WorkerLost)] == [kill]
    assert {index for index, _ in found} == {0}


@pytest.mark.slow
def test_an_idle_worker_may_die(pool: Pool) -> None:
    dict(pool.map_unordered(abs, range(4)))
    for pid in pool.pids():
        os.kill(pid, signal.SIGKILL)
    assert dict(pool.map_unordered(abs, [-1, -2, -3])) == {0: 1, 1: 2, 2: 3}


@pytest.mark.slow
def test_stopping_early_leaves_nothing_running(pool: Pool) -> None:
    results = pool.map_unordered(time.sleep, [0.0, 60.0, 60.0])
    next(results)
    started = time.monotonic()
    results.close()
    assert time.monotonic() - started < 2
    assert dict(pool.map_unordered(abs, [-1])) == {0: 1}


@pytest.mark.slow
def test_kill_is_quick_and_leaves_no_process() -> None:
    pool = Pool(2, preload=())
    results = pool.map_unordered(time.sleep, [0.0, 60.0, 60.0])
    next(results)
    pids = pool.pids()
    started = time.monotonic()
    pool.kill()
    assert time.monotonic() - started < 2
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


SCRIPT = """
    import sys, time
    from opassay.pipeline.run.pool import Pool
    print("main", flush=True)
    pool = Pool(2, preload=())
    for index, result in pool.map_unordered({function}, {tasks}):
        print(result, *pool.pids(), flush=True)
    pool.close()
"""


def start(tmp_path: Path, function: str, tasks: str) -> subprocess.Popen[str]:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT.format(function=function, tasks=tasks)))
    return subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_script_without_a_main_guard_runs_once(tmp_path: Path) -> None:
    process = start(tmp_path, "abs", "[-1, -2]")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.split("\n").count("main") == 1
    assert sorted(line.split()[0] for line in out.splitlines()[1:]) == ["1", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_its_parent(sign: signal.Signals, tmp_path: Path) -> None:
    process = start(tmp_path, "time.sleep", "[0, 90, 90]")
    assert process.stdout is not None
    assert process.stdout.readline() == "main\n"
    pids = [int(word) for word in process.stdout.readline().split()[1:]]
    assert pids
    assert all(alive(pid) for pid in pids)
    process.send_signal(sign)
    process.wait(timeout=10)
    until = time.monotonic() + 5
    while any(alive(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)
    process.communicate()


@pytest.mark.slow
def test_a_fork_server_that_dies_is_replaced(pool: Pool) -> None:
    from multiprocessing import forkserver

    assert dict(pool.map_unordered(abs, [-1])) == {0: 1}
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)  # type: ignore[attr-defined]
    with Pool(2, preload=()) as other:
        assert dict(other.map_unordered(abs, range(-3, 0))) == {0: 3, 1: 2, 2: 1}


def test_a_worker_that_cannot_be_started_costs_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def fail(*_: object) -> None:
        tries.append(1)
        raise BrokenPipeError

    monkeypatch.setattr(module, "_Worker", fail)
    monkeypatch.setattr(module, "_RETRY_S", 0.0)
    with Pool(2, preload=()) as broken:
        assert list(broken.map_unordered(abs, [-1])) == [(0, WorkerLost(-1, None))]
    assert len(tries) == 2


@pytest.mark.slow
def test_ctrl_c_while_the_fork_server_starts_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "slowly.py").write_text("import time\ntime.sleep(1.5)\n")
    script = """
        import os, signal, threading
        from opassay.pipeline.run.pool import Pool
        threading.Timer(0.8, os.killpg, (os.getpid(), signal.SIGINT)).start()
        try:
            with Pool(2, preload=["slowly"]) as pool:
                list(pool.map_unordered(abs, [-1]))
        except KeyboardInterrupt:
            print("interrupted")
    """
    told = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, start_new_session=True, check=False,
    )  # fmt: skip
    assert (told.stdout, told.stderr, told.returncode) == ("interrupted\n", "", 0)
