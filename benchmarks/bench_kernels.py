"""Speed of the tensor pass: bytes of both tensors a second of CPU time, beside the rate at which NumPy reads them.

Run as ``python -m benchmarks.bench_kernels --elements 10000000 --json kernels.jsonl``. All candidates of one dtype take
turns in one process; medians are shown. The share of reading is what repeats from machine to machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from opassay.kernels.decode import is_exact
from opassay.kernels.pair_pass import Engine, make_pass
from opassay.kernels.pair_sums import BLOCK, SEGMENT
from opassay.schemas.dtypes import BY_NAME, DType

DTYPES = ("float32", "float64", "bfloat16", "float16", "float8_e4m3fn", "int64", "int32", "int8", "complex64")
GOALS = {"float32": 0.65, "float64": 0.65, "bfloat16": 0.35, "float16": 0.35, "float32 with nan": 0.25}


def make_pair(dtype: DType, elements: int, nan_every: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two stored arrays that differ by about 0.2 %, with a nan at the same places on both sides."""
    rng = np.random.default_rng(0)
    parts = elements * 2 if dtype.kind == "complex" else elements
    golden = rng.standard_normal(parts, dtype=np.float32)
    target = golden * (1 + rng.standard_normal(parts, dtype=np.float32) * np.float32(2e-3))
    if nan_every:
        golden[::nan_every] = target[::nan_every] = np.nan
    return _stored(target, dtype), _stored(golden, dtype)


def _stored(values: NDArray[np.float32], dtype: DType) -> NDArray[Any]:
    if is_exact(dtype):
        return (values * 20).astype(np.dtype(dtype.storage))
    if dtype.name == "bfloat16":
        return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    if dtype.name == "float16":
        return values.astype(np.float16).view(np.uint16)
    if dtype.width == 1:
        return (np.abs(values) * 20).astype(np.uint8)
    return values.astype(np.dtype(dtype.storage))


def measure(target: NDArray[Any], golden: NDArray[Any], dtype: DType, engine: Engine) -> None:
    """The whole pair, segment by segment, as the tool does it."""
    step = SEGMENT * (2 if dtype.kind == "complex" else 1)
    for start in range(0, target.size, step):
        passing = make_pass(dtype, dtype, engine=engine)
        passing.feed(target[start : start + step], golden[start : start + step])
        passing.result()


def read(target: NDArray[Any], golden: NDArray[Any]) -> int:
    """The limit: an integer sum over all bytes of both arrays."""
    whole = target.nbytes // 8
    return sum(int(side.view(np.uint8)[: whole * 8].view(np.int64).sum()) for side in (target, golden))


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of one call of this process."""
    start = time.process_time()
    work()
    return time.process_time() - start


def bench(name: str, elements: int, rounds: int, numpy_elements: int) -> dict[str, Any]:
    """One row: rates in GB/s for one dtype."""
    dtype = BY_NAME[name.split()[0]]
    target, golden = make_pair(dtype, elements, nan_every=7 if "nan" in name else 0)
    width = 2 if dtype.kind == "complex" else 1
    few = min(numpy_elements, elements) // BLOCK * BLOCK * width or target.size
    start = time.perf_counter()
    measure(target[: BLOCK * width], golden[: BLOCK * width], dtype, "numba")
    compile_s = time.perf_counter() - start
    reads, compiled, plain = [], [], []
    for _ in range(rounds):
        reads.append(cpu_seconds(lambda: read(target, golden)))
        compiled.append(cpu_seconds(lambda: measure(target, golden, dtype, "numba")))
        plain.append(cpu_seconds(lambda: measure(target[:few], golden[:few], dtype, "numpy")))
    bytes_moved = target.nbytes + golden.nbytes
    read_s, compiled_s = statistics.median(reads), statistics.median(compiled)
    small = [side[: 1000 * width] for side in (target, golden)]
    calls = 2000
    small_s = min(
        cpu_seconds(lambda: [measure(small[0], small[1], dtype, "numba") for _ in range(calls)]) for _ in range(3)
    )
    return {
        "dtype": name,
        "elements": elements,
        "rounds": rounds,
        "read_gb_s": bytes_moved / read_s / 1e9,
        "numba_gb_s": bytes_moved / compiled_s / 1e9,
        "share_of_read": read_s / compiled_s,
        "mpairs_s": elements / compiled_s / 1e6,
        "numpy_gb_s": bytes_moved * few / target.size / statistics.median(plain) / 1e9,
        "small_call_us": small_s / calls * 1e6,
        "first_call_s": compile_s,
        "goal": GOALS.get(name),
        "numpy": np.__version__,
        "machine": platform.machine(),
    }


def main() -> int:
    """Print the table; write JSON lines where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--numpy-elements", type=int, default=500_000, help="elements for the slow NumPy way")
    parser.add_argument("--dtypes", nargs="*", default=[*DTYPES, "float32 with nan"])
    parser.add_argument("--json", metavar="FILE", help="append one JSON line a dtype")
    options = parser.parse_args()
    if options.elements < BLOCK:
        parser.error(f"--elements {options.elements} is too few; take at least {BLOCK}")
    print("dtype               read   numba   share  goal  Mpairs/s  numpy  1e3 call  first call")
    print("                    GB/s   GB/s                           GB/s         us           s")
    for name in options.dtypes:
        row = bench(name, options.elements, options.rounds, options.numpy_elements)
        goal = f"{row['goal']:.2f}" if row["goal"] else "   -"
        print(
            f"{name:18}{row['read_gb_s']:6.1f}{row['numba_gb_s']:8.2f}{row['share_of_read']:8.2f}  {goal}"
            f"{row['mpairs_s']:10.0f}{row['numpy_gb_s']:7.2f}{row['small_call_us']:10.1f}{row['first_call_s']:12.2f}",
            flush=True,
        )
        if options.json:
            with open(options.json, "a", encoding="utf-8") as lines:
                lines.write(json.dumps(row) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
