"""MindSpore as the check sees it: its calls are run, or their recorded results taken; torch on the CPU gives the reference."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import torch
from opassay.kernels.precision.mindspore import compare_lists
from opassay.kernels.precision.tables import DTYPE_BOUND
from opassay.pipeline.check.call import SEED, Run, gradients_of, run_reference
from opassay.pipeline.check.cases import CannotRun, Case
from opassay.pipeline.check.framework import Sides
from opassay.pipeline.check.inputs import InputError, Inputs, build_inputs, places_of, recorded_values, tensors_of
from opassay.pipeline.check.mindspore_calls import Answer, Array, Call, DTypeName
from opassay.pipeline.check.mindspore_names import reference_of, unsupported
from opassay.pipeline.check.torch_framework import flat
from opassay.schemas.check_rows import DetailRow, Status

_NOTHING: Final = "no output was recorded"


class TestedSide(Protocol):
    """What runs MindSpore's side of a call: in this process, or in another."""

    def run(self, call: Call) -> Answer:
        """Run a call."""


class MindSporeFramework:
    """MindSpore, or MSAdapter, against torch.

    Parameters
    ----------
    name : {"mindspore", "mindtorch"}
        Of the dump.
    tested : callable
        Gives the tested side; called at the first call that must be run, so never for tensor dumps.
    """

    def __init__(self, name: str, tested: Callable[[], TestedSide]) -> None:
        self.name = name
        self._start = tested
        self._tested: TestedSide | CannotRun | None = None
        random.seed(SEED)
        warnings.filterwarnings("ignore", module=r"torch\b")

    def build(self, case: Case) -> Inputs:
        """The inputs of a call, the same for both sides."""
        if reason := unsupported(case):
            raise CannotRun(reason)
        return build_inputs(case, wants_gradients=case.has_backward)

    def call(self, case: Case, inputs: Inputs) -> Sides:
        """Take or make the tested side's results, and those of the reference."""
        reference = reference_of(case)
        wanted = case.has_backward
        tested = self._recorded(case, wanted) if case.task == "tensor" else self._run(case, inputs, wanted)
        if tested.failed and (not wanted or tested.grads is None):
            raise CannotRun(tested.failed)
        run = run_reference(case, reference, inputs, gradients=wanted)
        sides = Sides(_bounded(case, run.outputs, tested.outputs), tested.outputs, seconds=tested.seconds)
        if tested.failed:
            sides.bench = sides.device = CannotRun(tested.failed)
        if wanted:
            _backward(case, inputs, run, tested, sides)
        return sides

    def compare(self, case: Case, sides: Sides) -> tuple[list[DetailRow], list[DetailRow]]:
        """Rows of the outputs, and of the gradients that both sides have."""
        if isinstance(sides.device, CannotRun):
            forward = [DetailRow("", status=Status.SKIP, message=str(sides.device))]
        else:
            forward = compare_lists(list(flat(sides.bench)), list(flat(sides.device)))
        backward = []
        if sides.grads is not None:
            backward = compare_lists(*sides.grads)
        for direction, rows in (("forward", forward), ("backward", backward)):
            for place, row in enumerate(rows):
                row.name = f"{case.name}.{direction}.output.{place}"
        return forward, backward

    def leaves(self, case: Case, inputs: Inputs, sides: Sides) -> Iterator[tuple[str, Any]]:
        """Tensors to keep, by their paths: ``forward.input.0``, ``forward.input.mask``; the reference's with ``.bench``."""
        bench_grads, tested_grads = sides.grads or ([], [])
        for label, value in (
            ("forward.input", inputs.args),
            ("forward.input", inputs.kwargs),
            ("forward.output", _listed(sides.device)),
            ("forward.output.bench", _listed(sides.bench)),
            ("backward.input", inputs.grads if sides.grads else []),
            ("backward.output", tested_grads),
            ("backward.output.bench", bench_grads),
        ):
            yield from places_of(value, label)

    def save(self, path: Path, tensor: torch.Tensor) -> Path:
        """Write a tensor as MindSpore's dumps do; NumPy has no bfloat16, a float32 holds it."""
        target = path.with_name(f"{path.name}.npy")
        values = tensor.detach()
        np.save(target, (values.float() if values.dtype is torch.bfloat16 else values).numpy())
        return target

    def _run(self, case: Case, inputs: Inputs, wanted: bool) -> Answer:
        if self._tested is None:
            try:
                self._tested = self._start()
            except CannotRun as error:
                self._tested = error
        if isinstance(self._tested, CannotRun):
            raise CannotRun(str(self._tested))
        grads = [None if grad is None else _sent(grad) for grad in inputs.grads] if wanted else []
        call = Call(case.kind, case.api, _sent(inputs.args), _sent(inputs.kwargs), grads)
        answer = self._tested.run(call)
        answer.outputs = _received(answer.outputs)
        answer.grads = None if answer.grads is None else [_received(grad) for grad in answer.grads]
        if wanted and answer.grads is None and not answer.no_backward:
            answer.no_backward = inputs.no_gradient or "no gradient recorded"
        return answer

    def _recorded(self, case: Case, wanted: bool) -> Answer:
        answer = Answer()
        try:
            answer.outputs = recorded_values(case, case.outputs, "outputs")
            answer.failed = "" if case.outputs else _NOTHING
        except InputError as error:
            if not wanted:
                raise  # so that the cause is known
            answer.failed = str(error)
        if wanted:
            try:
                answer.grads = recorded_values(case, case.gradients, "gradients")
            except InputError as error:
                answer.no_backward = str(error)
            if not case.gradients:
                answer.grads, answer.no_backward = None, "the dump has no gradients of the inputs"
        return answer


