"""How a closing panel is drawn and printed, whatever it tells: frame, width, colour, and what a stream can show."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType

USUAL_WIDTH: Final = 100
"""Columns of a panel that goes to a file."""

MAX_WIDTH: Final = 160
"""Columns on the widest terminal."""

RESULT_STYLES: Final = {"pass": "green", "warning": "yellow", "error": "bold red"}
"""Verdict to style."""


class Render(Protocol):
    """A panel as text, for a width and what the stream can show."""

    def __call__(self, width: int | None, *, color: bool, ascii_only: bool) -> str:
        """The text, with a newline at its end."""


def dot_of(ascii_only: bool) -> str:
    """What stands between words of a title or a footer."""
    return "-" if ascii_only else "·"


def drawn(
    parts: Sequence[RenderableType], title: str, width: int | None = None, *, color: bool, ascii_only: bool
) -> str:
    """Parts below one another in a frame, as text with a newline at its end.

    Parameters
    ----------
    parts : sequence of RenderableType
        What stands in the frame, from the top.
    title : str
        One line, after the program's name.
    width : int, optional
        Columns, 40 to 160; 100 if not given.
    color : bool
        With terminal colours.
    ascii_only : bool
        The frame in ASCII; the parts and the title are the caller's.
    """
    from rich import box
    from rich.console import Console, Group
    from rich.panel import Panel
    from rich.text import Text

    panel = Panel(
        Group(*parts),
        title=Text(f"opassay {dot_of(ascii_only)} {title}"),
        title_align="left",
        box=box.ASCII if ascii_only else box.ROUNDED,
        padding=(0, 1),
    )
    out = io.StringIO()
    console = Console(
        file=out,
        width=min(max(width or USUAL_WIDTH, 40), MAX_WIDTH),
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
        emoji=False,
        markup=False,
        highlight=False,
    )
    console.print(panel)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def print_panel(render: Render, stream: TextIO | None = None) -> None:
    """Print a panel: coloured on a terminal without NO_COLOR, else plain; ASCII where the encoding is no Unicode.

    A stream that is closed, full or read by nobody is no error.
    """
    stream = stream or sys.stdout
    if stream is None:
        return
    terminal = stream.isatty()
    encoding = getattr(stream, "encoding", None) or "ascii"
    text = render(
        shutil.get_terminal_size((USUAL_WIDTH, 24)).columns if terminal else None,
        color=terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
        ascii_only=not encoding.lower().replace("-", "").startswith("utf"),
    )
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except (OSError, ValueError):
        return
