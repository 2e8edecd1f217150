"""Names of the target as golden would write them, by the user's table of modules (-cm). Pure: names in, names out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

# ``{head}.{middle}.{direction}[.{number}]``. The middle is greedy: the direction that counts is the one at the end of the
# record, also where a module's path or an API's own name holds the word (``Module.forward.Net.forward.0``).
_DIRECTION: Final = "(?:forward|backward|parameters_grad)"
_RECORD: Final = rf"(?s)^(?P<head>[^.]*)(?:\.(?P<middle>.*))?\.(?P<tail>{_DIRECTION}(?:\.[^.]*)?)$"


def mapped_names(names: pl.Series, table: Mapping[str, str]) -> tuple[pl.Series, set[str]]:
    """Record names of the target brought to the names of golden (mapping.md, 3.2).

    A first component that is exactly ``Cell`` becomes ``Module``, with an empty table too. The text between the first component and
    the direction is looked up as a whole; only where that finds nothing do entries change parts of it, the longest first and those
    of one length as the table has them: a key with a dot where the text ends in it at a component boundary, any other key at its
    first occurrence. Text that an entry has put in is never looked at again.

    Parameters
    ----------
    names : polars.Series, shape (n,)
        String column of record names; names without a direction (debug saves) stay as they are.
    table : mapping of str to str
        Target text to golden text, in the order of the file. An empty value deletes; an empty key does nothing.

    Returns
    -------
    names : polars.Series, shape (n,)
        String column, same name and order.
    used : set of str
        Keys that met at least one name, also where key and value are equal.
    """
    found = names.str.extract_groups(_RECORD).struct
    middles, used = _mapped_middles(found.field("middle"), {key: value for key, value in table.items() if key})
    return (
        pl.select(
            pl.when(found.field("tail").is_null())
            .then(names)
            .otherwise(
                pl.concat_str(
                    found.field("head").replace("Cell", "Module"),
                    middles,
                    found.field("tail"),
                    separator=".",
                    ignore_nulls=True,  # a record without a middle: ``Cell.forward.0``
                )
            )
            .alias(names.name)
        ).to_series(),
        used,
    )


def _mapped_middles(middles: pl.Series, table: Mapping[str, str]) -> tuple[pl.Series, set[str]]:
    """The texts between first component and direction under the table. Each distinct text that holds a key is looked at once."""
    used: set[str] = set()
    if not table:
        return middles, used
    order = {
        key: place for place, key in enumerate(sorted(table, key=len, reverse=True))
    }  # stable: ties as in the file
    distinct = middles.drop_nulls().unique(maintain_order=True)
    held = distinct.str.extract_many(list(order), overlapping=True)
    touched = held.list.len() > 0
    before = distinct.filter(touched)
    after = []
    for middle, keys in zip(before, held.filter(touched), strict=True):
        if middle in table:
            after.append(table[middle])
            used.add(middle)
        else:
            after.append(_replace_parts(middle, sorted(set(keys), key=order.__getitem__), table, used))
    return middles.replace(before, pl.Series(after, dtype=pl.String)), used


def _replace_parts(middle: str, keys: list[str], table: Mapping[str, str], used: set[str]) -> str:
    """One text with its parts replaced; ``keys`` in the order in which they are tried."""
    pieces = [(middle, True)]  # text, and whether it is still the target's own
    for key in keys:
        for place, (text, own) in enumerate(pieces):
            if own and (start := _place_of(key, text, at_end=place == len(pieces) - 1, at_start=place == 0)) >= 0:
                end = start + len(key)
                pieces[place : place + 1] = [(text[:start], True), (table[key], False), (text[end:], True)]
                used.add(key)
                break
    return "".join(text for text, _ in pieces)


def _place_of(key: str, text: str, *, at_start: bool, at_end: bool) -> int:
    """Where a key may act in a piece of text that is the first, the last, both or neither of its name; -1 for nowhere."""
    if "." not in key:
        return text.find(key)
    start = len(text) - len(key)
    if not at_end or start < 0 or not text.endswith(key):
        return -1
    bounded = text[start - 1] == "." if start else at_start
    return start if bounded or key.startswith(".") else -1
