"""Errors that rounding explains are told from errors that it does not; the verdict stays what the document makes it."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from opassay.kernels.precision.conditioning import rounded_at_random, rounding_of  # noqa: E402
from opassay.pipeline.check.cases import Case  # noqa: E402
from opassay.pipeline.check.inputs import Inputs  # noqa: E402
from opassay.pipeline.check.torch_framework import TorchFramework  # noqa: E402
from opassay.schemas.check_rows import DetailRow, Status  # noqa: E402

CPU = torch.device("cpu")
TOLD = "Rounding alone may be the cause"


def random(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3)).to(dtype)


def compared(name: str, *args: Any, grads: list[Any] | None = None) -> tuple[list[DetailRow], list[DetailRow]]:
    """Rows of a call on the cpu."""
    kind, api = name.split(".")
    case = Case(f"{name}.0", kind, api, "0", has_backward=grads is not None)
    framework = TorchFramework(CPU)
    sides = framework.call(case, Inputs(list(args), {}, grads or []))
    return framework.compare(case, sides)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_moved_values_are_half_a_unit_away(dtype: Any) -> None:
    values = random(1000, dtype=dtype).to(torch.complex128 if dtype.is_complex else torch.float64)
    moved = rounded_at_random(values, dtype, torch.Generator().manual_seed(0))
    relative = ((moved - values).abs() / values.abs())[values != 0]
    assert torch.allclose(relative, torch.full_like(relative, torch.finfo(dtype).eps / 2), rtol=1e-6)
    assert 300 < int((moved.abs() > values.abs()).sum()) < 700


def test_a_sum_that_cancels_is_explained() -> None:
    """The sum of numbers and their negatives: nothing is left but rounding, and the cosine of that means nothing."""
    half = random(8, 4000)
    (row,), _ = compared("Torch.sum", torch.cat([half, -half.flip(1) * (1 + 1e-7)], 1), 1)
    assert row.status is Status.ERROR
    assert TOLD in row.message


def test_a_fault_is_not_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device multiplies by a hundredth too much: rounded inputs do not move the reference that far."""

    def faulty(first: Any, second: Any) -> Any:
        product = first @ second
        return product if product.dtype is torch.float64 else product * 1.01

    monkeypatch.setattr("opassay.pipeline.check.call.find_api", lambda *_: faulty)
    (row,), _ = compared("Torch.matmul", random(16, 16), random(16, 16))
    assert row.status is Status.ERROR
    assert TOLD not in row.message


def test_gradients_are_explained_too() -> None:
    grad = random(2, 6, 8, 8)
    grad -= grad.mean((0, 2, 3), keepdim=True)  # as behind a batch norm: the gradient of the bias is rounding noise
    image, weight, bias = random(2, 3, 10, 10), random(6, 3, 3, 3), random(6)
    args = [values.requires_grad_() for values in (image, weight, bias)]
    forward, backward = compared("Functional.conv2d", *args, grads=[grad])
    assert [row.status for row in (*forward, *backward[:2])] == [Status.PASS] * 3
    assert backward[2].status is Status.ERROR
    assert TOLD in backward[2].message


def test_what_cannot_be_told() -> None:
    ones = torch.ones(3, dtype=torch.float64)
    assert rounding_of(ones, ones + 1e-7, ones + 1e-7) == pytest.approx((1e-7, 1e-7))
    assert rounding_of(ones, ones + 1e-6, ones + 1e-7) is None
    assert rounding_of(ones, ones[:2], ones) is None
    assert rounding_of(ones[:0], ones[:0], ones[:0]) is None
    assert rounding_of(ones, torch.tensor([1.0, float("nan"), 1.0]), ones) is None
    assert rounding_of(ones.int(), ones.int(), ones.int()) is None
