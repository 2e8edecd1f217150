"""From records to rows: naming, sections, kinds, printed values and checksums."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from opassay.pipeline.read.dump_json import read_dump
from opassay.pipeline.read.flatten import flatten_record, record_class
from opassay.schemas.dump_rows import OPS, ROWS
from opassay.schemas.vocab import RowKind, Section, StatKind

from tests.read.dump_cases import DATA, document, plain_rows, tensor, write


def _rows(folder: Path, data: object, name: str = "dump.json", **header: object) -> list[dict[str, object]]:
    return plain_rows(read_dump(write(folder, document(data, **header), name), reader="general")).to_dicts()


def test_slots_follow_lists_and_keys_and_sections_are_ordered() -> None:
    record = {
        "output": [[tensor(), None], {"x": tensor()}],
        "parameters": {"weight": tensor()},
        "input_kwargs": {"bias": tensor(), "empty": [], "none": {}},
        "input_args": [{"type": "int", "value": 3}],
        "is_recompute": True,
    }
    rows, troubles = flatten_record("Module.m.L.forward.0", record, False)
    assert [(r.section, r.slot) for r in rows] == [
        (Section.INPUT_ARGS, ".input.0"),
        (Section.INPUT_KWARGS, ".input.bias"),
        (Section.PARAMETERS, ".parameters.weight"),
        (Section.OUTPUT, ".output.0.0"),
        (Section.OUTPUT, ".output.0.1"),
        (Section.OUTPUT, ".output.1.x"),
    ]
    assert rows[4].kind == RowKind.NONE
    assert not troubles


def test_parameter_gradients_count_no_list_level() -> None:
    for name in ("Module.m.L.parameters_grad.0", "Module.m.L.parameters_grad"):
        rows, _ = flatten_record(name, {"weight": [tensor()], "bias": [None]}, False)
        assert [(r.section, r.slot) for r in rows] == [
            (Section.PARAMETERS_GRAD, ".weight"),
            (Section.PARAMETERS_GRAD, ".bias"),
        ]


def test_debug_values_are_walked_directly(tmp_path: Path) -> None:
    data = {"pos.0.debug": {"key1": tensor(), "key2": [{"type": "int", "value": 3}]}, "grad.0.debug": None}
    for name, level in (("debug.json", "L1"), ("dump.json", "debug")):
        rows = _rows(tmp_path, data, name, level=level)
        assert [(r["op"], r["slot"], r["section"]) for r in rows] == [(0, ".key1", 6), (0, ".key2.0", 6), (1, "", 6)]


def test_a_level_behind_the_data_makes_a_debug_dump_too(tmp_path: Path) -> None:
    late = '{"task":"tensor","data":{"v":{"type":"int","value":1}},"level":"debug"}'
    table = read_dump(write(tmp_path, late), reader="general")
    assert table.ops["name"].to_list() == ["v"]
    assert table.rows["section"].to_list() == [Section.DEBUG]


@pytest.mark.parametrize(
    ("leaf", "kind", "dtype", "shape", "value", "stat"),
    [
        ({"type": "int", "value": 3}, RowKind.SCALAR, "<class 'int'>", "[]", "3", StatKind.INT),
        ({"type": "int", "value": 2**60}, RowKind.SCALAR, "<class 'int'>", "[]", str(2**60), StatKind.TEXT),
        ({"type": "float", "value": 1e-05}, RowKind.SCALAR, "<class 'float'>", "[]", "1e-05", StatKind.FLOAT),
        ({"type": "bool", "value": False}, RowKind.SCALAR, "<class 'bool'>", "[]", "False", StatKind.BOOL),
        ({"type": "torch.dtype", "value": "torch.half"}, RowKind.SCALAR, "<class 'str'>", "[]", "torch.half", StatKind.TEXT),
        ({"type": "torch.memory_format", "format": "c"}, RowKind.SCALAR, "<class 'NoneType'>", "[]", "c", StatKind.NONE),
        ({"type": "tuple", "value": [1, "a"]}, RowKind.SCALAR, "<class 'list'>", "[]", "[1, 'a']", StatKind.TEXT),
        ({"type": "torch.Size", "value": [4, 6]}, RowKind.SIZE, "torch.Size", "[4, 6]", "[4, 6]", StatKind.NONE),
        ({"type": "slice", "value": [None, 2, None]}, RowKind.SLICE, "slice", "(3,)", "[None, 2, None]", StatKind.NONE),
        ({"type": "ellipsis", "value": "..."}, RowKind.ELLIPSIS, "ellipsis", "[]", "...", StatKind.TEXT),
        (
            {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "a"},
            RowKind.GROUP, "torch.ProcessGroup", "[]", "[0, 1]", StatKind.TEXT,
        ),
    ],
)  # fmt: skip
def test_leaves_that_are_no_tensor(leaf: object, kind: int, dtype: str, shape: str, value: str, stat: int) -> None:
    (row,), troubles = flatten_record("Torch.a.0.forward", {"input_args": [leaf]}, False)
    assert (row.kind, row.dtype, row.shape, row.value, set(row.kinds)) == (kind, dtype, shape, value, {stat})
    assert row.requires_grad == -1
    assert not troubles


def test_ranks_and_point_to_point_ops() -> None:
    record = {
        "input_args": [{"class_type": "torch.distributed.P2POp", "tensor": tensor()}],
        "input_kwargs": {"src": {"type": "int", "value": 1}},
    }
    rows, _ = flatten_record("Distributed.x.0.forward", record, False)
    assert [(r.slot, r.kind, r.value) for r in rows] == [
        (".input.0", RowKind.TENSOR, ""),
        (".input.src", RowKind.PEER, "1"),
    ]


def test_statistics_keep_their_kind(tmp_path: Path) -> None:
    odd = tensor(Max=2**53 + 1, Min=True, Mean=None, Norm=7)
    row = _rows(tmp_path, {"Torch.a.0.forward": {"output": [odd]}})[0]
    assert [row[f"{s}_kind"] for s in ("max", "min", "mean", "norm")] == [4, 3, 2, 1]
    assert [row[s] for s in ("max", "min", "mean", "norm")] == [None, 1.0, None, 7.0]
    assert row["value"] == "9007199254740993\x1fTrue\x1fNone\x1f7"


def test_placeholders_of_the_dump_process_are_no_statistics() -> None:
    (row,), _ = flatten_record("Torch.a.0.forward", {"output": [tensor(tensor_stat_index=3)]}, False)
    assert row.kinds == (2, 2, 2, 2)


def test_display_name_only_where_data_name_says_otherwise(tmp_path: Path) -> None:
    name = "Functional.linear.0.forward"
    record = {
        "input_args": [tensor(data_name=f"{name}.input.0.pt")],
        "input_kwargs": {"bias": tensor(data_name=f"{name}.kwargs.bias.pt")},
    }
    rows = _rows(tmp_path, {name: record}, task="tensor")
    assert [(r["name"], r["data_name"]) for r in rows] == [
        (None, f"{name}.input.0.pt"),
        (f"{name}.kwargs.bias", f"{name}.kwargs.bias.pt"),
    ]


def test_checksums(tmp_path: Path) -> None:
    scalars = [{"type": "int", "value": 3}, {"type": "int", "value": 4}, None, tensor(md5=None)]
    group = {"type": "torch.ProcessGroup", "group_ranks": [0, 1]}
    data = {
        "Torch.a.0.forward": {
            "input_args": scalars,
            "input_kwargs": {"group": group},
            "output": [[tensor(md5="12345678")]],
        }
    }
    path = write(tmp_path, document(data))
    table = read_dump(path, reader="general")
    assert (table.checksum, table.has_md5) == ("md5", True)
    assert table.rows["md5"].to_list() == ["6dd28e9b", "f3b61b38", None, None, "[0, 1]", "12345678"]
    data["Torch.a.0.forward"]["output"] = [tensor(md5="0x0011223344556677"), tensor(md5=0.5)]
    table = read_dump(write(tmp_path, document(data)), reader="general")
    assert table.checksum == "xor"
    assert table.rows["md5"].to_list()[-1] == "0.5"
    data["Torch.a.0.forward"]["output"] = [tensor()]
    table = read_dump(write(tmp_path, document(data)), reader="general")
    assert table.checksum == ""
    assert table.rows["md5"].null_count() == table.rows.height


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("Torch.a.0.forward", "call"), ("Module.m.L.backward.12", "call"), ("forward", "call"), ("a.b", ""), ("forward.a.b", ""),
        ("Module.m.L.parameters_grad", "parameters_grad"), ("Module.m.L.parameters_grad.3", "parameters_grad"),
    ],
)  # fmt: skip
def test_directions(name: str, what: str) -> None:
    assert record_class(name, is_debug=False) == what
    assert record_class(name, is_debug=True) == "debug"


def test_a_real_dump_of_odd_calls() -> None:
    table = read_dump(DATA / "odd_md5" / "dump.json", reader="general")
    assert (dict(table.rows.schema), dict(table.ops.schema)) == (dict(ROWS), dict(OPS))
    assert (table.task, table.level, table.framework, table.checksum) == ("statistics", "L1", "pytorch", "md5")
    assert (table.ops.height, table.rows.height, table.problems) == (73, 221, [])
    rows = plain_rows(table)
    slices = rows.filter(rows["kind"] == RowKind.SLICE)
    assert slices["shape"].unique().to_list() == ["(3,)"]
    assert [f"{zlib.crc32(text.encode()):08x}" for text in slices["value"]] == slices["md5"].to_list()


def test_a_real_xor_dump_and_real_saves() -> None:
    assert read_dump(DATA / "xor" / "dump.json").checksum == "xor"
    table = read_dump(DATA / "saves" / "debug.json")
    assert table.is_debug
    assert set(table.rows["section"]) == {Section.DEBUG}
    assert table.rows["name"].null_count() == table.rows.height
