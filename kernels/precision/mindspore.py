"""How results of MindSpore are judged: cosine, largest absolute and largest relative error, two limits.

The reference is computed in a higher precision and rounded to the dtype under test before it is compared: the best possible
answer has no error. Elements that are nan or infinite on both sides in the same way agree and take no part in the figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from opassay.schemas.check_rows import DetailRow, Status

COSINE_ABOVE: Final = 0.99
ABSOLUTE_BELOW: Final = 0.0001
"""A result passes if its cosine is above the one and its largest absolute error below the other."""

CHUNK: Final = 1 << 20  # elements that are widened at a time
_EPS: Final = 1e-8
_ROUNDING_UNITS: Final = 10.0
_BLIND_SHARE: Final = 0.01
_DTYPES: Final = {
    "int8": "Int8", "uint8": "UInt8", "int16": "Int16", "uint16": "UInt16", "int32": "Int32", "uint32": "UInt32",
    "int64": "Int64", "uint64": "UInt64", "float16": "Float16", "float32": "Float32", "float64": "Float64", "bool": "Bool",
    "bfloat16": "BFloat16", "complex64": "Complex64", "complex128": "Complex128", "float8_e4m3fn": "Float8E4M3FN",
    "float8_e5m2": "Float8E5M2",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figures:
    """What two tensors of one shape have in common.

    Attributes
    ----------
    count : int
        Elements.
    disagree : int
        Elements that are nan or infinite on one side only, or in another way.
    cosine, max_absolute, max_relative : float
        Of the elements that are finite on both sides; nan where a nan disagrees, errors infinite where an infinity does.
    scale : float
        Largest magnitude of a finite element of the reference.
    """

    count: int
    disagree: int
    cosine: float
    max_absolute: float
    max_relative: float
    scale: float


def dtype_name(dtype: torch.dtype) -> str:
    """MindSpore's name of a dtype: ``BFloat16``."""
    name = str(dtype).removeprefix("torch.")
    return _DTYPES.get(name, name)


def compare_values(bench: object, tested: object) -> DetailRow:
    """Compare one output, or one gradient, with the reference.

    Parameters
    ----------
    bench, tested : object
        Tensors on the CPU, or plain values.

    Returns
    -------
    DetailRow
        Without a name. Its status is pass or error. Tensors without elements pass without figures.
    """
    if not isinstance(bench, torch.Tensor) and not isinstance(tested, torch.Tensor):
        return _compare_plain(bench, tested)
    row = DetailRow("", _type_name(bench), _type_name(tested), _shape_text(bench), status=Status.ERROR)
    left, right = _tensor(bench), _tensor(tested)
    if left is None or right is None:
        row.message = f"the types differ: {row.bench_dtype} in the reference, {row.device_dtype} here "
        return row
    if left.shape != right.shape:
        row.message = f"shape differs: {tuple(left.shape)} in the reference, {tuple(right.shape)} here "
        return row
    _judge(row, left, right)
    return row


def measure(bench: torch.Tensor, tested: torch.Tensor, chunk: int = CHUNK) -> Figures:
    """The figures of two tensors.

    Parameters
    ----------
    bench, tested : torch.Tensor
        Of one shape, any dtypes.
    chunk : int
        Elements that are widened at a time; sums run in this order, maxima do not depend on it.

    Returns
    -------
    Figures
        In float64. Integers that differ beyond its precision count as one apart at least.
    """
    scales = [0.0, 0.0]
    for first, second, _ in _parts(bench, tested, chunk):
        for side, values in enumerate((first, second)):
            if values.numel():
                scales[side] = max(scales[side], float(values.abs().max()))
    left, right = (scale or 1.0 for scale in scales)
    dot = squares_left = squares_right = absolute = relative = 0.0
    count, disagree, has_nan = 0, 0, False
    for first, second, state in _parts(bench, tested, chunk):
        count += state.count
        disagree += state.disagree
        has_nan |= state.has_nan
        if not first.numel():
            continue
        a, t = first / left, second / right
        dot += float((a * t).sum())
        squares_left += float((a * a).sum())
        squares_right += float((t * t).sum())
        apart = (first - second).abs()
        apart = torch.where(state.unequal, apart.clamp(min=1.0), apart)
        size = first.abs()
        absolute = max(absolute, float(apart.max()))
        relative = max(relative, float((apart / torch.where(size == 0, _EPS, size)).max()))
    # the same as (eps + sum a t) / (eps + |a| |t|), without squares that overflow
    eps = _EPS / left / right
    cosine = (eps + dot) / (eps + math.sqrt(squares_left) * math.sqrt(squares_right))
    if math.isinf(eps):
        cosine = 1.0  # values this small vanish beside the constant
    if disagree:
        cosine = math.nan
        absolute = relative = math.nan if has_nan else math.inf
    return Figures(count, disagree, cosine, absolute, relative, scales[0])


@dataclass(frozen=True, slots=True)
class _State:
    """What a chunk holds beside its finite elements.

    Attributes
    ----------
    unequal : torch.Tensor of bool
        Exact elements that differ, at the places of the finite ones; False for all floats.
    count : int
        Elements, finite or not.
    disagree : int
        Elements that are not finite on both sides alike.
    has_nan : bool
        One of these is a nan.
    """

    unequal: torch.Tensor
    count: int
    disagree: int = 0
    has_nan: bool = False


