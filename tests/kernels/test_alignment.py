"""Alignment of op sequences: laws, against a plain table of scores, and the cases that people reported."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from opassay.kernels.alignment import CELLS, Alignment, OpSequence, align, programme

Ops = list[tuple[int, int, int]]


def sequence(ops: Ops) -> OpSequence:
    """Ops as (key, mark, name)."""
    table = np.array(ops, np.int64).reshape(-1, 3)
    return OpSequence(table[:, 0], table[:, 1], table[:, 2])


def score(target: Ops, golden: Ops, pairs: list[tuple[int, int]]) -> tuple[int, int, int]:
    """Pairs, pairs of equal marks, pairs of equal names."""
    marks = sum(target[i][1] == golden[j][1] for i, j in pairs)
    return len(pairs), marks, sum(target[i][2] == golden[j][2] for i, j in pairs)


def best(target: Ops, golden: Ops) -> tuple[int, int, int]:
    """The best score there is, cell by cell."""
    scores = [[(0, 0, 0)] * (len(golden) + 1) for _ in range(len(target) + 1)]
    for i, ours in enumerate(target, 1):
        for j, theirs in enumerate(golden, 1):
            scores[i][j] = max(scores[i - 1][j], scores[i][j - 1])
            if ours[0] == theirs[0]:
                pairs, marks, names = scores[i - 1][j - 1]
                gained = pairs + 1, marks + (ours[1] == theirs[1]), names + (ours[2] == theirs[2])
                scores[i][j] = max(scores[i][j], gained)
    return scores[-1][-1]


def checked(target: Ops, golden: Ops, first: Any, second: Any) -> list[tuple[int, int]]:
    """The pairs, if they are an alignment to which nothing can be added."""
    pairs = list(zip(first.tolist(), second.tolist(), strict=True))
    assert all(target[i][0] == golden[j][0] for i, j in pairs)
    fences = [(-1, -1), *pairs, (len(target), len(golden))]
    for (i, j), (next_i, next_j) in pairwise(fences):
        assert i < next_i
        assert j < next_j
        left_ours = {op[0] for op in target[i + 1 : next_i]}
        assert not left_ours & {op[0] for op in golden[j + 1 : next_j]}
    return pairs


def compiled(target: Ops, golden: Ops, limits: tuple[int, int, int]) -> tuple[NDArray[Any], NDArray[Any], bool]:
    """The compiled loops alone, whatever the size."""
    from opassay.kernels import alignment_loops

    a, b = sequence(target), sequence(golden)
    return alignment_loops.aligned(a.keys, b.keys, a.marks, b.marks, a.names, b.names, alignment_loops.Limits(*limits))


def pairs_of(found: Alignment) -> list[tuple[int, int]]:
    """Positions as a list."""
    return list(zip(found.target.tolist(), found.golden.tolist(), strict=True))


@st.composite
def two_sides(draw: st.DrawFn) -> tuple[Ops, Ops]:
    """Two sequences over few codes: unrelated ones, or one with ops lost, added and renamed."""
    op = st.tuples(st.integers(0, draw(st.integers(0, 5))), st.integers(0, 2), st.integers(0, 3))
    target = draw(st.lists(op, max_size=24))
    if draw(st.booleans()):
        return target, draw(st.lists(op, max_size=24))
    golden = list(target)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(golden)))
        golden[at : at + draw(st.integers(0, 2))] = draw(st.lists(op, max_size=2))
    return target, golden


@settings(max_examples=300, deadline=None)
@given(two_sides())
def test_best_of_all_alignments(sides: tuple[Ops, Ops]) -> None:
    target, golden = sides
    found = align(sequence(target), sequence(golden))
    assert found.exact
    assert found.target.dtype == found.golden.dtype == np.uint32
    assert score(target, golden, checked(target, golden, found.target, found.golden)) == best(target, golden)


@settings(max_examples=200, deadline=None)
@given(two_sides())
def test_exchanged_sides_give_the_same_pairs(sides: tuple[Ops, Ops]) -> None:
    target, golden = map(sequence, sides)
    there, back = align(target, golden), align(golden, target)
    assert there.target.tolist() == back.golden.tolist()
    assert there.golden.tolist() == back.target.tolist()


@settings(max_examples=200, deadline=None)
@given(two_sides(), st.integers(0, 5))
def test_a_band_as_wide_as_the_differences_is_enough(sides: tuple[Ops, Ops], more: int) -> None:
    target, golden = sides
    edits = len(target) + len(golden) - 2 * best(target, golden)[0]
    first, second = programme(sequence(target), sequence(golden), edits + more)
    assert score(target, golden, checked(target, golden, first, second)) == best(target, golden)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))))
def test_equal_sequences_pair_op_by_op(ops: Ops) -> None:
    found = align(sequence(ops), sequence(ops))
    assert found.target.tolist() == found.golden.tolist() == list(range(len(ops)))


def test_ops_around_an_extra_one() -> None:
    relu, gelu = 0, 1  # relu.0, gelu.0, relu.1 against relu.7, relu.8
    target, golden = [(relu, 0, 0), (gelu, 0, 1), (relu, 0, 2)], [(relu, 0, 7), (relu, 0, 8)]
    assert pairs_of(align(sequence(target), sequence(golden))) == [(0, 0), (2, 1)]


def test_marks_decide_which_call_is_the_extra_one() -> None:
    """Reported: one more call at the start, on another shape, shifts all call numbers; only marks tell, names say otherwise."""
    small, usual = 5, 8
    target, golden = [(0, small, 0), *((0, usual, i) for i in (1, 2, 3))], [(0, usual, i) for i in range(3)]
    assert pairs_of(align(sequence(target), sequence(golden))) == [(1, 0), (2, 1), (3, 2)]


def test_names_decide_where_marks_do_not() -> None:
    target, golden = [(0, 0, 0), (0, 0, 1), (0, 0, 2)], [(0, 0, 1), (0, 0, 2)]
    assert pairs_of(align(sequence(target), sequence(golden))) == [(1, 0), (2, 1)]


def test_the_first_of_equals_pair() -> None:
    target, golden = [(0, 0, i) for i in range(4)], [(0, 0, i + 10) for i in range(2)]
    assert pairs_of(align(sequence(target), sequence(golden))) == [(0, 0), (1, 1)]


def test_marks_do_not_cost_pairs() -> None:
    target, golden = [(0, 1, 0), (1, 1, 1)], [(1, 2, 5), (0, 1, 6), (1, 2, 7)]
    assert pairs_of(align(sequence(target), sequence(golden))) == [(0, 1), (1, 2)]


def test_codes_of_any_integer_dtype_and_size() -> None:
    keys = np.array([2**63 + 1, 5, 2**63 + 1], np.uint64)
    names = np.arange(3, dtype=np.uint32)
    side = OpSequence(keys, keys, names)
    assert pairs_of(align(side, OpSequence(keys[1:], keys[1:], names[1:]))) == [(1, 0), (2, 1)]


def test_codes_of_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="one length"):
        OpSequence(np.zeros(2, np.int64), np.zeros(3, np.int64), np.zeros(2, np.int64))


def with_small_changes(size: int, changes: int, keys: int) -> tuple[Ops, Ops]:
    """A sequence, and the same with ops lost and others added."""
    rng = np.random.default_rng(size)
    codes = rng.integers(0, keys, size)
    other = np.delete(codes, rng.choice(size, changes, replace=False))
    other = np.insert(other, rng.integers(0, other.size, changes), rng.integers(0, keys, changes))
    sides = []
    for side in (codes, other):
        sides.append([(int(key), int(key), number) for number, key in enumerate(side)])
    return sides[0], sides[1]


SMALL_DUMPS = """
import sys
import numpy as np
from opassay.kernels.alignment import OpSequence, align
codes = np.random.default_rng(0).integers(0, 50, {size})
other = np.delete(codes, [{size} // 3, {size} // 2])
align(OpSequence(codes, codes, codes), OpSequence(other[::{step}], other[::{step}], other[::{step}]))
print("numba" in sys.modules)
"""


@pytest.mark.parametrize(("size", "step"), [(500, 1), (500, -1), (20_000, 1)])
def test_small_dumps_and_few_differences_wait_for_no_compiler(size: int, step: int) -> None:
    script = SMALL_DUMPS.format(size=size, step=step)
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"
    )


def test_beyond_the_full_programme_a_band_finds_the_same() -> None:
    target, golden = with_small_changes(2_500, 12, 40)
    assert len(target) * len(golden) > CELLS
    found = align(sequence(target), sequence(golden))
    full = programme(sequence(target), sequence(golden), len(target) + len(golden))
    wanted = score(target, golden, list(zip(*(side.tolist() for side in full), strict=True)))
    assert found.exact
    assert score(target, golden, checked(target, golden, found.target, found.golden)) == wanted


@pytest.mark.slow
class TestCompiled:
    """The loops for long sequences."""

    @settings(max_examples=300, deadline=None)
    @given(two_sides())
    def test_a_box_that_is_affordable_is_solved_exactly(self, sides: tuple[Ops, Ops]) -> None:
        target, golden = sides
        first, second, exact = compiled(target, golden, (50, 50, 10_000))
        assert exact
        assert score(target, golden, checked(target, golden, first, second)) == best(target, golden)

    @settings(max_examples=300, deadline=None)
    @given(two_sides(), st.sampled_from([0, 10, 40, 100]))
    @example(([(0, 0, 0)], [(0, 0, 0), (0, 0, 0)]), 0)
    def test_divided_boxes_keep_the_length(self, sides: tuple[Ops, Ops], cells: int) -> None:
        target, golden = sides
        first, second, exact = compiled(target, golden, (50, 50, cells))
        assert exact
        assert len(checked(target, golden, first, second)) == best(target, golden)[0]

    @settings(max_examples=300, deadline=None)
    @given(two_sides(), st.integers(1, 3), st.integers(1, 2), st.sampled_from([0, 5, 20]))
    def test_a_search_cut_short_says_so_and_leaves_no_pair_out(
        self, sides: tuple[Ops, Ops], first_limit: int, later: int, cells: int
    ) -> None:
        target, golden = sides
        first, second, exact = compiled(target, golden, (first_limit, later, cells))
        pairs = checked(target, golden, first, second)
        assert len(pairs) == best(target, golden)[0] or not exact

    def test_a_search_is_cut_short(self) -> None:
        target = [(key, 0, 0) for key in range(40)]
        assert not compiled(target, target[::-1], (3, 3, 0))[2]

    def test_halves_exchanged_pair_one_half_when_cut_short(self) -> None:
        target = [(key, 0, 0) for key in range(60)]
        golden = target[30:] + target[:30]
        first, second, exact = compiled(target, golden, (5, 5, 0))
        assert not exact
        assert len(checked(target, golden, first, second)) == 30

    def test_a_gap_moves_to_where_marks_agree(self) -> None:
        """No programme is allowed here, so the gap stands where keys alone put it until it is moved."""
        golden = [(0, mark, 0) for mark in range(12)]
        for lost in (0, 5, 11):
            target = golden[:lost] + golden[lost + 1 :]
            for ours, theirs in ((target, golden), (golden, target)):
                first, second, _ = compiled(ours, theirs, (50, 50, 0))
                assert score(ours, theirs, checked(ours, theirs, first, second)) == (11, 11, 11)

    def test_several_gaps_in_one_run_stay_apart(self) -> None:
        golden = [(0, mark, 0) for mark in range(30)]
        target = [op for op in golden if op[1] not in (4, 5, 20)]
        first, second, _ = compiled(target, golden, (50, 50, 120))
        assert score(target, golden, checked(target, golden, first, second)) == (27, 27, 27)

    def test_long_sequences_in_either_order(self) -> None:
        target, golden = with_small_changes(30_000, 600, 200)
        there, back = align(sequence(target), sequence(golden)), align(sequence(golden), sequence(target))
        assert there.exact
        assert len(checked(target, golden, there.target, there.golden)) >= 30_000 - 600
        assert pairs_of(there) == [(i, j) for j, i in pairs_of(back)]
