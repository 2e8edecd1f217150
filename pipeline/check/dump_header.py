"""What the header of a dump.json says about its calls: whose they are, where their inputs come from, where the files lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from opassay.pipeline.watch.logs import clip
from opassay.schemas.errors import DumpMalformed

Task = Literal["tensor", "statistics"]

MINDSPORE, MINDTORCH, PYTORCH = "mindspore", "mindtorch", "pytorch"
TENSOR_FOLDER: Final = "dump_tensor_data"
HEADER: Final = ("task", "framework", "dump_data_dir")


def malformed(path: Path, found: str) -> DumpMalformed:
    """The error for a file that is no dump."""
    return DumpMalformed(f"{path}: Invalid dump.json format: {found}; check the file, or dump again")


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file.

    Attributes
    ----------
    path : Path
        The dump.json.
    family : {"pytorch", "mindspore"}
        As which it is read.
    told : dict
        Its plain values.
    """

    path: Path
    family: str
    told: dict[str, Any]

    def framework(self, problems: list[str]) -> str:
        """The framework that is named; of a file read as MindSpore's, "mindspore" or "mindtorch".

        Raises
        ------
        DumpMalformed
            If a file that is read as MindSpore's is one of PyTorch.
        """
        told = self.told.get("framework")
        framework = told if isinstance(told, str) else ""
        if self.family == PYTORCH:
            return framework
        if framework == PYTORCH:
            raise DumpMalformed(f"{self.path} is a dump of pytorch; run it without -f mindspore")
        if framework not in (MINDSPORE, MINDTORCH):
            named = f"names the framework {clip(repr(framework))}" if framework else "names no framework"
            problems.append(f"the dump {named}; it is read as one of mindspore")
            return MINDSPORE
        return framework

    def folder(self) -> Path:
        """The folder of the tensor files: that beside the file, or where a MindSpore dump says, if it is there."""
        beside = self.path.parent / TENSOR_FOLDER
        told = self.told.get("dump_data_dir")
        if self.family == PYTORCH or not isinstance(told, str) or not told:
            return beside
        try:
            named = self.path.parent / told
            return named if named.is_dir() else beside
        except (OSError, ValueError):
            return beside

    def task(self, problems: list[str], *, names_files: bool) -> Task:
        """Where inputs come from. Without a word about it, what the folder's name says; MindSpore dumps must say it.

        Raises
        ------
        DumpMalformed
            If a MindSpore dump does not.
        """
        told = self.told.get("task")
        if told not in ("tensor", "statistics"):
            if self.family != PYTORCH:
                raise malformed(
                    self.path, f"its key 'task' is {clip(repr(told))}, and it must be 'statistics' or 'tensor'"
                )
            return "tensor" if self.told.get("dump_data_dir") else "statistics"
        if told == "statistics":
            return "statistics"
        folder = self.path.parent / TENSOR_FOLDER
        if self.family == PYTORCH and names_files and not self.told.get("dump_data_dir") and not folder.is_dir():
            problems.append(
                f"the dump names tensor files, but there is no folder {TENSOR_FOLDER} beside it; "
                "inputs are made at random from the statistics"
            )
            return "statistics"
        return "tensor"


def names_file(value: Any, depth: int) -> bool:
    """Whether a descriptor names a tensor file."""
    if isinstance(value, dict):
        named = value.get("data_name") or value.get("datapath")
        return bool(named) or (depth < 8 and any(names_file(item, depth + 1) for item in value.values()))
    return isinstance(value, list) and depth < 8 and any(names_file(item, depth + 1) for item in value)
