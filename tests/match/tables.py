"""Dump tables and pairings in plain lists, for the tests of matching."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from opassay.pipeline.match.pairing import Pairing, pair_dumps
from opassay.schemas.dump_rows import OPS, ROWS, DumpTable
from opassay.schemas.options import BY_NAME, Matching
from opassay.schemas.pair_rows import PAIR_ROWS
from opassay.schemas.vocab import RowKind, Section, StatKind

Ops = Sequence[tuple[str, Sequence[str]]]


def table(ops: Ops, shapes: Sequence[str] = ()) -> DumpTable:
    """A dump with these records and slots; ``shapes`` names the shape of every row of each op."""
    slots = list(dict.fromkeys(slot for _, held in ops for slot in held))
    rows = [(number, slots.index(slot)) for number, (_, held) in enumerate(ops) for slot in held]
    plain = {
        "section": Section.INPUT_ARGS,
        "kind": RowKind.TENSOR,
        "dtype": 0,
        "shape": 0,
        "requires_grad": 0,
        "value": 0,
        **dict.fromkeys(("max_kind", "min_kind", "mean_kind", "norm_kind"), int(StatKind.NONE)),
    }
    known = list(dict.fromkeys(shapes)) or ["[]"]
    columns: dict[str, Any] = {"op": [op for op, _ in rows], "slot": [slot for _, slot in rows]}
    if shapes:
        columns["shape"] = [known.index(shapes[op]) for op, _ in rows]
    frame = pl.DataFrame(
        {name: columns.get(name, [plain.get(name)] * len(rows)) for name in ROWS}, schema=dict(ROWS), strict=False
    )
    names = pl.DataFrame({"name": [name for name, _ in ops]}, schema=dict(OPS))
    return DumpTable(Path("dump.json"), "statistics", "L1", "pytorch", names, frame, slots, ["x"], known, [""])


def names_of(side: DumpTable) -> list[str]:
    ops = side.ops["name"].to_list()
    return [ops[op] + side.slots[slot] for op, slot in side.rows.select("op", "slot").rows()]


def met(target: Ops, golden: Ops, matching: Matching = BY_NAME) -> tuple[list[tuple[str | None, str | None]], Pairing]:
    """Names of the rows that meet, in report order."""
    sides = table(target), table(golden)
    found = pair_dumps(*sides, matching)
    assert dict(found.rows.schema) == dict(PAIR_ROWS)
    ours, theirs = names_of(sides[0]), names_of(sides[1])
    shown: list[tuple[str | None, str | None]] = [
        (None if mine is None else ours[mine], None if other is None else theirs[other])
        for mine, other in found.rows.select("target_row", "golden_row").rows()
    ]
    return shown, found


def ops(*names: str, slots: Sequence[str] = (".input.0",)) -> list[tuple[str, Sequence[str]]]:
    return [(name, slots) for name in names]
