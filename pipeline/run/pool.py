"""Worker processes that survive the death of one of them: tasks in, results out in any order.

Every worker has a pipe of its own and holds one task at a time, so a worker that is killed (out of memory, a mapped
file that shrank) takes nothing with it but that task, wherever in its work it dies.

Workers come from a fork server that has the measuring modules loaded already. They never import the caller's main
module: a script that calls opassay without ``if __name__ == "__main__":`` does not start itself over and over, and
tasks must be functions of importable modules, not of the script.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection, forkserver, resource_tracker
from multiprocessing.connection import Connection
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

PRELOAD: Final = ("opassay.pipeline.measure.warm",)
_RETRY_S: Final = 0.2
_NOT_STARTED: Final = (OSError, EOFError, multiprocessing.ProcessError)  # the fork server died meanwhile
_PR_SET_PDEATHSIG: Final = 1
_seat = 0
_ONE_THREAD: Final = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "POLARS_MAX_THREADS",
)


@dataclass(frozen=True, slots=True)
class WorkerLost(Generic[T]):
    """In place of a result: the worker died on this task, twice (or once on a piece of a task that had died before), or
    no worker could be started for it.

    Attributes
    ----------
    task : object
        The task, or the piece of it.
    exit_code : int or None
        Of the last worker; negative is a signal number, None if it never ran.
    hung : bool
        It was ended because the task took longer than it may.
    """

    task: T
    exit_code: int | None
    hung: bool = False


@dataclass(slots=True)
class _Entry:
    index: int
    task: Any
    attempt: int
    until: float = float("inf")  # on the monotonic clock


class _Worker:
    """One process and the pipe to it."""

    __slots__ = ("entry", "pipe", "process", "seat")

    def __init__(self, context: Any, seat: int) -> None:
        self.entry: _Entry | None = None
        self.seat = seat
        self.pipe, theirs = context.Pipe()
        try:
            self.process = context.Process(target=_serve, args=(theirs, seat), daemon=True, name="opassay-worker")
            with _no_main():
                self.process.start()
        except BaseException:
            self.pipe.close()
            raise
        finally:
            theirs.close()

    def give(self, entry: _Entry, message: bytes) -> None:
        """Hand a task over; a dead worker shows when its result is asked for."""
        self.entry = entry
        with contextlib.suppress(OSError):
            self.pipe.send_bytes(message)

    def end(self, seconds: float) -> None:
        """Ask the process to end, then make it."""
        with contextlib.suppress(OSError):
            self.pipe.close()
        if seconds > 0:
            self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(1.0)


class Pool:
    """Processes that run functions on tasks.

    Parameters
    ----------
    workers : int
        Processes; with 1 or less, and inside another worker, tasks run in the calling process.
    preload : sequence of str
        Modules that the fork server imports before it forks.
    apart : bool
        A single worker is a process of its own too, so that its death costs no more than its task.
    """

    def __init__(self, workers: int, preload: Sequence[str] = PRELOAD, *, apart: bool = False) -> None:
        inside = multiprocessing.current_process().daemon
        self.workers = 1 if inside else max(1, workers)
        self._apart = apart and not inside
        self._preload = tuple(preload)
        self._idle: list[_Worker] = []
        self._all: list[_Worker] = []
        self._closed = False

    @property
    def inline(self) -> bool:
        """True where tasks run in the calling process."""
        return self.workers <= 1 and not self._apart

    def pids(self) -> list[int]:
        """Process ids of the workers that run now."""
        return [worker.process.pid for worker in self._all if worker.process.pid is not None]

    def map_unordered(
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        *,
        pieces: Callable[[T], Sequence[T]] | None = None,
        timeout_s: float = 0.0,
    ) -> Iterator[tuple[int, R | WorkerLost[T] | Exception]]:
        """Run a function on every task.

        Parameters
        ----------
        function : callable
            Of an importable module; takes one task.
        tasks : iterable
            Picklable; taken one by one as workers become free.
        pieces : callable, optional
            Cuts a task whose worker died into smaller tasks for the second try, so that only the culprit is lost;
            without it the whole task is tried again.
        timeout_s : float
            Seconds a task may take; then its worker is ended and the task is lost, without a second try. 0: any time.
            Holds for tasks in worker processes.

        Yields
        ------
        index : int
            Number of the task in ``tasks``; comes once, or once a piece.
        result : object
            What the function returned; the exception it raised; or `WorkerLost`.

        Raises
        ------
        RuntimeError
            If the pool is closed.
        """
        if self._closed:
            raise RuntimeError("the pool is closed")
        if self.inline:
            for index, task in enumerate(tasks):
                yield index, _attempt(function, task)
            return
        yield from self._spread(function, tasks, pieces, timeout_s or float("inf"))

    def _spread(
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        pieces: Callable[[T], Sequence[T]] | None,
        timeout_s: float,
    ) -> Iterator[tuple[int, R | WorkerLost[T] | Exception]]:
        fresh = enumerate(tasks)
        again: deque[_Entry] = deque()
        busy: list[_Worker] = []
        exhausted = False
        try:
            while True:
                while len(busy) < self.workers and not (exhausted and not again):
                    if again:
                        entry = again.popleft()
                    else:
                        following = next(fresh, None)
                        if following is None:
                            exhausted = True
                            continue
                        entry = _Entry(following[0], following[1], 1)
                    try:
                        message = pickle.dumps((function, entry.task), pickle.HIGHEST_PROTOCOL)
                    except Exception as error:
                        yield entry.index, error
                        continue
                    try:
                        worker = self._free_worker()
                    except _NOT_STARTED:
                        yield entry.index, WorkerLost(entry.task, None)
                        continue
                    busy.append(worker)
                    entry.until = time.monotonic() + timeout_s
                    worker.give(entry, message)
                if not busy:
                    return
                if (late := _late(busy)) is not None:
                    busy.remove(late)
                    self._forget(late)
                    late.process.kill()
                    late.end(1.0)
                    assert late.entry is not None
                    yield late.entry.index, WorkerLost(late.entry.task, late.process.exitcode, hung=True)
                    continue
                for ready in connection.wait([worker.pipe for worker in busy], _rest(busy)):
                    worker = next(item for item in busy if item.pipe is ready)
                    busy.remove(worker)
                    entry_done = worker.entry
                    assert entry_done is not None
                    worker.entry = None
                    try:
                        answer = worker.pipe.recv_bytes()
                    except (EOFError, OSError):
                        lost = self._bury(worker, entry_done, pieces, again)
                        if lost is not None:
                            yield entry_done.index, lost
                        continue
                    self._idle.append(worker)
                    yield entry_done.index, pickle.loads(answer)
        finally:
            for worker in busy:  # the caller stopped early or was interrupted: what still runs is of no use to anybody
                self._forget(worker)
                worker.end(0)

    def _bury(
        self, worker: _Worker, entry: _Entry, pieces: Callable[[Any], Sequence[Any]] | None, again: deque[_Entry]
    ) -> WorkerLost[Any] | None:
        """Put the task of a dead worker back, or give it up."""
        self._forget(worker)
        worker.end(1.0)
        if entry.attempt > 1:
            return WorkerLost(entry.task, worker.process.exitcode)
        parts = [entry.task] if pieces is None else pieces(entry.task)
        again.extend(_Entry(entry.index, part, 2) for part in parts)
        return None

    def _free_worker(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.process.is_alive():
                return worker
            self._forget(worker)
            worker.end(0)
        try:
            worker = _Worker(_context(self._preload), self._free_seat())
        except _NOT_STARTED:
            time.sleep(_RETRY_S)  # its death shows in a moment, and then a fresh server starts
            worker = _Worker(_context(self._preload), self._free_seat())
        self._all.append(worker)
        return worker

    def _free_seat(self) -> int:
        taken = {worker.seat for worker in self._all}
        return next(number for number in range(len(taken) + 1) if number not in taken)

    def _forget(self, worker: _Worker) -> None:
        with contextlib.suppress(ValueError):  # a pool that was killed has let go of it already
            self._all.remove(worker)

    def close(self) -> None:
        """End idle workers gently; everything is gone within 2 seconds."""
        for worker in self._all:
            with contextlib.suppress(OSError):
                worker.pipe.close()
        self._end(1.0)

    def kill(self) -> None:
        """End all workers at once, whatever they do."""
        self._end(0.0)

    def _end(self, seconds: float) -> None:
        self._closed = True
        workers, self._all, self._idle = self._all, [], []
        for worker in workers:
            if seconds <= 0 and worker.process.is_alive():
                worker.process.kill()
        for worker in workers:
            worker.end(seconds)
            seconds = min(seconds, 0.1)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.kill()


def _context(preload: tuple[str, ...]) -> Any:
    """The fork server's context; the server starts here, with single-threaded numeric libraries."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    resource_tracker.ensure_running()  # else it starts below and lets the signal through
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    # blocked until the server is there, and in the server for good: Ctrl-C reaches it too while it still imports
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        forkserver.ensure_running()  # does nothing where one is running
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return context


