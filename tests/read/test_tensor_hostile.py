"""Torch files made to harm: they change nothing, cost little, and give one short line."""

from __future__ import annotations

import io
import pickle
import resource
import struct
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opassay.pipeline.read.tensor_layout import one_line, shape_text
from opassay.pipeline.read.tensors import TensorFile, TensorUnreadable, open_tensor
from opassay.schemas.dtypes import BY_NAME


def number(value: Any) -> bytes:
    """The instructions that push a plain value."""
    return pickle.dumps(value, 2)[2:-1]


def tensor_pickle(shape: Any = (6,), strides: Any = (1,), count: int = 6, before: bytes = b"") -> bytes:
    """What ``torch.save`` writes for a float32 tensor, more or less."""
    return b"".join(
        [
            b"\x80\x02" + before + b"ctorch._utils\n_rebuild_tensor_v2\n((",
            number("storage") + b"ctorch\nFloatStorage\n" + number("0") + number("cpu") + number(count) + b"tQ",
            number(0) + number(shape) + number(strides) + b"\x89ccollections\nOrderedDict\n)RtR.",
        ]
    )


def write(path: Path, text: bytes, data: bytes = struct.pack("<6f", *range(6))) -> Path:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", text)
        archive.writestr("archive/byteorder", b"little")
        archive.writestr("archive/data/0", data)
    path.write_bytes(buffer.getvalue())
    return path


def reason(path: Path) -> str:
    with pytest.raises(TensorUnreadable) as caught:
        open_tensor(path)
    return str(caught.value)


def test_a_hand_made_tensor_is_read(tmp_path: Path) -> None:
    with open_tensor(write(tmp_path / "x.pt", tensor_pickle())) as file:
        assert file.read(0, 6).tolist() == [0, 1, 2, 3, 4, 5]
        assert file.found == "torch.float32 [6]"


@pytest.mark.parametrize(
    "attack",
    [
        b"ctorch\nfloat32\n" + number(["float32", 4, "float", 1, -126, "<f4"]) + b"b0",
        b"ctorch\nfloat32\n" + number({"width": 8}) + b"b0",
        b"ctorch\nFloatStorage\nN" + number({"dtype": "uint8"}) + b"\x86b0",
        b"ctorch._utils\n_rebuild_tensor_v2\n" + number({"__code__": None}) + b"b0",
        b"(itorch\nSize\n0",
        b"(ctorch\nSize\no0",
        b"ctorch\nSize\n)\x810",
        b"\x82\x010",
    ],
)
def test_a_pickle_reaches_no_object_of_ours(attack: bytes, tmp_path: Path) -> None:
    before = {name: asdict(row) for name, row in BY_NAME.items()}
    path = write(tmp_path / "x.pt", tensor_pickle(before=attack))
    assert reason(path).startswith("x.pt: ")
    assert {name: asdict(row) for name, row in BY_NAME.items()} == before
    with open_tensor(write(tmp_path / "y.pt", tensor_pickle())) as file:
        assert (file.dtype.name, file.read(0, 6).tolist()) == ("float32", [0, 1, 2, 3, 4, 5])


