"""The compiled pass: loops over one block in the first-level cache (decode, sum, maxima, clean) and what drives them.

Imported only by `numba_pass` and `numba_rounding`, because numba is slow to import. A block is at most ``BLOCK``
elements; a complex block holds real and imaginary parts in turn. What makes these loops fast: sums are kept apart from
maxima (registers); sums may be reassociated but must show nan and inf; maxima are a compare and a select that LLVM
knows as one vector instruction. All of it is one file, because numba's disk cache watches the file of the outermost
function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, njit, types
from numba.np.numpy_support import carray
from opassay.kernels.pair_sums import BLOCK


def intrinsic(function: Callable[..., Any]) -> Any:
    """``numba.extending.intrinsic``, typed: what it returns is called without the typing context."""
    return extending.intrinsic(function)


def overload(function: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """``numba.extending.overload``, typed."""
    decorate: Callable[[Callable[..., Any]], Any] = extending.overload(function)
    return decorate


FAST_SUMS = {"reassoc", "contract", "nsz"}

# Places in the state, one float64 each; a sum's correction lies RESTS places behind it.
DOT, TARGET_SQ, GOLDEN_SQ, ERROR_SQ = 0, 1, 2, 3
RESTS = 4
ERROR_MAX, RELATIVE_MAX, TARGET_MAX, GOLDEN_MAX = 8, 9, 10, 11
SIZE, FINITE, THOUSANDTH, FIVE_THOUSANDTH = 12, 13, 14, 15
EQUAL_NAN, EQUAL_INF, NAN_MISMATCH, INF_MISMATCH = 16, 17, 18, 19
WORST_INDEX, WORST_TARGET, WORST_GOLDEN = 20, 21, 22
PLACES = 23


def jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit`` without zero checks and the GIL, cached on disk where a folder for it can be written."""

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return njit(error_model="numpy", nogil=True, cache=True, **options)(function)
        except RuntimeError:  # neither the package's folder nor the user's cache folder can be written
            return njit(error_model="numpy", nogil=True, **options)(function)

    return compiled


@intrinsic
def larger(typing_context: Any, first: Any, second: Any) -> Any:
    """The larger of two floats of one type, neither of them nan."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        flags = ("nnan", "nsz")
        above = builder.fcmp_ordered(">", values[0], values[1], flags=flags)
        return builder.select(above, values[0], values[1], flags=flags)

    return first(first, second), build


@intrinsic
def zero_unless(typing_context: Any, condition: Any, value: Any) -> Any:
    """``value`` where the condition holds, else 0.0, without a branch."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        zero = context.get_constant(signature.args[1], 0.0)
        return builder.select(builder.icmp_unsigned("!=", values[0], ir.Constant(values[0].type, 0)), values[1], zero)

    return value(condition, value), build


@intrinsic
def float32_of_bits(typing_context: Any, bits: Any) -> Any:
    """The float32 with these 32 bits."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], ir.FloatType())

    return types.float32(types.uint32), build


@intrinsic
def float32_of_half(typing_context: Any, bits: Any) -> Any:
    """The float32 of a float16's bits (int16): one instruction where the processor has it, else by shifts."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        triple, _, features = context.codegen().magic_tuple()
        if "+f16c" in features or triple.startswith(("aarch64", "arm64")):
            return builder.fpext(builder.bitcast(values[0], ir.HalfType()), ir.FloatType())
        word = ir.IntType(32)
        half = builder.zext(values[0], word)
        size = builder.and_(half, word(0x7FFF))
        moved = builder.bitcast(builder.shl(size, word(13)), ir.FloatType())
        value = builder.bitcast(builder.fmul(moved, ir.FloatType()(2.0**112)), word)  # the exponent's other bias
        special = builder.select(builder.icmp_unsigned(">", size, word(0x7BFF)), word(0x7F800000), word(0))
        sign = builder.shl(builder.and_(half, word(0x8000)), word(16))
        return builder.bitcast(builder.or_(builder.or_(value, special), sign), ir.FloatType())

    return types.float32(types.int16), build


