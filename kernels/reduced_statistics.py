"""Reductions and concatenations as four statistics show them: sums of means, greatest maxima, roots of sums of squares.

Statistics cannot prove a reduction; they can refute it. What they agree on is held, and the claim says that it was by statistics.
"""

from __future__ import annotations

import polars as pl
from opassay.kernels.phrases import phrase
from opassay.kernels.promises import BROKEN, HELD, INTO, JOINED, REDUCED, REDUCING, SCATTERING, UNKNOWN, tolerance
from opassay.schemas.vocab import RowKind

_ROUNDINGS = 8  # that a statistic, computed in the tensor's own dtype, brings on top of the reduction's


def reductions(events: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """Claims that outputs are the reduction of the inputs, by statistics.

    Parameters
    ----------
    events, pieces : polars.DataFrame
        As for ``promises.copies``.

    Returns
    -------
    polars.DataFrame
        ``event``, ``rank`` (null for reduce_scatter_tensor, whose outputs are judged together), ``what``, ``how``, ``state``,
        ``why``, ``row``.
    """
    calls = events.filter(pl.col("role") == "collective").select(
        "event", "rank", "op", "reduce", "root", "place", size=pl.len().over("event")
    )
    made = pieces.filter(pl.col("api").is_in(list(REDUCING))).join(
        calls, on=["event", "rank", "op"], how="inner", suffix="_call", maintain_order="left"
    )
    scattered = pl.col("api").is_in([*SCATTERING])
    sent = made.filter(pl.col("side") == "sent").with_columns(target=_target())
    inputs = sent.group_by("event", "target", maintain_order=True).agg(_summed())
    got = made.filter(
        (pl.col("side") == "got") & ((pl.col("api") != "reduce") | (pl.col("rank") == pl.col("root")))
    ).with_columns(
        target=pl.when(pl.col("api") == "reduce_scatter").then("place").otherwise(0),
        judged=pl.when(~scattered).then("rank"),
    )
    results = got.group_by("event", "judged", "target", maintain_order=True).agg(
        pl.col("row").first(), pl.col("reduce").first(), pl.col("size").first(), pl.col("dtype").first(), *_together(),
        apart=pl.col("api").first().is_in(list(SCATTERING)), outputs=pl.len(),
    )  # fmt: skip
    both = results.join(inputs, on=["event", "target"], how="left", maintain_order="left")
    return _judged_reductions(both).select(
        "event", pl.col("judged").alias("rank"), what=pl.lit(REDUCED), how="how", state="state", why="why", row="row"
    )


def _target() -> pl.Expr:
    """Which output an input goes into: part r of a reduce_scatter's list into that of rank r, all others into the one."""
    return pl.when(pl.col("api") == "reduce_scatter").then("part").otherwise(0).cast(pl.UInt32)


def _rms() -> pl.Expr:
    return pl.col("norm").abs() / pl.col("elements").clip(1).sqrt()


def _summed() -> list[pl.Expr]:
    """Sums over the inputs of one output."""
    tensor = pl.col("kind") == RowKind.TENSOR
    most, least = pl.col("max"), pl.col("min")
    figures = {
        "sum_max": (most, most.sum()), "sum_min": (least, least.sum()), "sum_mean": (pl.col("mean"), pl.col("mean").sum()),
        "sum_norm": (pl.col("norm"), pl.col("norm").abs().sum()), "sum_rms": (pl.col("norm"), _rms().sum()),
        "sum_far": (most + least, pl.max_horizontal(most.abs(), least.abs()).sum()),
        "most": (most, most.max()), "least": (least, least.min()),
        "most_min": (least, least.max()), "least_max": (most, most.min()),
    }  # fmt: skip
    # null where one input lacks the statistic: what is missing refutes nothing
    return [tensor.sum().alias("inputs")] + [
        pl.when(used.is_not_null().all()).then(figure).alias(name) for name, (used, figure) in figures.items()
    ]


def _together() -> list[pl.Expr]:
    """Statistics of outputs laid side by side."""
    weight, total = pl.col("elements"), pl.col("elements").sum()
    every = pl.col("kind").eq(RowKind.TENSOR).all() & (total > 0)
    mean = (pl.col("mean") * weight).sum() / total
    return [
        pl.when(every & pl.col("max").is_not_null().all()).then(pl.col("max").max()).alias("max"),
        pl.when(every & pl.col("min").is_not_null().all()).then(pl.col("min").min()).alias("min"),
        pl.when(every & pl.col("mean").is_not_null().all()).then(mean).alias("mean"),
        pl.when(every & pl.col("norm").is_not_null().all()).then((pl.col("norm") ** 2).sum().sqrt()).alias("norm"),
        total.alias("elements"),
        every.alias("tensors"),
    ]


def _judged_reductions(both: pl.DataFrame) -> pl.DataFrame:
    size, kind = pl.col("size").cast(pl.Float64), pl.col("reduce")
    summing = kind.is_in(["SUM", "AVG"]) & (pl.col("dtype") != "torch.bool")
    extreme = kind.is_in(["MAX", "MIN"]) & ~pl.col("apart")
    share = pl.when(kind == "AVG").then(size).otherwise(1.0)
    slack = (size + _ROUNDINGS) * tolerance(pl.col("dtype"))
    due = pl.col("sum_mean") / share
    checks = (*_sum_checks(summing, share, slack), *_extreme_checks(extreme, kind))
    broken = pl.coalesce(pl.when(test).then(phrase(text, pl.col(found), due)) for test, text, found, due in checks)
    complete = (pl.col("inputs") == pl.col("size")).fill_null(False)
    all_outputs = ~pl.col("apart") | (pl.col("outputs") == pl.col("size"))
    known = complete & all_outputs & pl.col("tensors")
    enough = pl.when(extreme).then(pl.col("most").is_not_null() & pl.col("max").is_not_null()).otherwise(
        summing & due.is_not_null() & pl.col("mean").is_not_null()
    )  # fmt: skip
    refuted = known & broken.is_not_null()
    return both.with_columns(
        how=pl.when(known & (enough | refuted)).then(pl.lit("statistics")).otherwise(pl.lit("")),
        state=pl.when(refuted).then(BROKEN).when(known & enough.fill_null(False)).then(HELD).otherwise(UNKNOWN),
        why=pl.when(refuted).then(phrase("its output is not the reduction ({}) of the inputs: {}", kind, broken))
        .when(~pl.col("tensors")).then(pl.lit("an output is masked in the dump, empty or no tensor: the reduction was not verified"))
        .when(~complete).then(pl.lit("the dump lacks inputs: the reduction was not verified"))
        .when(~all_outputs).then(pl.lit("the dump lacks outputs: the reduction was not verified"))
        .otherwise(phrase("statistics of this dtype and op ({}) do not show the reduction: it was not verified", kind)),
    )  # fmt: skip


_Check = tuple[pl.Expr, str, str, pl.Expr]  # what refutes the reduction, how it is told, the figure, what it should be


def _sum_checks(summing: pl.Expr, share: pl.Expr, slack: pl.Expr) -> list[_Check]:
    mean, due = pl.col("mean"), pl.col("sum_mean") / share
    most, least, norm = (pl.col(f"sum_{name}") / share for name in ("max", "min", "norm"))
    far = slack * pl.col("sum_far") / share
    finite = due.is_finite()
    off = (mean - due).abs() > slack * pl.col("sum_rms") / share
    return [
        (summing & finite & ~mean.is_finite(), "its mean is {} and the inputs' means give {}", "mean", due),
        (summing & ~finite & mean.is_finite(), "its mean is {} and the inputs' means give {}", "mean", due),
        (summing & finite & off, "its mean is {} and the inputs' means give {}", "mean", due),
        (summing & (pl.col("max") > most + far), "its max {} is more than the inputs' maxima give, {}", "max", most),
        (summing & (pl.col("min") < least - far), "its min {} is less than the inputs' minima give, {}", "min", least),
        (
            summing & (pl.col("norm") > norm * (1 + slack)),
            "its norm {} is more than the inputs' norms give, {}",
            "norm",
            norm,
        ),
    ]


def _extreme_checks(extreme: pl.Expr, kind: pl.Expr) -> list[_Check]:
    largest, smallest = extreme & (kind == "MAX"), extreme & (kind == "MIN")
    most, least, most_min, least_max = (pl.col(name) for name in ("most", "least", "most_min", "least_max"))
    return [
        (largest & (pl.col("max") != most), "its max is {} and the inputs' largest is {}", "max", most),
        (largest & (pl.col("min") < most_min), "its min {} is below an input's, {}", "min", most_min),
        (smallest & (pl.col("min") != least), "its min is {} and the inputs' smallest is {}", "min", least),
        (smallest & (pl.col("max") > least_max), "its max {} is above an input's, {}", "max", least_max),
    ]


def joins(events: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """Claims that outputs together hold what the inputs together hold, by statistics: all_gather_into_tensor (each output by
    itself) and all_to_all_single, where their parts are not to be had.

    Parameters and result as for ``reductions``.
    """
    into = pl.col("api").is_in(list(INTO))
    rows = pieces.filter((into | (pl.col("api") == "all_to_all_single")) & ~pl.col("block"))
    cut = pieces.filter((pl.col("side") == "got") & pl.col("block")).select("event").unique()
    rows = rows.join(cut, on="event", how="anti", maintain_order="left")
    sizes = events.group_by("event").agg(size=pl.len())
    sent = (
        rows.filter(pl.col("side") == "sent").group_by("event", maintain_order=True).agg(*_together(), count=pl.len())
    )
    got = (
        rows.filter(pl.col("side") == "got").with_columns(judged=pl.when(into).then("rank"))
        .group_by("event", "judged", maintain_order=True)
        .agg(*_together(), pl.col("row").first(), pl.col("dtype").first(), outputs=pl.len(), apart=~into.first(),
             trouble=pl.col("trouble").drop_nulls().first())
    )  # fmt: skip
    both = got.join(sent, on="event", how="left", suffix="_due", maintain_order="left").join(
        sizes, on="event", how="left"
    )
    slack = _ROUNDINGS * tolerance(pl.col("dtype"))
    rms = pl.col("norm_due") / pl.col("elements_due").clip(1).sqrt()

    def differs(name: str, allowed: pl.Expr) -> pl.Expr:
        found, due = pl.col(name), pl.col(f"{name}_due")
        apart = ~((found - due).abs() <= allowed) & ~found.eq_missing(due)
        return pl.when(apart & found.is_not_null() & due.is_not_null()).then(
            phrase(f"its {name} is {{}} and the inputs give {{}}", found, due)
        )

    broken = pl.coalesce(
        pl.when(pl.col("elements") != pl.col("elements_due")).then(
            phrase("it has {} elements and the inputs {}", pl.col("elements"), pl.col("elements_due"))
        ),
        differs("max", pl.lit(0.0)),
        differs("min", pl.lit(0.0)),
        differs("mean", slack * rms),
        differs("norm", slack * pl.col("norm_due")),
    )
    complete = (pl.col("count") == pl.col("size")).fill_null(False) & (
        ~pl.col("apart") | (pl.col("outputs") == pl.col("size"))
    )
    known = complete & pl.col("tensors") & pl.col("tensors_due").fill_null(False)
    told = pl.any_horizontal(
        pl.col(n).is_not_null() & pl.col(f"{n}_due").is_not_null() for n in ("max", "min", "mean", "norm")
    )
    return both.with_columns(
        state=pl.when(known & broken.is_not_null()).then(BROKEN)
        .when(known & told & pl.col("trouble").is_null()).then(HELD).otherwise(UNKNOWN),
        how=pl.when(known & (told | broken.is_not_null())).then(pl.lit("statistics")).otherwise(pl.lit("")),
        why=pl.when(known & broken.is_not_null()).then(phrase("its output is not the inputs put together: {}", broken))
        .when(~complete).then(pl.lit("the dump lacks inputs or outputs: what was put together was not verified"))
        .when(~known).then(pl.lit("a tensor is masked in the dump or empty: what was put together was not verified"))
        .when(pl.col("trouble").is_not_null()).then("trouble")
        .otherwise(pl.lit("neither tensors nor statistics to verify what was put together")),
    ).select("event", pl.col("judged").alias("rank"), what=pl.lit(JOINED), how="how", state="state", why="why", row="row")  # fmt: skip
