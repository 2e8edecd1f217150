"""Dumps with the incumbent's own files: every cell is its, or a named rule says why the right one differs.

What binds follows the cases' own description: rows, their order, names, dtypes, shapes, blanks and verdicts; numbers only
where inputs are fixed, cosine to 1e-6 and errors to a factor of two; reasons, not wording.
"""

from __future__ import annotations

import gzip
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from opassay.kernels.precision.standards import standard_of
from opassay.schemas.check_rows import DETAILS, METRICS

from tests.check.checking import DATA, Checked, Checker, Row, expected, input_of

NAME, BENCH, DEVICE, SHAPE = (DETAILS[key] for key in ("name", "bench_dtype", "device_dtype", "shape"))
STATUS, MESSAGE = DETAILS["status"], DETAILS["message"]
FIGURES = tuple(DETAILS[key] for key in METRICS)
TYPES = {BENCH, DEVICE, SHAPE}
EVERYTHING = {*TYPES, *FIGURES, STATUS}
HALVES = ("torch.float16", "torch.bfloat16")
COSINE, ERROR, BALANCE, SMALL = (DETAILS[key] for key in ("cosine", "error_max", "balance", "small_value"))


@dataclass(frozen=True)
class Pair:
    """A row of ours and the incumbent's of the same name."""

    ours: Row
    theirs: Row

    @property
    def name(self) -> str:
        return self.ours[NAME]

    @property
    def api(self) -> str:
        return self.name.split(".")[-5]

    @property
    def direction(self) -> str:
        return self.name.split(".")[-3]

    @property
    def dtype(self) -> str:
        return self.ours[DEVICE]

    def statuses(self, theirs: str, ours: str) -> bool:
        return (self.theirs[STATUS].lower(), self.ours[STATUS]) == (theirs, ours)


Rule = Callable[[Pair], "set[str]"]
"""Pair -> headers of cells that may differ; empty where the rule does not hold."""


def reference_in_float64(pair: Pair) -> set[str]:
    """4.1 [B]: every reference is computed in float64, or complex128; dtype keywords are raised with it."""
    raised = {
        "torch.float64": ("torch.float32", "torch.bfloat16"),
        "torch.complex128": ("torch.complex64",),
    }
    if pair.theirs[BENCH] not in raised.get(pair.ours[BENCH], ()):
        return set()
    itself = pair.theirs[BENCH] == pair.dtype == "torch.float32"  # nothing to find where both sides compute alike
    return {BENCH, ERROR, DETAILS["rmse"], DETAILS["relative_max"], DETAILS["relative_mean"]} if itself else {BENCH}


def another_standard(pair: Pair) -> set[str]:
    """12.1 item 6 and the list's overrides: copies are judged by equality, sums of products by ULPs, their gradients by neither."""
    direction = "backward" if pair.direction == "backward" else "forward"
    ours = standard_of(pair.api, pair.dtype, direction)
    theirs = standard_of(pair.api, pair.dtype, document_only=True)
    if ours.name == theirs.name:
        return set()
    return {DETAILS[column] for column in {*ours.columns, *theirs.columns}}


def bfloat16_limits(pair: Pair) -> set[str]:
    """12.1 item 5: a thousandth is below the resolution of bfloat16; its limit is a hundredth."""
    was = pair.theirs[STATUS].lower() in ("warning", "error") and pair.ours[STATUS] == "pass"
    held = was and pair.dtype == "torch.bfloat16" and "less than 0.01" in pair.ours[MESSAGE]
    return {STATUS, DETAILS["hundredth"], DETAILS["thousandth"]} if held else set()


def alike_nonfinite(pair: Pair) -> set[str]:
    """12.1 item 2: equal nan and inf agree and leave the figures."""
    held = pair.statuses("error", "pass") and re.search(
        r"positions are inf or nan, alike on both sides", pair.ours[MESSAGE]
    )
    return {STATUS, *FIGURES} if held else set()


def wide_range(pair: Pair) -> set[str]:
    """2.3: a range wider than the dtype's largest number overflows in the incumbent's generator."""
    held = pair.statuses("error", "pass") and pair.theirs[COSINE] == "nan" and pair.ours[COSINE].startswith("1.000")
    return {STATUS, *FIGURES} if held else set()


def whole_numbers_and_complex(pair: Pair) -> set[str]:
    """12.1 item 13: int8, int16 and complex outputs are compared."""
    held = pair.dtype in ("torch.int8", "torch.int16", "torch.complex64") and pair.statuses("error", "pass")
    return {STATUS, *FIGURES} if held else set()


def no_elements(pair: Pair) -> set[str]:
    """12.1 item 13: where there is nothing to compare, nothing is wrong."""
    held = "0" in re.findall(r"\d+", pair.ours[SHAPE]) and pair.statuses("error", "SKIP")
    return {STATUS} if held else set()