def test_a_huge_memo_index_costs_no_memory(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open_tensor(write(tmp_path / "x.pt", tensor_pickle(before=b"Nr" + struct.pack("<I", 250_000_000)))) as file:
        assert file.shape == (6,)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_nested_tuples_are_not_walked(tmp_path: Path) -> None:
    nest = b"K\x01" + b"".join(b"q\x00h\x00\x86" for _ in range(60))
    as_key = b"}" + nest + b"K\x01s"
    assert "keys that are neither" in reason(write(tmp_path / "key.pt", b"\x80\x02" + as_key + b"."))
    assert "not one tensor" in reason(write(tmp_path / "value.pt", b"\x80\x02" + nest + b"."))
    text = tensor_pickle().replace(number((6,)), nest)
    assert "wrong type" in reason(write(tmp_path / "shape.pt", text))


@pytest.mark.parametrize(
    ("shape", "strides", "says"),
    [
        ((1 << 45,), (0,), "shows the 6 elements of its storage over and over"),
        ((10**5000,), (1,), "more than 64 bits"),
        ((6,), (10**5000,), "more than 64 bits"),
        ((1 << 63,), (0,), "more than 64 bits"),
        ((1 << 62,) * 5000, (1,) * 5000, "5000 dimensions"),
        ((2,) * 40000, (1,) * 40000, "40000 dimensions"),
    ],
)
def test_sizes_beyond_reason(shape: Any, strides: Any, says: str, tmp_path: Path) -> None:
    text = reason(write(tmp_path / "x.pt", tensor_pickle(shape, strides)))
    assert text.startswith("x.pt: ")
    assert says in text
    assert len(text) < 500


def test_an_expanded_tensor_counts_the_bytes_it_has(tmp_path: Path) -> None:
    with open_tensor(write(tmp_path / "x.pt", tensor_pickle((1000, 6), (0, 1)))) as file:
        assert (file.size, file.nbytes) == (6000, 24)
        assert file.read(5990, 8).tolist() == [2, 3, 4, 5, 0, 1, 2, 3]


def test_more_dimensions_than_numpy_knows(tmp_path: Path) -> None:
    shape = (1,) * 70 + (2, 3)
    with open_tensor(write(tmp_path / "x.pt", tensor_pickle(shape, (6,) * 70 + (1, 2)))) as file:
        assert file.shape == shape
        assert file.read(0, 6).tolist() == [0, 2, 4, 1, 3, 5]


@pytest.mark.parametrize(
    "shape", ["(" + "9" * 5000 + ",)", "(" + "9" * 25 + ",)", "(9223372036854775807,) * 9", "(" * 90]
)
def test_a_numpy_header_with_huge_numbers(shape: str, tmp_path: Path) -> None:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(64))
    assert reason(path).startswith("x.npy: ")


def test_names_with_control_characters(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for name in ("torch.\x1b[31mred", "evil.\x1b[31mred\x07\u202e"):
        text = reason(write(tmp_path / "x.pt", b"\x80\x02c" + name.encode() + b"\nname\n."))
        assert text.isprintable()
        assert "weights_only" not in text
        assert "[31m" not in text


def test_texts_for_messages() -> None:
    assert one_line("a\x1b[1;31mb\x1b]c\r\n\t d\x00") == "abc d"
    assert one_line("x" * 5000) == "x" * 197 + "..."
    assert one_line("\x00" * 5000 + "x") == "..."
    assert shape_text((2, 3)) == "[2, 3]"
    assert shape_text((1,) * 100_000) == "[" + "1, " * 8 + "... 100000 dimensions]"


def strided(array: Any) -> Any:
    return np.asfortranarray(array)


@pytest.mark.parametrize("make", [strided, lambda array: array])
@pytest.mark.parametrize("mapped", [True, False])
def test_a_file_that_shrinks_is_named(make: Callable[[Any], Any], mapped: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, make(np.arange(90_000.0).reshape(300, 300)))
    with open_tensor(path, mapped=mapped) as file:
        file.side = "target file "
        with path.open("r+b") as other:
            other.truncate(70_000)
        with pytest.raises(TensorUnreadable, match=r"^target file x\.npy: shrank while it was read"):
            file.read(80_000, 1000)


@pytest.mark.parametrize("kind", ["u1", "f2", "f4", "f8", "c16"])
def test_views_are_read_without_a_map(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TensorFile, "_mapping", None)
    array = (np.arange(120_000) % 251).astype(kind).reshape(40, 30, 100)
    path = tmp_path / "x.npy"
    np.save(path, np.asfortranarray(array))
    with open_tensor(path, mapped=False) as file:
        assert not file.whole
        parts = [file.read(at, min(7001, file.size - at)).tobytes() for at in range(0, file.size, 7001)]
    assert b"".join(parts) == array.tobytes()
