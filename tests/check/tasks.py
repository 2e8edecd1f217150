"""Tasks for worker processes: each does what its name says. The name of a call, before the dot, is the deed."""

from __future__ import annotations

import os
import signal
import time

from opassay.pipeline.check.runner import Outcome, skipped
from opassay.pipeline.run.pool import seat
from opassay.schemas.check_rows import CaseResult, DetailRow, Status


def passed(name: str) -> CaseResult:
    """The result of a call that is in order."""
    row = DetailRow(
        f"{name}.forward.output.0", "torch.float64", "torch.float32", "(2,)", {"error_max": 0.0}, Status.PASS
    )
    return CaseResult(name, Status.PASS, None, "", [row])


def do(name: str) -> Outcome:
    """Run a task."""
    deed = name.partition(".")[0]
    if deed == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if deed == "leave":
        os._exit(3)
    if deed == "hang":
        time.sleep(60)
    if deed == "fail":
        raise ValueError("told so")
    if deed == "skip":
        return Outcome(skipped(name, "as it should be"))
    return Outcome(passed(name), ran=True, note=f"seat {seat()}")
