"""The search over ranks on small made-up runs: what it must find follows from how each run was made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opassay.kernels.call_events import join_calls
from opassay.kernels.first_difference import SURE, FirstDifference, Origin, Stage, find_first
from opassay.kernels.op_facts import candidates
from opassay.schemas.communication_rows import CALLS
from opassay.schemas.op_facts import CALL_FACTS, MISSING, OP_FACTS, Kind, RankFacts, Seen

OFF = 2.0  # how far a wrong value is off


@dataclass
class Rank:
    """A rank that is made call by call."""

    number: int
    ops: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    exchanged: list[dict[str, Any]] = field(default_factory=list)
    missing: list[tuple[int, str]] = field(default_factory=list)
    count: int = 0

    def compute(self, *, given: float | None = 0.0, out: float = 0.0, name: str = "", **facts: Any) -> int:
        """An op: how far off its input (None: not seen) and its output are."""
        seen = Seen.NOTHING if given is None else Seen.DIFFER if given > 0.1 else Seen.AGREE
        row = self._row(name or f"Torch.op.{self.count}.forward", seen, Kind.NUMBERS if out > 0.1 else Kind.SAME)
        row |= {"input_gap": given, "output_gap": out, "far_in": (given or 0) > 0.5}
        return self._add({**row, **facts})

    def talk(
        self,
        api: str,
        *,
        gives: float | None = None,
        gets: float | None = None,
        role: str = "collective",
        sizes: str | None = None,
        **call: Any,
    ) -> int:
        """A communication: how far off what it gives and gets is; None where it has no such side or it is not seen."""
        op = self.count
        seen = {None: Seen.NOTHING}
        ends = [seen.get(one, Seen.DIFFER if (one or 0) > 0.1 else Seen.AGREE) for one in (gives, gets)]
        row = self._row(
            f"Distributed.{api}.{op}.forward", ends[0], Kind.NUMBERS if ends[1] == Seen.DIFFER else Kind.SAME
        )
        self._add({**row, "input_gap": gives, "output_gap": gets})
        self.calls.append({"op": op, "item": 0, "api": api, "way": "forward", "role": role, "group": "", **call})
        shown = ("given", "far") if ends[0] == Seen.DIFFER else (None, None)
        self.exchanged.append(
            dict(zip(CALL_FACTS, (op, 0, int(ends[0]), int(ends[1]), gives, gets, *shown, sizes), strict=True))
        )
        return op

    def _row(self, name: str, seen: Seen, kind: Kind) -> dict[str, Any]:
        plain = {"far_in": False, "inputless": False, "follows": False, "message": "[]", "row": f"{name}.output.0"}
        plain |= {"weighs": False, "fed": int(seen), "fed_gap": 0.0}
        return {"name": name, "kind": int(kind), "inputs": int(seen), "input_row": f"{name}.input.0", **plain}

    def _add(self, row: dict[str, Any]) -> int:
        self.ops.append({"op": self.count, **row})
        self.count += 1
        return self.count - 1

    def facts(self) -> RankFacts:
        """What the search gets."""
        rows = [
            one for one in self.ops if one["kind"] or one["far_in"] or one["weighs"] or "Distributed" in one["name"]
        ]
        ops = candidates(frame(rows, OP_FACTS))
        called = {call["op"] for call in self.calls}
        counted = [sum(1 for one in range(op) if one not in called) for op in range(self.count)]
        places = pl.DataFrame(
            {"op": range(self.count), "counted": counted}, schema={"op": pl.UInt32, "counted": pl.UInt32}
        )
        missing = pl.DataFrame(self.missing, schema=dict(MISSING), orient="row")
        return RankFacts(
            self.number, f"rank{self.number}", ops, frame(self.calls, CALLS), frame(self.exchanged, CALL_FACTS), missing, places
        )  # fmt: skip


def frame(rows: Sequence[dict[str, Any]], schema: Any) -> pl.DataFrame:
    """Rows in which what is not said is null, or 0 and False for columns that hold no null."""
    plain = {"order": 0, "asynchronous": False}
    return pl.DataFrame(
        [{name: row.get(name, plain.get(name)) for name in schema} for row in rows], schema=dict(schema)
    )


def solve(*ranks: Rank) -> FirstDifference:
    facts = [rank.facts() for rank in ranks]
    return find_first(facts, join_calls({one.rank: one.calls for one in facts}))


def short(found: FirstDifference) -> tuple[list[tuple[int, int, str]], list[tuple[int, int, str]]]:
    first, then = ([(n.rank, n.op, n.origin.value) for n in nodes] for nodes in (found.nodes, found.independent))
    return first, then


def test_nothing_differs() -> None:
    ranks = [Rank(0), Rank(1)]
    for rank in ranks:
        rank.compute()
        rank.talk("all_reduce", gives=0.0, gets=0.0)
    assert solve(*ranks) == FirstDifference()


def test_stage_layer_and_sub_layer() -> None:
    rank = Rank(0)
    rank.compute()
    rank.talk("all_reduce", gives=0.0, gets=0.0)
    rank.compute()
    rank.compute(out=OFF)
    rank.talk("all_reduce", gives=0.0, gets=0.0)
    rank.compute(out=OFF)
    (first,), (then,) = (found := solve(rank)).nodes, found.independent
    assert (first.op, first.stage, first.layer, first.sub_layer) == (3, Stage.DURING, 1, 1)
    assert (then.op, then.stage, then.layer, then.sub_layer) == (5, Stage.AFTER, 2, 0)


def test_before_any_communication_the_first_of_each_rank_is_the_answer() -> None:
    ranks = [Rank(0), Rank(1), Rank(2)]
    ranks[2].compute(out=OFF)
    ranks[0].compute()
    ranks[0].compute(out=OFF)
    ranks[0].compute(out=OFF)
    ranks[1].compute()
    for rank in ranks:
        rank.talk("all_reduce", gives=0.0 if rank.number == 1 else OFF, gets=OFF)
    assert short(solve(*ranks)) == ([(2, 0, "added"), (0, 1, "added")], [(0, 2, "added")])


def test_a_rank_that_gives_other_values_is_to_blame_not_those_that_get_them() -> None:
    ranks = [Rank(0), Rank(1), Rank(2)]
    for rank in ranks:
        rank.compute()
        rank.talk("all_reduce", gives=OFF if rank.number == 1 else 0.0, gets=OFF)
        rank.compute(given=OFF, out=OFF)
    assert short(solve(*ranks)) == ([(1, 1, "given")], [])


def test_the_root_of_a_broadcast_is_to_blame_whatever_the_others_held() -> None:
    ranks = [Rank(0), Rank(1)]
    ranks[0].talk("broadcast", gives=OFF, gets=OFF, root=0)
    ranks[1].talk("broadcast", gives=9.0, gets=OFF, root=0)
    assert short(solve(*ranks)) == ([(0, 0, "given")], [])


def test_what_the_others_hold_after_a_reduce_is_nobodys_promise() -> None:
    ranks = [Rank(0), Rank(1)]
    ranks[0].talk("reduce", gives=0.0, gets=0.0, root=0)
    ranks[1].talk("reduce", gives=0.0, gets=OFF, root=0)
    assert solve(*ranks) == FirstDifference()


def test_opposite_orders_of_isend_and_irecv_meet() -> None:
    left, right = Rank(0), Rank(1)
    left.compute(out=OFF)
    left.talk("isend", role="send", gives=OFF, peer=1, tag=0)
    left.talk("irecv", role="recv", gets=0.0, peer=1, tag=0, asynchronous=True)
    right.talk("irecv", role="recv", gets=OFF, peer=0, tag=0, asynchronous=True)
    right.talk("isend", role="send", gives=0.0, peer=0, tag=0)
    right.compute(given=OFF, out=OFF)
    assert short(solve(left, right)) == ([(0, 0, "added")], [])


def test_a_message_that_is_not_seen_explains_what_the_receiver_computes() -> None:
    left, right = Rank(0), Rank(1)
    left.talk("send", role="send", gives=OFF, peer=1, tag=3)
    right.talk("recv", role="recv", peer=0, tag=3)
    right.compute(given=OFF, out=OFF)
    assert short(solve(left, right)) == ([(0, 0, "given")], [])


@pytest.mark.parametrize(("before", "expected"), [(0.0, [(1, 0, "unseen")]), (OFF, [(0, 0, "added")])])
def test_a_sender_whose_values_are_masked(before: float, expected: list[tuple[int, int, str]]) -> None:
    """It is to blame if it differs by then; else nobody can say whether it or the message is wrong."""
    left, right = Rank(0), Rank(1)
    left.compute(out=before)
    left.talk("send", role="send", peer=1, tag=0)
    right.talk("recv", role="recv", gets=OFF, peer=0, tag=0)
    assert short(solve(left, right)) == (expected, [])


def test_a_receive_from_any_source_is_blamed_on_nobody() -> None:
    left, right, alone = Rank(0), Rank(1), Rank(1)
    left.compute(out=OFF)
    left.talk("send", role="send", gives=OFF, peer=1, tag=0)
    for rank in (right, alone):
        rank.talk("recv", role="recv", gets=OFF, peer=None, tag=0)
        rank.compute(given=OFF, out=OFF)
    assert short(solve(left, right)) == ([(0, 0, "added")], [])
    assert short(solve(alone)) == ([(1, 0, "unseen")], [])


def test_a_rank_without_a_dump_may_have_given_anything() -> None:
    ranks = [Rank(0), Rank(1)]
    for rank in ranks:
        rank.talk("all_reduce", gives=0.0, gets=OFF, group="[0, 1, 2]")
    assert short(solve(*ranks)) == ([(0, 0, "unseen"), (1, 0, "unseen")], [])


def test_small_differences_that_a_fault_left_are_no_communication_fault() -> None:
    ranks = [Rank(0), Rank(1)]
    ranks[0].compute(out=OFF)
    for rank in ranks:
        rank.talk("all_reduce", gives=0.004 if rank.number == 0 else 0.0, gets=OFF)
    assert short(solve(*ranks)) == ([(0, 0, "added")], [])


def test_many_small_shares_may_add_up() -> None:
    ranks = [Rank(number) for number in range(20)]
    for rank in ranks:
        rank.talk("all_reduce", gives=0.05, gets=0.9)
        rank.compute(given=0.9, out=0.9)
        rank.compute(out=OFF)
    found = solve(*ranks)
    assert {(node.op, node.origin.value) for node in found.nodes} == {(2, "added")}, (
        "the sum of all is no fault of its own"
    )
    few = [Rank(0), Rank(1)]
    for rank in few:
        rank.talk("all_reduce", gives=0.05, gets=0.9 if rank.number else 0.05)
    assert short(solve(*few)) == ([(1, 0, "communication")], [])


@pytest.mark.parametrize(
    ("given", "out", "origin"),
    [(0.0, OFF, "added"), (0.09, OFF, "added"), (0.2, 2.5, "added"), (0.3, 2.5, "inherited"), (OFF, OFF, "inherited"),
     (OFF, 0.0, "inherited"), (None, OFF, "unseen")],
)  # fmt: skip
def test_ten_times_as_far_off_as_the_inputs_is_an_error_of_its_own(given: float, out: float, origin: str) -> None:
    rank = Rank(0)
    rank.compute()
    rank.compute(given=given, out=out)
    assert short(solve(rank)) == ([(0, 1, origin)], [])


@pytest.mark.parametrize(("given", "named"), [(0.0, True), (0.0009, True), (0.02, False), (None, False)])
def test_behind_a_fault_only_inputs_all_but_equal_prove_another(given: float | None, named: bool) -> None:
    rank = Rank(0)
    rank.compute(out=OFF)
    rank.compute(given=given, out=OFF)
    assert short(solve(rank)) == ([(0, 0, "added")], [(0, 1, "added")] if named else [])


def test_what_follows_from_an_earlier_op_is_not_independent() -> None:
    rank = Rank(0)
    rank.compute(out=OFF)
    rank.compute(out=OFF, follows=True)
    assert short(solve(rank)) == ([(0, 0, "added")], [])


def test_inherited_shows_the_input_and_what_stands_beside_it() -> None:
    rank = Rank(0)
    rank.compute()
    beside = {"before": "Torch.relu.0.forward, which only the golden side has", "twin": "Torch.op.7.forward"}
    rank.compute(given=OFF, out=OFF, input_figures="max 1 against 2", **beside)
    rank.compute(given=OFF, out=OFF, before="Torch.neg.0.forward, which only the target has")
    (node,) = solve(rank).nodes
    assert (node.row, node.figures, node.message) == ("Torch.op.1.forward.input.0", "max 1 against 2", "[]")
    assert node.hint == (
        "before it stands Torch.relu.0.forward, which only the golden side has; "
        "it has the values of the golden side's Torch.op.7.forward"
    )


def test_what_is_given_shows_the_op_of_one_side_before_it_too() -> None:
    rank = Rank(0)
    op = rank.talk("broadcast", gives=OFF, gets=OFF, root=0)
    rank.ops[op]["before"] = "Tensor.__mul__.1.forward, which only the target has"
    other = Rank(1)
    other.talk("broadcast", gives=0.0, gets=OFF, root=0)
    (node,) = solve(rank, other).nodes
    assert (node.origin, node.hint) == (
        Origin.GIVEN,
        "before it stands Tensor.__mul__.1.forward, which only the target has",
    )


def test_an_op_with_an_error_of_its_own_has_no_such_hint() -> None:
    rank = Rank(0)
    rank.compute(out=OFF, before="Torch.neg.0.forward, which only the target has", twin="Torch.op.7.forward")
    assert solve(rank).nodes[0].hint == ""


def weight(rank: Rank, name: str, *, fed: float | None = 0.0, out: float = OFF, **facts: Any) -> int:
    """A call of a module whose weight differs: how far off what it is fed (None: not seen) and its output are."""
    seen = Seen.NOTHING if fed is None else Seen.DIFFER if fed > 0.1 else Seen.AGREE
    known = {"fed": int(seen), "fed_gap": fed, "weighs": out > 0.1, "input_row": f"{name}.parameters.weight"}
    return rank.compute(given=OFF, out=out, name=name, **{**known, **facts})


@pytest.mark.parametrize(
    ("fed", "out", "origin"),
    [(0.0, OFF, "weight"), (0.05, OFF, "weight"), (None, OFF, "weight"), (0.0, 0.0, "weight"), (OFF, OFF, "inherited")],
)
def test_a_weight_that_differs_is_inherited_from_nothing(fed: float | None, out: float, origin: str) -> None:
    rank = Rank(0)
    rank.compute()
    weight(rank, "Module.fc.Linear.forward.0", fed=fed, out=out)
    (node,) = solve(rank).nodes
    assert (node.op, node.origin.value) == (1, origin)
    assert node.row == "Module.fc.Linear.forward.0.parameters.weight"


@pytest.mark.parametrize(("fed", "out", "named"), [(0.0, OFF, True), (0.02, OFF, False), (0.0, 0.0, False)])
def test_a_weight_behind_a_fault_is_told_where_it_does_harm_and_all_else_is_equal(
    fed: float, out: float, named: bool
) -> None:
    rank = Rank(0)
    rank.compute(out=OFF)
    weight(rank, "Module.fc.Linear.forward.0", fed=fed, out=out)
    assert short(solve(rank)) == ([(0, 0, "added")], [(0, 1, "weight")] if named else [])


def test_a_weight_that_several_calls_use_is_told_once() -> None:
    rank = Rank(0)
    weight(rank, "Module.fc.Linear.forward.0")
    weight(rank, "Module.fc.Linear.forward.1")
    weight(rank, "Module.head.Linear.forward.0")
    assert short(solve(rank)) == ([(0, 0, "weight")], [(0, 2, "weight")])


def test_a_weight_that_puts_its_output_off_a_little_is_a_difference() -> None:
    rank = Rank(0)
    weight(rank, "Module.fc.Linear.forward.0", out=0.05, weighs=True, far_in=False)
    assert short(solve(rank)) == ([(0, 0, "weight")], [])


def test_a_collective_of_other_sizes_is_no_communication_fault() -> None:
    ranks = [Rank(0), Rank(1)]
    for rank in ranks:
        rank.talk("all_reduce", gives=0.0, gets=OFF, sizes="4 ranks take part, 2 on the golden side")
    found = solve(*ranks)
    assert short(found) == ([(0, 0, "unseen"), (1, 0, "unseen")], [])
    assert {node.hint for node in found.nodes} == {"4 ranks take part, 2 on the golden side"}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"kind": Kind.NUMBERS, "inputless": True}, {"kind": Kind.DTYPE}, {"kind": Kind.ALONE}], (0, "inputless")),
        ([{"kind": Kind.ALONE}, {"kind": Kind.DTYPE}], (1, "dtype")),
        ([{"kind": Kind.SAME}, {"kind": Kind.ALONE}], (1, "alone")),
        ([{"kind": Kind.DTYPE}, {"out": OFF}], (1, "added")),
        ([{"kind": Kind.DTYPE}, {"given": 0.3}], (0, "dtype")),
    ],
)
def test_without_other_numbers_the_gravest_of_the_rest_is_named(rows: list[dict[str, Any]], expected: Any) -> None:
    rank = Rank(0)
    for row in rows:
        rank.compute(**{name: int(value) if isinstance(value, Kind) else value for name, value in row.items()})
    assert [(node.op, node.origin.value) for node in solve(rank).nodes] == [expected]


def test_an_op_that_the_target_lacks_is_named_where_nothing_else_differs() -> None:
    rank = Rank(4)
    rank.compute()
    rank.missing += [(0, "Torch.relu.0.forward"), (0, "Torch.relu.1.forward")]
    (node,) = solve(rank).nodes
    assert (node.rank, node.name, node.row, node.origin) == (4, *["Torch.relu.0.forward"] * 2, Origin.MISSING)


# ---- any run with any faults

WORLD = st.integers(2, 4)
STEP = st.one_of(
    st.tuples(st.just("compute"), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("all_reduce"), st.just(0), st.just(0)),
    st.tuples(st.just("pair_reduce"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("broadcast"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("message"), st.integers(0, 3), st.integers(0, 3)),
)
FAULT = st.tuples(st.sampled_from(["none", "none", "none", "own", "silent"]), st.integers(0, 3))


class Run:
    """Runs steps on ranks that each hold one value, right or wrong, and knows which faults can be told from the dump."""

    def __init__(self, world: int) -> None:
        self.ranks = [Rank(number) for number in range(world)]
        self.off = [0.0] * world
        self.touched = [False] * world  # something of this rank differs already
        self.sure: set[tuple[int, int, str]] = set()
        self.first: dict[int, int] = {}  # first op of a rank that differs
        self.visible = False

    def step(self, what: str, a: int, b: int, fault: str, at: int) -> None:
        world = len(self.ranks)
        a, b, at = a % world, b % world, at % world
        if fault == "silent":
            self.off[at] = OFF
        if what == "compute":
            self._compute(a, fault == "own")
        elif what == "message" and a != b:
            self._meet([(a, "send"), (b, "recv")], "send", fault == "own", b, peers={a: b, b: a})
        elif what == "pair_reduce":
            pair = [a, (a + 1) % world]
            self._meet([(r, "both") for r in sorted(pair)], "all_reduce", fault == "own", at, group=str(sorted(pair)))
        elif what in ("all_reduce", "broadcast"):
            parts = [(r, "both" if what == "all_reduce" or r == a else "taker") for r in range(world)]
            self._meet(parts, what, fault == "own", at, root=a if what == "broadcast" else None)

    def _compute(self, rank: int, fault: bool) -> None:
        before = self.off[rank]
        self.off[rank] = OFF if fault else before
        op = self.ranks[rank].compute(given=before, out=self.off[rank])
        if fault and not before:
            self.sure.add((rank, op, "added"))
        self._mark(rank, op, bool(before or fault))

    def _meet(
        self,
        parts: list[tuple[int, str]],
        api: str,
        fault: bool,
        at: int,
        *,
        peers: dict[int, int] | None = None,
        **call: Any,
    ) -> None:
        gave = {rank: self.off[rank] for rank, part in parts if part in ("both", "send")}
        result = max(gave.values())
        fresh = [rank for rank, off in gave.items() if off and not self.touched[rank]]
        for rank, part in parts:
            takes = part != "send"
            got = OFF if fault and rank == at else result
            more = {"peer": peers[rank], "tag": 0} if peers else call
            name = {"send": "send", "recv": "recv"}.get(part, api)
            role = part if part in ("send", "recv") else "collective"
            held = self.off[rank] if part != "recv" else None
            op = self.ranks[rank].talk(name, role=role, gives=held, gets=got if takes else None, **more)
            if fault and rank == at and takes and not result:
                self.sure.add((rank, op, "communication"))
            if rank in fresh:
                self.sure.add((rank, op, "given"))
            if takes:
                self.off[rank] = got
            self._mark(rank, op, bool(gave.get(rank) or (takes and got)))

    def _mark(self, rank: int, op: int, wrong: bool) -> None:
        if wrong:
            self.touched[rank] = True
            self.first.setdefault(rank, op)


@settings(max_examples=80, deadline=None)
@given(WORLD, st.lists(st.tuples(STEP, FAULT), min_size=1, max_size=14), st.randoms(use_true_random=False))
def test_every_fault_that_can_be_told_is_named_and_nothing_else(world: int, steps: list[Any], random: Any) -> None:
    run = Run(world)
    for (what, a, b), (fault, at) in steps:
        run.step(what, a, b, fault, at)
    found = solve(*run.ranks)
    every = [*found.nodes, *found.independent]
    named = {(node.rank, node.op, node.origin.value) for node in every if node.origin in SURE}
    assert named == run.sure
    assert bool(found.nodes) == bool(run.first)

    shuffled = list(run.ranks)
    random.shuffle(shuffled)
    assert solve(*shuffled) == found
    for nodes in (found.nodes, found.independent):
        assert list(nodes) == sorted(nodes, key=lambda node: (node.layer, node.sub_layer, node.rank, node.op))
    for node in found.nodes:  # nothing of its rank differs before the answer
        if node.stage is Stage.BEFORE:
            assert run.first[node.rank] == node.op
    if any(node.stage is Stage.BEFORE for node in every):
        assert {node.stage for node in found.nodes} == {Stage.BEFORE}


@settings(max_examples=40, deadline=None)
@given(
    WORLD,
    st.lists(STEP, min_size=1, max_size=14),
    st.integers(0, 13),
    st.sampled_from(["own", "silent"]),
    st.integers(0, 3),
)
def test_one_fault_is_the_whole_answer(world: int, steps: list[Any], where: int, fault: str, at: int) -> None:
    run = Run(world)
    for number, (what, a, b) in enumerate(steps):
        run.step(what, a, b, fault if number == where % len(steps) else "none", at)
    found = solve(*run.ranks)
    assert found.independent == ()
    assert len(found.nodes) <= 1
    if run.first:
        (node,) = found.nodes
        assert run.first[node.rank] == node.op
        assert node.origin in SURE or (fault == "silent" and node.origin is Origin.INHERITED)