@contextlib.contextmanager
def _no_main() -> Iterator[None]:
    """While a worker starts, the main module has neither file nor name, so that the worker does not import it."""
    main = sys.modules["__main__"]
    blank = types.ModuleType("__main__")
    sys.modules["__main__"] = blank
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _late(busy: Sequence[_Worker]) -> _Worker | None:
    """A worker that is over its time and has not answered; an answer may lie in the pipe because the caller took long."""
    now = time.monotonic()
    return next((one for one in busy if one.entry and one.entry.until <= now and not one.pipe.poll()), None)


def _rest(busy: Sequence[_Worker]) -> float | None:
    """Seconds until the first of these workers is late; None if none ever is."""
    first = min(worker.entry.until for worker in busy if worker.entry)
    return None if first == float("inf") else max(0.0, first - time.monotonic())


def _attempt(function: Callable[[T], R], task: T) -> R | Exception:
    try:
        return function(task)
    except Exception as error:
        return error


def seat() -> int:
    """The number of this worker among those of its pool: the lowest that was free when it started; 0 in any other process."""
    return _seat


def _serve(pipe: Connection, number: int) -> None:
    """A worker's life: ends with its parent, with its fork server, or when the pipe is closed."""
    global _seat
    _seat = number
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent()
    while True:
        try:
            message = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            function, task = pickle.loads(message)
        except Exception as error:
            result: Any = RuntimeError(
                f"a task cannot be read in the worker: {error}; it must come from an importable module"
            )
        else:
            result = _attempt(function, task)
        del message
        try:
            answer = pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
            if isinstance(result, Exception):
                pickle.loads(answer)
        except Exception:
            answer = pickle.dumps(RuntimeError(f"{type(result).__name__}: {result}"[:1000]))
        try:
            pipe.send_bytes(answer)
        except OSError:
            return
        del result, answer


def _die_with_parent() -> None:
    """End this process as soon as the process that made the pool is gone, or the fork server it came from."""
    server = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server or server == 1:
        os._exit(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent.sentinel,), name="opassay-parent", daemon=True).start()


def _exit_after(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)
