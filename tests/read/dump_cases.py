"""Made-up dumps for the tests of the readers, and tables in a form that can be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
from hypothesis import strategies as st
from opassay.pipeline.read.dump_json import Reader, read_dump
from opassay.schemas.dump_rows import DumpTable
from opassay.schemas.errors import DumpError

DATA = Path(__file__).parents[1] / "data" / "dumps"


def tensor(**fields: Any) -> dict[str, Any]:
    """A tensor leaf; keyword arguments replace or add fields."""
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3]}
    return leaf | {"Max": 1.5, "Min": -2.0, "Mean": 0.1, "Norm": 3.3, "requires_grad": True} | fields


def document(data: Any, **header: Any) -> dict[str, Any]:
    """A dump.json with this ``data``."""
    return (
        {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None} | header | {"data": data}
    )


def write(folder: Path, content: Any, name: str = "dump.json") -> Path:
    """Write a document (an object, or text or bytes as they are) and give its path."""
    path = folder / name
    if not isinstance(content, (str, bytes)):
        content = json.dumps(content, indent=1)
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    return path


def plain_rows(table: DumpTable) -> pl.DataFrame:
    """The rows with texts in place of codes."""
    rows = table.rows
    for column, texts in (
        ("slot", table.slots),
        ("dtype", table.dtypes),
        ("shape", table.shapes),
        ("value", table.values),
    ):
        rows = rows.with_columns(pl.Series(column, list(texts), dtype=pl.String).gather(rows[column]).alias(column))
    return rows


def outcome(path: Path, reader: Reader, slice_bytes: int = 2 << 20) -> dict[str, Any]:
    """What reading gives, without numbers of codes: the parts of a table, or the error."""
    try:
        table = read_dump(path, reader=reader, slice_bytes=slice_bytes)
    except DumpError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    header = (table.task, table.level, table.framework, table.checksum)
    return {
        "header": header,
        "ops": table.ops["name"].to_list(),
        "rows": plain_rows(table),
        "problems": table.problems,
    }


def assert_same(path: Path, slice_bytes: int = 2 << 20) -> None:
    """Both readers agree on a file."""
    general, tokenizer = outcome(path, "general"), outcome(path, "tokenizer", slice_bytes)
    general_rows, tokenizer_rows = general.pop("rows", None), tokenizer.pop("rows", None)
    assert general == tokenizer
    if general_rows is not None:
        assert general_rows.to_dicts().__repr__() == tokenizer_rows.to_dicts().__repr__()


_texts = st.text(st.characters(codec=None), max_size=8)
_words = st.sampled_from(
    ["type", "value", "dtype", "shape", "src", "dst", "Max", "class_type", "tensor", "a.b", "size", ""]
)
_numbers = st.one_of(
    st.floats(),
    st.floats(width=32),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**53, 2**53 + 1, -(2**53), 0, -0.0, 5e-324, 1.7976931348623157e308, 9007199254740993.0]),
)
_scalars = st.one_of(st.none(), st.booleans(), _numbers, _texts)
_odd = st.recursive(
    _scalars,
    lambda x: st.one_of(st.lists(x, max_size=3), st.dictionaries(_texts | _words, x, max_size=3)),
    max_leaves=5,
)
_tensors = st.fixed_dictionaries(
    {"type": st.sampled_from(["torch.Tensor", "numpy.ndarray", "DTensor"]), "dtype": st.sampled_from(["torch.half", "Float32"])},
    optional={
        "shape": st.lists(st.integers(0, 10**6), max_size=4),
        "Max": _scalars, "Min": _numbers, "Mean": _numbers, "Norm": st.none() | _numbers,
        "requires_grad": st.booleans() | st.none(),
        "md5": st.one_of(st.none(), st.sampled_from(["0x00ff", "0011aabb", "é"]), _numbers),
        "data_name": st.sampled_from(["", "x.pt", "Torch.a.0.forward.input.0.pt", "ü.b.npy", ".pt"]),
        "device_mesh": _odd,
    },
)  # fmt: skip
_leaves = st.one_of(
    _tensors,
    st.fixed_dictionaries({"type": st.sampled_from(["int", "float", "str", "torch.dtype", "x"]), "value": _scalars}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["torch.Size", "slice", "ellipsis", "torch.ProcessGroup", "int"])},
        optional={"value": _odd, "group_ranks": st.lists(st.integers(0, 9)), "dtype": _odd, "shape": _odd, "md5": _odd},
    ),
    st.fixed_dictionaries({"class_type": st.just("torch.distributed.P2POp")}, optional={"tensor": _tensors | _odd}),
)
_values = st.recursive(
    _leaves | st.none(),
    lambda x: st.one_of(st.lists(x, max_size=3), st.dictionaries(_texts | _words, x, max_size=3)),
    max_leaves=6,
)
_sections = st.dictionaries(
    st.sampled_from(["input_args", "input_kwargs", "input", "output", "parameters", "is_nan"]),
    _values | _odd,
    max_size=4,
)
_names = st.one_of(
    st.sampled_from(
        [
            "Torch.a.0.forward",
            "Torch.a.0.backward",
            "Module.m.L.forward.0",
            "Module.m.L.parameters_grad.0",
            "M.parameters_grad",
        ]
    ),
    st.builds(
        lambda text, way: f"{text}.{way}", _texts, st.sampled_from(["forward", "backward.1", "other", "forward.a.b"])
    ),
)
documents = st.builds(
    document, st.dictionaries(_names, _sections | _odd, max_size=5), level=st.sampled_from(["L1", "mix", "debug", None])
)
