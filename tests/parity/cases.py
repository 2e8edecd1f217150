"""A stored case: what to run, how the tool fared, and which dumps belong to which report."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.parity.compare import Finding, Tally, compare_tables
from tests.parity.dump import Dump, read_dump
from tests.parity.pairing import Matching, is_refused, read_matching
from tests.parity.tables import read_table

LATER_OPTIONS = {
    "-da": "first difference",
    "--diff_analyze": "first difference",
}
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
REASON_WORDS = re.compile(
    r"warn|error|could not|cannot|missing|not found|unreadable|skipped|no such|damaged|cut|lost", re.I
)
LOG_LINE = re.compile(r"\[(DEBUG|INFO|WARNING)\]")


@dataclass(frozen=True)
class Case:
    """One case folder.

    Attributes
    ----------
    folder : Path
        The case.
    argv : list of str
        Sub-command and options, to be run inside it.
    status : int
        Exit status of the incumbent.
    files : list of str
        Names of its result files.
    """

    folder: Path
    argv: list[str]
    status: int
    files: list[str]

    @property
    def name(self) -> str:
        """Folder name."""
        return self.folder.name

    @property
    def later(self) -> str:
        """The option or command of later work that the case needs, by its argv; ``""`` for none."""
        if not self.argv or self.argv[0] != "compare":
            return f"the command {self.argv[0] if self.argv else '(none)'}"
        return next((f"{a} ({LATER_OPTIONS[a]})" for a in self.argv if a in LATER_OPTIONS), "")

    @property
    def matching(self) -> Matching:
        """How the sides meet, by its argv."""
        return read_matching(self.argv, self.folder)

    def option(self, *names: str) -> str | None:
        """Value of an option."""
        return next((self.argv[i + 1] for i, a in enumerate(self.argv[:-1]) if a in names), None)


def read_case(folder: Path) -> Case:
    """Read ``case.yaml``."""
    import yaml

    content = yaml.safe_load((folder / "case.yaml").read_text(encoding="utf-8"))
    files = [name for name in content.get("expected_files") or [] if "__" not in name]
    return Case(folder, [str(a) for a in content["argv"]], int(content["peer_exit_code"]), files)


def find_cases(folders: Sequence[Path]) -> list[Case]:
    """All cases under the folders; a folder may be a case itself."""
    found = []
    for folder in folders:
        places = [folder] if (folder / "case.yaml").is_file() else sorted(folder.iterdir())
        found += [read_case(p) for p in places if (p / "case.yaml").is_file()]
    return found


@dataclass(frozen=True)
class Run:
    """How the tool fared on a case: exit status, texts, files it wrote, seconds."""

    status: int
    out: str
    err: str
    files: list[Path]
    seconds: float


@dataclass
class Outcome:
    """A case with its tally."""

    case: Case
    tally: Tally = field(default_factory=Tally)
    skipped: str = ""
    status: int | None = None
    seconds: float = 0.0


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


def _salvage(path: Path) -> Dump | None:
    """The whole records of a dump that is cut, or None."""
    text = path.read_text(encoding="utf-8", errors="replace")
    begin = re.search(r'"data"\s*:\s*\{', text)
    if begin is None:
        return None
    decoder, at, data = json.JSONDecoder(), begin.end(), {}
    try:
        while match := re.compile(r'\s*,?\s*(?=")').match(text, at):
            key, at = decoder.raw_decode(text, match.end())
            colon = re.compile(r"\s*:\s*").match(text, at)
            if colon is None:
                break
            data[key], at = decoder.raw_decode(text, colon.end())
    except ValueError:
        pass
    head = re.search(r'"task"\s*:\s*"([^"]*)"', text)
    return _dump_of(path, head.group(1) if head else "", data)


def _dump_of(path: Path, task: str, data: dict[str, Any]) -> Dump:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder, path.name)
        whole.write_text(json.dumps({"task": task, "data": data}), encoding="utf-8")
        for name in ("stack.json",):
            if (path.parent / name).is_file():
                shutil.copyfile(path.parent / name, whole.parent / name)
        dump = read_dump(whole)
    place = path.parent / "dump_tensor_data"
    return replace(dump, path=path, rows=[replace(row, folder=place) for row in dump.rows])


def _read(path: Path) -> Dump | None:
    try:
        return read_dump(path)
    except ValueError:
        return _salvage(path)
    except OSError:
        return None


def _steps(path: Path) -> list[Path]:
    return [path, *sorted(p for p in path.glob("step*") if p.is_dir())] if path.is_dir() else []


def _json_of(path: Path, label: str, kind: str, step: str) -> Path | None:
    """The dump of one side that a report is about."""
    if path.is_file():
        return path
    places = [p for p in _steps(path) if not step or p.name == step or p == path]
    for place in places:
        folders = [place / label] if label else [place]
        if place.name == label:
            folders.append(place)
        if label.startswith("proc"):
            folders += sorted(place.glob("proc*"))
        for folder in folders:
            if (folder / kind).is_file():
                return folder / kind
    return None


def dumps_of(case: Case, report: Path) -> tuple[Dump, Dump] | None:
    """The two dumps that a report of ours is about, by its name and the case's paths; None if they cannot be read."""
    target, golden = case.option("-tp", "--target_path"), case.option("-gp", "--golden_path")
    if target is None or golden is None:
        return None
    label = re.search(r"_((?:rank|proc)\d*)_\d{14}", report.name)
    name = label.group(1) if label else ""
    kind = "debug.json" if report.name.startswith("debug_") else "dump.json"
    step = report.parent.name if report.parent.name.startswith("step") else ""
    paths = [case.folder / side for side in (target, golden)]
    if not name:
        name = next((p.parent.name for p in paths if p.is_file()), "")
    found = [_json_of(path, name, kind, step) for path in paths]
    if None in found:
        found = [_json_of(path, "", kind, step) for path in paths]
    dumps = [_read(path) if path is not None else None for path in found]
    return (dumps[0], dumps[1]) if dumps[0] is not None and dumps[1] is not None else None


