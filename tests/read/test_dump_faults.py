"""Dumps that are cut, damaged or odd: one clear line, and everything that can be read is read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from opassay.pipeline.read.dump_json import read_dump
from opassay.schemas.errors import DumpError, DumpMalformed, DumpNotFound

from tests.read.dump_cases import DATA, document, outcome, plain_rows, tensor, write

READERS = ("general", pytest.param("tokenizer", marks=pytest.mark.slow))
SMALL = {
    "Torch.a.0.forward": {"input_args": [tensor()], "output": [{"type": "str", "value": 'é "q" \\'}]},
    "Torch.b.0.forward": {"input_kwargs": {"k": [1.5, None, tensor(Max=float("nan"))]}},
    "Module.m.L.parameters_grad.0": {"weight": [tensor(Min=float("-inf"))]},
}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["is empty", "dump this rank again"]),
        ("  \n", ["not a JSON object"]),
        ("[1]", ["not a JSON object"]),
        ("no json", ["not a JSON object"]),
        ('{"task":"tensor"}', ["'data'"]),
        ('{"data":{}}', ["'task'"]),
        ('{"task":1,"data":{}}', ["'task'"]),
        ('{"task":"tensor","data":[]}', ["'data' is not an object"]),
        ('{"task":"tensor","data":{"a.forward"', ["byte 25", "before the first complete record"]),
        ('{"task":"ten', ["byte 1", "before the first complete record"]),
        ('{"task":"tensor",}', ["byte 16"]),
    ],
)
def test_headers_that_cannot_be(tmp_path: Path, content: str, words: list[str]) -> None:
    path = write(tmp_path, content)
    with pytest.raises(DumpMalformed) as caught:
        read_dump(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(DumpNotFound, match="does not exist"):
        read_dump(tmp_path / "dump.json")
    with pytest.raises(DumpNotFound, match="is a folder"):
        read_dump(tmp_path)


@pytest.mark.parametrize("reader", READERS)
def test_a_cut_at_every_byte_salvages_what_stands_before(tmp_path: Path, reader: Any) -> None:
    text = json.dumps(document(SMALL), indent=1, ensure_ascii=False).encode()
    whole = plain_rows(read_dump(write(tmp_path, text), reader="general"))
    seen = 0
    for end in range(1, len(text)):
        path = write(tmp_path, text[:end])
        try:
            table = read_dump(path, reader=reader)
        except DumpError:
            assert seen == 0
            continue
        rows = plain_rows(table)
        assert rows.height >= seen
        assert repr(rows.to_dicts()) == repr(whole.head(rows.height).to_dicts())
        cut = [p for p in table.problems if p.kind == "cut"]
        assert len(cut) == 1
        assert cut[0].fatal
        assert table.ops["name"][-1] in cut[0].where
        seen = rows.height
    assert seen == whole.height


@pytest.mark.parametrize("reader", READERS)
def test_damage_in_the_middle_names_the_place(tmp_path: Path, reader: Any) -> None:
    text = json.dumps(document(SMALL))
    place = text.index(', "Torch.b')
    found = outcome(write(tmp_path, text.replace('"k": [', '"k": [}')), reader)
    assert found["ops"] == ["Torch.a.0.forward"]
    assert found["problems"][-1].where == f"byte {place}, after record Torch.a.0.forward"


@pytest.mark.parametrize("reader", READERS)
def test_odd_records_are_named_and_the_rest_is_read(tmp_path: Path, reader: Any) -> None:
    data = {
        "Torch.a.0.forward": None,
        "Torch.b.0.forward": {"input_args": "text", "output": [tensor()]},
        "Torch.c.0.forward": {"output": [tensor(shape="[2]"), 3]},
        "weird": {"output": [tensor()]},
        "odd.name": {},
    }
    found = outcome(write(tmp_path, document(data)), reader)
    assert found["ops"] == ["Torch.a.0.forward", "Torch.b.0.forward", "Torch.c.0.forward"]
    assert found["rows"]["op"].to_list() == [1, 2]
    assert found["rows"]["shape"].to_list() == ["[2, 3]", "[2]"]
    problems = {(p.kind, p.where, p.count, p.fatal) for p in found["problems"]}
    assert problems == {
        ("record", "Torch.a.0.forward", 1, True),
        ("record", "Torch.b.0.forward", 1, True),
        ("leaf", "Torch.c.0.forward", 1, False),
        ("direction", "weird", 2, False),
    }
    assert any("'input_args'" in p.text for p in found["problems"])


@pytest.mark.parametrize("reader", READERS)
def test_a_name_that_occurs_twice_keeps_the_last_record_at_the_first_place(tmp_path: Path, reader: Any) -> None:
    one, two = json.dumps({"output": [tensor(Max=1.0)]}), json.dumps({"output": [tensor(Max=2.0), None]})
    text = f'{{"task":"statistics","data":{{"A.forward":{one},"B.forward":{one},"A.forward":{two}}}}}'
    found = outcome(write(tmp_path, text), reader)
    assert found["ops"] == ["A.forward", "B.forward"]
    assert found["rows"]["op"].to_list() == [0, 0, 1]
    assert found["rows"]["max"].to_list() == [2.0, None, 1.0]
    (problem,) = found["problems"]
    assert (problem.kind, problem.where, problem.count, problem.fatal) == ("duplicate", "A.forward", 1, False)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("depth", [300, 500, 5000, 200_000])
def test_nesting_beyond_the_limit_is_a_problem(tmp_path: Path, reader: Any, depth: int) -> None:
    deep = "[" * depth + "null" + "]" * depth
    text = f'{{"task":"statistics","data":{{"A.forward":{{"output":{deep}}},"B.forward":{{"output":[null]}}}}}}'
    found = outcome(write(tmp_path, text), reader)
    assert found["ops"] == ["A.forward", "B.forward"]
    assert found["rows"]["op"].to_list() == ([0, 1] if depth == 300 else [1])
    assert [(p.where, p.fatal) for p in found["problems"]] == ([] if depth == 300 else [("A.forward", True)])


@pytest.mark.parametrize("reader", READERS)
def test_numbers_of_thousands_of_digits(tmp_path: Path, reader: Any) -> None:
    text = f'{{"task":"statistics","data":{{"A.forward":{{"output":[{{"type":"int","value":{"9" * 6000}}}]}}}}}}'
    found = outcome(write(tmp_path, text), reader)
    assert [p.kind for p in found["problems"]] == ["record"]


@pytest.mark.parametrize("reader", READERS)
def test_same_rows_whatever_the_layout(tmp_path: Path, reader: Any) -> None:
    texts = [
        json.dumps(document(SMALL), indent=1),
        json.dumps(document(SMALL), separators=(",", ":")),
        json.dumps(document(SMALL), indent="\t", ensure_ascii=False),
        json.dumps(document(SMALL), indent=4).replace("\n", "\r\n"),
        "\ufeff" + json.dumps(document(SMALL), ensure_ascii=False),
        json.dumps({"data": SMALL, "x": [{"data": [1]}], "framework": "pytorch", "level": "L1", "task": "statistics"})
        + "\n\n",
    ]
    found = [outcome(write(tmp_path, text), reader) for text in texts]
    assert all(f["header"] == found[0]["header"] and f["problems"] == [found[0]["problems"][0]] for f in found)
    assert all(repr(f["rows"].to_dicts()) == repr(found[0]["rows"].to_dicts()) for f in found)


@pytest.mark.parametrize("reader", READERS)
def test_text_that_utf8_cannot_hold(tmp_path: Path, reader: Any) -> None:
    text = (
        b'{"task":"statistics","data":{"A\\ud800.forward":{"output":[{"type":"str","value":"\\udfff"}]},'
        b'"B\xff.forward":{"input_kwargs":{"k\xfe":{"type":"str","value":"\xc3"}}}},"z":1}'
    )
    found = outcome(write(tmp_path, text), reader)
    assert found["ops"] == [r"A\ud800.forward", r"B\xff.forward"]
    assert found["rows"]["slot"].to_list() == [".output.0", r".input.k\xfe"]
    assert found["rows"]["value"].to_list() == [r"\udfff", r"\xc3"]
    (problem,) = found["problems"]
    assert (problem.kind, problem.where, problem.fatal) == ("header", r".input.k\xfe", False)
    assert "not valid Unicode" in problem.text


@pytest.mark.parametrize("reader", READERS)
def test_texts_that_differ_only_in_what_utf8_cannot_hold_stay_apart(tmp_path: Path, reader: Any) -> None:
    text = b'{"task":"statistics","data":{"A\xff.forward":{"output":[null]},"A\xfe.forward":{"output":[null]}}}'
    found = outcome(write(tmp_path, text), reader)
    assert found["ops"] == [r"A\xff.forward", r"A\xfe.forward"]
    assert [problem.kind for problem in found["problems"]] == ["header"]


@pytest.mark.parametrize("reader", READERS)
def test_statistics_that_are_no_numbers_are_told(tmp_path: Path, reader: Any) -> None:
    data = {"A.forward": {"output": [tensor(Max="x", Mean=[1]), tensor(Norm={"a": 1}), tensor(Min=None)]}}
    found = outcome(write(tmp_path, document(data)), reader)
    assert found["rows"]["max_kind"].to_list() == [4, 0, 0]
    assert [(p.kind, p.where, p.fatal) for p in found["problems"]] == [("leaf", "A.forward", False)] * 2
    assert [p.text.partition(": ")[2] for p in found["problems"]] == [
        "Max (a string), Mean (a list)",
        "Norm (an object)",
    ]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["torch.Tensor", "DTensor"])
def test_a_tensor_without_a_dtype_is_a_tensor_and_told(tmp_path: Path, reader: Any, kind: str) -> None:
    whole = {"type": kind, "shape": [2], "Max": 1.0, "data_name": "a.pt"}
    found = outcome(write(tmp_path, document({"A.forward": {"output": [whole, {"type": kind}]}})), reader)
    rows = found["rows"]
    assert rows["kind"].to_list() == [0, 0]
    assert rows["dtype"].to_list() == ["", ""]
    assert rows["max"].to_list() == [None, None]
    assert rows["data_name"].to_list() == ["a.pt", None]
    assert [(p.kind, p.fatal) for p in found["problems"]] == [("leaf", False)] * 2
    assert "has no dtype" in found["problems"][0].text


@pytest.mark.parametrize("reader", READERS)
def test_leaves_without_a_value_do_not_look_alike(tmp_path: Path, reader: Any) -> None:
    leaves = [{"type": "torch.memory_format", "format": "channels_last"}, {"type": "x"}, {"type": "x", "value": None}]
    found = outcome(write(tmp_path, document({"A.forward": {"output": leaves}})), reader)
    assert found["rows"]["value"].to_list() == ["channels_last", "x", "None"]
    assert found["rows"]["dtype"].to_list() == ["<class 'NoneType'>"] * 3
    assert found["problems"] == []


def test_a_pipe_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "dump.json")
    with pytest.raises(DumpNotFound, match="a pipe, a socket or a device"):
        read_dump(tmp_path / "dump.json")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_another_encoding_is_named(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(DumpMalformed, match="is written in UTF-16"):
        read_dump(write(tmp_path, json.dumps(document(SMALL)).encode(encoding)))


def test_long_texts_are_cut_in_messages(tmp_path: Path) -> None:
    long = "n" * 100_000
    table = read_dump(write(tmp_path, document({long: {}, f"{long}.forward": None}, task=long)))
    assert len(table.task) <= 200
    assert len(table.problems) == 2
    assert all(len(p.where) <= 200 and len(p.text) <= 400 for p in table.problems)


def test_a_real_cut_dump() -> None:
    table = read_dump(DATA / "cut" / "dump.json")
    assert [p.kind for p in table.problems] == ["cut"]
    assert table.ops.height >= 1
