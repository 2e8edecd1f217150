"""Going on with the files of an earlier run: what is complete stays as it is, everything else is done again.

A case is complete when its row in the result file is. Details are written before it, so what has no result row is what a
killed run had begun. Cases that several workers finished ahead of their turn wait in a journal beside the files, so that a
killed run loses what was being computed, and the files still grow in the order of the dump.
"""

from __future__ import annotations

import contextlib
import csv
import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from opassay.pipeline.check.files import (
    BOM,
    MODE,
    RESULT_STEM,
    CheckFiles,
    as_written,
    header,
    open_locked,
    paths,
)
from opassay.pipeline.report.files import output_error
from opassay.schemas.check_rows import TORCH_COLUMNS, CaseResult, Columns, DetailRow, Status
from opassay.schemas.errors import UsageError

LOGGER: Final = logging.getLogger("opassay.check")

_NAME: Final = re.compile(rf"{RESULT_STEM}_(\d{{14}})\.csv", re.ASCII)
_OUTPUT: Final = re.compile(r"\.(?:forward|backward)\.(?:output|input)(?:\.|$)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where an earlier run stood.

    Attributes
    ----------
    files : CheckFiles
        Open for appending.
    done : frozenset of str
        Names of the cases that are in the files, as they are written there, see `files.as_written`.
    ahead : dict of str to CaseResult
        Cases that were finished and not yet written.
    """

    files: CheckFiles
    done: frozenset[str]
    ahead: dict[str, CaseResult]


def resume(result: Path, format_metric: Callable[[float | int], str], columns: Columns = TORCH_COLUMNS) -> Resumed:
    """Open the files of an earlier run, repair their ends and say what is done.

    Parameters
    ----------
    result : Path
        ``accuracy_checking_result_{14 digits}.csv``; the details file of the same digits stands beside it.
    format_metric : callable
        Text of a figure.
    columns : Columns
        Of the framework.

    Raises
    ------
    UsageError
        If the name is another, one of the two files is missing or cannot be read, or it is no such file.
    OutputError
        If a file cannot be repaired.
    """
    named = _NAME.fullmatch(result.name)
    if named is None:
        raise UsageError(
            f"-csv_path {result}: When continue run ut, please do not modify the result csv name; "
            f"it is {RESULT_STEM}_ and 14 digits and .csv"
        )
    details = paths(result.parent, named[1])[1]
    for path in (result, details):
        if not path.is_file():
            raise UsageError(
                f"-csv_path: {path} does not exist; both files of the earlier run are needed, side by side"
            )
        if not os.access(path, os.R_OK | os.W_OK):
            raise UsageError(f"-csv_path: {path} cannot be read and written; check its permissions")
    lock = open_locked(result)
    try:
        done = _repair(result, details, columns)
    except OSError as error:
        raise output_error(result, error) from error
    finally:
        os.close(lock)
    files = CheckFiles(result, details, named[1], format_metric, columns)
    ahead = {name: case for name, case in Journal.read(result.parent, named[1]).items() if as_written(name) not in done}
    return Resumed(files, done, ahead)


def _repair(result: Path, details: Path, columns: Columns) -> frozenset[str]:
    """Make both files end with the last complete case; names of the complete ones."""
    rows, torn_result = _records(result, header(columns.result))
    kept, torn_details = _records(details, header(columns.details))
    done = [_first_cell(row) for row in rows]
    if torn_details and done and done[-1] == _call(_first_cell(torn_details)):
        # the machine stopped before the disk had the details of a case whose result it had
        rows, done = rows[:-1], done[:-1]
    with_details = {_call(_first_cell(row)) for row in kept}
    read = len(done)
    while done and done[-1] not in with_details and _was_compared(rows[-1]):  # the same, of several cases
        rows, done = rows[:-1], done[:-1]
    complete = frozenset(done)
    whole = [row for row in kept if _call(_first_cell(row)) in complete]
    dropped = len(kept) - len(whole) + bool(torn_details)
    _rewrite(result, header(columns.result), rows)
    _rewrite(details, header(columns.details), whole)
    if read > len(done):
        LOGGER.warning("%s: the last %d calls have no details and are run again", result, read - len(done))
    if torn_result or dropped:
        LOGGER.warning(
            "%s: the last run stopped within a call; %d rows of it are dropped and it is run again", result, dropped
        )
    return complete


def _records(path: Path, head: bytes) -> tuple[list[bytes], bytes]:
    """The complete rows of a file, without its header, and what follows the last of them.

    Raises
    ------
    UsageError
        If its first column is another than it should be.
    """
    data = path.read_bytes()
    rows = list(_split(data))
    torn = data[sum(map(len, rows)) :]
    if not rows:
        if data and not head.startswith(data):
            raise _foreign(path)
        return [], b""
    if _first_cell(rows[0]).strip().lower() != "api name":  # the first column of both
        raise _foreign(path)
    if rows[0].count(b",") != head.count(b","):
        raise UsageError(f"-csv_path: {path} has other columns than it should; it was written for another framework")
    return rows[1:], torn


def _foreign(path: Path) -> UsageError:
    return UsageError(f"-csv_path: {path} does not begin with the column 'API name'; it was not written by a check")


def _split(data: bytes) -> Iterator[bytes]:
    """Rows with their line ends; a quoted cell may hold line breaks, and quotes within are doubled."""
    start = position = quotes = 0
    while (end := data.find(b"\n", position)) >= 0:
        quotes += data.count(b'"', position, end)
        position = end + 1
        if quotes % 2 == 0:
            yield data[start:position]
            start, quotes = position, 0


def _first_cell(row: bytes) -> str:
    text = row.removeprefix(BOM).decode("utf-8", "replace")
    return next(csv.reader([text]), [""])[0] if text.startswith('"') else text.partition(",")[0].rstrip("\r\n")


def _was_compared(row: bytes) -> bool:
    """Whether a row of the result file has a verdict, which comes with details."""
    cells = next(csv.reader([row.decode("utf-8", "replace")]), [])
    return any(cell.strip().lower() not in ("", "skip") for cell in cells[1:3])


def _call(row_name: str) -> str:
    """``Torch.add.0.forward.output.1`` -> ``Torch.add.0``."""
    places = list(_OUTPUT.finditer(row_name))
    return row_name[: places[-1].start()] if places else row_name


def _rewrite(path: Path, head: bytes, rows: list[bytes]) -> None:
    """Make a file hold these rows under its own header: cut behind them where that is enough, else replaced as a whole."""
    data = path.read_bytes()
    own = next(_split(data), b"") or head
    wanted = b"".join([own, *rows])
    if data == wanted:
        return
    if data.startswith(wanted):
        os.truncate(path, len(wanted))
        return
    if wanted.startswith(data):  # not even the header was whole
        path.write_bytes(wanted)
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        draft.write_bytes(wanted)
        draft.chmod(path.stat().st_mode & 0o777)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


class Journal:
    """Results that were finished ahead of their turn, one JSON line each, beside the csv files.

    Parameters
    ----------
    folder : Path
        Of the csv files.
    stamp : str
        Their digits.
    """

    def __init__(self, folder: Path, stamp: str) -> None:
        self.path = _journal_path(folder, stamp)
        self._file: int | None = None

    def add(self, result: CaseResult) -> None:
        """Keep a result.

        Raises
        ------
        OutputError
            If the disk refuses.
        """
        line = json.dumps(asdict(result), ensure_ascii=True).encode() + b"\n"
        try:
            if self._file is None:
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, MODE)
            os.write(self._file, line)
        except OSError as error:
            raise output_error(self.path, error) from error

    def close(self, *, remove: bool) -> None:
        """Close the journal; once everything is in the csv files it is of no use."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if remove:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)

    @staticmethod
    def read(folder: Path, stamp: str) -> dict[str, CaseResult]:
        """What a journal holds; nothing where there is none. A line that is cut or damaged is left out."""
        results: dict[str, CaseResult] = {}
        with contextlib.suppress(FileNotFoundError):
            for line in _journal_path(folder, stamp).read_bytes().splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                    result = _result_of(json.loads(line))
                    results[result.name] = result
        return results


def _journal_path(folder: Path, stamp: str) -> Path:
    return folder / f"accuracy_checking_ahead_{stamp}.jsonl"


def _result_of(told: dict[str, object]) -> CaseResult:
    details = told.pop("details")
    backward = told.pop("backward")
    if not isinstance(details, list):
        raise TypeError("details are a list")
    return CaseResult(
        name=str(told["name"]),
        forward=Status(told["forward"]),
        backward=None if backward is None else Status(backward),
        message=str(told["message"]),
        details=[DetailRow(**{**row, "status": Status(row["status"])}) for row in details],
    )
