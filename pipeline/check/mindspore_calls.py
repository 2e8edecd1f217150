"""MindSpore's own side of a call: arrays in, arrays out. Knows no torch, so that it also runs where MSAdapter stands in for torch.

MindSpore is imported by the first call and runs synchronously: else the failure of one call shows in the next one.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_SUBMODULES: Final = frozenset({"linalg", "special", "fft"})
_NO_KERNEL: Final = re.compile(
    r"kernel \S+ (?:is )?(?:unregistered|not (?:found|registered|supported))|Select CPU operator\[|unsupported op\b.*\bCPU"
    r"|not support(?:ed)?\b.*\bCPU\b|\bCPU\b.*\bnot support",
    re.IGNORECASE,
)
_LONGEST: Final = 500  # characters of a library's message
_ONE_THREAD: Final = "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class Array:
    """A tensor on its way.

    Attributes
    ----------
    dtype : str
        ``float32``, ``bfloat16``, ``bool``; names as torch has them.
    values : ndarray
        In that dtype; bfloat16 as float32, which holds it exactly.
    """

    dtype: str
    values: NDArray[Any]


@dataclass(frozen=True, slots=True)
class DTypeName:
    """A dtype that is an argument: ``float16``."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """One call for the tested side.

    Attributes
    ----------
    kind, api : str
        First segment and function: ``Mint``, ``linalg.inv``.
    args, kwargs : tuple, dict
        Plain values, ``Array``, ``DTypeName``, tuples and dictionaries of these.
    grads : list of Array or None
        Gradients that arrive at the outputs; [] where no backward pass is wanted.
    """

    kind: str
    api: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    grads: list[Array | None] = field(default_factory=list)


@dataclass(slots=True)
class Answer:
    """What the tested side gave.

    Attributes
    ----------
    outputs : object
        As ``Call.args``.
    grads : list of Array or None, or None
        One for each tensor of the arguments, positional ones first, lists walked; None for whole numbers.
    failed, no_backward : str
        Why the call, or its backward pass, could not be run.
    seconds : float
        What the operator took.
    """

    outputs: Any = None
    grads: list[Array | None] | None = None
    failed: str = ""
    no_backward: str = ""
    seconds: float = 0.0


class MindSporeSide:
    """The tested side in this process.

    Parameters
    ----------
    device : str
        ``cpu``, ``npu:1``, ``cuda:0``.
    adapter : bool
        Functions are those of MSAdapter, the torch that this process imports.
    """

    def __init__(self, device: str, *, adapter: bool = False) -> None:
        os.environ.setdefault("GLOG_v", "3")  # MindSpore's own log: errors only
        self._ms: Any = importlib.import_module("mindspore")
        self._cpu = device.startswith("cpu")
        self._find = _Adapter(self._ms) if adapter else _Mint(self._ms)
        prepare(self._ms, device)

    def run(self, call: Call) -> Answer:
        """Run a call, forward and, where gradients are given, backward. Raises nothing for what the call holds."""
        answer = Answer()
        begun = time.perf_counter()
        try:
            function = self._find(call.kind, call.api)
            args, kwargs = self._built(call.args), self._built(call.kwargs)
            answer.outputs = self._told(function(*args, **kwargs))
        except Exception as error:
            answer.failed = self._reason(error)
        else:
            if call.grads:
                try:
                    answer.grads = self._gradients(function, call)
                except Exception as error:
                    answer.no_backward = self._reason(error)
        answer.seconds = time.perf_counter() - begun
        return answer

    def _gradients(self, function: Callable[..., Any], call: Call) -> list[Array | None]:
        """Gradients of all tensors of floats, wherever in the arguments they are."""
        arrays = list(_arrays([call.args, call.kwargs]))
        wanted = [place for place, array in enumerate(arrays) if _is_float(array.dtype)]
        if not wanted:
            raise ValueError("no output depends on an input that requires a gradient")
        others = {place: self._tensor(array) for place, array in enumerate(arrays) if place not in set(wanted)}
        outputs = list(self._tensors(function(*self._built(call.args), **self._built(call.kwargs))))
        given = _pairs([(_name(one.dtype), tuple(one.shape)) for one in outputs], call.grads)

        def chosen(*leaves: Any) -> Any:
            at = others | dict(zip(wanted, leaves, strict=True))
            places = iter(range(len(arrays)))
            args = self._built(call.args, lambda _: at[next(places)])
            kwargs = self._built(call.kwargs, lambda _: at[next(places)])
            made = list(self._tensors(function(*args, **kwargs)))
            kept = tuple(made[place] for place, _ in given)
            return kept[0] if len(kept) == 1 else kept

        sens = tuple(self._tensor(grad) for _, grad in given)
        backward = self._ms.ops.GradOperation(get_all=True, sens_param=True)(chosen)
        found = backward(*(self._tensor(arrays[place]) for place in wanted), sens[0] if len(sens) == 1 else sens)
        by_place = dict(zip(wanted, found, strict=True))
        return [self._told(by_place[place]) if place in by_place else None for place in range(len(arrays))]

    def _built(self, value: Any, tensor: Callable[[Array], Any] | None = None) -> Any:
        """The same structure with MindSpore's tensors and dtypes."""
        if isinstance(value, Array):
            return self._tensor(value) if tensor is None else tensor(value)
        if isinstance(value, DTypeName):
            return self._dtype(value.name)
        if isinstance(value, dict):
            return {key: self._built(item, tensor) for key, item in value.items()}
        if type(value) is tuple:
            return tuple(self._built(item, tensor) for item in value)
        return value

    def _tensor(self, array: Array) -> Any:
        if array.dtype == "bfloat16":  # NumPy has none; a float32 of these values is exact
            return self._ms.Tensor(array.values.copy()).astype(self._ms.bfloat16)
        if array.dtype != array.values.dtype.name:
            raise ValueError(f"MindSpore gets no tensors of {array.dtype}")
        return self._ms.Tensor(array.values.copy(), dtype=self._dtype(array.dtype))

    def _dtype(self, name: str) -> Any:
        found = getattr(self._ms, "bool_" if name == "bool" else name, None)
        if found is None:
            raise ValueError(f"MindSpore has no dtype {name}")
        return found

    def _tensors(self, value: Any) -> Iterator[Any]:
        if isinstance(value, self._ms.Tensor):
            yield value
        elif isinstance(value, dict):
            for item in value.values():
                yield from self._tensors(item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                yield from self._tensors(item)

    def _told(self, value: Any) -> Any:
        """Results as they travel."""
        if isinstance(value, self._ms.Tensor):
            name = _name(value.dtype)
            values = (value.astype(self._ms.float32) if name == "bfloat16" else value).asnumpy()
            return Array(name, np.ascontiguousarray(values).reshape(values.shape))
        if isinstance(value, dict):
            return {str(key): self._told(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return tuple(self._told(item) for item in value)
        if isinstance(value, np.generic):
            return value.item()
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        name = _name(value)
        return DTypeName(name) if re.fullmatch(r"[a-z]+\d*", name) else f"<{type(value).__name__}>"

    def _reason(self, error: Exception) -> str:
        """One line, and whether it is for lack of a kernel."""
        text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:_LONGEST]
        return f"no CPU kernel ({text})" if self._cpu and _NO_KERNEL.search(text) else text


class _Mint:
    """Functions of MindSpore by the names of its dumps."""

    def __init__(self, ms: Any) -> None:
        self._ms = ms
        self._mint: Any = importlib.import_module("mindspore.mint")

    def __call__(self, kind: str, api: str) -> Callable[..., Any]:
        """The function. Raises LookupError."""
        home: Any
        if kind == "Mint":
            module, _, name = api.rpartition(".")
            home = getattr(self._mint, module, None) if module in _SUBMODULES else None if module else self._mint
            told = f"mindspore.mint has no {api}"
        elif kind == "MintFunctional":
            home, name, told = self._mint.nn.functional, api, f"mindspore.mint.nn.functional has no {api}"
        elif kind == "Tensor":
            home, name, told = self._ms.Tensor, api, f"mindspore.Tensor has no {api}"
        else:
            home, name, told = self._ms.ops, api, f"mindspore.ops has no {api}"
        return _operator(home, name, told)


class _Adapter:
    """Functions of MSAdapter by the names of torch."""

    def __init__(self, ms: Any) -> None:
        self._torch: Any = importlib.import_module("torch")
        if not isinstance(self._torch.tensor(0.0), ms.Tensor):
            raise ImportError("the torch on this path is not MSAdapter: its tensors are not MindSpore's")

    def __call__(self, kind: str, api: str) -> Callable[..., Any]:
        """The function. Raises LookupError."""
        homes = {"Torch": self._torch, "Functional": self._torch.nn.functional, "Tensor": self._torch.Tensor}
        module, _, name = api.rpartition(".")
        home = homes.get(kind)
        if module:
            home = getattr(home, module, None) if module in _SUBMODULES else None
        return _operator(home, name, f"MSAdapter's torch has no {kind}.{api}")


def _operator(home: Any, name: str, told: str) -> Callable[..., Any]:
    """A function that is no class and not private. Names that torch does not know as operators never come this far."""
    found = getattr(home, name, None)
    is_private = name.startswith("_") and not name.startswith("__")
    if is_private or not callable(found) or isinstance(found, type):
        raise LookupError(told)
    return found  # type: ignore[no-any-return]


def prepare(ms: Any, device: str) -> None:
    """Make MindSpore ready: PyNative, synchronous, on its device."""
    kind, _, number = device.partition(":")
    target = {"cpu": "CPU", "npu": "Ascend", "cuda": "GPU"}[kind]
    ms.set_context(mode=ms.PYNATIVE_MODE)
    if hasattr(ms, "set_device"):
        with contextlib.suppress(RuntimeError):  # chosen already in this process
            ms.set_device(target, int(number or 0)) if target != "CPU" else ms.set_device(target)
    else:
        ms.set_context(device_target=target, **({"device_id": int(number)} if number else {}))
    runtime: Any = getattr(ms, "runtime", None)
    if hasattr(runtime, "launch_blocking"):
        runtime.launch_blocking()
    else:
        ms.set_context(pynative_synchronize=True)


def _pairs(outputs: Sequence[tuple[str, tuple[int, ...]]], grads: Sequence[Array | None]) -> list[tuple[int, Array]]:
    """Which recorded gradient arrives at which output: by place among all outputs or among those of floats, else by shape."""
    floats = [place for place, (dtype, _) in enumerate(outputs) if _is_float(dtype)]
    for candidates in (floats, list(range(len(outputs)))):
        if len(candidates) == len(grads):
            found = [
                (place, grad)
                for place, grad in zip(candidates, grads, strict=True)
                if grad is not None and place in floats
            ]
            break
    else:
        rest = iter(floats)
        found = []
        for grad in grads:
            if grad is None:
                next(rest, None)
                continue
            fitting = next((place for place in rest if outputs[place][1] == grad.values.shape), None)
            if fitting is not None:
                found.append((fitting, grad))
    if not found:
        raise ValueError("none of the recorded gradients belongs to an output of floats")
    return found


def _arrays(value: Any) -> Iterator[Array]:
    """All tensors of a structure, in order."""
    if isinstance(value, Array):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _arrays(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _arrays(item)


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))


def _name(dtype: Any) -> str:
    """``Float32`` or ``mindspore.float32`` as ``float32``."""
    return str(dtype).rpartition(".")[2].lower().rstrip("_")
