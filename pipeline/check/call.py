"""One call on both sides: the device under test in the dtypes of the dump, the reference on the CPU in raised precision.

The device's call goes first: where it runs by itself, the reference is computed meanwhile.
"""

from __future__ import annotations

import contextlib
import functools
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from opassay.kernels.fused import FUSED, cuda_equivalent
from opassay.pipeline.check.arguments import Arguments
from opassay.pipeline.check.cases import CannotRun, Case
from opassay.pipeline.check.framework import Sides
from opassay.pipeline.check.inputs import Inputs, tensors_of
from opassay.pipeline.check.lookup import find_api
from opassay.pipeline.check.precision_plan import LOW, CallPlan, plan_call
from opassay.pipeline.check.reference_dtype import as_compared, float_results, not_raised

SEED: Final = 1234
_IN_REFERENCE: Final = " (in the reference)"
_CPU: Final = torch.device("cpu")
_MOST_TOLD: Final = 1000  # characters of a library's message


@dataclass(slots=True)
class Run:
    """One side of a call.

    Attributes
    ----------
    outputs : object
        What the operator returned.
    leaves : list of torch.Tensor or None
        For each tensor of the arguments, in order, the leaf whose gradient is wanted; None where none is.
    args, kwargs : list, dict
        What it was called with.
    ups : mapping of torch.dtype to torch.dtype
        What dtypes were raised to.
    no_graph : str
        Why there is no graph to go back through although one was wanted; "" where there is.
    unraised : str
        Why a reference was computed in the dtypes of the dump; "" where it was not.
    """

    outputs: Any
    leaves: list[torch.Tensor | None]
    args: list[Any]
    kwargs: dict[str, Any]
    ups: Mapping[torch.dtype, torch.dtype]
    no_graph: str = ""
    unraised: str = ""

    def release(self) -> None:
        """Let go of the arguments: there is no way back through the call."""
        self.leaves, self.args, self.kwargs = [], [], {}


def call_both(case: Case, inputs: Inputs, device: torch.device, *, gradients: bool) -> Sides:
    """Run a call on the device and as a reference, forward and, where wanted, backward.

    Parameters
    ----------
    case : Case
        The call.
    inputs : Inputs
        Its arguments on the CPU; they are left alone.
    device : torch.device
        Device under test.
    gradients : bool
        Whether the backward pass is wanted.

    Returns
    -------
    Sides
        Outputs of both; gradients of both, or why there are none.

    Raises
    ------
    CannotRun
        If the operator is unknown, or fails on either side; the message is the reason of the SKIP row.
    """
    operator, reference = _operator(case, device), find_api(case.kind, case.api, "cpu")
    plan = plan_call(case, inputs.args, inputs.kwargs)
    seed = SEED ^ zlib.crc32(case.name.encode("utf-8", "surrogateescape"))
    watch = _Watch()
    with watch:
        ours = _on_device(operator, inputs, device, plan, seed, gradients)
    inputs = as_compared(case, inputs)
    if not gradients:
        ours.release()
    with watch:
        bench = _reference(reference, inputs, plan, seed, gradients)
    with watch, _told(_where(device)):
        _wait_for(device)
    sides = Sides(_checked(case, bench.outputs), _checked(case, ours.outputs))
    sides.judged_as, sides.unraised = _judged_as(case, inputs, plan), bench.unraised
    if gradients:
        with watch:
            _backward(case, inputs, bench, ours, device, sides)
    sides.seconds = watch.seconds
    sides.moved = functools.partial(_moved, case, reference, inputs, plan, bench.ups, seed, gradients)
    return sides


def _moved(
    case: Case,
    reference: Callable[..., Any],
    inputs: Inputs,
    plan: CallPlan,
    ups: Mapping[torch.dtype, torch.dtype],
    seed: int,
    gradients: bool,
) -> tuple[Any, list[Any] | None]:
    """Outputs and gradients of the reference once more, with every input rounded at random."""
    generator = torch.Generator().manual_seed(seed)
    fresh = Arguments(_CPU, ups, plan.autocast if plan.rounded else None, gradients, generator)
    run = _once(reference, inputs, fresh, seed)
    outputs = _checked(case, run.outputs)
    if not gradients:
        return outputs, None
    grads = [None if grad is None else grad.to(ups.get(grad.dtype, grad.dtype)) for grad in inputs.grads]
    moved = [
        None if new is None or old is None else fresh.moved(new, old.dtype)
        for new, old in zip(grads, inputs.grads, strict=True)
    ]
    return outputs, _reference_gradients(case, run, moved)


