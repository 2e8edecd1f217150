"""``-tensor_log``: two log lines for every row of a tensor comparison, in row order; a golden-only row has the golden name."""

from __future__ import annotations

import json
import logging

import polars as pl
from opassay.pipeline.report.layout import NA
from opassay.schemas.headers import TENSOR_METRICS
from opassay.schemas.vocab import MetricState

LOGGER = logging.getLogger("opassay")


def log_rows(judged: pl.DataFrame, shown: pl.DataFrame) -> None:
    """Log one slice.

    Parameters
    ----------
    judged : polars.DataFrame
        Judged rows, for their state.
    shown : polars.DataFrame
        Their report cells.
    """
    measured = (int(MetricState.COMPUTED), int(MetricState.ONE_ELEMENT))
    name = pl.when(pl.col("target_name") == NA).then("golden_name").otherwise("target_name")
    metrics = shown.select(name, *TENSOR_METRICS, "message").iter_rows()
    for state, (name, *cells) in zip(judged["state"], metrics, strict=True):
        *figures, message = cells
        LOGGER.info("compare: %s", name)
        told = (
            [f"{title} {figure}" for title, figure in zip(TENSOR_METRICS.values(), figures, strict=True)]
            if state in measured
            else []
        )
        reasons = json.loads(message)
        LOGGER.info("[%s] %s", name, ", ".join([*told, *reasons]) or "no tensor data")
