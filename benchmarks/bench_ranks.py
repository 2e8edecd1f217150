"""Time and memory of the first difference over many ranks: statistics dumps, one rank of which goes wrong in the middle.

    python -m benchmarks.bench_ranks --ranks 256 --ops 10000 --diff-analyze

Two dumps of a rank are written for each side (the ranks' own numbers do not matter to the work), the rank folders are links.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from benchmarks.process_tree import measure

COMPUTE = ("Functional.layer_norm", "Functional.linear", "Torch.matmul", "Functional.softmax", "Torch.matmul",
           "Functional.linear", "Torch.add", "Functional.layer_norm", "Functional.linear", "Functional.gelu",
           "Functional.linear", "Torch.add")  # fmt: skip


def leaf(value: float) -> dict[str, Any]:
    """A tensor whose statistics follow from one number."""
    stats = {"Max": value * 4, "Min": -value * 4, "Mean": value / 100, "Norm": value * 900}
    return {"type": "torch.Tensor", "dtype": "torch.bfloat16", "shape": [1, 4096, 512], **stats, "requires_grad": True}


def records(ops: int, ranks: int, wrong_at: int) -> dict[str, Any]:
    """Ops of one rank: a decoder's, an all_reduce after every twelve; from ``wrong_at`` on every number is twice what it was."""
    calls: dict[str, int] = {}
    data: dict[str, Any] = {}
    group = {"type": "torch.ProcessGroup", "group_ranks": list(range(ranks)), "group_id": "world"}
    for number in range(ops):
        place = number % (len(COMPUTE) + 1)
        api = COMPUTE[place] if place < len(COMPUTE) else "Distributed.all_reduce"
        call = calls[api] = calls.get(api, -1) + 1
        before, after = (1.0 + number % 7 if at < wrong_at else 2.0 + number % 7 for at in (number - 1, number))
        inputs = [leaf(before)] if place == len(COMPUTE) else [leaf(before), leaf(0.5)]
        kwargs = {"group": group} if place == len(COMPUTE) else {}
        data[f"{api}.{call}.forward"] = {"input_args": inputs, "input_kwargs": kwargs, "output": [leaf(after)]}
    return data


def make(folder: Path, ranks: int, ops: int) -> None:
    """Both sides; the middle rank of the target goes wrong half-way, the others are the golden side's."""
    shutil.rmtree(folder, ignore_errors=True)
    for side in ("target", "golden"):
        for kind, wrong_at in (("right", ops), ("wrong", ops // 2 if side == "target" else ops)):
            path = folder / side / kind / "dump.json"
            path.parent.mkdir(parents=True)
            head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
            path.write_text(json.dumps({**head, "data": records(ops, ranks, wrong_at)}, indent=1))
        step = folder / side / "step0"
        step.mkdir()
        for rank in range(ranks):
            (step / f"rank{rank}").symlink_to(
                f"../{'wrong' if rank == ranks // 2 else 'right'}", target_is_directory=True
            )


def main(argv: list[str] | None = None) -> int:
    """Make the dumps, compare them, print one line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_ranks", description=__doc__)
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--ops", type=int, default=2_000)
    parser.add_argument("--diff-analyze", action="store_true", help="write the files of -da too")
    parser.add_argument("--folder", type=Path, default=Path("build/bench_ranks"))
    options = parser.parse_args(argv)
    make(options.folder, options.ranks, options.ops)
    command = [str(Path(sys.executable).with_name("opassay")), "compare", "-tp", str(options.folder / "target" / "step0"),
               "-gp", str(options.folder / "golden" / "step0"), "-o", str(options.folder / "output"), "--quiet"]  # fmt: skip
    command += ["-da"] if options.diff_analyze else []
    seen = measure(command, log=options.folder / "told.txt", cap_s=1_800)
    told = (options.folder / "told.txt").read_text().splitlines()
    answer = next((line for line in told if line.startswith("first difference")), "no answer")
    size = sum(path.stat().st_size for path in (options.folder / "output").glob("*"))
    print(f"{options.ranks} ranks of {options.ops:,} ops: {seen.wall_s:.1f} s, CPU {seen.cpu_s:.1f} s, peak {seen.peak_bytes / 1e9:.2f} GB,"
          f" {size / 1e9:.2f} GB written\n{answer}")  # fmt: skip
    shutil.rmtree(options.folder / "output", ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
