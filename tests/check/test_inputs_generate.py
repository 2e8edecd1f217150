"""Random tensors: extremes, dtype, shape, mean and norm as recorded; the same bits always; nan, inf and limits."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from opassay.pipeline.check.generate import Law, NotPossible, Recorded, _below, draw, generate, law_of

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
INTEGERS = [
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
]  # fmt: skip
SHAPES = st.lists(st.integers(1, 5), max_size=4).map(tuple)
INF, NAN = math.inf, math.nan


def _recorded(tensor: torch.Tensor) -> Recorded:
    """True statistics of a tensor, as a dump of float32 sums has them."""
    wide = tensor.double()
    low, high = float(wide.min()), float(wide.max())
    return Recorded(low, high, low, high, float(np.float32(wide.mean())), float(np.float32(wide.norm())))


def _plain(low: Any, high: Any, mean: float | None = None, norm: float | None = None) -> Recorded:
    return Recorded(low, high, low, high, mean, norm)


def _bits(tensor: torch.Tensor) -> bytes:
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


@given(st.sampled_from(FLOATS), SHAPES, st.integers(0, 2**64), st.data())
@settings(deadline=None)
def test_floats_keep_extremes_dtype_and_shape(
    dtype: torch.dtype, shape: tuple[int, ...], key: int, data: st.DataObject
) -> None:
    most = torch.finfo(dtype).max
    real = torch.tensor(data.draw(st.lists(st.floats(-most, most), min_size=2, max_size=2)), dtype=torch.float64).to(
        dtype
    )
    low, high = sorted(float(value) + 0.0 for value in real.double())  # no minus zero
    mean = data.draw(st.none() | st.floats(low, high) | st.just(NAN))
    norm = data.draw(st.none() | st.floats(0, 1e300) | st.just(INF))
    made = generate(dtype, shape, _plain(low, high, mean, norm), key)
    assert made.dtype is dtype
    assert made.shape == shape
    assert made.is_contiguous()
    wide = made.double()
    assert float(wide.max()) == high
    if made.numel() > 1:
        assert float(wide.min()) == low


@given(st.sampled_from(INTEGERS), SHAPES, st.integers(0, 2**64), st.data())
@settings(deadline=None)
def test_integers_keep_extremes_up_to_their_limits(
    dtype: torch.dtype, shape: tuple[int, ...], key: int, data: st.DataObject
) -> None:
    limit = torch.iinfo(dtype)
    whole = st.integers(limit.min, limit.max) | st.sampled_from([limit.min, limit.max])
    low, high = sorted((data.draw(whole), data.draw(whole)))
    mean = data.draw(st.none() | st.floats(float(low), float(high)))
    made = generate(dtype, shape, _plain(low, high, mean, None), key)
    assert made.dtype is dtype
    assert made.shape == shape
    values = made.reshape(-1).tolist()
    assert max(values) == high
    assert min(values) == (low if len(values) > 1 else high)


@given(SHAPES, st.booleans(), st.booleans(), st.integers(0, 2**64))
@settings(deadline=None)
def test_bools_keep_extremes(shape: tuple[int, ...], low: bool, high: bool, key: int) -> None:
    low, high = sorted((low, high))
    made = generate(torch.bool, shape, _plain(low, high), key)
    assert made.dtype is torch.bool
    assert bool(made.any()) == high
    assert bool(made.all()) == (low if made.numel() > 1 else high)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.complex32])
@given(shape=SHAPES, key=st.integers(0, 2**64), bounds=st.lists(st.floats(0, 60000), min_size=2, max_size=2))
@settings(deadline=None)
def test_complex_stays_within_the_modulus(
    dtype: torch.dtype, shape: tuple[int, ...], key: int, bounds: list[float]
) -> None:
    low, high = sorted(
        float(torch.tensor(bound, dtype=torch.complex128).to(dtype).to(torch.complex128).real) for bound in bounds
    )
    made = generate(dtype, shape, _plain(low, high), key)
    assert made.dtype is dtype
    assert made.shape == shape
    modulus = np.abs(made.to(torch.complex128).numpy().reshape(-1))
    assert modulus.max() == high
    if len(modulus) > 1:
        assert modulus[0] == low


def test_complex_numbers_point_in_all_directions() -> None:
    made = generate(torch.complex64, (4000,), _plain(0.0, 2.0, 1.0), 5)
    quadrants = {(bool(value.real > 0), bool(value.imag > 0)) for value in made[1:-1].tolist()}
    assert len(quadrants) == 4
    assert abs(float(made.abs().mean()) - 1.0) < 0.05
    assert abs(complex(made.mean())) < 0.1


@pytest.mark.parametrize(
    "real",
    [
        torch.randn(20_000, generator=torch.Generator().manual_seed(1)),
        torch.randn(20_000, generator=torch.Generator().manual_seed(2)).exp(),
        torch.randn(20_000, generator=torch.Generator().manual_seed(3)).relu() * 3 - 1,
        torch.softmax(2 * torch.randn(20_000, generator=torch.Generator().manual_seed(4)), 0),
        (torch.rand(20_000, generator=torch.Generator().manual_seed(5)) < 0.03).float(),
        torch.rand(20_000, generator=torch.Generator().manual_seed(6)) ** 20 * 1e-9,
        1.0 + 0.01 * torch.randn(20_000, generator=torch.Generator().manual_seed(7)),
    ],
    ids=["normal", "lognormal", "relu", "softmax", "one in 30", "tiny and skewed", "near one"],
)
@pytest.mark.parametrize("key", [0, 1, 2])
def test_mean_and_norm_are_those_recorded(real: torch.Tensor, key: int) -> None:
    recorded = _recorded(real)
    made = generate(torch.float32, tuple(real.shape), recorded, key).double()
    deviation = float(real.double().std())
    assert recorded.mean is not None
    assert recorded.norm is not None
    assert abs(float(made.mean()) - recorded.mean) < 5 * deviation / math.sqrt(len(real))
    assert float(made.std()) == pytest.approx(deviation, rel=0.15)
    assert float(made.norm()) == pytest.approx(recorded.norm, rel=0.15)


@given(st.floats(0, 1), st.floats(0, 1) | st.sampled_from([1 / 3, 1 / 6, 1 / 15]))
@settings(deadline=None)
def test_law_has_its_mean_and_variance(middle: float, spread: float) -> None:
    units = (np.arange(100_000) + 0.5) / 100_000  # integrates by the middle rule: no chance is involved
    with np.errstate(all="raise", under="ignore"):
        drawn = draw(Law(middle, spread), units)
    assert drawn.min() >= 0.0
    assert drawn.max() <= 1.0
    assert drawn.mean() == pytest.approx(middle, abs=1e-3)
    assert drawn.var() == pytest.approx(spread * middle * (1 - middle), abs=1e-3)


@pytest.mark.parametrize(
    ("recorded", "count"),
    [
        (_plain(-1.0, 1.0, None, 1.0), 50),
        (_plain(-1.0, 1.0, 3.0, 1.0), 50),
        (_plain(0.5, 1.0, 0.0, 1.0), 50),
        (_plain(-1.0, 1.0, NAN, NAN), 50),
        (_plain(-1.0, 1.0, 0.0, 1.0), 2),
    ],
)
def test_statistics_that_no_tensor_has_give_the_even_law(recorded: Recorded, count: int) -> None:
    assert law_of(recorded, count, 2.0**-20) is None


def test_norm_that_says_nothing_leaves_the_mean() -> None:
    assert law_of(_plain(-1.0, 1.0, 0.0, 1.0), 24, 2.0**-20) == Law(0.5)  # the extremes alone have a larger norm
    law = law_of(_plain(0.99, 1.01, 1.0, math.sqrt(1000) * 1.001), 1000, 2.0**-7)  # lost in the rounding of bfloat16
    assert law is not None
    assert law.middle == pytest.approx(0.5, abs=1e-6)
    assert law.spread == Law().spread


def test_mean_of_bools_is_their_density() -> None:
    made = generate(torch.bool, (20_000,), _plain(False, True, 0.05), 3)
    assert float(made.float().mean()) == pytest.approx(0.05, abs=0.01)
    assert float(generate(torch.bool, (20_000,), _plain(0, 1), 3).float().mean()) == pytest.approx(0.5, abs=0.02)
    assert float(generate(torch.bool, (20_000,), _plain(-2, 1), 3).float().mean()) == pytest.approx(0.25, abs=0.02)


def test_integers_without_mean_are_even_and_reach_everything() -> None:
    made = generate(torch.int64, (60_000,), _plain(-2, 3), 3)
    counts = torch.bincount(made + 2)
    assert len(counts) == 6
    assert int(counts.min()) > 9_500
    wide = generate(torch.int64, (10_000,), _plain(-(2**63), 2**63 - 1), 3).double()
    assert abs(float(wide.mean())) < 2**63 * 0.03


def test_integers_with_mean_have_it() -> None:
    made = generate(
        torch.int64, (60_000,), _plain(0, 1000, 100.0, math.sqrt(60_000 * (100.0**2 + 50.0**2))), 3
    ).double()
    assert float(made.mean()) == pytest.approx(100, rel=0.02)
    assert float(made.std()) == pytest.approx(50, rel=0.05)


@given(st.integers(1, 2**64), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
@settings(deadline=None)
def test_even_integers_are_the_upper_half_of_the_product(count: int, words: list[int]) -> None:
    expected = [word * count >> 64 for word in words]
    assert _below(np.array(words, np.uint64), count).tolist() == expected


@pytest.mark.parametrize("dtype", [*FLOATS[:4], *INTEGERS, torch.bool, torch.complex64])
def test_the_key_decides(dtype: torch.dtype) -> None:
    recorded = _plain(0, 1) if dtype is torch.bool else _plain(0, 100, 30.0, 400.0)
    first, again, other = (generate(dtype, (50, 3), recorded, key) for key in (1, 1, 2))
    assert _bits(first) == _bits(again)
    assert _bits(first) != _bits(other)


def test_bits_are_pinned() -> None:
    """Another machine or release must make the same tensors: two hosts are compared with each other."""
    digest = hashlib.sha256()
    for dtype in (*FLOATS, *INTEGERS, torch.bool, torch.complex64):
        for recorded in (_plain(0, 1), _plain(0, 100, 30.0, 400.0), _plain(0, 7, 3.0)):
            digest.update(_bits(generate(dtype, (37,), recorded, 20)))
    assert digest.hexdigest() == "07fbf949c93826d3867c2491e15322fa8329c0b8aaf96702a63807443d76a849"


def test_a_tensor_of_several_chunks_begins_like_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from opassay.pipeline.check import generate as module

    whole = generate(torch.float32, (1000,), _plain(-1.0, 1.0), 4)
    monkeypatch.setattr(module, "_CHUNK", 64)
    assert torch.equal(generate(torch.float32, (1000,), _plain(-1.0, 1.0), 4), whole)
    assert float(generate(torch.int16, (1000,), _plain(-9, 9), 4)[-1]) == 9


def test_tensors_without_elements_and_dimensions() -> None:
    assert generate(torch.float32, (0, 3), Recorded(0, 0, 0, 0), 1).shape == (0, 3)
    assert float(generate(torch.float32, (), _plain(2.5, 2.5, 2.5, 2.5), 1)) == 2.5
    assert int(generate(torch.int64, (), _plain(7, 7), 1)) == 7


@pytest.mark.parametrize(
    ("shape", "recorded", "expected"),
    [
        ((2, 2), _plain(NAN, NAN), [NAN] * 4),
        ((), _plain(NAN, NAN), [NAN]),
        ((2, 2), _plain(-1.0, INF), [-1.0, INF, -1.0, INF]),
        ((3, 2), _plain(-1.0, INF), [-1.0, INF, INF, INF, -1.0, INF]),
        ((3,), _plain(-INF, INF), [-INF, INF, INF]),
        ((), _plain(INF, INF), [INF]),
        ((1,), _plain(-INF, -INF), [-INF]),
        ((3,), Recorded(-2.0, 2.0, NAN, NAN), [-2.0, NAN, 2.0]),
        ((2,), Recorded(-2.0, 2.0, NAN, NAN), [NAN, 2.0]),
        ((1,), Recorded(-2.0, 2.0, NAN, NAN), [NAN]),
        ((2,), Recorded(-2.0, 2.0, -INF, INF), [-INF, INF]),
        ((2,), Recorded(-2.0, 2.0, -2.0, INF), [-2.0, INF]),
        ((2,), Recorded(-2.0, 2.0, -INF, 2.0), [-INF, 2.0]),
    ],
)
def test_values_that_are_not_finite(shape: tuple[int, ...], recorded: Recorded, expected: list[float]) -> None:
    made = generate(torch.float32, shape, recorded, 1)
    np.testing.assert_array_equal(made.reshape(-1).numpy(), np.array(expected, np.float32))


def test_finite_part_is_drawn_between_the_finite_extremes() -> None:
    made = generate(torch.float32, (3, 300), Recorded(-2.0, 2.0, -INF, INF, NAN, NAN), 1).reshape(-1)
    assert (float(made[0]), float(made[-1])) == (-INF, INF)
    inner = made[1:-1]
    assert bool(torch.isfinite(inner).all())
    assert float(inner.abs().max()) <= 2.0
    assert float(inner.std()) > 0.5


def test_lowest_finite_value_stands_in_for_minus_infinity() -> None:
    made = generate(torch.float16, (200,), _plain(-INF, 0.0), 1)
    assert float(made[0]) == -INF
    assert bool(torch.isfinite(made[1:]).all())
    assert float(made.max()) == 0.0


def test_bounds_beyond_the_dtype_are_cut_to_it() -> None:
    half = generate(torch.float16, (50,), _plain(-1e9, 1e9), 1)
    assert (float(half.min()), float(half.max())) == (-65504.0, 65504.0)
    wide = generate(torch.float64, (50,), _plain(-1.7e308, 1.7e308), 1)
    assert bool(torch.isfinite(wide).all())
    small = generate(torch.int8, (50,), _plain(-1000, 1000), 1)
    assert (int(small.min()), int(small.max())) == (-128, 127)


def test_bounds_in_the_wrong_order_are_swapped() -> None:
    for dtype in (torch.int32, torch.float32, torch.bool):
        made = generate(dtype, (50,), _plain(1, 0), 1)
        assert (float(made.float().min()), float(made.float().max())) == (0.0, 1.0)


@pytest.mark.parametrize("bound", [NAN, INF])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_integers_need_bounds(dtype: torch.dtype, bound: float) -> None:
    with pytest.raises(NotPossible):
        generate(dtype, (3,), _plain(0, bound), 1)
