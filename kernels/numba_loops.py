"""The compiled pass: loops over one block in the first-level cache (decode, sum, scan, clean) and what drives them.

Imported only by `numba_pass` and `numba_rounding`, because numba is slow to import. A block is at most ``PIECE``
elements; a complex block holds real and imaginary parts in turn. What makes these loops fast: sums are kept apart from
maxima (registers); sums may be reassociated but must show nan and inf; maxima are a compare and a select that LLVM
knows as one vector instruction; no element is divided unless it may raise the largest relative error (see `scan`);
blocks are so small that memory streams on while the processor computes.

This file is longer than others on purpose: numba's disk cache watches only the file of the outermost function
(`measure`), so a loop moved to another file could change while the old machine code still runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, njit, types
from numba.core.registry import cpu_target
from numba.np.numpy_support import carray
from opassay.kernels.pair_sums import BLOCK


def intrinsic(function: Callable[..., Any]) -> Any:
    """``numba.extending.intrinsic``, typed: what it returns is called without the typing context."""
    return extending.intrinsic(function)


def overload(function: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """``numba.extending.overload``, typed."""
    decorate: Callable[[Callable[..., Any]], Any] = extending.overload(function)
    return decorate


PIECE = BLOCK // 8  # elements of one block here; divides the BLOCK of which every call but the last feeds multiples

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
def one_unless_zero(typing_context: Any, tested: Any, value: Any) -> Any:
    """``value``, but 1.0 where ``tested`` is zero; two floats of one type."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        zero, one = (context.get_constant(signature.args[1], number) for number in (0.0, 1.0))
        return builder.select(builder.fcmp_ordered("==", values[0], zero), one, values[1])

    return value(tested, value), build


