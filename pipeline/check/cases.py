"""dump.json -> the calls to run again: one case a forward record, with its backward record.

The file is read once, record by record, and only the places of the records are kept; a case is built when it is asked
for. So a dump of a gigabyte costs a few hundred bytes a call, and a worker needs nothing but the path and the places.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from json import JSONDecodeError
from pathlib import Path
from typing import Any, BinaryIO, Final

from opassay.pipeline.check.dump_header import (
    HEADER,
    MINDSPORE,
    MINDTORCH,
    PYTORCH,
    Header,
    Task,
    malformed,
    names_file,
)
from opassay.pipeline.read.flatten import DEPTH_LIMIT
from opassay.pipeline.read.json_text import Broken, TextWindow, TooLarge, is_utf16, load_value, open_regular
from opassay.pipeline.watch.logs import clip
from opassay.schemas.errors import DumpMalformed, DumpNotFound

RUN: Final = frozenset({"Functional", "Tensor", "Torch", "Aten", "NPU", "VF"})
"""First segments of names of calls that can be run."""

RUN_OF: Final = {
    PYTORCH: RUN,
    MINDSPORE: frozenset({"Mint", "MintFunctional", "Tensor", "Functional"}),
    MINDTORCH: frozenset({"Torch", "Functional", "Tensor"}),
}
"""The same for each framework."""

_NOWHERE: Final = (-1, -1)

Span = tuple[int, int]


class CannotRun(Exception):
    """A call cannot be run; the message is the reason of its SKIP row, never empty."""


@dataclass(frozen=True, slots=True)
class Case:
    """One call of the dump, as plain Python: it can be sent to a worker.

    Attributes
    ----------
    name : str
        Without the direction: ``Torch.matmul.0``.
    kind : str
        First segment: ``Torch``.
    api : str
        ``matmul``, ``linalg.inv``; "" where the name has too few or too many segments.
    index : str
        Last segment: ``0``.
    args : list
        Descriptors of the positional arguments, as they stand in the dump.
    kwargs : dict of str
        Descriptors of the keyword arguments, in order.
    outputs : list
        Descriptors of the forward outputs.
    gradient : list
        Descriptors of the gradients that arrived at the outputs; [] where there is no backward record.
    has_backward : bool
        Whether there is a backward record.
    is_recompute : bool
        As the dump says.
    task : {"tensor", "statistics"}
        Whether tensors are read from files or made from statistics.
    folder : Path
        Where the tensor files are.
    skip : str
        Why the call cannot be run; "" where it can.
    gradients : list
        Descriptors of the gradients that left at the inputs; [] where there is no backward record.
    framework : {"pytorch", "mindspore", "mindtorch"}
        Whose call it is.
    """

    name: str
    kind: str
    api: str
    index: str
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    outputs: list[Any] = field(default_factory=list)
    gradient: list[Any] = field(default_factory=list)
    has_backward: bool = False
    is_recompute: bool = False
    task: Task = "statistics"
    folder: Path = Path()
    skip: str = ""
    gradients: list[Any] = field(default_factory=list)
    framework: str = PYTORCH

    @property
    def no_backward(self) -> str:
        """Why a backward pass that was recorded is not run; "" where nothing stands against it."""
        if not self.has_backward:
            return ""
        name = self.api.rpartition(".")[2]
        told = ""
        if "out" in self.kwargs:
            told += "function with out=... arguments don't support automatic differentiation, skip backward."
        if name == "repeat_interleave":
            told += "This API does not have backward input data, skip backward."
        if name == "masked_select":
            told += "This API does not support backward ut, skip backward."
        return told


@dataclass(frozen=True, slots=True)
class CaseFile:
    """The calls of one dump.json, in the order of their forward records. Indexed and iterated like a list; can be sent to workers.

    Attributes
    ----------
    path : Path
        The dump.json.
    task : {"tensor", "statistics"}
        Where inputs come from.
    framework : str
        As the dump says; "" where it does not. Of MindSpore dumps always "mindspore" or "mindtorch".
    names : list of str
        Names of the calls.
    forward, backward : list of (int, int)
        Bytes of the records: begin, end; begin -1 where there is none.
    modules : int
        Records of modules, which are not run.
    problems : list of str
        What was odd or lost, one line each.
    cut : bool
        The file breaks off; only the records before that place are here.
    folder : Path
        Where the tensor files are.
    """

    path: Path
    task: Task
    framework: str
    names: list[str]
    forward: list[Span]
    backward: list[Span]
    modules: int
    problems: list[str]
    cut: bool
    folder: Path

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, place: int) -> Case:
        with open_regular(self.path) as file:
            return self._case(file, range(len(self.names))[place])

    def __iter__(self) -> Iterator[Case]:
        if self.names:
            with open_regular(self.path) as file:
                for place in range(len(self.names)):
                    yield self._case(file, place)

    def _case(self, file: BinaryIO, place: int) -> Case:
        name = self.names[place]
        kind, _, rest = name.partition(".")
        api, _, index = rest.rpartition(".")
        segments = name.count(".") + 1
        base: dict[str, Any] = {"name": name, "kind": kind, "api": api if segments in (3, 4) else "", "index": index}
        family = self.framework if self.framework in RUN_OF else PYTORCH
        base |= {"task": self.task, "folder": self.folder, "framework": family}
        base["has_backward"] = has_backward = self.backward[place] != _NOWHERE
        if segments not in (3, 4) or kind not in RUN_OF[family]:
            told = f"API {name} not support for run ut. SKIP."
            base["skip"] = told if family == PYTORCH else f"{kind} calls are not supported by the pre-check"
        if self.forward[place] == _NOWHERE:
            return Case(**{"skip": "the dump has a backward record of the call and no forward record", **base})
        try:
            record = _record(file, self.forward[place])
            base |= {
                "args": _section(record, "input_args", list),
                "kwargs": _section(record, "input_kwargs", dict),
                "outputs": _outputs(record),
                "is_recompute": record.get("is_recompute") is True,
            }
        except CannotRun as error:
            return Case(**{"skip": f"the forward record of {name} {error}", **base})
        if has_backward:
            with suppress(CannotRun):  # the forward pass can be run all the same; "no gradient recorded" says the rest
                record = _record(file, self.backward[place])
                base["gradient"] = _section(record, "input", list)
                base["gradients"] = _section(record, "output", list)
        return Case(**base)


def read_cases(path: Path, family: str = PYTORCH) -> CaseFile:
    """Find the calls of a dump.json.

    Parameters
    ----------
    path : Path
        The file; tensor files are looked up in ``dump_tensor_data`` beside it, those of MindSpore where the dump says, too.
    family : {"pytorch", "mindspore"}
        As which the dump is read. MindSpore's calls are listed where their forward or backward record comes first.

    Returns
    -------
    CaseFile
        Perhaps without calls. A file that breaks off gives the records before that place, and a problem.

    Raises
    ------
    DumpNotFound
        If there is no such file, or it cannot be read.
    DumpMalformed
        If it is empty, no JSON object, has no ``data`` object, or breaks off before its first record.
    """
    try:
        with open_regular(path) as file:
            if not file.seek(0, 2):
                raise DumpMalformed(f"{path} is empty; dump this rank again, or point to a file that is complete")
            if is_utf16(file):
                raise DumpMalformed(f"{path} is written in UTF-16 and dumps are UTF-8; convert it, or dump again")
            return _Finder(path, family).find(TextWindow(file))
    except FileNotFoundError:
        raise DumpNotFound(f"{path} does not exist; give the path of a dump.json to -api_info") from None
    except IsADirectoryError:
        raise DumpNotFound(f"{path} is a folder; give the dump.json in it to -api_info") from None
    except OSError as error:
        raise DumpNotFound(f"{path} cannot be read ({error.strerror}); check the path and its permissions") from None


class _Finder:
    """One pass over one file."""

    def __init__(self, path: Path, family: str) -> None:
        self._path = path
        self._family = family
        self._order: dict[str, None] = {}
        self._header: dict[str, Any] = {}
        self._places: dict[str, int] = {}
        self._forward: list[Span] = []
        self._backward: dict[str, Span] = {}
        self._modules = 0
        self._records = 0
        self._has_file = False
        self._counts: dict[str, tuple[int, str]] = {}

    def find(self, window: TextWindow) -> CaseFile:
        """Read the file through."""
        found_data, broken = False, ""
        try:
            if not window.open():
                raise malformed(self._path, "its top level is not a JSON object")
            first = True
            while (key := window.next_key(first=first)) is not None:
                first = False
                if key == "data":
                    found_data = True
                    if not window.open():
                        raise malformed(self._path, "its key 'data' is not an object")
                    self._read_data(window)
                elif key in HEADER and window.peek() not in ("{", "["):
                    self._header[key] = window.value()
                else:
                    window.skip_value()
                window.mark()
        except TooLarge as error:
            raise malformed(self._path, str(error)) from None
        except Broken as error:
            if not self._records:
                raise malformed(
                    self._path,
                    f"it is cut or no JSON at byte {error.offset}, before the first complete record ({error})",
                ) from None
            broken = f"the file is cut or damaged at byte {error.offset:,} ({error}); only the records before were read"
        if not found_data:
            raise malformed(self._path, "something wrong with dump, no data found in dump.json")
        return self._finish(broken)

    def _read_data(self, window: TextWindow) -> None:
        """Note the places of the members of ``data``."""
        first = True
        while (key := window.next_key(first=first)) is not None:
            first = False
            window.mark()
            start = window.offset()
            try:
                value = window.value()
            except TooLarge:  # told when the case is built
                window.skip_value()
                value = None
            window.mark()
            self._records += 1
            self._take(key, (start, window.offset()), value)

    def _take(self, key: str, span: Span, value: Any) -> None:
        if "Module" in key or key.startswith("Cell."):
            self._modules += 1
            return
        name, _, direction = key.rpartition(".")
        if direction not in ("forward", "backward"):
            self._count("names end in neither forward nor backward and are not run", key)
            return
        self._order.setdefault(name)
        if direction == "backward":
            if name in self._backward:
                self._count("records occur twice; the last one counts", key)
            self._backward[name] = span
        elif name in self._places:
            self._count("records occur twice; the last one counts", key)
            self._forward[self._places[name]] = span
        else:
            self._places[name] = len(self._forward)
            self._forward.append(span)
        if direction == "forward" and not self._has_file and isinstance(value, dict):
            self._has_file = names_file([value.get("input_args"), value.get("input_kwargs")], 0)

    def _count(self, text: str, key: str) -> None:
        count, example = self._counts.get(text, (0, clip(key)))
        self._counts[text] = (count + 1, example)

    def _finish(self, broken: str) -> CaseFile:
        names = list(self._places if self._family == PYTORCH else self._order)
        for name in self._backward:
            if name not in self._places:
                self._count("backward records have no forward record and are not run", name)
        header = Header(self._path, self._family, self._header)
        problems = [broken] if broken else []
        problems += [f"{count:,} {text}, such as {key}" for text, (count, key) in self._counts.items()]
        forward = {name: self._forward[place] for name, place in self._places.items()}
        return CaseFile(
            path=self._path,
            framework=header.framework(problems),
            task=header.task(problems, names_files=self._has_file),
            names=names,
            forward=[forward.get(name, _NOWHERE) for name in names],
            backward=[self._backward.get(name, _NOWHERE) for name in names],
            modules=self._modules,
            problems=problems,
            cut=bool(broken),
            folder=header.folder(),
        )


def _record(file: BinaryIO, span: Span) -> dict[str, Any]:
    """The record at a place of the file.

    Raises
    ------
    CannotRun
        If it is no object, nests too deep, or is not what stood there before; a predicate for a sentence.
    """
    file.seek(span[0])
    try:
        value = load_value(file.read(span[1] - span[0]).decode("utf-8", "surrogateescape"))
    except TooLarge as error:
        raise CannotRun(f"cannot be read ({clip(str(error))})") from None
    except JSONDecodeError:
        raise CannotRun("changed while the dump was in use") from None
    if not isinstance(value, dict):
        raise CannotRun(f"is not an object but {_kind(value)}")
    if _is_deep(value):
        raise CannotRun(f"nests deeper than {DEPTH_LIMIT} levels")
    return value


def _is_deep(value: Any) -> bool:
    """Whether there are more levels than any later step is ready for."""
    level = [value]
    for _ in range(DEPTH_LIMIT):
        level = [
            item
            for parent in level
            for item in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(item, (dict, list))
        ]
        if not level:
            return False
    return True


def _section(record: dict[str, Any], key: str, kind: type) -> Any:
    value = record.get(key)
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise CannotRun(f"has a key {key!r} that is {_kind(value)}")
    return value


def _outputs(record: dict[str, Any]) -> list[Any]:
    value = record.get("output")
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
