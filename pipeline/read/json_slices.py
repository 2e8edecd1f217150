"""The members of ``data`` through the tokenizer of ``kernels.json_rows``, one slice of the file at a time.

Works in bytes from a given place on, and stops where the object ends or where only the json module can say what is
wrong; ``dump_json`` goes on from there. Imports numba: import this file only when it is used.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from json import JSONDecodeError
from typing import Any, BinaryIO, Final, NamedTuple

import nanoarrow as na
import numpy as np
import numpy.typing as npt
import polars as pl
from opassay.kernels import json_rows, json_tables
from opassay.pipeline.read.flatten import FlatRow
from opassay.pipeline.read.interning import CODED, NUMBERS, RowBlock, TableBuilder
from opassay.pipeline.read.json_text import TooLarge, load_value
from opassay.schemas.dump_rows import STATISTICS

_WORDS: Final = {"null": "None", "true": "True", "false": "False"}
_CLASSES: Final = {
    json_tables.T_CLASS_INT: "<class 'int'>",
    json_tables.T_CLASS_FLOAT: "<class 'float'>",
    json_tables.T_CLASS_BOOL: "<class 'bool'>",
    json_tables.T_CLASS_STR: "<class 'str'>",
    json_tables.T_CLASS_NONE: "<class 'NoneType'>",
}
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
        self._arrays = json_tables.TokenizerArrays()
        self._codes = np.empty(0, np.uint32)

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
            memory = self._arrays.memory(text)
            ascii_only = not _is_utf8(data)
            at = 0
            while True:
                state = json_rows.STATE_FIRST if first else json_rows.STATE_NEXT
                status, end = json_rows.read_records(memory, at, len(data), state, self._is_debug, ascii_only)
                ops, broken_at = self._take(data, text)
                if broken_at >= 0:
                    status, end = json_rows.BAD, broken_at
                if ops:
                    first = False
                    last_name = self._op_name(data, ops - 1)
                    end = end if status == json_rows.END else int(self._arrays.marks[ops - 1, json_tables.RECORD_END])
                elif status != json_rows.END:
                    end = at
                if status != json_rows.NO_ROOM:
                    break
                if not ops and cleared:
                    status = json_rows.BAD  # one record that is larger than the arrays
                    break
                cleared = not ops
                at = end
                self._arrays.clear()
                self._codes = np.empty(0, np.uint32)
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
        marks, cells = self._arrays.marks, self._arrays.cells
        n_rows, ops, surprises, open_numbers = self._arrays.work[: json_tables.OPEN_COUNT + 1].tolist()
        if not ops:
            return 0, -1
        for row, statistic, start, length in marks[:open_numbers, json_tables.OPEN_ROW :].tolist():
            which = slice(None) if statistic == _ALL_STATISTICS else statistic
            cells[row, which] = float(data[start : start + length])
        slow_rows: list[FlatRow] = []
        slow_ops: list[int] = []
        dropped: list[int] = []
        names: dict[int, str] = {}
        broken_at = -1
        for op, value in marks[:surprises, [json_tables.SURPRISE_OP, json_tables.SURPRISE_START]].tolist():
            name = ""
            try:
                name = self._op_name(data, op)
                record = load_value(_text(data[value : marks[op, json_tables.RECORD_END]]))
            except TooLarge as error:
                record = error
            except JSONDecodeError:
                broken_at = int(marks[op - 1, json_tables.RECORD_END]) if op else 0
                n_rows = int(np.searchsorted(self._arrays.grid[:n_rows, json_tables.OP], op))
                ops = op
                break
            names[op] = name
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
        grid, cells, t = self._arrays.grid[:n_rows], self._arrays.cells[:n_rows], json_tables
        numbers: dict[str, npt.NDArray[Any]] = {
            "op": grid[:, t.OP].astype(np.uint32),
            "section": grid[:, t.SECTION].astype(np.uint8),
            "kind": grid[:, t.KIND].astype(np.uint8),
            "requires_grad": grid[:, t.GRAD].astype(np.int8),
        }
        for place, statistic in enumerate(STATISTICS):
            numbers[statistic] = cells[:, place].copy()
            numbers[f"{statistic}_kind"] = grid[:, t.STAT_KIND + place].astype(np.uint8)
        codes = self._global_codes()
        for place, column in enumerate(CODED):
            numbers[column] = codes[grid[:, t.SLOT + place]]
        md5 = _series(text, grid[:, t.MD5 : t.MD5 + 2])
        data_name = _series(text, grid[:, t.DATA_NAME : t.DATA_NAME + 2])
        op_names = _series(text, self._arrays.marks[:ops, t.NAME : t.NAME_LENGTH + 1])
        if names:
            left_out = set(dropped)
            clean = ["" if op in left_out else self._builder.clean(name) for op, name in names.items()]
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
        start, length = self._arrays.marks[op, json_tables.NAME : json_tables.NAME_LENGTH + 1].tolist()
        return str(load_value(_text(data[start - 1 : start + length + 1])))

    def _global_codes(self) -> npt.NDArray[np.uint32]:
        """The builder's codes of the tokenizer's texts, new ones added."""
        known = self._codes.size
        if int(self._arrays.work[json_tables.TEXT_COUNT]) > known:
            new = []
            for text in self._arrays.texts(known):
                column, printed = _printed(text)
                new.append(self._builder.interners[column].code(printed))
            self._codes = np.concatenate([self._codes, np.array(new, np.uint32)])
        return self._codes


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _printed(coded: bytes) -> tuple[str, str]:
    """Column and text of a coded text, which begins with its tag."""
    tag, text = coded[0], coded[1:].decode()
    if tag in _CLASSES:
        return "dtype", _CLASSES[tag]
    if tag == json_tables.T_SLOT:
        return "slot", text
    if tag == json_tables.T_DTYPE:
        return "dtype", text
    if tag == json_tables.T_SHAPE:
        return "shape", text.replace(",", ", ")
    if tag == json_tables.T_NO_SHAPE:
        return "shape", "[]"
    if tag == json_tables.T_INT:
        return "value", str(int(text))
    if tag == json_tables.T_FLOAT:
        return "value", repr(float(text))
    return "value", text if tag == json_tables.T_TEXT else _WORDS[text]


def _is_utf8(data: bytes) -> bool:
    """Whether the bytes are UTF-8, but for a character that is cut at the end."""
    if data.isascii():
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def _series(text: Bytes, spans: npt.NDArray[np.int64]) -> pl.Series:
    """Texts of the buffer, by (start, length), as a polars column, without a Python object a row."""
    count = len(spans)
    offsets = np.zeros(count + 1, np.int32)
    out = np.zeros(int(spans[:, 1].sum()), np.uint8)
    missing = json_rows.gather_texts(text, spans, offsets, out)
    if missing == count:
        return pl.Series("", [None], dtype=pl.String).new_from_index(0, count)
    validity = np.packbits(spans[:, 0] >= 0, bitorder="little") if missing else None
    array = na.c_array_from_buffers(na.string(), count, [validity, offsets, out], null_count=missing)
    return pl.Series("", array).cast(pl.String)
