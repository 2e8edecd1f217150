"""torch computes the reference: the same names where they are the same, and a table where they are not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from opassay.kernels.fused import FUSED
from opassay.pipeline.check.cases import CannotRun, Case
from opassay.pipeline.check.mindspore_names import reference_of, unsupported

X = torch.tensor([[1.0, 2.0], [0.5, -1.0]])
LABELS = torch.tensor([0, 1])


def case_of(kind: str, api: str, framework: str = "mindspore") -> Case:
    """A case of this name."""
    return Case(f"{kind}.{api}.0", kind, api, "0", framework=framework)


@pytest.mark.parametrize(
    ("kind", "api", "args", "kwargs", "expected"),
    [
        ("Mint", "add", [X, X], {}, X + X),
        ("Mint", "linalg.inv", [X], {}, torch.linalg.inv(X)),
        ("Mint", "isnan", [], {"tensor": X}, torch.isnan(X)),
        ("Mint", "dot", [X[0]], {"other": X[1]}, torch.dot(X[0], X[1])),
        ("Mint", "cumsum", [X, 0, torch.float64], {}, torch.cumsum(X, 0, dtype=torch.float64)),
        ("Mint", "var", [X, 0, 0, True], {}, torch.var(X, 0, correction=0, keepdim=True)),
        ("MintFunctional", "flatten", [X], {}, X.flatten()),
        ("MintFunctional", "one_hot", [], {"tensor": LABELS, "num_classes": 3}, torch.nn.functional.one_hot(LABELS, 3)),
        ("MintFunctional", "softmax", [X, 0, torch.float64], {}, torch.softmax(X, 0, dtype=torch.float64)),
        ("MintFunctional", "cross_entropy", [X, LABELS, None, 1, "sum"], {},
         torch.nn.functional.cross_entropy(X, LABELS, ignore_index=1, reduction="sum")),
        ("MintFunctional", "mse_loss", [X, X + 1, "sum"], {}, torch.tensor(4.0)),
        ("Tensor", "max", [X], {"axis": 1}, torch.tensor([2.0, 0.5])),
        ("Tensor", "mean", [X], {"axis": 0, "keep_dims": True}, X.mean(0, keepdim=True)),
    ],
)  # fmt: skip
def test_references(kind: str, api: str, args: list[Any], kwargs: dict[str, Any], expected: torch.Tensor) -> None:
    found = reference_of(case_of(kind, api))(*args, **kwargs)
    assert torch.equal(found, expected)


def test_max_by_dim_gives_values_and_places() -> None:
    values, places = reference_of(case_of("Tensor", "max"))(X, dim=1)
    assert (values.tolist(), places.tolist()) == ([2.0, 0.5], [1, 0])


def test_mindtorch_has_the_names_of_torch() -> None:
    assert reference_of(case_of("Functional", "relu", "mindtorch")) is torch.nn.functional.relu
    assert unsupported(case_of("Functional", "relu", "mindtorch")) == ""
    assert unsupported(case_of("Tensor", "__mul__", "mindtorch")) == ""


def test_unknown_functions_and_arguments_beyond_the_table_are_told() -> None:
    with pytest.raises(CannotRun, match="API nonexist not found in torch"):
        reference_of(case_of("Mint", "nonexist"))
    with pytest.raises(CannotRun, match="mse_loss takes 3 arguments and the dump has 4"):
        reference_of(case_of("MintFunctional", "mse_loss"))(X, X, "sum", 1)


@pytest.mark.parametrize(
    ("kind", "api", "reason"),
    [
        ("Functional", "relu", "of mindspore.ops only flash_attention_score is supported by the pre-check"),
        ("Functional", "flash_attention_score", ""),
        ("Tensor", "sin", ""),
        ("Tensor", "foo", "Tensor.foo is not supported by the pre-check"),
        ("Tensor", "tolist", "the result of Tensor.tolist is no tensor and is not compared"),
        ("Mint", "rand", "rand draws random numbers: two runs never agree"),
        ("Mint", "empty", "the result of empty holds nothing that could be compared"),
    ],
)
def test_what_is_not_checked_is_told(kind: str, api: str, reason: str) -> None:
    assert unsupported(case_of(kind, api)) == reason


def test_flash_attention_is_the_twin_with_other_names() -> None:
    generator = torch.Generator().manual_seed(3)
    query = torch.randn(2, 4, 8, 16, generator=generator, dtype=torch.float64)
    key, value = (torch.randn(2, 2, 8, 16, generator=generator, dtype=torch.float64) for _ in range(2))
    pse = torch.randn(2, 4, 8, 8, generator=generator, dtype=torch.float64)
    mask = torch.ones(8, 8, dtype=torch.bool).triu(1)
    attention = reference_of(case_of("Functional", "flash_attention_score"))
    found = attention(query, key, value, 4, pse, attn_mask=mask, scalar_value=0.25, input_layout="BNSD")
    scores = (query @ key.repeat_interleave(2, 1).mT + pse) * 0.25
    expected = scores.masked_fill(mask, -torch.inf).softmax(-1) @ value.repeat_interleave(2, 1)
    assert torch.allclose(found, expected, atol=1e-12)
    flat = [tensor.transpose(1, 2).reshape(2, 8, -1) for tensor in (query, key, value)]
    twin = FUSED["npu_fusion_attention"].call(*flat, 4, "BSH", scale=0.25)[0]
    assert torch.equal(attention(*flat, 4, scalar_value=0.25), twin)  # BSH is MindSpore's default
    with pytest.raises(CannotRun, match="dropout inside the operator"):
        attention(query, key, value, 4, keep_prob=0.9, input_layout="BNSD")
