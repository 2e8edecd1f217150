"""Rows of an xlsx report, a few megabytes of its text at a time: chosen columns of chosen rows, in bounded memory.

An xlsx file is a zip of XML. The text of a sheet is unpacked as a stream and cut into rows; polars takes the name out of each
row, and other cells only from rows that are wanted. What is not laid out as spreadsheet programs do is refused, never guessed at.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree

import polars as pl
from opassay.pipeline.merge.errors import BrokenReport
from opassay.pipeline.read.json_text import open_regular

if TYPE_CHECKING:
    from typing import Self

ENTRY_LIMIT: Final = 2 << 30  # bytes of one unpacked part; our own writer ends a sheet before
TOTAL_LIMIT: Final = 10 << 30  # and of all parts
_SMALL_LIMIT: Final = 4 << 20  # of a part that is parsed whole: the list of sheets
_BLOCK: Final = 4 << 20
_TOGETHER: Final = 8_192  # wanted rows whose cells are taken out at once
_ROW_LIMIT: Final = 32 << 20  # bytes; a row of thirty cells, each as long as a cell can be, has a sixth of it

_BOOK, _LINKS, _SHARED = "xl/workbook.xml", "xl/_rels/workbook.xml.rels", "xl/sharedStrings.xml"
_RELATION: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_ESCAPE: Final = re.compile(r"&(?:#x([0-9A-Fa-f]{1,6})|#([0-9]{1,7})|(lt|gt|amp|quot|apos));|_x([0-9A-Fa-f]{4})_")
_ENTITIES: Final = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_TEXT: Final = r"(?s)<t(?:\s[^>]*)?>(.*?)</t>"
_RUN: Final = r"(?s)<t(?:\s[^>]*)?>.*?</t>"
_TAG: Final = r"</?t(?:\s[^>]*)?>"
_EMPTY: Final = "<si ?/>"  # an empty text of the shared table; it has no end tag
_UNUSUAL: Final = "its cells are not laid out as spreadsheet programs do; save it again with one, or as csv"


@dataclass(frozen=True, slots=True)
class Sheet:
    """One sheet: its name, its part of the zip, and its first row as text -> letters of the column."""

    name: str
    part: str
    columns: dict[str, str]


class XlsxRows:
    """An open xlsx file.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    BrokenReport
        If it is no xlsx file, or unpacks to more than `ENTRY_LIMIT` a part or `TOTAL_LIMIT` in all. Also raised later, where
        a part turns out to be damaged.
    OSError
        If it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._file = open_regular(path)
        self._strings: pl.Series | None = None
        try:
            with _told():
                self._zip = zipfile.ZipFile(self._file)
            self._check_sizes()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._zip.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def sheets(self) -> list[Sheet]:
        """All sheets with their headers, in the order of the workbook; charts and empty sheets are left out."""
        targets = {
            link.get("Id", ""): posixpath.normpath(posixpath.join("/xl", link.get("Target", ""))).lstrip("/")
            for link in self._small(_LINKS)
            if link.get("Type", "").endswith("/worksheet")
        }
        listed = [one for one in self._small(_BOOK).iter() if one.tag.rpartition("}")[2] == "sheet"]
        parts = [(one.get("name", ""), targets.get(one.get(_RELATION, ""))) for one in listed]
        return [
            Sheet(name, part, header) for name, part in parts if part is not None and (header := self._header(part))
        ]

    def rows(self, sheet: Sheet, columns: dict[str, str], keep: pl.Expr, *, first: str) -> Iterator[pl.DataFrame]:
        """Rows below the header, in order, some thousands at a time.

        Parameters
        ----------
        sheet : Sheet
            One of `sheets`.
        columns : dict of str to str
            Header in the sheet -> name of the column in the result; holds one whose name is `first`.
        keep : polars.Expr
            Which rows, by the column `first`.
        first : str
            The column that `keep` looks at; rows without it are left out.

        Yields
        ------
        polars.DataFrame
            String columns; null where a cell is empty. Numbers have the digits they are written with, truth is ``True`` or ``False``.
        """
        letters = {name: sheet.columns[header] for header, name in columns.items()}
        below = 1  # the header is a row as well
        names: list[str] = []
        texts: list[str] = []  # as Python texts: a column of few rows would hold on to the whole block they come from
        for frame in self._frames(sheet.part):
            frame = frame.slice(below)
            below = 0
            frame = frame.with_columns(self._texts(frame, letters[first]).alias(first))
            frame = frame.filter((pl.col(first) != "") & keep)
            names.extend(frame[first].to_list())
            texts.extend(frame["row"].to_list())
            if len(texts) >= _TOGETHER:
                yield self._cells(names, texts, letters, first)
                names, texts = [], []
        if texts:
            yield self._cells(names, texts, letters, first)

    def _cells(self, names: list[str], texts: list[str], letters: dict[str, str], first: str) -> pl.DataFrame:
        frame = pl.DataFrame({"row": texts})
        return pl.DataFrame(
            {
                name: pl.Series(names) if name == first else self._texts(frame, letter)
                for name, letter in letters.items()
            }
        )

    def _check_sizes(self) -> None:
        total = 0
        for entry in self._zip.infolist():
            total += entry.file_size
            if entry.file_size > ENTRY_LIMIT or total > TOTAL_LIMIT:
                raise BrokenReport(
                    f"it would unpack to more than {ENTRY_LIMIT >> 30} GiB a sheet or {TOTAL_LIMIT >> 30} GiB in all"
                )

    def _small(self, part: str) -> ElementTree.Element:
        with _told():
            try:
                with self._zip.open(part) as file:
                    data = file.read(_SMALL_LIMIT + 1)
            except KeyError:
                raise BrokenReport(f"it has no {part}; it is no xlsx file") from None
        if (
            len(data) > _SMALL_LIMIT or b"<!" in data
        ):  # no spreadsheet program writes a document type, and entities need one
            raise BrokenReport(_UNUSUAL)
        try:
            return ElementTree.fromstring(data)
        except ElementTree.ParseError as error:
            raise BrokenReport(f"its part {part} is no XML: {error}") from None

    def _header(self, part: str) -> dict[str, str]:
        columns: dict[str, str] = {}
        for frame in self._frames(part):
            row = frame.head(1)
            for letters in re.findall(r'<c r="([A-Z]{1,3})[0-9]+"', row.item(0, 0)):
                text = self._texts(row, letters).item()
                if text:
                    columns.setdefault(text, letters)  # of two columns of one name the first
            break
        return columns

    def _frames(self, part: str) -> Iterator[pl.DataFrame]:
        """The rows of a sheet as they are written, column ``row``."""
        for pieces in self._pieces(part, b"</row>"):
            # a program writes all rows alike: one of each block tells
            if pieces[0].count("<c ") + pieces[0].count("<c>") != pieces[0].count('<c r="'):
                raise BrokenReport(_UNUSUAL)
            yield pl.DataFrame({"row": pieces}, schema={"row": pl.String})

    def _pieces(self, part: str, end: bytes) -> Iterator[list[str]]:
        """The text of a part, cut where `end` stands; what is behind the last one is read, too, and must be sound."""
        rest = b""
        with _told(), self._open(part) as file:
            while block := file.read(_BLOCK):
                text = rest + block
                cut = text.rfind(end)
                if cut < 0:
                    rest = text
                    if len(rest) > _ROW_LIMIT:
                        raise BrokenReport(_UNUSUAL)
                    continue
                text, rest = text[:cut], text[cut + len(end) :]
                yield text.decode().split(end.decode())
        if b"<c " in rest or b":c " in rest:
            raise BrokenReport(_UNUSUAL)

    def _open(self, part: str) -> zipfile.ZipExtFile:
        try:
            return self._zip.open(part)  # type: ignore[return-value]  # typeshed says IO[bytes]
        except KeyError:
            raise BrokenReport(f"its part {part} is missing") from None

    def _texts(self, frame: pl.DataFrame, letters: str) -> pl.Series:
        """The cells of one column: String, null where there is none."""
        start = rf'<c r="{letters}[0-9]+"'
        plain = frame["row"].str.extract(rf'{start}[^>]* t="inlineStr"><is><t[^>]*>([^<]*)</t></is></c>', 1)
        if (
            not plain.null_count()
        ):  # names of a report that no spreadsheet program has touched: half the work of what follows
            return _unescaped(plain)
        pattern = rf"(?s){start}(?P<marks>[^>]*?)(?:/>|>(?P<inside>.*?)</c>)"
        cells = frame.lazy().select(pl.col("row").str.extract_groups(pattern)).unnest("row")
        kind = pl.col("marks").str.extract(r'\bt="([a-zA-Z]+)"', 1).fill_null("n")
        frame = cells.select(kind.alias("kind"), "inside").collect()
        runs = pl.col("inside").str.contains("<r>", literal=True).any()
        kinds, has_runs = frame.select(pl.col("kind").unique().implode(), runs.alias("runs")).row(0)
        value = pl.col("inside").str.extract(r"(?s)<v(?:\s[^>]*)?>(.*?)</v>", 1)
        inline = _inline(pl.col("inside"), has_runs=bool(has_runs))
        if kinds == ["inlineStr"]:
            return _unescaped(frame.select(inline).to_series())
        text = value
        if "b" in kinds:
            said = value.replace({"1": "True", "0": "False"})
            text = pl.when(pl.col("kind") == "b").then(said).otherwise(text)
        if "inlineStr" in kinds:
            text = pl.when(pl.col("kind") == "inlineStr").then(inline).otherwise(text)
        if "s" in kinds:
            places = frame.select(pl.when(pl.col("kind") == "s").then(value)).to_series()
            frame = frame.with_columns(self._shared(places))
            text = pl.when(pl.col("kind") == "s").then(pl.col("shared")).otherwise(text)
        return _unescaped(frame.select(text.alias("text")).to_series())

    def _shared(self, places: pl.Series) -> pl.Series:
        """Texts of the table that all sheets of a file share, by their numbers."""
        if self._strings is None:
            texts = [
                pl.DataFrame({"inside": pieces})
                .select(pl.col("inside").str.replace_all(_EMPTY, "</si>").str.split("</si>").explode())
                .select(_inline(pl.col("inside"), has_runs=True).fill_null(""))
                .to_series()
                for pieces in self._pieces(_SHARED, b"</si>")
            ]
            self._strings = pl.concat(texts) if texts else pl.Series([], dtype=pl.String)
        numbers = places.cast(pl.UInt32, strict=False)
        if numbers.null_count() != places.null_count() or int(numbers.max() or 0) >= max(self._strings.len(), 1):  # type: ignore[arg-type]
            raise BrokenReport("a cell points to a text that the file does not hold")
        return self._strings.gather(numbers).alias("shared")


