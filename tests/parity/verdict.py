"""Which rules of the specification fire on which row of a record, worked out from the dumps.

Where the specification leaves something open (does an input of one element count, does a scalar count as a comparable
input ...) the rule is asked under each reading: a firing is *sure* if it fires under all of them, else only allowed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.parity.dump import DumpRow, api_name
from tests.parity.oracle import Pair, compare_values, same_but_for_device_kind
from tests.parity.tensors import load_row
from tests.parity.train_infer import shapes_agree

REDUNDANT = frozenset(
    [
        "empty",
        "empty_like",
        "numpy",
        "to",
        "setitem",
        "__setitem__",
        "empty_with_format",
        "new_empty_strided",
        "new_empty",
        "empty_strided",
    ]
)
PLACEHOLDER = frozenset(("_reduce_scatter_base", "_all_gather_base", "all_to_all_single", "batch_isend_irecv"))
READINGS = ("plain", "wary", "bold")
ARGUMENTS = ("size", "slice", "ellipsis", "group", "peer")


@dataclass(frozen=True)
class Firing:
    """One rule on one row.

    Attributes
    ----------
    rule : str
        Key of ``rules.REASONS``.
    level : str
        ``warning`` or ``error``.
    sure : bool
        Whether it must fire; otherwise it may.
    text : bool
        Whether its own text must be among the messages even beside a graver one.
    """

    rule: str
    level: str
    sure: bool = True
    text: bool = False


def _kind(value: Any) -> str:
    if not isinstance(value, float) or math.isfinite(value):
        return "finite"
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def _changed(pair: Pair) -> bool | None:
    """Whether the values differ, None where that cannot be known."""
    target, golden = pair.target, pair.golden
    if target is None or golden is None:
        return None
    found = pair.measured
    if found is not None and found.state in ("computed", "one element"):
        return found.differing > 0 or found.nan_mismatch + found.inf_mismatch > 0
    if pair.mode == "md5":
        return target.md5 != golden.md5
    if target.kind == "tensor":
        return any(s.case != "equal" for s in pair.statistics)
    return (target.raw != golden.raw and target.statistics != golden.statistics) or _argument_changed(target, golden)


def _argument_changed(target: DumpRow, golden: DumpRow) -> bool:
    """Whether a scalar or structured argument differs in more than the kind of device."""
    one, other = (r.raw if isinstance(r.raw, dict) else {} for r in (target, golden))
    if target.kind == "group":
        return bool(one.get("group_ranks") != other.get("group_ranks"))
    values = one.get("value"), other.get("value")
    return compare_values(*values).case != "equal" and not same_but_for_device_kind(*values)


def _without_comparison(pair: Pair) -> list[Firing]:
    """Decision 2: what was not compared is at least a warning."""
    target, golden = pair.target, pair.golden
    if target is None or golden is None:
        return [Firing("no partner", "warning", text=pair.mode == "md5")]
    if target.kind != golden.kind and "tensor" in (target.kind, golden.kind):
        return [Firing("not compared", "warning", sure=False)]
    if target.kind != "tensor" or (target.elements == 0 and golden.elements == 0):
        return []
    state = pair.measured.state if pair.measured else ""
    if state in ("no file recorded", "missing", "unreadable"):
        return [Firing("not compared", "warning")]
    if state == "shape":
        return [Firing("not compared", "warning", sure=False)]
    if pair.mode == "md5":
        return [] if target.md5 and golden.md5 else [Firing("not compared", "warning")]
    if pair.mode == "statistics":
        absent = [(t is None, g is None) for t, g in zip(target.statistics, golden.statistics, strict=True)]
        if any(t != g for t, g in absent):
            return [Firing("statistic missing on one side", "warning")]
        if all(t and g for t, g in absent):
            return [Firing("not compared", "warning", sure=False)]
    return []


def _file_contradicts(pair: Pair) -> list[Firing]:
    """A tensor that was compared and is not what the JSON says: shape or dtype. Joined tensors stand in no file of their own."""
    if pair.measured is None or pair.measured.state not in ("computed", "one element", "shape"):
        return []
    found = []
    for row in (pair.target, pair.golden):
        file = load_row(row) if row is not None and not row.parts else ""
        if row is None or isinstance(file, str):
            continue
        if row.shape != str(list(file.shape)):
            found.append(Firing("file contradicts", "warning"))
        elif row.dtype.rpartition(".")[2].lower() != file.dtype:
            found.append(Firing("file contradicts", "warning", sure=False))
    return found[:1]


def _special_values(pair: Pair, *, placeholder: bool) -> list[Firing]:
    """R1 and decision 2: nan and infinities."""
    target, golden = pair.target, pair.golden
    if target is None or pair.mode == "md5" or target.kind not in ("tensor", "scalar"):
        return []
    sure = not (placeholder and target.is_input)
    mine = [_kind(v) for v in target.statistics]
    if golden is None:
        return [Firing("nan or inf", "error", sure)] if {*mine[:2]} != {"finite"} else []
    theirs = [_kind(v) for v in golden.statistics]
    found = pair.measured
    if found is not None and found.nan_mismatch + found.inf_mismatch:
        return [Firing("nan or inf", "error", sure)]
    measured = found is not None and found.state in ("computed", "one element")
    if mine[:2] != theirs[:2]:
        return [Firing("nan or inf", "error", sure and not measured)]
    return [Firing("nan or inf", "error", sure=False)] if mine != theirs and not measured else []


def _row_rules(pair: Pair, *, placeholder: bool) -> list[Firing]:
    """R4 to R7, M1 and M2: what one row shows by itself."""
    target, golden = pair.target, pair.golden
    if target is None or golden is None:
        return []
    found = []
    if pair.mode == "md5":
        if target.md5 != golden.md5:
            missing = not target.md5 or not golden.md5
            device = _devices_alike(target, golden)
            found.append(Firing("checksum", "warning" if missing else "error", sure=not device, text=not device))
        if target.dtype != golden.dtype:
            found.append(Firing("dtype", "error", sure=False))
        return found
    training = pair.matching.kind == "train"
    if target.requires_grad != golden.requires_grad and not training:
        found.append(Firing("requires_grad", "error", text=True))
    if target.dtype != golden.dtype and not (training and pair.is_joined):
        fused = training and re.search("qkv|gate_up", golden.name) is not None
        found.append(Firing("dtype", "error", sure=not fused, text=not fused))
    loose = training and (pair.is_joined or shapes_agree(target.shape, golden.shape, pair.matching.backend))
    if target.shape != golden.shape and not loose:
        sure = "" not in (target.shape, golden.shape)
        found.append(Firing("shape", "error", sure, text=sure))
    if target.kind == golden.kind == "scalar" and _argument_changed(target, golden):
        if target.is_output:
            found.append(Firing("value changed", "warning", sure=False))
        else:
            found.append(Firing("scalar", "error", text=True))
    elif target.kind == golden.kind and target.kind in ARGUMENTS and _argument_changed(target, golden):
        found.append(Firing("value changed", "warning", sure=False))
    return found


def _devices_alike(target: DumpRow, golden: DumpRow) -> bool:
    return target.kind == golden.kind == "scalar" and same_but_for_device_kind(
        target.statistics[0], golden.statistics[0]
    )


def _scalar_differs(pair: Pair) -> bool:
    return pair.paired and pair.row.kind != "tensor" and bool(_changed(pair))


def input_figures(inputs: Sequence[Pair], title: str, reading: str) -> list[float] | None:
    """Figures of the comparable inputs of a tensor pair; None where the inputs count as different already.

    Rows without a figure do not count. Open: one element (a figure, though not shown); special values that do not meet;
    whether equal scalars make an op without tensor inputs comparable.
    """
    figures: list[float] = []
    for pair in inputs:
        found = pair.measured
        if found is None or found.state not in ("computed", "one element"):
            if reading == "bold" and pair.paired and not _scalar_differs(pair) and pair.row.kind != "tensor":
                figures.append(1.0)
            continue
        if found.nan_mismatch + found.inf_mismatch and reading != "bold":
            return None
        if found.state == "computed" or reading != "plain":
            figures.append(found.figures[title])
    return figures


def _tensor_rules(inputs: Sequence[Pair], pair: Pair, reading: str) -> set[str]:
    """R2, W2 and the rules of our own on one output, under one reading."""
    found = pair.measured
    if (
        found is None
        or found.state not in ("computed", "one element")
        or (found.state != "computed" and reading == "plain")
    ):
        return set()
    fired = set()
    ratios = input_figures(inputs, "One Thousandth Err Ratio", reading)
    if ratios and min(ratios) > 0.9:
        if found.figures["One Thousandth Err Ratio"] < 0.6:
            fired.add("thousandth within rounding" if found.within_rounding else "thousandth")
        lenient = found.within_rounding and reading == "plain"
        if found.worst_share > 0.1 and not lenient and not (reading == "wary" and any(map(_scalar_differs, inputs))):
            fired.add("local fault")
    cosines = input_figures(inputs, "Cosine", reading)
    if cosines and min(cosines) > 0.9 and min(cosines) - found.figures["Cosine"] > 0.1:
        fired.add("cosine drop")
    return fired


def relative_share(pair: Pair, at: int) -> float | None:
    """Relative error of a statistic as a share, None where there is no number."""
    if not pair.statistics or pair.statistics[at].case in ("absent", "other", "device"):
        return None
    value = pair.statistics[at].relative
    if value in ("inf", "Nan"):
        return math.inf
    return float(value) / 100 if not isinstance(value, str) else None


def norm_inputs(inputs: Sequence[Pair], reading: str) -> list[float] | None:
    """NormRelativeErr of the comparable inputs; None where one is inf or Nan.

    Open: whether two absent norms are comparable, and whether scalars alone are.
    """
    figures: list[float] = []
    for pair in inputs:
        share = relative_share(pair, 3) if pair.paired else None
        if share is None or (reading != "bold" and pair.row.statistics[3] is None):
            continue
        if math.isinf(share):
            return None
        figures.append(share)
    if reading == "wary" and not any(p.paired and p.row.kind == "tensor" for p in inputs):
        return []
    return figures


def _statistic_strays(pair: Pair, *, whole: bool) -> bool:
    """Whether max, min or mean differs by more than half of max(|b|, norm / sqrt(n)) (decision 19a)."""
    target, golden = pair.target, pair.golden
    if target is None or golden is None or golden.kind != "tensor":
        return False
    norm, elements = golden.statistics[3], golden.elements
    for t, g in zip(target.statistics[:3], golden.statistics[:3], strict=True):
        numeric = [isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v) for v in (t, g)]
        if not all(numeric):
            continue
        root = 0.0
        if isinstance(norm, (int, float)) and math.isfinite(norm) and elements and whole:
            root = abs(norm) / math.sqrt(elements)
        if abs(t - g) > 0.5 * max(abs(g), root):
            return True
    return False


def _inputs_agree(inputs: Sequence[Pair], reading: str) -> bool:
    """Whether the inputs agree within 10 % in every statistic (decision 19a)."""
    tensors = [p for p in inputs if p.paired and p.row.kind == "tensor"]
    if not tensors and reading != "bold":
        return False
    if reading == "wary" and any(not p.paired or _scalar_differs(p) for p in inputs):
        return False
    for pair in inputs if reading == "wary" else tensors:
        for at in range(4):
            share = relative_share(pair, at) if pair.paired else None
            if (
                share is not None
                and share >= 0.1
                and not (reading == "bold" and not _statistic_strays(pair, whole=True))
            ):
                return False
    return True


def _statistics_rules(inputs: Sequence[Pair], pair: Pair, reading: str) -> set[str]:
    fired = set()
    share = relative_share(pair, 3) if pair.paired else None
    norms = norm_inputs(inputs, reading)
    undefined = bool(pair.statistics) and pair.statistics[3].relative == "Nan"
    if share is not None and norms and not undefined:
        worst = max(norms)
        if worst < 0.1 and share > 0.5:
            fired.add("norm error")
        grown = share > 0.1 if worst == 0 else share / worst > 10
        if grown and share > 0.001 and not (math.isinf(share) and reading == "wary"):
            fired.add("norm growth")
    if _inputs_agree(inputs, reading) and _statistic_strays(pair, whole=reading != "bold"):
        fired.add("own statistics")
    return fired


def _changed_output(inputs: Sequence[Pair], pair: Pair, reading: str) -> set[str]:
    """Decision 19d on outputs: exact kinds that differ while the inputs are equal."""
    row = pair.row
    kind = row.dtype.removeprefix("torch.")
    exact = (row.kind == "tensor" and re.fullmatch(r"u?int\d+|bool", kind) is not None) or row.kind not in (
        "tensor",
        "none",
    )
    if not pair.paired or not exact or not _changed(pair) or pair.mode == "md5":
        return set()
    if row.kind == "scalar" and not _argument_changed(pair.target, pair.golden):  # type: ignore[arg-type]
        return set()
    states = [_changed(p) for p in inputs]
    if reading == "plain":
        equal = bool(states) and not any(states) and None not in states
    else:
        equal = True if reading == "bold" else bool(states) and not any(states)
    return {"value changed"} if equal else set()


def _alone_rules(pair: Pair, reading: str) -> set[str]:
    """Decision 19b: rows without an input side."""
    found = pair.measured
    strays = _statistic_strays(pair, whole=reading != "bold")
    share = relative_share(pair, 3) if pair.paired else None
    loud = share is not None and share > 0.5
    if pair.mode == "statistics":
        return {"no inputs"} if pair.row.kind == "tensor" and (loud or strays) else set()
    fires = False
    if found is not None and (found.state == "computed" or (found.state == "one element" and reading != "plain")):
        fires = found.figures["One Thousandth Err Ratio"] < 0.6 or found.figures["Cosine"] < 0.9
    return {"no inputs"} if fires or (reading == "bold" and (loud or strays) and pair.row.kind == "tensor") else set()


LEVEL = {"thousandth": "error", "norm error": "error"}
DOCUMENT = ("thousandth", "norm error", "norm growth", "cosine drop")


def _combine(ask: Callable[[str], set[str]]) -> list[Firing]:
    readings = [ask(reading) for reading in READINGS]
    every = set.intersection(*readings)
    return [
        Firing(n, LEVEL.get(n, "warning"), n in every, n in every and n in DOCUMENT)
        for n in sorted(set.union(*readings))
    ]


def judge(group: Sequence[Pair]) -> list[list[Firing]]:
    """Firings of every row of one record, in the order given."""
    name = api_name(group[0].row.record)
    placeholder, redundant = name in PLACEHOLDER, name in REDUNDANT
    inputs = [p for p in group if p.row.is_input and p.target is not None]
    judged = []
    for pair in group:
        found = _without_comparison(pair) + _file_contradicts(pair)
        special = _special_values(pair, placeholder=placeholder)
        if redundant:
            judged.append(found + [Firing(f.rule, f.level, sure=False) for f in special])
            continue
        found += special + _row_rules(pair, placeholder=placeholder)
        if pair.row.has_no_input_side and pair.mode != "md5":
            found += _combine(lambda reading, p=pair: _alone_rules(p, reading))  # type: ignore[misc]
        elif pair.row.is_output:
            ask = {"tensor": _tensor_rules, "statistics": _statistics_rules}.get(pair.mode)
            if ask is not None and not placeholder:
                found += _combine(lambda reading, p=pair, a=ask: a(inputs, p, reading))  # type: ignore[misc]
            changed = _combine(lambda reading, p=pair: _changed_output(inputs, p, reading))  # type: ignore[misc]
            found += [Firing(f.rule, f.level, f.sure and not placeholder) for f in changed]
        judged.append(found)
    return judged
