"""Name of a call in a dump -> the function to call.

A name of a dump is text that anybody may have written. So only operators are found, never whatever a module happens to
hold: ``torch.load`` or ``torch.os.system`` are no APIs here.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import torch
from opassay.pipeline.check.cases import CannotRun
from opassay.pipeline.watch.logs import one_line

Function = Callable[..., Any]

_SUBMODULES: Final = ("linalg", "fft", "special")  # old dumps leave them out of the name
_MODULES: Final = {
    "Functional": "torch.nn.functional",
    "Tensor": "torch.Tensor",
    "Torch": "torch",
    "Aten": "torch.ops.aten",
    "VF": "torch._VF",
}
_REFUSED: Final = frozenset({"from_file", "save", "load"})  # they open files whose names stand in the dump
_ALSO_TORCH: Final = frozenset(
    {"broadcast_shapes", "is_storage", "is_tensor", "lobpcg", "pca_lowrank", "svd_lowrank", "unique", "unravel_index"}
)
_COMPARISONS: Final = frozenset({"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"})
_BUILTIN: Final = (types.BuiltinFunctionType, types.BuiltinMethodType)


class ApiNotFound(CannotRun):
    """There is no such operator here; the message is the reason of the SKIP row."""


def find_api(kind: str, api: str, device: str) -> Function:
    """The function that a call of a dump called.

    Parameters
    ----------
    kind : str
        First segment of the name: ``Functional``, ``Tensor``, ``Torch``, ``Aten``, ``NPU`` or ``VF``.
    api : str
        The name without kind and number: ``matmul``, ``linalg.inv``, ``add.Tensor``.
    device : str
        Kind of the device it will run on: ``npu`` takes NPU operators from torch_npu, every other one takes their
        reference.

    Returns
    -------
    callable
        Takes the arguments of the dump; a method takes its tensor first.

    Raises
    ------
    ApiNotFound
        If there is none.
    """
    if kind == "NPU":
        return _on_npu(api) if device.partition(":")[0] == "npu" else _fused(api)
    found = _found(kind, api)
    if found is None:
        raise ApiNotFound(f"API {api} not found in {_MODULES.get(kind, kind)}")
    return found


def is_known(api: str) -> bool:
    """Whether an API of this name can be found under any kind.

    Names of NPU operators count as known by their beginning: which ones there are depends on the torch_npu of the
    machine with the device.
    """
    if api.startswith("npu_") or any(_found(kind, api) is not None for kind in _MODULES):
        return True
    try:
        _fused(api)
    except ApiNotFound:
        return False
    return True


@cache
def _found(kind: str, api: str) -> Function | None:
    name = api.rpartition(".")[2]
    if not api or name in _REFUSED or (name.startswith("_") and not name.endswith("_") and kind not in ("Aten", "VF")):
        return None
    if kind == "Torch":
        return _in_torch(api)
    if kind == "Functional":
        return _in_functional(api)
    if kind == "Tensor":
        return _in_tensor(api)
    if kind == "Aten":
        return _in_aten(api)
    if kind == "VF" and api in _operators():
        found: Function = getattr(torch._VF, api)
        return found
    return None


def _in_torch(api: str) -> Function | None:
    module, _, name = api.rpartition(".")
    if module:
        return _public(getattr(torch, module), name) if module in _SUBMODULES else None
    if name in _operators() or name in torch.functional.__all__ or name in _ALSO_TORCH:
        found: Function | None = getattr(torch, name, None)
        if found is not None:
            return found
    for module in _SUBMODULES:
        found = _public(getattr(torch, module), name)
        if found is not None:
            return found
    return None


@cache
def _operators() -> frozenset[str]:
    """Names of the operators that torch binds; most of its other functions set or load something."""
    return frozenset(name for name in dir(torch._C._VariableFunctions) if not name.startswith("__"))


def _public(module: types.ModuleType, name: str) -> Function | None:
    found = getattr(module, name, None)
    is_operator = isinstance(found, (*_BUILTIN, types.FunctionType)) and not name.startswith("_")
    return found if is_operator else None


def _in_functional(api: str) -> Function | None:
    found = getattr(torch.nn.functional, api, None)
    if isinstance(found, _BUILTIN):
        return found if api in _operators() or hasattr(torch._C._nn, api) else None
    if not isinstance(found, types.FunctionType):
        return None
    at_home = found.__module__ in ("torch.nn.functional", "torch.functional")
    return found if at_home or found in _overridable() else None


@cache
def _overridable() -> frozenset[Function]:
    return frozenset(torch.overrides.get_overridable_functions()[torch.nn.functional])


def _in_tensor(api: str) -> Function | None:
    if api in _SPECIAL:
        return _SPECIAL[api]
    if api not in _COMPARISONS and hasattr(object, api):
        return None
    found: Function | None = getattr(torch.Tensor, api, None)
    if not callable(found) or isinstance(found, type):
        return None
    return _strict(api, found) if api.startswith("__") else found


def _in_aten(api: str) -> Function | None:
    packet, _, overload = api.partition(".")
    found = getattr(torch.ops.aten, packet, None)
    if not isinstance(found, torch._ops.OpOverloadPacket):
        return None
    if overload:
        found = getattr(found, overload, None)
        if not isinstance(found, torch._ops.OpOverload):
            return None
    return found


def _fused(api: str) -> Function:
    """Reference of an NPU operator."""
    from opassay.kernels.fused import reference  # a table of formulas that most dumps do not need

    found: Function | None = reference(api)
    if found is None:
        raise ApiNotFound(f"There is not bench function {api}")
    return found


def _on_npu(api: str) -> Function:
    """The real NPU operator."""
    try:
        import torch_npu
    except (ImportError, RuntimeError, OSError) as error:  # it may be installed without the driver's libraries
        raise ApiNotFound(f"API {api} needs torch_npu, which cannot be imported ({one_line(str(error))})") from None
    for owner in (torch_npu, torch.ops.npu):
        found: Function | None = getattr(owner, api, None)
        if callable(found) and not isinstance(found, type) and not api.startswith("_"):
            return found
    raise ApiNotFound(f"API {api} not found in torch_npu")


def _strict(api: str, method: Function) -> Function:
    """A method of Python's operators, which must not answer NotImplemented as if that were a result."""

    def call(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        if result is NotImplemented:
            raise TypeError(f"{api} is not implemented for these arguments")
        return result

    return call


def _getitem(tensor: torch.Tensor, index: Any) -> Any:
    """``tensor[index]``: a mask of the tensor's own shape selects; dumps store tuples as lists."""
    index = _index(index)
    if isinstance(index, torch.Tensor) and index.dtype is torch.bool and index.shape == tensor.shape:
        return torch.masked_select(tensor, index)
    return tensor[index]


def _setitem(tensor: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    """``tensor[index] = value``; gives the tensor back, so that there is something to compare."""
    tensor[_index(index)] = value
    return tensor


def _resize(tensor: torch.Tensor, *shape: Any, **options: Any) -> torch.Tensor:
    """``resize_`` to no more elements than there are: others would be whatever the memory held."""
    sizes = options.get("sizes", shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
    _refuse_growth(tensor, math.prod(sizes))
    return tensor.resize_(*shape, **options)


def _resize_as(tensor: torch.Tensor, template: torch.Tensor, **options: Any) -> torch.Tensor:
    _refuse_growth(tensor, template.numel())
    return tensor.resize_as_(template, **options)


def _refuse_growth(tensor: torch.Tensor, count: int) -> None:
    if count > tensor.numel():
        raise CannotRun(
            f"the new elements of a tensor that grows from {tensor.numel()} to {count} are what the memory held"
        )


def _index(index: Any) -> Any:
    if isinstance(index, list):
        return tuple(_mask(part) for part in index)
    return _mask(index)


def _mask(index: Any) -> Any:
    """Masks of uint8, which torch reads as masks with a warning, as bool."""
    return index.bool() if isinstance(index, torch.Tensor) and index.dtype is torch.uint8 else index


def _equal(tensor: torch.Tensor, other: Any) -> Any:
    return False if other is None else torch.eq(tensor, other)


def _differ(tensor: torch.Tensor, other: Any) -> Any:
    return True if other is None else torch.ne(tensor, other)


_SPECIAL: Final[dict[str, Function]] = {
    "__getitem__": _getitem,
    "__setitem__": _setitem,
    "__eq__": _equal,
    "__ne__": _differ,
    "resize_": _resize,
    "resize_as_": _resize_as,
}
