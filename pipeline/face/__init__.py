"""opassay finds where a neural network's numbers go wrong: it compares op-level dumps of two runs.

>>> import opassay
>>> report = opassay.compare("target/step0", "golden/step0")  # doctest: +SKIP
>>> report.rows  # doctest: +SKIP

Importing this package loads nothing heavy: polars, numba and torch come in when a dump is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["CompareReport", "OpassayError", "__version__", "compare"]

if TYPE_CHECKING:
    from opassay.pipeline.api import CompareReport as CompareReport
    from opassay.pipeline.api import compare as compare
    from opassay.schemas.errors import OpassayError as OpassayError

_HOMES = {
    "compare": "opassay.pipeline.api",
    "CompareReport": "opassay.pipeline.api",
    "OpassayError": "opassay.schemas.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'opassay' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
