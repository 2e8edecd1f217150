"""Reads the tensors of calls: digests of their bits, whether a result is the reduction of its inputs, where two of them differ.

Every file is read in windows and closed again, so that a group of hundreds of ranks needs few descriptors and little memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from opassay.kernels.decode import to_float64
from opassay.kernels.reduction import Misfit, Reduction, can_reduce
from opassay.pipeline.read.tensors import TensorFile, TensorMissing, TensorUnreadable, open_tensor
from opassay.schemas.dtypes import DType

WINDOW: Final = 1 << 18  # elements; a reduction holds a few arrays of float64 of this length
_HASHED: Final = 1 << 20

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Cutting:
    """A tensor file and the parts that it is cut into.

    Attributes
    ----------
    path : str
        The file.
    parts : int
        How many equal ones.
    rows : tuple of int
        Lengths along the first dimension, where they are not equal; () else.
    """

    path: str
    parts: int = 1
    rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Digests:
    """What a cut tensor holds.

    Attributes
    ----------
    parts : tuple of str
        Type, count and digest of each part; () where it could not be read.
    sizes : tuple of int
        Elements of each.
    trouble : str
        Why it could not be read.
    """

    parts: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ReductionJob:
    """A result and its inputs.

    Attributes
    ----------
    result : str
        File of the result.
    inputs : tuple of str
        Files of the inputs.
    op : str
        SUM, AVG ...
    place : int or None
        Which part of each input goes into this result, where inputs hold a part for every rank; None for all of it.
    """

    result: str
    inputs: tuple[str, ...]
    op: str
    place: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """``held`` (None where it could not be told) and the reason where it is not True."""

    held: bool | None
    why: str = ""


def in_threads(work: Callable[[T], R], tasks: Sequence[T], workers: int) -> list[R]:
    """Results in the order of the tasks, whatever the number of threads."""
    if workers < 2 or len(tasks) < 2:
        return [work(task) for task in tasks]
    with ThreadPoolExecutor(workers) as threads:
        return list(threads.map(work, tasks))


def digests(cutting: Cutting) -> Digests:
    """Digests of a tensor's parts; what cannot be read gives a reason."""
    try:
        with open_tensor(cutting.path, mapped=False) as file:
            sizes = _sizes(file, cutting)
            if sizes is None:
                parts = "+".join(map(str, cutting.rows)) or str(cutting.parts)
                return Digests(trouble=f"{file.found} cannot be cut into {parts} parts")
            found, start = [], 0
            for size in sizes:
                found.append(f"{file.dtype.name}:{size}:{_digest(file, start, size)}")
                start += size
            return Digests(tuple(found), tuple(sizes))
    except (TensorMissing, TensorUnreadable) as error:
        return Digests(trouble=str(error))


def _sizes(file: TensorFile, cutting: Cutting) -> list[int] | None:
    if cutting.rows:
        length = file.shape[0] if file.shape else 1
        if sum(cutting.rows) != length or min(cutting.rows) < 0:
            return None
        return [rows * (file.size // length) if length else 0 for rows in cutting.rows]
    if file.size % cutting.parts:
        return None
    return [file.size // cutting.parts] * cutting.parts


def _digest(file: TensorFile, start: int, size: int) -> str:
    found = hashlib.blake2b(digest_size=16)
    for begin in range(start, start + size, _HASHED):
        found.update(np.ascontiguousarray(file.read(begin, min(_HASHED, start + size - begin))).data)
    return found.hexdigest()


def reduce(job: ReductionJob) -> Finding:
    """Whether a result is the reduction of its inputs, within rounding."""
    try:
        with open_tensor(job.result, mapped=False) as result:
            return _reduced(job, result)
    except (TensorMissing, TensorUnreadable) as error:
        return Finding(None, str(error))


def _reduced(job: ReductionJob, result: TensorFile) -> Finding:
    if not can_reduce(job.op, result.dtype):
        return Finding(None, f"the reduction {job.op} of {result.dtype.name} was not verified")
    due = result.size * (1 if job.place is None else len(job.inputs))
    offset = result.size * (job.place or 0)
    bad = 0
    first: tuple[int, Misfit] | None = None
    for start in range(0, result.size, WINDOW):
        count = min(WINDOW, result.size - start)
        reduction = Reduction(job.op, result.dtype)
        for path in job.inputs:
            with open_tensor(path, mapped=False) as file:
                if file.dtype is not result.dtype or file.size != due:
                    return Finding(None, f"an input is {file.found} and its result {result.found}: not verified")
                reduction.add(file.read(offset + start, count))
        misfit = reduction.misfit(result.read(start, count))
        if misfit.bad and first is None:
            first = start + misfit.first, misfit
        bad += misfit.bad
    if first is None:
        return Finding(True)
    place = _place(first[0], result.shape)
    return Finding(
        False,
        f"its output is not the {job.op} of the inputs: {bad:,} of {result.size:,} elements are off by more than rounding, "
        f"the first at {place}: {_figures(first[1].found, first[1].due)}",
    )


def difference(ours: str, theirs: str, our_start: int = 0, their_start: int = 0, count: int | None = None) -> str:
    """How two tensors (or runs of ``count`` elements of them) differ, for a message; "" where that cannot be told."""
    try:
        with open_tensor(ours, mapped=False) as a, open_tensor(theirs, mapped=False) as b:
            size = a.size if count is None else count
            if a.dtype is not b.dtype or our_start + size > a.size or their_start + size > b.size:
                return ""
            bad, first = 0, ""
            for start in range(0, size, WINDOW):
                run = min(WINDOW, size - start)
                left, right = a.read(our_start + start, run), b.read(their_start + start, run)
                other = np.flatnonzero(_bits(left) != _bits(right))
                if other.size and not first:
                    at = int(other[0])
                    place = _place(our_start + start + at // (2 if a.dtype.kind == "complex" else 1), a.shape)
                    first = f"the first at {place}: {_figures(_value(left, at, a.dtype), _value(right, at, b.dtype))}"
                bad += other.size
            return f"{bad:,} of {size:,} elements differ, {first}" if bad else ""
    except (TensorMissing, TensorUnreadable):
        return ""


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def _value(values: NDArray[Any], at: int, dtype: DType) -> float:
    return float(to_float64(values[at : at + 1], dtype)[0])


def _figures(found: float, due: float) -> str:
    """``2.5 for 0.333333``: six digits of each, or all where six do not tell them apart."""
    short = [repr(float(f"{value:.6g}")) for value in (found, due)]
    return " for ".join(short if short[0] != short[1] else [repr(float(found)), repr(float(due))])


def _place(index: int, shape: Iterable[int]) -> str:
    sizes = tuple(shape)
    return str([int(k) for k in np.unravel_index(index, sizes)]) if 0 < len(sizes) <= 64 else "the only element"
