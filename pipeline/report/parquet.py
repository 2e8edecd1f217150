"""The parquet report for notebooks: every column of the slices under its internal name, numbers as numbers.

Slices are spilled to hidden Arrow files beside the result and streamed into one parquet file at the end, so memory
holds a few slices however long the report is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opassay.pipeline.report.files import ClosedWriter, WholeFile, output_error
from opassay.schemas.errors import OutputError

if TYPE_CHECKING:
    import polars as pl

_PROBE_BYTES: Final = 1 << 20
ROW_GROUP: Final = 65_536  # rows; fixed, so that equal rows give equal bytes


class ParquetWriter(ClosedWriter):
    """Writes slices of the report, in order, to one parquet file.

    Parameters
    ----------
    path : Path
        Final name.
    columns : dict of str to str
        Internal column -> header. The file uses the internal names, has these columns first, and after them every
        other column of the slices (``target_max_number`` and the like) with its own type.

    Notes
    -----
    Nothing has its final name before `close`; until then spilled slices need about the room of the report on the disk.
    """

    def __init__(self, path: Path, columns: dict[str, str]) -> None:
        self.path = path
        self.columns = columns
        self._spills: list[Path] = []
        self._whole = WholeFile(path)

    def add(self, frame: pl.DataFrame) -> None:
        """Append one slice; all slices have the same columns and types.

        Raises
        ------
        OutputError
            If the disk refuses; call `discard`.
        """
        from polars.exceptions import PolarsError

        spill = self.path.with_name(f".{self.path.name}.{os.getpid()}.{len(self._spills)}.arrow")
        self._spills.append(spill)
        try:
            frame.write_ipc(spill, compression="lz4")
        except (OSError, PolarsError) as error:
            raise self._refusal(error) from error

    def close(self) -> list[Path]:
        """Stream the slices into the file and give it its name, which is returned.

        Raises
        ------
        OutputError
            If the disk refuses; nothing is left behind.
        """
        import polars as pl

        try:
            rows = (
                pl.scan_ipc(self._spills)
                if self._spills
                else pl.LazyFrame(schema=dict.fromkeys(self.columns, pl.String))
            )
            rows.sink_parquet(
                self._whole.temporary,
                compression="zstd",
                compression_level=1,
                row_group_size=ROW_GROUP,
                maintain_order=True,
            )
            return [self._whole.commit()]
        except OutputError:
            raise
        except (OSError, pl.exceptions.PolarsError) as error:
            raise self._refusal(error) from error
        finally:
            self.discard()

    def _refusal(self, error: Exception) -> OutputError:
        """What the disk has against the file. Polars words a full disk as a fault of the format, so the disk is asked again."""
        if not isinstance(error, OSError):
            try:
                with self._whole.temporary.open("ab") as probe:
                    probe.write(bytes(_PROBE_BYTES))
            except OSError as cause:
                return output_error(self.path, cause)
            return output_error(self.path, OSError(0, str(error).splitlines()[0]))
        return output_error(self.path, error)

    def discard(self) -> None:
        """Remove the spilled slices and whatever has not got its final name."""
        for spill in self._spills:
            spill.unlink(missing_ok=True)
        self._whole.discard()
