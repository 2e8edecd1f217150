"""Which operator is wrong first, over all ranks: the search through the facts of every rank, joined by their communications.

Pure: facts and events in, nodes out. The stages and the order by layer and sub-layer are those of diff_analyze.md, 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import polars as pl
from opassay.kernels.op_facts import CLEAN, MUCH_MORE, added, added_first, other_weight, other_weight_first
from opassay.kernels.phrases import phrase
from opassay.schemas.op_facts import CALL_FACTS, MISSING, OP_FACTS, Kind, RankFacts, Seen

SPREADING: Final = ("broadcast", "scatter")
"""Collectives in which the root alone gives something."""

GATHERING: Final = ("reduce", "gather")
"""Collectives from which the root alone gets something; what the buffers of the others hold afterwards is nobody's promise."""

col = pl.col


class Origin(str, Enum):
    """Where a node's difference comes from; of several the one that stands first here counts."""

    COMMUNICATION = "communication"  # what the ranks gave agrees, what a rank got does not
    GIVEN = "given"  # a rank gave other values into a communication, and no earlier op of it shows where they come from
    ADDED = "added"  # the inputs agree and the output does not, or it is much further off than they are
    WEIGHT = "weight"  # a parameter differs, and no other input of it: no op before it can be behind that
    INHERITED = "inherited"  # the inputs differ already, and nothing before it in the dump says why
    UNSEEN = "unseen"  # what went into it is not in the dump, and nothing before it differs
    INPUTLESS = "inputless"  # a gradient of parameters or a debug save: it has no inputs to be judged by
    DTYPE = "dtype"  # only the declared dtype differs
    ALONE = "alone"  # the golden side does not have it
    MISSING = "missing"  # the golden side has it, the target does not


SURE: Final = frozenset({Origin.COMMUNICATION, Origin.GIVEN, Origin.ADDED, Origin.WEIGHT})
"""Origins that point at a fault of its own wherever they stand; the others count only where nothing comes before them."""


class Stage(str, Enum):
    """Where on its rank a node stands."""

    BEFORE = "before"  # before the first communication
    DURING = "during"  # a communication, or between two
    AFTER = "after"  # after the last communication


