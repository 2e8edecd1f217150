"""NPU against GPU: from two rows of figures to ratios, verdicts and messages, by the six standards (accuracy_checker.md 8.3).

Pure: columns in, columns out. A figure that is blank was not computed and is never taken for 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from opassay.kernels.phrases import phrase
from opassay.kernels.precision.tables import ABSOLUTE, ACCUMULATIVE, BENCHMARK, BINARY, LABELS, LIMITS, THOUSANDTH, ULP
from opassay.schemas.check_rows import BLANK, DETAILS, Status
from opassay.schemas.precision_rows import COMPARED

GPU: Final = "_gpu"
"""What the GPU's columns have behind the name."""

FIGURES: Final = (
    "cosine", "error_max", "small_value", "rmse", "relative_max", "relative_mean", "balance", "binary", "inf_nan",
    "relative_rate", "absolute_rate", "ulp_mean", "ulp_share", "thousandth",
)  # fmt: skip
"""The figures that are read on each side, as text."""

EMPTY: Final = "ERROR: Input data is an empty string"
NO_NUMBER: Final = "ERROR: Input data cannot be converted to float"

FLOORS: Final = {"torch.float16": 2.0**-11, "torch.bfloat16": 2.0**-8}
"""Least denominator of a ratio, by the dtype of the output."""
FLOOR: Final = 2.0**-14
"""That of all other dtypes."""
FINE_FLOORS: Final = {"relative_mean": 2.0**-22, "relative_max": 2.0**-20}
"""4 and 16 roundings of float32: what the relative errors of an output that is right cannot fall below by much."""

RATIO_LIMITS: Final = {"small_value": 2.0, "rmse": 2.0, "relative_max": 10.0, "relative_mean": 2.0, "balance": 2.0}
"""Largest ratio that passes; that of the balance is shown and does not count."""
NOT_COUNTED: Final = frozenset({"balance"})
THOUSANDTH_MIN: Final = 0.999
ULP_MEAN_BELOW: Final = 64.0
ULP_SHARE_BELOW: Final = {"torch.float32": 0.05}
ULP_SHARE_BELOW_16_BITS: Final = 0.001
ULP_RATIO_MAX: Final = 1.0

_RATE_TITLES: Final = {name: DETAILS[name] for name in ("inf_nan", "relative_rate", "absolute_rate")}
_ERROR_TITLES: Final = {
    "small_value": "小值域错误",
    "rmse": "均方根误差",
    "relative_max": "相对误差最大值",
    "relative_mean": "相对误差平均值",
}
_PASS, _WARNING, _ERROR, _SKIP = Status.PASS.value, Status.WARNING.value, Status.ERROR.value, Status.SKIP.value
_INF_NAN_FAILED: Final = "ERROR: inf/nan错误率超过阈值"
_ULP_FAILED: Final = "ERROR: ULP误差不满足标准\n"
_CELLS: Final = tuple(COMPARED)[1:-3]


@dataclass(frozen=True, slots=True)
class Standard:
    """How a row is judged.

    Attributes
    ----------
    npu, gpu : tuple of str
        Figures that are needed of either side.
    judge : callable
        Frame of such rows -> frame with ``index``, ``verdict``, ``message`` and the cells that are filled.
    """

    npu: tuple[str, ...]
    gpu: tuple[str, ...]
    judge: Callable[[pl.DataFrame], pl.DataFrame]


def filled(standard: str) -> pl.Expr:
    """Whether a row has every figure that a standard needs; Boolean.

    Parameters
    ----------
    standard : str
        A key of `STANDARDS`.
    """
    return ~pl.any_horizontal(_blank(column) for column in _needs(standard))


