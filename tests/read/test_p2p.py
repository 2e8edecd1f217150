"""Point-to-point operations keep what they do beside the row of their tensor, whichever reader read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opassay.pipeline.read.dump_json import Reader, read_dump
from opassay.schemas.dump_rows import P2P

from tests.read.dump_cases import document, tensor, write

REAL = Path(__file__).parents[1] / "data" / "collectives" / "statistics" / "step0" / "rank0" / "dump.json"
OP = "Distributed.batch_isend_irecv.0.forward"
READERS = [pytest.param("general"), pytest.param("tokenizer", marks=pytest.mark.slow)]


def p2p(op: Any = "isend", peer: Any = 1, tag: Any = 0, group: Any = "77849d8c", **more: Any) -> dict[str, Any]:
    """A leaf as the dump tool writes it."""
    return {
        "class_type": "torch.distributed.P2POp",
        "tensor": tensor(),
        "op": op,
        "peer": peer,
        "tag": tag,
        "group_id": group,
    } | more


def read(folder: Path, data: dict[str, Any], reader: Reader) -> dict[str, P2P]:
    """Name of each row that is one -> what it does; row numbers are those of the table."""
    table = read_dump(write(folder, document(data)), reader=reader)
    names = table.ops["name"]
    return {names[table.rows["op"][row]] + table.slots[table.rows["slot"][row]]: one for row, one in table.p2p.items()}


@pytest.mark.parametrize("reader", READERS)
def test_a_real_batch(reader: Reader) -> None:
    table = read_dump(REAL, reader=reader)
    told = [(table.slots[table.rows["slot"][row]], one) for row, one in table.p2p.items()]
    sends, receives = P2P("isend", 1, 0, "67e9e248"), P2P("irecv", 3, 0, "67e9e248")
    assert told == [(".input.0.0", sends), (".input.0.1", receives), (".output.0.0", sends), (".output.0.1", receives)]


@pytest.mark.parametrize("reader", READERS)
def test_rows_are_found_among_others_and_in_any_order_of_sections(tmp_path: Path, reader: Reader) -> None:
    record = {"output": [[p2p(peer=7)]], "input_args": [tensor(), [tensor(), p2p("irecv", 0, 5)]], "input_kwargs": {}}
    data = {
        "Torch.a.0.forward": {"output": [tensor()]},
        "Torch.no_direction": {},
        OP: record,
        "Torch.b.0.forward": {"output": [tensor()]},
    }
    assert read(tmp_path, data, reader) == {
        f"{OP}.input.1.1": P2P("irecv", 0, 5, "77849d8c"),
        f"{OP}.output.0.0": P2P("isend", 7, 0, "77849d8c"),
    }


@pytest.mark.parametrize("reader", READERS)
def test_fields_of_another_type_are_left_out(tmp_path: Path, reader: Reader) -> None:
    odd = [p2p(op=3, peer="1", tag=True, group=None), p2p(peer=2**70, tag=1.5), p2p(tensor=None)]
    assert read(tmp_path, {OP: {"input_args": [odd]}}, reader) == {
        f"{OP}.input.0.0": P2P("", None, None, ""),
        f"{OP}.input.0.1": P2P("isend", None, None, "77849d8c"),
    }


@pytest.mark.parametrize("reader", READERS)
def test_of_a_name_that_occurs_twice_the_last_record_counts(tmp_path: Path, reader: Reader) -> None:
    import json

    text = json.dumps(document({OP: {"input_args": [[p2p(peer=1)]]}, "x": 0}))
    again = json.dumps({OP: {"input_args": [[p2p(peer=2), p2p(peer=3)]]}})[1:-1]
    table = read_dump(write(tmp_path, text.replace('"x": 0', again)), reader=reader)
    assert {row: one.peer for row, one in table.p2p.items()} == {0: 2, 1: 3}


def test_other_dumps_have_none(tmp_path: Path) -> None:
    assert read(tmp_path, {"Torch.a.0.forward": {"output": [tensor()]}}, "general") == {}