def run_at_last(pair: Pair) -> set[str]:
    """3.2, 4.3, 12.2, 2.3: what the incumbent cannot run is run; it gives an exception's text or says so."""
    reasons = (
        "Multiple backward is not supported",
        "Trying to backward through the graph a second time",
        "object is not callable",
        "must be Tensor, not list",
        "Overflow when unpacking long long",
        "is out of bounds",  # of a 0-dim tensor, and labels of nll_loss
        "There is not bench function fast_gelu",
        "grad can be implicitly created only for scalar outputs",
    )
    told = pair.theirs[MESSAGE]
    held = (
        pair.theirs[STATUS] == "SKIP"
        and pair.ours[STATUS] == "pass"
        and (not told or any(text in told for text in reasons))
    )
    return EVERYTHING if held else set()


def autocast_operands(pair: Pair) -> set[str]:
    """4.2, 12.1 item 3: the reference sees the operands as autocast rounds them."""
    held = pair.api == "linear" and pair.statuses("error", "pass") and pair.theirs[BENCH] == "torch.float64"
    return {STATUS, *FIGURES} if held else set()


def convolution_against_float64(pair: Pair) -> set[str]:
    """11 [B]: on the cpu a float32 convolution is compared with float64, not with itself."""
    held = pair.api.startswith("conv") and pair.theirs[BENCH] == "torch.float32"
    return {ERROR, DETAILS["thousandth"], COSINE} if held else set()


def cancelled_sum(pair: Pair) -> set[str]:
    """11 [B]: the bias of a convolution before a batch norm has a gradient of rounding noise; only against itself it is equal."""
    held = pair.api == "conv2d" and pair.name.endswith("backward.output.2") and "Cosine" in pair.ours[MESSAGE]
    told = "Rounding alone may be the cause" in pair.ours[MESSAGE]
    return {STATUS, *FIGURES} if held and told and pair.statuses("pass", "error") else set()


def rounded_balance(pair: Pair) -> set[str]:
    """6.3 [B]: the balance counts against the reference rounded to the device's dtype."""
    return {BALANCE} if pair.dtype in HALVES else set()


def small_value_tolerance(pair: Pair) -> set[str]:
    """12.1 item 10: the small-value tolerance of 16-bit types is 2^-16."""
    held = pair.dtype in HALVES and number(pair.ours[SMALL]) <= number(pair.theirs[SMALL])
    return {SMALL} if held else set()


def number(text: str) -> float:
    """A figure; a blank is no number."""
    return float(text) if text.strip() else math.nan


def rounded_gradient(pair: Pair) -> set[str]:
    """4.1 [B]: a float64 reference shows the rounding of the device's own intermediates, which a rounded reference shares."""
    held = pair.dtype in HALVES and pair.theirs[BENCH] == "torch.float32"
    return {DETAILS["relative_max"]} if held else set()


def gradient_of_the_input(pair: Pair) -> set[str]:
    """4.3 [B]: after an operator in place, the gradient of its input is compared, not that of what stands there now."""
    held = pair.api.endswith("_") and pair.direction == "backward"
    return set(FIGURES) if held else set()


def kernels_of_the_machine(pair: Pair) -> set[str]:
    """The cpu's float32 kernels differ from machine to machine by a few units in the last place."""
    errors = [float(row[ERROR]) for row in (pair.ours, pair.theirs) if row[ERROR].strip()]
    held = pair.dtype == "torch.float32" and len(errors) == 2 and max(errors) < 1e-6
    return {ERROR, BALANCE, SMALL, DETAILS["relative_max"], DETAILS["relative_mean"]} if held else set()


def own_dtype(pair: Pair) -> set[str]:
    """12.1, fused_operators.md: the incumbent's attention answers in float64 whatever it is given."""
    return (
        {DEVICE, *FIGURES} if pair.api == "npu_fusion_attention" and pair.theirs[DEVICE] == "torch.float64" else set()
    )


def drawn_inputs(pair: Pair) -> set[str]:
    """Inputs are drawn: how many elements a mask selects, and what follows the first limits, depends on the draw."""
    apis = ("nonzero", "masked_select", "__getitem__")
    if pair.api in apis and pair.ours[SHAPE] != pair.theirs[SHAPE]:
        return {SHAPE}
    relative = {DETAILS[key] for key in ("hundredth", "thousandth", "ten_thousandth")}
    by_size = [row for row in (pair.ours, pair.theirs) if "Max abs error is less than" in row[MESSAGE]]
    same = pair.ours[STATUS] == pair.theirs[STATUS].lower()
    gone_on = pair.ours[STATUS] == "pass" and pair.theirs[STATUS] in ("error", "Warning") and pair.dtype in HALVES
    return {STATUS, *relative} if len(by_size) == 1 and (same or gone_on) else set()