def _rank_has_partner(case: Case, name: str) -> bool:
    """Whether the golden side has the rank that a report of the incumbent is named after."""
    label = re.search(r"_(rank\d+)_TIMESTAMP", name)
    golden = case.option("-gp", "--golden_path")
    if label is None or golden is None:
        return True
    return any((p / label.group(1)).is_dir() for p in _steps(case.folder / golden))


def _rank_folders(step: Path) -> list[Path]:
    """Folders of ranks, by number; of processes where there are no ranks."""
    found = [p for p in step.glob("rank*") if p.is_dir() and re.fullmatch(r"rank\d*", p.name)]
    return sorted(found, key=lambda p: int(p.name[4:] or -1)) or sorted(step.glob("proc*"))


def _paired_by_position(case: Case, target: Dump, golden: Dump) -> bool:
    """Whether the incumbent, who pairs ranks by position, compares this target rank with another golden rank."""
    places = []
    for side, dump in (("-tp", target), ("-gp", golden)):
        ranks = [p.name for p in _rank_folders(case.folder / (case.option(side) or ""))]
        places.append(ranks.index(dump.path.parent.name) if dump.path.parent.name in ranks else -1)
    return places[0] != places[1]


def _damage(case: Case) -> str:
    """``must`` if some file, rank or record of the dumps cannot be read, so that status 3 is due; ``may`` if that is open."""
    ranks, found = [], ""
    for side in (case.option("-tp", "--target_path"), case.option("-gp", "--golden_path")):
        place = case.folder / (side or "")
        folders = [f for s in _steps(place) for f in _rank_folders(s)] if place.is_dir() else []
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


def _check_run(case: Case, run: Run) -> list[str]:
    """What is wrong with exit status and output."""
    faults = []
    if run.status not in (0, 2, 3):
        faults.append(f"exit status {run.status}")
    if "Traceback (most recent call last)" in run.out + run.err:
        faults.append("a traceback in the output")
    if not run.files:
        lines = [ln for ln in run.err.splitlines() if ln.strip() and not LOG_LINE.search(ln)]
        usage = any(ln.startswith("usage:") for ln in lines)
        if len(lines) != 1 and not usage:
            faults.append(f"no file was written and stderr has {len(lines)} lines of error, not one")
        if run.status != 2:
            faults.append(f"no file was written and the exit status is {run.status}, not 2")
        return faults
    if run.status == 2 and not _nothing_in_common(case):
        faults.append("exit status 2 although files were written")
    damage = _damage(case)
    if run.status == 3:
        if not REASON_WORDS.search(run.err + run.out):
            faults.append("exit status 3 without a stated reason")
        if not damage:
            faults.append("exit status 3 although everything can be read")
    elif damage == "must":
        faults.append(f"exit status {run.status} although something cannot be read")
    return faults


def judge_case(case: Case, tool: Sequence[str], scratch: Path) -> Outcome:
    """Run a case and put every cell into its place."""
    run = run_case(case, tool, scratch)
    outcome = Outcome(case, status=run.status, seconds=run.seconds)
    tally = outcome.tally
    for text in _check_run(case, run):
        output = (run.err.strip() or run.out.strip())[-400:]
        tally.unexplained.append(
            Finding(case.name, "", "run", f"status {case.status}", f"status {run.status}", text, output)
        )
    used: set[Path] = set()
    refused = not run.files and run.status == 2 and is_refused(case.argv)
    for name in case.files:
        if refused:
            tally.explained["refused together", "(file)"] += 1
            continue
        pattern = re.compile(re.escape(name).replace("TIMESTAMP", r"\d{14,20}"))
        mine = [p for p in run.files if pattern.fullmatch(p.name)]
        if len(mine) != 1:
            if not mine and not _rank_has_partner(case, name):
                tally.explained["rank by number", "(file)"] += 1
                continue
            tally.unexplained.append(
                Finding(f"{case.name}/{name}", "", "", name, ", ".join(p.name for p in mine), f"{len(mine)} such files")
            )
            continue
        used.add(mine[0])
        tally.add(_compare(case, mine[0], case.folder / "expected" / name))
    for report in run.files:
        if report not in used:
            tally.add(_compare(case, report, None))
    if not run.files and not case.files and not tally.unexplained:
        tally.explained["incumbent stops" if case.status else "nothing to compare", "(run)"] += 1
    return outcome


def _compare(case: Case, report: Path, expected: Path | None) -> Tally:
    dumps = dumps_of(case, report)
    if dumps is None:
        finding = Finding(report.name, "", "", "", report.name, "cannot tell which dumps this report is about")
        return Tally(unexplained=[finding])
    theirs = read_table(expected) if expected is not None else None
    ours = read_table(report)
    instead = "rank by number" if expected is not None and _paired_by_position(case, *dumps) else "incumbent stops"
    return compare_tables(f"{case.name}/{report.name}", theirs, ours, *dumps, instead, matching=case.matching)
