"""The closing panel: one screen that says how many rows were read, what became of each, and which ops to look at first.

Counts are shown as sums, so that a reader can add them up. Measures and judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from opassay.pipeline.report.folding import Folded
from opassay.pipeline.report.panel import MAX_WIDTH, RESULT_STYLES, USUAL_WIDTH, dot_of, drawn, print_panel
from opassay.pipeline.report.summary import FirstOp, Summary, WorstOp, merge
from opassay.pipeline.watch.logs import one_line
from opassay.pipeline.watch.quantities import rate_text, size_text, time_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

__all__ = [
    "MAX_WIDTH",
    "USUAL_WIDTH",
    "FirstOp",
    "Summary",
    "WorstOp",
    "merge",
    "render",
    "show",
    "size_text",
    "time_text",
]

WORST_SHOWN: Final = 8
PROBLEMS_SHOWN: Final = 5
FILES_SHOWN: Final = 12


def render(summary: Summary, width: int | None = None, *, color: bool = False, ascii_only: bool = False) -> str:
    """The panel as text, with a newline at its end.

    Parameters
    ----------
    summary : Summary
        What to show.
    width : int, optional
        Columns, 40 to 160; 100 if not given.
    color : bool, default False
        With terminal colours.
    ascii_only : bool, default False
        Frame and words in ASCII; other characters are written as escapes.
    """
    if ascii_only:
        summary = _in_ascii(summary)
    parts = _parts(summary, dot_of(ascii_only))
    return drawn(parts, one_line(summary.title), width, color=color, ascii_only=ascii_only)


def show(summary: Summary, stream: TextIO | None = None) -> None:
    """Print the panel, as the stream can show it; a stream that is closed, full or read by nobody is no error."""
    print_panel(partial(render, summary), stream)


def _parts(summary: Summary, dot: str) -> list[RenderableType]:
    from rich.text import Text

    blocks: list[list[RenderableType]] = [[_counts(summary)]]
    if not summary.adds_up:
        blocks[0].append(Text("these sums do not add up: please report it, with the log", style="bold red"))
    answer = summary.answer
    if answer:
        blocks.append(_answer(answer))
    elif summary.no_difference:
        blocks.append(
            [Text("first difference", style="bold").append(f"  {summary.no_difference}", style="not bold green")]
        )
    named = {one.name for one in answer}
    searched = any(one.of_numbers for one in answer)
    if others := tuple(op for op in summary.worst if op.name not in named and (op.formal or not searched)):
        first = others[: max(WORST_SHOWN - len(answer), 1)]
        rows = summary.errors + summary.warnings
        heading = Text("look at as well" if answer else "look first at", style="bold")
        if rows > len(first):
            heading.append(f"  ({rows:,} rows are error or warning)", style="not bold dim")
        blocks.append([heading, _worst(first)])
    for title, lines, shown in (
        ("worth knowing", summary.problems, PROBLEMS_SHOWN),
        ("files", tuple(map(str, summary.files)), FILES_SHOWN),
    ):
        if lines:
            block: list[RenderableType] = [Text(title, style="bold"), _bullets(lines[:shown])]
            if len(lines) > shown:
                block.append(Text(f"  and {len(lines) - shown:,} more", style="dim"))
            blocks.append(block)
    blocks.append([Text(_footer(summary, dot))])
    return [part for block in blocks for part in (Text(), *block)][1:]


def _counts(summary: Summary) -> Table:
    """The sums: label, total, how the total is made up."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(overflow="fold")
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    matched = f"= {summary.matched:,} matched + "
    once = f"= {summary.matched - summary.reused:,} matched + "
    skipped = sum(summary.not_compared.values())
    verdicts = Text("= ")
    for place, (word, count) in enumerate(
        (("pass", summary.passed), ("warning", summary.warnings), ("error", summary.errors))
    ):
        verdicts.append(" + " if place else "").append(f"{count:,} {word}", style=RESULT_STYLES[word] if count else "")
    verdicts.append(f" + {skipped:,} not compared")
    grid.add_row("target rows", f"{summary.target_rows:,}", f"{matched}{summary.target_only:,} target only")
    twice = f", {summary.reused:,} of the matched used again" if summary.reused else ""
    grid.add_row("golden rows", f"{summary.golden_rows:,}", f"{once}{summary.golden_only:,} golden only{twice}")
    grid.add_row("matched", f"{summary.matched:,}", verdicts)
    reasons = ", ".join(f"{one_line(reason)} {count:,}" for reason, count in summary.not_compared.items() if count)
    if skipped:
        grid.add_row(Text("not compared", style="yellow"), f"{skipped:,}", Text(reasons))
    if skipped or summary.target_only or summary.golden_only:
        grid.add_row(
            "", "", Text("rows not compared or on one side only are at least warning in the files", style="dim")
        )
    if summary.one_sided:
        grid.add_row(
            "",
            "",
            Text("more than a tenth of a side has no partner: opassay plan says how the ops pair, and which do not"),
        )
    grid.add_row("ops", f"{summary.ops:,}", "")
    return grid


