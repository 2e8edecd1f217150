"""What rules look at beyond the row itself: how the inputs of the same op compare, and what kind of op it is.

Adds plain columns to a frame of pairs, so that the table in ``rules`` stays readable.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from opassay.kernels import match_keys, stat_metrics
from opassay.schemas.dump_rows import STATISTICS
from opassay.schemas.vocab import DumpMode, MetricState, RowKind, Section, StatKind

REDUNDANT: Final = (
    "empty", "empty_like", "numpy", "to", "setitem", "__setitem__", "empty_with_format", "new_empty_strided", "new_empty",
    "empty_strided",
)  # fmt: skip
"""APIs whose output holds no computed numbers: every rule is off (compare.md, 9.2)."""

PLACEHOLDER: Final = ("_reduce_scatter_base", "_all_gather_base", "all_to_all_single", "batch_isend_irecv")
"""APIs whose inputs are buffers to be overwritten: rules that use the inputs are off (compare.md, 9.2)."""

_INF: Final = float("inf")


def bare_shape(shape: str) -> str:
    """A shape text without its dimensions of length 1: ``[6, 8]`` for ``[1, 6, 8]``; other texts as they are."""
    if not (shape.startswith("[") and shape.endswith("]")):
        return shape
    sizes = [size.strip() for size in shape[1:-1].split(",")]
    return f"[{', '.join(size for size in sizes if size not in ('', '1'))}]"


def heads_merged(shape: str) -> str:
    """A bare shape of three dimensions with its last two as one: ``[6, 8]`` for ``[6, 2, 4]``; "" for all others."""
    sizes = shape[1:-1].split(", ") if shape.startswith("[") and shape.endswith("]") else []
    if len(sizes) != 3 or not all(size.isdigit() for size in sizes):
        return ""
    return f"[{sizes[0]}, {int(sizes[1]) * int(sizes[2])}]"


def elements_of(shape: str) -> float | None:
    """Number of elements of a shape text such as ``[2, 3]``: 6.0; 1.0 for ``[]``; None for what is no list of sizes."""
    if not (shape.startswith("[") and shape.endswith("]")):
        return None
    try:
        return math.prod(float(size) for size in shape[1:-1].split(",") if size.strip())
    except ValueError:
        return None


def op_facts(names: pl.Series) -> pl.DataFrame:
    """``redundant`` and ``placeholder`` of ops, by the API's name (never by a module's path)."""
    words = [f".{api}." for api in (*REDUNDANT, *PLACEHOLDER)]
    ops = pl.DataFrame({"name": names}).with_columns(near=pl.col("name").str.contains_any(words))
    api = match_keys.api_name(pl.when(pl.col("near")).then(pl.col("name")))  # the pattern is slow; few ops need it
    return ops.select(
        redundant=api.is_in(REDUNDANT).fill_null(False), placeholder=api.is_in(PLACEHOLDER).fill_null(False)
    )


def with_kinds(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add what a row is: ``paired``, ``is_input``, ``is_output``, ``no_inputs``, ``is_scalar``, ``is_none``, and the facts of
    its op."""
    section = pl.coalesce("target_section", "golden_section")
    both = pl.col("target_kind").is_not_null() & pl.col("golden_kind").is_not_null()
    scalar = (pl.col("target_kind") != RowKind.TENSOR) & (pl.col("golden_kind") != RowKind.TENSOR)
    none = (pl.col("target_kind") == RowKind.NONE) & (pl.col("golden_kind") == RowKind.NONE)
    return frame.with_columns(
        paired=both,
        section=section,
        is_input=(section <= Section.PARAMETERS),
        is_output=section == Section.OUTPUT,
        no_inputs=section >= Section.PARAMETERS_GRAD,
        is_scalar=(both & scalar).fill_null(False),
        is_none=(both & none).fill_null(False),
        redundant=pl.coalesce("target_redundant", "golden_redundant"),
        placeholder=pl.coalesce("target_placeholder", "golden_placeholder"),
    )