def _parts(
    bench: torch.Tensor, tested: torch.Tensor, chunk: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor, _State]]:
    """Chunks of both sides in float64, without the elements that are not finite."""
    left, right = bench.detach().reshape(-1), tested.detach().reshape(-1)
    if left.dtype.is_complex or right.dtype.is_complex:
        left, right = _as_real(left), _as_real(right)
    for start in range(0, len(left), chunk):
        first, second = left[start : start + chunk], right[start : start + chunk]
        exact = not first.dtype.is_floating_point and not second.dtype.is_floating_point
        unequal = _differ(first, second) if exact else torch.zeros(len(first), dtype=torch.bool)
        a, t = first.to(torch.float64), second.to(torch.float64)
        finite = a.isfinite() & t.isfinite()
        if bool(finite.all()):
            yield a, t, _State(unequal, len(a))
            continue
        nan = a.isnan() | t.isnan()
        alike = finite | (a.isnan() & t.isnan()) | (a == t)
        odd = ~alike
        yield a[finite], t[finite], _State(unequal[finite], len(a), int(odd.sum()), bool((odd & nan).any()))


def _differ(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Elements of whole numbers that differ, exactly: float64 has 53 bits only."""
    if first.dtype == second.dtype and first.dtype.itemsize == 8:
        return first.view(torch.int64) != second.view(torch.int64)
    return first.to(torch.int64) != second.to(torch.int64)


def _as_real(values: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(values.to(torch.complex128)).reshape(-1)


def _judge(row: DetailRow, bench: torch.Tensor, tested: torch.Tensor) -> None:
    if not bench.numel():
        row.status = Status.PASS
        return
    figures = measure(_rounded(bench, tested.dtype), tested)
    row.metrics = {
        "cosine": figures.cosine,
        "max_absolute": figures.max_absolute,
        "max_relative": figures.max_relative,
    }
    row.status, row.message = _verdict(figures, tested.dtype)


def _verdict(figures: Figures, dtype: torch.dtype) -> tuple[Status, str]:
    if figures.disagree:
        return Status.ERROR, f"inf/nan differ at {figures.disagree} of {figures.count} positions "
    messages = []
    if not figures.cosine > COSINE_ABOVE:
        messages.append(f"cosine similarity is less than threshold: {COSINE_ABOVE} ")
    if not figures.max_absolute < ABSOLUTE_BELOW:
        messages.append(f"max absolute difference is greater than threshold: {ABSOLUTE_BELOW} ")
    share = figures.max_absolute / figures.scale if figures.scale else 0.0
    if not messages:
        if share > _BLIND_SHARE:  # the limits are absolute: they cannot see errors among such small values
            return Status.PASS, (
                f"the largest value of the reference is {figures.scale:.3g}, and the largest error {share:.2%} of it: "
                f"less than the threshold {ABSOLUTE_BELOW} can see "
            )
        return Status.PASS, ""
    unit = torch.finfo(dtype).eps / 2 if dtype.is_floating_point else 0.0
    if len(messages) == 1 and figures.max_absolute <= _ROUNDING_UNITS * unit * figures.scale:
        messages.append(
            f"(the largest error is {share:.3g} of the largest value, within {_ROUNDING_UNITS:g} roundings of "
            f"{dtype_name(dtype)}: rounding at this scale can explain it) "
        )
    return Status.ERROR, "".join(messages)


def _rounded(bench: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The reference in the dtype under test, where that is a narrower float."""
    narrower = dtype.itemsize < bench.dtype.itemsize
    if bench.dtype.is_floating_point and dtype.is_floating_point and narrower:
        return bench.to(dtype)
    return bench.to(dtype) if bench.dtype.is_complex and dtype.is_complex and narrower else bench


def _tensor(value: object) -> torch.Tensor | None:
    """A value as a tensor; None where it is no number, or larger than any tensor holds."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64)
    return torch.tensor(value) if isinstance(value, int) and abs(value) < 1 << 63 else None


def _compare_plain(bench: object, tested: object) -> DetailRow:
    """Compare values that are no tensors: numbers as tensors are, others by equality."""
    row = DetailRow("", _type_name(bench), _type_name(tested), "()", status=Status.ERROR)
    left, right = _tensor(bench), _tensor(tested)
    if left is not None and right is not None:
        _judge(row, left, right)
        return row
    same = type(bench) is type(tested) and bench == tested
    row.status = Status.PASS if same else Status.ERROR
    row.message = "" if same else f"the values differ: {bench!r:.60} in the reference, {tested!r:.60} here "
    return row


def _type_name(value: object) -> str:
    return dtype_name(value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__


def _shape_text(value: object) -> str:
    return str(tuple(value.shape)) if isinstance(value, torch.Tensor) else "()"


def compare_lists(bench: Sequence[object], tested: Sequence[object]) -> list[DetailRow]:
    """Compare outputs one by one.

    Parameters
    ----------
    bench, tested : sequence of object
        Leaves in order.

    Returns
    -------
    list of DetailRow
        One for each of the longer list, without names; what one side lacks is an error.
    """
    rows = [compare_values(left, right) for left, right in zip(bench, tested, strict=False)]
    for place in range(len(rows), max(len(bench), len(tested))):
        side, there = ("the reference", tested) if place >= len(bench) else ("the tested side", bench)
        row = DetailRow("", status=Status.ERROR, shape=_shape_text(there[place]))
        row.message = f"{side} has no such output: {len(bench)} in the reference, {len(tested)} here "
        if there is bench:
            row.bench_dtype = _type_name(there[place])
        else:
            row.device_dtype = _type_name(there[place])
        rows.append(row)
    return rows
