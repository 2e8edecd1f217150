"""What the communication operators of a dump say about themselves: group, root, peer, tag, and the tensors they give and get.

Tables in, frames out. One rank at a time; ``kernels.call_events`` joins the calls of several ranks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Final

import polars as pl
from opassay.schemas.communication_rows import (
    BATCH,
    CALLS,
    COMMUNICATIONS,
    RANK_WORDS,
    TENSORS,
    TYPES,
    UNKNOWN_GROUP,
    WORLD,
)
from opassay.schemas.dump_rows import P2P, STATISTICS, DumpTable
from opassay.schemas.vocab import RowKind, Section

_NAME: Final = rf"^(?:{'|'.join(TYPES)})\.(.+)\.\d+\.(forward|backward)$"
_INPUTS: Final = (Section.INPUT_ARGS, Section.INPUT_KWARGS, Section.INPUT)
_REDUCING: Final = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor", "_reduce_scatter_base")
_INTO: Final = ("all_gather_into_tensor", "_all_gather_base")
_OUT_OF: Final = ("reduce_scatter_tensor", "_reduce_scatter_base")
_TENSOR_ENDS: Final = ("output_tensor", "input_tensor", "input", "output")
_ONE_A_RANK: Final = (
    "tensor_list", "gather_list", "scatter_list", "input_list", "output_tensor_list", "input_tensor_list",
)  # fmt: skip
_ROOTED: Final = ("broadcast", "reduce", "gather", "scatter")
_FIRST_BY_DEFAULT: Final = ("gather", "scatter")  # torch takes the group's first rank where none is named


def group_id(ranks: str) -> str:
    """Id that dumps give a group: CRC-32 of its ranks' text.

    Parameters
    ----------
    ranks : str
        As in ``CALLS``: ``"[0, 1]"``.
    """
    return f"{zlib.crc32(ranks.encode()):08x}"


def members(group: str) -> tuple[int, ...]:
    """Ranks that a group's text names; () for WORLD, UNKNOWN_GROUP and ids."""
    words = group.strip("[]").split(",")
    return tuple(int(word) for word in words) if group[:1] == "[" and all(w.strip().isdigit() for w in words) else ()


def communication_calls(table: DumpTable) -> pl.DataFrame:
    """The communication calls of one rank, in the order of the dump.

    Parameters
    ----------
    table : DumpTable
        One rank's dump.

    Returns
    -------
    polars.DataFrame
        Schema ``CALLS``: a row a call, for ``batch_isend_irecv`` a row each of its operations. Arguments are understood by
        place and by name; ``group_src`` and ``group_dst``, which count within the group, become global ranks.
    """
    ops = _ops(table)
    arguments = _arguments(table, ops)
    given = arguments.filter((pl.col("side") == "input") & (pl.col("depth") == 0) & (pl.col("kind") != RowKind.NONE))
    words = [*RANK_WORDS, "tag"]
    facts = given.group_by("op").agg(
        *(_whole(pl.col("value").filter(pl.col("argument") == word).last()).alias(word) for word in words),
        pl.col("value").filter((pl.col("argument") == "group") & (pl.col("kind") == RowKind.GROUP)).last().alias("group"),
        pl.col("value").filter((pl.col("argument") == "group") & (pl.col("kind") != RowKind.GROUP)).last().alias("no_group"),
        pl.col("value").filter(pl.col("argument") == "op").last().alias("reduce"),
        (pl.col("value").filter(pl.col("argument") == "async_op").last() == "True").alias("async_op"),
    )  # fmt: skip
    calls = ops.join(facts, on="op", how="left", maintain_order="left").with_columns(
        item=pl.lit(0, pl.UInt32),
        role=pl.col("api").replace_strict({api: one.role for api, one in COMMUNICATIONS.items()}, return_dtype=pl.String),
        group=pl.when(pl.col("group").str.starts_with("["))
        .then("group")
        .when(pl.col("group").is_null() & pl.col("no_group").is_null())
        .then(pl.lit(WORLD))
        .otherwise(pl.lit(UNKNOWN_GROUP)),
        asynchronous=pl.col("async_op").fill_null(False) | (pl.col("api") == "irecv"),
    )  # fmt: skip
    calls = calls.join(_shown_parts(table, arguments), on="op", how="left", maintain_order="left").with_columns(
        _ranks()
    )
    collective, reducing = pl.col("role") == "collective", pl.col("api").is_in(_REDUCING)
    calls = calls.with_columns(
        root=pl.when(pl.col("api").is_in(_ROOTED)).then("rank"),
        peer=pl.when(~collective).then("rank"),
        tag=pl.when(~collective).then(pl.col("tag").fill_null(0)),
        reduce=pl.when(reducing).then(pl.col("reduce").str.extract(r"(\w+)\W*$").str.to_uppercase().fill_null("SUM")),
    )
    batch = _batch_calls(table, ops)
    return numbered(
        pl.concat([calls.filter(pl.col("api") != BATCH).select(batch.columns), batch])
        .sort("op", "item", maintain_order=True)
        .with_columns(order=pl.lit(0, pl.UInt32))
        .select(pl.col(name).cast(kind) for name, kind in CALLS.items())
    )


