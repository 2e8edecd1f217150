"""Reads the pickle of a torch file with a machine of its own, which knows only what ``torch.save`` writes for a tensor.

The machine holds nothing but numbers, texts, tuples, lists, dicts and the records of this file. No instruction reaches
an attribute, a class or a function from outside, so whatever a pickle says, it can change nothing but its own stack.
An instruction that is not known makes the file ``Unusual`` (torch may read it with its own restrictions), and so does
an unknown name of torch; any other name is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from opassay.pipeline.read.tensor_layout import Source, Unusual, one_line
from opassay.schemas.dtypes import BY_NAME, DType, parse_dtype

MAX_PICKLE: Final = 1 << 20  # bytes; the pickle of one tensor has a few hundred
_STOP: Final = ord(".")
_UINT: Final = struct.Struct("<I")
_INT: Final = struct.Struct("<i")
_REAL: Final = struct.Struct(">d")
_STORAGES: Final = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
}  # fmt: skip
_STORAGE_MODULES: Final = ("torch", "torch.storage", "torch.cuda", "torch.npu", "torch_npu.npu")


class Refused(Exception):
    """A pickle that no tensor needs; the text continues the words "its pickle"."""


@dataclass(frozen=True, slots=True)
class _Name:
    """Stands for a name that a pickle uses; ``dtype`` is the name of an element type, None for bytes without one."""

    role: str
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """One storage a pickle refers to.

    Attributes
    ----------
    dtype : str or None
        Name of its element type; None for bytes without a type.
    key : str
        What the container calls it.
    count : int
        Elements; bytes where it has no type.
    """

    dtype: str | None
    key: str
    count: int


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor as the pickle tells it; nothing is checked yet."""

    storage: Any
    first: Any
    shape: Any
    strides: Any
    dtype: Any


View = tuple[Storage, DType, tuple[int, ...], tuple[int, ...], int]
"""Storage, type, shape, strides and first element of a tensor, types checked."""

_NAMES: Final[dict[tuple[str, str], _Name]] = {
    ("torch._utils", "_rebuild_tensor_v2"): _Name("v2"),
    ("torch._utils", "_rebuild_tensor_v3"): _Name("v3"),
    ("torch._utils", "_rebuild_parameter"): _Name("parameter"),
    ("torch_npu.utils.storage", "_rebuild_npu_tensor"): _Name("npu"),
    ("collections", "OrderedDict"): _Name("dict"),
    ("torch", "Size"): _Name("size"),
    **{(module, name): _Name("storage", kind) for module in _STORAGE_MODULES for name, kind in _STORAGES.items()},
    **{(module, "UntypedStorage"): _Name("storage") for module in _STORAGE_MODULES},
}


def _find(module: str, name: str) -> _Name:
    known = _NAMES.get((module, name))
    if known is not None:
        return known
    if module.partition(".")[0] in ("torch", "torch_npu"):
        dtype = parse_dtype(name) if module == "torch" else None
        if dtype is not None:
            return _Name("dtype", dtype.name)
        raise Unusual(f"{module}.{name}")
    raise Refused(f"names {module}.{name}, which no tensor needs")


def _rebuild_v2(storage: Any, first: Any, shape: Any, strides: Any, *rest: Any) -> _Tensor:
    if len(rest) > 2 and rest[2]:
        raise Unusual("a view with marks, such as conjugate")
    return _rebuild_npu(storage, first, shape, strides)


def _rebuild_v3(
    storage: Any, first: Any, shape: Any, strides: Any, grad: Any, hooks: Any, dtype: Any, *rest: Any
) -> _Tensor:
    if rest and rest[0]:
        raise Unusual("a view with marks, such as conjugate")
    kind = dtype.dtype if isinstance(dtype, _Name) and dtype.role == "dtype" else None
    return _Tensor(storage, first, shape, strides, kind)


def _rebuild_npu(storage: Any, first: Any, shape: Any, strides: Any, *_rest: Any) -> _Tensor:
    return _Tensor(storage, first, shape, strides, storage.dtype if isinstance(storage, Storage) else None)


def _parameter(data: Any, *_rest: Any) -> Any:
    return data


def _empty_dict() -> dict[Any, Any]:
    return {}


def _size(lengths: Any) -> Any:
    return lengths


