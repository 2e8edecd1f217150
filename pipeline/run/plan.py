"""What will be compared with what: steps, ranks and files of two trees, paired before anything is read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from opassay.pipeline.read.trees import DUMP, Rank, Step, Tree
from opassay.schemas.errors import NothingToCompare, UsageError

_RANK = re.compile(r"\Arank(\d+)\Z")
_DEVICE = re.compile(r"(?:rank\d*|proc\d+)\Z")
_SIDES = ("target", "golden")
"""Folder names that would read as the side, not as the rank, that a line speaks of."""


@dataclass(frozen=True, slots=True)
class RankPair:
    """Two JSON files that will be compared.

    Attributes
    ----------
    target, golden : Path
        The files.
    label : str
        The target's rank folder (``rank3``, ``proc4242``), "" for single files: part of the report's name.
    step : int or None
        Step number, where several steps are compared.
    debug : bool
        Whether they are debug.json files.
    shards : tuple of Path
        Files of the target's further tensor-parallel ranks, to be joined with the first.
    """

    target: Path
    golden: Path
    label: str
    step: int | None
    debug: bool
    shards: tuple[Path, ...] = ()

    @property
    def rank(self) -> int:
        """Number of the rank: of the rank folder, where there is one; 0 for a process without a rank and for files elsewhere."""
        found = _RANK.search(self.label or self.target.absolute().parent.name)
        return int(found[1]) if found else 0

    @property
    def name(self) -> str:
        """How messages and the log call this pair."""
        if self.label and self.label not in _SIDES:
            return f"{'' if self.step is None else f'step{self.step}/'}{self.label}"
        folder = self.target.parent.name
        return self.target.name if folder in _SIDES else f"{folder}/{self.target.name}"

    @property
    def is_device(self) -> bool:
        """Whether its label says which of several devices it is: ``rank3``, ``proc4242``."""
        return _DEVICE.match(self.label) is not None


@dataclass(frozen=True, slots=True)
class Plan:
    """The pairs, and what has no partner.

    Attributes
    ----------
    pairs : tuple of RankPair
        In order of step and rank.
    notes : tuple of str
        How things were paired where it is not by equal number, and one-sided ranks and steps: for the log.
    lost : tuple of str
        Ranks and steps that cannot be compared, for lack of a JSON file or of the right to look (exit status 3).
    """

    pairs: tuple[RankPair, ...]
    notes: tuple[str, ...]
    lost: tuple[str, ...]


def make_plan(target: Tree, golden: Tree, *, shards: bool = False) -> Plan:
    """Pair steps and ranks by number (decision 9).

    Parameters
    ----------
    target, golden : Tree
        The two trees; they need not be named at the same level where one step or one rank makes it plain what is meant.
    shards : bool
        Where the target has a multiple of the golden side's ranks, consecutive ones are shards of one model and join.

    Raises
    ------
    UsageError
        A file against a folder, dump.json against debug.json, or levels that do not fit.
    NothingToCompare
        No step or rank exists on both sides.
    """
    if (target.level == "file") != (golden.level == "file") and not (shards and golden.level == "file"):
        file, folder = (target, golden) if target.level == "file" else (golden, target)
        raise UsageError(f"{file.path} is a file and {folder.path} is a folder; give two files or two folders")
    notes = [f"ignored folder {name}: not named rankN" for tree in (target, golden) for name in tree.ignored]
    lost = [f"{side} {line}" for side, tree in (("target", target), ("golden", golden)) for line in tree.lost]
    pairs: list[RankPair] = []
    several = target.level == "root" and golden.level == "root" and max(len(target.steps), len(golden.steps)) > 1
    for ours, theirs in _step_pairs(target, golden, notes):
        step = ours.number if several else None
        met = (
            _shard_groups(ours, theirs, notes, lost)
            if shards and len(ours.ranks) > len(theirs.ranks)
            else [((mine,), other) for mine, other in _rank_pairs(ours, theirs, target, golden, notes)]
        )
        for mine, other in met:
            found, odd = _file_pairs(mine, other, step)
            pairs += found
            lost += odd
    if not pairs:
        raise NothingToCompare("; ".join([*lost, *notes]) or f"no rank of {target.path} has a partner in {golden.path}")
    return Plan(tuple(pairs), tuple(notes), tuple(lost))


def _step_pairs(target: Tree, golden: Tree, notes: list[str]) -> list[tuple[Step, Step]]:
    if target.level != "root" or golden.level != "root":
        for tree in (target, golden):
            if tree.level == "root" and len(tree.steps) > 1:
                other = golden if tree is target else target
                steps = ", ".join(step.path.name for step in tree.steps)
                raise UsageError(
                    f"{tree.path} holds several steps ({steps}) and {other.path} is one {other.level}; name one step on both sides"
                )
        return [(target.steps[0], golden.steps[0])]
    if len(target.steps) == len(golden.steps) == 1:
        ours, theirs = target.steps[0], golden.steps[0]
        if ours.number != theirs.number:
            notes.append(f"paired the only steps of the two sides: step{ours.number} with step{theirs.number}")
        return [(ours, theirs)]
    by_number = {step.number: step for step in golden.steps}
    pairs = [(step, by_number[step.number]) for step in target.steps if step.number in by_number]
    for side, mine, other in (("target", target, golden), ("golden", golden, target)):
        there = {step.number for step in other.steps}
        notes += [
            f"{side} step{step.number} has no partner and is not compared"
            for step in mine.steps
            if step.number not in there
        ]
    if not pairs:
        raise NothingToCompare(f"no step number is on both sides: {'; '.join(notes)}; name one step on both sides")
    return pairs


def _rank_pairs(ours: Step, theirs: Step, target: Tree, golden: Tree, notes: list[str]) -> list[tuple[Rank, Rank]]:
    mine, other = list(ours.ranks), list(theirs.ranks)
    if target.level in ("file", "rank") and golden.level in ("file", "rank"):
        return [(mine[0], other[0])]
    for tree, ranks, single in ((target, mine, golden), (golden, other, target)):
        if single.level == "rank" and len(ranks) > 1:
            raise UsageError(
                f"{tree.path} holds {len(ranks)} ranks and {single.path} is one; name one rank on both sides"
            )
    key = {id(rank): rank.label if rank.label.startswith("proc") else rank.number for rank in (*mine, *other)}
    there = {key[id(rank)]: rank for rank in other}
    pairs = [(rank, there[key[id(rank)]]) for rank in mine if key[id(rank)] in there]
    if not pairs:
        pairs = list(zip(mine, other, strict=False))
        listed = ", ".join(f"{a.label} with {b.label}" for a, b in pairs[:4]) + (", ..." if len(pairs) > 4 else "")
        notes.append(f"no rank number is on both sides: paired in order ({listed})")
    taken = {id(rank) for pair in pairs for rank in pair}
    for side, ranks, folder in (("target", mine, theirs), ("golden", other, ours)):
        for rank in ranks:
            if id(rank) not in taken:
                notes.append(f"{side} {rank.label} has no partner in {folder.path} and is not compared")
    return pairs


def _shard_groups(ours: Step, theirs: Step, notes: list[str], lost: list[str]) -> list[tuple[tuple[Rank, ...], Rank]]:
    """Consecutive target ranks as the shards of one golden rank: tensor-parallel ranks are the innermost of a launcher's order."""
    size, rest = divmod(len(ours.ranks), len(theirs.ranks))
    if rest:
        lost.append(
            f"--shards auto: {ours.path} has {len(ours.ranks)} ranks and {theirs.path} {len(theirs.ranks)}; "
            "the first must be a multiple of the second"
        )
        return []
    for side, step in (("target", ours), ("golden", theirs)):
        numbers = [rank.number for rank in step.ranks if rank.number is not None]
        if numbers and numbers != list(range(len(numbers))):
            notes.append(f"{side} ranks of {step.path} have gaps in their numbers: check that none is missing")
    groups = [(ours.ranks[at * size : (at + 1) * size], rank) for at, rank in enumerate(theirs.ranks)]
    for group, rank in groups:
        notes.append(
            f"target {group[0].label} to {group[-1].label} are joined as shards of golden {rank.label or rank.files[0]}"
        )
    return groups


