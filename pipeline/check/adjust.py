"""What some APIs need besides the recorded statistics: their random or real inputs are adjusted here (accuracy_checker.md 2.6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
from opassay.pipeline.check.cases import Case
from opassay.pipeline.check.dump_header import PYTORCH

_LABELLED: Final = frozenset({"cross_entropy", "nll_loss"})
_ADAM: Final = frozenset({"npu_apply_adam", "npu_apply_adam_w"})
_TARGET: Final = 1  # place of the labels
_IGNORE: Final = 4  # place of ignore_index, seldom given by place
_DEFAULT_IGNORE: Final = -100
_IGNORE_RATE: Final = 0.1
_HF32: Final = frozenset({"conv1d", "conv2d"})
_COMPRESSED_MASK: Final = 2048
_COMPRESSED_MODES: Final = (2, 3, 4)

Units = Callable[[str, int], Any]
"""(name of a stream, count) -> even numbers in [0, 1), an array."""


def before(case: Case) -> Case:
    """Change descriptors before tensors are made from them.

    Labels of losses that ignore one label are made from 0 on; ``after`` puts the ignored ones in.
    """
    target = _target(case)
    if target is None or not isinstance(target.get("Min"), (int, float)) or not target["Min"] < 0:
        return case
    most = target.get("Max")
    most = max(most, 0) if isinstance(most, (int, float)) else most
    return _with_target(case, {**target, "Min": 0, "Max": most, "Mean": None, "Norm": None})


def after(case: Case, args: list[Any], kwargs: dict[str, Any], units: Units) -> tuple[list[Any], dict[str, Any]]:
    """Change the values.

    Parameters
    ----------
    case : Case
        As in the dump.
    args, kwargs : list, dict
        Values made from ``before(case)``.
    units : callable
        Random numbers for places that are chosen at random.

    Returns
    -------
    args, kwargs
        Tensors that change are new ones.
    """
    api = case.api
    if api in _LABELLED:
        args, kwargs = _ignore_labels(case, args, kwargs, units)
    if api == "cross_entropy":
        args, kwargs = map_tensors((args, kwargs), _int32_to_int64)
    if api == "histc":
        args, kwargs = _first_to_float(args, kwargs)
    if api in _HF32 and case.framework == PYTORCH:  # MindSpore's inputs are as they were recorded
        args, kwargs = map_tensors((args, kwargs), to_hf32)
    if case.kind == "NPU" and case.task == "statistics":
        if api == "npu_fusion_attention":
            kwargs = _compressed_mask(kwargs)
        if api in _ADAM:
            kwargs = _positive_variance(kwargs)
    return args, kwargs


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same structure of lists, tuples and dictionaries with every tensor changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: map_tensors(item, change) for key, item in value.items()}
    if type(value) in (list, tuple):  # torch.Size and named tuples have no tensors
        return type(value)(map_tensors(item, change) for item in value)
    return value


def to_hf32(tensor: torch.Tensor) -> torch.Tensor:
    """float32 rounded to the 11 explicit bits of HF32, half away from zero; other types, nan and inf as they are."""
    if tensor.dtype is not torch.float32:
        return tensor
    bits = tensor.contiguous().view(torch.int32)
    sign, magnitude = bits & -0x80000000, bits & 0x7FFFFFFF
    rounded = (((magnitude >> 11) + 1) >> 1) << 12
    return torch.where(torch.isfinite(tensor), (sign | rounded).view(torch.float32), tensor)


def _is_made(case: Case, descriptor: dict[str, Any]) -> bool:
    """Whether a tensor is made from statistics."""
    return case.task == "statistics" or not (descriptor.get("data_name") or descriptor.get("datapath"))


def _target(case: Case) -> dict[str, Any] | None:
    """Descriptor of the labels of a loss, where they are whole numbers to be made."""
    if case.api not in _LABELLED:
        return None
    found = case.args[_TARGET] if len(case.args) > _TARGET else case.kwargs.get("target")
    if not isinstance(found, dict) or "int" not in str(found.get("dtype")):
        return None
    return found if _is_made(case, found) else None


def _with_target(case: Case, target: Any) -> Case:
    if len(case.args) > _TARGET:
        return replace(case, args=[*case.args[:_TARGET], target, *case.args[_TARGET + 1 :]])
    return replace(case, kwargs={**case.kwargs, "target": target})


def _ignore_labels(
    case: Case, args: list[Any], kwargs: dict[str, Any], units: Units
) -> tuple[list[Any], dict[str, Any]]:
    """Give some labels the value that the loss ignores, where the dump's labels had it as their smallest value."""
    descriptor = _target(case)
    ignored = args[_IGNORE] if len(args) > _IGNORE else kwargs.get("ignore_index", _DEFAULT_IGNORE)
    if descriptor is None or not isinstance(ignored, int) or ignored >= 0 or descriptor.get("Min") != ignored:
        return args, kwargs
    labels: torch.Tensor = args[_TARGET] if len(args) > _TARGET else kwargs["target"]
    count = labels.numel()
    if not count:
        return args, kwargs
    most = descriptor.get("Max")
    if isinstance(most, (int, float)) and most < 0:
        labels = torch.full_like(labels, ignored)
    elif count > 1:
        chosen = units("ignored", count) < _ignore_rate(descriptor, ignored)
        chosen[0], chosen[-1] = True, False
        labels = torch.where(torch.from_numpy(chosen).reshape(labels.shape), ignored, labels)
    if len(args) > _TARGET:
        return [*args[:_TARGET], labels, *args[_TARGET + 1 :]], kwargs
    return args, {**kwargs, "target": labels}


def _ignore_rate(descriptor: dict[str, Any], ignored: int) -> float:
    """Share of ignored labels: what explains the recorded mean if the others are even, at most one half."""
    most, mean = descriptor.get("Max"), descriptor.get("Mean")
    if not isinstance(mean, (int, float)) or not isinstance(most, (int, float)) or not np.isfinite(mean):
        return _IGNORE_RATE
    center = most / 2.0
    return float(min(max((center - mean) / (center - ignored), 0.0), 0.5))


def _int32_to_int64(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.int64) if tensor.dtype is torch.int32 else tensor


def _first_to_float(args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The CPU counts floats only."""

    def to_float(value: Any) -> Any:
        whole = isinstance(value, torch.Tensor) and value.dtype in (torch.int8, torch.int32, torch.int64)
        return value.to(torch.float32) if whole else value

    if args:
        return [to_float(args[0]), *args[1:]], kwargs
    return args, {key: to_float(value) if key == "input" else value for key, value in kwargs.items()}


def _compressed_mask(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The triangle that these modes expect as their mask; a random one would mean nothing."""
    if kwargs.get("sparse_mode") not in _COMPRESSED_MODES or not isinstance(kwargs.get("atten_mask"), torch.Tensor):
        return kwargs
    square = torch.ones((_COMPRESSED_MASK, _COMPRESSED_MASK), dtype=torch.bool)
    return {**kwargs, "atten_mask": torch.triu(square, diagonal=1)}


def _positive_variance(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Adam takes the root of its second moment, the last tensor of ``out``."""
    out = kwargs.get("out")
    if not isinstance(out, (list, tuple)) or len(out) != 3 or not isinstance(out[2], torch.Tensor):
        return kwargs
    return {**kwargs, "out": [*out[:2], out[2].clamp(min=0)]}
