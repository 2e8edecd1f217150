"""How one call is run on each side: to what its reference is raised, and what autocast the device needs (4.1, 4.2)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from opassay.pipeline.check.cases import Case
from opassay.pipeline.check.inputs import tensors_of

LOW: Final = (torch.float16, torch.bfloat16)
_LOWERED: Final = frozenset((*LOW, torch.float32))
_UP: Final[Mapping[torch.dtype, torch.dtype]] = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
    **dict.fromkeys(
        (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz), torch.float64
    ),
}
_UP_LITTLE: Final[Mapping[torch.dtype, torch.dtype]] = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
_MOST_BYTES: Final = 8 << 30  # of the inputs in float64; with more, 16-bit ones are raised to float32 only

_AS_THEY_ARE: Final = frozenset(
    {
        "type_as", "nextafter", "frexp", "finfo", "view_as_real",
        "can_cast", "element_size", "promote_types", "result_type", "storage_type",
    }
)  # fmt: skip
_VIEWS: Final = frozenset({"view"})  # with a dtype they read the same bytes anew


@dataclass(frozen=True, slots=True)
class CallPlan:
    """How one call is run.

    Attributes
    ----------
    ups : tuple of mapping
        What dtypes of the reference become, the best first; a later one serves where the operator has no kernel for it.
    autocast : torch.dtype or None
        Of the device's call.
    rounded : bool
        The device rounds float32 operands to the autocast dtype: the reference gets them rounded, then raised, and
        gradients are judged by the limits of that dtype.
    """

    ups: tuple[Mapping[torch.dtype, torch.dtype], ...]
    autocast: torch.dtype | None = None
    rounded: bool = False


def plan_call(case: Case, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallPlan:
    """Decide how a call is run.

    Parameters
    ----------
    case : Case
        Its name and recorded outputs count.
    args, kwargs : sequence, mapping
        The built arguments.
    """
    given = list(tensors_of([*args, *kwargs.values()]))
    floats = {tensor.dtype for tensor in given} & _LOWERED
    recorded = _recorded_dtypes(case.outputs)
    low = _autocast(floats, next(iter(recorded), None))
    rounded = low is not None and low in recorded and torch.float32 in floats and not in_place(case, kwargs)
    return CallPlan(_ups(case, args, kwargs, given), low, rounded)


def in_place(case: Case, kwargs: Mapping[str, Any]) -> bool:
    """Whether a call writes into its own argument: the dtype of its output is then that of the argument."""
    name = case.api.rpartition(".")[2]
    if name.startswith("__"):
        return (name.startswith("__i") and name not in ("__invert__", "__index__", "__int__")) or name == "__setitem__"
    return name.endswith("_") or "out" in kwargs or kwargs.get("inplace") is True


def _autocast(floats: set[torch.dtype], output: torch.dtype | None) -> torch.dtype | None:
    """The low dtype of the region that the call was made in; None where nothing speaks for one."""
    lows = floats & set(LOW)
    if output in LOW:
        return output if floats and floats != {output} else None
    if len(floats) > 1:
        return torch.bfloat16 if torch.bfloat16 in lows else next(iter(lows))
    return next(iter(lows)) if lows and output is torch.float32 else None


def _recorded_dtypes(outputs: Sequence[Any]) -> list[torch.dtype]:
    """Float dtypes of the recorded outputs, in order."""
    return [dtype for dtype in _named_dtypes(outputs) if dtype.is_floating_point]


def _named_dtypes(value: Any) -> Iterator[torch.dtype]:
    if isinstance(value, list):
        for item in value:
            yield from _named_dtypes(item)
    elif isinstance(value, dict) and isinstance(name := value.get("dtype"), str):
        found = getattr(torch, name.removeprefix("torch."), None)
        if isinstance(found, torch.dtype):
            yield found


def _ups(
    case: Case, args: Sequence[Any], kwargs: Mapping[str, Any], given: Sequence[torch.Tensor]
) -> tuple[Mapping[torch.dtype, torch.dtype], ...]:
    name = case.api.rpartition(".")[2]
    reads_bytes = name in _VIEWS and any(isinstance(value, torch.dtype) for value in (*args, *kwargs.values()))
    asks_type = name == "type" and len(args) + len(kwargs) == 1
    if name in _AS_THEY_ARE or reads_bytes or asks_type:
        return ({},)
    raised = math.fsum(tensor.numel() * _UP[tensor.dtype].itemsize for tensor in given if tensor.dtype in _UP)
    return (_UP_LITTLE, {}) if raised > _MOST_BYTES else (_UP, _UP_LITTLE, {})
