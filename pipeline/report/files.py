"""Names of result files, and files that appear whole or not at all: the last step of every report writer.

Knows nothing of what is written into them.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import re
import time
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Final

from opassay.schemas.errors import OutputError

if TYPE_CHECKING:
    from typing import Self

LOGGER: Final = logging.getLogger("opassay.report")

_NUMBERS: Final = itertools.count()  # several parts of a file may be open at once

_STAMP: Final = re.compile(r"_(\d{14})(?=[_.])", re.ASCII)
_TRIES: Final = 3600
_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL)

# errno -> (what is the matter, what to try)
_REASONS: Final = {
    errno.ENOSPC: ("the disk is full", "free some space or choose another folder with -o"),
    errno.EDQUOT: ("the disk quota is used up", "free some space or choose another folder with -o"),
    errno.EFBIG: ("the file is larger than this file system allows", "choose another folder with -o"),
    errno.EACCES: ("no permission to write", "choose a folder of your own with -o"),
    errno.EPERM: ("no permission to write", "choose a folder of your own with -o"),
    errno.EROFS: ("the file system is read-only", "choose another folder with -o"),
    errno.ENOENT: ("a folder of the path does not exist and cannot be made", "choose another folder with -o"),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "choose another folder with -o"),
    errno.EEXIST: ("a file stands where a folder is needed", "choose another folder with -o"),
    errno.EISDIR: ("a folder of that name is in the way", "remove it or choose another folder with -o"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a folder with a shorter path with -o"),
}


def timestamp(now: float | None = None) -> str:
    """Local time as ``YYYYMMDDHHMMSS``, as result names carry it.

    Parameters
    ----------
    now : float, optional
        Seconds since the epoch; the clock's if not given.
    """
    return time.strftime("%Y%m%d%H%M%S", time.localtime(now))


def result_stem(label: str = "", *, debug: bool = False) -> str:
    """How a comparison's file name begins: ``compare_result``, ``compare_result_rank3``, ``debug_compare_result``.

    Parameters
    ----------
    label : str
        Name of the target's rank folder, "" for single files.
    debug : bool
        Whether debug.json files were compared.
    """
    return f"{'debug_' if debug else ''}compare_result{f'_{label}' if label else ''}"


def result_path(folder: Path, stem: str, suffix: str, timestamp: str) -> Path:
    """Path of a result file, ``{folder}/{stem}_{timestamp}{suffix}``.

    Parameters
    ----------
    folder : Path
        Where results go; not made here.
    stem : str
        See `result_stem`; ``diff_analyze`` and the like are as good.
    suffix : str
        With its dot: ``.csv``.
    timestamp : str
        See `timestamp`; one for all files of a run.
    """
    return folder / f"{stem}_{timestamp}{suffix}"


def output_error(path: Path, error: OSError) -> OutputError:
    """The one line a user sees when `path` cannot be written: path, reason, what to try."""
    reason, hint = _REASONS.get(error.errno or 0, (error.strerror or str(error), "choose another folder with -o"))
    return OutputError(f"cannot write {path}: {reason}; {hint}")


def make_folder(folder: Path) -> Path:
    """Make an output folder with its parents, and see that it can be written before hours of work go into it.

    Raises
    ------
    OutputError
        If it cannot be made or written.
    """
    probe = folder / f".opassay_{os.getpid()}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise output_error(folder, error) from error
    return folder


class WholeFile:
    """A file that stands under its own name only once it is complete.

    Bytes go to a hidden temporary name in the same folder. `commit` (or leaving the ``with`` block well) renames it,
    `discard` (or leaving it by an exception) removes it. A result that already has the final name is never replaced:
    the timestamp in the name goes on by a second until the name is free. Every failure of the disk becomes an OutputError.

    Parameters
    ----------
    path : Path
        Final name; its folder must exist.

    Attributes
    ----------
    path : Path
        As given, or as changed by `commit`.
    temporary : Path
        Where the bytes are until then.
    size : int
        Bytes written through `write`.

    Raises
    ------
    OutputError
        If the temporary file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = path.with_name(f".{path.name}.{os.getpid()}.{next(_NUMBERS)}.part")
        self.size = 0
        try:
            self.file: BinaryIO = open(self.temporary, "wb")  # noqa: SIM115 - closed by commit or discard
        except OSError as error:
            raise output_error(path, error) from error

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes; the number of them is returned, as a file does.

        Raises
        ------
        OutputError
            If the disk refuses; the temporary file stays until `discard`.
        """
        try:
            self.file.write(data)
        except OSError as error:
            raise output_error(self.path, error) from error
        self.size += len(data)
        return len(data)

    def commit(self, path: Path | None = None) -> Path:
        """Close the file and give it its final name.

        Parameters
        ----------
        path : Path, optional
            Another final name in the same folder, where it is known only now.

        Returns
        -------
        Path
            The final name.

        Raises
        ------
        OutputError
            If the last bytes or the new name cannot be written; nothing is left behind.
        """
        self.path = path or self.path
        try:
            self.file.close()
            self.path = _claim(self.temporary, self.path)
        except OSError as error:
            self.discard()
            raise output_error(self.path, error) from error
        return self.path

    def discard(self) -> None:
        """Close and remove the temporary file; does nothing after `commit`."""
        with contextlib.suppress(OSError):
            self.file.close()
        with contextlib.suppress(OSError):
            self.temporary.unlink(missing_ok=True)

    def __enter__(self) -> WholeFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.commit()
            return
        self.discard()
        if isinstance(error, OSError) and not isinstance(error, OutputError) and error.errno in _REASONS:
            raise output_error(self.path, error) from error


def _claim(temporary: Path, path: Path) -> Path:
    """Give a complete file its final name, or that of one of the next seconds; other runs may do the same at the time."""
    for _ in range(_TRIES):
        try:
            _rename_new(temporary, path)
            return path
        except FileExistsError:
            found = _STAMP.search(path.name)
            if found is None:  # no result of ours has such a name
                os.replace(temporary, path)
                return path
            try:
                later = datetime.strptime(found[1], "%Y%m%d%H%M%S") + timedelta(seconds=1)
            except ValueError:
                later = datetime.now()
            path = path.with_name(f"{path.name[: found.start(1)]}{later:%Y%m%d%H%M%S}{path.name[found.end(1) :]}")
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


def _rename_new(temporary: Path, path: Path) -> None:
    """Rename without replacing: by a second link, or behind an empty file where the file system has no links."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        try:
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            raise
    else:
        temporary.unlink()


class ClosedWriter:
    """What every report writer shares: closed at the end of a ``with`` block, discarded by an exception."""

    def close(self) -> list[Path]:
        """Give the files their names, which are returned in order."""
        raise NotImplementedError

    def discard(self) -> None:
        """Remove everything that has not got its final name."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.discard()