FIXED: tuple[Rule, ...] = (
    reference_in_float64,
    another_standard,
    bfloat16_limits,
    alike_nonfinite,
    wide_range,
    whole_numbers_and_complex,
    no_elements,
    run_at_last,
    autocast_operands,
    convolution_against_float64,
    cancelled_sum,
    own_dtype,
)
NUMBERS: tuple[Rule, ...] = (
    rounded_balance,
    small_value_tolerance,
    rounded_gradient,
    gradient_of_the_input,
    kernels_of_the_machine,
)
"""Rules for figures of tensor dumps, where inputs are fixed."""

EXTRA = {
    "dropout": "5.1 [B]: a row says that only the share of zeros was compared",
    "backward of": "4.3, 4.4, 12.2: gradients that the incumbent does not collect",
    "no gradient": "3.3 [B]: a missing gradient skips the backward pass only",
}


def extra(row: Row) -> str:
    """Why a row of ours has no partner; "" where nothing explains it."""
    name = row[NAME]
    if ".dropout" in name:
        return "dropout"
    if row[MESSAGE] == "no gradient recorded":
        return "no gradient"
    return "backward of" if ".backward.output." in name else ""


def differing(pair: Pair, numbers: bool) -> set[str]:
    """Headers of cells that are not the incumbent's."""
    found = {title for title in TYPES if pair.ours[title] != pair.theirs[title]}
    if pair.ours[STATUS].lower() != pair.theirs[STATUS].lower():
        found.add(STATUS)
    for title in FIGURES:
        ours, theirs = pair.ours[title].strip(), pair.theirs[title].strip()
        if bool(ours) != bool(theirs) or (numbers and ours and not close(title, float(ours), float(theirs))):
            found.add(title)
    return found


def close(title: str, ours: float, theirs: float) -> bool:
    """Cosine to 1e-6, errors to a factor of two; what is below the printed digits counts as nothing."""
    if title == COSINE:
        return abs(ours - theirs) <= 1e-6
    return abs(ours - theirs) <= 1e-9 or theirs / 2 <= ours <= theirs * 2


def unexplained(
    checked: Checked, case: str, rules: tuple[Rule, ...], folder: str = "expected"
) -> tuple[list[str], Counter[str]]:
    """What no rule explains, and how often each rule was needed."""
    wrong: list[str] = []
    used: Counter[str] = Counter()
    ours = {row[NAME]: row for row in checked.details}
    theirs = {row[NAME]: row for row in expected(case, "details", folder)}
    assert len(ours) == len(checked.details)
    for name in theirs.keys() - ours.keys():
        told = "12.1: no backward record" if "out=..." in theirs[name][MESSAGE] else ""
        wrong += [] if told else [f"{name} is missing"]
    for name in ours.keys() - theirs.keys():
        why = extra(ours[name])
        used[why] += 1
        wrong += [] if why else [f"{name} is one too many"]
    for name in ours.keys() & theirs.keys():
        pair = Pair(ours[name], theirs[name])
        cells = differing(pair, numbers="tensor" in case)
        for rule in rules:
            if covered := cells & rule(pair):
                used[rule.__name__] += 1
                cells -= covered
        wrong += [f"{name}: {title}: {pair.ours[title]!r}, not {pair.theirs[title]!r}" for title in sorted(cells)]
    common = [name for name in ours if name in theirs]
    assert common == [name for name in theirs if name in ours]
    return wrong, used


