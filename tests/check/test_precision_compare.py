"""The command api_precision_compare: what it reads, what it writes, and what it says of files that are not as they should be."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from opassay.pipeline.check import precision_compare
from opassay.pipeline.cli.main import main
from opassay.pipeline.report.files import WholeFile
from opassay.schemas.check_rows import DETAILS
from opassay.schemas.precision_rows import COMPARED, COMPARED_RESULT, NEEDED

from tests.check.precision_files import Row, benchmark, compare, read, row, unpacked, write

ADD, EXP, MUL = (f"Torch.{api}.0.forward.output.0" for api in ("softmax", "exp", "log"))
ROWS = [benchmark(ADD), benchmark(EXP), benchmark(MUL)]


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Two equal files and the name of a folder that is not there yet."""
    return write(tmp_path / "npu.csv", ROWS), write(tmp_path / "gpu.csv", ROWS), tmp_path / "out" / "deep"


def words(rows: list[Row]) -> dict[str, str]:
    return {cells["API Name"]: cells["比对结果"] for cells in rows}


def told(capsys: pytest.CaptureFixture[str]) -> str:
    """All that went to stderr; one line for an error."""
    return capsys.readouterr().err


def test_files_are_as_documented(sides: tuple[Path, Path, Path]) -> None:
    failing = benchmark(EXP, rmse=0.9, relative_mean=0.9)
    write(sides[0], [ROWS[0], failing, row(MUL, " ", message='a "reason", of\nlines')])
    status, result, details = compare(*sides)
    assert status == 0
    assert [list(rows[0]) for rows in (result, details)] == [list(COMPARED_RESULT.values()), list(COMPARED.values())]
    for path in sides[2].iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        data = path.read_bytes()
        assert data.startswith(b"\xef\xbb\xbfAPI Name,")
        assert data.endswith(b"\r\n")
    (data,) = (path.read_bytes() for path in sides[2].glob("*details*"))
    assert (
        b"1.00000000000000,pass, , , , , , , , , , , , , , ,pass,\xe6\xa0\x87\xe6\x9d\x86\xe6\xaf\x94\xe5\xaf\xb9\xe6\xb3\x95,\r\n"
        in data
    )
    assert b',SKIP, ,"a ""reason"", of\nlines"\r\n' in data
    assert result[1] == {
        "API Name": "Torch.exp.0",
        "Forward Test Success": "error",
        "Backward Test Success": " ",
        "Message": "",
    }
    assert details[1]["Message"] == "ERROR: 均方根误差比值超过阈值\nERROR: 相对误差平均值比值超过阈值\n"


def test_a_second_run_of_the_same_second_keeps_both_pairs(
    sides: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision_compare, "timestamp", lambda *_: "20260101235959")
    for _ in range(2):
        assert compare_status(sides) == 0
    names = sorted(path.name for path in sides[2].iterdir())
    assert [name.rpartition("_")[2] for name in names] == ["20260101235959.csv", "20260102000000.csv"] * 2


def compare_status(sides: tuple[Path, Path, Path], *options: str) -> int:
    return main(["api_precision_compare", "-npu", str(sides[0]), "-gpu", str(sides[1]), "-o", str(sides[2]), *options])


