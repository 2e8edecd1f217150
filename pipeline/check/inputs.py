"""Descriptors of a dump -> the arguments of a call, as torch values on the CPU.

Tensors come from the dump's files, or are made from their statistics. Each has a stream of random numbers of its own,
named by the call and the place of the argument, so that order, splits, resuming and the device make no difference.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

import numpy as np
import torch
from opassay.pipeline.check import adjust
from opassay.pipeline.check.cases import CannotRun, Case
from opassay.pipeline.check.dump_header import PYTORCH
from opassay.pipeline.check.generate import NotPossible, Recorded, generate
from opassay.pipeline.read.flatten import DEPTH_LIMIT
from opassay.pipeline.read.tensor_layout import TensorUnreadable
from opassay.pipeline.read.tensors import PageBuffer, TensorFile, choose_io, open_tensor, tensor_path
from opassay.pipeline.watch.logs import clip, one_line
from opassay.schemas.dtypes import parse_dtype

SEED: Final = 1234

_READ_BYTES: Final = 16 << 20
_NUMPY_TYPES: Final = frozenset(
    {
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64", "float128", "complex64", "complex128", "complex256",
        "bool_", "string_", "bytes_", "unicode_",
    }
)  # fmt: skip
_RENAMED: Final = {"string_": "bytes_", "unicode_": "str_"}  # in NumPy 2
_PLAIN: Final = ("int", "float", "bool", "str")


class InputError(CannotRun):
    """An argument cannot be built; the message names it."""


class Stand(Enum):
    """A stand-in for a value that is known only when the call is made."""

    DEVICE = "the device that the call runs on"


@dataclass(slots=True)
class Inputs:
    """What one call is called with.

    Attributes
    ----------
    args : list
        Positional arguments. Tensors lie on the CPU, in the dtype of the dump; ``requires_grad`` is set on the leaves
        whose gradients are wanted. ``Stand.DEVICE`` stands for a device, see :func:`on_device`.
    kwargs : dict of str
        Keyword arguments, in the order of the dump.
    grads : list of torch.Tensor or None
        Gradients that arrive at the outputs, in their order; None for an output that has none.
    no_gradient : str
        Why the backward pass cannot be run although it was wanted; "" where it can.
    """

    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    grads: list[torch.Tensor | None] = field(default_factory=list)
    no_gradient: str = ""


def build_inputs(case: Case, *, wants_gradients: bool, seed: int = SEED, most_bytes: int | None = None) -> Inputs:
    """Build the arguments of a call.

    Parameters
    ----------
    case : Case
        The call.
    wants_gradients : bool
        Whether tensors get ``requires_grad`` as recorded, and the gradients of the outputs are built.
    seed : int
        Base of all random numbers.
    most_bytes : int, optional
        Largest tensor to make or read; the machine's memory without it.

    Returns
    -------
    Inputs
        A gradient that cannot be built leaves ``no_gradient``; the forward pass can then be run all the same.

    Raises
    ------
    InputError
        If an argument cannot be built; the message is the reason of the SKIP row.
    """
    builder = _Builder(case, seed, most_bytes or _memory(), wants_gradients)
    prepared = adjust.before(case)
    args = [builder.value(item, f"args.{place}") for place, item in enumerate(prepared.args)]
    kwargs = {key: builder.value(item, f"kwargs.{key}") for key, item in prepared.kwargs.items()}
    args, kwargs = adjust.after(case, args, kwargs, builder.units)
    inputs = Inputs(args, kwargs)
    if wants_gradients:
        builder.mark_leaves(inputs)
        _add_gradients(inputs, case, builder)
    return inputs


def recorded_values(case: Case, descriptors: list[Any], section: str) -> list[Any]:
    """What a tensor dump recorded of a call: tensors from their files, other values as they are.

    Parameters
    ----------
    case : Case
        The call.
    descriptors : list
        ``case.outputs`` or ``case.gradients``.
    section : {"outputs", "gradients"}
        Which, for messages.

    Returns
    -------
    list
        One value for each descriptor; None for null.

    Raises
    ------
    InputError
        If one cannot be read, or is a tensor without a file.
    """
    builder = _Builder(replace(case, task="tensor"), SEED, _memory(), wants_gradients=False, must_read=True)
    return [builder.value(item, f"{section}.{place}") for place, item in enumerate(descriptors)]


def on_device(value: Any, device: torch.device | str) -> Any:
    """The same structure with every ``Stand.DEVICE`` replaced."""
    if value is Stand.DEVICE:
        return torch.device(device)
    if isinstance(value, dict):
        return {key: on_device(item, device) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(on_device(item, device) for item in value)
    return value


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """All tensors of a structure, in order, lists and dictionaries entered."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_of(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_of(item)


