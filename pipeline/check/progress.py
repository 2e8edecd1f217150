"""How far a check is: by the estimated cost of its calls, since the longest are run first."""

from __future__ import annotations

from opassay.pipeline.watch.progress import Progress


class CallProgress(Progress):
    """`Progress` that counts calls and does not take their cost for bytes."""

    def _done(self, elapsed: float) -> str:
        return f"{self._pairs:,} calls"

    def _figures(self, now: float) -> str:
        elapsed = max(now - self._begun, 1e-9)
        words = [f"{self._pairs:,} of {self._total_pairs:,} calls", f"{self._pairs / elapsed:,.0f} calls/s"]
        if self._share:
            left = round(elapsed * (1 / self._share - 1))
            words.append(f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left")
        return ", ".join(words)
