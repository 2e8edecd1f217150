"""``python -m benchmarks``: the end-to-end table, then the benchmarks of single parts."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from benchmarks.harness import SCALES, Setup, run

PARTS = ("benchmarks.bench_kernels", "benchmarks.bench_read", "benchmarks.bench_align", "benchmarks.bench_merge")


def main(argv: list[str] | None = None) -> int:
    """Run all benchmarks; returns 1 if one of them failed."""
    rival = os.environ.get("BENCH_RIVAL")
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--scale", choices=SCALES, default=os.environ.get("BENCH_SCALE", "small"))
    parser.add_argument(
        "--rival", type=Path, default=Path(rival) if rival else None, help="another msprobe to run beside us"
    )
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("BENCH_ROUNDS", "3")))
    parser.add_argument("--cap-s", type=float, default=600.0, help="longest wall time of one run, in seconds")
    parser.add_argument("--memory-bytes", type=int, default=0, help="memory budget given to opassay; 0: its own choice")
    parser.add_argument("--folder", type=Path, default=Path("build"), help="where dumps and bench.jsonl go")
    parser.add_argument("--whole-only", action="store_true", help="leave the benchmarks of single parts out")
    options = parser.parse_args(argv)
    if options.scale not in SCALES:
        parser.error(f"BENCH_SCALE is {options.scale!r}; choose one of {', '.join(SCALES)}")
    if options.rival is not None and not os.access(options.rival, os.X_OK):
        parser.error(f"no command at {options.rival}; give --rival or BENCH_RIVAL the path of an msprobe")
    setup = Setup(
        scale=options.scale,
        rounds=options.rounds,
        cap_s=options.cap_s,
        rival=options.rival,
        folder=options.folder,
        budget_bytes=options.memory_bytes,
    )
    failed = run(setup)
    if not options.whole_only:
        for part in PARTS:
            if find_spec(part) is not None:
                print(f"\n{part}", flush=True)
                failed |= subprocess.run([sys.executable, "-m", part], check=False).returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
