"""Mapping files of -dm and -cm: YAML with one pair of names an entry -> names and the lines they stand on.

Read as a stream of events, never as a tree: each entry keeps its line, a key given twice is seen, nothing is built or expanded
whatever the file holds, and names stay as they are written (``0``, ``yes`` and ``1.10`` are names).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from opassay.pipeline.read.json_text import is_utf16, open_regular
from opassay.pipeline.watch.logs import clip, one_line
from opassay.schemas.errors import UsageError

_SUFFIXES: Final = (".yaml", ".yml")
_LARGEST: Final = 64 << 20  # bytes; half a million lines of a data mapping
_DEEPEST: Final = 100  # levels of lists and objects looked through to find where a misplaced one ends
_TOLD: Final = 20  # problems that the message lists
_TOLD_TEXT: Final = 2200  # and characters of it, so that no line limit cuts what it says at the end
_TEXT_TOLD: Final = 100  # and of a name in it
LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # PyYAML may be built without libyaml
_NOTHING: Final = "nothing"
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TEXT_TAGS: Final = frozenset({None, "!", "tag:yaml.org,2002:str"})
FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # by YAML 1.1, 5.1
_TRY: Final = "write one 'target name: golden name' a line, with a blank behind the colon"


@dataclass(frozen=True, slots=True)
class MappingFile:
    """A mapping file whose every entry is sound.

    Attributes
    ----------
    path : Path
        The file.
    entries : dict of str to str
        Target name or text to golden name or text, in the order of the file.
    lines : dict of str to int
        Line on which each target name stands, from 1.
    """

    path: Path
    entries: dict[str, str]
    lines: dict[str, int]


def read_data_mapping(path: Path) -> MappingFile:
    """Read the file of -dm: full names of rows, target to golden.

    Parameters
    ----------
    path : Path
        A .yaml or .yml file in UTF-8.

    Returns
    -------
    MappingFile
        At least one entry; no name is empty.

    Raises
    ------
    UsageError
        The file cannot be read or is no such mapping; one line that lists every problem with its line and key.
    """
    mapping = _read(path, "data mapping", "-dm", is_cell=False)
    if not mapping.entries:
        raise UsageError(f"data mapping {shown_path(path)} holds no entries; {_TRY}, or leave out -dm")
    return mapping


def read_cell_mapping(path: Path) -> MappingFile:
    """Read the file of -cm: names or parts of names of modules, target to golden.

    Parameters
    ----------
    path : Path
        A .yaml or .yml file in UTF-8.

    Returns
    -------
    MappingFile
        No entries where the file holds none: the same as no file. A value may be empty if it is quoted (``Te: ''``).

    Raises
    ------
    UsageError
        The file cannot be read or is no such mapping; one line that lists every problem with its line and key.
    """
    return _read(path, "cell mapping", "-cm", is_cell=True)


def _read(path: Path, what: str, option: str, *, is_cell: bool) -> MappingFile:
    text = text_of(path, what, option)
    entries = _Entries(is_cell)
    try:
        with closing(yaml.parse(text, Loader=LOADER)) as events:
            entries.take(events)
    except yaml.MarkedYAMLError as error:
        entries.problem(*syntax_fault(error))
    except yaml.reader.ReaderError:
        found = FORBIDDEN.search(text)
        character = f"the character U+{ord(found[0]):04X}" if found else "a character"
        entries.problem(
            line_of(text, found), f"{character} is not allowed in YAML outside an escape; reading ends here"
        )
    if entries.count:
        more = entries.count - len(entries.problems)
        raise UsageError(
            f"{what} {shown_path(path)} cannot be used, {entries.count:,} problem{'s' if entries.count > 1 else ''}: "
            f"{'; '.join(entries.problems)}{f'; and {more:,} more' if more else ''}. {_TRY[0].upper()}{_TRY[1:]}, names with "
            "other signs in quotes, each target once"
        )
    return MappingFile(path, entries.golden, entries.lines)


def text_of(path: Path, what: str, option: str) -> str:
    """A YAML file as text, without a byte order mark.

    Parameters
    ----------
    path : Path
        A .yaml or .yml file in UTF-8, at most 64 MiB.
    what, option : str
        What the messages call the file, and the option that gives it.

    Raises
    ------
    UsageError
        If it cannot be read, or is no such file.
    """
    try:
        with open_regular(path) as file:
            if not path.name.lower().endswith(_SUFFIXES):
                raise UsageError(
                    f"{what} {shown_path(path)} is no .yaml or .yml file; check {option}, or rename the file"
                )
            wide = is_utf16(file)
            data = file.read(_LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"{what} {shown_path(path)} does not exist; check {option}") from error
    except IsADirectoryError as error:
        raise UsageError(
            f"{what} {shown_path(path)} is a folder; give {option} the .yaml or .yml file in it"
        ) from error
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(
            f"{what} {shown_path(path)} cannot be read ({reason}); check {option} and its permissions"
        ) from error
    if wide:
        raise UsageError(f"{what} {shown_path(path)} is written in UTF-16; save it as UTF-8")
    if len(data) > _LARGEST:
        raise UsageError(
            f"{what} {shown_path(path)} is larger than {_LARGEST >> 20} MiB; check that it is the right file"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{what} {shown_path(path)} is not UTF-8 (line {line:,}, byte {error.start:,}); save it as UTF-8"
        ) from error


def shown_path(path: Path) -> str:
    """A path for a message: one line, not longer than a line of the log may be."""
    return clip(one_line(str(path)))


def line_of(text: str, found: re.Match[str] | None) -> int:
    """Line of `text` on which a match begins, from 1; 1 without a match."""
    return text.count("\n", 0, found.start() if found else 0) + 1


def syntax_fault(error: yaml.MarkedYAMLError) -> tuple[int, str, str]:
    """Where and how a text stops being YAML: the line from 1, the words, and ``column N``."""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    since = f" {error.context}" if error.context else ""
    if since and error.context_mark:
        since += f" that began on line {error.context_mark.line + 1:,}"
    return line, f"the file stops being YAML{since}: {error.problem}; reading ends here", f"column {column:,}"


def _key(text: str) -> str:
    return f"key {clip(text, _TEXT_TOLD)!r}"


@dataclass(slots=True)
class Node:
    """One key or value: its text, or why it is none.

    Attributes
    ----------
    line : int
        Where it begins, from 1.
    text : str
        As it is written, without quotes; empty where there is a fault.
    fault : str
        What stands in place of a text, such as ``a list``; empty if nothing does.
    """

    line: int
    text: str
    fault: str = ""


@dataclass(slots=True)
class _Entries:
    """Collects the entries of a file and everything that is wrong with it."""

    is_cell: bool
    golden: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    count: int = 0

    def problem(self, line: int, text: str, where: str = "") -> None:
        """One more; what is beyond the limits of the message is only counted."""
        self.count += 1
        told = f"line {line:,}{where and ', '}{where}: {text}"
        if self.count == len(self.problems) + 1 <= _TOLD and sum(map(len, self.problems)) + len(told) <= _TOLD_TEXT:
            self.problems.append(told)

    def take(self, events: Iterator[Any]) -> None:
        """Read the whole stream.

        Raises
        ------
        yaml.YAMLError
            Where it stops being YAML.
        """
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    line = event.start_mark.line + 1
                    self.problem(line, "a second document begins; put all entries into one, without '---' between them")
                    return
            elif isinstance(event, yaml.MappingStartEvent):
                if not self._take_mapping(events):
                    return
            elif isinstance(event, yaml.NodeEvent):
                top = read_node(event, events)
                if top is None:
                    self._too_deep(event)
                    return
                if not is_null(event):
                    found = top.fault or "a single text"
                    self.problem(top.line, f"{found} stands where the entries were expected")

    def _take_mapping(self, events: Iterator[Any]) -> bool:
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                return True
            key = read_node(event, events)
            value_event = next(events)
            value = read_node(value_event, events) if key else None
            if key is None or value is None:
                self._too_deep(event if key is None else value_event)
                return False
            self._take_entry(key, value)
        return True

    def _take_entry(self, key: Node, value: Node) -> None:
        if key.fault:
            self.problem(key.line, f"{key.fault} stands where the target name was expected")
        elif not key.text:
            self.problem(key.line, "the target name is empty")
        elif key.text == "<<" and value.fault:
            self.problem(key.line, "merge keys are not followed; write the entries out", _key(key.text))
            return
        elif key.text in self.lines:
            self.problem(key.line, f"given twice, first on line {self.lines[key.text]:,}; keep one", _key(key.text))
        where = "" if key.fault else _key(key.text)
        if value.fault:
            hint = "; write '' to delete the text" if self.is_cell and value.fault == _NOTHING else ""
            self.problem(value.line, f"{value.fault} stands where the golden name was expected{hint}", where)
        elif not value.text and not self.is_cell:
            self.problem(value.line, "the golden name is empty", where)
        if not key.fault and key.text and key.text not in self.lines:
            self.lines[key.text] = key.line
            self.golden[key.text] = value.text

    def _too_deep(self, event: Any) -> None:
        self.problem(event.start_mark.line + 1, f"more than {_DEEPEST} levels of lists and objects; reading ends here")


def is_null(event: Any) -> bool:
    """Whether the node of an event is YAML's null: not written, or ``~`` or ``null`` without quotes."""
    return isinstance(event, yaml.ScalarEvent) and event.implicit[0] and event.value in _NULLS


def read_node(event: Any, events: Iterator[Any]) -> Node | None:
    """One key or value; None if it nests too deep.

    Parameters
    ----------
    event : yaml.Event
        Its first event.
    events : iterator of yaml.Event
        Those behind; they are taken up to its end.

    Raises
    ------
    yaml.YAMLError
        Where the text stops being YAML.
    """
    line = event.start_mark.line + 1
    if isinstance(event, yaml.ScalarEvent):
        if is_null(event):
            fault = f"null ({event.value}; quote it if it is a name)" if event.value else _NOTHING
            return Node(line, "", fault)
        if event.tag not in _TEXT_TAGS:
            return Node(line, "", f"a value with the tag {clip(event.tag, _TEXT_TOLD)!r} (leave the tag out)")
        return Node(line, event.value)
    if isinstance(event, yaml.AliasEvent):
        return Node(line, "", f"the alias *{clip(event.anchor, _TEXT_TOLD)} (not followed; write the name out)")
    depth = 1
    while depth:
        inner = next(events)
        if isinstance(inner, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                return None
        elif isinstance(inner, yaml.CollectionEndEvent):
            depth -= 1
    return Node(line, "", "a list" if isinstance(event, yaml.SequenceStartEvent) else "an object")
