"""Time and memory of ``merge_result``: many ranks' reports, as csv and as xlsx.

    python -m benchmarks.bench_merge --ranks 64 --rows 100000

Each report is as one of a statistics comparison with stacks; one op in twenty is a collective, and these are merged, three
metrics of them. Four reports are made for each kind and stand under the names of all ranks: reading them costs what as many
files cost that are in the page cache, making them does not.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np
import polars as pl
from opassay.pipeline.report.csv import CsvWriter
from opassay.pipeline.report.xlsx import XlsxWriter
from opassay.schemas.headers import STATISTIC_METRICS, STATISTICS, report_columns
from opassay.schemas.vocab import DumpMode

from benchmarks.limits import read_files
from benchmarks.process_tree import measure

COLLECTIVE_EVERY = 20
OPS = ("Functional.linear", "Torch.matmul", "Tensor.view", "Functional.softmax", "Torch.mul")
SLOTS = ("input.0", "input.1", "output.0", "input.group", "output.1")
STAMP = "20260101120000"
DISTINCT = 4
STACK = (
    "['File layers.py, line 214, in forward, \\n out = torch.matmul(hidden, weight)', "
    "'File train.py, line 82, in step, \\n loss = model(batch)']"
)
CONFIG = "api:\n- Distributed.all_reduce\ncompare_index:\n- Max diff\n- L2norm diff\n- NormRelativeErr\n"


def report(rows: int, seed: int) -> pl.DataFrame:
    """Cells of a report of that many rows, as the writers take them."""
    draw = np.random.default_rng(seed)
    counts = range(rows)
    ops = [
        f"{'Distributed.all_reduce' if op % COLLECTIVE_EVERY == 0 else OPS[op % len(OPS)]}.{op // COLLECTIVE_EVERY}"
        for op in (row // len(SLOTS) for row in counts)
    ]
    names = [f"{op}.forward.{SLOTS[row % len(SLOTS)]}" for row, op in zip(counts, ops, strict=True)]
    cells: dict[str, pl.Series] = {}
    for column in report_columns(DumpMode.STATISTICS, stack=True):
        if column in STATISTIC_METRICS and column.endswith("relative"):
            cells[column] = pl.Series([f"{value}%" for value in draw.random(rows)])
        elif column in STATISTIC_METRICS or column in STATISTICS:
            numbers = pl.Series(draw.standard_normal(rows))
            cells[column] = numbers.cast(pl.String)
            cells[f"{column}_number"] = numbers
        elif column == "stack":
            cells[column] = pl.Series([STACK if row % len(SLOTS) == 0 else "N/A" for row in counts])
        else:
            fixed = {"result": "pass", "message": "", "requires_grad_consistent": "True"}.get(column, "[4096, 1024]")
            cells[column] = pl.Series(names if column.endswith("_name") else [fixed] * rows)
    return pl.DataFrame(cells)


def make_reports(folder: Path, suffix: str, ranks: int, rows: int) -> list[Path]:
    """Reports of all ranks, those of an earlier run where there are any."""
    columns = report_columns(DumpMode.STATISTICS, stack=True)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"compare_result_rank{rank}_{STAMP}{suffix}" for rank in range(ranks)]
    for rank, path in enumerate(paths):
        if path.exists():
            continue
        if rank >= DISTINCT:
            os.link(paths[rank % DISTINCT], path)
            continue
        with (CsvWriter if suffix == ".csv" else XlsxWriter)(path, columns) as writer:
            writer.add(report(rows, seed=rank))
    return paths


def main() -> int:
    """Measure csv and xlsx; one JSON line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--rows", type=int, default=20_000, help="rows of each report")
    parser.add_argument("--folder", type=Path, default=Path("build/bench/merge"))
    options = parser.parse_args()
    failed = 0
    for suffix in (".csv", ".xlsx"):
        folder = options.folder / f"{suffix[1:]}_{options.ranks}_{options.rows}"
        paths = make_reports(folder, suffix, options.ranks, options.rows)
        limit = read_files(paths)
        config = options.folder / "config.yaml"
        config.write_text(CONFIG)
        output = options.folder / "output"
        words = [
            sys.executable,
            "-m",
            "opassay",
            "merge_result",
            "-i",
            str(folder),
            "-o",
            str(output),
            "-config",
            str(config),
        ]
        usage = measure(words, log=options.folder / "last.log", cap_s=600.0)
        failed |= usage.status != 0
        total = options.ranks * options.rows
        told = {
            "kind": suffix[1:], "ranks": options.ranks, "rows": options.rows, "mb": round(limit.bytes / 1e6, 1),
            "wall_s": round(usage.wall_s, 2), "cpu_s": round(usage.cpu_s, 2), "peak_mb": round(usage.peak_bytes / 1e6, 1),
            "rows_per_s": round(total / usage.wall_s), "read_only_s": round(limit.wall_s, 2), "status": usage.status,
        }  # fmt: skip
        print(json.dumps(told), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