def _file_pairs(group: tuple[Rank, ...], theirs: Rank, step: int | None) -> tuple[list[RankPair], list[str]]:
    ours = group[0]
    mine = {path.name: path for path in ours.files}
    other = {path.name: path for path in theirs.files}
    common = [name for name in mine if name in other]
    where = ours.label or "the pair"
    shards = {name: [path for rank in group[1:] for path in rank.files if path.name == name] for name in common}
    pairs = [RankPair(mine[name], other[name], ours.label, step, name != DUMP, tuple(shards[name])) for name in common]
    errors = [("target", rank.error) for rank in group if rank.error]
    errors += [("golden", theirs.error)] if theirs.error else []
    errors += [
        ("target", f"{rank.label} has no {name}")
        for rank in group[1:]
        for name in common
        if name not in [path.name for path in rank.files] and not rank.error
    ]
    if errors:
        return [], [f"{where}: {side} {error}" for side, error in errors]
    lost = []
    for side, names, rest in (("target", mine, other), ("golden", other, mine)):
        for name in names:
            if name not in rest:
                lost.append(f"{where}: {names[name]} ({side}) has no {name} on the other side")
    if not mine and not other:
        lost.append(f"{where}: no {DUMP} or debug.json on either side")
    if lost and not pairs and not ours.label:
        raise UsageError(
            f"{ours.files[0]} and {theirs.files[0]} are not of the same kind; compare dump.json with dump.json"
        )
    return pairs, lost
