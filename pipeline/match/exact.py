"""Exact matching: ops by name, then the rows of two matched ops by slot. Second station of the flow: DumpTable x 2 -> pairs.

Joins run over op numbers and slot codes, never over the long row names, so a million rows a side join in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray
from opassay.kernels import match_keys
from opassay.schemas.dump_rows import DumpTable
from opassay.schemas.pair_rows import PAIR_ROWS
from opassay.schemas.vocab import MatchKind


@dataclass(slots=True)
class Pairing:
    """Outcome of matching.

    Attributes
    ----------
    rows : polars.DataFrame
        Schema ``PAIR_ROWS``: target order, golden-only rows behind.
    notes : list of str
        What the log should say about how ops were matched.
    """

    rows: pl.DataFrame
    notes: list[str] = field(default_factory=list)


def pair_exact(target: DumpTable, golden: DumpTable) -> Pairing:
    """Match two dumps by op name and slot.

    Parameters
    ----------
    target, golden : DumpTable
        The two sides; row numbers of the result refer to their ``rows``.

    Returns
    -------
    Pairing
        Every row of either side exactly once: the k-th occurrence of a name meets the k-th.
    """
    ops, notes = pair_ops(target.ops, golden.ops)
    return Pairing(pair_slots(target, golden, ops), notes)


def pair_ops(target: pl.DataFrame, golden: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Match op tables: call index first, order of appearance only for recomputed backward ops (decision 6).

    Returns
    -------
    pairs : polars.DataFrame
        ``target_op``, ``golden_op`` (UInt32) and ``match`` (UInt8), in target order.
    notes : list of str
        One line if ops were paired in order of appearance, one if by the layout of parameter gradients.
    """
    sides = [ops.with_row_index("op").with_columns(match_keys.parts(pl.col("name"))) for ops in (target, golden)]
    drifting = match_keys.renumbered(*sides)
    keyed = [_keyed(side, drifting) for side in sides]
    kind = (
        pl.when(pl.col("name") == pl.col("name_golden"))
        .then(MatchKind.EXACT)
        .when(pl.col("drifts"))
        .then(MatchKind.APPEARANCE)
        .otherwise(MatchKind.LAYOUT)
    )
    pairs = (
        keyed[0]
        .join(keyed[1], on=["key", "nth"], how="inner", suffix="_golden", maintain_order="left")
        .select(
            pl.col("op").alias("target_op"),
            pl.col("op_golden").alias("golden_op"),
            kind.cast(pl.UInt8).alias("match"),
        )
        .collect()
    )
    notes = []
    if drifting.height:
        some = ", ".join(drifting["base"].head(3)) + (", ..." if drifting.height > 3 else "")
        notes.append(
            f"backward calls of {drifting.height:,} operators carry other call indexes on the two sides, as recomputation makes "
            f"them: paired in order of appearance ({some})"
        )
    if (renamed := pairs.filter(pl.col("match") == MatchKind.LAYOUT).height) > 0:
        notes.append(f"{renamed:,} parameters_grad records pair across the old and the numbered layout")
    return pairs, notes


def _keyed(side: pl.DataFrame, drifting: pl.DataFrame) -> pl.LazyFrame:
    drifts = (pl.col("way") == "backward") & pl.col("base").is_in(drifting["base"].implode())
    return (
        side.lazy()
        .with_columns(drifts=drifts.fill_null(False))
        .with_columns(
            key=pl.when(pl.col("drifts"))
            .then(pl.col("base") + "\x00backward")
            .otherwise(match_keys.gradient_layout(pl.col("name")))
        )
        .with_columns(nth=pl.int_range(pl.len(), dtype=pl.UInt32).over("key"))
        .select("op", "name", "key", "nth", "drifts")
    )


def pair_slots(target: DumpTable, golden: DumpTable, ops: pl.DataFrame) -> pl.DataFrame:
    """Match the rows of matched ops by slot.

    Parameters
    ----------
    target, golden : DumpTable
        The two sides.
    ops : polars.DataFrame
        ``target_op``, ``golden_op``, ``match``; a golden op may serve one target op.

    Returns
    -------
    polars.DataFrame
        Schema ``PAIR_ROWS``.
    """
    target_ops = target.ops.height
    codes = _shared_codes(target.slots, golden.slots)
    ours = _slot_keys(target.rows, pl.col("op"), pl.col("slot"))
    group_of = (
        pl.DataFrame({"op": pl.int_range(golden.ops.height, dtype=pl.UInt32, eager=True)})
        .join(
            ops.select(pl.col("golden_op").alias("op"), "target_op", "match"),
            on="op",
            how="left",
            maintain_order="left",
        )
        .with_columns(group=pl.col("target_op").fill_null(pl.col("op") + target_ops).cast(pl.UInt32))
    )
    theirs = _slot_keys(
        golden.rows,
        pl.lit(group_of["group"]).gather(pl.col("op")),
        pl.lit(codes).gather(pl.col("slot")),
    )
    kinds = (
        pl.DataFrame({"op": pl.int_range(target_ops, dtype=pl.UInt32, eager=True)})
        .join(ops.select(pl.col("target_op").alias("op"), "match"), on="op", how="left", maintain_order="left")["match"]
        .fill_null(MatchKind.NONE)
    )
    joined = ours.lazy().join(theirs.lazy(), on=["key", "nth"], how="left", maintain_order="left", suffix="_golden")
    matched = joined.select(
        pl.col("row").alias("target_row"),
        pl.col("row_golden").alias("golden_row"),
        pl.col("group"),
        pl.when(pl.col("row_golden").is_null())
        .then(MatchKind.NONE)
        .otherwise(pl.lit(kinds).gather(pl.col("group")))
        .cast(pl.UInt8)
        .alias("match"),
    ).collect()
    taken = matched["golden_row"].drop_nulls()
    alone = theirs.filter(~pl.Series(_mask(theirs.height, taken))).select(
        pl.lit(None, dtype=pl.UInt32).alias("target_row"),
        pl.col("row").alias("golden_row"),
        pl.col("group"),
        pl.lit(MatchKind.NONE, dtype=pl.UInt8).alias("match"),
    )
    return pl.concat([matched, alone]).select(pl.col(name).cast(kind) for name, kind in PAIR_ROWS.items())


def _slot_keys(rows: pl.DataFrame, group: pl.Expr, slot: pl.Expr) -> pl.DataFrame:
    """Row numbers with a 64-bit key (group, slot) and the count of earlier rows with the same key."""
    frame = rows.select(
        group.cast(pl.UInt32).alias("group"),
        slot.cast(pl.UInt64).alias("slot"),
    ).with_row_index("row")
    keyed = frame.select("row", "group", key=pl.col("group").cast(pl.UInt64) * (1 << 32) + pl.col("slot"))
    if keyed["key"].n_unique() == keyed.height:
        return keyed.with_columns(nth=pl.lit(0, dtype=pl.UInt32))
    return keyed.with_columns(nth=pl.int_range(pl.len(), dtype=pl.UInt32).over("key"))


def _shared_codes(target: Sequence[str], golden: Sequence[str]) -> pl.Series:
    """Golden slot codes in the target's numbering; texts that only golden has get numbers behind."""
    known = {text: code for code, text in enumerate(target)}
    return pl.Series([known.setdefault(text, len(known)) for text in golden], dtype=pl.UInt32)


def _mask(height: int, taken: pl.Series) -> NDArray[np.bool_]:
    mask = np.zeros(height, dtype=bool)
    mask[taken.to_numpy()] = True
    return mask
