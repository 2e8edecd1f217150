"""Details files as the tests of api_precision_compare make and read them."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from opassay.pipeline.cli.main import main
from opassay.schemas.check_rows import BLANK, DETAILS

CASES = Path(__file__).parents[1] / "data" / "checker" / "precision_compare"
Row = dict[str, str]


def row(name: str, dtype: str = "torch.float32", shape: str = "(4, 4)", message: str = "", **figures: object) -> Row:
    """A row by headers, every figure that is not given blank."""
    cells = dict.fromkeys(DETAILS.values(), BLANK)
    cells |= {"API Name": name, "Bench Dtype": "torch.float64", "DEVICE Dtype": dtype, "Shape": shape}
    cells |= {"Status": "pass", "Message": message}
    return cells | {DETAILS[key]: str(value) for key, value in figures.items()}


def benchmark(name: str, **figures: object) -> Row:
    """A row of the benchmark standard whose figures are all small, but those given."""
    standard = {"small_value": 0.1, "rmse": 0.1, "relative_max": 0.1, "relative_mean": 0.1, "balance": 0.1}
    return row(name, **(standard | figures))


def write(
    path: Path, rows: Iterable[Mapping[str, str]], header: Iterable[str] = DETAILS.values(), **dialect: str
) -> Path:
    """Write rows as the checkers do; ``dialect`` may change that."""
    titles = list(header)
    with path.open("w", newline="", encoding=dialect.get("encoding", "utf-8-sig")) as file:
        writer = csv.writer(file, lineterminator=dialect.get("lineterminator", "\r\n"))
        writer.writerow(titles)
        writer.writerows([cells[title] for title in titles] for cells in rows)
    return path


def read(path: Path) -> list[Row]:
    """Rows by headers."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def unpacked(case: str, part: str, folder: Path) -> Path:
    """A file of a case, unpacked."""
    path = folder / f"{part}.csv"
    path.write_bytes(gzip.decompress((CASES / case / f"{part}.csv.gz").read_bytes()))
    return path


def compare(npu: Path, gpu: Path, folder: Path, *options: str) -> tuple[int, list[Row], list[Row]]:
    """Run the command; the status and the rows of the result and of the details, empty where nothing was written."""
    status = main(["api_precision_compare", "-npu", str(npu), "-gpu", str(gpu), "-o", str(folder), *options])
    written = sorted(folder.glob("*")) if folder.exists() else []
    if not written:
        return status, [], []
    details, result = written
    assert re.fullmatch(r"api_precision_compare_details_\d{14}\.csv", details.name)
    assert result.name == details.name.replace("details", "result")
    return status, read(result), read(details)
