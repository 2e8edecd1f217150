"""Each operator against a composition of torch's own functions, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from opassay.kernels.fused import FUSED
from opassay.kernels.fused.softmaxes import experts_tie
from torch.nn import functional


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


WIDE_RANGE = torch.cat([torch.linspace(-800, 800, 401, dtype=torch.float64), torch.tensor([0.0, -0.0, 1e-300])])


@pytest.mark.parametrize("name", ["fast_gelu", "npu_fast_gelu"])
def test_fast_gelu_is_its_documented_closed_form(name: str) -> None:
    x = WIDE_RANGE
    size = x.abs()
    close(FUSED[name].call(x), x / (1 + torch.exp(-1.702 * size)) * torch.exp(0.851 * (x - size)))


def test_fast_gelu_takes_its_argument_by_either_name() -> None:
    x = drawn(3)
    close(FUSED["fast_gelu"].call(self=x), FUSED["npu_fast_gelu"].call(input=x))


def test_mish() -> None:
    close(FUSED["npu_mish"].call(WIDE_RANGE), functional.mish(WIDE_RANGE))


@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_swiglu(dim: int) -> None:
    x = drawn(4, 6, 8)
    half = x.shape[dim] // 2
    close(FUSED["npu_swiglu"].call(x, dim=dim), functional.silu(x.narrow(dim, 0, half)) * x.narrow(dim, half, half))


def test_swiglu_of_an_odd_axis_says_so() -> None:
    with pytest.raises(ValueError, match=r"axis 1 of shape \(2, 3\).*even"):
        FUSED["npu_swiglu"].call(drawn(2, 3), 1)


@pytest.mark.parametrize("shape", [[6], [5, 6], 6])
@pytest.mark.parametrize("affine", [False, True])
def test_layer_norm_eval(shape: list[int] | int, affine: bool) -> None:
    x = drawn(4, 5, 6)
    sizes = [shape] if isinstance(shape, int) else shape
    weight, bias = (drawn(*sizes, seed=1), drawn(*sizes, seed=2)) if affine else (None, None)
    close(
        FUSED["npu_layer_norm_eval"].call(x, shape, weight, bias, eps=1e-3),
        functional.layer_norm(x, sizes, weight, bias, 1e-3),
    )
    close(FUSED["npu_layer_norm_eval"].call(x * 1e-3, shape), functional.layer_norm(x * 1e-3, sizes))


def test_layer_norm_eval_of_another_shape_says_so() -> None:
    with pytest.raises(ValueError, match=r"\(5,\) is not the end of .* \(4, 6\)"):
        FUSED["npu_layer_norm_eval"].call(drawn(4, 6), [5])


@pytest.mark.parametrize("sizes", [(8,), (5, 8)])
def test_rms_norm_normalises_as_many_axes_as_gamma_has(sizes: tuple[int, ...]) -> None:
    x, gamma = drawn(3, 5, 8), drawn(*sizes, seed=1)
    y, rstd = FUSED["npu_rms_norm"].call(x, gamma, epsilon=1e-3)
    close(y, functional.rms_norm(x, list(sizes), gamma, 1e-3))
    assert rstd.shape == (3, 5, 1) if len(sizes) == 1 else (3, 1, 1)
    close(rstd * x * gamma, y)


def test_rms_norm_has_epsilon_1e_minus_6_unless_given() -> None:
    x, gamma = drawn(3, 8) * 1e-4, drawn(8, seed=1)
    close(FUSED["npu_rms_norm"].call(x, gamma)[0], functional.rms_norm(x, [8], gamma, 1e-6))


@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 4), (2, 6, 4, 3), (2, 6, 2, 1, 3, 2)])
@pytest.mark.parametrize("affine", [False, True])
def test_group_norm_silu(shape: tuple[int, ...], affine: bool) -> None:
    x = drawn(*shape)
    weight, bias = (drawn(6, seed=1), drawn(6, seed=2)) if affine else (None, None)
    out, mean, rstd = FUSED["npu_group_norm_silu"].call(x, weight, bias, 2)
    close(out, functional.silu(functional.group_norm(x, 2, weight, bias, 1e-5)))
    parts = x.reshape(2, 2, -1)
    close(mean, parts.mean(-1))
    close(rstd, (parts.var(-1, unbiased=False) + 1e-5) ** -0.5)


def test_group_norm_silu_that_cannot_part_says_so() -> None:
    with pytest.raises(ValueError, match=r"\(2, 6\) into 4 groups"):
        FUSED["npu_group_norm_silu"].call(drawn(2, 6), None, None, 4)


@pytest.mark.parametrize("with_bias", [False, True])
def test_linear(with_bias: bool) -> None:
    x, weight, bias = drawn(5, 6), drawn(4, 6, seed=1), drawn(4, seed=2) if with_bias else None
    close(FUSED["npu_linear"].call(x, weight, bias), functional.linear(x, weight, bias))


def test_rotary_mul_in_pairs_is_a_product_of_complex_numbers() -> None:
    x, angle = drawn(2, 3, 5, 8), drawn(1, 1, 5, 4, seed=1)
    turned = torch.view_as_complex(x.reshape(2, 3, 5, 4, 2)) * torch.polar(torch.ones_like(angle), angle)
    cos, sin = (f(angle).repeat_interleave(2, -1) for f in (torch.cos, torch.sin))
    close(FUSED["npu_rotary_mul"].call(x, cos, sin, "interleave"), torch.view_as_real(turned).reshape(x.shape))


def test_rotary_mul_in_halves_is_the_same_after_sorting_the_axis() -> None:
    x, angle = drawn(2, 5, 3, 8), drawn(1, 5, 1, 4, seed=1)
    turned = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones_like(angle), angle)
    cos, sin = (f(angle).repeat(1, 1, 1, 2) for f in (torch.cos, torch.sin))
    close(FUSED["npu_rotary_mul"].call(x, cos, sin), torch.cat([turned.real, turned.imag], -1))


def test_rotary_mul_of_an_unknown_mode_or_an_odd_axis_says_so() -> None:
    with pytest.raises(ValueError, match="'quarter', expected 'half' or 'interleave'"):
        FUSED["npu_rotary_mul"].call(drawn(1, 1, 1, 4), drawn(4), drawn(4), "quarter")
    with pytest.raises(ValueError, match="must be even"):
        FUSED["npu_rotary_mul"].call(drawn(1, 1, 1, 3), drawn(3), drawn(3))


@pytest.mark.parametrize("triangle", [False, True])
def test_scaled_masked_softmax(triangle: bool) -> None:
    x = drawn(2, 3, 5, 5)
    mask = drawn(2, 1, 5, 5, seed=1) > 0
    mask[..., 0] = False
    masked = torch.ones(5, 5).triu(1).bool() if triangle else mask
    # Against a softmax without the masked elements: exp(-10000) is 0 in float64.
    parts = torch.exp(1.5 * x) * ~masked
    close(FUSED["npu_scaled_masked_softmax"].call(x, mask, 1.5, triangle), parts / parts.sum(-1, keepdim=True))


def test_a_row_masked_as_a_whole_is_uniform() -> None:
    y = FUSED["npu_scaled_masked_softmax"].call(drawn(1, 1, 2, 4), torch.ones(1, 1, 2, 4, dtype=torch.bool))
    close(y, torch.full_like(y, 0.25))


@pytest.mark.parametrize("shape", [(7, 8), (2, 3, 8)])
def test_moe_gating(shape: tuple[int, ...]) -> None:
    x = drawn(*shape)
    finished = drawn(*shape[:-1], seed=1) > 0
    y, expert, row = FUSED["npu_moe_gating_top_k_softmax"].call(x, finished, k=3)
    values, places = functional.softmax(x, -1).topk(3)
    close(y, values)
    assert finished.any()
    assert not finished.all()
    assert torch.equal(expert[~finished], places[~finished].int())
    assert (expert[finished] == 8).all()
    rows = math.prod(shape[:-1])
    flat = row.reshape(rows, 3)
    assert all(flat[r, c] == c * rows + r for r in range(rows) for c in range(3))
    assert expert.dtype == row.dtype == torch.int32
    assert expert.shape == row.shape == y.shape


def test_moe_gating_takes_the_lower_expert_of_equal_ones() -> None:
    _, expert, _ = FUSED["npu_moe_gating_top_k_softmax"].call(torch.zeros(1, 40, dtype=torch.float64), k=40)
    assert expert.tolist() == [list(range(40))]


def test_moe_gating_of_more_experts_than_there_are_says_so() -> None:
    with pytest.raises(ValueError, match="first 5 of 4 experts"):
        FUSED["npu_moe_gating_top_k_softmax"].call(drawn(2, 4), k=5)


def test_experts_tie_within_one_unit_of_the_device_dtype() -> None:
    """A unit of bfloat16 is 0.00195 between 0.25 and 0.5."""
    x = torch.tensor([[0.3, 0.3 - 0.0019, 0.3 - 0.002, 0.1039]], dtype=torch.float64).log()
    chosen = torch.tensor([[0, 1, 2, 9]])
    reference = torch.tensor([[0, 0, 0, 0]])
    assert experts_tie(x, chosen, reference, torch.float32).tolist() == [[True, False, False, False]]
    assert experts_tie(x, chosen, reference, torch.bfloat16).tolist() == [[True, True, False, False]]


def test_confusion_transpose_moves_what_permute_and_reshape_move() -> None:
    x = drawn(2, 3, 4, 6)
    call = FUSED["npu_confusion_transpose"].call
    assert torch.equal(call(x, [0, 2, 1, 3], (2, 4, 18), True), x.transpose(1, 2).contiguous().view(2, 4, 18))
    assert torch.equal(call(x, (0, 2, 1), [2, 12, 6], False), x.view(2, 12, 6).transpose(1, 2))
    strided = x.transpose(0, 3)
    assert torch.equal(call(strided, (1, 0), (6, 24), False), strided.contiguous().view(6, 24).T)


@pytest.mark.parametrize("descending", [False, True])
def test_sort(descending: bool) -> None:
    x = drawn(3, 9)
    expected = [sorted(row, reverse=descending) for row in x.tolist()]
    assert FUSED["npu_sort_v2"].call(x, descending=descending).tolist() == expected


def test_sort_leaves_out_alone() -> None:
    x, out = drawn(3, 9), torch.zeros(3, 9, dtype=torch.float64)
    FUSED["npu_sort_v2"].call(x, out=out)
    assert not out.any()


def moments(
    seed: int, steps: int, optimizer: type[torch.optim.Optimizer], **options: object
) -> dict[str, torch.Tensor]:
    """Variable and moments of torch's optimizer after some steps, before and after the last one, and its gradient."""
    var = torch.nn.Parameter(drawn(4, 5, seed=seed))
    runner = optimizer([var], **options)  # type: ignore[call-arg]
    seen: dict[str, torch.Tensor] = {}
    for step in range(steps):
        var.grad = drawn(4, 5, seed=seed + step + 1)
        state = runner.state[var]
        seen = {"var": var.detach().clone(), "grad": var.grad}
        seen |= {key: value.clone() for key, value in state.items() if isinstance(value, torch.Tensor)}
        runner.step()
    seen |= {f"new_{key}": value for key, value in runner.state[var].items() if isinstance(value, torch.Tensor)}
    return {**seen, "new_var": var.detach()}


