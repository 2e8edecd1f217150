"""Calls of many ranks -> events: which call of one rank meets which of the others. Pure: frames in, a frame out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import polars as pl
from opassay.kernels.call_order import LATER, MEETING, RECEIVE, SEND, layers
from opassay.kernels.communication import group_id, members, numbered
from opassay.schemas.communication_rows import CALLS, WORLD

MADE: Final = "made"
MISSING: Final = "missing"
ABSENT: Final = "absent"

EVENTS: Final[Mapping[str, pl.DataType]] = {
    "event": pl.UInt32(),  # number, in the order in which the events happened (see ``call_order``)
    "layer": pl.UInt32(),  # events of one layer are not ordered by any rank they share
    "rank": pl.Int64(),
    "place": pl.UInt32(),  # of the rank within the group; null for messages and where the members are not known
    "state": pl.String(),  # MADE; MISSING: this rank's dump lacks the call; ABSENT: there is no dump of this rank
    "open": pl.Boolean(),  # who meets whom cannot be told: a receive from any source, or a group without ranks
    **CALLS,  # null where the call is not there, but for api (of collectives), way, role, group, peer, tag and order
}

_CALL_KEY: Final = ("way", "role", "api", "group", "order")
_MESSAGE_KEY: Final = ("way", "group", "sender", "receiver", "tag", "order")


def join_calls(calls: Mapping[int, pl.DataFrame]) -> pl.DataFrame:
    """Join the calls of all ranks.

    Collectives meet as the k-th call of a group and API on each member; messages as the k-th from one rank to another with a
    tag and group. A receive from any source stays open, and with it every message that it might have taken.

    Parameters
    ----------
    calls : mapping of int to polars.DataFrame
        Rank -> ``communication_calls`` of its dump; a rank that makes no call has an empty frame.

    Returns
    -------
    polars.DataFrame
        Schema ``EVENTS``, by event and rank (the sender of a message before its receiver): a row for each rank that takes part
        or should. A group that names every rank is the world, under whatever text.
    """
    empty = pl.DataFrame(schema=dict(EVENTS))
    ranks = sorted(calls)
    frames = [calls[rank].with_columns(rank=pl.lit(rank, pl.Int64)) for rank in ranks if calls[rank].height]
    if not frames:
        return empty
    every = pl.concat(frames)
    world = world_ranks(ranks, every)
    every = numbered(every.with_columns(group=_same_groups(every["group"], world)), by=["rank"])
    joined = pl.concat([_collectives(every, world, ranks), _messages(every, ranks)], how="diagonal")
    return _in_order(joined).select(pl.col(name).cast(kind) for name, kind in EVENTS.items())


def world_ranks(ranks: Iterable[int], calls: pl.DataFrame) -> list[int]:
    """All ranks of the run as far as its dumps tell: those dumped, those that groups and messages name, and as many as the
    calls of the whole world show.

    Parameters
    ----------
    ranks : iterable of int
        Ranks with a dump.
    calls : polars.DataFrame
        ``CALLS`` of all of them.
    """
    named = {rank for text in calls["group"].unique().to_list() for rank in members(text)}
    for column in ("root", "peer"):
        named |= set(calls[column].drop_nulls().unique().to_list())
    of_all = calls.filter(pl.col("group") == WORLD)["parts"].max()
    shown = range(of_all) if isinstance(of_all, int) else ()
    return sorted({*ranks, *(rank for rank in named if rank >= 0), *shown})


def _same_groups(group: pl.Series, world: list[int]) -> pl.Series:
    """One text a group: ids become ranks where some rank names them, and all ranks become the world."""
    known = {text for text in group.unique().to_list() if text[:1] == "["} | {str(world)}
    same = {f"#{group_id(text)}": text for text in sorted(known)}
    return group.replace(same).replace({str(world): WORLD})


def _collectives(every: pl.DataFrame, world: list[int], ranks: list[int]) -> pl.DataFrame:
    told = {text: world if text == WORLD else list(members(text)) for text in every["group"].unique().to_list()}
    unknown = [text for text, ranks in told.items() if not ranks]
    made = every.filter(pl.col("role") == "collective").with_columns(
        alone=pl.when(pl.col("group").is_in(unknown)).then("rank")  # members are not known: each call stands for itself
    )
    keys = made.select(*_CALL_KEY, "alone").unique().sort(pl.all(), nulls_last=True).with_row_index("key")
    made = made.join(keys, on=[*_CALL_KEY, "alone"], nulls_equal=True, maintain_order="left")
    due = keys.join(_members(told), on="group", how="left", maintain_order="left").with_columns(
        rank=pl.coalesce("rank", "alone")
    )
    stranger = made.join(due, on=["key", "rank"], how="anti", maintain_order="left")
    met = due.join(made.drop(*_CALL_KEY, "alone"), on=["key", "rank"], how="left", maintain_order="left")
    return pl.concat([met, stranger], how="diagonal").with_columns(
        _state(ranks), open=pl.col("alone").is_not_null(), at_end=pl.lit(0)
    )


def _members(told: Mapping[str, list[int]]) -> pl.DataFrame:
    pairs = [(text, rank, place) for text, ranks in told.items() for place, rank in enumerate(ranks)]
    return pl.DataFrame(pairs, schema={"group": pl.String, "rank": pl.Int64, "place": pl.UInt32}, orient="row")


def _messages(every: pl.DataFrame, ranks: list[int]) -> pl.DataFrame:
    sends = pl.col("role") == "send"
    made = every.filter(pl.col("role") != "collective").with_columns(
        sender=pl.when(sends).then("rank").otherwise("peer"), receiver=pl.when(sends).then("peer").otherwise("rank")
    )
    ends = made.select(_MESSAGE_KEY).unique().sort(pl.all(), nulls_last=True).with_row_index("key")
    due = pl.concat(
        [
            ends.with_columns(role=pl.lit("send"), rank="sender", peer="receiver"),
            ends.with_columns(role=pl.lit("recv"), rank="receiver", peer="sender"),
        ]
    ).filter(pl.col("rank").is_not_null())
    met = due.join(
        made.drop("peer"), on=[*_MESSAGE_KEY, "role", "rank"], how="left", nulls_equal=True, maintain_order="left"
    )
    taker = ["way", "receiver", "tag", "group"]
    any_source = made.filter(pl.col("sender").is_null()).select(taker).unique().with_columns(open=pl.lit(True))
    met = met.join(any_source, on=taker, how="left", nulls_equal=True, maintain_order="left")
    return met.with_columns(
        _state(ranks),
        open=pl.col("open").fill_null(False) | pl.col("sender").is_null() | pl.col("receiver").is_null(),
        at_end=pl.when(pl.col("role") == "send").then(1).otherwise(2),
    )


def _state(ranks: list[int]) -> pl.Expr:
    known = pl.col("rank").is_in(ranks)
    return (
        pl.when(pl.col("op").is_not_null()).then(pl.lit(MADE))
        .when(known).then(pl.lit(MISSING))
        .otherwise(pl.lit(ABSENT)).alias("state")
    )  # fmt: skip


def _in_order(joined: pl.DataFrame) -> pl.DataFrame:
    """Number the events in the order in which they happened."""
    collectives = joined.filter(pl.col("at_end") == 0)["key"].max()
    before = collectives + 1 if isinstance(collectives, int) else 0
    joined = joined.with_columns(
        number=(pl.col("key") + pl.when(pl.col("at_end") > 0).then(before).otherwise(0)).cast(pl.UInt32)
    )
    made = joined.filter(pl.col("state") == MADE).sort("rank", "op", "at_end", "item", maintain_order=True)
    kind = (
        pl.when(pl.col("role") == "collective").then(MEETING)
        .when(pl.col("role") == "send").then(SEND)
        .when("asynchronous").then(LATER)
        .otherwise(RECEIVE)
    )  # fmt: skip
    counts = made.group_by("rank", maintain_order=True).len()["len"].to_numpy()
    found = layers(
        np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)]),
        made["number"].to_numpy(),
        made.select(kind.cast(pl.UInt8)).to_series().to_numpy(),
    )
    first = made.group_by("number").agg(first_rank=pl.col("rank").min(), first_op=pl.col("op").min())
    layer = pl.DataFrame({"number": np.arange(len(found), dtype=np.uint32), "layer": found.astype(np.uint32)})
    events = layer.join(first, on="number").sort("layer", "first_rank", "first_op", "number").with_row_index("event")
    return joined.join(events, on="number", how="left").sort(
        "event", "at_end", "rank", "op", "item", maintain_order=True
    )
