"""The search as tests use it: two dumps in, the answer out, without the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from opassay.kernels.first_difference import FirstDifference, Node
from opassay.pipeline.difference.search import first_difference
from opassay.pipeline.match.options import matching_of
from opassay.pipeline.read.trees import open_tree
from opassay.pipeline.run.budget import Budget
from opassay.pipeline.run.compare import run_plan
from opassay.pipeline.run.plan import make_plan
from opassay.pipeline.run.pool import Pool
from opassay.schemas.op_facts import RankFacts
from opassay.schemas.options import CompareOptions


def facts_of_ranks(target: Path, golden: Path, output: Path, **options: Any) -> list[RankFacts]:
    """What each rank contributes."""
    chosen = CompareOptions(target, golden, output, **options)
    plan = make_plan(open_tree(target, "target"), open_tree(golden, "golden"))
    outcomes = run_plan(
        plan, chosen, matching=matching_of(chosen), stamp="20260101000000", pool=Pool(1), budget=Budget(4 << 30, 1)
    )
    facts = []
    for outcome in outcomes:
        assert outcome.facts is not None, outcome.error
        facts.append(outcome.facts)
    return facts


def search(target: Path, golden: Path, output: Path, **options: Any) -> FirstDifference:
    """The answer."""
    return first_difference(facts_of_ranks(target, golden, output, **options))


def told(node: Node) -> tuple[int, str, str, str]:
    """What a node says, in short."""
    return node.rank, node.name, node.origin.value, node.stage.value


def only(folder: Path, pattern: str) -> Any:
    """The content of the only JSON file of that name, read strictly."""
    (path,) = folder.rglob(pattern)
    return strict(path)


def strict(path: Path) -> Any:
    """A JSON file that holds nothing but JSON: no NaN, no infinity, no key twice."""

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is no JSON")

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in found}) == len(found), "a key twice"
        return dict(found)

    return json.loads(path.read_bytes().decode("utf-8"), parse_constant=refuse, object_pairs_hook=pairs)
