"""16-bit tensors are computed in float32 and rounded once at the end, as the fused kernels do; wider ones as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Final

import torch
from torch import Tensor

HALVES: Final = (torch.float16, torch.bfloat16)


def wide(value: Any) -> Any:
    """The same value with 16-bit floating tensors raised to float32; lists, tuples and dictionaries are walked."""
    if isinstance(value, Tensor):
        return value.float() if value.dtype in HALVES else value
    if isinstance(value, (list, tuple)):
        return type(value)(wide(item) for item in value)
    if isinstance(value, dict):
        return {key: wide(item) for key, item in value.items()}
    return value


def tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors of a call: positional ones in order, lists walked, then those given by keyword."""
    return list(_tensors([*args, *kwargs.values()]))


def rounded_once(formula: Callable[..., Any], stay_wide: tuple[int, ...] = ()) -> Callable[..., Any]:
    """A formula for raised inputs, made fit for 16-bit ones.

    Parameters
    ----------
    formula : callable
        Computes in the dtype of its inputs.
    stay_wide : tuple of int
        Outputs that are float32 on the device whatever the inputs are.

    Returns
    -------
    callable
        Of the same signature. Without 16-bit inputs it is the formula. With them the formula gets float32, and its other
        floating outputs come back in the dtype of the first floating input.
    """

    @wraps(formula)
    def call(*args: Any, **kwargs: Any) -> Any:
        floats = [tensor for tensor in tensors(args, kwargs) if tensor.is_floating_point()]
        if not any(tensor.dtype in HALVES for tensor in floats):
            return formula(*args, **kwargs)
        result = formula(*wide(args), **wide(kwargs))
        if isinstance(result, Tensor):
            return result.to(floats[0].dtype)
        return tuple(
            part.to(floats[0].dtype) if part.is_floating_point() and place not in stay_wide else part
            for place, part in enumerate(result)
        )

    return call


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
