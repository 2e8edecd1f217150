"""Time and memory of aligning ops for ``-fm``: realistic differences, worst cases, and ``difflib`` beside it.

    python -m benchmarks.bench_align --ops 1000000

Each row runs in a process of its own, so that peaks do not hide one another; loading compiled loops is not counted. difflib
runs in the same process on fewer ops, since its time grows with the square of their number.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from difflib import SequenceMatcher
from typing import Any

import numpy as np
from numpy.typing import NDArray
from opassay.kernels.alignment import OpSequence, align

LAYERS, MODULES, CALLS, APIS = 48, 25, 30, 15
BLOCK = 1_000  # an extra block of ops, as of a step that one side repeats
Codes = NDArray[np.int64]


def model_ops(ops: int, seed: int = 0) -> tuple[Codes, Codes]:
    """Keys and marks of a transformer: modules named by layer, calls shared by all layers; forward, backward, again and again.

    Parameters
    ----------
    ops : int
        How many.
    seed : int
        Of the order within a layer and of the marks.

    Returns
    -------
    keys, marks : ndarray of int64, shape (ops,)
    """
    rng = np.random.default_rng(seed)
    layer = np.concatenate([np.arange(MODULES), 10_000 + rng.integers(0, APIS, CALLS)])
    rng.shuffle(layer)
    step = np.concatenate([np.where(layer < MODULES, layer + at * MODULES, layer) for at in range(LAYERS)])
    both = np.concatenate([step, 100_000 + step[::-1]])
    marks = both * 8 + rng.integers(0, 4, both.size)
    return np.resize(both, ops), np.resize(marks, ops)


def changed(ops: tuple[Codes, Codes], share: float, block: int, seed: int) -> tuple[Codes, Codes]:
    """The same ops, but so large a share renamed, as many lost, as many added, and one block added."""
    keys, marks = (side.copy() for side in ops)
    rng = np.random.default_rng(seed)
    known = np.unique(keys)
    draw = rng.random(keys.size)
    renamed = draw < share
    keys[renamed] = rng.choice(known, int(renamed.sum()))
    kept = (draw < share) | (draw >= 2 * share)
    keys, marks = keys[kept], marks[kept]
    places = rng.integers(0, keys.size, int(draw.size * share))
    places = np.concatenate([places, np.full(block, rng.integers(0, keys.size))])
    added = rng.choice(known, places.size)
    return np.insert(keys, places, added), np.insert(marks, places, added * 8)


def sequence(ops: tuple[Codes, Codes]) -> OpSequence:
    """Ops with full names: the key and how often it came before."""
    keys, marks = ops
    order = np.argsort(keys, kind="stable")
    ranks = np.arange(keys.size)
    starts = np.concatenate([[True], keys[order][1:] != keys[order][:-1]])
    calls = np.empty(keys.size, np.int64)
    calls[order] = ranks - np.maximum.accumulate(np.where(starts, ranks, 0))
    return OpSequence(keys, marks, keys * 10**8 + calls)


def sides(kind: str, ops: int) -> tuple[OpSequence, OpSequence]:
    """The two sides of a row."""
    plain = model_ops(ops)
    if kind == "equal":
        return sequence(plain), sequence(plain)
    if kind == "0.1 % changed":
        return sequence(changed(plain, 0.001, BLOCK, 1)), sequence(plain)
    if kind == "1 % changed":
        return sequence(changed(plain, 0.01, BLOCK, 1)), sequence(changed(plain, 0.01, 0, 2))
    order = np.random.default_rng(3).permutation(ops)
    return sequence((plain[0][order], plain[1][order])), sequence(plain)


def row(kind: str, ops: int, beside: bool) -> dict[str, Any]:
    """Measure one row; runs in its own process."""
    align(*sides("shuffled", 3_000))  # loads or compiles the loops
    target, golden = sides(kind, ops)
    found, ours = timed(lambda: align(target, golden))
    pairs = found.target.size
    marks = int((target.marks[found.target] == golden.marks[found.golden]).sum())
    rival_s = rival_pairs = None
    if beside:
        lists = target.keys.tolist(), golden.keys.tolist()
        blocks, rival_s = timed(lambda: SequenceMatcher(None, *lists, autojunk=False).get_matching_blocks())
        rival_pairs = sum(block.size for block in blocks)
    return {
        "kind": kind,
        "ops": ops,
        "wall_s": ours,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "pairs": int(pairs),
        "marks": marks,
        "edits": int(target.keys.size + golden.keys.size - 2 * pairs),
        "exact": found.exact,
        "difflib_s": rival_s,
        "difflib_pairs": rival_pairs,
    }


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What a call gives, and its wall time in seconds."""
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def main() -> int:
    """Print the table; write JSON lines where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", type=int, default=1_000_000)
    parser.add_argument("--difflib-ops", type=int, default=10_000, help="ops of the rows with difflib")
    parser.add_argument("--json", metavar="FILE", help="append one JSON line a row")
    options = parser.parse_args()
    if min(options.ops, options.difflib_ops) < BLOCK:
        parser.error(f"take at least {BLOCK} ops")
    kinds = ("equal", "0.1 % changed", "1 % changed", "shuffled")
    work = [(kind, options.difflib_ops, True) for kind in kinds] + [(kind, options.ops, False) for kind in kinds]
    print(
        "ops of two sides              ops    wall   peak     pairs   of equal      edits  longest   difflib  its pairs"
    )
    print(
        "                                        s     MB               marks                      x slower          %"
    )
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for arguments in work:
            found = pool.apply(row, arguments)
            beside = "         -          -"
            if found["difflib_s"] is not None:
                share = 100 * found["difflib_pairs"] / found["pairs"]
                beside = f"{found['difflib_s'] / found['wall_s']:10.1f}{share:11.1f}"
            print(
                f"{found['kind']:22}{found['ops']:11,}{found['wall_s']:8.2f}{found['peak_mb']:7.0f}{found['pairs']:10,}"
                f"{found['marks']:11,}{found['edits']:11,}  {'yes' if found['exact'] else 'no':>7} {beside}",
                flush=True,
            )
            if options.json:
                with open(options.json, "a", encoding="utf-8") as lines:
                    lines.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