@dataclass(frozen=True, slots=True)
class Node:
    """An op that is an answer.

    Attributes
    ----------
    rank, op : int
        Where.
    name, row : str
        The op, and its row that shows the difference: an output, or what was given where the origin is GIVEN, WEIGHT or
        INHERITED. An op that is MISSING has the golden side's name and the number of the target's op that stands before it.
    origin : Origin
        Where the difference comes from.
    stage : Stage
        Where on its rank it stands.
    layer, sub_layer : int
        Communications that lie before it, over all ranks that they join, and ops that compute since the last one.
    figures, message : str
        What differs, in figures, and the messages of the row (a JSON array).
    input_gap, output_gap : float or None
        How far the worst input and the worst output are off (see ``OP_FACTS``).
    hint : str
        What stands beside it and may explain it: an op of one side directly before it, a golden op that has its values, a group of
        another size. "" for nothing.
    label : str
        Folder of the rank.
    """

    rank: int
    op: int
    name: str
    row: str
    origin: Origin
    stage: Stage
    layer: int
    sub_layer: int
    figures: str
    message: str
    input_gap: float | None
    output_gap: float | None
    hint: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The answer.

    Attributes
    ----------
    nodes : tuple of Node
        The first op that differs, on each rank where it does.
    independent : tuple of Node
        Later ones whose difference is not a consequence of it, in order.
    """

    nodes: tuple[Node, ...] = ()
    independent: tuple[Node, ...] = ()


def find_first(ranks: Sequence[RankFacts], events: pl.DataFrame) -> FirstDifference:
    """Search all ranks of one step.

    Parameters
    ----------
    ranks : sequence of RankFacts
        One a rank, in any order; numbers are unique.
    events : polars.DataFrame
        Schema ``kernels.call_events.EVENTS``: which calls belong together.

    Returns
    -------
    FirstDifference
        Empty if nothing differs.
    """
    ops = _of_all("ops", OP_FACTS, ranks).with_columns(
        added=added(), added_first=added_first(), other_weight=other_weight(), other_weight_first=other_weight_first()
    )
    places = _places(events, _of_all("places", {"op": pl.UInt32(), "counted": pl.UInt32()}, ranks))
    calls = _calls(events, _of_all("exchanged", CALL_FACTS, ranks))
    firsts = _firsts(ops, calls)
    calls = _joined(calls, firsts)
    missing = _of_all("missing", MISSING, ranks)
    found = pl.concat([_communicating(calls), _computing(ops, calls, firsts)])
    if found.is_empty():
        return FirstDifference(tuple(_lead(_nodes(_last_resort(ops, calls, missing), ops, calls, places))))
    nodes = _nodes(found, ops, calls, places)
    lead = _lead(nodes)
    known = set(lead)
    return FirstDifference(tuple(lead), tuple(node for node in nodes if node.origin in SURE and node not in known))


def _of_all(what: str, schema: Mapping[str, pl.DataType], ranks: Sequence[RankFacts]) -> pl.DataFrame:
    """One table of all ranks, with their numbers."""
    empty = pl.DataFrame(schema={**schema, "rank": pl.Int64()})
    frames: list[pl.DataFrame] = [
        getattr(facts, what).with_columns(rank=pl.lit(facts.rank, pl.Int64)) for facts in ranks
    ]
    return pl.concat([empty, *frames]).sort("rank", "op", maintain_order=True)


def _calls(events: pl.DataFrame, exchanged: pl.DataFrame) -> pl.DataFrame:
    """A row for each rank of an event, with what it gave and got: ``other`` (it gave other values), ``dark`` (what it gave is not
    known), ``got`` (it got other values), ``blind`` (what it got is not known)."""
    collective, at_root = col("role") == "collective", (col("root") == col("rank")).fill_null(False)
    gives, gets = (col(name).fill_null(int(Seen.NOTHING)) for name in ("gives", "gets"))
    return (
        events.with_columns(col("root").max().over("event"))
        .join(exchanged, on=["rank", "op", "item"], how="left", maintain_order="left")
        .with_columns(
            giver=(col("role") == "send") | (collective & (~col("api").is_in(SPREADING) | at_root)),
            taker=(col("role") == "recv") | (collective & (~col("api").is_in(GATHERING) | at_root)),
        )
        .with_columns(
            other=col("giver") & (gives == Seen.DIFFER),
            dark=col("giver") & (gives == Seen.NOTHING),
            got=col("taker") & (gets == Seen.DIFFER),
            blind=col("taker") & (gets == Seen.NOTHING),
        )
    )


def _firsts(ops: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """``rank`` and ``first``: its first op that differs, or that is given or gives other values."""
    wrong = ops.filter(_differs()).join(calls, on=["rank", "op"], how="anti")
    differing = pl.concat([wrong.select("rank", "op"), calls.filter(col("other") | col("got")).select("rank", "op")])
    return differing.group_by("rank").agg(first=col("op").min()).sort("rank")


def _joined(calls: pl.DataFrame, firsts: pl.DataFrame) -> pl.DataFrame:
    """Calls with ``first``, and with what the ranks of an event mean for each other.

    ``of_others``: other values came, or may have come, from another rank, and ``taken``: the first op of this rank where that is
    so. Over the event: ``gave_other``; ``gave_dark``, what somebody gave is not known; ``gave_hidden``, and an op of that rank
    differs before; ``took``, somebody got other values, or it is not known; ``explained``, how far off what somebody gets may be
    by what all of them gave; infinitely far where a fault before has left differences in it.
    """
    calls = calls.join(firsts, on="rank", how="left", maintain_order="left").with_columns(
        hidden=col("dark") & (col("first") < col("op")).fill_null(False)
    )
    gave = (col("other") | col("hidden")).cast(pl.Int64)
    gaps = pl.when("giver").then("given_gap").fill_null(0.0)
    anybody = firsts.height - col("first").is_not_null().cast(pl.Int64)  # of an open event nobody knows who takes part
    calls = calls.with_columns(
        of_others=col("taker") & (pl.when("open").then(anybody).otherwise(gave.sum().over("event") - gave) > 0),
        gave_other=col("other").any().over("event"),
        gave_dark=(col("dark") | col("open") | col("sizes").is_not_null().fill_null(False)).any().over("event"),
        gave_hidden=col("hidden").any().over("event"),
        took=(col("got") | col("blind")).any().over("event"),
        explained=pl.max_horizontal(MUCH_MORE * gaps.max().over("event"), gaps.sum().over("event")),
    )
    calls = calls.with_columns(taken=col("op").filter(col("of_others")).min().over("rank"))
    behind = ((col("first") < col("op")) | (col("taken") < col("op"))).fill_null(False)
    left = (behind & col("giver") & (col("given_gap") > CLEAN)).fill_null(False)
    return calls.with_columns(explained=pl.when(left.any().over("event")).then(float("inf")).otherwise("explained"))


def _communicating(calls: pl.DataFrame) -> pl.DataFrame:
    """Communications that are to blame, or that are the first to show a rank's difference."""
    silent = col("got") & ~col("gave_other") & ~col("gave_hidden")
    beyond = (col("got_gap") > col("explained")).fill_null(True)
    given = calls.filter(col("other") & col("took") & _untouched())
    return pl.concat(
        [
            _found(calls.filter(silent & ~col("gave_dark") & beyond), Origin.COMMUNICATION),
            _found(given, Origin.GIVEN, "row", "figures"),
            _found(calls.filter(silent & col("gave_dark") & _untouched() & ~col("of_others")), Origin.UNSEEN),
        ]
    )


