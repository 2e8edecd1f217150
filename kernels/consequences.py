"""What follows from an op that is wrong already, though its own inputs agree: a module around it, the backward of its forward.

Pure: names in, answers out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_MODULE: Final = re.compile(r"^((?:Module|Cell)(?:\..+)?)\.[^.]+\.(forward|backward)\.\d+$")
_API_BACKWARD: Final = re.compile(r"^(.+)\.(\d+)\.backward$")
_MODULE_BACKWARD: Final = re.compile(r"^(.+)\.backward\.(\d+)$")


class Consequences:
    """Ops of one rank that differ, told one after the other in execution order.

    A module's record stands behind those of its children, and its inputs were taken before they ran: where a child is wrong the
    module looks as if it had added the error itself. The backward of a call uses values of its forward that its own record does
    not hold.

    Parameters
    ----------
    parents : mapping of str to str
        Record name -> name of the module around it, where it is known.
    """

    def __init__(self, parents: Mapping[str, str]) -> None:
        self._parents = parents
        self._around: set[tuple[str, str]] = set()  # (module path, direction), and ("", name) of modules known by name
        self._wrong: set[str] = set()

    def follows(self, name: str) -> bool:
        """Whether an op's difference is explained by one told before."""
        found = _MODULE.match(name)
        inside = ("", name) in self._around or (found is not None and (found[1], found[2]) in self._around)
        return inside or forward_of(name) in self._wrong

    def tell(self, name: str) -> None:
        """An op that differs."""
        self._wrong.add(name)
        if found := _MODULE.match(name):
            path, direction = found[1], found[2]
            while "." in path:
                path = path.rpartition(".")[0]
                self._around.add((path, direction))
        parent = self._parents.get(name)
        while parent is not None and ("", parent) not in self._around:
            self._around.add(("", parent))
            parent = self._parents.get(parent)


def forward_of(name: str) -> str:
    """Name of the forward of a backward record, "" for other records."""
    if found := _API_BACKWARD.match(name):
        return f"{found[1]}.{found[2]}.forward"
    found = _MODULE_BACKWARD.match(name)
    return f"{found[1]}.forward.{found[2]}" if found else ""
