"""The command line of the check: options, exit status, one line for what is wrong, files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from opassay.pipeline.cli.main import build_parser, main

from tests.check.checking import DATA, Checker
from tests.dumps import call, scalar, tensor, write_dump

DUMP = DATA / "pt_handmade" / "input" / "dump.json"


def small(folder: Path, **more: object) -> Path:
    """A dump of a few calls."""
    wide = {**tensor(shape=(4, 4)), "dtype": "torch.float32", "Max": 1.0, "Min": -1.0, "Mean": 0.0, "Norm": 2.0}
    data = {f"Torch.{api}.0.forward": call([wide], [wide]) for api in ("exp", "sin", "no_such_api")}
    return write_dump(folder, {**data, **more})


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run_ut"], "-api_info"),
        (["run_ut", "-api_info", "X", "-d", "0", "0"], "device id must be unique"),
        (["run_ut", "-api_info", "X", "-d", "-1"], "device id must be greater than or equal to 0"),
        (["run_ut", "-api_info", "X", "-d", "a"], "invalid int value"),
        (["multi_run_ut", "-api_info", "X", "-n", "65"], "-n 65: the number of splits must be from 1 to 64"),
        (["multi_run_ut", "-api_info", "X", "-n", "0"], "-n 0: the number of splits must be from 1 to 64"),
        (["run_ut", "-api_info", "absent.json"], "absent.json does not exist"),
        (["multi_run_ut", "-api_info", "absent.json"], "absent.json does not exist"),
        pytest.param(
            ["run_ut", "-api_info", str(DUMP), "-csv_path", "mine.csv"],
            "please do not modify the result csv name",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["run_ut", "-api_info", str(DUMP), "-config", "absent.json"],
            "-config absent.json cannot be read",
            marks=pytest.mark.slow,
        ),
        (["run_ut", "-api_info", "X", "--threads", "0"], "--threads 0: must be 1 or more"),
        (["run_ut", "-api_info", "X", "--timeout", "-1"], "--timeout -1: must be 0 or more seconds"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    words: list[str], told: str, checker: Checker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, lines = checker.main(*words)
    assert status == 2
    assert told in lines[-1]
    assert not list(tmp_path.iterdir())


def test_both_meanings_of_f() -> None:
    arguments = build_parser().parse_args(["run_ut", "-api_info", "X", "-f"])
    assert arguments.filter_api
    assert main(["-f", "mindspore", "run_ut", "-api_info", "X"]) == 2


@pytest.mark.parametrize(("command", "other"), [("run_ut", "acc_check"), ("multi_run_ut", "multi_acc_check")])
def test_other_names_of_the_commands(command: str, other: str) -> None:
    first, second = (vars(build_parser().parse_args([name, "-api_info", "X"])) for name in (command, other))
    assert {**first, "command": ""} == {**second, "command": ""}


def test_a_dump_of_another_framework_is_told(checker: Checker, tmp_path: Path) -> None:
    dump = write_dump(tmp_path, {})
    dump.write_text(json.dumps({**json.loads(dump.read_text()), "framework": "mindspore"}))
    checked = checker(dump, tmp_path / "out")
    assert checked.status == 2
    assert "is a dump of mindspore" in checked.told[-1]


@pytest.mark.slow
def test_a_run_says_what_came_out(checker: Checker, tmp_path: Path) -> None:
    checked = checker(small(tmp_path), tmp_path / "out")
    assert checked.status == 0
    assert "[INFO] forward : 2 pass, 0 warning, 0 error, 1 SKIP" in checked.told
    assert "[INFO] Successfully completed run_ut." in checked.told
    (skipped,) = [row for row in checked.result if row["Forward Test Success"] == "SKIP"]
    assert list(skipped.values()) == ["Torch.no_such_api.0", "SKIP", "SKIP", "API no_such_api not found in torch"]
    assert checked.path("result").stat().st_mode & 0o777 == 0o640
    assert b"\r\nTorch.exp.0,pass, ,\r\n" in checked.path("result").read_bytes()


@pytest.mark.slow
def test_without_an_accelerator_the_cpu_is_the_device(checker: Checker, tmp_path: Path) -> None:
    status, told = checker.main("run_ut", "-api_info", str(small(tmp_path)), "-o", str(tmp_path / "out"))
    assert status == 0
    assert sum("the device under test is the cpu" in line for line in told) == 1
    for kind in ("cuda", "npu"):
        status, told = checker.main("run_ut", "-api_info", str(small(tmp_path)), "-o", str(tmp_path), "--device", kind)
        assert status == 2
        assert f"--device {kind}: torch" in told[-1]
        assert "--device cpu" in told[-1]


@pytest.mark.slow
def test_nothing_that_can_be_run_is_no_success(checker: Checker, tmp_path: Path) -> None:
    dump = write_dump(tmp_path, {"Distributed.all_reduce.0.forward": call([tensor()], [])})
    checked = checker(dump, tmp_path / "out", command="multi_run_ut")
    assert checked.status == 2
    assert not any("Successfully" in line for line in checked.told)
    assert "not one call of 1 could be run" in checked.told[-1]
    assert len(checked.result) == 1


@pytest.mark.slow
def test_an_empty_dump_gives_files_without_rows(checker: Checker, tmp_path: Path) -> None:
    checked = checker(write_dump(tmp_path, {}), tmp_path / "out")
    assert checked.status == 0
    assert checked.result == checked.details == []
    assert any("holds no call" in line for line in checked.told)


@pytest.mark.slow
def test_tensors_that_cannot_be_read_give_status_3(checker: Checker, tmp_path: Path) -> None:
    lost = {**tensor(shape=(4, 4)), "data_name": "gone.pt"}
    dump = small(tmp_path, **{"Torch.cos.0.forward": call([lost], [tensor()])})
    (tmp_path / "dump_tensor_data").mkdir()
    text = json.loads(dump.read_text())
    dump.write_text(json.dumps({**text, "task": "tensor", "dump_data_dir": "dump_tensor_data"}))
    checked = checker(dump, tmp_path / "out")
    assert checked.status == 3
    (row,) = [row for row in checked.result if row["API name"] == "Torch.cos.0"]
    assert "gone.pt" in row["Message"]
    assert not any("Successfully" in line for line in checked.told)


@pytest.mark.slow
def test_splits_make_no_difference(checker: Checker, tmp_path: Path) -> None:
    one = checker(DUMP, tmp_path / "one")
    for count in ("1", "3", "64"):
        many = checker(DUMP, tmp_path / count, "-n", count, command="multi_run_ut")
        assert many.status == 0
        assert many.path("result").read_bytes() == one.path("result").read_bytes()
        assert many.path("details").read_bytes() == one.path("details").read_bytes()
        assert len(list(many.folder.iterdir())) == 2
    assert any("-n 64: at most 8 processes a device are started, here 8" in line for line in many.told)


@pytest.mark.slow
def test_fail_on(checker: Checker, tmp_path: Path) -> None:
    dump = DATA / "pt_ops_statistics" / "input" / "dump.json"
    assert checker(dump, tmp_path / "a", "--fail-on", "error").status == 1
    assert checker(small(tmp_path), tmp_path / "b", "--fail-on", "warning").status == 0


@pytest.mark.slow
def test_error_data_can_be_run_again(checker: Checker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The softmax of the dump is wrong in its gradient; what is kept of it gives the very same rows."""
    monkeypatch.chdir(tmp_path)
    dump = DATA / "pt_ops_statistics" / "input" / "dump.json"
    checked = checker(dump, tmp_path / "out", "-save_error_data")
    stamp = checked.path("result").stem[-14:]
    kept = tmp_path / f"ut_error_data{stamp}"
    wrong = [row["API name"] for row in checked.result if row["Backward Test Success"] == "error"]
    assert "Functional.softmax.0" in wrong
    assert sorted(path.stem for path in kept.glob("*.json")) == sorted(wrong)
    names = {path.name for path in kept.glob("Functional.softmax.0.*.pt")}
    assert names == {
        f"Functional.softmax.0.{part}.0.pt"
        for part in ("forward.input", "forward.output.bench", "forward.output.device",
                     "backward.input", "backward.output.bench", "backward.output.device")
    }  # fmt: skip
    again = checker(kept / "Functional.softmax.0.json", tmp_path / "again")
    (row,) = [row for row in again.details if ".backward." in row["API Name"]]
    (first,) = [row for row in checked.details if row["API Name"] == "Functional.softmax.0.backward.output.0"]
    assert row["Status"] == first["Status"] == "error"
    assert row["余弦相似度"] == first["余弦相似度"]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_what_is_finished_is_kept_and_how_to_go_on_is_said(how: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C reaches the workers too; a batch system ends the command alone."""
    product = {**tensor(shape=(3000, 3000)), "Max": 1.0, "Min": -1.0, "Mean": 0.0, "Norm": 1732.0}
    slow = {f"Torch.matmul.{number}.forward": call([product, product], [product]) for number in range(20)}
    dump = small(tmp_path, **slow)
    words = [sys.executable, "-m", "opassay", "run_ut", "-api_info", str(dump), "-o", str(tmp_path / "out")]
    with subprocess.Popen(
        [*words, "--device", "cpu"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        begun = time.monotonic()
        while not list((tmp_path / "out").glob("*result*")) and time.monotonic() - begun < 60:
            time.sleep(0.05)
        time.sleep(1.0)
        (os.killpg if how is signal.SIGINT else os.kill)(run.pid, how)
        _, told = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "Traceback" not in told
    assert "interrupted; what is finished is kept, go on with -csv_path" in told
    (result,) = (tmp_path / "out").glob("*result*")
    assert result.read_bytes().endswith(b"\r\n")


@pytest.mark.slow
def test_a_call_that_takes_too_long_is_skipped(checker: Checker, tmp_path: Path) -> None:
    # minutes of work, so that only the clock can end it, however fast or busy the machine is
    product = {**tensor(shape=(9000, 9000)), "Max": 1.0, "Min": -1.0, "Mean": 0.0, "Norm": 5196.0}
    dump = small(tmp_path, **{"Torch.matmul.0.forward": call([product, product, scalar(1)][:2], [product])})
    checked = checker(dump, tmp_path / "out", "--timeout", "8", command="multi_run_ut")
    assert checked.status == 3
    (row,) = [row for row in checked.result if row["API name"] == "Torch.matmul.0"]
    assert "took more than 8 s" in row["Message"]
    assert [row["Forward Test Success"] for row in checked.result if row["API name"] != "Torch.matmul.0"].count(
        "pass"
    ) == 2