_CALLS: Final[dict[str, Callable[..., Any]]] = {
    "v2": _rebuild_v2, "v3": _rebuild_v3, "npu": _rebuild_npu, "parameter": _parameter, "dict": _empty_dict,
    "size": _size,
}  # fmt: skip


class _Machine:
    """The state while one pickle is read; ``at`` is the byte after the last instruction."""

    __slots__ = ("at", "marks", "memo", "stack", "text")

    def __init__(self, text: bytes, at: int) -> None:
        self.text = text
        self.at = at
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        """The object of the pickle."""
        while (code := self.text[self.at]) != _STOP:
            step = _STEPS.get(code)
            if step is None:
                raise Unusual(f"a pickle with the instruction {code}")
            self.at += 1
            step(self)
        self.at += 1
        return self.stack[-1]

    def take(self, count: int) -> bytes:
        """The next bytes."""
        start = self.at
        self.at += count
        if self.at > len(self.text):
            raise EOFError("it is cut")
        return self.text[start : self.at]

    def line(self) -> str:
        """The text up to the end of the line."""
        end = self.text.index(b"\n", self.at)
        return self.take(end + 1 - self.at)[:-1].decode()

    def number(self) -> int:
        """Four bytes without a sign."""
        return int(_UINT.unpack(self.take(4))[0])

    def since_mark(self) -> list[Any]:
        """Take all above the last mark from the stack."""
        mark = self.marks.pop()
        items = self.stack[mark:]
        del self.stack[mark:]
        return items


def _mark(machine: _Machine) -> None:
    machine.marks.append(len(machine.stack))


def _short_tuple(count: int) -> Callable[[_Machine], None]:
    def step(machine: _Machine) -> None:
        items = tuple(machine.stack[-count:])
        if len(items) < count:
            raise IndexError("nothing on the stack")
        machine.stack[-count:] = [items]

    return step


def _push(make: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    def step(machine: _Machine) -> None:
        machine.stack.append(make(machine))

    return step


def _put(make: Callable[[_Machine], int]) -> Callable[[_Machine], None]:
    def step(machine: _Machine) -> None:
        machine.memo[make(machine)] = machine.stack[-1]

    return step


def _long(machine: _Machine) -> int:
    count = machine.take(1)[0]
    if count > 8:
        raise Refused("has a number of more than 64 bits, which no tensor needs")
    return int.from_bytes(machine.take(count), "little", signed=True)


def _longer(machine: _Machine) -> int:
    raise Refused("has a number of more than 64 bits, which no tensor needs")


def _text(count: int, machine: _Machine) -> str:
    return machine.take(count).decode("utf-8", "surrogatepass")


def _named(machine: _Machine) -> _Name:
    name, module = machine.stack.pop(), machine.stack.pop()
    if not (isinstance(module, str) and isinstance(name, str)):
        raise TypeError("a name that is no text")
    return _find(module, name)


def _reduce(machine: _Machine) -> Any:
    given, name = machine.stack.pop(), machine.stack.pop()
    call = _CALLS.get(name.role) if isinstance(name, _Name) else None
    if call is None or not isinstance(given, tuple):
        raise Refused("calls something that is no function")
    return call(*given)


def _refer(machine: _Machine) -> Storage:
    pid = machine.stack.pop()
    sound = isinstance(pid, tuple) and len(pid) in (5, 6) and isinstance(pid[1], _Name) and pid[1].role == "storage"
    if not sound:
        raise Refused("refers to something that is no storage")
    if len(pid) == 6 and pid[5] is not None:
        raise Unusual("a storage that is a view of another")
    key, count = pid[2], pid[4]
    if not (isinstance(key, str) and type(count) is int and count >= 0):
        raise Refused("has a storage without key or size")
    return Storage(pid[1].dtype, key, count)


def _set(machine: _Machine, items: list[Any]) -> None:
    into = machine.stack[-1]
    if type(into) is not dict or len(items) % 2:
        raise TypeError("entries without a dict")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, (str, int)):
            raise Refused("has a dict with keys that are neither text nor numbers, which no tensor needs")
        into[key] = value


def _set_one(machine: _Machine) -> None:
    items = machine.stack[-2:]
    del machine.stack[-2:]
    _set(machine, items)


def _append(machine: _Machine, items: list[Any]) -> None:
    into = machine.stack[-1]
    if type(into) is not list:
        raise TypeError("items without a list")
    into += items


