"""The tested side with the real MindSpore, on its CPU backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from opassay.pipeline.check.mindspore_calls import Answer, Array, Call, DTypeName, MindSporeSide

pytest.importorskip("mindspore", exc_type=ImportError)
pytestmark = pytest.mark.mindspore


@pytest.fixture(scope="module")
def tested() -> MindSporeSide:
    """One MindSpore for all tests."""
    return MindSporeSide("cpu")


def array(*values: Any, dtype: str = "float32") -> Array:
    """A tensor on its way."""
    return Array(dtype, np.array(values, dtype="float32" if dtype == "bfloat16" else dtype))


def outputs(answer: Answer) -> Any:
    """Values of the outputs."""
    assert answer.failed == ""
    found = answer.outputs
    return [one.values.tolist() for one in found] if isinstance(found, tuple) else found.values.tolist()


def gradients(answer: Answer) -> list[Any]:
    """Values of the gradients."""
    assert answer.no_backward == ""
    assert answer.grads is not None
    return [None if grad is None else grad.values.tolist() for grad in answer.grads]


X, Y = array(1.0, 4.0), array(2.0, 3.0)


def test_forward_and_backward_of_two_tensors(tested: MindSporeSide) -> None:
    answer = tested.run(Call("Mint", "mul", (X, Y), grads=[array(1.0, 10.0)]))
    assert outputs(answer) == [2.0, 12.0]
    assert gradients(answer) == [[2.0, 30.0], [1.0, 40.0]]
    assert answer.outputs.dtype == "float32"


def test_gradients_reach_lists_and_keywords(tested: MindSporeSide) -> None:
    answer = tested.run(Call("Mint", "cat", ((X, Y),), {"dim": 0}, [array(1.0, 2.0, 3.0, 4.0)]))
    assert gradients(answer) == [[1.0, 2.0], [3.0, 4.0]]
    answer = tested.run(Call("Mint", "mul", (X,), {"other": Y}, [array(1.0, 1.0)]))
    assert gradients(answer) == [[2.0, 3.0], [1.0, 4.0]]


def test_whole_numbers_have_no_gradient_and_take_none(tested: MindSporeSide) -> None:
    matrix = Array("float32", np.array([[1, 5, 2], [7, 0, 3]], dtype=np.float32))
    answer = tested.run(Call("Mint", "max", (matrix,), {"dim": 1}, [array(1.0, 2.0), None]))
    assert outputs(answer) == [[5.0, 7.0], [1, 0]]
    assert gradients(answer) == [[[0, 1, 0], [2, 0, 0]]]
    chosen = array(True, False, dtype="bool")
    answer = tested.run(Call("Mint", "where", (chosen, X, Y), grads=[array(1.0, 1.0)]))
    assert gradients(answer) == [None, [1.0, 0.0], [0.0, 1.0]]
    whole = array(1, 2, dtype="int64")
    answer = tested.run(Call("Mint", "add", (whole, whole), grads=[whole]))
    assert (outputs(answer), answer.no_backward) == ([2, 4], "no output depends on an input that requires a gradient")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int8", "uint8", "bool"])
def test_dtypes_travel(tested: MindSporeSide, dtype: str) -> None:
    given = array(1, 0, dtype=dtype)
    answer = tested.run(Call("Tensor", "reshape", (given, (1, 2))))
    assert (answer.failed, answer.outputs.dtype) == ("", dtype)
    assert answer.outputs.values.tolist() == [given.values.tolist()]
    answer = tested.run(Call("Tensor", "to", (X, DTypeName("float16"))))
    assert answer.outputs.dtype == "float16"


def test_empty_and_scalar_tensors_travel(tested: MindSporeSide) -> None:
    answer = tested.run(Call("Mint", "add", (Array("float32", np.zeros((0, 3), np.float32)), 1.0)))
    assert answer.outputs.values.shape == (0, 3)
    answer = tested.run(Call("Mint", "sum", (X,), grads=[Array("float32", np.array(2.0, np.float32))]))
    assert answer.outputs.values.shape == ()
    assert gradients(answer) == [[2.0, 2.0]]
    assert tested.run(Call("Tensor", "item", (array(2.5),))).outputs == 2.5


def test_what_has_no_kernel_is_told_and_the_next_call_is_not_harmed(tested: MindSporeSide) -> None:
    answer = tested.run(Call("MintFunctional", "gelu", (X,)))
    assert answer.failed == "no CPU kernel (The kernel GeluExt unregistered.)"
    assert outputs(tested.run(Call("MintFunctional", "relu", (X,)))) == [1.0, 4.0]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (Call("Mint", "nonexist", (X,)), "mindspore.mint has no nonexist"),
        (Call("Mint", "nn.Linear", (X,)), "mindspore.mint has no nn.Linear"),
        (Call("Mint", "_x", (X,)), "mindspore.mint has no _x"),
        (Call("Tensor", "nonexist", (X,)), "mindspore.Tensor has no nonexist"),
        (Call("Functional", "nonexist", (X,)), "mindspore.ops has no nonexist"),
        (Call("Mint", "add", (X, None)), 'Failed calling add with "add(Tensor, None)".'),
        (Call("Mint", "abs", (Array("float8_e8m0fnu", np.zeros(2, np.uint8)),)), "MindSpore gets no tensors of float8_e8m0fnu"),
        (Call("Tensor", "to", (X, DTypeName("float99"))), "MindSpore has no dtype float99"),
    ],
)  # fmt: skip
def test_failures_are_one_line_and_no_accuracy_failure(tested: MindSporeSide, call: Call, reason: str) -> None:
    answer = tested.run(call)
    assert answer.failed == reason
    assert answer.outputs is None


def test_inputs_are_left_alone(tested: MindSporeSide) -> None:
    given = array(-1.0, 2.0)
    tested.run(Call("Tensor", "clamp_", (given, 0.0, 1.0)))
    assert given.values.tolist() == [-1.0, 2.0]


def test_gradients_that_fit_no_output_are_told(tested: MindSporeSide) -> None:
    answer = tested.run(Call("Mint", "split", (X, 1), grads=[array(1.0, 2.0, 3.0)]))
    assert answer.no_backward == "none of the recorded gradients belongs to an output of floats"
    answer = tested.run(Call("Mint", "split", (X, 1), grads=[array(3.0)]))  # one of two, for the first of its shape
    assert gradients(answer) == [[3.0, 0.0]]
