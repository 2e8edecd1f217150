"""From judged rows to facts about ops and calls: does an output differ, do the inputs agree, by how much. Pure: frames in, frames out."""

from __future__ import annotations

from typing import Final

import polars as pl
from opassay.kernels.phrases import phrase
from opassay.kernels.rules import percent, short
from opassay.schemas.communication_rows import TYPES
from opassay.schemas.op_facts import CALL_FACTS, MISSING, OP_FACTS, Kind, Seen
from opassay.schemas.vocab import DumpMode, RowKind

FAR: Final = 0.5
"""Relative error of a statistic from which an output differs (diff_analyze.md, 2)."""

RATIO: Final = 0.6
"""Share of elements within a thousandth below which an output differs (limit of the thousandth rule)."""

CLOSE: Final = 0.1
"""Gap up to which an input agrees: 10 % in every statistic; 0.9 of the elements within a thousandth (limits of the verdict rules)."""

CLEAN: Final = 1e-3
"""Gap up to which inputs are all but equal."""

MUCH_MORE: Final = 10.0
"""An output this many times as far off as the inputs has an error of its own (rule norm-growth)."""

LACKS: Final = "its golden partner has an output that it lacks"
"""Figures of an op that lacks an output."""

_STATS: Final = ("max", "min", "mean", "norm")

col = pl.col


def row_facts(judged: pl.DataFrame, mode: DumpMode) -> pl.DataFrame:
    """What each of the target's rows in a slice says; input of ``facts_of`` and ``call_facts``.

    Parameters
    ----------
    judged : polars.DataFrame
        A slice of ``pipeline.judge.Judging.slices``: whole ops.
    mode : DumpMode
        What was compared.

    Returns
    -------
    polars.DataFrame
        ``op``, ``name``, ``target_row``, ``row`` (its name), ``is_input``, ``no_inputs``, ``kind`` (of a result row), ``differs``
        (as a value that goes in or out), ``seen`` (whether that can be told), ``gap``, ``figures`` and ``message``.
    """
    gap = _gap(mode)
    return (
        judged.lazy()
        .filter(col("target_row").is_not_null())
        .select(
            "target_row",
            op="target_op",
            name="target_op_name",
            row="target_name",
            is_input="is_input",
            no_inputs="no_inputs",
            kind=pl.when(col("is_input")).then(int(Kind.SAME)).otherwise(_kind(mode)).cast(pl.UInt8),
            differs=_changed(mode) | (gap > CLOSE).fill_null(False) | _lacking(),
            seen=_comparable(mode),
            gap=gap,
            figures=_figures(mode),
            message="message",
        )
        .collect()
    )


