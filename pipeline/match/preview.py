"""How two dumps would pair, counted by the way each op finds its partner; the dry run's numbers. No tensor is read."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl
from opassay.kernels import match_keys
from opassay.pipeline.match.ops import pair_ops
from opassay.pipeline.match.pairing import pair_dumps
from opassay.schemas.dump_rows import DumpTable
from opassay.schemas.options import Matching
from opassay.schemas.vocab import MatchKind

WAYS: Final = {
    MatchKind.EXACT: "by name",
    MatchKind.APPEARANCE: "in order of appearance (recomputation)",
    MatchKind.LAYOUT: "across layouts of parameters_grad",
    MatchKind.WRAPPER: "without wrappers",
    MatchKind.MAPPED: "by the mapping file",
    MatchKind.MAPPED_WRAPPER: "by the mapping file, without wrappers",
    MatchKind.TRANSLATED: "by the names of the backend",
    MatchKind.API_TABLE: "by the table of MindSpore and PyTorch names",
    MatchKind.FUZZY: "with another call index (-fm)",
}
"""What a match kind is called in the dry run, in the order in which it is printed."""

_NAMED: Final = 8
_CANDIDATES: Final = 4_000  # names that a name without a partner is held against


@dataclass(frozen=True, slots=True)
class Lonely:
    """An op without a partner and the names of the other side that look most like it."""

    name: str
    nearest: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preview:
    """How two dumps would pair.

    Attributes
    ----------
    target_ops, golden_ops, target_rows, golden_rows : int
        Sizes: ops that have rows, and their rows, as they would be compared.
    ways : dict of MatchKind to int
        Target ops by the way they pair.
    target_alone, golden_alone : int
        Ops without a partner.
    rows : int
        Rows that would be compared.
    fuzzy_more, fuzzy_other : int
        Target ops without a partner that ``-fm`` would pair, and ops that it would pair with another call.
    lonely : tuple of Lonely
        The first target ops that no way pairs.
    notes, warnings : list of str
        As the comparison would log them.
    """

    target_ops: int
    golden_ops: int
    target_rows: int
    golden_rows: int
    ways: dict[MatchKind, int]
    target_alone: int
    golden_alone: int
    rows: int
    fuzzy_more: int
    fuzzy_other: int
    lonely: tuple[Lonely, ...]
    notes: list[str]
    warnings: list[str]


def preview(target: DumpTable, golden: DumpTable, matching: Matching) -> Preview:
    """Pair two dumps as a comparison would, and count.

    Parameters
    ----------
    target, golden : DumpTable
        The two sides.
    matching : Matching
        How they may meet.
    """
    found = pair_dumps(target, golden, matching)
    ours, theirs = found.target, found.golden
    met = found.rows.filter(pl.col("target_row").is_not_null() & pl.col("golden_row").is_not_null()).select(
        "match",
        target_op=pl.lit(ours.rows["op"]).gather("target_row"),
        golden_op=pl.lit(theirs.rows["op"]).gather("golden_row"),
    )
    by_op = met.group_by("target_op").agg(pl.col("match").max()).sort("target_op")
    counts = dict(by_op["match"].value_counts().iter_rows())
    with_rows = [table.rows["op"].unique() for table in (ours, theirs)]
    alone = [
        table.ops["name"].gather(ops.filter(~ops.is_in(met[column].unique().implode())).sort())
        for table, ops, column in zip((ours, theirs), with_rows, ("target_op", "golden_op"), strict=True)
    ]
    left = alone[0]
    other = 0
    if (
        not matching.fuzzy
        and matching.backend is None
        and matching.data_mapping is None
        and alone[0].len() + alone[1].len()
    ):
        fuzzy = pair_ops(target, golden, replace(matching, fuzzy=True)).frame
        known = target.ops["name"].gather(fuzzy["target_op"])
        left = left.filter(~left.is_in(known.implode()))
        moved = met.unique(["target_op"]).join(fuzzy, on="target_op", suffix="_fuzzy")
        other = moved.filter(pl.col("golden_op") != pl.col("golden_op_fuzzy")).height
    return Preview(
        with_rows[0].len(),
        with_rows[1].len(),
        ours.rows.height,
        theirs.rows.height,
        {kind: counts[kind] for kind in WAYS if counts.get(kind)},
        alone[0].len(),
        alone[1].len(),
        met.height,
        alone[0].len() - left.len(),
        other,
        _nearest(left, alone[1], theirs.ops["name"]),
        found.notes,
        found.warnings,
    )


def _nearest(lonely: pl.Series, free: pl.Series, every: pl.Series) -> tuple[Lonely, ...]:
    """The first names without a partner, one a call-free key, each with the names most like it: free ones first, else any."""
    shown = _one_a_key(lonely).head(_NAMED).to_list()
    pools = [_one_a_key(names).head(_CANDIDATES).to_list() for names in (free, every)]
    return tuple(Lonely(name, _close(name, pools)) for name in shown)


def _one_a_key(names: pl.Series) -> pl.Series:
    """The first call of each op."""
    keyed = pl.DataFrame({"name": names}).with_columns(key=match_keys.fuzzy_key(pl.col("name")))
    return keyed.unique("key", keep="first", maintain_order=True)["name"]


def _close(name: str, pools: Sequence[Sequence[str]]) -> tuple[str, ...]:
    for pool in pools:
        if found := difflib.get_close_matches(name, [one for one in pool if one != name], n=2, cutoff=0.6):
            return tuple(found)
    return ()
