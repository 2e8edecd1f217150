"""The command on MindSpore dumps: options, files, resuming, processes; with a stand-in for MindSpore where one must run."""

from __future__ import annotations

import importlib.util
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.check.checking import Checked, Checker, input_of
from tests.check.on_mindspore.helpers import ADAPTER, STANDIN, described, run_apart, saved, statistics_dump, tensor_dump
from tests.dumps import call

RUN = ("-f", "mindspore", "run_ut")
HAS_MINDSPORE = importlib.util.find_spec("mindspore") is not None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["multi_run_ut", "-api_info", "X", "-d", "0", "0"], "device id must be unique"),
        (["multi_run_ut", "-api_info", "X", "--device", "4096"], "device ids are 0 to 4095"),
        (["multi_run_ut", "-api_info", "X", "-d", "-1"], "device id must be greater than or equal to 0"),
        (["multi_run_ut", "-api_info", "X", "-d", "a"], "invalid int value: 'a'"),
        (["multi_run_ut", "-api_info", "X", "-n", "2"], "unrecognized arguments: -n 2"),
        (["run_ut", "-api_info", "X", "-f"], "unrecognized arguments: -f"),
        (["run_ut", "-api_info", "X", "-config", "c.json"], "unrecognized arguments: -config c.json"),
        (["run_ut"], "-api_info"),
        (["run_ut", "-api_info", "X"], "X does not exist"),
        (["api_precision_compare"], "knows the standards of pytorch only"),
    ],
)
def test_wrong_usage_is_one_line(checker: Checker, words: list[str], told: str) -> None:
    status, lines = checker.main("-f", "mindspore", *words)
    assert status == 2
    assert told in lines[-1]


def test_a_mindspore_dump_without_the_framework_is_told_how(checker: Checker, tmp_path: Path) -> None:
    for framework in ("mindspore", "mindtorch"):
        path = statistics_dump(tmp_path, {"Mint.add.0.forward": call([described()], [])}, framework)
        status, lines = checker.main("run_ut", "-api_info", str(path), "-o", str(tmp_path / "out"))
        assert (status, "opassay -f mindspore run_ut" in lines[-1]) == (2, True)
    assert not (tmp_path / "out").exists()


def test_acc_check_is_the_same_command_and_formats_are_those_of_mindspore(checker: Checker, tmp_path: Path) -> None:
    values = np.array([1.0, 2.5], dtype=np.float32)
    folder = tmp_path / "dump"
    data = {
        "Mint.exp.0.forward": call([saved(folder, "x", values)], [saved(folder, "y", np.exp(values) + np.float32(0.25))]),
        "Mint.exp.0.backward": {"input": [saved(folder, "g", values)], "output": [saved(folder, "h", values * np.exp(values))]},
        "Mint.add.0.forward": call([saved(folder, "a", values[:0]), 1.0], []),
    }  # fmt: skip
    out = tmp_path / "out"
    status, _ = checker.main(
        "-f", "mindspore", "acc_check", "-api_info", str(tensor_dump(folder, data)), "-o", str(out), "--fail-on", "error"
    )  # fmt: skip
    assert status == 1
    done = Checked(status, [], out)
    details = done.path("details").read_bytes().decode("utf-8-sig").split("\r\n")
    assert details[0] == "API Name,Bench Dtype,Tested Dtype,Shape,Cosine,MaxAbsErr,MaxRelativeErr,Status,Message"
    assert details[1].startswith('Mint.exp.0.forward.output.0,Float64,Float32,"(2,)",0.99')
    assert ",0.2500002384185791,0.09196" in details[1]
    assert details[2].startswith('Mint.exp.0.backward.output.0,Float64,Float32,"(2,)",')
    assert details[3:] == [""]  # what was skipped has no details
    result = done.path("result").read_bytes().decode("utf-8-sig").split("\r\n")
    assert result[0] == "API Name,Forward Test Success,Backward Test Success,Message"
    assert result[1] == "Mint.exp.0,error,pass,max absolute difference is greater than threshold: 0.0001 "
    assert result[2].startswith("Mint.add.0,SKIP,,argument 1 is 1.0")  # 1.0 is no description of a value


