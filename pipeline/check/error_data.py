"""-save_error_data: the tensors of calls that are not in order, and what it takes to run each of them again."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any, Final

from opassay.pipeline.check.cases import Case
from opassay.pipeline.check.dump_header import MINDSPORE, MINDTORCH, TENSOR_FOLDER
from opassay.pipeline.check.framework import Framework, Sides

_LONGEST: Final = 180  # bytes of a name; the direction, the number and the suffix follow


def folder_name(stamp: str) -> str:
    """The folder of a run, by the digits of its csv files."""
    return f"ut_error_data{stamp}"


def save_error_data(framework: Framework, case: Case, inputs: Any, sides: Sides, folder: Path) -> None:
    """Save what a call was given and what it gave, and a dump of this call alone.

    ``{name}.forward.input.0.pt`` and so on are as documented. ``{name}.json`` is a dump.json whose tensors are the saved
    inputs (by links in ``dump_tensor_data``), so that ``run_ut -api_info {name}.json`` runs the call again.

    Parameters
    ----------
    framework : Framework
        Knows the leaves and writes them.
    case : Case
        The call.
    inputs : object
        As the framework built them.
    sides : Sides
        As it ran them.
    folder : Path
        Made if needed.

    Raises
    ------
    OSError
        If the disk refuses.
    """
    name = safe_name(case.name)
    (folder / TENSOR_FOLDER).mkdir(parents=True, exist_ok=True)
    saved, tensors = {}, {}
    for label, tensor in framework.leaves(case, inputs, sides):
        saved[label] = framework.save(folder / f"{name}.{label}", tensor)
        tensors[label] = tensor
    has_paths = framework.name in (MINDSPORE, MINDTORCH)
    again = _AgainByPath(folder, saved, tensors) if has_paths else _Again(folder, saved)
    forward = {
        "input_args": again.described(case.args, "forward.input"),
        "input_kwargs": again.described(case.kwargs, "forward.input"),
        "output": again.outputs(case.outputs, "forward.output"),
        "is_recompute": case.is_recompute,
    }
    data: dict[str, Any] = {f"{case.name}.forward": forward}
    if case.has_backward:
        again.place = 0
        data[f"{case.name}.backward"] = {
            "input": again.described(case.gradient, "backward.input"),
            "output": again.outputs(case.gradients, "backward.output"),
        }
    dump = {"task": "tensor", "level": "L1", "framework": framework.name, "dump_data_dir": TENSOR_FOLDER, "data": data}
    (folder / f"{name}.json").write_text(json.dumps(dump, indent=1), encoding="utf-8", errors="backslashreplace")


class _Again:
    """Descriptors that lead to the saved files; the count of leaves goes on from one section to the next."""

    def __init__(self, folder: Path, saved: dict[str, Path]) -> None:
        self._folder = folder
        self._saved = saved
        self.place = 0

    def described(self, value: Any, label: str) -> Any:
        """The same structure with the name of a file at every tensor."""
        if isinstance(value, list):
            return [self.described(item, label) for item in value]
        if isinstance(value, dict) and value and not isinstance(value.get("type"), str):
            return {key: self.described(item, label) for key, item in value.items()}
        path = self._saved.get(f"{label}.{self.place}")
        self.place += 1
        return self._named(value, path)

    def outputs(self, value: Any, label: str) -> Any:
        """Outputs are made anew, but for gradients, which nobody reads."""
        return value if label.startswith("forward") else []

    def _named(self, value: Any, path: Path | None) -> Any:
        if path is None or not isinstance(value, dict):
            return value
        _link(path, self._folder / TENSOR_FOLDER / path.name)
        return {**value, "data_name": path.name}


class _AgainByPath(_Again):
    """The same where labels are paths, such as ``forward.input.0.1`` and ``forward.input.mask``, and outputs are compared."""

    def __init__(self, folder: Path, saved: dict[str, Path], tensors: dict[str, Any]) -> None:
        super().__init__(folder, saved)
        self._tensors = tensors

    def described(self, value: Any, label: str) -> Any:
        """The same structure with the name of a file at every tensor."""
        if isinstance(value, list):
            return [self.described(item, f"{label}.{place}") for place, item in enumerate(value)]
        if isinstance(value, dict) and value and not isinstance(value.get("type"), str):
            return {key: self.described(item, f"{label}.{key}") for key, item in value.items()}
        return self._named(value, self._saved.get(label))

    def outputs(self, value: Any, label: str) -> Any:
        """What this run's tested side gave, whatever the dump says of it."""
        from opassay.kernels.precision.mindspore import dtype_name  # needs torch, which a worker has

        found: list[Any] = []
        while (path := self._saved.get(f"{label}.{len(found)}")) is not None:
            tensor = self._tensors[f"{label}.{len(found)}"]
            described = {"type": "mindspore.Tensor", "dtype": dtype_name(tensor.dtype), "shape": list(tensor.shape)}
            found.append(self._named(described, path))
        return found


def _link(path: Path, link: Path) -> None:
    """The same file under a second name; a copy where the file system has no links."""
    with contextlib.suppress(FileNotFoundError):
        link.unlink()
    try:
        os.link(path, link)
    except OSError:
        shutil.copyfile(path, link)


def safe_name(name: str) -> str:
    """A call's name as part of a file name: as it is, but for what a file name cannot hold."""
    plain = "".join("_" if letter in "/\\\0" or not letter.isprintable() else letter for letter in name)
    if plain == name and len(plain.encode()) <= _LONGEST:
        return plain
    short = plain.encode()[:_LONGEST].decode(errors="ignore")
    return f"{short}.{zlib.crc32(name.encode('utf-8', 'surrogateescape')):08x}"
