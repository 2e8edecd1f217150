"""Which device MindSpore runs on, and where MSAdapter is."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from opassay.pipeline.check.devices import Devices, Kind, Wanted, load_torch
from opassay.pipeline.watch.logs import one_line
from opassay.schemas.errors import MissingLibrary, UsageError

_TARGETS: Final[dict[str, Kind]] = {"Ascend": "npu", "GPU": "cuda", "CPU": "cpu"}


def choose_mindspore(wanted: Wanted, ids: Sequence[int]) -> Devices:
    """Find the device under test; imports MindSpore and torch, so it runs in a worker.

    Parameters
    ----------
    wanted : {"auto", "npu", "cuda", "cpu"}
        ``auto`` takes the one that this MindSpore was built for.
    ids : sequence of int
        Numbers given with ``-d``; of no meaning on the CPU.

    Raises
    ------
    MissingLibrary
        If MindSpore or torch cannot be imported.
    UsageError
        If there is no such device.
    """
    load_torch()
    os.environ.setdefault("GLOG_v", "3")
    try:
        ms: Any = importlib.import_module("mindspore")
    except (ImportError, RuntimeError, OSError) as error:
        raise MissingLibrary(
            f"the calls of a statistics dump are run by MindSpore, which cannot be imported ({one_line(str(error))}); "
            "pip install 'opassay[mindspore]'. A tensor dump needs no MindSpore"
        ) from error
    built_for = str(ms.get_context("device_target"))
    kind = _TARGETS.get(built_for, "cpu")
    if wanted not in ("auto", "cpu", kind):
        raise UsageError(f"--device {wanted}: this MindSpore {ms.__version__} is one for {built_for}")
    if wanted == "cpu" or kind == "cpu":
        return Devices(
            "cpu", (0,), f"MindSpore {ms.__version__} runs on the cpu; calls that it has no kernel for there are SKIP"
        )
    count = _count(ms, built_for)
    absent = [number for number in ids if count is not None and number >= count]
    if absent:
        raise UsageError(f"-d {' '.join(map(str, absent))}: this machine has {count} {kind} devices, numbered from 0")
    return Devices(kind, tuple(ids))


def _count(ms: Any, target: str) -> int | None:
    """Devices of the machine; None where this MindSpore cannot say."""
    try:
        return int(ms.hal.device_count(target))
    except Exception:  # the function has moved from release to release
        return None


def choose_reference() -> Devices:
    """The device for tensor dumps, whose calls are not run: the CPU, for the reference. Raises MissingLibrary."""
    load_torch()
    return Devices("cpu", (0,))


def find_adapter(path: Sequence[str] | None = None, *, needed: bool) -> tuple[str, ...]:
    """The folders of the module path that hold MSAdapter's torch, in front of the native one.

    Parameters
    ----------
    path : sequence of str, optional
        ``sys.path`` without it.
    needed : bool
        Whether calls of MSAdapter are to be run.

    Raises
    ------
    UsageError
        If it is needed and either torch is missing.
    """
    adapter: list[str] = []
    has_native = False
    for entry in sys.path if path is None else path:
        home = Path(entry or ".") / "torch"
        if (home / "__init__.py").is_file():
            has_native = any(home.glob("_C.*"))  # it is compiled
            if has_native:
                break
            adapter.append(str(Path(entry or ".").absolute()))
    if needed and not (adapter and has_native):
        missing = (
            "no native torch behind MSAdapter" if adapter else "no MSAdapter in front of torch; put it on PYTHONPATH"
        )
        raise UsageError(
            f"the dump is one of mindtorch: Please check if you have a valid PyTorch and MindTorch environment ({missing})"
        )
    return tuple(adapter) if has_native else ()


def leave_adapter(adapter: Sequence[str]) -> None:
    """Take MSAdapter's folders from the module path, so that torch is the native one here and in the workers."""
    hidden = {os.path.realpath(folder) for folder in adapter}
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry or ".") not in hidden]
    told = os.environ.get("PYTHONPATH", "")
    if told:
        rest = [entry for entry in told.split(os.pathsep) if os.path.realpath(entry or ".") not in hidden]
        os.environ["PYTHONPATH"] = os.pathsep.join(rest)
