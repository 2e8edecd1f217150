"""-f / --filter_api: of calls that agree in everything but the values of their tensors, the first one is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from opassay.pipeline.check.cases import Case

_VALUES: Final = frozenset(
    {
        "Max", "Min", "Mean", "Norm", "Max_except_inf_nan", "Min_except_inf_nan",
        "data_name", "datapath", "md5", "tensor_stat_index", "md5_index", "is_nan_index",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Filtered:
    """What is left of a list of cases.

    Attributes
    ----------
    places : list of int
        Places of the cases that are kept, in order.
    merged : dict of str to int
        Name of a kept case -> how many later ones it stands for; only those that stand for any.
    """

    places: list[int]
    merged: dict[str, int]


def keep_first(cases: Iterable[Case]) -> Filtered:
    """Drop calls that repeat an earlier one.

    Parameters
    ----------
    cases : iterable of Case
        In order; each is looked at once and not kept.

    Returns
    -------
    Filtered
        Calls agree if API, structure of the arguments, dtypes, shapes, requires_grad and values that are no tensors
        agree, and both or neither have a backward record.
    """
    first: dict[bytes, str] = {}
    places: list[int] = []
    merged: dict[str, int] = {}
    for place, case in enumerate(cases):
        name = first.setdefault(_key(case), case.name)
        if name == case.name:
            places.append(place)
        else:
            merged[name] = merged.get(name, 0) + 1
    return Filtered(places, merged)


def _key(case: Case) -> bytes:
    api = case.api or case.name  # a name that cannot be taken apart agrees with itself only
    parts = [case.kind, api, case.has_backward, _structure(case.args), _structure(case.kwargs)]
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).digest()


def _structure(value: Any) -> Any:
    """A descriptor without what depends on the values of its tensors."""
    if isinstance(value, list):
        return [_structure(item) for item in value]
    if not isinstance(value, dict):
        return value
    is_leaf = isinstance(value.get("type"), str)  # else a dictionary of named values, whose keys are the user's
    return {key: _structure(item) for key, item in value.items() if not (is_leaf and key in _VALUES)}