def judge(rows: pl.DataFrame) -> pl.DataFrame:
    """Judge pairs of rows.

    Parameters
    ----------
    rows : polars.DataFrame
        ``index`` (any integer, ascending), ``dtype``, ``shape``, ``dtype_gpu``, ``shape_gpu``, ``standard`` (a key of
        `STANDARDS`; null: none holds for the dtype) and, as String, each of `FIGURES` with and without `GPU`.

    Returns
    -------
    polars.DataFrame
        ``index``; the cells of ``COMPARED`` but the name, as String, ``" "`` where nothing was computed; ``message`` null where
        there is none; and ``why``, ``blank`` or ``text`` where a figure kept the row from being judged. A row without a
        standard has the verdict SKIP unless only the device has nan or inf.
    """
    rows = rows.with_columns(
        floor=pl.col("dtype").replace_strict(FLOORS, default=FLOOR, return_dtype=pl.Float64),
        why=_why(),
        **{name: _number(name).alias(name) for name in _sides(FIGURES)},
        **{f"{name}_text": pl.col(name) for name in ("binary", "thousandth")},
    )
    parts = [
        standard.judge(part).with_columns(algorithm=pl.lit(LABELS[name]))
        for name, standard in STANDARDS.items()
        if not (part := rows.filter((pl.col("standard") == name) & pl.col("why").is_null())).is_empty()
    ]
    none = rows.filter(pl.col("standard").is_null() | pl.col("why").is_not_null())
    reason = pl.col("why").replace_strict({"blank": EMPTY, "text": NO_NUMBER}, default=None, return_dtype=pl.String)
    parts.append(none.select("index", verdict=pl.lit(_SKIP), message=reason))
    judged = pl.concat(parts, how="diagonal").with_columns(pl.col("message").fill_null(""))
    missing = [name for name in (*_CELLS, "algorithm") if name not in judged.columns]
    judged = judged.with_columns(pl.lit(BLANK).alias(name) for name in missing)
    judged = rows.join(judged, on="index", how="left", suffix="_cell", maintain_order="left")
    judged = _overruled(judged)
    shown = {name: f"{name}_cell" if name in FIGURES else name for name in (*_CELLS, "verdict", "algorithm")}
    return judged.select(
        "index",
        *(pl.col(column).fill_null(BLANK).alias(name) for name, column in shown.items()),
        message=pl.when(pl.col("message") != "").then("message"),
        why="why",
    )


def _overruled(rows: pl.DataFrame) -> pl.DataFrame:
    """What holds under every standard: nan and inf by position, equal files, and no pass without a look at what was paired."""
    rate = pl.col("inf_nan")
    # the figures that a nan spoils, where nothing counts positions: the reference is the same on both hosts
    only_here = (pl.col("cosine").is_nan() & pl.col("cosine_gpu").is_not_nan()) | (
        ~pl.col("error_max").is_finite() & pl.col("error_max_gpu").is_finite()
    )
    counted = rate.is_not_null()
    device_only = pl.when(counted).then(rate != 0).otherwise(only_here).fill_null(False)
    judged = pl.col("why").is_null()
    passed = pl.col("verdict") == _PASS
    equal = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name + GPU)) for name in FIGURES)
    excused = pl.col("verdict").is_in([_ERROR, _WARNING]) & equal & ~device_only & judged
    rows = rows.with_columns(
        device_only=device_only & judged,
        excused=excused,
        caveat=pl.when(passed | excused)
        .then(pl.concat_str(_unlike("dtype"), _unlike("shape"), *_lax()))
        .otherwise(pl.lit("")),
    )
    told = pl.col("message")
    plain = told.str.replace_all("ERROR: ", "", literal=True).str.strip_chars_end()
    shown = judged & counted & ((pl.col("verdict") != _SKIP) | pl.col("device_only"))
    verdict_cells = [name for name in _CELLS if name.endswith("_verdict")]
    return rows.with_columns(
        pl.when("device_only").then(pl.lit(_ERROR)).when(pl.col("caveat") != "").then(pl.lit(_WARNING))
        .when("excused").then(pl.lit(_PASS)).otherwise("verdict").alias("verdict"),
        pl.concat_str(
            pl.when("excused").then(phrase("the GPU's figures are equal: {}\n", plain)).otherwise(told),
            pl.when(~pl.col("device_only") | told.str.contains(_INF_NAN_FAILED, literal=True)).then(pl.lit(""))
            .when(counted).then(pl.lit(f"{_INF_NAN_FAILED}\n")).otherwise(pl.lit("ERROR: nan or inf only on the device\n")),
            "caveat",
        ).alias("message"),
        *(
            pl.when(pl.col("excused") & (pl.col(name) == _ERROR)).then(pl.lit(_PASS)).otherwise(name).alias(name)
            for name in verdict_cells if name != "inf_nan_verdict"
        ),
        pl.when(shown).then(_fixed("inf_nan")).otherwise("inf_nan_cell").alias("inf_nan_cell"),
        pl.when("device_only").then(pl.lit(_ERROR)).when(shown).then(pl.lit(_PASS))
        .otherwise("inf_nan_verdict").alias("inf_nan_verdict"),
    )  # fmt: skip


