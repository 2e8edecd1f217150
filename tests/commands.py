"""The command line as tests use it: run in this process, lines without timestamps, rows of the csv."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from opassay.pipeline.cli.main import main

from tests.dumps import call, tensor, tensor_call, write_dump

OP, OTHER = "Torch.mul.0.forward", "Torch.add.0.forward"
VALUES = np.arange(8, dtype=np.float32)
STATISTICS = {OP: call([tensor()], [tensor()]), OTHER: call([tensor()], [tensor()])}


class Runner:
    """Runs ``compare`` and gives the status and the lines on stderr without their timestamps."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, target: Path, golden: Path, *options: str, workers: int = 1) -> tuple[int, list[str]]:
        status = main(["compare", "-tp", str(target), "-gp", str(golden), "--workers", str(workers), *options])
        told = self._capsys.readouterr()
        assert "Traceback" not in told.out + told.err
        return status, [re.sub(r"^.*?\[(WARNING|ERROR)\] ", "", line) for line in told.err.splitlines()]


def rows(pattern: str = "*.csv", folder: Path = Path("output")) -> list[dict[str, str]]:
    """Rows of the only report that has such a name."""
    (path,) = folder.rglob(pattern)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def three_ranks(folder: Path) -> tuple[Path, Path]:
    """Three ranks a side, statistics."""
    for side in ("target", "golden"):
        for number in range(3):
            write_dump(folder / side / f"rank{number}", STATISTICS)
    return folder / "target", folder / "golden"


def tensors(folder: Path, sides: tuple[str, str] = ("target", "golden")) -> tuple[Path, Path]:
    """One rank a side: two ops, four saved tensors."""
    paths = []
    for side in sides:
        data = {op: tensor_call(folder / side, op, [VALUES], [VALUES]) for op in (OP, OTHER)}
        paths.append(write_dump(folder / side, data, task="tensor"))
    return paths[0], paths[1]
