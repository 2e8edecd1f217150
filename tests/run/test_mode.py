"""What two dumps are compared on: what both have, and one clear sentence where they have nothing in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import opassay
import pytest
from opassay.pipeline.read.dump_json import read_dump
from opassay.pipeline.run.mode import check_framework, choose_mode
from opassay.schemas.dump_rows import DumpTable
from opassay.schemas.errors import NothingToCompare, UsageError
from opassay.schemas.vocab import DumpMode

from tests.dumps import call, scalar, tensor, tensor_call, write_dump

OP = "Torch.mul.0.forward"
LACKING = (None,) * 4
PLAIN = tensor()
MD5 = tensor(md5="0a0b0c0d")
MD5_ONLY = tensor(stats=LACKING, md5="0a0b0c0d")
XOR = tensor(stats=LACKING, md5="0x00000000000000ff")


def dump(folder: Path, *leaves: Any, **header: Any) -> DumpTable:
    return read_dump(write_dump(folder, {OP: call(list(leaves), [])}, **header))


def both(folder: Path, target: Any, golden: Any, **header: Any) -> tuple[DumpTable, DumpTable]:
    return dump(folder / "target", target, **header), dump(folder / "golden", golden, **header)


def test_tensor_dumps(tmp_path: Path) -> None:
    for side in ("target", "golden"):
        (tmp_path / side / "dump_tensor_data").mkdir(parents=True)
    assert choose_mode(*both(tmp_path, PLAIN, PLAIN, task="tensor")) == (DumpMode.TENSOR, [], False)


@pytest.mark.parametrize(("leaf", "mode"), [(PLAIN, DumpMode.STATISTICS), (MD5, DumpMode.MD5), (XOR, DumpMode.MD5)])
def test_statistics_dumps(leaf: Any, mode: DumpMode, tmp_path: Path) -> None:
    assert choose_mode(*both(tmp_path, leaf, leaf)) == (mode, [], False)


@pytest.mark.parametrize("nested", [[MD5], {"a": {"b": MD5}}, [[[MD5]]]])
def test_a_checksum_counts_however_deep_it_stands(nested: Any, tmp_path: Path) -> None:
    assert choose_mode(*both(tmp_path, nested, nested))[0] is DumpMode.MD5
    keyword = {OP: {"input_args": [PLAIN], "input_kwargs": {"k": nested}, "output": []}}
    tables = [read_dump(write_dump(tmp_path / side, keyword)) for side in ("kt", "kg")]
    assert choose_mode(*tables)[0] is DumpMode.MD5


def test_a_null_checksum_is_none(tmp_path: Path) -> None:
    assert choose_mode(*both(tmp_path, tensor(md5=None), PLAIN))[0] is DumpMode.STATISTICS


@pytest.mark.parametrize("flip", [False, True])
def test_checksums_on_one_side_fall_back_to_statistics(flip: bool, tmp_path: Path) -> None:
    mode, notes, lost = choose_mode(*both(tmp_path, *((PLAIN, MD5) if flip else (MD5, PLAIN))))
    assert (mode, lost) == (DumpMode.STATISTICS, False)
    assert "md5" in notes[0]
    assert "compared on statistics" in notes[0]


@pytest.mark.parametrize("flip", [False, True])
def test_tensor_against_statistics_is_compared_on_statistics(flip: bool, tmp_path: Path) -> None:
    (tmp_path / "a" / "dump_tensor_data").mkdir(parents=True)
    sides = [dump(tmp_path / "a", PLAIN, task="tensor"), dump(tmp_path / "b", PLAIN)]
    mode, notes, lost = choose_mode(*(sides[::-1] if flip else sides))
    assert (mode, lost) == (DumpMode.STATISTICS, False)
    assert "tensor" in notes[0]


@pytest.mark.parametrize("flip", [False, True])
def test_md5_against_xor_is_refused_with_the_reason(flip: bool, tmp_path: Path) -> None:
    pair = both(tmp_path, *((XOR, MD5_ONLY) if flip else (MD5_ONLY, XOR)))
    with pytest.raises(UsageError, match=r"xor.*summary_mode") as caught:
        choose_mode(*pair)
    assert "md5" in str(caught.value)


@pytest.mark.parametrize("flip", [False, True])
def test_nothing_in_common(flip: bool, tmp_path: Path) -> None:
    pair = both(tmp_path, *((PLAIN, XOR) if flip else (XOR, PLAIN)))
    with pytest.raises(NothingToCompare, match=r"no kind of data in common.*same task and summary_mode"):
        choose_mode(*pair)


@pytest.mark.parametrize("task", ["structure", "nan_check", "acc_check", "free text"])
def test_tasks_without_data_are_refused(task: str, tmp_path: Path) -> None:
    target, golden = dump(tmp_path / "target", PLAIN, task=task), dump(tmp_path / "golden", PLAIN)
    for side, pair in (("target", (target, golden)), ("golden", (golden, target))):
        with pytest.raises(NothingToCompare, match=rf"{side} .*{task}.*dump with task tensor or statistics") as caught:
            choose_mode(*pair)
        assert str(target.path) in str(caught.value)


@pytest.mark.parametrize("flip", [False, True])
def test_a_missing_tensor_folder_falls_back_to_statistics_and_says_so(flip: bool, tmp_path: Path) -> None:
    (tmp_path / "a" / "dump_tensor_data").mkdir(parents=True)
    sides = [dump(tmp_path / "a", PLAIN, task="tensor"), dump(tmp_path / "b", PLAIN, task="tensor")]
    mode, notes, lost = choose_mode(*(sides[::-1] if flip else sides))
    assert (mode, lost) == (DumpMode.STATISTICS, True)  # status 3
    assert str(tmp_path / "b" / "dump_tensor_data") in notes[0]


def test_a_missing_tensor_folder_without_statistics_is_refused(tmp_path: Path) -> None:
    bare = tensor(stats=LACKING)
    with pytest.raises(NothingToCompare, match="dump_tensor_data is missing"):
        choose_mode(*both(tmp_path, bare, bare, task="tensor"))


def test_frameworks(tmp_path: Path) -> None:
    for name in ("pytorch", "mindtorch", "mindspore"):
        assert check_framework(dump(tmp_path / name, PLAIN, framework=name), "target") is None
    unnamed = dump(tmp_path / "unnamed", PLAIN, framework=None)
    note = check_framework(unnamed, "golden")
    assert note is not None
    assert "golden" in note
    assert "taken as pytorch" in note
    silent = dump(tmp_path / "silent", tensor(dtype="Float32"), framework=None)
    assert "taken as mindspore" in (check_framework(silent, "target") or "")
    with pytest.raises(UsageError, match=r"target .*'tensorflow'; compare takes pytorch, mindtorch and mindspore"):
        check_framework(dump(tmp_path / "tf", PLAIN, framework="tensorflow"), "target")


def test_a_statistics_dump_with_a_few_saved_tensors_is_compared_on_statistics(tmp_path: Path) -> None:
    values = np.ones(3, np.float32)
    paths = [
        write_dump(tmp_path / side, {OP: tensor_call(tmp_path / side, OP, [values], [values])}, task="statistics")
        for side in ("target", "golden")
    ]
    report = opassay.compare(*paths)
    assert report.ranks[0].mode is DumpMode.STATISTICS
    assert "max_diff" in report.rows.columns


def test_a_dump_of_scalars_alone_can_be_compared(tmp_path: Path) -> None:
    mode, _, _ = choose_mode(*both(tmp_path, scalar(3), scalar(4)))
    assert mode is DumpMode.STATISTICS
