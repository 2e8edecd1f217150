"""Training against inference (``--consistent_check``): translated module names, joined projections, both orders kept.

Gives tables of its own: training records that do not count are gone, and the rows of projections that the other side runs as one
are one row. The names are ``kernels.train_infer``'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import polars as pl
from opassay.kernels import match_keys
from opassay.kernels import train_infer as rules
from opassay.pipeline.match.joined_rows import KEY, Side, axis_of, derived
from opassay.pipeline.match.slots import shared_codes
from opassay.schemas.dump_rows import DumpTable, Join
from opassay.schemas.errors import UsageError
from opassay.schemas.pair_rows import PAIR_ROWS
from opassay.schemas.vocab import MatchKind, RowKind, Section

_APART: Final = 1 << 40  # units from here on belong to one op alone
_MODULE: Final = r"^(.*\.)([^.]+)\.[^.]+$"  # of a base: what holds the module, and the module
_HEADED: Final = (".parameters.weight", ".parameters.bias", ".output.0")


@dataclass(slots=True)
class TrainInfer:
    """Outcome of matching training with inference.

    Attributes
    ----------
    target, golden : DumpTable
        Tables made of those given: the records that count, joined rows among theirs, ``joins`` for rows whose tensor must be made.
    rows : polars.DataFrame
        Schema ``PAIR_ROWS``, numbers of the tables above; golden-only rows between the others where both orders allow it.
    left_out : str
        What of the training side does not count, by design; "" for nothing.
    notes : list of str
        What could not be told or made.
    """

    target: DumpTable
    golden: DumpTable
    rows: pl.DataFrame
    left_out: str = ""
    notes: list[str] = field(default_factory=list)


def pair_train_infer(target: DumpTable, golden: DumpTable, backend: str) -> TrainInfer:
    """Match a training dump with an inference dump.

    Parameters
    ----------
    target : DumpTable
        Training.
    golden : DumpTable
        Inference.
    backend : {"fsdp", "megatron"}
        What the training ran on.

    Returns
    -------
    TrainInfer
        Every row of either table of it exactly once.

    Raises
    ------
    UsageError
        The backend has no table of names.
    """
    if backend not in rules.BACKENDS:
        raise UsageError(f"--backend {backend}: not known; try {' or '.join(rules.BACKENDS)}")
    ops = [_ops(target, backend, training=True), _ops(golden, backend, training=False)]
    left_out = _left_out(ops[0])
    notes: list[str] = []
    if ops[1]["backward"].any() and not ops[0]["backward"].any():
        notes.append(
            "the golden side holds backward ops and the target none: nothing was matched; training belongs to the target (-tp), "
            "inference to the golden side (-gp)"
        )
        nothing = [pl.lit(None, dtype=pl.String).alias(name) for name in ("key", "fused_key", "moved_key")]
        ops = [side.with_columns(nothing) for side in ops]
    ops = _units(ops)
    known = shared_codes(target.slots, golden.slots)
    codes = [pl.int_range(len(target.slots), dtype=pl.UInt32, eager=True), known]
    slots = _slot_codes(target, golden, known)
    ours = derived(target, _keyed(target, ops[0], codes[0], slots, backend), ops[0], notes)
    theirs = derived(golden, _keyed(golden, ops[1], codes[1], slots, backend), ops[1], notes)
    rows = _in_order(ours, theirs, notes)
    return TrainInfer(_with_joins(ours, theirs.table, rows, backend, notes), theirs.table, rows, left_out, notes)


def _ops(table: DumpTable, backend: str, *, training: bool) -> pl.DataFrame:
    """Ops with ``used``, ``backward`` and the keys by which they may meet: null for what can meet nothing."""
    ops = table.ops.with_columns(match_keys.parts(pl.col("name"))).with_row_index("op")
    used = rules.used_records(ops["name"], backend) if training else pl.repeat(True, ops.height, eager=True)
    bases = ops["base"].drop_nulls().unique(maintain_order=True)
    places = [rules.place_of(base, backend, training=training) for base in bases]
    known = pl.DataFrame(
        {"base": bases, **{name: [getattr(place, name) for place in places] for name in rules.Place.__slots__}},
        schema={
            "base": pl.String,
            "layer": pl.Int64,
            "path": pl.String,
            "fused": pl.String,
            "part": pl.Int64,
            "moved": pl.String,
        },
    )
    ops = ops.with_columns(used=used).join(known, on="base", how="left", maintain_order="left")
    nth = pl.int_range(pl.len()).over("base", "used").cast(pl.String) if training else pl.col("index")
    call = pl.when(pl.col("used") & (pl.col("way") == "forward")).then(nth)

    def key(path: pl.Expr) -> pl.Expr:
        return pl.concat_str([call, pl.col("layer").cast(pl.String), path], separator="\x1f")

    return ops.with_columns(
        backward=(
            (pl.col("way") == "backward") | pl.col("name").str.contains(".parameters_grad", literal=True)
        ).fill_null(False),
        key=key(pl.col("path")),
        fused_key=pl.when(pl.col("part") > 0).then(key(pl.col("fused"))),
        moved_key=pl.when(pl.col("moved") != "").then(key(pl.col("moved"))),
    )


def _left_out(ops: pl.DataFrame) -> str:
    unused = ops.filter(~pl.col("used"))
    if unused.is_empty():
        return ""
    forwards = unused.filter(pl.col("way") == "forward").height
    backwards = unused.height - forwards
    parts = [f"{backwards:,} of backward passes"] if backwards else []
    parts += (
        [f"{forwards:,} forwards between a backward pass and the next forward of the embedding (recomputation)"]
        if forwards
        else []
    )
    return f"{unused.height:,} of {ops.height:,} training ops are left out: {', '.join(parts)}"


def _units(sides: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """Add ``unit``, a number that modules share across the sides where they meet, and ``moved_unit``.

    Parts of a fused projection become one unit only where the other side holds the fused one and not the part itself, and their own
    side does not hold both. A key that occurs twice on a side (two stacks of layers) counts on.
    """
    keyed = []
    for ours, theirs in ((sides[0], sides[1]), (sides[1], sides[0])):
        own, others = (side["key"].drop_nulls().unique().implode() for side in (ours, theirs))
        parted = pl.col("fused_key").is_in(others).fill_null(False) & ~pl.col("key").is_in(others).fill_null(False)
        parted &= ~pl.col("fused_key").is_in(own).fill_null(False)
        frame = ours.with_columns(
            key=pl.when(parted).then("fused_key").otherwise("key"), part=pl.when(parted).then("part").otherwise(0)
        )
        again = pl.int_range(pl.len()).over("key", "part")
        keyed.append(
            frame.with_columns(
                pl.when(again > 0).then(pl.col("key") + "\x1f" + again.cast(pl.String)).otherwise("key").alias("key")
            )
        )
    texts = (
        pl.concat([side[name] for side in keyed for name in ("key", "moved_key")])
        .drop_nulls()
        .unique(maintain_order=True)
    )
    codes = pl.DataFrame({"key": texts}).with_row_index("code").with_columns(pl.col("code").cast(pl.Int64))
    found = []
    for place, side in enumerate(keyed, start=1):
        unit = side.select("key").join(codes, on="key", how="left", maintain_order="left")["code"]
        moved = side.select(key="moved_key").join(codes, on="key", how="left", maintain_order="left")["code"]
        alone = place * _APART + pl.col("op").cast(pl.Int64)
        found.append(side.with_columns(unit=unit, moved_unit=moved).with_columns(pl.col("unit").fill_null(alone)))
    return found


def _slot_codes(target: DumpTable, golden: DumpTable, known: pl.Series) -> dict[str, int]:
    """Slot text -> the code that both sides use."""
    return dict(zip(golden.slots, known, strict=True)) | {text: code for code, text in enumerate(target.slots)}


def _keyed(table: DumpTable, ops: pl.DataFrame, codes: pl.Series, slots: dict[str, int], backend: str) -> pl.DataFrame:
    """Row numbers of the records that count, with op, part and the key ``unit``, ``slot_code``, ``nth``."""
    facts = ops.select("op", "unit", "moved_unit", "part", "used", "path")
    rows = table.rows.select("op", slot_code=codes.gather(table.rows["slot"]).cast(pl.Int64)).with_row_index("row")
    rows = rows.join(facts, on="op", how="left", maintain_order="left").filter("used")
    if ops["moved_unit"].null_count() < ops.height:
        rows = _moved(rows, slots, backend)
    nth = pl.int_range(pl.len()).over("unit", "part", "slot_code")
    return rows.select("row", "op", "unit", "slot_code", "part", nth=nth)


def _moved(rows: pl.DataFrame, slots: dict[str, int], backend: str) -> pl.DataFrame:
    """Bring rows that belong to another module of inference under its key (``ROW_RULES``)."""
    known = [
        (r.module, slots[r.slot], slots.get(r.inference_slot, -1), slots.get(r.only_with, -1) if r.only_with else -2)
        for r in rules.ROW_RULES
        if r.backend == backend and r.slot in slots
    ]
    table = pl.DataFrame(
        known,
        schema={"path": pl.String, "slot_code": pl.Int64, "to_slot": pl.Int64, "only_with": pl.Int64},
        orient="row",
    )
    held = rows.select("op", only_with="slot_code").unique().with_columns(held=True)
    found = rows.join(table, on=["path", "slot_code"], how="left", maintain_order="left").join(
        held, on=["op", "only_with"], how="left", maintain_order="left"
    )
    moves = (
        pl.col("moved_unit").is_not_null() & (pl.col("to_slot") >= 0) & ((pl.col("only_with") == -2) | pl.col("held"))
    )
    moves = moves.fill_null(False)
    return found.with_columns(
        unit=pl.when(moves).then("moved_unit").otherwise("unit"),
        slot_code=pl.when(moves).then("to_slot").otherwise("slot_code"),
    )


def _in_order(ours: Side, theirs: Side, notes: list[str]) -> pl.DataFrame:
    """All rows of both tables in one order: the target's, golden-only rows where golden has them.

    A golden-only row of a record that the target has stands among the rows of that record, one of a record that it has not before
    the next record that both have. Pairs that stand in another order on the two sides are no guide.
    """
    target_ops = ours.table.rows["op"].cast(pl.Int64)
    met = theirs.keys.with_row_index("golden_row").join(
        ours.keys.with_row_index("target_row"), on=KEY, how="left", maintain_order="left"
    )
    met = met.select(
        pl.col("golden_row", "target_row").cast(pl.Int64),
        golden_op=theirs.table.rows["op"].cast(pl.Int64),
        target_op=target_ops.gather(met["target_row"]),
    )
    home = met.drop_nulls().group_by("golden_op", maintain_order=True).agg(home=pl.col("target_op").first())
    spans = (
        pl.DataFrame({"op": target_ops})
        .with_row_index("row")
        .group_by("op")
        .agg(first=pl.col("row").min().cast(pl.Int64), after=pl.col("row").max().cast(pl.Int64) + 1)
    )
    met = met.join(home, on="golden_op", how="left", maintain_order="left").join(
        spans.select("op", "after"), left_on="home", right_on="op", how="left", maintain_order="left"
    )
    inside = pl.when(pl.col("target_op") == pl.col("home")).then(pl.col("target_row"))
    met = met.with_columns(
        next_row=inside.reverse().cum_min().forward_fill().reverse().over("home"),
        next_record=_next_records(met, spans, notes),
    )
    end = ours.table.rows.height
    own = pl.col("home").is_not_null()
    alone = met.filter(pl.col("target_row").is_null()).select(
        "target_row",
        "golden_row",
        group=pl.coalesce("home", pl.col("golden_op") + ours.table.ops.height),
        match=pl.lit(int(MatchKind.NONE)),
        before=2 * pl.when(own).then(pl.coalesce("next_row", "after")).otherwise(pl.col("next_record").fill_null(end)),
        # at one place: the rest of the record in front, records that only golden has, the beginning of the record behind
        tier=pl.when(~own).then(1).when(pl.col("next_row").is_null()).then(0).otherwise(2),
    )
    rows = pl.DataFrame({"target_row": pl.int_range(end, eager=True), "group": target_ops}).join(
        met.drop_nulls("target_row").select("target_row", "golden_row"),
        on="target_row",
        how="left",
        maintain_order="left",
    )
    kind = pl.when(pl.col("golden_row").is_null()).then(int(MatchKind.NONE)).otherwise(int(MatchKind.TRANSLATED))
    rows = rows.with_columns(match=kind, before=2 * pl.col("target_row") + 1, tier=pl.lit(0)).select(alone.columns)
    every = pl.concat([rows, alone], how="vertical_relaxed").sort("before", "tier", "golden_row", maintain_order=True)
    return every.select(pl.col(name).cast(kind) for name, kind in PAIR_ROWS.items())


def _next_records(met: pl.DataFrame, spans: pl.DataFrame, notes: list[str]) -> pl.Series:
    """The first target row of the next record, in golden order, of those that stand in one order on both sides."""
    pairs = met.drop_nulls("target_op").group_by("target_op").agg(pl.col("golden_row").min()).sort("target_op")
    straight = rules.longest_increasing(pairs["golden_row"].to_list())
    if len(straight) < pairs.height:
        crossing = pairs.height - len(straight)
        what = "1 op runs" if crossing == 1 else f"{crossing:,} ops run"
        notes.append(f"{what} in another order on the golden side: the target's order is shown")
    guides = pairs[straight].join(spans, left_on="target_op", right_on="op", how="left", maintain_order="left")
    at = met.select("golden_row").join(
        guides.select("golden_row", "first"), on="golden_row", how="left", maintain_order="left"
    )
    return at["first"].backward_fill()


def _with_joins(ours: Side, golden: DumpTable, rows: pl.DataFrame, backend: str, notes: list[str]) -> DumpTable:
    """The target's table with the joins that need both sides: heads put in order, padded tokens left out."""
    table = ours.table
    pairs = rows.drop_nulls(["target_row", "golden_row"]).select("target_row", "golden_row")
    sides = [side.rows[pairs[f"{name}_row"]] for side, name in ((table, "target"), (golden, "golden"))]
    facts = pairs.with_columns(
        sides[0].select("op", "section", file="data_name", kind="kind"),
        slot=pl.Series(table.slots, dtype=pl.String).gather(sides[0]["slot"]),
        shape=pl.Series(table.shapes, dtype=pl.String).gather(sides[0]["shape"]),
        golden_shape=pl.Series(golden.shapes, dtype=pl.String).gather(sides[1]["shape"]),
        golden_file=sides[1]["data_name"],
    ).filter((pl.col("kind") == RowKind.TENSOR) & (sides[1]["kind"] == RowKind.TENSOR))
    joins = dict(table.joins)
    saved = facts.drop_nulls(["file", "golden_file"])
    if backend == "megatron":
        joins |= _regrouped(ours, saved, notes)
    padded = _padded(facts)
    for row, file in padded.drop_nulls(["file", "golden_file"]).select("target_row", "file").iter_rows():
        joins[row] = replace(joins.get(row, Join((("", file),))), trim=True)
    if padded.height:
        read = saved.height > 0
        notes.append(
            f"{padded.height:,} target tensors hold more tokens than golden's: "
            + ("taken for padding and left out" if read else "if that is padding, their statistics count it in")
        )
    return replace(table, joins=joins)


