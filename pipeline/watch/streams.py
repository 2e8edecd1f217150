"""Standard output and standard error that may be closed, full or read by nobody: writing to them never ends a run."""

from __future__ import annotations

import io
import os
import sys
from typing import Final, TextIO

_NAMES: Final = ("stdin", "stdout", "stderr")


class _Forgiving(io.FileIO):
    """A descriptor that swallows what cannot be written."""

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError:
            return len(memoryview(data))  # type: ignore[arg-type]


def make_safe() -> None:
    """Open /dev/null for standard streams that are closed, and let stdout and stderr swallow what cannot be written.

    The exit status then says what became of the work, whatever became of the words.
    """
    for descriptor, name in enumerate(_NAMES):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
        stream: TextIO | None = getattr(sys, name)
        if name == "stdin":
            if stream is None:
                sys.stdin = open(os.devnull)  # noqa: SIM115 - for the life of the process
        else:
            setattr(sys, name, _forgiving(stream, descriptor))


def _forgiving(stream: TextIO | None, descriptor: int) -> io.TextIOWrapper:
    """A text stream over a descriptor in the manner of the one that stood there."""
    raw = _Forgiving(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(stream, "encoding", None) or "utf-8",
        errors=getattr(stream, "errors", None) or "backslashreplace",
        line_buffering=descriptor == 2 or bool(getattr(stream, "line_buffering", False)),
        write_through=bool(getattr(stream, "write_through", False)),
    )
