"""Where the dumps are: reads the names of folders, at whatever level the user pointed, and opens no dump.

A tree is ``root/step0/rank0/dump.json`` (or ``procN`` in place of ``rankN``, ``debug.json`` in place of ``dump.json``).
"""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from opassay.pipeline.watch.logs import clip
from opassay.schemas.errors import DumpNotFound, UsageError

_NOTHING = (errno.ENOENT, errno.ENOTDIR)
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
    error : str
        Why the folder cannot be looked into; "" where it can.
    """

    label: str
    number: int | None
    files: tuple[Path, ...]
    error: str = ""


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
    lost : tuple of str
        Steps that cannot be looked into or have the number of another one, each with the reason.
    """

    path: Path
    level: str
    steps: tuple[Step, ...]
    ignored: tuple[str, ...] = field(default=())
    lost: tuple[str, ...] = field(default=())


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
        The path does not exist or cannot be looked into, or no dump stands at any level below it.
    UsageError
        It is a file of another name.
    """
    try:
        return _open_tree(path, side)
    except OSError as error:
        if isinstance(error, DumpNotFound):
            raise
        raise DumpNotFound(
            f"{side} path {clip(str(path))} cannot be looked into ({error.strerror}); check -{side[0]}p and its permissions"
        ) from error


def _open_tree(path: Path, side: str) -> Tree:
    found = _mode(path)
    if not found:
        raise DumpNotFound(f"{side} path {path} does not exist; check -{side[0]}p")
    if not stat.S_ISDIR(found):
        if path.name not in (DUMP, DEBUG):
            raise UsageError(
                f"{side} file {path} is not called {DUMP} or {DEBUG}; give one of these, or the folder that holds it"
            )
        return Tree(path, "file", (Step(None, path.parent, (Rank("", None, (path,)),)),))
    names = _folders(path)
    if files := _files(path):
        match = _RANK.match(path.resolve().name)
        number = int(match[1]) if match and match[1] else None
        return Tree(path, "rank", (Step(None, path.parent, (Rank(path.resolve().name, number, files),)),))
    ranks, ignored = _ranks(path, names)
    if ranks:
        return Tree(path, "step", (Step(None, path, ranks),), ignored)
    steps: dict[int, Step] = {}
    lost: list[str] = []
    for name in sorted(names, key=lambda name: (len(name), name)):  # step1 before step01
        if match := _STEP.match(name):
            try:
                inner, odd = _ranks(path / name, _folders(path / name))
            except OSError as error:
                lost.append(f"{path / name} cannot be looked into ({error.strerror})")
                continue
            ignored += odd
            number = int(match[1])
            if inner and number in steps:
                lost.append(f"{path / name} has the number of {steps[number].path.name} and is not compared; rename it")
            elif inner:
                steps[number] = Step(number, path / name, inner)
    if steps:
        return Tree(path, "root", tuple(steps[number] for number in sorted(steps)), ignored, tuple(lost))
    if lost:
        raise DumpNotFound(f"{side} folder {path} holds no step that can be read: {'; '.join(lost[:3])}")
    seen = ", ".join(names[:5]) or "nothing"
    raise DumpNotFound(
        f"{side} folder {path} holds no {DUMP}, no rankN or procN folder with one, and no stepN folder (found {seen}); "
        f"point -{side[0]}p at a dump root, a step, a rank or a {DUMP}"
    )


def _mode(path: Path) -> int:
    """Type and permissions of what stands at a path, 0 for nothing; OSError where that cannot be told."""
    try:
        return os.stat(path).st_mode
    except OSError as error:
        if error.errno in _NOTHING:
            return 0
        raise


def _folders(folder: Path) -> list[str]:
    """Names of the folders in a folder, sorted; what cannot be told (a link to itself) counts as one, to be reported."""
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                found = entry.is_dir()
            except OSError:
                found = True
            if found:
                names.append(entry.name)
    return sorted(names)


def _files(folder: Path) -> tuple[Path, ...]:
    return tuple(folder / name for name in (DUMP, DEBUG) if stat.S_ISREG(_mode(folder / name)))


def _rank(folder: Path, number: int | None) -> Rank:
    try:
        return Rank(folder.name, number, _files(folder))
    except OSError as error:
        return Rank(folder.name, number, (), f"{folder} cannot be looked into ({error.strerror})")


def _ranks(folder: Path, names: list[str]) -> tuple[tuple[Rank, ...], tuple[str, ...]]:
    """Rank folders by number; proc folders only where there is no rank folder (dump_format.md, 1)."""
    ranks = [(name, found) for name in names if (found := _RANK.match(name))]
    procs = [(name, found) for name in names if (found := _PROC.match(name))]
    ignored = tuple(name for name in names if name.startswith("rank") and not _RANK.match(name))
    if ranks:
        numbered = [_rank(folder / name, int(found[1]) if found[1] else None) for name, found in ranks]
        return tuple(sorted(numbered, key=lambda rank: (rank.number is not None, rank.number or 0))), ignored
    return tuple(_rank(folder / name, None) for name, _ in procs), ignored
