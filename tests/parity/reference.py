"""The right report as a table of texts: what a tool that follows the specification would write; tests use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.parity.compare import right_mode, work_out
from tests.parity.dump import Dump
from tests.parity.oracle import print_value
from tests.parity.pairing import Matching
from tests.parity.tables import (
    DIFFERENCES,
    GOLDEN_STATISTICS,
    RELATIVES,
    TARGET_STATISTICS,
    TENSOR_METRICS,
    Cells,
    Table,
)

HEAD = tuple(
    f"{side} {what}" for what in ("Name", "Dtype", "Tensor Shape", "Requires_grad") for side in ("NPU", "Bench")
)
VERDICT = ("Requires_grad Consistent", "Result", "Err_message")


def titles(mode: str, *, stack: bool) -> list[str]:
    """Column titles of compare.md section 6 in the governing document's spelling."""
    middle = {
        "tensor": TENSOR_METRICS + TARGET_STATISTICS + GOLDEN_STATISTICS,
        "statistics": DIFFERENCES + RELATIVES + TARGET_STATISTICS + GOLDEN_STATISTICS,
        "md5": ("NPU MD5", "BENCH MD5"),
    }[mode]
    return [
        *HEAD,
        *middle,
        *VERDICT,
        *(["NPU_Stack_Info"] if stack else []),
        *(["Data_Name"] if mode == "tensor" else []),
    ]


def right_table(target: Dump, golden: Dump, matching: Matching = Matching()) -> Table:  # noqa: B008 - frozen
    """A report in which every cell is right and every rule that must fire does."""
    mode = right_mode(target, golden)
    header = titles(mode, stack=target.has_stack)
    rows = []
    for row in work_out(target, golden, mode, matching):
        firings = [f for f in row.firings[row.at] if f.sure]
        words = sorted({f.level for f in firings})
        cells: Cells = {title: _text(row.right.get(title)) for title in header}
        cells["Result"] = words[0] if words else "pass"
        cells["Err_message"] = json.dumps([f"{f.level}: {f.rule}" for f in firings])
        rows.append(cells)
    return Table(Path("right.csv"), header, rows, [])


def _text(value: Any) -> str:
    return print_value(value)
