"""The ``collectives`` command: one dump of several ranks, and whether its communication kept its promises."""

from __future__ import annotations

import argparse
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from opassay.pipeline.read.trees import Tree, open_tree
from opassay.pipeline.watch import logs
from opassay.schemas.errors import NothingToCompare, OpassayError, UsageError

if TYPE_CHECKING:
    from opassay.pipeline.collectives.check import StepChecked
    from opassay.pipeline.collectives.panel import Outcome
    from opassay.pipeline.report.csv import CsvWriter

LOGGER = logging.getLogger("opassay")


def run(arguments: argparse.Namespace) -> int:
    """Verify every step, write the csv, and name the first violated call.

    Returns
    -------
    int
        0; 1 if ``--fail-on`` is met; 3 if a rank or step could not be read; 130 if interrupted (steps that were finished are in
        the csv).

    Raises
    ------
    OpassayError
        If the path is no multi-rank dump, or no call could be verified in any step.
    """
    os.environ.setdefault("POLARS_MAX_THREADS", "4")  # read when polars is imported
    from opassay.pipeline.collectives import panel
    from opassay.pipeline.collectives.check import ROWS
    from opassay.pipeline.report.csv import CsvWriter
    from opassay.pipeline.report.files import make_folder, result_path, timestamp

    logs.setup("quiet" if arguments.quiet else "verbose" if arguments.verbose else "normal")
    started = time.monotonic()
    tree = _tree(Path(arguments.path))
    folder = make_folder(Path(arguments.output))
    outcome = panel.Outcome()
    interrupted = False
    writer = CsvWriter(result_path(folder, "collectives", ".csv", timestamp()), dict(ROWS), safe=arguments.csv_safe)
    lost: list[str] = []
    try:
        try:
            _check(tree, arguments.workers, outcome, writer, lost)
        except KeyboardInterrupt:
            interrupted = True
            LOGGER.error("interrupted; %d of %d steps are finished and kept", outcome.steps, len(tree.steps))
        if not interrupted and not sum(outcome.results.values()):
            reasons = "; ".join(outcome.problems[:3])
            raise NothingToCompare(
                f"{tree.path} holds no communication calls of two ranks or more; dump all ranks at level L1 or mix ({reasons})"
            )
        outcome.files = writer.close()
    except BaseException:
        writer.discard()
        raise
    outcome.elapsed_s = time.monotonic() - started
    outcome.exit_status = 130 if interrupted else _status(outcome, arguments.fail_on, bool(lost))
    for path in outcome.files:
        LOGGER.info("Result: %s", path)
    if arguments.quiet:
        _tell(outcome)
    else:
        panel.show(outcome)
    return outcome.exit_status


def _tree(path: Path) -> Tree:
    """Find the ranks; messages name the path, as it has no option."""
    try:
        tree = open_tree(path, "dump")
    except OpassayError as error:
        raise type(error)(str(error).replace(" -dp", " the path")) from None
    if tree.level in ("file", "rank"):
        raise UsageError(f"{path} is the dump of one rank; name the step folder above it, with rank0, rank1, ...")
    return tree


def _check(tree: Tree, workers: int, outcome: Outcome, writer: CsvWriter, lost: list[str]) -> None:
    """Verify the steps one after the other; ``lost`` gets what could not be read."""
    from opassay.pipeline.collectives.check import check_step
    from opassay.pipeline.collectives.read import read_step
    from opassay.pipeline.run.budget import usable_cores

    lost += tree.lost
    outcome.problems += tree.lost
    for line in tree.lost:
        LOGGER.error("%s", line)
    ranks: set[int] = set()
    for step in tree.steps:
        read = read_step(step)
        where = f"{read.label}: " if read.label else ""
        for line in read.lost:
            LOGGER.error("%s", line)
        for line in read.problems:
            LOGGER.warning("%s", line)
        lost += read.lost
        outcome.problems += [*read.lost, *read.problems]
        outcome.dump_bytes += read.dump_bytes
        ranks.update(read.ranks)
        outcome.ranks = len(ranks)
        if len(read.ranks) < 2 or read.events.is_empty():
            what = "no communication calls" if len(read.ranks) > 1 else f"{len(read.ranks)} rank that could be read"
            outcome.problems.append(f"{where}{what}; nothing to verify")
            outcome.steps += 1
            continue
        checked = check_step(read, workers if workers > 0 else usable_cores())
        writer.add(checked.rows)
        _note(outcome, checked)
        outcome.steps += 1


def _note(outcome: Outcome, checked: StepChecked) -> None:
    from opassay.pipeline.collectives.panel import Call

    for word, count in checked.results.items():
        outcome.results[word] += count
    for word in ("error", "warning"):
        first = checked.rows.filter(checked.rows["result"] == word).head(8)
        for row in first.select("step", "api", "group", "ranks", "calls", "result", "message").iter_rows():
            outcome.note(Call(*(cell or "" for cell in row)))


def _status(outcome: Outcome, fail_on: str | None, lost: bool) -> int:
    """Decision 11."""
    failing = {"error": ("error",), "warning": ("warning", "error")}.get(fail_on or "", ())
    if any(outcome.results[word] for word in failing):
        return 1
    return 3 if lost else 0


def _tell(outcome: Outcome) -> None:
    """One line with the counts and the files, one with the first violated call."""
    counts = ", ".join(f"{outcome.results[word]} {word}" for word in ("error", "warning", "pass"))
    print(f"{counts}: {' '.join(map(str, outcome.files))}")
    if outcome.errors:
        first = outcome.errors[0]
        print(logs.one_line(f"first violated call: {first.title} ({first.calls}): {first.message}"))
