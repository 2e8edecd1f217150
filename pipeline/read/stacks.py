"""stack.json -> the call stack of each record, as the report prints it.

A damaged file costs stacks, never the comparison.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
from opassay.pipeline.read.interning import ProblemLog, clean_text
from opassay.pipeline.read.json_text import Broken, TextWindow, TooLarge, is_utf16, open_regular
from opassay.schemas.dump_rows import DumpProblem

_NAMES_AT_A_TIME: Final = 1 << 15


@dataclass(slots=True)
class StackTable:
    """Stacks of one rank.

    Attributes
    ----------
    path : Path
        The file.
    texts : list of str
        The distinct stacks, each a printed list of lines.
    problems : list of DumpProblem
        What could not be read; kind ``stack``, never fatal.
    name_hashes : ndarray of uint64, shape (records,)
        Hashes of the record names, sorted; of equal ones the last in the file stands last.
    stack_codes : ndarray of uint32, shape (records,)
        Place of each record's stack in ``texts``.
    """

    path: Path
    texts: list[str] = field(default_factory=list)
    problems: list[DumpProblem] = field(default_factory=list)
    name_hashes: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    stack_codes: npt.NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))

    def text_for(self, names: Sequence[str]) -> list[str | None]:
        """Printed stacks of records.

        Parameters
        ----------
        names : sequence of str, length n
            Record names; a polars Series of strings is taken as it is.

        Returns
        -------
        list of str or None, length n
            None where no stack is known.
        """
        if not self.name_hashes.size:
            return [None] * len(names)
        wanted = _hashes(names)
        places = np.searchsorted(self.name_hashes, wanted, side="right").astype(np.int64) - 1
        found = (places >= 0) & (self.name_hashes[places] == wanted)
        codes = np.where(found, self.stack_codes[places].astype(np.int64), -1)
        return [self.texts[code] if code >= 0 else None for code in codes.tolist()]


def read_stacks(path: Path) -> StackTable:
    """Read a stack.json of the grouped or the older format.

    Parameters
    ----------
    path : Path
        The file; need not exist.

    Returns
    -------
    StackTable
        The stacks that could be read. Never raises for what the file holds: see ``problems``.
    """
    reader = _StackReader()
    try:
        with open_regular(path) as file:
            if is_utf16(file):
                reader.problems.add("stack", path.name, "the file is written in UTF-16, not UTF-8", fatal=False)
            else:
                reader.read(TextWindow(file))
    except OSError as error:
        reader.problems.add("stack", path.name, f"{path} cannot be read ({error.strerror})", fatal=False)
    return reader.table(path)


def _hashes(names: Sequence[str] | pl.Series) -> npt.NDArray[np.uint64]:
    series = names if isinstance(names, pl.Series) else pl.Series("name", names, dtype=pl.String)
    return series.hash().to_numpy()


class _StackReader:
    """Collects stacks; a name is kept as its hash and the number of its entry."""

    def __init__(self) -> None:
        self.problems = ProblemLog()
        self._codes: dict[str, int] = {}
        self._names: list[str] = []
        self._hash_parts: list[npt.NDArray[np.uint64]] = []
        self._entries = array("I")  # entry of each name
        self._entry_codes = array("q")  # stack of each entry, -1 where it was left out

    def read(self, window: TextWindow) -> None:
        """Take all that can be read."""
        try:
            if not window.open():
                self.problems.add("stack", "byte 0", "the file is not a JSON object; no stacks were read", fatal=False)
                return
            first = True
            while (key := window.next_key(first=first)) is not None:
                first = False
                self._entry_codes.append(-1)
                self._take_entry(key, window)
                window.mark()
        except Broken as error:
            text = f"the file is cut or damaged ({error}); the stacks before that place were read"
            self.problems.add("stack", f"byte {error.offset}", text, fatal=False)

    def table(self, path: Path) -> StackTable:
        """Everything read, names sorted by hash."""
        self._pack()
        table = StackTable(path, list(self._codes), self.problems.problems())
        if self._hash_parts:
            hashes = np.concatenate(self._hash_parts)
            codes = np.array(self._entry_codes, np.int64)[np.frombuffer(self._entries, np.uint32)]
            order = np.argsort(hashes, kind="stable")
            order = order[codes[order] >= 0]
            table.name_hashes, table.stack_codes = hashes[order], codes[order].astype(np.uint32)
        return table

    def _take_entry(self, key: str, window: TextWindow) -> None:
        """One member: ``"0": [[names], [lines]]`` or, in the older format, ``name: [lines]``."""
        if not window.open("["):
            window.skip_value()
            self.problems.add("stack", key, "an entry is not a list and was left out", fatal=False)
            return
        lines: list[Any] = []
        grouped, parts = False, 0
        while window.next_item(first=parts == 0):
            if parts == 0 and window.peek() == "[":
                grouped = True
                self._take_names(window)
            elif grouped and parts > 1:
                window.skip_value()
            else:
                lines.append(self._value(key, window))
            parts += 1
            window.mark()
        stack = lines[0] if grouped and lines else lines
        odd = parts != 2 if grouped else not all(isinstance(line, str) for line in lines)
        if odd or not isinstance(stack, list):
            self.problems.add(
                "stack",
                key,
                "an entry is neither a pair of names and lines nor a list of lines and was left out",
                fatal=False,
            )
            return
        if not grouped:
            self._add_name(key)
        self._entry_codes[-1] = self._codes.setdefault(clean_text(str(stack)), len(self._codes))

    def _take_names(self, window: TextWindow) -> None:
        window.open("[")
        first = True
        while window.next_item(first=first):
            first = False
            name = self._value("", window)
            if isinstance(name, str):
                self._add_name(name)
            window.mark()

    def _value(self, key: str, window: TextWindow) -> Any:
        try:
            return window.value()
        except TooLarge as error:
            window.skip_value()
            self.problems.add("stack", key, f"a value was left out: {error}", fatal=False)
            return None

    def _add_name(self, name: str) -> None:
        self._names.append(clean_text(name))
        self._entries.append(len(self._entry_codes) - 1)
        if len(self._names) >= _NAMES_AT_A_TIME:
            self._pack()

    def _pack(self) -> None:
        """Turn collected names into hashes."""
        if self._names:
            self._hash_parts.append(_hashes(self._names))
            self._names = []
