"""Where the dumps are: reads the names of folders, at whatever level the user pointed, and opens no dump.

A tree is ``root/step0/rank0/dump.json`` (or ``procN`` in place of ``rankN``, ``debug.json`` in place of ``dump.json``).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from opassay.schemas.errors import DumpNotFound, UsageError

DUMP, DEBUG = "dump.json", "debug.json"
_RANK = re.compile(r"rank(0|[1-9][0-9]*)?\Z")
_PROC = re.compile(r"proc([0-9]+)\Z")
_STEP = re.compile(r"step([0-9]+)\Z")


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank's folder.

    Attributes
    ----------
    label : str
        Name of the folder, ``rank3`` or ``proc4242``; "" for a single file.
    number : int or None
        The rank number; None for ``rank``, ``proc...`` and single files.
    files : tuple of Path
        The JSON files that stand in it: ``dump.json``, ``debug.json``, both or none.
    """

    label: str
    number: int | None
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One step's folder: its number (None where the user pointed below the steps) and its ranks by number."""

    number: int | None
    path: Path
    ranks: tuple[Rank, ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """What a path of the command line means.

    Attributes
    ----------
    path : Path
        As given.
    level : {"file", "rank", "step", "root"}
        The level it stands at.
    steps : tuple of Step
        In number order.
    ignored : tuple of str
        Folders that look like ranks or steps but are not named so (``rank01``).
    """

    path: Path
    level: str
    steps: tuple[Step, ...]
    ignored: tuple[str, ...] = field(default=())


def open_tree(path: Path, side: str) -> Tree:
    """Find steps, ranks and JSON files under a path.

    Parameters
    ----------
    path : Path
        A dump.json or debug.json, or a rank, step or dump-root folder.
    side : {"target", "golden"}
        For messages.

    Raises
    ------
    DumpNotFound
        The path does not exist, or no dump stands at any level below it.
    UsageError
        It is a file of another name.
    """
    if not path.exists():
        raise DumpNotFound(f"{side} path {path} does not exist; check -{side[0]}p")
    if not path.is_dir():
        if path.name not in (DUMP, DEBUG):
            raise UsageError(
                f"{side} file {path} is not called {DUMP} or {DEBUG}; give one of these, or the folder that holds it"
            )
        return Tree(path, "file", (Step(None, path.parent, (Rank("", None, (path,)),)),))
    try:
        names = sorted(entry.name for entry in os.scandir(path) if entry.is_dir())
    except OSError as error:
        raise DumpNotFound(
            f"{side} folder {path} cannot be listed ({error.strerror}); check its permissions"
        ) from error
    if files := _files(path):
        match = _RANK.match(path.resolve().name)
        number = int(match[1]) if match and match[1] else None
        return Tree(path, "rank", (Step(None, path.parent, (Rank(path.resolve().name, number, files),)),))
    ranks, ignored = _ranks(path, names)
    if ranks:
        return Tree(path, "step", (Step(None, path, ranks),), ignored)
    steps = []
    for name in names:
        if match := _STEP.match(name):
            inner, odd = _ranks(path / name, sorted(entry.name for entry in os.scandir(path / name) if entry.is_dir()))
            ignored += odd
            if inner:
                steps.append(Step(int(match[1]), path / name, inner))
    if steps:
        return Tree(path, "root", tuple(sorted(steps, key=lambda step: step.number or 0)), ignored)
    seen = ", ".join(names[:5]) or "nothing"
    raise DumpNotFound(
        f"{side} folder {path} holds no {DUMP}, no rankN or procN folder with one, and no stepN folder (found {seen}); "
        f"point -{side[0]}p at a dump root, a step, a rank or a {DUMP}"
    )


def _files(folder: Path) -> tuple[Path, ...]:
    return tuple(folder / name for name in (DUMP, DEBUG) if (folder / name).is_file())


def _ranks(folder: Path, names: list[str]) -> tuple[tuple[Rank, ...], tuple[str, ...]]:
    """Rank folders by number; proc folders only where there is no rank folder (dump_format.md, 1)."""
    ranks = [(name, found) for name in names if (found := _RANK.match(name))]
    procs = [(name, found) for name in names if (found := _PROC.match(name))]
    ignored = tuple(name for name in names if name.startswith("rank") and not _RANK.match(name))
    if ranks:
        numbered = [Rank(name, int(found[1]) if found[1] else None, _files(folder / name)) for name, found in ranks]
        return tuple(sorted(numbered, key=lambda rank: (rank.number is not None, rank.number or 0))), ignored
    return tuple(Rank(name, None, _files(folder / name)) for name, _ in procs), ignored
