"""What the machine itself allows: reading the same files and no more, and summing memory. Every speed is shown
beside these.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Limit:
    """One measured limit: bytes moved, and the wall and CPU seconds that took."""

    bytes: int
    wall_s: float
    cpu_s: float

    @property
    def gb_per_s(self) -> float:
        """1e9 bytes a second of wall time."""
        return self.bytes / 1e9 / self.wall_s


def read_files(paths: Sequence[Path]) -> Limit:
    """Read every file once by one thread, in chunks of 1 MB into a page-aligned buffer, and look at nothing."""
    buffer = mmap.mmap(-1, CHUNK_BYTES)
    total = 0
    wall, cpu = time.perf_counter(), time.process_time()
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            offset = 0
            while got := os.preadv(handle, [buffer], offset):
                offset += got
            total += offset
        finally:
            os.close(handle)
    return Limit(total, time.perf_counter() - wall, time.process_time() - cpu)


def sum_memory(size_bytes: int = 1 << 29) -> Limit:
    """Sum one array of int64 by one thread; far larger than any cache by default."""
    array = np.ones(size_bytes // 8, dtype=np.int64)
    wall, cpu = time.perf_counter(), time.process_time()
    total = int(array.sum())
    limit = Limit(array.nbytes, time.perf_counter() - wall, time.process_time() - cpu)
    if total != array.size:
        raise ArithmeticError(f"sum of {array.size} ones came out as {total}")
    return limit
