"""What every cell of a pair ought to say by the specification, worked out from the dumps; verdicts: ``verdict``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from tests.parity.dump import Dump, DumpRow
from tests.parity.pairing import Matching
from tests.parity.tables import (
    DIFFERENCES,
    GOLDEN_STATISTICS,
    NOT_APPLICABLE,
    NUMERIC,
    RELATIVES,
    TARGET_STATISTICS,
    TENSOR_METRICS,
    close,
    number,
)
from tests.parity.tensors import Measured, measure

DEVICE = re.compile(r"(npu|cpu|cuda|gpu|mps|xpu|meta|privateuseone)(:(\d+|None))?$")


@dataclass(frozen=True)
class Statistic:
    """Difference and relative error of one statistic (or scalar) and what sort of case it is.

    Attributes
    ----------
    difference, relative : object
        A number, or the text of the cell.
    case : str
        ``equal``, ``numbers``, ``golden zero``, ``non-finite``, ``overflow``, ``absent``, ``device`` or ``other``.
    """

    difference: Any
    relative: Any
    case: str


def print_value(value: Any) -> str:
    """A statistic or scalar as text."""
    if isinstance(value, float) and math.isnan(value):
        return "Nan"
    return str(value)


def _as_number(value: Any) -> int | float | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, str):
        body = value.strip()
        if re.fullmatch(r"[+-]?\d+", body):
            return int(body)
        found = number(body)
        if found and not found[1]:
            return found[0]
    return None


def is_device(value: Any) -> bool:
    """Whether a text names a device."""
    return isinstance(value, str) and bool(DEVICE.match(value))


def same_but_for_device_kind(one: Any, other: Any) -> bool:
    """Whether two texts name devices that differ in their kind only; a missing index counts as any."""
    if not (is_device(one) and is_device(other)):
        return False
    indexes = {str(v).partition(":")[2] for v in (one, other)} - {"", "None"}
    return len(indexes) <= 1


def compare_values(target: Any, golden: Any) -> Statistic:
    """Rows of compare.md section 7 with the corrections of decision 8, for one statistic."""
    n, b = _as_number(target), _as_number(golden)
    if n is not None and b is not None:
        if (isinstance(n, float) and math.isnan(n)) and (isinstance(b, float) and math.isnan(b)):
            return Statistic(0, 0, "equal")
        if n == b:
            return Statistic(0, 0, "equal")
        if any(isinstance(v, float) and math.isnan(v) for v in (n, b)):
            return Statistic("Nan", "Nan", "non-finite")
        if any(isinstance(v, float) and math.isinf(v) for v in (n, b)):
            return Statistic("inf" if n > b else "-inf", "inf", "non-finite")
        gap = n - b
        if b == 0:
            return Statistic(gap, "inf", "golden zero")
        return Statistic(gap, abs(gap / b * 100), "numbers")
    if print_value(target) == print_value(golden):
        return Statistic(0, 0, "equal")
    if is_device(target) and is_device(golden):
        return Statistic(NOT_APPLICABLE, NOT_APPLICABLE, "device")
    return Statistic("Diff", "Diff", "absent" if None in (target, golden) else "other")


def compare_statistics(target: DumpRow, golden: DumpRow) -> list[Statistic]:
    """Max, min, mean, norm of a pair.

    An infinite norm on both sides beside finite extremes says nothing (decision 20); nor does such a mean, which overflows in
    the same sum.
    """
    found = [compare_values(t, g) for t, g in zip(target.statistics, golden.statistics, strict=True)]
    if target.kind == golden.kind == "tensor" and all(
        isinstance(v, (int, float)) and math.isfinite(v) for v in (*target.statistics[:2], *golden.statistics[:2])
    ):
        for at in (2, 3):
            values = (target.statistics[at], golden.statistics[at])
            if found[at].case == "equal" and all(isinstance(v, float) and math.isinf(v) for v in values):
                found[at] = Statistic("Nan", "Nan", "overflow")
    return found


class Pair:
    """A target row beside a golden row, with everything the rules may ask about it.

    ``how`` and ``peer`` are those of ``pairing.Met``.
    """

    def __init__(
        self,
        target: DumpRow | None,
        golden: DumpRow | None,
        mode: str,
        *,
        how: str = "name",
        peer: str | None = None,
        matching: Matching = Matching(),  # noqa: B008 - frozen
    ) -> None:
        self.target, self.golden, self.mode = target, golden, mode
        self.how, self.peer, self.matching = how, peer, matching
        both_tensors = target is not None and golden is not None and target.kind == golden.kind == "tensor"
        self.measured: Measured | None = None
        if mode == "tensor" and both_tensors and target is not None and golden is not None:
            self.measured = measure(target, golden)
        self.statistics: list[Statistic] = []
        if target is not None and golden is not None:
            self.statistics = compare_statistics(target, golden)

    @property
    def paired(self) -> bool:
        """Whether both sides are there."""
        return self.target is not None and self.golden is not None

    @property
    def is_joined(self) -> bool:
        """Whether a side was put together from several rows."""
        return any(row is not None and bool(row.parts) for row in (self.target, self.golden))

    @property
    def row(self) -> DumpRow:
        """The target's row, or the golden one where there is no target."""
        row = self.target if self.target is not None else self.golden
        assert row is not None
        return row


