"""Why our cell may differ from the incumbent's: a sentence, the decision it rests on, a condition on the dumps.

A reason alone explains nothing: ``compare`` first asks that our cell is what ``oracle`` and ``verdict`` work out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tests.parity.dump import direction
from tests.parity.oracle import Pair, same_but_for_device_kind
from tests.parity.tables import (
    DIFFERENCES,
    GOLDEN_STATISTICS,
    NOT_APPLICABLE,
    RELATIVES,
    TARGET_STATISTICS,
    TENSOR_METRICS,
    Cells,
    close,
    number,
)
from tests.parity.verdict import READINGS, Firing, input_figures, norm_inputs, relative_share

FLOATS = frozenset(("torch.float16", "torch.float32", "torch.float64", "torch.bfloat16"))
RATIOS = ("One Thousandth Err Ratio", "Five Thousandth Err Ratio")

REASONS: dict[str, tuple[str, str]] = {
    "backward by index": ("backward calls pair by call index first, not by order of appearance", "decision 6"),
    "dtype keeps pair": ("a dtype difference keeps the pair, the dtype rule marks it", "decision 7"),
    "layouts pair": ("the old and the numbered layout of parameters_grad pair", "decision 21"),
    "no renumbering": ("a mapping file or -cm pairs backward calls by the index that it names", "mapping.md 2"),
    "fuzzy alignment": ("operators align as a whole, not row by row through two queues", "mapping.md 1.2"),
    "fuzzy columns": ("-fm keeps the checksums", "mapping.md 1.2"),
    "debug under -cm": (
        "a cell mapping speaks of modules: single-point saves keep their names and pair",
        "mapping.md 3.2",
    ),
    "wrappers": ("parts that wrappers put into module paths are left out where nothing else pairs", "compare.md 5"),
    "refused together": ("-dm with -fm or -cm is refused with one line", "mapping.md 1"),
    "train table": ("names that the incumbent's tables of training modules lack", "consistent_check.md 6"),
    "joined statistics": ("mean and norm of joined rows are numbers of the joined tensor", "consistent_check.md 3"),
    "kwargs spelling": ("a keyword tensor is the same operand under both spellings", "dump_format 3.2"),
    "rank by number": ("ranks pair by number, not by position", "decision 9"),
    "golden only": ("rows that only the golden side has are reported", "decision 3"),
    "incumbent stops": (
        "the incumbent gives no report here; ours is right by the dumps, or stops with one line",
        "decision 11",
    ),
    "first: report too": ("-da writes the report as well", "decision 12"),
    "first: statistics": ("-da handles tensor dumps on their statistics, single files too", "diff_analyze.md 1"),
    "first: every form": ("-da works on single files, proc folders and single-point saves", "decision 12"),
    "first: extra ops": ("records of one side, and those with short names, are listed", "decision 3"),
    "first: verdict": ("Result and Err_message hold the verdict, not an empty text", "decision 2"),
    "first: valid JSON": ("nan and what is absent are texts, so that any reader takes the file", "diff_analyze.md 2.1"),
    "first: number as number": ("a figure is a number, anything else the report's text", "diff_analyze.md 2.1"),
    "first: stack on every row": ("every row of an operator has its call stack", "diff_analyze.md 2.1"),
    "same: nan or inf": ("nan or infinities on one side only", "diff_analyze.md 2 [REC]"),
    "same: golden zero": ("a golden zero against something else", "diff_analyze.md 2 [REC]"),
    "same: dtype or shape": ("dtype or shape differs", "diff_analyze.md 2 [REC]"),
    "same: scaled mean": ("a statistic relative to max(|b|, norm/sqrt(n))", "diff_analyze.md 2 [REC]"),
    "same: mean noise": ("a mean near zero is noise", "diff_analyze.md 2 [REC]"),
    "same: one side": ("an output without a partner", "diff_analyze.md 2, decision 2"),
    "same: verdict": ("a verdict rule fired on an output", "diff_analyze.md 2 [REC]"),
    "same: no input side": ("gradients of parameters and saves are judged by themselves", "decision 19b"),
    "op: right answer": ("the answer of the search by calls of groups, inputs and order", "diff_analyze.md 3 [REC]"),
    "op: nothing differs": ("by the corrected rules nothing differs", "diff_analyze.md 2 [REC]"),
    "op: more keys": ("golden figures, errors, reason, stage and layer", "diff_analyze.md 4 [REC]"),
    "merge: header spelling": ("the governing document's spelling", "decision 1"),
    "merge: first-seen order": ("rows in the order of the reports, not of the alphabet", "merge_result.md 4 [REC]"),
    "merge: groups": ("process groups are shown, not the 0 of equal ones", "merge_result.md 4 [REC]"),
    "nothing to compare": ("neither writes a report; ours says why and exits with 2", "decision 11"),
    "special mismatch": (
        "nan or infinities that do not meet: inf or Nan, the rest from finite elements",
        "decision 20",
    ),
    "equal special left out": ("equal nan and infinities are left out of the shares", "decision 8"),
    "x/0 is inf": ("no epsilon: x/0 is inf and never a good element", "decision 8"),
    "complex modulus": ("complex by modulus, not by the real part", "decision 8"),
    "exact integers": ("integer differences are exact", "decision 8"),
    "scaled cosine": ("the cosine is scaled: tiny and huge vectors are not zero or nan", "decision 8"),
    "own dtype arithmetic": ("one element: the difference is taken in float64, not in the dtype", "decision 8"),
    "float64 relative error": (
        "relative errors in float64: an element at the limit falls on the other side",
        "decision 8",
    ),
    "empty equal": ("two tensors without elements are equal", "decision 20"),
    "equal numbers": ("equal numbers differ by 0, whatever their spelling or sign of zero", "decision 8, compare.md 7"),
    "unsigned infinity": ("a relative error has no sign", "compare.md 7"),
    "overflowed norm": ("an infinite norm or mean beside finite extremes is an overflow: Nan, not 0", "decision 20"),
    "md5 absent": ("a missing checksum is not the checksum of nothing", "decision 2"),
    "printed value": ("a leaf without a value is printed as None", "compare.md 4.2"),
    "verdict: no partner": ("unmatched row: pass -> warning", "decision 2"),
    "verdict: not compared": ("a row that was not compared is at least a warning", "decision 2"),
    "verdict: file contradicts": ("a tensor file that is not what the JSON says is at least a warning", "decision 2"),
    "verdict: statistic missing on one side": ("a statistic on one side only is at least a warning", "decision 2"),
    "verdict: nan or inf": ("nan or infinities that do not meet are an error", "decision 2"),
    "verdict: thousandth": ("the document's limit 0.6, on the row that violates", "decision 4"),
    "verdict: thousandth within rounding": ("every difference lies within rounding: warning", "decision 18"),
    "verdict: norm error": ("norm error on the row that violates", "decision 4"),
    "verdict: norm growth": ("norm growth on the row that violates", "decision 4"),
    "verdict: cosine drop": ("cosine drop on the row that violates", "decision 4"),
    "verdict: requires_grad": ("requires_grad differs", "decision 7, compare.md 9.3 R4"),
    "verdict: scalar": ("a scalar argument differs", "compare.md 9.3 R5"),
    "verdict: dtype": ("the dtype rule holds for every pair", "decision 7"),
    "verdict: shape": ("shape differs", "compare.md 9.3 R7"),
    "verdict: checksum": ("checksums differ", "compare.md 9.3 M1"),
    "verdict: own statistics": ("rule of our own on statistics of an output: warning", "decision 19a"),
    "verdict: no inputs": ("rule of our own for rows without an input side: warning", "decision 19b"),
    "verdict: local fault": ("rule of our own for one bad element: warning", "decision 19c"),
    "verdict: value changed": ("rule of our own for changed values: warning", "decision 19d"),
    "gone: section": ("an output is an output by its section, not by its name", "decision 5"),
    "gone: inputs": ("no comparable input, or inputs that differ already", "compare.md 9.3 a, b"),
    "gone: other row": ("the row that violates is marked, not the first output", "decision 4"),
    "gone: floor": ("norm growth below 0.1 % is noise", "compare.md 9.3 d"),
    "gone: figures": ("judged on corrected figures", "decision 8"),
    "gone: device": ("devices that differ in kind only are no fault", "compare.md 9.3 f, decision 19d"),
    "gone: training": (
        "training against inference: dimensions of length one, requires_grad and rows of one side are no errors in any mode",
        "consistent_check.md 5",
    ),
    "gone: redundant": ("redundant APIs have no rules", "compare.md 9.2"),
}

_WORDING = {
    "nan/inf": "nan or inf",
    "one thousandth": "thousandth",
    "normrelativeerr": "norm error",
    "10 times": "norm growth",
    "cosine >": "cosine drop",
    "required_grad": "requires_grad",
    "scalar parameters": "scalar",
    "dtype of": "dtype",
    "shape of": "shape",
    "crc-32": "checksum",
    "does not match the bench": "checksum",
}


def fired_by_incumbent(message: str) -> set[tuple[str, str]]:
    """Rules named in an Err_message of the incumbent, with their levels; a text that is not known is kept as it is."""
    try:
        texts = [str(t) for t in json.loads(message)] if message.startswith("[") else []
    except ValueError:
        return {(message, "")}
    return {
        (next((rule for words, rule in _WORDING.items() if words in t.lower()), t), t.partition(":")[0]) for t in texts
    }


def pairing_reason(expected: Cells, pair: Pair) -> str | None:
    """Why the incumbent puts another golden row beside this target row; ``""`` if it does not."""
    target, golden = pair.target, pair.golden
    name = golden.name if golden is not None else NOT_APPLICABLE
    if target is None or expected["Bench Name"] == name:
        return ""
    gated = golden is not None and target.dtype != golden.dtype and not {target.dtype, golden.dtype} <= FLOATS
    alone = expected["Bench Name"] == NOT_APPLICABLE
    if pair.how == "aligned":
        return "fuzzy alignment" if alone or expected["Bench Name"] == pair.peer else None
    if alone and pair.how in ("train table", "wrappers"):
        return pair.how
    if alone and pair.matching.kind == "cell" and target.section == "debug":
        return "debug under -cm"
    if alone and gated:
        return "dtype keeps pair"
    if direction(target.record) == "backward":
        return "no renumbering" if pair.matching.kind in ("data", "cell") else "backward by index"
    if direction(target.record) == "parameters_grad" and golden is not None and golden.record != target.record:
        return "layouts pair"
    same_place = golden is not None and (golden.record, golden.slot) == (target.record, target.slot)
    if golden is not None and same_place and golden.name != target.name:
        return "kwargs spelling"
    return None


def _metric_reason(column: str, expected: str, pair: Pair, right: object) -> str | None:
    found = pair.measured
    if found is None:
        return None
    if found.state == "empty":
        return "empty equal"
    if found.nan_mismatch + found.inf_mismatch:
        return "special mismatch"
    if found.exotic in ("complex", "wide integer"):
        return "complex modulus" if found.exotic == "complex" else "exact integers"
    if found.exotic and column == "Cosine":
        return "scaled cosine"
    if column in ("MaxRelativeErr", *RATIOS) and found.golden_zeros:
        return "x/0 is inf"
    if column in RATIOS and found.equal_special:
        return "equal special left out"
    if found.state == "one element":
        return "own dtype arithmetic"
    if column in RATIOS and found.near_limits and found.size:
        one = number(expected)
        if one and isinstance(right, float) and abs(one[0] - right) * found.size <= found.near_limits + 1e-6:
            return "float64 relative error"
    if column == "MaxRelativeErr" and isinstance(right, float):
        one = number(expected)
        return "float64 relative error" if one is None or close(one[0], right, 1e-5, 1e-12) else None
    return None


def _is_joined_text(column: str, expected: str, pair: Pair) -> bool:
    """Whether the incumbent has the parts' texts of mean or norm in a row, or could not tell their difference."""
    for titles in (TARGET_STATISTICS, GOLDEN_STATISTICS, DIFFERENCES, RELATIVES):
        if column in titles[2:] and pair.is_joined:
            return expected == "Diff" if titles in (DIFFERENCES, RELATIVES) else ";" in expected
    return False