def _computing(ops: pl.DataFrame, calls: pl.DataFrame, firsts: pl.DataFrame) -> pl.DataFrame:
    """Ops that compute and whose difference starts with them; a weight that several calls of a module use is told once."""
    ops = (
        ops.filter(_differs())
        .join(calls, on=["rank", "op"], how="anti", maintain_order="left")
        .join(firsts, on="rank", how="left", maintain_order="left")
        .join(calls.group_by("rank").agg(col("taken").first()), on="rank", how="left", maintain_order="left")
    )
    own = col("added") | (_untouched() & col("added_first"))
    weight = col("other_weight") | (_untouched() & col("other_weight_first") & ~own)
    rest = ops.filter(_untouched() & ~own & ~weight)
    held = col("input_row").str.replace(r"\.forward\.\d+\.", ".")
    weights = ops.filter(weight).unique(["rank", held.alias("held")], keep="first", maintain_order=True)
    return pl.concat(
        [
            _found(ops.filter(own), Origin.ADDED),
            _found(weights, Origin.WEIGHT, "input_row", "input_figures"),
            _found(rest.filter(col("inputs") == Seen.DIFFER), Origin.INHERITED, "input_row", "input_figures"),
            _found(rest.filter(col("inputs") == Seen.NOTHING), Origin.UNSEEN),
        ]
    )


def _differs() -> pl.Expr:
    """An op whose output, input or weight differs by itself."""
    return ~col("inputless") & ((col("kind") == Kind.NUMBERS) | col("far_in") | col("other_weight"))


def _untouched() -> pl.Expr:
    """The first op of its rank that differs, and no other rank has given to it before."""
    return (col("first") == col("op")).fill_null(False) & ~(col("taken") < col("op")).fill_null(False)


def _last_resort(ops: pl.DataFrame, calls: pl.DataFrame, missing: pl.DataFrame) -> pl.DataFrame:
    """Where nothing differs by itself: the first op that is given other values, else the first gradient or save that differs, else
    dtypes, else ops of one side."""
    computing = ops.join(calls, on=["rank", "op"], how="anti", maintain_order="left")
    given = computing.filter(~col("inputless") & (col("inputs") == Seen.DIFFER) & (col("kind") != Kind.ALONE))
    got = calls.filter(
        col("got") & (col("first") == col("op"))
    )  # a little of all ranks, or a message of an unknown sender
    late = pl.concat(
        [
            _found(calls.filter("other"), Origin.GIVEN, "row", "figures"),
            _found(given, Origin.INHERITED, "input_row", "input_figures"),
            _found(got.filter(~col("gave_dark")), Origin.COMMUNICATION),
            _found(got.filter("gave_dark"), Origin.UNSEEN),
        ]
    )
    if late.height:
        return late
    without, formal = ops.filter("inputless", kind=int(Kind.NUMBERS)), ops.filter(kind=int(Kind.DTYPE))
    if without.height:
        return _found(without, Origin.INPUTLESS)
    if formal.height:
        return _found(formal, Origin.DTYPE)
    alone = _found(ops.filter(kind=int(Kind.ALONE)), Origin.ALONE)
    return pl.concat([alone, _found(missing, Origin.MISSING, "name")])


def _found(rows: pl.DataFrame, origin: Origin, row: str | None = None, figures: str | None = None) -> pl.DataFrame:
    """``rank``, ``op`` and ``origin``; the columns that show the difference where the op's first differing output is not it."""
    shown = {"shown_row": row, "shown_figures": figures}
    return rows.select(
        "rank",
        "op",
        pl.lit(list(Origin).index(origin), pl.UInt8).alias("origin"),
        *[(col(name) if name else pl.lit(None, pl.String)).alias(alias) for alias, name in shown.items()],
    )


