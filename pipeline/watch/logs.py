"""The log: one event, one line. Warnings and errors go to stderr, the rest to stdout."""

from __future__ import annotations

import logging
import os
import sys
from typing import Final, Literal, TextIO

Verbosity = Literal["quiet", "normal", "verbose"]

LOGGER: Final = logging.getLogger("opassay")
LEVEL_VARIABLES: Final = ("OPASSAY_LOG_LEVEL", "MSPROBE_LOG_LEVEL")  # the first that is set holds
TOLD: Final = 200  # characters of a text of the user's that a message shows
LINE_LIMIT: Final = 3000  # characters of a line; nobody reads more, and terminals choke on it
_LEVELS: Final = {"0": logging.DEBUG, "1": logging.INFO, "2": logging.WARNING, "3": logging.ERROR}
_BY_VERBOSITY: Final = {"quiet": logging.WARNING, "normal": logging.INFO, "verbose": logging.DEBUG}

# every character that ends a line somewhere or moves a cursor, as the text a reader can see
_CONTROL: Final = {
    code: ascii(chr(code))[1:-1] for code in (*range(9), *range(10, 32), *range(127, 160), 0x2028, 0x2029)
}


def one_line(text: str) -> str:
    """`text` with line breaks and control characters written out, ``\\n`` for a newline; tabs stay."""
    return text.translate(_CONTROL)


def clip(text: str, length: int = TOLD) -> str:
    """`text` as messages show it: its beginning and its end, at most `length` characters (100 or more)."""
    return text if len(text) <= length else f"{text[: length - 65]} ... {text[-60:]}"


class OneLine(logging.Formatter):
    """``2026-01-01 12:00:00 (1234) [INFO] text``, never more than one line of bounded length, a traceback included."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s (%(process)d) [%(levelname)s] %(message)s", "%Y-%m-%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """The line of one record, without its newline."""
        return clip(one_line(super().format(record)), LINE_LIMIT if record.exc_info is None else 10 * LINE_LIMIT)


class StandardStreams(logging.Handler):
    """Writes to the stderr or stdout of the moment, or to one given stream.

    A closed pipe or a narrow encoding never reaches the caller: logging must not end a run.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__()
        self.stream = stream
        self.setFormatter(OneLine())

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line and flush it."""
        stream = self.stream or (sys.stderr if record.levelno >= logging.WARNING else sys.stdout)
        if stream is None:
            return
        encoding = getattr(stream, "encoding", None) or "utf-8"
        try:
            line = self.format(record).encode(encoding, "backslashreplace").decode(encoding)
            stream.write(line + "\n")
            stream.flush()
        except (OSError, ValueError):  # the reader has gone, or the stream is closed
            return


def setup(verbosity: Verbosity = "normal", stream: TextIO | None = None) -> logging.Logger:
    """Make the logger ``opassay`` write, and set what it writes; calling it again replaces the former set-up.

    Parameters
    ----------
    verbosity : {"quiet", "normal", "verbose"}
        Warnings and errors only, the course of the run as well, or everything. ``normal`` leaves the choice to the
        environment: OPASSAY_LOG_LEVEL, else MSPROBE_LOG_LEVEL, 0 (debug) to 3 (errors only).
    stream : text stream, optional
        Where all lines go; stdout and stderr if not given.

    Returns
    -------
    logging.Logger
        The logger ``opassay``.
    """
    for handler in [h for h in LOGGER.handlers if isinstance(h, StandardStreams)]:
        LOGGER.removeHandler(handler)
    LOGGER.addHandler(StandardStreams(stream))
    LOGGER.propagate = False
    LOGGER.setLevel(_BY_VERBOSITY[verbosity])
    name = next((name for name in LEVEL_VARIABLES if os.environ.get(name, "").strip()), None)
    if name and verbosity == "normal":
        level = _LEVELS.get(os.environ[name].strip())
        if level is None:
            LOGGER.warning(
                "%s is %r and is left aside; use 0 (debug), 1 (info), 2 (warning) or 3 (error)", name, os.environ[name]
            )
        else:
            LOGGER.setLevel(level)
    return LOGGER


def success_banner(text: str = "msprobe compare ends successfully.") -> None:
    """Log the closing line that scripts wait for, framed by asterisks: three lines."""
    frame = "*" * (len(text) + 50)
    for line in (frame, f"*{text.center(len(frame) - 2)}*", frame):
        LOGGER.info(line)