def test_gradients_meet_their_inputs(checker: Checker, tmp_path: Path) -> None:
    x, y = np.array([1.0, 2.0], dtype=np.float32), np.array([3.0, 5.0], dtype=np.float32)
    condition, one = np.array([True, False]), np.ones(2, dtype=np.float32)
    folder = tmp_path / "dump"

    def tensor(name: str, values: np.ndarray) -> dict[str, object]:
        return saved(folder, name, values, "Bool" if values.dtype == bool else "Float32")

    chosen = [tensor("w", np.where(condition, x, y))]
    halves = [tensor("gx", one * condition), tensor("gy", one * ~condition)]
    joined = [tensor("ga", np.float32([0, 1])), tensor("gb", np.float32([2, 3]))]
    arriving = {"input": [tensor("g", one)]}
    data = {
        # null where there is none, one for each tensor
        "Mint.where.0.forward": call([tensor("c", condition), tensor("x", x), tensor("y", y)], chosen),
        "Mint.where.0.backward": {**arriving, "output": [None, *halves]},
        # one for each argument
        "Mint.mul.0.forward": call([{"type": "float", "value": 3.0}, tensor("x", x)], [tensor("m", 3 * x)]),
        "Mint.mul.0.backward": {**arriving, "output": [None, tensor("gm", 3 * one)]},
        # those of floats only, in order
        "Mint.where.1.forward": call([tensor("c", condition), tensor("x", x), tensor("y", y)], chosen),
        "Mint.where.1.backward": {**arriving, "output": halves},
        # through a list
        "Mint.cat.0.forward": call([[tensor("x", x), tensor("y", y)]], [tensor("xy", np.concatenate([x, y]))]),
        "Mint.cat.0.backward": {"input": [tensor("gxy", np.float32([0, 1, 2, 3]))], "output": joined},
        # wrong: the two gradients have changed places
        "Mint.sub.0.forward": call([tensor("x", x), tensor("y", y)], [tensor("s", x - y)]),
        "Mint.sub.0.backward": {**arriving, "output": [tensor("n", -one), tensor("g", one)]},
    }
    path = tensor_dump(folder, data)
    status, _ = checker.main(*RUN, "-api_info", str(path), "-o", str(tmp_path / "out"))
    done = Checked(status, [], tmp_path / "out")
    verdicts = {row["API Name"]: (row["Forward Test Success"], row["Backward Test Success"]) for row in done.result}
    assert verdicts == {
        "Mint.where.0": ("pass", "pass"), "Mint.mul.0": ("pass", "pass"), "Mint.where.1": ("pass", "pass"),
        "Mint.cat.0": ("pass", "pass"), "Mint.sub.0": ("pass", "error"),
    }  # fmt: skip
    counts = Counter(
        row["API Name"].partition(".backward.")[0] for row in done.details if ".backward." in row["API Name"]
    )
    assert counts == {"Mint.where.0": 2, "Mint.mul.0": 1, "Mint.where.1": 2, "Mint.cat.0": 2, "Mint.sub.0": 2}


def test_one_unread_tensor_costs_its_direction(checker: Checker, tmp_path: Path) -> None:
    values = np.array([1.0, 2.0], dtype=np.float32)
    folder = tmp_path / "dump"
    x, y = saved(folder, "x", values), saved(folder, "y", np.exp(values))
    gone = {**described(values), "data_name": "gone.npy"}
    data = {
        "Mint.exp.0.forward": call([x], [gone]),
        "Mint.exp.0.backward": {"input": [x], "output": [saved(folder, "z", values * np.exp(values))]},
        "Mint.exp.1.forward": call([x], [y]),
        "Mint.exp.1.backward": {"input": [x], "output": [gone]},
        "Mint.exp.2.forward": call([x], [gone]),
    }
    status, lines = checker.main(*RUN, "-api_info", str(tensor_dump(folder, data)), "-o", str(tmp_path / "out"))
    done = Checked(status, lines, tmp_path / "out")
    assert [(row["Forward Test Success"], row["Backward Test Success"]) for row in done.result] == [
        ("SKIP", "pass"), ("pass", "SKIP"), ("SKIP", ""),
    ]  # fmt: skip
    assert all("gone.npy" in row["Message"] for row in done.result)
    assert status == 3  # a tensor of the last call could not be read


def test_save_error_data_has_no_effect_with_tensors(checker: Checker, tmp_path: Path) -> None:
    path = input_of("ms_net_fault", tmp_path)
    status, lines = checker.main(*RUN, "-api_info", str(path), "-o", str(tmp_path / "out"), "-save_error_data")
    assert status == 0
    assert any("-save_error_data has no effect on a tensor dump" in line for line in lines)
    assert len(list((tmp_path / "out").iterdir())) == 2


