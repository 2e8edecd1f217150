"""Claims about a call -> its verdict: what was verified, pass, warning or error, and the worst reasons."""

from __future__ import annotations

from typing import Final

import polars as pl
from opassay.kernels.phrases import phrase
from opassay.kernels.promises import BROKEN, CLAIMS, CONSISTENT, EQUAL, HELD, REDUCED, ROUNDING, UNKNOWN

_TOLD: Final = 3  # reasons in a message
_RANKS: Final = 8  # ranks that a reason names


def with_values(claims: pl.DataFrame, computed: pl.DataFrame) -> pl.DataFrame:
    """Claims about reductions by statistics give way to those by values, and outputs that differ between ranks are within
    rounding where each of them is the reduction of the inputs.

    Parameters
    ----------
    claims : polars.DataFrame
        ``CLAIMS``.
    computed : polars.DataFrame
        ``CLAIMS`` of reductions that were computed.
    """
    outputs = computed.select("event").unique()
    left = claims.filter(pl.col("what") != REDUCED)
    by_figures = claims.filter(pl.col("what") == REDUCED)
    by_figures = by_figures.join(computed, on=["event", "rank"], how="anti", maintain_order="left")
    together = pl.col("rank").is_null() & pl.col("event").is_in(outputs["event"].implode())
    every = pl.concat([left, by_figures.filter(~together), computed])
    every = _blamed(every)
    proved = (
        every.filter(pl.col("what") == REDUCED)
        .group_by("event")
        .agg(proved=((pl.col("state") == HELD) & (pl.col("how") == "values")).all())
    )
    every = every.join(proved, on="event", how="left", maintain_order="left")
    soft = (pl.col("what") == EQUAL) & (pl.col("state") == BROKEN) & pl.col("proved").fill_null(False)
    return every.with_columns(
        state=pl.when(soft).then(pl.lit(ROUNDING, pl.UInt8)).otherwise("state"),
        why=pl.when(soft).then(pl.col("why") + " (both are the reduction within rounding)").otherwise("why"),
    ).select(*CLAIMS)


def _blamed(claims: pl.DataFrame) -> pl.DataFrame:
    """Without claims that an output differs from one that is no reduction, though it is one itself: the other has its own claim."""
    states = claims.filter(pl.col("what") == REDUCED).group_by("event", "rank").agg(own=pl.col("state").max())
    of_other = states.rename({"rank": "other", "own": "others"})
    judged = claims.join(states, on=["event", "rank"], how="left", maintain_order="left")
    judged = judged.join(of_other, on=["event", "other"], how="left", maintain_order="left")
    innocent = (pl.col("what") == EQUAL) & (pl.col("own") == HELD) & (pl.col("others") == BROKEN)
    return judged.filter(~innocent.fill_null(False)).select(*CLAIMS)


def verdicts(events: pl.DataFrame, claims: pl.DataFrame) -> pl.DataFrame:
    """One row an event: what was verified, its verdict, and why.

    Parameters
    ----------
    events : polars.DataFrame
        ``call_events.EVENTS``.
    claims : polars.DataFrame
        All ``CLAIMS`` about them.

    Returns
    -------
    polars.DataFrame
        ``event``, ``verified`` (promises that could be told, and on what), ``result`` (pass, warning, error), ``message`` (the
        three worst reasons and how many more; "" for pass). An event of which nothing but its calls could be verified is a
        warning.
    """
    told = pl.col("state").is_in([HELD, ROUNDING, BROKEN])
    what = pl.when(told).then(phrase("{} ({})", pl.col("what"), pl.col("how")))
    claims = claims.with_columns(what_told=what, why=pl.col("why").fill_null("not verified"))
    found = claims.group_by("event").agg(
        verified=pl.col("what_told").drop_nulls().unique().sort().str.join("; "),
        worst=pl.col("state").max(),
        proved=(told & (pl.col("what") != CONSISTENT)).any(),
    )
    found = found.join(_reasons(claims), on="event", how="left")
    more = pl.col("reasons").list.len().cast(pl.Int64) - _TOLD
    nothing = ~pl.col("proved") & (pl.col("worst") < UNKNOWN)
    return (
        events.select("event").unique().sort("event")
        .join(found, on="event", how="left", maintain_order="left")
        .select(
            "event",
            pl.col("verified").fill_null(""),
            result=pl.when(pl.col("worst") == BROKEN).then(pl.lit("error"))
            .when((pl.col("worst") >= ROUNDING) | nothing).then(pl.lit("warning"))
            .otherwise(pl.lit("pass")),
            message=pl.when(nothing).then(pl.lit("nothing in the dump to verify it on"))
            .otherwise(pl.col("reasons").list.head(_TOLD).list.join("; ")
                       + pl.when(more > 0).then(phrase("; and {} more", more)).otherwise(pl.lit(""))),
        )
    )  # fmt: skip


def _reasons(claims: pl.DataFrame) -> pl.DataFrame:
    """``reasons`` of each event, worst first, those about the call before those about its outputs; one for ranks that share it."""
    odd = claims.filter(pl.col("state") != HELD).with_columns(
        level=-pl.col("state").cast(pl.Int8), later=pl.col("what") != CONSISTENT
    )
    shared = (
        odd.sort("event", "level", "later", "rank", "part", maintain_order=True, nulls_last=True)
        .group_by("event", "level", "later", "why", maintain_order=True)
        .agg(ranks=pl.col("rank").drop_nulls().unique().sort())
    )
    count, names = (
        pl.col("ranks").list.len(),
        pl.col("ranks").list.head(_RANKS).cast(pl.List(pl.String)).list.join(", "),
    )
    more = pl.when(count > _RANKS).then(phrase(" and {} more", count.cast(pl.Int64) - _RANKS)).otherwise(pl.lit(""))
    whose = (
        pl.when(count == 0).then(pl.lit(""))
        .when(count == 1).then(phrase("rank {}: ", names))
        .otherwise(phrase("ranks {}{}: ", names, more))
    )  # fmt: skip
    return shared.group_by("event", maintain_order=True).agg(reasons=whose + pl.col("why"))