def numbered(calls: pl.DataFrame, *, by: Iterable[str] = ()) -> pl.DataFrame:
    """Calls with ``order``: the number of a collective among those of its group, API and direction; of a send or recv among those
    of its peer, tag and group.

    Parameters
    ----------
    calls : polars.DataFrame
        ``CALLS``, in the order in which they were made.
    by : iterable of str
        Further columns that tell sequences apart (``rank``).
    """
    collective = pl.col("role") == "collective"
    which = pl.when(collective).then("api"), pl.when(~collective).then("peer"), pl.when(~collective).then("tag")
    over = [*by, "way", "role", "group", *(one.alias(f"which{k}") for k, one in enumerate(which))]
    return calls.with_columns(order=pl.int_range(pl.len(), dtype=pl.UInt32).over(over))


def communication_tensors(table: DumpTable, calls: pl.DataFrame) -> pl.DataFrame:
    """What each call gives and gets, a row a tensor.

    Parameters
    ----------
    table : DumpTable
        One rank's dump.
    calls : polars.DataFrame
        Its ``communication_calls``.

    Returns
    -------
    polars.DataFrame
        Schema ``TENSORS``, by op, side and place. What is given is as the inputs show it (recorded before the call), what is got as
        the outputs show it (recorded after it). Values that are no tensors keep their kind.
    """
    arguments = _arguments(table, _ops(table))
    sides = pl.DataFrame(
        [(api, one.sent, one.got) for api, one in COMMUNICATIONS.items()], schema=["api", "sent", "got"], orient="row"
    )
    rows = arguments.join(sides, on="api", how="left", maintain_order="left")
    given = (pl.col("side") == "input") & (pl.col("argument") == pl.col("sent"))
    taken = (pl.col("side") == "output") & (pl.col("argument") == pl.col("got"))
    rows = rows.with_columns(
        side=pl.when(given).then(pl.lit("sent")).when(taken).then(pl.lit("got")), item=pl.lit(0, pl.UInt32)
    ).filter(pl.col("side").is_not_null() & (pl.col("depth") <= 1))
    rows = rows.with_columns(part=pl.int_range(pl.len()).over("op", "side"), listed=pl.col("depth") == 1)
    rows = pl.concat([rows, _batch_rows(table, arguments)], how="diagonal")
    stored = table.rows[rows["row"]]
    rows = rows.with_columns(
        pl.Series("dtype", table.dtypes, dtype=pl.String).gather(stored["dtype"]),
        pl.Series("shape", table.shapes, dtype=pl.String).gather(stored["shape"]),
        *(stored[name] for name in (*STATISTICS, "md5", "data_name")),
    ).with_columns(elements=_elements(pl.col("shape")))
    rows = rows.join(_splits(arguments), on=["op", "side"], how="left", maintain_order="left")
    rows = rows.join(calls.select("op", "item"), on=["op", "item"], how="semi", maintain_order="left")
    return rows.select(pl.col(name).cast(kind) for name, kind in TENSORS.items()).sort(
        "op", "item", "side", "part", maintain_order=True
    )


def _ops(table: DumpTable) -> pl.DataFrame:
    """``op``, ``api`` and ``way`` of the communication ops."""
    found = pl.col("name").str.extract_groups(_NAME)
    return (
        table.ops.with_row_index("op")
        .filter(pl.any_horizontal(pl.col("name").str.starts_with(f"{word}.") for word in TYPES))
        .select("op", found.struct.field("1").alias("api"), found.struct.field("2").alias("way"))
        .filter(pl.col("api").is_in(list(COMMUNICATIONS)))
    )