class _Watch:
    """Seconds that the operators themselves take."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._begun = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._begun


def _operator(case: Case, device: torch.device) -> Callable[..., Any]:
    """What runs on the device: on a GPU torch's own function in place of an NPU operator, where there is one."""
    if case.kind == "NPU" and device.type == "cuda" and (found := cuda_equivalent(case.api)) is not None:
        return found
    return find_api(case.kind, case.api, device.type)


def _on_device(
    operator: Callable[..., Any], inputs: Inputs, device: torch.device, plan: CallPlan, seed: int, gradients: bool
) -> Run:
    autocast: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if plan.autocast is not None:
        autocast = torch.autocast(device.type, plan.autocast)
    with autocast, _told(_where(device)):
        try:
            return _run(operator, inputs, Arguments(device, gradients=gradients), seed)
        except torch.cuda.OutOfMemoryError:
            _free_memory(device)
            return _run(operator, inputs, Arguments(device, gradients=gradients), seed)


def _reference(operator: Callable[..., Any], inputs: Inputs, plan: CallPlan, seed: int, gradients: bool) -> Run:
    """The reference in the best precision that the operator has a kernel for."""
    rounded_to = plan.autocast if plan.rounded else None
    failed = ""
    for ups in plan.ups[:-1]:
        try:
            run = _run(operator, inputs, Arguments(_CPU, ups, rounded_to, gradients), seed)
            break
        except Exception as error:
            failed = failed or _text(error)
    else:
        with _told(_IN_REFERENCE):
            run = _run(operator, inputs, Arguments(_CPU, plan.ups[-1], rounded_to, gradients), seed)
    if plan.ups[0] and not_raised(inputs, run.ups):
        run.unraised = failed or "the inputs take too much memory in float64"
    return run


def _run(operator: Callable[..., Any], inputs: Inputs, fresh: Arguments, seed: int) -> Run:
    """One forward pass; with a graph if one is wanted and the operator can have one."""
    if fresh.gradients:
        try:
            return _once(operator, inputs, fresh, seed)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # resize_ and set_ refuse tensors that require a gradient; an operator may have none
            no_graph = _text(error)
        plain = Arguments(fresh.device, fresh.ups, fresh.rounded_to)
        run = _once(operator, inputs, plain, seed)
        run.no_graph = no_graph
        return run
    return _once(operator, inputs, fresh, seed)


def _once(operator: Callable[..., Any], inputs: Inputs, fresh: Arguments, seed: int) -> Run:
    args, kwargs = fresh.value(inputs.args), fresh.value(inputs.kwargs)
    _seed(seed, fresh.device)
    with torch.set_grad_enabled(fresh.gradients), float_results(fresh.ups):
        return Run(operator(*args, **kwargs), fresh.leaves, args, kwargs, fresh.ups)


def _seed(seed: int, device: torch.device) -> None:
    """Let operators that draw numbers draw the same ones, whatever ran before.

    Not ``torch.manual_seed``: for devices that are not in use it notes down the stack, which takes longer than a small call.
    """
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        getattr(torch, device.type).manual_seed(seed)


def _backward(case: Case, inputs: Inputs, bench: Run, ours: Run, device: torch.device, sides: Sides) -> None:
    """Gradients of both sides, or the reason why not."""
    where = _where(device)
    reason = inputs.no_gradient or ours.no_graph or bench.no_graph
    if reason:
        sides.no_backward = reason
        return
    try:
        with _told(where):
            device_grads = _gradients(ours, inputs.grads)
        with _told(_IN_REFERENCE):
            bench_grads = _reference_gradients(case, bench, inputs.grads)
        with _told(where):
            _wait_for(device)
    except CannotRun as error:
        sides.no_backward = str(error)
        return
    sides.grads = bench_grads, device_grads