@intrinsic
def counted(typing_context: Any, count: Any, first: Any, second: Any) -> Any:
    """``count``, one more where ``first > second``; the count keeps its width, so that it fits the floats' lanes."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        hit = builder.fcmp_ordered(">", values[1], values[2])
        return builder.add(values[0], builder.zext(hit, values[0].type))

    return count(count, first, second), build


def _has_fma() -> bool:
    """Whether the processor that is compiled for multiplies and adds in one instruction."""
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    return "+fma" in features or triple.startswith(("aarch64", "arm64"))


HAS_FMA = _has_fma()


@intrinsic
def sign_of_sum(typing_context: Any, first: Any, second: Any, third: Any) -> Any:
    """``first * second + third``, with at most the last rounding: its sign is right (it may become 0 below float32).

    A processor without that instruction can do it for float32 only: float64 holds the product exactly.
    """

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if HAS_FMA:
            return builder.fma(*values)
        a, b, c = (builder.fpext(value, ir.DoubleType()) for value in values)
        return builder.fptrunc(builder.fadd(builder.fmul(a, b), c), ir.FloatType())

    return first(first, second, third), build


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
def unlocked(values: Any) -> Any:
    """A read-only array as the type of a writeable one, so that each loop is compiled once; nothing writes to it."""
    return carray(_pointer(values.ctypes.data, values), (values.size,))


def opened(stored: Any, room: Any, table: Any, start: int, stop: int) -> Any:
    """Numbers of one block. The types of ``stored`` and ``room`` together say what the bits mean.

    float32 and float64 in a room of their own type are not copied; uint16 into float32 is bfloat16; int16 into float32
    is float16; uint8 into float32 is looked up in ``table``; int8 into float32 and anything into float64 is converted
    by value.
    """
    raise NotImplementedError("only compiled code calls this")


@overload(opened)
def _opened(stored: Any, room: Any, table: Any, start: int, stop: int) -> Any:
    if stored.dtype == room.dtype:
        return _in_place
    if room.dtype == types.float64:
        return _by_value
    return {types.uint16: _bfloat16, types.int16: _float16, types.uint8: _looked_up, types.int8: _small}[stored.dtype]


def _in_place(stored: Any, room: Any, table: Any, start: int, stop: int) -> Any:
    return stored[start:stop]


def _by_value(stored: Any, room: Any, table: Any, start: int, stop: int) -> Any:
    part = stored[start:stop]
    for i in range(part.size):
        room[i] = np.float64(part[i])
    return room[: part.size]


def _small(stored: Any, room: Any, table: Any, start: int, stop: int) -> Any:
    part = stored[start:stop]
    for i in range(part.size):
        room[i] = np.float32(part[i])
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
def _error_of(target: Any, golden: Any, error: Any, index: int) -> Any:
    """|t-g| of one pair of reals."""
    return abs(np.float64(target[index]) - np.float64(golden[index])) if error is None else error[index]


@jit()
def _largest_error(target: Any, golden: Any) -> Any:
    """Largest |t-g| of a block of finite reals, in float64."""
    most = 0.0
    for i in range(target.size):
        most = larger(abs(np.float64(target[i]) - np.float64(golden[i])), most)
    return most


@jit()
def _largest_relative(target: Any, golden: Any, error: Any) -> Any:
    """Largest |t-g|/|g| of a block of finite reals, 0/0 being 0."""
    most = 0.0
    for i in range(target.size):
        difference = _error_of(target, golden, error, i)
        most = larger(zero_unless(difference != 0.0, difference / abs(np.float64(golden[i]))), most)
    return most


@jit()
def _count_divided(target: Any, golden: Any, error: Any) -> Any:
    """Counts of |t-g|/|g| below 0.001 and 0.005 in a block of finite reals, 0/0 being 0."""
    thousandth = five_thousandth = 0
    for i in range(target.size):
        difference = _error_of(target, golden, error, i)
        relative = zero_unless(difference != 0.0, difference / abs(np.float64(golden[i])))
        thousandth += relative < 0.001
        five_thousandth += relative < 0.005
    return thousandth, five_thousandth


def scan(target: Any, golden: Any, error: Any, known_error: float, known_relative: float) -> Any:
    """Measure a block of finite reals; what it says is what float64 division says, without dividing.

    Let d = |t-g| and s = |g|. Where d is 0 the relative error is 0, and s is replaced by 1 (for 0/0). A maximum is
    worked out only where the block may raise the one that is known already.

    Parameters
    ----------
    target, golden : array of float32 or float64, shape (n,)
        The block; both float32 is quicker.
    error : array of float64, shape (n,), or None
        |t-g| where it was worked out exactly.
    known_error, known_relative : float
        Maxima of the blocks before.

    Returns
    -------
    tuple
        Largest error, largest relative error (for both: some smaller number where it is not above the known one),
        counts below 0.001 and 0.005, largest |t|, largest |g|.
    """
    raise NotImplementedError("only compiled code calls this")


@overload(scan)
def _scan(target: Any, golden: Any, error: Any, known_error: float, known_relative: float) -> Any:
    both_narrow = target.dtype == golden.dtype == types.float32 and error == types.none
    return _scan_float32 if both_narrow else _scan_float64


# float32. Counts: with c = 1/1000 or 1/200, an element counts where fma(-1/c, d, s) > 0, d rounded to float32.
#   An fma rounds once and every term is a multiple of 2**-149, so its sign is that of s - d/c.
#   Is t outside s/2..2s or of the other sign, then d >= s/2 also after rounding (or one step of 2**-149 below a subnormal
#   odd s/2, where d is exact): the element counts neither here nor by division.
#   Else t-g is exact in float32 and float64 (Sterbenz). Let d = D u and s = S u in units of the smaller last place u; then
#   S < 2**25, so d/s is either c itself, or off by at least c/2**25: float64's rounding cannot bring it to the other
#   side of c, nor onto the float64 0.001 or 0.005. Is it c itself, the quotient is the float64 0.001 or 0.005, which does
#   not count; nor is the sign positive.
# Largest relative error: x = d/s in float64 above the known r means d > r s before rounding; in float32, d is at least
#   r s (1 - 2**-23). With d' = d 2**24 and r' <= r 2**24 (1 - 2**-21), fma(-r', s, d') is at least d'/2**22 >= 2**-147: its
#   sign is seen. Is d' infinite, so is the fma. False alarms only cost time.
# Largest error: rounding to float32 keeps order, and loses less than 2**-22 of it.
_SHIFT = np.float32(2.0**24)


@jit()
def _scan_lanes(target: Any, golden: Any, limit: Any) -> Any:
    zero = np.float32(0.0)
    error_max = target_max = golden_max = above = zero
    within, within_five = np.int32(0), np.int32(0)
    for i in range(target.size):
        difference, size = abs(target[i] - golden[i]), abs(golden[i])
        error_max = larger(difference, error_max)
        target_max = larger(abs(target[i]), target_max)
        golden_max = larger(size, golden_max)
        size = one_unless_zero(difference, size)
        above = larger(sign_of_sum(limit, size, difference * _SHIFT), above)
        within = counted(within, sign_of_sum(np.float32(-1000.0), difference, size), zero)
        within_five = counted(within_five, sign_of_sum(np.float32(-200.0), difference, size), zero)
    return error_max, above, within, within_five, target_max, golden_max


def _scan_float32(target: Any, golden: Any, error: Any, known_error: float, known_relative: float) -> Any:
    limit = np.float32(-min(known_relative, 2.0**100) * (2.0**24 * (1.0 - 2.0**-20)))
    near, above, thousandth, five_thousandth, target_max, golden_max = _scan_lanes(target, golden, limit)
    error_max = np.float64(near)
    if error_max > 0.0 and error_max >= known_error * (1.0 - 2.0**-22):
        error_max = _largest_error(target, golden)
    relative_max = 0.0
    if above > 0.0 and known_relative < np.inf:
        relative_max = _largest_relative(target, golden, None)
    return (
        error_max,
        relative_max,
        np.int64(thousandth),
        np.int64(five_thousandth),
        np.float64(target_max),
        np.float64(golden_max),
    )


# float64. Counts: with c the float64 0.001, the quotient is below c where d/s < c - h, h being half of c's last place
#   (2**-63; 2**-61 for 0.005); d/s is never c - h itself, as (c - h) s needs 54 bits. In units that are 2**64 smaller, so
#   that nothing underflows: C = c 2**64, D = d 2**64, H = h 2**64 (2 or 8): the element counts where fma(C, s, -D) > H s.
#   Rounding keeps order and H s is a float64, so only a sum below H s that rounds to H s could be told wrong. That sum is
#   between H s/2 and H s, so d is near c s; both terms are multiples of the product of C's and s's last places, and H s is
#   below 2**53 of these: the sum is exact. An infinite D means d >= 2**960: beyond. Blocks with s >= 2**960 are divided.
# Largest relative error: as for float32, with r' <= r 2**64 (1 - 2**-51).
_LIFT = 2.0**64


@jit()
def _scan_wide(target: Any, golden: Any, error: Any, limit: float) -> Any:
    error_max = target_max = golden_max = above = 0.0
    within = within_five = 0
    for i in range(target.size):
        difference, size = _error_of(target, golden, error, i), abs(np.float64(golden[i]))
        error_max = larger(difference, error_max)
        target_max = larger(abs(np.float64(target[i])), target_max)
        golden_max = larger(size, golden_max)
        size, lifted = one_unless_zero(difference, size), difference * _LIFT
        above = larger(sign_of_sum(limit, size, lifted), above)
        within = counted(within, sign_of_sum(0.001 * _LIFT, size, -lifted), 2.0 * size)
        within_five = counted(within_five, sign_of_sum(0.005 * _LIFT, size, -lifted), 8.0 * size)
    return error_max, above, within, within_five, target_max, golden_max


@jit()
def _scan_divided(target: Any, golden: Any, error: Any) -> Any:
    """As `_scan_wide`, for processors without fused multiply-add."""
    error_max = target_max = golden_max = 0.0
    for i in range(target.size):
        error_max = larger(_error_of(target, golden, error, i), error_max)
        target_max = larger(abs(np.float64(target[i])), target_max)
        golden_max = larger(abs(np.float64(golden[i])), golden_max)
    return error_max, 1.0, *_count_divided(target, golden, error), target_max, golden_max


def _scan_float64(target: Any, golden: Any, error: Any, known_error: float, known_relative: float) -> Any:
    if HAS_FMA:
        limit = -min(known_relative, 2.0**900) * (2.0**64 * (1.0 - 2.0**-50))
        error_max, above, thousandth, five_thousandth, target_max, golden_max = _scan_wide(target, golden, error, limit)
        if golden_max >= 2.0**960:
            thousandth, five_thousandth = _count_divided(target, golden, error)
    else:
        error_max, above, thousandth, five_thousandth, target_max, golden_max = _scan_divided(target, golden, error)
    relative_max = 0.0
    if above > 0.0 and known_relative < np.inf:
        relative_max = _largest_relative(target, golden, error)
    return error_max, relative_max, thousandth, five_thousandth, target_max, golden_max


@jit()
def complex_maxima(target: Any, golden: Any) -> Any:
    """As `scan`, by modulus."""
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
        if parts is None:
            if _error_of(target, golden, error, i) != wanted:
                continue
        else:
            re = np.float64(target[2 * i]) - np.float64(golden[2 * i])
            im = np.float64(target[2 * i + 1]) - np.float64(golden[2 * i + 1])
            if modulus(re, im) != wanted:
                continue
        finite = True
        for k in range(i * width, (i + 1) * width):
            finite &= np.isfinite(target[k]) & np.isfinite(golden[k])
        if finite:
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
def _sum_of(state: Any, place: int) -> Any:
    return state[place] + state[place + RESTS] if np.isfinite(state[place]) else state[place]


@jit()
def measure(
    target_side: Any, golden_side: Any, target_table: Any, golden_table: Any, exact: Any, parts: Any, state: Any
) -> Any:
    """Measure one piece into the state.

    Parameters
    ----------
    target_side, golden_side : array, shape (n,), or (2n,) for complex
        Stored bits, read-only, of the type that `opened` wants.
    target_table, golden_table : array of float32 or float64
        Their dtype is that of the decoded numbers; they hold the values of an 8-bit float.
    exact, parts : int or None
        Not None for integers compared exactly; 2 for complex, else None. Each kind is compiled by itself, without the
        others' branches.
    state : array of float64, shape (PLACES,)
        Changed in place.

    Returns
    -------
    tuple
        The fields of PairSums, in its order, for all that was fed.
    """
    target, golden = unlocked(target_side), unlocked(golden_side)
    width = 1 if parts is None else 2
    block = PIECE * width
    target_rooms = np.empty((2, block), target_table.dtype)  # row 0 for decoded numbers, row 1 for cleaned ones
    golden_rooms = np.empty((2, block), golden_table.dtype)
    error_room = None if exact is None else np.empty(PIECE)
    fed = np.int64(state[SIZE])
    worst_start = -1
    for start in range(0, target.size, block):
        stop = min(start + block, target.size)
        t = opened(target, target_rooms[0], target_table, start, stop)
        g = opened(golden, golden_rooms[0], golden_table, start, stop)
        error = None if exact is None else exact_errors(target, golden, error_room, start, stop)
        bad = 0
        sums = square_sums(t, g, error)
        if exact is None and not (np.isfinite(sums[1]) and np.isfinite(sums[2])):
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
            t, g = target_room, golden_room
            sums = square_sums(t, g, None)
        extremes = scan(t, g, error, state[ERROR_MAX], state[RELATIVE_MAX]) if parts is None else complex_maxima(t, g)
        error_max = _add_block(state, (stop - start) // width, bad, sums, extremes)
        if error_max > state[ERROR_MAX]:
            state[ERROR_MAX] = error_max
            worst_start = start
    state[SIZE] += target.size // width
    if worst_start >= 0 and state[NAN_MISMATCH] + state[INF_MISMATCH] == 0:
        stop = min(worst_start + block, target.size)
        t = opened(target, target_rooms[0], target_table, worst_start, stop)
        g = opened(golden, golden_rooms[0], golden_table, worst_start, stop)
        error = None if exact is None else exact_errors(target, golden, error_room, worst_start, stop)
        index = find_error(t, g, error, parts, state[ERROR_MAX])
        _remember(state, t, g, parts, index, fed + worst_start // width)
    return (
        np.int64(state[SIZE]),
        np.int64(state[FINITE]),
        _sum_of(state, DOT),
        _sum_of(state, TARGET_SQ),
        _sum_of(state, GOLDEN_SQ),
        _sum_of(state, ERROR_SQ),
        0,
        0,
        0,
        max(0.0, state[ERROR_MAX]),
        state[RELATIVE_MAX],
        state[GOLDEN_MAX],
        np.int64(state[THOUSANDTH]),
        np.int64(state[FIVE_THOUSANDTH]),
        np.int64(state[EQUAL_NAN]),
        np.int64(state[EQUAL_INF]),
        np.int64(state[NAN_MISMATCH]),
        np.int64(state[INF_MISMATCH]),
        np.int64(state[WORST_INDEX]),
        state[WORST_TARGET],
        state[WORST_GOLDEN],
        state[TARGET_MAX],
    )