_STEPS: Final[dict[int, Callable[[_Machine], Any]]] = {
    0x80: lambda machine: machine.take(1),  # protocol
    0x95: lambda machine: machine.take(8),  # frame
    ord("("): _mark,
    ord("t"): _push(lambda machine: tuple(machine.since_mark())),
    ord(")"): _push(lambda machine: ()),
    0x85: _short_tuple(1),
    0x86: _short_tuple(2),
    0x87: _short_tuple(3),
    ord("}"): _push(lambda machine: {}),
    ord("]"): _push(lambda machine: []),
    ord("q"): _put(lambda machine: machine.take(1)[0]),
    ord("r"): _put(_Machine.number),
    0x94: _put(lambda machine: len(machine.memo)),
    ord("h"): _push(lambda machine: machine.memo[machine.take(1)[0]]),
    ord("j"): _push(lambda machine: machine.memo[machine.number()]),
    ord("c"): _push(lambda machine: _find(machine.line(), machine.line())),
    0x93: _push(_named),
    ord("X"): _push(lambda machine: _text(machine.number(), machine)),
    0x8C: _push(lambda machine: _text(machine.take(1)[0], machine)),
    ord("J"): _push(lambda machine: _INT.unpack(machine.take(4))[0]),
    ord("K"): _push(lambda machine: machine.take(1)[0]),
    ord("M"): _push(lambda machine: int.from_bytes(machine.take(2), "little")),
    0x8A: _push(_long),
    0x8B: _push(_longer),
    ord("G"): _push(lambda machine: _REAL.unpack(machine.take(8))[0]),
    ord("N"): _push(lambda machine: None),
    0x88: _push(lambda machine: True),
    0x89: _push(lambda machine: False),
    ord("R"): _push(_reduce),
    ord("Q"): _push(_refer),
    ord("s"): _set_one,
    ord("u"): lambda machine: _set(machine, machine.since_mark()),
    ord("a"): lambda machine: _append(machine, [machine.stack.pop()]),
    ord("e"): lambda machine: _append(machine, machine.since_mark()),
}


def unpickle(source: Source, text: bytes, at: int = 0) -> tuple[Any, int]:
    """The next pickle in some bytes, as records.

    Parameters
    ----------
    source : Source
        The file, for messages.
    text : bytes
        At most ``MAX_PICKLE`` bytes.
    at : int, default 0
        Where the pickle starts.

    Returns
    -------
    value : object
        What it holds; a tensor becomes something for `checked_view`.
    end : int
        The byte after it.

    Raises
    ------
    TensorUnreadable
        If it is damaged or names anything outside the list.
    Unusual
        If it uses an instruction, or names something of torch, that is not on the list.
    """
    machine = _Machine(text, at)
    try:
        return machine.run(), machine.at
    except Unusual:
        raise
    except Refused as error:
        raise source.refuse(f"refused: its pickle {one_line(str(error))}") from None
    except Exception as error:  # a damaged pickle raises whatever its instructions run into
        detail = one_line(str(error)) or "no detail"
        raise source.refuse(f"damaged: its pickle ends in {type(error).__name__} ({detail})") from None


def _dimensions(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, (tuple, list)) and all(type(item) is int and item >= 0 for item in value):
        return tuple(value)
    return None


def checked_view(source: Source, value: Any) -> View:
    """The parts of a tensor, types checked.

    Parameters
    ----------
    source : Source
        The file, for messages.
    value : object
        From `unpickle`.

    Raises
    ------
    TensorUnreadable
        If the value is no tensor or its parts are of the wrong types.
    """
    if not isinstance(value, _Tensor):
        kind = "record" if isinstance(value, (_Name, Storage)) else type(value).__name__
        article = "an" if kind[:1] in "aeiouAEIOU" else "a"
        raise source.refuse(f"holds {article} {kind}, not one tensor")
    shape, strides = _dimensions(value.shape), _dimensions(value.strides)
    dtype = BY_NAME.get(value.dtype) if isinstance(value.dtype, str) else None
    if not isinstance(value.storage, Storage) or dtype is None or type(value.first) is not int or value.first < 0:
        raise source.refuse("damaged: the pickle's tensor has parts of the wrong type")
    if shape is None or strides is None or len(shape) != len(strides):
        raise source.refuse("damaged: the pickle's tensor has parts of the wrong type")
    return value.storage, dtype, shape, strides, value.first
