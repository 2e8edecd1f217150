"""Which op meets which: by equal names, and where those fail by call order, gradient layout, wrappers, alignment or the user's table.

Works on op tables alone (thousands of names); rows follow in ``slots``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from opassay.kernels import api_names, match_keys
from opassay.kernels.cell_names import mapped_names
from opassay.pipeline.match.slots import shared_codes
from opassay.schemas.dump_rows import DumpTable
from opassay.schemas.options import BY_NAME, LIST_INDEX, Matching
from opassay.schemas.vocab import MatchKind

_WRAPPED: Final = [int(MatchKind.WRAPPER), int(MatchKind.MAPPED_WRAPPER)]


@dataclass(slots=True)
class OpPairs:
    """Ops that meet.

    Attributes
    ----------
    frame : polars.DataFrame
        ``target_op``, ``golden_op`` (UInt32) and ``match`` (UInt8), in target order. A target op stands in it once at most; under a
        cell mapping a golden op may serve several.
    notes : list of str
        How ops were matched where it is not by equal names.
    warnings : list of str
        Lines of the cell mapping that did nothing, an alignment that was cut short.
    """

    frame: pl.DataFrame
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def pair_ops(target: DumpTable, golden: DumpTable, matching: Matching = BY_NAME) -> OpPairs:
    """Match the ops of two dumps.

    Equal names first (brought to the golden side's by a cell mapping). What is left over: backward ops in order of appearance
    where recomputation moved their indexes (decision 6; not under a mapping, which names what it means), the two layouts of
    parameter gradients (decision 21), names without the parts of wrappers, and of MindSpore against PyTorch the table of API names.
    Fuzzy matching takes the place of all that: one alignment of the two sequences of fuzzy keys.

    Parameters
    ----------
    target, golden : DumpTable
        The two sides; op names are unique on each.
    matching : Matching
        How they may meet.
    """
    names, other = target.ops["name"], golden.ops["name"]
    found = OpPairs(pl.DataFrame())
    if matching.cell_mapping is not None:
        names, used = mapped_names(names, matching.cell_mapping)
        other = mapped_names(other, {})[0]  # Cell is Module on either side
        if unused := [key for key in matching.cell_mapping if key not in used]:
            found.warnings.append(f"lines of the cell mapping that no target module has: {some(unused)}")
    ours = pl.DataFrame({"name": names, "shown": target.ops["name"]}).with_row_index("op")
    theirs = pl.DataFrame({"name": other, "shown": golden.ops["name"]}).with_row_index("op")
    if matching.fuzzy:
        _align(target, golden, ours, theirs, matching, found)
    else:
        _pair_by_name(ours, theirs, matching, found)
        if _frameworks_differ(target, golden):
            _pair_by_table(ours, theirs, found)
    if matching.cell_mapping is None and _frameworks_differ(target, golden):
        _tell_cells(ours, theirs, found)
    found.frame = found.frame.sort("target_op")
    if matching.cell_mapping:
        _tell_shared(ours, theirs, found)
    return found


def _pair_by_name(ours: pl.DataFrame, theirs: pl.DataFrame, matching: Matching, found: OpPairs) -> None:
    exact = _one_partner_each(ours.join(theirs, on="name", how="inner", suffix="_golden", maintain_order="left"))
    pairs = _as_pairs(exact, MatchKind.EXACT)
    alone = [side.join(exact, on="name", how="anti", maintain_order="left") for side in (ours, theirs)]
    if not (alone[0].is_empty() or alone[1].is_empty()):
        by_appearance = matching.cell_mapping is None and matching.data_mapping is None
        if by_appearance:
            drifting, bases = _pair_drifting(ours, theirs, alone)
            dropped = drifting["target_op"].implode()
            pairs = pl.concat([pairs.filter(~pl.col("target_op").is_in(dropped)), drifting])
            _tell_drifting(bases, found)
        layout = _pair_by_key(ours, theirs, pairs, match_keys.gradient_layout, MatchKind.LAYOUT)
        pairs = pl.concat([pairs, layout])
        if layout.height:
            found.notes.append(f"{layout.height:,} parameters_grad ops pair across the old and the numbered layout")
        if matching.wrappers:

            def bare(name: pl.Expr) -> pl.Expr:
                return match_keys.unwrapped(match_keys.gradient_layout(name), matching.wrappers)

            if by_appearance:  # what recomputes is often what wraps, so both may change one name
                free = [side.with_columns(name="key") for side in _free(ours, theirs, pairs, bare)]
                left = [mine.join(other, on="name", how="anti") for mine, other in (free, free[::-1])]
                drifting, bases = _pair_drifting(free[0], free[1], left)
                pairs = pl.concat([pairs, drifting.with_columns(match=pl.lit(int(MatchKind.WRAPPER), dtype=pl.UInt8))])
                _tell_drifting(bases, found)
            pairs = pl.concat([pairs, _pair_by_key(ours, theirs, pairs, bare, MatchKind.WRAPPER)])
            _tell_wrapped(pairs.filter(pl.col("match").is_in(_WRAPPED)).height, matching, found)
    found.frame = pairs


def _frameworks_differ(target: DumpTable, golden: DumpTable) -> bool:
    sides = [api_names.framework_of(table.framework, table.dtypes) for table in (target, golden)]
    return api_names.frameworks_differ(*sides)


def _pair_by_table(ours: pl.DataFrame, theirs: pl.DataFrame, found: OpPairs) -> None:
    """What no other way has paired, by the table of MindSpore and PyTorch names."""
    alone = [
        side.join(found.frame, left_on="op", right_on=column, how="anti", maintain_order="left")
        for side, column in ((ours, "target_op"), (theirs, "golden_op"))
    ]
    met = api_names.paired_calls(*alone)
    kind = pl.lit(int(MatchKind.API_TABLE), dtype=pl.UInt8)
    found.frame = pl.concat([found.frame, met.select(target_op="op", golden_op="op_golden", match=kind)])
    _tell_table(met.height, found)


def _tell_table(count: int, found: OpPairs) -> None:
    if count:
        found.notes.append(f"{count:,} ops pair by the table of MindSpore and PyTorch names")


def _tell_cells(ours: pl.DataFrame, theirs: pl.DataFrame, found: OpPairs) -> None:
    cells, modules = (
        [int(side["name"].str.starts_with(head).sum()) for side in (ours, theirs)] for head in ("Cell.", "Module.")
    )
    if (cells[0] and modules[1]) or (cells[1] and modules[0]):
        found.warnings.append(
            f"{max(cells):,} Cell ops can meet no Module of the other framework by name; -cm reads Cell as Module"
        )


def _tell_shared(ours: pl.DataFrame, theirs: pl.DataFrame, found: OpPairs) -> None:
    """Modules that a mapping gives one and the same golden module: rarely meant, and the report compares both with it."""

    def module(side: pl.DataFrame, column: str) -> pl.Series:
        parsed = side.select(pl.coalesce(match_keys.parts(pl.col("shown"))[0], "shown")).to_series()
        return parsed.gather(found.frame[column])

    met = pl.DataFrame({"target": module(ours, "target_op"), "golden": module(theirs, "golden_op")})
    several = found.frame["golden_op"].is_duplicated()
    shared = (
        met.filter(several).group_by("golden", maintain_order=True).agg(pl.col("target").unique(maintain_order=True))
    )
    told = [f"{golden} serves {some(names)}" for golden, names in shared.iter_rows()]
    if told:
        found.warnings.append(f"the cell mapping gives several target modules one golden module: {some(told)}")


def _one_partner_each(joined: pl.DataFrame) -> pl.DataFrame:
    """Each target op once. A golden side that holds both ``Cell.net`` and ``Module.net`` has one name twice where Cell is read as
    Module: its op of the very same name comes first, then the first in order.
    """
    if joined["op"].n_unique() == joined.height:
        return joined
    return (
        joined.sort("op", pl.col("shown") != pl.col("shown_golden"), "op_golden")
        .unique("op", keep="first", maintain_order=True)
    )  # fmt: skip


def _tell_drifting(bases: Sequence[str], found: OpPairs) -> None:
    if bases:
        found.notes.append(
            f"backward calls of {len(bases):,} ops carry other call indexes on the two sides, as recomputation "
            f"makes them: paired in order of appearance ({some(bases)})"
        )


def _tell_wrapped(count: int, matching: Matching, found: OpPairs) -> None:
    if count:
        words = ", ".join(matching.wrappers)
        found.notes.append(
            f"{count:,} ops pair only without what wrappers add to the module path ({words}; {LIST_INDEX})"
        )


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
    free = _free(ours, theirs, pairs, key)
    return _as_pairs(free[0].join(free[1], on="key", suffix="_golden", maintain_order="left"), kind)


def _free(
    ours: pl.DataFrame, theirs: pl.DataFrame, pairs: pl.DataFrame, key: Callable[[pl.Expr], pl.Expr]
) -> list[pl.DataFrame]:
    """Ops of both sides that no earlier way has paired, with their ``key``, as far as it is unique among them."""
    return [
        side.join(pairs, left_on="op", right_on=column, how="anti", maintain_order="left")
        .with_columns(key=key(pl.col("name")))
        .unique("key", keep="none", maintain_order=True)
        for side, column in ((ours, "target_op"), (theirs, "golden_op"))
    ]


def _as_pairs(joined: pl.DataFrame, kind: MatchKind) -> pl.DataFrame:
    """Pairs of one kind; names that met because a mapping changed one of them say so."""
    golden_name = pl.col("name_golden" if "name_golden" in joined.columns else "name")
    plain = pl.lit(int(kind), dtype=pl.UInt8)
    renamed = (pl.col("shown") != pl.col("name")) | (pl.col("shown_golden") != golden_name)
    if kind is MatchKind.EXACT:
        plain = (
            pl.when(renamed & (pl.col("shown") != pl.col("shown_golden"))).then(int(MatchKind.MAPPED)).otherwise(plain)
        )
    elif kind is MatchKind.WRAPPER:
        plain = pl.when(renamed).then(int(MatchKind.MAPPED_WRAPPER)).otherwise(plain)
    return joined.select(
        pl.col("op").alias("target_op"),
        pl.col("op_golden").alias("golden_op"),
        plain.cast(pl.UInt8).alias("match"),
    )


def _align(
    target: DumpTable,
    golden: DumpTable,
    ours: pl.DataFrame,
    theirs: pl.DataFrame,
    matching: Matching,
    found: OpPairs,
) -> None:
    """One alignment of the two sequences of ops; a name with a wrapper takes its bare key where the other side lacks the full one."""
    from opassay.kernels.alignment import OpSequence, align

    keyed = [side.with_columns(key=match_keys.fuzzy_key(pl.col("name"))) for side in (ours, theirs)]
    keyed = [_bare_where_alone(mine, other, matching) for mine, other in (keyed, keyed[::-1])]
    if _frameworks_differ(target, golden):
        keyed = [side.with_columns(key=api_names.family_key(pl.col("key"))) for side in keyed]
    codes = [_codes(keyed[0]["key"], keyed[1]["key"]), _codes(ours["name"], theirs["name"])]
    marks = _structures(target, golden)
    sides = [OpSequence(keys, marks[i], names) for i, (keys, names) in enumerate(zip(*codes, strict=True))]
    result = align(*sides)
    pairs = pl.DataFrame(
        {"target_op": pl.Series(result.target, dtype=pl.UInt32), "golden_op": pl.Series(result.golden, dtype=pl.UInt32)}
    )
    shown = [side["shown"].gather(pairs[column]) for side, column in ((ours, "target_op"), (theirs, "golden_op"))]
    bare = [side["bare"].gather(pairs[column]) for side, column in ((keyed[0], "target_op"), (keyed[1], "golden_op"))]
    named = [side["name"].gather(pairs[column]) for side, column in ((ours, "target_op"), (theirs, "golden_op"))]
    kinds = pl.select(
        pl.when(shown[0] == shown[1])
        .then(int(MatchKind.EXACT))
        .when(named[0] == named[1])
        .then(int(MatchKind.MAPPED))
        .when((bare[0] | bare[1]) & ((named[0] != shown[0]) | (named[1] != shown[1])))
        .then(int(MatchKind.MAPPED_WRAPPER))
        .when(bare[0] | bare[1])
        .then(int(MatchKind.WRAPPER))
        .when(match_keys.gradient_layout(pl.lit(named[0])) == match_keys.gradient_layout(pl.lit(named[1])))
        .then(int(MatchKind.LAYOUT))
        .when(match_keys.fuzzy_key(pl.lit(named[0])) != match_keys.fuzzy_key(pl.lit(named[1])))
        .then(int(MatchKind.API_TABLE))
        .otherwise(int(MatchKind.FUZZY))
        .cast(pl.UInt8)
        .alias("match")
    )
    found.frame = pairs.with_columns(kinds["match"])
    fuzzy = int((kinds["match"] == MatchKind.FUZZY).sum())
    if fuzzy:
        found.notes.append(f"{fuzzy:,} of {pairs.height:,} ops pair with another call index (fuzzy match)")
    wrapped = kinds["match"].is_in(_WRAPPED)
    _tell_wrapped(int(wrapped.sum()), matching, found)
    _tell_table(int((kinds["match"] == MatchKind.API_TABLE).sum()), found)
    if not result.exact:
        found.warnings.append(
            "the two sides run so differently that the alignment of their ops was cut short: "
            "more of them may have partners than the report shows"
        )


def _bare_where_alone(mine: pl.DataFrame, other: pl.DataFrame, matching: Matching) -> pl.DataFrame:
    """Keys without wrappers where the other side has no op of the full key; ``bare`` tells where that changed the key."""
    if not matching.wrappers:
        return mine.with_columns(bare=pl.lit(False))
    known = pl.col("key").is_in(other["key"].unique().implode())
    bare = match_keys.fuzzy_key(match_keys.unwrapped(pl.col("name"), matching.wrappers))
    keyed = mine.with_columns(full="key", key=pl.when(known).then("key").otherwise(bare))
    return keyed.with_columns(bare=pl.col("key") != pl.col("full")).drop("full")


def _codes(ours: pl.Series, theirs: pl.Series) -> list[NDArray[np.int64]]:
    """Integer codes of two columns of texts, equal where the texts are."""
    both = pl.concat([ours, theirs]).rank("dense").cast(pl.Int64).to_numpy()
    return [both[: ours.len()], both[ours.len() :]]


def _structures(target: DumpTable, golden: DumpTable) -> list[NDArray[np.int64]]:
    """One number an op that stands for the slots and shapes of its rows: equal structures get equal numbers."""
    slots, shapes = shared_codes(target.slots, golden.slots), shared_codes(target.shapes, golden.shapes)
    own = [np.arange(len(texts), dtype=np.uint64) for texts in (target.slots, target.shapes)]
    mixed = [
        _structure(target, *own),
        _structure(golden, *(codes.to_numpy().astype(np.uint64) for codes in (slots, shapes))),
    ]
    both = np.unique(np.concatenate(mixed), return_inverse=True)[1].astype(np.int64)
    return [both[: mixed[0].size], both[mixed[0].size :]]


def _structure(table: DumpTable, slots: NDArray[np.uint64], shapes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    op, slot, shape = (table.rows[name].to_numpy() for name in ("op", "slot", "shape"))
    sums = np.zeros(table.ops.height, np.uint64)
    np.add.at(sums, op, _scattered((slots[slot] << np.uint64(32)) | shapes[shape]))
    return sums


def _scattered(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers spread over 64 bits, so that their sum tells sets of them apart (the finalizer of SplitMix64)."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def some(names: Sequence[str], most: int = 3) -> str:
    """The first names of a list, and that there are more."""
    return ", ".join(names[:most]) + (f", ... ({len(names):,} in all)" if len(names) > most else "")
