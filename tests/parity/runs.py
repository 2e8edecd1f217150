"""A run of the tool on a case, and what its exit status and output have to be."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.parity.cases import Case, rank_folders, steps
from tests.parity.dump import read_dump

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
REASON_WORDS = re.compile(
    r"warn|error|could not|cannot|missing|not found|unreadable|skipped|no such|damaged|cut|lost", re.I
)
LOG_LINE = re.compile(r"\[(DEBUG|INFO|WARNING)\]")


@dataclass(frozen=True)
class Run:
    """How the tool fared on a case: exit status, texts, files it wrote, seconds."""

    status: int
    out: str
    err: str
    files: list[Path]
    seconds: float


def run_case(case: Case, tool: Sequence[str], scratch: Path, timeout_s: float = 300.0) -> Run:
    """Run the tool on a case in a folder of its own: dumps are linked, small files copied, the case stays untouched."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    for item in case.folder.iterdir():
        if item.name in ("expected", "case.yaml"):
            continue
        if item.is_dir():
            (scratch / item.name).symlink_to(item.resolve(), target_is_directory=True)
        else:
            shutil.copyfile(item, scratch / item.name)
    before = {p for p in scratch.rglob("*") if not p.is_symlink()}
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200", "PYTHONDONTWRITEBYTECODE": "1"}
    begin = time.monotonic()
    try:
        done = subprocess.run(
            [*tool, *case.argv], cwd=scratch, env=environment, capture_output=True, timeout=timeout_s, check=False
        )
        status, out, err = done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    except subprocess.TimeoutExpired:
        status, out, err = -1, "", f"no answer within {timeout_s} s"
    links = {p for p in scratch.iterdir() if p.is_symlink()}
    files = [
        p
        for p in sorted(scratch.rglob("*"))
        if p.is_file() and p not in before and p.suffix in (".csv", ".xlsx", ".json") and not links & set(p.parents)
    ]
    return Run(status, ANSI.sub("", out), ANSI.sub("", err), files, time.monotonic() - begin)


def _damage(case: Case) -> str:
    """``must`` if some file, rank or record of the dumps cannot be read, so that status 3 is due; ``may`` if that is open."""
    ranks, found = [], ""
    for side in (case.option("-tp", "--target_path"), case.option("-gp", "--golden_path")):
        place = case.folder / (side or "")
        folders = [f for s in steps(place) for f in rank_folders(s)] if place.is_dir() else []
        ranks.append({f.name for f in folders})
        for folder in folders or [place]:
            kinds = [folder / "dump.json", folder / "debug.json"] if folder.is_dir() else [folder]
            files = [f for f in kinds if f.is_file()]
            if not files or any(_is_damaged(f) for f in files):
                return "must"
            if any('"shape": "' in f.read_text(encoding="utf-8") for f in files):
                found = "may"
    return "may" if ranks[0] != ranks[1] else found


def _is_damaged(path: Path) -> bool:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        dump = read_dump(path)
        stack = path.parent / "stack.json"
        if stack.is_file() and not isinstance(json.loads(stack.read_text(encoding="utf-8")), dict):
            return True
    except (OSError, ValueError):
        return True
    if any(not isinstance(v, (dict, list)) for v in content["data"].values()) and not path.name.endswith("debug.json"):
        return True
    from tests.parity.tensors import load

    if dump.task != "tensor":
        return False
    return any(isinstance(load(r.folder / r.data_name), str) for r in dump.rows if r.data_name)


def _nothing_in_common(case: Case) -> bool:
    """Two single files that share no record: every row is reported, and none could be compared (decision 11)."""
    files = [
        case.folder / (side or "")
        for side in (case.option("-tp", "--target_path"), case.option("-gp", "--golden_path"))
    ]
    if not all(file.is_file() for file in files):
        return False
    names = [set(json.loads(file.read_text(encoding="utf-8"))["data"]) for file in files]
    return names[0].isdisjoint(names[1])


def check_run(case: Case, run: Run, *, damage: str | None = None, lost: int = 0) -> list[str]:
    """What is wrong with exit status and output.

    Parameters
    ----------
    case, run : Case, Run
        The case and how the tool fared.
    damage : str, optional
        ``must`` or ``may`` where something cannot be read, ``""`` for nothing; None: as the dumps are.
    lost : int
        Files that may have a line of error each before the one that says why nothing was written.
    """
    faults = []
    if run.status not in (0, 2, 3):
        faults.append(f"exit status {run.status}")
    if "Traceback (most recent call last)" in run.out + run.err:
        faults.append("a traceback in the output")
    if not run.files:
        lines = [ln for ln in run.err.splitlines() if ln.strip() and not LOG_LINE.search(ln)]
        usage = any(ln.startswith("usage:") for ln in lines)
        if not 1 <= len(lines) <= 1 + lost and not usage:
            faults.append(f"no file was written and stderr has {len(lines)} lines of error, not one")
        if run.status != 2:
            faults.append(f"no file was written and the exit status is {run.status}, not 2")
        return faults
    if run.status == 2 and not _nothing_in_common(case):
        faults.append("exit status 2 although files were written")
    damage = _damage(case) if damage is None else damage
    if run.status == 3:
        if not REASON_WORDS.search(run.err + run.out):
            faults.append("exit status 3 without a stated reason")
        if not damage:
            faults.append("exit status 3 although everything can be read")
    elif damage == "must":
        faults.append(f"exit status {run.status} although something cannot be read")
    return faults
