"""Tiny trees in, whole csv files out. ``make golden`` rewrites them; the diff is what a reviewer reads.

All numbers are chosen so that the arithmetic is exact or has one rounding: the files do not depend on the machine.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import opassay
import pytest

from tests.dumps import call, scalar, tensor, tensor_call, write_dump

GOLDEN = Path(__file__).parent / "data" / "golden"
BASE = (2.0, -2.0, 0.5, 4.0)

Sides = tuple[Path, Path]


def norm(value: float) -> dict[str, Any]:
    return tensor(stats=(2.0, -2.0, 0.5, value), requires_grad=True)


def statistics(folder: Path) -> Sides:
    """Forward, backward of recomputation, module, parameter gradients, arguments, one-sided rows, odd statistics."""
    device = [{"type": "torch.device", "value": text} for text in ("npu:0", "cuda:0")]
    odd = (math.nan, -math.inf, None, 2**60 + 1)
    target = {
        "Torch.mul.0.forward": call([norm(4), scalar(3), device[0]], [norm(8)]),
        "Torch.add.0.forward": call([norm(4)], [norm(4), tensor(stats=odd)], alpha=scalar(2), out=None),
        "Torch.only.0.forward": call([norm(4)], [norm(4)]),
        "Tensor.to.0.forward": call([norm(4)], [norm(64)]),
        "Module.net.output.Linear.forward.0": {**call([norm(4)], [norm(4.5)]), "parameters": {"weight": norm(4)}},
        "Functional.relu.3.backward": {"input": [norm(4)], "output": [norm(4)]},
        "Functional.relu.2.backward": {"input": [norm(4)], "output": [None, norm(5)]},
        "Module.net.output.Linear.parameters_grad": {"weight": [norm(8)]},
    }
    golden = {
        "Torch.mul.0.forward": call([norm(4), scalar(4), device[1]], [norm(4)]),
        "Torch.add.0.forward": call([norm(4)], [norm(4), tensor(stats=odd)], alpha=scalar(2), out=norm(4)),
        "Tensor.to.0.forward": call([norm(4)], [norm(4)]),
        "Module.net.output.Linear.forward.0": {**call([norm(4)], [norm(4)]), "parameters": {"weight": norm(4)}},
        "Functional.relu.1.backward": {"input": [norm(4)], "output": [norm(4)]},
        "Functional.relu.0.backward": {"input": [norm(4)], "output": [None, norm(4)]},
        "Module.net.output.Linear.parameters_grad.0": {"weight": [norm(4)], "bias": [norm(1)]},
        "Torch.other.0.forward": call([norm(4)], []),
    }
    stack = {"0": [["Torch.mul.0.forward", "Torch.only.0.forward"], ["File a.py, line 1, in f, \n y = x * 3"]]}
    paths = write_dump(folder / "target", target), write_dump(folder / "golden", golden)
    (folder / "target" / "stack.json").write_text(json.dumps(stack))
    return paths


def tensors(folder: Path) -> Sides:
    """Equal, off by a little, off by much, moved nan, another dtype, shapes that cannot meet, a missing file."""
    base = np.arange(1, 9, dtype=np.float32)
    far, nan, moved = base.copy(), base.copy(), base.copy()
    far[:4] *= 2
    nan[0] = moved[0] = math.nan
    moved[1], nan[2] = math.nan, math.inf
    target: dict[str, list[Any]] = {
        "Torch.mul.0.forward": [base, far, nan],
        "Torch.add.0.forward": [base, base],
        "Torch.cat.0.forward": [base],
    }
    golden: dict[str, list[Any]] = {
        "Torch.mul.0.forward": [base, base, moved],
        "Torch.add.0.forward": [base.astype(np.float64), base.reshape(2, 4)],
        "Torch.cat.0.forward": [base],
    }
    paths = []
    for side, ops in (("target", target), ("golden", golden)):
        data = {op: tensor_call(folder / side, op, [base, scalar("sum")], arrays) for op, arrays in ops.items()}
        paths.append(write_dump(folder / side, data, task="tensor"))
    (folder / "golden" / "dump_tensor_data" / "Torch.cat.0.forward.output.0.npy").unlink()
    return paths[0], paths[1]


def checksums(folder: Path) -> Sides:
    """Equal, other, missing on one side, None, a scalar."""
    target = [tensor(md5="0000aaaa"), tensor(md5="0000bbbb"), tensor(md5="0000cccc"), None, scalar(3)]
    golden = [tensor(md5="0000aaaa"), tensor(md5="0000beef"), tensor(), None, scalar(4)]
    op = "Torch.mul.0.forward"
    return write_dump(folder / "target", {op: call(target, [])}), write_dump(folder / "golden", {op: call(golden, [])})


def debug(folder: Path) -> Sides:
    """Saves by hand: they have no inputs and stand for themselves."""
    target = {"pos.0.debug": {"a": norm(8), "b": [scalar(3), norm(4)]}, "pos_grad.0.debug": {"a": None}}
    golden = {"pos.0.debug": {"a": norm(4), "b": [scalar(3), norm(4)]}, "pos_grad.0.debug": {"a": None}}
    kind = {"name": "debug.json", "level": "debug"}
    return write_dump(folder / "target", target, **kind), write_dump(folder / "golden", golden, **kind)


@pytest.mark.parametrize("build", [statistics, tensors, checksums, debug], ids=lambda build: build.__name__)
def test_golden(build: Callable[[Path], Sides], tmp_path: Path) -> None:
    report = opassay.compare(*build(tmp_path))
    (path,) = report.write_csv(tmp_path / "out")
    expected = GOLDEN / f"{build.__name__}.csv"
    if os.environ.get("OPASSAY_REWRITE_GOLDEN"):
        expected.write_bytes(path.read_bytes().replace(os.fsencode(tmp_path), b"TREE"))
    assert path.read_bytes().replace(os.fsencode(tmp_path), b"TREE").decode() == expected.read_bytes().decode()
