"""The file of -config: which rows and which metrics are merged.

Read as a stream of events like the mapping files: every problem with its line, in one message; nothing is built or expanded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from opassay.pipeline.read.mapping_file import (
    FORBIDDEN,
    LOADER,
    Node,
    is_null,
    line_of,
    read_node,
    shown_path,
    syntax_fault,
    text_of,
)
from opassay.pipeline.watch.logs import clip
from opassay.schemas.errors import UsageError

API, INDEX = "api", "compare_index"
_WHAT: Final = "merge config"
_TOLD: Final = 20  # problems that the message lists
_TRY: Final = "Write 'api:' and below it one '- name' a line, such as '- Distributed.all_reduce'; 'compare_index:' likewise with metrics"


@dataclass(frozen=True, slots=True)
class MergeConfig:
    """What a merge is asked for.

    Attributes
    ----------
    entries : tuple of str
        Beginnings of row names, whole components; at least one, none twice.
    metrics : tuple of str
        Of ``compare_index``, as they are written; none: all.
    notes : tuple of str
        Lines about keys that mean nothing here.
    """

    entries: tuple[str, ...]
    metrics: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read_config(path: Path) -> MergeConfig:
    """Read the file of -config.

    Parameters
    ----------
    path : Path
        A .yaml or .yml file in UTF-8: an object with the list ``api`` and, if wanted, the list ``compare_index``.

    Raises
    ------
    UsageError
        The file cannot be read or is no such object; one line that lists every problem with its line.
    """
    text = text_of(path, _WHAT, "-config")
    keys = _Keys()
    try:
        with closing(yaml.parse(text, Loader=LOADER)) as events:
            keys.take(events)
    except yaml.MarkedYAMLError as error:
        line, told, _ = syntax_fault(error)
        keys.problem(line, told)
    except yaml.reader.ReaderError:
        bad = FORBIDDEN.search(text)
        keys.problem(
            line_of(text, bad), f"the character {bad[0]!r} is not allowed" if bad else "a character is not allowed"
        )
    if not keys.problems and not keys.lists.get(API):
        begun = f"line {keys.lines[API]:,}: the list is empty" if API in keys.lines else "there is no key 'api'"
        keys.problems.append(begun if text.strip() else "the file is empty")
    if keys.problems:
        told = "; ".join(keys.problems[:_TOLD])
        more = f"; and {len(keys.problems) - _TOLD:,} more" if len(keys.problems) > _TOLD else ""
        count = f"{len(keys.problems):,} problem{'s' if len(keys.problems) > 1 else ''}"
        raise UsageError(f"{_WHAT} {shown_path(path)} cannot be used, {count}: {told}{more}. {_TRY}")
    entries = [entry.strip().rstrip(".") for entry in keys.lists[API]]
    return MergeConfig(
        tuple(dict.fromkeys(entries)), tuple(dict.fromkeys(keys.lists.get(INDEX, ()))), tuple(keys.notes)
    )


@dataclass(slots=True)
class _Keys:
    """Collects the lists of the file and everything that is wrong with it."""

    lists: dict[str, list[str]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def problem(self, line: int, text: str) -> None:
        """One more."""
        self.problems.append(f"line {line:,}: {text}")

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
                    self.problem(
                        event.start_mark.line + 1, "a second document begins; put everything into one, without '---'"
                    )
                    return
            elif isinstance(event, yaml.MappingStartEvent):
                self._take_object(events)
            elif isinstance(event, yaml.NodeEvent):
                top = self._leaf(event, events)
                if not is_null(event):
                    self.problem(top.line, f"{top.fault or 'a single text'} stands where 'api:' was expected")

    def _take_object(self, events: Iterator[Any]) -> None:
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                return
            key = self._leaf(event, events)
            value = next(events)
            if key.fault:
                self.problem(key.line, f"{key.fault} stands where a key was expected")
            elif key.text in self.lines:
                self.problem(
                    key.line, f"key {key.text!r} is given twice, first on line {self.lines[key.text]:,}; keep one"
                )
            elif key.text not in (API, INDEX):
                self.notes.append(
                    f"line {key.line:,}: key {clip(key.text)!r} has no effect; there are {API!r} and {INDEX!r}"
                )
            else:
                self.lines[key.text] = key.line
                self._take_list(key.text, value, events)
                continue
            self._leaf(value, events)

    def _take_list(self, key: str, value: Any, events: Iterator[Any]) -> None:
        taken = self.lists[key] = []
        if not isinstance(value, yaml.SequenceStartEvent):
            if not (is_null(value) and key == INDEX):
                node = self._leaf(value, events)
                self.problem(
                    node.line, f"{node.fault or 'a single text'} stands where the list of {key!r} was expected"
                )
            return
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                return
            node = self._leaf(event, events)
            if node.fault or not node.text.strip().rstrip("."):
                self.problem(node.line, f"{node.fault or 'an empty text'} stands in the list of {key!r}; write a name")
            else:
                taken.append(node.text)

    def _leaf(self, event: Any, events: Iterator[Any]) -> Node:
        """A text, or what stands in its place, read to its end."""
        node = read_node(event, events)
        if node is None:
            raise yaml.MarkedYAMLError(None, None, "lists and objects nest too deep", event.start_mark)
        return node
