"""A case -> its row in the result file and its details: the same for every framework. Whatever goes wrong is a SKIP with its reason."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opassay.kernels.precision.status import verdict
from opassay.pipeline.check.cases import CannotRun, Case
from opassay.pipeline.check.error_data import save_error_data
from opassay.pipeline.check.framework import Framework, Sides
from opassay.pipeline.read.tensor_layout import TensorUnreadable
from opassay.pipeline.watch.logs import one_line
from opassay.schemas.check_rows import CaseResult, DetailRow, Status

_WRONG = (Status.ERROR, Status.WARNING)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case.

    Attributes
    ----------
    result : CaseResult
        For the files.
    ran : bool
        The operator was called on both sides.
    unread : bool
        Its tensor files could not be read.
    lost : bool
        The worker died or hung.
    note : str
        For the log; "" where there is nothing to say.
    overhead_s : float
        Seconds for everything but the calls themselves.
    """

    result: CaseResult
    ran: bool = False
    unread: bool = False
    lost: bool = False
    note: str = ""
    overhead_s: float = 0.0


def run_case(framework: Framework, case: Case, error_data: Path | None = None) -> Outcome:
    """Run one case.

    Parameters
    ----------
    framework : Framework
        Ready to run.
    case : Case
        The call.
    error_data : Path, optional
        Folder that receives inputs and outputs where a verdict is warning or error.

    Returns
    -------
    Outcome
        Always; nothing is raised for what a case holds.
    """
    begun = time.perf_counter()
    if case.skip:
        return Outcome(skipped(case.name, case.skip))
    try:
        inputs = framework.build(case)
        sides = framework.call(case, inputs)
        forward, backward = framework.compare(case, sides)
    except CannotRun as error:
        return Outcome(skipped(case.name, str(error)), unread=_is_unread(error))
    except Exception as error:  # a bug, or what a library does with odd values: it costs this case
        text = str(error).strip() or "no message"
        return Outcome(skipped(case.name, f"{type(error).__name__}: {text}"[:2000]))
    result = judged(case, forward, backward, sides.no_backward)
    note = _kept(framework, case, inputs, sides, result, error_data) if error_data is not None else ""
    return Outcome(result, ran=True, note=note, overhead_s=time.perf_counter() - begun - sides.seconds)


def skipped(name: str, reason: str) -> CaseResult:
    """The rows of a case that was not run."""
    row = DetailRow(f"{name}.forward.output.0", status=Status.SKIP, message=reason)
    return CaseResult(name, Status.SKIP, Status.SKIP, reason, [row])


def judged(case: Case, forward: list[DetailRow], backward: list[DetailRow], no_backward: str) -> CaseResult:
    """The rows of a case that was run.

    Parameters
    ----------
    case : Case
        The call.
    forward, backward : list of DetailRow
        Compared outputs and gradients.
    no_backward : str
        Why a wanted backward pass was not run.
    """
    reason = case.no_backward or no_backward
    if reason and not backward:
        backward = [DetailRow(f"{case.name}.backward.output.0", status=Status.SKIP, message=reason)]
    ahead, back = verdict(forward), verdict(backward) if backward else None
    message = ""
    for status, rows in ((ahead, forward), (back, backward)):
        if status is Status.SKIP and not message:
            message = next((row.message for row in rows if row.message), "")
    return CaseResult(case.name, ahead, back, message, [*forward, *backward])


def _kept(framework: Framework, case: Case, inputs: Any, sides: Sides, result: CaseResult, folder: Path) -> str:
    """Keep the tensors of a case that is not in order; why that failed, or ""."""
    if result.forward not in _WRONG and result.backward not in _WRONG:
        return ""
    try:
        save_error_data(framework, case, inputs, sides, folder)
    except Exception as error:
        return f"{case.name}: its tensors cannot be saved in {folder} ({one_line(str(error)) or type(error).__name__})"
    return ""


def _is_unread(error: BaseException) -> bool:
    """Whether a tensor file is behind a failure."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TensorUnreadable):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
