"""What the reference of a call owes to dtypes: whole numbers that become floats, scalars beside narrow tensors, what was not raised."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import torch
from opassay.pipeline.check.cases import Case
from opassay.pipeline.check.inputs import Inputs, tensors_of

_LOWERED: Final = (torch.float16, torch.bfloat16, torch.float32)
_COMPARISONS: Final = frozenset(
    {
        "eq", "ne", "lt", "le", "gt", "ge", "not_equal", "less", "less_equal", "greater", "greater_equal",
        "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__",
    }
)  # fmt: skip
_RNN: Final = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
_ATTENTION: Final = frozenset({"scaled_dot_product_attention", "multi_head_attention_forward"})
_DROPOUT_PLACE: Final = 4  # of scaled_dot_product_attention


@contextlib.contextmanager
def float_results(ups: Mapping[torch.dtype, torch.dtype]) -> Iterator[None]:
    """Let whole numbers become floats as wide as float32 is raised to: ``exp`` of int64, ``zeros`` without a dtype.

    Parameters
    ----------
    ups : mapping of torch.dtype to torch.dtype
        What dtypes are raised to; without float32, nothing changes.
    """
    wide = ups.get(torch.float32)
    if wide is None:
        yield
        return
    before = torch.get_default_dtype()
    torch.set_default_dtype(wide)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def as_compared(case: Case, inputs: Inputs) -> Inputs:
    """Arguments of the reference of a comparison: a scalar is what the tensor beside it makes of it.

    ``x == 0.1`` compares float32 tensors with the float32 next to 0.1, which no float64 tensor of the same values equals.

    Parameters
    ----------
    case : Case
        The call.
    inputs : Inputs
        Its arguments; they are left alone.

    Returns
    -------
    Inputs
        The same where the call compares nothing.
    """
    names = case.api.split(".")
    if names[0] not in _COMPARISONS and names[-1] not in _COMPARISONS:
        return inputs
    dtypes = {tensor.dtype for tensor in tensors_of([inputs.args, inputs.kwargs]) if tensor.is_floating_point()}
    if len(dtypes) != 1 or not dtypes <= set(_LOWERED):
        return inputs
    dtype = next(iter(dtypes))

    def rounded(value: Any) -> Any:
        return torch.tensor(value, dtype=torch.float64).to(dtype).item() if type(value) is float else value

    kwargs = {key: rounded(value) for key, value in inputs.kwargs.items()}
    return replace(inputs, args=[rounded(value) for value in inputs.args], kwargs=kwargs)


def not_raised(inputs: Inputs, ups: Mapping[torch.dtype, torch.dtype]) -> bool:
    """Whether a float tensor of the arguments was left in a dtype that a reference should be wider than."""
    return any(
        tensor.dtype in _LOWERED and tensor.dtype not in ups for tensor in tensors_of([inputs.args, inputs.kwargs])
    )


def draws_inside(case: Case) -> str:
    """Why two devices do not agree about a call whose name says nothing of random numbers; "" where they should.

    Parameters
    ----------
    case : Case
        The call, whose descriptors tell.
    """
    name = case.api.rpartition(".")[2]
    if name in _ATTENTION:
        rate = _value(case.kwargs.get("dropout_p"))
        if rate is None and name == "scaled_dot_product_attention" and len(case.args) > _DROPOUT_PLACE:
            rate = _value(case.args[_DROPOUT_PLACE])
        drops = isinstance(rate, float) and rate > 0 and _value(case.kwargs.get("training")) is not False
    elif case.kind == "VF" and name in _RNN:
        told = [_value(argument) for argument in case.args]
        drops = any(isinstance(rate, float) and rate > 0 and on is True for rate, on in itertools.pairwise(told))
    else:
        return ""
    return f"random output: {name} drops some of its values here, and each device draws its own" if drops else ""


def _value(descriptor: Any) -> Any:
    return descriptor.get("value") if isinstance(descriptor, dict) else None
