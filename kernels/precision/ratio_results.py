"""From judged outputs to one row for each call: forward and backward verdict (accuracy_checker.md 8.4)."""

from __future__ import annotations

from typing import Final

import polars as pl
from opassay.kernels.precision.ratio_rows import UNSUPPORTED
from opassay.schemas.check_rows import BLANK, Status
from opassay.schemas.precision_rows import COMPARED_RESULT

TOPK: Final = (
    "在npu上，topk的入参sorted=False时不生效，会返回有序tensor，而cpu上会返回无序tensor。"
    " 如果topk精度不达标，请检查是否是该原因导致的。"
)
"""What the result row of a topk whose forward verdict is an error says."""

_GRAVEST: Final = (Status.ERROR.value, Status.WARNING.value, Status.PASS.value, Status.SKIP.value)


def results(rows: pl.DataFrame) -> pl.DataFrame:
    """Put the outputs of each call together.

    Parameters
    ----------
    rows : polars.DataFrame
        What ``compare_rows`` gives.

    Returns
    -------
    polars.DataFrame
        The columns of ``COMPARED_RESULT`` as String, ``message`` null where there is none. A call stands where its rows first
        end; a row that could not be read or measured stands for itself, under its whole name, where it is in the file.

    Notes
    -----
    Rows of dtypes that are not compared count only where a call has no others; rows of a name that was there already do not
    count at all. SKIP rows beside others change nothing.
    """
    alone = rows.filter(pl.col("kind") == "alone").select(
        "name",
        forward=pl.lit(Status.SKIP.value),
        backward=pl.lit(Status.SKIP.value),
        message="message",
        place=pl.col("index").cast(pl.Int64),
    )
    part = rows.filter(~pl.col("kind").is_in(["alone", "repeated"])).with_columns(
        counts=pl.col("kind") != "unsupported", run=pl.col("call").rle_id(), place=pl.col("index").cast(pl.Int64)
    )
    starts = part.group_by("run", maintain_order=True).agg(ends=pl.col("place").min())
    ends = starts.select(run=pl.col("run"), ends=pl.col("ends").shift(-1).fill_null(rows.height))
    part = part.join(ends, on="run", how="left", maintain_order="left")
    calls = part.group_by("call", maintain_order=True).agg(
        _verdict("forward").alias("forward"),
        _verdict("backward").alias("backward"),
        supported=pl.col("counts").any(),
        api=pl.col("api").first(),
        skipped=pl.col("message").filter(_counted("forward") & (pl.col("verdict") == Status.SKIP.value)).last(),
        place=pl.col("ends").min(),
    )
    calls = calls.with_columns(
        *(
            pl.when("supported").then(pl.col(side).fill_null(BLANK)).otherwise(pl.lit(Status.SKIP.value)).alias(side)
            for side in ("forward", "backward")
        ),
        message=pl.when(~pl.col("supported")).then(pl.lit(UNSUPPORTED))
        .when((pl.col("api") == "topk") & (pl.col("forward") == Status.ERROR.value)).then(pl.lit(TOPK))
        .when(pl.col("forward") == Status.SKIP.value).then("skipped"),
    ).select(pl.col("call").alias("name"), "forward", "backward", "message", "place")  # fmt: skip
    return pl.concat([calls, alone]).sort("place", maintain_order=True).select(list(COMPARED_RESULT))


def _counted(direction: str) -> pl.Expr:
    return pl.col("counts") & (pl.col("direction") == direction)


def _verdict(direction: str) -> pl.Expr:
    """The gravest word of a direction's rows; null where there are none."""
    words = pl.col("verdict").filter(_counted(direction))
    verdict = pl.lit(None, pl.String)
    for word in reversed(_GRAVEST):
        verdict = pl.when((words == word).any()).then(pl.lit(word)).otherwise(verdict)
    return verdict
