"""From judged rows to facts about ops and calls: does an output differ, do the inputs agree, by how much. Pure: frames in, frames out."""

from __future__ import annotations

from typing import Final

import polars as pl
from opassay.kernels.row_figures import figures
from opassay.kernels.stat_metrics import overflowed
from opassay.schemas.communication_rows import TYPES
from opassay.schemas.op_facts import CALL_FACTS, OP_FACTS, Kind, Seen
from opassay.schemas.vocab import DumpMode, MetricState, RowKind, Section

FAR: Final = 0.5
"""Relative error of a statistic from which an output differs (diff_analyze.md, 2)."""

RATIO: Final = 0.6
"""Share of elements within a thousandth below which an output differs (limit of the thousandth rule)."""

CLOSE: Final = 0.1
"""Gap up to which an input agrees: 10 % in every statistic; 0.9 of the elements within a thousandth (limits of the verdict rules)."""

HELD: Final = 0.01
"""Gap of statistics up to which a parameter agrees: nothing is computed before it that could put it off."""

CLEAN: Final = 1e-3
"""Gap up to which inputs are all but equal."""

MUCH_MORE: Final = 10.0
"""An output this many times as far off as the inputs has an error of its own (rule norm-growth)."""

LACKS: Final = "its golden partner has an output that it lacks"
"""Figures of an op that lacks an output."""

col = pl.col


def row_facts(judged: pl.DataFrame, mode: DumpMode, loose: pl.Series | None = None) -> pl.DataFrame:
    """What each of the target's rows in a slice says; input of ``facts_of`` and ``call_facts``.

    Parameters
    ----------
    judged : polars.DataFrame
        A slice of ``pipeline.judge.Judging.slices``: whole ops.
    mode : DumpMode
        What was compared.
    loose : polars.Series, optional
        Ops of which an input without a partner says nothing (see ``kernels.op_partners.loosely_mapped``).

    Returns
    -------
    polars.DataFrame
        ``op``, ``name``, ``target_row``, ``row`` (its name), ``is_input``, ``is_parameter``, ``no_inputs``, ``kind`` (of a result
        row), ``off`` (a result that a parameter may have put off), ``differs`` (as a value that goes in or out), ``seen`` (whether
        that can be told), ``hidden`` (a tensor of which it cannot, though it has a partner), ``apart`` (a pair whose shapes cannot
        meet), ``gap``, ``figures`` and ``message``.
    """
    gap = _gap(mode)
    tensor = (col("target_kind") == RowKind.TENSOR) & (col("golden_kind") == RowKind.TENSOR)
    bound = pl.lit(True) if loose is None else ~col("target_op").is_in(loose.implode())
    parameter = col("section") == Section.PARAMETERS
    held = (
        HELD if mode is DumpMode.STATISTICS else CLOSE
    )  # the share of elements beyond a thousandth is no such measure
    kind = pl.when(col("is_input")).then(int(Kind.SAME)).otherwise(_kind(mode)).cast(pl.UInt8)
    slight = (gap > HELD).fill_null(False) & (mode is DumpMode.STATISTICS)
    return (
        judged.lazy()
        .filter(col("target_row").is_not_null())
        .select(
            "target_row",
            op="target_op",
            name="target_op_name",
            row="target_name",
            is_input="is_input",
            is_parameter=parameter,
            no_inputs="no_inputs",
            kind=kind,
            off=~col("is_input") & ((kind == Kind.NUMBERS) | slight),
            differs=_changed(mode)
            | (gap > pl.when(parameter).then(held).otherwise(CLOSE)).fill_null(False)
            | (_lacking() & bound),
            seen=_comparable(mode),
            hidden=(tensor & ~col("compared") & ~_comparable(mode)).fill_null(False),
            apart=_unmeetable(mode),
            gap=gap,
            figures=figures(mode),
            message="message",
        )
        .collect()
    )


