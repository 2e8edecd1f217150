"""A whole check: read the dump, choose the device, run the calls, write the files, say what came out."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from opassay.kernels.call_cost import PER_CALL, call_cost
from opassay.pipeline.check.cases import RUN, Case, CaseFile, read_cases
from opassay.pipeline.check.dump_header import MINDSPORE, MINDTORCH, PYTORCH
from opassay.pipeline.check.files import CheckFiles, as_written
from opassay.pipeline.check.filter import keep_first
from opassay.pipeline.check.lists import Settings, read_settings
from opassay.pipeline.check.mindspore_devices import find_adapter, leave_adapter
from opassay.pipeline.check.profile import Profile, TextOf, profile_of
from opassay.pipeline.check.progress import CallProgress
from opassay.pipeline.check.resume import Journal, Resumed, resume
from opassay.pipeline.check.runner import Outcome, skipped
from opassay.pipeline.check.schedule import InOrder, ask_worker, longest_first, run_tasks, workers_for
from opassay.pipeline.check.worker import (
    Setting,
    Task,
    choose_mindspore_task,
    choose_reference_task,
    choose_task,
    run_task,
)
from opassay.pipeline.watch.logs import Verbosity, one_line
from opassay.schemas.check_options import CheckOptions
from opassay.schemas.check_rows import CaseResult, Status
from opassay.schemas.errors import UsageError

LOGGER: Final = logging.getLogger("opassay.check")

INTERRUPTED: Final = 130
_PART_LOST, _NOTHING_RUN, _FAILED = 3, 2, 1
_COST_UNIT: Final = 1000.0


@dataclass(slots=True)
class CheckReport:
    """What came out of a check.

    Attributes
    ----------
    result, details : Path
        The csv files.
    forward, backward : Counter of Status
        Verdicts of this run's calls; backward without those that have none.
    wrong : dict of int to CaseResult
        Calls with an error, by their place among those of this run.
    calls, ran, unread, lost, done_before : int
        Calls of this run; of them run on both sides, without readable tensors, lost with their process; calls that an
        earlier run had done.
    cut : bool
        The dump breaks off.
    interrupted : bool
        Ctrl-C ended the run.
    overheads_s : list of float
        Seconds beside the calls themselves, of each call that ran.
    """

    result: Path
    details: Path
    forward: Counter[Status] = field(default_factory=Counter)
    backward: Counter[Status] = field(default_factory=Counter)
    wrong: dict[int, CaseResult] = field(default_factory=dict)
    calls: int = 0
    ran: int = 0
    unread: int = 0
    lost: int = 0
    done_before: int = 0
    cut: bool = False
    interrupted: bool = False
    overheads_s: list[float] = field(default_factory=list)

    def count(self, place: int, outcome: Outcome) -> None:
        """Add a call."""
        result = outcome.result
        self.forward[result.forward] += 1
        if result.backward is not None:
            self.backward[result.backward] += 1
        if Status.ERROR in (result.forward, result.backward):
            self.wrong[place] = result
        self.ran += outcome.ran
        self.unread += outcome.unread
        self.lost += outcome.lost
        if outcome.ran:
            self.overheads_s.append(outcome.overhead_s)

    def exit_status(self, fail_on: str | None = None) -> int:
        """0 run through, 1 `fail_on` was met, 2 nothing could be run, 3 a part was lost, 130 interrupted."""
        if self.interrupted:
            return INTERRUPTED
        if self.calls and not self.ran and not self.done_before:
            return _NOTHING_RUN
        if self.lost or self.unread or self.cut:
            return _PART_LOST
        found = self.forward + self.backward
        grave = found[Status.ERROR] + (found[Status.WARNING] if fail_on == "warning" else 0)
        return _FAILED if fail_on and grave else 0


def check(options: CheckOptions, verbosity: Verbosity = "normal") -> CheckReport:
    """Run every call of a dump on the device and as a reference, and write the two csv files.

    Parameters
    ----------
    options : CheckOptions
        What to do.
    verbosity : {"quiet", "normal", "verbose"}
        Of the progress.

    Raises
    ------
    OpassayError
        If the dump, the config or the device cannot be used, or the files cannot be written.
    """
    cases = read_cases(options.api_info, options.framework)
    if options.framework == PYTORCH and cases.framework.lower() not in ("", PYTORCH):
        known = MINDSPORE if cases.framework.lower() in (MINDSPORE, MINDTORCH) else cases.framework
        raise UsageError(
            f"{options.api_info} is a dump of {cases.framework}; give its framework in front: opassay -f {known} run_ut"
        )
    profile = profile_of(cases.framework if options.framework != PYTORCH else PYTORCH)
    for problem in cases.problems:
        LOGGER.warning("%s: %s", options.api_info, one_line(problem))
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # for the fork server; see devices.load_torch
    adapter = _adapter(profile, cases)
    chooser = choose_task if profile.is_torch else choose_reference_task
    if not profile.is_torch and cases.task == "statistics":
        chooser = choose_mindspore_task
    devices = ask_worker(chooser, (options.device, options.device_ids))
    settings = read_settings(options.config)
    if devices.note:
        LOGGER.warning("%s", devices.note)
    if not profile.is_torch and cases.task == "tensor":
        LOGGER.info("the results that the dump recorded are compared with torch; MindSpore is not run")
    begun = _begin(options, profile, profile.text_of(settings.precision))
    with begun.files as files:
        setting = Setting(profile.name, devices, options.jit, options.threads, None, adapter)
        if options.save_error_data and _can_save(profile, cases):
            folder = profile.error_folder(files.result, files.stamp, settings.error_data_path)
            setting = replace(setting, error_data=folder)
        return _run(options, cases, settings, setting, begun, files, verbosity)


def _adapter(profile: Profile, cases: CaseFile) -> tuple[str, ...]:
    """Folders of MSAdapter on the module path; from here on torch is the native one."""
    if profile.is_torch:
        return ()
    adapter = find_adapter(needed=profile.has_adapter and cases.task == "statistics")
    leave_adapter(adapter)
    return adapter


def _can_save(profile: Profile, cases: CaseFile) -> bool:
    """Whether there are tensors that the dump does not hold already."""
    if profile.is_torch or cases.task == "statistics":
        return True
    LOGGER.warning("-save_error_data has no effect on a tensor dump of MindSpore: its tensors are all in the dump")
    return False


def _begin(options: CheckOptions, profile: Profile, text_of: TextOf) -> Resumed:
    if options.resume is not None:
        return resume(options.resume, text_of, profile.columns)
    return Resumed(CheckFiles.create(options.output, text_of, profile.columns), frozenset(), {})


def _run(
    options: CheckOptions,
    cases: CaseFile,
    settings: Settings,
    setting: Setting,
    begun: Resumed,
    files: CheckFiles,
    verbosity: Verbosity,
) -> CheckReport:
    report = CheckReport(files.result, files.details, cut=cases.cut)
    if not cases.names:
        LOGGER.warning("%s holds no call; the csv files have no rows", options.api_info)
    places = _places(options, cases, begun, report)
    profile, devices = profile_of(setting.framework), setting.devices
    workers = max(1, min(workers_for(options.splits, len(devices.ids)), len(places)))
    if workers < min(options.splits, len(places)):
        LOGGER.warning("-n %d: at most 8 processes a device are started, here %d", options.splits, workers)
    ahead = {
        number: begun.ahead[cases.names[place]]
        for number, place in enumerate(places)
        if cases.names[place] in begun.ahead
    }
    refused: dict[int, str] = {}
    if profile.has_lists:
        refused = {
            number: told for number, place in enumerate(places) if (told := _refused(cases.names[place], settings))
        }
    todo = [number for number in range(len(places)) if number not in ahead and number not in refused]
    costs = _costs(cases, [places[number] for number in todo]) if workers > 1 else [PER_CALL] * len(todo)
    tasks = [Task(setting, _only(cases, places[number])) for number in todo]
    order = longest_first(costs) if workers > 1 else range(len(todo))
    journal = Journal(files.result.parent, files.stamp)
    writer = InOrder(files, journal, len(places), ahead)
    running = run_tasks(
        run_task, tasks, order, name_of=lambda task: task.name, workers=workers, timeout_s=options.timeout_s
    )
    report.calls = len(places)
    for number, result in ahead.items():
        report.count(number, Outcome(result, ran=result.forward is not Status.SKIP))
    try:
        with CallProgress(verbosity) as progress:
            progress.start(
                round(sum(costs) / _COST_UNIT), len(todo), f"running {options.api_info.name} on {devices.kind}"
            )
            for number, told in refused.items():
                outcome = Outcome(skipped(cases.names[places[number]], told))
                report.count(number, outcome)
                writer.put(number, outcome.result)
            for place, outcome in running:
                if outcome.note:
                    LOGGER.warning("%s", one_line(outcome.note))
                number = todo[place]
                has_backward = cases.backward[places[number]][0] >= 0
                outcome = replace(outcome, result=profile.shown(outcome.result, has_backward=has_backward))
                report.count(number, outcome)
                writer.put(number, outcome.result)
                progress.advance(bytes=round(costs[place] / _COST_UNIT), pairs=1)
    except KeyboardInterrupt:
        report.interrupted = True
        running.close()
    finally:
        writer.close()
    return report


def _places(options: CheckOptions, cases: CaseFile, begun: Resumed, report: CheckReport) -> list[int]:
    """Places of the calls that are still to be run, in the order of the dump."""
    places = list(range(len(cases)))
    if options.filter_api:
        kept = keep_first(cases)
        places = kept.places
        LOGGER.info(
            "-f: %d of %d calls are run; the others repeat one of them but for their values", len(places), len(cases)
        )
        for name, count in kept.merged.items():
            LOGGER.debug("%s stands for %d more calls", name, count)
    rest = [place for place in places if as_written(cases.names[place]) not in begun.done]
    report.done_before = len(places) - len(rest)
    if options.resume is not None:
        foreign = len(begun.done) - report.done_before
        if foreign:
            LOGGER.warning(
                "%s names %d calls that are not to be run from %s; is it the same dump?",
                begun.files.result,
                foreign,
                options.api_info,
            )
        LOGGER.info("%d calls are done already, %d are left", report.done_before, len(rest))
    return rest


def _refused(name: str, settings: Settings) -> str:
    """Why the lists keep a call from being run; names that cannot be run anyway keep their own reason."""
    kind, _, rest = name.partition(".")
    return settings.refuses(rest.rpartition(".")[0]) if kind in RUN and name.count(".") in (2, 3) else ""


def _only(cases: CaseFile, place: int) -> CaseFile:
    """The file as if it held one call: all that a worker needs."""
    return replace(
        cases, names=[cases.names[place]], forward=[cases.forward[place]], backward=[cases.backward[place]], problems=[]
    )


def _costs(cases: CaseFile, places: list[int]) -> list[float]:
    wanted = set(places)
    return [_cost(case) for place, case in enumerate(cases) if place in wanted]


def _cost(case: Case) -> float:
    if case.skip:
        return PER_CALL
    return call_cost(
        case.api, list(_shapes([case.args, case.kwargs])), list(_shapes(case.outputs)), backward=case.has_backward
    )


def _shapes(value: Any, depth: int = 0) -> Iterator[list[int]]:
    """Shapes of all described tensors; what is no shape is left out."""
    if depth > 8:
        return
    if isinstance(value, dict):
        shape = value.get("shape")
        if isinstance(shape, list) and all(type(length) is int and 0 <= length < 1 << 40 for length in shape):
            yield shape
        elif "type" not in value:
            for item in value.values():
                yield from _shapes(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _shapes(item, depth + 1)
