"""The six tensor metrics of one pair, recomputed from the files in extended precision: slow and plain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.parity.dump import DumpRow

Wide = np.longdouble
DIGITS = {  # bits of the significand, exponent of the smallest normal number
    "float64": (53, -1022),
    "float32": (24, -126),
    "float16": (11, -14),
    "bfloat16": (8, -126),
    "float8_e4m3fn": (4, -6),
    "float8_e4m3fnuz": (4, -7),
    "float8_e5m2": (3, -14),
    "float8_e5m2fnuz": (3, -15),
    "complex128": (53, -1022),
    "complex64": (24, -126),
}


@dataclass(frozen=True)
class Loaded:
    """A tensor file as extended-precision numbers: real and imaginary parts, shape and dtype name."""

    real: np.ndarray[Any, Any]
    imaginary: np.ndarray[Any, Any] | None
    shape: tuple[int, ...]
    dtype: str


@lru_cache(maxsize=256)
def load(path: Path) -> Loaded | str:
    """The file's numbers, or ``missing`` or ``unreadable``."""
    if not path.is_file():
        return "missing"
    try:
        if path.suffix == ".npy":
            array = np.load(path, allow_pickle=False)
            kind = str(array.dtype)
        else:
            import torch

            tensor = torch.load(path, map_location="cpu", weights_only=True)
            if not isinstance(tensor, torch.Tensor):
                return "unreadable"
            kind = str(tensor.dtype).removeprefix("torch.")
            if tensor.is_quantized:
                tensor = tensor.dequantize()
            if tensor.layout != torch.strided:
                tensor = tensor.to_dense()
            if kind == "bfloat16" or kind.startswith("float8"):
                tensor = tensor.float()
            elif kind == "complex32":
                tensor = tensor.to(torch.complex64)
            array = tensor.detach().resolve_conj().resolve_neg().numpy()
        if array.dtype.kind not in "biufc":
            return "unreadable"
    except Exception:  # any fault of a foreign file means the same here
        return "unreadable"
    imaginary = array.imag.astype(Wide).ravel() if array.dtype.kind == "c" else None
    return Loaded(array.real.astype(Wide).ravel(), imaginary, tuple(array.shape), kind)


def load_row(row: DumpRow) -> Loaded | str:
    """A row's numbers; of a row with parts, theirs one behind the other."""
    if not row.parts:
        return load(row.folder / row.data_name)
    parts = [load(part.folder / part.data_name) for part in row.parts[: None if row.axis is not None else 1]]
    for found in parts:
        if isinstance(found, str):
            return found
    whole = [part for part in parts if isinstance(part, Loaded)]
    if len(whole) == 1:
        return whole[0]
    try:
        real = np.concatenate([part.real.reshape(part.shape) for part in whole], axis=row.axis)
    except ValueError:
        return "unreadable"
    dtype = whole[0].dtype if len({part.dtype for part in whole}) == 1 else "float64"
    return Loaded(real.ravel(), None, real.shape, dtype)


@dataclass(frozen=True)
class Measured:
    """What measuring a pair gives.

    Attributes
    ----------
    state : str
        ``computed``, ``one element``, ``empty``, ``no file recorded``, ``missing``, ``unreadable`` or ``shape``.
    figures : dict
        Metric title -> float; empty unless ``computed`` or ``one element`` (then with the ratios too).
    size, finite, equal_special, nan_mismatch, inf_mismatch : int
        Elements; finite on both sides; equal nan and infinities; the two kinds of mismatch.
    golden_zeros : int
        Finite elements with golden 0 and target not 0.
    near_limits : int
        Elements whose relative error is within 1e-5 of one of the two limits.
    differing : int
        Finite elements that differ.
    within_rounding : bool
        Whether every element that differs does so within decision 18.
    worst_share : float
        Largest difference over the largest golden magnitude (inf where that is 0 and something differs).
    exotic : str
        ``complex``, ``wide integer``, ``tiny``, ``huge`` or ``""``: where the incumbent's arithmetic is known to fail.
    """

    state: str
    figures: dict[str, float]
    size: int = 0
    finite: int = 0
    equal_special: int = 0
    nan_mismatch: int = 0
    inf_mismatch: int = 0
    golden_zeros: int = 0
    near_limits: int = 0
    differing: int = 0
    within_rounding: bool = False
    worst_share: float = 0.0
    exotic: str = ""


