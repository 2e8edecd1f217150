"""The closing panel: one screen that says how many rows were read, what became of each, and which ops to look at first.

Counts are shown as sums, so that a reader can add them up. Measures and judges nothing.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from opassay.pipeline.watch.logs import one_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

MAX_WIDTH: Final = 100
WORST_SHOWN: Final = 8
PROBLEMS_SHOWN: Final = 5
FILES_SHOWN: Final = 12

_STYLES: Final = {"pass": "green", "warning": "yellow", "error": "bold red"}
_SEVERITY: Final = {"error": 0, "warning": 1, "pass": 2}


@dataclass(frozen=True, slots=True)
class WorstOp:
    """An op worth looking at.

    Attributes
    ----------
    name : str
        Name of the op or of its worst row.
    result : {"pass", "warning", "error"}
        Its verdict.
    message : str
        Why, in one sentence.
    figure : str
        The number that decided, ready to print.
    rank : int, str or None
        A rank's number, or a name such as ``step1/rank0``; None where there is one device only.
    order : int
        For merging: smaller is shown first.
    source : str
        Where in the user's code it was called, "" where not known.
    formal : bool
        Only how it is declared differs (dtype, shape, requires_grad): the search of the first difference looks at numbers.
    """

    name: str
    result: str
    message: str = ""
    figure: str = ""
    rank: int | str | None = None
    order: int = 0
    source: str = ""
    formal: bool = False


@dataclass(frozen=True, slots=True)
class FirstOp:
    """An op of the answer: where the numbers go wrong first.

    Attributes
    ----------
    name : str
        Its output that differs.
    reason : str
        Why it is an answer, and what differs.
    where : str
        Where it stands among the communications.
    rank : str or None
        The ranks; None where there is one device only.
    source : str
        Where in the user's code it was called, "" where not known.
    leads : bool
        Whether it is the first, or a later one that does not follow from it.
    """

    name: str
    reason: str
    where: str = ""
    rank: str | None = None
    source: str = ""
    leads: bool = True


@dataclass(frozen=True, slots=True)
class Summary:
    """What one comparison, or several merged, came to.

    Attributes
    ----------
    title : str
        What was compared: ``statistics``, ``tensor rank0`` ...
    target_rows, golden_rows : int
        Rows read on each side.
    passed, warnings, errors : int
        Compared pairs of rows by verdict.
    not_compared : mapping of str to int
        Reason -> matched pairs that could not be compared.
    reused : int
        Matched rows whose golden row serves another target row too (a mapping may have it so).
    target_only, golden_only : int
        Rows without a partner.
    ops : int
        Ops of the target.
    first : tuple of FirstOp
        The answer: the first op that differs, then the next that do not follow from it.
    worst : tuple of WorstOp
        Worst first.
    problems : tuple of str
        What could not be read or was odd in the input; one line each.
    files : tuple of Path
        Result files, complete.
    elapsed_s : float
        Seconds.
    dump_bytes : int
        Bytes read of both dumps together.
    peak_bytes, budget_bytes : int
        Memory of the process tree at its highest, and what it was allowed; 0 where not known.
    workers : int
        Processes that measured.
    exit_status : int
        0, 1, 2, 3 or 130.
    """

    title: str
    target_rows: int = 0
    golden_rows: int = 0
    passed: int = 0
    warnings: int = 0
    errors: int = 0
    not_compared: Mapping[str, int] = field(default_factory=dict)
    target_only: int = 0
    golden_only: int = 0
    reused: int = 0
    ops: int = 0
    first: tuple[FirstOp, ...] = ()
    worst: tuple[WorstOp, ...] = ()
    problems: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    elapsed_s: float = 0.0
    dump_bytes: int = 0
    peak_bytes: int = 0
    budget_bytes: int = 0
    workers: int = 1
    exit_status: int = 0

    @property
    def matched(self) -> int:
        """Pairs of rows: compared or not."""
        return self.passed + self.warnings + self.errors + sum(self.not_compared.values())

    @property
    def adds_up(self) -> bool:
        """Whether every row read is accounted for on both sides."""
        return (
            self.target_rows == self.matched + self.target_only
            and self.golden_rows == self.matched - self.reused + self.golden_only
        )


def merge(summaries: Iterable[Summary], *, title: str | None = None, elapsed_s: float | None = None) -> Summary:
    """One summary of several ranks or steps.

    Counts, bytes and times are added, peak, budget and workers are the largest, the worst ops are the worst of all.

    Parameters
    ----------
    summaries : iterable of Summary
        At least one.
    title : str, optional
        Title of the whole; that of the first if not given.
    elapsed_s : float, optional
        Time of the whole, where the parts ran side by side.

    Returns
    -------
    Summary
        Its exit status is 130 if one part was interrupted, 2 if no part could be compared, 3 if some part could not be
        read, 1 if ``--fail-on`` was met, else 0.
    """
    every = list(summaries)
    reasons: Counter[str] = Counter()
    for summary in every:
        reasons.update(summary.not_compared)
    worst = sorted(
        (op for summary in every for op in summary.worst), key=lambda op: (op.order, _SEVERITY.get(op.result, 3))
    )
    return Summary(
        title=every[0].title if title is None else title,
        target_rows=sum(s.target_rows for s in every),
        golden_rows=sum(s.golden_rows for s in every),
        passed=sum(s.passed for s in every),
        warnings=sum(s.warnings for s in every),
        errors=sum(s.errors for s in every),
        not_compared=dict(reasons),
        target_only=sum(s.target_only for s in every),
        golden_only=sum(s.golden_only for s in every),
        reused=sum(s.reused for s in every),
        ops=sum(s.ops for s in every),
        first=tuple(op for s in every for op in s.first),
        worst=tuple(worst),
        problems=tuple(line for s in every for line in s.problems),
        files=tuple(path for s in every for path in s.files),
        elapsed_s=sum(s.elapsed_s for s in every) if elapsed_s is None else elapsed_s,
        dump_bytes=sum(s.dump_bytes for s in every),
        peak_bytes=max(s.peak_bytes for s in every),
        budget_bytes=max(s.budget_bytes for s in every),
        workers=max(s.workers for s in every),
        exit_status=_status([s.exit_status for s in every]),
    )


def render(summary: Summary, width: int | None = None, *, color: bool = False, ascii_only: bool = False) -> str:
    """The panel as text, with a newline at its end.

    Parameters
    ----------
    summary : Summary
        What to show.
    width : int, optional
        Columns, 40 to 100; 100 if not given.
    color : bool, default False
        With terminal colours.
    ascii_only : bool, default False
        Frame and words in ASCII; other characters are written as escapes.
    """
    from rich import box
    from rich.console import Console, Group
    from rich.panel import Panel
    from rich.text import Text

    dot = "-" if ascii_only else "·"
    if ascii_only:
        summary = _in_ascii(summary)
    panel = Panel(
        Group(*_parts(summary, dot)),
        title=Text(f"opassay {dot} {one_line(summary.title)}"),
        title_align="left",
        box=box.ASCII if ascii_only else box.ROUNDED,
        padding=(0, 1),
    )
    out = io.StringIO()
    console = Console(
        file=out,
        width=min(max(width or MAX_WIDTH, 40), MAX_WIDTH),
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


def show(summary: Summary, stream: TextIO | None = None) -> None:
    """Print the panel: coloured on a terminal without NO_COLOR, else plain; ASCII where the encoding is no Unicode.

    A stream that is closed, full or read by nobody is no error.
    """
    stream = stream or sys.stdout
    if stream is None:
        return
    terminal = stream.isatty()
    width = shutil.get_terminal_size((MAX_WIDTH, 24)).columns if terminal else None
    text = render(
        summary,
        width,
        color=terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
        ascii_only=not (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "").startswith("utf"),
    )
    try:
        encoding = getattr(stream, "encoding", None) or "utf-8"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except (OSError, ValueError):
        return


def size_text(size: float) -> str:
    """Bytes as ``1.50 GB``: decimal units, three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    if size >= 1000:
        return f"{size:,.0f} {unit}"
    return f"{size:.0f} B" if unit == "B" else f"{size:.{0 if size >= 100 else 1 if size >= 10 else 2}f} {unit}"