def test_order_of_rows_and_columns_does_not_matter(sides: tuple[Path, Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "case"
    folder.mkdir()
    npu, gpu = (unpacked("faulty_cnn", side, folder) for side in ("npu", "gpu"))
    expected = compare(npu, gpu, folder / "plain")
    random = Random(5)
    header = [*DETAILS.values(), "Remark"]
    for side, path in (("npu", npu), ("gpu", gpu)):
        rows = [cells | {"Remark": "mine"} for cells in read(path)]
        random.shuffle(header)
        if side == "gpu":
            random.shuffle(rows)
        write(path, rows, header, encoding="utf-8", lineterminator="\n")
    assert compare(npu, gpu, folder / "shuffled") == expected


def test_headers_in_other_spellings(sides: tuple[Path, Path, Path]) -> None:
    text = sides[0].read_text("utf-8-sig")
    for ours, theirs in (
        ("inf/nan错误率", " inf / nan 错误率"),
        ("ULP误差", "ULP 误差"),
        ("API Name", "API name "),
        ("Shape", "shape"),
    ):
        assert ours in text
        text = text.replace(ours, theirs)
    sides[0].write_text(text, "utf-8")
    status, _, details = compare(*sides)
    assert (status, set(words(details).values())) == (0, {"pass"})


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("side", [0, 1])
def test_a_missing_column_is_named(
    side: int, name: str, sides: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write(sides[side], ROWS, [title for title in DETAILS.values() if title != DETAILS[name]])
    assert compare(*sides) == (2, [], [])
    line = told(capsys)
    assert f"The following columns {DETAILS[name]} are missing in {('npu_csv', 'gpu_csv')[side]} {sides[side]}" in line
    assert line.count("\n") == 1


def test_several_missing_columns_and_a_file_of_another_kind(
    sides: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write(sides[0], [{"API name": "Torch.add.0", "Message": ""}], ["API name", "Message"])
    assert compare(*sides)[0] == 2
    assert "columns DEVICE Dtype, Shape, 小值域错误占比, 均方根误差," in told(capsys)


def test_a_column_that_stands_twice(sides: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    write(sides[1], ROWS, [*DETAILS.values(), "Shape"])
    assert compare(*sides)[0] == 2
    assert "The following columns Shape stand twice in gpu_csv" in told(capsys)


def test_paths_that_are_no_files(
    sides: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe, folder, text = tmp_path / "pipe.csv", tmp_path / "folder.csv", tmp_path / "n.txt"
    os.mkfifo(pipe)
    folder.mkdir()
    text.write_bytes(sides[0].read_bytes())
    empty, blank, gbk = (tmp_path / f"{name}.csv" for name in ("empty", "blank", "gbk"))
    empty.write_bytes(b"")
    blank.write_bytes(b"\xef\xbb\xbf\r\n")
    gbk.write_bytes(sides[0].read_text("utf-8-sig").encode("gbk"))
    for path, words_of_it in (
        (tmp_path / "absent.csv", "does not exist"),
        (pipe, "cannot be read: it is a pipe"),
        (folder, "cannot be read: Is a directory"),
        (text, "is no .csv file"),
        (empty, "is empty"),
        (blank, "is empty"),
        (gbk, "is not UTF-8 at byte"),
    ):
        for pair in ((path, sides[1]), (sides[0], path)):
            assert compare(*pair, sides[2]) == (2, [], [])
            line = told(capsys)
            assert f"{('npu_csv', 'gpu_csv')[pair[1] == path]} {path} {words_of_it}" in line
            assert line.count("\n") == 1


def test_both_paths_are_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["api_precision_compare", "-npu", "a.csv"]) == 2
    assert "-gpu/--gpu_csv_path" in told(capsys)


def test_a_row_that_stands_twice_is_told_and_the_rest_goes_on(
    sides: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write(sides[1], [*ROWS, benchmark(EXP, rmse=0.001)])
    status, result, details = compare(*sides)
    assert (status, set(words(details).values()), len(result)) == (3, {"pass"}, 3)
    assert details[1]["Message"] == "the GPU file has 2 rows of this name, the first was used\n"
    assert f"1 row: {sides[1]} has more than one row of this name, the first was used: {EXP}" in told(capsys)
    write(sides[1], ROWS)
    write(sides[0], [*ROWS, benchmark(EXP, rmse=0.9), benchmark(ADD)])
    status, result, details = compare(*sides[:2], sides[2].with_name("second"))
    assert (status, len(result), len(details)) == (3, 3, 5)
    assert [cells["比对结果"] for cells in details] == ["pass"] * 3 + ["SKIP"] * 2
    assert details[3]["Message"] == "row 2 of this name in the NPU file; the first was compared"


def test_rows_of_one_side_end_in_rows_with_a_reason(
    sides: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write(sides[0], ROWS[:2])
    write(sides[1], ROWS[1:])
    status, result, details = compare(*sides)
    assert status == 0
    assert [(cells["API Name"], cells["比对结果"], cells["Message"]) for cells in details] == [
        (ADD, "SKIP", "not in the GPU file"),
        (EXP, "pass", ""),
        (MUL, "SKIP", "not in the NPU file"),
    ]
    assert [cells["Forward Test Success"] for cells in result] == ["SKIP", "pass", "SKIP"]
    lines = told(capsys)
    assert f"1 row: not in {sides[1]}: {ADD}" in lines
    assert f"1 row: not in {sides[0]}: {MUL}" in lines


@pytest.mark.parametrize("npu", [[], [benchmark("Torch.other.0.forward.output.0")], [row(ADD, " ", message="m")]])
def test_nothing_to_compare_is_no_success_and_says_why_row_by_row(
    npu: list[Row], sides: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    write(sides[0], npu)
    status, result, details = compare(*sides)
    assert status == 2
    assert len(result) >= 3
    assert set(words(details).values()) == {"SKIP"}
    assert all(cells["Message"] for cells in details)
    assert "not one row of" in told(capsys)


def test_a_line_that_was_cut(sides: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    lines = sides[0].read_bytes().splitlines(keepends=True)
    sides[0].write_bytes(b"".join(lines[:-1]) + lines[-1][:60])
    status, _, details = compare(*sides)
    assert (status, words(details)) == (3, {ADD: "pass", EXP: "pass", MUL: "SKIP"})
    assert details[2]["Message"] == "a line of the file was cut here"
    assert "line 4: 4 cells, the header has 23; a line was cut" in told(capsys)


def test_a_line_that_was_cut_and_written_on(sides: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """The row behind a cut one is lost with it, and no other."""
    lines = sides[0].read_bytes().splitlines(keepends=True)
    sides[0].write_bytes(b"".join([lines[0], lines[1][:60], *lines[2:]]))
    status, _, details = compare(*sides)
    assert (status, words(details)) == (3, {ADD: "SKIP", MUL: "pass", EXP: "SKIP"})
    assert "line 2: 25 cells" in told(capsys)
    short = [lines[0], lines[1][:60] + b"\r\n", *lines[2:]]
    sides[0].write_bytes(b"".join(short))
    status, _, details = compare(*sides[:2], sides[2].with_name("second"))
    assert (status, words(details)) == (3, {ADD: "SKIP", EXP: "pass", MUL: "pass"})


def test_a_last_line_without_its_end_is_whole_if_its_cells_are(sides: tuple[Path, Path, Path]) -> None:
    sides[0].write_bytes(sides[0].read_bytes().removesuffix(b"\r\n"))
    status, _, details = compare(*sides)
    assert (status, set(words(details).values())) == (0, {"pass"})


def test_a_quote_that_is_never_closed_loses_no_row_before_it(sides: tuple[Path, Path, Path]) -> None:
    data = sides[0].read_bytes()
    place = data.index(MUL.encode())
    sides[0].write_bytes(data[:place] + b'"' + data[place:])
    status, _, details = compare(*sides)
    assert status == 3
    assert [words(details)[name] for name in (ADD, EXP)] == ["pass", "pass"]


def test_text_where_a_number_belongs(sides: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    write(sides[0], [ROWS[0], benchmark(EXP, rmse="plenty")])
    status, result, details = compare(*sides)
    assert (status, words(details)[EXP]) == (3, "SKIP")
    assert details[1]["Message"] == "ERROR: Input data cannot be converted to float"
    # such a row stands for itself, before the call that was open when it came
    assert [cells["API Name"] for cells in result] == [EXP, "Torch.softmax.0", "Torch.log.0"]
    assert f"is no number: {EXP}" in told(capsys)


@pytest.mark.parametrize(
    ("failing", "option", "status"), [(0.9, "error", 1), (0.9, "warning", 1), (0.1, "error", 0), (0.1, "warning", 0)]
)
def test_fail_on(failing: float, option: str, status: int, sides: tuple[Path, Path, Path]) -> None:
    write(sides[0], [*ROWS[:2], benchmark(MUL, rmse=failing)])
    assert compare(*sides, "--fail-on", option)[0] == status


def test_quiet_and_normal_output(sides: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    write(sides[0], [*ROWS[:2], benchmark(MUL, rmse=0.9)])
    assert compare_status(sides, "--quiet") == 0
    out = capsys.readouterr().out
    assert out.startswith("1 error, 0 warning, 2 pass, 0 SKIP: ")
    assert out.count("\n") == 1
    assert compare_status(sides) == 0
    out = capsys.readouterr().out
    assert "error: Torch.log.0 (forward error, backward none)" in out
    assert "3 calls: 1 error, 0 warning, 2 pass, 0 SKIP" in out


def test_formulas_are_left_alone_unless_asked(sides: tuple[Path, Path, Path]) -> None:
    write(sides[0], [*ROWS, row("Torch.sin.0.forward.output.0", " ", message="=1+1")])
    write(sides[1], [*ROWS, row("Torch.sin.0.forward.output.0", " ")])
    assert compare(*sides)[2][3]["Message"] == "=1+1"
    safe = compare(*sides[:2], sides[2].with_name("safe"), "--csv-safe")
    assert safe[2][3]["Message"] == "'=1+1"
    assert safe[2][0]["小值域错误比值"] == "1.00000000000000"


def test_a_disk_that_refuses_leaves_nothing(
    sides: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = WholeFile.write

    def full(file: WholeFile, data: bytes) -> int:
        if "details" in file.path.name:
            raise precision_compare.output_error(file.path, OSError(28, "No space left on device"))
        return written(file, data)

    monkeypatch.setattr(WholeFile, "write", full)
    assert compare_status(sides) == 2
    assert list(sides[2].iterdir()) == []
    assert "the disk is full" in told(capsys)


def test_the_errors_case(tmp_path: Path) -> None:
    """Statuses and named columns of the incumbent's case of defective inputs; decision 11 makes its 1 a 2."""
    npu, gpu = (unpacked("branches", side, tmp_path) for side in ("npu", "gpu"))
    rows = read(gpu)
    twice = write(
        tmp_path / "twice.csv", [*rows[:200], next(one for one in rows if one["API Name"] == TWICE), *rows[200:]]
    )
    status, result, details = compare(npu, twice, tmp_path / "out")
    whole = compare(npu, gpu, tmp_path / "whole")
    assert (status, whole[0]) == (3, 0)
    assert result == whole[1]
    assert [one for one in details if one not in whole[2]] == [
        next(one for one in whole[2] if one["API Name"] == TWICE)
        | {"Message": "the GPU file has 2 rows of this name, the first was used\n"}
    ]


TWICE = "Torch.add.5.forward.output.0"


def test_large_files_in_seconds(tmp_path: Path) -> None:
    rows = [benchmark(f"Torch.exp.{number}.forward.output.0", rmse=number % 7) for number in range(20_000)]
    path = write(tmp_path / "npu.csv", rows)
    _, result, details = compare(path, path, tmp_path / "out")
    assert len(result) == len(details) == 20_000
    assert {cells["比对结果"] for cells in details} == {"pass"}


def test_it_needs_no_torch(sides: tuple[Path, Path, Path]) -> None:
    code = "import sys; sys.modules['torch'] = None; from opassay.pipeline.cli.main import main; sys.exit(main(sys.argv[1:]))"
    words_of_it = ["api_precision_compare", "-npu", str(sides[0]), "-gpu", str(sides[1]), "-o", str(sides[2])]
    assert subprocess.run([sys.executable, "-c", code, *words_of_it], check=False, capture_output=True).returncode == 0
    told_of = subprocess.run(
        [sys.executable, "-c", code, "explain-api", "npu_rms_norm"], check=False, capture_output=True
    )
    assert told_of.returncode == 0
    assert b"pip install 'opassay[torch]'" in told_of.stdout
