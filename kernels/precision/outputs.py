"""Outputs of a call, whatever their structure, become details rows: one for each leaf that is compared."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, Final

import numpy as np
import torch
from opassay.kernels.precision.pairwise import CHUNK, Totals, count_unequal, flat_part, measure, round_to
from opassay.kernels.precision.standards import Direction, api_of, limits_of, standard_of
from opassay.kernels.precision.status import judge, standard_figures
from opassay.kernels.precision.tables import (
    DTYPE_BOUND,
    KINDS,
    RANDOM,
    UP_TO_SIGN,
    ZEROS,
    ZEROS_FROM,
    ZEROS_WITHIN,
)
from opassay.schemas.check_rows import DetailRow, Status

_TYPES_DIFFER: Final = "bench and npu output type is different."
_KEYS_DIFFER: Final = "bench and npu output dict keys are different."
_STRUCTURES_DIFFER: Final = "bench and npu output structure is different."
_NONE: Final = "Bench output is None, skip this test."
_NOTHING: Final = "There is not bench calculation result."
_VALUES: Final = (bool, int, float, complex, str, torch.dtype, torch.memory_format, torch.layout)
_LONGEST: Final = 60  # characters of a value that a message shows
_TRAILING: Final = {"dropout1d": 1, "dropout2d": 2, "dropout3d": 3}


class _Missing:
    """Stands for an output that one side lacks."""


_MISSING: Final = _Missing()


def compare_outputs(
    bench: object,
    device: object,
    full_name: str,
    direction: Direction = "forward",
    *,
    judged_as: torch.dtype | None = None,
) -> list[DetailRow]:
    """Compare what a call returned, or the gradients it left, with the reference.

    Parameters
    ----------
    bench, device : object
        A tensor, a scalar, None, or lists, tuples and dicts of such; for ``backward`` the lists of gradients.
    full_name : str
        ``Torch.matmul.0``; a direction at its end is allowed.
    direction : {"forward", "backward"}
        Part of the rows' names, and of the choice of the standard.
    judged_as : torch.dtype, optional
        Float dtype whose thresholds apply where the device's output is wider: results that passed through autocast.

    Returns
    -------
    list of DetailRow
        Leaves in order, ``{full_name}.{direction}.output.{i}``; outputs beyond the reference's are ignored. No gradients
        on either side: no rows.
    """
    full_name = full_name.removesuffix(f".{direction}")
    api = api_of(full_name)
    if direction == "backward" and _empty(bench) and _empty(device):
        return []
    if standard_of(api, "torch.float32", direction).name == ZEROS:
        rows = [_compare_zeros(_first_tensor(bench), _first_tensor(device), api, direction)]
    else:
        rows = [_compare_leaf(left, right, api, direction, judged_as) for left, right in _leaves(bench, device)]
    rows = rows or [_row(Status.SKIP, "There is no output to compare.")]
    for index, row in enumerate(rows):
        row.name = f"{full_name}.{direction}.output.{index}"
    return rows


def _empty(outputs: object) -> bool:
    return outputs is None or (isinstance(outputs, list | tuple) and not outputs)


def _leaves(bench: object, device: object) -> Iterator[tuple[object, object]]:
    """Pairs of leaves; a structure that does not match is one leaf, and the comparison says how it differs."""
    if isinstance(bench, list | tuple) and isinstance(device, list | tuple):
        for left, right in zip_longest(bench, device[: len(bench)], fillvalue=_MISSING):
            yield from _leaves(left, right)
    elif isinstance(bench, dict) and isinstance(device, dict) and bench.keys() == device.keys():
        for key in bench:
            yield from _leaves(bench[key], device[key])
    else:
        yield bench, device


def _compare_leaf(
    bench: object, device: object, api: str, direction: Direction, judged_as: torch.dtype | None
) -> DetailRow:
    if device is _MISSING:
        return _row(Status.ERROR, _STRUCTURES_DIFFER)
    if bench is None and device is None:
        return _row(Status.SKIP, _NONE)
    if isinstance(bench, torch.Tensor) and isinstance(device, torch.Tensor):
        return compare_tensors(bench, device, api, direction, judged_as=judged_as)
    if isinstance(bench, dict) and isinstance(device, dict):
        return _row(Status.ERROR, _KEYS_DIFFER)
    if bench is None or device is None or not isinstance(bench, type(device)):
        return _row(Status.ERROR, _TYPES_DIFFER)
    return _compare_values(bench, device, api, direction)


def _row(status: Status, message: str) -> DetailRow:
    return DetailRow("", status=status, message=message)


def _compare_values(bench: object, device: object, api: str, direction: Direction) -> DetailRow:
    """Numbers, texts and the like: equal or not; nan equals nan."""
    row = DetailRow("", str(type(bench)), str(type(device)))
    standard = standard_of(api, "", direction)
    if standard.name == RANDOM:
        row.message = standard.why
        return row
    if not isinstance(bench, (*_VALUES, np.generic)):
        row.message = f"Outputs of {type(bench)} cannot be compared."
        return row
    both_nan = isinstance(bench, float) and isinstance(device, float) and math.isnan(bench) and math.isnan(device)
    if both_nan or bool(bench == device):
        row.status, row.metrics = Status.PASS, {"binary": 0}
    else:
        row.status, row.message = Status.ERROR, f"The reference gives {_shown(bench)}, the device {_shown(device)}."
    return row


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _plain(values: torch.Tensor) -> torch.Tensor:
    """A strided tensor of ordinary numbers: elements count, not how they are stored."""
    values = values.detach()
    if values.is_quantized:
        values = values.dequantize()
    return values.to_dense() if values.layout != torch.strided else values


def compare_tensors(
    bench: torch.Tensor,
    device: torch.Tensor,
    api: str,
    direction: Direction = "forward",
    *,
    judged_as: torch.dtype | None = None,
) -> DetailRow:
    """Compare one output tensor with its reference.

    Parameters
    ----------
    bench : torch.Tensor
        The reference, usually in raised precision.
    device : torch.Tensor
        Output of the device under test, wherever it lies; same shape.
    api : str
        Operator, plain or as a call; chooses the standard.
    direction : {"forward", "backward"}
        Chooses the standard, too.
    judged_as : torch.dtype, optional
        Float dtype whose thresholds apply instead of those of the device's.

    Returns
    -------
    DetailRow
        Without a name. Different shapes or kinds of dtype are an error, no elements or a random operator a SKIP.
    """
    bench, device = _plain(bench), _plain(device)
    row = DetailRow("", str(bench.dtype), str(device.dtype), str(tuple(device.shape)))
    api = api_of(api)
    standard = standard_of(api, judged_as if judged_as and device.is_floating_point() else device.dtype, direction)
    if standard.name == ZEROS:
        return _compare_zeros(bench, device, api, direction)
    if standard.name == RANDOM:
        row.message = standard.why
        return row
    if bench.shape != device.shape:
        row.status, row.message = Status.ERROR, f"The shape of bench{bench.shape} and npu{device.shape} not equal."
        return row
    kind = KINDS.get(str(device.dtype))
    if kind is None and bench.dtype == device.dtype:
        row.message = f"Tensors of {_short(device.dtype)} cannot be compared."
        return row
    if kind is None or KINDS.get(str(bench.dtype)) != kind:
        left, right = _short(bench.dtype), _short(device.dtype)
        row.status, row.message = (
            Status.ERROR,
            f"Bench out dtype is {left} but npu output dtype is {right}, cannot compare.",
        )
        return row
    if not device.numel():
        row.message = _NOTHING
        return row
    if kind in ("bool", "int"):
        unequal = count_unequal(bench, device)
        row.metrics = {"binary": unequal / device.numel()}
        row.status = Status.ERROR if unequal else Status.PASS
        row.message = f"Compare algorithm is not supported for {_short(bench.dtype)} data. Only judged by Error Rate.\n"
        return row
    limits = limits_of(judged_as if judged_as and kind == "float" else device.dtype)
    totals = measure(bench, device, standard.name, limits, clip=api.split(".")[-1] in DTYPE_BOUND)
    row.metrics = standard_figures(totals, standard.name)
    unsupported = "" if limits.metrics else standard.why
    row.status, row.message, figures = judge(totals, limits, _rounded(totals.bench_max, device.dtype), unsupported)
    if totals.first_apart:
        row.message += _first_apart(totals, device)
    if row.status is Status.ERROR and api.split(".")[-1] in UP_TO_SIGN:
        row.message += (
            f"{api} gives vectors that are as right with another sign or phase; compare what is made of them.\n"
        )
    row.metrics |= figures
    return row


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _rounded(value: float, dtype: torch.dtype) -> float:
    real = dtype.to_real() if dtype.is_complex else dtype
    return float(round_to(torch.tensor(value, dtype=torch.float64), real))


def _first_apart(totals: Totals, device: torch.Tensor) -> str:
    """Where inf or nan first differ, and the two values."""
    assert totals.first_apart is not None
    flat, left, right = totals.first_apart
    place: list[Any] = []
    if device.is_complex():
        flat, part = divmod(flat, 2)
        place.append("imaginary part" if part else "real part")
    index = []
    for length in reversed(device.shape):
        flat, at = divmod(flat, length)
        index.append(at)
    where = " ".join([str(tuple(reversed(index))), *place])
    return f"The first is {where}: {left:g} in the reference, {right:g} on the device.\n"


def _first_tensor(outputs: object) -> object:
    if isinstance(outputs, list | tuple):
        return next((found for item in outputs if isinstance(found := _first_tensor(item), torch.Tensor)), None)
    return outputs


def _compare_zeros(bench: object, device: object, api: str, direction: Direction) -> DetailRow:
    """5.1: of a dropout only the share of zeros is comparable, channel by channel where it drops channels."""
    if not (isinstance(bench, torch.Tensor) and isinstance(device, torch.Tensor)):
        if bench is None and device is None:
            return _row(Status.SKIP, _NONE)
        return _row(Status.ERROR, _TYPES_DIFFER)
    bench, device = _plain(bench), _plain(device)
    row = DetailRow("", str(bench.dtype), str(device.dtype), str(tuple(device.shape)))
    if bench.shape != device.shape:
        row.status, row.message = Status.ERROR, f"The shape of bench{bench.shape} and npu{device.shape} not equal."
        return row
    row.message = standard_of(api, "torch.float32", direction).why
    trailing = _trailing(api, device.dim())
    units = math.prod(device.shape[: device.dim() - trailing]) if trailing else device.numel()
    if not device.numel():
        row.message = _NOTHING
        return row
    if units < ZEROS_FROM:
        row.status = Status.PASS
        row.message += f"; {units} are too few to compare shares"
        return row
    left, right = _zeros(bench, trailing), _zeros(device, trailing)
    row.status = Status.PASS if abs(left - right) / units < ZEROS_WITHIN else Status.ERROR
    row.message += f": {left / units:.1%} of {units} in the reference, {right / units:.1%} on the device"
    return row


def _trailing(api: str, dims: int) -> int:
    """How many trailing dimensions make up a channel that is dropped as a whole; 0 where elements are."""
    name = api.split(".")[-1]
    if name == "feature_dropout":
        return max(dims - 2, 0)
    if name == "dropout2d" and dims == 3:
        return 1  # torch takes three dimensions for (batch, channel, length)
    return min(_TRAILING.get(name, 0), max(dims - 1, 0))


def _zeros(values: torch.Tensor, trailing: int) -> int:
    """Elements, or whole channels, that are zero."""
    with torch.no_grad():
        if trailing:
            return int((values == 0).flatten(values.dim() - trailing).all(dim=-1).sum())
        count = values.numel()
        pieces = (flat_part(values, start, min(start + CHUNK, count)) for start in range(0, count, CHUNK))
        return sum(int((piece == 0).sum()) for piece in pieces)
