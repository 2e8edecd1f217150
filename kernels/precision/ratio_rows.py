"""Rows of two details files, paired by name: what is compared with what, and why a row is not (accuracy_checker.md 8.2)."""

from __future__ import annotations

from typing import Final

import polars as pl
from opassay.kernels.phrases import phrase
from opassay.kernels.precision.ratios import FIGURES, GPU, STANDARDS, filled, judge
from opassay.kernels.precision.standards import Direction, standard_of
from opassay.kernels.precision.tables import BENCHMARK, LIMITS
from opassay.schemas.check_rows import BLANK, Status
from opassay.schemas.precision_rows import COMPARED

UNSUPPORTED_DTYPES: Final = tuple(dtype for dtype, limits in LIMITS.items() if not limits.metrics)
"""Dtypes that no standard has thresholds for."""
UNSUPPORTED: Final = "This data type does not support benchmark compare."

_NAME: Final = r"^([^.]+)\.([^.]+(?:\.[^.]+)?)\.(\d+)\.(forward|backward)\.[^.]+\..+$"
_EMPTY_SHAPE: Final = r"^[(\[] ?(?:\d+, ?)*0(?:, ?\d+)*,? ?[)\]]$"
_SKIP: Final = Status.SKIP.value
_REPEAT: Final = "repeat"
_JUDGED, _SKIPPED, _ALONE = "judged", "skipped", "alone"


def compare_rows(npu: pl.DataFrame, gpu: pl.DataFrame) -> pl.DataFrame:
    """Pair the rows of two details files by name and judge each pair.

    Parameters
    ----------
    npu, gpu : polars.DataFrame
        Rows in the order of their file, String: ``name``, ``device_dtype``, ``shape``, ``message`` and `FIGURES`; null is blank.

    Returns
    -------
    polars.DataFrame
        One row for each row of ``npu``, in its order, then one for each name that only ``gpu`` has: the columns of
        ``COMPARED`` as String, and ``index``, ``call``, ``api``, ``direction``, ``kind`` (``judged``, ``skipped``,
        ``unsupported``, ``repeated``, ``alone``: it stands for itself in the result), ``in_npu``, ``gpu_rows`` (UInt32, rows of
        that name there), ``why`` (``blank`` or ``text``: the figure that kept it from being judged).

    Notes
    -----
    An output is judged by the standard of its operator if both rows have its figures, else by the one that the document's
    lists name, else by the benchmark standard: files of other tools choose their columns by other lists.
    """
    rows = _with_choices(_with_reasons(_paired(npu, gpu)))
    # a row of an unsupported dtype has no standard, but nan and inf condemn it all the same
    seen = rows.filter(pl.col("reason").is_null() | (pl.col("kind") == "unsupported"))
    judged = judge(_with_standards(seen)).rename({"message": "judged_message"})
    rows = rows.drop(FIGURES).join(judged, on="index", how="left", maintain_order="left")
    told, kept_out = pl.col("verdict").fill_null(_SKIP) != _SKIP, pl.col("why").is_not_null()
    twice = phrase("the GPU file has {} rows of this name, the first was used\n", pl.col("gpu_rows"))
    looked_up = pl.col("in_npu") & (pl.col(_REPEAT) == 0)
    message = pl.concat_str(
        pl.col("judged_message").fill_null(""),
        pl.when(~told & ~kept_out).then(pl.col("reason").fill_null("")).otherwise(pl.lit("")),
        pl.when((pl.col("gpu_rows") > 1) & looked_up).then(twice).otherwise(pl.lit("")),
    )
    return rows.select(
        "name",
        *(pl.col(name).fill_null(BLANK) for name in tuple(COMPARED)[1:-3]),
        pl.col("verdict").fill_null(_SKIP),
        pl.col("algorithm").fill_null(BLANK),
        pl.when(message != "").then(message).alias("message"),
        *("index", "call", "api", "direction", "in_npu", "gpu_rows", "why"),
        pl.when(told).then(pl.lit(_JUDGED)).when(kept_out).then(pl.lit(_ALONE)).otherwise("kind").alias("kind"),
    )