def _answer(ops: tuple[FirstOp, ...]) -> list[RenderableType]:
    """The first difference, and what is wrong besides."""
    from rich.table import Table
    from rich.text import Text

    blocks: list[RenderableType] = []
    for title in dict.fromkeys(op.title for op in ops):
        chosen = [op for op in ops if op.title == title]
        alarming = chosen[0].leads and chosen[0].of_numbers
        blocks.append(Text(title, style="bold red" if alarming else "bold"))
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=1)
        grid.add_column(overflow="fold")
        for op in chosen:
            name = Text(one_line(op.name), style="bold" if op.leads else "")
            if op.rank is not None:
                name = Text(f"{one_line(op.rank)} ", style="cyan").append_text(name)
            where = f" ({op.where})" if op.where and op.rank is not None else ""
            told = Text(f"{one_line(op.reason)}{where}")
            if op.source:
                told.append(f"\nat {one_line(op.source)}", style="dim")
            grid.add_row("", Folded(name))
            grid.add_row("", Folded(told))
        blocks.append(grid)
    return blocks


def _worst(ops: tuple[WorstOp, ...]) -> Table:
    """Verdict, rank where there are several, name; below the name the figure and the reason."""
    from rich.table import Table
    from rich.text import Text

    ranked = any(op.rank is not None for op in ops)
    grid = Table.grid(padding=(0, 1))
    for _ in range(2 if ranked else 1):
        grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for op in ops:
        label = "" if op.rank is None else f"rank{op.rank}" if isinstance(op.rank, int) else one_line(op.rank)
        rank = [Text(label, style="cyan")] if ranked else []
        grid.add_row(
            Text(f"  {op.result}", style=RESULT_STYLES.get(op.result, "")), *rank, Folded(Text(one_line(op.name)))
        )
        reason = Text(one_line(op.figure), style="bold")
        if op.message:
            reason.append("  " if op.figure else "").append(one_line(op.message), style="not bold dim")
        if reason:
            grid.add_row("", *([""] if ranked else []), Folded(reason))
        if op.source:
            told = Folded(Text(f"at {one_line(op.source)}", style="dim italic"))
            grid.add_row("", *([""] if ranked else []), told)
    return grid


def _bullets(lines: Iterable[str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row(" ", Folded(Text(one_line(line))))
    return grid


def _footer(summary: Summary, dot: str) -> str:
    words = [time_text(summary.elapsed_s)]
    if summary.dump_bytes:
        speed = rate_text(summary.dump_bytes, summary.elapsed_s)
        words.append(f"{size_text(summary.dump_bytes)} in both dumps, {speed}")
    if summary.peak_bytes:
        budget = f" of {size_text(summary.budget_bytes)}" if summary.budget_bytes else ""
        words.append(f"peak memory {size_text(summary.peak_bytes)}{budget}")
    words.append(f"{summary.workers} worker{'' if summary.workers == 1 else 's'}")
    words.append(f"exit {summary.exit_status}")
    return f" {dot} ".join(words)


def _in_ascii(summary: Summary) -> Summary:
    """The same with every character outside ASCII as an escape."""

    def plain(text: str) -> str:
        return one_line(text).encode("ascii", "backslashreplace").decode()

    return replace(
        summary,
        title=plain(summary.title),
        not_compared={plain(reason): count for reason, count in summary.not_compared.items()},
        first=tuple(
            replace(
                op,
                name=plain(op.name),
                reason=plain(op.reason),
                where=plain(op.where),
                source=plain(op.source),
                rank=None if op.rank is None else plain(op.rank),
            )
            for op in summary.first
        ),
        worst=tuple(
            replace(
                op, name=plain(op.name), message=plain(op.message), figure=plain(op.figure), source=plain(op.source)
            )
            for op in summary.worst
        ),
        problems=tuple(map(plain, summary.problems)),
        files=tuple(Path(plain(str(path))) for path in summary.files),
    )
