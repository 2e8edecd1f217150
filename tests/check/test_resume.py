"""Files of a check that was ended at any byte: repaired, completed, and then as if nothing had happened."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opassay.kernels.precision.status import format_metric
from opassay.pipeline.check.files import CheckFiles
from opassay.pipeline.check.resume import Journal, resume
from opassay.schemas.check_rows import CaseResult, DetailRow, Status
from opassay.schemas.errors import OutputError, UsageError

from tests.check.checking import DATA, Checker
from tests.dumps import call, tensor, write_dump

MESSAGES = ("", 'of "two"\nlines\n', "a, comma", 'ends with a quote"', "\r\n\r\n", "übel")


def case(number: int) -> CaseResult:
    """A case with several rows, line breaks and quotes in its cells."""
    name = f"Torch.add.{number}"
    rows = [
        DetailRow(f"{name}.{direction}.output.{place}", "torch.float64", "torch.float32", "(2, 3)", {"cosine": 1.0},
                  Status.PASS, MESSAGES[(number + place) % len(MESSAGES)])
        for direction in ("forward", "backward")
        for place in range(1 + number % 3)
    ]  # fmt: skip
    return CaseResult(name, Status.PASS, None if number % 2 else Status.SKIP, MESSAGES[number % len(MESSAGES)], rows)


CASES = [case(number) for number in range(8)]


def written(folder: Path) -> tuple[Path, Path]:
    """The files of a whole run."""
    with CheckFiles.create(folder, format_metric) as files:
        for result in CASES:
            files.append(result)
    return files.result, files.details


def finish(result: Path) -> frozenset[str]:
    """Resume and run what is left."""
    begun = resume(result, format_metric)
    with begun.files as files:
        for one in CASES:
            if one.name not in begun.done:
                files.append(one)
    return begun.done


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_cut_at_any_byte(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a killed process leaves: details of the case in flight, perhaps torn, and results up to the one before, perhaps torn."""
    folder = tmp_path_factory.mktemp("cut")
    result, details = written(folder)
    whole = result.read_bytes(), details.read_bytes()
    ends = list(itertools.accumulate([len(line) for line in _cases_of(whole[0], result)]))
    number = data.draw(st.integers(0, len(CASES) - 1))
    both = {"result": (result, whole[0]), "details": (details, whole[1])}
    size = {"result": ends[number], "details": _detail_end(whole[1], number)}
    if data.draw(st.booleans()):  # killed within the row of the result
        size["result"] = data.draw(st.integers(ends[number], ends[number + 1] - 1))
        size["details"] = _detail_end(whole[1], number + 1)
    else:  # killed within the details
        size["details"] = data.draw(st.integers(size["details"], _detail_end(whole[1], number + 1)))
    for kind, (path, content) in both.items():
        path.write_bytes(content[: size[kind]])
    done = finish(result)
    assert done == {one.name for one in CASES[:number]}
    assert (result.read_bytes(), details.read_bytes()) == whole


def _cases_of(content: bytes, path: Path) -> list[bytes]:
    """Header and rows of the result file."""
    from opassay.pipeline.check.files import result_line

    lines = [result_line(one) for one in CASES]
    head = content[: len(content) - sum(map(len, lines))]
    assert head + b"".join(lines) == content, path
    return [head, *lines]


def _detail_end(content: bytes, count: int) -> int:
    """Where the details of the first cases end."""
    from opassay.pipeline.check.files import detail_lines

    return len(content) - sum(len(detail_lines(one.details, format_metric)) for one in CASES[count:])


def test_details_in_the_middle_that_no_result_closes_are_dropped(tmp_path: Path) -> None:
    result, details = written(tmp_path)
    whole = details.read_bytes()
    lines = result.read_bytes().replace(b"Torch.add.4,", b"Torch.add.4x,", 1)
    result.write_bytes(lines)
    resume(result, format_metric).files.close()
    assert b"Torch.add.4." not in details.read_bytes()
    assert b"Torch.add.5.forward.output.1" in details.read_bytes()
    assert len(details.read_bytes()) < len(whole)


def test_a_result_whose_details_the_disk_lost_is_run_again(tmp_path: Path) -> None:
    result, details = written(tmp_path)
    whole = details.read_bytes()
    details.write_bytes(whole[:-3])
    assert CASES[-1].name not in finish(result)
    assert details.read_bytes() == whole


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\xef\xbb\xbfAPI na"])
def test_files_without_a_whole_header(content: bytes, tmp_path: Path) -> None:
    result, details = written(tmp_path)
    whole = result.read_bytes(), details.read_bytes()
    result.write_bytes(content)
    assert not finish(result)
    assert (result.read_bytes(), details.read_bytes()) == whole


