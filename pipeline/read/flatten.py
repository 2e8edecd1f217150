"""One record of a dump, as Python objects -> its rows. For small dumps, and for each record the tokenizer hands back.

The rules of naming and of what a leaf shows stand here once; ``kernels.json_leaf`` repeats those for the plain leaves
only.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from opassay.schemas.dump_rows import P2P
from opassay.schemas.vocab import RowKind, Section, StatKind

DEPTH_LIMIT: Final = 400  # containers within one record, itself included
TEXT_JOINER: Final = "\x1f"
DIRECTIONS: Final = frozenset({"forward", "backward"})
PARAMETERS_GRAD: Final = "parameters_grad"

_SECTIONS: Final = {
    "input_args": (Section.INPUT_ARGS, ".input"),
    "input_kwargs": (Section.INPUT_KWARGS, ".input"),
    "input": (Section.INPUT, ".input"),
    "output": (Section.OUTPUT, ".output"),
    "parameters": (Section.PARAMETERS, ".parameters"),
}
_RANK_KEYS: Final = frozenset({"src", "dst", "group_src", "group_dst"})
_STATISTICS: Final = ("Max", "Min", "Mean", "Norm")
_KEPT_WITHOUT_DTYPE: Final = ("shape", "requires_grad", "md5", "data_name")
_EXACT_INT: Final = 2**53

Cells = tuple[float | None, float | None, float | None, float | None]
Kinds = tuple[int, int, int, int]
_NO_CELLS: Final[Cells] = (None, None, None, None)
_ALL_NONE: Final[Kinds] = (2, 2, 2, 2)
_ALL_TEXT: Final[Kinds] = (4, 4, 4, 4)


class FlatRow(NamedTuple):
    """One row before its texts are coded; fields as in ``schemas.dump_rows.ROWS``."""

    section: int
    slot: str
    kind: int
    dtype: str
    shape: str
    requires_grad: int
    cells: Cells
    kinds: Kinds
    value: str
    md5: str | None
    data_name: str | None
    p2p: P2P | None = None


class Trouble(NamedTuple):
    """Something odd in one record; becomes a ``DumpProblem``."""

    kind: str
    text: str
    fatal: bool


class TooDeep(Exception):
    """A record nests deeper than ``DEPTH_LIMIT``."""


def record_class(name: str, *, is_debug: bool) -> str:
    """What a record's name says it is.

    Parameters
    ----------
    name : str
        Key in ``data``.
    is_debug : bool
        Whether the file is a debug.json; every name is kept there.

    Returns
    -------
    str
        ``"debug"``, ``"parameters_grad"``, ``"call"`` (forward or backward), or ``""`` for no direction.
    """
    if is_debug:
        return "debug"
    parts = name.rsplit(".", 2)[-2:]
    if PARAMETERS_GRAD in parts:
        return PARAMETERS_GRAD
    return "call" if not DIRECTIONS.isdisjoint(parts) else ""


def flatten_record(name: str, record: Any, is_debug: bool) -> tuple[list[FlatRow], list[Trouble]]:
    """The rows of one record, in the order of the sections.

    Parameters
    ----------
    name : str
        Key in ``data``; must have a direction (see ``record_class``).
    record : object
        The value as the json module gives it.
    is_debug : bool
        Whether the file is a debug.json.

    Returns
    -------
    rows : list of FlatRow
        Sorted by section, stable in the order of the file.
    troubles : list of Trouble
        What could not be taken as it stands.
    """
    rows: list[FlatRow] = []
    troubles: list[Trouble] = []
    what = record_class(name, is_debug=is_debug)
    try:
        if what == "debug":
            _walk(rows, troubles, Section.DEBUG, "", record, 1, True)
        elif not isinstance(record, dict):
            found = "null" if record is None else _json_type(record)
            troubles.append(Trouble("record", f"the record is {found} where an object of sections is expected", True))
        elif what == PARAMETERS_GRAD:
            for key, value in record.items():
                _walk(rows, troubles, Section.PARAMETERS_GRAD, f".{key}", value, 2, False)
        else:
            for key, value in record.items():
                if key in _SECTIONS and value is not None:
                    section, infix = _SECTIONS[key]
                    if isinstance(value, (dict, list)):
                        _walk(rows, troubles, section, infix, value, 2, True)
                    else:
                        text = f"key {key!r} holds {_json_type(value)} where a list or an object is expected"
                        troubles.append(Trouble("record", text, True))
    except (TooDeep, RecursionError):
        text = f"the record nests deeper than {DEPTH_LIMIT} levels and was left out"
        return [], [Trouble("record", text, True)]
    rows.sort(key=_section_of)
    return rows, troubles


def _section_of(row: FlatRow) -> int:
    return row.section


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    return {str: "a string", int: "a number", float: "a number", list: "a list", dict: "an object"}.get(
        type(value), "null"
    )


def _walk(
    rows: list[FlatRow], troubles: list[Trouble], section: int, slot: str, value: Any, depth: int, numbered: bool
) -> None:
    """Rows of one value, depth first; ``numbered`` is whether a list level adds its index to the slot."""
    if value is None:
        rows.append(
            FlatRow(section, slot, int(RowKind.NONE), "", "", -1, _NO_CELLS, _ALL_NONE, "", None, None),
        )
    elif isinstance(value, (list, dict)):
        if depth > DEPTH_LIMIT:
            raise TooDeep
        if isinstance(value, list):
            for index, item in enumerate(value):
                _walk(rows, troubles, section, f"{slot}.{index}" if numbered else slot, item, depth + 1, numbered)
        elif isinstance(value.get("type"), str):
            rows.append(_leaf_row(troubles, section, slot, value))
        elif "class_type" in value:
            tensor = value.get("tensor")
            if isinstance(tensor, dict) and isinstance(tensor.get("type"), str):
                rows.append(_leaf_row(troubles, section, slot, tensor)._replace(p2p=_p2p(value)))
            else:
                troubles.append(Trouble("leaf", f"the point-to-point op at {slot!r} has no tensor", False))
        else:
            for key, item in value.items():
                _walk(rows, troubles, section, f"{slot}.{key}", item, depth + 1, numbered)
    else:
        troubles.append(Trouble("leaf", f"{slot!r} holds {_json_type(value)} that is in no leaf object", False))


def _p2p(leaf: dict[str, Any]) -> P2P:
    """Fields of a point-to-point operation; what is of another type than it should be is left out."""
    op, peer, tag, group = (leaf.get(key) for key in ("op", "peer", "tag", "group_id"))
    return P2P(
        op if isinstance(op, str) else "",
        peer if type(peer) is int and abs(peer) <= _EXACT_INT else None,
        tag if type(tag) is int and abs(tag) <= _EXACT_INT else None,
        group if isinstance(group, str) else "",
    )


def _leaf_row(troubles: list[Trouble], section: int, slot: str, leaf: dict[str, Any]) -> FlatRow:
    """The row of a leaf object (its ``type`` is a string)."""
    what, value = leaf["type"], leaf.get("value")
    bare = "value" not in leaf
    if "dtype" in leaf:
        return _tensor_row(troubles, section, slot, leaf)
    if bare and what.endswith("Tensor"):
        troubles.append(Trouble("leaf", f"the tensor at {slot!r} has no dtype; its statistics are left aside", False))
        known = {key: leaf[key] for key in _KEPT_WITHOUT_DTYPE if key in leaf}
        return _tensor_row(troubles, section, slot, known | {"dtype": None})
    data_name = _text_field(troubles, slot, leaf, "data_name")
    if what == "torch.Size" or what == "slice":
        shape = str(value) if what == "torch.Size" else "(3,)"
        kind = RowKind.SIZE if what == "torch.Size" else RowKind.SLICE
        return FlatRow(section, slot, int(kind), what, shape, -1, _NO_CELLS, _ALL_NONE, str(value), None, data_name)
    if what == "ellipsis":
        kind = RowKind.ELLIPSIS
        return FlatRow(section, slot, int(kind), what, "[]", -1, _NO_CELLS, _ALL_TEXT, "...", None, data_name)
    if slot.rpartition(".")[2] in _RANK_KEYS:
        kind = RowKind.PEER
        return FlatRow(section, slot, int(kind), what, "[]", -1, _NO_CELLS, _ALL_TEXT, str(value), None, data_name)
    if what == "torch.ProcessGroup":
        kind, text = RowKind.GROUP, str(leaf.get("group_ranks"))
        return FlatRow(section, slot, int(kind), what, "[]", -1, _NO_CELLS, _ALL_TEXT, text, None, data_name)
    cell, stat = _cell(value)
    text = str(value)
    if bare:
        text = leaf["format"] if what == "torch.memory_format" and isinstance(leaf.get("format"), str) else what
    return FlatRow(
        section, slot, int(RowKind.SCALAR), str(type(value)), "[]", -1,
        (cell, cell, cell, cell), (stat, stat, stat, stat), text, None, data_name,
    )  # fmt: skip


def _tensor_row(troubles: list[Trouble], section: int, slot: str, leaf: dict[str, Any]) -> FlatRow:
    """The row of a leaf that has a dtype."""
    dtype, shape, grad = leaf["dtype"], leaf.get("shape"), leaf.get("requires_grad")
    if dtype is not None and not isinstance(dtype, str):
        troubles.append(Trouble("leaf", f"dtype of {slot!r} is {_json_type(dtype)}, not a string", False))
    if shape is not None and not isinstance(shape, list):
        troubles.append(Trouble("leaf", f"shape of {slot!r} is {_json_type(shape)}, not a list", False))
    if grad is not None and not isinstance(grad, bool):
        troubles.append(Trouble("leaf", f"requires_grad of {slot!r} is {_json_type(grad)}, not true or false", False))
        grad = None
    value = ""
    if "tensor_stat_index" in leaf:
        cells, kinds = _NO_CELLS, _ALL_NONE
    else:
        values = [leaf.get(key) for key in _STATISTICS]
        (c0, k0), (c1, k1), (c2, k2), (c3, k3) = map(_cell, values)
        cells, kinds = (c0, c1, c2, c3), (k0, k1, k2, k3)
        if 4 in kinds:
            value = TEXT_JOINER.join(map(str, values))
            odd = [
                (key, one) for key, one in zip(_STATISTICS, values, strict=True) if isinstance(one, (str, list, dict))
            ]
            if odd:
                told = ", ".join(f"{key} ({_json_type(one)})" for key, one in odd)
                troubles.append(Trouble("leaf", f"statistics of {slot!r} are no numbers: {told}", False))
    return FlatRow(
        section, slot, int(RowKind.TENSOR),
        "" if dtype is None else str(dtype), "" if shape is None else str(shape), -1 if grad is None else int(grad),
        cells, kinds, value,
        _md5_field(troubles, slot, leaf), _text_field(troubles, slot, leaf, "data_name"),
    )  # fmt: skip


def _cell(value: Any) -> tuple[float | None, int]:
    """Float and ``StatKind`` of one statistic; plain ints, as this runs four times a row."""
    if isinstance(value, float):
        return value, 0
    if value is None:
        return None, 2
    if isinstance(value, bool):
        return float(value), 3
    if isinstance(value, int) and -_EXACT_INT <= value <= _EXACT_INT:
        return float(value), 1
    return None, int(StatKind.TEXT)


def _md5_field(troubles: list[Trouble], slot: str, leaf: dict[str, Any]) -> str | None:
    """The checksum; an xor dump writes the value itself for a tensor without dimensions."""
    value = leaf.get("md5")
    return str(value) if isinstance(value, (bool, int, float)) else _text_field(troubles, slot, leaf, "md5")


def _text_field(troubles: list[Trouble], slot: str, leaf: dict[str, Any], key: str) -> str | None:
    """A string field, None where it is missing, null or empty."""
    text = leaf.get(key)
    if text is None or isinstance(text, str):
        return text or None
    troubles.append(Trouble("leaf", f"{key} of {slot!r} is {_json_type(text)}, not a string", False))
    return None