def time_text(seconds: float) -> str:
    """A duration as ``8.2 s``, ``3 min 04 s`` or ``2 h 05 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _parts(summary: Summary, dot: str) -> list[RenderableType]:
    from rich.text import Text

    blocks: list[list[RenderableType]] = [[_counts(summary)]]
    if not summary.adds_up:
        blocks[0].append(Text("these sums do not add up: please report it, with the log", style="bold red"))
    if summary.first:
        blocks.append(_answer(summary.first))
    named = {one.name for one in summary.first}
    if others := tuple(op for op in summary.worst if op.name not in named and (op.formal or not summary.first)):
        first = others[: max(WORST_SHOWN - len(summary.first), 1)]
        rows = summary.errors + summary.warnings
        heading = Text("look at as well" if summary.first else "look first at", style="bold")
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
        verdicts.append(" + " if place else "").append(f"{count:,} {word}", style=_STYLES[word] if count else "")
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
    grid.add_row("ops", f"{summary.ops:,}", "")
    return grid


def _answer(ops: tuple[FirstOp, ...]) -> list[RenderableType]:
    """The first difference, and what is wrong besides."""
    from rich.table import Table
    from rich.text import Text

    blocks: list[RenderableType] = []
    for title, leads in (("first difference", True), ("then, independent of it", False)):
        chosen = [op for op in ops if op.leads is leads]
        if not chosen:
            continue
        blocks.append(Text(title, style="bold red" if leads else "bold"))
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=1)
        grid.add_column(overflow="fold")
        for op in chosen:
            name = Text(one_line(op.name), style="bold" if leads else "")
            if op.rank is not None:
                name = Text(f"{one_line(op.rank)} ", style="cyan").append_text(name)
            where = f" ({op.where})" if op.where and op.rank is not None else ""
            told = Text(f"{one_line(op.reason)}{where}")
            if op.source:
                told.append(f"\nat {one_line(op.source)}", style="dim")
            grid.add_row("", name)
            grid.add_row("", told)
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
        grid.add_row(Text(f"  {op.result}", style=_STYLES.get(op.result, "")), *rank, Text(one_line(op.name)))
        reason = Text(one_line(op.figure), style="bold")
        if op.message:
            reason.append("  " if op.figure else "").append(one_line(op.message), style="not bold dim")
        if reason:
            grid.add_row("", *([""] if ranked else []), reason)
        if op.source:
            grid.add_row("", *([""] if ranked else []), Text(f"at {one_line(op.source)}", style="dim italic"))
    return grid


def _bullets(lines: Iterable[str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row(" ", Text(one_line(line)))
    return grid


def _footer(summary: Summary, dot: str) -> str:
    words = [time_text(summary.elapsed_s)]
    if summary.dump_bytes:
        rate = summary.dump_bytes / summary.elapsed_s if summary.elapsed_s > 0 else 0.0
        speed = f"{rate / 1e9:.3g} GB/s" if rate >= 1e7 else f"{size_text(rate)}/s"
        words.append(f"{size_text(summary.dump_bytes)} in both dumps, {speed}")
    if summary.peak_bytes:
        budget = f" of {size_text(summary.budget_bytes)}" if summary.budget_bytes else ""
        words.append(f"peak memory {size_text(summary.peak_bytes)}{budget}")
    words.append(f"{summary.workers} worker{'' if summary.workers == 1 else 's'}")
    words.append(f"exit {summary.exit_status}")
    return f" {dot} ".join(words)


def _status(statuses: list[int]) -> int:
    if 130 in statuses:
        return 130
    if all(status == 2 for status in statuses):
        return 2
    return 3 if 3 in statuses or 2 in statuses else max(statuses)


def _in_ascii(summary: Summary) -> Summary:
    """The same with every character outside ASCII as an escape."""

    def plain(text: str) -> str:
        return one_line(text).encode("ascii", "backslashreplace").decode()

    return replace(
        summary,
        title=plain(summary.title),
        not_compared={plain(reason): count for reason, count in summary.not_compared.items()},
        worst=tuple(
            replace(
                op, name=plain(op.name), message=plain(op.message), figure=plain(op.figure), source=plain(op.source)
            )
            for op in summary.worst
        ),
        problems=tuple(map(plain, summary.problems)),
        files=tuple(Path(plain(str(path))) for path in summary.files),
    )
