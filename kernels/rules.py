"""RULES: the verdict table. Each rule is a row; ``opassay explain NAME`` and the docs page are rendered from it.

A rule looks at one row of pairs, with the columns that ``scopes`` and ``stat_metrics`` add, and gives at most one message. Severity
only moves upward: error beats warning beats pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl
from opassay.kernels.phrases import phrase
from opassay.kernels.stat_metrics import float_text
from opassay.schemas.vocab import DumpMode, MetricState, Result, RowKind, Section, StatKind

TENSOR, STATS, MD5 = DumpMode.TENSOR, DumpMode.STATISTICS, DumpMode.MD5
_NUMBERS: Final = frozenset({TENSOR, STATS})
_ALL: Final = frozenset({TENSOR, STATS, MD5})
STANDS_OUT: Final = 0.5
"""Relative error of a statistic that stands for itself (decision 19a and b)."""

col = pl.col


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the verdict table.

    Attributes
    ----------
    name : str
        The rule's name in words.
    result : Result
        What a row becomes at least.
    modes : frozenset of DumpMode
        Where it applies.
    on : str
        Rows it marks, for people: ``every row``, ``inputs``, ``outputs``, ``rows without an input side``.
    when : polars.Expr
        The condition; null counts as no.
    says : polars.Expr
        The message, without the level in front.
    condition : str
        The condition in words, with its figures.
    why : str
        What a hit most likely means.
    source : str
        Where the rule comes from.
    ours : bool
        A rule of our own (only ever a warning, off with ``--document-rules``).
    uses_inputs : bool
        Off for APIs whose inputs are placeholders.
    always : bool
        Holds for redundant APIs too: it says that a row was not compared.
    formal : bool
        Speaks of how a value is declared, not of its numbers: such rows point at no fault of an op by themselves.
    """

    name: str
    result: Result
    modes: frozenset[DumpMode]
    on: str
    when: pl.Expr
    says: pl.Expr
    condition: str
    why: str
    source: str
    ours: bool = False
    uses_inputs: bool = False
    always: bool = False
    formal: bool = False

    def fires(self) -> pl.Expr:
        """The condition with the exemptions of the op, never null."""
        exempt = pl.lit(False) if self.always else col("redundant")
        if self.uses_inputs:
            exempt = exempt | col("placeholder")
        return self.when.fill_null(False) & ~exempt


def short(number: pl.Expr) -> pl.Expr:
    """A figure for a message: six significant digits."""
    return float_text(number.round_sig_figs(6))


def percent(fraction: pl.Expr) -> pl.Expr:
    """A fraction for a message, as a percentage with four significant digits."""
    return (
        pl.when(fraction.is_finite())
        .then((fraction * 100).round_sig_figs(4).cast(pl.String) + "%")
        .otherwise(float_text(fraction))
    )


_KINDS: Final = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def _is(cell: pl.Expr, kind: str) -> pl.Expr:
    """Whether a number is nan, inf or -inf; never null."""
    return (cell.is_nan() if kind == "nan" else cell == _KINDS[kind]).fill_null(False)


def _has(side: str, kind: str) -> pl.Expr:
    return pl.any_horizontal([_is(col(f"{side}_{edge}_number"), kind) for edge in ("max", "min")])


_TARGET_NONFINITE = pl.any_horizontal([_has("target", kind) for kind in _KINDS])
_BOTH_NUMBERS = {
    stat: col(f"target_{stat}_number").is_not_null() & col(f"golden_{stat}_number").is_not_null()
    for stat in ("mean", "norm")
}
_KINDS_DIFFER = pl.any_horizontal(
    [_has("target", kind) != _has("golden", kind) for kind in _KINDS]
    + [
        both & (_is(col(f"target_{stat}_number"), kind) != _is(col(f"golden_{stat}_number"), kind))
        for stat, both in _BOTH_NUMBERS.items()
        for kind in _KINDS
    ]
)


def _edges(side: str) -> pl.Expr:
    cells = [
        pl.coalesce(short(col(f"{side}_{stat}_number")), col(f"{side}_{stat}_text"), pl.lit("N/A"))
        for stat in ("max", "min", "mean", "norm")
    ]
    return phrase("max {}, min {}, mean {}, norm {}", *cells)


