"""The members of ``data`` through the tokenizer of ``kernels.json_rows``, one slice of the file at a time.

Works in bytes from a given place on, and stops where the object ends or where only the json module can say what is
wrong; ``dump_json`` goes on from there. Imports numba: import this file only when it is used.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from itertools import pairwise
from json import JSONDecodeError
from typing import Any, BinaryIO, Final, NamedTuple

import nanoarrow as na
import numpy as np
import numpy.typing as npt
import polars as pl
from opassay.kernels import json_arrays, json_rows
from opassay.kernels.json_numbers import power_table
from opassay.pipeline.read.flatten import FlatRow
from opassay.pipeline.read.interning import CODED, NUMBERS, RowBlock, TableBuilder, clean_text
from opassay.pipeline.read.json_text import TooLarge, load_value
from opassay.schemas.dump_rows import STATISTICS

_WORDS: Final = {"": "None", "null": "None", "true": "True", "false": "False"}
_ALL_STATISTICS: Final = 4

Bytes = npt.NDArray[np.uint8]


class Stop(NamedTuple):
    """Where and why the tokenizer stopped.

    ``offset`` is the byte behind the last complete record (or behind the closing brace); ``first`` whether no record
    came before; ``ended`` whether the object is complete; ``last_name`` the last record read, "" for none.
    """

    offset: int
    first: bool
    ended: bool
    last_name: str


class SliceReader:
    """Tokenizes one file.

    Parameters
    ----------
    file : binary file
        Seekable.
    is_debug : bool
        Whether it is a debug.json.
    slice_bytes : int
        Bytes read at a time.
    builder : TableBuilder
        Gets the rows.
    rows_of : callable
        Record name and JSON value (or TooLarge) -> rows, or None for a record that is dropped.
    """

    def __init__(
        self,
        file: BinaryIO,
        is_debug: bool,
        slice_bytes: int,
        builder: TableBuilder,
        rows_of: Callable[[str, Any], list[FlatRow] | None],
    ) -> None:
        self._file = file
        self._is_debug = is_debug
        self._slice_bytes = slice_bytes
        self._builder = builder
        self._rows_of = rows_of
        self._rows = json_arrays.make_rows()
        make = json_arrays.make_text_table
        self._tables = make(), make(), make(), make()
        self._codes: list[npt.NDArray[np.uint32]] = [np.empty(0, np.uint32) for _ in CODED]
        self._room = json_arrays.make_room(*power_table())

    def run(self, offset: int, *, first: bool) -> Stop:
        """Read from byte ``offset`` on, as far as the tokenizer can.

        Parameters
        ----------
        offset : int
            Place behind the opening brace, or behind a record.
        first : bool
            Whether it is the former.
        """
        self._file.seek(offset)
        data = b""
        last_name = ""
        cleared = False
        while True:
            more = self._file.read(max(self._slice_bytes, len(data)))
            ended_file = not more
            data += more
            text = np.frombuffer(data, np.uint8)
            at = 0
            while True:
                state = json_arrays.STATE_FIRST if first else json_arrays.STATE_NEXT
                status, end = json_rows.read_records(
                    text, at, text.size, state, self._is_debug, not _is_utf8(data), self._rows, self._tables, self._room
                )
                ops, broken_at = self._take(data, text)
                if broken_at >= 0:
                    status, end = json_rows.BAD, broken_at
                if ops:
                    first = False
                    last_name = self._op_name(data, ops - 1)
                    end = end if status == json_rows.END else int(self._rows.op_end[ops - 1])
                elif status != json_rows.END:
                    end = at
                if status != json_rows.NO_ROOM:
                    break
                if not ops and cleared:
                    status = json_rows.BAD  # one record that is larger than the arrays
                    break
                cleared = not ops
                at = end
                json_arrays.clear(self._tables)
                self._codes = [np.empty(0, np.uint32) for _ in CODED]
            offset += end
            if status in (json_rows.END, json_rows.BAD) or ended_file:
                return Stop(offset, first, status == json_rows.END, last_name)
            data = data[end:]

    def _take(self, data: bytes, text: Bytes) -> tuple[int, int]:
        """Hand the tokenizer's output to the builder.

        Returns
        -------
        ops : int
            Records taken.
        broken_at : int
            Place behind the last good record where one turned out to be no JSON, else -1.
        """
        rows = self._rows
        n_rows, ops, surprises, open_numbers = rows.counts.tolist()
        if not ops:
            return 0, -1
        for row, statistic, start, length in rows.open_numbers[:open_numbers].tolist():
            which = slice(None) if statistic == _ALL_STATISTICS else statistic
            rows.cells[row, which] = float(data[start : start + length])
        slow_rows: list[FlatRow] = []
        slow_ops: list[int] = []
        dropped: list[int] = []
        names: dict[int, str] = {}
        broken_at = -1
        for op, value in rows.surprises[:surprises].tolist():
            name = names[op] = self._op_name(data, op)
            try:
                record = load_value(_text(data[value : rows.op_end[op]]))
            except TooLarge as error:
                record = error
            except JSONDecodeError:
                broken_at = int(rows.op_end[op - 1]) if op else 0
                n_rows = int(np.searchsorted(rows.op[:n_rows], op))
                ops = op
                names.pop(op)
                break
            found = self._rows_of(name, record)
            if found is None:
                dropped.append(op)
            else:
                slow_rows.extend(found)
                slow_ops.extend([op] * len(found))
        if ops:
            self._add(text, n_rows, ops, slow_rows, slow_ops, dropped, names)
        return ops, broken_at

    def _add(
        self,
        text: Bytes,
        n_rows: int,
        ops: int,
        slow_rows: list[FlatRow],
        slow_ops: list[int],
        dropped: list[int],
        names: dict[int, str],
    ) -> None:
        rows = self._rows
        numbers: dict[str, npt.NDArray[Any]] = {
            "op": rows.op[:n_rows].copy(),
            "section": rows.section[:n_rows].copy(),
            "kind": rows.kind[:n_rows].copy(),
            "requires_grad": rows.requires_grad[:n_rows].copy(),
        }
        for place, statistic in enumerate(STATISTICS):
            numbers[statistic] = rows.cells[:n_rows, place].copy()
            numbers[f"{statistic}_kind"] = rows.kinds[:n_rows, place].copy()
        for place, column in enumerate(CODED):
            numbers[column] = self._global_codes(place, column)[rows.codes[:n_rows, place]]
        md5 = _series(text, rows.md5, n_rows)
        data_name = _series(text, rows.data_name, n_rows)
        op_names = _series(text, rows.op_name, ops)
        if names:
            clean = [clean_text(name) for name in names.values()]
            op_names = op_names.scatter(list(names), clean)
        if slow_rows:
            more, more_md5, more_data_name = self._builder.columns_of(slow_rows, slow_ops)
            numbers = {name: np.concatenate([numbers[name], more[name]]) for name in (*NUMBERS, *CODED)}
            md5, data_name = md5.append(more_md5), data_name.append(more_data_name)
        if dropped:
            keep = np.ones(ops, bool)
            keep[dropped] = False
            numbers["op"] = (np.cumsum(keep) - 1)[numbers["op"]].astype(np.uint32)
            op_names = op_names.filter(pl.Series(keep))
        self._builder.add(RowBlock(numbers, md5, data_name, op_names))

    def _op_name(self, data: bytes, op: int) -> str:
        start, length = self._rows.op_name[op].tolist()
        return str(load_value(_text(data[start - 1 : start + length + 1])))

    def _global_codes(self, place: int, column: str) -> npt.NDArray[np.uint32]:
        """The builder's codes of the texts in a table of the tokenizer, new ones added."""
        table, known = self._tables[place], self._codes[place]
        count = int(table.used[0])
        if count > known.size:
            code = self._builder.interners[column].code
            ends = table.starts[known.size : count + 1].tolist()
            arena = table.arena[: ends[-1]].tobytes()
            texts = (arena[a:b] for a, b in pairwise(ends))
            new = np.array([code(_printed(column, text)) for text in texts], np.uint32)
            known = self._codes[place] = np.concatenate([known, new])
        return known


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _printed(column: str, coded: bytes) -> str:
    """Text of the table for a coded text, which begins with its tag."""
    tag, text = coded[0], coded[1:].decode()
    if column == "shape":
        return text.replace(",", ", ")
    if column == "value" and tag != json_arrays.TAG_TEXT:
        if tag == json_arrays.TAG_INT:
            return str(int(text))
        return repr(float(text)) if tag == json_arrays.TAG_FLOAT else _WORDS[text]
    return text


def _is_utf8(data: bytes) -> bool:
    """Whether the bytes are UTF-8, but for a character that is cut at the end."""
    if data.isascii():
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def _series(text: Bytes, spans: npt.NDArray[np.int64], count: int) -> pl.Series:
    """Texts of the buffer as a polars column, without a Python object a row."""
    total = int(spans[:count, 1].sum())
    offsets = np.zeros(count + 1, np.int32)
    out = np.zeros(total, np.uint8)
    missing = json_rows.gather_texts(text, spans, count, offsets, out)
    if missing == count:
        return pl.Series("", [None], dtype=pl.String).new_from_index(0, count)
    validity = np.packbits(spans[:count, 0] >= 0, bitorder="little") if missing else None
    array = na.c_array_from_buffers(na.string(), count, [validity, offsets, out], null_count=missing)
    return pl.Series("", array).cast(pl.String)
