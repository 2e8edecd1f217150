"""Which operator is wrong first: a plain walk through all ranks in the order of time, by the [REC] of diff_analyze.md 3.

Each rank goes through its records until a communication; a collective goes on when every member is there, a receive when its send
is. A rank is *touched* once something on it differs or it has got something from a touched rank: whatever differs on it
later, with inputs that differ, is a consequence. What differs otherwise starts there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.parity.calls import Call, api_of, calls_of, events_of
from tests.parity.compare import Judged
from tests.parity.differs import (
    ALONE,
    DTYPE,
    NUMBERS,
    Difference,
    inputs_state,
    op_differences,
    starts_here,
    weight_state,
)
from tests.parity.op_json import RankSide

IDLE = re.compile(r"Torch\.(empty|fill_?)\.|Tensor\.(fill_|__setitem__)\.")
STAGES = ("before", "during", "after")


@dataclass(frozen=True)
class Answer:
    """One operator.

    Attributes
    ----------
    rank : int
        Its rank.
    record : str
        Its name.
    stage : str
        ``before``, ``during`` or ``after`` communication.
    layer, sub_layer : int
        Communications behind it, over all ranks; operators that compute since the last one.
    origin : str
        ``added``, ``weight``, ``inherited``, ``communication``, ``given``; of what has no numbers with inputs: ``inputless``, ``dtype``,
        ``alone``, or ``missing`` where only the golden side has it.
    """

    rank: int
    record: str
    stage: str
    layer: int
    sub_layer: int
    origin: str


@dataclass
class _Rank:
    """One rank on its way."""

    number: int
    records: list[str]
    ops: Mapping[str, Sequence[Judged]]
    calls: list[Call]
    events: list[tuple[Any, ...]]
    differs: dict[str, list[Difference]]
    at: int = 0  # record
    call: int = 0  # calls done
    since: int = 0
    touched: bool = False
    own: bool = False  # whether something of its own has differed
    found: list[tuple[int, Answer]] = field(default_factory=list)  # calls done before it; layers are known in the end

    def __post_init__(self) -> None:
        self.talking = {call.record for call in self.calls}

    def numbers(self, record: str) -> bool:
        """Whether the numbers of an operator differ that has an input side."""
        return any(
            d.kind == NUMBERS and d.sure and d.cause != "same: no input side" for d in self.differs.get(record, ())
        )

    def answer(self, record: str, origin: str) -> None:
        during = record in self.talking or 0 < self.call < len(self.calls)
        stage = "during" if during else "after" if self.call else "before"
        self.found.append((self.call, Answer(self.number, record, stage, 0, self.since, origin)))

    def answers(self, layers: Mapping[tuple[Any, ...], int]) -> list[Answer]:
        """What was found, with the layer that the communications before it make."""
        return [replace(a, layer=max((layers[e] + 1 for e in self.events[:done]), default=0)) for done, a in self.found]

    def compute(self) -> None:
        """Go on to the next communication."""
        while self.at < len(self.records) and self.records[self.at] not in self.talking:
            record = self.records[self.at]
            if self.numbers(record):
                weight, clean = weight_state(self.ops[record]), not (self.touched or self.own)
                if starts_here(self.ops[record]):
                    self.answer(record, "added")
                elif weight == "own" or (weight and clean):
                    self.answer(record, "weight")
                elif clean:
                    self.answer(record, "inherited")
                self.own = True
            if not IDLE.match(record):
                self.since += 1
            self.at += 1

    def inputs(self, record: str) -> str:
        return inputs_state(self.ops[record])[0] if record in self.ops else "none"


@dataclass(frozen=True)
class _Part:
    """What one rank brought to an event."""

    rank: _Rank
    call: Call
    gives: bool
    other: bool  # its inputs differ
    hides: bool  # its inputs cannot be told, and something of it differs
    clean: bool  # nothing of it has differed before, and it has got nothing that did
    touched: bool


def _part(rank: _Rank) -> _Part:
    call = rank.calls[rank.call]
    rooted = call.role == "meet" and call.peer is not None and not call.gives_always
    gives = call.role != "recv" and (not rooted or call.peer == rank.number)
    state = rank.inputs(call.record)
    other = gives and state == "differ"
    hides = gives and state == "none" and rank.own
    return _Part(rank, call, gives, other, hides, not (rank.own or rank.touched), rank.touched or rank.own)


def _settle(parts: Sequence[_Part]) -> None:
    """Who is to blame in an event, and whom it touches."""
    got = [p for p in parts if p.call.record in p.rank.ops and p.rank.numbers(p.call.record)]
    gave = [p for p in parts if p.other]
    if got and not gave and not any(p.hides for p in parts):
        for part in got:
            part.rank.answer(part.call.record, "communication")
    elif got:
        for part in gave:
            if part.clean:
                part.rank.answer(part.call.record, "given")
    spread = any(p.gives and (p.other or p.touched) for p in parts)
    for part in parts:
        part.rank.touched |= spread
    for part in got:
        part.rank.own = True


class _Walk:
    """All ranks together, in waves: each takes every rank that can go one call further."""

    def __init__(self, ranks: list[_Rank]) -> None:
        self.ranks = ranks
        self.sent: dict[tuple[Any, ...], _Part] = {}
        self.layers: dict[tuple[Any, ...], int] = {}
        self.awaited: dict[tuple[Any, ...], int] = {}
        sends = {e for r in ranks for e, c in zip(r.events, r.calls, strict=True) if c.role == "send"}
        self.sends = sends
        for rank in ranks:
            for event, call in zip(rank.events, rank.calls, strict=True):
                if call.role == "meet":
                    self.awaited[event] = self.awaited.get(event, 0) + 1

    def run(self) -> list[Answer]:
        wave = 0
        while live := [r for r in self.ranks if r.call < len(r.calls)]:
            for rank in live:
                rank.compute()
            if not self.step(live, wave, forced=False):
                self.step(live, wave, forced=True)
            wave += 1
        for rank in self.ranks:
            rank.compute()
        return [answer for rank in self.ranks for answer in rank.answers(self.layers)]

    def step(self, live: Sequence[_Rank], wave: int, *, forced: bool) -> bool:
        """One wave; forced, where nobody can go on: receives without their sends, else the first collective without all members."""
        here = [(r, r.events[r.call], r.calls[r.call]) for r in live]
        sending = {event for _, event, call in here if call.role == "send"}
        ready: dict[tuple[Any, ...], list[_Part]] = {}
        for rank, event, call in here:
            if call.role == "meet":
                there = sum(1 for _, other, _ in here if other == event)
                if there == self.awaited[event]:
                    ready.setdefault(event, []).append(_part(rank))
            elif call.role == "send" or event in self.sent or event in sending or event not in self.sends:
                ready.setdefault(event, []).append(_part(rank))
        if forced and not ready:
            receives = [(r, e) for r, e, c in here if c.role == "recv" and not c.waits]
            receives = receives or [(r, e) for r, e, c in here if c.role == "recv"]
            chosen = receives or [(r, e) for r, e, _ in here if e == here[0][1]]
            for rank, event in chosen:
                ready.setdefault(event, []).append(_part(rank))
                if not receives:
                    self.awaited[event] -= 1
        for event, parts in ready.items():
            self.done(event, parts, wave)
        for parts in ready.values():
            for part in parts:
                self.go_on(part.rank)
        return bool(ready)

    def done(self, event: tuple[Any, ...], parts: list[_Part], wave: int) -> None:
        self.layers[event] = wave
        sent = [p for p in parts if p.call.role == "send"]
        if sent:
            self.sent[event] = sent[0]
        if all(p.call.role == "send" for p in parts):
            return
        if parts[0].call.role == "recv" and event in self.sent:
            parts = [self.sent[event], *(p for p in parts if p.call.role == "recv")]
        _settle(parts)

    def go_on(self, rank: _Rank) -> None:
        """Past the call that is done; past its record with the last operation of a batch."""
        record = rank.calls[rank.call].record
        rank.call += 1
        if rank.call == len(rank.calls) or rank.calls[rank.call].record != record:
            rank.at += 1
            rank.since = 0


def _chosen(found: Sequence[Answer]) -> list[Answer]:
    """Before communication the first of each rank; else the least layer and sub-layer; else the first of each rank after it."""
    for stage in STAGES:
        here = [a for a in found if a.stage == stage]
        if stage == "during" and here:
            least = min((a.layer, a.sub_layer) for a in here)
            return [a for a in here if (a.layer, a.sub_layer) == least]
        if here:
            firsts: dict[int, Answer] = {}
            for answer in here:
                firsts.setdefault(answer.rank, answer)
            return list(firsts.values())
    return []


def search(sides: Mapping[int, RankSide]) -> list[Answer]:
    """The answer.

    Parameters
    ----------
    sides : mapping of int to RankSide
        Rank -> its dumps.

    Returns
    -------
    list of Answer
        Empty if nothing differs. Where the numbers of no operator with inputs differ: the first gradients or saves that do, else
        dtypes, else operators of one side.
    """
    calls = {rank: calls_of(side.target.path) for rank, side in sides.items()}
    events = events_of(calls)
    ranks = []
    for rank in sorted(sides):
        ops = sides[rank].records
        differs = {name: op_differences(rows) for name, rows in ops.items()}
        records = [name for name in sides[rank].target.records if name in ops or api_of(name)]
        ranks.append(_Rank(rank, records, ops, calls[rank], events[rank], differs))
    walk = _Walk(ranks)
    lacking = {rank: _lacking(side) for rank, side in sides.items()}
    return _chosen(walk.run()) or _last_resort(ranks, walk.layers, lacking)


def _lacking(side: RankSide) -> dict[str, str]:
    """The target's record before it (or its first) -> the first of the records behind it that only the golden side has."""
    met = {r.pair.golden.record: r.pair.row.record for r in side.rows if r.pair.paired and r.pair.golden is not None}
    alone = {r.pair.row.record for r in side.rows if r.pair.target is None}
    before, found = next(iter(side.target.records), ""), {}
    for record in side.golden.records:
        before = met.get(record, before)
        if record in alone and record not in met:
            found.setdefault(before, record)
    return found


