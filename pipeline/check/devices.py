"""Which device is under test, and what a process has to do before it can use it."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from opassay.pipeline.watch.logs import one_line
from opassay.schemas.errors import MissingLibrary, UsageError

LOGGER: Final = logging.getLogger("opassay.check")

Kind = Literal["npu", "cuda", "cpu"]
Wanted = Literal["auto", "npu", "cuda", "cpu"]

_NOT_IMPORTED: Final = (
    ImportError,
    RuntimeError,
    OSError,
)  # torch_npu without the driver's libraries raises any of them


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices under test.

    Attributes
    ----------
    kind : {"npu", "cuda", "cpu"}
        What they are.
    ids : tuple of int
        Their numbers, at least one; the cpu has number 0 only.
    note : str
        What a user should know about the choice; "" where nothing.
    """

    kind: Kind
    ids: tuple[int, ...]
    note: str = ""

    def of_seat(self, seat: int) -> str:
        """The device of a worker: ``cuda:1``; workers take turns."""
        return "cpu" if self.kind == "cpu" else f"{self.kind}:{self.ids[seat % len(self.ids)]}"


def load_torch() -> Any:
    """Import torch without the device extensions that it would load by itself: one that is broken breaks torch.

    Raises
    ------
    MissingLibrary
        If torch is not installed or cannot be loaded.
    """
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    try:
        return importlib.import_module("torch")
    except _NOT_IMPORTED as error:
        raise MissingLibrary(
            f"the accuracy check runs torch operators, and torch cannot be imported ({_brief(error)}); pip install 'opassay[torch]'"
        ) from error


def choose(wanted: Wanted, ids: Sequence[int]) -> Devices:
    """Find the device under test.

    Parameters
    ----------
    wanted : {"auto", "npu", "cuda", "cpu"}
        ``auto`` takes the NPU if it can be used, else a GPU, else the CPU: operators then run in their own dtype there and
        are compared with the same operators in float64.
    ids : sequence of int
        Numbers given with ``-d``, checked already; of no meaning on the CPU.

    Raises
    ------
    MissingLibrary
        If torch is missing, or torch_npu where it is asked for.
    UsageError
        If there is no such device.
    """
    torch = load_torch()
    notes = []
    if wanted in ("auto", "npu"):
        problem = _npu_problem(torch)
        if not problem:
            return Devices("npu", _existing("npu", ids, torch.npu.device_count()))
        if wanted == "npu":
            raise MissingLibrary(f"--device npu: {problem}; --device cpu runs the operators on the cpu")
        if importlib.util.find_spec("torch_npu") is not None:
            notes.append(problem)
    if wanted in ("auto", "cuda"):
        if torch.cuda.is_available():
            return Devices("cuda", _existing("cuda", ids, torch.cuda.device_count()), "; ".join(notes))
        if wanted == "cuda":
            built = "" if torch.backends.cuda.is_built() else ", and this torch is built without cuda"
            raise UsageError(
                f"--device cuda: torch finds no cuda device{built}; --device cpu runs the operators on the cpu"
            )
    if wanted == "auto":
        notes.append(
            "neither NPU nor GPU: the device under test is the cpu, with every operator in its own dtype against float64"
        )
    return Devices("cpu", (0,), "; ".join(notes))


def _npu_problem(torch: Any) -> str:
    """Why no NPU can be used; "" if one can."""
    try:
        importlib.import_module("torch_npu")
    except ModuleNotFoundError as error:
        if error.name == "torch_npu":
            return "torch_npu is not installed; pip install 'opassay[npu]'"
        return f"torch_npu cannot be imported ({_brief(error)})"
    except _NOT_IMPORTED as error:
        return f"torch_npu is installed and cannot be imported ({_brief(error)}); is the CANN environment set?"
    return "" if torch.npu.is_available() else "torch_npu finds no NPU"


def _existing(kind: Kind, ids: Sequence[int], count: int) -> tuple[int, ...]:
    absent = [number for number in ids if number >= count]
    if absent:
        there = f"{count} {kind} device{'s' * (count != 1)}"
        raise UsageError(f"-d {' '.join(map(str, absent))}: this machine has {there}, numbered from 0")
    return tuple(ids)


def _brief(error: BaseException) -> str:
    return one_line(str(error).splitlines()[0] if str(error) else type(error).__name__)


def prepare(device: str, *, jit: bool, threads: int) -> Any:
    """Make this process ready for a device: once, before the first call.

    Parameters
    ----------
    device : str
        ``cpu``, ``cuda:0``, ``npu:1``.
    jit : bool
        On an NPU: compile operators just in time and allow internal formats.
    threads : int
        Of torch on the cpu.

    Returns
    -------
    torch.device
        The device.
    """
    torch = load_torch()
    torch.set_num_threads(threads)
    kind = device.partition(":")[0]
    chosen = torch.device(device)
    if kind == "npu":
        importlib.import_module("torch_npu")
        torch.npu.set_device(chosen)
        torch.npu.set_compile_mode(jit_compile=jit)
        torch.npu.config.allow_internal_format = jit
    elif kind == "cuda":
        torch.cuda.set_device(chosen)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    return chosen
