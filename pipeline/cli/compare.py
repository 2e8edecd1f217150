"""The ``compare`` command: options to plan, plan to outcomes, outcomes to a closing panel and an exit status."""

from __future__ import annotations

import argparse
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from opassay.pipeline.match.options import matching_of
from opassay.pipeline.read.trees import open_tree
from opassay.pipeline.report import console
from opassay.pipeline.report.files import make_folder, timestamp
from opassay.pipeline.run.budget import Budget, PeakSampler, parse_bytes, usable_cores
from opassay.pipeline.run.compare import RankOutcome, report_folder, run_plan
from opassay.pipeline.run.device import check_device
from opassay.pipeline.run.inputs import ON_STATISTICS
from opassay.pipeline.run.plan import Plan, make_plan
from opassay.pipeline.run.pool import Pool
from opassay.pipeline.watch import logs
from opassay.pipeline.watch.progress import Progress
from opassay.schemas.errors import UsageError
from opassay.schemas.options import CompareOptions
from opassay.schemas.vocab import Result

LOGGER = logging.getLogger("opassay")
_TABLE_THREADS = 4  # slices are small: more threads of polars cost more than they save


def run(arguments: argparse.Namespace) -> int:
    """Compare, write, and say what came of it.

    Returns
    -------
    int
        Exit status (see ``main``).

    Raises
    ------
    OpassayError
        If nothing could even be begun.
    """
    cores = arguments.workers if arguments.workers > 0 else usable_cores()
    os.environ.setdefault("POLARS_MAX_THREADS", str(min(cores, _TABLE_THREADS)))  # read when polars is imported
    verbosity: logs.Verbosity = "quiet" if arguments.quiet else "verbose" if arguments.verbose else "normal"
    logs.setup(verbosity)
    options = options_of(arguments)
    matching = matching_of(options)
    check_device(options.device)
    budget = Budget(options.memory_bytes, options.workers)
    trees = open_tree(options.target, "target"), open_tree(options.golden, "golden")
    plan = make_plan(*trees, shards=options.shards == "auto")
    make_folder(options.output)
    _announce(plan, options, budget)
    started, stamp = time.monotonic(), timestamp()
    outcomes: list[RankOutcome] = []
    told: set[str] = set()
    pool = Pool(budget.workers)
    progress = Progress(verbosity)
    interrupted = False
    with PeakSampler() as sampler:
        try:
            for outcome in run_plan(
                plan, options, matching=matching, stamp=stamp, pool=pool, budget=budget, progress=progress
            ):
                _report(outcome, told)
                outcomes.append(outcome)
            pool.close()
        except KeyboardInterrupt:
            interrupted = True
            LOGGER.error("interrupted; %d of %d comparisons are finished and kept", len(outcomes), len(plan.pairs))
        finally:
            progress.finish()
            pool.kill()
        peak = sampler.peak_tree_bytes()
    answers, written = _answers(outcomes, options, stamp)
    status = 130 if interrupted else exit_status(outcomes, plan, options)
    summary = _summary(outcomes, plan, time.monotonic() - started, peak, budget, status)
    summary = replace(summary, first=answers, files=(*summary.files, *written))
    if arguments.quiet:
        _tell_results(outcomes, summary, written)
    else:
        console.show(summary)
    return status


def _answers(
    outcomes: Sequence[RankOutcome], options: CompareOptions, stamp: str
) -> tuple[tuple[console.FirstOp, ...], list[Path]]:
    """The first difference of each step, for the panel; with ``-da`` the files that hold it."""
    steps: dict[int | None, list[RankOutcome]] = {}
    for outcome in outcomes:
        if outcome.facts is not None:
            steps.setdefault(outcome.pair.step, []).append(outcome)
    shown: list[console.FirstOp] = []
    files: list[Path] = []
    for step, held in sorted(steps.items(), key=lambda one: one[0] or 0):
        from opassay.pipeline.difference.analyze_json import write_analysis
        from opassay.pipeline.difference.search import first_difference, told

        ranks = [outcome.facts for outcome in held if outcome.facts is not None]
        first = first_difference(ranks)
        several = len(held) > 1 or held[0].pair.is_device
        labels = {outcome.pair.rank: outcome.pair.name for outcome in held if several}
        shown += told(first, ranks, labels, _sources(held))
        if options.diff_analyze and first.nodes:
            path = write_analysis(report_folder(held[0].pair, options), stamp, first, ranks)
            LOGGER.info("The analyze result is saved in: %s", path)
            files.append(path)
        elif options.diff_analyze:
            where = "" if step is None else f"step{step}: "
            LOGGER.info("%sno op differs; there is nothing to analyze", where)
    return tuple(shown), files


