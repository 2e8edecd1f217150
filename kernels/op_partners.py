"""What stands around an op on either side and may explain its difference: ops of one side before it, another group, a golden op
that has its values, a buffer that was recorded too early. Pure: frames in, frames out."""

from __future__ import annotations

from typing import Final

import polars as pl
from opassay.kernels.call_events import world_ranks
from opassay.kernels.communication import members
from opassay.kernels.phrases import phrase
from opassay.kernels.promises import IN_PLACE
from opassay.kernels.scopes import op_facts
from opassay.schemas.communication_rows import WORLD
from opassay.schemas.dump_rows import STATISTICS
from opassay.schemas.op_facts import MISSING
from opassay.schemas.vocab import MatchKind, RowKind, Section

_BY_FILE: Final = [int(MatchKind.MAPPED), int(MatchKind.MAPPED_WRAPPER)]

col = pl.col


def partners(met: pl.DataFrame) -> pl.DataFrame:
    """``op`` and ``golden_op`` of the target's ops: the golden op of the first row that has a partner, null where none has.

    Parameters
    ----------
    met : polars.DataFrame
        ``target_op`` and ``golden_op`` of every row of a pairing, null for a side that is not there.
    """
    ours = met.lazy().filter(col("target_op").is_not_null())
    return ours.group_by(op="target_op").agg(golden_op=col("golden_op").drop_nulls().first()).sort("op").collect()


def standing_before(
    met: pl.DataFrame, pairs: pl.DataFrame, target_names: pl.Series, golden_names: pl.Series
) -> pl.DataFrame:
    """The ops of one side that stand directly before an op of the target, or before its golden partner.

    Parameters
    ----------
    met : polars.DataFrame
        As for ``partners``.
    pairs : polars.DataFrame
        Of ``partners``.
    target_names, golden_names : polars.Series
        Names of the ops of either side, in the order of its dump.

    Returns
    -------
    polars.DataFrame
        ``op`` (UInt32) and ``before``: "Torch.neg.0.forward, which only the target has". Ops that compute nothing are not told.
    """
    theirs = met.lazy().filter(col("golden_op").is_not_null()).group_by(op="golden_op")
    unmet = theirs.agg(met=col("target_op").is_not_null().any()).filter(~col("met")).collect()["op"]
    alone = pairs.filter(col("golden_op").is_null())["op"]
    ours = _followed(alone, target_names, "target", "op")
    golden = _followed(unmet, golden_names, "golden side", "golden_op")
    found = pairs.join(ours, on="op", how="left", maintain_order="left").join(
        golden, on="golden_op", how="left", maintain_order="left", suffix="_golden"
    )
    return found.select("op", before=pl.coalesce("before", "before_golden")).filter(col("before").is_not_null())


def _followed(ops: pl.Series, names: pl.Series, side: str, key: str) -> pl.DataFrame:
    """The ops behind some, under ``key``, and what to say of them."""
    held = pl.DataFrame({key: ops + 1, "name": names.gather(ops)}, schema={key: pl.UInt32, "name": pl.String})
    telling = held.filter(~op_facts(held["name"])["redundant"])
    return telling.select(key, before=phrase(f"{{}}, which only the {side} has", col("name")))


