"""Time and memory of reading a dump.json: rows a second, MB of file a second of CPU time, growth of the peak memory.

    python benchmarks/bench_read.py --mb 100

Makes a file of that size in a temporary folder (statistics of a small transformer, laid out as dumps are) and reads it by
each reader in a process of its own, so that one reader's memory does not hide another's.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

CALLS = ("Functional.linear", "Torch.matmul", "Functional.layer_norm", "Tensor.view", "Torch.mul", "Functional.softmax")


def make_dump(path: Path, megabytes: float, *, seed: int = 0) -> int:
    """Write a dump of about that size.

    Parameters
    ----------
    path : Path
        File to write.
    megabytes : float
        Size in units of 10**6 bytes.
    seed : int
        Of the random statistics.

    Returns
    -------
    int
        Records written.
    """
    draw = random.Random(seed)
    count = 0
    with path.open("w") as file:
        file.write(
            '{\n "task": "statistics",\n "level": "L1",\n "framework": "pytorch",\n "dump_data_dir": null,\n "data": {'
        )
        while file.tell() < megabytes * 1e6:
            name = f"{CALLS[count % len(CALLS)]}.{count // len(CALLS)}"
            way = "forward" if count % 3 else "backward"
            text = json.dumps(_record(draw, count), indent=1).replace("\n", "\n  ")
            file.write(("," if count else "") + f'\n  "{name}.{way}": {text}')
            count += 1
        file.write("\n }\n}")
    return count


def _record(draw: random.Random, count: int) -> dict[str, Any]:
    inputs: list[Any] = [_tensor(draw) for _ in range(1 + count % 3)]
    if count % 4 == 0:
        inputs.append({"type": "int", "value": draw.randrange(64)})
    if count % 10 == 0:
        inputs.append(None)
    if count % 3 == 0:
        return {"input": inputs, "output": [_tensor(draw)]}
    words = {"eps": {"type": "float", "value": 1e-05}} if count % 2 else {}
    if count % 50 == 0:
        words["size"] = {"type": "torch.Size", "value": [4, 6]}
    return {"input_args": inputs, "input_kwargs": words, "output": [_tensor(draw)]}


def _tensor(draw: random.Random) -> dict[str, Any]:
    import numpy as np

    def number(scale: float) -> float:
        return float(np.float32(draw.gauss(0.0, scale)))

    shape = draw.choice(([2, 1024, 4096], [4096, 4096], [2, 32, 1024, 128], [4096]))
    return {
        "type": "torch.Tensor", "dtype": draw.choice(("torch.float32", "torch.bfloat16")), "shape": shape,
        "Max": abs(number(4.0)), "Min": -abs(number(4.0)), "Mean": number(0.01), "Norm": abs(number(900.0)),
        "requires_grad": draw.random() < 0.5,
    }  # fmt: skip


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def measure(path: Path, small: Path, reader: str) -> dict[str, Any]:
    """Read ``small`` (to load libraries and kernels), then ``path``; figures of the second."""
    from opassay.pipeline.read.dump_json import read_dump

    began = time.process_time()
    read_dump(small, reader=reader)  # type: ignore[arg-type]
    start_s = time.process_time() - began
    before = _peak_megabytes()
    began = time.process_time()
    table = read_dump(path, reader=reader)  # type: ignore[arg-type]
    seconds = time.process_time() - began
    table_mb = (table.rows.estimated_size() + table.ops.estimated_size()) / 1e6
    grown = _peak_megabytes() - before
    return {
        "reader": reader,
        "file_mb": round(path.stat().st_size / 1e6, 1),
        "rows": table.rows.height,
        "cpu_s": round(seconds, 3),
        "rows_per_s": round(table.rows.height / seconds),
        "mb_per_s": round(path.stat().st_size / 1e6 / seconds, 1),
        "table_mb": round(table_mb, 1),
        "peak_growth_mb": round(grown, 1),
        "beyond_table_mb": round(grown - table_mb, 1),
        "start_s": round(start_s, 2),
    }


def main() -> None:
    """Run and print one JSON line a reader."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mb", type=float, default=100.0, help="size of the file in MB (default 100)")
    parser.add_argument("--reader", choices=("tokenizer", "general"), action="append", help="default: both")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, small = Path(folder, "dump.json"), Path(folder, "small", "dump.json")
        small.parent.mkdir()
        make_dump(path, options.mb)
        make_dump(small, 0.1)
        context = multiprocessing.get_context("spawn")
        for reader in options.reader or ("tokenizer", "general"):
            with context.Pool(1) as pool:
                print(json.dumps(pool.apply(measure, (path, small, reader))), flush=True)


if __name__ == "__main__":
    main()
