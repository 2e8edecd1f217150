"""Bytes, rates and durations as people read them: decimal units, three digits."""

from __future__ import annotations


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


def rate_text(size: float, seconds: float) -> str:
    """Bytes over seconds as ``2.1 GB/s`` or ``974 kB/s``; 0 B/s where no time has passed."""
    rate = size / seconds if seconds > 0 else 0.0
    return f"{rate / 1e9:.3g} GB/s" if rate >= 1e7 else f"{size_text(rate)}/s"