def _places(events: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
    """``stage``, ``layer`` and ``sub_layer`` of ops, by rank and op."""
    made = events.filter(col("op").is_not_null())
    made = made.group_by("rank", "op").agg(behind=col("layer").max().cast(pl.Int64) + 1)
    called = col("behind").is_not_null()
    rows = places.join(made, on=["rank", "op"], how="left", maintain_order="left").sort("rank", "op")
    rows = rows.with_columns(
        layer=col("behind").cum_max().forward_fill().shift(1).over("rank").fill_null(0),
        since=pl.when(called).then("counted").forward_fill().shift(1).over("rank").fill_null(0),
        calls=called.cast(pl.Int64).sum().over("rank"),
        passed=(called.cast(pl.Int64).cum_sum() - called.cast(pl.Int64)).over("rank"),
    )
    stages = list(Stage)
    before, during, after = (pl.lit(stages.index(stage)) for stage in stages)
    return rows.select(
        "rank",
        "op",
        "layer",
        sub_layer=col("counted").cast(pl.Int64) - col("since").cast(pl.Int64),
        stage=pl.when(called | ((col("passed") > 0) & (col("passed") < col("calls")))).then(during)
        .when(col("passed") > 0).then(after)
        .otherwise(before),
    )  # fmt: skip


def _nodes(found: pl.DataFrame, ops: pl.DataFrame, calls: pl.DataFrame, places: pl.DataFrame) -> list[Node]:
    """Nodes in order; an op that was found twice counts once."""
    sizes = calls.group_by("rank", "op").agg(col("sizes").drop_nulls().first())
    rows = (
        found.sort("rank", "op", "origin")
        .unique(["rank", "op"], keep="first", maintain_order=True)
        .join(ops, on=["rank", "op"], how="left", maintain_order="left")
        .join(sizes, on=["rank", "op"], how="left", maintain_order="left")
        .join(places, on=["rank", "op"], how="left", maintain_order="left")
        .sort("layer", "sub_layer", "rank", "op")
        .select(
            "rank",
            "op",
            name=pl.when(col("origin") == list(Origin).index(Origin.MISSING)).then("shown_row").otherwise("name"),
            row=pl.coalesce("shown_row", "row", "name"),
            origin="origin",
            stage="stage",
            layer="layer",
            sub_layer="sub_layer",
            figures=pl.coalesce("shown_figures", "figures", pl.lit("")),
            message=pl.when(col("shown_row").is_null()).then("message").fill_null("[]"),
            input_gap="input_gap",
            output_gap="output_gap",
            hint=_hint(),
        )
    )
    origins, stages = list(Origin), list(Stage)
    return [
        Node(rank, op, name, row, origins[origin], stages[stage], *rest)
        for rank, op, name, row, origin, stage, *rest in rows.iter_rows()
    ]


def _hint() -> pl.Expr:
    """What may explain a node, by its origin."""
    values = {origin: list(Origin).index(origin) for origin in Origin}
    handed, kept = ([values[one] for one in some] for some in ((Origin.GIVEN, Origin.INHERITED), (Origin.WEIGHT,)))
    met = [values[one] for one in (Origin.COMMUNICATION, Origin.GIVEN, Origin.UNSEEN)]
    parts = [
        pl.when(col("origin").is_in(handed)).then(phrase("before it stands {}", col("before"))),
        pl.when(col("origin").is_in(handed + kept)).then(
            phrase("it has the values of the golden side's {}", col("twin"))
        ),
        pl.when(col("origin").is_in(met)).then("sizes"),
    ]
    return pl.concat_str(parts, separator="; ", ignore_nulls=True).fill_null("")


def _lead(found: Sequence[Node]) -> list[Node]:
    """The document's choice: before any communication the first of each rank; else the lowest layer and sub-layer; else after."""
    for stage in Stage:
        here = [node for node in found if node.stage is stage]
        if stage is Stage.DURING and here:
            least = min((node.layer, node.sub_layer) for node in here)
            return [node for node in here if (node.layer, node.sub_layer) == least]
        if here:
            firsts: dict[int, Node] = {}
            for node in here:
                firsts.setdefault(node.rank, node)
            return list(firsts.values())
    return []
