"""The tensor pass: every engine against numbers computed another way."""

from __future__ import annotations

import math
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from opassay.kernels.decode import float8_table, to_float64
from opassay.kernels.pair_pass import Engine, PairPass, make_pass, needs_scaling, rescale
from opassay.kernels.pair_sums import BLOCK, merge
from opassay.schemas.dtypes import BY_NAME, DType
from opassay.schemas.metric_rows import PairSums

ALL = sorted(BY_NAME)
REAL = [name for name in ALL if BY_NAME[name].kind != "complex"]
SUMS = ("dot", "target_sq", "golden_sq", "error_sq")
QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def stored(dtype: DType, count: int, seed: int, odd: bool = False) -> NDArray[Any]:
    """Random bits that mean ordinary numbers (with nan and inf where ``odd``)."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "bool":
        return rng.integers(0, 2, count).astype(np.uint8)
    if dtype.kind in ("int", "uint"):
        info = np.iinfo(np.dtype(dtype.storage))
        return rng.integers(info.min, info.max, count, dtype=np.dtype(dtype.storage), endpoint=True)
    if dtype.width == 1:
        codes = rng.integers(0, 256, count).astype(np.uint8)
        finite = np.isfinite(float8_table(dtype.name))
        return codes if odd else np.where(finite[codes], codes, np.uint8(0x20))
    count = 2 * count if dtype.kind == "complex" else count
    values = rng.standard_normal(count) * np.exp(rng.standard_normal(count))
    values[rng.random(count) < 0.05] = 0.0
    if odd:
        for value in (np.nan, np.inf, -np.inf):
            values[rng.random(count) < 0.03] = value
    return bits(values, dtype)


def bits(values: Any, dtype: DType) -> NDArray[Any]:
    """The stored form of real numbers (complex: interleaved parts)."""
    values = np.asarray(values)
    if dtype.name == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    if dtype.name in ("float16", "complex32"):
        return values.astype(np.float16).view(np.uint16)
    return values.astype(np.dtype(dtype.storage))


def near(dtype: DType, target: NDArray[Any], seed: int) -> NDArray[Any]:
    """A golden array: mostly the target's bits, a tenth drawn anew."""
    other = stored(dtype, target.size // (2 if dtype.kind == "complex" else 1), seed + 1)
    keep = np.random.default_rng(seed + 2).random(target.size) < 0.9
    return np.where(keep, target, other)


def measure(
    target: NDArray[Any], golden: NDArray[Any], types: tuple[DType, DType], engine: Engine, scales: Any = None
) -> PairSums:
    passing = make_pass(*types, engine=engine, scales=scales)
    passing.feed(target, golden)
    return passing.result()


def reference(target: NDArray[Any], golden: NDArray[Any], types: tuple[DType, DType]) -> dict[str, Any]:
    """The sums in long double, the rest by plain Python on each element."""
    sides = []
    for array, dtype in zip((target, golden), types, strict=True):
        if dtype.kind in ("int", "uint", "bool"):
            sides.append([int(x) for x in array])
        else:
            wide = to_float64(array, dtype).tolist()
            sides.append(
                [complex(*x) for x in zip(wide[::2], wide[1::2], strict=True)] if dtype.kind == "complex" else wide
            )
    out: dict[str, Any] = dict.fromkeys(("equal_nan", "equal_inf", "nan_mismatch", "inf_mismatch", "finite"), 0)
    dot = tsq = gsq = esq = np.longdouble(0)
    errors: list[float] = []
    relatives: list[float] = []
    mismatch = -1
    for i, (t, g) in enumerate(zip(*sides, strict=True)):
        t_nan, g_nan, t_inf, g_inf = (f(complex(x)) for f in (_isnan, _isinf) for x in (t, g))
        if t_nan or g_nan:
            sort = "equal_nan" if t_nan and g_nan else "nan_mismatch"
        elif t_inf or g_inf:
            sort = "equal_inf" if t == g else "inf_mismatch"
        else:
            sort = "finite"
        out[sort] += 1
        if "mismatch" in sort and mismatch < 0:
            mismatch = i
        if sort != "finite":
            errors.append(-1.0)
            continue
        error = float(abs(t - g))
        errors.append(error)
        relatives.append(0.0 if error == 0 else error / float(abs(g)) if g != 0 else math.inf)
        t_parts, g_parts = ((np.longdouble(complex(x).real), np.longdouble(complex(x).imag)) for x in (t, g))
        for a, b in zip(t_parts, g_parts, strict=True):
            dot, tsq, gsq = dot + a * b, tsq + a * a, gsq + b * b
            esq += (a - b) * (a - b) if isinstance(t, complex) or isinstance(g, complex) else 0
        if not (isinstance(t, complex) or isinstance(g, complex)):
            esq += np.longdouble(error) ** 2
    out |= {"dot": float(dot), "target_sq": float(tsq), "golden_sq": float(gsq), "error_sq": float(esq)}
    out["size"] = len(errors)
    out["error_max"] = max(0.0, *errors) if errors else 0.0
    out["relative_max"] = max(relatives, default=0.0)
    out["within_thousandth"] = sum(r < 0.001 for r in relatives)
    out["within_five_thousandth"] = sum(r < 0.005 for r in relatives)
    if mismatch >= 0:
        out["worst_index"] = mismatch
    else:
        out["worst_index"] = errors.index(out["error_max"]) if relatives else -1
    return out


def _isnan(x: complex) -> bool:
    return math.isnan(x.real) or math.isnan(x.imag)


def _isinf(x: complex) -> bool:
    return math.isinf(x.real) or math.isinf(x.imag)


def check(sums: PairSums, wanted: dict[str, Any], exact_moduli: bool = True) -> None:
    found = asdict(sums)
    size = math.sqrt(wanted["target_sq"] * wanted["golden_sq"])
    for name, value in wanted.items():
        if name == "dot":
            assert abs(found[name] - value) <= 1e-13 * size, name
        elif name in SUMS or (not exact_moduli and name in ("error_max", "relative_max")):
            assert found[name] == pytest.approx(value, rel=1e-13, abs=0), name
        else:
            assert found[name] == value, name


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_numpy_pass_against_long_double(name: str, odd: bool) -> None:
    dtype = BY_NAME[name]
    target = stored(dtype, 700, 3, odd)
    golden = near(dtype, target, 4)
    check(
        measure(target, golden, (dtype, dtype), "numpy"),
        reference(target, golden, (dtype, dtype)),
        dtype.kind != "complex",
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_numba_pass_against_long_double(name: str) -> None:
    pytest.importorskip("numba")
    dtype = BY_NAME[name]
    for count, odd in ((0, False), (1, False), (2500, False), (2500, True), (BLOCK + 300, True)):
        target = stored(dtype, count, count, odd)
        golden = near(dtype, target, 4)
        wanted = reference(target, golden, (dtype, dtype))
        check(measure(target, golden, (dtype, dtype), "numba"), wanted, dtype.kind != "complex")


@QUICK
@given(st.sampled_from(REAL), st.sampled_from(REAL), st.integers(0, 2**31), st.booleans())
def test_numpy_pass_mixed_types(left: str, right: str, seed: int, odd: bool) -> None:
    types = (BY_NAME[left], BY_NAME[right])
    target, golden = stored(types[0], 200, seed, odd), stored(types[1], 200, seed + 9, odd)
    found, wanted = measure(target, golden, types, "numpy"), reference(target, golden, types)
    if "int64" in left + right and left != right:
        wanted.pop("worst_index")  # a float beside a 64-bit integer: the integer is rounded to float64 first
        check(found, wanted | {"error_max": found.error_max, "relative_max": found.relative_max})
        assert found.error_max == pytest.approx(wanted["error_max"], rel=1e-15)
    else:
        check(found, wanted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("bfloat16", "float32"), ("float16", "bfloat16"), ("int32", "int64"), ("uint64", "int64"), ("int8", "uint64"),
        ("bool", "int64"), ("int32", "float32"), ("float8_e4m3fn", "bfloat16"), ("float64", "float32"),
        ("int64", "float64"), ("complex64", "complex128"), ("complex64", "float32"), ("uint16", "bfloat16"),
    ],
)  # fmt: skip
def test_numba_equals_numpy_on_mixed_types(left: str, right: str) -> None:
    pytest.importorskip("numba")
    types = (BY_NAME[left], BY_NAME[right])
    for count, odd in ((5000, False), (5000, True)):
        target, golden = stored(types[0], count, 5, odd), stored(types[1], count, 6, odd)
        agree(measure(target, golden, types, "numba"), measure(target, golden, types, "numpy"))


def agree(first: PairSums, second: PairSums) -> None:
    """Counts, maxima and the worst element are the same; sums but for the last rounding."""
    a, b = asdict(first), asdict(second)
    size = math.sqrt(first.target_sq * first.golden_sq)
    for name in a:
        if name in SUMS:
            assert abs(a[name] - b[name]) <= 1e-13 * (size if name == "dot" else b[name]), name
        else:
            assert a[name] == b[name] or (math.isnan(a[name]) and math.isnan(b[name])), name


def at_the_limits(kind: Any, count: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Pairs whose relative error is 0.001 or 0.005, exactly or but for the last bits; of every size that the type has.

    Half of them are ``n`` beside ``n + n/1000``; the others are spaced by single last places around the limit.
    """
    rng = np.random.default_rng(seed)
    info = np.finfo(kind)
    ratio = rng.choice([1000, 200], count)
    with np.errstate(all="ignore"):
        exponents = rng.integers(info.minexp - info.nmant, info.maxexp - 1, count)
        golden = np.ldexp(1 + rng.random(count), exponents).astype(kind)
        exact = rng.random(count) < 0.5
        digits = rng.integers(1, 1 << rng.integers(1, info.nmant - 9), count)
        step = np.ldexp(digits.astype(kind), exponents % 64 - (1074 if kind is np.float64 else 149)).astype(kind)
        step = np.where(rng.random(count) < 0.3, step, np.ldexp(digits.astype(kind), exponents // 2).astype(kind))
        golden = np.where(exact, step * ratio.astype(kind), golden)
        step = np.where(exact, step, golden / ratio.astype(kind))
        target = (golden + step * rng.choice([-1, 1], count)).astype(kind)
        bump = rng.integers(-2, 3, count).astype(np.int64)
        width = np.int64 if kind is np.float64 else np.int32
        target = np.where(exact, target, (target.view(width) + bump.astype(width)).view(kind))
        golden *= rng.choice([-1, 1], count).astype(kind)
        target = np.where(golden < 0, -target, target)
    target[rng.random(count) < 0.05] = 0
    golden[rng.random(count) < 0.05] = 0
    fine = np.isfinite(target) & np.isfinite(golden)
    return np.where(fine, target, kind(1)).astype(kind), np.where(fine, golden, kind(1)).astype(kind)


@pytest.mark.slow
@settings(QUICK, max_examples=60)
@given(kind=st.sampled_from([np.float32, np.float64]), seed=st.integers(0, 2**31))
def test_the_undivided_counts_are_those_of_division(kind: Any, seed: int) -> None:
    pytest.importorskip("numba")
    dtype = BY_NAME[np.dtype(kind).name]
    target, golden = at_the_limits(kind, 3000, seed)
    for cut in (slice(None), golden != 0):  # without zeros the largest relative error stays finite
        t, g = target[cut], golden[cut]
        found, wanted = (asdict(measure(t, g, (dtype, dtype), engine)) for engine in ("numba", "numpy"))
        for name in SUMS:
            found.pop(name), wanted.pop(name)  # these may overflow
        assert found == wanted
        assert 0 < found["within_thousandth"] < found["within_five_thousandth"] < t.size


@pytest.mark.slow
@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16", "int32", "int64", "int8"])
@pytest.mark.parametrize("rising", [False, True])
def test_the_largest_errors_are_found_wherever_they_are(name: str, rising: bool) -> None:
    pytest.importorskip("numba")
    dtype = BY_NAME[name]
    rng = np.random.default_rng(7)
    count = 6 * BLOCK
    golden = np.ones(count) * 100
    sizes = np.arange(count) / count if rising else rng.random(count)  # rising: every block has a new largest error
    target = golden * (1 + np.round(sizes * 16) / 16 * 0.2) if name == "int8" else golden * (1 + sizes)
    target, golden = bits(target, dtype), bits(golden, dtype)
    agree(measure(target, golden, (dtype, dtype), "numba"), measure(target, golden, (dtype, dtype), "numpy"))


@pytest.mark.slow
def test_errors_that_float32_cannot_tell_apart() -> None:
    pytest.importorskip("numba")
    dtype = BY_NAME["float32"]
    target, golden = np.zeros(3 * BLOCK, np.float32), np.full(3 * BLOCK, 3.0, np.float32)
    spots = (5, BLOCK + 7, 2 * BLOCK + 9)
    for spot, little in zip(spots, (1.0, 3.0, 2.0), strict=True):
        target[spot], golden[spot] = 2.0**30, -little * 2.0**-10  # |t-g| is 2**30 in float32
    found, wanted = (measure(target, golden, (dtype, dtype), engine) for engine in ("numba", "numpy"))
    agree(found, wanted)
    assert found.worst_index == spots[1]
    assert found.error_max == 2.0**30 + 3.0 * 2.0**-10


@pytest.mark.parametrize("engine", ["numpy", pytest.param("numba", marks=pytest.mark.slow)])
@QUICK
@given(
    name=st.sampled_from(["float32", "bfloat16", "complex64", "int64"]),
    seed=st.integers(0, 2**31),
    cuts=st.sets(st.integers(1, 5), max_size=4),
    tail=st.integers(0, BLOCK),
    odd=st.booleans(),
)
def test_any_cutting_gives_the_same_bytes(
    engine: Engine, name: str, seed: int, cuts: set[int], tail: int, odd: bool
) -> None:
    dtype = BY_NAME[name]
    width = 2 if dtype.kind == "complex" else 1
    target = stored(dtype, 5 * BLOCK + tail, seed, odd)
    golden = near(dtype, target, seed)
    whole = measure(target, golden, (dtype, dtype), engine)
    pieces = make_pass(dtype, dtype, engine=engine)
    borders = [0, *(c * BLOCK * width for c in sorted(cuts)), target.size]
    for start, stop in pairwise(borders):
        pieces.feed(target[start:stop], golden[start:stop])
    assert repr(pieces.result()) == repr(whole)


@QUICK
@given(
    seed=st.integers(0, 2**31), name=st.sampled_from(["float32", "int16", "uint64", "complex128"]), odd=st.booleans()
)
def test_swapped_sides_swap_the_sums(seed: int, name: str, odd: bool) -> None:
    dtype = BY_NAME[name]
    target = stored(dtype, 300, seed, odd)
    golden = near(dtype, target, seed)
    one = measure(target, golden, (dtype, dtype), "numpy")
    two = measure(golden, target, (dtype, dtype), "numpy")
    assert (one.dot, one.error_sq, one.error_max, one.finite) == (two.dot, two.error_sq, two.error_max, two.finite)
    assert (one.target_sq, one.target_abs_max) == (two.golden_sq, two.golden_abs_max)
    assert (one.nan_mismatch, one.inf_mismatch, one.worst_index) == (
        two.nan_mismatch,
        two.inf_mismatch,
        two.worst_index,
    )


@pytest.mark.parametrize("engine", ["numpy", pytest.param("numba", marks=pytest.mark.slow)])
def test_unaligned_and_read_only_arrays(engine: Engine) -> None:
    dtype = BY_NAME["float32"]
    target, golden = stored(dtype, 5000, 1), stored(dtype, 5000, 2)
    odd = np.frombuffer(b"x" + target.tobytes(), np.float32, offset=1)
    assert not odd.flags.aligned
    assert not odd.flags.writeable
    assert measure(odd, golden, (dtype, dtype), engine) == measure(target, golden, (dtype, dtype), engine)
    assert golden.flags.writeable


@pytest.mark.parametrize("engine", ["numpy", pytest.param("numba", marks=pytest.mark.slow)])
def test_wrong_feeding_is_refused(engine: Engine) -> None:
    dtype = BY_NAME["float32"]
    passing = make_pass(dtype, dtype, engine=engine)
    if engine == "numba":
        with pytest.raises(ValueError, match="float16 came where 4 bytes"):
            passing.feed(np.zeros(3, np.float16), np.zeros(3, np.float16))
    with pytest.raises(ValueError, match="3 target elements but 2 golden"):
        passing.feed(np.zeros(3, np.float32), np.zeros(2, np.float32))
    passing.feed(np.zeros(3, np.float32), np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="multiples of 4096"):
        passing.feed(np.zeros(3, np.float32), np.zeros(3, np.float32))


@pytest.mark.parametrize("engine", ["numpy", pytest.param("numba", marks=pytest.mark.slow)])
@pytest.mark.parametrize("size", [1e200, 1e-200, 1e-300, 1e-20, 5e-324, 1.7e308])
@pytest.mark.parametrize("name", ["float64", "complex128"])
def test_extreme_sizes_are_scaled(name: str, size: float, engine: Engine) -> None:
    dtype = BY_NAME[name]
    target = np.array([1.0, 1.0, 0.0, 1.0]) * size
    golden = np.array([1.0, -1.0, 0.0, 0.0]) * size
    sums = measure(target, golden, (dtype, dtype), engine)
    scales = rescale(sums)
    assert needs_scaling(sums) == (size != 1e-20)
    if scales is not None:
        sums = measure(target, golden, (dtype, dtype), engine, scales)
        assert rescale(sums) is None
    whole = merge([sums, sums], [0, target.size // (2 if name == "complex128" else 1)])
    true_size = np.longdouble(size)
    for square, scale, factor in (
        (whole.target_sq, whole.target_scale, 6),
        (whole.golden_sq, whole.golden_scale, 4),
        (whole.error_sq, whole.error_scale, 10),
    ):
        root = np.ldexp(np.sqrt(np.longdouble(square)), scale)
        assert float(root / true_size) == pytest.approx(math.sqrt(factor), rel=1e-14)
    assert abs(whole.dot) <= 1e-15 * math.sqrt(whole.target_sq * whole.golden_sq)
    assert whole.worst_index == (0 if name == "complex128" else 1)
    if name == "float64":
        assert whole.relative_max == math.inf
        assert whole.within_thousandth == 4


def test_opposite_largest_numbers_have_a_relative_error() -> None:
    dtype = BY_NAME["float64"]
    target, golden = np.array([1.7e308, 1.0]), np.array([-1.7e308, 1.0])
    first = measure(target, golden, (dtype, dtype), "numpy")
    second = measure(target, golden, (dtype, dtype), "numpy", rescale(first))
    assert second.error_max == math.inf
    assert second.relative_max == 2.0


@pytest.mark.parametrize("engine", ["numpy", pytest.param("numba", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("left", "right", "target", "golden", "error"),
    [
        ("int64", "int64", 2**60 + 1, 2**60, 1.0),
        ("int64", "int64", -(2**63), 2**63 - 1, 2.0**64),
        ("uint64", "uint64", 2**64 - 1, 2**64 - 2, 1.0),
        ("uint64", "int64", 2**63 + 1, -1, 2.0**63 + 2),
        ("int64", "uint64", -(2**63), 2**64 - 1, 2.0**64 + 2.0**63),
        ("uint64", "int64", 2**63, 2**63 - 1, 1.0),
        ("uint8", "uint8", 3, 4, 1.0),
        ("int8", "int8", 100, -100, 200.0),
        ("int32", "int64", 7, 2**40, 2.0**40 - 7),
    ],
)
def test_integers_are_compared_exactly(
    left: str, right: str, target: int, golden: int, error: float, engine: Engine
) -> None:
    types = (BY_NAME[left], BY_NAME[right])
    arrays = [np.array([1, value], np.dtype(t.storage)) for value, t in zip((target, golden), types, strict=True)]
    sums = measure(*arrays, types, engine)
    assert sums.error_max == error
    assert sums.worst_index == 1


@pytest.mark.parametrize("name", [n for n in ALL if n.startswith("float8")])
def test_every_float8_code_means_what_torch_says(name: str) -> None:
    torch = pytest.importorskip("torch")
    codes = np.arange(256, dtype=np.uint8)
    theirs = torch.from_numpy(codes).view(getattr(torch, name)).to(torch.float32).numpy()
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(float8_table(name), theirs.astype(np.float64))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_every_half_is_decoded(name: str) -> None:
    pytest.importorskip("numba")
    dtype = BY_NAME[name]
    codes = np.arange(1 << 16, dtype=np.uint16)
    for start in range(0, codes.size, 64):  # so few that every number counts in the sums
        piece = codes[start : start + 64]
        agree(
            measure(piece, piece[::-1].copy(), (dtype, dtype), "numba"),
            measure(piece, piece[::-1].copy(), (dtype, dtype), "numpy"),
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", [*REAL, "complex64"])
def test_torch_pass_agrees(name: str) -> None:
    pytest.importorskip("torch")
    from opassay.kernels.torch_pass import make_torch_pass

    dtype = BY_NAME[name]
    for odd in (False, True):
        target = stored(dtype, 3 * BLOCK + 5, 8, odd)
        golden = near(dtype, target, 8)
        passing: PairPass = make_torch_pass(dtype, dtype, "cpu")
        cut = BLOCK * (2 if dtype.kind == "complex" else 1)
        passing.feed(target[:cut], golden[:cut])
        passing.feed(target[cut:], golden[cut:])
        agree(passing.result(), measure(target, golden, (dtype, dtype), "numpy"))


@pytest.mark.slow
def test_torch_pass_in_float32_blocks() -> None:
    pytest.importorskip("torch")
    from opassay.kernels.torch_pass import TorchPass

    dtype = BY_NAME["bfloat16"]
    target = stored(dtype, 3 * BLOCK + 5, 8)
    golden = near(dtype, target, 8)
    passing = TorchPass(dtype, dtype, "cpu", exact_device=False)
    passing.feed(target, golden)
    found, wanted = passing.result(), measure(target, golden, (dtype, dtype), "numpy")
    for name in SUMS:
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=1e-5)
    assert found.worst_index == wanted.worst_index


@QUICK
@given(seed=st.integers(0, 2**31), count=st.integers(1, 6), odd=st.booleans())
def test_merged_segments_are_the_whole(seed: int, count: int, odd: bool) -> None:
    dtype = BY_NAME["float32"]
    target = stored(dtype, 100 * count, seed, odd)
    golden = near(dtype, target, seed)
    whole = measure(target, golden, (dtype, dtype), "numpy")
    parts = [
        measure(target[k : k + 100], golden[k : k + 100], (dtype, dtype), "numpy") for k in range(0, target.size, 100)
    ]
    agree(merge(parts, range(0, target.size, 100)), whole)


def test_merge_brings_scales_together() -> None:
    large = PairSums(size=1, finite=1, dot=1.0, target_sq=1.0, golden_sq=1.0, target_scale=600, golden_scale=600)
    small = PairSums(size=1, finite=1, dot=4.0, target_sq=4.0, golden_sq=4.0, target_scale=599, golden_scale=599)
    for parts in ([large, small], [small, large]):
        whole = merge(parts, [0, 1])
        assert math.ldexp(whole.target_sq, 2 * (whole.target_scale - 600)) == 2.0
        assert math.ldexp(whole.dot, whole.target_scale + whole.golden_scale - 1200) == 2.0
    assert merge([], []) == PairSums()
    with pytest.raises(ValueError, match="1 parts but 0 offsets"):
        merge([large], [])