def _statistic_reason(column: str, expected: str, pair: Pair, right: object) -> str | None:
    if not pair.paired:
        return None
    if _is_joined_text(column, expected, pair):
        return "joined statistics"
    at = (DIFFERENCES if column in DIFFERENCES else RELATIVES).index(column)
    case = pair.statistics[at].case
    if case == "equal" and expected in ("0.0", "-0.0", "0.0%", "inf"):
        return "equal numbers"
    if case == "overflow" and expected == "0":
        return "overflowed norm"
    if case == "non-finite" and column in RELATIVES and expected == "-inf" and right == "inf":
        return "unsigned infinity"
    if case == "numbers" and all(
        isinstance(r.statistics[at], int) for r in (pair.target, pair.golden) if r is not None
    ):
        return "exact integers"
    return None


def cell_reason(column: str, expected: Cells, pair: Pair, right: object) -> str | None:
    """Key of ``REASONS`` for a cell other than the verdict, or None.

    Parameters
    ----------
    column : str
        Title.
    expected : dict
        The incumbent's whole row.
    pair : Pair
        The right pair, with what was measured.
    right : object
        The right value of the cell.
    """
    if pair.how == "aligned" and column in ("NPU MD5", "BENCH MD5") and expected[column] in ("", NOT_APPLICABLE):
        return "fuzzy columns"
    moved = pairing_reason(expected, pair)
    if moved != "":
        return None if column.startswith("NPU ") else moved
    if pair.mode == "tensor" and column in TENSOR_METRICS:
        return _metric_reason(column, expected[column], pair, right)
    if column in TARGET_STATISTICS + GOLDEN_STATISTICS:
        return "joined statistics" if _is_joined_text(column, expected[column], pair) else None
    if pair.mode == "statistics" and column in DIFFERENCES + RELATIVES:
        return _statistic_reason(column, expected[column], pair, right)
    if column in ("NPU MD5", "BENCH MD5") and expected[column] == "00000000":
        row = pair.target if column == "NPU MD5" else pair.golden
        if right == NOT_APPLICABLE:
            return "md5 absent"
        return "printed value" if row is not None and isinstance(row.raw, dict) and "value" not in row.raw else None
    return None


