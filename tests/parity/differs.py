"""Whether an operator differs, and whether its inputs do, by the corrected rules of diff_analyze.md 2."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tests.parity.compare import Judged
from tests.parity.dump import api_name
from tests.parity.oracle import Pair
from tests.parity.rules import pairing_reason
from tests.parity.tables import RELATIVES, Cells, number
from tests.parity.verdict import REDUNDANT, relative_share

FAR = 0.5
CLOSE = 0.1
HELD = 0.01
CLEAN = 1e-3
MUCH_MORE = 10.0
NUMBERS, DTYPE, ALONE = "numbers", "dtype", "alone"
TELLING = frozenset(
    [
        "nan or inf",
        "thousandth",
        "norm error",
        "norm growth",
        "cosine drop",
        "shape",
        "checksum",
        "own statistics",
        "local fault",
        "value changed",
        "scalar",
        "no inputs",
    ]
)


@dataclass(frozen=True)
class Difference:
    """What a result row says about its operator.

    Attributes
    ----------
    kind : str
        ``numbers``, ``dtype`` or ``alone``.
    sure : bool
        Whether the specification leaves no choice.
    cause : str
        Key of ``rules.REASONS``: what the incumbent does not see.
    """

    kind: str
    sure: bool
    cause: str


def is_result(pair: Pair) -> bool:
    """Whether the row is one that can differ: an output, or a row of a record without an input side."""
    return pair.target is not None and not pair.row.is_input


def gap(pair: Pair) -> float | None:
    """How far the statistics are off: the largest |n - b| over max(|b|, norm / sqrt(n)), and the norm's own relative error.

    None where there is no number; infinite where nan or infinities do not meet or anything stands against nothing.
    """
    target, golden = pair.target, pair.golden
    if target is None or golden is None or target.kind != "tensor" or golden.kind != "tensor":
        return None
    norm, elements = golden.statistics[3], golden.elements
    root = 0.0
    if isinstance(norm, (int, float)) and math.isfinite(norm) and elements:
        root = abs(norm) / math.sqrt(elements)
    found = []
    for at, case in enumerate(pair.statistics):
        t, g = target.statistics[at], golden.statistics[at]
        if case.case == "non-finite":
            return math.inf
        if case.case == "equal" and case.relative == 0:
            found.append(0.0)
        elif case.case in ("numbers", "golden zero"):
            scale = abs(g) if at == 3 else max(abs(g), root)
            found.append(abs(t - g) / scale if scale else math.inf)
    return max(found, default=None)


def row_difference(row: Judged) -> Difference | None:
    """What a result row says; None where it agrees."""
    pair = row.pair
    bound = api_name(pair.row.record) not in REDUNDANT
    if pair.golden is None:
        return Difference(ALONE, bound, "same: one side")
    numbers = [f for f in row.firings[row.at] if f.rule in TELLING]
    numbers.sort(key=lambda f: not f.sure)
    gradient = pair.row.has_no_input_side
    if numbers and numbers[0].sure:
        named = "same: nan or inf" if numbers[0].rule == "nan or inf" else "same: dtype or shape"
        cause = named if numbers[0].rule in ("nan or inf", "shape") else "same: verdict"
        return Difference(NUMBERS, bound, "same: no input side" if gradient else cause)
    if pair.mode != "md5" and pair.row.kind == "tensor":
        shares = [relative_share(pair, at) for at in (0, 1, 3)]
        off = gap(pair)
        if any(s is not None and math.isfinite(s) and s > FAR for s in shares) or (off is not None and off > FAR):
            zero = any(s.case == "golden zero" for s in pair.statistics)
            cause = "same: golden zero" if zero else "same: scaled mean"
            return Difference(NUMBERS, bound, "same: no input side" if gradient else cause)
        if any(s is not None and math.isinf(s) for s in shares):
            return Difference(NUMBERS, False, "same: golden zero")
    if pair.target is not None and pair.target.dtype != pair.golden.dtype:
        return Difference(DTYPE, bound, "same: dtype or shape")
    rest = [f for f in row.firings[row.at] if f.rule not in ("requires_grad",)]
    return Difference(NUMBERS, False, "same: verdict") if rest else None


def op_differences(rows: Sequence[Judged]) -> list[Difference]:
    """What the result rows of one operator say, the gravest first."""
    found = [d for d in (row_difference(row) for row in rows if is_result(row.pair)) if d is not None]
    return sorted(found, key=lambda d: (not d.sure, (NUMBERS, DTYPE, ALONE).index(d.kind)))


def inputs_state(rows: Sequence[Judged]) -> tuple[str, float]:
    """``differ``, ``agree`` or ``none`` (nothing to compare), and how far the worst input is off; a parameter agrees up to a hundredth."""
    state, worst = "none", 0.0
    for row in rows:
        pair = row.pair
        if not pair.row.is_input or not pair.paired or pair.target is None or pair.golden is None:
            continue
        if pair.mode == "md5":
            if pair.target.md5 and pair.golden.md5:
                state = "differ" if pair.target.md5 != pair.golden.md5 or state == "differ" else "agree"
            continue
        off = gap(pair)
        changed = any(f.rule in ("scalar", "value changed", "shape") for f in row.firings[row.at])
        if changed or (off is not None and off > (HELD if pair.row.section == "parameters" else CLOSE)):
            state = "differ"
        elif state != "differ" and (off is not None or pair.row.kind == "scalar"):
            state = "agree"
        worst = max(worst, off or 0.0)
    return state, worst


def starts_here(rows: Sequence[Judged]) -> bool:
    """Whether the difference is the operator's own: its inputs agree, or its outputs are much further off than they are."""
    state, worst = inputs_state(rows)
    off = max((gap(r.pair) or 0.0 for r in rows if is_result(r.pair)), default=0.0)
    return state != "differ" or (rows[0].pair.mode != "md5" and worst > 0 and off > MUCH_MORE * worst)