@pytest.mark.parametrize("amsgrad", [False, True, None])
@pytest.mark.parametrize("maximize", [False, True])
def test_apply_adam_w_is_a_step_of_torch(amsgrad: bool | None, maximize: bool) -> None:
    options = {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1}
    seen = moments(7, 4, torch.optim.AdamW, amsgrad=bool(amsgrad), maximize=maximize, **options)
    greatest = seen["max_exp_avg_sq"] if amsgrad else None
    found = FUSED["npu_apply_adam_w"].call(
        0.9**3, 0.99**3, 0.01, 0.1, 0.9, 0.99, 1e-8, seen["grad"], greatest, amsgrad, maximize,
        out=(seen["var"], seen["exp_avg"], seen["exp_avg_sq"]),
    )  # fmt: skip
    for ours, name in zip(found, ("var", "exp_avg", "exp_avg_sq"), strict=True):
        close(ours, seen[f"new_{name}"])


def test_apply_adam_w_without_the_greatest_moment_says_so() -> None:
    x = drawn(2)
    with pytest.raises(ValueError, match="amsgrad needs max_grad_norm"):
        FUSED["npu_apply_adam_w"].call(0.9, 0.9, 0.1, 0.1, 0.9, 0.9, 1e-8, x, amsgrad=True, out=(x, x, x.abs()))


