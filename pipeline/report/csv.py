"""The csv report: slices of final cells to one file, or to parts where a spreadsheet could not open it.

UTF-8 without byte order mark, LF, quotes only where RFC 4180 needs them. Changes no cell, except with `safe`.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opassay.pipeline.report.files import LOGGER, ClosedWriter, WholeFile

if TYPE_CHECKING:
    import polars as pl

MAX_ROWS: Final = 1_000_000  # rows of a file before it is split

# what a spreadsheet takes for the start of a formula, with the full-width forms ...
_FORMULA: Final = r"^[=+\-@\t\r\n＝＋－＠]"
# ... unless the whole cell is a number
_NUMBER: Final = r"^[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[iI]nf(?:inity)?|[nN]a[nN])$"


def formula_like(text: pl.Expr) -> pl.Expr:
    """Whether a cell (String) starts as a formula does and is no number; Boolean, null for null."""
    return text.str.contains(_FORMULA) & ~text.str.contains(_NUMBER)


class CsvWriter(ClosedWriter):
    """Writes slices of the report, in order, to csv.

    Parameters
    ----------
    path : Path
        Final name. More than `max_rows` rows go to ``{name}_part_1.csv``, ``{name}_part_2.csv``, each with the header.
    columns : dict of str to str
        Internal column -> header, in report order; other columns of a slice are left out.
    safe : bool, default False
        Put an apostrophe before text cells that a spreadsheet would run as a formula; numbers stay.
    max_rows : int
        Rows a part, at least 1.

    Notes
    -----
    Nothing has its final name before `close`. As a context manager: closed at the end, discarded by an exception.
    """

    def __init__(self, path: Path, columns: dict[str, str], *, safe: bool = False, max_rows: int = MAX_ROWS) -> None:
        self.path = path
        self.columns = columns
        self.safe = safe
        self.max_rows = max_rows
        self.neutralised = 0  # cells that got an apostrophe
        self._header = self._header_line()
        self._buffer = io.BytesIO()  # used again for every slice: fresh memory costs more than the formatting
        self._parts: list[WholeFile] = []
        self._rows = 0  # in the last part
        try:
            self._begin_part()
        except BaseException:
            self.discard()
            raise

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
        frame = frame.select(list(self.columns))
        if self.safe:
            frame = self._neutralise(frame)
        start = 0
        while start < frame.height:
            if self._rows == self.max_rows:
                self._begin_part()
            piece = frame.slice(start, self.max_rows - self._rows)
            self._buffer.seek(0)
            piece.write_csv(self._buffer, include_header=False)
            with self._buffer.getbuffer()[: self._buffer.tell()] as data:
                self._parts[-1].write(data)
            self._rows += piece.height
            start += piece.height

    def close(self) -> list[Path]:
        """Give the files their names, which are returned in order.

        Raises
        ------
        OutputError
            If the last bytes or a name cannot be written; what was not named yet is removed.
        """
        if self.neutralised:
            LOGGER.info("%s: %d cells that look like formulas got an apostrophe in front", self.path, self.neutralised)
        try:
            if len(self._parts) == 1:
                return [self._parts[0].commit()]
            return [
                part.commit(self.path.with_name(f"{self.path.stem}_part_{number}{self.path.suffix}"))
                for number, part in enumerate(self._parts, 1)
            ]
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove everything that has not got its final name."""
        for part in self._parts:
            part.discard()

    def _begin_part(self) -> None:
        self._parts.append(WholeFile(self.path))
        self._parts[-1].write(self._header)
        self._rows = 0

    def _header_line(self) -> bytes:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(self.columns.values())
        return line.getvalue().encode()

    def _neutralise(self, frame: pl.DataFrame) -> pl.DataFrame:
        import polars as pl
        import polars.selectors as cs

        text = cs.string()
        unsafe = formula_like(text)
        self.neutralised += int(frame.select(pl.sum_horizontal(unsafe.sum())).item() or 0)
        return frame.with_columns(pl.when(unsafe).then("'" + text).otherwise(text).name.keep())
