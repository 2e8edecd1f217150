"""Where the elements of a tensor stand that is put together from several: concatenations, blocks in another order, cuts.

Nothing is read here. An `Arrangement` says for every element which part holds it, so that a joined tensor of any size is
read window by window like a file; `candidates` lists what the shapes allow, `misfit` says how well values agree.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from opassay.kernels.decode import to_float64
from opassay.schemas.dtypes import DType

Shape = tuple[int, ...]
Run = tuple[int, int, int]
"""Part, first element within a row of that part, count."""

_SAMPLE: Final = 1 << 14  # elements of one look at a large tensor
_LOOKS: Final = 8
_MOST_HEADS: Final = 64  # query heads for each key head, at most
_MARGIN: Final = 0.5  # of the squared error: another order of blocks must be that much closer, or chance would choose
_CONFIRMED: Final = 0.25  # of the squared norm: closer than this is no coincidence


class ShapesDoNotFit(ValueError):
    """Parts whose shapes do not make one tensor; the message is one line that names them."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A tensor in C order as runs of elements of its parts.

    Attributes
    ----------
    shape : tuple of int
        Of the whole.
    rows : int
        Times the runs repeat, each time one row further in every part.
    lengths : tuple of int
        Elements of one row in each part, used or not.
    runs : tuple of (int, int, int)
        One row of the whole: part, first element within the part's row, count.
    skipped : int
        Elements of the runs before the first of the whole.
    """

    shape: Shape
    rows: int
    lengths: tuple[int, ...]
    runs: tuple[Run, ...]
    skipped: int = 0

    @property
    def size(self) -> int:
        """Elements of the whole."""
        return math.prod(self.shape)

    @property
    def used(self) -> frozenset[int]:
        """Numbers of the parts that the runs read."""
        return frozenset(part for part, _, _ in self.runs)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to put parts together along an axis.

    Attributes
    ----------
    axis, copies : int
        The axis; how many neighbouring parts hold the same elements (1: every part has its own).
    orders : iterable of (str, tuple of Arrangement)
        Orders of the blocks, the plain one ("") first; of each one arrangement a copy, which should all be the same tensor.
        Made as they are asked for, and only once.
    """

    axis: int
    copies: int
    orders: Iterable[tuple[str, tuple[Arrangement, ...]]]


@dataclass(frozen=True, slots=True, order=True)
class Misfit:
    """How far two tensors are apart; the smaller one fits better.

    Attributes
    ----------
    mismatches : int
        Places where one side is not finite and the other is something else.
    error : float
        Sum of |t - g|**2 over the places that are finite on both sides.
    norm : float
        Sum of |g|**2 over the same places.
    """

    mismatches: int = 0
    error: float = 0.0
    norm: float = field(default=0.0, compare=False)

    def __add__(self, other: Misfit) -> Misfit:
        return Misfit(self.mismatches + other.mismatches, self.error + other.error, self.norm + other.norm)

    def confirms(self) -> bool:
        """Whether the two are the same tensor rather than two of one shape."""
        return not self.mismatches and self.error <= _CONFIRMED * self.norm

    def closer_than(self, other: Misfit) -> bool:
        """Whether it fits better by more than chance."""
        return (self.mismatches, self.error) < (other.mismatches, _MARGIN * other.error)


def squeezed(shape: Shape) -> Shape:
    """A shape without its dimensions of length 1."""
    return tuple(length for length in shape if length != 1)


def shapes_text(shapes: Sequence[Shape]) -> str:
    """``4 parts of shape [2, 3]``, ``2 parts of shapes [2, 3], [2, 4]``; of many different ones the first four."""
    count = f"{len(shapes)} part{'s' if len(shapes) != 1 else ''}"
    if len(set(shapes)) == 1:
        return f"{count} of shape {list(shapes[0])}"
    more = ", ..." if len(shapes) > 4 else ""
    return f"{count} of shapes {', '.join(str(list(shape)) for shape in shapes[:4])}{more}"


