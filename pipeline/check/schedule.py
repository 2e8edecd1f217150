"""Cases over worker processes: the longest first, each a task of its own; results leave in the order of the dump.

Knows no framework: it gets tasks, a function of an importable module that turns a task into an `Outcome`, and what to say of
a task whose worker died.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, TypeVar

from opassay.pipeline.check.files import CheckFiles
from opassay.pipeline.check.resume import Journal
from opassay.pipeline.check.runner import Outcome, skipped
from opassay.pipeline.run.pool import Pool, WorkerLost
from opassay.schemas.check_rows import CaseResult
from opassay.schemas.errors import OpassayError

T = TypeVar("T")
R = TypeVar("R")

PER_DEVICE: Final = 8
PRELOAD: Final = ("opassay.pipeline.check.warm",)


def workers_for(splits: int, devices: int) -> int:
    """Processes for so many splits: at most eight a device."""
    return min(splits, PER_DEVICE * devices)


def longest_first(costs: Sequence[float]) -> list[int]:
    """Places in order of descending cost; equal ones in order of the dump."""
    return sorted(range(len(costs)), key=lambda place: -costs[place])


def ask_worker(function: Callable[[T], R], task: T) -> R:
    """Run one function in a worker process, which has the framework loaded.

    Raises
    ------
    Exception
        What the function raised.
    OpassayError
        If the worker died.
    """
    with Pool(1, PRELOAD, apart=True) as pool:
        _, answer = next(pool.map_unordered(function, [task]))
    if isinstance(answer, WorkerLost):
        code = "" if answer.exit_code is None else f" ({_cause(answer.exit_code)})"
        raise OpassayError(
            f"a worker process died before the first call{code}; is the framework installed as it should be?"
        )
    if isinstance(answer, Exception):
        raise answer
    return answer


def run_tasks(
    function: Callable[[T], Outcome],
    tasks: Sequence[T],
    order: Sequence[int],
    *,
    name_of: Callable[[T], str],
    workers: int,
    timeout_s: float,
) -> Generator[tuple[int, Outcome], None, None]:
    """Run tasks in processes of their own.

    Parameters
    ----------
    function : callable
        Task -> outcome; of an importable module.
    tasks : sequence
        Picklable.
    order : sequence of int
        Places of the tasks, in the order in which they are begun.
    name_of : callable
        Name of a task's call.
    workers : int
        Processes.
    timeout_s : float
        Seconds a task may take; 0 for any time.

    Yields
    ------
    place : int
        Of the task.
    outcome : Outcome
        A SKIP with the reason where the worker died or hung.
    """
    with Pool(workers, PRELOAD, apart=True) as pool:
        for number, answer in pool.map_unordered(function, (tasks[place] for place in order), timeout_s=timeout_s):
            place = order[number]
            yield place, answer if isinstance(answer, Outcome) else _lost(name_of(tasks[place]), answer, timeout_s)


def _lost(name: str, answer: Any, timeout_s: float) -> Outcome:
    if not isinstance(answer, WorkerLost):
        return Outcome(skipped(name, f"{type(answer).__name__}: {answer}"), lost=True)
    if answer.hung:
        reason = f"the call took more than {timeout_s:g} s and was ended; --timeout allows more"
    elif answer.exit_code is None:
        reason = "no worker process could be started for the call"
    else:
        reason = f"the process that ran the call died ({_cause(answer.exit_code)}), twice"
    return Outcome(skipped(name, reason), lost=True, note=f"{name}: {reason}")


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"{name}, often a lack of memory" if name == "SIGKILL" else name


class InOrder:
    """Results come in any order and are written in that of the dump; those ahead of their turn wait in the journal.

    Parameters
    ----------
    files : CheckFiles
        Where they go.
    journal : Journal
        What outlives a kill.
    count : int
        Places.
    ahead : dict of int to CaseResult
        Results of an earlier run that wait already.
    """

    def __init__(self, files: CheckFiles, journal: Journal, count: int, ahead: dict[int, CaseResult]) -> None:
        self._files, self._journal, self._count = files, journal, count
        self._waiting = dict(ahead)
        self._next = 0
        self._write()

    @property
    def waiting(self) -> int:
        """Results that wait for an earlier one."""
        return len(self._waiting)

    def put(self, place: int, result: CaseResult) -> None:
        """Take a result.

        Raises
        ------
        OutputError
            If the disk refuses.
        """
        if place != self._next:
            self._journal.add(result)
        self._waiting[place] = result
        self._write()

    def _write(self) -> None:
        while self._next < self._count and self._next in self._waiting:
            self._files.append(self._waiting.pop(self._next))
            self._next += 1

    def close(self) -> None:
        """Close the journal; it goes where nothing waits in it any more."""
        self._journal.close(remove=not self._waiting)