def _sources(held: Sequence[RankOutcome]) -> dict[tuple[int, str], str]:
    """(rank, op) -> line of the user's own code, where the tally knows it."""
    return {
        (outcome.pair.rank, worst.op): worst.source
        for outcome in held
        if outcome.tally is not None
        for worst in outcome.tally.worst
        if worst.source
    }


def _tell_results(outcomes: Sequence[RankOutcome], summary: console.Summary, written: Sequence[Path]) -> None:
    """One line a report on stdout and one for the first difference: what a job log needs and no more."""
    for outcome in outcomes:
        if outcome.tally is not None:
            counts = ", ".join(f"{outcome.tally.results[word.word]} {word.word}" for word in reversed(Result))
            print(f"{outcome.pair.name}: {counts}: {' '.join(map(str, outcome.files))}")
    for one in summary.answer[:1]:
        rank = f"{one.rank} " if one.rank else ""
        print(f"{one.title}: {rank}{one.name}: {one.reason}")
    if summary.no_difference:
        print(f"first difference: {summary.no_difference}")
    for path in written:
        print(path)


def options_of(arguments: argparse.Namespace) -> CompareOptions:
    """Options from parsed arguments.

    Raises
    ------
    UsageError
        A size that is none, ``--consistent_check`` without a backend.
    """
    return CompareOptions(
        **what_meets_what(arguments),
        output=Path(arguments.output),
        xlsx=arguments.xlsx,
        parquet=arguments.parquet,
        csv_safe=arguments.csv_safe,
        strict=arguments.strict,
        document_rules=arguments.document_rules,
        tensor_log=arguments.tensor_log,
        diff_analyze=arguments.diff_analyze,
        fail_on=arguments.fail_on,
        workers=arguments.workers,
        memory_bytes=parse_bytes(arguments.memory),
        device=arguments.device,
        io=arguments.io,
    )


