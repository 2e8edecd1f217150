"""dump.json -> cases: pairing, order, task, reasons of skips, cut and odd files."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from opassay.pipeline.check.cases import Case, read_cases
from opassay.schemas.errors import DumpMalformed, DumpNotFound

from tests.dumps import call, scalar, tensor, write_dump

CASES = Path(__file__).parents[1] / "data" / "checker"


def test_cases_come_in_the_order_of_their_forward_records(tmp_path: Path) -> None:
    data = {
        "Torch.exp.0.forward": call([tensor()], [tensor()]),
        "Torch.linalg.inv.3.forward": {**call([tensor()], [tensor()]), "is_recompute": True},
        "Torch.exp.0.backward": {"input": [tensor(shape=(5,))], "output": []},
    }
    first, second = read_cases(write_dump(tmp_path, data))
    assert (first.name, first.kind, first.api, first.index) == ("Torch.exp.0", "Torch", "exp", "0")
    assert first.has_backward
    assert first.gradient[0]["shape"] == [5]
    assert first.args == data["Torch.exp.0.forward"]["input_args"]
    assert (second.api, second.index, second.is_recompute) == ("linalg.inv", "3", True)
    assert not second.has_backward
    assert second.gradient == []
    assert first.folder == tmp_path / "dump_tensor_data"


def test_a_case_and_a_file_can_be_sent_to_a_worker(tmp_path: Path) -> None:
    cases = read_cases(write_dump(tmp_path, {"Torch.exp.0.forward": call([tensor(), scalar(2)], [], dim=scalar(1))}))
    copied = pickle.loads(pickle.dumps(cases))
    assert pickle.loads(pickle.dumps(cases[0])) == copied[0] == cases[0] == copied[-1]
    assert cases[0].kwargs == {"dim": scalar(1)}
    with pytest.raises(IndexError):
        cases[1]


def test_file_of_many_windows_keeps_places(tmp_path: Path) -> None:
    data: dict[str, Any] = {}
    for i in range(3000):  # more than one window of the reader, with characters of several bytes
        data[f"Torch.éxp.{i}.forward"] = call([tensor(), {"type": "str", "value": "ü" * (i % 7)}, scalar(i)], [])
        data[f"Torch.éxp.{i}.backward"] = {"input": [tensor(shape=(i,))]}
    cases = read_cases(write_dump(tmp_path, data))
    assert len(cases) == 3000
    for i, case in enumerate(cases):
        assert case.args[2]["value"] == i
        assert case.gradient[0]["shape"] == [i]
        assert case.args[1]["value"] == "ü" * (i % 7)
    assert cases[2999].args[2]["value"] == 2999


@pytest.mark.parametrize(
    ("name", "api"),
    [
        ("Distributed.all_reduce.0", "all_reduce"),
        ("MindSpeed.npu_foo.0", "npu_foo"),
        ("Jit.relu.0", "relu"),
        ("Torch.a.b.c.0", ""),
        ("Torch.exp", ""),
        ("=Torch.exp.0", "exp"),
    ],
)
def test_calls_that_are_not_run_say_so(tmp_path: Path, name: str, api: str) -> None:
    data = {f"{name}.forward": call([tensor()], []), "Torch.exp.0.forward": call([tensor()], [])}
    first, second = read_cases(write_dump(tmp_path, data))
    assert first.skip == f"API {name} not support for run ut. SKIP."
    assert first.api == api
    assert second.skip == ""


def test_modules_and_names_without_direction_are_left_out(tmp_path: Path) -> None:
    data = {
        "Module.fc.Linear.forward.0": call([tensor()], []),
        "Module.fc.Linear.0.forward": call([tensor()], []),
        "Torch.exp.0.sideways": call([tensor()], []),
        "Torch.sin.0.backward": {"input": [tensor()]},
        "Torch.exp.0.forward": call([tensor()], []),
    }
    cases = read_cases(write_dump(tmp_path, data))
    assert cases.names == ["Torch.exp.0"]
    assert cases.modules == 2
    assert cases.problems == [
        "1 names end in neither forward nor backward and are not run, such as Torch.exp.0.sideways",
        "1 backward records have no forward record and are not run, such as Torch.sin.0",
    ]


def test_a_name_given_twice_keeps_its_place_and_the_last_record(tmp_path: Path) -> None:
    record = json.dumps(call([scalar(1)], []))
    later = json.dumps(call([scalar(2)], []))
    text = f'{{"task":"statistics","data":{{"Torch.a.0.forward":{record},"Torch.b.0.forward":{record},"Torch.a.0.forward":{later}}}}}'
    path = tmp_path / "dump.json"
    path.write_text(text)
    cases = read_cases(path)
    assert cases.names == ["Torch.a.0", "Torch.b.0"]
    assert cases[0].args[0]["value"] == 2
    assert cases.problems == ["1 records occur twice; the last one counts, such as Torch.a.0.forward"]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({"task": "statistics", "dump_data_dir": "x"}, "statistics"),
        ({"task": "tensor", "dump_data_dir": "x"}, "tensor"),
        ({"task": "tensor"}, "statistics"),
        ({"task": "structure", "dump_data_dir": "x"}, "tensor"),
        ({"task": "structure"}, "statistics"),
    ],
)
def test_task(tmp_path: Path, header: dict[str, str], expected: str) -> None:
    data = {"Torch.exp.0.forward": call([tensor(data_name="a.pt")], [])}
    cases = read_cases(write_dump(tmp_path, data, **header))
    assert cases.task == cases[0].task == expected
    assert bool(cases.problems) == (header == {"task": "tensor"})
    (tmp_path / "dump_tensor_data").mkdir()
    again = read_cases(write_dump(tmp_path, data, **header))
    assert again.task == ("tensor" if header["task"] == "tensor" else expected)
    assert not again.problems


def test_header_behind_the_data_counts(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text('{"data":{"Torch.exp.0.forward":{}},"dump_data_dir":"x","framework":"pytorch","task":"tensor"}')
    cases = read_cases(path)
    assert (cases.task, cases.framework) == ("tensor", "pytorch")
    assert cases[0].args == []


def test_cut_file_keeps_what_is_whole(tmp_path: Path) -> None:
    path = write_dump(tmp_path, {f"Torch.exp.{i}.forward": call([tensor()], []) for i in range(5)})
    text = path.read_text()
    path.write_text(text[: text.index("Torch.exp.3.forward") + 60])
    cases = read_cases(path)
    assert cases.names == ["Torch.exp.0", "Torch.exp.1", "Torch.exp.2"]
    assert cases.cut
    assert "only the records before were read" in cases.problems[0]
    assert [case.skip for case in cases] == [""] * 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("[1]", "not a JSON object"),
        ('{"task":"tensor"}', "no data found in dump.json"),
        ('{"data":[1]}', "'data' is not an object"),
        ('{"data":{"Torch.exp.0.forward":{"input', "before the first complete record"),
        ("nonsense", "not a JSON object"),
    ],
)
def test_files_that_are_no_dumps(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "dump.json"
    path.write_text(text)
    with pytest.raises(DumpMalformed, match=told) as caught:
        read_cases(path)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DumpNotFound, match="does not exist"):
        read_cases(tmp_path / "dump.json")
    with pytest.raises(DumpNotFound, match="is a folder"):
        read_cases(tmp_path)


def test_data_without_records_is_no_error(tmp_path: Path) -> None:
    cases = read_cases(write_dump(tmp_path, {}))
    assert len(cases) == 0
    assert list(cases) == []


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ("[1, 2]", "is not an object but a list"),
        ("null", "is not an object but null"),
        ('{"input_args": {"a": 1}}', "has a key 'input_args' that is an object"),
        ('{"input_kwargs": [1]}', "has a key 'input_kwargs' that is a list"),
        ('{"input_args": ' + "[" * 600 + "]" * 600 + "}", "nests deeper than 400 levels"),
        ('{"input_args": ' + "[" * 200_000 + "]" * 200_000 + "}", "cannot be read"),
    ],
)
def test_odd_record_costs_its_call_only(tmp_path: Path, record: str, told: str) -> None:
    path = tmp_path / "dump.json"
    good = json.dumps(call([tensor()], []))
    path.write_text(f'{{"task":"statistics","data":{{"Torch.a.0.forward":{record},"Torch.b.0.forward":{good}}}}}')
    first, second = read_cases(path)
    assert told in first.skip
    assert first.name == "Torch.a.0"
    assert second.skip == ""


def test_odd_backward_record_leaves_the_forward_pass(tmp_path: Path) -> None:
    data = {"Torch.exp.0.forward": call([tensor()], []), "Torch.exp.0.backward": "lost"}
    (case,) = read_cases(write_dump(tmp_path, data))
    assert case.skip == ""
    assert case.has_backward
    assert case.gradient == []


def test_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    path = write_dump(tmp_path, {"Torch.exp.0.forward": call([tensor()], [])})
    cases = read_cases(path)
    path.write_text("x" * 2000)
    assert "changed while the dump was in use" in cases[0].skip


@pytest.mark.parametrize(
    ("api", "kwargs", "has_backward", "told"),
    [
        ("add", {}, True, ""),
        ("add", {"out": tensor()}, True, "function with out=... arguments don't support"),
        ("add", {"out": tensor()}, False, ""),
        ("repeat_interleave", {}, True, "does not have backward input data"),
        ("masked_select", {}, True, "does not support backward ut"),
    ],
)
def test_backward_that_is_refused(api: str, kwargs: dict[str, Any], has_backward: bool, told: str) -> None:
    case = Case(f"Torch.{api}.0", "Torch", api, "0", kwargs=kwargs, has_backward=has_backward)
    assert told in case.no_backward
    assert bool(case.no_backward) == bool(told)


def test_both_reasons_against_backward_are_told() -> None:
    case = Case("Torch.masked_select.0", "Torch", "masked_select", "0", kwargs={"out": tensor()}, has_backward=True)
    assert case.no_backward.startswith("function with out=")
    assert case.no_backward.endswith("This API does not support backward ut, skip backward.")


def test_real_dump_agrees_with_the_json_module() -> None:
    path = CASES / "pt_ops_statistics" / "input" / "dump.json"
    data = json.loads(path.read_text("utf-8"))["data"]
    cases = read_cases(path)
    forward = [key.removesuffix(".forward") for key in data if key.endswith(".forward")]
    assert cases.names == forward
    assert len(cases) == 147
    for case in cases:
        record = data[f"{case.name}.forward"]
        assert json.dumps([case.args, case.kwargs]) == json.dumps([record["input_args"], record["input_kwargs"]])
        assert case.has_backward == (f"{case.name}.backward" in data)
        assert not case.skip