_BOTH_TENSORS = (col("target_kind") == RowKind.TENSOR) & (col("golden_kind") == RowKind.TENSOR)
_ONE_TENSOR = col("paired") & ((col("target_kind") == RowKind.TENSOR) != (col("golden_kind") == RowKind.TENSOR))
_CLASS_SCALAR = col("target_dtype").str.contains("class") & col("golden_dtype").str.contains("class") & (col("target_shape") == "[]") & (col("golden_shape") == "[]")  # fmt: skip
_STATS: Final = ("max", "min", "mean", "norm")
_EMPTY_BOTH = ((col("target_elements") == 0) & (col("golden_elements") == 0)).fill_null(False)


def _holds(side: str, stat: str) -> pl.Expr:
    """What a statistic cell of a tensor holds: 0 nothing that can be compared, 1 a boolean, 2 a number."""
    kind = col(f"{side}_{stat}_kind")
    number = col(f"{side}_{stat}_number").is_not_null()
    return pl.when(kind == StatKind.BOOL).then(1).when(number).then(2).otherwise(0)


_ONE_SIDE_LACKS = pl.any_horizontal([_holds("target", stat) != _holds("golden", stat) for stat in _STATS])
_BOTH_LACK_ALL = pl.all_horizontal([_holds(side, stat) == 0 for side in ("target", "golden") for stat in _STATS])
_NOT_MEASURED = col("state").is_in(
    [int(s) for s in (MetricState.NO_FILE_RECORDED, MetricState.FILE_MISSING, MetricState.UNREADABLE, MetricState.SHAPE, MetricState.WORKER_LOST)]
)  # fmt: skip
_MEASURED = col("state") == MetricState.COMPUTED
_MISMATCHES = col("nan_mismatch") + col("inf_mismatch")
_NO_CHECKSUM = [col(f"{side}_md5").is_null() | (col(f"{side}_md5") == "") for side in ("target", "golden")]


def _contradicts(side: str) -> pl.Expr:
    """The file's dtype and shape are not those of the JSON, where the JSON names a dtype of the table (a quantised one is read as float32)."""
    declared = phrase("{} {}", col(f"{side}_known_dtype"), col(f"{side}_shape"))
    return (col(f"{side}_found") != declared).fill_null(False)


def _contradiction(side: str) -> pl.Expr:
    title = "NPU" if side == "target" else "Bench"
    return phrase(
        f"{title}: the file holds {{}}, the JSON says {{}} {{}}",
        col(f"{side}_found"),
        col(f"{side}_dtype"),
        col(f"{side}_shape"),
    )