def _unlike(column: str) -> pl.Expr:
    """Says that two rows of one name are not of one kind; "" where they are."""
    ours, theirs = pl.col(column), pl.col(column + GPU)
    known = (ours.str.strip_chars() != "") & (theirs.str.strip_chars() != "")
    differ = (known & (ours != theirs)).fill_null(False)
    return (
        pl.when(differ)
        .then(phrase(f"{column} {{}} here and {{}} in the GPU file\n", ours, theirs))
        .otherwise(pl.lit(""))
    )


def _lax() -> list[pl.Expr]:
    """For each relative error of a float32 row: says that only the floor of the ratio lets it pass."""
    texts = []
    for name, fine in FINE_FLOORS.items():
        ratio = pl.col(name).abs() / pl.max_horizontal(pl.col(name + GPU).abs(), pl.lit(fine))
        lax = (pl.col("standard") == BENCHMARK) & (pl.col("dtype") == "torch.float32") & (ratio > RATIO_LIMITS[name])
        both = pl.col(name).is_finite() & pl.col(name + GPU).is_finite()
        text = phrase(
            f"{DETAILS[name]} {{}} is more than {RATIO_LIMITS[name]:g} times the GPU's {{}}, the ratio's floor 2^-14 hides it\n",
            pl.col(name),
            pl.col(name + GPU),
        )
        texts.append(pl.when((lax & both).fill_null(False)).then(text).otherwise(pl.lit("")))
    return texts


def _benchmark(rows: pl.DataFrame) -> pl.DataFrame:
    """标杆比对法: no error figure may be much larger than the GPU's."""
    rows = rows.with_columns(_ratio(name).alias(f"{name}_ratio") for name in RATIO_LIMITS)
    good = {
        name: pl.when(_special(name)).then(_agree(name)).otherwise(pl.col(f"{name}_ratio") <= limit)
        for name, limit in RATIO_LIMITS.items()
    }
    counted = [name for name in RATIO_LIMITS if name not in NOT_COUNTED]
    return rows.select(
        "index",
        *(_fixed(f"{name}_ratio") for name in RATIO_LIMITS),
        *(_word(good[name]).alias(f"{name}_verdict") for name in RATIO_LIMITS),
        verdict=_word(pl.all_horizontal(good[name] for name in counted)),
        message=pl.concat_str(
            *(_special_text(name) for name in RATIO_LIMITS),
            *(_unless(good[name], f"ERROR: {_ERROR_TITLES[name]}比值超过阈值\n") for name in counted),
        ),
    )


def _absolute(rows: pl.DataFrame) -> pl.DataFrame:
    """绝对阈值法: not one element of the device may be out of bounds."""
    return _rates(rows, ending="")


