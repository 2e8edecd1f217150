"""Frozen options of each command, as the library and the command line share them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """Options of ``compare``.

    Attributes
    ----------
    target, golden : Path
        A dump.json or debug.json, or a rank, step or dump-root folder.
    output : Path
        Folder of the results.
    xlsx, parquet : bool
        Write xlsx in place of csv; write typed rows to parquet as well.
    csv_safe : bool
        Prefix csv cells that a spreadsheet would run as a formula (decision 14).
    strict : bool
        No rounding allowance in the thousandth rule (decision 18).
    document_rules : bool
        Turn our own rules off (decision 19).
    tensor_log : bool
        Log every tensor comparison.
    fail_on : {None, "warning", "error"}
        Exit status 1 from this severity on.
    workers : int
        Processes that measure; 0 lets the machine decide.
    memory_bytes : int
        Budget of the whole process tree, in bytes; 0 lets the machine decide.
    device : str
        ``cpu``, or ``cuda``/``npu`` with an optional ``:index``.
    io : {"auto", "map", "read"}
        How tensor files are read: mapped windows or preadv into buffers.
    """

    target: Path
    golden: Path
    output: Path = Path("output")
    xlsx: bool = False
    parquet: bool = False
    csv_safe: bool = False
    strict: bool = False
    document_rules: bool = False
    tensor_log: bool = False
    fail_on: Literal["warning", "error"] | None = None
    workers: int = 0
    memory_bytes: int = 0
    device: str = "cpu"
    io: Literal["auto", "map", "read"] = "auto"
