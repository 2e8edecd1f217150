"""A dump.json or debug.json as rows, read with the standard library only, and which records pair under other names than their own."""

from __future__ import annotations

import ast
import json
import math
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

INPUTS = ("input_args", "input_kwargs", "input")
SECTIONS = {"input_args": 0, "input_kwargs": 0, "input": 0, "parameters": 1, "output": 2}
INFIX = {
    "input_args": ".input",
    "input_kwargs": ".input",
    "input": ".input",
    "output": ".output",
    "parameters": ".parameters",
}
STATISTICS = ("Max", "Min", "Mean", "Norm")
PEER_SLOTS = ("src", "dst", "group_src", "group_dst")


@dataclass(frozen=True)
class DumpRow:
    """One leaf of a dump.

    Attributes
    ----------
    record, section, slot : str
        Record name; key of the section (``parameters_grad`` and ``debug`` too); structural place, ``.input.0``.
    name : str
        Name in reports.
    kind : str
        ``tensor``, ``none``, ``size``, ``slice``, ``ellipsis``, ``group``, ``peer`` or ``scalar``.
    dtype, shape, requires_grad : str
        Texts of the report, ``""`` where there is none.
    statistics : tuple
        The four JSON values, or the value of a scalar four times.
    md5 : str
        Checksum, ``""`` where there is none.
    data_name : str
        File of the tensor, ``""`` where none is recorded.
    folder : Path
        Where that file is.
    raw : object
        The leaf as the JSON has it.
    parts : tuple of DumpRow
        Rows that this one was put together from (``train_infer``), () for a row of the dump.
    axis : int or None
        The axis that joins the parts' tensors; None where they are one tensor and the first stands for all.
    """

    record: str
    section: str
    slot: str
    name: str
    kind: str
    dtype: str
    shape: str
    requires_grad: str
    statistics: tuple[Any, ...]
    md5: str
    data_name: str
    folder: Path
    raw: Any = field(default=None, compare=False)
    parts: tuple[DumpRow, ...] = ()
    axis: int | None = None

    @property
    def is_input(self) -> bool:
        """Whether the row is on the input side of its record."""
        return self.section in (*INPUTS, "parameters")

    @property
    def is_output(self) -> bool:
        """Whether the row is an output, by its section."""
        return self.section == "output"

    @property
    def has_no_input_side(self) -> bool:
        """Whether the row stands alone (gradients of parameters, single-point saves)."""
        return self.section in ("parameters_grad", "debug")

    @property
    def elements(self) -> int | None:
        """Elements by the recorded shape, None where there is no shape."""
        if self.parts:
            counts = [part.elements for part in self.parts[: None if self.axis is not None else 1]]
            return None if None in counts else sum(n or 0 for n in counts)
        try:
            return math.prod(ast.literal_eval(self.shape)) if self.kind == "tensor" else None
        except (ValueError, SyntaxError, TypeError):
            return None


@dataclass(frozen=True)
class Dump:
    """All rows of one file, in report order."""

    path: Path
    task: str
    rows: list[DumpRow]
    records: list[str]
    stacks: dict[str, list[str]]
    has_stack: bool

    @property
    def has_md5(self) -> bool:
        """Whether any tensor has a checksum of its own."""
        return any(r.md5 for r in self.rows if r.kind == "tensor")


def direction(record: str) -> str:
    """``forward``, ``backward``, ``parameters_grad``, or ``""``."""
    for part in record.split(".")[-1:-3:-1]:
        if part in ("forward", "backward", "parameters_grad"):
            return part
    return ""


def operator_and_index(record: str) -> tuple[str, int | None]:
    """The record name without its call index, and the index."""
    parts = record.split(".")
    for at in (len(parts) - 2, len(parts) - 1):
        if at >= 0 and parts[at] in ("forward", "backward", "parameters_grad"):
            spot = at + 1 if at + 1 < len(parts) else at - 1
            if 0 <= spot < len(parts) and parts[spot].isdigit():
                return ".".join(parts[:spot] + parts[spot + 1 :]), int(parts[spot])
    return record, None


def api_name(record: str) -> str:
    """The API's own name, ``""`` for modules and anything else."""
    parts = record.split(".")
    if parts[0] in ("Module", "Cell") or len(parts) < 4 or direction(record) not in ("forward", "backward"):
        return ""
    return ".".join(parts[1:-2])


def _crc(value: Any) -> str:
    return f"{zlib.crc32(str(value).encode()):08x}"


