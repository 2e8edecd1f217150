"""Sheets of an xlsx report, read by python-calamine: chosen columns of chosen rows, one sheet in memory at a time.

The library unpacks whatever a file holds and lays a sheet out whole, from the first cell to the last; when memory ends so does
the process. So a file is looked through before the library opens it.
"""

from __future__ import annotations

import contextlib
import re
import zipfile
import zlib
from collections.abc import Generator, Iterator
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Final

import polars as pl
from opassay.pipeline.merge.errors import BrokenReport
from opassay.pipeline.read.json_text import open_regular
from opassay.pipeline.watch.logs import clip, one_line
from python_calamine import CalamineError, CalamineWorkbook, SheetTypeEnum

ENTRY_LIMIT: Final = 2 << 30  # bytes of one unpacked part; our own writer ends a sheet before
TOTAL_LIMIT: Final = 10 << 30  # and of all parts
_LARGE: Final = 256 << 20  # bytes unpacked, of which some 450 MB are used: of larger files one is read at a time
_BLOCK: Final = 4 << 20
_KEPT: Final = 256  # bytes of a block that are looked at again with the next, where a tag may be cut
_TOGETHER: Final = 8_192  # rows taken from the library at once

_SHEET_PARTS: Final = re.compile(r"xl/.*\.xml", re.IGNORECASE)
# cells beyond column BZ or about a million rows, where no report has any: a sheet is at most 78 columns wide then
_FAR: Final = re.compile(
    rb""" r=["']([A-Za-z]{3,}[0-9]|[C-Zc-z][A-Za-z][0-9]|[A-Za-z]{0,2}(?:[0-9]{8}|[2-9][0-9]{6}|1[1-9][0-9]{5}))"""
)
_NAME: Final = 20  # bytes of a cell's name in a message
_ERROR: Final = b' t="e"'
_MARKUP: Final = b"<!"  # CDATA and comments, of which the library leaves out the text; document types
_UNUSUAL: Final = "it is not laid out as spreadsheet programs do; save it again with one, or as csv"
_ONE_LARGE: Final = Lock()
_DAMAGE: Final = (zipfile.BadZipFile, zlib.error, EOFError, UnicodeDecodeError, CalamineError)
_LOCKED: Final = (NotImplementedError, RuntimeError)  # another compression, a password


class Sheet:
    """One sheet: its name, its headers and, once, its rows.

    Attributes
    ----------
    name : str
        As the workbook calls it.
    headers : list of str
        Texts of the first row that holds any, from left to right; of two columns of one name the first.
    """

    def __init__(self, name: str, rows: Iterator[list[Any]]) -> None:
        self.name = name
        self._rows = rows
        header = next((texts for row in rows if any(texts := [_text(value) for value in row])), [])
        self._places: dict[str, int] = {}
        for place, text in enumerate(header):
            if text:
                self._places.setdefault(text, place)
        self.headers = list(self._places)

    def rows(self, columns: dict[str, str], keep: pl.Expr, *, first: str) -> Iterator[pl.DataFrame]:
        """Rows below the header, in order, some thousands at a time; the sheet is empty afterwards.

        Parameters
        ----------
        columns : dict of str to str
            Header in the sheet -> name of the column in the result; holds one whose name is `first`.
        keep : polars.Expr
            Which rows, by the column `first`.
        first : str
            The column that `keep` looks at; rows without it are left out.

        Yields
        ------
        polars.DataFrame
            String columns; null where a cell is empty or an error (``#DIV/0!``). Numbers are the shortest text that reads back
            as the same float64, whole ones without ``.0``; truth is ``True`` or ``False``.

        Raises
        ------
        BrokenReport
            If the library fails on a cell.
        """
        places = {name: self._places[header] for header, name in columns.items()}
        while True:
            with _told():
                rows = list(islice(self._rows, _TOGETHER))
            if not rows:
                return
            names = pl.Series(first, [_text(row[places[first]]) for row in rows], dtype=pl.String)
            kept = names.to_frame().select(((pl.col(first) != "") & keep).arg_true()).to_series()
            if kept.len():
                wanted = [rows[place] for place in kept]
                yield pl.DataFrame(
                    {
                        name: names.gather(kept)
                        if name == first
                        else pl.Series([_text(row[place]) for row in wanted], dtype=pl.String)
                        for name, place in places.items()
                    }
                )

    def close(self) -> None:
        """Let the rows that were not read go."""
        self._rows = iter(())


