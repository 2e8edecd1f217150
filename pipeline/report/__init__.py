"""Fifth station: judged rows become files. Every writer takes slices of final cells and lays its file whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import polars as pl
    from opassay.schemas.options import CompareOptions


class Writer(Protocol):
    """What writes a report."""

    def add(self, frame: pl.DataFrame) -> None:
        """Append one slice."""

    def close(self) -> list[Path]:
        """Give the files their names."""

    def discard(self) -> None:
        """Remove what has no final name."""


@contextmanager
def open_writers(
    folder: Path, label: str, columns: dict[str, str], options: CompareOptions, *, debug: bool, stamp: str
) -> Iterator[list[Writer]]:
    """The writers that the options ask for; discarded together if the block ends by an exception.

    Parameters
    ----------
    folder : Path
        Where results go; exists.
    label : str
        ``rank3``, ``proc4242`` or "" (see ``files.result_stem``).
    columns : dict
        Internal column -> header.
    options : CompareOptions
        As given.
    debug : bool
        Whether debug.json files are compared.
    stamp : str
        Timestamp of the names.
    """
    from opassay.pipeline.report.files import result_path, result_stem

    stem = result_stem(label, debug=debug)
    writers: list[Writer] = []
    try:
        if options.xlsx:
            from opassay.pipeline.report.xlsx import XlsxWriter

            writers.append(XlsxWriter(result_path(folder, stem, ".xlsx", stamp), columns))
        else:
            from opassay.pipeline.report.csv import CsvWriter

            writers.append(CsvWriter(result_path(folder, stem, ".csv", stamp), columns, safe=options.csv_safe))
        if options.parquet:
            from opassay.pipeline.report.parquet import ParquetWriter

            writers.append(ParquetWriter(result_path(folder, stem, ".parquet", stamp), columns))
        yield writers
    finally:
        for writer in writers:
            writer.discard()