@pytest.mark.slow
def test_a_run_goes_on_where_it_was_and_processes_change_no_byte(checker: Checker, tmp_path: Path) -> None:
    path = input_of("ms_net_fault", tmp_path)
    words = ("-api_info", str(path))
    checker.main(*RUN, *words, "-o", str(tmp_path / "one"))
    whole = Checked(0, [], tmp_path / "one")
    checker.main("-f", "mindspore", "multi_run_ut", *words, "-o", str(tmp_path / "two"), "-d", "0", "1")
    several = Checked(0, [], tmp_path / "two")
    for kind in ("result", "details"):
        assert several.path(kind).read_bytes() == whole.path(kind).read_bytes()
    cut = tmp_path / "cut"
    shutil.copytree(tmp_path / "one", cut)
    broken = Checked(0, [], cut)
    for kind, lines in (("result", 9), ("details", 30)):
        data = broken.path(kind).read_bytes().split(b"\r\n")
        broken.path(kind).write_bytes(b"\r\n".join(data[:lines]) + b"\r\nMint.spl")
    status, _ = checker.main(*RUN, *words, "-csv_path", str(broken.path("result")))
    assert status == 0
    for kind in ("result", "details"):
        assert broken.path(kind).read_bytes() == whole.path(kind).read_bytes()


def test_files_of_another_framework_are_refused(checker: Checker, tmp_path: Path) -> None:
    (tmp_path / "accuracy_checking_result_20260101000000.csv").write_bytes(
        b"\xef\xbb\xbfAPI name,Forward Test Success,Backward Test Success,Message\r\n"
    )
    (tmp_path / "accuracy_checking_details_20260101000000.csv").write_bytes(
        b"\xef\xbb\xbfAPI Name,Bench Dtype,DEVICE Dtype,Shape\r\n"
    )
    path = input_of("ms_net_tensor", tmp_path)
    result = str(tmp_path / "accuracy_checking_result_20260101000000.csv")
    status, lines = checker.main(*RUN, "-api_info", str(path), "-csv_path", result)
    assert (status, "it was written for another framework" in lines[-1]) == (2, True)


@pytest.mark.skipif(HAS_MINDSPORE, reason="MindSpore is installed")
def test_statistics_need_mindspore(checker: Checker, tmp_path: Path) -> None:
    path = statistics_dump(tmp_path, {"Mint.add.0.forward": call([described()], [])})
    status, lines = checker.main(*RUN, "-api_info", str(path), "-o", str(tmp_path / "out"))
    assert status == 2
    assert "pip install 'opassay[mindspore]'. A tensor dump needs no MindSpore" in lines[-1]


STATISTICS = {
    "Mint.add.0.forward": call([described(), described()], []),
    "Mint.add.0.backward": {"input": [described()], "output": []},
    "Mint.exp.0.forward": call([described(low=0.5)], []),
    "Mint.exp.0.backward": {"input": [described()], "output": []},
    "Mint.max.0.forward": call([described()], [], dim={"type": "int", "value": 1}),
    "Mint.max.0.backward": {"input": [described(shape=(2,))], "output": []},
    "Mint.cat.0.forward": call([[described(), described()]], []),
    "Mint.cat.0.backward": {"input": [described(shape=(4, 3))], "output": []},
    "Mint.acos.0.forward": call([described()], []),
    "Mint.abs.0.forward": call([described()], []),
    "Tensor.add.0.forward": call([described(dtype="Int64"), described(dtype="Int64")], []),
}


