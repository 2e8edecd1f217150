"""NumPy files and what all tensor files have in common: missing, cut, odd names, places."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from opassay.pipeline.read.tensors import (
    PageBuffer,
    TensorMissing,
    TensorUnreadable,
    choose_io,
    open_tensor,
    tensor_path,
)

TYPES = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", "c16", "c8")
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(TYPES), st.sampled_from("<>"), SHAPES, st.booleans(), st.integers(1, 9))
def test_every_array_is_read_as_it_was_saved(
    tmp_path: Path, kind: str, order: str, shape: tuple[int, ...], fortran: bool, window: int
) -> None:
    dtype = np.dtype(kind).newbyteorder(order)
    size = int(np.prod(shape)) * dtype.itemsize
    bits = np.random.default_rng(size).integers(0, 2 if kind == "?" else 256, size, dtype=np.uint8)
    array = np.frombuffer(bits.tobytes(), dtype).reshape(shape)
    path = tmp_path / "x.npy"
    np.save(path, np.asfortranarray(array) if fortran and array.ndim else array)
    with open_tensor(path) as file:
        assert file.shape == shape
        assert file.size == array.size
        got = b"".join(file.read(at, min(window, file.size - at)).tobytes() for at in range(0, file.size, window))
    plain = np.ascontiguousarray(array)
    assert got == (plain.byteswap() if order == ">" else plain).tobytes()


@pytest.mark.parametrize("fortran", [False, True])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_large_file_in_windows(fortran: bool, mapped: bool, tmp_path: Path) -> None:
    array = np.arange(210_000, dtype=np.float64).reshape(300, 700)
    path = tmp_path / "large.npy"
    np.save(path, np.asfortranarray(array) if fortran else array)
    out = PageBuffer()
    with open_tensor(path, mapped=mapped) as file:
        assert not file.whole
        got = [file.read(at, min(4096, file.size - at), out).copy() for at in range(0, file.size, 4096)]
    assert np.array_equal(np.concatenate(got), array.reshape(-1))


def test_reading_outside_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(4))
    with open_tensor(tmp_path / "x.npy") as file, pytest.raises(IndexError):
        file.read(2, 3)


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.array(["a", "b"]), "not a tensor: holds text"),
        (np.array([object()]), "never unpickled"),
        (np.zeros(2, [("a", "f4")]), "records with fields"),
        (np.zeros(2, "M8[s]"), "header|dates"),
        (np.zeros(2, "V2"), "raw bytes"),
        (np.zeros(2, "g"), "not supported"),
    ],
)
def test_arrays_that_are_no_tensors(array: Any, says: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(TensorUnreadable, match=says):
        open_tensor(tmp_path / "x.npy")


def test_newer_header_versions(tmp_path: Path) -> None:
    for version in ((1, 0), (2, 0), (3, 0)):
        with open(tmp_path / "x.npy", "wb") as stream:
            np.lib.format.write_array(stream, np.arange(6.0).reshape(2, 3), version=version)
        with open_tensor(tmp_path / "x.npy") as file:
            assert file.shape == (2, 3)
            assert file.read(0, 6).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_file_cut_anywhere_has_a_reason(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(100.0))
    data = (tmp_path / "x.npy").read_bytes()
    for length in range(0, len(data), 11):
        (tmp_path / "cut.npy").write_bytes(data[:length])
        with pytest.raises(TensorUnreadable, match=r"^cut\.npy: (cut short|empty)"):
            open_tensor(tmp_path / "cut.npy")


def test_what_is_no_file_has_a_reason(tmp_path: Path) -> None:
    with pytest.raises(TensorMissing, match=r"gone\.pt: no such file"):
        open_tensor(tmp_path / "gone.pt")
    (tmp_path / "folder.pt").mkdir()
    with pytest.raises(TensorUnreadable, match="a folder"):
        open_tensor(tmp_path / "folder.pt")
    os.mkfifo(tmp_path / "pipe.pt")
    with pytest.raises(TensorUnreadable, match="not a regular file"):
        open_tensor(tmp_path / "pipe.pt")
    (tmp_path / "text.pt").write_text("hello, this is no tensor at all")
    with pytest.raises(TensorUnreadable, match=r"not a file of torch\.save"):
        open_tensor(tmp_path / "text.pt")
    (tmp_path / "text.npy").write_text("hello, this is no tensor at all")
    with pytest.raises(TensorUnreadable, match="not a NumPy file"):
        open_tensor(tmp_path / "text.npy")
    (tmp_path / "x.bin").write_bytes(b"x")
    with pytest.raises(TensorUnreadable, match=r"neither \.pt nor \.npy"):
        open_tensor(tmp_path / "x.bin")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_has_a_reason(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    (tmp_path / "x.npy").chmod(0)
    with pytest.raises(TensorUnreadable, match="cannot be opened"):
        open_tensor(tmp_path / "x.npy")


@pytest.mark.parametrize("mapped", [False, True])
def test_a_file_that_shrinks_is_noticed(mapped: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(100_000))
    with open_tensor(path, mapped=mapped) as file:
        file.read(0, 4096)
        os.truncate(path, 5000)
        with pytest.raises(TensorUnreadable, match=r"x\.npy: shrank"):
            file.read(50_000, 4096)


@pytest.mark.parametrize("name", ["", ".", "..", "../x.pt", "/etc/x.pt", "a/b.pt", "a\\b.pt", "x\0.pt"])
def test_names_that_leave_their_folder_are_refused(name: str) -> None:
    with pytest.raises(TensorUnreadable, match="not a plain file name"):
        tensor_path("/data", name)


def test_plain_names_stay_in_their_folder() -> None:
    assert tensor_path("/data", "Torch.add.0.forward.input.a b.0.pt") == "/data/Torch.add.0.forward.input.a b.0.pt"


def test_io_follows_the_file_system() -> None:
    mounts = (
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
        "2 1 0:2 / /mnt/far rw shared:3 - nfs4 host:/x rw\n"
        "3 2 0:3 / /mnt/far/near rw - xfs /dev/sdb rw\n"
    )
    assert choose_io(Path("/home"), mounts) == "map"
    assert choose_io(Path("/mnt/far/dump"), mounts) == "read"
    assert choose_io(Path("/mnt/farther"), mounts) == "map"
    assert choose_io(Path("/mnt/far/near/dump"), mounts) == "map"