def _squeeze(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def _split(one: Loaded, other: Loaded) -> tuple[np.ndarray[Any, Any], int, int, int]:
    """Mask of elements finite on both sides; equal special ones; nan and infinity mismatches."""
    parts = [(one.real, other.real)]
    if one.imaginary is not None or other.imaginary is not None:
        zero = np.zeros_like(one.real)
        parts.append(
            (
                one.imaginary if one.imaginary is not None else zero,
                other.imaginary if other.imaginary is not None else zero,
            )
        )
    finite = np.ones(one.real.shape, bool)
    same = np.ones(one.real.shape, bool)
    nan = [np.zeros(one.real.shape, bool), np.zeros(one.real.shape, bool)]
    for a, b in parts:
        finite &= np.isfinite(a) & np.isfinite(b)
        same &= (a == b) | (np.isnan(a) & np.isnan(b))
        nan[0] |= np.isnan(a)
        nan[1] |= np.isnan(b)
    mixed = ~finite & ~same
    nan_mismatch = mixed & (nan[0] != nan[1])
    return finite, int((~finite & same).sum()), int(nan_mismatch.sum()), int((mixed & ~nan_mismatch).sum())


def _unit(values: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Distance to the next number of that dtype at each magnitude; 0 for exact kinds."""
    if dtype not in DIGITS:
        return np.zeros_like(values)
    digits, smallest = DIGITS[dtype]
    _, exponent = np.frexp(values)
    exponent = np.maximum(np.where(values == 0, smallest, exponent - 1), smallest)
    return np.asarray(np.ldexp(Wide(1), exponent - (digits - 1)))


def _norm(values: np.ndarray[Any, Any]) -> np.longdouble:
    return Wide(np.sqrt((values * values).sum()))


def _modulus(real: np.ndarray[Any, Any], imaginary: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any]:
    return np.abs(real) if imaginary is None else np.asarray(np.hypot(real, imaginary))


def _exotic(one: Loaded, other: Loaded, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> str:
    if one.imaginary is not None or other.imaginary is not None:
        return "complex"
    if any(x.dtype in ("int64", "uint64") for x in (one, other)) and max(a.max(initial=0), b.max(initial=0)) > 2**53:
        return "wide integer"
    if min(_norm(a), _norm(b)) <= 2.23e-16:
        return "tiny"
    return "huge" if max(a.max(initial=0), b.max(initial=0)) > 1e150 else ""


def _figures(
    one: Loaded, other: Loaded, state: str, keep: np.ndarray[Any, Any], counts: tuple[int, int, int]
) -> Measured:
    special, nan_mismatch, inf_mismatch = counts
    zero = np.zeros(int(keep.sum()), Wide)
    ar, br = one.real[keep], other.real[keep]
    ai = zero if one.imaginary is None else one.imaginary[keep]
    bi = zero if other.imaginary is None else other.imaginary[keep]
    a, b, gap = _modulus(ar, ai), _modulus(br, bi), _modulus(ar - br, ai - bi)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(gap == 0, Wide(0), gap / b)
    size = one.real.size
    finite = int(keep.sum())
    target_norm, golden_norm = _norm(a), _norm(b)
    cosine = math.nan
    if target_norm == 0 and golden_norm == 0:
        cosine = 1.0
    elif target_norm > 0 and golden_norm > 0:
        cosine = float(((ar / target_norm) * (br / golden_norm) + (ai / target_norm) * (bi / golden_norm)).sum())
    error = float(gap.max(initial=Wide(0)))
    distance = float(_norm(gap))
    if inf_mismatch:
        error = distance = math.inf
    if nan_mismatch:
        error = distance = math.nan
    undefined = finite == 0 and (nan_mismatch or inf_mismatch)
    share = math.nan if undefined else 1.0
    figures = {
        "Cosine": math.nan if undefined else cosine,
        "EucDist": distance,
        "MaxAbsErr": error,
        "MaxRelativeErr": math.nan if undefined else float(relative.max(initial=Wide(0))),
        "One Thousandth Err Ratio": float((relative < 0.001).sum()) / finite if finite else share,
        "Five Thousandth Err Ratio": float((relative < 0.005).sum()) / finite if finite else share,
    }
    coarser = min((one.dtype, other.dtype), key=lambda d: DIGITS.get(d, (99, 0))[0])
    digits = DIGITS.get(coarser, (0, 0))[0]
    noise = Wide(2.0) ** (1 - digits) * golden_norm / Wide(math.sqrt(finite)) if digits and finite else Wide(0)
    allowed = np.maximum(_unit(b, coarser), noise)
    worst, largest = gap.max(initial=Wide(0)), b.max(initial=Wide(0))
    return Measured(
        state,
        figures,
        size,
        finite,
        special,
        nan_mismatch,
        inf_mismatch,
        int(((b == 0) & (a != 0)).sum()),
        int(((np.abs(relative / 0.001 - 1) < 1e-5) | (np.abs(relative / 0.005 - 1) < 1e-5)).sum()),
        int((gap != 0).sum()),
        not nan_mismatch and not inf_mismatch and bool((gap <= allowed).all()),
        float(worst / largest) if largest > 0 else (math.inf if worst > 0 else 0.0),
        _exotic(one, other, a, b),
    )


def measure(target: DumpRow, golden: DumpRow) -> Measured:
    """Measure one pair of rows that both hold tensors."""
    if not target.data_name or not golden.data_name:
        if target.elements == 0 and target.shape == golden.shape and target.dtype == golden.dtype:
            return Measured("empty", {})
        return Measured("no file recorded", {})
    sides = [load_row(row) for row in (target, golden)]
    one, other = sides
    if isinstance(one, str) or isinstance(other, str):
        return Measured("missing" if "missing" in sides else "unreadable", {})
    if _squeeze(one.shape) != _squeeze(other.shape):
        return Measured("shape", {})
    if one.real.size == 0:
        return Measured("empty" if one.shape == other.shape and one.dtype == other.dtype else "shape", {})
    keep, *counts = _split(one, other)
    state = "one element" if not _squeeze(one.shape) else "computed"
    return _figures(one, other, state, keep, (counts[0], counts[1], counts[2]))
