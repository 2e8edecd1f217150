"""Gradients: against finite differences, closed forms against autograd, and the order in which they come back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from opassay.kernels.fused import FUSED
from opassay.kernels.fused.table import by_autograd

Case = tuple[str, tuple[Any, ...], dict[str, Any]]


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


MASK = drawn(2, 1, 3, 4, seed=9) > 0.3
CASES: list[Case] = [
    ("fast_gelu", (drawn(3, 5),), {}),
    ("npu_fast_gelu", (), {"input": drawn(3, 5)}),
    ("npu_mish", (drawn(3, 5) * 4,), {}),
    ("npu_swiglu", (drawn(3, 4, 6), 1), {}),
    ("npu_swiglu", (drawn(3, 4, 6),), {"dim": -1}),
    ("npu_layer_norm_eval", (drawn(3, 4), [4], drawn(4, seed=1)), {"bias": drawn(4, seed=2), "eps": 1e-3}),
    ("npu_layer_norm_eval", (drawn(3, 4), [4]), {}),
    ("npu_rms_norm", (drawn(3, 2, 4), drawn(4, seed=1)), {}),
    ("npu_rms_norm", (drawn(3, 2, 4),), {"epsilon": 0.1, "gamma": drawn(2, 4, seed=1)}),
    ("npu_group_norm_silu", (drawn(2, 4, 3), drawn(4, seed=1), drawn(4, seed=2), 2), {}),
    ("npu_linear", (drawn(5, 3), drawn(4, 3, seed=1), drawn(4, seed=2)), {}),
    ("npu_linear", (drawn(2, 5, 3), drawn(4, 3, seed=1)), {}),
    ("npu_rotary_mul", (drawn(2, 3, 2, 4), drawn(1, 3, 1, 4, seed=1), drawn(1, 3, 1, 4, seed=2)), {}),
    ("npu_rotary_mul", (drawn(2, 2, 3, 4), drawn(1, 1, 3, 4, seed=1), drawn(2, 1, 3, 4, seed=2), "interleave"), {}),
    ("npu_scaled_masked_softmax", (drawn(2, 3, 3, 4), MASK, 0.7), {}),
    ("npu_scaled_masked_softmax", (drawn(2, 3, 3, 4), MASK), {"fixed_triu_mask": True}),
    ("npu_confusion_transpose", (drawn(2, 3, 4), (1, 0, 2), (3, 8), True), {}),
    ("npu_sort_v2", (drawn(3, 6),), {"descending": True}),
    ("npu_moe_gating_top_k_softmax", (drawn(3, 6),), {"k": 2}),
    ("npu_fusion_attention", (drawn(2, 4, 3, 4), drawn(2, 2, 5, 4, seed=1), drawn(2, 2, 5, 3, seed=2), 4, "BNSD"), {"scale": 0.5}),
    (
        "npu_fusion_attention",
        (drawn(3, 2, 8), drawn(5, 2, 4, seed=1), drawn(5, 2, 4, seed=2), 2, "SBH"),
        {"pse": drawn(1, 2, 1, 5, seed=3), "scale": 0.5, "atten_mask": drawn(3, 5, seed=4) > 0.2},
    ),
    (
        "npu_fusion_attention",
        (drawn(7, 2, 4), drawn(8, 1, 4, seed=1), drawn(8, 1, 4, seed=2), 2, "TND"),
        {"actual_seq_qlen": [3, 6], "actual_seq_kvlen": [4, 8], "pse": drawn(2 * 3 * 8, seed=3), "scale": 0.5},
    ),
]  # fmt: skip
IDS = [f"{name}-{number}" for number, (name, _, _) in enumerate(CASES)]


def first(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else result[0]


def floats(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[int | str, torch.Tensor]]:
    places = [*enumerate(args), *kwargs.items()]
    return [(k, v) for k, v in places if isinstance(v, torch.Tensor) and v.is_floating_point()]


@pytest.mark.parametrize(("name", "args", "kwargs"), CASES, ids=IDS)
def test_the_forward_is_differentiable(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Finite differences of the first output, with respect to every floating tensor."""
    places = [place for place, _ in floats(args, kwargs)]

    def call(*values: torch.Tensor) -> torch.Tensor:
        new = dict(zip(places, values, strict=True))
        return first(
            FUSED[name].call(
                *[new.get(place, value) for place, value in enumerate(args)],
                **{key: new.get(key, value) for key, value in kwargs.items()},
            )
        )

    assert torch.autograd.gradcheck(call, [value.clone().requires_grad_() for _, value in floats(args, kwargs)])


