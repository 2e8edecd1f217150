"""Rows that the user's data mapping pairs by name (``-dm``); all others keep the partner that their own name gives them."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from opassay.pipeline.match.ops import some
from opassay.pipeline.match.slots import with_golden_only
from opassay.schemas.dump_rows import DumpTable
from opassay.schemas.vocab import MatchKind


def redirect(
    rows: pl.DataFrame, target: DumpTable, golden: DumpTable, ops: pl.DataFrame, mapping: Mapping[str, str]
) -> tuple[pl.DataFrame, list[str]]:
    """Put the golden rows that a mapping names beside its target rows.

    Parameters
    ----------
    rows : polars.DataFrame
        Schema ``PAIR_ROWS``, paired by name.
    target, golden : DumpTable
        The two sides.
    ops : polars.DataFrame
        The op pairs behind ``rows``.
    mapping : mapping of str to str
        Target row name -> golden row name: the name a report shows, or the record's name with the place in it (they differ where
        a saved tensor has another name).

    Returns
    -------
    rows : polars.DataFrame
        Schema ``PAIR_ROWS``. A golden row may serve several target rows; a target row whose golden name does not exist has none.
    warnings : list of str
        Lines that no target row has, golden names that do not exist.
    """
    lines = pl.DataFrame({"key": list(mapping), "value": list(mapping.values())}, schema=["key", "value"])
    ours, theirs = _named(target, lines["key"], "target_row"), _named(golden, lines["value"].unique(), "golden_row")
    found = (
        ours.join(lines, left_on="name", right_on="key", how="inner", maintain_order="left")
        .join(theirs, left_on=["value", "nth"], right_on=["name", "nth"], how="left", maintain_order="left")
        .unique("target_row", keep="first", maintain_order=True)
        .select("target_row", named="golden_row", listed=pl.lit(True))
    )
    matched = (
        rows.filter(pl.col("target_row").is_not_null())
        .join(found, on="target_row", how="left", maintain_order="left")
        .with_columns(
            golden_row=pl.when("listed").then("named").otherwise("golden_row"),
            match=pl.when("listed")
            .then(
                pl.when(pl.col("named").is_null())
                .then(int(MatchKind.NONE))
                .when(pl.col("named") == pl.col("golden_row"))
                .then("match")
                .otherwise(int(MatchKind.MAPPED))
            )
            .otherwise("match"),
        )
    )
    warnings = []
    if unused := lines.join(ours, left_on="key", right_on="name", how="anti", maintain_order="left")["key"].to_list():
        warnings.append(f"lines of the data mapping that no target row has: {some(unused)}")
    if unknown := lines.join(theirs, left_on="value", right_on="name", how="anti", maintain_order="left")[
        "value"
    ].to_list():
        warnings.append(f"golden names of the data mapping that do not exist in the dump: {some(unknown)}")
    return with_golden_only(matched, golden, ops, target.ops.height), warnings


def _named(table: DumpTable, wanted: pl.Series, row: str) -> pl.DataFrame:
    """Rows with one of these names under either spelling: ``name``, the row's number, and which of several of that name it is."""
    ops, slots = table.ops["name"], pl.Series(table.slots, dtype=pl.String)
    spelt = table.rows.lazy().select(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias(row),
        pl.col("name").alias("shown"),
        (pl.lit(ops).gather(pl.col("op")) + pl.lit(slots).gather(pl.col("slot"))).alias("placed"),
    )
    both = pl.concat(
        [
            spelt.select(row, name=pl.coalesce("shown", "placed")),
            spelt.filter(pl.col("shown").is_not_null() & (pl.col("shown") != pl.col("placed"))).select(
                row, name="placed"
            ),
        ]
    )
    return (
        both.filter(pl.col("name").is_in(wanted.implode()))
        .with_columns(nth=pl.int_range(pl.len(), dtype=pl.UInt32).over("name"))
        .collect()
    )
