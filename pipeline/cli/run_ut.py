"""The ``run_ut`` and ``multi_run_ut`` commands: every call of a dump against a reference in high precision."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from opassay.pipeline.watch import logs
from opassay.schemas.check_options import MOST_DEVICE_ID, SPLITS, CheckOptions
from opassay.schemas.check_rows import CaseResult, Status
from opassay.schemas.errors import UsageError

if TYPE_CHECKING:
    from opassay.pipeline.check.run import CheckReport

LOGGER = logging.getLogger("opassay.check")
_MOST_TOLD = 10  # wrong calls that the log names


def run(arguments: argparse.Namespace) -> int:
    """Run the calls one after the other.

    Returns
    -------
    int
        0 run through, 1 ``--fail-on`` met, 2 nothing could be run, 3 a part was lost, 130 interrupted.

    Raises
    ------
    OpassayError
        If the check cannot begin.
    """
    device_ids = _device_ids(arguments.device_ids) if arguments.framework == "pytorch" else (0,)
    return _check(arguments, splits=1, device_ids=device_ids[:1])


def run_multi(arguments: argparse.Namespace) -> int:
    """Run the calls in several processes, on several devices.

    Returns
    -------
    int
        As `run`.

    Raises
    ------
    OpassayError
        If the check cannot begin.
    """
    if arguments.framework != "pytorch":  # a process a device
        device_ids = _device_ids(arguments.device_ids)
        if max(device_ids) > MOST_DEVICE_ID:
            raise UsageError(f"-d {max(device_ids)}: device ids are 0 to {MOST_DEVICE_ID}")
        return _check(arguments, splits=len(device_ids), device_ids=device_ids)
    least, most = SPLITS
    if not least <= arguments.splits <= most:
        raise UsageError(f"-n {arguments.splits}: the number of splits must be from {least} to {most}")
    return _check(arguments, splits=arguments.splits, device_ids=_device_ids(arguments.device_ids))


def _device_ids(numbers: list[int]) -> tuple[int, ...]:
    told = f"-d {' '.join(map(str, numbers))}"
    if any(number < 0 for number in numbers):
        raise UsageError(f"{told}: device id must be greater than or equal to 0")
    if len(set(numbers)) < len(numbers):
        raise UsageError(f"{told}: device id must be unique")
    return tuple(numbers)


def _check(arguments: argparse.Namespace, *, splits: int, device_ids: tuple[int, ...]) -> int:
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    verbosity: logs.Verbosity = "quiet" if arguments.quiet else "verbose" if arguments.verbose else "normal"
    logs.setup(verbosity)
    if arguments.threads < 1:
        raise UsageError(f"--threads {arguments.threads}: must be 1 or more")
    if not 0 <= arguments.timeout < float("inf"):
        raise UsageError(f"--timeout {arguments.timeout:g}: must be 0 or more seconds")
    is_torch = arguments.framework == "pytorch"
    options = CheckOptions(
        api_info=Path(arguments.api_info),
        output=Path(arguments.output),
        resume=Path(arguments.csv_path) if arguments.csv_path else None,
        config=Path(arguments.config) if is_torch and arguments.config else None,
        filter_api=is_torch and arguments.filter_api,
        save_error_data=arguments.save_error_data,
        device=arguments.device,
        device_ids=device_ids,
        jit=is_torch and arguments.jit,
        splits=splits,
        threads=arguments.threads,
        timeout_s=arguments.timeout,
        fail_on=arguments.fail_on,
        framework=arguments.framework,
    )
    from opassay.pipeline.check.run import check

    with _terminated_as_interrupted():
        report = check(options, verbosity)
    status = report.exit_status(options.fail_on)
    _tell(report, arguments.command, status)
    if arguments.quiet:
        print(report.result)
    return status


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM, which batch systems send before they kill, end a run as Ctrl-C does: files kept, workers ended."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell(report: CheckReport, command: str, status: int) -> None:
    """The closing lines of the log."""
    for direction, found in (("forward ", report.forward), ("backward", report.backward)):
        LOGGER.info("%s: %s", direction, _counts(found))
    for _, result in sorted(report.wrong.items())[:_MOST_TOLD]:
        LOGGER.info("error: %s: %s", result.name, _reason(result))
    if len(report.wrong) > _MOST_TOLD:
        LOGGER.info("... and %d more calls with an error", len(report.wrong) - _MOST_TOLD)
    skipped = report.forward[Status.SKIP] + report.backward[Status.SKIP]
    if skipped and report.ran:
        LOGGER.info("SKIP: the Message column says why")
    if report.unread:
        LOGGER.warning("the tensors of %d calls could not be read", report.unread)
    if report.lost:
        LOGGER.warning("%d calls were lost because their process died or took too long", report.lost)
    LOGGER.info("result : %s", report.result)
    LOGGER.info("details: %s", report.details)
    if report.interrupted:
        LOGGER.warning("interrupted; what is finished is kept, go on with -csv_path %s", report.result)
    elif report.calls and not report.ran and not report.done_before:
        LOGGER.error("not one call of %d could be run; the Message column of %s says why", report.calls, report.result)
    elif status in (0, 1):
        LOGGER.info("Successfully completed %s.", command)


def _counts(found: Counter[Status]) -> str:
    words = [f"{found[status]:,} {status.value}" for status in (Status.PASS, Status.WARNING, Status.ERROR, Status.SKIP)]
    return ", ".join(words)


def _reason(result: CaseResult) -> str:
    """The row that is wrong first, and the last line of its message."""
    row = next(row for row in result.details if row.status is Status.ERROR)
    lines = [line for line in row.message.splitlines() if line.strip()]
    where = row.name.removeprefix(f"{result.name}.")
    return f"{where}: {logs.one_line(lines[0] if len(lines) == 1 else lines[-1]) if lines else ''}"