def _accumulative(rows: pl.DataFrame) -> pl.DataFrame:
    """累积误差比对法: as 绝对阈值法, and the errors do not lean to one side."""
    limits = {dtype: limit.accumulative_balance for dtype, limit in LIMITS.items()}
    limit = pl.col("dtype").replace_strict(limits, default=0.0, return_dtype=pl.Float64)
    even = (pl.col("balance") <= limit) & pl.col("balance").is_not_nan()
    judged = _rates(rows, ending="\n", between="\n").with_columns(balance_verdict=rows.select(_word(even)).to_series())
    uneven = pl.col("balance_verdict") == _ERROR
    return judged.with_columns(
        pl.when(uneven).then(pl.lit(_ERROR)).otherwise("verdict").alias("verdict"),
        pl.concat_str(
            "message",
            pl.when(uneven & (pl.col("message") != "")).then(pl.lit("\n")).otherwise(pl.lit("")),
            pl.when(uneven).then(pl.lit("ERROR: 误差均衡性超过阈值\n")).otherwise(pl.lit("")),
        ).alias("message"),
    )


def _rates(rows: pl.DataFrame, *, ending: str, between: str = "") -> pl.DataFrame:
    """The three shares of elements out of bounds, each of which must be 0."""
    good = {name: pl.col(name) == 0 for name in _RATE_TITLES}
    texts = [
        pl.when(~good[name]).then(pl.lit(f"ERROR: {title}超过阈值{ending}")) for name, title in _RATE_TITLES.items()
    ]
    return rows.select(
        "index",
        *(_fixed(name) for name in _RATE_TITLES),
        *(_word(good[name]).alias(f"{name}_verdict") for name in _RATE_TITLES),
        verdict=_word(pl.all_horizontal(good.values())),
        message=pl.concat_str(texts, separator=between, ignore_nulls=True),
    )


def _binary(rows: pl.DataFrame) -> pl.DataFrame:
    """二进制一致法: not one element may differ."""
    good = pl.col("binary") == 0
    return rows.select(
        "index",
        binary="binary_text",
        binary_verdict=_word(good),
        verdict=_word(good),
        message=_unless(good, "ERROR: 二进制一致错误率超过阈值\n"),
    )


def _thousandth(rows: pl.DataFrame) -> pl.DataFrame:
    """双千指标法: 99.9 % of the elements within a thousandth.

    bfloat16 rounds by up to 0.002, so that nothing correct reaches that: no worse than the GPU is a warning there.
    """
    ours, theirs = pl.col("thousandth"), pl.col("thousandth" + GPU)
    good = (ours >= THOUSANDTH_MIN) & ours.is_not_nan()
    rounding = (pl.col("dtype") == "torch.bfloat16") & (ours >= theirs) & ours.is_not_nan() & theirs.is_not_nan()
    milder = ~good & rounding.fill_null(False)
    no_worse = "双千指标不达标: bfloat16 rounds by more than a thousandth, and the GPU has no more elements within it\n"
    return rows.select(
        "index",
        thousandth="thousandth_text",
        thousandth_verdict=_word(good),
        verdict=pl.when(milder).then(pl.lit(_WARNING)).otherwise(_word(good)),
        message=pl.when(milder).then(pl.lit(no_worse)).otherwise(_unless(good, "ERROR: 双千指标不达标\n")),
    )


def _ulp(rows: pl.DataFrame) -> pl.DataFrame:
    """ULP误差比对法: few units in the last place, or no more of them than the GPU has."""
    rows = rows.with_columns(ulp_ratio=_ratio("ulp_share"))
    figures = ("ulp_mean", "ulp_share")
    clash = pl.any_horizontal(_special(name) & ~_agree(name) for name in figures)
    below = pl.col("dtype").replace_strict(ULP_SHARE_BELOW, default=ULP_SHARE_BELOW_16_BITS, return_dtype=pl.Float64)
    # polars holds nan for the largest number: every comparison with one must be false
    few = (pl.col("ulp_share") < below) | (pl.col("ulp_ratio").is_not_nan() & (pl.col("ulp_ratio") <= ULP_RATIO_MAX))
    near = (pl.col("ulp_mean") < ULP_MEAN_BELOW) & (pl.col("dtype") == "torch.float32")
    good = (few | near) & ~clash
    return rows.select(
        "index",
        *(_fixed(name) for name in (*figures, "ulp_ratio")),
        ulp_verdict=pl.when(clash).then(pl.lit(BLANK)).otherwise(_word(good)),
        verdict=_word(good),
        message=pl.concat_str(*(_special_text(name) for name in figures), _unless(good, _ULP_FAILED)),
    )


