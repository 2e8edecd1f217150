"""Time of the accuracy check on the CPU: overhead of a call, calls per second, splits.

    python -m benchmarks.bench_check --calls 2000 --workers 1 2

The dump holds small calls of a training step (forward and backward, float32 and bfloat16). ``overhead`` is everything but the
operators themselves: reading the record, making inputs, comparing, judging; measured in this process, call by call.
``plain loop`` runs the same operators on the same inputs, both sides, and does nothing else: what no checker can be below.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.process_tree import measure

SHAPE = (16, 32)


def tensor(shape: tuple[int, ...], dtype: str = "float32", *, grad: bool = True) -> dict[str, Any]:
    """A descriptor with the statistics of normal numbers."""
    count = 1
    for length in shape:
        count *= length
    return {
        "type": "torch.Tensor", "dtype": f"torch.{dtype}", "shape": list(shape),
        "Max": 3.0, "Min": -3.0, "Mean": 0.0, "Norm": count**0.5, "requires_grad": grad,
    }  # fmt: skip


def scalar(value: Any) -> dict[str, Any]:
    """A descriptor of a plain value."""
    return {"type": type(value).__name__, "value": value}


def calls() -> list[tuple[str, list[Any], dict[str, Any], tuple[int, ...], str]]:
    """Name, arguments, keyword arguments, shape and dtype of the output of each kind of call."""
    found = []
    for dtype in ("float32", "bfloat16"):
        x = tensor(SHAPE, dtype)
        square = tensor((32, 32), dtype)
        found += [
            ("Torch.add", [x, x], {}, SHAPE, dtype),
            ("Tensor.__mul__", [x, scalar(0.5)], {}, SHAPE, dtype),
            ("Torch.matmul", [x, square], {}, SHAPE, dtype),
            ("Functional.linear", [x, square, tensor((32,), dtype)], {}, SHAPE, dtype),
            ("Functional.softmax", [x], {"dim": scalar(-1)}, SHAPE, dtype),
            ("Functional.layer_norm", [x, [scalar(32)], tensor((32,), dtype), tensor((32,), dtype)], {}, SHAPE, dtype),
            ("Functional.gelu", [x], {}, SHAPE, dtype),
            ("Torch.transpose", [x, scalar(0), scalar(1)], {}, SHAPE[::-1], dtype),
            ("Torch.sum", [x], {"dim": scalar(-1)}, SHAPE[:1], dtype),
            ("Torch.exp", [x], {}, SHAPE, dtype),
        ]
    return found


def write_dump(path: Path, count: int) -> None:
    """A statistics dump of so many calls."""
    kinds = calls()
    data: dict[str, Any] = {}
    for number in range(count):
        name, args, kwargs, shape, dtype = kinds[number % len(kinds)]
        call = f"{name}.{number}"
        data[f"{call}.forward"] = {"input_args": args, "input_kwargs": kwargs, "output": [tensor(shape, dtype)]}
        data[f"{call}.backward"] = {"input": [tensor(shape, dtype, grad=False)], "output": []}
    path.write_text(
        json.dumps({"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": data})
    )


def overheads(dump: Path) -> dict[str, float]:
    """Milliseconds beside the operators, call by call in this process, and calls per second with and without the checker."""
    import torch
    from opassay.pipeline.check.cases import read_cases
    from opassay.pipeline.check.devices import prepare
    from opassay.pipeline.check.runner import run_case
    from opassay.pipeline.check.torch_framework import TorchFramework

    framework = TorchFramework(prepare("cpu", jit=False, threads=1))
    cases = list(read_cases(dump))
    for case in cases[:40]:
        run_case(framework, case)
    begun, used = time.perf_counter(), time.process_time()
    outcomes = [run_case(framework, case) for case in cases]
    checked, checked_cpu = time.perf_counter() - begun, time.process_time() - used
    beside = sorted(1000 * outcome.overhead_s for outcome in outcomes)
    ready = [(case, framework.build(case)) for case in cases]
    begun, used = time.perf_counter(), time.process_time()
    for case, inputs in ready:
        framework.call(case, inputs)
    plain, plain_cpu = time.perf_counter() - begun, time.process_time() - used
    assert all(outcome.ran for outcome in outcomes)
    assert torch.get_num_threads() == 1
    return {
        "overhead_median_ms": statistics.median(beside),
        "overhead_p99_ms": beside[int(len(beside) * 0.99)],
        "overhead_cpu_mean_ms": 1000 * (checked_cpu - plain_cpu) / len(cases),
        "calls_per_s": len(cases) / checked,
        "plain_calls_per_s": len(cases) / plain,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        dump = Path(scratch, "dump.json")
        write_dump(dump, options.calls)
        print(
            json.dumps({"calls": options.calls, "cores": os.cpu_count(), "load": os.getloadavg()[0], **overheads(dump)})
        )
        command = [
            sys.executable,
            "-m",
            "opassay",
            "multi_run_ut",
            "-api_info",
            str(dump),
            "--device",
            "cpu",
            "--quiet",
        ]
        for workers in options.workers:
            words = [*command, "-n", str(workers), "-o", str(Path(scratch, str(workers)))]
            usage = measure(words, log=Path(scratch, "log"), cap_s=600)
            assert usage.status == 0
            figures = {"wall_s": usage.wall_s, "cpu_s": usage.cpu_s, "peak_mb": usage.peak_bytes / 1e6}
            print(json.dumps({"workers": workers, "calls_per_s": options.calls / usage.wall_s, **figures}))


if __name__ == "__main__":
    main()