def _head(row: DumpRow | None) -> tuple[str, str, str, str]:
    if row is None:
        return (NOT_APPLICABLE,) * 4
    return tuple(text or NOT_APPLICABLE for text in (row.name, row.dtype, row.shape, row.requires_grad))  # type: ignore[return-value]


def _metric_cells(pair: Pair) -> list[Any]:
    found = pair.measured
    if found is None or found.state in ("no file recorded", "missing", "unreadable", "empty"):
        return ["unsupported"] * 6
    if found.state == "shape":
        return ["shape unmatched"] * 6
    figures: list[Any] = [found.figures[title] for title in TENSOR_METRICS]
    if found.state == "one element":
        figures = ["unsupported", "unsupported", figures[2], figures[3], "unsupported", "unsupported"]
    return ["Nan" if isinstance(v, float) and math.isnan(v) else v for v in figures]


def right_cells(pair: Pair, stacks: Dump, *, first_of_record: bool) -> dict[str, Any]:
    """Column title -> number or text for every column but Result and Err_message.

    Parameters
    ----------
    pair : Pair
        The rows and the mode.
    stacks : Dump
        The target dump, whose stack.json counts.
    first_of_record : bool
        Whether this is the first row of a target record.
    """
    target, golden = pair.target, pair.golden
    cells: dict[str, Any] = {}
    for side, row in (("NPU", target), ("Bench", golden)):
        titles = (f"{side} Name", f"{side} Dtype", f"{side} Tensor Shape", f"{side} Requires_grad")
        cells.update(zip(titles, _head(row), strict=True))
    if pair.mode == "md5":
        cells["NPU MD5"] = NOT_APPLICABLE if target is None else target.md5 or NOT_APPLICABLE
        cells["BENCH MD5"] = NOT_APPLICABLE if golden is None else golden.md5 or NOT_APPLICABLE
    else:
        for titles, row in ((TARGET_STATISTICS, target), (GOLDEN_STATISTICS, golden)):
            values = (NOT_APPLICABLE,) * 4 if row is None else row.statistics
            cells.update(zip(titles, values, strict=True))
    if pair.mode == "tensor":
        cells.update(zip(TENSOR_METRICS, _metric_cells(pair), strict=True))
        files = [NOT_APPLICABLE if r is None else r.data_name or "-1" for r in (target, golden)]
        cells["Data_Name"] = str(files)
    if pair.mode == "statistics":
        for at, (difference, relative) in enumerate(zip(DIFFERENCES, RELATIVES, strict=True)):
            found = pair.statistics[at] if pair.paired else Statistic(NOT_APPLICABLE, NOT_APPLICABLE, "absent")
            cells[difference] = found.difference
            text = found.relative
            cells[relative] = text if isinstance(text, str) or text == 0 else f"{text!r}%"
    cells["Requires_grad Consistent"] = str(cells["NPU Requires_grad"] == cells["Bench Requires_grad"])
    stack = stacks.stacks.get(target.record) if target is not None and first_of_record else None
    cells["NPU_Stack_Info"] = str(stack) if stack else NOT_APPLICABLE
    return cells


def slack(pair: Pair, column: str) -> float:
    """What a cell may be off by: merged mean and norm come out in the last digits as the sum was taken, and so do their differences."""
    if not pair.is_joined:
        return 0.0
    for titles in (TARGET_STATISTICS, GOLDEN_STATISTICS, DIFFERENCES, RELATIVES):
        if column in titles and titles.index(column) >= 2:
            sides = [r.statistics[titles.index(column)] for r in (pair.target, pair.golden) if r is not None]
            largest = max((abs(v) for v in sides if isinstance(v, (int, float))), default=0.0)
            golden = sides[-1] if titles is RELATIVES else 1.0
            share = 100 / abs(golden) if titles is RELATIVES and golden else 1.0
            return 1e-15 * largest * share
    return 0.0


def agrees(column: str, right: Any, ours: str, off: float = 0.0) -> bool:
    """Whether our text is the right value; numbers within the last digits of float64 arithmetic, integers exactly."""
    one, other = number(print_value(right)), number(ours)
    if off and one is not None and other is not None and (one[1] == other[1] or one[0] == 0):
        return close(one[0], other[0], 1e-9, off)
    if isinstance(right, bool) or right is None:
        return ours == str(right)
    if isinstance(right, str):
        if right == ours:
            return True
        one, other = number(right), number(ours)
        if column not in NUMERIC or one is None or other is None:
            return False
        return one[1] == other[1] and close(one[0], other[0], 1e-9, 1e-300)
    if isinstance(right, int) and re.fullmatch(r"[+-]?\d+", ours):
        return int(ours) == right
    if isinstance(right, float) and not math.isfinite(right):
        return ours == print_value(right)
    found = number(ours)
    if found is None or found[1]:
        return False
    if column in TARGET_STATISTICS + GOLDEN_STATISTICS:
        return bool(found[0] == right)
    return close(found[0], float(right), 1e-9, 1e-10 if column == "Cosine" else 0.0)
