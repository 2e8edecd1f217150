"""Reports as tables of texts, and when two cells say the same. Reads csv and xlsx; judges nothing."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

csv.field_size_limit(1 << 30)

NOT_APPLICABLE = "N/A"
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$")
HEADER_SPELLINGS = {"Five Thousandths Err Ratio": "Five Thousandth Err Ratio", "Data_name": "Data_Name"}

TENSOR_METRICS = (
    "Cosine",
    "EucDist",
    "MaxAbsErr",
    "MaxRelativeErr",
    "One Thousandth Err Ratio",
    "Five Thousandth Err Ratio",
)
DIFFERENCES = ("Max diff", "Min diff", "Mean diff", "L2norm diff")
RELATIVES = ("MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr")
TARGET_STATISTICS = ("NPU max", "NPU min", "NPU mean", "NPU l2norm")
GOLDEN_STATISTICS = ("Bench max", "Bench min", "Bench mean", "Bench l2norm")
ROUNDED_TO_TWELVE = ("MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandth Err Ratio")
NUMERIC = frozenset(TENSOR_METRICS + DIFFERENCES + RELATIVES + TARGET_STATISTICS + GOLDEN_STATISTICS)

Cells = dict[str, str]


@dataclass(frozen=True)
class Table:
    """One report.

    Attributes
    ----------
    path : Path
        The file.
    header : list of str
        Column titles in the spelling of the governing document.
    rows : list of dict
        Title -> stripped text.
    faults : list of str
        What is wrong with the file as a table.
    """

    path: Path
    header: list[str]
    rows: list[Cells]
    faults: list[str]

    @property
    def mode(self) -> str:
        """``tensor``, ``statistics`` or ``md5``, by the columns."""
        if "NPU MD5" in self.header:
            return "md5"
        return "tensor" if "Cosine" in self.header else "statistics"


def _from_xlsx(path: Path) -> list[list[str]]:
    import openpyxl

    book = openpyxl.load_workbook(path, read_only=True, data_only=False)
    lines: list[list[str]] = []
    for sheet in book.worksheets:
        found = [["" if v is None else str(v) for v in row] for row in sheet.iter_rows(values_only=True)]
        lines.extend(found if not lines else found[1:])
    book.close()
    return lines


def read_table(path: Path) -> Table:
    """Read a csv or xlsx report; sheets of one book follow each other."""
    if path.suffix == ".xlsx":
        lines = _from_xlsx(path)
    else:
        with path.open(newline="", encoding="utf-8") as stream:
            lines = list(csv.reader(stream))
    if not lines:
        return Table(path, [], [], ["the file is empty"])
    header = [HEADER_SPELLINGS.get(title, title) for title in lines[0]]
    faults = [
        f"row {i + 2} has {len(r)} cells, not {len(header)}" for i, r in enumerate(lines[1:]) if len(r) > len(header)
    ]
    if len(set(header)) != len(header):
        faults.append("a column title occurs twice")
    if path.suffix == ".csv":
        faults += [
            f"row {i + 2} has {len(r)} cells, not {len(header)}"
            for i, r in enumerate(lines[1:])
            if len(r) < len(header)
        ]
    rows = [
        {title: cell.strip() for title, cell in zip(header, line + [""] * (len(header) - len(line)), strict=False)}
        for line in lines[1:]
    ]
    return Table(path, header, rows, faults)


def number(text: str) -> tuple[float, str] | None:
    """Value and unit (``%`` or nothing) of a finite numeric text, else None."""
    unit = "%" if text.endswith("%") else ""
    body = text[:-1] if unit else text
    if not NUMBER.match(body):
        return None
    value = float(body)
    return (value, unit) if math.isfinite(value) else None


def close(one: float, other: float, relative: float, absolute: float) -> bool:
    """Whether two finite numbers agree within a relative or an absolute tolerance."""
    return one == other or abs(one - other) <= max(relative * max(abs(one), abs(other)), absolute)


def _absolute(column: str, expected: float) -> float:
    """Half a unit of the incumbent's own rounding, with a margin."""
    if column == "Cosine":
        return 6e-7 if expected > 0.99985 else 1.1e-12
    return 1.1e-12 if column in ROUNDED_TO_TWELVE else 0.0


def levels(message: str) -> frozenset[str] | None:
    """The words before the colon of every text in a message, without ``note``; None if it is no list of such texts."""
    if message in ("", "[]", NOT_APPLICABLE):
        return frozenset()
    try:
        texts = json.loads(message)
    except ValueError:
        return None
    if not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
        return None
    found = {t.partition(": ")[0] for t in texts}
    return frozenset(found - {"note"}) if found <= {"error", "warning", "note"} else None


def same(column: str, expected: str, ours: str) -> bool:
    """Whether our cell says what the incumbent's says, up to its rounding, the spelling of numbers and free wording.

    Parameters
    ----------
    column : str
        Title in the governing document's spelling.
    expected, ours : str
        Stripped texts; ``expected`` is the incumbent's.
    """
    if expected == ours:
        return True
    if column == "Err_message":
        return levels(expected) is not None and levels(expected) == levels(ours)
    if column not in NUMERIC:
        return False
    one, other = number(expected), number(ours)
    if one is None or other is None or one[1] != other[1]:
        return False
    absolute = _absolute(column, one[0]) if column in TENSOR_METRICS and not one[1] else 0.0
    return close(one[0], other[0], 1e-6, absolute)