def arrange(shapes: Sequence[Shape], axis: int = 0, regroup: Sequence[int] = ()) -> Arrangement:
    """Concatenate parts along an axis.

    Parameters
    ----------
    shapes : sequence of tuple of int
        Of the parts, in order; at least one. One part without ``regroup`` is the tensor itself, whatever the axis.
    axis : int
        Negative counts from the end.
    regroup : sequence of int
        Sizes along the axis of the blocks that repeat group by group: all first blocks come first, then all second ones.

    Raises
    ------
    ShapesDoNotFit
        If there is no such axis, other dimensions differ, or the groups do not fill the axis.
    """
    if len(shapes) == 1 and not regroup:
        return alone(shapes[0])
    dimensions = len(shapes[0])
    if not -dimensions <= axis < dimensions or any(len(shape) != dimensions for shape in shapes):
        raise ShapesDoNotFit(f"{shapes_text(shapes)} have no common axis {axis}")
    axis %= dimensions
    if len({shape[:axis] + shape[axis + 1 :] for shape in shapes}) > 1:
        raise ShapesDoNotFit(f"{shapes_text(shapes)} cannot be put together along axis {axis}: other dimensions differ")
    runs = [(part, 0, shape[axis]) for part, shape in enumerate(shapes)]
    return _along(shapes, axis, _regrouped(runs, regroup) if regroup else runs)


def alone(shape: Shape, part: int = 0, parts: int = 1) -> Arrangement:
    """One part as it is, of several of one shape."""
    size = math.prod(shape)
    return Arrangement(shape, 1, (size,) * parts, ((part, 0, size),) if size else ())


def _along(shapes: Sequence[Shape], axis: int, runs: Sequence[Run]) -> Arrangement:
    """Runs counted along the axis -> an arrangement counted in elements."""
    shape = shapes[0]
    inner = math.prod(shape[axis + 1 :])
    merged: list[Run] = []
    for part, first, count in runs:
        if merged and merged[-1][0] == part and merged[-1][1] + merged[-1][2] == first:
            first, count = merged[-1][1], merged.pop()[2] + count
        if count:
            merged.append((part, first, count))
    length = sum(count for _, _, count in merged)
    return Arrangement(
        (*shape[:axis], length, *shape[axis + 1 :]),
        math.prod(shape[:axis]),
        tuple(one[axis] * inner for one in shapes),
        tuple((part, first * inner, count * inner) for part, first, count in merged if inner),
    )


def _regrouped(runs: Sequence[Run], sizes: Sequence[int]) -> list[Run]:
    """Runs along an axis, block by block in place of group by group."""
    whole, group = sum(count for _, _, count in runs), sum(sizes)
    if min(sizes) < 1 or whole % group:
        raise ShapesDoNotFit(f"groups of blocks of {', '.join(map(str, sizes))} do not fill an axis of length {whole}")
    ends = list(accumulate(count for _, _, count in runs))
    found: list[Run] = []
    for block, size in enumerate(sizes):
        for at in range(sum(sizes[:block]), whole, group):
            stop = at + size
            while at < stop:
                place = bisect_right(ends, at)
                part, first, count = runs[place]
                inside = at - (ends[place] - count)
                taken = min(count - inside, stop - at)
                found.append((part, first + inside, taken))
                at += taken
    return found


def candidates(shapes: Sequence[Shape], wanted: Shape) -> Iterator[Candidate]:
    """Ways to put parts together along one axis that give a shape, dimensions of length 1 aside; the likeliest first.

    Parameters
    ----------
    shapes : sequence of tuple of int
        Of at least two parts.
    wanted : tuple of int
        Shape of the whole.

    Yields
    ------
    Candidate
        First with parts that all hold something of their own, then with neighbours that hold the same (key and value heads
        that fewer groups share than there are ranks), then with fused q, k, v of which k and v are such copies.
    """
    for axis, copies in _plain_fits(shapes, wanted):
        yield Candidate(axis, copies, _orders(shapes, axis, copies))
    for axis in _axes(shapes):
        yield from _fused_copies(shapes, axis, wanted)


