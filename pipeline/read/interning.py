"""Rows of a dump -> the columns of a ``DumpTable``: repeated texts become codes, blocks of rows become frames.

Both readers hand their blocks to one ``TableBuilder``, so that order, names, duplicates and checksums are settled in
one place.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
from opassay.pipeline.read.flatten import FlatRow
from opassay.pipeline.watch.logs import clip
from opassay.schemas.dump_rows import OPS, P2P, ROWS, STATISTICS, DumpProblem, DumpTable
from opassay.schemas.vocab import RowKind, StatKind

Array = npt.NDArray[Any]

_FRAME_ROWS: Final = 1 << 18  # blocks are joined until a frame has this many rows
_RECHUNK_BYTES: Final = 32 << 20  # a whole table below this becomes one chunk
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_DISTINCT_PROBLEMS: Final = 200  # different sentences kept for each kind
_PRINTED_KINDS: Final = (RowKind.SCALAR, RowKind.SIZE, RowKind.SLICE, RowKind.ELLIPSIS)
_VALUED_STATS: Final = (StatKind.FLOAT, StatKind.INT, StatKind.BOOL)
CODED: Final = ("slot", "dtype", "shape", "value")
NUMBERS: Final = ("op", "section", "kind", "requires_grad", *STATISTICS, *(f"{s}_kind" for s in STATISTICS))


def clean_text(text: str) -> str:
    """Text that UTF-8 can hold: bytes that were no UTF-8 become ``\\xff``, unpaired surrogates ``\\ud800``.

    Different texts stay different, so that two records never become one.

    Parameters
    ----------
    text : str
        Any string; comes back itself where nothing has to be escaped.
    """
    return text if text.isascii() or not _SURROGATE.search(text) else _SURROGATE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


class Interner:
    """Texts -> codes, in order of first appearance.

    Parameters
    ----------
    first : sequence of str
        Texts that have the codes 0, 1, ...
    clean : callable
        Makes a text one that UTF-8 can hold.
    """

    def __init__(self, first: Sequence[str] = (), clean: Callable[[str], str] = clean_text) -> None:
        self._clean = clean
        self._codes: dict[str, int] = {}
        self.texts: list[str] = []
        for text in first:
            self.code(text)

    def code(self, text: str) -> int:
        """The code of a text, a new one where it is new."""
        code = self._codes.get(text)
        if code is None:
            clean = self._clean(text)
            code = self._codes.get(clean)
            if code is None:
                code = len(self.texts)
                self.texts.append(clean)
                self._codes[clean] = code
            self._codes[text] = code
        return code


class ProblemLog:
    """Problems, equal ones counted together so that a million of them stay one line."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, bool], tuple[str, int]] = {}
        self._distinct: dict[tuple[str, bool], list[str]] = {}

    def add(self, kind: str, where: str, text: str, *, fatal: bool, count: int = 1) -> None:
        """Record one problem; parameters as the fields of ``DumpProblem``; long texts are cut."""
        where, text = clip(clean_text(where)), clip(clean_text(text), 400)
        texts = self._distinct.setdefault((kind, fatal), [])
        if (kind, text, fatal) not in self._found:
            if len(texts) < _DISTINCT_PROBLEMS:
                texts.append(text)
            else:
                text = texts[0]
        first, before = self._found.get((kind, text, fatal), (where, 0))
        self._found[kind, text, fatal] = first, before + count

    def problems(self) -> list[DumpProblem]:
        """All problems, in order of first appearance."""
        return [
            DumpProblem(kind, where, text, count, fatal) for (kind, text, fatal), (where, count) in self._found.items()
        ]


@dataclass(slots=True)
class RowBlock:
    """Some rows in file order.

    Attributes
    ----------
    numbers : dict of str to ndarray, shape (n,)
        The columns ``NUMBERS`` and the codes ``CODED``; ``op`` counts from the first op of the block. A statistic whose
        kind holds no number is nan.
    md5, data_name : polars.Series, shape (n,)
        Strings or null.
    op_names : polars.Series
        Names of the ops of the block.
    """

    numbers: dict[str, Array]
    md5: pl.Series
    data_name: pl.Series
    op_names: pl.Series


