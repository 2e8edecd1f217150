"""The reports of a folder, one a rank: found by their names, no file is opened."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from opassay.pipeline.watch.logs import clip, one_line
from opassay.schemas.errors import UsageError

SUFFIXES: Final = (".xlsx", ".csv")
_OURS: Final = re.compile(r"multi_ranks_compare_merge_\d{14}\.xlsx", re.ASCII)
_REPORT: Final = re.compile(
    r"compare_result_rank(?P<rank>\d+)(?:-rank(?P<golden>\d+))?(?P<partial>_partial)?_(?P<stamp>\d{14})"
    r"(?:_part_(?P<part>\d+))?(?P<suffix>\.xlsx|\.csv)",
    re.ASCII | re.IGNORECASE,
)
_FORM: Final = "compare_result_rank<number>_<14 digits>.xlsx or .csv"


@dataclass(frozen=True, slots=True)
class RankReport:
    """The report of one rank.

    Attributes
    ----------
    rank : int
        Its number.
    files : tuple of Path
        One file, or the parts of one csv in their order.
    stamp : str
        Timestamp of the name, 14 digits.
    partial : bool
        Whether the name says that the dump was cut.
    """

    rank: int
    files: tuple[Path, ...]
    stamp: str
    partial: bool

    @property
    def label(self) -> str:
        """Head of the rank's column, ``rank3``."""
        return f"rank{self.rank}"


@dataclass(slots=True)
class Found:
    """What a folder holds.

    Attributes
    ----------
    reports : list of RankReport
        One a rank, by number.
    notes : list of str
        Lines about reports that another one stands in for, and about partial ones.
    lost : list of str
        Lines about files that cannot be used.
    """

    reports: list[RankReport] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Choice:
    """Files that only together, or in place of each other, are the report of a rank."""

    rank: int
    stamp: str
    partial: bool
    whole: dict[str, Path] = field(default_factory=dict)  # by suffix
    parts: dict[int, Path] = field(default_factory=dict)


def find_reports(folder: Path) -> Found:
    """List the reports directly in a folder.

    Every xlsx and csv file there must have the name of a rank's report, or is told of in `Found.lost`; hidden files, a
    spreadsheet's lock files, results of earlier merges and files of other kinds are passed over. Of several reports of one rank
    the newest is taken; of a csv and an xlsx of one time the csv.

    Parameters
    ----------
    folder : Path
        The folder.

    Raises
    ------
    UsageError
        If it cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            listed = sorted((entry.name, entry.path) for entry in entries if _is_candidate(entry.name))
    except OSError as error:
        raise UsageError(
            f"cannot list {_shown(folder)}: {error.strerror}; check -i, the folder of the reports"
        ) from error
    found = Found()
    choices: dict[tuple[int, str, bool], _Choice] = {}
    for name, place in listed:
        path = Path(place)
        read = _REPORT.fullmatch(name)
        if read is None or (read["golden"] and int(read["golden"]) != int(read["rank"])):
            found.lost.append(f"{_shown(path)} is left out: it has no name of the form {_FORM}")
        elif read["part"] and read["suffix"].lower() != ".csv":
            found.lost.append(f"{_shown(path)} is left out: only csv reports come in parts")
        elif not _is_regular(path):
            found.lost.append(f"{_shown(path)} is left out: it is no regular file, or cannot be looked at")
        else:
            key = int(read["rank"]), read["stamp"], read["partial"] is not None
            choice = choices.setdefault(key, _Choice(*key))
            if read["part"]:
                _put(choice.parts, int(read["part"]), path, found)
            else:
                _put(choice.whole, read["suffix"].lower(), path, found)
    by_rank: dict[int, list[_Choice]] = {}
    for choice in choices.values():
        by_rank.setdefault(choice.rank, []).append(choice)
    for rank in sorted(by_rank):
        _choose(by_rank[rank], found)
    return found


def _choose(choices: Iterable[_Choice], found: Found) -> None:
    """The newest report of a rank that is complete; of one time, one that is not partial."""
    taken: RankReport | None = None
    for choice in sorted(choices, key=lambda one: (one.stamp, not one.partial), reverse=True):
        files, others = _files(choice)
        if taken is not None:
            found.notes.append(
                f"{_names((*files, *others))}: not read, {_names(taken.files)} of the same rank is taken"
            )
            continue
        missing = sorted(set(range(1, len(files) + 1)) - set(choice.parts)) if files[0] in choice.parts.values() else []
        if missing:
            found.lost.append(f"{_names(files)}: left out, part {missing[0]} is missing")
            continue
        taken = RankReport(choice.rank, files, choice.stamp, choice.partial)
        if others:
            found.notes.append(f"{_names(others)}: not read, {_names(files)} is the same report")
        if choice.partial:
            found.notes.append(f"{_names(files)} is partial: the dump was cut, rows behind the cut are blank")
        found.reports.append(taken)


def _files(choice: _Choice) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Those to read and those that say the same: csv before xlsx, which is slower to read, and one file before parts."""
    ways: list[tuple[Path, ...]] = [(choice.whole[suffix],) for suffix in (".csv", ".xlsx") if suffix in choice.whole]
    parts = tuple(choice.parts[number] for number in sorted(choice.parts))
    if parts:
        ways.insert(1 if ".csv" in choice.whole else 0, parts)
    return ways[0], tuple(path for way in ways[1:] for path in way)


def _put(places: dict[str, Path] | dict[int, Path], key: str | int, path: Path, found: Found) -> None:
    """Names that differ in letters' case or leading zeros can be one report twice: the first is taken."""
    first = places.setdefault(key, path)  # type: ignore[arg-type]
    if first is not path:
        found.notes.append(f"{path.name}: not read, {first.name} has the same rank and time")


def _is_candidate(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith((".", "~$")) and _OURS.fullmatch(name) is None


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _names(paths: Iterable[Path]) -> str:
    return ", ".join(one_line(path.name) for path in paths)


def _shown(path: Path) -> str:
    return clip(one_line(str(path)))
