"""What to say where a package that opassay needs is not installed: an old installation, or an extra that was left out."""

from __future__ import annotations

from typing import Final

EXTRAS: Final = {"torch": "'opassay[torch]'", "torch_npu": "'opassay[npu]'"}
"""What installs a package that not everybody needs."""


def missing_package(error: BaseException) -> str:
    """``xlsxwriter is not installed: pip install --upgrade opassay``; "" where an error is none of a missing package."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package in ("", "opassay"):
        return ""
    return f"{package} is not installed: pip install --upgrade {EXTRAS.get(package, 'opassay')}"
