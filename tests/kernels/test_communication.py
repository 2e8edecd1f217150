"""Calls are understood as they were made, and meet the calls that they met when they were made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opassay.kernels.call_events import EVENTS, join_calls, world_ranks
from opassay.kernels.call_order import LATER, MEETING, RECEIVE, SEND, layers
from opassay.kernels.communication import communication_calls, communication_tensors, group_id, members
from opassay.pipeline.read.dump_json import read_dump
from opassay.schemas.communication_rows import CALLS, TENSORS

from tests.dumps import call, scalar, tensor, write_dump

T = tensor(shape=(4, 8))


def group(*ranks: int) -> dict[str, Any]:
    return {"type": "torch.ProcessGroup", "group_ranks": list(ranks), "group_id": group_id(str(list(ranks)))}


def reduce_op(name: str) -> dict[str, Any]:
    return {"type": "torch.distributed.ReduceOp", "value": f"RedOpType.{name}"}


def p2p(op: str, peer: int, *ranks: int, tag: int = 0) -> dict[str, Any]:
    which = group_id(str(list(ranks)))
    return {"class_type": "torch.distributed.P2POp", "tensor": T, "op": op, "peer": peer, "tag": tag, "group_id": which}


def calls_of(folder: Path, *records: tuple[str, dict[str, Any]]) -> pl.DataFrame:
    """Calls of a dump with these records, numbered by API as a dump numbers them."""
    counts: dict[str, int] = {}
    data = {}
    for api, record in records:
        counts[api] = counts.get(api, -1) + 1
        data[f"{api if '.' in api else f'Distributed.{api}'}.{counts[api]}.forward"] = record
    return communication_calls(read_dump(write_dump(folder, data)))


@pytest.mark.parametrize(
    ("api", "arguments", "keywords", "expected"),
    [
        ("broadcast", [T, scalar(0)], {}, {"root": 0, "group": "", "role": "collective"}),
        ("broadcast", [T], {"src": scalar(3), "group": group(1, 3)}, {"root": 3, "group": "[1, 3]"}),
        ("broadcast", [T, None, group(4, 2)], {"group_src": scalar(1)}, {"root": 2, "group": "[4, 2]"}),
        ("broadcast", [T, None, group(4, 2), scalar(True), scalar(0)], {}, {"root": 4, "asynchronous": True}),
        ("reduce", [T, scalar(1), reduce_op("MAX"), group(0, 1)], {}, {"root": 1, "reduce": "MAX", "group": "[0, 1]"}),
        ("all_reduce", [T], {}, {"reduce": "SUM", "root": None, "peer": None, "tag": None, "asynchronous": False}),
        ("all_reduce", [T, reduce_op("AVG"), group(0, 2)], {"async_op": scalar(True)}, {"reduce": "AVG", "asynchronous": True}),
        ("gather", [T], {}, {"root": 0}),
        ("scatter", [T, None, None, group(3, 5)], {}, {"root": 3, "group": "[3, 5]"}),
        ("send", [T, scalar(0)], {}, {"role": "send", "peer": 0, "tag": 0, "root": None}),
        ("send", [T, scalar(2), group(2, 3), scalar(9)], {}, {"peer": 2, "tag": 9, "group": "[2, 3]"}),
        ("isend", [T], {"group_dst": scalar(1), "group": group(5, 6), "tag": scalar(4)}, {"peer": 6, "tag": 4}),
        ("recv", [None, scalar(0)], {}, {"role": "recv", "peer": 0}),
        ("recv", [None], {}, {"role": "recv", "peer": None, "tag": 0}),
        ("irecv", [None], {"src": scalar(0)}, {"role": "recv", "peer": 0, "asynchronous": True}),
        ("recv_object_list", [[None], scalar(1)], {}, {"role": "recv", "peer": 1}),
        ("all_gather", [[None, None, None], T], {}, {"parts": 3}),
        ("all_gather_into_tensor", [tensor(shape=(12, 8)), T], {}, {"parts": 3}),
        ("reduce_scatter_tensor", [], {"output": T, "input": tensor(shape=(8, 8))}, {"parts": 2, "reduce": "SUM"}),
        ("_reduce_scatter_base", [T, tensor(shape=(9, 8))], {}, {"parts": None}),
        ("all_reduce", [T], {"group": {"type": "torch.ProcessGroup", "group_id": "1f2e3d4c"}}, {"group": "?"}),
        ("all_reduce", [T], {"group": scalar(-100)}, {"group": "?"}),
    ],
)  # fmt: skip
def test_arguments_by_place_and_by_name(
    tmp_path: Path, api: str, arguments: list[Any], keywords: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = calls_of(tmp_path, (api, call(arguments, [], **keywords)))
    assert found.schema == pl.Schema(CALLS)
    (row,) = found.to_dicts()
    assert {"api": api, "way": "forward", "op": 0, "item": 0, "order": 0} | expected == {
        name: row[name] for name in ("api", "way", "op", "item", "order", *expected)
    }


def test_only_exact_names_of_communication_are_calls(tmp_path: Path) -> None:
    names = (
        "Torch.reduce",
        "all_gather_object",
        "reducer",
        "Distributed.barrier",
        "Tensor.scatter",
        "DistributedX.send",
    )
    assert calls_of(tmp_path, *((name, call([T], [T])) for name in names)).is_empty()
    found = calls_of(tmp_path, ("reduce", call([T, scalar(0)], [])), ("reduce_scatter", call([T, [T]], [])))
    assert found["api"].to_list() == ["reduce", "reduce_scatter"]


def test_calls_of_a_kind_are_counted(tmp_path: Path) -> None:
    found = calls_of(
        tmp_path,
        ("all_reduce", call([T], [])), ("all_reduce", call([T], [], group=group(0, 1))), ("all_gather", call([None, T], [])),
        ("all_reduce", call([T], [])), ("send", call([T, scalar(1)], [])), ("isend", call([T, scalar(1)], [])),
        ("send", call([T, scalar(1)], [], tag=scalar(5))), ("send", call([T, scalar(2)], [])),
    )  # fmt: skip
    assert found["order"].to_list() == [0, 0, 0, 1, 0, 1, 0, 0]


def test_a_batch_is_a_call_for_each_of_its_operations(tmp_path: Path) -> None:
    batch = [p2p("isend", 1, 0, 1), p2p("irecv", 0, 0, 1, tag=7), p2p("other", 0, 0, 1), p2p("isend", 3, 8, 9)]
    found = calls_of(
        tmp_path, ("batch_isend_irecv", call([batch], [batch])), ("all_reduce", call([T], [], group=group(0, 1)))
    )
    wanted = ("op", "item", "role", "group", "peer", "tag", "asynchronous")
    assert [tuple(row[name] for name in wanted) for row in found.to_dicts()] == [
        (0, 0, "send", "[0, 1]", 1, 0, True), (0, 1, "recv", "[0, 1]", 0, 7, True),
        (0, 3, "send", f"#{group_id('[8, 9]')}", 3, 0, True), (1, 0, "collective", "[0, 1]", None, None, False),
    ]  # fmt: skip


def test_tensors_are_what_was_given_before_and_got_after(tmp_path: Path) -> None:
    before, after, buffer = (tensor(shape=(2,), stats=(value,) * 4) for value in (1.0, 2.0, 9.0))
    send, receive, received = (
        dict(p2p(op, 1, 0, 1), tensor=one) for op, one in (("isend", before), ("irecv", buffer), ("irecv", after))
    )
    data = {
        "Distributed.all_reduce.0.forward": call([before], [after]),
        "Distributed.all_gather.0.forward": call([None, before], [[after, before], before]),
        "Distributed.all_gather_into_tensor.0.forward": call(
            [], [after, before, group(0, 1)], output_tensor=None, input_tensor=before, group=group(0, 1)
        ),
        "Distributed.isend.0.forward": call([before, scalar(1)], [None, scalar(1)]),
        "Distributed.irecv.0.forward": call([None, scalar(1)], [after, scalar(1)]),
        "Distributed.batch_isend_irecv.0.forward": call([[send, receive]], [[send, received]]),
        "Distributed.all_to_all_single.0.forward": call([None, before, [scalar(2), scalar(0)], [scalar(1), scalar(1)]], [after, before]),
        "Distributed.scatter.0.forward": call([None], [None]),
    }  # fmt: skip
    table = read_dump(write_dump(tmp_path, data))
    found = communication_tensors(table, communication_calls(table))
    assert found.schema == pl.Schema(TENSORS)
    wanted = ("op", "item", "side", "part", "max")
    assert [tuple(row[name] for name in wanted) for row in found.to_dicts()] == [
        (0, 0, "got", 0, 2.0), (0, 0, "sent", 0, 1.0),
        (1, 0, "got", 0, 2.0), (1, 0, "got", 1, 1.0), (1, 0, "sent", 0, 1.0),
        (2, 0, "got", 0, 2.0), (2, 0, "sent", 0, 1.0),
        (3, 0, "sent", 0, 1.0),
        (4, 0, "got", 0, 2.0),
        (5, 0, "sent", 0, 1.0), (5, 1, "before", 0, 9.0), (5, 1, "got", 0, 2.0),
        (6, 0, "got", 0, 2.0), (6, 0, "sent", 0, 1.0),
        (7, 0, "got", 0, None),
    ]  # fmt: skip
    single = found.filter(pl.col("op") == 6)
    assert single["splits"].to_list() == [[2, 0], [1, 1]]
    assert found["elements"].to_list()[:2] == [2, 2]


@pytest.mark.parametrize(("text", "ranks"), [("[3, 0]", (3, 0)), ("", ()), ("?", ()), ("#1f", ()), ("[]", ())])
def test_members_of_a_groups_text(text: str, ranks: tuple[int, ...]) -> None:
    assert members(text) == ranks


def test_the_id_of_a_group_is_that_of_the_dump_tool() -> None:
    assert [group_id(text) for text in ("[0, 1]", "[2, 3]", "[0, 1, 2, 3]")] == ["77849d8c", "3f72ac6e", "67e9e248"]


def joined(folder: Path, ranks: dict[int, Sequence[tuple[str, dict[str, Any]]]]) -> list[tuple[Any, ...]]:
    """(event, rank, state, open, op) of the events."""
    found = join_calls({rank: calls_of(folder / str(rank), *records) for rank, records in ranks.items()})
    assert found.schema == pl.Schema(EVENTS)
    return found.select("event", "rank", "state", "open", "op").rows()


REDUCE = ("all_reduce", call([T], [T]))
OF_PAIR = ("all_reduce", call([T], [T], group=group(0, 1)))


def test_the_kth_calls_of_a_group_meet(tmp_path: Path) -> None:
    assert joined(tmp_path, {0: [REDUCE, OF_PAIR, REDUCE], 1: [REDUCE, OF_PAIR, REDUCE], 2: [REDUCE, REDUCE]}) == [
        (0, 0, "made", False, 0), (0, 1, "made", False, 0), (0, 2, "made", False, 0),
        (1, 0, "made", False, 1), (1, 1, "made", False, 1),
        (2, 0, "made", False, 2), (2, 1, "made", False, 2), (2, 2, "made", False, 1),
    ]  # fmt: skip


def test_members_without_the_call_or_without_a_dump_are_told(tmp_path: Path) -> None:
    of_three = ("broadcast", call([T, scalar(0)], [T], group=group(0, 1, 2)))
    assert joined(tmp_path, {0: [of_three], 1: [REDUCE]}) == [
        (0, 0, "made", False, 0), (0, 1, "missing", False, None), (0, 2, "absent", False, None),
        (1, 0, "missing", False, None), (1, 1, "made", False, 0), (1, 2, "absent", False, None),
    ]  # fmt: skip


def test_a_stranger_stands_in_the_event_without_a_place(tmp_path: Path) -> None:
    of_others = ("all_reduce", call([T], [T], group=group(1, 2)))
    calls = {rank: calls_of(tmp_path / str(rank), of_others) for rank in range(3)}
    found = join_calls(calls)
    assert found.select("event", "rank", "place").rows() == [(0, 0, None), (0, 1, 0), (0, 2, 1)]


def test_messages_meet_by_peer_tag_and_order_in_either_spelling(tmp_path: Path) -> None:
    batch = ("batch_isend_irecv", call([[p2p("irecv", 1, 0, 1), p2p("isend", 1, 0, 1)]], []))
    ranks = {
        0: [("send", call([T, scalar(1)], [])), ("send", call([T, scalar(1), None, scalar(3)], [])), batch],
        1: [
            ("recv", call([None, scalar(0)], [T], tag=scalar(3))),
            ("irecv", call([None, scalar(0)], [T])),
            ("isend", call([T], [], dst=scalar(0))),
            ("recv", call([None, scalar(0)], [T])),
        ],
    }  # fmt: skip
    found = join_calls({rank: calls_of(tmp_path / str(rank), *records) for rank, records in ranks.items()})
    met = {tuple(zip(*one.select("rank", "op", "item").rows(), strict=True)) for one in found.partition_by("event")}
    assert met == {
        ((0, 1), (0, 1), (0, 0)),
        ((0, 1), (1, 0), (0, 0)),
        ((1, 0), (2, 2), (0, 0)),
        ((0, 1), (2, 3), (1, 0)),
    }
    assert set(found["state"]) == {"made"}
    assert not found["open"].any()


def test_a_receive_from_any_source_leaves_messages_open(tmp_path: Path) -> None:
    ranks = {
        0: [("send", call([T, scalar(2)], []))],
        1: [("send", call([T, scalar(2), None, scalar(1)], []))],
        2: [("recv", call([None], [T])), ("recv", call([None, scalar(1), None, scalar(1)], [T]))],
    }
    found = joined(tmp_path, ranks)
    open_ends = {(rank, op) for _, rank, _, is_open, op in found if is_open}
    assert open_ends == {(0, 0), (2, 0), (2, None)}
    assert {(rank, op) for _, rank, _, is_open, op in found if not is_open} == {(1, 0), (2, 1)}


def test_a_group_without_ranks_stands_alone(tmp_path: Path) -> None:
    unknown = ("all_reduce", call([T], [T], group={"type": "torch.ProcessGroup"}))
    assert joined(tmp_path, {0: [unknown], 1: [unknown]}) == [(0, 0, "made", True, 0), (1, 1, "made", True, 0)]


def test_all_ranks_are_the_world_under_any_text(tmp_path: Path) -> None:
    named = ("all_reduce", call([T], [T], group=group(0, 1)))
    assert {row[0] for row in joined(tmp_path, {0: [named], 1: [REDUCE]})} == {0}


def test_the_world_is_as_large_as_the_dumps_tell(tmp_path: Path) -> None:
    gather = calls_of(tmp_path, ("all_gather", call([None, T], [[T, T, T], T])), ("send", call([T, scalar(6)], [])))
    assert world_ranks([0, 1], gather) == [0, 1, 2, 6]


def test_no_calls_no_events() -> None:
    assert join_calls({0: pl.DataFrame(schema=dict(CALLS))}).schema == pl.Schema(EVENTS)


PROGRAM = st.lists(
    st.tuples(st.sampled_from(["all_reduce", "all_gather"]), st.sets(st.integers(0, 4), min_size=1).map(sorted)),
    max_size=25,
)


@given(program=PROGRAM, data=st.data())
def test_events_come_in_an_order_that_every_rank_has(program: list[tuple[str, list[int]]], data: st.DataObject) -> None:
    """A run of collectives over sub-groups, told by each rank alone, comes back whole and in order."""
    sequences: dict[int, list[tuple[int, str, list[int]]]] = {rank: [] for rank in range(5)}
    for number, (api, ranks) in enumerate(program):
        for rank in ranks:
            sequences[rank].append((number, api, ranks))
    calls = {}
    for rank in data.draw(st.permutations(range(5))):
        made = sequences[rank]
        blank = pl.DataFrame(
            [(k, api, str(ranks) if len(ranks) < 5 else "") for k, (_, api, ranks) in enumerate(made)],
            schema={"op": pl.UInt32, "api": pl.String, "group": pl.String}, orient="row",
        ).with_columns(role=pl.lit("collective"), way=pl.lit("forward"), item=pl.lit(0), asynchronous=pl.lit(False))  # fmt: skip
        missing = [pl.lit(None).alias(name) for name in CALLS if name not in blank.columns]
        calls[rank] = blank.with_columns(missing).select(pl.col(name).cast(kind) for name, kind in CALLS.items())
    found = join_calls(calls)
    assert found["event"].n_unique() == len(program)
    assert set(found["state"]) <= {"made"}
    for rank, made in sequences.items():
        mine = found.filter((pl.col("rank") == rank) & pl.col("op").is_not_null()).sort("op")
        assert mine["event"].is_sorted()
        assert mine["layer"].to_list() == sorted(set(mine["layer"].to_list()))
        for event, (_, _, ranks) in zip(mine["event"], made, strict=True):
            assert found.filter(pl.col("event") == event)["rank"].to_list() == ranks


def order(*ranks: Sequence[tuple[int, int]]) -> list[int]:
    """Layers of events from each rank's (event, kind)."""
    starts = np.cumsum([0, *map(len, ranks)])
    every = [one for rank in ranks for one in rank]
    return layers(
        starts, np.array([e for e, _ in every], np.uint32), np.array([k for _, k in every], np.uint8)
    ).tolist()  # type: ignore[no-any-return]


def test_a_chain_of_messages_is_ordered() -> None:
    assert order([(0, SEND)], [(0, RECEIVE), (1, SEND)], [(1, RECEIVE), (2, SEND)], [(2, RECEIVE)]) == [0, 1, 2]


def test_receives_posted_before_the_sends_do_not_stop_anything() -> None:
    both = order([(0, LATER), (1, SEND), (2, MEETING)], [(1, LATER), (0, SEND), (2, MEETING)])
    assert max(both[:2]) < both[2]


def test_orders_that_contradict_each_other_end() -> None:
    assert sorted(order([(0, MEETING), (1, MEETING)], [(1, MEETING), (0, MEETING)])) == [1, 2]
    assert len(order([(0, RECEIVE), (1, SEND)], [(1, RECEIVE), (0, SEND)])) == 2
