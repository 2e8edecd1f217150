"""``--shards auto``: the dumps of ranks that share one model become one table, as if the model had run on one device.

Comes before matching. What shapes and statistics of the JSON files tell is settled here; how the tensor files join is left
open (`JoinKind.AUTO`) and settled by their values when the pair is measured.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import polars as pl
from opassay.kernels.joining import Shape, likeliest, shapes_text, squeezed
from opassay.kernels.phrases import phrase
from opassay.kernels.scopes import elements_of
from opassay.kernels.shard_statistics import Finding, Way, join_statistics
from opassay.pipeline.run.mode import tensor_folder
from opassay.schemas.dump_rows import OPS, ROWS, STATISTICS, DumpTable, Join
from opassay.schemas.errors import UsageError
from opassay.schemas.vocab import JoinKind, RowKind

_SLICE_ROWS: Final = 1 << 18  # rows of all ranks together that are joined at a time
_DICTIONARIES: Final = ("slot", "dtype", "shape", "value")
_KEY: Final = ["op", "slot", "nth"]
_GOLDEN: Final = ("max", "min", "norm", "md5", "shape")
_KINDS: Final = tuple(f"{stat}_kind" for stat in STATISTICS)
_MERGED: Final = (Finding.CONCATENATED, Finding.UNEQUAL_COPIES, Finding.FUSED, Finding.SUMMED)

Parts = tuple[tuple[str, str], ...]
"""Folder and name of each file, as `Join` wants them."""


def join_ranks(tables: Sequence[DumpTable], golden: DumpTable) -> DumpTable:
    """Join the tensor-parallel ranks of one model.

    Parameters
    ----------
    tables : sequence of DumpTable
        Dumps of the ranks, in rank order.
    golden : DumpTable
        The golden rank they are to be compared with; its shapes tell how the parts join.

    Returns
    -------
    DumpTable
        The first rank's ops and rows, then those that only later ranks have. ``joins`` says of every row of tensors how it
        was made; rows of anything else are those of the first rank that has them.

    Raises
    ------
    UsageError
        If the ranks were not dumped alike.
    """
    first = tables[0]
    if len(tables) == 1:
        return first
    checksum = _alike(tables)
    texts = {name: _Texts() for name in _DICTIONARIES}
    ops = pl.concat([table.ops for table in tables]).unique("name", keep="first", maintain_order=True)
    numbered = ops.with_row_index("number")
    sides = [_side(table, numbered, texts) for table in tables]
    reference = _side(golden, numbered, texts)
    places = _places(sides, reference)
    joiner = _Joiner(tables, sides, reference, texts)
    frames: list[pl.DataFrame] = []
    joins: dict[int, Join] = {}
    start = 0
    for rows in places.iter_slices(max(1, _SLICE_ROWS // len(tables))):
        frame, told, parts = joiner.slice(rows)
        frames.append(frame)
        joins.update(
            (start + at, Join(parts.get(at, ()), JoinKind.AUTO, told=text))
            for at, text in enumerate(told)
            if text is not None
        )
        start += frame.height
    return replace(
        first,
        ops=ops.select(pl.col(name).cast(kind) for name, kind in OPS.items()),
        rows=pl.concat(frames) if frames else first.rows,
        slots=texts["slot"].known,
        dtypes=texts["dtype"].known,
        shapes=texts["shape"].known,
        values=texts["value"].known,
        checksum=checksum,
        joins=joins,
    )


def _alike(tables: Sequence[DumpTable]) -> str:
    """The kind of checksums that the ranks hold."""
    first = tables[0]
    checksums = {table.checksum for table in tables if table.checksum}
    for table in tables:
        if table.task != first.task or len(checksums) > 1:
            raise UsageError(
                f"--shards auto: {first.path} is a dump of task {first.task!r}{_with(first)}, {table.path} of task "
                f"{table.task!r}{_with(table)}; ranks that share a model must be dumped alike"
            )
    return next(iter(checksums), "")


def _with(table: DumpTable) -> str:
    return f" with {table.checksum} checksums" if table.checksum else ""


class _Texts:
    """A dictionary that several tables share."""

    def __init__(self) -> None:
        self.known: list[str] = []
        self._codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        """The code of a text, a new one where it is new."""
        code = self._codes.setdefault(text, len(self.known))
        if code == len(self.known):
            self.known.append(text)
        return code

    def codes(self, texts: Sequence[str]) -> pl.Series:
        """Codes of a table's texts, by the table's own codes."""
        return pl.Series([self.code(text) for text in texts], dtype=pl.UInt32)


def _side(table: DumpTable, ops: pl.DataFrame, texts: dict[str, _Texts]) -> pl.DataFrame:
    """The table's rows with the common op numbers (null for an op of another side) and codes, and which of equal keys each is."""
    numbers = table.ops.select("name").join(ops, on="name", how="left", maintain_order="left")["number"]
    words = (table.slots, table.dtypes, table.shapes, table.values)
    codes = {name: texts[name].codes(known) for name, known in zip(_DICTIONARIES, words, strict=True)}
    return table.rows.with_columns(
        numbers.gather(table.rows["op"]).alias("op"),
        *(codes[name].gather(table.rows[name]).alias(name) for name in _DICTIONARIES),
    ).with_columns(nth=pl.int_range(pl.len(), dtype=pl.UInt32).over("op", "slot"))