def what_meets_what(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields of ``CompareOptions`` that say what is compared with what: those that ``plan`` has too.

    Raises
    ------
    UsageError
        ``--consistent_check`` without a backend.
    """
    cell = arguments.cell_mapping
    return {
        "target": Path(arguments.target),
        "golden": Path(arguments.golden),
        "fuzzy": arguments.fuzzy,
        "data_mapping": None if arguments.data_mapping is None else Path(arguments.data_mapping),
        "cell_mapping": Path(cell) if isinstance(cell, str) else cell,
        "wrappers": arguments.wrappers,
        "more_wrappers": tuple(arguments.wrapper),
        "backend": _backend(arguments),
        "shards": arguments.shards,
    }


def _backend(arguments: argparse.Namespace) -> Literal["fsdp", "megatron"] | None:
    backend: Literal["fsdp", "megatron"] | None = arguments.backend
    if arguments.consistent_check and backend is None:
        raise UsageError("--consistent_check needs --backend fsdp or --backend megatron, the training side's")
    if backend is not None and not arguments.consistent_check:
        LOGGER.warning("--backend has no effect without --consistent_check")
        return None
    return backend


def exit_status(outcomes: Sequence[RankOutcome], plan: Plan, options: CompareOptions) -> int:
    """Decision 11: 2 nothing compared, 1 ``--fail-on`` met, 3 a part could not be read or met nothing, else 0."""
    tallies = [outcome.tally for outcome in outcomes if outcome.tally is not None]
    if not any(tally.matched for tally in tallies):
        return 2
    if options.fail_on is not None:
        words = [result.word for result in Result if result >= Result[options.fail_on.upper()]]
        if any(tally.results[word] for tally in tallies for word in words):
            return 1
    idle = any(not tally.matched for tally in tallies)
    return 3 if plan.lost or idle or any(outcome.damaged for outcome in outcomes) else 0


def _announce(plan: Plan, options: CompareOptions, budget: Budget) -> None:
    LOGGER.info("The dumps are taken as trusted input of yours; files in them are read, never run.")
    names = [pair.name for pair in plan.pairs]
    shown = ", ".join(names[:8]) + (f", ... ({len(names)} in all)" if len(names) > 8 else "")
    LOGGER.info("Plan: %s against %s: %s", options.target, options.golden, shown)
    for note in plan.notes:
        LOGGER.warning("%s", note)
    for line in plan.lost:
        LOGGER.error("%s", line)
    if budget.note:
        LOGGER.warning("%s", budget.note)
    LOGGER.debug("%d workers, memory budget %d bytes", budget.workers, budget.memory_bytes)


def _report(outcome: RankOutcome, told: set[str]) -> None:
    """Log what became of a pair; ``told`` holds what was said of the whole run already."""
    for line in outcome.problems:
        if line != ON_STATISTICS:
            LOGGER.warning("%s: %s", outcome.pair.name, line)
        elif line not in told:
            LOGGER.warning("%s", line)
            told.add(line)
    if outcome.tally is not None and not outcome.tally.matched:
        LOGGER.error(
            "%s: no row of the target has a partner in the golden dump; nothing was compared. opassay plan names the nearest",
            outcome.pair.name,
        )
    if outcome.error:
        LOGGER.error("%s is not compared: %s", outcome.pair.name, outcome.error)
        return
    for path in outcome.files:
        if path.suffix == ".json":
            LOGGER.info("Saving json file to disk: %s", path)
            continue
        LOGGER.info("Result of %s: %s", outcome.pair.name, path)
        if outcome.tally is not None and outcome.tally.matched:
            logs.success_banner()


def _summary(
    outcomes: Sequence[RankOutcome], plan: Plan, elapsed_s: float, peak: int, budget: Budget, status: int
) -> console.Summary:
    modes = sorted({outcome.mode.value for outcome in outcomes if outcome.mode})
    parts = [_part(outcome) for outcome in sorted(outcomes, key=lambda one: plan.pairs.index(one.pair))]
    title = f"compare · {' and '.join(modes) or 'nothing compared'}"
    merged = console.merge(parts, title=title, elapsed_s=elapsed_s) if parts else console.Summary(title)
    return replace(
        merged,
        elapsed_s=elapsed_s,
        problems=(*plan.lost, *plan.notes, *dict.fromkeys(merged.problems)),
        peak_bytes=peak,
        budget_bytes=budget.memory_bytes,
        workers=budget.workers,
        exit_status=status,
    )


def _part(outcome: RankOutcome) -> console.Summary:
    lines = [line for line in (outcome.error, *outcome.problems) if line]
    problems = [line if line == ON_STATISTICS else f"{outcome.pair.name}: {line}" for line in lines]
    tally = outcome.tally
    if tally is None:
        return console.Summary(outcome.pair.name, problems=tuple(problems))
    where = outcome.pair.name if outcome.pair.is_device else None
    worst = [
        console.WorstOp(
            one.row, one.result, one.told, rank=where, order=one.order, source=one.source, formal=one.formal
        )
        for one in tally.worst
    ]
    return console.Summary(
        outcome.pair.name,
        target_rows=tally.target_rows,
        golden_rows=tally.golden_rows,
        passed=tally.compared["pass"],
        warnings=tally.compared["warning"],
        errors=tally.compared["error"],
        not_compared=dict(sorted(tally.uncompared.items())),
        target_only=tally.target_only,
        golden_only=tally.golden_only,
        reused=tally.reused,
        ops=tally.target_ops,
        worst=tuple(worst),
        problems=tuple(problems),
        files=tuple(outcome.files),
        dump_bytes=outcome.bytes_read,
    )