def _arguments(table: DumpTable, ops: pl.DataFrame) -> pl.DataFrame:
    """Rows of the inputs and outputs of ops, with the argument each belongs to.

    Outputs of a dumped call are its arguments once more: those by place, then those by name, in the order of the inputs.
    """
    slots = pl.Series("slot", table.slots, dtype=pl.String)
    rows = (
        table.rows.with_row_index("row")
        .select("row", "op", "section", "slot", "kind", "value")
        .join(ops, on="op", how="inner", maintain_order="left")
        .filter(pl.col("section").is_in([*_INPUTS, Section.OUTPUT]))
    )
    rows = rows.with_columns(
        slots.gather(rows["slot"]),
        pl.Series("value", table.values, dtype=pl.String).gather(rows["value"]),
        side=pl.when(pl.col("section") == Section.OUTPUT).then(pl.lit("output")).otherwise(pl.lit("input")),
    )
    found = pl.col("slot").str.extract_groups(r"^\.(?:input|output)\.([^.]*)(.*)$")
    rows = rows.with_columns(
        head=found.struct.field("1"),
        rest=found.struct.field("2").fill_null(""),
    ).with_columns(
        depth=pl.col("rest").str.count_matches(".", literal=True),
        place=pl.when(pl.col("section") != Section.INPUT_KWARGS).then(pl.col("head").cast(pl.Int64, strict=False)),
    )
    positions = pl.DataFrame(
        [(api, place, name) for api, one in COMMUNICATIONS.items() for place, name in enumerate(one.arguments)],
        schema={"api": pl.String, "place": pl.Int64, "argument": pl.String},
        orient="row",
    )
    by_place = (
        rows.filter((pl.col("side") == "input") & pl.col("place").is_not_null())
        .group_by("op")
        .agg(given=pl.col("place").max() + 1)
    )
    by_name = (
        rows.filter(pl.col("section") == Section.INPUT_KWARGS)
        .unique(["op", "head"], keep="first", maintain_order=True)
        .join(by_place, on="op", how="left", maintain_order="left")
        .select(
            "op",
            place=pl.int_range(pl.len()).over("op") + pl.col("given").fill_null(0),
            side=pl.lit("output"),
            keyword="head",
        )
    )
    rows = rows.join(positions, on=["api", "place"], how="left", maintain_order="left")
    rows = rows.join(by_name, on=["op", "place", "side"], how="left", maintain_order="left")
    named = pl.when(pl.col("section") == Section.INPUT_KWARGS).then("head")
    return rows.with_columns(argument=pl.coalesce(named, "keyword", "argument")).select(
        "row", "op", "api", "side", "argument", "slot", "rest", "depth", "kind", "value"
    )