_CONTRADICTS: Final = {side: _contradicts(side) for side in ("target", "golden")}
_COLLAPSE = col("is_output") & _MEASURED & (col("worst_input") > 0.9) & (col("thousandth") < 0.6)
_ROUNDING = col("within_rounding").fill_null(False) & ~col("strict")
_NORM = col("norm_relative_number")
_INTEGERS = r"[Ii]nt|[Bb]ool"  # MindSpore writes Int64, Bool
_CHANGED_TENSOR = (
    _BOTH_TENSORS & col("target_dtype").str.contains(_INTEGERS) & col("golden_dtype").str.contains(_INTEGERS)
)
_PLAIN_VALUE = col("is_scalar") & col("value_differs")
_ARGUMENT_KINDS = [int(k) for k in (RowKind.SIZE, RowKind.SLICE, RowKind.ELLIPSIS, RowKind.GROUP, RowKind.PEER)]
_RATIOS = phrase("{} of this output's elements are within a thousandth of golden (One Thousandth Err Ratio), of the inputs' at least {}", percent(col("thousandth")), percent(col("worst_input")))  # fmt: skip
_WORST_STAT = phrase(
    "max {} against {}, min {} against {}, mean {} against {}",
    *[col(f"{side}_{stat}_text") for stat in ("max", "min", "mean") for side in ("target", "golden")],
)

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        name="no-partner", result=Result.WARNING, modes=_ALL, on="every row", always=True,
        when=~col("paired"),
        says=pl.when(col("target_kind").is_null()).then(pl.lit("no matching NPU value")).otherwise(pl.lit("no matching Bench value")),
        condition="the row exists on one side only",
        why="an op, an argument or an output that the other run does not have; nothing was compared",
        source="opassay: what was not compared is never a pass; msprobe documents it for checksums",
    ),
    Rule(
        name="not-measured", result=Result.WARNING, modes=frozenset({TENSOR}), on="every row", always=True,
        when=_BOTH_TENSORS & (_NOT_MEASURED | col("state").is_null()),
        says=phrase("not compared: {}", col("reason").fill_null("no tensor file recorded")),
        condition="the tensors of a pair could not be compared: no file recorded, missing, unreadable, or shapes that cannot meet",
        why="the dump is damaged or was written without this tensor; the row says nothing about the numbers",
        source="opassay: what was not compared is never a pass",
    ),
    Rule(
        name="file-contradicts", result=Result.WARNING, modes=frozenset({TENSOR}), on="every row", formal=True,
        when=pl.any_horizontal(_CONTRADICTS.values()),
        says=pl.concat_str([pl.when(hit).then(_contradiction(side)) for side, hit in _CONTRADICTS.items()], separator="; ", ignore_nulls=True),
        condition="a tensor file holds another dtype or shape than the JSON file says",
        why="files of another run or step in the folder; the metrics are those of the files",
        source="opassay: what was not compared is never a pass",
    ),
    Rule(
        name="kinds-differ", result=Result.WARNING, modes=_NUMBERS, on="every row", always=True,
        when=_ONE_TENSOR,
        says=pl.lit("not compared: one side holds a tensor, the other does not"),
        condition="a tensor on one side, a scalar or None on the other",
        why="the op was called with another kind of argument",
        source="opassay: what was not compared is never a pass",
    ),
    Rule(
        name="statistic-missing", result=Result.WARNING, modes=frozenset({STATS}), on="every row", always=True,
        when=_BOTH_TENSORS & (_ONE_SIDE_LACKS | (_BOTH_LACK_ALL & ~_EMPTY_BOTH)),
        says=pl.when(_BOTH_LACK_ALL)
        .then(pl.lit("not compared: the dumps hold no statistics of this tensor"))
        .otherwise(pl.lit("not fully compared: a statistic is missing on one side")),
        condition="a statistic that one side lacks, or none on either side for a tensor that has elements",
        why="the dump tool writes no statistics for this dtype, or the dumps were made with other settings",
        source="opassay: what was not compared is never a pass",
    ),
    Rule(
        name="checksum-missing", result=Result.WARNING, modes=frozenset({MD5}), on="every row", always=True,
        when=col("paired") & ~col("is_none") & pl.any_horizontal(_NO_CHECKSUM),
        says=pl.lit("not compared: no checksum on one or both sides"),
        condition="a paired value without a checksum",
        why="the dump tool could not compute it; equal placeholders prove nothing",
        source="msprobe documents it (checksum missing)",
    ),
    Rule(
        name="nan-or-inf", result=Result.ERROR, modes=_NUMBERS, on="every row",
        when=((col("paired") & _KINDS_DIFFER) | (~col("paired") & _TARGET_NONFINITE)) & ~(col("is_input") & col("placeholder")),
        says=phrase("nan or inf differ: NPU {}; Bench {}", _edges("target"), _edges("golden")),
        condition="a statistic of one side is nan, inf or -inf where the other side's is not of the same kind and sign (max and min together, mean and norm each for themselves)",
        why="the numbers left the finite range on one side; the first such output names the op",
        source="msprobe documents it for nan or inf on the NPU side; opassay holds both sides and the kind of value to it",
    ),
    Rule(
        name="nan-or-inf-positions", result=Result.ERROR, modes=frozenset({TENSOR}), on="every row",
        when=col("paired") & (_MISMATCHES > 0) & ~(col("is_input") & col("placeholder")),
        says=phrase("nan or inf at other positions: {} places with nan on one side only, {} with an infinity that the other side does not share", col("nan_mismatch"), col("inf_mismatch")),
        condition="a nan on one side only, an infinity against a finite number or against the other infinity, at any element",
        why="the two sides overflow or become undefined at different elements",
        source="opassay: nan and inf are compared by position",
    ),
    Rule(
        name="ratio-collapse", result=Result.ERROR, modes=frozenset({TENSOR}), on="outputs", uses_inputs=True,
        when=_COLLAPSE & ~_ROUNDING,
        says=_RATIOS,
        condition="One Thousandth Err Ratio > 0.9 on every input and < 0.6 on this output",
        why="the op itself, not what it was fed, is the likely cause",
        source="msprobe documents it (limits 0.9 and 0.6)",
    ),
    Rule(
        name="ratio-rounding", result=Result.WARNING, modes=frozenset({TENSOR}), on="outputs", uses_inputs=True,
        when=_COLLAPSE & _ROUNDING,
        says=phrase("{}; every difference is within rounding of the dtype", _RATIOS),
        condition="as ratio-collapse, but every element that differs is at most one unit in the last place of the coarser dtype away, or at most eps times the root mean square of golden",
        why="the dtype cannot hold a thousandth (a bfloat16 step is 0.4 to 0.8 %); --strict makes it an error",
        source="opassay: rounding is no fault",
    ),
    Rule(
        name="norm-error", result=Result.ERROR, modes=frozenset({STATS}), on="outputs", uses_inputs=True,
        when=col("is_output") & col("paired") & (col("worst_input") < 0.1) & (_NORM > 0.5) & ~_NORM.is_nan(),
        says=phrase("NormRelativeErr {} at this output, at most {} at the inputs", percent(_NORM), percent(col("worst_input"))),
        condition="NormRelativeErr < 10 % on every input and > 50 % on this output",
        why="the op itself, not what it was fed, is the likely cause",
        source="msprobe documents it (limits 10 % and 50 %)",
    ),
    Rule(
        name="requires-grad", result=Result.ERROR, modes=_NUMBERS, on="every row", formal=True,
        when=col("paired") & ~col("lenient") & (col("target_requires_grad") != col("golden_requires_grad")),
        says=phrase("Requires_grad differs: NPU {}, Bench {}", col("target_requires_grad_text"), col("golden_requires_grad_text")),
        condition="Requires_grad differs (not asked of training against inference)",
        why="a frozen parameter, a detached tensor or another autograd mode",
        source="msprobe documents it",
    ),
    Rule(
        name="scalar", result=Result.ERROR, modes=_NUMBERS, on="inputs, debug saves",
        when=(col("is_input") | (col("section") == Section.DEBUG)) & _CLASS_SCALAR & col("value_differs"),
        says=phrase("scalar argument differs: NPU {}, Bench {}", col("target_value"), col("golden_value")),
        condition="a scalar argument (int, float, bool, str) has another value; device texts excepted",
        why="the op was called with other arguments",
        source="msprobe documents it",
    ),
    Rule(
        name="dtype", result=Result.ERROR, modes=_NUMBERS, on="every row", formal=True,
        when=col("dtype_differs"),
        says=phrase("dtype differs: NPU {}, Bench {}", col("target_dtype").replace("", "None"), col("golden_dtype").replace("", "None")),
        condition="dtype differs; with --consistent_check not of rows that are joined from several",
        why="another precision setting, autocast or an implicit conversion",
        source="msprobe documents it",
    ),
    Rule(
        name="shape", result=Result.ERROR, modes=_NUMBERS, on="every row", formal=True,
        when=col("shape_differs"),
        says=phrase("shape differs: NPU {}, Bench {}", col("target_shape").replace("", "None"), col("golden_shape").replace("", "None")),
        condition="shape differs; with --consistent_check without the dimensions of length 1, and not of rows that are joined from several",
        why="other data, padding or parallel layout; metrics are given where shapes agree after dropping dimensions of length 1",
        source="msprobe documents it",
    ),
    Rule(
        name="norm-growth", result=Result.WARNING, modes=frozenset({STATS}), on="outputs", uses_inputs=True,
        when=col("is_output") & col("paired") & col("worst_input").is_finite() & ~_NORM.is_nan()
        & pl.when(col("worst_input") == 0).then(_NORM > 0.1).otherwise((_NORM / col("worst_input") > 10) & (_NORM > 0.001)),
        says=phrase("NormRelativeErr {} at this output is more than ten times the {} at the inputs", percent(_NORM), percent(col("worst_input"))),
        condition="NormRelativeErr of this output is more than ten times the largest of the inputs and above 0.1 %; above 10 % where the inputs are equal",
        why="the op amplifies a small difference of its inputs",
        source="msprobe documents it; the floor of 0.1 % is opassay's, below it both errors are rounding",
    ),
    Rule(
        name="cosine-drop", result=Result.WARNING, modes=frozenset({TENSOR}), on="outputs", uses_inputs=True,
        when=col("is_output") & _MEASURED & ~col("cosine").is_nan() & col("worst_input").is_not_null()
        & (col("worst_cosine").fill_null(1.0) > 0.9) & (col("worst_cosine").fill_null(1.0) - col("cosine") > 0.1),
        says=phrase("Cosine {} at this output, at least {} at the inputs", short(col("cosine")), short(col("worst_cosine").fill_null(1.0))),
        condition="Cosine > 0.9 on every input and lower by more than 0.1 on this output",
        why="the direction of the result changes within the op",
        source="msprobe documents it",
    ),
    Rule(
        name="checksum", result=Result.ERROR, modes=frozenset({MD5}), on="every row",
        when=col("paired") & (col("target_md5") != col("golden_md5")) & ~pl.any_horizontal(_NO_CHECKSUM),
        says=phrase("checksum differs: NPU {}, Bench {}", col("target_md5"), col("golden_md5")),
        condition="both sides have a checksum and they differ",
        why="the values are not the same bit by bit",
        source="msprobe documents it",
    ),
    Rule(
        name="own-statistics", result=Result.WARNING, modes=frozenset({STATS}), on="outputs", ours=True, uses_inputs=True,
        when=col("is_output") & _BOTH_TENSORS & (col("worst_scaled_input") <= 0.1) & (col("scaled") >= STANDS_OUT),
        says=phrase("opassay rule own-statistics: {}, while the inputs agree", _WORST_STAT),
        condition="inputs agree within 10 % in every statistic; max, min or mean of this output differs by 50 % or more of max(|golden|, norm / sqrt(elements))",
        why="what the norm alone cannot see: a flipped sign, a shifted range, an overflowed norm",
        source="opassay",
    ),
    Rule(
        name="no-inputs-statistics", result=Result.WARNING, modes=frozenset({STATS}), on="rows without an input side", ours=True,
        when=col("no_inputs") & col("paired") & ((_NORM.fill_nan(None) > STANDS_OUT) | (col("scaled") >= STANDS_OUT)),
        says=phrase("opassay rule no-inputs: NormRelativeErr {}, {}", percent(_NORM), _WORST_STAT),
        condition="parameter gradients and debug saves: NormRelativeErr > 50 %, or max, min or mean off as in own-statistics",
        why="a gradient or a hand-placed save has no inputs to be judged by; the difference stands for itself",
        source="opassay",
    ),
    Rule(
        name="no-inputs-tensor", result=Result.WARNING, modes=frozenset({TENSOR}), on="rows without an input side", ours=True,
        when=col("no_inputs") & col("state").is_in([int(MetricState.COMPUTED), int(MetricState.ONE_ELEMENT)]) & ((col("thousandth") < 0.6) | (col("cosine") < 0.9)),
        says=phrase("opassay rule no-inputs: One Thousandth Err Ratio {}, MaxAbsErr {}, MaxRelativeErr {}", short(col("thousandth")), short(col("error_max")), short(col("relative_max"))),
        condition="parameter gradients and debug saves: One Thousandth Err Ratio < 0.6 or Cosine < 0.9",
        why="a gradient or a hand-placed save has no inputs to be judged by; the difference stands for itself",
        source="opassay",
    ),
    Rule(
        name="local-fault", result=Result.WARNING, modes=frozenset({TENSOR}), on="outputs", ours=True, uses_inputs=True,
        when=col("is_output") & col("state").is_in([int(MetricState.COMPUTED), int(MetricState.ONE_ELEMENT)])
        & (col("worst_input") > 0.9) & (_MISMATCHES == 0) & (col("error_max") > 0.1 * col("golden_abs_max")),
        says=phrase("opassay rule local-fault: largest error {} exceeds 10 % of the largest golden value {}, while the inputs agree", short(col("error_max")), short(col("golden_abs_max"))),
        condition="One Thousandth Err Ratio > 0.9 on every input, and the worst element's error exceeds 10 % of max|golden|",
        why="few elements are far off: a wrong head, a padding row, an index error that averages hide",
        source="opassay",
    ),
    Rule(
        name="value-changed", result=Result.WARNING, modes=_NUMBERS, on="every row", ours=True, uses_inputs=True,
        when=(_PLAIN_VALUE & col("target_kind").is_in(_ARGUMENT_KINDS))
        | (_PLAIN_VALUE & ~col("is_input") & ~((col("section") == Section.DEBUG) & _CLASS_SCALAR) & (col("inputs_equal") | col("no_inputs")))
        | (_CHANGED_TENSOR & ~col("is_input") & col("row_differs") & (col("inputs_equal") | col("no_inputs"))),
        says=pl.when(_CHANGED_TENSOR).then(pl.lit("opassay rule value-changed: integers or booleans differ while the inputs are equal"))
        .otherwise(phrase("opassay rule value-changed: NPU {}, Bench {}", col("target_value"), col("golden_value"))),
        condition="a slice, size, group, rank or ellipsis argument differs; or a bool or integer output, or an output that is no tensor, differs while the inputs are equal",
        why="another branch, index or group was taken",
        source="opassay",
    ),
)  # fmt: skip
"""In the order in which messages stand in a cell."""

NOT_COMPARED: Final = tuple(rule.name for rule in RULES if rule.always)
"""Rules that mean: this row was not (fully) compared."""


def rules_for(mode: DumpMode, *, document_rules: bool) -> tuple[Rule, ...]:
    """The rules of a mode, without ours if only the document's are wanted."""
    return tuple(rule for rule in RULES if mode in rule.modes and not (rule.ours and document_rules))
