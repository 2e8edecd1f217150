"""The xlsx report: slices of final cells to one workbook with xlsxwriter, in constant memory.

Every text is a text cell: nothing is run as a formula or turned into a link.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from opassay.pipeline.report.csv import formula_like
from opassay.pipeline.report.files import LOGGER, ClosedWriter, WholeFile, output_error

if TYPE_CHECKING:
    import polars as pl
    from xlsxwriter.format import Format
    from xlsxwriter.worksheet import Worksheet

    Cell = str | float | tuple[str, Format | None]

MAX_ROWS: Final = 1_048_499  # rows of a sheet; with 1,048,500 or more there are several
MAX_SHEET_BYTES: Final = 1_900_000_000  # of XML: near 2 GiB a zip needs extensions that Excel complains about
CELL_LIMIT: Final = 32_767  # UTF-16 units of a cell
_PIECE: Final = 2_048  # rows made into Python objects at once
_DIGITS: Final = 16  # significant digits that xlsxwriter writes of a number

_NUMBER: Final = r"^-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$"
_RICH: Final = r"(?s)^<r>.*</r>$"  # xlsxwriter takes such a text for its own markup
_CREATED: Final = datetime(1980, 1, 1)  # said by every workbook: equal cells give equal bytes

_HEADER: Final = {"bold": True, "bg_color": "#E7E6E6"}
_FILLS: Final = {
    "error": {"font_color": "#9C0006", "bg_color": "#FF9999"},
    "warning": {"font_color": "#7F6000", "bg_color": "#FFEB84"},
}
_TEXT: Final = {"num_format": "@", "quote_prefix": True}  # stays a text even if somebody edits the cell

# end of the internal name, width in characters; the first that fits
_WIDTHS: Final = (
    ("data_name", 40),
    ("_dtype", 16),
    ("_shape", 22),
    ("message", 90),
    ("stack", 60),
    ("result", 10),
    ("_md5", 18),
)
_OTHER_WIDTH: Final = 15
_NAMES: Final = ("target_name", "golden_name")
_LINE_POINTS: Final = 15  # height of a line of text
_WIDEST: Final = 100  # of a column that fits its longest cell


class XlsxWriter(ClosedWriter):
    """Writes slices of the report, in order, to one xlsx file.

    The sheet is ``Sheet1``. If the rows do not fit into one sheet, the sheets are ``part_0``, ``part_1``, ..., each
    full but the last and each with the header. Header bold and frozen with the first column, filter on every column;
    cells of ``result`` are filled: error red, warning yellow.

    Parameters
    ----------
    path : Path
        Final name.
    columns : dict of str to str
        Internal column -> header, in report order. A column ``X`` with a companion ``X_number`` in the slice becomes
        numeric cells where the companion is finite and the text is a number; all digits of the text are written, so
        integers of any size stay whole. All other cells are text.
    max_rows : int
        Rows a sheet, without the header.

    Notes
    -----
    Nothing has its final name before `close`; until then a hidden folder beside it holds the rows, uncompressed.
    Equal cells give equal bytes, however they were sliced.
    """

    def __init__(self, path: Path, columns: dict[str, str], *, max_rows: int = MAX_ROWS) -> None:
        from xlsxwriter import Workbook

        self.path = path
        self.columns = columns
        self.max_rows = max_rows
        self.shortened = 0  # cells cut to the limit
        self._whole = WholeFile(path)
        self._archive = _Archive(self._whole.file)
        self._folder: str | None = None
        self._sheets: list[Worksheet] = []
        self._rows = 0  # in the last sheet
        self._longest = dict.fromkeys(self.fitted, 0)  # characters, of the last sheet's cells
        self._bytes = 0  # in the folder when the last sheet began
        try:
            self._folder = tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
            self._book = Workbook(self._archive, {"constant_memory": True, "tmpdir": self._folder})
            self._book.use_zip64()  # a complaint of Excel is better than no report
            self._book.set_properties({"created": _CREATED})
            self._header = self._book.add_format(_HEADER)
            self._fills = {result: self._book.add_format(fill) for result, fill in _FILLS.items()}
            self._text = self._book.add_format(_TEXT)
            self._plain = self._book.add_format()
            self._lines = self._book.add_format({"text_wrap": True, "valign": "top"})
            self._begin_sheet()
        except OSError as error:
            self.discard()
            raise output_error(path, error) from error

    @property
    def fitted(self) -> tuple[str, ...]:
        """Columns as wide as their longest cell; the others have a width of their kind."""
        return tuple(name for name in ("target_name", "golden_name") if name in self.columns)

    def add(self, frame: pl.DataFrame) -> None:
        """Append one slice.

        Parameters
        ----------
        frame : polars.DataFrame
            Has every column of `columns`, as text; nulls become empty cells.

        Raises
        ------
        OutputError
            If the disk refuses; call `discard`.
        """
        start = 0
        try:
            while start < frame.height:
                if self._is_full():
                    self._end_sheet(last=False)
                    self._begin_sheet()
                # pieces end at the same rows of a sheet however the rows were sliced
                piece = frame.slice(start, min(_PIECE - self._rows % _PIECE, self.max_rows - self._rows))
                self._add_piece(piece)
                start += piece.height
        except OSError as error:
            raise output_error(self.path, error) from error

    def close(self) -> list[Path]:
        """Finish the workbook and give it its name, which is returned.

        Raises
        ------
        OutputError
            If the last bytes or the name cannot be written; nothing is left behind.
        """
        from xlsxwriter.exceptions import FileCreateError

        if self.shortened:
            LOGGER.warning("%s: %d cells are longer than a sheet holds and were cut", self.path, self.shortened)
        try:
            self._end_sheet(last=True)
            self._book.close()
        except FileCreateError as error:
            self.discard()
            cause = error.args[0]
            raise output_error(self.path, cause if isinstance(cause, OSError) else OSError(str(cause))) from error
        except OSError as error:
            self.discard()
            raise output_error(self.path, error) from error
        try:
            return [self._whole.commit()]
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove the unfinished file and what belongs to it; does nothing after `close`."""
        self._archive.abandon()
        for sheet in self._sheets:
            for file in (sheet.fh, sheet.row_data_fh):
                with contextlib.suppress(OSError):
                    file.close()
        self._sheets = []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        self._whole.discard()

    def _is_full(self) -> bool:
        if self._rows == self.max_rows:
            return True
        return self._rows % _PIECE == 0 and self._rows > 0 and self._folder_bytes() - self._bytes > MAX_SHEET_BYTES

    def _folder_bytes(self) -> int:
        assert self._folder is not None
        with os.scandir(self._folder) as entries:
            return sum(entry.stat().st_size for entry in entries)

    def _begin_sheet(self) -> None:
        self._bytes = self._folder_bytes()
        sheet = self._book.add_worksheet(f"part_{len(self._sheets)}" if self._sheets else "Sheet1")
        self._sheets.append(sheet)
        self._rows = 0
        self._longest = dict.fromkeys(self.fitted, 0)
        sheet.freeze_panes(1, 1)
        for place, (name, header) in enumerate(self.columns.items()):
            sheet.set_column(place, place, _width(name, header))
            sheet.write_string(0, place, header, self._header)

    def _end_sheet(self, *, last: bool) -> None:
        from xlsxwriter.utility import xl_range

        sheet = self._sheets[-1]
        if len(self._sheets) == 1 and not last:
            sheet.name = "part_0"  # before the filter, which is the first to refer to the name
        for place, (name, header) in enumerate(self.columns.items()):
            if name in self._longest:
                sheet.set_column(place, place, max(min(self._longest[name] + 2, _WIDEST), _least(header)))
        area = (0, 0, self._rows, len(self.columns) - 1)
        sheet.autofilter(*area)
        sheet.ignore_errors({"number_stored_as_text": xl_range(*area)})

    def _add_piece(self, piece: pl.DataFrame) -> None:
        import polars as pl

        names = list(self.columns)
        joined = pl.col([name for name in _NAMES if name in names])
        piece = piece.with_columns(
            joined.str.replace_all(";  ", ";\n", literal=True)
        )  # names of a joined row (consistent_check.md, 3)
        piece = self._cut(piece.with_columns(pl.col(names).fill_null("")), names)
        for name in self._longest:  # of a text of several lines the longest
            length = piece[name].str.split("\n").explode().str.len_chars().max()
            self._longest[name] = max(self._longest[name], int(length) if isinstance(length, int) else 0)
        formulas = piece.select(formula_like(pl.col(names)).any()).row(0, named=True)
        markup = piece.select(pl.col(names).str.contains(_RICH).any()).row(0, named=True)
        columns = [self._cells(piece, name, marked=formulas[name] or markup[name]) for name in names]
        sheet = self._sheets[-1]
        write_string, write_number = sheet.write_string, sheet.write_number
        heights = _lines_of(piece, [name for name in _NAMES if name in names])
        for row, cells in enumerate(zip(*columns, strict=True), self._rows + 1):
            if heights and (lines := heights.get(row - self._rows - 1)):
                sheet.set_row(row, _LINE_POINTS * lines)
            for place, cell in enumerate(cells):
                kind = cell.__class__
                if kind is str:
                    if cell:
                        write_string(row, place, cell)
                elif kind is tuple:
                    self._write_marked(row, place, *cell)
                else:
                    write_number(row, place, cell)
        self._rows += piece.height

    def _cells(self, piece: pl.DataFrame, name: str, *, marked: bool) -> list[Cell]:
        """What is to be written of a column; with `marked`, some of its texts need more than that."""
        import polars as pl

        text = pl.col(name)
        texts: list[str] = piece[name].to_list()
        cells: list[Cell] = list(texts)
        if marked:
            formula, rich = piece.select(formula_like(text).alias("formula"), text.str.contains(_RICH).alias("rich"))
            for place in (formula | rich).arg_true():
                cells[place] = (texts[place], self._text if formula[place] else None)
        if name in _NAMES:
            for place, text_of in enumerate(texts):
                if "\n" in text_of:
                    cells[place] = (text_of, self._lines)
        if name == "result":
            cells = [(result, self._fills[result]) if result in self._fills else result for result in texts]
        if f"{name}_number" in piece.columns:
            number = pl.col(f"{name}_number")
            numeric = number.is_finite() & text.str.contains(_NUMBER)
            numbers = piece.select(pl.when(numeric).then(number)).to_series().to_list()
            for place, (value, digits) in enumerate(zip(numbers, texts, strict=True)):
                if value is not None:
                    cells[place] = value if len(digits) <= _DIGITS else _Exact(digits)
        return cells

    def _write_marked(self, row: int, place: int, text: str, cell_format: Format | None) -> None:
        sheet = self._sheets[-1]
        if text.startswith("<r>") and text.endswith("</r>"):
            sheet.write_rich_string(row, place, text[0], self._plain, text[1:], cell_format or self._plain)
        else:
            sheet.write_string(row, place, text, cell_format)

    def _cut(self, piece: pl.DataFrame, names: list[str]) -> pl.DataFrame:
        """Cells over the limit, cut and ended by an ellipsis."""
        import polars as pl

        long = piece.select(pl.col(names).str.len_bytes().max() > CELL_LIMIT).row(0, named=True)
        for name in (name for name, is_long in long.items() if is_long):
            cells = [shortened(cell) for cell in piece[name]]
            self.shortened += sum(new != old for new, old in zip(cells, piece[name], strict=True))
            piece = piece.with_columns(pl.Series(name, cells, pl.String))
        return piece


