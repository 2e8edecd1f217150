"""The short way to a torch file that is like one read before answers what the long way answers."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opassay.pipeline.read import torch_alike
from opassay.pipeline.read.tensors import TensorUnreadable, open_tensor

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    torch_alike._KINDS.clear()
    yield
    torch_alike._KINDS.clear()


def save(folder: Path, name: str, tensor: Any) -> Path:
    path = folder / f"{name}.pt"
    torch.save(tensor, path)
    return path


def answer(path: Path) -> tuple[Any, ...]:
    """All that a reader of the file sees."""
    try:
        with open_tensor(path) as file:
            return file.dtype.name, file.shape, file.read(0, file.size).tobytes()
    except TensorUnreadable as error:
        return (str(error),)


def both_ways(path: Path) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The answer with what is known now, and the answer of a reader that knows nothing."""
    known = dict(torch_alike._KINDS)
    with_it = answer(path)
    torch_alike._KINDS.clear()
    without = answer(path)
    torch_alike._KINDS.clear()
    torch_alike._KINDS.update(known)
    return with_it, without


def teach(folder: Path, tensor: Any, letters: int = 4) -> list[Path]:
    """Files of one kind, read until it is known."""
    paths = [save(folder, f"{letter * letters}", tensor) for letter in "abcd"]
    for path in paths:
        answer(path)
    assert torch_alike.known_layout(paths[0].read_bytes()) is not None
    return paths


def test_alike_files_take_the_short_way_and_keep_their_own_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teach(tmp_path, torch.zeros(6, 7))
    other = torch.arange(42, dtype=torch.float32).reshape(6, 7)
    path = save(tmp_path, "wxyz", other)
    monkeypatch.setattr("opassay.pipeline.read.tensors.parse_zip", None)
    assert answer(path) == ("float32", (6, 7), other.numpy().tobytes())


def test_files_that_differ_in_their_pickle_only_are_told_apart(tmp_path: Path) -> None:
    base = torch.arange(42, dtype=torch.int32).reshape(6, 7)
    teach(tmp_path, base)
    views = {"turn": base.reshape(7, 6), "line": base.reshape(2, 21), "view": base.reshape(7, 6).T, "part": base[1:]}
    sizes = set()
    for name, view in views.items():
        path = save(tmp_path, name, view)
        sizes.add(path.stat().st_size)
        for _ in range(2):  # the second time its pickle is known as well
            with_it, without = both_ways(path)
            assert with_it == without
            assert with_it[1] == tuple(view.shape)
            assert with_it[2] == view.contiguous().numpy().tobytes()
            answer(path)
    assert len(sizes) == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float64", "bool"])
def test_a_changed_byte_anywhere_is_seen_or_does_not_matter(dtype: str, tmp_path: Path) -> None:
    paths = teach(tmp_path, torch.ones(5, 3).to(getattr(torch, dtype)))
    whole = paths[0].read_bytes()
    damaged = tmp_path / "damaged.pt"
    draw = random.Random(3)
    for at in range(len(whole)):
        for value in {whole[at] ^ 1, draw.randrange(256)}:
            damaged.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            with_it, without = both_ways(damaged)
            assert with_it == without, (at, value)


def test_files_made_to_look_alike(tmp_path: Path) -> None:
    """Names that hold an entry's mark, one entry of another archive, another size, a second end record."""
    paths = teach(tmp_path, torch.ones(5, 3), letters=60)
    whole = paths[0].read_bytes()
    name = b"a" * 60
    start = struct.unpack_from("<L", whole, len(whole) - 6)[0]
    trap = b"PK\x01\x02" + b"\0" * 56
    odd = {
        "mark": whole.replace(name, trap),
        "entry": whole[:start] + whole[start:].replace(name, b"b" * 60, 1),
        "last": whole[: whole.rfind(name)] + b"b" * 60 + whole[whole.rfind(name) + 60 :],
        "longer": whole + whole[-22:],
        "shorter": whole[: start - 1] + whole[start:],
        "moved": b"\0" + whole,
        "end": whole.replace(name, b"PK\x05\x06" + b"\0" * 56),
        "slash": whole.replace(name, b"a/" * 30),
        "member": whole.replace(name, (b"a" * 60).replace(b"a" * 9, b"byteorder", 1)),
    }
    path = tmp_path / "odd.pt"
    for label, data in odd.items():
        assert data != whole
        path.write_bytes(data)
        with_it, without = both_ways(path)
        assert with_it == without, label


def test_checksums_and_names_may_differ(tmp_path: Path) -> None:
    paths = teach(tmp_path, torch.ones(5, 3))
    rows = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    other = save(tmp_path, "efgh", torch.from_numpy(rows)).read_bytes()
    assert torch_alike.known_layout(other) == torch_alike.known_layout(paths[1].read_bytes())


def test_what_is_remembered_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_alike, "_MOST_KINDS", 3)
    monkeypatch.setattr(torch_alike, "_MOST_LAYOUTS", 2)
    base = torch.arange(24)
    for letters in range(1, 7):
        for view in (base.reshape(2, 12), base.reshape(3, 8), base.reshape(4, 6)):
            for _ in range(4):
                path = save(tmp_path, "n" * letters, view)
                assert answer(path)[1] == tuple(view.shape)
        assert len(torch_alike._KINDS) <= 3
        for kind in torch_alike._KINDS.values():
            assert not isinstance(kind, torch_alike._Kind) or len(kind.layouts) <= 2
