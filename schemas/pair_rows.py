"""The second table: a target row beside a golden row, and how they were matched. Rows refer to the two DumpTables by number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

PAIR_ROWS: Final[Mapping[str, pl.DataType]] = {
    "target_row": pl.UInt32(),  # row number in target.rows; null for a golden-only row
    "golden_row": pl.UInt32(),  # row number in golden.rows; null for a target-only row
    "group": pl.UInt32(),  # rows of one record: the target's op number, or target op count + golden op number
    "match": pl.UInt8(),  # vocab.MatchKind
}
"""Target order first (decision: the target's rows in the target's order), golden-only rows after them in golden order."""
