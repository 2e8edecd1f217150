"""Tables made of a dump for training against inference: records that count, projections that are one row. Second half of
``train_infer``, which decides what belongs together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl
from opassay.kernels import joined_statistics
from opassay.kernels import train_infer as rules
from opassay.kernels.scopes import elements_of
from opassay.schemas.dump_rows import OPS, ROWS, STATISTICS, DumpTable, Join
from opassay.schemas.vocab import RowKind, Section, StatKind

KEY: Final = ["unit", "slot_code", "nth"]
"""By what rows of the two sides meet: module and call, slot, and the count of equal ones before."""

_FACTS: Final = [f"{stat}{suffix}" for stat in STATISTICS for suffix in ("", "_kind")]


@dataclass(slots=True)
class Side:
    """A derived table; ``keys`` has ``unit``, ``slot_code``, ``nth`` of each of its rows, ``ops`` what is known of its ops."""

    table: DumpTable
    keys: pl.DataFrame
    ops: pl.DataFrame


def derived(table: DumpTable, rows: pl.DataFrame, ops: pl.DataFrame, notes: list[str]) -> Side:
    """The table of the records that count, with one row for the parts of a projection that the other side holds as one.

    Parameters
    ----------
    table : DumpTable
        As read.
    rows : polars.DataFrame
        Rows to keep: ``row``, ``op``, ``part`` (from 1; 0 for what is no part) and the key ``unit``, ``slot_code``, ``nth``.
    ops : polars.DataFrame
        Every op: ``op``, ``name``, ``used``, ``unit``, ``part``, ``fused``, ``base``.
    notes : list of str
        Gets a line for each part that is not there.
    """
    parts = rows.filter(pl.col("part") > 0).sort(*KEY, "part")
    parts = parts.with_columns(
        lead=pl.col("row").first().over(KEY), lead_op=pl.col("op").sort_by("part").first().over("unit")
    )
    sizes = {rule.fused: len(rule.parts) for rule in rules.FUSED}
    fused = ops.select("op", wanted=pl.col("fused").str.extract(r"([^.]+)$").replace_strict(sizes, default=None))
    parts = parts.join(fused, on="op", how="left", maintain_order="left").with_columns(
        complete=pl.len().over(KEY) == pl.col("wanted")
    )
    _note_missing(ops, notes)
    kept = rows.join(parts.select("row", "lead", "lead_op"), on="row", how="left", maintain_order="left")
    kept = kept.filter(pl.col("lead").is_null() | (pl.col("lead") == pl.col("row")))
    kept = kept.with_columns(op=pl.coalesce("lead_op", "op"), section=table.rows["section"].gather(kept["row"]))
    kept = kept.sort("op", "section", "row", maintain_order=True)
    used = ops.filter("used")
    numbers = used.select("op").with_row_index("number")
    picked = table.rows[kept["row"]].with_columns(
        op=kept.select("op").join(numbers, on="op", how="left", maintain_order="left")["number"]
    )
    derived = replace(table, ops=used.select(OPS.keys()), rows=picked)
    if parts.height:
        places = kept.select(pl.col("row").alias("lead")).with_row_index("place")
        derived = _with_joined_rows(derived, table, parts, places)
    return Side(derived, kept.select(KEY), used)


def _note_missing(ops: pl.DataFrame, notes: list[str]) -> None:
    """Say where a part of a projection is not in the dump."""
    units = (
        ops.filter(pl.col("part") > 0)
        .group_by("unit", maintain_order=True)
        .agg(pl.col("part"), pl.col("fused").first(), pl.col("base").first())
    )
    sizes = {rule.fused: rule.parts for rule in rules.FUSED}
    lacking: dict[tuple[str, str], list[str]] = {}
    for there, fused, base in units.select("part", "fused", "base").iter_rows():
        names = sizes[fused.rpartition(".")[2]]
        missing = [name for at, name in enumerate(names, start=1) if at not in there]
        if missing:
            lacking.setdefault((fused.rpartition(".")[2], ", ".join(missing)), []).append(base)
    for (fused, absent), bases in lacking.items():
        notes.append(
            f"{absent} is not in the dump beside {bases[0]}{f' and {len(bases) - 1:,} more' if len(bases) > 1 else ''}: what is there "
            f"is joined and its inputs compared with {fused}'s; its parameters and outputs are not the whole"
        )


def _with_joined_rows(derived: DumpTable, table: DumpTable, parts: pl.DataFrame, places: pl.DataFrame) -> DumpTable:
    """Put the joined facts of all parts into the rows that stand for them; ``places`` has the derived row of each ``lead``."""
    rows, slots = table.rows[parts["row"]], pl.Series(table.slots, dtype=pl.String)
    elements = pl.Series([elements_of(shape) for shape in table.shapes], dtype=pl.Float64)
    facts = rows.select(*_FACTS, "section", "kind", "md5", "data_name", "name", "dtype", "shape").with_columns(
        lead=parts["lead"],
        name=pl.coalesce(rows["name"], table.ops["name"].gather(rows["op"]) + slots.gather(rows["slot"])),
        dtype=pl.Series(table.dtypes, dtype=pl.String).gather(rows["dtype"]),
        shape=pl.Series(table.shapes, dtype=pl.String).gather(rows["shape"]),
        elements=elements.gather(rows["shape"]),
        whole=rows["section"] < Section.PARAMETERS,
        tensor=rows["kind"] == RowKind.TENSOR,
        complete=parts["complete"],
    )
    texts = {"dtype": ";", "shape": ";", "name": ";  "}
    joined = facts.group_by("lead", maintain_order=True).agg(
        *(pl.col(name).filter(pl.col(name) != "").str.join(between).alias(name) for name, between in texts.items()),
        files=pl.col("data_name"),
        data_name=pl.when(pl.col("data_name").null_count() == 0).then(pl.col("data_name").str.join(";")),
        md5=pl.when(pl.col("whole").first()).then(pl.col("md5").first()),
        section=pl.col("section").first(),
        merges=~pl.col("whole").first() & pl.col("tensor").any(),
        lacks=~pl.col("whole").first() & ~pl.col("complete").first(),
    )
    merged = joined_statistics.merged(facts.join(joined.select("lead", "merges"), on="lead").filter("merges"), "lead")
    lacks = pl.col("lacks")  # statistics of some parts are none of the whole
    merged = merged.join(joined.select("lead", "lacks"), on="lead", how="left", maintain_order="left").with_columns(
        *(pl.when(~lacks).then(stat).alias(stat) for stat in STATISTICS),
        *(
            pl.when(~lacks).then(f"{stat}_kind").otherwise(int(StatKind.NONE)).alias(f"{stat}_kind")
            for stat in STATISTICS
        ),
    )
    joined = joined.join(places, on="lead", how="left", maintain_order="left")
    dtypes, dtype_codes = _extended(table.dtypes, joined["dtype"])
    shapes, shape_codes = _extended(table.shapes, joined["shape"])
    new = joined.select("place", "lead", "name", "data_name", "md5", dtype=dtype_codes, shape=shape_codes)
    new = new.join(
        merged.drop("elements", "lacks").with_columns(has=True), on="lead", how="left", maintain_order="left"
    ).with_columns(touched=True)
    after = derived.rows.with_row_index("place").join(new, on="place", how="left", maintain_order="left", suffix="_new")
    changes = [(name, pl.col("touched")) for name in ("name", "data_name", "md5", "dtype", "shape")] + [
        (name, pl.col("has")) for name in _FACTS
    ]
    after = after.with_columns(
        pl.when(when).then(pl.col(f"{name}_new")).otherwise(pl.col(name)).alias(name) for name, when in changes
    )
    joins = {
        place: _join_of(files, section, lacks=lacks)
        for place, files, section, lacks in joined.select("place", "files", "section", "lacks")
        .sort("place")
        .iter_rows()
    }
    return replace(
        derived,
        rows=after.select(pl.col(name).cast(kind) for name, kind in ROWS.items()),
        dtypes=dtypes,
        shapes=shapes,
        joins=joins,
    )


def _join_of(files: Sequence[str | None], section: int, *, lacks: bool) -> Join:
    """How the tensor of a joined row is made; no parts where a file is not recorded (the row then has no data_name)."""
    parts = tuple(("", file) for file in files if file)
    axis = axis_of(section)
    if len(parts) < len(files):
        told = (
            f"input of the first of {len(files)} parts"
            if axis is None
            else f"{len(files)} part{'s' * (len(files) > 1)}, which {'are' if len(files) > 1 else 'is'} not the whole"
            if lacks
            else f"statistics of {len(files)} parts put together"
        )
        return Join((), told="" if parts else told)
    return Join(parts[:1]) if axis is None else Join(parts, axis=axis)


def axis_of(section: int) -> int | None:
    """Axis of the concatenation; None for inputs: each part is given the same tensor, and the first is enough."""
    if section < Section.PARAMETERS:
        return None
    return 0 if section == Section.PARAMETERS else -1


def _extended(texts: Sequence[str], new: pl.Series) -> tuple[list[str], pl.Series]:
    """A dictionary with the new texts behind, and the codes of these."""
    known = {text: code for code, text in enumerate(texts)}
    added = [text for text in new.unique(maintain_order=True) if text not in known]
    known |= {text: code for code, text in enumerate(added, start=len(texts))}
    return [*texts, *added], pl.Series([known[text] for text in new], dtype=pl.UInt32)