@pytest.mark.slow
def test_with_statistics_mindspore_is_run_on_the_inputs_of_the_reference(tmp_path: Path) -> None:
    path, out = statistics_dump(tmp_path / "dump", STATISTICS), tmp_path / "out"
    done = run_apart("run_ut", "-api_info", str(path), "-o", str(out), "-save_error_data", path=(STANDIN,), folder=out)
    assert done.status == 3, done.told  # abs ends its process
    found = {row["API Name"]: row for row in done.result}
    verdicts = {name: (row["Forward Test Success"], row["Backward Test Success"]) for name, row in found.items()}
    assert verdicts == {
        "Mint.add.0": ("pass", "pass"), "Mint.exp.0": ("error", "error"), "Mint.max.0": ("pass", "pass"),
        "Mint.cat.0": ("pass", "pass"), "Mint.acos.0": ("SKIP", ""), "Mint.abs.0": ("SKIP", ""), "Tensor.add.0": ("pass", ""),
    }  # fmt: skip
    assert found["Mint.acos.0"]["Message"] == "no CPU kernel (The kernel AcosExt unregistered.)"
    assert found["Mint.abs.0"]["Message"] == "the process that ran the call died (exit status 7), twice"
    folder = out / "error_data"
    names = {path.name for path in folder.glob("*.npy")}
    assert names == {
        f"Mint.exp.0.{name}.npy"
        for name in (
            "forward.input.0", "forward.output.0", "forward.output.bench.0",
            "backward.input.0", "backward.output.0", "backward.output.bench.0",
        )
    }  # fmt: skip
    again = tmp_path / "again"
    redone = run_apart("run_ut", "-api_info", str(folder / "Mint.exp.0.json"), "-o", str(again), folder=again)
    assert [row for row in done.details if row["API Name"].startswith("Mint.exp.0")] == redone.details


@pytest.mark.slow
def test_msadapter_in_front_of_torch_does_not_become_the_reference(tmp_path: Path) -> None:
    values = np.array([1.0, 2.0], dtype=np.float32)
    folder, out = tmp_path / "dump", tmp_path / "out"
    data = {"Torch.exp.0.forward": call([saved(folder, "x", values)], [saved(folder, "y", np.exp(values))])}
    path = tensor_dump(folder, data, framework="mindtorch")
    done = run_apart("run_ut", "-api_info", str(path), "-o", str(out), path=(ADAPTER, STANDIN), folder=out)
    assert (done.status, done.result[0]["Forward Test Success"]) == (0, "pass")


@pytest.mark.slow
def test_msadapter_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    data = {
        "Torch.add.0.forward": call([described(), described()], []),
        "Torch.add.0.backward": {"input": [described()], "output": []},
        "Functional.relu.0.forward": call([described()], []),
        "Tensor.add.0.forward": call([described(), described()], []),
        "Torch.exp.0.forward": call([described(low=0.5)], []),
        "Torch.abs.0.forward": call([described()], []),
        "Torch.sin.0.forward": call([described()], []),
        "Torch.exp.1.forward": call([described(low=0.5)], []),
    }
    path, out = statistics_dump(tmp_path / "dump", data, "mindtorch"), tmp_path / "out"
    done = run_apart("run_ut", "-api_info", str(path), "-o", str(out), path=(ADAPTER, STANDIN), folder=out)
    assert done.status == 0, done.told
    verdicts = {row["API Name"]: (row["Forward Test Success"], row["Backward Test Success"]) for row in done.result}
    assert verdicts == {
        "Torch.add.0": ("pass", "pass"), "Functional.relu.0": ("pass", ""), "Tensor.add.0": ("pass", ""),
        "Torch.exp.0": ("error", ""), "Torch.abs.0": ("SKIP", ""), "Torch.sin.0": ("SKIP", ""), "Torch.exp.1": ("error", ""),
    }  # fmt: skip
    messages = {row["API Name"]: row["Message"] for row in done.result}
    assert messages["Torch.abs.0"] == "the process with MSAdapter died (7)"
    assert messages["Torch.sin.0"] == "MSAdapter's torch has no Torch.sin"
    missing = run_apart("run_ut", "-api_info", str(path), "-o", str(out), path=(STANDIN,))
    assert missing.status == 2
    assert "Please check if you have a valid PyTorch and MindTorch environment (no MSAdapter" in missing.told[-1]


def test_a_torch_that_is_not_msadapter_is_refused(tmp_path: Path) -> None:
    fake = tmp_path / "fake" / "torch"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("def tensor(value):\n    return value\n")
    path = statistics_dump(
        tmp_path / "dump", {"Torch.add.0.forward": call([described(), described()], [])}, "mindtorch"
    )
    out = tmp_path / "out"
    done = run_apart("run_ut", "-api_info", str(path), "-o", str(out), path=(fake.parent, STANDIN), folder=out)
    assert done.status == 2  # not one call could be run
    assert "MSAdapter cannot be used" in done.result[0]["Message"]
    assert "its tensors are not MindSpore's" in done.result[0]["Message"]
