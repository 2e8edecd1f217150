"""The pass over a pair: every figure against long double, any piece size and layout the same, whole numbers exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from opassay.kernels.pair_sums import BLOCK
from opassay.kernels.precision.pairwise import Totals, count_unequal, flat_part, measure, round_to
from opassay.kernels.precision.standards import limits_of
from opassay.kernels.precision.status import standard_figures
from opassay.kernels.precision.tables import COLUMNS

from tests.kernels.precision import oracle

STANDARDS = [name for name, columns in COLUMNS.items() if columns]
FLOATS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
TINY = {"float16": 2.0**-24, "bfloat16": 2.0**-126, "float32": 2.0**-126}
QUICK = settings(max_examples=60, deadline=None)


@st.composite
def pairs(draw: st.DrawFn, kind: str, odd: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """A float64 reference and a device tensor near it: ordinary, tiny, zero and huge values, nan and infinities."""
    largest = oracle.KINDS[kind].largest
    special = [0.0, -0.0, TINY[kind], 2.0**-10, -(2.0**-20), 1.0, largest, -largest]
    special += [math.nan, math.inf, -math.inf, largest * 1.001] if odd else []
    values = st.one_of(st.sampled_from(special), st.floats(-100, 100), st.floats(-1e-5, 1e-5))
    size = draw(st.integers(1, 24))
    bench = draw(st.lists(values, min_size=size, max_size=size))
    device = []
    for value in bench:
        how = draw(st.integers(0, 5))
        factor = draw(st.floats(0.9, 1.1)) if how < 3 else 1.0
        device.append(draw(st.sampled_from(special)) if how == 5 else value * factor)
    return torch.tensor(bench, dtype=torch.float64), torch.tensor(device, dtype=torch.float64).to(FLOATS[kind])


def figures(bench: torch.Tensor, device: torch.Tensor, standard: str, **options: Any) -> dict[str, float | int]:
    totals = measure(bench, device, standard, limits_of(device.dtype), **options)
    counted = totals.size - totals.alike
    found = standard_figures(totals, standard)
    found["error_max"] = totals.error_max
    names = {0.01: "hundredth", 0.001: "thousandth", 0.0001: "ten_thousandth"}
    return found | {names[limit]: near / counted if counted else 0 for limit, near in totals.within.items()}


def agree(ours: float | int, theirs: float | int) -> bool:
    if math.isnan(ours) or math.isnan(theirs):
        return math.isnan(ours) and math.isnan(theirs)
    return ours == theirs or math.isclose(ours, theirs, rel_tol=1e-13)


@pytest.mark.parametrize("standard", STANDARDS)
@pytest.mark.parametrize("kind", FLOATS)
@given(data=st.data())
@QUICK
def test_every_figure_is_what_long_double_gives(kind: str, standard: str, data: st.DataObject) -> None:
    bench, device = data.draw(pairs(kind))
    assume(not oracle.on_edge(bench.tolist(), device.tolist(), kind))
    expected = oracle.figures(bench.tolist(), device.tolist(), kind, standard, 2.0**-52)
    found = figures(bench, device, standard)
    assert set(COLUMNS[standard]) <= set(found)
    for name, value in found.items():
        assert agree(value, expected[name]), (name, value, expected[name])


@pytest.mark.parametrize("kind", FLOATS)
@given(data=st.data())
@QUICK
def test_a_float32_reference_has_its_own_epsilon(kind: str, data: st.DataObject) -> None:
    bench, device = data.draw(pairs(kind, odd=False))
    bench = bench.to(torch.float32)
    assume(not oracle.on_edge(bench.tolist(), device.tolist(), kind))
    expected = oracle.figures(bench.tolist(), device.tolist(), kind, "benchmark", 2.0**-23)
    for name, value in figures(bench, device, "benchmark").items():
        assert agree(value, expected[name]), (name, value, expected[name])


@given(data=st.data())
@QUICK
def test_cosine_is_what_long_double_gives(data: st.DataObject) -> None:
    bench, device = data.draw(pairs("float32"))
    sums = measure(bench, device, "benchmark", limits_of(device.dtype)).sums
    expected = oracle.figures(bench.tolist(), device.tolist(), "float32", "benchmark", 0.0)["cosine"]
    if math.isnan(expected) or min(sums["bench_sq"], sums["device_sq"]) < 1e-60:
        return
    assert sums["dot"] / math.sqrt(sums["bench_sq"]) / math.sqrt(sums["device_sq"]) == pytest.approx(
        expected, abs=1e-14
    )


def many(size: int, dtype: torch.dtype, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    bench = torch.randn(size, generator=draw, dtype=torch.float64)
    bench[::97] = 0.0
    device = (bench * (1 + 1e-3 * torch.randn(size, generator=draw, dtype=torch.float64))).to(dtype)
    device[5], bench[7], device[7] = math.nan, math.inf, math.inf
    return bench, device


@pytest.mark.parametrize("standard", STANDARDS)
def test_any_size_of_pieces_gives_the_same_bits(standard: str) -> None:
    bench, device = many(5 * BLOCK + 77, torch.float16)
    limits = limits_of(device.dtype)
    whole = measure(bench, device, standard, limits, chunk=8 * BLOCK)
    assert whole.apart == 1
    assert whole.alike == 1
    assert whole.first_apart is not None
    assert whole.first_apart[0] == 5
    for chunk in (BLOCK, 2 * BLOCK, 3 * BLOCK):
        assert repr(measure(bench, device, standard, limits, chunk=chunk)) == repr(whole)


@pytest.mark.parametrize("layout", ["transposed", "expanded", "strided", "channels last", "negative view"])
def test_layout_in_memory_changes_nothing(layout: str) -> None:
    base, near = many(2 * 3 * 40 * 41, torch.float32)
    base, near = base.view(2, 3, 40, 41), near.view(2, 3, 40, 41)
    views = {
        "transposed": lambda t: t.transpose(1, 3),
        "expanded": lambda t: t[:, :1].expand(2, 7, 40, 41),
        "strided": lambda t: t[:, :, ::3, 1::2],
        "channels last": lambda t: t.to(memory_format=torch.channels_last),
        "negative view": lambda t: t.permute(3, 2, 1, 0)[:, :, 0],
    }
    bench, device = views[layout](base), views[layout](near)
    limits = limits_of(device.dtype)
    plain = measure(bench.contiguous(), device.contiguous(), "benchmark", limits, chunk=BLOCK)
    assert repr(measure(bench, device, "benchmark", limits, chunk=BLOCK)) == repr(plain)


@given(st.data())
@QUICK
def test_parts_of_a_strided_tensor_are_its_elements_in_order(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    values = torch.arange(math.prod(shape)).view(shape).permute(order)
    start = data.draw(st.integers(0, values.numel() - 1))
    stop = data.draw(st.integers(start + 1, values.numel()))
    assert flat_part(values, start, stop).tolist() == values.reshape(-1)[start:stop].tolist()


def test_inputs_are_left_alone() -> None:
    bench, device = many(300, torch.float64)
    bench[3], device[3] = 1e200, 1e200
    before = bench.clone(), device.clone()
    measure(bench, device, "benchmark", limits_of(torch.float64), clip=True)
    assert torch.equal(bench, before[0])
    assert torch.equal(device.nan_to_num(0), before[1].nan_to_num(0))


def test_gradients_are_not_recorded() -> None:
    bench = torch.ones(3, dtype=torch.float64, requires_grad=True) * 2
    device = torch.ones(3, requires_grad=True) * 2
    assert measure(bench, device, "benchmark", limits_of(device.dtype)).error_max == 0


@pytest.mark.parametrize("scale", [1e-100, 1e100, 1e200, 1e300])
def test_squares_beyond_float64_do_not_break_the_cosine(scale: float) -> None:
    bench = torch.tensor([3.0, -4.0, 5.0], dtype=torch.float64) * scale
    device = torch.tensor([4.0, -4.0, 5.0], dtype=torch.float64) * scale
    sums = measure(bench, device, "benchmark", limits_of(torch.float64)).sums
    cosine = sums["dot"] / math.sqrt(sums["bench_sq"]) / math.sqrt(sums["device_sq"])
    assert cosine == pytest.approx(53 / math.sqrt(50 * 57), rel=1e-14)


def test_complex_numbers_are_compared_by_their_parts() -> None:
    bench = torch.tensor([1 + 2j, 3 - 4j, complex(0, math.nan)], dtype=torch.complex128)
    device = torch.tensor([1 + 2j, 3 - 4.5j, complex(0, 1)], dtype=torch.complex64)
    totals = measure(bench, device, "unsupported", limits_of(device.dtype))
    assert (totals.size, totals.apart, totals.apart_nan, totals.error_max) == (6, 1, 1, 0.5)
    assert totals.first_apart is not None
    assert totals.first_apart[0] == 5
    conjugate = measure(bench.conj(), device.conj(), "unsupported", limits_of(device.dtype))
    assert (conjugate.size, conjugate.apart, conjugate.error_max) == (6, 1, 0.5)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_eight_bit_floats(dtype: torch.dtype) -> None:
    bench = torch.tensor([[1.0, 1.06, -3.0], [0.0, 2.0**-9, 20.0]], dtype=torch.float64)
    device = bench.to(torch.float32).to(dtype)
    totals = measure(bench, device, "unsupported", limits_of(dtype))
    assert totals.size == totals.finite == 6
    assert totals.error_max == pytest.approx(0.06)
    assert totals.close[limits_of(dtype).pass_limit] == 6
    assert measure(bench.t(), device.t(), "unsupported", limits_of(dtype)).error_max == totals.error_max


def test_operators_bound_to_a_dtype_are_clipped_to_it() -> None:
    bench = torch.tensor([1.7976931348623157e308, -1.7976931348623157e308, 1.0, math.nan], dtype=torch.float64)
    device = torch.tensor([65504.0, -65504.0, 1.0, math.nan], dtype=torch.float16)
    limits = limits_of(device.dtype)
    assert measure(bench, device, "binary_consistency", limits, clip=True).apart == 0
    assert measure(bench, device, "binary_consistency", limits).apart == 2


INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64]


@pytest.mark.parametrize("left", INTEGERS)
@pytest.mark.parametrize("right", INTEGERS)
def test_whole_numbers_are_compared_exactly(left: torch.dtype, right: torch.dtype) -> None:
    draw = np.random.default_rng(1)
    sides = []
    for dtype in (left, right):
        info = np.iinfo(str(dtype).removeprefix("torch."))
        ends = [info.min, info.max, 0, 1, info.max - 1, info.max // 2, info.max // 2 + 1, 100]
        sides.append(draw.permutation(np.array(ends, dtype=info.dtype)))
    both = np.array([min(np.iinfo(s.dtype).max for s in sides)] * 8)
    for a, b in (
        (sides[0], sides[1]),
        (sides[0].copy(), sides[0].astype(sides[1].dtype)),
        (both.astype(sides[0].dtype), both),
    ):
        b = b.astype(sides[1].dtype)
        expected = sum(int(x) != int(y) for x, y in zip(a, b, strict=True))
        assert count_unequal(torch.from_numpy(a.copy()), torch.from_numpy(b.copy())) == expected


def test_integers_beyond_two_to_53_are_told_apart() -> None:
    bench = torch.tensor([2**53, 2**62 + 1, -(2**63)])
    assert count_unequal(bench, torch.tensor([2**53 + 1, 2**62 + 1, -(2**63)])) == 1
    assert count_unequal(bench, bench.clone()) == 0


def test_bools_and_pieces() -> None:
    bench = torch.arange(3 * BLOCK) % 3 == 0
    device = bench.clone()
    device[0], device[-1] = False, True
    assert count_unequal(bench, device, chunk=BLOCK) == 2


@pytest.mark.parametrize("kind", FLOATS)
@given(st.floats(allow_nan=False, width=64))
@QUICK
def test_rounding_to_a_dtype(kind: str, value: float) -> None:
    assert float(round_to(torch.tensor(value, dtype=torch.float64), FLOATS[kind])) == oracle.rounded(value, kind)


def test_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="shapes"):
        measure(torch.ones(3), torch.ones(4), "benchmark", limits_of(torch.float32))


def test_an_empty_pair_has_no_elements() -> None:
    assert measure(torch.ones(0), torch.ones(0), "benchmark", limits_of(torch.float32)).size == 0
    assert Totals().finite == 0