def _padded(facts: pl.DataFrame) -> pl.DataFrame:
    """Pairs of inputs or outputs of which the target's has more tokens."""
    kinds = ["section", "shape", "golden_shape"]
    moving = facts.filter(pl.col("section") != Section.PARAMETERS)
    unique = moving.select(kinds).unique(maintain_order=True)
    found = [
        rules.is_padded(*(rules.joined_sizes(text, axis_of(section)) for text in texts))
        for section, *texts in unique.iter_rows()
    ]
    known = unique.filter(pl.Series(found, dtype=pl.Boolean))
    return moving.join(known, on=kinds, how="semi", maintain_order="left")


def _regrouped(ours: Side, saved: pl.DataFrame, notes: list[str]) -> dict[int, Join]:
    """Joins that bring the heads of a fused projection, which stand group by group, into the order of inference."""
    table = ours.table
    modules = ours.ops.select(
        holder=pl.col("base").str.extract(_MODULE, 1), module=pl.col("base").str.extract(_MODULE, 2)
    ).with_row_index("op")
    wanted = saved.filter(pl.col("slot").is_in(_HEADED)).join(modules, on="op", how="left", maintain_order="left")
    wanted = wanted.filter(pl.col("module") == "linear_qkv")
    around = (
        table.rows.select(
            "op",
            slot=pl.Series(table.slots, dtype=pl.String).gather(table.rows["slot"]),
            shape=pl.Series(table.shapes, dtype=pl.String).gather(table.rows["shape"]),
        )
        .join(modules, on="op", how="left", maintain_order="left")
        .join(wanted.select("holder").unique(), on="holder", how="semi", maintain_order="left")
        .select("holder", "shape", place=pl.col("module") + pl.col("slot"))
        .filter(pl.col("place").is_in(rules.HEAD_PLACES))
        .unique(["holder", "place"], keep="first", maintain_order=True)
    )
    shapes: dict[str, dict[str, tuple[int, ...]]] = {}
    for holder, shape, place in around.iter_rows():
        if (sizes := rules.sizes_of(shape)) is not None:
            shapes.setdefault(holder, {})[place] = sizes
    joins: dict[int, Join] = {}
    unknown = 0
    for row, holder, shape, section, file in wanted.select(
        "target_row", "holder", "shape", "section", "file"
    ).iter_rows():
        axis = axis_of(section) or 0
        sizes = rules.sizes_of(shape)
        blocks = rules.head_blocks(sizes[axis], shapes.get(holder, {})) if sizes else None
        unknown += blocks is None
        if blocks:
            joins[row] = Join((("", file),), axis=axis, regroup=blocks)
    if unknown:
        notes.append(
            f"how the heads of linear_qkv are grouped cannot be told for {unknown:,} tensors (no shapes of core_attention, q_layernorm "
            "or linear_proj that fit): they are compared as they stand, which is right for one group of heads only"
        )
    return joins