def _inline(inside: pl.Expr, *, has_runs: bool) -> pl.Expr:
    """The text between tags; of several runs, which differ in their format, all."""
    one = inside.str.extract(_TEXT, 1)
    if not has_runs:
        return one
    bare = inside.str.replace_all(r"(?s)<rPh.*?</rPh>", "")
    runs = bare.str.extract_all(_RUN).list.join("").str.replace_all(_TAG, "")
    return pl.when(inside.str.contains("<r>", literal=True)).then(runs).otherwise(one)


def _unescaped(texts: pl.Series) -> pl.Series:
    """Texts with XML's and the spreadsheet's escapes taken away; few texts have any."""
    text = pl.col("text")
    frame = texts.to_frame("text")
    escaped = text.str.contains(r"&|_x[0-9A-Fa-f]{4}_").fill_null(False)
    tags, escapes = frame.select(text.str.contains("<", literal=True).any().alias("tags"), escaped.any()).row(0)
    if tags:  # a comment or CDATA: no program writes them
        raise BrokenReport(_UNUSUAL)
    if not escapes:
        return texts
    where = frame.select(escaped).to_series().arg_true()
    plain = [_ESCAPE.sub(_character, text) for text in texts.gather(where)]
    return texts.scatter(where, pl.Series(plain, dtype=pl.String))


def _character(found: re.Match[str]) -> str:
    wide, plain, entity, unit = found.groups()
    if entity:
        return _ENTITIES[entity]
    code = int(plain) if plain else int(wide or unit, 16)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Whatever can be wrong inside a zip, as one kind of error."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise BrokenReport(f"it is no sound xlsx file: {error}") from error
    except UnicodeDecodeError as error:
        raise BrokenReport("it is no sound xlsx file: its text is not UTF-8") from error
    except (NotImplementedError, RuntimeError) as error:  # other compression, a password
        raise BrokenReport(f"it cannot be unpacked: {error}; save it without a password, or as csv") from error