def test_apply_adam_w_lowers_a_power_whose_correction_would_vanish() -> None:
    x = drawn(3)
    var, _, _ = FUSED["npu_apply_adam_w"].call(1.0, 1.0, 0.1, 0.0, 1.0, 1.0, 1e-2, x, out=(x, x, x.abs()))
    close(var, x - 0.1 / 1e-2 * x / ((x.abs() / 1e-2).sqrt() + 1e-2))


def test_apply_adam_is_a_step_of_torch() -> None:
    seen = moments(3, 4, torch.optim.Adam, lr=0.01, betas=(0.9, 0.99), eps=1e-6)
    # The operator adds epsilon before it corrects the second moment, torch after.
    epsilon = 1e-6 * math.sqrt(1 - 0.99**4)
    found = FUSED["npu_apply_adam"].call(
        0.9**4, 0.99**4, 0.01, 0.9, 0.99, epsilon, seen["grad"], None, None,
        out=(seen["var"], seen["exp_avg"], seen["exp_avg_sq"]),
    )  # fmt: skip
    for ours, name in zip(found, ("var", "exp_avg", "exp_avg_sq"), strict=True):
        close(ours, seen[f"new_{name}"])


def test_apply_adam_with_nesterov_looks_one_step_ahead() -> None:
    g, var, m, v = 0.5, 1.0, 0.25, 0.125
    tensors = [torch.tensor([value], dtype=torch.float64) for value in (var, m, v)]
    found = FUSED["npu_apply_adam"].call(
        0.81, 0.98, 0.01, 0.9, 0.99, 1e-3, torch.tensor([g], dtype=torch.float64), True, True, out=tensors
    )
    new_m, new_v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    ahead = 0.9 * new_m + 0.1 * g
    expected = var - 0.01 * math.sqrt(0.02) / 0.19 * ahead / (1e-3 + math.sqrt(new_v))
    assert [value.item() for value in found] == pytest.approx([expected, new_m, new_v], rel=1e-13)
    assert [tensor.item() for tensor in tensors] == [var, m, v]


def test_results_of_a_step_have_the_dtypes_of_what_they_replace() -> None:
    out = (torch.ones(3, dtype=torch.bfloat16), torch.ones(3), torch.ones(3, dtype=torch.float16))
    for name, args in (
        ("npu_apply_adam", (0.9, 0.9, 0.1, 0.9, 0.9, 1e-8)),
        ("npu_apply_adam_w", (0.9, 0.9, 0.1, 0.1, 0.9, 0.9, 1e-8)),
    ):
        flags = (False, False) if name == "npu_apply_adam" else ()
        found = FUSED[name].call(*args, torch.ones(3, dtype=torch.bfloat16), *flags, out=out)
        assert [tensor.dtype for tensor in found] == [tensor.dtype for tensor in out]