def _backward(case: Case, inputs: Inputs, run: Run, tested: Answer, sides: Sides) -> None:
    """Gradients of both sides, input by input, or the reason why not."""
    sides.no_backward = inputs.no_gradient or tested.no_backward
    if sides.no_backward or tested.grads is None:
        return
    try:
        bench = gradients_of(run, inputs.grads)
    except CannotRun as error:
        sides.no_backward = str(error)
        return
    grads = tested.grads if case.task == "statistics" else _by_input(case, inputs, tested.grads)
    left, right = _both(bench, grads)
    if left or right:
        sides.grads = left, right
    else:
        sides.no_backward = "no input has a gradient of floats on both sides"


def _by_input(case: Case, inputs: Inputs, recorded: Sequence[Any]) -> list[Any]:
    """Recorded gradients at the places of the tensors of the arguments.

    Dumps list one for each tensor among the positional arguments, null where it has none, or one for each argument. Others are
    taken in order, each for the next tensor of floats of its shape.
    """
    tensors = list(tensors_of([*inputs.args, *inputs.kwargs.values()]))
    top = [value for value in inputs.args if isinstance(value, torch.Tensor)]
    if len(recorded) == len(tensors):
        return list(recorded)
    if len(recorded) == len(inputs.args) and not any(
        grad is not None and not isinstance(value, torch.Tensor)
        for grad, value in zip(recorded, inputs.args, strict=True)
    ):
        by_id = {id(value): grad for value, grad in zip(inputs.args, recorded, strict=True)}
        return [by_id.get(id(tensor)) for tensor in tensors]
    if len(recorded) == len(top):
        by_id = {id(value): grad for value, grad in zip(top, recorded, strict=True)}
        return [by_id.get(id(tensor)) for tensor in tensors]
    found: list[Any] = [None] * len(tensors)
    rest = iter(place for place, tensor in enumerate(tensors) if tensor.requires_grad)
    for grad in recorded:
        if isinstance(grad, torch.Tensor):
            place = next((place for place in rest if tensors[place].shape == grad.shape), None)
            if place is None:
                raise CannotRun(
                    f"{case.name} has {len(recorded)} recorded gradients and {len(tensors)} tensors; which is whose cannot be told"
                )
            found[place] = grad
    return found


def _both(bench: Sequence[Any], tested: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Gradients that are compared. Where torch has none because the output does not depend on the input, it is zero."""
    left, right = [], []
    for reference, grad in zip(bench, tested, strict=True):
        if not isinstance(grad, torch.Tensor) or not (grad.is_floating_point() or grad.is_complex()):
            continue
        left.append(torch.zeros_like(grad) if reference is None else reference)
        right.append(grad)
    return left, right


def _bounded(case: Case, bench: Any, tested: Any) -> Any:
    """The reference within the range of the tested dtype, for operators whose result is that dtype's largest number."""
    if case.api not in DTYPE_BOUND or not isinstance(bench, torch.Tensor):
        return bench
    like = next(tensors_of(tested), None)
    if like is None or not like.is_floating_point() or not bench.is_floating_point():
        return bench
    limit = torch.finfo(like.dtype)
    return bench.clamp(limit.min, limit.max)


def _sent(value: Any) -> Any:
    """Values as they travel to the tested side; lists become tuples."""
    if isinstance(value, torch.Tensor):
        plain = value.detach()
        plain = plain.float() if plain.dtype is torch.bfloat16 else plain
        try:
            return Array(str(value.dtype).removeprefix("torch."), plain.numpy())
        except TypeError:
            raise CannotRun(f"tensors of {value.dtype} cannot be handed to MindSpore") from None
    if isinstance(value, torch.dtype):
        return DTypeName(str(value).removeprefix("torch."))
    if isinstance(value, dict):
        return {key: _sent(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(_sent(item) for item in value)
    return value


def _received(value: Any) -> Any:
    """Values of the tested side as torch has them."""
    if isinstance(value, Array):
        dtype = getattr(torch, value.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise CannotRun(f"torch has no counterpart for results of {value.dtype}")
        return torch.from_numpy(np.array(value.values)).to(dtype)
    if isinstance(value, DTypeName):
        return value.name
    if isinstance(value, dict):
        return {key: _received(item) for key, item in value.items()}
    return tuple(_received(item) for item in value) if isinstance(value, tuple) else value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, torch.Tensor) else list(flat(value))