def _add_gradients(inputs: Inputs, case: Case, builder: _Builder) -> None:
    try:
        values = [builder.value(item, f"grads.{place}") for place, item in enumerate(case.gradient)]
    except InputError as error:
        inputs.no_gradient = str(error)
        return
    inputs.grads = [value.detach() if isinstance(value, torch.Tensor) else None for value in values]
    if all(grad is None for grad in inputs.grads):
        inputs.no_gradient = "no gradient recorded"


@functools.cache
def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class _Builder:
    """Builds the values of one call."""

    def __init__(
        self, case: Case, seed: int, most_bytes: int, wants_gradients: bool, *, must_read: bool = False
    ) -> None:
        self._case = case
        self._seed = seed
        self._most_bytes = most_bytes
        self._wants_gradients = wants_gradients
        self._must_read = must_read
        self._wanted: dict[str, bool] = {}

    def key(self, path: str) -> int:
        """128 bits that depend on the seed, the call and the place of the argument only."""
        text = f"{self._seed}\0{self._case.name}\0{path}".encode("utf-8", "surrogateescape")
        return int.from_bytes(hashlib.sha256(text).digest()[:16], "little")

    def units(self, path: str, count: int) -> Any:
        """Even numbers in [0, 1)."""
        return (np.random.Philox(key=self.key(path)).random_raw(count) >> np.uint64(11)) * 2.0**-53

    def value(self, descriptor: Any, path: str, depth: int = 0) -> Any:
        """The value of one descriptor, at a place such as ``args.0.1``."""
        if descriptor is None:
            return None
        if depth > DEPTH_LIMIT:
            raise InputError(f"{_argument(path)} nests deeper than {DEPTH_LIMIT} levels")
        if isinstance(descriptor, list):
            return [self.value(item, f"{path}.{place}", depth + 1) for place, item in enumerate(descriptor)]
        if not isinstance(descriptor, dict):
            raise InputError(f"{_argument(path)} is {clip(repr(descriptor))} and not a description of a value")
        if not descriptor:
            raise InputError(f"{_argument(path)} was not recorded")
        kind = descriptor.get("type")
        if not isinstance(kind, str):
            if "class_type" in descriptor:
                raise InputError(f"{_argument(path)} is of type {clip(str(descriptor['class_type']))}, not supported")
            return {key: self.value(item, f"{path}.{key}", depth + 1) for key, item in descriptor.items()}
        try:
            if kind.startswith("numpy."):
                return _numpy_value(kind, descriptor)
            if "dtype" in descriptor and "shape" in descriptor:
                return self._tensor(descriptor, path)
            return _plain_value(kind, descriptor)
        except InputError as error:
            raise InputError(f"{_argument(path)}: {error}") from None

    def mark_leaves(self, inputs: Inputs) -> None:
        """Set ``requires_grad`` where the dump had it; adjusted tensors keep the place of the first."""
        for path, value in places_of(inputs.args, "args"):
            self._mark(value, path)
        for path, value in places_of(inputs.kwargs, "kwargs"):
            self._mark(value, path)

    def _mark(self, value: torch.Tensor, path: str) -> None:
        if self._wanted.get(path) and (value.is_floating_point() or value.is_complex()):
            value.requires_grad_(True)

    def _tensor(self, descriptor: dict[str, Any], path: str) -> torch.Tensor:
        is_torch = self._case.framework == PYTORCH
        self._wanted[path] = descriptor.get("requires_grad") is True or not is_torch
        name = descriptor.get("data_name") or descriptor.get("datapath")
        if self._case.task == "tensor" and name:
            read = self._read(str(name))
            # a .npy file has no bfloat16: the dump says what the tensor was
            return read if is_torch else read.to(_torch_dtype(descriptor["dtype"]))
        if self._must_read:
            raise InputError("its tensor was not recorded")
        dtype = _torch_dtype(descriptor["dtype"])
        shape = _shape(descriptor["shape"])
        count = math.prod(shape)
        self._check_size(count * dtype.itemsize, shape)
        recorded = _recorded(descriptor) if count else Recorded(0, 0, 0, 0)
        try:
            return generate(dtype, shape, recorded, self.key(path))
        except NotPossible as error:
            raise InputError(f"Data info Min: {recorded.low} , Max: {recorded.high}, {error}") from None
        except (RuntimeError, MemoryError, OverflowError, ValueError) as error:
            raise InputError(f"no tensor of shape {clip(str(list(shape)))} can be made ({_first(error)})") from None

    def _read(self, name: str) -> torch.Tensor:
        folder = str(self._case.folder)
        try:
            with open_tensor(tensor_path(folder, name), mapped=_is_mapped(self._case.folder)) as file:
                self._check_size(file.size * file.dtype.width, file.shape)
                return _load(file)
        except TensorUnreadable as error:
            raise InputError(str(error)) from None
        except (RuntimeError, MemoryError) as error:
            raise InputError(f"{clip(name)} cannot be loaded ({_first(error)})") from None

    def _check_size(self, count: int, shape: tuple[int, ...]) -> None:
        if count > self._most_bytes:
            raise InputError(
                f"a tensor of shape {clip(str(list(shape)))} takes {count / 2**30:,.1f} GB, and there are "
                f"{self._most_bytes / 2**30:,.1f} GB"
            )


