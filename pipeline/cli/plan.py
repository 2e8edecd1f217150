"""``opassay plan``: what a comparison would do, before a tensor is read."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from opassay.pipeline.cli.compare import what_meets_what
from opassay.pipeline.match.options import matching_of
from opassay.pipeline.read.trees import open_tree
from opassay.pipeline.run.plan import Plan, RankPair, make_plan
from opassay.pipeline.watch import logs
from opassay.pipeline.watch.logs import one_line
from opassay.schemas.errors import OpassayError
from opassay.schemas.options import CompareOptions, Matching

if TYPE_CHECKING:
    from opassay.pipeline.match.preview import Lonely, Preview
    from opassay.pipeline.run.inputs import Inputs


def run(arguments: argparse.Namespace) -> int:
    """Print the plan: steps, ranks, modes, and how the ops of each pair would meet.

    Returns
    -------
    int
        0; 2 if no pair could be read, 3 if some could not, or a part of one.

    Raises
    ------
    OpassayError
        If there is nothing to plan.
    """
    os.environ.setdefault("POLARS_MAX_THREADS", "4")
    from opassay.pipeline.run.inputs import read_inputs

    logs.setup("quiet")
    options = CompareOptions(**what_meets_what(arguments))
    matching = matching_of(options)
    trees = open_tree(options.target, "target"), open_tree(options.golden, "golden")
    plan = make_plan(*trees, shards=options.shards == "auto")
    print(f"{len(plan.pairs)} pair{'s' if len(plan.pairs) != 1 else ''} of dumps: {_counted(plan)}")
    for line in (*plan.notes, *plan.lost):
        print(f"  ! {one_line(line)}")
    lost, damaged = 0, False
    for pair in plan.pairs:
        print(f"\n{pair.name}\n  target  {pair.target}{_shards(pair)}\n  golden  {pair.golden}")
        try:
            read = read_inputs(pair, side_by_side=True)
            damaged |= read.damaged
            for line in _told(read, matching, every=arguments.every):
                print(f"  {line}")
        except OpassayError as error:
            lost += 1
            print(f"  ! cannot be compared: {one_line(str(error))}")
    if lost == len(plan.pairs):
        return 2
    return 3 if lost or damaged or plan.lost else 0


def _counted(plan: Plan) -> str:
    steps = sorted({pair.step for pair in plan.pairs if pair.step is not None})
    ranks = sorted({pair.label for pair in plan.pairs if pair.is_device}, key=lambda label: (len(label), label))
    parts = [f"{len(steps)} steps ({_some(f'step{step}' for step in steps)})"] if steps else []
    parts += (
        [f"{len(ranks)} rank{'s' * (len(ranks) > 1)} ({_some(ranks)})"]
        if ranks
        else ["two files" if len(plan.pairs) == 1 else "files"]
    )
    return ", ".join(parts)


def _some(names: Iterator[str] | list[str]) -> str:
    names = list(names)
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")


def _shards(pair: RankPair) -> str:
    return f" and {len(pair.shards)} shard{'s' * (len(pair.shards) > 1)} beside it" if pair.shards else ""


def _told(read: Inputs, matching: Matching, *, every: bool) -> Iterator[str]:
    from opassay.pipeline.match.preview import WAYS, preview

    found = preview(read.target, read.golden, matching, every=every)
    yield f"mode    {read.mode.value}"
    yield f"ops     {found.target_ops:,} target, {found.golden_ops:,} golden"
    width = max(len(f"{count:,}") for count in (*found.ways.values(), found.target_alone, found.golden_alone, 1))
    for kind, count in found.ways.items():
        yield f"  {count:>{width},}  pair {WAYS[kind]}"
    yield f"  {found.target_alone:>{width},}  of the target have no partner"
    yield f"  {found.golden_alone:>{width},}  of the golden side have no partner"
    yield f"rows    {found.rows:,} compared, of {found.target_rows:,} target and {found.golden_rows:,} golden"
    if found.fuzzy_more or found.fuzzy_other:
        yield f"-fm would {_with_fuzzy(found)}: look at its plan too"
    for line in (*read.problems, *found.warnings, *found.notes):
        yield f"! {one_line(line)}"
    for side, lonely, alone in (
        ("target", found.target_lonely, found.target_alone),
        ("golden side", found.golden_lonely, found.golden_alone),
    ):
        yield from _alone(side, lonely, alone)


def _with_fuzzy(found: Preview) -> str:
    """What ``-fm`` changes: ``pair 2 more ops, 5 with another call, and leave 1 alone that pairs now``."""
    said = [f"pair {_ops(found.fuzzy_more, ' more')}"] if found.fuzzy_more else []
    if found.fuzzy_other:
        count = f"{found.fuzzy_other:,}" if said else f"pair {_ops(found.fuzzy_other)}"
        said.append(f"{count} with another call")
    if found.fuzzy_lost:
        said.append(f"leave {found.fuzzy_lost:,} alone that pair{'s' * (found.fuzzy_lost == 1)} now")
    return " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)


def _ops(count: int, more: str = "") -> str:
    return f"{count:,}{more} op{'s' * (count != 1)}"


def _alone(side: str, lonely: Sequence[Lonely], alone: int) -> Iterator[str]:
    """The ops of a side without a partner, each with what is most like it on the other."""
    if not lonely:
        return
    yield f"{side}, without a partner, with the nearest free names of the other side:"
    for op in lonely:
        yield f"  {one_line(op.name)}"
        if op.fuzzy:
            yield f"    pairs with -fm: {one_line(op.fuzzy)}"
        for near in op.nearest:
            yield f"    ~ {one_line(near)}"
        if op.taken:
            yield "    all names like it have a partner"
    if alone > len(lonely):
        yield f"  and {alone - len(lonely):,} more; --all lists them"
