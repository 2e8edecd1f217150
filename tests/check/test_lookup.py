"""Names of calls -> functions; only operators are found."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from opassay.pipeline.check.cases import CannotRun, read_cases
from opassay.pipeline.check.lookup import ApiNotFound, find_api, is_known

CASES = Path(__file__).parents[1] / "data" / "checker"
X = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("kind", "api", "expected"),
    [
        ("Functional", "conv2d", torch.nn.functional.conv2d),
        ("Functional", "max_pool2d", torch.nn.functional.max_pool2d),
        ("Functional", "rms_norm", torch.nn.functional.rms_norm),
        ("Functional", "scaled_dot_product_attention", torch.nn.functional.scaled_dot_product_attention),
        ("Tensor", "view", torch.Tensor.view),
        ("Tensor", "contiguous", torch.Tensor.contiguous),
        ("Tensor", "item", torch.Tensor.item),
        ("Torch", "zeros", torch.zeros),
        ("Torch", "einsum", torch.einsum),
        ("Torch", "unique", torch.unique),
        ("Torch", "linalg.inv", torch.linalg.inv),
        ("Torch", "fft.rfft", torch.fft.rfft),
        ("Torch", "inv", torch.linalg.inv),  # dumps that leave the sub-module out
        ("Torch", "rfft", torch.fft.rfft),
        ("Torch", "erfcx", torch.special.erfcx),
        ("Torch", "solve", torch.linalg.solve),  # torch.solve only says that it is gone
        ("Torch", "norm", torch.norm),
        ("Aten", "add", torch.ops.aten.add),
        ("Aten", "add.Tensor", torch.ops.aten.add.Tensor),
        ("Aten", "_softmax", torch.ops.aten._softmax),
        ("VF", "lstm", torch._VF.lstm),
    ],
)
def test_operators_are_found(kind: str, api: str, expected: Any) -> None:
    assert find_api(kind, api, "cpu") == expected


@pytest.mark.parametrize(
    ("kind", "api"),
    [
        ("Torch", "load"), ("Torch", "save"), ("Torch", "os.system"), ("Torch", "from_file"), ("Torch", "set_num_threads"),
        ("Torch", "manual_seed"), ("Torch", "Tensor"), ("Torch", "hub.load"), ("Torch", "compile"), ("Torch", "__class__"),
        ("Torch", "linalg.LinAlgError"), ("Torch", "linalg._C"), ("Torch", "no_such_thing"), ("Torch", "mro"),
        ("Functional", "importlib"), ("Functional", "warnings"), ("Functional", "Callable"), ("Functional", "no_such_thing"),
        ("Functional", "handle_torch_function"), ("Functional", "_adaptive_max_pool1d"),
        ("Tensor", "__class__"), ("Tensor", "__reduce_ex__"), ("Tensor", "mro"), ("Tensor", "shape"), ("Tensor", "no_such_thing"),
        ("Aten", "from_file"), ("Aten", "name"), ("Aten", "add.no_such_thing"), ("Aten", "no_such_thing"), ("Aten", "add.op"),
        ("VF", "from_file"), ("VF", "no_such_thing"), ("VF", "__init__"), ("VF", "mro"),
        ("Jit", "relu"), ("Torch", ""),
    ],
)  # fmt: skip
def test_nothing_else_is_found(kind: str, api: str) -> None:
    with pytest.raises(ApiNotFound, match=f"^API {api} not found in "):
        find_api(kind, api, "cpu")


def test_the_message_names_the_module() -> None:
    with pytest.raises(ApiNotFound, match=r"^API nonexistent_api not found in torch\.nn\.functional$"):
        find_api("Functional", "nonexistent_api", "cpu")


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (slice(0, 1, None), X[0:1]),
        ([slice(None), 2], X[:, 2]),
        ([0, 1], X[0, 1]),
        ([slice(None), [0, 2]], X[:, [0, 2]]),
        (..., X),
        (X > 2, X[X > 2]),
        ((X > 2).to(torch.uint8), X[X > 2]),
        (torch.tensor([True, False]), X[:1]),
        ([torch.tensor([1, 0]), torch.tensor([2, 2])], X[[1, 0], [2, 2]]),
    ],
)
def test_getitem(index: Any, expected: torch.Tensor) -> None:
    assert torch.equal(find_api("Tensor", "__getitem__", "cpu")(X, index), expected)


def test_setitem_gives_the_tensor_back() -> None:
    changed = find_api("Tensor", "__setitem__", "cpu")(X.clone(), [slice(None), 0], 9.0)
    assert changed[:, 0].tolist() == [9.0, 9.0]


def test_comparisons() -> None:
    assert find_api("Tensor", "__eq__", "cpu")(X, None) is False
    assert find_api("Tensor", "__ne__", "cpu")(X, None) is True
    assert torch.equal(find_api("Tensor", "__eq__", "cpu")(X, X), torch.ones(2, 3, dtype=torch.bool))
    assert torch.equal(find_api("Tensor", "__gt__", "cpu")(X, 1), X > 1)
    with pytest.raises(TypeError, match="__lt__"):  # not NotImplemented as if that were a result
        find_api("Tensor", "__lt__", "cpu")(X, None)


def test_npu_names_off_the_npu_are_references() -> None:
    from opassay.kernels.fused import reference

    assert find_api("NPU", "npu_swiglu", "cpu") is reference("npu_swiglu")
    assert find_api("NPU", "fast_gelu", "cuda:1") is not None
    with pytest.raises(ApiNotFound, match=r"^There is not bench function npu_unknown_op$"):
        find_api("NPU", "npu_unknown_op", "cpu")


def test_npu_names_on_the_npu_are_the_real_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    library = types.ModuleType("torch_npu")
    library.npu_swiglu = lambda x: x  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_npu", library)
    assert find_api("NPU", "npu_swiglu", "npu:0") is library.npu_swiglu
    with pytest.raises(ApiNotFound, match=r"^API npu_unknown not found in torch_npu$"):
        find_api("NPU", "npu_unknown", "npu")


@pytest.mark.skipif(importlib.util.find_spec("torch_npu") is not None, reason="torch_npu is installed here")
def test_npu_without_its_library_is_one_line() -> None:
    with pytest.raises(ApiNotFound, match="needs torch_npu, which cannot be imported") as caught:
        find_api("NPU", "npu_swiglu", "npu")
    assert "\n" not in str(caught.value)


def test_names_of_lists() -> None:
    assert all(
        is_known(name) for name in ("conv2d", "linalg.inv", "inv", "npu_anything", "fast_gelu", "__getitem__", "lstm")
    )
    assert not any(is_known(name) for name in ("conv22d", "Torch.add.0", "load", "", "os.system"))


def test_every_call_of_a_real_dump_is_found() -> None:
    for case in read_cases(CASES / "pt_ops_statistics" / "input" / "dump.json"):
        assert callable(find_api(case.kind, case.api, "cpu"))


def test_names_of_the_hand_made_dump() -> None:
    missing = []
    for case in read_cases(CASES / "pt_handmade" / "input" / "dump.json"):
        if not case.skip:
            try:
                find_api(case.kind, case.api, "cpu")
            except ApiNotFound:
                missing.append(case.name)
    assert missing == ["Functional.nonexistent_api.0", "Tensor.backward_like.0", "NPU.npu_unknown_op.0"], json.dumps(
        missing
    )


@pytest.mark.parametrize(("kind", "api"), [("Tensor", "resize_"), ("Tensor", "resize_as_")])
def test_new_elements_of_a_tensor_that_grows_are_refused(kind: str, api: str) -> None:
    """They are whatever the memory held, other numbers in every run."""
    resize = find_api(kind, api, "cpu")
    smaller = resize(X.clone(), torch.ones(2, 2)) if api == "resize_as_" else resize(X.clone(), 2, 2)
    assert smaller.tolist() == [[0, 1], [2, 3]]
    with pytest.raises(CannotRun, match="grows from 6 to 8"):
        resize(X.clone(), torch.ones(2, 4)) if api == "resize_as_" else resize(X.clone(), [2, 4])