def _leaf(value: Any, slot: str) -> tuple[str, str, str, str, tuple[Any, ...], str]:
    """Kind, dtype, shape, requires_grad, statistics, md5 of a leaf."""
    if value is None:
        return "none", "", "", "", (None,) * 4, ""
    kind = value["type"]
    if isinstance(value.get("dtype"), str):
        grad = value.get("requires_grad")
        shape = str(value.get("shape", "")) if "shape" in value else ""
        return (
            "tensor",
            value["dtype"],
            shape,
            "" if grad is None else str(grad),
            tuple(value.get(s) for s in STATISTICS),
            "" if value.get("md5") is None else str(value["md5"]),
        )
    content = value.get("value")
    if kind == "torch.Size":
        return "size", "torch.Size", str(content), "", (None,) * 4, _crc(content)
    if kind == "slice":
        return "slice", "slice", "(3,)", "", (None,) * 4, _crc(content)
    if kind == "ellipsis":
        return "ellipsis", "ellipsis", "[]", "", ("...",) * 4, _crc(content)
    if slot.rpartition(".")[2] in PEER_SLOTS:
        return "peer", kind, "[]", "", (str(content),) * 4, str(content)
    if kind == "torch.ProcessGroup":
        ranks = str(value.get("group_ranks"))
        return "group", "torch.ProcessGroup", "[]", "", (ranks,) * 4, ranks
    return "scalar", f"<class '{type(content).__name__}'>", "[]", "", (content,) * 4, _crc(content)


def _walk(value: Any, slot: str, *, numbered: bool) -> list[tuple[str, Any]]:
    if value is None:
        return [(slot, None)]
    if isinstance(value, list):
        found = []
        for at, item in enumerate(value):
            found += _walk(item, f"{slot}.{at}" if numbered else slot, numbered=numbered)
        return found
    if isinstance(value, dict):
        if isinstance(value.get("type"), str):
            return [(slot, value)]
        if "class_type" in value:
            return [(slot, value.get("tensor"))]
        found = []
        for key, item in value.items():
            found += _walk(item, f"{slot}.{key}", numbered=numbered)
        return found
    return []


def _record_rows(record: str, content: Any, folder: Path, *, debug: bool) -> list[DumpRow]:
    leaves: list[tuple[int, str, str, Any]] = []
    if debug:
        leaves = [(0, "debug", slot, leaf) for slot, leaf in _walk(content, "", numbered=True)]
    elif not isinstance(content, dict):
        return []
    elif direction(record) == "parameters_grad":
        leaves = [(3, "parameters_grad", slot, leaf) for slot, leaf in _walk(content, "", numbered=False)]
    elif direction(record):
        for section, rank in SECTIONS.items():
            if section in content:
                leaves += [(rank, section, s, x) for s, x in _walk(content[section], INFIX[section], numbered=True)]
        leaves.sort(key=lambda item: item[0])
    rows = []
    for _, section, slot, leaf in leaves:
        kind, dtype, shape, grad, statistics, md5 = _leaf(leaf, slot)
        data_name = (leaf or {}).get("data_name") or ""
        name = data_name.rpartition(".")[0] if data_name else record + slot
        rows.append(
            DumpRow(record, section, slot, name, kind, dtype, shape, grad, statistics, md5, data_name, folder, leaf)
        )
    return rows


def _stacks(path: Path) -> dict[str, list[str]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    if not content.get("0"):
        return {k: v for k, v in content.items() if isinstance(v, list)}
    return {n: e[1] for e in content.values() if isinstance(e, list) and len(e) == 2 for n in e[0]}


def read_dump(path: Path) -> Dump:
    """Read one dump.

    Raises
    ------
    ValueError
        If the file is not a JSON object with an object ``data``.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or not isinstance(content.get("data"), dict):
        raise ValueError(f"{path}: no object data")
    debug = path.name.endswith("debug.json")
    folder = path.parent / "dump_tensor_data"
    rows: list[DumpRow] = []
    for record, value in content["data"].items():
        rows += _record_rows(record, value, folder, debug=debug)
    stack = path.parent / "stack.json"
    return Dump(path, content.get("task") or "", rows, list(content["data"]), _stacks(stack), stack.exists())


def _backward_partners(target: Sequence[str], golden: Sequence[str]) -> dict[str, str]:
    """Backward records that pair by order of appearance: index sets that differ and are of one size (decision 6)."""
    sides = []
    for records in (target, golden):
        calls: dict[str, list[str]] = defaultdict(list)
        for record in records:
            if direction(record) == "backward":
                calls[operator_and_index(record)[0]].append(record)
        sides.append(calls)
    partners: dict[str, str] = {}
    for operator, mine in sides[0].items():
        theirs = sides[1].get(operator, [])
        if len(mine) == len(theirs) and set(mine) != set(theirs):
            partners.update(zip(mine, theirs, strict=True))
    return partners


def record_partners(target: Sequence[str], golden: Sequence[str], *, by_appearance: bool = True) -> dict[str, str]:
    """Target record -> golden record where they pair under another name than the target's own.

    Parameters
    ----------
    target, golden : sequence of str
        Record names in execution order.
    by_appearance : bool
        Whether backward records may pair as decision 6 has it; the two layouts of ``parameters_grad`` do in any case (decision 21).
    """
    partners = _backward_partners(target, golden) if by_appearance else {}
    ours, theirs = set(target), set(golden)
    for record in target:
        if direction(record) != "parameters_grad" or record in theirs:
            continue
        bare, index = operator_and_index(record)
        other = bare if index == 0 else f"{record}.0" if index is None else ""
        if other in theirs and other not in ours:
            partners[record] = other
    return partners
