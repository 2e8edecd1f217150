"""Loads and stores by address for the tokenizer: numba arrays as arguments would cost a reference count at every call.

Addresses are plain integers; the caller keeps the arrays alive and the places inside them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

Compiled = TypeVar("Compiled", bound=Callable[..., Any])

i64: Final = types.int64
b1: Final = types.boolean
f64: Final = types.float64
u64: Final = types.uint64


def jit(signature: Any) -> Callable[[Compiled], Compiled]:
    """Decorator: compile for one signature (without it, numba compiles a copy for every constant that is passed)."""
    decorate: Callable[[Compiled], Compiled] = njit(signature, nogil=True, cache=True, error_model="numpy")
    return decorate


def pair(*kinds: Any) -> Any:
    """The numba type of a tuple."""
    return types.Tuple(kinds)  # type: ignore[no-untyped-call]


_BYTE: Final = ir.IntType(8)
_WORD: Final = ir.IntType(64)
_FLOAT: Final = ir.DoubleType()


def _place(builder: Any, base: Any, index: Any, kind: Any) -> Any:
    return builder.gep(builder.inttoptr(base, kind.as_pointer()), [index], source_etype=kind)


def _byte(typing: Any, base: Any, index: Any) -> Any:
    """Byte ``index`` behind address ``base``, as an int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(builder, arguments[0], arguments[1], _BYTE)
        return builder.zext(builder.load(place, align=1, typ=_BYTE), _WORD)

    return types.int64(types.int64, types.int64), generate


def _word(typing: Any, base: Any, index: Any) -> Any:
    """The int64 ``index`` places behind address ``base``, which need not be aligned."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_place(builder, arguments[0], arguments[1], _WORD), align=1, typ=_WORD)

    return types.int64(types.int64, types.int64), generate


def _put_byte(typing: Any, base: Any, index: Any, value: Any) -> Any:
    """Store the low byte of an int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(builder, arguments[0], arguments[1], _BYTE)
        builder.store(builder.trunc(arguments[2], _BYTE), place, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _put_word(typing: Any, base: Any, index: Any, value: Any) -> Any:
    """Store an int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _place(builder, arguments[0], arguments[1], _WORD), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _put_float(typing: Any, base: Any, index: Any, value: Any) -> Any:
    """Store a float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _place(builder, arguments[0], arguments[1], _FLOAT), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float64), generate


byte: Any = intrinsic(_byte)
word: Any = intrinsic(_word)
put_byte: Any = intrinsic(_put_byte)
put_word: Any = intrinsic(_put_word)
put_float: Any = intrinsic(_put_float)