def _places(sides: Sequence[pl.DataFrame], golden: pl.DataFrame) -> pl.DataFrame:
    """Every row of the whole, in order: its key, where each rank and golden have it (``row_0`` ..., ``golden``)."""
    keys = pl.concat([side.select("section", *_KEY) for side in sides])
    places = keys.unique(_KEY, keep="first", maintain_order=True).sort("op", "section", maintain_order=True)
    for number, side in enumerate(sides):
        places = places.join(
            side.select(_KEY).with_row_index(f"row_{number}"), on=_KEY, how="left", maintain_order="left"
        )
    theirs = golden.select(_KEY).with_row_index("golden")
    return places.join(theirs, on=_KEY, how="left", maintain_order="left")


class _Joiner:
    """Rows of the ranks -> rows of the whole, some at a time."""

    def __init__(
        self,
        tables: Sequence[DumpTable],
        sides: Sequence[pl.DataFrame],
        golden: pl.DataFrame,
        texts: dict[str, _Texts],
    ) -> None:
        names = [table.path.parent.name for table in tables]
        self.names = names if len(set(names)) == len(names) else [f"rank {number}" for number in range(len(names))]
        self.folders = [os.path.abspath(tensor_folder(table)) for table in tables]
        self.sides = sides
        self.golden = golden
        self.count = len(tables)
        self.texts = texts

    def slice(self, places: pl.DataFrame) -> tuple[pl.DataFrame, list[str | None], dict[int, Parts]]:
        """Rows of the whole (schema ``ROWS``), how each was joined (None for what is no tensor), and files by place."""
        keys = places.with_row_index("key")
        ranks = self._with_ways(self._ranks(keys))
        found = join_statistics(ranks)
        base = ranks.drop(*STATISTICS, *_KINDS).join(found, on="key", how="left", maintain_order="left")
        known = base.select((pl.col("md5") == pl.col("golden_md5")).any().over("key").fill_null(False)).to_series()
        rows = base.with_columns(as_golden=known).filter(pl.col("rank") == pl.col("shown")).sort("key")
        finding = pl.col("finding")
        # a part's checksum says nothing of the whole; nor do checksums that differ among the ranks, which partial sums have,
        # unless one is golden's, so that the others are bad copies
        parted = pl.col("joinable") & (pl.col("way") == Way.KEEP)
        mixed = (finding == Finding.UNEQUAL) & (pl.col("way") == Way.CHECKSUM) & ~pl.col("as_golden")
        merged = finding.is_in([int(one) for one in _MERGED])
        shaped = finding.is_in([int(one) for one in _MERGED if one is not Finding.SUMMED])
        rows = rows.with_columns(
            op=keys["op"],
            section=keys["section"],
            value=pl.when(merged).then(0).otherwise("value"),
            md5=pl.when(~(parted | mixed)).then("md5"),
            shape=pl.when(shaped).then("whole_shape").otherwise("shape"),
            dtype=pl.when("joinable").then("whole_dtype").otherwise("dtype"),
            told=pl.when(pl.col("is_tensor")).then(self._told()).otherwise(self._told_of_values()),
        )
        frame = rows.select(pl.col(name).cast(kind) for name, kind in ROWS.items())
        return frame, rows["told"].to_list(), self._parts(ranks, rows)

    def _ranks(self, keys: pl.DataFrame) -> pl.DataFrame:
        """One row a rank and key, with what golden has there."""
        theirs = keys.select(
            "key",
            *(self.golden[name].gather(keys["golden"]).alias(f"golden_{name}") for name in (*_GOLDEN, "kind")),
        ).with_columns(golden_shape=pl.when(pl.col("golden_kind") == RowKind.TENSOR).then("golden_shape"))
        found = []
        for rank, side in enumerate(self.sides):
            there = keys.select("key", row=f"row_{rank}").drop_nulls()
            found.append(side.select(pl.all().gather(there["row"])).with_columns(there["key"], rank=pl.lit(rank)))
        elements = pl.Series([elements_of(text) for text in self.texts["shape"].known], dtype=pl.Float64)
        every = pl.concat(found).sort("key", "rank").join(theirs, on="key", how="left", maintain_order="left")
        tensor = pl.col("kind") == RowKind.TENSOR
        return every.with_columns(
            is_tensor=tensor,
            joinable=(tensor.sum().over("key") == self.count),
            holders=pl.len().over("key"),
            differ=pl.any_horizontal(pl.col(name) != pl.col(name).first() for name in ("kind", "value"))
            .any()
            .over("key"),
            elements=elements.gather(every["shape"]),
        )

    def _with_ways(self, ranks: pl.DataFrame) -> pl.DataFrame:
        """Add what the shapes tell: ``way``, ``copies``, ``whole_shape``, ``whole_dtype`` and ``text``."""
        facts = ranks.group_by("key", maintain_order=True).agg(
            pl.col("joinable").first(),
            pl.col("golden_shape").first(),
            ranks=pl.col("rank").filter("is_tensor").cast(pl.String).str.join(","),
            shapes=pl.col("shape").cast(pl.String).str.join(","),
            dtypes=pl.col("dtype").filter("is_tensor").unique(maintain_order=True).cast(pl.String).str.join(","),
            checksums=(pl.col("md5").fill_null("") != "").any(),
            files=pl.col("data_name").is_not_null().all(),
        )
        different = ["joinable", "golden_shape", "ranks", "shapes", "checksums", "files"]
        cases = facts.select(different).unique(maintain_order=True)
        ways = [self._way(**case) for case in cases.iter_rows(named=True)]
        columns: list[tuple[str, pl.DataType]] = [
            ("way", pl.UInt8()), ("copies", pl.UInt32()), ("whole_shape", pl.UInt32()), ("text", pl.String()),
        ]  # fmt: skip
        told = [pl.Series(name, [way[at] for way in ways], dtype=kind) for at, (name, kind) in enumerate(columns)]
        dtypes = facts["dtypes"].unique(maintain_order=True)
        codes = pl.DataFrame(
            {"dtypes": dtypes, "whole_dtype": [self._dtype(text) for text in dtypes]},
            schema_overrides={"whole_dtype": pl.UInt32},
        )
        facts = facts.join(cases.with_columns(told), on=different, how="left", nulls_equal=True).join(
            codes, on="dtypes", how="left"
        )
        wanted = facts.select("key", *(name for name, _ in columns), "whole_dtype")
        return ranks.join(wanted, on="key", how="left", maintain_order="left")

    def _dtype(self, codes: str) -> int | None:
        """The dtype of ranks with these dtypes: theirs, or all of them in one text, which is no dtype of the other side."""
        if "," not in codes:
            return int(codes) if codes else None
        known = self.texts["dtype"].known
        return self.texts["dtype"].code(";".join(known[int(code)] for code in codes.split(",")))

    def _way(
        self, joinable: bool, golden_shape: int | None, ranks: str, shapes: str, checksums: bool, files: bool
    ) -> tuple[int, int, int | None, str]:
        """What one combination of shapes tells: way, copies, code of the shape of the whole, and the words for it."""
        numbers = [int(rank) for rank in ranks.split(",") if rank]
        shown = f"{self.names[numbers[0] if numbers else 0]} is shown"
        if not joinable:
            some = ", ".join(self.names[number] for number in numbers[:4]) + (", ..." if len(numbers) > 4 else "")
            return Way.KEEP, 1, None, f"a tensor on {some} of {self.count} ranks only: {shown}"
        if golden_shape is None:
            return Way.KEEP, 1, None, f"no golden tensor of this name tells how {self.count} ranks join: {shown}"
        known = self.texts["shape"].known
        ours = [_shape(known[int(code)]) for code in shapes.split(",")]
        theirs = _shape(known[golden_shape])
        plain = [shape for shape in ours if shape is not None]
        if theirs is None or len(plain) < len(ours):
            return Way.KEEP, 1, None, f"shapes that are no lists of sizes: {shown}"
        if all(squeezed(shape) == squeezed(theirs) for shape in plain):
            return (Way.CHECKSUM if checksums else Way.SAME), 1, None, ""
        fit = likeliest(plain, theirs)
        if fit is None or (fit[2] and not files):
            return Way.KEEP, 1, None, f"{shapes_text(plain)} do not make {list(theirs)}: {shown}"
        if checksums:
            return Way.KEEP, 1, None, f"checksums of {self.count} parts cannot be joined: {shown}"
        axis, copies, fused, shape = fit
        code = self.texts["shape"].code(str(list(shape)))
        text = f"concatenated along axis {axis} of {self.count} ranks"
        if fused:
            shared = f"every {copies} of which share k and v: mean and norm are not known"
            return Way.FUSED, copies, code, f"q, k and v put together along axis {axis} of {self.count} ranks, {shared}"
        return Way.CONCAT, copies, code, text + (f", every {copies} of which hold the same" if copies > 1 else "")

    def _told(self) -> pl.Expr:
        """How a row was joined, in words."""
        finding, name = pl.col("finding"), self._name()
        unequal = phrase(f"not equal on {self.count} ranks: {{}}, the furthest from golden, is shown", name)
        checksums = (
            pl.when("as_golden")
            .then(phrase(f"checksums differ on {self.count} ranks: that of {{}} is shown", name))
            .otherwise(pl.lit(f"checksums differ on {self.count} ranks, and none is golden's: copies or partial sums"))
        )
        return (
            pl.when(finding == Finding.EQUAL)
            .then(pl.lit(f"equal on {self.count} ranks"))
            .when((finding == Finding.UNEQUAL) & (pl.col("way") == Way.CHECKSUM))
            .then(checksums)
            .when(finding == Finding.UNEQUAL)
            .then(unequal)
            .when((finding == Finding.KEPT) & (pl.col("way") == Way.CONCAT))
            .then(phrase(f"equal on {self.count} ranks, and no part of golden's shape: {{}} is shown", name))
            .when(finding == Finding.SUMMED)
            .then(pl.lit(f"partial sums of {self.count} ranks: only the mean is known"))
            .when(finding == Finding.UNEQUAL_COPIES)
            .then(phrase("{}, or should: their statistics differ", pl.col("text")))
            .otherwise("text")
        )

    def _told_of_values(self) -> pl.Expr:
        """What is hidden of scalars and the like: that other ranks have another value, or none."""
        name = self._name()
        return (
            pl.when(pl.col("holders") < self.count)
            .then(phrase(f"on {{}} of {self.count} ranks only: that of {{}} is shown", pl.col("holders"), name))
            .when("differ")
            .then(phrase(f"not equal on {self.count} ranks: that of {{}} is shown", name))
        )

    def _name(self) -> pl.Expr:
        """The name of the rank whose row is shown."""
        return pl.col("shown").replace_strict(list(range(self.count)), self.names, return_dtype=pl.String)

    def _parts(self, ranks: pl.DataFrame, rows: pl.DataFrame) -> dict[int, Parts]:
        """The files of every row that has any: those of all ranks, or of the shown one where some have none."""
        listed = (
            ranks.filter("is_tensor")
            .group_by("key", maintain_order=True)
            .agg(pl.col("data_name"), pl.col("joinable").first())
            .join(rows.select("key", "shown", own="data_name"), on="key", how="left", maintain_order="left")
            .filter(pl.col("own").is_not_null())
        )
        return {
            key: tuple(zip(self.folders, names, strict=True))
            if joinable and None not in names
            else ((self.folders[shown], own),)
            for key, names, joinable, shown, own in listed.iter_rows()
        }


def _shape(text: str) -> Shape | None:
    """The sizes of ``[2, 3]``; None for what is no list of sizes."""
    if elements_of(text) is None:
        return None
    try:
        return tuple(int(size) for size in text[1:-1].split(",") if size.strip())
    except ValueError:
        return None
