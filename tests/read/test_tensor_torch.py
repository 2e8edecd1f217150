"""Torch files: our reader gives the values that torch gives, and never runs what a file asks for."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opassay.pipeline.read.tensors import PageBuffer, TensorUnreadable, open_tensor
from opassay.schemas.dtypes import BY_NAME

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")

NAMES = tuple(BY_NAME)


def stored(name: str, count: int) -> Any:
    """``count`` elements of random bits (bool: 0 or 1)."""
    row = BY_NAME[name]
    bits = np.random.default_rng(7).integers(0, 2 if name == "bool" else 256, count * row.width, dtype=np.uint8)
    return torch.from_numpy(bits).view(getattr(torch, name))


def values(tensor: Any) -> bytes:
    """The bits of a tensor in C order."""
    dense = tensor.detach()
    return bytes(dense.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def check(path: Path, expected: Any, window: int = 1000, mapped: bool = True) -> None:
    """Our reader against a tensor, window by window."""
    out = PageBuffer()
    with open_tensor(path, mapped=mapped) as file:
        assert file.shape == tuple(expected.shape)
        assert f"torch.{file.dtype.name}" == str(expected.dtype)
        dense = expected.layout is torch.strided and file.size > 0
        steps = zip(expected.shape, expected.stride(), strict=True) if dense else ()
        reach = 1 + sum((n - 1) * step for n, step in steps) if dense else file.size
        assert file.nbytes == min(file.size, reach) * expected.element_size()
        pieces = [file.read(at, min(window, file.size - at), out).tobytes() for at in range(0, file.size, window)]
    assert b"".join(pieces) == values(expected)


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_and_view_is_read_as_torch_reads_it(name: str, tmp_path: Path) -> None:
    tensor = stored(name, 60).reshape(3, 4, 5)
    views = {
        "plain": tensor,
        "turned": tensor.transpose(0, 2),
        "cut": tensor[1:, 1:, ::2],
        "spread": tensor[:1].expand(7, 4, 5),
    }
    for label, view in views.items():
        path = tmp_path / f"{label}.pt"
        torch.save(view, path)
        check(path, torch.load(path, weights_only=True), window=7)


@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16", "int64", "int8", "bool", "complex64"])
def test_the_container_before_torch_1_6(name: str, tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    tensor = stored(name, 60).reshape(6, 10)
    for view in (tensor, tensor[2:, 3:], tensor.T):
        torch.save(view, path, _use_new_zipfile_serialization=False)
        check(path, view)


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("legacy", [False, True])
def test_a_file_larger_than_its_head(mapped: bool, legacy: bool, tmp_path: Path) -> None:
    path = tmp_path / "large.pt"
    tensor = torch.arange(300_007, dtype=torch.float32)
    torch.save(tensor, path, _use_new_zipfile_serialization=not legacy)
    check(path, tensor, window=40_960, mapped=mapped)
    torch.save(tensor[:300_000].reshape(500, 600).T, path, _use_new_zipfile_serialization=not legacy)
    check(path, tensor[:300_000].reshape(500, 600).T, window=40_960, mapped=mapped)


def test_odd_tensors_by_value(tmp_path: Path) -> None:
    path = tmp_path / "odd.pt"
    base = torch.randn(4, 5)
    odd = {
        "0-d": (torch.tensor(3.5), torch.tensor(3.5)),
        "no elements": (torch.zeros(0, 3), torch.zeros(0, 3)),
        "parameter": (torch.nn.Parameter(base), base),
        "sparse": (base.to_sparse(), base),
        "csr": (base.to_sparse_csr(), base),
        "conjugate": (base.to(torch.complex64).conj(), base.to(torch.complex64).conj().resolve_conj()),
    }
    whole = torch.quantize_per_tensor(base, 0.1, 3, torch.qint8)
    odd["quantised"] = (whole, whole.dequantize())
    for tensor, expected in odd.values():
        torch.save(tensor, path)
        check(path, expected)


def test_big_endian_files_are_swapped(tmp_path: Path) -> None:
    plain, big = tmp_path / "plain.pt", tmp_path / "big.pt"
    tensor = torch.arange(9, dtype=torch.float32)
    torch.save(tensor, plain)
    swap = {b"byteorder": lambda data: b"big", b"data/0": lambda data: np.frombuffer(data, "<f4").byteswap().tobytes()}
    rewrite(
        plain, big, lambda name, data: next((f(data) for end, f in swap.items() if name.endswith(end.decode())), data)
    )
    check(big, tensor)


def rewrite(source: Path, to: Path, change: Any, method: int = zipfile.ZIP_STORED) -> None:
    """Copy a torch file member by member."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(to, "w", method) as new:
        for info in old.infolist():
            new.writestr(info.filename, change(info.filename, old.read(info)))


