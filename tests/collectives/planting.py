"""Copies of real multi-rank dumps, and ways to change one thing in them."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from opassay.pipeline.cli.main import main
from opassay.pipeline.read.tensors import open_tensor

DATA = Path(__file__).parents[1] / "data" / "collectives"
Document = dict[str, Any]


class Dump:
    """A copy of one of the real dumps (``tensor``: 2 ranks, ``statistics`` and ``md5``: 4 ranks), to be changed."""

    def __init__(self, folder: Path, mode: str) -> None:
        shutil.copytree(DATA / mode, folder)
        self.path = folder

    def rank(self, number: int) -> Path:
        """Folder of a rank."""
        return self.path / "step0" / f"rank{number}"

    def edit(self, rank: int, change: Callable[[Document], None]) -> None:
        """Change the records (``data``) of a rank."""
        path = self.rank(rank) / "dump.json"
        document = json.loads(path.read_text())
        change(document["data"])
        path.write_text(json.dumps(document, indent=1))

    def scale(self, rank: int, op: str, *place: Any, by: float = 3.0) -> None:
        """Multiply the statistics of a leaf, and change its checksum."""

        def change(data: Document) -> None:
            leaf = _at(data[f"Distributed.{op}.forward"], place)
            leaf.update({key: leaf[key] * by for key in ("Max", "Min", "Mean", "Norm")})
            if "md5" in leaf:
                leaf["md5"] = "0badc0de"

        self.edit(rank, change)

    def put(self, rank: int, op: str, value: Any, *place: Any) -> None:
        """Put a value into a record."""

        def change(data: Document) -> None:
            _at(data[f"Distributed.{op}.forward"], place[:-1])[place[-1]] = value

        self.edit(rank, change)

    def values(self, rank: int, op: str, *place: Any) -> NDArray[np.float32]:
        """Elements of a float32 tensor."""
        found: list[str] = []
        self.edit(rank, lambda data: found.append(_at(data[f"Distributed.{op}.forward"], place)["data_name"]))
        with open_tensor(self.rank(rank) / "dump_tensor_data" / found[0]) as file:
            return file.read(0, file.size).reshape(file.shape).copy()

    def save(self, rank: int, op: str, values: NDArray[Any], *place: Any) -> None:
        """Put another tensor in place of one, under a name of its own."""
        name = f"planted.{op}.{'.'.join(map(str, place))}.npy"
        np.save(self.rank(rank) / "dump_tensor_data" / name, values)

        def change(data: Document) -> None:
            leaf = _at(data[f"Distributed.{op}.forward"], place)
            leaf.update(data_name=name, shape=list(values.shape), dtype=f"torch.{values.dtype}")

        self.edit(rank, change)

    def drop(self, rank: int, op: str) -> None:
        """Take a record away."""
        self.edit(rank, lambda data: data.pop(f"Distributed.{op}.forward"))


def _at(record: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        record = record[key]
    return record


class Checked:
    """What ``opassay collectives`` made of a dump: exit status, rows of the csv, text on the terminal."""

    def __init__(self, status: int, folder: Path, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err
        files = sorted(folder.glob("collectives_*.csv"))
        self.rows: list[dict[str, str]] = []
        for path in files:
            with path.open(newline="", encoding="utf-8") as file:
                self.rows += list(csv.DictReader(file))

    def not_passed(self) -> list[tuple[str, str, str]]:
        """API, Result and Err_message of every row that is no pass."""
        return [(row["API"], row["Result"], row["Err_message"]) for row in self.rows if row["Result"] != "pass"]

    def errors(self) -> list[tuple[str, str]]:
        """API and Err_message of the errors."""
        return [(api, message) for api, result, message in self.not_passed() if result == "error"]


def check(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Checked:
    """Run the command in this process."""
    output = path.parent / f"out{len(list(path.parent.iterdir()))}"
    status = main(["collectives", str(path), "-o", str(output), *options])
    told = capsys.readouterr()
    assert "Traceback" not in told.out + told.err
    return Checked(status, output, told.out, told.err)
