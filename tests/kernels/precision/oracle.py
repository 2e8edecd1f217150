"""The figures of a pair written down again, element by element in long double and exact counts, without torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Figures = dict[str, float | int]


@dataclass(frozen=True)
class Kind:
    """What the document says about an element type: its format, and its thresholds."""

    bits: int
    lowest: int
    largest: float
    small: float
    atol: float
    rtol: float
    ulp_above: int
    bound: float


KINDS = {
    "float16": Kind(10, -14, 65504.0, 2**-10, 2**-16, 2**-10, 1, 2**-8),
    "bfloat16": Kind(7, -126, 3.3895313892515355e38, 2**-10, 2**-16, 2**-8, 1, 2**-7),
    "float32": Kind(23, -126, 3.4028234663852886e38, 2**-20, 2**-30, 2**-20, 32, 2**-11),
    "float64": Kind(52, -1022, 1.7976931348623157e308, 0, 0, 0, 0, 0),
}


def rounded(value: float, kind: str) -> float:
    """The nearest number of a format, ties to even; inf beyond its largest. Halves go by way of float32."""
    if kind == "float64" or not math.isfinite(value) or value == 0:
        return value
    if kind != "float32":
        value = rounded(value, "float32")
        if not math.isfinite(value) or value == 0:
            return value
    form = KINDS[kind]
    if abs(value) >= 2 * form.largest:
        return math.copysign(math.inf, value)
    exponent = max(math.frexp(value)[1] - 1, form.lowest) - form.bits
    steps = round(math.ldexp(value, -exponent))  # Python rounds ties to even
    found = math.ldexp(steps, exponent)
    return math.copysign(math.inf, value) if abs(found) > form.largest else found


def on_edge(bench: Sequence[float], device: Sequence[float], kind: str) -> bool:
    """Whether some error lies so near a threshold that its last bit decides."""
    form = KINDS[kind]
    for b, d in zip(bench, device, strict=True):
        if not (math.isfinite(b) and math.isfinite(d)) or b == d:
            continue
        error = abs(np.longdouble(d) - np.longdouble(b))
        exponent = max(math.frexp(b)[1] - 1 if b else form.lowest, form.lowest)
        edges = [
            (error, form.atol),
            (error, form.bound),
            (error / np.longdouble(2) ** (exponent - form.bits), form.ulp_above),
        ]
        if b:
            edges += [(error / abs(np.longdouble(b)), limit) for limit in (0.01, 0.001, 0.0001, form.rtol, form.bound)]
        if any(abs(value - limit) <= 1e-6 * limit for value, limit in edges):
            return True
    return False


def _share(rows: Sequence[tuple[float, ...]], test: Callable[..., bool]) -> float | int:
    return sum(test(*row) for row in rows) / len(rows) if rows else 0


def _mean(values: Sequence[np.longdouble]) -> float | int:
    return float(sum(values, np.longdouble(0)) / len(values)) if len(values) else 0


def figures(
    bench: Sequence[float], device: Sequence[float], kind: str, standard: str, eps: float, step: float = 0.0
) -> Figures:
    """Figures of a standard, with cosine, largest error and the three ratios, in which errors up to ``step`` do not count."""
    form = KINDS[kind]
    triples = [(float(b), float(d), rounded(float(b), kind)) for b, d in zip(bench, device, strict=True)]
    finite = [row for row in triples if math.isfinite(row[1]) and math.isfinite(row[2])]
    alike = [row for row in triples if row not in finite and _same(row[1], row[2])]
    apart = len(triples) - len(finite) - len(alike)
    counted = len(triples) - len(alike)
    error = [np.longdouble(d) - np.longdouble(b) for b, d, _ in finite]
    size = [np.longdouble(abs(b)) for b, _, _ in finite]
    found: Figures = {"error_max": float(max((abs(e) for e in error), default=0))}
    found["cosine"] = _cosine(finite)
    for name, limit in (("hundredth", 0.01), ("thousandth", 0.001), ("ten_thousandth", 0.0001)):
        near = sum(
            bool(abs(e) <= step or abs(e) < limit * (s + np.longdouble(eps))) for e, s in zip(error, size, strict=True)
        )
        found[name] = near / counted if counted else 0
    top = 1.0 if standard == "accumulative_error_compare" else form.small
    atol, rtol = (form.bound, form.bound) if standard == "accumulative_error_compare" else (form.atol, form.rtol)
    small = [(float(abs(e)),) for e, s in zip(error, size, strict=True) if s <= top]
    normal = [(e, s) for e, s in zip(error, size, strict=True) if s > top]
    relative = [abs(e) / (s + np.longdouble(eps)) for e, s in normal]
    if standard in ("benchmark", "accumulative_error_compare"):
        above, below = sum(d > r for _, d, r in finite), sum(d < r for _, d, r in finite)
        found["balance"] = abs(above - below) / counted if counted else 0
    if standard == "benchmark":
        found["rmse"] = float(np.sqrt(np.longdouble(_mean([e * e for e, _ in normal]))))
        found["small_value"] = _share(small, lambda e: e > atol)
        found["relative_max"] = float(max(relative, default=0))
        found["relative_mean"] = _mean(relative)
    if standard in ("absolute_threshold", "accumulative_error_compare"):
        found["inf_nan"] = apart / len(triples) if len(finite) < len(triples) else 0
        found["relative_rate"] = sum(bool(r > rtol) for r in relative) / len(relative) if relative else 0
        found["absolute_rate"] = _share(small, lambda e: e > atol)
    if standard == "binary_consistency":
        found["binary"] = (sum(d != r for _, d, r in finite) + apart) / len(triples)
    if standard == "ulp_compare":
        units = [
            abs(e) / np.longdouble(2) ** (max(math.frexp(s)[1] - 1 if s else form.lowest, form.lowest) - form.bits)
            for e, s in zip(error, (float(s) for s in size), strict=True)
        ]
        found["ulp_max"], found["ulp_mean"] = float(max(units, default=0)), _mean(units)
        found["ulp_share"] = (sum(bool(u > form.ulp_above) for u in units) + apart) / counted if counted else 0
        if apart:
            odd = [row for row in triples if row not in finite and row not in alike]
            worst = math.nan if any(math.isnan(d) or math.isnan(r) for _, d, r in odd) else math.inf
            found["ulp_max"] = found["ulp_mean"] = worst
    if apart:
        found["inf_nan"] = apart / len(triples)
    return found


def _same(left: float, right: float) -> bool:
    return (math.isnan(left) and math.isnan(right)) or left == right


def _cosine(rows: Sequence[tuple[float, float, float]]) -> float:
    b, d = (np.array([row[side] for row in rows], dtype=np.longdouble) for side in (0, 1))
    if not (np.any(b) and np.any(d)):
        return math.nan
    b, d = b / np.abs(b).max(), d / np.abs(d).max()
    return float((b * d).sum() / np.sqrt((b * b).sum() * (d * d).sum()))
