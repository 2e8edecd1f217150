"""The table of fused operators and its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from opassay.kernels.fused import FUSED, cuda_equivalent, reference

PAGE = Path(__file__).parents[3] / "docs" / "fused-operators.md"
NAMES = [
    "npu_apply_adam_w",
    "npu_confusion_transpose",
    "fast_gelu",
    "npu_fast_gelu",
    "npu_layer_norm_eval",
    "npu_linear",
    "npu_fusion_attention",
    "npu_rms_norm",
    "npu_rotary_mul",
    "npu_scaled_masked_softmax",
    "npu_swiglu",
    "npu_apply_adam",
    "npu_group_norm_silu",
    "npu_mish",
    "npu_moe_gating_top_k_softmax",
    "npu_sort_v2",
]


def test_every_operator_has_a_reference() -> None:
    assert list(FUSED) == NAMES
    for name, op in FUSED.items():
        assert op.name == name
        assert reference(name) is op.call
        assert op.note
        assert (op.backward is None) == name.startswith("npu_apply_adam")


def test_an_unknown_operator_has_none() -> None:
    assert reference("npu_bmmV2") is None
    assert cuda_equivalent("npu_bmmV2") is None


def test_the_page_has_a_section_for_each_operator() -> None:
    heads = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("## ")]
    assert [name for name in NAMES if not any(f"`{name}`" in head for head in heads)] == []


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


ATTENTION = (drawn(2, 4, 3, 8), drawn(2, 2, 5, 8, seed=1), drawn(2, 2, 5, 8, seed=2), 4, "BNSD")
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("npu_mish", (drawn(3, 4),), {}),
    ("npu_linear", (drawn(3, 4), drawn(5, 4, seed=1), drawn(5, seed=2)), {}),
    ("npu_layer_norm_eval", (drawn(3, 4), [4], drawn(4, seed=1), drawn(4, seed=2), 1e-3), {}),
    ("npu_layer_norm_eval", (drawn(3, 4), 4), {}),
    ("npu_fusion_attention", ATTENTION, {"scale": 0.3}),
    ("npu_fusion_attention", ATTENTION, {"scale": 0.3, "pse": drawn(1, 4, 3, 5, seed=3)}),
    ("npu_fusion_attention", ATTENTION, {"atten_mask": torch.ones(3, 5).tril(1).bool()}),
    ("npu_fusion_attention", ATTENTION, {"atten_mask": torch.ones(3, 5).tril(1).bool(), "pse": drawn(2, 4, 3, 5, seed=3)}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS)
def test_the_equivalents_on_cuda_compute_the_same(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run on the CPU: they are functions of torch that exist there too. Gradients as well."""
    instead = cuda_equivalent(name)
    assert instead is not None
    values, gradients = [], []
    for call in (FUSED[name].call, instead):
        leaves = [v.clone().requires_grad_() if isinstance(v, torch.Tensor) else v for v in args]
        result = call(*leaves, **kwargs)
        first = result if isinstance(result, torch.Tensor) else result[0]
        first.backward(drawn(*first.shape, seed=9))
        values.append(first.detach())
        gradients.append([leaf.grad for leaf in leaves if isinstance(leaf, torch.Tensor)])
    torch.testing.assert_close(values[0], values[1], rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-10, atol=1e-12)


def test_the_attention_of_cuda_draws_no_mask() -> None:
    instead = cuda_equivalent("npu_fusion_attention")
    assert instead is not None
    keep = torch.ones(2, 4, 3, 5, dtype=torch.bool)
    with pytest.raises(ValueError, match="dropout inside the operator"):
        instead(*ATTENTION, keep_prob=0.9)
    with pytest.raises(ValueError, match="draws its own mask"):
        instead(*ATTENTION, keep_prob=0.9, drop_mask=keep)
