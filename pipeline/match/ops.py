"""Exact matching: ops by name, then the rows of two matched ops by slot. Second station of the flow: DumpTable x 2 -> pairs.

Joins run over op numbers and slot codes, never over the long row names, so a million rows a side join in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """Match op tables: equal names first; what is left over in order of appearance (recomputed backward ops, decision 6), across the
    layouts of parameter gradients (decision 21) or without the names of wrappers.

    Parameters
    ----------
    target, golden : polars.DataFrame
        Schema ``OPS``; names are unique.

    Returns
    -------
    pairs : polars.DataFrame
        ``target_op``, ``golden_op`` (UInt32) and ``match`` (UInt8), in target order.
    notes : list of str
        One line if ops were paired in order of appearance, one if by the layout of parameter gradients.
    """
    ours, theirs = (side.select("name").with_row_index("op") for side in (target, golden))
    exact = ours.join(theirs, on="name", how="inner", suffix="_golden", maintain_order="left")
    pairs = _as_pairs(exact, MatchKind.EXACT)
    alone = [side.join(exact, on="name", how="anti", maintain_order="left") for side in (ours, theirs)]
    if alone[0].is_empty() or alone[1].is_empty():
        return pairs, []
    drifting, bases = _pair_drifting(ours, theirs, alone)
    dropped = drifting["target_op"].implode()
    pairs = pl.concat([pairs.filter(~pl.col("target_op").is_in(dropped)), drifting])
    layout = _pair_by_key(ours, theirs, pairs, match_keys.gradient_layout, MatchKind.LAYOUT)
    pairs = pl.concat([pairs, layout])
    wrapped = _pair_by_key(ours, theirs, pairs, match_keys.unwrapped, MatchKind.WRAPPER)
    pairs = pl.concat([pairs, wrapped]).sort("target_op")
    notes = []
    if bases:
        some = ", ".join(bases[:3]) + (", ..." if len(bases) > 3 else "")
        notes.append(
            f"backward calls of {len(bases):,} operators carry other call indexes on the two sides, as recomputation makes "
            f"them: paired in order of appearance ({some})"
        )
    if layout.height:
        notes.append(f"{layout.height:,} parameters_grad records pair across the old and the numbered layout")
    if wrapped.height:
        words = ", ".join(match_keys.WRAPPERS)
        notes.append(f"{wrapped.height:,} records pair only without the names of wrappers ({words}) in the module path")
    return pairs, notes


def _pair_drifting(
    ours: pl.DataFrame, theirs: pl.DataFrame, alone: Sequence[pl.DataFrame]
) -> tuple[pl.DataFrame, list[str]]:
    """Backward ops whose index sets differ and are of one size, all of them, the k-th with the k-th."""
    parsed = [
        side.with_columns(match_keys.parts(pl.col("name"))).filter(pl.col("way") == "backward")
        for side in (ours, theirs)
    ]
    left = [side.select(match_keys.parts(pl.col("name"))).filter(pl.col("way") == "backward") for side in alone]
    suspects = left[0].select("base").unique().join(left[1].select("base").unique(), on="base")
    parsed = [side.join(suspects, on="base", how="semi", maintain_order="left") for side in parsed]
    bases = match_keys.renumbered(*parsed)
    nth = pl.int_range(pl.len(), dtype=pl.UInt32).over("base").alias("nth")
    counted = [side.join(bases, on="base", how="semi", maintain_order="left").with_columns(nth) for side in parsed]
    found = counted[0].join(counted[1], on=["base", "nth"], suffix="_golden", maintain_order="left")
    return _as_pairs(found, MatchKind.APPEARANCE), bases["base"].to_list()


def _pair_by_key(
    ours: pl.DataFrame, theirs: pl.DataFrame, pairs: pl.DataFrame, key: Callable[[pl.Expr], pl.Expr], kind: MatchKind
) -> pl.DataFrame:
    """Ops that no earlier way has paired and whose names agree under a key; a key that is not unique on a side pairs nothing."""
    free = [
        side.join(pairs, left_on="op", right_on=column, how="anti", maintain_order="left")
        .with_columns(key=key(pl.col("name")))
        .unique("key", keep="none", maintain_order=True)
        for side, column in ((ours, "target_op"), (theirs, "golden_op"))
    ]
    return _as_pairs(free[0].join(free[1], on="key", suffix="_golden", maintain_order="left"), kind)


def _as_pairs(joined: pl.DataFrame, kind: MatchKind) -> pl.DataFrame:
    return joined.select(
        pl.col("op").alias("target_op"),
        pl.col("op_golden").alias("golden_op"),
        pl.lit(int(kind), dtype=pl.UInt8).alias("match"),
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
