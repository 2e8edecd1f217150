"""Frozen options of each command, as the library and the command line share them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

WRAPPERS: Final[Mapping[str, str]] = {
    "_fsdp_wrapped_module": "FSDP (fully sharded data parallel) around a module",
    "_orig_mod": "torch.compile",
    "_checkpoint_wrapped_module": "activation checkpointing",
    "module": "DistributedDataParallel, DataParallel, Megatron's Float16Module and DDP",
}
"""Parts that wrappers put into module paths, and what puts them there; they hold no numbers of their own."""

LIST_INDEX: Final = "the list index in Module.0.net: a model that was handed over in a list"
"""The one wrapper that is a place and not a name: digits directly behind ``Module.``."""


@dataclass(frozen=True, slots=True)
class Matching:
    """How ops and rows of the two sides meet; files are read and checked already.

    Attributes
    ----------
    fuzzy : bool
        Align ops of one level and name whatever their call index (``-fm``).
    data_mapping : mapping of str to str, or None
        Target row name -> golden row name (``-dm``).
    cell_mapping : mapping of str to str, or None
        Module names of the target -> of the golden side (``-cm``); empty for the bare option.
    wrappers : tuple of str
        Regular expressions of whole parts of a module path that are left out where nothing else pairs; () for none.
    backend : {None, "fsdp", "megatron"}
        Training against inference, with the names of this backend (``--consistent_check``).
    """

    fuzzy: bool = False
    data_mapping: Mapping[str, str] | None = None
    cell_mapping: Mapping[str, str] | None = None
    wrappers: tuple[str, ...] = tuple(WRAPPERS)
    backend: Literal["fsdp", "megatron"] | None = None


BY_NAME: Final = Matching()
"""Equal names, wrappers left out where nothing else pairs: what holds where nothing is said."""


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
    diff_analyze : bool
        Write the answer of the search for the first difference; tensor dumps are compared on their statistics.
    fuzzy : bool
        Pair ops whatever their call index.
    data_mapping : Path or None
        File of row names.
    cell_mapping : Path, True or None
        File of module names; True for the option without a file.
    wrappers : bool
        Leave the parts that wrappers put into module paths out where nothing else pairs.
    more_wrappers : tuple of str
        Regular expressions of further such parts.
    backend : {None, "fsdp", "megatron"}
        Compare training against inference.
    shards : {"off", "auto"}
        Join the target's tensor-parallel ranks where the golden side has fewer.
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
    diff_analyze: bool = False
    fuzzy: bool = False
    data_mapping: Path | None = None
    cell_mapping: Path | Literal[True] | None = None
    wrappers: bool = True
    more_wrappers: tuple[str, ...] = ()
    backend: Literal["fsdp", "megatron"] | None = None
    shards: Literal["off", "auto"] = "off"
    fail_on: Literal["warning", "error"] | None = None
    workers: int = 0
    memory_bytes: int = 0
    device: str = "cpu"
    io: Literal["auto", "map", "read"] = "auto"
