"""Read-outs of known pairs, and what counts as rounding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opassay.kernels.pair_pass import make_pass, rescale
from opassay.kernels.rounding import beyond_rounding, coarser, last_place, noise_floor
from opassay.kernels.tensor_metrics import TENSOR_METRICS, TensorMetrics, read_out
from opassay.schemas.dtypes import BY_NAME
from opassay.schemas.metric_rows import PairSums

NAN, INF = math.nan, math.inf


def bits(values: list[Any], name: str) -> Any:
    if name == "bfloat16":
        return (np.array(values, np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    if name == "float16":
        return np.array(values, np.float16).view(np.uint16)
    if name.startswith("complex"):
        return np.array(values, name).view(np.dtype(BY_NAME[name].storage))
    return np.array(values, np.dtype(BY_NAME[name].storage))


def metrics(target: list[Any], golden: list[Any], left: str = "float32", right: str = "") -> TensorMetrics:
    types = (BY_NAME[left], BY_NAME[right or left])
    arrays = bits(target, types[0].name), bits(golden, types[1].name)
    passing = make_pass(*types, engine="numpy")
    passing.feed(*arrays)
    scales = rescale(passing.result())
    if scales is not None:
        passing = make_pass(*types, engine="numpy", scales=scales)
        passing.feed(*arrays)
    return read_out(passing.result())


VECTORS = [
    ("float32", "",
     [1, 2, 3], [1.0005, 2.004, 3.1], (0.999889984104, 0.10008111949, 0.099999904633, 0.0322580337, 1 / 3, 2 / 3)),
    ("float32", "", [0, 0, 0], [0, 0, 0], (1, 0, 0, 0, 1, 1)),
    ("float32", "", [0, 0, 0], [1, 1, 1], (NAN, 1.7320508075688772, 1, 1, 0, 0)),
    ("float32", "", [1, 1, 1], [0, 0, 0], (NAN, 1.7320508075688772, 1, INF, 0, 0)),
    ("float32", "", [1, NAN, 3], [1, NAN, 3.5], (0.999056158355, 0.5, 0.5, 0.5 / 3.5, 0.5, 0.5)),
    ("float32", "", [1, NAN, 3], [1, 2, 3.5], (0.999056158355, NAN, NAN, 0.5 / 3.5, 0.5, 0.5)),
    ("float32", "", [1, INF, 3], [1, -INF, 3.5], (0.999056158355, INF, INF, 0.5 / 3.5, 0.5, 0.5)),
    ("float32", "", [1, INF, 3], [1, INF, 3], (1, 0, 0, 0, 1, 1)),
    ("float32", "", [NAN, INF], [NAN, INF], (1, 0, 0, 0, 1, 1)),
    ("float32", "", [NAN, INF], [1, INF], (NAN, NAN, NAN, NAN, NAN, NAN)),
    ("float32", "", [INF], [1], (NAN, INF, INF, NAN, NAN, NAN)),
    ("bool", "", [1, 0, 1], [1, 1, 1], (0.816496580928, 1, 1, 1, 2 / 3, 2 / 3)),
    ("int64", "", [1, 2, 3], [1, 2, 4], (0.991460133984, 1, 1, 0.25, 2 / 3, 2 / 3)),
    ("int64", "", [2**60 + 1, 5], [2**60, 5], (1, 1, 1, 2.0**-60, 1, 1)),
    ("int32", "int64", [1, 2, 3], [1, 2, 3], (1, 0, 0, 0, 1, 1)),
    ("float16", "float32", [1, 2, 3.1], [1, 2, 3.1],
     (1, 0.0003905296325683594, 0.000390529633, 0.000125977298, 1, 1)),
    ("bfloat16", "", [1, 2, 3], [1, 2, 3.03125],
     (14.09375 / math.sqrt(14 * 14.1884765625), 0.03125, 0.03125, 0.010309278034, 2 / 3, 2 / 3)),
    ("float32", "", [1.0], [1.5], (1, 0.5, 0.5, 1 / 3, 0, 0)),
    ("uint8", "", [3], [4], (1, 1, 1, 0.25, 0, 0)),
    ("complex64", "",
     [1 + 1j, 2], [1 + 9j, 2 + 5j], (14 / math.sqrt(6 * 111), math.sqrt(89), 8, 5 / math.sqrt(29), 0, 0)),
    ("float32", "", [1e-20, 2e-20], [-1e-20, -2e-20], (-1, math.sqrt(20) * 1e-20, 4e-20, 2, 0, 0)),
    ("float64", "", [1e200, 1e200], [1e200, 1e200], (1, 0, 0, 0, 1, 1)),
    ("float64", "", [1e-300, 2e-300], [-1e-300, -2e-300], (-1, math.sqrt(20) * 1e-300, 4e-300, 2, 0, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right", "target", "golden", "wanted"), VECTORS)
def test_known_pairs(left: str, right: str, target: list[Any], golden: list[Any], wanted: tuple[float, ...]) -> None:
    found = metrics(target, golden, left, right)
    for metric, value in zip(TENSOR_METRICS, wanted, strict=True):
        assert getattr(found, metric.name) == pytest.approx(value, rel=1e-7, abs=0, nan_ok=True), metric.name


def test_nothing_to_compute() -> None:
    assert read_out(PairSums()) == TensorMetrics(None, None, None, None, None, None)


def test_metric_rows_follow_the_fields() -> None:
    assert tuple(m.name for m in TENSOR_METRICS) == TensorMetrics.__slots__


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20).filter(any),
    st.sampled_from([1.0, -1.0]),
)
def test_parallel_vectors_have_cosine_one(values: list[float], sign: float) -> None:
    assert metrics(values, [sign * v for v in values], "float64").cosine == sign


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"])
def test_last_place_is_the_distance_to_the_next_number(name: str) -> None:
    dtype = BY_NAME[name]
    torch = pytest.importorskip("torch")
    if dtype.width < 4:
        every = torch.arange(2 ** (8 * dtype.width - 1), dtype=torch.int64)
        codes = every.to(torch.int16 if dtype.width == 2 else torch.uint8)
        values = codes.view(getattr(torch, name)).to(torch.float64).numpy()
        values = values[np.isfinite(values)]
        steps = np.diff(values)
        np.testing.assert_array_equal(last_place(values[:-1], dtype), steps)
    else:
        numbers = np.array([1e-44, 1e-38, 0.75, 1.0, 1.5, 3e5, 1e30, 0.0], name)
        np.testing.assert_array_equal(
            last_place(numbers.astype(np.float64), dtype), np.spacing(numbers).astype(np.float64)
        )


def test_coarser_and_noise() -> None:
    half, single, whole = BY_NAME["bfloat16"], BY_NAME["float32"], BY_NAME["int32"]
    assert coarser(half, single) == coarser(single, half) == coarser(half, whole) == coarser(whole, half) == half
    sums = PairSums(size=4, finite=4, golden_sq=16.0)
    assert noise_floor(sums, single, half) == 2.0**-7 * 2.0
    assert noise_floor(sums, whole, whole) == 0.0
    assert noise_floor(PairSums(), half, half) == 0.0


@pytest.mark.parametrize("engine", ["numpy", pytest.param("numba", marks=pytest.mark.slow)])
def test_beyond_rounding(engine: str) -> None:
    half = BY_NAME["bfloat16"]
    golden = [1.0, 1.0, 0.0, NAN, NAN, INF, INF, INF, 1.0, 2.0]
    target = [1.0078125, 1.015625, 0.001, NAN, 1.0, INF, -INF, 1.0, INF, 2.0]
    arrays = bits(target, "bfloat16"), bits(golden, "bfloat16")
    assert beyond_rounding(*arrays, half, half, 0.01, engine) == 1 + 4 + 0
    assert beyond_rounding(*arrays, half, half, 0.0001, engine) == 1 + 4 + 1
    whole = BY_NAME["int64"]
    assert beyond_rounding(np.array([2**60 + 1, 3]), np.array([2**60, 3]), whole, whole, 0.0, engine) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("left", "right"), [("float32", "float32"), ("bfloat16", "float32"), ("float16", "float16")])
def test_compiled_rounding_agrees(left: str, right: str) -> None:
    pytest.importorskip("numba")
    rng = np.random.default_rng(0)
    values = rng.standard_normal(9000) * np.exp(4 * rng.standard_normal(9000))
    values[::50] = 0.0
    values[::211] = np.inf
    others = values * (1 + rng.standard_normal(9000) * BY_NAME[left].eps)
    others[::97] = np.nan
    types = BY_NAME[left], BY_NAME[right]
    arrays = bits(list(values), left), bits(list(others), right)
    with np.errstate(all="ignore"):
        for noise in (0.0, 1e-4):
            slow = beyond_rounding(*arrays, *types, noise, "numpy")
            assert 100 < slow < 9000
            assert beyond_rounding(*arrays, *types, noise, "numba") == slow
