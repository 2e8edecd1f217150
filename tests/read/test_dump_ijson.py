"""An independent streaming parser, ijson, as the reference of both readers: same records, same values, same order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ijson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opassay.pipeline.read.dump_json import read_dump
from opassay.pipeline.read.flatten import flatten_record, record_class

from tests.read.dump_cases import DATA, document, plain_rows, tensor, write

FILES = sorted(path for path in DATA.rglob("d*.json") if not re.search(rb"\b(?:NaN|-?Infinity)\b", path.read_bytes()))


def by_ijson(path: Path) -> list[tuple[str, list[Any]]]:
    """(record name, (slot, dtype, shape, cells)) of every record that ijson finds, last one of a name."""
    with path.open("rb") as file:
        records = dict(ijson.kvitems(file, "data", use_float=True))
    is_debug = path.name == "debug.json"
    found = []
    for name, record in records.items():
        if record_class(name, is_debug=is_debug):
            rows, _ = flatten_record(name, record, is_debug)
            found.append((name, [(row.slot, row.dtype, row.shape, tuple(row.cells), tuple(row.kinds)) for row in rows]))
    return found


def by_us(path: Path, reader: Any) -> list[tuple[str, list[Any]]]:
    table = read_dump(path, reader=reader)
    rows = plain_rows(table)
    stats = ("max", "min", "mean", "norm")
    found: list[tuple[str, list[Any]]] = [(name, []) for name in table.ops["name"]]
    for row in rows.iter_rows(named=True):
        cells, kinds = tuple(row[s] for s in stats), tuple(row[f"{s}_kind"] for s in stats)
        found[row["op"]][1].append((row["slot"], row["dtype"], row["shape"], cells, kinds))
    return found


@pytest.mark.parametrize("reader", ["general", pytest.param("tokenizer", marks=pytest.mark.slow)])
@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(DATA)) for path in FILES])
def test_real_dumps(path: Path, reader: str) -> None:
    if "cut" in path.parts:
        with pytest.raises(ijson.IncompleteJSONError):
            by_ijson(path)
        return
    assert by_us(path, reader) == by_ijson(path)


# ijson refuses integers beyond 64 bits (the readers of opassay take them, see test_dump_flatten)
NUMBERS = st.one_of(
    st.none(), st.booleans(), st.integers(1 - 2**63, 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
)


@settings(max_examples=60, deadline=None)
@given(stats=st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=5))
def test_made_up_statistics(stats: list[tuple[Any, ...]], tmp_path_factory: pytest.TempPathFactory) -> None:
    leaves = [tensor(**dict(zip(("Max", "Min", "Mean", "Norm"), row, strict=True))) for row in stats]
    data = {"Torch.mul.0.forward": {"input_args": leaves, "output": [leaves[:1], {"键": leaves[-1]}]}}
    path = write(tmp_path_factory.mktemp("ijson"), document(data))
    assert by_us(path, "general") == by_ijson(path)