def _last_resort(
    ranks: Sequence[_Rank], layers: Mapping[tuple[Any, ...], int], lacking: Mapping[int, Mapping[str, str]]
) -> list[Answer]:
    for kind, origin in ((NUMBERS, "inputless"), (DTYPE, "dtype"), (ALONE, "alone")):
        found = []
        for rank in ranks:
            rank.at, rank.call, rank.since, rank.found = 0, 0, 0, []
            for record in rank.records:
                if any(d.kind == kind and d.sure for d in rank.differs.get(record, ())):
                    rank.answer(record, origin)
                elif kind == ALONE and record in lacking[rank.number]:
                    rank.answer(record, "missing")
                    done, answer = rank.found[-1]
                    rank.found[-1] = done, replace(answer, record=lacking[rank.number][record])
                if record in rank.talking:
                    rank.call += sum(1 for c in rank.calls if c.record == record)
                    rank.since = 0
                elif not IDLE.match(record):
                    rank.since += 1
            found += rank.answers(layers)
        if found:
            return _chosen(found)
    return []


def ranked(answers: Sequence[Answer]) -> dict[str, list[str]]:
    """``rank_{id}`` -> names, as the file has them."""
    found: dict[str, list[str]] = {}
    for answer in answers:
        found.setdefault(f"rank_{answer.rank}", []).append(answer.record)
    return found
