"""What differs between frameworks around a run: columns, figures, lists, where tensors go, how a call's row is put together."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from opassay.kernels.precision.status import format_metric
from opassay.pipeline.check.dump_header import MINDTORCH, PYTORCH
from opassay.pipeline.check.error_data import folder_name
from opassay.schemas.check_rows import MINDSPORE_COLUMNS, TORCH_COLUMNS, CaseResult, Columns, Status

MINDSPORE_ERROR_FOLDER: Final = "error_data"

TextOf = Callable[[float | int], str]


@dataclass(frozen=True, slots=True)
class Profile:
    """One framework's ways.

    Attributes
    ----------
    name : {"pytorch", "mindspore", "mindtorch"}
        Of the framework.
    columns : Columns
        Of the two files.
    has_lists : bool
        Calls can be refused by black and white lists.
    """

    name: str
    columns: Columns
    has_lists: bool

    @property
    def is_torch(self) -> bool:
        """Whether calls of PyTorch are checked."""
        return self.name == PYTORCH

    @property
    def has_adapter(self) -> bool:
        """Whether the calls are MSAdapter's."""
        return self.name == MINDTORCH

    def text_of(self, precision: int) -> TextOf:
        """How figures are written; MindSpore's as the shortest text that reads back as the same number."""
        return functools.partial(format_metric, precision=precision) if self.is_torch else repr

    def error_folder(self, result: Path, stamp: str, chosen: Path) -> Path:
        """Where tensors of wrong calls go: the folder that config.json names; for MindSpore beside the csv files."""
        return chosen / folder_name(stamp) if self.is_torch else result.parent / MINDSPORE_ERROR_FOLDER

    def shown(self, result: CaseResult, *, has_backward: bool) -> CaseResult:
        """A call's rows as this framework's files have them.

        Parameters
        ----------
        result : CaseResult
            As the runner has it.
        has_backward : bool
            The dump has a backward record of the call.

        Returns
        -------
        CaseResult
            MindSpore's: details of compared outputs only, no word about a backward pass that nobody recorded, and a message made
            of those of the rows that are wrong and of the reasons of what was skipped.
        """
        if self.is_torch:
            return result
        wrong = [row.message for row in result.details if row.status is Status.ERROR]
        skipped = [row.message for row in result.details if row.status is Status.SKIP]
        reasons = dict.fromkeys(skipped or ([result.message] if result.message else []))
        return replace(
            result,
            backward=result.backward if has_backward else None,
            message="".join([*wrong, *reasons]),
            details=[row for row in result.details if row.status is not Status.SKIP],
        )


def profile_of(framework: str) -> Profile:
    """The profile of a framework, by its name in the header of a dump."""
    if framework in (PYTORCH, ""):
        return Profile(PYTORCH, TORCH_COLUMNS, has_lists=True)
    return Profile(framework, MINDSPORE_COLUMNS, has_lists=False)
