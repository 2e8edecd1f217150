"""Rows and cells of the merged table of all ranks: which rows an entry names, in which order they stand, what a cell shows.

Pure: columns in, columns out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import polars as pl
from opassay.kernels.phrases import phrase
from opassay.kernels.stat_metrics import float_text
from opassay.schemas.headers import STATISTIC_METRICS, TENSOR_METRICS, VERDICT
from opassay.schemas.vocab import DumpMode

NAME: Final = "NPU Name"
TARGET_MAX: Final = "NPU max"
GOLDEN_MAX: Final = "Bench max"
CHECKSUM: Final = "NPU MD5"
CONSISTENT: Final = VERDICT["requires_grad_consistent"]
METRICS: Final[dict[DumpMode, tuple[str, ...]]] = {
    DumpMode.STATISTICS: (*STATISTIC_METRICS.values(), CONSISTENT),
    DumpMode.TENSOR: (*TENSOR_METRICS.values(), CONSISTENT),
}
"""Columns that can become a sheet, by the mode of a report."""

COPY, PLACE, MAXIMA = "copy", "place", "maxima"
"""How many rows of that name stand before a row in its report; where it stands in the merged table; see `maxima`."""

_SPELLINGS: Final = {"five thousandths err ratio": TENSOR_METRICS["five_thousandth"]}
_KNOWN: Final = {name.casefold(): name for names in METRICS.values() for name in names} | _SPELLINGS
_ONLY: Final = {
    mode: set(names).difference(*(others for other, others in METRICS.items() if other is not mode))
    for mode, names in METRICS.items()
}
_PERCENT: Final = frozenset(title for title in STATISTIC_METRICS.values() if title.endswith("RelativeErr"))
_ENTRIES: Final = 200  # in one regular expression: its size has a limit
_NOT_MEASURED: Final = ("n/a", "unsupported", "nan")
_NUMBER: Final = r"^-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$"


def metric_title(text: str) -> str | None:
    """The metric that a header or an entry of ``compare_index`` names, as our header spells it; None if it is none.

    Either tool's spelling is understood, in any case.
    """
    return _KNOWN.get(" ".join(text.split()).casefold())


def mode_of(titles: Collection[str]) -> DumpMode | None:
    """The mode of a report with these columns; None if it is no comparison report.

    Parameters
    ----------
    titles : collection of str
        Headers, metrics as `metric_title` gives them.
    """
    if NAME not in titles:
        return None
    if {TARGET_MAX, GOLDEN_MAX} <= set(titles):
        return next((mode for mode, only in _ONLY.items() if not only.isdisjoint(titles)), None)
    return DumpMode.MD5 if CHECKSUM in titles else None


def selected(names: pl.Expr, entries: Sequence[str]) -> pl.Expr:
    """Whether an entry names a row: by whole components from the start, or from the one after ``Module`` or ``Cell``.

    Parameters
    ----------
    names : polars.Expr
        String, row names of the target.
    entries : sequence of str
        ``type``, ``type.name``, ``type.name.call``, ``type.name.call.direction``, or more of a name; at least one.

    Returns
    -------
    polars.Expr
        Boolean; null for null.
    """
    parts = [
        "|".join(map(pl.escape_regex, entries[start : start + _ENTRIES])) for start in range(0, len(entries), _ENTRIES)
    ]
    return pl.any_horizontal(names.str.contains(rf"^(?:(?:Module|Cell)\.)?(?:{part})(?:\.|$)") for part in parts)


def found(names: pl.Series, entries: Sequence[str]) -> set[str]:
    """Those of `entries` that name at least one of `names` (String)."""
    met: set[str] = set()
    heads = names.unique().to_frame(NAME)
    for count in {entry.count(".") + 1 for entry in entries}:
        for start in (pl.col(NAME), pl.col(NAME).str.replace(r"^(?:Module|Cell)\.", "")):
            # the first components, null where there are fewer
            first = start.str.extract(rf"^((?:[^.]*\.){{{count - 1}}}[^.]*)", 1)
            met |= set(heads.select(first.unique()).to_series())
    return met & set(entries)


def copies(names: pl.Expr) -> pl.Expr:
    """UInt32: how many rows of the same name stand before a row; it keeps rows apart that share a name."""
    return pl.int_range(pl.len(), dtype=pl.UInt32).over(names)


def spliced(order: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """An order of rows with those of one more rank: rows it lacks come behind the row that they follow in the rank.

    Parameters
    ----------
    order : polars.DataFrame, shape (n, 3)
        NAME (String), COPY (UInt32), PLACE (Int64, 0 to n - 1, sorted); no row twice.
    rows : polars.DataFrame, shape (m, 2)
        NAME and COPY of the rank, in its own order; no row twice.

    Returns
    -------
    polars.DataFrame
        As `order`.
    """
    known = rows.join(order, on=[NAME, COPY], how="left", maintain_order="left")
    fresh = known.with_columns(
        pl.col(PLACE).forward_fill().fill_null(-1).alias("behind"),
        pl.int_range(1, pl.len() + 1, dtype=pl.Int64).alias("turn"),
    ).filter(pl.col(PLACE).is_null())
    if fresh.is_empty():
        return order
    old = order.select(NAME, COPY, pl.col(PLACE).alias("behind"), pl.lit(0, pl.Int64).alias("turn"))
    merged = pl.concat([old, fresh.select(old.columns)]).sort("behind", "turn")
    return merged.select(NAME, COPY, pl.int_range(pl.len(), dtype=pl.Int64).alias(PLACE))


def maxima() -> pl.Expr:
    """What stands in place of a metric that was not measured: both sides' maximum, numbers in their shortest text.

    Of a frame with TARGET_MAX and GOLDEN_MAX (String); named MAXIMA.
    """
    sides = []
    for text in (pl.col(TARGET_MAX), pl.col(GOLDEN_MAX)):
        value = number(
            pl.when(text.str.contains("[.eE]")).then(text)
        )  # spreadsheets write 0.10000000000000001 and 1E-30
        sides.append(pl.coalesce(float_text(value), text, pl.lit("N/A")))
    return phrase("NPU:{}  Bench:{}", *sides).alias(MAXIMA)


def cell(metric: str) -> pl.Expr:
    """What a metric shows for a row: its text; the two maxima where nothing was measured, and for process groups.

    Parameters
    ----------
    metric : str
        A column of the frame, as are NAME and MAXIMA; String.
    """
    text = pl.col(metric)
    shown = text.str.to_lowercase().is_in(_NOT_MEASURED)
    if metric != CONSISTENT:  # of a group, too, it says True or False
        shown = shown | pl.col(NAME).str.ends_with(".group")
    return pl.when(shown).then(pl.col(MAXIMA)).otherwise(text).alias(metric)


def is_numeric(metric: str, mode: DumpMode) -> bool:
    """Whether numbers of a metric become numeric cells: not percentages, whose 0 has no sign of its own."""
    return metric != CONSISTENT and not (mode is DumpMode.STATISTICS and metric in _PERCENT)


def number(text: pl.Expr) -> pl.Expr:
    """Float64 of texts that are finite numbers as a whole, else null."""
    value = pl.when(text.str.contains(_NUMBER)).then(text).cast(pl.Float64, strict=False)
    return pl.when(value.is_finite()).then(value)
