"""The merged table: a sheet for each metric, a column for each rank. Rows of ranks wait on disk until their order is known."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl
from opassay.kernels.merge_cells import COPY, NAME, PLACE, is_numeric, number, spliced
from opassay.pipeline.merge.reports import RankRows
from opassay.pipeline.report.files import output_error
from opassay.pipeline.report.xlsx import XlsxWriter
from opassay.schemas.vocab import DumpMode

if TYPE_CHECKING:
    from typing import Self

_SLICE: Final = 4_096  # rows made into cells at once, over all ranks


class Shelf:
    """The rows of all ranks, on disk, and the one order in which they stand.

    Parameters
    ----------
    folder : Path
        Where a hidden folder for them is made; removed at the end of the ``with`` block.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self._folder = tempfile.TemporaryDirectory(prefix=".opassay_merge.", suffix=".part", dir=folder)
        except OSError as error:
            raise output_error(folder, error) from error
        self.order = pl.DataFrame(schema={NAME: pl.String, COPY: pl.UInt32, PLACE: pl.Int64})
        self._ranks: list[tuple[str, DumpMode, Path]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def put(self, rank: RankRows) -> None:
        """Add the rows of one more rank; ranks come in the order of their numbers."""
        path = Path(self._folder.name, rank.report.label)
        try:
            rank.rows.write_ipc(path, compression="uncompressed")
        except OSError as error:
            raise output_error(path, error) from error
        self._ranks.append((rank.report.label, rank.mode, path))
        self.order = spliced(self.order, rank.rows.select(NAME, COPY))

    def places(self) -> dict[str, pl.Series]:
        """Row of the rank for each row of the order (UInt32, null where the rank has none), by the rank's label."""
        keys = [NAME, COPY]
        return {
            label: self.order.join(
                pl.read_ipc(path, columns=keys).with_row_index("row"), on=keys, how="left", maintain_order="left"
            )["row"]
            for label, _, path in self._ranks
        }

    def column(self, label: str, metric: str) -> tuple[pl.Series | None, bool]:
        """One metric of one rank, and whether its numbers become numeric cells; None if the report has no such column."""
        mode, path = next((mode, path) for name, mode, path in self._ranks if name == label)
        if metric not in pl.read_ipc_schema(path):
            return None, False
        return pl.read_ipc(path, columns=[metric]).to_series(), is_numeric(metric, mode)


class MetricSheets(XlsxWriter):
    """Writes sheets named by `begin` in place of parts; everything else is as in reports.

    Parameters
    ----------
    path : Path
        Final name.
    columns : dict of str to str
        Internal column -> header, the same on every sheet.
    title : str
        Name of the first sheet.
    """

    def __init__(self, path: Path, columns: dict[str, str], title: str) -> None:
        self._title, self._part = title, 0
        super().__init__(path, columns)

    @property
    def fitted(self) -> tuple[str, ...]:
        """All: names, and one metric of each rank."""
        return tuple(self.columns)

    def begin(self, title: str) -> None:
        """End the sheet, and go on with one of that name."""
        self._end_sheet(last=True)
        self._title, self._part = title, 0
        self._begin_sheet()

    def _begin_sheet(self) -> None:
        super()._begin_sheet()
        self._sheets[-1].name = f"{self._title}_part_{self._part}"[:31] if self._part else self._title
        self._part += 1

    def _end_sheet(self, *, last: bool) -> None:
        super()._end_sheet(last=True)  # it would name the first sheet of several


def write_workbook(path: Path, shelf: Shelf, labels: Sequence[str], metrics: Sequence[str]) -> Path:
    """Write the merged table.

    Parameters
    ----------
    path : Path
        Final name; the timestamp in it goes on where the name is taken.
    shelf : Shelf
        Rows of all ranks.
    labels : sequence of str
        Ranks in the order of their columns.
    metrics : sequence of str
        Sheets in their order; at least one.

    Returns
    -------
    Path
        The name it got.

    Raises
    ------
    OutputError
        If it cannot be written; nothing is left behind.
    """
    columns = {"target_name": NAME} | {label: label for label in labels}
    places = shelf.places()
    names = shelf.order[NAME]
    book = MetricSheets(path, columns, metrics[0])
    try:
        for number_of_sheet, metric in enumerate(metrics):
            if number_of_sheet:
                book.begin(metric)
            cells = {label: shelf.column(label, metric) for label in labels}
            for start in range(0, names.len(), _SLICE):
                slices = {"target_name": names.slice(start, _SLICE)}
                for label, (column, numeric) in cells.items():
                    here = places[label].slice(start, _SLICE)
                    text = (
                        pl.repeat(None, here.len(), dtype=pl.String, eager=True)
                        if column is None
                        else column.gather(here)
                    )
                    slices[label] = text
                    if numeric:
                        slices[f"{label}_number"] = text.to_frame("text").select(number(pl.col("text"))).to_series()
                book.add(pl.DataFrame(slices))
        return book.close()[0]
    finally:
        book.discard()
