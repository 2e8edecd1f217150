"""How much memory and how many processes a run may use, read from the machine's limits; and what it really used."""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opassay.pipeline.watch.logs import clip
from opassay.schemas.errors import BudgetError, UsageError

FLOOR_BYTES: Final = 300 << 20  # libraries, tables of a usual dump
WORKER_BYTES: Final = 16 << 20  # what a worker has of its own: two windows and their scratch
WINDOW_BYTES: Final = 4 << 20
_DEFAULT_SHARE: Final = 0.8  # of the memory that is free
_MOST_BYTES: Final = 1 << 62
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may use; zeros are filled in from the machine, and too many workers are cut down.

    Attributes
    ----------
    memory_bytes : int
        Limit of the whole process tree; 0 takes most of what is free and allowed.
    workers : int
        Processes that measure; 0 takes one for each core this process may use. Cut to what the memory holds.
    window_bytes : int
        Bytes of each side that a worker holds at a time.
    note : str or None
        One line, where the memory allowed fewer workers than were asked for.

    Raises
    ------
    BudgetError
        If not even one worker fits.
    UsageError
        If a number is negative.
    """

    memory_bytes: int = 0
    workers: int = 0
    window_bytes: int = WINDOW_BYTES
    note: str | None = None

    def __post_init__(self) -> None:
        if self.memory_bytes < 0 or self.workers < 0:
            raise UsageError("--memory and --workers must not be negative")
        limit = self.memory_bytes or int(available_bytes() * _DEFAULT_SHARE)
        wanted = self.workers or usable_cores()
        fitting = (limit - FLOOR_BYTES) // WORKER_BYTES
        if fitting < 1:
            need = FLOOR_BYTES + WORKER_BYTES
            raise BudgetError(
                f"a run needs at least {need >> 20}M of memory and the budget is {limit >> 20}M; "
                f"raise it with --memory {need >> 20}M"
            )
        note = self.note
        if fitting < wanted:
            plural = "s" if fitting > 1 else ""
            note = f"{fitting} worker{plural} in place of {wanted}: {limit >> 20}M hold no more; --memory raises it"
        object.__setattr__(self, "memory_bytes", limit)
        object.__setattr__(self, "workers", min(fitting, wanted))
        object.__setattr__(self, "note", note)


def parse_bytes(text: str) -> int:
    """Bytes of ``4G``, ``512M``, ``1.5GiB``, ``800000``; units are powers of 1024.

    Raises
    ------
    UsageError
        If the text is no size, or more than any machine has.
    """
    found = re.fullmatch(r"\s*(\d+)(?:\.(\d+))?\s*([kmgt]?)(?:i?b)?\s*", text, re.IGNORECASE | re.ASCII)
    if found is None:
        raise UsageError(f"{clip(text)!r} is no size in bytes; write for example 4G or 512M")
    whole, part = found[1].lstrip("0"), (found[2] or "")[:18]
    if len(whole) < 20:
        size: int = int(f"0{whole}{part}") * _UNITS[found[3].lower()] // 10 ** len(part)
        if size <= _MOST_BYTES:
            return size
    raise UsageError(f"{clip(text)} is more memory than any machine has; write for example 4G or 512M")


def usable_cores(root: Path = Path("/")) -> int:
    """Cores this process may use: its affinity mask, cut by the cgroup's quota; at least 1."""
    cores = float(len(os.sched_getaffinity(0)))
    for folder in _cgroup_folders(root, "cpu"):
        quota = _words(folder / "cpu.max") or _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
        with suppress(ValueError, IndexError, ZeroDivisionError):
            if float(quota[0]) > 0:
                cores = min(cores, float(quota[0]) / float(quota[1]))
    return max(1, int(cores))


def available_bytes(root: Path = Path("/")) -> int:
    """Bytes this process tree may still take: free memory of the machine, cut by what is left of the cgroup's limit."""
    free = 1 << 62
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) << 10
    for folder in _cgroup_folders(root, "memory"):
        limit = _words(folder / "memory.max") or _words(folder / "memory.limit_in_bytes")
        used = _words(folder / "memory.current") or _words(folder / "memory.usage_in_bytes")
        if limit and limit[0].isdigit():
            held = int(used[0]) - _cache_bytes(folder) if used and used[0].isdigit() else 0
            free = min(free, int(limit[0]) - max(0, held))
    return max(0, free)


def _cache_bytes(folder: Path) -> int:
    """File pages that the kernel gives back when memory is short."""
    for line in _lines(folder / "memory.stat"):
        if line.startswith(("inactive_file ", "total_inactive_file ")):
            return int(line.split()[1])
    return 0


def _cgroup_folders(root: Path, controller: str) -> list[Path]:
    """Folders with the limits of this process for one controller, both cgroup versions, inner ones first."""
    folders: list[Path] = []
    for line in _lines(root / "proc/self/cgroup"):
        number, names, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not names:
            tops = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        elif controller in names.split(","):
            tops = [root / "sys/fs/cgroup" / controller, root / "sys/fs/cgroup" / names]
        else:
            continue
        for top in tops:
            parts = [part for part in path.split("/") if part not in ("", "..")]
            folders += [top.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += [int(word) for word in _words(Path(f"/proc/{pid}/task/{thread}/children"))]
    return found


def _resident(pid: int) -> int:
    """Memory of one process, shared pages divided among those who share; plain resident size where unknown."""
    for line in _lines(Path(f"/proc/{pid}/smaps_rollup")):
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    words = _words(Path(f"/proc/{pid}/statm"))
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if len(words) > 1 else 0


def tree_bytes(pid: int | None = None) -> int:
    """Memory of a process and all below it now, in bytes.

    Parameters
    ----------
    pid : int, optional
        Top of the tree; this process without it.
    """
    waiting, total = [os.getpid() if pid is None else pid], 0
    while waiting:
        one = waiting.pop()
        total += _resident(one)
        waiting += _children(one)
    return total


class PeakSampler:
    """Looks at the memory of this process tree again and again in a thread; use in a ``with`` statement.

    Parameters
    ----------
    every_s : float
        Seconds between two looks.
    """

    def __init__(self, every_s: float = 0.25) -> None:
        self._every_s = every_s
        self._peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="opassay-memory", daemon=True)

    def peak_tree_bytes(self) -> int:
        """Largest memory of the tree seen so far, this moment included."""
        self._peak = max(self._peak, tree_bytes())
        return self._peak

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self.peak_tree_bytes()

    def __enter__(self) -> PeakSampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.peak_tree_bytes()