class TableBuilder:
    """Collects blocks of rows; ``finish`` gives the table."""

    def __init__(self) -> None:
        self._odd_text = ""  # of the texts that had to be escaped the first in order, so that readers agree
        self.interners = {
            "slot": Interner(clean=self.clean),
            "dtype": Interner(clean=self.clean),
            "shape": Interner(clean=self.clean),
            "value": Interner([""], clean=self.clean),
        }
        self.problems = ProblemLog()
        self.op_count = 0
        self._frames: list[pl.DataFrame] = []
        self._pending: list[pl.DataFrame] = []
        self._pending_rows = 0
        self._names: list[pl.Series] = []
        self._p2p: dict[str, dict[tuple[int, str], P2P]] = {}  # by record name, then by (section, slot)

    def clean(self, text: str) -> str:
        """As ``clean_text``, and remembered for the problem that ``finish`` adds."""
        cleaned = clean_text(text)
        if cleaned is not text and (not self._odd_text or cleaned < self._odd_text):
            self._odd_text = cleaned
        return cleaned

    def note_p2p(self, name: str, rows: Sequence[FlatRow]) -> None:
        """Remember the point-to-point operations of a record; its rows get their numbers in ``finish``."""
        self._p2p[self.clean(name)] = {
            (row.section, self.clean(row.slot)): row.p2p for row in rows if row.p2p is not None
        }

    def columns_of(self, rows: Sequence[FlatRow], ops: Sequence[int]) -> tuple[dict[str, Array], pl.Series, pl.Series]:
        """Flattened rows as columns.

        Parameters
        ----------
        rows : sequence of FlatRow
            Rows as ``flatten_record`` gives them.
        ops : sequence of int, shape (n,)
            Op of each, as it shall stand in the block.

        Returns
        -------
        numbers : dict of str to ndarray
            As in ``RowBlock``.
        md5, data_name : polars.Series
            As in ``RowBlock``.
        """
        numbers: dict[str, Array] = {
            "op": np.array(ops, np.uint32),
            "section": np.array([r.section for r in rows], np.uint8),
            "kind": np.array([r.kind for r in rows], np.uint8),
            "requires_grad": np.array([r.requires_grad for r in rows], np.int8),
        }
        for place, statistic in enumerate(STATISTICS):
            numbers[statistic] = np.array([r.cells[place] for r in rows], np.float64)
            numbers[f"{statistic}_kind"] = np.array([r.kinds[place] for r in rows], np.uint8)
        for name in CODED:
            code = self.interners[name].code
            numbers[name] = np.array([code(getattr(r, name)) for r in rows], np.uint32)
        md5 = pl.Series([r.md5 and self.clean(r.md5) for r in rows], dtype=pl.String)
        data_name = pl.Series([r.data_name and self.clean(r.data_name) for r in rows], dtype=pl.String)
        return numbers, md5, data_name

    def add(self, block: RowBlock) -> None:
        """Take one block; its ops follow those of the blocks before."""
        numbers = block.numbers
        frame = pl.DataFrame(
            {name: numbers[name] for name in (*NUMBERS, *CODED)} | {"md5": block.md5, "data_name": block.data_name}
        )
        order = numbers["op"].astype(np.uint64) << np.uint64(8) | numbers["section"]
        if order.size and (order[1:] < order[:-1]).any():
            frame = frame[np.argsort(order, kind="stable").astype(np.uint32)]
        frame = frame.with_columns(
            *(
                pl.when(pl.col(f"{s}_kind").is_in([int(k) for k in _VALUED_STATS])).then(pl.col(s)).alias(s)
                for s in STATISTICS
            ),
            name=self._display_names(frame, block.op_names),
            op=(pl.col("op").cast(pl.UInt32) + self.op_count).cast(pl.UInt32),
        )
        self._pending.append(frame.select(pl.col(name).cast(kind) for name, kind in ROWS.items()))
        self._pending_rows += frame.height
        self._names.append(block.op_names)
        self.op_count += len(block.op_names)
        if self._pending_rows >= _FRAME_ROWS:
            self._join_pending()

    def finish(self, path: Path, task: str, level: str, framework: str) -> DumpTable:
        """The table of everything added.

        Parameters
        ----------
        path : Path
            The file.
        task, level, framework : str
            Header fields, "" where missing.
        """
        self._join_pending()
        names = pl.concat(self._names).rename("name") if self._names else pl.Series("name", [], dtype=pl.String)
        checksum = self._checksum()
        frames = self._frames or [pl.DataFrame(schema=dict(ROWS))]
        if checksum:
            for place, frame in enumerate(frames):
                frames[place] = self._with_value_checksums(frame)
        rows = pl.concat(frames)
        if rows.estimated_size() < _RECHUNK_BYTES:
            rows = rows.rechunk()
        hashes = np.sort(names.hash().to_numpy())
        if hashes.size > 1 and (hashes[1:] == hashes[:-1]).any():
            names, rows = self._last_records(names, rows)
        if self._odd_text:
            text = "texts that are not valid Unicode are shown with escapes such as \\xff or \\ud800"
            self.problems.add("header", self._odd_text, text, fatal=False)
        return DumpTable(
            path=path,
            task=task,
            level=level,
            framework=framework,
            ops=pl.DataFrame({"name": names}, schema=dict(OPS)),
            rows=rows,
            slots=self.interners["slot"].texts,
            dtypes=self.interners["dtype"].texts,
            shapes=self.interners["shape"].texts,
            values=self.interners["value"].texts,
            problems=self.problems.problems(),
            checksum=checksum,
            p2p=self._numbered_p2p(names, rows),
        )

    def _numbered_p2p(self, names: pl.Series, rows: pl.DataFrame) -> dict[int, P2P]:
        """Row number -> point-to-point operation."""
        if not self._p2p:
            return {}
        ops = (names.is_in(list(self._p2p))).arg_true()
        found = rows.select("op", "section", "slot").with_row_index("row").filter(pl.col("op").is_in(ops.implode()))
        slots = self.interners["slot"].texts
        return {
            row: p2p
            for row, op, section, slot in found.iter_rows()
            if (p2p := self._p2p[names[op]].get((section, slots[slot]))) is not None
        }

    def _join_pending(self) -> None:
        if self._pending:
            self._frames.append(_without_null_pages(pl.concat(self._pending, rechunk=True)))
            self._pending, self._pending_rows = [], 0

    def _display_names(self, frame: pl.DataFrame, op_names: pl.Series) -> pl.Series:
        """Names of rows whose data_name without its last extension is not op name + slot; null elsewhere."""
        data_name = frame["data_name"]
        if data_name.null_count() == len(data_name):
            return pl.Series("name", [None] * 0, dtype=pl.String).extend_constant(None, len(data_name))
        slots = pl.Series(self.interners["slot"].texts, dtype=pl.String)
        full = op_names.gather(frame["op"]) + slots.gather(frame["slot"])
        stem = data_name.str.replace(r"(?s)^(.+)\.[^.]*$", "$1")
        return pl.select(pl.when(stem != full).then(stem).alias("name")).to_series()

    def _checksum(self) -> str:
        found = ""
        for frame in self._frames:
            if frame["md5"].null_count() < frame.height:
                if frame["md5"].str.starts_with("0x").any():
                    return "xor"
                found = "md5"
        return found

    def _with_value_checksums(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Checksums of rows that are no tensor: CRC-32 of the printed value, for groups and ranks the text itself."""
        texts = self.interners["value"].texts
        crcs = pl.Series([f"{zlib.crc32(text.encode()):08x}" for text in texts], dtype=pl.String)
        plain = pl.Series(texts, dtype=pl.String)
        kind = pl.col("kind")
        # a leaf without a value is printed as None; its text (a memory format, a type) tells scalars apart, not checksums
        nothing = (kind == RowKind.SCALAR) & (pl.col("max_kind") == StatKind.NONE)
        return frame.with_columns(
            md5=pl.when(nothing)
            .then(pl.lit(f"{zlib.crc32(b'None'):08x}"))
            .when(kind.is_in([int(k) for k in _PRINTED_KINDS]))
            .then(crcs.gather(frame["value"]))
            .when(kind.is_in([int(RowKind.GROUP), int(RowKind.PEER)]))
            .then(plain.gather(frame["value"]))
            .otherwise(pl.col("md5"))
        )

    def _last_records(self, names: pl.Series, rows: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
        """Where a name occurs twice, keep the last record at the place of the first (decision 21)."""
        places = (
            pl.DataFrame({"name": names})
            .with_row_index("op")
            .group_by("name", maintain_order=True)
            .agg(pl.col("op").last(), pl.col("op").first().alias("first"), pl.len())
            .sort("first")
            .with_row_index("new")
        )
        twice = places.filter(pl.col("len") > 1)
        if not twice.height:
            return names, rows
        self.problems.add(
            "duplicate",
            twice["name"][0],
            "the key occurs more than once in data; the last record was taken",
            fatal=False,
            count=int((twice["len"] - 1).sum()),
        )
        new = np.full(len(names), np.iinfo(np.uint32).max, np.uint32)
        new[places["op"].to_numpy()] = places["new"].to_numpy()
        moved = pl.Series("op", new[rows["op"].to_numpy()])
        rows = rows.with_columns(moved).filter(pl.col("op") != np.iinfo(np.uint32).max)
        return places["name"], rows.sort("op", maintain_order=True).select(*ROWS)


def _without_null_pages(frame: pl.DataFrame) -> pl.DataFrame:
    """Make text columns that are null throughout anew: fresh zero pages that are never touched take no memory."""
    empty = [name for name, kind in ROWS.items() if kind == pl.String and frame[name].null_count() == frame.height]
    return frame.with_columns(
        pl.Series(name, [None], dtype=pl.String).new_from_index(0, frame.height) for name in empty
    )