CASES = {
    "pt_ops_tensor": (*FIXED, *NUMBERS),
    "pt_cnn_tensor": (*FIXED, *NUMBERS),
    "pt_ops_statistics": (*FIXED, drawn_inputs),
    "pt_cnn_statistics": (*FIXED, drawn_inputs),
    "pt_handmade": (*FIXED, drawn_inputs),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_row_is_the_incumbents_or_explained(case: str, checker: Checker, tmp_path: Path) -> None:
    checked = checker(input_of(case, tmp_path), tmp_path / "out")
    assert checked.status == 0
    wrong, used = unexplained(checked, case, CASES[case])
    assert not wrong, "\n".join(wrong)
    assert used
    assert [row["API name"] for row in checked.result] == [row["API name"] for row in expected(case, "result")]
    verdicts_follow_from_rows(checked)


def verdicts_follow_from_rows(checked: Checked) -> None:
    """The result file says what the details say: error beats warning beats pass, and SKIP is for nothing compared."""
    grades = ("error", "warning", "pass", "SKIP")
    for row in checked.result:
        for title, direction in (("Forward Test Success", "forward"), ("Backward Test Success", "backward")):
            prefix = f"{row['API name']}.{direction}.output."
            found = {detail[STATUS] for detail in checked.details if detail[NAME].startswith(prefix)}
            wanted = next((grade for grade in grades if grade in found), " ")
            skipped = row["Forward Test Success"] == "SKIP" and wanted == " "
            assert row[title] == ("SKIP" if skipped and row[title] == "SKIP" else wanted), row
        if row["Forward Test Success"] == "SKIP" or row["Backward Test Success"] == "SKIP":
            assert row["Message"].strip()
        else:
            assert not row["Message"]


VERDICTS_THAT_DIFFER = {
    "VF.lstm.0": ("SKIP", "SKIP"),
    "Jit.relu.0": ("SKIP", "SKIP"),
    "Torch.sum.0": ("pass", "SKIP"),
    "Torch.exp.0": ("pass", "SKIP"),
}


@pytest.mark.slow
def test_odd_inputs_end_as_they_should(checker: Checker, tmp_path: Path) -> None:
    """Verdicts of the hand-written dump that the rows alone do not show."""
    checked = checker(input_of("pt_handmade", tmp_path), tmp_path / "out")
    found = {row["API name"]: row for row in checked.result}
    for name, verdicts in VERDICTS_THAT_DIFFER.items():
        assert (found[name]["Forward Test Success"], found[name]["Backward Test Success"]) == verdicts
    for row in expected("pt_handmade", "result"):
        if row["Forward Test Success"] == "SKIP" and found[row["API name"]]["Forward Test Success"] == "SKIP":
            assert found[row["API name"]]["Backward Test Success"] == "SKIP"


@pytest.mark.slow
def test_filter_keeps_calls_that_differ_in_structure(checker: Checker, tmp_path: Path) -> None:
    """3.6: the incumbent's set of kept calls is another one; ours is a part of all calls, in their order, first ones first."""
    checked = checker(input_of("pt_handmade", tmp_path), tmp_path / "out", "-f")
    kept = [row["API name"] for row in checked.result]
    everything = [row["API name"] for row in expected("pt_handmade", "result")]
    assert kept == [name for name in everything if name in kept]
    assert "Torch.cat.0" in kept  # two calls with lists of other shapes
    assert "Torch.cat.1" in kept
    assert [name for name in kept if ".tanh." in name] == ["Torch.tanh.0", "Torch.tanh.3"]  # of two shapes
    theirs = [row["API name"] for row in expected("pt_handmade", "result", "expected_filter_api")]
    assert len(kept) < len(theirs)


@pytest.mark.slow
def test_lists_of_the_config(checker: Checker, tmp_path: Path) -> None:
    config = DATA / "pt_handmade" / "input" / "config.json"
    checked = checker(input_of("pt_handmade", tmp_path), tmp_path / "out", "-config", str(config))
    theirs = expected("pt_handmade", "result", "expected_config")
    for ours, wanted in zip(checked.result, theirs, strict=True):
        assert ours["API name"] == wanted["API name"]
        assert (ours["Forward Test Success"] == "SKIP") == (wanted["Forward Test Success"] == "SKIP")
        if "black list" in ours["Message"]:
            assert ours["Message"] == wanted["Message"]
    assert sum(row["Forward Test Success"] == "pass" for row in checked.result) == 4


@pytest.mark.slow
def test_resuming_the_incumbents_files(checker: Checker, tmp_path: Path) -> None:
    """Rows of the files as they were, then the calls that were left, in the order of the dump."""
    stamp = "20250101000000"
    for kind in ("result", "details"):
        before = (DATA / "pt_handmade" / "resume_before" / f"{kind}.csv.gz").read_bytes()
        (tmp_path / f"accuracy_checking_{kind}_{stamp}.csv").write_bytes(gzip.decompress(before))
    path = tmp_path / f"accuracy_checking_result_{stamp}.csv"
    kept = {kind: (tmp_path / f"accuracy_checking_{kind}_{stamp}.csv").read_bytes() for kind in ("result", "details")}
    checked = checker(input_of("pt_handmade", tmp_path), tmp_path, "-csv_path", str(path))
    assert checked.status == 0
    for kind, data in kept.items():
        assert checked.path(kind).read_bytes().startswith(data)
    names = [row["API name"] for row in checked.result]
    assert names == [row["API name"] for row in expected("pt_handmade", "result", "expected_resume")]
    assert sorted(path.name for path in tmp_path.glob("accuracy*")) == [
        f"accuracy_checking_details_{stamp}.csv",
        f"accuracy_checking_result_{stamp}.csv",
    ]


def test_the_cases_are_all_here() -> None:
    assert set(CASES) == {path.name for path in DATA.glob("pt_*")}
