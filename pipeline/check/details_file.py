"""accuracy_checking_details files of either tool: any order of columns, spellings with blanks, cut lines kept with a word."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl
from opassay.pipeline.read.json_text import open_regular
from opassay.pipeline.watch.logs import clip, one_line
from opassay.schemas.check_rows import DETAILS
from opassay.schemas.errors import DumpError, DumpMalformed, DumpNotFound, UsageError
from opassay.schemas.precision_rows import NEEDED, USED

SUFFIX: Final = ".csv"


@dataclass(frozen=True, slots=True)
class DetailsFile:
    """Rows of one file.

    Attributes
    ----------
    path : Path
        Where it is.
    rows : polars.DataFrame
        The columns of ``USED`` by their internal names, String, in the order of the file; null where a cell is empty.
    problems : tuple of str
        A line for each row that is not as long as the header.
    """

    path: Path
    rows: pl.DataFrame
    problems: tuple[str, ...] = ()


def read_details(path: Path, side: str) -> DetailsFile:
    """Read the columns that a comparison uses.

    Parameters
    ----------
    path : Path
        A csv file in UTF-8, with a byte order mark or without, lines ended by LF or CRLF.
    side : str
        ``npu_csv`` or ``gpu_csv``, for messages.

    Raises
    ------
    UsageError
        If the name does not end in ``.csv``, or a column is missing or stands twice.
    DumpNotFound
        If there is no such file.
    DumpMalformed
        If it is empty or no text in UTF-8.
    DumpError
        If it cannot be read.
    """
    if path.suffix != SUFFIX:
        raise UsageError(f"{side} {path} is no .csv file; name the accuracy_checking_details csv of run_ut")
    data = _content(path, side)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DumpMalformed(f"{side} {path} is not UTF-8 at byte {error.start}; save it as csv in UTF-8") from None
    lines = csv.reader(io.StringIO(text, newline=""))
    try:
        header = next(lines, [])
    except csv.Error as error:
        raise DumpMalformed(f"{side} {path} is no csv file: {error}") from None
    if not any(map(str.strip, header)):
        raise DumpMalformed(f"{side} {path} is empty; name the accuracy_checking_details csv of run_ut")
    places = _places(header, path, side)
    frame, problems = _rows(text, header, f"{side} {path}", places["message"])
    rows = frame.select(
        frame[:, places[name]].alias(name) if name in places else pl.lit(None, pl.String).alias(name) for name in USED
    )
    rows = rows.filter(~pl.all_horizontal(pl.all().is_null())).with_columns(
        pl.col("name").fill_null("").str.strip_chars()
    )
    return DetailsFile(path, rows, tuple(problems))


def _content(path: Path, side: str) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read()
    except FileNotFoundError:
        raise DumpNotFound(f"{side} {path} does not exist") from None
    except OSError as error:
        raise DumpError(f"{side} {path} cannot be read: {error.strerror or error}") from None


def _spelt(header: str) -> str:
    """A header without blanks, in lower case: spellings of the governing document and of either tool become one."""
    return "".join(header.split()).casefold()


_KNOWN: Final = {_spelt(DETAILS[name]): name for name in USED}


def _places(header: list[str], path: Path, side: str) -> dict[str, int]:
    """Internal name -> column."""
    places: dict[str, int] = {}
    twice: list[str] = []
    for place, title in enumerate(header):
        name = _KNOWN.get(_spelt(title))
        if name in places:
            twice.append(DETAILS[name])
        elif name is not None:
            places[name] = place
    missing = [DETAILS[name] for name in NEEDED if name not in places]
    if missing:
        begin = clip(one_line(", ".join(header)))
        raise UsageError(
            f"The following columns {', '.join(missing)} are missing in {side} {path}, which has {begin}; "
            "name the accuracy_checking_details csv of run_ut"
        )
    if twice:
        raise UsageError(f"The following columns {', '.join(twice)} stand twice in {side} {path}; leave one of each")
    return places


def _rows(text: str, header: list[str], where: str, message: int) -> tuple[pl.DataFrame, list[str]]:
    """All rows as text, by position; polars reads sound files, the standard library all others, row by row."""
    status = [title for title in header if _spelt(title) == _spelt(DETAILS["status"])]
    if text.endswith("\n"):
        try:
            frame = pl.read_csv(text.encode(), infer_schema=False)
        except pl.exceptions.PolarsError:
            pass  # a row that is longer than the header, or a quote that is never closed
        else:
            cut = any(frame[title].null_count() for title in status if title in frame.columns)  # it is never empty
            if frame.width == len(header) and not cut:
                return frame, []
    return _rows_one_by_one(text, len(header), where, message)


def _rows_one_by_one(text: str, width: int, where: str, message: int) -> tuple[pl.DataFrame, list[str]]:
    lines = csv.reader(io.StringIO(text, newline=""))
    next(lines)
    rows: list[list[str | None]] = []
    problems: list[str] = []
    try:
        for cells in lines:
            if not cells:
                continue
            if len(cells) != width:
                problems.append(
                    f"{where}, line {lines.line_num}: {len(cells)} cells, the header has {width}; a line was cut"
                )
                # what stands behind the name may belong to another row
                cells = [cells[0], *[""] * (width - 1)]
                cells[message] = "a line of the file was cut here"
            rows.append([cell if cell != "" else None for cell in cells])
    except csv.Error as error:
        problems.append(f"{where}, line {lines.line_num}: {error}; the rows behind it are lost")
    schema = {str(place): pl.String for place in range(width)}
    return pl.DataFrame(rows, schema=schema, orient="row"), problems