def read_sheets(path: Path, notes: list[str]) -> Generator[Sheet, None, None]:
    """The worksheets of an xlsx file in the order of the workbook; charts and empty sheets are left out.

    Parameters
    ----------
    path : Path
        The file.
    notes : list of str
        Gets a line if there are cells that show an error: they are empty for the library.

    Yields
    ------
    Sheet
        To be read before the next one is asked for: that closes it. Close the generator where it is not read to its end, or no
        other thread can read a large file.

    Raises
    ------
    BrokenReport
        If it is no sound xlsx file, unpacks to more than `ENTRY_LIMIT` a part or `TOTAL_LIMIT` in all, or holds what the library
        would not read right or could not hold in memory.
    OSError
        If it cannot be opened.
    """
    size, has_errors = _look_through(path)
    if has_errors:
        notes.append(f"{one_line(path.name)}: cells that show an error, such as #DIV/0!, are taken as empty")
    with _ONE_LARGE if size > _LARGE else contextlib.nullcontext():
        with _told():
            book = CalamineWorkbook.from_path(path)
        with book:
            for place, told in enumerate(book.sheets_metadata):
                if told.typ != SheetTypeEnum.WorkSheet:
                    continue
                with _told():
                    sheet = Sheet(told.name, iter(book.get_sheet_by_index(place).iter_rows()))
                if sheet.headers:
                    yield sheet
                sheet.close()


def _look_through(path: Path) -> tuple[int, bool]:
    """Bytes that a file unpacks to, and whether a cell shows an error.

    The sizes that a zip states are checked before anything is unpacked. Where one is a lie, unpacking ends at the size that is
    stated, and the checksum fails.
    """
    total, has_errors = 0, False
    with open_regular(path) as file, _told(), zipfile.ZipFile(file) as parts:
        for entry in parts.infolist():
            total += entry.file_size
            if entry.file_size > ENTRY_LIMIT or total > TOTAL_LIMIT:
                raise BrokenReport(
                    f"it would unpack to more than {ENTRY_LIMIT >> 30} GiB a sheet or {TOTAL_LIMIT >> 30} GiB in all"
                )
        for entry in parts.infolist():
            is_sheet = _SHEET_PARTS.fullmatch(entry.filename) is not None
            rest = b""
            with parts.open(entry) as part:
                while block := part.read(_BLOCK):  # the last block is compared with the checksum
                    if is_sheet:
                        text = rest + block
                        has_errors |= _has_errors(text)
                        rest = text[-_KEPT:]
    return total, has_errors


def _has_errors(text: bytes) -> bool:
    """Whether a cell shows an error; raises BrokenReport on what the library must not meet."""
    if _MARKUP in text:
        raise BrokenReport(_UNUSUAL)
    for found in _FAR.finditer(text):
        before = found.start()
        if text.rfind(b"<", 0, before) > text.rfind(b">", 0, before):  # in a tag, not in the text of a cell
            cell = text[found.start(1) :][:_NAME].split(found[0][3:4])[0]
            raise BrokenReport(
                f"it has a cell {one_line(cell.decode('latin-1'))}, far beyond those of a report; clear what stands there, "
                "or save it as csv"
            )
    return _ERROR in text


def _text(value: Any) -> str | None:
    """A cell as the library gives it -> its text; None if it is empty."""
    if isinstance(value, str):
        return value or None
    text = repr(value) if isinstance(value, float) else str(value)
    return text.removesuffix(".0") if isinstance(value, float) else text


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Whatever can be wrong inside a file, as one kind of error."""
    try:
        yield
    except (BrokenReport, OSError):
        raise
    except _LOCKED as error:
        raise BrokenReport(f"it cannot be unpacked: {error}; save it without a password, or as csv") from error
    except _DAMAGE as error:
        raise BrokenReport(f"it is no sound xlsx file: {clip(one_line(str(error)))}") from error
    except BaseException as error:
        if (
            type(error).__name__ != "PanicException"
        ):  # a bug of the library; each that is written in Rust has a class of its own
            raise
        raise BrokenReport(f"the xlsx library fails on it: {clip(one_line(str(error)))}; save it as csv") from error