def of_one_op(rows: pl.DataFrame, fused: pl.Series) -> pl.DataFrame:
    """Training against inference: rows without those of ops that are another op than their partner.

    Parameters
    ----------
    rows : polars.DataFrame
        Of ``row_facts``.
    fused : polars.Series
        Of ``kernels.op_partners.fused_otherwise``. An op of which a tensor cannot meet its partner for its shape is another op too
        (an activation and its fused form).
    """
    return rows.filter(~col("apart").any().over("op") & ~col("op").is_in(fused.implode()))


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
    fed = inputs & ~col("is_parameter")
    first = results & (col("kind") == col("kind").max())
    other = inputs & col("differs")
    return (
        rows.group_by("op", maintain_order=True)
        .agg(
            col("name").first(),
            col("kind").max(),
            inputs=_together(inputs),
            fed=_together(fed),
            input_gap=col("gap").filter(inputs).max(),
            fed_gap=col("gap").filter(fed).max(),
            output_gap=col("gap").filter(results).max(),
            far_in=(inputs & (col("gap") > FAR)).any(),
            weighs=(col("is_parameter") & col("differs")).any() & col("off").any(),
            inputless=col("no_inputs").any(),
            follows=pl.lit(False),
            row=col("row").filter(first).first(),
            figures=col("figures").filter(first).first(),
            message=col("message").filter(first).first(),
            input_row=col("row").filter(other).first(),
            input_at=col("target_row").filter(other).first(),
            input_figures=col("figures").filter(other).first(),
            before=pl.lit(None),
            twin=pl.lit(None),
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
        far_in=pl.lit(False), weighs=pl.lit(False), follows=pl.lit(False), figures=pl.lit(LACKS),
        message=pl.lit("[]"),
    )  # fmt: skip
    added = added.with_columns(fed=pl.lit(int(Seen.NOTHING)))
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


def call_facts(rows: pl.DataFrame, tensors: pl.DataFrame, early: pl.DataFrame | None = None) -> pl.DataFrame:
    """What communication calls give and get.

    Parameters
    ----------
    rows : polars.DataFrame
        Of ``row_facts``.
    tensors : polars.DataFrame
        ``op``, ``item``, ``side`` (sent, got) and ``row`` of ``kernels.communication.communication_tensors`` of the target.
    early : polars.DataFrame, optional
        ``op`` and ``item`` of operations whose buffer was recorded, on either side, before they were done: that it differs
        proves nothing.

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
    facts = (
        met.group_by("op", "item", maintain_order=True)
        .agg(
            gives=_together(sent),
            gets=_together(got, (col("kind") == Kind.NUMBERS) | (col("differs") & blind)),
            given_gap=col("gap").filter(sent).max(),
            got_gap=col("gap").filter(got).max(),
            row=col("row").filter(other).first(),
            figures=col("figures").filter(other).first(),
            sizes=pl.lit(None),
        )
        .select(col(name).cast(kind) for name, kind in CALL_FACTS.items())
    )
    if early is None or early.is_empty():
        return facts
    doubtful = facts.join(early.with_columns(early=pl.lit(True)), on=["op", "item"], how="left", maintain_order="left")
    unknown = (col("gets") == Seen.DIFFER) & col("early").fill_null(False)
    return doubtful.with_columns(
        gets=pl.when(unknown).then(pl.lit(int(Seen.NOTHING), pl.UInt8)).otherwise("gets"),
        got_gap=pl.when(~unknown).then("got_gap"),
    ).select(list(CALL_FACTS))


def candidates(facts: pl.DataFrame) -> pl.DataFrame:
    """The ops of a rank that may be an answer: the others only pass on what differs before them.

    Parameters
    ----------
    facts : polars.DataFrame
        Schema ``OP_FACTS``, in order.

    Returns
    -------
    polars.DataFrame
        Communications, ops with an error or a weight of their own, and the first op of each kind of difference.
    """
    first = pl.int_range(pl.len()).over("kind", "far_in", "inputless", _communicates()) == 0
    return facts.filter(_communicates() | added() | other_weight() | first)


def added() -> pl.Expr:
    """Whether an op has an error of its own wherever it stands: its output differs, its inputs are all but equal.

    Behind a fault that is known already, inputs that agree roughly prove nothing: some ops (the backward of a softmax, a sum of
    gradients) make much of little, and statistics show little of much.
    """
    clean = (col("inputs") == Seen.AGREE) & (col("input_gap").fill_null(0.0) <= CLEAN)
    return _wrong() & ~col("follows") & clean


def added_first() -> pl.Expr:
    """The same of an op before which nothing differs: inputs that agree are enough, or an output much further off than they are.

    An argument that changed or is not there has no gap to be held against.
    """
    much = ((col("input_gap") > HELD) & (col("output_gap") > MUCH_MORE * col("input_gap"))).fill_null(False)
    return _wrong() & ((col("inputs") == Seen.AGREE) | ((col("inputs") == Seen.DIFFER) & much))


def other_weight() -> pl.Expr:
    """Whether a parameter puts an output off, wherever the op stands: all else that goes in is all but equal.

    No op before it hands a parameter on.
    """
    clean = (col("fed") == Seen.AGREE) & (col("fed_gap").fill_null(0.0) <= CLEAN)
    return (col("weighs") & ~col("inputless") & ~col("follows") & clean).fill_null(False)


def other_weight_first() -> pl.Expr:
    """The same of an op before which nothing differs: nothing but parameters is known to differ."""
    return (col("inputs") == Seen.DIFFER) & (col("fed") != Seen.DIFFER)


def _wrong() -> pl.Expr:
    return (col("kind") == Kind.NUMBERS) & ~col("inputless")


def _communicates() -> pl.Expr:
    return pl.any_horizontal([col("name").str.starts_with(f"{word}.") for word in TYPES])


def _together(which: pl.Expr, differs: pl.Expr = col("differs")) -> pl.Expr:  # noqa: B008
    """``Seen`` of the rows of a group that are meant."""
    return (
        pl.when((which & differs).any())
        .then(int(Seen.DIFFER))
        .when((which & col("seen")).any() & ~(which & col("hidden")).any())
        .then(int(Seen.AGREE))
        .otherwise(int(Seen.NOTHING))
    )


def _unmeetable(mode: DumpMode) -> pl.Expr:
    """Whether the shapes of a pair cannot meet; never null."""
    shape = col("shape_differs")
    if mode is DumpMode.TENSOR:
        shape = shape | (col("state") == MetricState.SHAPE)
    return shape.fill_null(False)


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
    edges = pl.max_horizontal([col(f"{edge}_relative_number").fill_nan(float("inf")) for edge in ("max", "min")])
    known = pl.when(overflowed("norm")).then(edges).otherwise(pl.max_horizontal("agreement", "scaled"))
    off = pl.when(other_shape).then(float("inf")).otherwise(known)
    return pl.when(other_shape | col("agreement").is_not_null()).then(off)


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
