"""A stored case: what to run, and which dumps belong to which report."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.parity.compare import Tally
from tests.parity.dump import Dump, read_dump
from tests.parity.pairing import Matching, read_matching

COMMANDS = ("compare", "merge_result")


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
    def command(self) -> str:
        """Sub-command."""
        return self.argv[0] if self.argv else "(none)"

    @property
    def later(self) -> str:
        """The command of later work that the case needs; ``""`` for none."""
        return "" if self.command in COMMANDS else f"the command {self.command}"

    @property
    def wants_first(self) -> bool:
        """Whether the first difference is searched (``-da``)."""
        return bool({"-da", "--diff_analyze"} & set(self.argv))

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


@dataclass
class Outcome:
    """A case with its tally."""

    case: Case
    tally: Tally = field(default_factory=Tally)
    skipped: str = ""
    status: int | None = None
    seconds: float = 0.0


def rank_folders(step: Path) -> list[Path]:
    """Folders of ranks, by number; of processes where there are no ranks."""
    found = [p for p in step.glob("rank*") if p.is_dir() and re.fullmatch(r"rank\d*", p.name)]
    return sorted(found, key=lambda p: int(p.name[4:] or -1)) or sorted(step.glob("proc*"))


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


def steps(path: Path) -> list[Path]:
    return [path, *sorted(p for p in path.glob("step*") if p.is_dir())] if path.is_dir() else []


def _json_of(path: Path, label: str, kind: str, step: str) -> Path | None:
    """The dump of one side that a report is about."""
    if path.is_file():
        return path
    places = [p for p in steps(path) if not step or p.name == step or p == path]
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


def _labelled(path: Path, label: str) -> tuple[str, str]:
    """Folder name and kind of dump behind a ``compare_result_{label}`` of the search for the first difference."""
    kinds = ("dump.json", "debug.json")
    for name in (label, "proc"):
        for kind in kinds:
            if _json_of(path, name, kind, "") is not None:
                return name, kind
    return "", kinds[0]


def dumps_of(case: Case, report: Path) -> tuple[Dump, Dump] | None:
    """The two dumps that a report of ours is about, by its name and the case's paths; None if they cannot be read."""
    target, golden = case.option("-tp", "--target_path"), case.option("-gp", "--golden_path")
    if target is None or golden is None:
        return None
    label = re.search(r"_((?:rank|proc)\d*)_\d{14}", report.name)
    name = label.group(1) if label else ""
    if report.suffix == ".json":  # one name for all forms: rank0 stands for single files and proc folders too
        name, kind = _labelled(case.folder / target, name)
    else:
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