def met_ops(judged: pl.DataFrame) -> pl.DataFrame:
    """Ops of a slice's golden side: ``golden_op``, ``name``, and ``target_op``, null for those without a row of the target.

    Parameters
    ----------
    judged : polars.DataFrame
        A slice of ``pipeline.judge.Judging.slices``: whole ops.
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


def loosely_mapped(met: pl.DataFrame) -> pl.Series:
    """Target ops that a mapping file pairs row by row and whose golden op has inputs left over: an input without a partner is one
    that the file does not name, not one that the golden side does not have.

    Parameters
    ----------
    met : polars.DataFrame
        As for ``partners``, with ``match`` and ``golden_section``.
    """
    spare = met.filter(col("target_op").is_null() & (col("golden_section") <= Section.PARAMETERS))["golden_op"].unique()
    mapped = met.filter(col("match").is_in(_BY_FILE) & col("golden_op").is_in(spare.implode()))
    return mapped["target_op"].unique().sort()


def fused_otherwise(met: pl.DataFrame) -> pl.Series:
    """Target ops whose golden op gives one more tensor: training against inference that is an op fused with another one, as a norm
    or a layer that hands the residual on beside its output.

    Parameters
    ----------
    met : polars.DataFrame
        As for ``partners``, with ``golden_section`` and ``golden_kind``.
    """
    output = (col("golden_section") == Section.OUTPUT) & (col("golden_kind") == RowKind.TENSOR)
    spare = met.filter(col("target_op").is_null() & output)["golden_op"].unique()
    return met.filter(col("golden_op").is_in(spare.implode()))["target_op"].drop_nulls().unique().sort()


def recorded_early(calls: pl.DataFrame, tensors: pl.DataFrame) -> pl.DataFrame:
    """Operations whose buffer shows after the call just what it held before: asynchronous, and recorded before they were done.

    Parameters
    ----------
    calls, tensors : polars.DataFrame
        ``communication_calls`` and ``communication_tensors`` of one side.

    Returns
    -------
    polars.DataFrame
        ``op`` and ``item``.
    """
    later = calls.filter("asynchronous").select("op", "item", "api")
    rows = tensors.join(later, on=["op", "item"], how="inner", maintain_order="left")
    held = rows.filter((col("side") == "before") | ((col("side") == "sent") & col("api").is_in(list(IN_PLACE))))
    both = rows.filter(col("side") == "got").join(held, on=["op", "item", "part"], suffix="_before")
    figures = pl.all_horizontal([col(stat) == col(f"{stat}_before") for stat in STATISTICS])
    same = pl.coalesce(col("md5") == col("md5_before"), figures).fill_null(False)
    return both.filter(same).select("op", "item").unique()


def groups_of_other_size(pairs: pl.DataFrame, target: pl.DataFrame, golden: pl.DataFrame) -> pl.DataFrame:
    """Calls that other numbers of ranks make on the two sides.

    Parameters
    ----------
    pairs : polars.DataFrame
        Of ``partners``.
    target, golden : polars.DataFrame
        ``communication_calls`` of either side.

    Returns
    -------
    polars.DataFrame
        ``op``, ``item`` and ``sizes``: "4 ranks take part, 2 on the golden side".
    """
    collective = col("role") == "collective"
    ours = target.filter(collective).select("op", "item", ranks=_sizes(target))
    theirs = golden.filter(collective).select(golden_op="op", item="item", golden_ranks=_sizes(golden))
    met = ours.join(pairs, on="op", maintain_order="left").join(theirs, on=["golden_op", "item"], maintain_order="left")
    other = met.filter((col("ranks") > 0) & (col("golden_ranks") > 0) & (col("ranks") != col("golden_ranks")))
    told = phrase("{} ranks take part, {} on the golden side", col("ranks"), col("golden_ranks"))
    return other.select("op", "item", sizes=told)


def _sizes(calls: pl.DataFrame) -> pl.Expr:
    """Ranks in the group of a call, 0 where the dump does not say."""
    known = {text: len(members(text)) for text in calls["group"].unique().to_list() if text != WORLD}
    known[WORLD] = len(world_ranks((), calls))
    return col("group").replace_strict(known, return_dtype=pl.Int64)


def twins(wanted: pl.DataFrame, golden: pl.DataFrame) -> pl.DataFrame:
    """Golden ops that were given what an op of the target was given, where both are calls of one kind: experts in another order.

    Parameters
    ----------
    wanted, golden : polars.DataFrame
        ``name`` (of the op), ``slot``, ``shape``, ``kind``, ``md5`` and the statistics of rows; ``wanted`` with ``op``.

    Returns
    -------
    polars.DataFrame
        ``op`` and ``twin``, the name of the first such golden op.
    """
    plain = golden.filter(col("kind") == RowKind.TENSOR).select("slot", "shape", "md5", *STATISTICS, twin="name")
    asked = wanted.filter(col("kind") == RowKind.TENSOR).select("op", "name", "slot", "shape", "md5", *STATISTICS)
    told = (col("norm").is_not_null() & (col("norm") != 0)) | col("md5").is_not_null()
    found = asked.filter(told).join(
        plain, on=["slot", "shape", "md5", *STATISTICS], how="inner", nulls_equal=True, maintain_order="left_right"
    )
    one_kind = col("name").str.replace_all(r"\d+", "#") == col("twin").str.replace_all(r"\d+", "#")
    return found.filter(one_kind).unique("op", keep="first", maintain_order=True).select("op", "twin")
