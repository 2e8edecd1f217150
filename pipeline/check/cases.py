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
from typing import Any, BinaryIO, Final, Literal

from opassay.pipeline.read.flatten import DEPTH_LIMIT
from opassay.pipeline.read.json_text import Broken, TextWindow, TooLarge, is_utf16, load_value, open_regular
from opassay.pipeline.watch.logs import clip
from opassay.schemas.errors import DumpMalformed, DumpNotFound

Task = Literal["tensor", "statistics"]

RUN: Final = frozenset({"Functional", "Tensor", "Torch", "Aten", "NPU", "VF"})
"""First segments of names of calls that can be run."""

TENSOR_FOLDER: Final = "dump_tensor_data"
_HEADER: Final = ("task", "framework", "dump_data_dir")
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
        As the dump says; "" where it does not.
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
        base |= {"task": self.task, "folder": self.path.parent / TENSOR_FOLDER}
        base["has_backward"] = has_backward = self.backward[place] != _NOWHERE
        if segments not in (3, 4) or kind not in RUN:
            base["skip"] = f"API {name} not support for run ut. SKIP."
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
                base["gradient"] = _section(_record(file, self.backward[place]), "input", list)
        return Case(**base)


def read_cases(path: Path) -> CaseFile:
    """Find the calls of a dump.json.

    Parameters
    ----------
    path : Path
        The file; tensor files are looked up in ``dump_tensor_data`` beside it.

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
            return _Finder(path).find(TextWindow(file))
    except FileNotFoundError:
        raise DumpNotFound(f"{path} does not exist; give the path of a dump.json to -api_info") from None
    except IsADirectoryError:
        raise DumpNotFound(f"{path} is a folder; give the dump.json in it to -api_info") from None
    except OSError as error:
        raise DumpNotFound(f"{path} cannot be read ({error.strerror}); check the path and its permissions") from None


class _Finder:
    """One pass over one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
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
                raise self._malformed("its top level is not a JSON object")
            first = True
            while (key := window.next_key(first=first)) is not None:
                first = False
                if key == "data":
                    found_data = True
                    if not window.open():
                        raise self._malformed("its key 'data' is not an object")
                    self._read_data(window)
                elif key in _HEADER and window.peek() not in ("{", "["):
                    self._header[key] = window.value()
                else:
                    window.skip_value()
                window.mark()
        except TooLarge as error:
            raise self._malformed(str(error)) from None
        except Broken as error:
            if not self._records:
                raise self._malformed(
                    f"it is cut or no JSON at byte {error.offset}, before the first complete record ({error})"
                ) from None
            broken = f"the file is cut or damaged at byte {error.offset:,} ({error}); only the records before were read"
        if not found_data:
            raise self._malformed("something wrong with dump, no data found in dump.json")
        return self._finish(broken)

    def _malformed(self, found: str) -> DumpMalformed:
        return DumpMalformed(f"{self._path}: Invalid dump.json format: {found}; check the file, or dump again")

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
        if "Module" in key:
            self._modules += 1
            return
        name, _, direction = key.rpartition(".")
        if direction not in ("forward", "backward"):
            self._count("names end in neither forward nor backward and are not run", key)
        elif direction == "backward":
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
            self._has_file = _names_file([value.get("input_args"), value.get("input_kwargs")], 0)

    def _count(self, text: str, key: str) -> None:
        count, example = self._counts.get(text, (0, clip(key)))
        self._counts[text] = (count + 1, example)

    def _finish(self, broken: str) -> CaseFile:
        names = list(self._places)
        for name in self._backward:
            if name not in self._places:
                self._count("backward records have no forward record and are not run", name)
        problems = [broken] if broken else []
        problems += [f"{count:,} {text}, such as {key}" for text, (count, key) in self._counts.items()]
        framework = self._header.get("framework")
        return CaseFile(
            path=self._path,
            task=self._task(problems),
            framework=framework if isinstance(framework, str) else "",
            names=names,
            forward=self._forward,
            backward=[self._backward.get(name, _NOWHERE) for name in names],
            modules=self._modules,
            problems=problems,
            cut=bool(broken),
        )

    def _task(self, problems: list[str]) -> Task:
        """What the header says; without a word about it, what the folder's name in the header says."""
        told = self._header.get("task")
        if told not in ("tensor", "statistics"):
            return "tensor" if self._header.get("dump_data_dir") else "statistics"
        if told == "statistics":
            return "statistics"
        folder = self._path.parent / TENSOR_FOLDER
        if self._has_file and not self._header.get("dump_data_dir") and not folder.is_dir():
            problems.append(
                f"the dump names tensor files, but there is no folder {TENSOR_FOLDER} beside it; "
                "inputs are made at random from the statistics"
            )
            return "statistics"
        return "tensor"


def _names_file(value: Any, depth: int) -> bool:
    """Whether a descriptor names a tensor file."""
    if isinstance(value, dict):
        named = value.get("data_name") or value.get("datapath")
        return bool(named) or (depth < 8 and any(_names_file(item, depth + 1) for item in value.values()))
    return isinstance(value, list) and depth < 8 and any(_names_file(item, depth + 1) for item in value)


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