def with_declarations(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add ``dtype_differs``, ``shape_differs`` and ``how_joined`` to a frame with ``paired``.

    ``lenient`` is training against inference (consistent_check.md, 5): dimensions of length 1 do not count there, heads and their
    size may be one dimension or two, and a row whose tensor was joined from several has no dtype or shape of its own.
    """
    both = pl.col("paired")
    sides = ("target", "golden")
    joined = pl.any_horizontal([pl.col(f"{side}_joined").is_not_null() for side in sides])
    several = pl.any_horizontal([pl.col(f"{side}_dtype").str.contains(";", literal=True) for side in sides])
    strict = pl.col("target_shape") != pl.col("golden_shape")
    loose = (
        strict
        & (pl.col("target_bare_shape") != pl.col("golden_bare_shape"))
        & (pl.col("target_merged_shape") != pl.col("golden_bare_shape"))
        & (pl.col("golden_merged_shape") != pl.col("target_bare_shape"))
    )
    return frame.with_columns(
        dtype_differs=both & (pl.col("target_dtype") != pl.col("golden_dtype")) & ~(pl.col("lenient") & several),
        shape_differs=both & pl.when(pl.col("lenient")).then(loose & ~joined).otherwise(strict),
        how_joined=pl.when(both).then(pl.coalesce("target_joined", "golden_joined")),
    )


def with_scalars(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add ``value_differs`` (two scalars that do not hold the same value) and ``device_differs`` (only their device text does).

    A device text (``npu:0`` against ``cuda:0``) differs by design of the comparison and is never a changed value.
    """
    target, golden = pl.col("target_value").fill_null(""), pl.col("golden_value").fill_null("")
    kinds = [pl.col(f"{side}_max_kind") for side in ("target", "golden")]
    numbers = (kinds[0] <= StatKind.INT) & (kinds[1] <= StatKind.INT)
    same = pl.when(numbers).then(pl.col("target_max_number") == pl.col("golden_max_number")).otherwise(target == golden)
    devices = (pl.col("target_device") & pl.col("golden_device")).fill_null(False)
    differs = pl.col("is_scalar") & ~same.fill_null(False)
    return frame.with_columns(value_differs=differs & ~devices, device_differs=differs & devices)


def across_frameworks(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Take back differences that are spellings alone: ``Float32`` of MindSpore is ``torch.float32``, as a dtype and as an argument;
    and where a MindSpore dump never tells requires_grad, nothing is said about it.

    Needs ``{side}_plain_dtype``, ``{side}_plain_value`` (PyTorch's spelling of what MindSpore writes) and ``{side}_grad_told``.
    """
    same = {what: pl.col(f"target_plain_{what}") == pl.col(f"golden_plain_{what}") for what in ("dtype", "value")}
    told = pl.col("target_grad_told") & pl.col("golden_grad_told")
    return frame.with_columns(
        pl.col("dtype_differs") & ~same["dtype"].fill_null(False),
        pl.col("value_differs") & ~same["value"].fill_null(False),
        pl.when(told).then("target_requires_grad").alias("target_requires_grad"),
    )


def with_statistic_scopes(frame: pl.LazyFrame) -> pl.DataFrame:
    """Statistics mode: per row ``agreement`` and ``scaled``; per op ``worst_input``, ``worst_scaled_input``, ``inputs_equal``.

    ``agreement`` is the relative error by which an input counts (0 equal, inf differs beyond measure, null says nothing): that of
    the norm; where the dump has none (integers, bool, float64, complex), the larger of max and min. A nan or an overflow on an
    input means that inputs already differ, so it counts as inf (compare.md 9.3, recommendations a and b).
    """
    norm = pl.col("norm_relative_number")
    edges = pl.max_horizontal([_differs_as_inf(pl.col(f"{edge}_relative_number")) for edge in ("max", "min")])
    no_norm = (pl.col("target_norm_kind") == StatKind.NONE) & (pl.col("golden_norm_kind") == StatKind.NONE)
    has_edges = (pl.col("target_max_kind") != StatKind.NONE) & (pl.col("golden_max_kind") != StatKind.NONE)
    agreement = (
        pl.when(~pl.col("paired") | pl.col("is_none"))
        .then(None)
        .when(pl.col("is_scalar") & pl.col("norm_relative_number").is_null())
        .then(pl.when(~pl.col("value_differs") & ~pl.col("device_differs")).then(0.0))
        .when(no_norm & has_edges)
        .then(edges)
        .when(no_norm)
        .then(None)
        .otherwise(_differs_as_inf(norm))
    )
    scaled = [stat_metrics.scaled_error(stat) for stat in ("max", "min", "mean")]
    equal = pl.all_horizontal([pl.col(f"{stat}_equal") for stat in STATISTICS])
    differs = ~equal & pl.any_horizontal([pl.col(f"{stat}_diff_number") != 0 for stat in STATISTICS])
    framed = frame.with_columns(
        agreement=agreement,
        scaled=pl.max_horizontal(scaled),
        row_equal=pl.col("paired") & (equal | pl.col("device_differs")),
        row_differs=(pl.col("paired") & differs).fill_null(False),
    ).collect()
    agreed = framed["agreement"]
    scaled_agreement = framed.select(
        pl.when(pl.col("agreement").is_not_null()).then(pl.max_horizontal("agreement", "scaled"))
    )
    return framed.with_columns(
        worst_input=over_inputs(framed, agreed, np.maximum),
        worst_scaled_input=over_inputs(framed, scaled_agreement.to_series(), np.maximum),
        inputs_equal=all_inputs(framed, "row_equal"),
    )


def with_tensor_scopes(frame: pl.LazyFrame) -> pl.DataFrame:
    """Tensor mode: per row ``ratio``; per op ``worst_input`` (smallest ratio), ``worst_cosine``, ``inputs_equal``.

    ``ratio`` is the share of elements within a thousandth by which an input counts: the measured one; 0 where nan or infinities do
    not match or where shapes differ; 1 for equal scalars and empty tensors; null where nothing was compared, and for a scalar that
    changed: rule ``scalar`` speaks of that, and the document's ratios know tensors only.
    """
    frame = frame.with_columns(state=_empty_as_equal())
    state = pl.col("state")
    mismatch = (pl.col("nan_mismatch") + pl.col("inf_mismatch")) > 0
    measured = state.is_in([int(MetricState.COMPUTED), int(MetricState.ONE_ELEMENT)])
    ratio = (
        pl.when(~pl.col("paired") | pl.col("is_none"))
        .then(None)
        .when(pl.col("is_scalar"))
        .then(pl.when(~pl.col("value_differs") & ~pl.col("device_differs")).then(1.0))
        .when(measured)
        .then(pl.when(mismatch).then(0.0).otherwise(pl.col("thousandth")))
        .when(state == MetricState.EMPTY_EQUAL)
        .then(1.0)
        .when(state == MetricState.SHAPE)
        .then(0.0)
    )
    cosine = (
        pl.when(state == MetricState.COMPUTED)
        .then(pl.when(mismatch | pl.col("cosine").is_nan()).then(-1.0).otherwise(pl.col("cosine")))
        .when(pl.col("paired") & (state == MetricState.SHAPE))
        .then(-1.0)
    )
    differs = measured & ((pl.col("error_max") > 0).fill_null(False) | mismatch)
    equal = (
        pl.when(pl.col("is_scalar"))
        .then(~pl.col("value_differs"))
        .otherwise((measured & ~differs) | (state == MetricState.EMPTY_EQUAL))
    )
    framed = frame.with_columns(
        ratio=ratio,
        input_cosine=cosine,
        row_equal=pl.col("paired") & equal.fill_null(False),
        row_differs=differs.fill_null(False),
    ).collect()
    return framed.with_columns(
        worst_input=over_inputs(framed, framed["ratio"], np.minimum),
        worst_cosine=over_inputs(framed, framed["input_cosine"], np.minimum),
        inputs_equal=all_inputs(framed, "row_equal"),
    )


def _empty_as_equal() -> pl.Expr:
    """Tensors without elements are seldom saved: by the JSON's shape and dtype alone they are equal (decision 20)."""
    no_file = pl.col("state").is_in([int(MetricState.NO_FILE_RECORDED), int(MetricState.FILE_MISSING)])
    empty = (pl.col("target_elements") == 0) & (pl.col("target_shape") == pl.col("golden_shape"))
    same = empty & ~pl.col("dtype_differs")
    return (
        pl.when((no_file & same).fill_null(False))
        .then(int(MetricState.EMPTY_EQUAL))
        .otherwise(pl.col("state"))
        .cast(pl.UInt8)
    )


def with_scopes(frame: pl.LazyFrame, mode: DumpMode) -> pl.DataFrame:
    """All columns that the rules of a mode look at."""
    if mode is DumpMode.TENSOR:
        return with_tensor_scopes(frame)
    if mode is DumpMode.STATISTICS:
        return with_statistic_scopes(frame)
    return frame.collect()


def _differs_as_inf(relative: pl.Expr) -> pl.Expr:
    return pl.when(relative.is_nan()).then(_INF).otherwise(relative)


def over_inputs(frame: pl.DataFrame, column: pl.Series, reduce: np.ufunc) -> pl.Series:
    """The largest or smallest value of a column over the input rows of each op, on every row of that op.

    Parameters
    ----------
    frame : polars.DataFrame
        ``group`` (rows of an op stand together), ``target_row`` and ``is_input``.
    column : polars.Series
        Float64; null is left out.
    reduce : numpy.maximum or numpy.minimum
        Which.

    Returns
    -------
    polars.Series
        Float64; null for ops without a value on any input.

    Notes
    -----
    A reduction over runs (``ufunc.reduceat``) in place of a hash group-by: ops are runs of rows already.
    """
    if frame.is_empty():
        return pl.Series([], dtype=pl.Float64)
    nothing = -_INF if reduce is np.maximum else _INF
    counted = (_inputs(frame) & column.is_not_null()).to_numpy()
    values = np.where(counted, column.fill_null(0.0).to_numpy(), nothing)
    starts, lengths = _runs(frame)
    found = np.logical_or.reduceat(counted, starts)
    spread = np.repeat(reduce.reduceat(values, starts), lengths)
    return pl.Series(spread).set(pl.Series(np.repeat(~found, lengths)), None)


def all_inputs(frame: pl.DataFrame, column: str) -> pl.Series:
    """Whether an op has inputs and a Boolean column holds on all of them, on every row of that op."""
    if frame.is_empty():
        return pl.Series([], dtype=pl.Boolean)
    inputs = _inputs(frame).to_numpy()
    holds = frame[column].fill_null(False).to_numpy()
    starts, lengths = _runs(frame)
    good = np.logical_and.reduceat(holds | ~inputs, starts) & np.logical_or.reduceat(inputs, starts)
    return pl.Series(np.repeat(good, lengths))


def _inputs(frame: pl.DataFrame) -> pl.Series:
    """The target's input rows: a golden-only one among them says nothing about the op."""
    return frame["is_input"] & frame["target_row"].is_not_null()


def _runs(frame: pl.DataFrame) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Start and length of every run of one op."""
    group = frame["group"].to_numpy()
    border = group[1:] != group[:-1]
    starts = np.flatnonzero(np.concatenate(([True], border)))
    return starts, np.diff(np.append(starts, group.size))
