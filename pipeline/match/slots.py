"""The rows of matched ops, by slot. Joins run over op numbers and slot codes, never over the long row names, so a million rows a side
join in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from opassay.schemas.dump_rows import DumpTable
from opassay.schemas.pair_rows import PAIR_ROWS
from opassay.schemas.vocab import MatchKind


def pair_slots(target: DumpTable, golden: DumpTable, ops: pl.DataFrame) -> pl.DataFrame:
    """Match the rows of matched ops by slot.

    Parameters
    ----------
    target, golden : DumpTable
        The two sides.
    ops : polars.DataFrame
        ``target_op``, ``golden_op``, ``match``; each target op once at most.

    Returns
    -------
    polars.DataFrame
        Schema ``PAIR_ROWS``: the k-th occurrence of a slot meets the k-th; golden-only rows behind.
    """
    partner = _by_target_op(target, ops)
    codes = shared_codes(target.slots, golden.slots)
    ours = _slot_keys(target.rows, pl.col("slot")).with_columns(
        partner=partner["golden_op"].gather(target.rows["op"]), kind=partner["match"].gather(target.rows["op"])
    )
    theirs = _slot_keys(golden.rows, pl.lit(codes).gather(pl.col("slot"))).select("row", "nth", "slot", partner="op")
    matched = (
        ours.lazy()
        .join(theirs.lazy(), on=["partner", "slot", "nth"], how="left", maintain_order="left", suffix="_golden")
        .select(
            target_row="row",
            golden_row="row_golden",
            group="op",
            match=pl.when(pl.col("row_golden").is_null()).then(int(MatchKind.NONE)).otherwise("kind"),
        )
        .collect()
    )
    return with_golden_only(matched, golden, ops, target.ops.height)


def with_golden_only(matched: pl.DataFrame, golden: DumpTable, ops: pl.DataFrame, target_ops: int) -> pl.DataFrame:
    """Add the golden rows that no target row has met.

    Parameters
    ----------
    matched : polars.DataFrame
        Columns of ``PAIR_ROWS``, every target row once.
    golden : DumpTable
        The golden side.
    ops : polars.DataFrame
        ``target_op``, ``golden_op``: a golden-only row stands in the group of the first target op that its op met.
    target_ops : int
        Ops of the target; the groups of golden ops without a partner are numbered from here.
    """
    free = np.ones(golden.rows.height, dtype=bool)
    free[matched["golden_row"].drop_nulls().to_numpy()] = False
    firsts = ops.unique("golden_op", keep="first", maintain_order=True).select("target_op", op="golden_op")
    alone = (
        golden.rows.select("op")
        .with_row_index("golden_row")
        .filter(pl.Series(free))
        .join(firsts, on="op", how="left", maintain_order="left")
        .select(
            pl.lit(None, dtype=pl.UInt32).alias("target_row"),
            "golden_row",
            group=pl.col("target_op").fill_null(pl.col("op") + target_ops),
            match=pl.lit(int(MatchKind.NONE)),
        )
    )
    kinds = [pl.col(name).cast(kind) for name, kind in PAIR_ROWS.items()]
    return pl.concat([matched.select(kinds), alone.select(kinds)])


def _by_target_op(target: DumpTable, ops: pl.DataFrame) -> pl.DataFrame:
    """``golden_op`` and ``match`` of every target op, null where it has no partner."""
    every = pl.DataFrame({"target_op": pl.int_range(target.ops.height, dtype=pl.UInt32, eager=True)})
    return every.join(ops, on="target_op", how="left", maintain_order="left")


def _slot_keys(rows: pl.DataFrame, slot: pl.Expr) -> pl.DataFrame:
    """``row``, ``op``, ``slot`` and ``nth``: how many earlier rows of the op have the same slot."""
    frame = rows.select("op", slot.cast(pl.UInt32).alias("slot")).with_row_index("row")
    if frame.select(key=pl.col("op").cast(pl.UInt64) * (1 << 32) + pl.col("slot"))["key"].n_unique() == frame.height:
        return frame.with_columns(nth=pl.lit(0, dtype=pl.UInt32))
    return frame.with_columns(nth=pl.int_range(pl.len(), dtype=pl.UInt32).over("op", "slot"))


def shared_codes(target: Sequence[str], golden: Sequence[str]) -> pl.Series:
    """Golden codes of a dictionary in the target's numbering; texts that only golden has get numbers behind."""
    known = {text: code for code, text in enumerate(target)}
    return pl.Series([known.setdefault(text, len(known)) for text in golden], dtype=pl.UInt32)
