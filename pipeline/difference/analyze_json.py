"""``diff_analyze_{timestamp}.json``: the answer of ``-da`` with the documented keys, and what stands behind it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opassay.kernels.first_difference import FirstDifference, Node, Origin
from opassay.pipeline.difference.search import reason_of
from opassay.pipeline.report.files import WholeFile, result_path
from opassay.schemas.op_facts import RankFacts


def write_analysis(
    folder: Path, stamp: str, first: FirstDifference, ranks: Sequence[RankFacts], *, most_independent: int = 20
) -> Path:
    """Write the answer.

    Parameters
    ----------
    folder : Path
        Where results go; exists.
    stamp : str
        Timestamp of the run.
    first : FirstDifference
        The answer; not empty.
    ranks : sequence of RankFacts
        What it rests on.
    most_independent : int
        Later independent differences to list.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    details = {(facts.rank, facts.label): facts.details for facts in ranks}
    document: dict[str, Any] = {}
    for node in first.nodes:
        document.setdefault(f"rank_{node.rank}", []).append(_entry(node, details))
    if first.independent:
        document["independent"] = [_short(node) for node in first.independent[:most_independent]]
    with WholeFile(result_path(folder, "diff_analyze", ".json", stamp)) as file:
        file.write(json.dumps(document, indent=2, allow_nan=False).encode())
    return file.path


def _entry(node: Node, details: dict[tuple[int, str], dict[int, dict[str, Any]]]) -> dict[str, Any]:
    """Documented keys first: op_name, data_info, stack_info."""
    rows: dict[str, Any] = {"input": {}, "output": {}, "stack": None}
    if node.origin is not Origin.MISSING:
        rows = details[node.rank, node.label].get(node.op, rows)
    first, _, rest = node.name.partition(".")
    return {
        "op_name": node.name,
        "data_info": {"input": rows["input"], "output": rows["output"]},
        "stack_info": rows["stack"],
        "op_type": first if rest else node.name,
        **_standing(node),
        "input_gap": _finite(node.input_gap),
        "output_gap": _finite(node.output_gap),
    }


def _short(node: Node) -> dict[str, Any]:
    return {"rank": node.rank, "op_name": node.name, **_standing(node)}


def _standing(node: Node) -> dict[str, Any]:
    """Where an op stands and why it counts."""
    return {
        "row": node.row,
        "reason": reason_of(node),
        "origin": node.origin.value,
        "stage": node.stage.value,
        "layer": node.layer,
        "sub_layer": node.sub_layer,
    }


def _finite(gap: float | None) -> float | str | None:
    """JSON knows no infinity."""
    return gap if gap is None or math.isfinite(gap) else str(gap)
