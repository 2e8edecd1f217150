"""Runs one command and measures its whole process tree: wall time, CPU time, and the largest sum of proportional
memory.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

SAMPLE_S = 0.05


@dataclass(frozen=True, slots=True)
class Usage:
    """What one run of a command took.

    Attributes
    ----------
    wall_s, cpu_s : float
        Seconds from start to end; user and system seconds of the command and all its descendants.
    peak_bytes : int
        Largest sum of proportional set sizes over the tree among samples 50 ms apart.
    status : int
        Exit status; minus the signal's number if a signal ended it.
    capped : bool
        Whether it was ended because the time cap was over.
    """

    wall_s: float
    cpu_s: float
    peak_bytes: int
    status: int
    capped: bool


class _Sampler(threading.Thread):
    """Looks at a tree again and again until told to stop."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self.cpu_by_process: dict[tuple[int, float], float] = {}
        self._root = psutil.Process(pid)
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(SAMPLE_S):
            self._look()

    def stop(self) -> None:
        self._done.set()
        self.join()

    def _look(self) -> None:
        total = 0
        try:
            members = [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            return
        for member in members:
            try:
                times = member.cpu_times()
                self.cpu_by_process[member.pid, member.create_time()] = times.user + times.system
                total += member.memory_full_info().pss
            except psutil.Error:  # it ended between two looks
                continue
        self.peak_bytes = max(self.peak_bytes, total)


def measure(command: Sequence[str], *, log: Path, cap_s: float, environment: Mapping[str, str] | None = None) -> Usage:
    """Run a command to its end, or end it after `cap_s` seconds.

    Parameters
    ----------
    command : sequence of str
        Program and arguments.
    log : Path
        File that receives what the command prints.
    cap_s : float
        Longest wall time in seconds.
    environment : mapping, optional
        Variables added to those of this process.

    Raises
    ------
    FileNotFoundError
        If there is no such program.
    """
    with log.open("wb") as printed:
        began = time.perf_counter()
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        sampler = _Sampler(process.pid)
        sampler.start()
        capped = threading.Event()

        def end_it() -> None:
            capped.set()
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(cap_s, end_it)
        timer.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            timer.cancel()
            wall = time.perf_counter() - began
            sampler.stop()
        process.returncode = os.waitstatus_to_exitcode(status)
    reaped = usage.ru_utime + usage.ru_stime
    return Usage(
        wall_s=wall,
        cpu_s=max(reaped, sum(sampler.cpu_by_process.values())),
        peak_bytes=max(sampler.peak_bytes, usage.ru_maxrss * 1024 if not sampler.peak_bytes else 0),
        status=process.returncode,
        capped=capped.is_set(),
    )
