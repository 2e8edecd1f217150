"""construct.json: the module around each record, where the dump tool has written it (level mix)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import polars as pl

_FILE: Final = "construct.json"
_LARGEST: Final = 256 << 20  # bytes; a larger one costs more than it tells


def read_parents(folder: Path, names: pl.Series) -> dict[str, str]:
    """The modules around some records, and around those.

    Parameters
    ----------
    folder : Path
        Of the dump.json.
    names : polars.Series
        Record names.

    Returns
    -------
    dict of str to str
        Record -> module; empty where there is no such file or it cannot be read: it only makes the answer shorter.
    """
    path = folder / _FILE
    try:
        if names.is_empty() or path.stat().st_size > _LARGEST:
            return {}
        known: Any = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    found: dict[str, str] = {}
    waiting = names.to_list()
    while waiting and isinstance(known, dict):
        name = waiting.pop()
        parent = known.get(name)
        if isinstance(parent, list):  # Megatron: [parent, micro step]
            parent = parent[0] if parent else None
        if isinstance(parent, str) and name not in found:
            found[name] = parent
            waiting.append(parent)
    return found
