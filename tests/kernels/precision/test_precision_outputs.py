"""Outputs of any structure become rows; what cannot be compared says so and never passes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from opassay.kernels.precision.outputs import compare_outputs, compare_tensors
from opassay.schemas.check_rows import DetailRow, Status

PASS, WARNING, ERROR, SKIP = Status.PASS, Status.WARNING, Status.ERROR, Status.SKIP
ONES = torch.ones(3, dtype=torch.float64)
TWOS = ONES * 2


def compare(bench: object, device: object, name: str = "Torch.foo.0", direction: Any = "forward") -> list[DetailRow]:
    return compare_outputs(bench, device, name, direction)


def only(bench: object, device: object, **options: Any) -> DetailRow:
    (row,) = compare(bench, device, **options)
    return row


def test_names_of_rows() -> None:
    assert only(ONES, ONES.float()).name == "Torch.foo.0.forward.output.0"
    assert only(ONES, ONES.float(), name="Torch.linalg.inv.3.forward").name == "Torch.linalg.inv.3.forward.output.0"
    rows = compare([ONES, None, TWOS], [ONES.float(), None, TWOS.float()], direction="backward")
    assert [row.name for row in rows] == [f"Torch.foo.0.backward.output.{index}" for index in range(3)]
    assert [row.status for row in rows] == [PASS, SKIP, PASS]
    assert rows[1].message == "Bench output is None, skip this test."


def test_a_tensor_has_its_dtypes_and_shape() -> None:
    row = only(torch.ones(4, 1, dtype=torch.float64), torch.ones(4, 1, dtype=torch.bfloat16))
    assert (row.bench_dtype, row.device_dtype, row.shape) == ("torch.float64", "torch.bfloat16", "(4, 1)")
    assert only(torch.tensor(1.0), torch.tensor(1.0)).shape == "()"


def test_lists_dicts_and_named_tuples_are_walked_in_order() -> None:
    nested = [[ONES, TWOS], {"b": ONES, "a": [TWOS, 3]}, torch.max(torch.ones(2, 2), 0)]
    rows = compare(nested, nested)
    assert [row.status for row in rows] == [PASS] * 7
    assert [row.name.rsplit(".", 1)[1] for row in rows] == [str(index) for index in range(7)]
    wrong = [[ONES, ONES], {"b": ONES, "a": [TWOS, 3]}, torch.max(torch.ones(2, 2), 0)]
    assert [row.status for row in compare(nested, wrong)] == [PASS, ERROR, *[PASS] * 5]


def test_fewer_device_outputs_are_an_error_and_more_are_ignored() -> None:
    rows = compare([ONES, TWOS], [ONES])
    assert [row.status for row in rows] == [PASS, ERROR]
    assert rows[1].message == "bench and npu output structure is different."
    assert [row.status for row in compare([ONES], [ONES, TWOS])] == [PASS]
    assert [row.status for row in compare((ONES, (ONES, TWOS)), (ONES,))] == [PASS, ERROR]


def test_dict_keys_must_agree() -> None:
    row = only({"a": ONES, "b": 1}, {"a": ONES})
    assert (row.status, row.message) == (ERROR, "bench and npu output dict keys are different.")


@pytest.mark.parametrize(
    ("bench", "device"), [(None, ONES), (ONES, None), (3, 3.0), (ONES, 1.0), ([ONES], ONES), ("a", 1), ({"a": 1}, [1])]
)
def test_types_must_agree(bench: object, device: object) -> None:
    row = only(bench, device)
    assert (row.status, row.message, row.metrics) == (ERROR, "bench and npu output type is different.", {})


@pytest.mark.parametrize("value", [3, 2.5, True, "a", 1 + 2j, math.nan, torch.float16, 2**70])
def test_equal_values_pass(value: object) -> None:
    row = only(value, value)
    assert (row.status, row.metrics, row.message, row.shape) == (PASS, {"binary": 0}, "", "")
    assert row.bench_dtype == row.device_dtype == str(type(value))


@pytest.mark.parametrize(
    ("bench", "device", "text"),
    [
        (3, 4, "The reference gives 3, the device 4."),
        (True, False, "The reference gives True, the device False."),
        (1.0, math.nan, "The reference gives 1.0, the device nan."),
        ("x" * 100, "y", "The reference gives '" + "x" * 59 + "..., the device 'y'."),
    ],
)
def test_different_values_say_which(bench: object, device: object, text: str) -> None:
    row = only(bench, device)
    assert (row.status, row.message, row.metrics) == (ERROR, text, {})


def test_a_size_is_a_tuple_of_whole_numbers() -> None:
    assert [row.status for row in compare(torch.Size([2, 3]), torch.Size([2, 4]))] == [PASS, ERROR]


def test_an_unknown_type_is_an_error() -> None:
    row = only(object(), object())
    assert (row.status, row.message) == (SKIP, "Outputs of <class 'object'> cannot be compared.")


def test_no_output_at_all_is_skipped() -> None:
    row = only((), ())
    assert (row.status, row.name) == (SKIP, "Torch.foo.0.forward.output.0")
    assert row.message
    assert compare([], [], direction="backward") == []
    assert compare(None, None, direction="backward") == []
    assert [row.status for row in compare([ONES], [], direction="backward")] == [ERROR]


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool, torch.uint16]
)
def test_whole_numbers_are_judged_by_their_error_rate(dtype: torch.dtype) -> None:
    bench = (torch.arange(8) % 2).to(dtype)
    device = bench.clone()
    text = f"Compare algorithm is not supported for {str(dtype)[6:]} data. Only judged by Error Rate.\n"
    row = only(bench, device)
    assert (row.status, row.metrics, row.message) == (PASS, {"binary": 0.0}, text)
    device[0] = 1
    row = only(bench, device)
    assert (row.status, row.metrics, row.message) == (ERROR, {"binary": 0.125}, text)


def test_kinds_must_agree() -> None:
    whole = torch.ones(3, dtype=torch.int64)
    for bench, device in (
        (ONES, whole),
        (whole, ONES),
        (whole, whole.bool()),
        (ONES, torch.ones(3, dtype=torch.complex64)),
    ):
        row = only(bench, device)
        left, right = str(bench.dtype)[6:], str(device.dtype)[6:]
        assert row.status is ERROR
        assert row.message == f"Bench out dtype is {left} but npu output dtype is {right}, cannot compare."
    assert only(whole, whole.int()).status is PASS


def test_shapes_must_agree() -> None:
    row = only(torch.ones(3, 4), torch.ones(4, 3))
    assert row.status is ERROR
    assert row.message == "The shape of benchtorch.Size([3, 4]) and nputorch.Size([4, 3]) not equal."
    assert only(torch.ones(0, 2), torch.ones(0, 3)).status is ERROR


def test_no_elements_are_skipped() -> None:
    row = only(torch.ones(0, 2), torch.ones(0, 2))
    assert (row.status, row.message, row.shape) == (SKIP, "There is not bench calculation result.", "(0, 2)")


def test_storage_does_not_matter() -> None:
    dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    assert only(dense.to_sparse(), dense.to_sparse_csr()).status is PASS
    assert only(dense, torch.nn.Parameter(dense)).status is PASS
    wrong = torch.tensor([[0.0, 2.0], [4.0, 0.0]])
    assert only(dense.to_sparse(), wrong.to_sparse()).status is ERROR


def test_a_random_operator_is_skipped_with_the_reason() -> None:
    for bench, device in (
        (ONES, TWOS),
        (torch.ones(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)),
        (1.0, 2.0),
    ):
        row = only(bench, device, name="Torch.bernoulli.0")
        assert row.status is SKIP
        assert row.message.startswith("random output: bernoulli")
        assert row.metrics == {}


def zeros(size: int, count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    found = torch.ones(size, dtype=dtype)
    found[:count] = 0
    return found


def test_dropout_compares_the_share_of_zeros() -> None:
    name = "Functional.dropout.0"
    for count, status in ((30, PASS), (39, PASS), (40, ERROR), (20, ERROR), (21, PASS)):
        row = only(zeros(100, 30, torch.float64), zeros(100, count), name=name)
        assert row.status is status
        assert row.message.startswith("random API, only the share of zeros was compared: 30.0% of 100 in the reference")
        assert row.metrics == {}
        assert row.shape == "(100,)"
    assert compare_tensors(zeros(100, 30), zeros(100, 40), "dropout").status is ERROR


def test_dropout_of_few_elements_passes_and_says_so() -> None:
    row = only(zeros(99, 0), zeros(99, 99), name="Functional.dropout.0")
    assert (row.status, row.message) == (
        PASS,
        "random API, only the share of zeros was compared; 99 are too few to compare shares",
    )


def test_dropout_of_gradients_takes_the_first() -> None:
    rows = compare([zeros(100, 30), ONES], [zeros(100, 60), ONES], name="Functional.dropout.0", direction="backward")
    assert [row.status for row in rows] == [ERROR]
    assert rows[0].name == "Functional.dropout.0.backward.output.0"
    assert only([None], [None], name="Functional.dropout.0", direction="backward").status is SKIP
    assert only(ONES, None, name="Functional.dropout.0").status is ERROR
    assert only(torch.ones(3), torch.ones(4), name="Functional.dropout.0").status is ERROR


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("dropout1d", (10, 20, 7)),
        ("dropout1d", (200, 7)),
        ("dropout2d", (10, 20, 3, 3)),
        ("dropout2d", (10, 20, 7)),
        ("dropout3d", (10, 20, 3, 3, 2)),
        ("feature_dropout", (10, 20, 3)),
    ],
)
def test_channel_dropout_counts_channels(name: str, shape: tuple[int, ...]) -> None:
    channels = 200
    bench = torch.ones(channels, math.prod(shape) // channels)
    device = bench.clone()
    bench[:60], device[:70] = 0, 0
    device[70:, 0] = 0  # zeros that drop no channel
    row = only(bench.view(shape), device.view(shape), name=f"Functional.{name}.0")
    assert row.status is PASS
    assert row.message.endswith("30.0% of 200 in the reference, 35.0% on the device")
    device[:80] = 0
    assert only(bench.view(shape), device.view(shape), name=f"Functional.{name}.0").status is ERROR


def test_a_dropout_that_leaves_no_zeros_is_not_compared() -> None:
    assert only(ONES, TWOS, name="Functional.alpha_dropout.0").status is SKIP


def test_nan_to_num_is_bound_to_the_dtype() -> None:
    source = torch.tensor([math.inf, -math.inf, math.nan, 1.0])
    bench, device = torch.nan_to_num(source.double()), torch.nan_to_num(source.half())
    assert only(bench, device, name="Torch.nan_to_num.0").status is PASS
    assert only(bench, device, name="Torch.other.0").status is ERROR
    device[0] = 1.0
    assert only(bench, device, name="Torch.nan_to_num.0").status is ERROR


def test_where_values_first_differ_in_kind() -> None:
    bench = torch.ones(2, 3, dtype=torch.complex128)
    device = bench.to(torch.complex64)
    device[1, 2] = complex(1, math.nan)
    row = only(bench, device)
    assert "The first is (1, 2) imaginary part: 0 in the reference, nan on the device.\n" in row.message
    scalar = only(torch.tensor(1.0), torch.tensor(math.inf))
    assert "The first is (): 1 in the reference, inf on the device.\n" in scalar.message


def test_a_dtype_without_rules_is_a_skip_if_both_have_it() -> None:
    exponents = torch.ones(3).to(torch.float8_e8m0fnu)
    row = only(exponents, exponents.clone())
    assert (row.status, row.message) == (SKIP, "Tensors of float8_e8m0fnu cannot be compared.")
    assert only(torch.ones(3, dtype=torch.float64), exponents).status is ERROR


def test_arrays_and_storages_are_not_compared() -> None:
    values = torch.arange(3.0)
    assert only(values.numpy(), values.numpy()).status is SKIP
    assert only(values.untyped_storage(), values.untyped_storage()).status is SKIP
    assert only(np.float32(1), np.float32(1)).status is PASS
    assert only(np.float32(1), np.float32(2)).status is ERROR


def test_vectors_with_several_right_answers_are_told() -> None:
    values = torch.arange(1.0, 5.0)
    (row,) = compare_outputs(values, -values, "Torch.linalg.eigh.0")
    assert row.status is ERROR
    assert "as right with another sign" in row.message
    (row,) = compare_outputs(values, values, "Torch.linalg.eigh.0")
    assert "sign" not in row.message
    assert "sign" not in compare_outputs(values, -values, "Torch.neg.0")[0].message
