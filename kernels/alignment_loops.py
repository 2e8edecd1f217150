"""The compiled alignment of long sequences: divide and conquer after Myers, exact programmes at the leaves.

A search from both ends finds a point in the middle of a longest common subsequence and the number of edits (unpaired
ops) on either side of it, in memory linear in the sequences. Boxes are split there until the cells within reach of
their edits are few enough for the exact programme, which also counts marks and names. A search that would take too
long is cut short at the furthest point it reached.

Imported only by `alignment`, because numba is slow to import. All loops are in this one file: numba's disk cache
watches the file of the outermost function alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from opassay.kernels.alignment import MARK, MOST_PAIRS, NAME, PAIR
from opassay.kernels.numba_loops import jit


class Limits(NamedTuple):
    """What a search may cost.

    Attributes
    ----------
    first : int
        Edits from either end in the first search; it takes up to the square of it in steps.
    later : int
        The same in searches after one was cut short.
    cells : int
        Of an exact programme; a byte each.
    """

    first: int
    later: int
    cells: int


LIMITS = Limits(first=45_000, later=1_000, cells=8_000_000)
_NOWHERE = 1 << 30
_UNKNOWN = -1


@jit()
def _forward(a: Any, b: Any, x: int, y: int, box: Any) -> int:
    """Where the run of equal keys from (x, y) ends."""
    while x < box[1] and y < box[3] and a[x] == b[y]:
        x += 1
        y += 1
    return x


@jit()
def _backward(a: Any, b: Any, x: int, y: int, box: Any) -> int:
    """Where the run of equal keys up to (x, y) starts."""
    while x > box[0] and y > box[2] and a[x - 1] == b[y - 1]:
        x -= 1
        y -= 1
    return x


@jit()
def _middle(a: Any, b: Any, box: Any, down: Any, up: Any, limit: int) -> Any:
    """A point of a longest common subsequence near its middle: (x, y, edits before it, edits behind it).

    Cut short after ``limit`` rounds, the furthest point reached from one end; edits on its other side are unknown.
    ``down`` and ``up`` hold, for each diagonal x - y, the furthest x reached from the start and from the end.
    """
    a0, a1, b0, b1 = box
    least, most = a0 - b1, a1 - b0
    zero = 1 - least
    start, end = a0 - b0, a1 - b1
    odd = (start - end) & 1
    down[zero + start] = _forward(a, b, a0, b0, box)
    up[zero + end] = _backward(a, b, a1, b1, box)
    if start == end and down[zero + start] == a1:
        return a1, b1, 0, 0
    down_low = down_high = start
    up_low = up_high = end
    for edits in range(1, limit + 1):
        if down_low > least:
            down_low -= 1
            down[zero + down_low - 1] = -_NOWHERE
        else:
            down_low += 1
        if down_high < most:
            down_high += 1
            down[zero + down_high + 1] = -_NOWHERE
        else:
            down_high -= 1
        for d in range(down_low, down_high + 1, 2):
            x = max(down[zero + d - 1] + 1, down[zero + d + 1])
            if x < a0 or x > a1 or x - d > b1:
                down[zero + d] = -_NOWHERE
                continue
            x = _forward(a, b, x, x - d, box)
            down[zero + d] = x
            if odd and up_low <= d <= up_high and up[zero + d] <= x:
                return x, x - d, edits, edits - 1
        if up_low > least:
            up_low -= 1
            up[zero + up_low - 1] = _NOWHERE
        else:
            up_low += 1
        if up_high < most:
            up_high += 1
            up[zero + up_high + 1] = _NOWHERE
        else:
            up_high -= 1
        for d in range(up_low, up_high + 1, 2):
            x = min(up[zero + d - 1], up[zero + d + 1] - 1)
            if x < a0 or x > a1 or x - d < b0:
                up[zero + d] = _NOWHERE
                continue
            x = _backward(a, b, x, x - d, box)
            up[zero + d] = x
            if not odd and down_low <= d <= down_high and x <= down[zero + d]:
                return x, x - d, edits, edits
    best, best_x, best_d, from_start = -1, a0, start, True
    for d in range(down_low, down_high + 1, 2):
        x = down[zero + d]
        if x >= a0 and x + x - d - a0 - b0 > best:
            best, best_x, best_d = x + x - d - a0 - b0, x, d
    for d in range(up_low, up_high + 1, 2):
        x = up[zero + d]
        if x <= a1 and a1 + b1 - x - x + d > best:
            best, best_x, best_d, from_start = a1 + b1 - x - x + d, x, d, False
    if from_start:
        return best_x, best_x - best_d, limit, _UNKNOWN
    return best_x, best_x - best_d, _UNKNOWN, limit


@jit()
def _gain(sides: Any, x: int, y: int) -> int:
    """What a pair of equal keys counts."""
    gain = PAIR
    if sides[2][x] == sides[3][y]:
        gain += MARK
    if sides[4][x] == sides[5][y]:
        gain += NAME
    return gain


@jit()
def _affordable(box: Any, edits: int, cells: int) -> bool:
    """Whether the exact programme may solve a box that so many edits suffice for."""
    n, m = box[1] - box[0], box[3] - box[2]
    low, high = max(-m, -((edits + m - n) // 2)), min(n, (edits + n - m) // 2)
    affordable: bool = min(n, m) <= MOST_PAIRS and n * (high - low + 1) <= cells
    return affordable


@jit()
def _programme(sides: Any, box: Any, edits: int, moves: Any, partner: Any) -> None:
    """Align one box exactly: the most pairs, then equal marks, then equal names, then the first of equals.

    Scores of one row after the other, from the last op of the target to its first, over the diagonals within reach of
    ``edits``; ``moves`` remembers each cell's choice: 0 pairs, 1 leaves an op of the first side out, 2 one of the second.
    """
    a, b = sides[0], sides[1]
    a0, a1, b0, b1 = box
    n, m = a1 - a0, b1 - b0
    low, high = max(-m, -((edits + m - n) // 2)), min(n, (edits + n - m) // 2)
    width = high - low + 1
    scores = np.full(width + 1, -1, np.int64)  # by diagonal; a score of -1 is out of reach
    for d in range(max(n - m, low), min(n, high) + 1):
        scores[d - low] = 0
    for x in range(n - 1, -1, -1):
        left = -1
        for d in range(max(x - m, low), min(x, high) + 1):
            y = x - d
            place = d - low
            best = scores[place + 1]
            move = 1
            if left > best:
                best = left
                move = 2
            if y < m and a[a0 + x] == b[b0 + y] and scores[place] >= 0:
                paired = scores[place] + _gain(sides, a0 + x, b0 + y)
                if paired >= best:
                    best = paired
                    move = 0
            scores[place] = left = best
            moves[x * width + place] = move
    x = y = 0
    while x < n and y < m:
        move = moves[x * width + x - y - low]
        if move == 0:
            partner[a0 + x] = b0 + y
        if move != 2:
            x += 1
        if move != 1:
            y += 1


@jit()
def _leaf(sides: Any, box: Any, edits: int, moves: Any, partner: Any) -> None:
    """Solve a small box; ops at its ends that agree in everything pair without a programme."""
    a0, a1, b0, b1 = box
    everything = PAIR + MARK + NAME
    while a0 < a1 and b0 < b1 and sides[0][a0] == sides[1][b0] and _gain(sides, a0, b0) == everything:
        partner[a0] = b0
        a0 += 1
        b0 += 1
    while a0 < a1 and b0 < b1 and sides[0][a1 - 1] == sides[1][b1 - 1] and _gain(sides, a1 - 1, b1 - 1) == everything:
        a1 -= 1
        b1 -= 1
        partner[a1] = b1
    if a0 < a1 and b0 < b1:
        _programme(sides, (a0, a1, b0, b1), edits, moves, partner)


@jit()
def _straight(a: Any, b: Any, box: Any, partner: Any) -> None:
    """Solve a box of any size that one edit suffices for."""
    a0, a1, b0, b1 = box
    x, y = a0, b0
    while x < a1 and y < b1:
        if a[x] == b[y]:
            partner[x] = y
            x += 1
            y += 1
        elif a1 - x > b1 - y:
            x += 1
        else:
            y += 1


@jit()
def _divided(sides: Any, limits: Any, moves: Any, partner: Any) -> bool:
    """Fill in partners of all ops of the first side; false if a search was cut short."""
    a, b = sides[0], sides[1]
    down, up = np.empty(a.size + b.size + 3, np.int32), np.empty(a.size + b.size + 3, np.int32)
    # Of the two parts of a box the one whose edits are known waits on top: it is done before the other is looked at, and
    # edits halve with every split, so the stack stays as deep as the logarithm of the edits.
    stack = np.empty((128, 5), np.int64)
    stack[0] = (0, a.size, 0, b.size, _UNKNOWN)
    waiting = 1
    exact = True
    while waiting:
        waiting -= 1
        a0, a1, b0, b1, edits = stack[waiting]
        box = (a0, a1, b0, b1)
        if a0 == a1 or b0 == b1:
            continue
        reach = edits if edits != _UNKNOWN else a1 - a0 + b1 - b0
        if _affordable(box, reach, limits[2]):
            _leaf(sides, box, reach, moves, partner)
            continue
        if edits == 0 or edits == 1:
            _straight(a, b, box, partner)
            continue
        limit = reach
        if edits == _UNKNOWN:
            limit = limits[0] if exact else limits[1]
        x, y, before, behind = _middle(a, b, box, down, up, limit)
        if before == _UNKNOWN or behind == _UNKNOWN:
            exact = False
        elif edits == _UNKNOWN and (before + behind < 2 or _affordable(box, before + behind, limits[2])):
            stack[waiting] = (a0, a1, b0, b1, before + behind)
            waiting += 1
            continue
        first, last = (a0, x, b0, y, before), (x, a1, y, b1, behind)
        if before == _UNKNOWN:
            first, last = last, first
        stack[waiting], stack[waiting + 1] = last, first
        waiting += 2
    return exact


@jit()
def _slid(sides: Any, partner: Any, back: Any) -> None:
    """Move each gap of the first side along a run of equal keys to where most marks, then names agree; the last of equals.

    Only gaps where the second side has none, and not across another gap: all gaps together take one pass.
    """
    a, b = sides[0], sides[1]
    n = a.size
    i = 0
    while i < n:
        if partner[i] >= 0:
            i += 1
            continue
        start = i
        while i < n and partner[i] < 0:
            i += 1
        length = i - start
        before = partner[start - 1] if start else -1
        behind = partner[i] if i < n else b.size
        if behind != before + 1:
            continue
        best, best_gain, gain = 0, 0, 0
        x, y = start - 1, before
        while x >= 0 and partner[x] == y and y >= 0 and a[x + length] == b[y]:
            gain += _gain(sides, x + length, y) - _gain(sides, x, y)
            x -= 1
            if gain > best_gain:
                best, best_gain = x + 1 - start, gain
            y -= 1
        x, y, gain = i, behind, 0
        while x < n and partner[x] == y and a[x - length] == b[y]:
            gain += _gain(sides, x - length, y) - _gain(sides, x, y)
            x += 1
            if gain >= best_gain:
                best, best_gain = x - i, gain
            y += 1
        for step in range(-best):
            partner[i - 1 - step] = before - step
            partner[start - 1 - step] = -1
            back[before - step] = i - 1 - step
        for step in range(best):
            partner[start + step] = behind + step
            partner[i + step] = -1
            back[behind + step] = start + step
        i += max(best, 0)
        while i < n and partner[i] < 0:
            i += 1


@jit()
def _filled(sides: Any, keys: int, cells: int, moves: Any, partner: Any) -> None:
    """Pair what could still pair inside a gap: exactly where affordable, else each op with the first that is left for it."""
    a, b = sides[0], sides[1]
    first = np.full(keys, -1, np.int64)  # for each key its next op of the second side in the gap
    following = np.empty(b.size, np.int64)
    i, before = 0, -1
    while i < a.size:
        if partner[i] >= 0:
            before = partner[i]
            i += 1
            continue
        start = i
        while i < a.size and partner[i] < 0:
            i += 1
        behind = partner[i] if i < a.size else b.size
        for y in range(behind - 1, before, -1):
            following[y] = first[b[y]]
            first[b[y]] = y
        common = False
        for x in range(start, i):
            common = common or first[a[x]] >= 0
        box = (start, i, before + 1, behind)
        reach = i - start + behind - before - 1
        if common and _affordable(box, reach, cells):
            _leaf(sides, box, reach, moves, partner)
        elif common:
            last = before
            for x in range(start, i):
                y = first[a[x]]
                while 0 <= y <= last:
                    y = following[y]
                first[a[x]] = y
                if y >= 0:
                    partner[x] = last = y
        for y in range(before + 1, behind):
            first[b[y]] = -1


@jit()
def _aligned(sides: Any, keys: int, limits: Any) -> Any:
    partner = np.full(sides[0].size, -1, np.int64)
    moves = np.empty(limits[2], np.uint8)
    exact = _divided(sides, limits, moves, partner)
    back = np.full(sides[1].size, -1, np.int64)
    for x in range(partner.size):
        if partner[x] >= 0:
            back[partner[x]] = x
    _slid(sides, partner, back)
    _slid((sides[1], sides[0], sides[3], sides[2], sides[5], sides[4]), back, partner)
    if not exact:
        _filled(sides, keys, limits[2], moves, partner)
    return partner, exact


def aligned(
    first_keys: NDArray[Any],
    second_keys: NDArray[Any],
    first_marks: NDArray[Any],
    second_marks: NDArray[Any],
    first_names: NDArray[Any],
    second_names: NDArray[Any],
    limits: Limits,
) -> tuple[NDArray[np.int64], NDArray[np.int64], bool]:
    """Align two sequences of any length; see `alignment.align`.

    Parameters
    ----------
    first_keys, second_keys : ndarray of int, shapes (n,) and (m,)
        Codes from 0 on without large holes.
    first_marks, second_marks, first_names, second_names : ndarray of int
        Codes of any size.
    limits : Limits
        What a search may cost.

    Returns
    -------
    first, second : ndarray of int64, shape (pairs,)
        Positions, increasing.
    exact : bool
        Whether there are certainly no more pairs to be had.
    """
    given = (first_keys, second_keys, first_marks, second_marks, first_names, second_names)
    sides = tuple(np.ascontiguousarray(codes, np.int32 if place < 2 else np.int64) for place, codes in enumerate(given))
    keys = 1 + max((int(codes.max()) for codes in sides[:2] if codes.size), default=0)
    partner, exact = _aligned(sides, keys, tuple(limits))
    first = np.flatnonzero(partner >= 0)
    return first, partner[first], bool(exact)