def _lines_of(piece: pl.DataFrame, names: list[str]) -> dict[int, int]:
    """Rows whose names stand in several lines (joined rows), and in how many."""
    import polars as pl

    breaks = piece.select(pl.max_horizontal(pl.col(names).str.count_matches("\n", literal=True))).to_series()
    return {row: breaks[row] + 1 for row in (breaks > 0).arg_true()}


class _Exact(float):
    """A number that is written with the digits of its text: more of them than the format of xlsxwriter keeps."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> _Exact:
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __format__(self, specification: str) -> str:
        return self.text


class _Archive:
    """The file that xlsxwriter zips into.

    A zip archive tries to finish itself even after a failure, whenever Python forgets it; once the file is abandoned
    such bytes go nowhere, in place of a second error on the user's terminal.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file: BinaryIO | None = file
        self._place = 0  # counted on after `abandon`: the archive's destructor subtracts positions

    def abandon(self) -> None:
        """Drop everything that is still written."""
        self._file = None

    def write(self, data: bytes) -> int:
        if self._file is not None:
            self._file.write(data)
            self._place = self._file.tell()
        else:
            self._place += len(data)
        return len(data)

    def tell(self) -> int:
        return self._place if self._file is None else self._file.tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        if self._file is not None:
            self._place = self._file.seek(offset, whence)
        return self._place

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()


def shortened(text: str, limit: int = CELL_LIMIT) -> str:
    """`text`, or as much of it as leaves room for an ellipsis in `limit` UTF-16 units."""
    units = text.encode("utf-16-le")
    if len(units) <= 2 * limit:
        return text
    return units[: 2 * (limit - 1)].decode("utf-16-le", "ignore") + "…"


def _width(name: str, header: str) -> int:
    """Characters: what the column usually holds, and never less than the header needs."""
    usual = next((width for end, width in _WIDTHS if name.endswith(end)), _OTHER_WIDTH)
    return max(usual, _least(header))


def _least(header: str) -> int:
    """Characters of a header with its filter arrow."""
    return len(header) + 5