def _with_reasons(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds ``reason``, why a row is not judged by a standard, null where it is, and ``kind``, which it is then."""
    dtype = pl.col("dtype").fill_null("").str.strip_chars()
    empty = pl.col("shape").fill_null("").str.strip_chars().str.contains(_EMPTY_SHAPE)
    again = phrase("row {} of this name in the NPU file; the first was compared", pl.col(_REPEAT) + 1)
    reasons = {
        "invalid": (pl.col("call").is_null(), phrase("The API name {} is invalid.", pl.col("name"))),
        "other": (~pl.col("in_npu"), pl.lit("not in the NPU file")),
        "repeated": (pl.col(_REPEAT) > 0, again),
        "alone": (pl.col("gpu_rows") == 0, pl.lit("not in the GPU file")),
        "blank": (dtype == "", _told("the DEVICE Dtype is blank")),
        "empty": (empty, _told("the tensor has no elements")),
        "unsupported": (dtype.is_in(UNSUPPORTED_DTYPES), _told(UNSUPPORTED)),
    }
    kinds = {"invalid": _ALONE, "repeated": "repeated", "unsupported": "unsupported"}
    reason, kind = pl.lit(None, pl.String), pl.lit(_SKIPPED)
    for name, (holds, text) in reversed(reasons.items()):
        reason = pl.when(holds).then(text).otherwise(reason)
        kind = pl.when(holds).then(pl.lit(kinds.get(name, _SKIPPED))).otherwise(kind)
    return rows.with_columns(dtype=dtype, reason=reason, kind=kind)


def _paired(npu: pl.DataFrame, gpu: pl.DataFrame) -> pl.DataFrame:
    """The NPU's rows with the first GPU row of the same name beside each, then the GPU's other rows."""
    columns = {"name": "name", "device_dtype": "dtype", "shape": "shape", "message": "npu_message"}
    ours = npu.select(
        *(pl.col(column).alias(name) for column, name in columns.items()),
        *FIGURES,
        in_npu=pl.lit(True),
    ).with_columns(pl.int_range(pl.len()).over("name").alias(_REPEAT))
    theirs = gpu.select(
        "name",
        *(pl.col(column).alias(name + GPU) for column, name in (("device_dtype", "dtype"), ("shape", "shape"))),
        *(pl.col(name).alias(name + GPU) for name in FIGURES),
    )
    once = theirs.with_columns(pl.len().over("name").alias("gpu_rows")).unique(
        "name", keep="first", maintain_order=True
    )
    pairs = ours.join(once, on="name", how="left", maintain_order="left")
    others = once.join(ours.select("name"), on="name", how="anti", maintain_order="left")
    whole = pl.concat([pairs, others], how="diagonal").with_columns(
        pl.col("gpu_rows").fill_null(0).cast(pl.UInt32), pl.col("in_npu").fill_null(False), pl.col(_REPEAT).fill_null(0)
    )
    parts = pl.col("name").str.extract_groups(_NAME).struct
    return whole.with_row_index("index").with_columns(
        call=pl.when(parts.field("3").is_not_null()).then(
            phrase("{}.{}.{}", parts.field("1"), parts.field("2"), parts.field("3"))
        ),
        api=parts.field("2"),
        direction=parts.field("4"),
    )


def _with_choices(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds ``first`` and ``document``, the standards that may judge a row; one look-up for an API, dtype and direction.

    An operator that draws numbers gets a reason instead: two draws never agree.
    """
    keys = ["api", "dtype", "direction"]
    operators = rows.filter(pl.col("reason").is_null()).select(keys).unique(maintain_order=True)
    chosen = [_choice(*key) for key in operators.iter_rows()]
    names = ("first", "document", "nothing")
    columns = [pl.Series(name, [one[place] for one in chosen], dtype=pl.String) for place, name in enumerate(names)]
    rows = rows.join(operators.with_columns(columns), on=keys, how="left", maintain_order="left", nulls_equal=True)
    nothing = pl.col("reason").is_null() & pl.col("nothing").is_not_null()
    own = pl.col("npu_message").fill_null("")
    told = pl.when(own.str.strip_chars() != "").then(own).otherwise("nothing")
    return rows.with_columns(pl.when(nothing).then(told).otherwise("reason").alias("reason"))


def _choice(api: str, dtype: str, direction: str) -> tuple[str, str, str | None]:
    """The standard of an operator's output, the one of the document's lists, and why there is none if so."""
    way: Direction = "backward" if direction == "backward" else "forward"
    first = standard_of(api, dtype, way)
    document = standard_of(api, dtype, way, document_only=True)
    return first.name, document.name, None if first.name in STANDARDS else first.why


def _with_standards(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds ``standard``, the first whose figures both rows have; null for those of an unsupported dtype."""
    standard = pl.when(filled(BENCHMARK)).then(pl.lit(BENCHMARK)).otherwise("document")
    for column in ("document", "first"):
        able = pl.lit(False)
        for name in STANDARDS:
            able = pl.when(pl.col(column) == name).then(filled(name)).otherwise(able)
        standard = pl.when(able).then(column).otherwise(standard)
    return rows.with_columns(standard=pl.when(pl.col("kind") != "unsupported").then(standard))


def _told(otherwise: str) -> pl.Expr:
    """The NPU row's own message, or a reason where it has none."""
    own = pl.col("npu_message").fill_null("")
    return pl.when(own.str.strip_chars() != "").then(own).otherwise(pl.lit(otherwise))
