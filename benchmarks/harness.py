"""Measures opassay, another ``msprobe`` where one is named, and the machine's own limits, in one interleaved run.

Rates are 1e9 bytes of both dumps (tensor files; dump.json where no tensor is stored) over wall time. ``us/pair``
is CPU time after start-up: that of the row less that of the smallest dump, over the pairs. Ratios say how many times
more the rival needs.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from benchmarks.limits import Limit, read_files, sum_memory
from benchmarks.make_dumps import SIDES, DumpSpec, build, refill_cache
from benchmarks.process_tree import Usage, measure

OURS, RIVAL = "opassay", "rival"
START_UP, START_UP_STATISTICS = "2 pairs", "1 statistics op"
HELP = "--help"
CACHE_STATE = "page cache filled by reading once"
PACKAGES = ("opassay", "numpy", "numba", "llvmlite", "polars", "nanoarrow")


@dataclass(frozen=True, slots=True)
class Load:
    """One dump pair to compare.

    Attributes
    ----------
    name : str
        Name of the row.
    spec : DumpSpec
        What is compared.
    rival_spec : DumpSpec or None
        A smaller dump for the rival, where it would need too long on `spec`; rates per pair are compared then.
    workers : tuple of int
        Numbers of worker processes for opassay; a row each.
    """

    name: str
    spec: DumpSpec
    rival_spec: DumpSpec | None = None
    workers: tuple[int, ...] = (1,)


_STARTS = (Load(START_UP, DumpSpec("small", pairs=2)), Load(START_UP_STATISTICS, DumpSpec("statistics", json_mb=0.001)))
SCALES: dict[str, tuple[Load, ...]] = {
    "tiny": (
        *_STARTS,
        Load("large tensors", DumpSpec("tensor", gb=0.001, model="tiny"), workers=(1, 2)),
        Load("small tensors", DumpSpec("small", pairs=60)),
        Load("statistics", DumpSpec("statistics", json_mb=0.2)),
    ),
    "small": (
        *_STARTS,
        Load("large tensors", DumpSpec("tensor", gb=0.75, model="1b"), workers=(1, 2)),
        Load("small tensors", DumpSpec("small", pairs=5_000)),
        Load("statistics", DumpSpec("statistics", json_mb=30), DumpSpec("statistics", json_mb=10)),
    ),
    "full": (
        *_STARTS,
        Load("large tensors", DumpSpec("tensor", gb=7.5), workers=(1, 2)),
        Load("small tensors", DumpSpec("small", pairs=100_000), DumpSpec("small", pairs=10_000)),
        Load("statistics", DumpSpec("statistics", json_mb=300), DumpSpec("statistics", json_mb=30)),
    ),
}


@dataclass(frozen=True, slots=True)
class Dumps:
    """A dump pair on disk: its folder, its pairs of slots and the bytes that count for the rate."""

    folder: Path
    pairs: int
    bytes: int

    def files(self) -> list[Path]:
        """All files that hold what is compared."""
        kinds = (".pt",) if any(self.folder.rglob("*.pt")) else (".json",)
        return sorted(path for path in self.folder.rglob("*") if path.suffix in kinds and path.name != "made.json")


@dataclass(slots=True)
class Cell:
    """All samples of one tool in one row."""

    row: str
    tool: str
    workers: int
    dumps: Dumps | None
    runs: list[Usage] = field(default_factory=list)

    def median(self, what: str) -> float:
        """Median of one field over the runs that ended by themselves with status 0; nan if there is none."""
        values = [float(getattr(run, what)) for run in self.runs if run.status == 0 and not run.capped]
        return statistics.median(values) if values else float("nan")


@dataclass(frozen=True, slots=True)
class Setup:
    """What to run: scale, rounds, time cap in seconds, the rival's command, and the folder for dumps and results."""

    scale: str = "small"
    rounds: int = 3
    cap_s: float = 600.0
    rival: Path | None = None
    folder: Path = Path("build")
    budget_bytes: int = 0


def prepare(spec: DumpSpec, folder: Path) -> Dumps:
    """Make a dump pair, or take the one that an earlier run made from the same options, and fill the page cache by
    reading.
    """
    made = folder / "made.json"
    wanted = json.dumps(asdict(spec), sort_keys=True)
    if not made.exists() or json.loads(made.read_text())["spec"] != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        info = build(spec, folder)
        counted = info.tensor_bytes or info.json_bytes
        made.write_text(json.dumps({"spec": wanted, "pairs": info.pairs, "bytes": counted}))
    facts = json.loads(made.read_text())
    refill_cache(folder)
    return Dumps(folder, int(facts["pairs"]), int(facts["bytes"]))


