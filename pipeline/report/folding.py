"""Text that folds between words, and a word that is wider than the column at its dots: long names stay readable and can be put
together again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.measure import Measurement
    from rich.text import Text

_WORD: Final = re.compile(r"\S+\s*|\s+")
_PART: Final = re.compile(r"[^./]*[./]|[^./]+")


class Folded:
    """A rich renderable: lines of a text, each folded to the width it is given.

    Parameters
    ----------
    text : Text
        What to show; a newline in it begins a line.
    """

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._text.split("\n", allow_blank=True):
            for piece in line.divide(_ends(line.plain, options.max_width)):
                piece.rstrip()
                piece.no_wrap, piece.overflow = True, "ignore"
                yield piece

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.cells import cell_len
        from rich.measure import Measurement

        widest = max(map(cell_len, self._text.plain.split("\n")))
        return Measurement(1, max(min(widest, options.max_width), 1))


def _ends(line: str, width: int) -> list[int]:
    """Where a line is parted so that no part, but for blanks at its end, is wider than ``width`` cells."""
    from rich.cells import cell_len

    ends: list[int] = []
    at = used = 0
    for piece in _pieces(line, width):
        if used and used + cell_len(piece.rstrip()) > width:
            ends.append(at)
            used = 0
        at += len(piece)
        used += cell_len(piece)
    return ends


def _pieces(line: str, width: int) -> Iterator[str]:
    """Words with the blanks behind them; of a word that is too wide the parts between its dots, or its signs where they are too
    wide still."""
    from rich.cells import cell_len

    for word in _WORD.findall(line):
        if cell_len(word.rstrip()) <= width and word.strip():
            yield word
            continue
        for part in _PART.findall(word):
            if cell_len(part.rstrip()) <= width and part.strip():
                yield part
            else:
                yield from part