def likeliest(shapes: Sequence[Shape], wanted: Shape) -> tuple[int, int, bool, Shape] | None:
    """The first of the `candidates`: axis, copies, whether it is fused q, k, v with copies, and the shape of the whole."""
    for axis, copies in _plain_fits(shapes, wanted):
        return axis, copies, False, _with(shapes[0], axis, sum(shape[axis] for shape in shapes[::copies]))
    for axis in _axes(shapes):
        for way in _fused_copies(shapes, axis, wanted):
            for _, (whole, *_) in way.orders:
                return axis, way.copies, True, whole.shape
    return None


def _axes(shapes: Sequence[Shape]) -> list[int]:
    """Axes along which parts of these shapes can be concatenated."""
    return [
        axis for axis in range(len(shapes[0]))
        if len({(len(shape), shape[:axis], shape[axis + 1 :]) for shape in shapes}) == 1
    ]  # fmt: skip


def _plain_fits(shapes: Sequence[Shape], wanted: Shape) -> Iterator[tuple[int, int]]:
    """Axes and copies with which concatenation gives the wanted shape."""
    axes = _axes(shapes)
    for copies in (number for number in range(1, len(shapes)) if len(shapes) % number == 0):
        for axis in axes:
            lengths = [shape[axis] for shape in shapes]
            fits = squeezed(_with(shapes[0], axis, sum(lengths[::copies]))) == squeezed(wanted)
            if fits and (copies == 1 or len(set(lengths)) == 1):
                yield axis, copies


def _with(shape: Shape, axis: int, length: int) -> Shape:
    return (*shape[:axis], length, *shape[axis + 1 :])


