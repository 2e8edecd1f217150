"""The search over ranks, and its words: which op first, where it stands, and why."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from opassay.kernels.call_events import join_calls
from opassay.kernels.first_difference import FirstDifference, Node, Origin, Stage, find_first
from opassay.kernels.op_facts import CLEAN, LACKS
from opassay.kernels.rules import RULES
from opassay.pipeline.report.summary import FirstOp
from opassay.schemas.op_facts import RankFacts

MOST = 5  # ops of an answer that a panel shows

NOT_OF_NUMBERS = "nothing that was compared differs"
"""How the reason of an answer begins that is no difference of numbers: ops or outputs of one side, dtypes."""

WHY = {
    Origin.ADDED: "its inputs agree, its output does not",
    Origin.COMMUNICATION: "communication fault: what the ranks gave agrees, what this rank got does not",
    Origin.GIVEN: "this rank gives other values into the communication, and no earlier op of it shows where they come from",
    Origin.WEIGHT: "its weight differs, and no other input of it does",
    Origin.INHERITED: "its inputs differ already, and nothing before it in the dump says why",
    Origin.UNSEEN: "what went into it is not in the dump, and nothing before it differs",
    Origin.INPUTLESS: "no op with inputs differs before it",
    Origin.DTYPE: f"{NOT_OF_NUMBERS} but the dtype",
    Origin.ALONE: f"{NOT_OF_NUMBERS}; the golden side does not have it",
    Origin.MISSING: f"{NOT_OF_NUMBERS}; the golden side has it, the target does not",
}
"""Reason of a node by its origin."""

_OF_OUTPUT = (
    Origin.ADDED,
    Origin.COMMUNICATION,
    Origin.UNSEEN,
)  # origins whose row is an output, which a rule may judge
_OF_NUMBERS = frozenset(rule.name for rule in RULES if not (rule.formal or rule.always))
_LEVELS = {"error": 0, "warning": 1}

WHERE = {
    Stage.BEFORE: "before any communication",
    Stage.DURING: "between or in communications",
    Stage.AFTER: "after the last communication",
}


def first_difference(ranks: Sequence[RankFacts]) -> FirstDifference:
    """Search all ranks of one step.

    Parameters
    ----------
    ranks : sequence of RankFacts
        In any order. Ranks of one number are processes that know no rank (``proc4242``): no communication joins them, and each
        has its own answer.
    """
    held = Counter(facts.rank for facts in ranks)
    joined = [facts for facts in ranks if held[facts.rank] == 1 or not facts.label.startswith("proc")]
    alone = [[facts] for facts in ranks if not any(facts is one for one in joined)]
    first, rest = [], []
    for group in sorted(filter(None, [joined, *alone]), key=lambda group: (len(group[0].label), group[0].label)):
        events = join_calls({facts.rank: facts.calls for facts in group})
        found = find_first(sorted(group, key=lambda facts: facts.rank), events)
        labels = {facts.rank: facts.label for facts in group}
        first += [replace(node, label=labels[node.rank]) for node in found.nodes]
        rest += [replace(node, label=labels[node.rank]) for node in found.independent]
    return FirstDifference(tuple(first), tuple(rest))


def told(
    first: FirstDifference,
    ranks: Sequence[RankFacts],
    labels: Mapping[int, str],
    sources: Mapping[tuple[int, str], str],
    most: int = MOST,
) -> list[FirstOp]:
    """The answer as the closing panel shows it: the first op, then the next independent ones, ranks that share an op together.

    Parameters
    ----------
    first : FirstDifference
        The answer.
    ranks : sequence of RankFacts
        What it rests on.
    labels : mapping of int to str
        What ranks are called; empty where there is one device only.
    sources : mapping of (int, str) to str
        Line of the user's code by rank and op.
    most : int
        Ops to show.
    """
    talking = {facts.rank for facts in ranks if facts.calls.height}
    shown: dict[tuple[str, Origin], FirstOp] = {}
    for node in (*first.nodes, *first.independent):
        key = node.name, node.origin
        label = labels.get(node.rank)
        if label and node.label.startswith("proc"):
            label = "/".join([*label.split("/")[:-1], node.label])
        if key in shown:
            known = shown[key]
            if label and known.rank and label not in known.rank.split(", "):
                shown[key] = replace(known, rank=f"{known.rank}, {label}")
        elif len(shown) < most:
            shown[key] = FirstOp(
                node.row,
                reason_of(node),
                WHERE[node.stage] if node.rank in talking else "",
                label,
                sources.get((node.rank, node.name), ""),
                node in first.nodes,
                of_numbers(node),
            )
    return list(shown.values())


def of_numbers(node: Node) -> bool:
    """Whether numbers differ there, not only which ops, outputs or dtypes the two sides have."""
    return node.origin not in (Origin.DTYPE, Origin.ALONE, Origin.MISSING) and node.figures != LACKS


def reason_of(node: Node) -> str:
    """Why a node is an answer: its origin, what its row's rules or figures say, and what stands beside it."""
    if node.figures == LACKS:
        return f"{NOT_OF_NUMBERS}; {LACKS}"
    why = WHY[node.origin]
    if node.origin in (Origin.ALONE, Origin.MISSING):
        return why
    if node.origin is Origin.ADDED and (node.input_gap or 0.0) > CLEAN:
        why = "its output differs far more than its inputs"
    rules = {"dtype"} if node.origin is Origin.DTYPE else _OF_NUMBERS
    texts = json.loads(node.message)
    told = _gravest(texts, rules) or node.figures
    reason = f"{why}: {told}" if told else why
    if node.origin in _OF_OUTPUT and not any(_level(text) in _LEVELS for text in texts):
        reason = f"{reason}; no rule of the report judges this row"
    return f"{reason}; {node.hint}" if node.hint else reason


def _gravest(texts: Sequence[str], rules: Collection[str]) -> str:
    """The gravest message of some rules, the first of several, without its level; "" for none."""
    chosen = [text for text in texts if _level(text) in _LEVELS and text.rpartition("[")[2].rstrip("]") in rules]
    return min(chosen, key=lambda text: _LEVELS[_level(text)], default="").partition(": ")[2]


def _level(text: str) -> str:
    return text.partition(":")[0]
