"""The two csv files of a check, written case by case: whole rows only, details before the result that closes them.

A process that is killed leaves at most details without a result, which resuming drops; never a result without its details.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import fcntl
import io
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opassay.pipeline.report.files import make_folder, output_error, timestamp
from opassay.schemas.check_rows import TORCH_COLUMNS, CaseResult, Columns, DetailRow
from opassay.schemas.errors import UsageError

if TYPE_CHECKING:
    from typing import Self

BOM: Final = b"\xef\xbb\xbf"
RESULT_STEM: Final = "accuracy_checking_result"
DETAILS_STEM: Final = "accuracy_checking_details"
MODE: Final = 0o640
_TRIES: Final = 3600


def header(columns: Mapping[str, str]) -> bytes:
    """First bytes of a file: byte order mark and column heads."""
    return BOM + _lines([list(columns.values())])


def result_line(result: CaseResult, columns: Columns = TORCH_COLUMNS) -> bytes:
    """The row of a case in the result file; four cells always."""
    backward = columns.blank if result.backward is None else result.backward.value
    return _lines([[result.name, result.forward.value, backward, result.message]])


def detail_lines(
    rows: Iterable[DetailRow], format_metric: Callable[[float | int], str], columns: Columns = TORCH_COLUMNS
) -> bytes:
    """The rows of a case in the details file; a blank where nothing was computed."""
    return _lines([_detail_cells(row, format_metric, columns) for row in rows])


def _detail_cells(row: DetailRow, format_metric: Callable[[float | int], str], columns: Columns) -> list[str]:
    blank = columns.blank
    figures = [format_metric(row.metrics[name]) if name in row.metrics else blank for name in columns.metrics]
    texts = [text or blank for text in (row.bench_dtype, row.device_dtype, row.shape)]
    return [row.name, *texts, *figures, row.status.value, row.message]


def _lines(rows: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return as_written(text.getvalue()).encode()


def as_written(text: str) -> str:
    """A text as the files hold it: what UTF-8 has no bytes for stands there as an escape."""
    return text.encode("utf-8", "backslashreplace").decode()


class CheckFiles:
    """The pair of files of one run, open for appending and locked against a second run.

    Parameters
    ----------
    result, details : Path
        Both exist, with their headers and whole rows only.
    stamp : str
        The 14 digits of their names.
    format_metric : callable
        Text of a figure.
    columns : Columns
        Of the framework.

    Attributes
    ----------
    result, details : Path
        As given.
    stamp : str
        As given.

    Raises
    ------
    UsageError
        If another run writes them.
    OutputError
        If they cannot be opened.
    """

    def __init__(
        self,
        result: Path,
        details: Path,
        stamp: str,
        format_metric: Callable[[float | int], str],
        columns: Columns = TORCH_COLUMNS,
    ) -> None:
        self.result, self.details, self.stamp = result, details, stamp
        self._format, self._columns = format_metric, columns
        self._result = open_locked(result)
        try:
            self._details = _open(details)
        except BaseException:
            os.close(self._result)
            raise

    @classmethod
    def create(
        cls, folder: Path, format_metric: Callable[[float | int], str], columns: Columns = TORCH_COLUMNS
    ) -> Self:
        """Begin new files in a folder, which is made if needed; the stamp is the clock's, or of the next second that is free.

        Raises
        ------
        OutputError
            If the folder or the files cannot be made.
        """
        make_folder(folder)
        stamp = timestamp()
        for _ in range(_TRIES):
            result, details = paths(folder, stamp)
            try:
                if not details.exists():
                    _begin(result, header(columns.result))
                    _begin(details, header(columns.details))
                    return cls(result, details, stamp, format_metric, columns)
            except FileExistsError:
                pass
            except OSError as error:
                raise output_error(result, error) from error
            stamp = f"{datetime.strptime(stamp, '%Y%m%d%H%M%S') + timedelta(seconds=1):%Y%m%d%H%M%S}"
        raise output_error(folder, FileExistsError(errno.EEXIST, "every name is taken"))

    def append(self, result: CaseResult) -> None:
        """Write a case: its details, then its result, each in one piece.

        Raises
        ------
        OutputError
            If the disk refuses.
        """
        _write(self._details, self.details, detail_lines(result.details, self._format, self._columns))
        _write(self._result, self.result, result_line(result, self._columns))

    def close(self) -> None:
        """Close both files and let others have them."""
        for descriptor in (self._details, self._result):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def paths(folder: Path, stamp: str) -> tuple[Path, Path]:
    """The result and the details file of a stamp."""
    return folder / f"{RESULT_STEM}_{stamp}.csv", folder / f"{DETAILS_STEM}_{stamp}.csv"


def open_locked(path: Path) -> int:
    """A descriptor that appends, with a lock that ends with the process.

    Raises
    ------
    UsageError
        If another process holds it.
    OutputError
        If the file cannot be opened.
    """
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            os.close(descriptor)
            raise UsageError(
                f"{path} is being written by another run; wait for it, or begin anew without -csv_path"
            ) from None
        # a file system without locks: two runs of one file are the user's care
    return descriptor


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    except OSError as error:
        raise output_error(path, error) from error


def _begin(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def _write(descriptor: int, path: Path, data: bytes) -> None:
    """Append all of the bytes; a full disk may take them in parts, and then says so."""
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError as error:
        raise output_error(path, error) from error
