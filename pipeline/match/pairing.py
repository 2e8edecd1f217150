"""Third station, its front door: two DumpTables -> the rows that meet, by whichever way the user asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl
from opassay.pipeline.match.named import redirect
from opassay.pipeline.match.ops import pair_ops
from opassay.pipeline.match.slots import pair_slots
from opassay.schemas.dump_rows import DumpTable
from opassay.schemas.options import BY_NAME, Matching


@dataclass(slots=True)
class Pairing:
    """Outcome of matching.

    Attributes
    ----------
    target, golden : DumpTable
        The sides that ``rows`` refers to: those given, or tables with joined rows made of them.
    rows : polars.DataFrame
        Schema ``PAIR_ROWS``.
    notes : list of str
        How ops were matched and which do not count by design, for the log.
    warnings : list of str
        What the user should look at: lines of a mapping that did nothing, what could not be told.
    """

    target: DumpTable
    golden: DumpTable
    rows: pl.DataFrame
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def pair_dumps(target: DumpTable, golden: DumpTable, matching: Matching = BY_NAME) -> Pairing:
    """Match two dumps.

    Parameters
    ----------
    target, golden : DumpTable
        The two sides.
    matching : Matching
        How ops and rows may meet; equal names where nothing is said.

    Returns
    -------
    Pairing
        Every target row exactly once; every golden row that met none behind them (between them for training against inference).
    """
    if matching.backend is not None:
        from opassay.pipeline.match.train_infer import pair_train_infer

        found = pair_train_infer(target, golden, matching.backend)
        notes = [found.left_out] if found.left_out else []
        return Pairing(found.target, found.golden, found.rows, notes, found.notes)
    ops = pair_ops(target, golden, matching)
    rows = pair_slots(target, golden, ops.frame)
    warnings = ops.warnings
    if matching.data_mapping is not None:
        rows, odd = redirect(rows, target, golden, ops.frame, matching.data_mapping)
        warnings = warnings + odd
    return Pairing(target, golden, rows, ops.notes, warnings)
