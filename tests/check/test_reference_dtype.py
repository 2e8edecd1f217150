"""References that are wider than the device where whole numbers become floats, scalars beside narrow tensors, sides that are one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from opassay.pipeline.check.call import call_both  # noqa: E402
from opassay.pipeline.check.cases import Case  # noqa: E402
from opassay.pipeline.check.framework import Sides  # noqa: E402
from opassay.pipeline.check.inputs import Inputs  # noqa: E402
from opassay.pipeline.check.reference_dtype import draws_inside, float_results  # noqa: E402
from opassay.pipeline.check.torch_framework import TorchFramework  # noqa: E402
from opassay.schemas.check_rows import DetailRow, Status  # noqa: E402

CPU = torch.device("cpu")
WHOLE = torch.arange(1, 7)


def case(name: str, *args: Any, **kwargs: Any) -> Case:
    kind, api = name.split(".", 1)
    return Case(f"{name}.0", kind, api, "0", args=list(args), kwargs=kwargs)


def sides_of(name: str, *args: Any, **kwargs: Any) -> Sides:
    return call_both(case(name), Inputs(list(args), kwargs), CPU, gradients=False)


def row_of(name: str, *args: Any) -> DetailRow:
    framework = TorchFramework(CPU)
    (row,), _ = framework.compare(case(name), framework.call(case(name), Inputs(list(args))))
    return row


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("Torch.exp", (WHOLE,)),
        ("Torch.div", (WHOLE, WHOLE)),
        ("Torch.mul", (WHOLE, 0.1)),
        ("Torch.zeros", (3,)),
        ("Torch.hann_window", (5,)),
    ],
)
def test_whole_numbers_become_float64_in_the_reference(name: str, args: tuple[Any, ...]) -> None:
    sides = sides_of(name, *args)
    assert (sides.bench.dtype, sides.device.dtype) == (torch.float64, torch.float32)
    assert torch.get_default_dtype() is torch.float32


def refuse_wide() -> None:
    with float_results({torch.float32: torch.float64}):
        raise RuntimeError(f"no kernel for {torch.get_default_dtype()}")


def test_the_default_dtype_comes_back_after_a_failure() -> None:
    with pytest.raises(RuntimeError, match=r"torch\.float64"):
        refuse_wide()
    assert torch.get_default_dtype() is torch.float32
    with float_results({torch.float16: torch.float32}):
        assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["Torch.eq", "Tensor.__eq__", "Tensor.ge", "Aten.le.Scalar"])
def test_a_scalar_is_compared_as_the_tensor_has_it(name: str, dtype: Any) -> None:
    """0.1 and 0.7 have no float: one is rounded up and the other down, whatever the dtype."""
    for number in (0.1, 0.7):
        sides = sides_of(name, torch.full((3,), number, dtype=dtype), number)
        assert sides.device.all()
        assert torch.equal(sides.bench, sides.device)


def test_other_operators_keep_their_scalars() -> None:
    assert sides_of("Torch.mul", torch.ones(1), 0.1).bench.item() == 0.1


@pytest.mark.parametrize(
    ("name", "args", "answer"),
    [
        ("Torch.result_type", (torch.ones(2), 1), torch.float32),
        ("Torch.promote_types", (torch.float16, torch.bfloat16), torch.float32),
        ("Tensor.element_size", (torch.ones(2, dtype=torch.float16),), 2),
        ("Tensor.type", (torch.ones(2),), "torch.FloatTensor"),
    ],
)
def test_questions_about_dtypes_have_the_answer_of_the_dump(name: str, args: tuple[Any, ...], answer: object) -> None:
    sides = sides_of(name, *args)
    assert (sides.bench, sides.device) == (answer, answer)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_eight_bit_floats_are_raised(dtype: Any) -> None:
    sides = sides_of("Torch.abs", torch.tensor([-1.0, 0.5]).to(dtype))
    assert (sides.bench.dtype, sides.device.dtype) == (torch.float64, dtype)


def narrow_only(values: Any) -> Any:
    """An operator without a kernel for float64."""
    if values.dtype is torch.float64:
        raise RuntimeError("not implemented for 'Double'")
    return values * 2


def test_two_sides_that_are_one_computation_do_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opassay.pipeline.check.call.find_api", lambda *_: narrow_only)
    row = row_of("Torch.double_it", torch.ones(4))
    assert (row.bench_dtype, row.device_dtype, row.status) == ("torch.float32", "torch.float32", Status.WARNING)
    assert "The reference is in torch.float32 too: not implemented for 'Double'.\n" in row.message
    assert row.message.endswith("nothing was tested.\n")


def test_a_reference_that_is_a_little_wider_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """float16 has float32 to be compared with, and on another device the same dtype computes otherwise."""
    monkeypatch.setattr("opassay.pipeline.check.call.find_api", lambda *_: narrow_only)
    row = row_of("Torch.double_it", torch.ones(4, dtype=torch.float16))
    assert (row.bench_dtype, row.status) == ("torch.float32", Status.PASS)
    assert "The reference is in" not in row.message


def test_what_keeps_its_dtype_by_nature_passes() -> None:
    row = row_of("Torch.nextafter", torch.ones(2), torch.zeros(2))
    assert (row.bench_dtype, row.status) == ("torch.float32", Status.PASS)


def described(**values: Any) -> Mapping[str, Any]:
    return {key: {"type": type(value).__name__, "value": value} for key, value in values.items()}


@pytest.mark.parametrize(
    ("told", "draws"),
    [
        (case("Functional.scaled_dot_product_attention", **described(dropout_p=0.1)), True),
        (
            case("Functional.scaled_dot_product_attention", None, None, None, None, {"type": "float", "value": 0.1}),
            True,
        ),
        (case("Functional.scaled_dot_product_attention", **described(dropout_p=0.0)), False),
        (case("Functional.scaled_dot_product_attention"), False),
        (case("Functional.multi_head_attention_forward", **described(dropout_p=0.1, training=False)), False),
        (case("VF.lstm", *described(a=True, b=1, dropout=0.2, train=True).values()), True),
        (case("VF.lstm", *described(a=True, b=1, dropout=0.2, train=False).values()), False),
        (case("Torch.mul", **described(dropout_p=0.1)), False),
    ],
)
def test_dropout_inside_an_operator(told: Case, draws: bool) -> None:
    assert bool(draws_inside(told)) is draws


def test_dropout_inside_an_operator_is_not_compared_on_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    told = case("Functional.scaled_dot_product_attention", **described(dropout_p=0.5))
    framework = TorchFramework(CPU)
    unlike = Sides(torch.zeros(8), torch.ones(8))
    monkeypatch.setattr(framework, "_device", torch.device("cuda:0"))
    (row,), _ = framework.compare(told, unlike)
    assert (row.status, row.metrics) == (Status.SKIP, {})
    assert row.message.startswith("random output: scaled_dot_product_attention drops")
    monkeypatch.setattr(framework, "_device", CPU)
    (row,), _ = framework.compare(told, unlike)
    assert row.status is Status.ERROR


def test_what_torch_warns_of_is_not_shown(recwarn: pytest.WarningsRecorder) -> None:
    row_of("Tensor.float", torch.ones(2, dtype=torch.complex64))
    assert not recwarn.list
