"""Which standard judges an operator, and the tables against the document's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from opassay.kernels.precision import tables
from opassay.kernels.precision.standards import api_of, limits_of, standard_of
from opassay.schemas.check_rows import DETAILS, METRICS

DOCUMENT: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data/checker/api_standards.json").read_text(encoding="utf-8")
)
DTYPES = ("torch.float16", "torch.bfloat16", "torch.float32")


@pytest.mark.parametrize("name", DOCUMENT["standards"])
def test_lists_labels_and_columns_are_the_documents(name: str) -> None:
    theirs = DOCUMENT["standards"][name]
    assert tables.LISTED.get(name, frozenset()) == set(theirs["apis"])
    assert tables.LABELS[name] == theirs["label"]
    assert {DETAILS[column] for column in tables.COLUMNS[name]} == set(theirs["columns"])
    assert set(tables.COLUMNS[name]) <= set(METRICS)


@pytest.mark.parametrize("dtype", DTYPES)
def test_thresholds_are_the_documents(dtype: str) -> None:
    limits, theirs = tables.LIMITS[dtype], DOCUMENT["thresholds"]
    assert limits.small_value == theirs["small_value"][dtype]
    assert limits.small_atol == DOCUMENT["small_value_atol"][dtype]
    assert limits.rtol == theirs["absolute_rtol"][dtype]
    assert limits.accumulative_bound == theirs["accumulative_bound"][dtype]
    assert limits.accumulative_balance == theirs["accumulative_eb"][dtype]
    ulp = {"min_exponent": limits.min_exponent, "mantissa_bits": limits.mantissa_bits, "count_above": limits.ulp_above}
    assert ulp == theirs["ulp"][dtype]
    assert theirs["small_value"]["accumulative_error_compare"] == tables.ACCUMULATIVE_SMALL


def test_limits_of_status_and_dropout_are_the_documents() -> None:
    status, dropout = DOCUMENT["thresholds"]["status"], DOCUMENT["thresholds"]["dropout"]
    assert status["cosine_min_exclusive"] == tables.COSINE_ABOVE
    assert status["max_abs_max_exclusive"] == tables.ERROR_MAX_BELOW
    assert status["hundredth"] == tables.HUNDREDTH_LIMIT
    assert status["thousandth"] == tables.THOUSANDTH_LIMIT
    assert status["ten_thousandth"] == tables.TEN_THOUSANDTH_LIMIT
    assert dropout == {
        "min_elements": tables.ZEROS_FROM,
        "max_zero_count_difference_share": tables.ZEROS_WITHIN,
    }


def test_what_the_lists_leave_out_is_the_documents() -> None:
    theirs = DOCUMENT["overrides"]
    assert set(theirs["random_apis_not_comparable"]) == tables.RANDOM_APIS
    assert set(theirs["matmul_like_missing_from_ulp_list"]) == tables.ADDED[tables.ULP][0]
    assert set(theirs["convolution_like_missing_from_thousandth_list"]) == tables.ADDED[tables.THOUSANDTH][0]
    assert set(theirs["pure_data_movement_missing_from_binary_list"]) == tables.ADDED[tables.BINARY][0]


def test_no_operator_is_in_two_lists() -> None:
    lists = [*tables.LISTED.values(), *(members for members, _ in tables.ADDED.values()), tables.RANDOM_APIS]
    names = [name for members in lists for name in members]
    assert len(names) == len(set(names))


CASES = [
    ("mul", "forward", "absolute_threshold"),
    ("mul", "backward", "benchmark"),
    ("gather", "forward", "binary_consistency"),
    ("gather", "backward", "benchmark"),
    ("matmul", "forward", "ulp_compare"),
    ("matmul", "backward", "ulp_compare"),
    ("conv2d", "backward", "thousandth_threshold"),
    ("test_api", "forward", "accumulative_error_compare"),
    ("softmax", "forward", "benchmark"),
    ("einsum", "backward", "ulp_compare"),
    ("conv3d", "forward", "thousandth_threshold"),
    ("cat", "forward", "binary_consistency"),
    ("cat", "backward", "benchmark"),
    ("linalg.multi_dot", "forward", "ulp_compare"),
    ("add.Tensor", "forward", "absolute_threshold"),
    ("linalg.inv", "forward", "benchmark"),
    ("matmuls", "forward", "benchmark"),
    ("bernoulli", "forward", "random"),
    ("alpha_dropout", "forward", "random"),
    ("dropout2d", "backward", "share_of_zeros"),
]


@pytest.mark.parametrize(("api", "direction", "name"), CASES)
def test_the_standard_of(api: str, direction: Any, name: str) -> None:
    standard = standard_of(api, torch.float32, direction)
    assert standard.name == name
    assert standard.label == tables.LABELS[name]
    assert standard.columns == tables.COLUMNS[name]
    assert standard.why


def test_the_dtype_comes_before_the_name() -> None:
    assert standard_of("matmul", torch.int64).name == "binary_consistency"
    assert standard_of("matmul", torch.float64).name == "unsupported"
    assert standard_of("matmul", "torch.complex64").columns == ()
    assert standard_of("bernoulli", torch.int64).name == "random"


@pytest.mark.parametrize(
    ("api", "direction"), [("mul", "backward"), ("gather", "backward"), ("cat", "forward"), ("dropout", "forward")]
)
def test_the_documents_lists_alone(api: str, direction: Any) -> None:
    found = standard_of(api, torch.float32, direction, document_only=True).name
    listed = [name for name, members in tables.LISTED.items() if api in members]
    assert found == (listed[0] if listed else "benchmark")


def test_thresholds_are_told() -> None:
    assert standard_of("mul", torch.bfloat16).thresholds == {
        "small_value": 2.0**-10,
        "small_value_atol": 2.0**-16,
        "rtol": 2.0**-8,
    }
    assert standard_of("exp", torch.float32).thresholds == {"small_value": 2.0**-20, "small_value_atol": 2.0**-30}
    assert standard_of("matmul", torch.float16).thresholds == {
        "mantissa_bits": 10,
        "min_exponent": -14,
        "count_above": 1,
    }
    assert standard_of("conv1d", torch.float16).thresholds == {"relative": 0.001}
    assert standard_of("test_api", torch.float32).thresholds == {
        "small_value": 1.0,
        "bound": 2.0**-11,
        "balance": 2.0**-14,
    }
    assert standard_of("dropout", torch.float32).thresholds == {"min_elements": 100, "zero_share": 0.1}
    assert standard_of("abs", torch.float32).thresholds == {}


@pytest.mark.parametrize(
    ("name", "api"),
    [
        ("matmul", "matmul"),
        ("linalg.inv", "linalg.inv"),
        ("Torch.matmul", "matmul"),
        ("Torch.matmul.0", "matmul"),
        ("Torch.matmul.0.forward", "matmul"),
        ("Torch.matmul.forward", "matmul"),
        ("Torch.linalg.inv.12.backward.output.0", "linalg.inv"),
        ("Aten.add.Tensor.3", "add.Tensor"),
        ("NPU.npu_rms_norm.1", "npu_rms_norm"),
        ("GELU", "GELU"),
    ],
)
def test_the_operator_of_a_name(name: str, api: str) -> None:
    assert api_of(name) == api


def test_limits_exist_for_floats_only() -> None:
    assert limits_of(torch.float16).mantissa_bits == 10
    with pytest.raises(KeyError):
        limits_of(torch.int32)


def test_the_tables_need_no_torch() -> None:
    code = "import sys, opassay.kernels.precision.standards, opassay.kernels.precision.status; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