def _orders(shapes: Sequence[Shape], axis: int, copies: int) -> Iterator[tuple[str, tuple[Arrangement, ...]]]:
    """The plain order, then the blocks that fused projections put side by side on every rank."""
    members = [range(offset, len(shapes), copies) for offset in range(copies)]

    def split(sizes: Sequence[int]) -> tuple[Arrangement, ...]:
        firsts = [0, *accumulate(sizes)]
        return tuple(
            _along(
                shapes, axis, [(part, first, size) for first, size in zip(firsts, sizes, strict=False) for part in one]
            )
            for one in members
        )

    yield "", tuple(_along(shapes, axis, [(part, 0, shapes[part][axis]) for part in one]) for one in members)
    length = shapes[0][axis]
    if len(members[0]) < 2 or any(shape[axis] != length for shape in shapes):
        return
    if length and length % 2 == 0:
        yield "blocks (gate, up)", split((length // 2,) * 2)
    for heads in range(1, _MOST_HEADS + 1):
        if length and length % (heads + 2) == 0:
            one = length // (heads + 2)
            yield "blocks (q, k, v)", split((heads * one, one, one))


def _fused_copies(shapes: Sequence[Shape], axis: int, wanted: Shape) -> Iterator[Candidate]:
    """Fused q, k, v where every ``copies`` neighbours hold the same k and v: the missing length tells how long these are."""
    count, length = len(shapes), shapes[0][axis]
    if any(shape[axis] != length for shape in shapes):
        return
    total, odd = divmod(math.prod(wanted), max(1, math.prod(_with(shapes[0], axis, 1))))
    if odd or squeezed(_with(shapes[0], axis, total)) != squeezed(wanted):
        return
    for copies in (number for number in range(2, count + 1) if count % number == 0):
        one, odd = divmod(count * length - total, 2 * (count - count // copies))
        queries = length - 2 * one
        if odd or one < 1 or queries < 1:
            continue
        arranged = tuple(
            _along(
                shapes,
                axis,
                [
                    *((part, 0, queries) for part in range(count)),
                    *((part, queries, one) for part in range(offset, count, copies)),
                    *((part, queries + one, one) for part in range(offset, count, copies)),
                ],
            )
            for offset in range(copies)
        )
        yield Candidate(axis, copies, (("blocks (q, k, v)", arranged),))


def cuts(whole: Arrangement, wanted: Shape) -> list[Arrangement]:
    """A longer first dimension (of those longer than 1) cut to the wanted shape: at its end, and at its beginning.

    Returns
    -------
    list of Arrangement
        The two in that order; none where the shapes differ in any other way, or not at all.
    """
    long = [axis for axis, length in enumerate(whole.shape) if length != 1]
    if not long or not whole.size:
        return []
    axis, (length, *rest), goal = long[0], squeezed(whole.shape), squeezed(wanted)
    kept = 1 if goal == tuple(rest) else goal[0] if goal[1:] == tuple(rest) and goal else length
    if not 0 < kept < length:
        return []
    shape, inner = _with(whole.shape, axis, kept), math.prod(rest)
    return [replace(whole, shape=shape, skipped=skipped) for skipped in (0, (length - kept) * inner)]


def gather(
    whole: Arrangement,
    start: int,
    count: int,
    fetch: Callable[[int, int, int], NDArray[Any]],
    empty: Callable[[int], NDArray[Any]],
    each: int = 1,
) -> NDArray[Any]:
    """Elements ``start`` to ``start + count`` of the whole.

    Parameters
    ----------
    whole : Arrangement
        Where they stand.
    start, count : int
        In elements, within ``whole.size``.
    fetch : callable
        Elements of a part: its number, first element, count; an array that may be valid until the next call only.
    empty : callable
        An array for so many elements, to be filled.
    each : int
        Numbers an element: 2 for complex, whose parts stand in turn.

    Returns
    -------
    numpy.ndarray, shape (count * each,)
        Part of an array that ``empty`` made.
    """
    row = sum(length for _, _, length in whole.runs)
    start += whole.skipped
    if whole.rows > 1 and 0 < row <= count:
        top, bottom = start // row, -(-(start + count) // row)
        out = empty((bottom - top) * row)
        grid = out.reshape(bottom - top, row, each)
        for part in sorted(whole.used):
            length = whole.lengths[part]
            block = fetch(part, top * length, (bottom - top) * length).reshape(bottom - top, length, each)
            at = 0
            for owner, first, size in whole.runs:
                if owner == part:
                    grid[:, at : at + size] = block[:, first : first + size]
                at += size
        begin = (start - top * row) * each
        return out[begin : begin + count * each]
    out, ends, done = empty(count), list(accumulate(length for _, _, length in whole.runs)), 0
    while done < count:
        line, inside = divmod(start + done, row)
        place = bisect_right(ends, inside)
        part, first, length = whole.runs[place]
        inside -= ends[place] - length
        taken = min(length - inside, count - done)
        out[done * each : (done + taken) * each] = fetch(part, line * whole.lengths[part] + first + inside, taken)
        done += taken
    return out[: count * each]


def sample(size: int) -> list[tuple[int, int]]:
    """Where to look at a tensor of so many elements (start, count): all of a small one, evenly spread pieces of a large one."""
    if size <= _SAMPLE * _LOOKS:
        return [(0, size)] if size else []
    return [((size - _SAMPLE) * look // (_LOOKS - 1), _SAMPLE) for look in range(_LOOKS)]


def misfit(target: NDArray[Any], golden: NDArray[Any], target_kind: DType, golden_kind: DType) -> Misfit:
    """Compare two pieces of equally many elements, given as stored bits."""
    with np.errstate(all="ignore"):
        ours, theirs = _numbers(target, target_kind), _numbers(golden, golden_kind)
        difference, reference, mismatches = np.abs(ours - theirs), np.abs(theirs), 0
        finite = np.isfinite(difference)
        if not finite.all():
            finite = np.isfinite(ours) & np.isfinite(theirs)
            same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
            mismatches = int(np.count_nonzero(~(finite | same)))
            difference, reference = difference[finite], reference[finite]
        # no dot product: that of BLAS depends on how many threads it takes
        return Misfit(mismatches, float(np.sum(difference * difference)), float(np.sum(reference * reference)))


def _numbers(stored: NDArray[Any], kind: DType) -> NDArray[Any]:
    values = to_float64(stored, kind)
    return np.ascontiguousarray(values).view(np.complex128) if kind.kind == "complex" else values
