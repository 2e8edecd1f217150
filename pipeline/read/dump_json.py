"""dump.json or debug.json -> ``DumpTable``, without ever holding the document as Python objects.

Small files go record by record through the json module and ``flatten``; large ones through the tokenizer of
``kernels.json_rows``, which hands back the records that surprise it. Both give the same table.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal

import polars as pl
from opassay.pipeline.read.flatten import DEPTH_LIMIT, FlatRow, flatten_record, record_class
from opassay.pipeline.read.interning import RowBlock, TableBuilder
from opassay.pipeline.read.json_text import Broken, TextWindow, TooLarge, is_utf16, open_regular
from opassay.pipeline.watch.logs import clip
from opassay.schemas.dump_rows import DumpTable
from opassay.schemas.errors import DumpMalformed, DumpNotFound

if TYPE_CHECKING:
    from opassay.pipeline.read.json_slices import SliceReader

Reader = Literal["auto", "tokenizer", "general"]

_HEADER: Final = ("task", "level", "framework")
LOAD_WORTH: Final = 8 << 20  # bytes of JSON; below this, loading the tokenizer costs more than it saves
_CALL_WORTH: Final = 64 << 10  # bytes of a file, where the tokenizer is loaded anyway
_BLOCK_ROWS: Final = 1 << 14


def read_dump(path: Path, *, reader: Reader = "auto", slice_bytes: int = 2 << 20, total_bytes: int = 0) -> DumpTable:
    """Read one dump.json or debug.json.

    Parameters
    ----------
    path : Path
        The file. A name that ends in ``debug.json``, or a level ``debug`` inside, makes it a debug dump.
    reader : {"auto", "tokenizer", "general"}
        ``auto`` takes the tokenizer from 8 MB on, where numba can be used.
    slice_bytes : int
        Bytes the tokenizer reads at a time; more for a record that is longer.
    total_bytes : int
        Bytes of all dumps that this process will read: many small ones are worth the tokenizer too.

    Returns
    -------
    DumpTable
        What could be read; ``problems`` says what could not. A file that is cut gives the records before the cut.

    Raises
    ------
    DumpNotFound
        If there is no such file.
    DumpMalformed
        If it is empty, no JSON object, has no ``task`` or no ``data`` object, or is cut before its first record.
    """
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            if not size:
                raise DumpMalformed(f"{path} is empty; dump this rank again, or point to a file that is complete")
            if is_utf16(file):
                raise DumpMalformed(
                    f"{path} is written in UTF-16 and dumps are UTF-8; convert it, or dump this rank again"
                )
            worth = size >= LOAD_WORTH or (total_bytes >= LOAD_WORTH and size >= _CALL_WORTH)
            fast = reader == "tokenizer" or (reader == "auto" and worth and _tokenizer_loads())
            is_debug = path.name.endswith("debug.json")
            read = _DumpReader(path, file, is_debug, slice_bytes if fast else 0)
            table = read.table()
            if table.is_debug != is_debug:  # the level stands behind the data
                table = _DumpReader(path, file, table.is_debug, slice_bytes if fast else 0).table()
            return table
    except FileNotFoundError:
        raise DumpNotFound(f"{path} does not exist; name a dump.json or debug.json, or the folder above it") from None
    except IsADirectoryError:
        raise DumpNotFound(f"{path} is a folder; name the dump.json or debug.json in it") from None
    except OSError as error:
        raise DumpNotFound(
            f"{path} cannot be read ({error.strerror}); check the path, its permissions and its disk"
        ) from None


def _tokenizer_loads() -> bool:
    """Whether numba is there and can keep its compiled code somewhere."""
    try:
        importlib.import_module("opassay.pipeline.read.json_slices")
    except (ImportError, RuntimeError):
        return False
    return True


class _DumpReader:
    """One pass over one file; ``slice_bytes`` 0 means without the tokenizer."""

    def __init__(self, path: Path, file: BinaryIO, is_debug: bool, slice_bytes: int) -> None:
        self._path = path
        self._file = file
        self._is_debug = is_debug
        self._builder = TableBuilder()
        self._header: dict[str, str] = {}
        self._names: list[str] = []
        self._rows: list[FlatRow] = []
        self._ops: list[int] = []
        self._last = ""
        self._slices: SliceReader | None = None
        if slice_bytes:
            from opassay.pipeline.read.json_slices import SliceReader

            self._slices = SliceReader(file, is_debug, slice_bytes, self._builder, self._rows_of)

    def table(self) -> DumpTable:
        """Read the file through."""
        window = TextWindow(self._file)
        found_data = False
        try:
            if not window.open():
                raise self._malformed("its top level is not a JSON object", "check that it is a dump.json")
            first = True
            while (key := window.next_key(first=first)) is not None:
                first = False
                if key == "data":
                    found_data = True
                    if not window.open():
                        raise self._malformed("its key 'data' is not an object", "dump this rank again")
                    self._read_data(window)
                elif key in _HEADER and window.peek() not in ("{", "["):
                    self._take_header(key, window)
                else:
                    window.skip_value()
                window.mark()
            if not window.at_end():
                text = "text behind the end of the JSON object was ignored"
                self._builder.problems.add("header", f"byte {window.offset()}", text, fatal=False)
            cut = False
        except Broken as error:
            self._salvage(error)
            cut = True
        self._flush()
        if not found_data:
            raise self._malformed("it has no key 'data'", "check that it is a dump.json of a finished dump")
        if "task" not in self._header and not cut:
            raise self._malformed("it has no key 'task' with a string", "check that it is a dump.json or debug.json")
        fields = (self._header.get(name, "") for name in _HEADER)
        return self._builder.finish(self._path, *fields)

    def _malformed(self, found: str, hint: str) -> DumpMalformed:
        return DumpMalformed(f"{self._path} cannot be read: {found}; {hint}")

    def _take_header(self, key: str, window: TextWindow) -> None:
        try:
            value = window.value()
        except TooLarge:
            window.skip_value()
            value = 0
        if isinstance(value, str):
            self._header[key] = clip(self._builder.clean(value))
        elif value is not None:
            text = f"key {key!r} is not a string and was ignored"
            self._builder.problems.add("header", key, text, fatal=False)

    def _salvage(self, error: Broken) -> None:
        """Turn the place where the file breaks off into a problem, or refuse where no record came before."""
        if not self._last:
            raise self._malformed(
                f"it is cut or no JSON at byte {error.offset}, before the first complete record ({error})",
                "copy the file again, or dump this rank again",
            ) from None
        self._builder.problems.add(
            "cut",
            f"byte {error.offset}, after record {self._last}",
            f"the file is cut or damaged ({error}); only the records before that place were read",
            fatal=True,
        )

    def _read_data(self, window: TextWindow) -> None:
        """Read the members of ``data``; the window stands behind its opening brace and ends behind the closing one."""
        first = True
        while True:
            if self._slices is not None:
                self._flush()
                stop = self._slices.run(window.offset(), first=first)
                window.seek(stop.offset)
                self._last = stop.last_name or self._last
                if stop.ended:
                    return
                first = stop.first
            name = window.next_key(first=first)
            if name is None:
                return
            first = False
            try:
                record = window.value()
            except TooLarge as error:
                record = error
                window.skip_value()
            window.mark()
            self._last = name
            rows = self._rows_of(name, record)
            if rows is not None:
                self._ops.extend([len(self._names)] * len(rows))
                self._names.append(name)
                self._rows.extend(rows)
                if len(self._rows) >= _BLOCK_ROWS or len(self._names) >= _BLOCK_ROWS:
                    self._flush()

    def _rows_of(self, name: str, record: Any) -> list[FlatRow] | None:
        """Rows of a record, None for one without a direction; its troubles go to the problems."""
        if not record_class(name, is_debug=self._is_debug):
            text = "records whose names have no direction (forward, backward, parameters_grad) give no rows"
            self._builder.problems.add("direction", name, text, fatal=False)
            return None
        if isinstance(record, TooLarge):
            deep = "deep" in str(record)
            reason = f"nests deeper than {DEPTH_LIMIT} levels" if deep else "holds a number of thousands of digits"
            self._builder.problems.add("record", name, f"the record {reason} and was left out", fatal=True)
            return []
        rows, troubles = flatten_record(name, record, self._is_debug)
        for kind, text, fatal in troubles:
            self._builder.problems.add(kind, name, text, fatal=fatal)
        if any(row.p2p is not None for row in rows):
            self._builder.note_p2p(name, rows)
        return rows

    def _flush(self) -> None:
        """Hand the collected rows to the builder."""
        if self._names:
            numbers, md5, data_name = self._builder.columns_of(self._rows, self._ops)
            names = pl.Series("name", [self._builder.clean(name) for name in self._names], dtype=pl.String)
            self._builder.add(RowBlock(numbers, md5, data_name, names))
            self._names, self._rows, self._ops = [], [], []