def _shown_parts(table: DumpTable, arguments: pl.DataFrame) -> pl.DataFrame:
    """Ranks of the group: lengths of lists with one tensor a rank, or how much longer a tensor is than a rank's part of it."""
    shapes = pl.Series(table.shapes, dtype=pl.String)
    rows = arguments.with_columns(
        shapes.gather(table.rows["shape"].gather(arguments["row"])).alias("shape"),
        wide=pl.col("argument").is_in(_ONE_A_RANK) & (pl.col("depth") == 1),
    ).with_columns(elements=_elements(pl.col("shape")))
    whole = (pl.col("depth") == 0) & (pl.col("elements") > 0) & (pl.col("kind") == RowKind.TENSOR)
    sizes = {word: pl.col("elements").filter(whole & (pl.col("argument") == word)).max() for word in _TENSOR_ENDS}
    ends = [sizes["output_tensor"], sizes["input_tensor"], sizes["input"], sizes["output"]]
    long = (
        pl.when(pl.col("api").first().is_in(_INTO))
        .then(ends[0])
        .when(pl.col("api").first().is_in(_OUT_OF))
        .then(ends[2])
    )
    short = pl.when(pl.col("api").first().is_in(_INTO)).then(ends[1]).otherwise(ends[3])
    lists = (
        rows.filter("wide").group_by("op", "side", "argument").agg(listed=pl.len().cast(pl.Int64))
        .group_by("op").agg(pl.col("listed").max())
    )  # fmt: skip
    return (
        rows.group_by("op")
        .agg(ratio=pl.when(long % short == 0).then(long // short))
        .join(lists, on="op", how="left")
        .select("op", parts=pl.coalesce("listed", "ratio"))
    )


def _ranks() -> pl.Expr:
    """Global rank of src or dst: as given, or counted within the group, or the first of the group."""
    here = pl.when(pl.col("group").str.starts_with("[")).then(pl.col("group"))
    ranks = here.str.extract_all(r"\d+").cast(pl.List(pl.Int64))
    within = pl.coalesce("group_src", "group_dst")
    first = pl.when(pl.col("api").is_in(_FIRST_BY_DEFAULT)).then(0)
    counted = pl.coalesce(within, first)
    of_group = (
        pl.when(pl.col("group") == WORLD).then(counted).when(ranks.is_not_null()).then(ranks.list.get(counted, null_on_oob=True))
    )  # fmt: skip
    return pl.coalesce("src", "dst", of_group).alias("rank")


def _batch_calls(table: DumpTable, ops: pl.DataFrame) -> pl.DataFrame:
    """A call each operation of a ``batch_isend_irecv``."""
    columns = {name: kind for name, kind in CALLS.items() if name != "order"}
    ways = {op: way for op, api, way in ops.iter_rows() if api == BATCH}
    known = {group_id(text): text for text in set(_group_texts(table))}
    rows = []
    for op, item, p2p in _batch_items(table, ways):
        role = {"isend": "send", "irecv": "recv"}.get(p2p.op)
        if role is not None:
            group = known.get(p2p.group, f"#{p2p.group}" if p2p.group else WORLD)
            rows.append((op, item, BATCH, ways[op], role, group, None, p2p.peer, p2p.tag or 0, None, True, None))
    return pl.DataFrame(rows, schema=columns, orient="row")


def _batch_items(table: DumpTable, ops: Iterable[int]) -> list[tuple[int, int, P2P]]:
    """Op, number within the op and what it does, of the inputs of batches."""
    places = table.rows.with_row_index("row")[sorted(table.p2p)].select("row", "op", "section")
    found, count = [], dict.fromkeys(ops, 0)
    for row, op, section in places.iter_rows():
        if section in _INPUTS and op in count:
            found.append((op, count[op], table.p2p[row]))
            count[op] += 1
    return found


def _batch_rows(table: DumpTable, arguments: pl.DataFrame) -> pl.DataFrame:
    """Tensors of the operations of batches: what is sent, what is got, and what a receive buffer held before."""
    role = pl.col("row").replace_strict(
        {row: p2p.op for row, p2p in table.p2p.items()}, default=None, return_dtype=pl.String
    )
    rows = arguments.filter(pl.col("api") == BATCH).with_columns(role=role).filter(pl.col("role").is_not_null())
    rows = rows.with_columns(item=pl.int_range(pl.len(), dtype=pl.UInt32).over("op", "side"))
    into = (pl.col("side") == "input") & (pl.col("role") == "irecv")
    side = (
        pl.when((pl.col("side") == "input") & (pl.col("role") == "isend")).then(pl.lit("sent"))
        .when(into).then(pl.lit("before"))
        .when(pl.col("role") == "irecv").then(pl.lit("got"))
    )  # fmt: skip
    return rows.with_columns(side=side, part=pl.lit(0, pl.Int64), listed=pl.lit(False)).filter(
        pl.col("side").is_not_null()
    )


def _group_texts(table: DumpTable) -> list[str]:
    codes = table.rows.filter(pl.col("kind") == RowKind.GROUP)["value"].unique().to_list()
    return [text for code in codes if (text := table.values[code])[:1] == "["]


def _splits(arguments: pl.DataFrame) -> pl.DataFrame:
    """Sizes of the uneven parts of an all_to_all_single, by op and side."""
    side = {"input_split_sizes": "sent", "output_split_sizes": "got"}
    return (
        arguments.filter(
            (pl.col("side") == "input") & (pl.col("depth") == 1) & pl.col("argument").is_in(list(side))
        )
        .group_by("op", side=pl.col("argument").replace_strict(side, return_dtype=pl.String), maintain_order=True)
        .agg(splits=_whole(pl.col("value")))
    )  # fmt: skip


def _elements(shape: pl.Expr) -> pl.Expr:
    """Product of the numbers of a shape's text, 1 for ``[]``; null for a text that is no shape."""
    sizes = shape.str.extract_all(r"\d+").cast(pl.List(pl.Int64), strict=False)
    product = sizes.list.eval(pl.element().product()).list.first()
    return pl.when(shape.str.contains(r"^[\[(]\s*[\])]$")).then(1).when(shape.str.contains(r"^[\[(]")).then(product)


def _whole(text: pl.Expr) -> pl.Expr:
    return text.cast(pl.Int64, strict=False)
