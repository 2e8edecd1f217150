"""Which standard judges an output, with its columns, its thresholds and the reason. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from opassay.kernels.precision.tables import (
    ABSOLUTE,
    ACCUMULATIVE,
    ACCUMULATIVE_SMALL,
    ADDED,
    ALSO_RANDOM,
    BENCHMARK,
    BINARY,
    COLUMNS,
    KINDS,
    LABELS,
    LIMITS,
    LISTED,
    NO_ZEROS,
    RANDOM,
    RANDOM_APIS,
    THOUSANDTH,
    THOUSANDTH_LIMIT,
    ULP,
    UNSUPPORTED,
    ZEROS,
    ZEROS_FROM,
    ZEROS_WITHIN,
    Limits,
)

Direction = Literal["forward", "backward"]

_DIRECTIONS: Final = ("forward", "backward")


@dataclass(frozen=True, slots=True)
class Standard:
    """How one output is judged.

    Attributes
    ----------
    name : str
        ``benchmark``, ``absolute_threshold``, ... as in ``tables``.
    label : str
        As api_precision_compare writes it; "" where it judges nothing.
    columns : tuple of str
        Figures it adds to a details row.
    thresholds : mapping of str to float
        Those that its figures use.
    why : str
        The reason for this standard, one sentence.
    """

    name: str
    label: str
    columns: tuple[str, ...]
    thresholds: Mapping[str, float] = field(default_factory=dict)
    why: str = ""


def api_of(name: str) -> str:
    """The operator of a call: ``Torch.linalg.inv.0.forward.output.0`` -> ``linalg.inv``; a plain name stays as it is.

    Parameters
    ----------
    name : str
        A plain operator name, a call, or a row of the details file.

    Returns
    -------
    str
        Segments between the type and the call index.
    """
    segments = name.split(".")
    index = next((place for place, segment in enumerate(segments) if segment.isdigit()), None)
    if index is not None:
        return ".".join(segments[1:index]) or name
    if len(segments) > 1 and segments[0][:1].isupper():
        return ".".join(segment for segment in segments[1:] if segment not in _DIRECTIONS)
    return name


def limits_of(dtype: object) -> Limits:
    """Thresholds of an element type (``torch.float16`` or its text).

    Raises
    ------
    KeyError
        For a dtype that is no float and no complex.
    """
    return LIMITS[str(dtype)]


def standard_of(
    api: str, device_dtype: object, direction: Direction = "forward", *, document_only: bool = False
) -> Standard:
    """The standard that judges an output.

    Parameters
    ----------
    api : str
        Operator, plain (``matmul``, ``linalg.inv``) or as a call (``Torch.matmul.0``).
    device_dtype : torch.dtype or str
        Of the output on the device; ``torch.float32``.
    direction : {"forward", "backward"}
        A gradient of an operator that moves or scales values is a sum, and judged as one.
    document_only : bool
        Look at the document's lists alone, whatever the direction: the columns that a file of another tool has.

    Returns
    -------
    Standard
        For a random operator one without columns; for whole numbers the binary consistency; for float64, complex and
        eight-bit floats one without columns, since the document has no thresholds for them.
    """
    dtype = str(device_dtype)
    plain = api_of(api)
    if not document_only and (random := _random(plain)):
        return random
    if dtype in LIMITS and not LIMITS[dtype].metrics:
        return _standard(UNSUPPORTED, dtype, f"The data type {dtype} is not supported for new precision standard.")
    if dtype not in LIMITS:
        return _standard(BINARY, dtype, f"{dtype} values are whole: they are equal or not")
    name, why = _by_name(plain, direction, document_only)
    return _standard(name, dtype, why)


def _random(api: str) -> Standard | None:
    """5.1: draws cannot be compared; of a dropout, the share of zeros can."""
    names = _names(api)
    if any(name in NO_ZEROS for name in names):
        return _standard(RANDOM, "", f"random output: {api} draws numbers and drops to a value other than zero")
    if "dropout" in api:
        return _standard(ZEROS, "", "random API, only the share of zeros was compared")
    if any(name in RANDOM_APIS or name in ALSO_RANDOM for name in names):
        return _standard(RANDOM, "", f"random output: {api} draws numbers, and two draws never agree")
    return None


def _names(api: str) -> tuple[str, ...]:
    """Names under which the tables may hold an operator: whole, last segment (linalg.multi_dot), first (add.Tensor)."""
    segments = api.split(".")
    return api, segments[-1], segments[0]


def _by_name(api: str, direction: Direction, document_only: bool) -> tuple[str, str]:
    backward = direction == "backward" and not document_only
    for wanted in _names(api):
        for name, members in LISTED.items():
            if wanted in members:
                if backward and name in (ABSOLUTE, BINARY):
                    return BENCHMARK, f"the gradient of {wanted} is a sum or a product of rounded values, not a copy"
                return name, f"{wanted} is in the list of the standard"
        if document_only:
            continue
        for name, (members, why) in ADDED.items():
            if wanted in members:
                if backward and name == BINARY:
                    return BENCHMARK, f"the gradient of {wanted} may be a sum of several values, not a copy"
                return name, f"{wanted}: {why}"
    return BENCHMARK, "in no list: every other operator is judged by this standard"


def _standard(name: str, dtype: str, why: str) -> Standard:
    return Standard(name, LABELS[name], COLUMNS[name], _thresholds(name, dtype), why)


def _thresholds(name: str, dtype: str) -> dict[str, float]:
    limits = LIMITS.get(dtype)
    if name == ZEROS:
        return {"min_elements": ZEROS_FROM, "zero_share": ZEROS_WITHIN}
    if limits is None or not limits.metrics:
        return {}
    if name == BENCHMARK:
        return {"small_value": limits.small_value, "small_value_atol": limits.small_atol}
    if name == ABSOLUTE:
        return {"small_value": limits.small_value, "small_value_atol": limits.small_atol, "rtol": limits.rtol}
    if name == ACCUMULATIVE:
        return {
            "small_value": ACCUMULATIVE_SMALL,
            "bound": limits.accumulative_bound,
            "balance": limits.accumulative_balance,
        }
    if name == ULP:
        return {
            "mantissa_bits": limits.mantissa_bits,
            "min_exponent": limits.min_exponent,
            "count_above": limits.ulp_above,
        }
    return {"relative": THOUSANDTH_LIMIT} if name == THOUSANDTH else {}


__all__ = ["KINDS", "Direction", "Standard", "api_of", "limits_of", "standard_of"]