def test_compressed_members(tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain.pt", tmp_path / "packed.pt"
    tensor = torch.arange(1000, dtype=torch.int32)
    torch.save(tensor, plain)
    rewrite(plain, packed, lambda name, data: data, zipfile.ZIP_DEFLATED)
    check(packed, tensor)


def test_without_torch_the_message_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sparse.pt"
    torch.save(torch.eye(3).to_sparse(), path)
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(TensorUnreadable, match=r"sparse\.pt: needs torch .*opassay\[torch\]"):
        open_tensor(path)


class Trap:
    """Runs a command when a careless reader unpickles it."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.flag}",)


@pytest.mark.parametrize("legacy", [False, True])
def test_code_in_a_file_is_refused_and_not_run(legacy: bool, tmp_path: Path) -> None:
    path, flag = tmp_path / "trap.pt", tmp_path / "sprung"
    torch.save(Trap(flag), path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(TensorUnreadable, match=r"trap\.pt: refused: its pickle names \w+\.system"):
        open_tensor(path)
    assert not flag.exists()


def test_code_behind_a_name_of_torch_is_not_run(tmp_path: Path) -> None:
    path, flag = tmp_path / "trap.pt", tmp_path / "sprung"
    torch.save(torch.zeros(2), path)
    text = b"\x80\x02ctorch.serialization\nos\nq\x00."  # no such name: torch itself has to refuse it
    rewrite(path, path.with_name("b.pt"), lambda name, data: text if name.endswith("data.pkl") else data)
    with pytest.raises(TensorUnreadable, match=r"b\.pt: torch cannot read it"):
        open_tensor(path.with_name("b.pt"))
    assert not flag.exists()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"a": 1}, "holds a dict"),
        ([1, 2], "holds a list"),
        (5, "holds an int"),
        ("text", "holds a str"),
        (None, "NoneType"),
    ],
)
def test_files_without_one_tensor(value: Any, says: str, tmp_path: Path) -> None:
    path = tmp_path / "other.pt"
    torch.save(value, path)
    with pytest.raises(TensorUnreadable, match=says):
        open_tensor(path)


def test_a_tensor_without_data(tmp_path: Path) -> None:
    path = tmp_path / "meta.pt"
    torch.save(torch.zeros(3, device="meta"), path)
    with pytest.raises(TensorUnreadable, match=r"meta\.pt"):
        open_tensor(path)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_file_cut_anywhere_has_a_reason(legacy: bool, tmp_path: Path) -> None:
    path, cut = tmp_path / "whole.pt", tmp_path / "cut.pt"
    torch.save(torch.arange(500, dtype=torch.float64), path, _use_new_zipfile_serialization=not legacy)
    data = path.read_bytes()
    for length in [*range(0, len(data), 97), len(data) - 1]:
        cut.write_bytes(data[:length])
        with pytest.raises(TensorUnreadable, match=r"^cut\.pt: ") as caught:
            open_tensor(cut)
        assert "\n" not in str(caught.value)


def test_damaged_bytes_give_a_tensor_or_a_reason(tmp_path: Path) -> None:
    path, bad = tmp_path / "whole.pt", tmp_path / "bad.pt"
    torch.save(torch.arange(20, dtype=torch.int16), path)
    data = path.read_bytes()
    rng = np.random.default_rng(3)
    reasons = []
    for _ in range(300):
        broken = bytearray(data)
        for at in rng.integers(0, len(data), 3):
            broken[at] = rng.integers(0, 256)
        bad.write_bytes(broken)
        try:
            with open_tensor(bad) as file:
                file.read(0, min(file.size, 1000))
        except TensorUnreadable as error:
            reasons.append(str(error))
    assert reasons
    assert not any("\n" in reason for reason in reasons)


def test_a_view_outside_its_storage_is_damage(tmp_path: Path) -> None:
    path, bad = tmp_path / "whole.pt", tmp_path / "bad.pt"
    torch.save(torch.arange(20.0), path)
    rewrite(
        path, bad, lambda name, data: data.replace(b"K\x14\x85", b"K\x64\x85") if name.endswith("data.pkl") else data
    )
    with pytest.raises(TensorUnreadable, match="needs 100 elements of its storage, which has 20"):
        open_tensor(bad)


def test_a_plain_pickle_is_no_torch_file(tmp_path: Path) -> None:
    path = tmp_path / "plain.pt"
    path.write_bytes(pickle.dumps(np.zeros(3)))
    with pytest.raises(TensorUnreadable, match=r"not a file of torch\.save"):
        open_tensor(path)


def test_other_archives_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "other.pt"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("readme.txt", "hello")
    path.write_bytes(buffer.getvalue())
    with pytest.raises(TensorUnreadable, match=r"no data\.pkl"):
        open_tensor(path)