_RATES: Final = tuple(_RATE_TITLES)
STANDARDS: Final[Mapping[str, Standard]] = {
    ABSOLUTE: Standard(_RATES, (), _absolute),
    BINARY: Standard(("binary",), (), _binary),
    ULP: Standard(("ulp_mean", "ulp_share"), ("ulp_mean", "ulp_share"), _ulp),
    THOUSANDTH: Standard(("thousandth",), (), _thousandth),
    ACCUMULATIVE: Standard((*_RATES, "balance"), (), _accumulative),
    BENCHMARK: Standard(tuple(RATIO_LIMITS), tuple(RATIO_LIMITS), _benchmark),
}
"""The standards by their names in the checker's tables."""


def _sides(names: Sequence[str]) -> list[str]:
    return [*names, *(name + GPU for name in names)]


def _needs(standard: str) -> list[str]:
    return [*STANDARDS[standard].npu, *(name + GPU for name in STANDARDS[standard].gpu)]


def _blank(column: str) -> pl.Expr:
    return (pl.col(column).str.strip_chars() == "").fill_null(True)


def _number(column: str) -> pl.Expr:
    """A cell as a number, in any of the formats that the checkers write; null where it is none."""
    return pl.col(column).str.strip_chars().str.to_lowercase().cast(pl.Float64, strict=False)


def _why() -> pl.Expr:
    """What keeps a row from being judged: ``blank`` or ``text`` in a figure of its standard; else null."""
    why = pl.lit(None, pl.String)
    for name in STANDARDS:
        cells = _needs(name)
        reason = (
            pl.when(pl.any_horizontal(_blank(cell) for cell in cells)).then(pl.lit("blank"))
            .when(pl.any_horizontal(_number(cell).is_null() for cell in cells)).then(pl.lit("text"))
        )  # fmt: skip
        why = pl.when(pl.col("standard") == name).then(reason).otherwise(why)
    return why


def _special(name: str) -> pl.Expr:
    """Whether the figure is no finite number on either side."""
    return ~(pl.col(name).is_finite() & pl.col(name + GPU).is_finite())


def _agree(name: str) -> pl.Expr:
    """Whether both are nan, or both the same infinity."""
    ours, theirs = pl.col(name), pl.col(name + GPU)
    return (ours.is_nan() & theirs.is_nan()) | (ours.is_infinite() & theirs.is_infinite() & (ours == theirs))


def _ratio(name: str) -> pl.Expr:
    """NPU over GPU, over the floor at least; nan where either is no finite number."""
    ratio = pl.col(name).abs() / pl.max_horizontal(pl.col(name + GPU).abs(), "floor")
    return pl.when(_special(name)).then(pl.lit(float("nan"))).otherwise(ratio)


def _special_text(name: str) -> pl.Expr:
    title = DETAILS[name]
    return (
        pl.when(~_special(name)).then(pl.lit(""))
        .when(_agree(name)).then(pl.lit(f"{title}同为同号inf或nan\n"))
        .otherwise(pl.lit(f"{title}inf或nan不一致\n"))
    )  # fmt: skip


def _word(good: pl.Expr) -> pl.Expr:
    return pl.when(good).then(pl.lit(_PASS)).otherwise(pl.lit(_ERROR))


def _unless(good: pl.Expr, text: str) -> pl.Expr:
    return pl.when(good).then(pl.lit("")).otherwise(pl.lit(text))


def _fixed(column: str) -> pl.Expr:
    """A number with 14 digits after the point; null stays."""
    return pl.col(column).map_batches(_fixed_texts, return_dtype=pl.String)


def _fixed_texts(numbers: pl.Series) -> pl.Series:
    texts = pl.Series(numbers.name, np.char.mod("%.14f", numbers.fill_null(0.0).to_numpy()), dtype=pl.String)
    return texts if numbers.null_count() == 0 else pl.select(pl.when(numbers.is_not_null()).then(texts)).to_series()
