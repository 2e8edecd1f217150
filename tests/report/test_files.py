from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest
from opassay.pipeline.report import files
from opassay.pipeline.report.files import WholeFile, make_folder, result_path, result_stem, timestamp
from opassay.schemas.errors import OutputError


def test_names_are_the_documented_ones() -> None:
    assert result_path(Path("o"), result_stem(), ".csv", "20260102030405") == Path(
        "o/compare_result_20260102030405.csv"
    )
    assert result_path(Path("o"), result_stem("rank3"), ".xlsx", "1").name == "compare_result_rank3_1.xlsx"
    assert (
        result_path(Path("o"), result_stem("rank3", debug=True), ".csv", "1").name == "debug_compare_result_rank3_1.csv"
    )


def test_timestamp_is_fourteen_digits_of_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.fullmatch(r"\d{14}", timestamp())
    assert timestamp(0.0)[:4] in ("1969", "1970")


def test_a_file_has_its_name_only_when_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with WholeFile(path) as whole:
        whole.write(b"abc")
        assert not path.exists()
        assert whole.temporary.parent == tmp_path
    assert path.read_bytes() == b"abc"
    assert os.listdir(tmp_path) == ["a.csv"]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with WholeFile(tmp_path / "a.csv") as whole:
            whole.write(b"abc")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("links", [True, False])
def test_a_result_of_the_same_second_is_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:  # as on FAT and some network file systems

        def refuse(*_: object) -> None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "compare_result_rank0_20251231235959_part_1.csv"
    path.write_text("old")
    with WholeFile(path) as whole:
        whole.write(b"new")
    assert path.read_text() == "old"
    assert whole.path == tmp_path / "compare_result_rank0_20260101000000_part_1.csv"
    assert whole.path.read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == sorted([path.name, whole.path.name])


def test_a_name_without_a_timestamp_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("old")
    with WholeFile(path) as whole:
        whole.write(b"new")
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.csv"]


class Full:
    """A file on a disk that has no room left."""

    def write(self, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        return


def test_two_unfinished_files_of_one_name_do_not_meet(tmp_path: Path) -> None:
    first, second = WholeFile(tmp_path / "a.csv"), WholeFile(tmp_path / "a.csv")
    first.write(b"1")
    second.write(b"2")
    paths = [first.commit(tmp_path / "1.csv"), second.commit(tmp_path / "2.csv")]
    assert [path.read_bytes() for path in paths] == [b"1", b"2"]


def test_a_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"

    def fill() -> None:
        with WholeFile(path) as whole:
            whole.file.close()
            whole.file = Full()  # type: ignore[assignment]
            whole.write(b"abc")

    with pytest.raises(OutputError) as caught:
        fill()
    assert str(path) in str(caught.value)
    assert "the disk is full" in str(caught.value)
    assert "-o" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot write .*file"):
        make_folder(tmp_path / "file" / "sub")
    with pytest.raises(OutputError, match="does not exist"):
        WholeFile(tmp_path / "missing" / "a.csv")
    assert make_folder(tmp_path / "a" / "b").is_dir()
    assert os.listdir(tmp_path / "a" / "b") == []


def test_every_known_reason_has_an_advice() -> None:
    for number, (reason, hint) in files._REASONS.items():
        line = str(files.output_error(Path("p"), OSError(number, "x")))
        assert line == f"cannot write p: {reason}; {hint}"
