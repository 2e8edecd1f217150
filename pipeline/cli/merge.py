"""The ``merge_result`` command: chosen rows of all ranks' reports in one workbook."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path

from opassay.pipeline.watch import logs

LOGGER = logging.getLogger("opassay")


def run(arguments: argparse.Namespace) -> int:
    """Merge, and say where the workbook is.

    Returns
    -------
    int
        0; 3 if a file of the folder could not be used.

    Raises
    ------
    OpassayError
        If the config or the folder cannot be used, or nothing can be merged.
    """
    os.environ.setdefault("POLARS_MAX_THREADS", "4")  # read when polars is imported
    from opassay.pipeline.merge.config import read_config
    from opassay.pipeline.merge.run import merge

    verbosity: logs.Verbosity = "quiet" if arguments.quiet else "verbose" if arguments.verbose else "normal"
    logs.setup(verbosity)
    path = Path(arguments.config)
    config = read_config(path)
    for line in config.notes:
        LOGGER.warning("%s: %s", path, line)
    merged = merge(Path(arguments.input), Path(arguments.output), config)
    LOGGER.info("%d ranks, %d rows, sheets: %s", len(merged.ranks), merged.rows, ", ".join(merged.metrics))
    LOGGER.info("The compare results of the multi-ranks are merged and saved in: %s.", merged.path)
    if arguments.quiet:
        print(merged.path)
    return 3 if merged.lost else 0