def test_what_cannot_be_resumed_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="please do not modify the result csv name"):
        resume(tmp_path / "mine.csv", format_metric)
    result, details = written(tmp_path)
    details.rename(tmp_path / "away")
    with pytest.raises(UsageError, match=r"details_\d{14}.csv does not exist"):
        resume(result, format_metric)
    details.write_text("name,size\n1,2\n")
    with pytest.raises(UsageError, match="does not begin with the column 'API name'"):
        resume(result, format_metric)


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    result, _ = written(tmp_path)
    code = f"""
import sys
from pathlib import Path
from opassay.pipeline.check.resume import resume
files = resume(Path({str(result)!r}), str)
print("ready", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        with pytest.raises(UsageError, match="is being written by another run"):
            resume(result, format_metric)
        other.communicate("")
    resume(result, format_metric).files.close()


def test_damaged_lines_of_the_journal_are_left_out(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "20260101000000")
    for one in CASES:
        journal.add(one)
    journal.close(remove=False)
    with journal.path.open("ab") as file:
        file.write(b'{"name": "Torch.add.9"}\n[]\n{"name": "Torch.add.10", "forw')
    assert Journal.read(tmp_path, "20260101000000") == {one.name: one for one in CASES}
    journal.close(remove=True)
    assert Journal.read(tmp_path, "20260101000000") == {}


def test_two_files_of_one_second_get_two_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opassay.pipeline.check.files.timestamp", lambda: "20260101235959")
    names = []
    for _ in range(2):
        with CheckFiles.create(tmp_path, format_metric) as files:
            names.append((files.result.name[-18:-4], files.details.name[-18:-4]))
    assert names == [("20260101235959",) * 2, ("20260102000000",) * 2]
    assert files.result.stat().st_mode & 0o777 == 0o640


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    result, details = written(tmp_path)
    files = CheckFiles(result, details, "20260101000000", format_metric)
    os.close(files._details)
    files._details = os.open("/dev/full", os.O_WRONLY)
    with files, pytest.raises(OutputError, match="the disk is full"):
        files.append(CASES[1])


@pytest.mark.slow
def test_odd_names_are_found_again(checker: Checker, tmp_path: Path) -> None:
    """Names are text that anybody may have written; each is known again when its file is resumed."""
    names = [" Torch.exp.0 ", 'Torch."exp",.1', "Torch.\ud800exp.2", "Torch.a\r\nb.3", "=Torch.übel.4"]
    dump = write_dump(tmp_path, {})
    data = {f"{name}.forward": call([tensor()], [tensor()]) for name in names}
    dump.write_text(json.dumps({**json.loads(dump.read_text()), "data": data}))
    first = checker(dump, tmp_path / "out")
    before = first.path("result").read_bytes(), first.path("details").read_bytes()
    assert len(first.result) == 5
    again = checker(dump, tmp_path / "out", "-csv_path", str(first.path("result")))
    assert "[INFO] 5 calls are done already, 0 are left" in again.told
    assert (first.path("result").read_bytes(), first.path("details").read_bytes()) == before


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run_ut", "multi_run_ut -n 3"])
def test_killed_at_any_moment(command: str, checker: Checker, tmp_path: Path) -> None:
    """kill -9 again and again; what was finished is not run again, and the files end as those of one undisturbed run."""
    dump = DATA / "pt_ops_statistics" / "input" / "dump.json"
    undisturbed = checker(dump, tmp_path / "undisturbed")
    words = [sys.executable, "-m", "opassay", *command.split(), "-api_info", str(dump), "--device", "cpu", "--quiet"]
    chance = random.Random(7)
    folder, resumed, kills = tmp_path / "out", [], 0
    for _ in range(30):
        place = resumed or ["-o", str(folder)]
        with subprocess.Popen([*words, *place], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
            if kills < 3:
                wait_for_rows(folder, chance.randint(1, 25), run)
                run.kill()
            _, told = run.communicate()
        kills += 1
        if run.returncode == 0:
            break
        assert run.returncode == -9, told
        (path,) = folder.glob("accuracy_checking_result_*.csv")
        resumed = ["-csv_path", str(path)]
    assert run.returncode == 0
    assert kills == 4
    (result,), (details,) = (folder.glob(f"accuracy_checking_{kind}_*.csv") for kind in ("result", "details"))
    assert result.read_bytes() == undisturbed.path("result").read_bytes()
    assert details.read_bytes() == undisturbed.path("details").read_bytes()
    assert len(list(folder.iterdir())) == 2


def wait_for_rows(folder: Path, more: int, run: subprocess.Popen[str]) -> None:
    """Until the files, or the journal, have grown by some rows."""
    begun, count = rows(folder), time.monotonic()
    while rows(folder) < begun + more and run.poll() is None and time.monotonic() - count < 30:
        time.sleep(0.002)


def rows(folder: Path) -> int:
    return sum(path.read_bytes().count(b"Torch.") for path in folder.glob("accuracy_checking_*"))


def test_results_at_the_end_without_their_details_are_run_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The machine stopped when the disk had the results of three cases and not their details."""
    result, details = written(tmp_path)
    whole = result.read_bytes(), details.read_bytes()
    details.write_bytes(whole[1][: whole[1].index(b"Torch.add.5.forward")])
    assert finish(result) == {one.name for one in CASES[:5]}
    assert (result.read_bytes(), details.read_bytes()) == whole
    assert "the last 3 calls have no details and are run again" in caplog.text


def test_a_skip_needs_no_details(tmp_path: Path) -> None:
    """The details of MindSpore have none."""
    result, details = written(tmp_path)
    with CheckFiles(result, details, result.stem[-14:], format_metric) as files:
        files.append(CaseResult("Torch.add.8", Status.SKIP, None, "no", []))
    assert "Torch.add.8" in finish(result)
