"""Small dumps for the tests of the harness, and what its judgement of a report comes to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.parity.compare import compare_tables
from tests.parity.dump import Dump, read_dump
from tests.parity.pairing import Matching, pair_by
from tests.parity.reference import right_table
from tests.parity.tables import Table

Records = Mapping[str, Mapping[str, Any]]


def tensor(
    shape: Sequence[int] = (2,), value: float = 1.0, dtype: str = "torch.float32", **more: object
) -> dict[str, Any]:
    """A leaf of a dump: a tensor full of one value."""
    count = 1
    for n in shape:
        count *= n
    numbers = {"Max": value, "Min": value, "Mean": value, "Norm": abs(value) * count**0.5}
    return {"type": "torch.Tensor", "dtype": dtype, "shape": list(shape), **numbers, "requires_grad": True, **more}


def dump_of(folder: Path, records: Records, file: str = "dump.json", task: str = "statistics") -> Dump:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(json.dumps({"task": task, "data": records}))
    return read_dump(folder / file)


def sides(folder: Path, target: Records | Sequence[str], golden: Records | Sequence[str]) -> tuple[Dump, Dump]:
    made = []
    for name, records in (("target", target), ("golden", golden)):
        content = records if isinstance(records, Mapping) else {n: {"input_args": [tensor()]} for n in records}
        made.append(dump_of(folder / name, content))
    return made[0], made[1]


def names(matching: Matching, target: Dump, golden: Dump) -> list[tuple[str, str]]:
    found = pair_by(matching, target, golden)
    return [("" if m.target is None else m.target.name, "" if m.golden is None else m.golden.name) for m in found]


def records(matching: Matching, target: Dump, golden: Dump) -> dict[str, str]:
    return {
        m.target.record: "" if m.golden is None else m.golden.record
        for m in pair_by(matching, target, golden)
        if m.target
    }


def tally(matching: Matching, target: Dump, golden: Dump, rows: list[dict[str, str]]) -> list[str]:
    right = right_table(target, golden, matching)
    ours = Table(right.path, right.header, rows, [])
    found = compare_tables("t", None, ours, target, golden, "incumbent stops", None, matching)
    return [f"{f.column} {f.note}" for f in found.unexplained]