def command(tool: str, setup: Setup, cell: Cell, output: Path) -> list[str]:
    """Return the words that run one cell once."""
    start = [sys.executable, "-m", "opassay"] if tool == OURS else [str(setup.rival)]
    if cell.dumps is None:
        return [*start, HELP]
    target, golden = (str(cell.dumps.folder / side / "step0") for side in SIDES)
    words = [*start, "compare", "-tp", target, "-gp", golden, "-o", str(output)]
    if tool == OURS:
        words += ["--workers", str(cell.workers)]
    if tool == OURS and setup.budget_bytes:
        words += ["--memory", str(setup.budget_bytes)]
    return words


def plan(setup: Setup) -> list[Cell]:
    """Make the dumps and return the cells, in the order of a round."""
    tools = [OURS] + ([RIVAL] if setup.rival else [])
    cells = [Cell(HELP, tool, 1, None) for tool in tools]
    for load in SCALES[setup.scale]:
        base = setup.folder / "bench" / setup.scale / load.name.replace(" ", "_")
        dumps = prepare(load.spec, base / "full")
        cells += [Cell(load.name, OURS, workers, dumps) for workers in load.workers]
        if setup.rival:
            smaller = prepare(load.rival_spec, base / "part") if load.rival_spec else dumps
            cells.append(Cell(load.name, RIVAL, 1, smaller))
    return cells


def run(setup: Setup) -> int:
    """Measure, print the table, append JSON lines to ``bench.jsonl``; returns 1 if a run of opassay failed, else 0."""
    setup.folder.mkdir(parents=True, exist_ok=True)
    facts = _facts(setup)
    cells = plan(setup)
    reads: dict[str, list[Limit]] = {}
    memory: list[Limit] = []
    log = setup.folder / "bench" / "last.log"
    failures = 0
    with (setup.folder / "bench.jsonl").open("a", encoding="utf-8") as lines:
        for number in range(-1, setup.rounds):  # the first round only fills caches: compiled kernels, byte code
            rotated = cells if number % 2 else list(reversed(cells))
            for cell in rotated:
                if number < 0 and cell.tool == RIVAL and cell.row != HELP:
                    continue
                output = setup.folder / "bench" / "out"
                shutil.rmtree(output, ignore_errors=True)
                load_before = os.getloadavg()[0]
                usage = measure(command(cell.tool, setup, cell, output), log=log, cap_s=setup.cap_s)
                if usage.status != 0 and cell.tool == OURS:
                    failures += 1
                    print(f"{cell.row}: opassay ended with status {usage.status}: {_last_line(log)}", file=sys.stderr)
                if number < 0:
                    continue
                cell.runs.append(usage)
                size = (
                    {"pairs": cell.dumps.pairs, "bytes": cell.dumps.bytes} if cell.dumps else {"pairs": 0, "bytes": 0}
                )
                about = {"row": cell.row, "tool": cell.tool, "workers": cell.workers, "round": number, **size}
                _write(lines, {**about, **asdict(usage), "load": load_before, **facts})
            if number < 0:
                continue
            memory.append(sum_memory())
            for name, dumps in {cell.row: cell.dumps for cell in cells if cell.tool == OURS and cell.dumps}.items():
                limit = read_files(dumps.files())
                reads.setdefault(name, []).append(limit)
                about = {"row": name, "tool": "read only", "workers": 1, "round": number, "pairs": dumps.pairs}
                _write(lines, {**about, **asdict(limit), **facts})
            _write(lines, {"row": "memory", "tool": "sum", "round": number, **asdict(memory[-1]), **facts})
    shutil.rmtree(setup.folder / "bench" / "out", ignore_errors=True)
    print("\n".join(table(cells, reads, memory, facts)))
    return 1 if failures else 0


