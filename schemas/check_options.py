"""Frozen options of the accuracy check, as the library and the command line share them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

SPLITS: Final = (1, 64)
"""Fewest and most splits."""

MOST_DEVICE_ID: Final = 4095
"""Of MindSpore's devices."""

DEFAULT_TIMEOUT_S: Final = 1800.0


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """Options of ``run_ut`` and ``multi_run_ut``.

    Attributes
    ----------
    api_info : Path
        The dump.json.
    output : Path
        Folder of the csv files, made if needed; of no meaning with `resume`.
    resume : Path or None
        Result file of an earlier run that is to be completed.
    config : Path or None
        config.json with lists of APIs.
    filter_api : bool
        Of calls that differ in their values only, run the first.
    save_error_data : bool
        Keep the tensors of calls that are not in order.
    device : {"auto", "npu", "cuda", "cpu"}
        Kind of the device under test.
    device_ids : tuple of int
        Numbers of the devices, all different.
    jit : bool
        On NPUs: compile just in time and allow internal formats.
    splits : int
        Processes; no more than eight a device are started.
    threads : int
        Of torch on the CPU, in each process.
    timeout_s : float
        Seconds that a call may take; 0 for any time.
    fail_on : {None, "warning", "error"}
        Exit status 1 from this verdict on.
    framework : {"pytorch", "mindspore"}
        As whose dump the file is read; "mindspore" stands for MSAdapter, too.
    """

    api_info: Path
    output: Path = Path()
    resume: Path | None = None
    config: Path | None = None
    filter_api: bool = False
    save_error_data: bool = False
    device: Literal["auto", "npu", "cuda", "cpu"] = "auto"
    device_ids: tuple[int, ...] = (0,)
    jit: bool = False
    splits: int = 1
    threads: int = 1
    timeout_s: float = DEFAULT_TIMEOUT_S
    fail_on: Literal["warning", "error"] | None = None
    framework: Literal["pytorch", "mindspore"] = "pytorch"
