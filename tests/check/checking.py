"""The accuracy check as tests use it: run in this process, rows of its csv files, dumps of a few calls."""

from __future__ import annotations

import csv
import gzip
import io
import re
import tarfile
from pathlib import Path

import pytest
from opassay.pipeline.cli.main import main

DATA = Path(__file__).parents[1] / "data" / "checker"
Row = dict[str, str]


class Checked:
    """One run of the command.

    Attributes
    ----------
    status : int
        Exit status.
    told : list of str
        Lines of stdout and stderr without their timestamps.
    folder : Path
        Where the csv files are.
    """

    def __init__(self, status: int, told: list[str], folder: Path) -> None:
        self.status, self.told, self.folder = status, told, folder

    @property
    def result(self) -> list[Row]:
        """Rows of the result file."""
        return rows(self.path("result").read_bytes())

    @property
    def details(self) -> list[Row]:
        """Rows of the details file."""
        return rows(self.path("details").read_bytes())

    def path(self, kind: str) -> Path:
        """The only file of a kind."""
        (found,) = self.folder.glob(f"accuracy_checking_{kind}_*.csv")
        return found


class Checker:
    """Runs ``run_ut`` or another command on the cpu."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, dump: Path, folder: Path, *options: str, command: str = "run_ut") -> Checked:
        words = [command, "-api_info", str(dump), "-o", str(folder), "--device", "cpu", *options]
        return Checked(*self.main(*words), folder)

    def main(self, *words: str) -> tuple[int, list[str]]:
        """Any command line."""
        status = main(list(words))
        told = self._capfd.readouterr()
        assert "Traceback" not in told.out + told.err
        return status, [re.sub(r"^[-0-9: ]+\(\d+\) ", "", line) for line in (told.out + told.err).splitlines()]


def rows(data: bytes) -> list[Row]:
    """Rows of a csv file; it begins with a byte order mark and its lines end as they should."""
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    assert data.startswith(b"\xef\xbb\xbf")
    return list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline="")))


def expected(case: str, kind: str, folder: str = "expected") -> list[Row]:
    """Rows of a file of the incumbent."""
    return rows((DATA / case / folder / f"{kind}.csv.gz").read_bytes())


def input_of(case: str, into: Path) -> Path:
    """The dump.json of a case; its tensor files are unpacked."""
    packed = DATA / case / "input.tar.xz"
    if not packed.exists():
        return DATA / case / "input" / "dump.json"
    with tarfile.open(packed) as archive:
        archive.extractall(into, filter="data")
    return into / "input" / "dump.json"
