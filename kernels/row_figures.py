"""What a row says in figures, for the reason of an answer: measured figures only, else what is different about the row."""

from __future__ import annotations

from typing import Final

import polars as pl
from opassay.kernels.phrases import phrase
from opassay.kernels.rules import percent, short
from opassay.schemas.vocab import DumpMode, RowKind

_STATS: Final = ("max", "min", "mean", "norm")
_SIDES: Final = ("target", "golden")

col = pl.col


def figures(mode: DumpMode) -> pl.Expr:
    """What differs at a row of the target: a checksum, a shape, a scalar, figures that were measured; null where nothing was.

    Parameters
    ----------
    mode : DumpMode
        What was compared; the columns are those of ``pipeline.judge.Judging.slices``.
    """
    shape = phrase("shape {} against {}", *(col(f"{side}_shape").replace("", "None") for side in _SIDES))
    measured = {
        DumpMode.MD5: phrase("checksum {} against {}", col("target_md5"), col("golden_md5")),
        DumpMode.TENSOR: _of_tensors(),
        DumpMode.STATISTICS: _of_statistics(),
    }[mode]
    is_tensor = {side: col(f"{side}_kind") == RowKind.TENSOR for side in _SIDES}
    values = {side: col(f"{side}_value").fill_null("None") for side in _SIDES}
    kinds = [pl.when(is_tensor[side]).then(pl.lit("a tensor")).otherwise(values[side]) for side in _SIDES]
    form = (
        pl.when(is_tensor["target"] != is_tensor["golden"]).then(phrase("{} against {}", *kinds))
        .when("is_scalar").then(phrase("{} against {}", *values.values()))
        .when(col("shape_differs") & (mode is not DumpMode.MD5)).then(shape)
    )  # fmt: skip
    alone = pl.when("is_input").then(pl.lit("only the target has this input")).otherwise(
        pl.lit("only the target has this output")
    )  # fmt: skip
    by_sum = measured if mode is DumpMode.MD5 else pl.lit(None, pl.String)
    return pl.when(col("paired")).then(pl.coalesce(by_sum, form, measured)).otherwise(alone)


def _of_tensors() -> pl.Expr:
    lost = phrase(
        "{} nan and {} infinities that the other side does not share",
        col("nan_mismatch"),
        col("inf_mismatch"),
    )
    near = phrase(
        "{} of the elements within a thousandth, MaxAbsErr {}", percent(col("thousandth")), short(col("error_max"))
    )
    return pl.when((col("nan_mismatch") + col("inf_mismatch")) > 0).then(lost).otherwise(near)


def _of_statistics() -> pl.Expr:
    """The statistics that both sides know."""

    def shown(side: str, stat: str) -> pl.Expr:
        known = pl.when(col(f"{side}_{stat}_text") != "None").then(col(f"{side}_{stat}_text"))
        return pl.coalesce(short(col(f"{side}_{stat}_number")), known)

    stats = [phrase(f"{stat} {{}} against {{}}", *(shown(side, stat) for side in _SIDES)) for stat in _STATS]
    return pl.concat_str(stats, separator=", ", ignore_nulls=True).replace("", None)
