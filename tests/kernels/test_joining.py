"""Arrangements against NumPy's own concatenation, and what shapes allow."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opassay.kernels import joining
from opassay.kernels.joining import Arrangement, ShapesDoNotFit, arrange, candidates, cuts
from opassay.schemas.dtypes import BY_NAME


def read(whole: Arrangement, parts: list[Any], start: int = 0, count: int | None = None, each: int = 1) -> Any:
    """Elements of an arrangement, with parts that live as long as the next call only."""
    scratch: list[Any] = []

    def fetch(part: int, first: int, taken: int) -> Any:
        for old in scratch:
            old[:] = -1
        scratch[:] = [parts[part].ravel()[first * each : (first + taken) * each].copy()]
        return scratch[0]

    wanted = whole.size - start if count is None else count
    return joining.gather(whole, start, wanted, fetch, lambda n: np.full(n * each, -2.0), each)


def numbered(*shapes: tuple[int, ...]) -> list[Any]:
    """Arrays in which no number occurs twice."""
    ends = np.cumsum([0, *(np.prod(shape, dtype=int) for shape in shapes)])
    return [
        np.arange(first, stop, dtype=float).reshape(shape)
        for first, stop, shape in zip(ends, ends[1:], shapes, strict=False)
    ]


@st.composite
def concatenations(draw: st.DrawFn) -> tuple[list[Any], int]:
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    axis = draw(st.integers(0, len(shape) - 1))
    lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    shapes = [(*shape[:axis], length, *shape[axis + 1 :]) for length in lengths]
    return numbered(*shapes), axis


@given(concatenations(), st.data())
def test_any_window_of_a_concatenation_is_numpy_s(case: tuple[list[Any], int], data: st.DataObject) -> None:
    parts, axis = case
    expected = np.concatenate(parts, axis)
    for spelt in (axis, axis - parts[0].ndim):
        whole = arrange([part.shape for part in parts], spelt)
        assert whole.shape == expected.shape
        start = data.draw(st.integers(0, whole.size))
        count = data.draw(st.integers(0, whole.size - start))
        assert (read(whole, parts, start, count) == expected.ravel()[start : start + count]).all()


@given(
    st.integers(1, 3), st.integers(1, 4), st.lists(st.integers(1, 3), min_size=2, max_size=3), st.integers(1, 3), st.data()
)  # fmt: skip
def test_any_window_of_regrouped_blocks_is_numpy_s(
    rows: int, groups: int, sizes: list[int], inner: int, data: st.DataObject
) -> None:
    length = groups * sum(sizes)
    (full,) = numbered((rows, length, inner))
    border = data.draw(st.integers(0, length))
    parts = [full[:, :border].copy(), full[:, border:].copy()]
    view = full.reshape(rows, groups, sum(sizes), inner)
    blocks = np.split(view, np.cumsum(sizes)[:-1], axis=2)
    expected = np.concatenate([block.reshape(rows, -1, inner) for block in blocks], axis=1)
    whole = arrange([part.shape for part in parts], 1, sizes)
    start = data.draw(st.integers(0, whole.size))
    count = data.draw(st.integers(0, whole.size - start))
    assert (read(whole, parts, start, count) == expected.ravel()[start : start + count]).all()


def test_complex_elements_are_two_numbers() -> None:
    parts = [part.astype(complex) + 0.5j for part in numbered((2, 3), (2, 2))]
    whole = arrange([(2, 3), (2, 2)], 1)
    stored = [part.view(float) for part in parts]
    expected = np.concatenate(parts, 1).ravel()
    for start in range(10):
        assert (read(whole, stored, start, 10 - start, each=2).view(complex) == expected[start:]).all()


@pytest.mark.parametrize(
    ("shapes", "axis", "regroup", "text"),
    [
        ([(2, 3), (2, 4)], 0, (), "2 parts of shapes [2, 3], [2, 4] cannot be put together along axis 0"),
        ([(2, 3), (2, 3)], 2, (), "2 parts of shape [2, 3] have no common axis 2"),
        ([(), ()], 0, (), "2 parts of shape [] have no common axis 0"),
        ([(2,), (2, 1)], 0, (), "have no common axis 0"),
        ([(10, 3)], 0, (2, 2), "groups of blocks of 2, 2 do not fill an axis of length 10"),
        ([(10, 3)], 0, (2, 0), "groups of blocks of 2, 0 do not fill"),
    ],
)
def test_shapes_that_do_not_fit(shapes: list[Any], axis: int, regroup: tuple[int, ...], text: str) -> None:
    with pytest.raises(ShapesDoNotFit) as caught:
        arrange(shapes, axis, regroup)
    assert text in str(caught.value)


def test_one_part_is_itself_whatever_the_axis() -> None:
    (part,) = numbered((2, 3))
    assert (read(arrange([(2, 3)], 7), [part]) == part.ravel()).all()
    assert arrange([()], -1).shape == ()


def ways(shapes: list[Any], wanted: tuple[int, ...]) -> list[tuple[int, int, list[str]]]:
    return [(c.axis, c.copies, [text for text, _ in c.orders]) for c in candidates(shapes, wanted)]


def test_what_shapes_allow() -> None:
    assert ways([(3, 5)] * 2, (6, 5)) == [(0, 1, ["", "blocks (q, k, v)"])]
    assert ways([(1, 3, 5), (1, 2, 5)], (5, 5)) == [(1, 1, [""])]
    assert ways([(3, 4)] * 2, (3, 8)) == [(1, 1, ["", "blocks (gate, up)", "blocks (q, k, v)"])]
    assert ways([(3, 1)] * 4, (3, 2)) == [(1, 2, [""])]
    assert ways([(3, 1)] * 4, (3,)) == []  # each of them has that shape already
    assert ways([(3, 5)] * 2, (3, 5, 2)) == []
    assert ways([(), ()], (2,)) == []
    assert ways([(2, 3), (3, 2)], (4, 3)) == []
    # two ranks of 4 query rows, 1 key row and 1 value row, the key and value rows the same: 4 + 4 + 1 + 1
    assert ways([(6, 2)] * 2, (10, 2)) == [(0, 2, ["blocks (q, k, v)"])]


def test_orders_of_blocks_hold_what_their_names_say() -> None:
    parts = numbered((2, 6), (2, 6))
    (way,) = candidates([(2, 6)] * 2, (2, 12))
    orders = [(text, read(copies[0], parts).reshape(2, 12)) for text, copies in way.orders]
    found, (a, b) = dict(orders), parts
    assert (found[""] == np.hstack(parts)).all()
    assert (found["blocks (gate, up)"] == np.hstack([a[:, :3], b[:, :3], a[:, 3:], b[:, 3:]])).all()
    equal, four = [values for text, values in orders if text == "blocks (q, k, v)"]
    assert (equal == np.hstack([a[:, :2], b[:, :2], a[:, 2:4], b[:, 2:4], a[:, 4:], b[:, 4:]])).all()
    assert (four == np.hstack([a[:, :4], b[:, :4], a[:, 4:5], b[:, 4:5], a[:, 5:], b[:, 5:]])).all()


def test_copies_are_read_once_each_way() -> None:
    parts = numbered((6,), (6,))
    (way,) = candidates([(6,)] * 2, (10,))
    ((_, copies),) = way.orders
    assert [read(whole, parts).tolist() for whole in copies] == [
        [0, 1, 2, 3, 6, 7, 8, 9, 4, 5],
        [0, 1, 2, 3, 6, 7, 8, 9, 10, 11],
    ]


def test_padding_is_cut_at_either_end() -> None:
    (part,) = numbered((1, 5, 2))
    whole = arrange([part.shape])
    end, beginning = cuts(whole, (3, 2))
    assert end.shape == beginning.shape == (1, 3, 2)
    assert read(end, [part]).tolist() == [0, 1, 2, 3, 4, 5]
    assert read(beginning, [part]).tolist() == [4, 5, 6, 7, 8, 9]
    assert read(beginning, [part], 2, 3).tolist() == [6, 7, 8]
    assert cuts(whole, (1, 2))[0].shape == (1, 1, 2)
    for other in ((5, 2), (6, 2), (3, 4), (3,), (), (0, 2)):
        assert cuts(whole, other) == []
    assert cuts(arrange([()]), ()) == cuts(arrange([(0, 2)]), (0, 2)) == []


def test_padding_is_cut_behind_a_concatenation() -> None:
    parts = numbered((4, 2), (4, 3))
    whole = arrange([part.shape for part in parts], 1)
    expected = np.concatenate(parts, 1)
    end, beginning = cuts(whole, (3, 5))
    for start in range(15):
        assert (read(end, parts, start) == expected[:3].ravel()[start:]).all()
        assert (read(beginning, parts, start) == expected[1:].ravel()[start:]).all()


def test_misfit_counts_what_is_not_finite_and_adds_the_rest() -> None:
    kind = BY_NAME["float32"]
    inf, nan = np.inf, np.nan
    ours, theirs = np.float32([1, nan, inf, inf, 2, nan]), np.float32([1, nan, inf, -inf, 5, 1])
    found = joining.misfit(ours, theirs, kind, kind)
    assert (found.mismatches, found.error, found.norm) == (2, 9.0, 26.0)
    assert not found.confirms()
    complex_kind = BY_NAME["complex64"]
    mixed = joining.misfit(np.float32([3, 4, 1, 0]), np.float32([0, 1]), complex_kind, kind)
    assert (mixed.mismatches, mixed.error, mixed.norm) == (0, 25.0, 1.0)


def test_a_sample_covers_small_tensors_and_both_ends_of_large_ones() -> None:
    assert joining.sample(0) == []
    assert joining.sample(70_000) == [(0, 70_000)]
    looks = joining.sample(10_000_001)
    assert looks[0][0] == 0
    assert sum(looks[-1]) == 10_000_001
    assert all(start + count <= after for (start, count), (after, _) in pairwise(looks))
