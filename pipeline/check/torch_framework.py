"""PyTorch as the check sees it: inputs from the dump, both calls, comparison, tensors to keep."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from opassay.kernels.precision.conditioning import rounding_of
from opassay.kernels.precision.outputs import compare_outputs
from opassay.pipeline.check.call import SEED, call_both
from opassay.pipeline.check.cases import Case
from opassay.pipeline.check.framework import Sides
from opassay.pipeline.check.inputs import Inputs, build_inputs
from opassay.pipeline.check.reference_dtype import draws_inside
from opassay.pipeline.watch.logs import one_line
from opassay.schemas.check_rows import DetailRow, Status

_WRONG = (Status.ERROR, Status.WARNING)
_RAISED = ("torch.float16", "torch.bfloat16", "torch.float32")


class TorchFramework:
    """PyTorch on one device.

    Parameters
    ----------
    device : torch.device
        Prepared already, see ``devices.prepare``.
    """

    name = "pytorch"

    def __init__(self, device: torch.device) -> None:
        self._device = device
        random.seed(SEED)
        np.random.seed(SEED)  # noqa: NPY002 - operators written in Python may draw from it
        torch.manual_seed(SEED)
        warnings.simplefilter("ignore")  # what torch thinks of a call is not the user's doing, and there are thousands

    def build(self, case: Case) -> Inputs:
        """The inputs of a call."""
        return build_inputs(case, wants_gradients=_wants_gradients(case))

    def call(self, case: Case, inputs: Inputs) -> Sides:
        """Run the operator on both sides."""
        return call_both(case, inputs, self._device, gradients=_wants_gradients(case))

    def compare(self, case: Case, sides: Sides) -> tuple[list[DetailRow], list[DetailRow]]:
        """Rows of the outputs, and of the gradients."""
        outputs_as, gradients_as = sides.judged_as
        forward = compare_outputs(sides.bench, sides.device, case.name, "forward", judged_as=outputs_as)
        backward: list[DetailRow] = []
        if sides.grads is not None:
            backward = compare_outputs(*sides.grads, case.name, "backward", judged_as=gradients_as)
        if self._device.type != "cpu" and (drawn := draws_inside(case)):
            for row in (*forward, *backward):
                row.status, row.message, row.metrics = Status.SKIP, drawn, {}
        if sides.unraised:
            _tell_unraised(sides.unraised, (*forward, *backward), is_same=self._device.type == "cpu")
        if any(row.status in _WRONG and "cosine" in row.metrics for row in (*forward, *backward)):
            _tell_rounding(sides, forward, backward)
        return forward, backward

    def leaves(self, case: Case, inputs: Inputs, sides: Sides) -> Iterator[tuple[str, Any]]:
        """Tensors to keep, with the names that -save_error_data documents."""
        bench_grads, device_grads = sides.grads or ([], [])
        for label, value in (
            ("forward.input", [inputs.args, inputs.kwargs]),
            ("forward.output.bench", sides.bench),
            ("forward.output.device", sides.device),
            ("backward.input", [_raised(grad) for grad in inputs.grads] if sides.grads else []),
            ("backward.output.bench", bench_grads),
            ("backward.output.device", device_grads),
        ):
            for place, leaf in enumerate(flat(value)):
                if isinstance(leaf, torch.Tensor):
                    yield f"{label}.{place}", leaf

    def save(self, path: Path, tensor: torch.Tensor) -> Path:
        """Write a tensor as torch does."""
        target = path.with_name(f"{path.name}.pt")
        torch.save(tensor.detach().to("cpu", copy=True), target)
        return target


def _tell_unraised(reason: str, rows: Iterable[DetailRow], *, is_same: bool) -> None:
    """Say where the reference is no better than the device; where it is the very same computation, nothing was tested."""
    for row in rows:
        if row.bench_dtype != row.device_dtype or row.device_dtype not in _RAISED:
            continue
        row.message += f"The reference is in {row.device_dtype} too: {one_line(reason)}.\n"
        if is_same and row.status is Status.PASS:
            row.status = Status.WARNING
            row.message += "On the cpu both sides are the same computation, so nothing was tested.\n"


def _tell_rounding(sides: Sides, forward: list[DetailRow], backward: list[DetailRow]) -> None:
    """Say in the message of a wrong row where rounding alone explains it; the verdict stays."""
    if sides.moved is None:
        return
    try:
        outputs, grads = sides.moved()
    except Exception:  # what is wrong has been found; this would only have explained it
        return
    bench_grads, device_grads = sides.grads or ([], [])
    for rows, three in (
        (forward, (sides.bench, sides.device, outputs)),
        (backward, (bench_grads, device_grads, grads or [])),
    ):
        leaves = [list(flat(side)) for side in three]
        if any(len(side) != len(rows) for side in leaves):
            continue
        for row, *tensors in zip(rows, *leaves, strict=True):
            if row.status not in _WRONG or not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
                continue
            if (found := rounding_of(*tensors)) is not None:
                row.message += (
                    f"Rounding alone may be the cause: inputs rounded once more move the reference by up to {found[1]:.2g}, "
                    f"and the device is {found[0]:.2g} off.\n"
                )


def flat(value: Any) -> Iterator[Any]:
    """Every leaf of a structure, tensors and others, in order; keyword arguments follow the positional ones."""
    if isinstance(value, dict):
        for item in value.values():
            yield from flat(item)
    elif type(value) in (list, tuple) or (isinstance(value, tuple) and not isinstance(value, torch.Size)):
        for item in value:
            yield from flat(item)
    else:
        yield value


def _raised(grad: torch.Tensor | None) -> torch.Tensor | None:
    """A gradient as the reference got it."""
    if grad is None or not (grad.is_floating_point() or grad.is_complex()):
        return grad
    return grad.to(torch.complex128 if grad.is_complex() else torch.float64)


def _wants_gradients(case: Case) -> bool:
    return case.has_backward and not case.no_backward