@pytest.mark.parametrize(("name", "args", "kwargs"), CASES, ids=IDS)
def test_backward_is_the_gradient_of_the_forward(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    op = FUSED[name]
    assert op.backward is not None
    grad = drawn(*first(op.call(*args, **kwargs)).shape, seed=99)
    found = op.backward(grad, *args, **kwargs)
    expected = by_autograd(op.call)(grad, *args, **kwargs)
    assert len(found) == len(expected) == sum(isinstance(v, torch.Tensor) for v in [*args, *kwargs.values()])
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-13)


def test_gradients_come_in_the_order_of_the_call() -> None:
    x, r1, r2 = drawn(1, 1, 3, 4), drawn(1, 1, 3, 4, seed=1), drawn(1, 1, 1, 4, seed=2)
    op = FUSED["npu_rotary_mul"]
    assert op.backward is not None
    grad = drawn(1, 1, 3, 4, seed=3)
    straight = op.backward(grad, x, r1, r2)
    turned = op.backward(grad, x, r2=r2, r1=r1)
    assert [g.shape for g in turned if g is not None] == [x.shape, r2.shape, r1.shape]
    for place, other in ((0, 0), (1, 2), (2, 1)):
        assert torch.equal(straight[place], turned[other])  # type: ignore[arg-type]


def test_a_mask_has_no_gradient_but_keeps_its_place() -> None:
    op = FUSED["npu_scaled_masked_softmax"]
    assert op.backward is not None
    assert op.backward(drawn(2, 3, 3, 4), drawn(2, 3, 3, 4), MASK)[1] is None


def test_the_gradient_may_be_one_for_each_output() -> None:
    x, gamma, grad = drawn(3, 4), drawn(4, seed=1), drawn(3, 4, seed=2)
    op = FUSED["npu_rms_norm"]
    assert op.backward is not None
    alone, listed = op.backward(grad, x, gamma), op.backward([grad, drawn(3, 1)], x, gamma)
    assert all(torch.equal(a, b) for a, b in zip(alone, listed, strict=True))  # type: ignore[arg-type]
    assert op.backward([None, None], x, gamma) == (None, None)


def test_fast_gelu_has_a_gradient_at_its_kink_and_far_out() -> None:
    x = torch.tensor([0.0, -0.0, 700.0, -700.0], dtype=torch.float64)
    op = FUSED["fast_gelu"]
    assert op.backward is not None
    (found,) = op.backward(torch.ones_like(x), x)
    assert found is not None
    torch.testing.assert_close(found, torch.tensor([0.5, 0.5, 1.0, 0.0], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("name", "args", "kwargs"), CASES, ids=IDS)
def test_16_bit_inputs_are_rounded_once(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype
) -> None:
    """Outputs and gradients are those of float32, rounded; statistics stay float32."""

    def cast(value: Any, to: torch.dtype) -> Any:
        return value.to(to) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    op = FUSED[name]
    assert op.backward is not None
    short, short_kwargs = [cast(v, dtype) for v in args], {k: cast(v, dtype) for k, v in kwargs.items()}
    wide, wide_kwargs = (
        [cast(v, torch.float32) for v in short],
        {k: cast(v, torch.float32) for k, v in short_kwargs.items()},
    )
    found, expected = op.call(*short, **short_kwargs), op.call(*wide, **wide_kwargs)
    pairs = [(found, expected)] if isinstance(found, torch.Tensor) else list(zip(found, expected, strict=True))
    for place, (ours, theirs) in enumerate(pairs):
        kept = place in op.statistics or not theirs.is_floating_point()
        assert torch.equal(ours, theirs if kept else theirs.to(dtype))
    grad = drawn(*first(found).shape, seed=99).to(dtype)
    for ours, theirs in zip(
        op.backward(grad, *short, **short_kwargs), op.backward(grad.float(), *wide, **wide_kwargs), strict=True
    ):
        if ours is not None and theirs is not None:
            assert torch.equal(ours, theirs.to(dtype))


def test_squares_of_16_bit_numbers_do_not_overflow() -> None:
    x = torch.full((1, 8), 1000.0, dtype=torch.float16)
    y, rstd = FUSED["npu_rms_norm"].call(x, torch.ones(8, dtype=torch.float16))
    assert torch.equal(y, torch.ones(1, 8, dtype=torch.float16))
    assert rstd.item() == pytest.approx(1e-3)