def places_of(value: Any, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors with their places, by index and key below `path`: ``args.0``, ``kwargs.weight``."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from places_of(item, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from places_of(item, f"{path}.{place}")


def _argument(path: str) -> str:
    """A place as messages name it."""
    section, _, rest = path.partition(".")
    words = {
        "args": "argument", "kwargs": "keyword argument", "grads": "gradient",
        "outputs": "output", "gradients": "gradient of input",
    }  # fmt: skip
    return f"{words[section]} {clip(rest)}"


def _first(error: Exception) -> str:
    """The first line of a library's message; the type where it has none."""
    text = next((line for line in str(error).splitlines() if line.strip()), "")
    return clip(one_line(text)) or type(error).__name__


@functools.lru_cache(16)
def _is_mapped(folder: Any) -> bool:
    return choose_io(folder) == "map"


def _load(file: TensorFile) -> torch.Tensor:
    """All elements of a file, in C order."""
    dtype = _torch_dtype(file.dtype.name)
    out = torch.empty(file.shape, dtype=dtype)
    if not file.size:
        return out
    target = out.reshape(-1).view(torch.uint8).numpy()
    width, buffer = file.dtype.width, PageBuffer()
    step = max(_READ_BYTES // width, 1)
    for start in range(0, file.size, step):
        count = min(step, file.size - start)
        values = file.read(start, count, buffer)
        if dtype is torch.bool:
            values = (values != 0).view(np.uint8)
        target[start * width : (start + count) * width] = values.view(np.uint8)
    return out


def _torch_dtype(text: Any) -> torch.dtype:
    row = parse_dtype(text) if isinstance(text, str) else None
    found = getattr(torch, row.name, None) if row is not None else None
    if not isinstance(found, torch.dtype):
        raise InputError(f"tensors of dtype {clip(str(text))} are not supported")
    return found


def _shape(value: Any) -> tuple[int, ...]:
    is_shape = isinstance(value, list) and all(type(length) is int and 0 <= length < 1 << 62 for length in value)
    if not is_shape or len(value) > 64:
        raise InputError(f"{clip(str(value))} is no shape")
    return tuple(value)


def _recorded(descriptor: dict[str, Any]) -> Recorded:
    """The statistics of a tensor."""
    least, most = descriptor.get("Min"), descriptor.get("Max")
    low, high = descriptor.get("Min_except_inf_nan"), descriptor.get("Max_except_inf_nan")
    low, high = least if low is None else low, most if high is None else high
    if not isinstance(low, (int, float)) or not isinstance(high, (int, float)):
        raise InputError(f"Data info Min: {clip(str(low))} , Max: {clip(str(high))}, info type must be int or float.")
    if not isinstance(least, (int, float)) or not isinstance(most, (int, float)):
        least, most = low, high
    return Recorded(low, high, least, most, _number(descriptor.get("Mean")), _number(descriptor.get("Norm")))


def _number(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, (int, float)) else None
    except OverflowError:
        return None


def _plain_value(kind: str, descriptor: dict[str, Any]) -> Any:
    """The value of a descriptor that is no tensor."""
    value = descriptor.get("value")
    if kind in _PLAIN and "value" not in descriptor:
        raise InputError("its value was not recorded")
    if kind == "slice":
        if not isinstance(value, list) or len(value) != 3:
            raise InputError(f"{clip(str(value))} is no slice of begin, end and step")
        return slice(*value)
    if kind == "ellipsis":
        return ...
    if kind == "torch.Size":
        return torch.Size(_shape(value))
    if kind == "torch.device":
        return Stand.DEVICE
    if kind == "mindspore.dtype":
        return _torch_dtype(value)
    if kind in ("torch.dtype", "torch.memory_format", "torch.layout"):
        return _torch_constant(kind, value if value is not None else descriptor.get("format"))
    if kind == "complex":
        return _complex(value)
    if kind == "float" and isinstance(value, (int, str)):
        return _as_float(value)
    return value


def _torch_constant(kind: str, name: Any) -> Any:
    """A dtype, memory format or layout by its name."""
    wanted = {"torch.dtype": torch.dtype, "torch.memory_format": torch.memory_format, "torch.layout": torch.layout}
    found = getattr(torch, name.removeprefix("torch."), None) if isinstance(name, str) else None
    if not isinstance(found, wanted[kind]):
        raise InputError(f"{clip(str(name))} is no {kind}")
    return found


def _complex(value: Any) -> complex:
    parts = value if isinstance(value, list) else [value, 0.0]
    if len(parts) != 2 or not all(isinstance(part, (int, float)) for part in parts):
        raise InputError(f"{clip(str(value))} is no complex number of real and imaginary part")
    return complex(*parts)


def _as_float(value: int | str) -> float:
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise InputError(f"{clip(str(value))} is no float") from None


def _numpy_value(kind: str, descriptor: dict[str, Any]) -> Any:
    name = kind.removeprefix("numpy.")
    if name not in _NUMPY_TYPES:
        raise InputError(f"{clip(kind)} is not supported now")
    if "value" not in descriptor:
        raise InputError("its value was not recorded")
    value = descriptor["value"]
    factory = getattr(np, _RENAMED.get(name, name), None)
    if factory is None:
        return value  # this machine's NumPy has no such type
    try:
        if name.startswith("complex") and isinstance(value, list):
            value = _complex(value)
        return factory(value.encode() if name in ("bytes_", "string_") and isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{clip(str(value))} is no {kind} ({_first(error)})") from None
