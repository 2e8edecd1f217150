"""From judged rows to the cells of a report: which text stands where. Computes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl
from opassay.kernels import verdict
from opassay.kernels.phrases import phrase
from opassay.kernels.stat_metrics import float_text
from opassay.schemas import headers
from opassay.schemas.vocab import DumpMode, MetricState

NA = "N/A"
StackTexts = Callable[[Sequence[str]], list[str | None]]

_SHOWN_FOR_ONE_ELEMENT = ("error_max", "relative_max")


def cells(
    judged: pl.DataFrame, mode: DumpMode, *, stacks: StackTexts | None = None, typed: bool = False
) -> pl.DataFrame:
    """Report columns of a slice, in report order.

    Parameters
    ----------
    judged : polars.DataFrame
        A slice of ``pipeline.judge.Judging.slices``.
    mode : DumpMode
        What was compared.
    stacks : callable, optional
        Gives the stack text of record names (None where unknown); without it there is no stack column.
    typed : bool
        Add the numbers behind the texts (``{column}_number``) and what else a notebook wants.

    Returns
    -------
    polars.DataFrame
        String columns named as in ``headers.report_columns``, nothing null; typed columns behind them.
    """
    wanted = headers.report_columns(mode, stack=stacks is not None)
    shown = {
        **{
            f"{side}_{what}": _filled(f"{side}_{what}")
            for side in ("target", "golden")
            for what in ("name", "dtype", "shape")
        },
        **{
            f"{side}_requires_grad": pl.col(f"{side}_requires_grad_text").fill_null(NA) for side in ("target", "golden")
        },
        **{name: _filled(f"{name}_text") for name in headers.STATISTICS},
        "requires_grad_consistent": _consistent(),
        "result": verdict.words(pl.col("result")),
        "message": pl.col("message"),
        "data_name": _data_name(),
        **{name: _filled(name) for name in headers.CHECKSUMS},
    }
    if mode is DumpMode.TENSOR:
        shown |= {name: _metric_cell(name) for name in headers.TENSOR_METRICS}
    if mode is DumpMode.STATISTICS:
        shown |= {name: pl.col(name).fill_null(NA) for name in headers.STATISTIC_METRICS}
    if stacks is not None:
        judged = judged.with_columns(stack=_stack_column(judged, stacks))
        shown["stack"] = pl.col("stack")
    extras = _typed(mode) if typed else []
    return judged.select([shown[name].alias(name) for name in wanted] + extras)


def _filled(name: str) -> pl.Expr:
    return pl.when(pl.col(name).is_null() | (pl.col(name) == "")).then(pl.lit(NA)).otherwise(pl.col(name))


def _consistent() -> pl.Expr:
    both = [pl.col(f"{side}_requires_grad_text").fill_null(NA) for side in ("target", "golden")]
    return pl.when(both[0] == both[1]).then(pl.lit("True")).otherwise(pl.lit("False"))


def _data_name() -> pl.Expr:
    def side(name: str) -> pl.Expr:
        return (
            pl.when(pl.col(f"{name}_kind").is_null())
            .then(pl.lit(NA))
            .otherwise(pl.col(f"{name}_data_name").fill_null("-1"))
        )

    return phrase("['{}', '{}']", side("target"), side("golden"))


def _metric_cell(name: str) -> pl.Expr:
    measured = pl.col("state") == MetricState.COMPUTED
    if name in _SHOWN_FOR_ONE_ELEMENT:
        measured = measured | (pl.col("state") == MetricState.ONE_ELEMENT)
    shape = (pl.col("state") == MetricState.SHAPE).fill_null(False)
    text = pl.when(measured).then(float_text(pl.col(name)))
    return pl.when(shape).then(pl.lit("shape unmatched")).otherwise(text.fill_null("unsupported"))


def _stack_column(judged: pl.DataFrame, stacks: StackTexts) -> pl.Series:
    """The stack on the first row of each of the target's records, ``N/A`` elsewhere."""
    ops = judged["target_op"]
    before = ops.forward_fill().shift(1)  # golden-only rows may stand among those of an op
    first = ((ops != before).fill_null(True) & ops.is_not_null()).arg_true()
    texts = pl.Series(stacks(judged["target_op_name"].gather(first).to_list()), dtype=pl.String).fill_null(NA)
    column = pl.repeat(NA, judged.height, dtype=pl.String, eager=True)
    return column.scatter(first, texts) if first.len() else column


def _typed(mode: DumpMode) -> list[pl.Expr]:
    def finite(column: str) -> pl.Expr:
        return pl.when(pl.col(column).is_finite()).then(pl.col(column))

    extras = [
        pl.coalesce("target_op_name", "golden_op_name").alias("op"),
        pl.col("compared"),
        pl.col("uncompared"),
    ]
    if mode is not DumpMode.MD5:
        extras += [finite(f"{name}_number").alias(f"{name}_number") for name in headers.STATISTICS]
    if mode is DumpMode.STATISTICS:
        stats = ("max", "min", "mean", "norm")
        extras += [finite(f"{stat}_diff_number").alias(f"{stat}_diff_number") for stat in stats]
        extras += [pl.col(f"{stat}_relative_number").alias(f"{stat}_relative_fraction") for stat in stats]
    if mode is DumpMode.TENSOR:
        extras += [
            pl.when(pl.col("state") == MetricState.COMPUTED).then(finite(name)).alias(f"{name}_number")
            if name not in _SHOWN_FOR_ONE_ELEMENT
            else finite(name).alias(f"{name}_number")
            for name in headers.TENSOR_METRICS
        ]
        extras += [
            pl.col(name)
            for name in (
                "worst_index",
                "worst_target",
                "worst_golden",
                "equal_nan",
                "equal_inf",
                "nan_mismatch",
                "inf_mismatch",
            )
        ]
    return extras
