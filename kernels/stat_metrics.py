"""Statistics mode: cell texts, differences and relative errors of max, min, mean and norm, as polars expressions.

A frame of pairs has, for each side (``target_``, ``golden_``) and statistic, the float64 number, its ``vocab.StatKind`` and the text
of ``value`` (see ``schemas.dump_rows``). All arithmetic is IEEE 754 double; integers beyond 2**53 are subtracted exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl
from opassay.schemas.dump_rows import STATISTICS
from opassay.schemas.vocab import RowKind, StatKind

SIDES: Final = ("target", "golden")
_SEPARATOR: Final = "\x1f"
_INTEGER: Final = r"^[+-]?\d{1,30}$"
_BIG_INTEGER: Final = r"^[+-]?\d{16,30}$"
_DEVICE: Final = r"npu|cpu|cuda"
INF: Final = float("inf")


def float_text(number: pl.Expr) -> pl.Expr:
    """Shortest text that reads back as the same float64; nan is ``Nan``, infinities ``inf`` and ``-inf``; null stays null."""
    return pl.when(number.is_nan()).then(pl.lit("Nan")).otherwise(number.cast(pl.String))


@dataclass(frozen=True, slots=True)
class ValueFacts:
    """What there is to know of the printed values of a dump, one entry a dictionary code.

    Attributes
    ----------
    text : polars.Series
        String; null for code 0.
    number : polars.Series
        Float64 of texts that read as a number, else null.
    device : polars.Series
        Boolean: the text names a device.
    big : bool
        Whether any text is an integer of which float64 may not hold every digit.
    four : bool
        Whether any text is four statistics of a tensor in one.
    """

    text: pl.Series
    number: pl.Series
    device: pl.Series
    big: bool
    four: bool


def value_facts(values: Sequence[str]) -> ValueFacts:
    """Look at every distinct printed value once.

    Parameters
    ----------
    values : sequence of str
        Dictionary of a DumpTable; entry 0 stands for no text.
    """
    text = pl.Series([None, *list(values)[1:]], dtype=pl.String)
    facts = pl.DataFrame({"text": text}).select(
        "text",
        number=pl.col("text").cast(pl.Float64, strict=False),
        device=pl.col("text").str.contains(_DEVICE).fill_null(False),
        big=pl.col("text").str.contains(_BIG_INTEGER).fill_null(False),
        four=pl.col("text").str.contains(_SEPARATOR, literal=True).fill_null(False),
    )
    big, four = bool(facts["big"].any()), bool(facts["four"].any())
    return ValueFacts(facts["text"], facts["number"], facts["device"], big or four, four)


def cell_text(side: str, stat: str, *, four: bool = True) -> pl.Expr:
    """Text of one statistic cell as the report shows it; null for a side that is not there.

    Parameters
    ----------
    side : {"target", "golden"}
        Side of the pair.
    stat : {"max", "min", "mean", "norm"}
        Statistic.
    four : bool
        Whether a value may hold four texts (see ``ValueFacts``); looking costs time.
    """
    number, kind, value = pl.col(f"{side}_{stat}"), pl.col(f"{side}_{stat}_kind"), pl.col(f"{side}_value")
    is_tensor = pl.col(f"{side}_kind") == RowKind.TENSOR
    of_four = value
    if four:
        of_four = pl.coalesce(value.str.split(_SEPARATOR).list.get(STATISTICS.index(stat), null_on_oob=True), value)
    return (
        pl.when(kind.is_null())
        .then(None)
        .when(~is_tensor & (kind != StatKind.NONE) & value.is_not_null())
        .then(value)
        .when(kind == StatKind.FLOAT)
        .then(float_text(number))
        .when(kind == StatKind.INT)
        .then(number.cast(pl.Int64, strict=False).cast(pl.String))
        .when(kind == StatKind.BOOL)
        .then(pl.when(number != 0).then(pl.lit("True")).otherwise(pl.lit("False")))
        .when(kind == StatKind.TEXT)
        .then(of_four)
        .otherwise(pl.lit("None"))
    )


def number(side: str, stat: str, *, four: bool = True) -> pl.Expr:
    """Float64 of a cell that is a number or reads as one (never of a boolean); null otherwise. Needs the cell texts."""
    kind = pl.col(f"{side}_{stat}_kind")
    parsed = pl.col(f"{side}_value_number")
    if four:
        parsed = pl.col(f"{side}_{stat}_text").cast(pl.Float64, strict=False)
    return pl.when(kind <= StatKind.INT).then(pl.col(f"{side}_{stat}")).when(kind == StatKind.TEXT).then(parsed)


def with_texts(frame: pl.LazyFrame, *, four: bool) -> pl.LazyFrame:
    """Add ``{side}_{stat}_text`` and ``{side}_{stat}_number`` for both sides and all statistics."""
    both = [(side, stat) for side in SIDES for stat in STATISTICS]
    texts = [cell_text(side, stat, four=four).alias(f"{side}_{stat}_text") for side, stat in both]
    numbers = [number(side, stat, four=four).alias(f"{side}_{stat}_number") for side, stat in both]
    return frame.with_columns(texts).with_columns(numbers)


def with_differences(frame: pl.LazyFrame, *, big: bool) -> pl.LazyFrame:
    """Add the eight cells of a statistics report and the numbers behind them.

    Parameters
    ----------
    frame : polars.LazyFrame
        Pairs with the columns of ``with_texts`` and ``paired``.
    big : bool
        Whether integers beyond 2**53 may occur (see ``ValueFacts``); looking costs time.

    Returns
    -------
    polars.LazyFrame
        With, for each statistic, ``{stat}_diff`` and ``{stat}_relative`` (cell texts; relative errors end in ``%``),
        ``{stat}_diff_number`` (target minus golden), ``{stat}_relative_number`` (a fraction; 0 for equal cells, inf for a golden zero
        or an infinity, nan where a nan or an overflowed statistic forbids a number, null where there is nothing to relate) and
        ``{stat}_equal``.

    Notes
    -----
    diff = n - b and relative = |n - b| / |b| (compare.md, 7). Equal cells give 0 (numbers by value, so 3 equals 3.0 and -0.0
    equals 0; others by text). An infinite norm or mean on both sides beside finite max and min is an overflow of the dump's own
    statistic and says nothing: nan (decision 20).
    """
    return (
        frame.with_columns([_equal(stat, big=big).alias(f"{stat}_equal") for stat in STATISTICS])
        .with_columns([_difference(stat, big=big).alias(f"{stat}_diff_number") for stat in STATISTICS])
        .with_columns([_relative(stat).alias(f"{stat}_relative_number") for stat in STATISTICS])
        .with_columns(
            [_cell(stat, "diff").alias(f"{stat}_diff") for stat in STATISTICS]
            + [_cell(stat, "relative").alias(f"{stat}_relative") for stat in STATISTICS]
        )
    )


def _both(stat: str) -> tuple[pl.Expr, pl.Expr]:
    return pl.col(f"target_{stat}_number"), pl.col(f"golden_{stat}_number")


def _texts(stat: str) -> tuple[pl.Expr, pl.Expr]:
    return pl.col(f"target_{stat}_text"), pl.col(f"golden_{stat}_text")


def _big(stat: str) -> pl.Expr:
    """Both cells are integers, and of one float64 may not hold every digit."""
    target, golden = _texts(stat)
    big = pl.any_horizontal([pl.col(f"{side}_{stat}_kind") == StatKind.TEXT for side in SIDES])
    return (big & target.str.contains(_INTEGER) & golden.str.contains(_INTEGER)).fill_null(False)


def overflowed(stat: str) -> pl.Expr:
    """The statistic is the same infinity on both sides although max and min are finite there: it overflowed in the dump."""
    if stat not in ("mean", "norm"):
        return pl.lit(False)
    target, golden = _both(stat)
    bounds = [pl.col(f"{side}_{edge}_number").is_finite() for side in SIDES for edge in ("max", "min")]
    return (target.is_infinite() & golden.is_infinite() & pl.all_horizontal(bounds)).fill_null(False)


def _equal(stat: str, *, big: bool) -> pl.Expr:
    (target, golden), (target_text, golden_text) = _both(stat), _texts(stat)
    numbers = target.is_not_null() & golden.is_not_null()
    same = pl.when(numbers & ~_big(stat) if big else numbers).then(target == golden)
    return (pl.col("paired") & same.otherwise(target_text == golden_text).fill_null(False)) & ~overflowed(stat)


def _difference(stat: str, *, big: bool) -> pl.Expr:
    (target, golden), (target_text, golden_text) = _both(stat), _texts(stat)

    def whole(text: pl.Expr) -> pl.Expr:
        return pl.when(_big(stat)).then(text).otherwise(None).cast(pl.Int128, strict=False)

    diff = target - golden
    if big:
        diff = pl.coalesce((whole(target_text) - whole(golden_text)).cast(pl.Float64), diff)
    return (
        pl.when(pl.col(f"{stat}_equal"))
        .then(0.0)
        .when(overflowed(stat))
        .then(float("nan"))
        .when(pl.col("paired"))
        .then(diff)
    )


def _relative(stat: str) -> pl.Expr:
    target, golden = _both(stat)
    diff = pl.col(f"{stat}_diff_number")
    return (
        pl.when(pl.col(f"{stat}_equal"))
        .then(0.0)
        .when(diff.is_null() | diff.is_nan())
        .then(diff)
        .when((golden == 0) | target.is_infinite() | golden.is_infinite())
        .then(INF)
        .otherwise((diff / golden).abs())
    )


def _cell(stat: str, what: str) -> pl.Expr:
    devices = pl.all_horizontal(
        [pl.col(f"{side}_{stat}_kind") == StatKind.TEXT for side in SIDES]
        + [pl.col(f"{side}_device") for side in SIDES]
    )
    value = pl.col(f"{stat}_{what}_number")
    if what == "diff":
        shown = float_text(value)
    else:
        shown = pl.when(value.is_finite()).then((value * 100).cast(pl.String) + "%").otherwise(float_text(value))
    return (
        pl.when(pl.col(f"{stat}_equal"))
        .then(pl.lit("0"))
        .when(~pl.col("paired"))
        .then(pl.lit("N/A"))
        .when(value.is_not_null())
        .then(shown)
        .when(devices)
        .then(pl.lit("N/A"))
        .otherwise(pl.lit("Diff"))
    )


def scaled_error(stat: str) -> pl.Expr:
    """|n - b| / max(|b|, norm / sqrt(elements)): the error of a statistic on the scale of the tensor (decision 19a).

    A mean near zero is noise by itself; the root mean square of golden says what a difference is worth. null where either side is no
    finite number; 0/0 is 0.
    """
    target, golden = _both(stat)
    rms = pl.col("golden_norm_number").abs() / pl.col("golden_elements").cast(pl.Float64).sqrt()
    rms = pl.when(rms.is_finite()).then(rms).otherwise(0.0).fill_null(0.0)
    scale = pl.max_horizontal(golden.abs(), rms)
    finite = target.is_finite() & golden.is_finite()
    error = (target - golden).abs()
    return pl.when(finite).then(pl.when(error == 0).then(0.0).otherwise(error / scale))
