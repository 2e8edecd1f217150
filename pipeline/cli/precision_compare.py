"""The ``api_precision_compare`` command: the NPU's accuracy judged against the GPU's, from two details files of ``run_ut``."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opassay.pipeline.watch import logs
from opassay.schemas.errors import NothingToCompare

if TYPE_CHECKING:
    from opassay.pipeline.check.precision_compare import PrecisionCompared

LOGGER = logging.getLogger("opassay")
_SHOWN: Final = 8


def run(arguments: argparse.Namespace) -> int:
    """Compare, and say which calls fail and where the files are.

    Returns
    -------
    int
        0 whatever the verdicts; 1 if ``--fail-on`` is met; 3 if a row could not be read or stands more than once.

    Raises
    ------
    OpassayError
        If a file cannot be used, or not one row could be compared (the files say why and are kept).
    """
    os.environ.setdefault("POLARS_MAX_THREADS", "4")  # read when polars is imported
    from opassay.pipeline.check.precision_compare import compare_files

    logs.setup("quiet" if arguments.quiet else "verbose" if arguments.verbose else "normal")
    compared = compare_files(
        Path(arguments.npu), Path(arguments.gpu), Path(arguments.output), csv_safe=arguments.csv_safe
    )
    for line in compared.problems:
        LOGGER.error("%s", line)
    for line in compared.notes:
        LOGGER.warning("%s", line)
    if not compared.judged:
        raise NothingToCompare(
            f"not one row of {arguments.npu} could be compared with {arguments.gpu}; {compared.files[1]} says why for each"
        )
    _tell(compared, quiet=arguments.quiet)
    failing = {"error": ("error",), "warning": ("warning", "error")}.get(arguments.fail_on or "", ())
    if any(compared.counts[word] for word in failing):
        return 1
    return 3 if compared.problems else 0


def _tell(compared: PrecisionCompared, *, quiet: bool) -> None:
    """The calls that fail, the counts and the files."""
    counts = ", ".join(f"{count} {word}" for word, count in compared.counts.items())
    if quiet:
        print(f"{counts}: {' '.join(map(str, compared.files))}")
        return
    failed = [row for row in compared.results.iter_rows() if "error" in row[1:3]]
    for name, forward, backward, _ in failed[:_SHOWN]:
        LOGGER.info("error: %s (forward %s, backward %s)", name, forward, backward.strip() or "none")
    if len(failed) > _SHOWN:
        LOGGER.info("... and %d more", len(failed) - _SHOWN)
    LOGGER.info("%d calls: %s", compared.results.height, counts)
    for path in compared.files:
        LOGGER.info("Result: %s", path)