def weight_state(rows: Sequence[Judged]) -> str:
    """``own`` where a parameter differs and all else that goes in is all but equal, ``first`` where nothing else is known to differ,
    ``""`` where no parameter does or another input does as well."""
    held = [row for row in rows if row.pair.row.section == "parameters"]
    fed, worst = inputs_state([row for row in rows if row.pair.row.section != "parameters"])
    if inputs_state(held)[0] != "differ" or fed == "differ":
        return ""
    return "own" if fed == "agree" and worst <= CLEAN else "first"


def same_fault(rows: Sequence[Judged], ours: bool) -> str:
    """What is wrong with our ``is_same``; ``""`` if nothing is."""
    found = op_differences(rows)
    if ours and found and found[0].sure:
        return f"should differ: {found[0].cause}"
    return "should be the same: no output differs" if not ours and not found else ""


def same_reason(rows: Sequence[Judged], expected: Sequence[Cells], ours: bool) -> str | None:
    """Key of ``REASONS`` for a right ``is_same`` that is not the incumbent's, or None.

    Parameters
    ----------
    rows : sequence of Judged
        The operator.
    expected : sequence of dict
        The incumbent's rows of it, by target name.
    ours : bool
        Our answer.
    """
    if not ours:
        found = op_differences(rows)
        return found[0].cause if found else None
    by_name = {cells["NPU Name"]: cells for cells in expected}
    reasons = set()
    for row in rows:
        cells = by_name.get(row.pair.row.name)
        if cells is None or not row.pair.row.is_output:
            continue
        found_far = {title for title in RELATIVES if _far(cells.get(title, ""))}
        differs = found_far or cells.get("Result") == "Different"
        moved = pairing_reason(cells, row.pair)
        if moved and differs:
            reasons.add(moved)
        elif differs:
            noise = found_far == {"MeanRelativeErr"} and (gap(row.pair) or 0.0) <= FAR
            reasons.add("same: mean noise" if noise else "")
    return min(reasons) if reasons and "" not in reasons else None


def _far(text: str) -> bool:
    found = number(text)
    return found is not None and found[1] == "%" and found[0] / 100 > FAR