def _figures_moved(group: Sequence[Pair], moved: Sequence[bool]) -> bool:
    """Whether a figure that a rule of the record looks at is another one than the incumbent's."""
    for pair, other in zip(group, moved, strict=True):
        found = pair.measured
        if other or (found is not None and (found.exotic or found.golden_zeros or found.equal_special)):
            return True
        if any(s.case in ("overflow", "equal") and s.relative == "Nan" for s in pair.statistics):
            return True
        if pair.mode == "statistics" and pair.is_joined:
            return True
    return False


def _gone(
    rule: str, at: int, group: Sequence[Pair], judged: Sequence[Sequence[Firing]], moved: Sequence[bool]
) -> str | None:
    """Why a rule of the incumbent does not fire on our row."""
    pair = group[at]
    target, golden = pair.target, pair.golden
    if rule == "scalar":
        if (
            target is not None
            and golden is not None
            and same_but_for_device_kind(target.statistics[0], golden.statistics[0])
        ):
            return "gone: device"
        return None
    if rule == "checksum" and pair.how == "aligned":
        return "fuzzy columns"
    if pair.matching.kind == "train" and rule in ("shape", "requires_grad", "dtype"):
        return "gone: training" if rule != "dtype" or pair.is_joined else None
    if rule not in ("thousandth", "norm error", "norm growth", "cosine drop"):
        return None
    if not pair.row.is_output:
        return "gone: section"
    if rule == "thousandth" and any(f.rule == "thousandth within rounding" for f in judged[at]):
        return "verdict: thousandth within rounding"
    if any(f.rule == rule for other, found in enumerate(judged) if other != at for f in found):
        return "gone: other row"
    inputs = [p for p in group if p.row.is_input]
    if pair.mode == "tensor":
        title = "Cosine" if rule == "cosine drop" else "One Thousandth Err Ratio"
        if not all(input_figures(inputs, title, reading) for reading in READINGS):
            return "gone: inputs"
    elif not all(norm_inputs(inputs, reading) for reading in READINGS):
        return "gone: inputs"
    if rule == "norm growth" and pair.paired and (relative_share(pair, 3) or 0.0) <= 0.001:
        return "gone: floor"
    return "gone: figures" if _figures_moved(group, moved) else None


def verdict_reason(
    message: str,
    ours: frozenset[str],
    at: int,
    group: Sequence[Pair],
    judged: Sequence[Sequence[Firing]],
    moved: Sequence[str | None],
) -> str | None:
    """Key of ``REASONS`` for a Result or Err_message that is right and differs from the incumbent's, or None.

    Parameters
    ----------
    message : str
        The incumbent's Err_message.
    ours : frozenset of str
        Levels in our message.
    at : int
        Place of the row in its record.
    group, judged : sequence
        The pairs of the record and what fires on each.
    moved : sequence
        ``pairing_reason`` of each.
    """
    theirs = fired_by_incumbent(message)
    kept = {f.rule for f in judged[at] if f.sure or f.level in ours}
    new = [f for f in judged[at] if (f.rule, f.level) not in theirs and f.level in ours]
    lost = sorted({rule for rule, _ in theirs} - kept)
    reasons = []
    for rule in lost:
        found = moved[at] or _gone(rule, at, group, judged, [bool(m) or m is None for m in moved])
        if not found:
            return None
        reasons.append(found)
    new.sort(key=lambda f: (f.level != "error", not f.sure))
    if new:
        return f"verdict: {new[0].rule}"
    return reasons[0] if reasons else None
