"""The closing panel of ``opassay collectives``: counts, the first violated call, what to look at next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from opassay.pipeline.report.folding import Folded
from opassay.pipeline.report.panel import RESULT_STYLES, dot_of, drawn, print_panel
from opassay.pipeline.watch.logs import one_line
from opassay.pipeline.watch.quantities import size_text, time_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_SHOWN: Final = 8
_LINES: Final = 5


@dataclass(frozen=True, slots=True)
class Call:
    """A call worth looking at: its step ("" where there is one only), and cells of its row in the report."""

    step: str
    api: str
    group: str
    ranks: str
    calls: str
    result: str
    message: str

    @property
    def title(self) -> str:
        """One line that names it."""
        where = f"step{self.step} " if self.step else ""
        what = "ranks" if "," in self.ranks or "->" in self.ranks else "rank"
        return f"{where}{self.api}, {self.group}, {what} {self.ranks}"


@dataclass(slots=True)
class Outcome:
    """What a run of ``collectives`` came to.

    Attributes
    ----------
    steps, ranks : int
        How many were read.
    results : dict of str to int
        Calls by verdict: pass, warning, error.
    errors, warnings : list of Call
        The first ones, in the order of the calls.
    problems : list of str
        What could not be read or was odd.
    files : list of Path
        Result files, complete.
    elapsed_s : float
        Seconds.
    dump_bytes : int
        Size of the JSON files.
    exit_status : int
        0, 1, 2, 3 or 130.
    """

    steps: int = 0
    ranks: int = 0
    results: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("pass", "warning", "error"), 0))
    errors: list[Call] = field(default_factory=list)
    warnings: list[Call] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    elapsed_s: float = 0.0
    dump_bytes: int = 0
    exit_status: int = 0

    def note(self, call: Call) -> None:
        """Keep a call if it is among the first of its verdict."""
        kept = self.errors if call.result == "error" else self.warnings
        if len(kept) < _SHOWN:
            kept.append(call)


def render(outcome: Outcome, width: int | None = None, *, color: bool = False, ascii_only: bool = False) -> str:
    """The panel as text, with a newline at its end.

    Parameters
    ----------
    outcome : Outcome
        What to show.
    width : int, optional
        Columns, 40 to 160; 100 if not given.
    color : bool, default False
        With terminal colours.
    ascii_only : bool, default False
        Frame and words in ASCII; other characters are written as escapes.
    """
    from rich.text import Text

    def plain(text: str) -> str:
        text = one_line(text)
        return text.encode("ascii", "backslashreplace").decode() if ascii_only else text

    parts: list[RenderableType] = [_counts(outcome)]
    if outcome.errors:
        first, *others = outcome.errors
        parts += [Text(), Text("first violated call", style="bold"), _list([first], plain)]
        if others:
            parts += [
                Text(),
                Text(f"violated later ({outcome.results['error'] - 1:,})", style="bold"),
                _list(others, plain),
            ]
    elif outcome.warnings:
        more = outcome.results["warning"]
        parts += [Text(), Text(f"not verified, or not wholly ({more:,})", style="bold"), _list(outcome.warnings, plain)]
    for title, lines in (("worth knowing", outcome.problems), ("files", [str(path) for path in outcome.files])):
        if lines:
            parts += [Text(), Text(title, style="bold"), *(Text(f"  {plain(line)}") for line in lines[:_LINES])]
            if len(lines) > _LINES:
                parts.append(Text(f"  and {len(lines) - _LINES:,} more", style="dim"))
    footer = [
        time_text(outcome.elapsed_s),
        f"{size_text(outcome.dump_bytes)} of dump.json",
        f"exit {outcome.exit_status}",
    ]
    parts += [Text(), Text(f" {dot_of(ascii_only)} ".join(footer))]
    return drawn(parts, "collectives", width, color=color, ascii_only=ascii_only)


def show(outcome: Outcome, stream: TextIO | None = None) -> None:
    """Print the panel, as the stream can show it; a stream that is closed, full or read by nobody is no error."""
    print_panel(partial(render, outcome), stream)


def _counts(outcome: Outcome) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for _ in range(3):
        grid.add_column(overflow="fold")
    verdicts = Text("= ")
    for place, (word, style) in enumerate(RESULT_STYLES.items()):
        count = outcome.results[word]
        verdicts.append(" + " if place else "").append(f"{count:,} {word}", style=style if count else "")
    grid.add_row("calls", f"{sum(outcome.results.values()):,}", verdicts)
    steps = f"{outcome.steps:,} step{'s' if outcome.steps != 1 else ''}"
    grid.add_row("ranks", f"{outcome.ranks:,}", steps)
    return grid


def _list(calls: list[Call], plain: Callable[[str], str]) -> Table:
    """Verdict and title; below it the records and the reason."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for call in calls:
        grid.add_row(Text(f"  {call.result}", style=RESULT_STYLES[call.result]), Folded(Text(plain(call.title))))
        grid.add_row("", Folded(Text(plain(call.calls), style="dim")))
        grid.add_row("", Folded(Text(plain(call.message))))
    return grid
