"""What a worker process of the check does: gets ready once for its device, then runs one call after the other.

The framework is imported in the workers only; the fork server has it loaded already, see `warm`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opassay.pipeline.check.cases import CaseFile
from opassay.pipeline.check.devices import Devices, Wanted, choose, prepare
from opassay.pipeline.check.dump_header import MINDSPORE, MINDTORCH, PYTORCH
from opassay.pipeline.check.framework import Framework
from opassay.pipeline.check.runner import Outcome, run_case
from opassay.pipeline.run.pool import seat

BROKEN: Final = ("CUDA error", "device-side assert", "NPU error", "ACL stream synchronize failed")
"""What an accelerator's errors say after which a process can do nothing more with it."""

_EXIT: Final = 70


@dataclass(frozen=True, slots=True)
class Setting:
    """What holds for all calls of a run.

    Attributes
    ----------
    framework : str
        Name of it.
    devices : Devices
        Under test; a worker takes the one of its seat.
    jit : bool
        Of NPUs.
    threads : int
        Of a process on the cpu.
    error_data : Path or None
        Where tensors of wrong results go.
    adapter : tuple of str
        Folders that hold MSAdapter's torch.
    """

    framework: str
    devices: Devices
    jit: bool = False
    threads: int = 1
    error_data: Path | None = None
    adapter: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """One call: the places of its records in the dump, which the worker reads by itself.

    Attributes
    ----------
    setting : Setting
        Of the run.
    cases : CaseFile
        With one name.
    """

    setting: Setting
    cases: CaseFile

    @property
    def name(self) -> str:
        """Of the call."""
        return self.cases.names[0]


def _torch(setting: Setting) -> Framework:
    from opassay.pipeline.check.torch_framework import TorchFramework

    device = prepare(setting.devices.of_seat(seat()), jit=setting.jit, threads=setting.threads)
    return TorchFramework(device)


def _mindspore(setting: Setting) -> Framework:
    from opassay.pipeline.check.mindspore_framework import MindSporeFramework, TestedSide

    device = setting.devices.of_seat(seat())
    prepare("cpu", jit=False, threads=setting.threads)  # of torch, for the reference

    def start() -> TestedSide:
        if setting.framework == MINDTORCH:
            from opassay.pipeline.check.adapter_process import AdapterProcess

            return AdapterProcess(device, setting.adapter)
        from opassay.pipeline.check.mindspore_calls import MindSporeSide

        return MindSporeSide(device)

    return MindSporeFramework(setting.framework, start)


FRAMEWORKS: Final[dict[str, Callable[[Setting], Framework]]] = {
    PYTORCH: _torch,
    MINDSPORE: _mindspore,
    MINDTORCH: _mindspore,
}
"""How each framework gets ready in a process."""

_ready: tuple[Setting, Framework] | None = None
_broken = False


def choose_task(wanted: tuple[Wanted, tuple[int, ...]]) -> Devices:
    """Find the device under test: in a worker, so that the command itself need not load the framework.

    Parameters
    ----------
    wanted : tuple of str and tuple of int
        Arguments of `devices.choose`.
    """
    return choose(*wanted)


def choose_mindspore_task(wanted: tuple[Wanted, tuple[int, ...]]) -> Devices:
    """The same for MindSpore.

    Parameters
    ----------
    wanted : tuple of str and tuple of int
        Arguments of `mindspore_devices.choose_mindspore`.
    """
    from opassay.pipeline.check.mindspore_devices import choose_mindspore

    return choose_mindspore(*wanted)


def choose_reference_task(_: object) -> Devices:
    """The device of tensor dumps of MindSpore."""
    from opassay.pipeline.check.mindspore_devices import choose_reference

    return choose_reference()


def run_task(task: Task) -> Outcome:
    """Run one call in this process.

    Parameters
    ----------
    task : Task
        Of any run; the process gets ready again where the setting is another.
    """
    global _ready, _broken
    if _broken:
        os._exit(_EXIT)  # the pool gives the call to a fresh process
    if _ready is None or _ready[0] != task.setting:
        _ready = task.setting, FRAMEWORKS[task.setting.framework](task.setting)
    outcome = run_case(_ready[1], task.cases[0], task.setting.error_data)
    if task.setting.devices.kind != "cpu" and any(word in outcome.result.message for word in BROKEN):
        _broken = True
    return outcome