def facts_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Facts of the ops in one slice that differ, communicate or are given other values.

    Parameters
    ----------
    rows : polars.DataFrame
        Of ``row_facts``.

    Returns
    -------
    polars.DataFrame
        Schema ``OP_FACTS``, in order; nothing ``follows`` yet.
    """
    given = col("is_input") & col("differs")
    wanted = rows.filter((col("kind") > Kind.SAME) | _communicates() | given)["op"].unique()
    rows = rows.filter(col("op").is_in(wanted.implode()))
    results, inputs = ~col("is_input"), col("is_input")
    first = results & (col("kind") == col("kind").max())
    other = inputs & col("differs")
    return (
        rows.group_by("op", maintain_order=True)
        .agg(
            col("name").first(),
            col("kind").max(),
            inputs=_together(inputs),
            input_gap=col("gap").filter(inputs).max(),
            output_gap=col("gap").filter(results).max(),
            far_in=(inputs & (col("gap") > FAR)).any(),
            inputless=col("no_inputs").any(),
            follows=pl.lit(False),
            row=col("row").filter(first).first(),
            figures=col("figures").filter(first).first(),
            message=col("message").filter(first).first(),
            input_row=col("row").filter(other).first(),
            input_figures=col("figures").filter(other).first(),
        )
        .select(col(name).cast(kind) for name, kind in OP_FACTS.items())
    )


def with_lacking(facts: pl.DataFrame, rows: pl.DataFrame, lacking: pl.DataFrame) -> pl.DataFrame:
    """Facts that know which ops lack an output of their golden partner.

    Parameters
    ----------
    facts : polars.DataFrame
        Of ``facts_of``.
    rows : polars.DataFrame
        Of ``row_facts``, the same slice.
    lacking : polars.DataFrame
        ``op`` and ``row``: the golden output that it lacks.
    """
    told = facts.filter(col("kind") > Kind.SAME)["op"]
    here = rows.group_by("op", maintain_order=True).agg(col("name").first(), col("no_inputs").any())
    new = here.join(lacking, on="op", how="inner", maintain_order="left").filter(~col("op").is_in(told.implode()))
    if new.is_empty():
        return facts
    silent = facts.filter(~col("op").is_in(new["op"].implode()))
    added = new.select(
        "op", "name", "row", kind=pl.lit(int(Kind.ALONE)), inputs=pl.lit(int(Seen.NOTHING)), inputless="no_inputs",
        far_in=pl.lit(False), follows=pl.lit(False), figures=pl.lit(LACKS),
        message=pl.lit("[]"),
    )  # fmt: skip
    both = pl.concat([silent, added], how="diagonal_relaxed").sort("op", maintain_order=True)
    return both.select(col(name).cast(kind) for name, kind in OP_FACTS.items())


def forward_gaps(rows: pl.DataFrame) -> pl.DataFrame:
    """``name`` and ``gap`` of the forward calls of a slice that are off at all.

    Parameters
    ----------
    rows : polars.DataFrame
        Of ``row_facts``.
    """
    off = rows.filter((col("gap") > 0) & col("name").str.contains(".forward", literal=True))
    return off.group_by("op", maintain_order=True).agg(col("name").first(), col("gap").max()).drop("op")


def call_facts(rows: pl.DataFrame, tensors: pl.DataFrame) -> pl.DataFrame:
    """What communication calls give and get.

    Parameters
    ----------
    rows : polars.DataFrame
        Of ``row_facts``.
    tensors : polars.DataFrame
        ``op``, ``item``, ``side`` (sent, got) and ``row`` of ``kernels.communication.communication_tensors`` of the target.

    Returns
    -------
    polars.DataFrame
        Schema ``CALL_FACTS``, by op and item.
    """
    met = tensors.select("op", "item", "side", target_row="row").join(
        rows.filter(_communicates()).drop("op"), on="target_row", how="inner", maintain_order="left"
    )
    sent, got = col("side") == "sent", col("side") == "got"
    other = sent & col("differs")
    blind = ~(
        sent & col("seen")
    ).any()  # without a tensor of its own to go by, as in a recv, what it gets differs as an input does
    return (
        met.group_by("op", "item", maintain_order=True)
        .agg(
            gives=_together(sent),
            gets=_together(got, (col("kind") == Kind.NUMBERS) | (col("differs") & blind)),
            given_gap=col("gap").filter(sent).max(),
            got_gap=col("gap").filter(got).max(),
            row=col("row").filter(other).first(),
            figures=col("figures").filter(other).first(),
        )
        .select(col(name).cast(kind) for name, kind in CALL_FACTS.items())
    )


def met_ops(judged: pl.DataFrame) -> pl.DataFrame:
    """Ops of a slice's golden side: ``golden_op``, ``name``, and ``target_op``, null for those without a row of the target.

    Parameters
    ----------
    judged : polars.DataFrame
        As in ``row_facts``.
    """
    telling = judged.filter(col("golden_op").is_not_null() & ~col("redundant").fill_null(False))
    return telling.group_by("golden_op").agg(name=col("golden_op_name").first(), target_op=col("target_op").min())


def missing_ops(met: pl.DataFrame) -> pl.DataFrame:
    """Ops that only the golden side has.

    Parameters
    ----------
    met : polars.DataFrame
        ``met_ops`` of all slices.

    Returns
    -------
    polars.DataFrame
        Schema ``MISSING``.
    """
    ops = met.group_by("golden_op").agg(col("name").first(), col("target_op").min()).sort("golden_op")
    ops = ops.with_columns(op=col("target_op").forward_fill().fill_null(0)).filter(col("target_op").is_null())
    return ops.select(col(name).cast(kind) for name, kind in MISSING.items())


def candidates(facts: pl.DataFrame) -> pl.DataFrame:
    """The ops of a rank that may be an answer: the others only pass on what differs before them.

    Parameters
    ----------
    facts : polars.DataFrame
        Schema ``OP_FACTS``, in order.

    Returns
    -------
    polars.DataFrame
        Communications, ops with an error of their own, and the first op of each kind of difference.
    """
    first = pl.int_range(pl.len()).over("kind", "far_in", "inputless", _communicates()) == 0
    return facts.filter(_communicates() | added() | first)


def added() -> pl.Expr:
    """Whether an op has an error of its own wherever it stands: its output differs, its inputs are all but equal.

    Behind a fault that is known already, inputs that agree roughly prove nothing: some ops (the backward of a softmax, a sum of
    gradients) make much of little, and statistics show little of much.
    """
    clean = (col("inputs") == Seen.AGREE) & (col("input_gap").fill_null(0.0) <= CLEAN)
    return _wrong() & ~col("follows") & clean


def added_first() -> pl.Expr:
    """The same of an op before which nothing differs: inputs that agree are enough, or an output much further off than they are."""
    much = (col("output_gap") > MUCH_MORE * col("input_gap")).fill_null(False)
    return _wrong() & ((col("inputs") == Seen.AGREE) | ((col("inputs") == Seen.DIFFER) & much))


def _wrong() -> pl.Expr:
    return (col("kind") == Kind.NUMBERS) & ~col("inputless")


def _communicates() -> pl.Expr:
    return pl.any_horizontal([col("name").str.starts_with(f"{word}.") for word in TYPES])


def _together(which: pl.Expr, differs: pl.Expr = col("differs")) -> pl.Expr:  # noqa: B008
    """``Seen`` of the rows of a group that are meant."""
    return (
        pl.when((which & differs).any())
        .then(int(Seen.DIFFER))
        .when((which & col("seen")).any())
        .then(int(Seen.AGREE))
        .otherwise(int(Seen.NOTHING))
    )


def _kind(mode: DumpMode) -> pl.Expr:
    """What a result row (output, gradient of a parameter, debug save) says about its op."""
    computes = ~col("redundant").fill_null(False)
    differs = (col("telling") & (col("result") > 0)) | _far(mode)
    shape = col("shape_differs") if mode is not DumpMode.MD5 else pl.lit(False)
    return (
        pl.when(~computes)
        .then(int(Kind.SAME))
        .when(~col("paired"))
        .then(int(Kind.ALONE))
        .when((differs | shape).fill_null(False))
        .then(int(Kind.NUMBERS))
        .when(col("dtype_differs"))
        .then(int(Kind.DTYPE))
        .otherwise(int(Kind.SAME))
    )


def _far(mode: DumpMode) -> pl.Expr:
    """An output that is far off by itself, whatever its inputs are."""
    if mode is DumpMode.MD5:
        return pl.lit(False)
    if mode is DumpMode.TENSOR:
        return (_gap(mode) > 1 - RATIO).fill_null(False)
    relative = [col(f"{stat}_relative_number") for stat in ("max", "min", "norm")]
    finite = [(one > FAR) & one.is_finite() for one in relative]
    return pl.any_horizontal([one.fill_null(False) for one in [*finite, _gap(mode) > FAR]])


def _gap(mode: DumpMode) -> pl.Expr:
    """How far a row is off: 0 equal, null where nothing says."""
    if mode is DumpMode.MD5:
        return pl.lit(None, dtype=pl.Float64)
    if mode is DumpMode.TENSOR:
        return pl.when(col("within_rounding").fill_null(False)).then(0.0).otherwise(1.0 - col("ratio"))
    other_shape = col("shape_differs").fill_null(False)
    figures = pl.when(other_shape).then(float("inf")).otherwise(pl.max_horizontal("agreement", "scaled"))
    return pl.when(other_shape | col("agreement").is_not_null()).then(figures)


def _changed(mode: DumpMode) -> pl.Expr:
    """A row that is another value however its gap: a scalar, a checksum, a shape."""
    if mode is DumpMode.MD5:
        return ((col("result") > 0) & col("telling")).fill_null(False)
    return (col("value_differs") | col("shape_differs")).fill_null(False)


def _lacking() -> pl.Expr:
    """A tensor that the call of the other side does not have: the op was given something else."""
    tensor = (col("target_kind") == RowKind.TENSOR) & ~col("paired")
    return (tensor & col("paired").any().over("target_op")).fill_null(False)


def _comparable(mode: DumpMode) -> pl.Expr:
    """Whether a row says anything; a null on both sides may be a value that the dump masks."""
    if mode is DumpMode.MD5:
        return col("paired") & col("compared") & ~col("is_none")
    return (_gap(mode).is_not_null() | col("is_scalar")).fill_null(False) & ~col("is_none")


def _figures(mode: DumpMode) -> pl.Expr:
    if mode is DumpMode.MD5:
        return phrase("checksum {} against {}", col("target_md5"), col("golden_md5"))
    if mode is DumpMode.TENSOR:
        return phrase(
            "{} of the elements within a thousandth, MaxAbsErr {}",
            percent(col("thousandth")),
            short(col("error_max")),
        )

    def shown(side: str, stat: str) -> pl.Expr:
        return pl.coalesce(short(col(f"{side}_{stat}_number")), col(f"{side}_{stat}_text"))

    stats = [
        phrase(f"{stat} {{}} against {{}}", *(shown(side, stat) for side in ("target", "golden"))) for stat in _STATS
    ]
    return pl.concat_str(stats, separator=", ", ignore_nulls=True)
