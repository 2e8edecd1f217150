"""Alignment of two op sequences: a longest common subsequence of fuzzy keys. Pure: integer codes in, positions out.

Small problems are solved by an exact programme in numpy, large ones by the compiled loops of `alignment_loops`, which
only then are imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

CELLS: Final = 4_000_000  # cells of the exact programme in numpy: 32 MB and some tens of milliseconds
_ROWS: Final = 50_000  # each row of the programme costs some microseconds, however narrow the band is
_REDUCTIONS: Final = 10  # rounds of dropping and trimming; more than a few are rare

# One number orders alignments: pairs first, then pairs of equal marks, then pairs of equal names.
PAIR: Final = 1 << 42
MARK: Final = 1 << 21
NAME: Final = 1
MOST_PAIRS: Final = 2_000_000  # of one programme: its counts stay below 2 ** 21, its scores below 2 ** 63


@dataclass(frozen=True, slots=True)
class OpSequence:
    """Ops of one side in execution order, as integer codes that mean the same on both sides.

    Attributes
    ----------
    keys : ndarray of int, shape (n,)
        Code of the fuzzy key: the name without its call index. Only ops of equal keys pair.
    marks : ndarray of int, shape (n,)
        Code of a stronger identity: the structure and shapes of the op's rows.
    names : ndarray of int, shape (n,)
        Code of the full name.
    """

    keys: NDArray[Any]
    marks: NDArray[Any]
    names: NDArray[Any]

    def __post_init__(self) -> None:
        shapes = {self.keys.shape, self.marks.shape, self.names.shape}
        if len(shapes) > 1 or self.keys.ndim != 1:
            raise ValueError(f"keys, marks and names must be flat and of one length, not of shapes {sorted(shapes)}")


@dataclass(frozen=True, slots=True)
class Alignment:
    """Which op meets which.

    Attributes
    ----------
    target, golden : ndarray of uint32, shape (pairs,)
        Positions of matched ops; both increase.
    exact : bool
        Whether no longer alignment exists. If false, search was cut short: order is kept and no gap holds two ops that could
        still pair, but a longer alignment may exist.
    """

    target: NDArray[np.uint32]
    golden: NDArray[np.uint32]
    exact: bool


@dataclass(frozen=True, slots=True)
class _Side:
    """What is left of a sequence, and where it stood."""

    keys: NDArray[Any]
    marks: NDArray[Any]
    names: NDArray[Any]
    at: NDArray[np.int64]

    def __getitem__(self, part: slice | NDArray[np.bool_]) -> _Side:
        return _Side(self.keys[part], self.marks[part], self.names[part], self.at[part])


def align(target: OpSequence, golden: OpSequence) -> Alignment:
    """Pair ops of equal keys so that both orders are kept and as many pair as can.

    Parameters
    ----------
    target, golden : OpSequence
        The two sides, coded by the same dictionaries. Fewer than 2**31 ops a side.

    Returns
    -------
    Alignment
        As many pairs as possible; among such alignments one with the most pairs of equal marks, then of equal names, then the
        one whose pairs come first. Very long sequences keep the number of pairs but may miss a few equal marks or names; if they
        also differ in very many places, ``exact`` is false. ``align(golden, target)`` gives the same pairs.
    """
    front, core_target, core_golden, back = _reduced(target, golden)
    swapped = _order(core_target) > _order(core_golden)
    first, second = (core_golden, core_target) if swapped else (core_target, core_golden)
    first_at, second_at, exact = _solved(first, second)
    core = first.at[first_at], second.at[second_at]
    pieces = [*front, core[::-1] if swapped else core, *reversed(back)]
    at_target, at_golden = (np.concatenate(side).astype(np.uint32) for side in zip(*pieces, strict=True))
    return Alignment(at_target, at_golden, exact)


_Pieces = list[tuple[NDArray[np.int64], NDArray[np.int64]]]


def _reduced(target: OpSequence, golden: OpSequence) -> tuple[_Pieces, _Side, _Side, _Pieces]:
    """Drop ops whose key only one side has, and pair equal ops at both ends: neither costs a pair or an equal mark."""
    codes, dense = np.unique(np.concatenate([target.keys, golden.keys]), return_inverse=True)
    size = target.keys.size
    a = _Side(dense[:size].astype(np.int32), target.marks, target.names, np.arange(size))
    b = _Side(dense[size:].astype(np.int32), golden.marks, golden.names, np.arange(golden.keys.size))
    front: _Pieces = []
    back: _Pieces = []
    for _ in range(_REDUCTIONS):
        before = a.at.size + b.at.size
        here = [np.zeros(codes.size, np.bool_) for _ in range(2)]
        here[0][a.keys] = True
        here[1][b.keys] = True
        shared = here[0] & here[1]
        a, b = a[shared[a.keys]], b[shared[b.keys]]
        head = _agreeing(a, b)
        front.append((a.at[:head], b.at[:head]))
        a, b = a[head:], b[head:]
        tail = _agreeing(a[::-1], b[::-1])
        back.append((a.at[a.at.size - tail :], b.at[b.at.size - tail :]))
        a, b = a[: a.at.size - tail], b[: b.at.size - tail]
        if a.at.size + b.at.size == before:
            break
    return front, a, b, back


def _agreeing(a: _Side, b: _Side) -> int:
    """How many ops at the start agree in key, mark and name."""
    size = min(a.at.size, b.at.size)
    start, step = 0, 1024
    while start < size:  # a first difference near the start must not cost a look at everything
        stop = min(start + step, size)
        part = slice(start, stop)
        unequal = (a.keys[part] != b.keys[part]) | (a.marks[part] != b.marks[part]) | (a.names[part] != b.names[part])
        if unequal.any():
            return start + int(unequal.argmax())
        start, step = stop, step * 2
    return size


def _order(side: _Side) -> tuple[int, ...]:
    """What decides which side is worked on as the first one, whichever the caller called target: the shorter, then the smaller.

    Equal ends are trimmed, so two sides that are not empty differ in their first op.
    """
    first = [int(codes[0]) for codes in (side.keys, side.marks, side.names) if codes.size]
    return side.at.size, *first


def _solved(first: _Side, second: _Side) -> tuple[NDArray[Any], NDArray[Any], bool]:
    """Align what is left; the first side is not the longer one."""
    n, m = first.at.size, second.at.size
    if n * m <= CELLS:
        return *programme(first, second, n + m), True
    edits = CELLS // n - 1
    if n <= _ROWS and edits > m - n:
        # Sequences with few differences need only the cells near the diagonal. If what is found there has no more differences
        # than the band allows for, every best alignment lies inside the band.
        found = programme(first, second, edits)
        if n + m - 2 * found[0].size <= edits:
            return *found, True
    from opassay.kernels import alignment_loops  # numba takes seconds to import, and to compile for the first time

    return alignment_loops.aligned(
        first.keys, second.keys, first.marks, second.marks, first.names, second.names, alignment_loops.LIMITS
    )


def programme(first: Any, second: Any, edits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The exact programme: best among all alignments with at most so many unpaired ops.

    Parameters
    ----------
    first, second : object with ``keys``, ``marks``, ``names``
        Sequences of n and m ops; n x min(m + 1, edits + 1) scores are held at once.
    edits : int
        At least ``abs(n - m)``. ``n + m`` allows everything.

    Returns
    -------
    first, second : ndarray of int64, shape (pairs,)
        Positions, increasing.
    """
    # Sequences are read from their ends, so that walking back over the scores starts at the front and takes the first of equals.
    keys, marks, names = (codes[::-1] for codes in (first.keys, first.marks, first.names))
    other_keys, other_marks, other_names = (codes[::-1] for codes in (second.keys, second.marks, second.names))
    n, m = keys.size, other_keys.size
    if n == 0 or m == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    behind, ahead = min(n, (edits + n - m) // 2), min(m, (edits + m - n) // 2)  # unpaired ops of either side, at most
    order = np.argsort(other_keys, kind="stable")
    codes, starts = np.unique(other_keys[order], return_index=True)
    columns_of = dict(zip(codes.tolist(), np.split(order, starts[1:]), strict=True))
    lows = [max(0, i - behind) for i in range(n + 1)]
    scores = np.full((n + 1, min(m, behind + ahead) + 1), -1, np.int64)
    row = np.full(
        m + 1, -1, np.int64
    )  # score of the best alignment of i ops of the first and j of the second side, at j
    row[: ahead + 1] = 0
    scores[0, : ahead + 1] = 0
    nowhere = np.zeros(0, np.int64)
    for i, (key, mark, name) in enumerate(zip(keys.tolist(), marks.tolist(), names.tolist(), strict=True), 1):
        low, high = lows[i], min(m, i + ahead)
        columns = columns_of.get(key, nowhere)
        if columns.size and (low > 1 or high < m):
            columns = columns[columns.searchsorted(max(low, 1) - 1) : columns.searchsorted(high)]
        if columns.size:
            gain = PAIR + MARK * (other_marks[columns] == mark) + NAME * (other_names[columns] == name)
            row[columns + 1] = np.maximum(row[columns] + gain, row[columns + 1])
        # Leaving an op out costs nothing, so a score is the largest one to its left: one running maximum a row.
        part = scores[i, : high - low + 1]
        np.maximum.accumulate(row[low : high + 1], out=part)
        row[low : high + 1] = part
    return _walked(scores, lows, (keys, marks, names), (other_keys, other_marks, other_names))


def _walked(
    scores: NDArray[np.int64], lows: list[int], first: tuple[NDArray[Any], ...], second: tuple[NDArray[Any], ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Walk back over the scores of two reversed sequences; pairs in the order of the sequences as they were."""
    keys, marks, names = (codes.tolist() for codes in first)
    other_keys, other_marks, other_names = (codes.tolist() for codes in second)
    width = scores.shape[1]
    i, j = n, m = len(keys), len(other_keys)
    pairs: list[tuple[int, int]] = []
    while i and j:
        score = scores[i, j - lows[i]]
        if keys[i - 1] == other_keys[j - 1]:
            gain = PAIR + MARK * (marks[i - 1] == other_marks[j - 1]) + NAME * (names[i - 1] == other_names[j - 1])
            if scores[i - 1, j - 1 - lows[i - 1]] + gain == score:
                pairs.append((n - i, m - j))
                i, j = i - 1, j - 1
                continue
        above = j - lows[i - 1]
        if above < width and scores[i - 1, above] == score:
            i -= 1
        else:
            j -= 1
    found = np.array(pairs, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]
