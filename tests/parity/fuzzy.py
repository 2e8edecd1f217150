"""Fuzzy match (mapping.md 1): the alignment that the specification asks for, and the two queues that the incumbent runs instead."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Sequence

from tests.parity.dump import Dump, DumpRow, operator_and_index

MATCH, MARK, NAME = 1 << 40, 1 << 20, 1  # a pair, then one of equal structure, then one of equal name
FLOATS = frozenset(("torch.float16", "torch.float32", "torch.float64", "torch.bfloat16"))

Score = list[list[int]]


def fuzzy_key(record: str) -> str:
    """The record's name without its call index; single-point saves count calls before their last component."""
    return re.sub(r"\.\d+\.debug$", ".debug", operator_and_index(record)[0])


def _marks(dump: Dump) -> dict[str, tuple[tuple[str, str], ...]]:
    """Slots and shapes of every record."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in dump.rows:
        found[row.record].append((row.slot, row.shape))
    return {record: tuple(sorted(rows)) for record, rows in found.items()}


def pair_scores(target: Dump, golden: Dump) -> Score:
    """What pairing each target record with each golden record is worth; 0 where their keys differ."""
    keys = [[fuzzy_key(r) for r in dump.records] for dump in (target, golden)]
    marks = [_marks(dump) for dump in (target, golden)]
    return [
        [
            0
            if keys[0][i] != keys[1][j]
            else MATCH + MARK * (marks[0].get(one, ()) == marks[1].get(other, ())) + NAME * (one == other)
            for j, other in enumerate(golden.records)
        ]
        for i, one in enumerate(target.records)
    ]


def align(score: Score) -> tuple[int, list[tuple[int, int]]]:
    """The best order-preserving pairing by a plain dynamic programme, and what it is worth.

    Among the longest one with the most pairs of equal structure, then of equal names; what is still equal falls as the walk
    back finds it.
    """
    rows, columns = len(score), len(score[0]) if score else 0
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            both = score[i][j] + best[i + 1][j + 1] if score[i][j] else 0
            best[i][j] = max(best[i + 1][j], best[i][j + 1], both)
    pairs, i, j = [], 0, 0
    while i < rows and j < columns:
        if score[i][j] and best[i][j] == score[i][j] + best[i + 1][j + 1]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return best[0][0], pairs


def aligned_records(target: Dump, golden: Dump, shown: Sequence[tuple[str, str]] = ()) -> dict[str, str]:
    """Target record -> golden record.

    Parameters
    ----------
    target, golden : Dump
        The two sides, records in execution order.
    shown : sequence of (str, str)
        Row names of a report that pair there. Several alignments can be equally good: the report's own is taken if it preserves
        the order, pairs equal keys only, and is worth as much as the best.
    """
    score = pair_scores(target, golden)
    worth, pairs = align(score)
    places = [{r: n for n, r in enumerate(dump.records)} for dump in (target, golden)]
    records = [{row.name: row.record for row in dump.rows} for dump in (target, golden)]
    told = sorted(
        {
            (places[0][records[0][one]], places[1][records[1][other]])
            for one, other in shown
            if one in records[0] and other in records[1]
        }
    )
    rising = all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(told))
    # Records without rows show in no report: they may be lacking.
    loud = {row.record for row in target.rows}
    silent = sum(score[i][j] for i, j in pairs if target.records[i] not in loud)
    if rising and all(score[i][j] for i, j in told) and sum(score[i][j] for i, j in told) >= worth - silent:
        pairs = told
    return {target.records[i]: golden.records[j] for i, j in pairs}


def _queue_key(name: str) -> str:
    """A row's name without what the incumbent takes for the call index, whether it is one or not."""
    found = re.search("forward|backward", name)
    if found is None:
        return name
    return ".".join(name[: found.start()].split(".")[:-2]) + "|" + name[found.start() :]


def _meet(one: DumpRow, other: DumpRow) -> bool:
    return _queue_key(one.name) == _queue_key(other.name) and (
        one.dtype == other.dtype or {one.dtype, other.dtype} <= FLOATS
    )


def queued_partners(target: Dump, golden: Dump) -> dict[str, str]:
    """The golden name that the incumbent puts beside each target row that it pairs at all (mapping.md 1.1)."""
    ours: list[DumpRow] = []
    theirs: list[DumpRow] = []
    partners = {}
    for at in range(max(len(target.rows), len(golden.rows))):
        ours += target.rows[at : at + 1]
        theirs += golden.rows[at : at + 1]
        if not ours or not theirs:
            continue
        hits = [(len(ours) - 1, j) for j, row in enumerate(theirs) if _meet(ours[-1], row)]
        hits += [(i, len(theirs) - 1) for i, row in enumerate(ours) if _meet(row, theirs[-1])]
        if hits:
            i, j = hits[0]
            partners[ours[i].name] = theirs[j].name
            ours, theirs = ours[i + 1 :], theirs[j + 1 :]
    return partners
