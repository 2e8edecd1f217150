"""One call on both sides: precision of the reference, autocast, gradients, in-place operators, failures."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from opassay.kernels.precision.outputs import compare_outputs  # noqa: E402
from opassay.pipeline.check.call import call_both  # noqa: E402
from opassay.pipeline.check.cases import CannotRun, Case  # noqa: E402
from opassay.pipeline.check.framework import Sides  # noqa: E402
from opassay.pipeline.check.inputs import Inputs, Stand  # noqa: E402
from opassay.pipeline.check.precision_plan import in_place, plan_call  # noqa: E402

CPU = torch.device("cpu")


def values(*shape: int, dtype: Any = torch.float32, grad: bool = False, seed: int = 0) -> Any:
    """A tensor of random numbers."""
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return drawn.to(dtype).requires_grad_(grad)


def outputs(*dtypes: str) -> list[Any]:
    """Descriptors of outputs, of which the dtype counts."""
    return [{"type": "torch.Tensor", "dtype": f"torch.{dtype}", "shape": [1]} for dtype in dtypes]


def call(name: str, *args: Any, grads: list[Any] | None = None, recorded: tuple[str, ...] = (), **kwargs: Any) -> Sides:
    """Call an operator on both sides."""
    kind, api = name.split(".", 1)
    case = Case(f"{name}.0", kind, api, "0", outputs=outputs(*recorded), has_backward=grads is not None)
    inputs = Inputs(list(args), kwargs, grads or [])
    return call_both(case, inputs, CPU, gradients=grads is not None)


@pytest.mark.parametrize(
    ("dtype", "raised"),
    [
        (torch.float16, torch.float64),
        (torch.bfloat16, torch.float64),
        (torch.float32, torch.float64),
        (torch.float64, torch.float64),
        (torch.complex64, torch.complex128),
        (torch.int32, torch.int32),
        (torch.bool, torch.bool),
    ],
)
def test_the_reference_is_raised(dtype: Any, raised: Any) -> None:
    tensor = (values(3, 4) * 5).to(dtype)
    sides = call("Torch.clone", tensor)
    assert sides.device.dtype is dtype
    assert sides.bench.dtype is raised
    assert torch.equal(sides.bench, tensor.to(raised))


def test_types_that_follow_another_tensor_are_not_raised() -> None:
    assert call("Tensor.type_as", values(3), values(3, dtype=torch.float16)).bench.dtype is torch.float16
    view = call("Tensor.view", values(4), torch.int32)
    assert torch.equal(view.bench, view.device)


def test_dtype_arguments_are_raised_too() -> None:
    by_keyword = call("Functional.softmax", values(4, 5), dim=-1, dtype=torch.bfloat16)
    assert (by_keyword.bench.dtype, by_keyword.device.dtype) == (torch.float64, torch.bfloat16)
    by_place = call("Tensor.type", values(4), torch.float16)
    assert (by_place.bench.dtype, by_place.device.dtype) == (torch.float64, torch.float16)


def test_a_device_argument_is_that_of_the_side() -> None:
    assert call("Torch.zeros", [2, 3], device=Stand.DEVICE).device.device == CPU


def test_inputs_are_left_alone_by_operators_in_place() -> None:
    tensor = values(3, 4)
    before = tensor.clone()
    sides = call("Tensor.add_", tensor, 1.0)
    assert torch.equal(tensor, before)
    assert torch.equal(sides.device, before + 1)


def test_gradients_of_an_operator_in_place_are_those_of_its_input() -> None:
    tensor, grad = values(3, 4, grad=True), values(3, 4, seed=1)
    sides = call("Functional.relu", tensor, inplace=True, grads=[grad])
    assert sides.grads is not None
    expected = torch.where(tensor > 0, grad, 0.0)
    assert torch.equal(sides.grads[1][0], expected.detach())
    assert torch.equal(sides.grads[0][0], expected.detach().double())


@pytest.mark.parametrize("api", ["t_", "transpose_", "squeeze_", "unsqueeze_"])
def test_operators_that_change_shapes_in_place_have_gradients(api: str) -> None:
    tensor = values(1, 4, grad=True)
    args = {"t_": (), "transpose_": (0, 1), "squeeze_": (0,), "unsqueeze_": (0,)}[api]
    shape = getattr(tensor.detach().clone(), api)(*args).shape
    sides = call(f"Tensor.{api}", tensor, *args, grads=[torch.ones(shape)])
    assert not sides.no_backward
    assert sides.grads is not None
    assert torch.equal(sides.grads[1][0], torch.ones(1, 4))


def test_an_operator_that_refuses_gradients_keeps_its_forward_pass() -> None:
    sides = call("Tensor.resize_", values(6, grad=True), (2, 3), grads=[torch.ones(2, 3)])
    assert sides.device.shape == (2, 3)
    assert sides.grads is None
    assert "require" in sides.no_backward


def test_gradients_of_keyword_tensors_follow_the_positional_ones() -> None:
    weight, bias = values(5, 4, grad=True, seed=1), values(5, grad=True, seed=2)
    sides = call("Functional.linear", values(3, 4, grad=True), weight=weight, bias=bias, grads=[values(3, 5)])
    assert sides.grads is not None
    assert [tuple(grad.shape) for grad in sides.grads[1]] == [(3, 4), (5, 4), (5,)]
    assert all(grad.dtype is torch.float64 for grad in sides.grads[0])


def test_tensors_without_a_gradient_keep_their_place() -> None:
    sides = call("Torch.mul", values(3), values(3, grad=True), grads=[torch.ones(3)])
    assert sides.grads is not None
    assert [grad is None for grad in sides.grads[1]] == [True, False]


@pytest.mark.parametrize(
    ("grads", "expected"),
    [
        ([None, torch.ones(4, 3)], [0.0, 1.0]),  # one a differentiable output, the first unused
        ([torch.ones(2, 3), 2 * torch.ones(4, 3)], [1.0, 2.0]),
        ([torch.ones(4, 3)], [0.0, 1.0]),  # fewer than outputs: the one of its shape
    ],
)
def test_several_outputs_go_back_together(grads: list[Any], expected: list[float]) -> None:
    sides = call("Torch.split", values(6, 3, grad=True), [2, 4], grads=grads)
    assert sides.grads is not None
    found = sides.grads[1][0]
    assert (found[:2] == expected[0]).all()
    assert (found[2:] == expected[1]).all()


def test_outputs_without_a_gradient_are_passed_over() -> None:
    for grads in ([torch.ones(3)], [torch.ones(3), None]):
        sides = call("Torch.max", values(3, 4, grad=True), dim=1, grads=grads)
        assert sides.grads is not None
        assert float(sides.grads[1][0].sum()) == 3.0


@pytest.mark.parametrize(
    ("args", "grads", "told"),
    [
        ((values(3, grad=False),), [torch.ones(3)], "no output depends on an input that requires a gradient"),
        ((values(3, grad=True),), [torch.ones(2), torch.ones(2)], "none of 2 recorded gradients has the shape"),
        ((values(3, grad=True),), [torch.ones(2)], "in the|shape"),
    ],
)
def test_a_backward_pass_that_cannot_be_run_says_why(args: Any, grads: list[Any], told: str) -> None:
    sides = call("Torch.exp", *args, grads=grads)
    assert sides.grads is None
    assert any(part in sides.no_backward for part in told.split("|"))
    assert torch.equal(sides.device, torch.exp(args[0].detach()))


def test_a_call_that_fails_is_a_reason() -> None:
    with pytest.raises(CannotRun, match="must be Tensor, not list"):
        call("Torch.matmul", values(3), [1, 2])
    with pytest.raises(CannotRun, match="API no_such not found in torch"):
        call("Torch.no_such", values(3))


def test_without_a_kernel_in_float64_the_next_lower_precision_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    def picky(tensor: Any) -> Any:
        if tensor.dtype is torch.float64:
            raise RuntimeError("not implemented for 'Double'")
        return tensor * 2

    monkeypatch.setattr("opassay.pipeline.check.call.find_api", lambda *_: picky)
    assert call("Torch.mul", values(3, dtype=torch.bfloat16)).bench.dtype is torch.float32
    assert call("Torch.mul", values(3)).bench.dtype is torch.float32


def test_draws_do_not_depend_on_what_ran_before() -> None:
    first = call("Functional.dropout", values(100), 0.5, True).device
    torch.rand(17)
    assert torch.equal(call("Functional.dropout", values(100), 0.5, True).device, first)


@pytest.mark.parametrize(
    ("dtypes", "recorded", "autocast", "rounded"),
    [
        (("float32", "float32"), "bfloat16", torch.bfloat16, True),
        (("bfloat16", "float32"), "bfloat16", torch.bfloat16, True),
        (("bfloat16", "float32"), "float32", torch.bfloat16, False),
        (("bfloat16", "bfloat16"), "bfloat16", None, False),
        (("bfloat16",), "float32", torch.bfloat16, False),
        (("float32",), "float32", None, False),
        (("float32",), "float64", None, False),
        (("float16", "bfloat16"), "float16", torch.float16, False),
        (("int64",), "float16", None, False),
    ],
)
def test_autocast_follows_from_inputs_and_the_recorded_output(
    dtypes: tuple[str, ...], recorded: str, autocast: Any, rounded: bool
) -> None:
    args = [values(2, dtype=getattr(torch, dtype)) for dtype in dtypes]
    plan = plan_call(Case("Torch.mul.0", "Torch", "mul", "0", outputs=outputs(recorded)), args, {})
    assert (plan.autocast, plan.rounded) == (autocast, rounded)


def test_autocast_is_reproduced_and_is_no_false_alarm() -> None:
    """float32 operands, bfloat16 output: the reference sees the operands as the device rounds them (12.1 item 3)."""
    args = [values(32, 64, grad=True), values(16, 64, grad=True, seed=1), values(16, grad=True, seed=2)]
    grad = values(32, 16, dtype=torch.bfloat16, seed=3)
    sides = call("Functional.linear", *args, grads=[grad], recorded=("bfloat16",))
    assert sides.device.dtype is torch.bfloat16
    assert sides.judged_as == (None, torch.bfloat16)
    exact = args[0].bfloat16().double() @ args[1].bfloat16().double().T + args[2].bfloat16().double()
    assert torch.equal(sides.bench, exact.detach())
    assert sides.grads is not None
    assert sides.grads[1][0].dtype is torch.float32
    rows = compare_outputs(*sides.grads, "Functional.linear.0", "backward", judged_as=torch.bfloat16)
    assert {row.status.value for row in rows} == {"pass"}


def test_in_place_operators_are_not_taken_for_autocast() -> None:
    """copy_ of float32 into bfloat16 rounds once, by itself."""
    case = Case("Tensor.add_.0", "Tensor", "add_", "0", outputs=outputs("bfloat16"))
    plan = plan_call(case, [values(3, dtype=torch.bfloat16), values(3)], {})
    assert not plan.rounded
    named = {"__iadd__": True, "__invert__": False, "__setitem__": True, "relu_": True, "relu": False, "__add__": False}
    for api, expected in named.items():
        assert in_place(Case(f"Tensor.{api}.0", "Tensor", api, "0"), {}) is expected
    assert in_place(Case("Torch.mul.0", "Torch", "mul", "0"), {"out": 1})


def test_fused_operators_compare_two_ways_to_the_gradient() -> None:
    tensor = values(4, 8, dtype=torch.bfloat16, grad=True)
    sides = call("NPU.npu_swiglu", tensor, dim=-1, grads=[values(4, 4, dtype=torch.bfloat16, seed=1)])
    assert sides.bench.dtype is torch.float64
    assert sides.grads is not None
    assert torch.allclose(sides.grads[0][0], sides.grads[1][0].double(), rtol=0.02, atol=0.02)
    norm = call("NPU.npu_rms_norm", tensor, values(8, dtype=torch.bfloat16), 1e-6, grads=[values(4, 8), None])
    assert norm.judged_as == (torch.bfloat16, None)  # its rstd is float32 whatever the inputs are
    attention = [values(1, 2, 4, 8, grad=True, seed=seed) for seed in range(3)]
    fused = call("NPU.npu_fusion_attention", *attention, 2, "BNSD", scale=0.3, grads=[values(1, 2, 4, 8)])
    assert len(fused.bench) == len(fused.device) == 1
    assert not fused.no_backward
