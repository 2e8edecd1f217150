"""How far a long step is: one live line on a terminal, a plain log line now and then elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, TextIO

from opassay.pipeline.watch.logs import LOGGER, Verbosity
from opassay.pipeline.watch.quantities import rate_text, size_text

if TYPE_CHECKING:
    from rich.progress import Progress as LiveLine

LINE_EVERY_S: Final = 10.0  # between two log lines
DRAW_EVERY_S: Final = 0.1  # between two drawings of the live line


class Progress:
    """Follows one step after the other; each is started, advanced and finished.

    Parameters
    ----------
    verbosity : {"quiet", "normal", "verbose"}
        Quiet shows nothing.
    stream : text stream, optional
        Where the live line goes if it is a terminal; stderr if not given.
    clock : callable
        Seconds, never going back.

    Notes
    -----
    Draws only from `advance`, on the caller's thread: no thread of its own that a forked worker would inherit.
    """

    def __init__(
        self,
        verbosity: Verbosity = "normal",
        stream: TextIO | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._quiet = verbosity == "quiet"
        self._stream = stream
        self._clock = clock
        self._live: LiveLine | None = None
        self._running = False

    def start(self, total_bytes: int, total_pairs: int, label: str) -> None:
        """Begin a step; one that still runs is finished first.

        Parameters
        ----------
        total_bytes : int
            Bytes of both sides that the step will read; 0 if that is not its measure.
        total_pairs : int
            Pairs of tensors it will do; 0 if not known.
        label : str
            What it does: ``measuring rank0``.
        """
        self.finish()
        self._label, self._total_bytes, self._total_pairs = label, total_bytes, total_pairs
        self._bytes = self._pairs = 0
        self._begun = self._shown = self._clock()
        self._running = True
        stream = self._stream or sys.stderr
        if not self._quiet and stream is not None and stream.isatty():
            self._live = _live_line(stream)
            self._live.start()
            self._task = self._live.add_task(label, total=1.0, figures="")

    def advance(self, bytes: int = 0, pairs: int = 0) -> None:
        """Count what was done since the last call, and show it if it is time to."""
        self._bytes += bytes
        self._pairs += pairs
        now = self._clock()
        if self._quiet or now - self._shown < (LINE_EVERY_S if self._live is None else DRAW_EVERY_S):
            return
        self._shown = now
        if self._live is None:
            LOGGER.info("%s: %.0f %%, %s", self._label, 100 * self._share, self._figures(now))
        else:
            self._live.update(self._task, completed=self._share, figures=self._figures(now))
            self._live.refresh()

    def finish(self) -> None:
        """End the step: the live line goes, one log line with its totals stays."""
        if not self._running:
            return
        self._running = False
        if self._live is not None:
            self._live.stop()
            self._live = None
        if not self._quiet:
            elapsed = self._clock() - self._begun
            LOGGER.info("%s: done, %s in %.1f s", self._label, self._done(elapsed), elapsed)

    @property
    def _share(self) -> float:
        """Part of the step that is done, 0 to 1; by bytes where they are known."""
        done, total = (self._bytes, self._total_bytes) if self._total_bytes else (self._pairs, self._total_pairs)
        return min(done / total, 1.0) if total else 0.0

    def _done(self, elapsed: float) -> str:
        text = f"{self._pairs:,} tensors"
        if self._bytes:
            text += f", {size_text(self._bytes)}, {rate_text(self._bytes, max(elapsed, 1e-9))}"
        return text

    def _figures(self, now: float) -> str:
        elapsed = max(now - self._begun, 1e-9)
        words = [f"{self._pairs:,} of {self._total_pairs:,} tensors", f"{self._pairs / elapsed:,.0f} a second"]
        if self._total_bytes:
            words.append(rate_text(self._bytes, elapsed))
        if self._share:
            left = round(elapsed * (1 / self._share - 1))
            words.append(f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left")
        return ", ".join(words)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None and error is not None:
            self._live.stop()
            self._live = None
            self._running = False
        self.finish()


def _live_line(stream: TextIO) -> LiveLine:
    """A line that is redrawn on demand only; log lines pass above it where they go to a terminal as well."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as LiveLine

    return LiveLine(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
        console=Console(file=stream),
        auto_refresh=False,
        transient=True,
        redirect_stdout=_is_terminal(sys.stdout),
        redirect_stderr=_is_terminal(sys.stderr),
    )


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()
