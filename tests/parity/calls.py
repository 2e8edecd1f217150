"""Communication calls of a dump, read plainly from its JSON, and which calls of different ranks belong together."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = re.compile(r"Distributed\.(.+)\.\d+\.(forward|backward)$")
COLLECTIVES = frozenset(
    [
        "broadcast",
        "all_reduce",
        "reduce",
        "all_gather",
        "gather",
        "scatter",
        "reduce_scatter",
        "_reduce_scatter_base",
        "_all_gather_base",
        "all_to_all_single",
        "all_to_all",
        "all_gather_into_tensor",
        "reduce_scatter_tensor",
    ]
)
SENDS = frozenset(("send", "isend", "send_object_list"))
RECEIVES = frozenset(("recv", "irecv", "recv_object_list"))
BATCH = "batch_isend_irecv"
ROOT_PLACE = {"broadcast": 1, "reduce": 1, "gather": 2, "scatter": 2}
GIVEN_BY_ALL = frozenset(("reduce", "gather"))
RANK_WORDS = ("src", "dst")


@dataclass(frozen=True)
class Call:
    """One call, or one operation of a batch.

    Attributes
    ----------
    record : str
        Name in the dump.
    role : str
        ``meet``, ``send`` or ``recv``.
    what : tuple
        API, direction, group and tag: what both ends have in common.
    peer : int or None
        The other end of a message; the root of a collective that has one.
    waits : bool
        Whether the rank stands still until the other end is there.
    gives_always : bool
        Whether every member of a collective with a root gives something.
    """

    record: str
    role: str
    what: tuple[Any, ...]
    peer: int | None
    waits: bool = True
    gives_always: bool = True


def api_of(record: str) -> str:
    """The communication API of a record, ``""`` for anything else."""
    found = NAME.match(record)
    api = found.group(1) if found else ""
    return api if api in COLLECTIVES | SENDS | RECEIVES | {BATCH} else ""


def _value(leaf: Any) -> int | None:
    value = leaf.get("value") if isinstance(leaf, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _operations(value: Any) -> list[Mapping[str, Any]]:
    if isinstance(value, list):
        return [found for one in value for found in _operations(one)]
    return [value] if isinstance(value, dict) and "class_type" in value else []


def _group(arguments: list[Any]) -> tuple[int, ...]:
    for leaf in arguments:
        if isinstance(leaf, dict) and leaf.get("type") == "torch.ProcessGroup":
            return tuple(leaf.get("group_ranks") or ())
    return ()


def calls_of(path: Path) -> list[Call]:
    """The calls of one rank in order."""
    calls = []
    for record, content in json.loads(path.read_text(encoding="utf-8"))["data"].items():
        api = api_of(record)
        if not api:
            continue
        way = record.rpartition(".")[2]
        args, kwargs = content.get("input_args") or [], content.get("input_kwargs") or {}
        group = _group([*args, *kwargs.values()])
        if api == BATCH:
            for one in _operations([*args, *kwargs.values()]):
                role = "send" if one.get("op") == "isend" else "recv"
                what = ("message", way, one.get("group_id") or "", one.get("tag") or 0)
                calls.append(Call(record, role, what, one.get("peer"), waits=False))
            continue
        named = next((_value(kwargs[word]) for word in RANK_WORDS if word in kwargs), None)
        at = 1 if api in SENDS | RECEIVES else ROOT_PLACE.get(api)
        placed = _value(args[at]) if at is not None and at < len(args) else None
        rank = named if named is not None else placed
        if api in COLLECTIVES:
            rank = rank if api in ROOT_PLACE else None
            calls.append(Call(record, "meet", (api, way, group), rank, gives_always=api in GIVEN_BY_ALL))
        else:
            tag = _value(kwargs.get("tag")) or 0
            role = "send" if api in SENDS else "recv"
            calls.append(Call(record, role, ("message", way, group, tag), rank, waits=api != "irecv"))
    return calls


def events_of(calls: Mapping[int, list[Call]]) -> dict[int, list[tuple[Any, ...]]]:
    """Rank -> the event of each call, in order: the k-th of an API and group on each member, the k-th of a sender to a receiver."""
    everyone = tuple(sorted(calls))
    found: dict[int, list[tuple[Any, ...]]] = {}
    for rank, mine in calls.items():
        seen: Counter[tuple[Any, ...]] = Counter()
        found[rank] = []
        for call in mine:
            what = call.what
            if call.role == "meet":
                key: tuple[Any, ...] = (*what[:2], what[2] or everyone)
            else:
                ends = (rank, call.peer) if call.role == "send" else (call.peer, rank)
                key = (*what, *ends)
            found[rank].append((*key, seen[key]))
            seen[key] += 1
    return found
