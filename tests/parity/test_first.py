"""The harness of ``-da``: right files are explained, wrong ones are not, and its own search finds what is known to be wrong."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.parity.analysis import FIGURES, OURS, PEER, compare_analysis
from tests.parity.calls import calls_of, events_of
from tests.parity.compare import Judged, Tally
from tests.parity.differs import is_result, op_differences
from tests.parity.dump import INPUTS, read_dump
from tests.parity.first_op import Answer, ranked, search
from tests.parity.op_json import STACK, RankSide, compare_ops, messages, read_strictly, side_of
from tests.parity.oracle import print_value
from tests.parity.pairing import Matching
from tests.parity.reference import titles
from tests.parity.small_dumps import Records, tensor
from tests.parity.tables import GOLDEN_STATISTICS, TARGET_STATISTICS, number

GROUP = {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "77849d8c"}


def op(given: float = 1.0, got: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"input_args": [tensor(value=given)], "output": [tensor(value=got, **more)]}


def module(weight: float = 1.0, got: float = 1.0) -> dict[str, Any]:
    return {**op(got=got), "parameters": {"weight": tensor(value=weight)}}


def collective(given: float = 1.0, got: float = 1.0, **kwargs: Any) -> dict[str, Any]:
    return {"input_args": [tensor(value=given)], "input_kwargs": kwargs, "output": [tensor(value=got)]}


def whole(value: int) -> dict[str, Any]:
    return {"type": "int", "value": value}


def rank(folder: Path, target: Records, golden: Records) -> RankSide:
    found = []
    for name, records in (("target", target), ("golden", golden)):
        place = folder / name
        place.mkdir(parents=True)
        (place / "dump.json").write_text(json.dumps({"task": "statistics", "data": records}))
        (place / "stack.json").write_text(json.dumps({r: [f"File a.py, line {n}"] for n, r in enumerate(records)}))
        found.append(read_dump(place / "dump.json"))
    return side_of(found[0], found[1], Matching())


def run_of(folder: Path, golden: dict[str, Any], *targets: dict[str, Any]) -> dict[int, RankSide]:
    """Ranks that should all be like ``golden``; each target says what is different on its rank."""
    sides = {}
    for number_, changes in enumerate(targets):
        target = {**copy.deepcopy(golden), **changes}
        target = {name: record for name, record in target.items() if record is not None}
        sides[number_] = rank(folder / f"rank{number_}", target, golden)
    return sides


CHAIN = {
    "Torch.mul.0.forward": op(),
    "Distributed.all_reduce.0.forward": collective(),
    "Torch.add.0.forward": op(),
    "Torch.tanh.0.forward": op(),
    "Distributed.broadcast.0.forward": collective(src=whole(0)),
    "Torch.sin.0.forward": op(),
    "Module.fc.Linear.forward.0": module(),
}
BEFORE = {"Torch.mul.0.forward": op(got=9), "Distributed.all_reduce.0.forward": collective(9, 9)}


@pytest.mark.parametrize(
    ("zero", "one", "answers"),
    [
        ({}, {}, []),
        (BEFORE, {"Distributed.all_reduce.0.forward": collective(got=9)}, [(0, "Torch.mul.0.forward", "added")]),
        ({}, {"Torch.mul.0.forward": op(9, 9)}, [(1, "Torch.mul.0.forward", "inherited")]),
        (
            {},
            {"Distributed.all_reduce.0.forward": collective(got=9)},
            [(1, "Distributed.all_reduce.0.forward", "communication")],
        ),
        (
            {"Distributed.all_reduce.0.forward": collective(9, 9)},
            {"Distributed.all_reduce.0.forward": collective(got=9)},
            [(0, "Distributed.all_reduce.0.forward", "given")],
        ),
        (
            {"Torch.tanh.0.forward": op(got=9)},
            {"Torch.add.0.forward": op(got=9)},
            [(1, "Torch.add.0.forward", "added")],
        ),
        (
            {"Distributed.broadcast.0.forward": collective(9, 9, src=whole(0))},
            {
                "Distributed.broadcast.0.forward": collective(got=9, src=whole(0)),
                "Torch.sin.0.forward": op(9, 9),
            },
            [(0, "Distributed.broadcast.0.forward", "given")],
        ),
        (
            {"Distributed.broadcast.0.forward": collective(src=whole(0))},
            {"Distributed.broadcast.0.forward": collective(9, 1, src=whole(0)), "Torch.sin.0.forward": op(got=9)},
            [(1, "Torch.sin.0.forward", "added")],
        ),
        (
            {"Torch.sin.0.forward": op(got=9)},
            {"Torch.sin.0.forward": op(1, 8)},
            [(0, "Torch.sin.0.forward", "added"), (1, "Torch.sin.0.forward", "added")],
        ),
        ({}, {"Module.fc.Linear.forward.0": module(9, 9)}, [(1, "Module.fc.Linear.forward.0", "weight")]),
        ({"Torch.sin.0.forward": op(dtype="torch.float16")}, {}, [(0, "Torch.sin.0.forward", "dtype")]),
        ({"Torch.cos.0.forward": op()}, {}, [(0, "Torch.cos.0.forward", "alone")]),
    ],
)
def test_search(tmp_path: Path, zero: dict[str, Any], one: dict[str, Any], answers: list[tuple[int, str, str]]) -> None:
    found = search(run_of(tmp_path, CHAIN, zero, one))
    assert [(a.rank, a.record, a.origin) for a in found] == answers


def test_places_of_an_answer(tmp_path: Path) -> None:
    sides = run_of(tmp_path, CHAIN, {"Torch.tanh.0.forward": op(got=9)}, {})
    assert search(sides) == [Answer(0, "Torch.tanh.0.forward", "during", 1, 1, "added")]
    sides = run_of(tmp_path / "after", CHAIN, {}, {"Torch.sin.0.forward": op(got=9)})
    assert search(sides) == [Answer(1, "Torch.sin.0.forward", "after", 2, 0, "added")]


def test_a_message_carries_a_difference(tmp_path: Path) -> None:
    golden = {"Torch.mul.0.forward": op(), "Torch.sin.0.forward": op()}
    send = {"input_args": [tensor(value=9), whole(1)], "output": [None, whole(1)]}
    wrong = {"Torch.mul.0.forward": op(got=9), "Distributed.isend.0.forward": send}
    receive = {"input_args": [tensor(), whole(0)], "output": [tensor(value=9), whole(0)]}
    sides = {}
    for number_, (target, name) in enumerate(
        [
            ({**golden, **wrong}, "Distributed.isend.0.forward"),
            (
                {**golden, "Distributed.irecv.0.forward": receive, "Torch.cos.0.forward": op(9, 9)},
                "Distributed.irecv.0.forward",
            ),
        ]
    ):
        clean = {"input_args": [tensor(), whole(1 - number_)], "output": [tensor(), whole(1 - number_)]}
        sides[number_] = rank(tmp_path / str(number_), target, {**golden, name: clean, "Torch.cos.0.forward": op()})
    assert ranked(search(sides)) == {"rank_0": ["Torch.mul.0.forward"]}


def test_calls_that_belong_together(tmp_path: Path) -> None:
    part = {"class_type": "torch.distributed.P2POp", "tensor": tensor(), "tag": 3, "group_id": "a"}
    batch = {"input_args": [[{**part, "op": "isend", "peer": 1}, {**part, "op": "irecv", "peer": 1}]], "output": []}
    other = {"input_args": [[{**part, "op": "irecv", "peer": 0}, {**part, "op": "isend", "peer": 0}]], "output": []}
    meet = {"Distributed.all_reduce.0.forward": collective(group=GROUP), "Distributed.reduce.0.forward": collective()}
    sides = {}
    for number_, content in enumerate((batch, other)):
        records = {**meet, "Distributed.batch_isend_irecv.0.forward": content}
        sides[number_] = rank(tmp_path / str(number_), records, records)
    events = events_of({n: calls_of(side.target.path) for n, side in sides.items()})
    assert events[0][:2] == events[1][:2]
    assert events[0][2:] == events[1][2:]
    assert events[0][2] != events[0][3]
    found = messages(sides[0].target)
    assert found["Distributed.batch_isend_irecv.0.forward", ".input.0.0"] == ("isend", "1")


def as_json(title: str, value: Any) -> Any:
    text = print_value(value)
    if title == "Requires_grad Consistent":
        return text == "True"
    if title in TARGET_STATISTICS + GOLDEN_STATISTICS and number(text):
        return json.loads(text)
    return text


def right_item(side: RankSide, row: Judged) -> dict[str, Any]:
    levels = sorted({f.level for f in row.firings[row.at] if f.sure})
    verdict = {"Result": levels[0] if levels else "pass", "Err_message": json.dumps([f"{x}: x" for x in levels])}
    item = {t: verdict.get(t, as_json(t, row.right.get(t))) for t in titles(side.mode, stack=True) if t != "Data_Name"}
    item[STACK] = side.target.stacks.get(row.pair.row.record) if row.pair.target is not None else None
    section = row.pair.row.section
    item |= {"state": "input" if section in INPUTS else section, "api_origin_name": row.pair.row.record}
    return item | {f"{s} P2POp {w}": "None" for w in ("op", "peer") for s in ("NPU", "Bench")}


def right_ops(side: RankSide) -> dict[str, Any]:
    found = {}
    for name, rows in side.records.items():
        differs = any(d.sure for d in op_differences(rows))
        found[name] = {"is_same": not differs, "op_items": [right_item(side, row) for row in rows]}
    met = {r.pair.golden.record for r in side.rows if r.pair.golden is not None and r.pair.target is not None}
    for row in side.rows:
        if row.pair.target is None and row.pair.row.record not in met:
            entry = found.setdefault(row.pair.row.record, {"is_same": False, "op_items": []})
            entry["op_items"].append(right_item(side, row))
    return found


TARGET = {
    "Torch.mul.0.forward": op(got=9),
    "Torch.mean.0.forward": op(got=float("nan")),
    "Torch.abs.forward": op(),
    "Torch.cos.0.forward": op(),
}
GOLDEN = {
    "Torch.mul.0.forward": op(),
    "Torch.mean.0.forward": op(),
    "Torch.abs.forward": op(),
    "Torch.tan.0.forward": op(),
    "Torch.cos.0.forward": op(),
}


@pytest.fixture
def side(tmp_path: Path) -> RankSide:
    return rank(tmp_path, TARGET, GOLDEN)


def judged(side: RankSide, content: Any, theirs: Any = None, indent: int = 4) -> Tally:
    folder = side.target.path.parent
    for name, one in (("ours", content), ("theirs", theirs)):
        (folder / name).write_text(json.dumps(one, indent=indent))
    header = [t for t in titles(side.mode, stack=True) if t != "Data_Name"]
    other = folder / "theirs" if theirs is not None else None
    return compare_ops("t", folder / "ours", other, side, header, "first: every form", Matching())


def incumbents(side: RankSide) -> dict[str, Any]:
    """What the incumbent writes: no verdict, no stack but on the first row, no short names, nan not seen."""
    found = {name: entry for name, entry in right_ops(side).items() if name in TARGET and name.count(".") >= 3}
    for entry in found.values():
        for at, item in enumerate(entry["op_items"]):
            item |= {"Result": "", "Err_message": ""}
            item[STACK] = item[STACK] if at == 0 else "N/A"
    found["Torch.mean.0.forward"]["is_same"] = True
    return found


def test_a_right_file_is_explained(side: RankSide) -> None:
    alone = judged(side, right_ops(side))
    assert alone.unexplained == []
    assert alone.equal == 0
    beside = judged(side, right_ops(side), incumbents(side))
    assert beside.unexplained == []
    assert beside.equal > 100
    assert beside.explained["same: nan or inf", "is_same"] == 1
    assert beside.explained["first: extra ops", "is_same"] == 2


def put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(ops: dict[str, Any]) -> None:
        *way, last = path.split("/")
        place: Any = ops
        for key in way:
            place = place[int(key) if key.isdigit() else key]
        if value is None:
            del place[last]
        else:
            place[last] = value

    return change


ITEM = "Torch.mul.0.forward/op_items/1/"
WRONG = [
    put("Torch.mul.0.forward/is_same", True),
    put("Torch.mean.0.forward/is_same", True),
    put("Torch.cos.0.forward/is_same", False),
    put("Torch.tan.0.forward/is_same", True),
    put("Torch.cos.0.forward/is_same", "true"),
    put("Torch.tan.0.forward", None),
    put("Torch.abs.forward", None),
    put("y", {"is_same": True, "op_items": []}),
    put(ITEM + "NPU max", "9.0"),
    put(ITEM + "NPU max", 9.5),
    put(ITEM + "MaxRelativeErr", 800.0),
    put(ITEM + "MaxRelativeErr", "801.0%"),
    put(ITEM + "Requires_grad Consistent", "True"),
    put(ITEM + "Result", "pass"),
    put(ITEM + "state", "input"),
    put(ITEM + "api_origin_name", "Torch.mul.1.forward"),
    put(ITEM + "Bench P2POp peer", "1"),
    put(ITEM + "NPU P2POp op", float("nan")),
    put(ITEM + STACK, "N/A"),
    put(ITEM + STACK, ["File b.py"]),
    put(ITEM + "Bench mean", None),
    put("Torch.mean.0.forward/op_items/1/NPU max", float("nan")),
]


@pytest.mark.parametrize("change", WRONG)
def test_no_wrong_file_is_explained(side: RankSide, change: Callable[[dict[str, Any]], None]) -> None:
    for theirs in (None, incumbents(side)):
        content = right_ops(side)
        change(content)
        assert judged(side, content, theirs).unexplained


def test_the_incumbents_own_file_does_not_pass(side: RankSide) -> None:
    found = judged(side, incumbents(side), incumbents(side)).unexplained
    assert {f.column for f in found} >= {"is_same", "Result", STACK}


def test_an_output_that_only_the_golden_side_has(tmp_path: Path) -> None:
    more = {"Torch.cos.0.forward": {**op(), "output": [tensor(), tensor()]}}
    side = rank(tmp_path, {"Torch.cos.0.forward": op()}, more)
    content = right_ops(side)
    assert [f.note for f in judged(side, content).unexplained] == ["an output of the golden side is missing"]
    content["Torch.cos.0.forward"]["is_same"] = False
    assert judged(side, content).unexplained == []


def test_indent_and_a_name_that_occurs_twice(side: RankSide) -> None:
    assert [f.note for f in judged(side, right_ops(side), indent=2).unexplained] == ["the file is not indented by four"]
    twice = side.target.path.parent / "twice"
    twice.write_text('{\n    "a": 1, "a": 2}')
    assert read_strictly(twice)[1] == ["a name occurs twice"]


def right_node(side: RankSide, answer: Answer) -> dict[str, Any]:
    rows = side.records[answer.record]
    info: dict[str, dict[str, Any]] = {"input": {}, "output": {}}
    for row in rows:
        figures = {t: "None" if t == PEER else as_json(t, row.right.get(t)) for t in FIGURES[side.mode]}
        info["output" if is_result(row.pair) else "input"][row.pair.row.name] = figures
    node = {"op_name": answer.record, "data_info": info, "stack_info": side.target.stacks.get(answer.record)}
    own = {"op_type": answer.record.partition(".")[0], "row": rows[-1].pair.row.name, "reason": "because"}
    own |= {k: getattr(answer, k) for k in ("origin", "stage", "layer", "sub_layer")}
    return node | {key: own.get(key) for key in OURS}


def analysed(folder: Path, sides: dict[int, RankSide], content: Any, theirs: Any = None, instead: str = "") -> Tally:
    places: list[Path | None] = []
    for name, one in (("o.json", content), ("t.json", theirs)):
        (folder / name).write_text(json.dumps(one))
        places.append(folder / name if one is not None else None)
    return compare_analysis("t", places[0], places[1], sides, instead)


def test_an_answer(tmp_path: Path) -> None:
    sides = run_of(tmp_path, CHAIN, {}, {"Torch.tanh.0.forward": op(got=9)})
    (answer,) = search(sides)
    right = {"rank_1": [right_node(sides[1], answer)]}
    short = copy.deepcopy(right)
    for key in OURS:
        del short["rank_1"][0][key]
    found = analysed(tmp_path, sides, right, short)
    assert found.unexplained == []
    assert found.equal > 10
    assert analysed(tmp_path, sides, right, None, "first: every form").unexplained == []
    # another answer than the incumbent's has to be that of the search
    other = right_node(sides[0], Answer(0, "Torch.sin.0.forward", "after", 2, 0, "added"))
    assert analysed(tmp_path, sides, right, {"rank_0": [other]}).explained["op: right answer", "(answer)"] == 1
    assert analysed(tmp_path, sides, {"rank_0": [other]}, short).unexplained
    assert analysed(tmp_path, sides, None, None).unexplained
    assert analysed(tmp_path, sides, None, short).unexplained


WRONG_NODES = [
    put("0/op_type", "Tensor"),
    put("0/row", "Torch.tanh.0.forward.input.0"),
    put("0/reason", " "),
    put("0/stage", "before"),
    put("0/layer", 2),
    put("0/sub_layer", 0),
    put("0/origin", "given"),
    put("0/stack_info", []),
    put("0/data_info/output/Torch.tanh.0.forward.output.0/NPU max", 8.0),
    put("0/data_info/output/Torch.tanh.0.forward.output.0/Bench max", None),
    put("0/data_info/output/x", {}),
    put("0/data_info", {"input": {}, "output": {}}),
]


@pytest.mark.parametrize("change", WRONG_NODES)
def test_no_wrong_node_is_explained(tmp_path: Path, change: Callable[[Any], None]) -> None:
    sides = run_of(tmp_path, CHAIN, {}, {"Torch.tanh.0.forward": op(got=9)})
    nodes = [right_node(sides[1], search(sides)[0])]
    change(nodes)  # type: ignore[arg-type]
    assert analysed(tmp_path, sides, {"rank_1": nodes}, None, "first: every form").unexplained
    wrong = {"rank": 0, "op_name": "Torch.sin.0.forward", "row": "", "reason": "", "origin": "added"}
    wrong |= {"stage": "after", "layer": 2, "sub_layer": 0}
    content = {"rank_1": [right_node(sides[1], search(sides)[0])], "independent": [wrong]}
    assert [f.note for f in analysed(tmp_path, sides, content, None, "first: every form").unexplained] == [
        "no operator that differs"
    ]
