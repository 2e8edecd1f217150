"""What the check needs of a framework: build the inputs of a call, run both sides, compare what they hand over.

Scheduling, resuming and the files know nothing else of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from opassay.pipeline.check.cases import Case
from opassay.schemas.check_rows import DetailRow


@dataclass(slots=True)
class Sides:
    """What a call gave on both sides.

    Attributes
    ----------
    bench, device : object
        Outputs of the reference and of the device under test.
    grads : tuple of two lists, or None
        Gradients of the reference and of the device; None where the backward pass was not run.
    no_backward : str
        Why a backward pass that was wanted was not run; "" where it was, or was not wanted.
    judged_as : tuple of two
        Dtypes whose limits judge outputs and gradients in place of their own, or None.
    seconds : float
        What the operators themselves took, on both sides.
    unraised : str
        Why the reference is in the dtypes of the dump; "" where it is in wider ones, or should be in these.
    moved : callable or None
        Outputs and gradients of the reference for inputs that are rounded at random: called where an error is to be
        understood.
    """

    bench: Any
    device: Any
    grads: tuple[list[Any], list[Any]] | None = None
    no_backward: str = ""
    judged_as: tuple[Any, Any] = (None, None)
    seconds: float = 0.0
    unraised: str = ""
    moved: Callable[[], tuple[Any, list[Any] | None]] | None = None


class Framework(Protocol):
    """One framework on one device, in one process."""

    name: str

    def build(self, case: Case) -> Any:
        """The inputs of a call. Raises CannotRun."""

    def call(self, case: Case, inputs: Any) -> Sides:
        """Run the operator on both sides. Raises CannotRun."""

    def compare(self, case: Case, sides: Sides) -> tuple[list[DetailRow], list[DetailRow]]:
        """Rows of the outputs, and of the gradients; no gradients, no rows."""

    def leaves(self, case: Case, inputs: Any, sides: Sides) -> Iterator[tuple[str, Any]]:
        """What -save_error_data keeps: names such as ``forward.input.0`` and tensors."""

    def save(self, path: Path, tensor: Any) -> Path:
        """Write a tensor; the suffix is the framework's own. The path written is returned."""