@intrinsic
def _pointer(typing_context: Any, address: Any, like: Any) -> Any:
    """The address, as a pointer to elements of the array ``like``."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(signature.return_type))

    pointer: Any = types.CPointer
    return pointer(like.dtype)(types.uintp, like), build


@jit()
def array_at(address: int, count: int, like: Any) -> Any:
    """The ``count`` elements at an address, of the type of ``like``.

    Arrays come as addresses, so that read-only and writeable ones are one type for the compiler and a call is quick.
    """
    return carray(_pointer(np.uintp(address), like), (count,))


def opened(stored: Any, room: Any, table: Any, start: int, stop: int) -> Any:
    """Numbers of one block. The types of ``stored`` and ``room`` together say what the bits mean.

    float32 and float64 in a room of their own type are not copied; uint16 into float32 is bfloat16; int16 into float32
    is float16; uint8 into float32 is looked up in ``table``; anything into float64 is converted by value.
    """
    raise NotImplementedError("only compiled code calls this")


@overload(opened)
def _opened(stored: Any, room: Any, table: Any, start: int, stop: int) -> Any:
    if stored.dtype == room.dtype:
        return _in_place
    if room.dtype == types.float64:
        return _by_value
    return {types.uint16: _bfloat16, types.int16: _float16, types.uint8: _looked_up}[stored.dtype]


def _in_place(stored: Any, room: Any, table: Any, start: int, stop: int) -> Any:
    return stored[start:stop]


def _by_value(stored: Any, room: Any, table: Any, start: int, stop: int) -> Any:
    part = stored[start:stop]
    for i in range(part.size):
        room[i] = np.float64(part[i])
    return room[: part.size]


def _bfloat16(stored: Any, room: Any, table: Any, start: int, stop: int) -> Any:
    part = stored[start:stop]
    for i in range(part.size):
        room[i] = float32_of_bits(np.uint32(part[i]) << np.uint32(16))
    return room[: part.size]


def _float16(stored: Any, room: Any, table: Any, start: int, stop: int) -> Any:
    part = stored[start:stop]
    for i in range(part.size):
        room[i] = float32_of_half(part[i])
    return room[: part.size]


def _looked_up(stored: Any, room: Any, table: Any, start: int, stop: int) -> Any:
    part = stored[start:stop]
    for i in range(part.size):
        room[i] = table[part[i]]
    return room[: part.size]


def magnitude(first: Any, second: Any) -> Any:
    """|first - second| of two integers, exact in 64 unsigned bits, then float64."""
    raise NotImplementedError("only compiled code calls this")


@overload(magnitude)
def _magnitude(first: Any, second: Any) -> Any:
    if (first == types.uint64) == (second == types.uint64):
        wide = np.uint64 if first == types.uint64 else np.int64

        def alike(first: Any, second: Any) -> Any:
            a, b = wide(first), wide(second)
            return np.float64(np.uint64(a) - np.uint64(b) if a >= b else np.uint64(b) - np.uint64(a))

        return alike
    if second == types.uint64:
        return _second_unsigned
    return _first_unsigned


def _second_unsigned(first: Any, second: Any) -> Any:
    return _mixed_magnitude(second, np.int64(first))


def _first_unsigned(first: Any, second: Any) -> Any:
    return _mixed_magnitude(first, np.int64(second))


@jit()
def _mixed_magnitude(unsigned: Any, signed: Any) -> Any:
    if signed >= 0:
        size = np.uint64(signed)
        return np.float64(unsigned - size if unsigned >= size else size - unsigned)
    size = np.uint64(0) - np.uint64(signed)
    apart = unsigned + size
    return np.float64(apart) + (2.0**64 if apart < size else 0.0)


@jit()
def exact_errors(target: Any, golden: Any, room: Any, start: int, stop: int) -> Any:
    """Exact |t - g| of one block of integers, as float64."""
    t, g = target[start:stop], golden[start:stop]
    for i in range(t.size):
        room[i] = magnitude(t[i], g[i])
    return room[: t.size]


@jit(fastmath=FAST_SUMS)
def square_sums(target: Any, golden: Any, error: Any) -> Any:
    """Sums of t*g, t*t, g*g and |t-g|**2, for complex too; they are nan or inf where an element is."""
    dot = target_sq = golden_sq = error_sq = 0.0
    for i in range(target.size):
        t, g = np.float64(target[i]), np.float64(golden[i])
        difference = t - g if error is None else error[i]
        dot += t * g
        target_sq += t * t
        golden_sq += g * g
        error_sq += difference * difference
    return dot, target_sq, golden_sq, error_sq


@jit()
def largest(values: Any) -> Any:
    """Largest magnitude of a block of finite reals."""
    most = abs(values[0])
    for i in range(values.size):
        most = larger(abs(values[i]), most)
    return np.float64(most)


@jit()
def modulus(re: Any, im: Any) -> Any:
    """|re + i im|, free of overflow and underflow in float64."""
    most = max(abs(re), abs(im))
    if most > 2.0**500:
        re, im = re * 2.0**-600, im * 2.0**-600
        return np.sqrt(re * re + im * im) / 2.0**-600
    if most < 2.0**-500:
        re, im = re * 2.0**600, im * 2.0**600
        return np.sqrt(re * re + im * im) / 2.0**600
    return np.sqrt(re * re + im * im)


@jit()
def maxima(target: Any, golden: Any, error: Any) -> Any:
    """Largest |t-g| and |t-g|/|g|, counts of relative errors below 0.001 and 0.005; of a block of finite reals."""
    error_max = relative_max = 0.0
    thousandth = five_thousandth = 0
    for i in range(target.size):
        t, g = np.float64(target[i]), np.float64(golden[i])
        difference = abs(t - g) if error is None else error[i]
        relative = zero_unless(difference != 0.0, difference / abs(g))
        error_max = larger(difference, error_max)
        relative_max = larger(relative, relative_max)
        thousandth += relative < 0.001
        five_thousandth += relative < 0.005
    return error_max, relative_max, thousandth, five_thousandth


@jit()
def complex_maxima(target: Any, golden: Any) -> Any:
    """As `maxima`, by modulus, and the largest |t| and |g|."""
    error_max = relative_max = target_max = golden_max = 0.0
    thousandth = five_thousandth = 0
    for i in range(target.size // 2):
        tr, ti = np.float64(target[2 * i]), np.float64(target[2 * i + 1])
        gr, gi = np.float64(golden[2 * i]), np.float64(golden[2 * i + 1])
        difference, size = modulus(tr - gr, ti - gi), modulus(gr, gi)
        relative = zero_unless(difference != 0.0, difference / size)
        error_max = larger(difference, error_max)
        relative_max = larger(relative, relative_max)
        target_max = larger(modulus(tr, ti), target_max)
        golden_max = larger(size, golden_max)
        thousandth += relative < 0.001
        five_thousandth += relative < 0.005
    return error_max, relative_max, thousandth, five_thousandth, target_max, golden_max


@jit()
def clean(target: Any, golden: Any, target_room: Any, golden_room: Any) -> Any:
    """Copy a block, with zeros for pairs that are not finite on both sides; count those pairs by sort.

    Returns
    -------
    tuple of int
        Equal nans, equal infinities, nan on one side only, infinities that differ.
    """
    equal_nan = equal_inf = nan_mismatch = inf_mismatch = 0
    for i in range(target.size):
        t, g = target[i], golden[i]
        target_nan, golden_nan = t != t, g != g
        infinite = ((abs(t) == np.inf) | (abs(g) == np.inf)) & ~(target_nan | golden_nan)
        bad = target_nan | golden_nan | infinite
        equal_nan += target_nan & golden_nan
        nan_mismatch += target_nan ^ golden_nan
        equal_inf += infinite & (t == g)
        inf_mismatch += infinite & (t != g)
        target_room[i] = zero_unless(not bad, t)
        golden_room[i] = zero_unless(not bad, g)
    return equal_nan, equal_inf, nan_mismatch, inf_mismatch


@jit()
def complex_clean(target: Any, golden: Any, target_room: Any, golden_room: Any) -> Any:
    """As `clean`, for complex elements: nan where a part is nan, the same infinity only where both parts are equal."""
    equal_nan = equal_inf = nan_mismatch = inf_mismatch = 0
    for i in range(0, target.size, 2):
        tr, ti, gr, gi = target[i], target[i + 1], golden[i], golden[i + 1]
        target_nan, golden_nan = (tr != tr) | (ti != ti), (gr != gr) | (gi != gi)
        infinite = (abs(tr) == np.inf) | (abs(ti) == np.inf) | (abs(gr) == np.inf) | (abs(gi) == np.inf)
        infinite = infinite & ~(target_nan | golden_nan)
        same = (tr == gr) & (ti == gi)
        good = not (target_nan | golden_nan | infinite)
        equal_nan += target_nan & golden_nan
        nan_mismatch += target_nan ^ golden_nan
        equal_inf += infinite & same
        inf_mismatch += infinite & ~same
        target_room[i], target_room[i + 1] = zero_unless(good, tr), zero_unless(good, ti)
        golden_room[i], golden_room[i + 1] = zero_unless(good, gr), zero_unless(good, gi)
    return equal_nan, equal_inf, nan_mismatch, inf_mismatch


@jit()
def element_of(values: Any, index: int, parts: Any) -> Any:
    """One element as float64; the modulus of a complex one."""
    if parts is None:
        return np.float64(values[index])
    return modulus(np.float64(values[2 * index]), np.float64(values[2 * index + 1]))


@jit()
def find_error(target: Any, golden: Any, error: Any, parts: Any, wanted: float) -> int:
    """First element of a block with exactly this |t-g|, or -1; never one that is not finite on both sides."""
    width = 1 if parts is None else 2
    for i in range(target.size // width):
        if error is None:
            if parts is None:
                t, g = np.float64(target[i]), np.float64(golden[i])
                finite, difference = np.isfinite(t) and np.isfinite(g), abs(t - g)
            else:
                tr, ti = np.float64(target[2 * i]), np.float64(target[2 * i + 1])
                gr, gi = np.float64(golden[2 * i]), np.float64(golden[2 * i + 1])
                finite = np.isfinite(tr) and np.isfinite(ti) and np.isfinite(gr) and np.isfinite(gi)
                difference = modulus(tr - gr, ti - gi)
        else:
            finite, difference = True, error[i]
        if finite and difference == wanted:
            return i
    return -1


@jit()
def find_mismatch(target: Any, golden: Any, parts: Any) -> int:
    """First element that is nan on one side only, or an infinity that the other side does not equal; or -1."""
    width = 1 if parts is None else 2
    for i in range(target.size // width):
        target_nan = golden_nan = infinite = False
        same = True
        for k in range(i * width, (i + 1) * width):
            t, g = target[k], golden[k]
            target_nan |= t != t
            golden_nan |= g != g
            infinite |= (abs(t) == np.inf) | (abs(g) == np.inf)
            same &= t == g
        if target_nan != golden_nan or (infinite and not target_nan and not same):
            return i
    return -1


@jit()
def _add(state: Any, place: int, value: float) -> None:
    """Add to a running sum and keep what rounding lost (Neumaier)."""
    before = state[place]
    total = before + value
    if np.isfinite(total):
        if abs(before) >= abs(value):
            state[place + RESTS] += (before - total) + value
        else:
            state[place + RESTS] += (value - total) + before
    state[place] = total


@jit()
def _extremes(target: Any, golden: Any, error: Any, parts: Any) -> Any:
    """Largest error, largest relative error, the two counts, largest |t| and |g| of a block."""
    if parts is None:
        error_max, relative_max, thousandth, five_thousandth = maxima(target, golden, error)
        return error_max, relative_max, thousandth, five_thousandth, largest(target), largest(golden)
    return complex_maxima(target, golden)


@jit()
def _add_block(state: Any, count: int, bad: int, sums: Any, extremes: Any) -> Any:
    """Add one block whose bad pairs are zeros; returns its largest error, -1.0 where no pair was finite."""
    dot, target_sq, golden_sq, error_sq = sums
    error_max, relative_max, thousandth, five_thousandth, target_max, golden_max = extremes
    _add(state, DOT, dot)
    _add(state, TARGET_SQ, target_sq)
    _add(state, GOLDEN_SQ, golden_sq)
    _add(state, ERROR_SQ, error_sq)
    state[FINITE] += count - bad
    if bad == count:
        return -1.0
    state[RELATIVE_MAX] = larger(relative_max, state[RELATIVE_MAX])
    state[TARGET_MAX] = larger(target_max, state[TARGET_MAX])
    state[GOLDEN_MAX] = larger(golden_max, state[GOLDEN_MAX])
    state[THOUSANDTH] += thousandth - bad
    state[FIVE_THOUSANDTH] += five_thousandth - bad
    return error_max


@jit()
def _remember(state: Any, target: Any, golden: Any, parts: Any, index: int, start: float) -> None:
    state[WORST_INDEX] = start + index
    state[WORST_TARGET] = element_of(target, index, parts)
    state[WORST_GOLDEN] = element_of(golden, index, parts)


@jit()
def measure(
    target_at: int,
    golden_at: int,
    count: int,
    target_like: Any,
    golden_like: Any,
    target_rooms: Any,
    golden_rooms: Any,
    error_room: Any,
    target_table: Any,
    golden_table: Any,
    parts: Any,
    state: Any,
) -> None:
    """Measure one piece into the state: ``count`` numbers at two addresses.

    ``error_room`` is an array for integers compared exactly, else None; ``parts`` is 2 for complex, else None: each
    kind is compiled by itself, without the others' branches. Rooms: row 0 for decoded numbers, row 1 for cleaned ones.
    """
    target, golden = array_at(target_at, count, target_like), array_at(golden_at, count, golden_like)
    width = 1 if parts is None else 2
    block = BLOCK * width
    fed = state[SIZE]
    worst_start = -1
    for start in range(0, target.size, block):
        stop = min(start + block, target.size)
        t = opened(target, target_rooms[0], target_table, start, stop)
        g = opened(golden, golden_rooms[0], golden_table, start, stop)
        error = None if error_room is None else exact_errors(target, golden, error_room, start, stop)
        bad = 0
        extremes = _extremes(t, g, error, parts)  # first, because it computes most: memory streams meanwhile
        sums = square_sums(t, g, error)
        if error_room is None and not (np.isfinite(sums[1]) and np.isfinite(sums[2])):
            target_room, golden_room = target_rooms[1][: t.size], golden_rooms[1][: t.size]
            odd = (
                clean(t, g, target_room, golden_room)
                if parts is None
                else complex_clean(t, g, target_room, golden_room)
            )
            if state[NAN_MISMATCH] + state[INF_MISMATCH] == 0 and odd[2] + odd[3]:
                _remember(state, t, g, parts, find_mismatch(t, g, parts), fed + start // width)
            state[EQUAL_NAN] += odd[0]
            state[EQUAL_INF] += odd[1]
            state[NAN_MISMATCH] += odd[2]
            state[INF_MISMATCH] += odd[3]
            bad = odd[0] + odd[1] + odd[2] + odd[3]
            sums = square_sums(target_room, golden_room, None)
            extremes = _extremes(target_room, golden_room, None, parts)
        error_max = _add_block(state, (stop - start) // width, bad, sums, extremes)
        if error_max > state[ERROR_MAX]:
            state[ERROR_MAX] = error_max
            worst_start = start
    state[SIZE] += target.size // width
    if worst_start >= 0 and state[NAN_MISMATCH] + state[INF_MISMATCH] == 0:
        stop = min(worst_start + block, target.size)
        t = opened(target, target_rooms[0], target_table, worst_start, stop)
        g = opened(golden, golden_rooms[0], golden_table, worst_start, stop)
        error = None if error_room is None else exact_errors(target, golden, error_room, worst_start, stop)
        index = find_error(t, g, error, parts, state[ERROR_MAX])
        _remember(state, t, g, parts, index, fed + worst_start // width)
