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
    """An op without a partner.

    Attributes
    ----------
    name : str
        Its name.
    nearest : tuple of str
        Names of the other side that look most like it, of the same direction and without a partner themselves.
    taken : bool
        There is none, but names like it that have a partner.
    fuzzy : str
        Its partner with ``-fm``; "" for none.
    """

    name: str
    nearest: tuple[str, ...] = ()
    taken: bool = False
    fuzzy: str = ""


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
    fuzzy_more, fuzzy_other, fuzzy_lost : int
        Target ops without a partner that ``-fm`` would pair, ops that it would pair with another call, and ops that pair now and
        would not.
    target_lonely, golden_lonely : tuple of Lonely
        Ops without a partner: the first call of the first few, or all.
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
    fuzzy_lost: int
    target_lonely: tuple[Lonely, ...]
    golden_lonely: tuple[Lonely, ...]
    notes: list[str]
    warnings: list[str]


def preview(target: DumpTable, golden: DumpTable, matching: Matching, *, every: bool = False) -> Preview:
    """Pair two dumps as a comparison would, and count.

    Parameters
    ----------
    target, golden : DumpTable
        The two sides.
    matching : Matching
        How they may meet.
    every : bool
        Name all ops without a partner.
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
    other = lost = 0
    by_fuzzy: list[dict[str, str]] = [{}, {}]
    if (
        not matching.fuzzy
        and matching.backend is None
        and matching.data_mapping is None
        and alone[0].len() + alone[1].len()
    ):
        fuzzy = pair_ops(target, golden, replace(matching, fuzzy=True)).frame
        names = [
            table.ops["name"].gather(fuzzy[column]).to_list()
            for table, column in ((target, "target_op"), (golden, "golden_op"))
        ]
        by_fuzzy = [dict(zip(*names, strict=True)), dict(zip(*names[::-1], strict=True))]
        lost = by_op.join(fuzzy, on="target_op", how="anti").height
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
        sum(name in by_fuzzy[0] for name in alone[0]),
        other,
        lost,
        _lonely(alone[0], alone[1], theirs.ops["name"], by_fuzzy[0], every=every),
        _lonely(alone[1], alone[0], ours.ops["name"], by_fuzzy[1], every=every),
        found.notes,
        found.warnings,
    )


def _lonely(
    names: pl.Series, free: pl.Series, others: pl.Series, fuzzy: dict[str, str], *, every: bool
) -> tuple[Lonely, ...]:
    """Names without a partner, the first of each call-free key; names like them where it is told quickly: of the first few.

    Parameters
    ----------
    names : polars.Series
        Ops of one side without a partner.
    free, others : polars.Series
        Ops of the other side: those without a partner, and all.
    fuzzy : dict of str to str
        Partners with ``-fm``.
    every : bool
        All names, of every call.
    """
    first = _one_a_key(names).head(_NAMED)
    pools = [_one_a_key(pool).head(_CANDIDATES) for pool in (free, others)]
    told = {one["name"]: _told(one, pools, fuzzy) for one in first.iter_rows(named=True)}
    if not every:
        return tuple(told.values())
    return tuple(told.get(name) or Lonely(name, fuzzy=fuzzy.get(name, "")) for name in names)


def _one_a_key(names: pl.Series) -> pl.DataFrame:
    """``name``, the first call of each op, and ``way``: forward, backward, parameters_grad or debug."""
    key = match_keys.fuzzy_key(pl.col("name"))
    keyed = pl.DataFrame({"name": names}).with_columns(key=key, way=key.str.extract(r"([^.]*)$"))
    return keyed.unique("key", keep="first", maintain_order=True)


def _told(one: dict[str, str], pools: Sequence[pl.DataFrame], fuzzy: dict[str, str]) -> Lonely:
    name = one["name"]
    if name in fuzzy:
        return Lonely(name, fuzzy=fuzzy[name])
    free, others = (pool.filter(pl.col("way") == one["way"])["name"].to_list() for pool in pools)
    nearest = difflib.get_close_matches(name, free, n=2, cutoff=0.6)
    return Lonely(name, tuple(nearest), not nearest and bool(difflib.get_close_matches(name, others, n=1, cutoff=0.6)))