def _reference_gradients(case: Case, run: Run, grads: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Gradients of the reference: those of fused operators by their formula."""
    op = FUSED.get(case.api) if case.kind == "NPU" else None
    if op is not None and op.backward is not None:
        return _by_formula(op.backward, run, grads)
    return _gradients(run, grads)


def _gradients(run: Run, grads: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Gradient of every tensor of the arguments; None where none is wanted."""
    pairs = _pairs(run.outputs, grads)
    wanted = [leaf for leaf in run.leaves if leaf is not None]
    if not wanted:
        return [None] * len(run.leaves)
    outputs = [output for output, _ in pairs]
    given = [grad.to(device=output.device, dtype=run.ups.get(grad.dtype, grad.dtype)) for output, grad in pairs]
    found = iter(torch.autograd.grad(outputs, wanted, given, allow_unused=True))
    return [None if leaf is None else next(found) for leaf in run.leaves]


def _by_formula(
    backward: Callable[..., Any],
    run: Run,
    grads: Sequence[torch.Tensor | None],
) -> list[torch.Tensor | None]:
    """Gradients of a fused operator by its closed form."""
    of_output = {
        id(output): grad.to(run.ups.get(grad.dtype, grad.dtype)) for output, grad in _pairs(run.outputs, grads)
    }
    given = [of_output.get(id(output)) for output in tensors_of(run.outputs)]
    with torch.no_grad():
        found = backward(given, *run.args, **run.kwargs)
    return [None if leaf is None else grad for leaf, grad in zip(run.leaves, found, strict=True)]


def _pairs(outputs: Any, grads: Sequence[torch.Tensor | None]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Which recorded gradient arrives at which output.

    There is one for each output, or one for each that has a gradient. Where dumps hold fewer, each goes to the next output
    of its shape.
    """
    everything = list(tensors_of(outputs))
    with_graph = [output for output in everything if output.requires_grad]
    if not with_graph:
        raise CannotRun("no output depends on an input that requires a gradient")
    for candidates in (with_graph, everything):
        if len(candidates) == len(grads):
            return [
                (output, grad)
                for output, grad in zip(candidates, grads, strict=True)
                if grad is not None and output.requires_grad
            ]
    rest = iter(with_graph)
    pairs = []
    for grad in grads:
        if grad is None:
            next(rest, None)
            continue
        output = next((output for output in rest if output.shape == grad.shape), None)
        if output is not None:
            pairs.append((output, grad))
    if not pairs:
        raise CannotRun(f"none of {len(grads)} recorded gradients has the shape of one of {len(with_graph)} outputs")
    return pairs


def _judged_as(case: Case, inputs: Inputs, plan: CallPlan) -> tuple[torch.dtype | None, torch.dtype | None]:
    """Dtypes whose limits judge outputs and gradients, where these are stored in a wider one."""
    if plan.rounded:
        return None, plan.autocast
    op = FUSED.get(case.api) if case.kind == "NPU" else None
    if op is not None and op.statistics:
        lows = {tensor.dtype for tensor in tensors_of([inputs.args, inputs.kwargs])} & set(LOW)
        if len(lows) == 1:
            return next(iter(lows)), None
    return None, None


def _checked(case: Case, outputs: Any) -> Any:
    """The outputs that are compared: some fused operators return scratch values behind them."""
    op = FUSED.get(case.api) if case.kind == "NPU" else None
    if op is None or op.checked is None or not isinstance(outputs, (list, tuple)):
        return outputs
    return outputs[: op.checked]


def _wait_for(device: torch.device) -> None:
    """Until the device has done what it was given; its errors show here."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize(device)


def _free_memory(device: torch.device) -> None:
    if device.type != "cpu":
        getattr(torch, device.type).empty_cache()


@contextlib.contextmanager
def _told(where: str) -> Iterator[None]:
    """Any failure as the reason of a SKIP row."""
    try:
        yield
    except CannotRun:
        raise
    except Exception as error:
        raise CannotRun(f"{_text(error)}{where}") from error


def _where(device: torch.device) -> str:
    """Where a call failed, as a reason says it; on the CPU there is no other place."""
    return "" if device.type == "cpu" else f" (on the {device.type})"


def _text(error: Exception) -> str:
    """A library's message up to its first traceback; the type where it has none."""
    text = str(error).strip().partition("\nException raised from")[0]
    return text[:_MOST_TOLD] or type(error).__name__


def run_reference(case: Case, operator: Callable[..., Any], inputs: Inputs, *, gradients: bool) -> Run:
    """Run the reference alone: on the CPU, in the best precision that the operator has a kernel for.

    Parameters
    ----------
    case : Case
        The call.
    operator : callable
        Computes the reference from the arguments of the dump.
    inputs : Inputs
        Arguments; they are left alone.
    gradients : bool
        Whether a graph is wanted, see `gradients_of`.

    Raises
    ------
    CannotRun
        If it fails; the message is the reason of the SKIP row.
    """
    seed = SEED ^ zlib.crc32(case.name.encode("utf-8", "surrogateescape"))
    plan = plan_call(case, inputs.args, inputs.kwargs)
    return _reference(operator, as_compared(case, inputs), plan, seed, gradients)


def gradients_of(run: Run, grads: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Gradients of a reference that was run with a graph: one for each tensor of its arguments, None where none is wanted.

    Raises
    ------
    CannotRun
        If there is no graph, or it fails.
    """
    if run.no_graph:
        raise CannotRun(run.no_graph)
    with _told(_IN_REFERENCE):
        return _gradients(run, grads)