def table(
    cells: Sequence[Cell], reads: dict[str, list[Limit]], memory: Sequence[Limit], facts: dict[str, Any]
) -> list[str]:
    """Return the lines of the closing table."""
    form = "{:<16}{:<11}{:>8}{:>9}{:>9}{:>9}{:>9}{:>8}{:>10}{:>9}{:>9}"
    lines = [
        f"scale {facts['scale']}, {facts['rounds']} rounds, medians; {facts['cache']}; {facts['cpus']} cores, "
        f"{facts['memory_gb']:.0f} GB; "
        + ", ".join(f"{name} {version}" for name, version in facts["versions"].items()),
        "",
        form.format("row", "tool", "pairs", "MB", "wall s", "CPU s", "peak MB", "GB/s", "us/pair", "x CPU", "x pair"),
    ]
    starts = {(cell.tool, cell.row): cell for cell in cells if cell.row in (START_UP, START_UP_STATISTICS)}
    rivals = {cell.row: cell for cell in cells if cell.tool == RIVAL}
    smaller = False
    for cell in cells:
        size, pairs = (cell.dumps.bytes, cell.dumps.pairs) if cell.dumps else (0, 0)
        rate = _per_pair(cell, starts)
        more = per_pair = float("nan")
        rival = rivals.get(cell.row)
        mark = ""
        if cell.tool == OURS and rival is not None:
            other = rival.dumps.pairs if rival.dumps else 0
            per_pair = _per_pair(rival, starts) / rate if rate > 0 else float("nan")
            if other == pairs:
                more = rival.median("cpu_s") / cell.median("cpu_s")
            else:
                mark, smaller = "*", True
        name = cell.tool + (f" -w{cell.workers}" if cell.tool == OURS and cell.workers > 1 else "")
        lines.append(
            form.format(
                cell.row + mark,
                name,
                pairs or "-",
                _text(size / 1e6, ".1f") if size else "-",
                _text(cell.median("wall_s"), ".2f"),
                _text(cell.median("cpu_s"), ".2f"),
                _text(cell.median("peak_bytes") / 1e6, ".0f"),
                _text(size / 1e9 / cell.median("wall_s"), ".3f") if size else "-",
                _text(rate * 1e6, ".1f"),
                _text(more, ".1f"),
                _text(per_pair, ".1f"),
            )
        )
        if any(run.capped for run in cell.runs):
            lines.append(
                f"  {cell.row}, {cell.tool}: ended at the time cap in {sum(r.capped for r in cell.runs)} rounds"
            )
    for name, limits in reads.items():
        seconds = statistics.median(limit.wall_s for limit in limits)
        speed = statistics.median(limit.gb_per_s for limit in limits)
        busy = statistics.median(limit.cpu_s for limit in limits)
        cpu, megabytes = _text(busy, ".2f"), _text(limits[0].bytes / 1e6, ".1f")
        blank = "-"
        lines.append(
            form.format(
                name, "read only", blank, megabytes, f"{seconds:.2f}", cpu, blank, f"{speed:.2f}", blank, blank, blank
            )
        )
    if memory:
        lines.append(f"memory: {statistics.median(limit.gb_per_s for limit in memory):.1f} GB/s summed by one thread")
    if smaller:
        lines.append(
            "* the rival ran on a smaller dump of the same kind (its own row says how large): compare per pair"
        )
    return lines


def _per_pair(cell: Cell, starts: dict[tuple[str, str], Cell]) -> float:
    """CPU seconds that one more pair costs; nan where the row is too small to tell."""
    start = starts.get((cell.tool, START_UP_STATISTICS if cell.row == "statistics" else START_UP))
    if cell.dumps is None or start is None or start.dumps is None or cell.dumps.pairs <= start.dumps.pairs:
        return float("nan")
    more = cell.median("cpu_s") - start.median("cpu_s")
    return more / (cell.dumps.pairs - start.dumps.pairs) if more > 0 else float("nan")


def _text(value: float, form: str) -> str:
    return "-" if value != value else format(value, form)


def _write(lines: Any, record: dict[str, Any]) -> None:
    lines.write(json.dumps(record) + "\n")
    lines.flush()


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


def _facts(setup: Setup) -> dict[str, Any]:
    versions = {"python": platform.python_version(), **dict(_versions(PACKAGES))}
    if setup.rival is not None:
        versions[RIVAL] = _rival_version(setup.rival)
    return {
        "scale": setup.scale,
        "rounds": setup.rounds,
        "cache": CACHE_STATE,
        "budget_bytes": setup.budget_bytes,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gb": psutil.virtual_memory().total / 1e9,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
        "versions": versions,
    }


def _versions(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    for name in names:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue


def _rival_version(rival: Path) -> str:
    done = subprocess.run([str(rival), "--version"], capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r"^\w*probe\w* (\d\S*)", done.stdout, re.MULTILINE)
    return found.group(1) if found else "unknown version"
