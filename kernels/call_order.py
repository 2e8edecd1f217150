"""In which order the communication of many ranks happened, as far as their own orders and their meetings tell."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

MEETING: Final = 0  # a collective: nobody goes on before every member is there
SEND: Final = 1  # never waits
RECEIVE: Final = 2  # waits for its send
LATER: Final = 3  # an asynchronous receive: waits for its send, unless nothing else moves


def layers(starts: NDArray[np.int64], event: NDArray[np.uint32], kind: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Layer of each event: the number of the wave in which it was done, where each wave takes every rank one call further.

    Parameters
    ----------
    starts : ndarray of int64, shape (ranks + 1,)
        Where each rank's calls begin in the other two arrays; the last is their length.
    event : ndarray of uint32, shape (n,)
        Event of each call, in the order in which the rank made them.
    kind : ndarray of uint8, shape (n,)
        MEETING, SEND, RECEIVE or LATER.

    Returns
    -------
    ndarray of int64, shape (events,)
        An event that comes before another on some rank has the smaller layer, unless the orders of two ranks contradict each
        other; then the lowest rank's comes first.
    """
    count = int(event.max()) + 1 if event.size else 0
    layer = np.zeros(count, np.int64)
    awaited = np.bincount(event[kind == MEETING], minlength=count)
    sent = np.bincount(event[kind == SEND], minlength=count) == 0  # nothing to wait for where there is no send
    at, end = starts[:-1].copy(), starts[1:]
    wave = 0
    while (live := np.flatnonzero(at < end)).size:
        events, kinds = event[at[live]], kind[at[live]]
        sent[events[kinds == SEND]] = True
        go = _ready(events, kinds, awaited, sent)
        if not go.any():
            go = _released(events, kinds)
            np.subtract.at(awaited, events[go & (kinds == MEETING)], 1)
        layer[events[go]] = wave
        at[live[go]] += 1
        wave += 1
    return layer


def _ready(
    events: NDArray[np.uint32], kinds: NDArray[np.uint8], awaited: NDArray[Any], sent: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    go = np.asarray(kinds == SEND) | ((kinds >= RECEIVE) & sent[events])
    meeting = kinds == MEETING
    here, place, counts = np.unique(events[meeting], return_inverse=True, return_counts=True)
    go[meeting] = (counts == awaited[here])[place]
    return go


def _released(events: NDArray[np.uint32], kinds: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Who goes on although nobody is ready: asynchronous receives, else other receives, else the lowest rank's meeting."""
    for waiting in (LATER, RECEIVE):
        if (kinds == waiting).any():
            return np.asarray(kinds == waiting)
    return np.asarray(events == events[0])
