"""Every branch of every standard of api_precision_compare: where it fires, and the nearest values where it does not."""

from __future__ import annotations

import math
from random import Random

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opassay.kernels.precision.ratio_results import TOPK, results
from opassay.kernels.precision.ratio_rows import UNSUPPORTED, compare_rows
from opassay.kernels.precision.ratios import FLOOR, FLOORS, RATIO_LIMITS, THOUSANDTH_MIN, ULP_MEAN_BELOW
from opassay.kernels.precision.tables import LABELS, LIMITS
from opassay.schemas.check_rows import BLANK, DETAILS
from opassay.schemas.precision_rows import COMPARED, USED

Row = dict[str, str | None]
APIS = {
    "benchmark": "Functional.softmax",
    "absolute_threshold": "Torch.add",
    "binary_consistency": "Torch.abs",
    "ulp_compare": "Torch.matmul",
    "thousandth_threshold": "Functional.conv2d",
    "accumulative_error_compare": "Torch.test_api",
}
GOOD: dict[str, dict[str, float]] = {
    "benchmark": dict.fromkeys(RATIO_LIMITS, 0.25),
    "absolute_threshold": {"inf_nan": 0, "relative_rate": 0, "absolute_rate": 0},
    "binary_consistency": {"binary": 0},
    "ulp_compare": {"ulp_mean": 100.0, "ulp_share": 0.5},
    "thousandth_threshold": {"thousandth": 1.0},
    "accumulative_error_compare": {"inf_nan": 0, "relative_rate": 0, "absolute_rate": 0, "balance": 0},
}
BELOW_ONE = math.nextafter(THOUSANDTH_MIN, 0)


def row(name: str, dtype: str = "torch.float32", **cells: object) -> Row:
    """A row of a details file as the reader gives it."""
    named: Row = dict.fromkeys(USED, BLANK)
    named |= {"name": name, "device_dtype": dtype, "shape": "(4, 4)", "message": None}
    return named | {key: value if value is None else str(value) for key, value in cells.items()}


def frame(*rows: Row) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=dict.fromkeys(USED, pl.String))


def judged(npu: Row, gpu: Row) -> dict[str, str]:
    """The one row that comes of two, its message never null."""
    (found,) = compare_rows(frame(npu), frame(gpu)).to_dicts()
    return found | {"message": found["message"] or ""}


def verdict(
    standard: str, dtype: str, npu: dict[str, float], gpu: dict[str, float], side: str = "forward"
) -> dict[str, str]:
    """The judged row of two whose figures are good but those given."""
    name = f"{APIS[standard]}.0.{side}.output.0"
    found = judged(row(name, dtype, **(GOOD[standard] | npu)), row(name, dtype, **(GOOD[standard] | gpu)))
    assert found["algorithm"] == LABELS[standard]
    return found


def test_the_good_ones_pass_and_fill_the_cells_of_their_standard_only() -> None:
    cells = {
        "benchmark": {f"{name}_{kind}" for name in RATIO_LIMITS for kind in ("ratio", "verdict")},
        "absolute_threshold": {"inf_nan", "inf_nan_verdict", "relative_rate", "relative_rate_verdict"}
        | {"absolute_rate", "absolute_rate_verdict"},
        "binary_consistency": {"binary", "binary_verdict"},
        "ulp_compare": {"ulp_mean", "ulp_share", "ulp_ratio", "ulp_verdict"},
        "thousandth_threshold": {"thousandth", "thousandth_verdict"},
    }
    cells["accumulative_error_compare"] = cells["absolute_threshold"] | {"balance_verdict"}
    for standard in APIS:
        for dtype in ("torch.float16", "torch.bfloat16", "torch.float32"):
            found = verdict(standard, dtype, {}, {})
            assert (found["verdict"], found["message"]) == ("pass", "")
            filled = {name for name in tuple(COMPARED)[1:-3] if found[name] != BLANK}
            assert filled == cells[standard]


@pytest.mark.parametrize("dtype", ["torch.float16", "torch.bfloat16", "torch.float32"])
@pytest.mark.parametrize(
    ("figure", "title"),
    [
        ("small_value", "小值域错误"),
        ("rmse", "均方根误差"),
        ("relative_max", "相对误差最大值"),
        ("relative_mean", "相对误差平均值"),
    ],
)
def test_a_ratio_beyond_its_limit(figure: str, title: str, dtype: str) -> None:
    limit = RATIO_LIMITS[figure]
    at, above = limit * 0.25, math.nextafter(limit * 0.25, 9)
    assert verdict("benchmark", dtype, {figure: at}, {})["verdict"] == "pass"
    found = verdict("benchmark", dtype, {figure: above}, {})
    assert (found["verdict"], found["message"]) == ("error", f"ERROR: {title}比值超过阈值\n")
    assert found[f"{figure}_verdict"] == "error"
    assert [name for name in RATIO_LIMITS if found[f"{name}_verdict"] == "error"] == [figure]
    assert found[f"{figure}_ratio"] == f"{limit:.14f}"


def test_the_balance_is_shown_and_does_not_count() -> None:
    assert verdict("benchmark", "torch.float32", {"balance": 0.5}, {})["balance_verdict"] == "pass"
    found = verdict("benchmark", "torch.float32", {"balance": 0.51}, {})
    assert (found["balance_verdict"], found["verdict"], found["message"]) == ("error", "pass", "")


@pytest.mark.parametrize("dtype", ["torch.float16", "torch.bfloat16", "torch.float32"])
def test_the_floor_of_a_ratio(dtype: str) -> None:
    floor = FLOORS.get(dtype, FLOOR)
    for under in (0.0, floor / 8):
        assert verdict("benchmark", dtype, {"rmse": 2 * floor}, {"rmse": under})["verdict"] == "pass"
        assert verdict("benchmark", dtype, {"rmse": 2.001 * floor}, {"rmse": under})["verdict"] == "error"
    assert verdict("benchmark", dtype, {"rmse": 4 * floor}, {"rmse": 2 * floor})["rmse_ratio"] == "2.00000000000000"


@pytest.mark.parametrize(("figure", "limit", "fine"), [("relative_mean", 2, 2.0**-22), ("relative_max", 10, 2.0**-20)])
def test_a_pass_that_rests_on_the_floor_alone_is_a_warning(figure: str, limit: float, fine: float) -> None:
    title = DETAILS[figure]
    found = verdict("benchmark", "torch.float32", {figure: 1.01 * limit * fine}, {figure: 0.0})
    assert (found["verdict"], found[f"{figure}_verdict"]) == ("warning", "pass")
    assert found["message"].startswith(f"{title} ")
    assert found["message"].endswith("the ratio's floor 2^-14 hides it\n")
    assert verdict("benchmark", "torch.float32", {figure: limit * fine}, {figure: 0.0})["verdict"] == "pass"
    assert verdict("benchmark", "torch.float32", {figure: limit * 4 * fine}, {figure: 4 * fine})["verdict"] == "pass"
    assert verdict("benchmark", "torch.float32", {figure: limit * 5 * fine}, {figure: 4 * fine})["verdict"] == "warning"
    assert verdict("benchmark", "torch.float16", {figure: 1.01 * limit * fine}, {figure: 0.0})["verdict"] == "pass"


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("figure", RATIO_LIMITS)
@pytest.mark.parametrize(
    ("ours", "theirs", "agree"),
    [(NAN, NAN, True), (INF, INF, True), (-INF, -INF, True), (INF, -INF, False), (NAN, 1, False), (1, NAN, False), (INF, 1, False),
     (1, -INF, False), (NAN, INF, False), (INF, NAN, False)],
)  # fmt: skip
def test_figures_that_are_no_numbers(figure: str, ours: float, theirs: float, agree: bool) -> None:
    found = verdict("benchmark", "torch.float32", {figure: ours}, {figure: theirs})
    counts = figure != "balance"
    assert found[f"{figure}_ratio"] == "nan"
    assert found[f"{figure}_verdict"] == ("pass" if agree else "error")
    assert found["verdict"] == ("error" if counts and not agree else "pass")
    title = DETAILS[figure]
    assert found["message"].startswith(f"{title}同为同号inf或nan\n" if agree else f"{title}inf或nan不一致\n")
    assert ("比值超过阈值" in found["message"]) == (counts and not agree)


@pytest.mark.parametrize("figure", ["inf_nan", "relative_rate", "absolute_rate"])
@pytest.mark.parametrize("standard", ["absolute_threshold", "accumulative_error_compare"])
def test_rates_must_be_0(standard: str, figure: str) -> None:
    found = verdict(standard, "torch.float32", {figure: 5e-324}, {})
    end = "" if standard == "absolute_threshold" else "\n"
    assert (found["verdict"], found["message"]) == ("error", f"ERROR: {DETAILS[figure]}超过阈值{end}")
    assert found[f"{figure}_verdict"] == "error"
    assert verdict(standard, "torch.float32", {figure: 0.0}, {figure: 1.0})["verdict"] == "pass"  # the GPU is not asked
    assert verdict(standard, "torch.float32", {figure: NAN}, {})["verdict"] == "error"


def test_messages_of_several_rates() -> None:
    bad = {"inf_nan": 0.5, "absolute_rate": 0.5}
    texts = ["ERROR: inf/nan错误率超过阈值", "ERROR: 绝对误差错误率超过阈值"]
    assert verdict("absolute_threshold", "torch.float32", bad, {})["message"] == "".join(texts)
    found = verdict("accumulative_error_compare", "torch.float32", bad | {"balance": 1}, {})
    assert found["message"] == "\n".join(f"{text}\n" for text in [*texts, "ERROR: 误差均衡性超过阈值"])


@pytest.mark.parametrize("dtype", ["torch.float16", "torch.bfloat16", "torch.float32"])
def test_the_balance_of_the_accumulative_standard(dtype: str) -> None:
    limit = LIMITS[dtype].accumulative_balance
    assert verdict("accumulative_error_compare", dtype, {"balance": limit}, {})["verdict"] == "pass"
    found = verdict("accumulative_error_compare", dtype, {"balance": math.nextafter(limit, 1)}, {})
    assert (found["verdict"], found["balance_verdict"]) == ("error", "error")
    assert found["message"] == "ERROR: 误差均衡性超过阈值\n"
    assert verdict("accumulative_error_compare", dtype, {"balance": NAN}, {})["verdict"] == "error"


def test_binary_rate_must_be_0() -> None:
    found = verdict("binary_consistency", "torch.float32", {"binary": 1e-300}, {"binary": 0})
    assert (found["verdict"], found["message"]) == ("error", "ERROR: 二进制一致错误率超过阈值\n")
    assert found["binary"] == "1e-300"  # as it is in the file
    assert verdict("binary_consistency", "torch.float32", {"binary": 0.0}, {"binary": 1})["verdict"] == "pass"


def test_thousandth() -> None:
    at = verdict("thousandth_threshold", "torch.float32", {"thousandth": THOUSANDTH_MIN}, {})
    assert (at["verdict"], at["thousandth"]) == ("pass", "0.999")
    found = verdict("thousandth_threshold", "torch.float32", {"thousandth": BELOW_ONE}, {})
    assert (found["verdict"], found["message"]) == ("error", "ERROR: 双千指标不达标\n")
    assert verdict("thousandth_threshold", "torch.float32", {"thousandth": NAN}, {})["verdict"] == "error"


def test_thousandth_of_bfloat16_no_worse_than_the_gpus() -> None:
    """Section 12.1 item 5: correct bfloat16 cannot reach the document's limit."""
    milder = verdict("thousandth_threshold", "torch.bfloat16", {"thousandth": 0.6}, {"thousandth": 0.5})
    assert (milder["verdict"], milder["thousandth_verdict"]) == ("warning", "error")
    assert "bfloat16 rounds by more than a thousandth" in milder["message"]
    assert (
        verdict("thousandth_threshold", "torch.bfloat16", {"thousandth": 0.5}, {"thousandth": 0.6})["verdict"]
        == "error"
    )
    assert (
        verdict("thousandth_threshold", "torch.float16", {"thousandth": 0.6}, {"thousandth": 0.5})["verdict"] == "error"
    )
    assert (
        verdict("thousandth_threshold", "torch.bfloat16", {"thousandth": NAN}, {"thousandth": 0.5})["verdict"]
        == "error"
    )


@pytest.mark.parametrize(
    ("dtype", "npu", "gpu", "word"),
    [
        ("torch.float32", {"ulp_mean": math.nextafter(ULP_MEAN_BELOW, 0)}, {"ulp_share": 0.01}, "pass"),
        ("torch.float32", {"ulp_mean": ULP_MEAN_BELOW}, {"ulp_share": 0.01}, "error"),
        ("torch.float16", {"ulp_mean": 1.0}, {"ulp_share": 0.01}, "error"),
        ("torch.bfloat16", {"ulp_mean": 1.0}, {"ulp_share": 0.01}, "error"),
        ("torch.float32", {"ulp_share": math.nextafter(0.05, 0)}, {"ulp_share": 0}, "pass"),
        ("torch.float32", {"ulp_share": 0.05}, {"ulp_share": 0}, "error"),
        ("torch.float16", {"ulp_share": math.nextafter(0.001, 0)}, {"ulp_share": 0}, "pass"),
        ("torch.float16", {"ulp_share": 0.001}, {"ulp_share": 0}, "error"),
        ("torch.bfloat16", {"ulp_share": math.nextafter(0.001, 0)}, {"ulp_share": 0}, "pass"),
        ("torch.bfloat16", {"ulp_share": 0.0040}, {"ulp_share": 0}, "error"),
        ("torch.bfloat16", {"ulp_share": 2.0**-8}, {"ulp_share": 0}, "pass"),  # the floor of the ratio
        ("torch.float32", {"ulp_share": 0.5}, {"ulp_share": 0.5}, "pass"),  # equal is no worse
        ("torch.float32", {"ulp_share": 0.5001}, {"ulp_share": 0.5}, "error"),
        ("torch.float16", {"ulp_share": 0.5001}, {"ulp_share": 0.5}, "error"),
        ("torch.float32", {"ulp_mean": NAN}, {"ulp_mean": NAN, "ulp_share": 0.4}, "error"),  # nan itself holds no limit
        ("torch.float32", {"ulp_mean": NAN, "ulp_share": 0.01}, {"ulp_mean": NAN}, "pass"),
        ("torch.float32", {"ulp_mean": 1.0, "ulp_share": NAN}, {"ulp_share": NAN}, "pass"),
        ("torch.float32", {"ulp_mean": 99.0, "ulp_share": NAN}, {"ulp_share": NAN}, "error"),
        ("torch.float32", {"ulp_mean": NAN, "ulp_share": 0.0}, {}, "error"),
        ("torch.float32", {"ulp_mean": 1.0}, {"ulp_share": INF}, "error"),
    ],
)
def test_ulp(dtype: str, npu: dict[str, float], gpu: dict[str, float], word: str) -> None:
    found = verdict("ulp_compare", dtype, npu, gpu)
    assert found["verdict"] == word
    assert found["message"].endswith("ERROR: ULP误差不满足标准\n") == (word == "error")


def test_ulp_that_do_not_agree_have_no_verdict_of_their_own() -> None:
    found = verdict("ulp_compare", "torch.float32", {"ulp_mean": INF}, {})
    assert (found["verdict"], found["ulp_verdict"], found["ulp_mean"]) == ("error", BLANK, "inf")
    assert found["message"] == "ULP误差平均值inf或nan不一致\nERROR: ULP误差不满足标准\n"
    agreed = verdict("ulp_compare", "torch.float32", {"ulp_share": INF}, {"ulp_share": INF, "ulp_mean": 99.0})
    assert (agreed["ulp_verdict"], agreed["ulp_ratio"]) == ("error", "nan")
    assert agreed["message"] == "ULP误差大于阈值占比同为同号inf或nan\nERROR: ULP误差不满足标准\n"


@pytest.mark.parametrize("standard", APIS)
def test_a_nan_of_the_device_alone_is_an_error_everywhere(standard: str) -> None:
    good = GOOD[standard]
    # the figures of the checkers that a nan spoils
    seen = {key: value for key, value in good.items() if key != "inf_nan"}
    name = f"{APIS[standard]}.0.forward.output.0"
    for spoilt, sound in (("cosine", 1.0), ("error_max", 0.5)):
        both = [
            row(name, **(seen | {"inf_nan": 0 if "inf_nan" in good else BLANK, spoilt: value}))
            for value in (NAN, sound)
        ]
        counted = "inf_nan" in good
        found = judged(*both)
        assert found["verdict"] == ("pass" if counted else "error")  # positions were counted: none differs
        assert judged(both[0], both[0])["verdict"] == "pass"
        assert judged(both[1], both[0])["verdict"] == "pass"
    counted_bad = judged(row(name, **(good | {"inf_nan": 1e-9})), row(name, **good))
    assert (counted_bad["verdict"], counted_bad["inf_nan_verdict"]) == ("error", "error")
    assert "inf/nan错误率超过阈值" in counted_bad["message"]
    assert counted_bad["inf_nan"] == "0.00000000100000"
    counted_good = judged(row(name, **(good | {"inf_nan": 0})), row(name, **good))
    assert (counted_good["verdict"], counted_good["inf_nan_verdict"]) == ("pass", "pass")


def test_an_infinite_error_of_the_device_alone() -> None:
    name = "Functional.softmax.0.forward.output.0"
    good = GOOD["benchmark"]
    found = judged(row(name, error_max=INF, **good), row(name, error_max=1e300, **good))
    assert (found["verdict"], found["message"]) == ("error", "ERROR: nan or inf only on the device\n")
    assert judged(row(name, error_max=1e300, **good), row(name, error_max=INF, **good))["verdict"] == "pass"
    double = judged(row(name, "torch.float64", cosine=NAN), row(name, "torch.float64", cosine=1))
    assert double["verdict"] == "error"


@pytest.mark.parametrize("standard", ["absolute_threshold", "binary_consistency", "thousandth_threshold"])
def test_equal_rows_pass(standard: str) -> None:
    bad = {
        "absolute_threshold": {"relative_rate": 0.25},
        "binary_consistency": {"binary": 0.25},
        "thousandth_threshold": {"thousandth": 0.25},
    }[standard]
    found = verdict(standard, "torch.float32", bad, bad)
    assert found["verdict"] == "pass"
    assert found["message"].startswith("the GPU's figures are equal: ")
    assert "error" not in found.values()
    (figure,) = bad
    assert verdict(standard, "torch.float32", bad, {figure: 0.2500001})["verdict"] == "error"
    name = f"{APIS[standard]}.0.forward.output.0"
    unlike = [row(name, **(GOOD[standard] | bad), cosine=cosine) for cosine in (0.5, 0.6)]
    assert judged(*unlike)["verdict"] == "error"  # equal in all figures, or not equal


def test_equal_nan_and_inf_that_the_reference_has_not_stay_an_error() -> None:
    bad = {"inf_nan": 0.25}
    assert verdict("absolute_threshold", "torch.float32", bad, bad)["verdict"] == "error"


@pytest.mark.parametrize("standard", APIS)
def test_blank_and_text_are_not_zero(standard: str) -> None:
    name = f"{APIS[standard]}.0.forward.output.0"
    good = GOOD[standard]
    both = standard in ("benchmark", "ulp_compare")
    for figure in good:
        for empty in (BLANK, "", None):
            for sides in ((empty, 0), (0, empty)) if both else ((empty, 0),):
                pair = [row(name, **(good | {figure: cell})) for cell in sides]
                found = judged(*pair)
                assert (found["verdict"], found["message"]) == ("SKIP", "ERROR: Input data is an empty string")
                assert found["algorithm"] == BLANK
        found = judged(row(name, **(good | {figure: "many"})), row(name, **good))
        assert (found["verdict"], found["message"]) == ("SKIP", "ERROR: Input data cannot be converted to float")


@pytest.mark.parametrize("text", ["0.25", " 0.25 ", "+0.25", "2.5e-1", "2.5E-01", "0.25000000000000"])
def test_numbers_in_any_format(text: str) -> None:
    name = "Functional.softmax.0.forward.output.0"
    found = judged(row(name, **(GOOD["benchmark"] | {"rmse": text})), row(name, **GOOD["benchmark"]))
    assert (found["verdict"], found["rmse_ratio"]) == ("pass", "1.00000000000000")


@pytest.mark.parametrize("text", ["nan", "NaN", " nan", "NAN"])
def test_nan_in_any_spelling(text: str) -> None:
    name = "Functional.softmax.0.forward.output.0"
    found = judged(row(name, **(GOOD["benchmark"] | {"rmse": text})), row(name, **(GOOD["benchmark"] | {"rmse": NAN})))
    assert (found["verdict"], found["rmse_ratio"]) == ("pass", "nan")


def test_the_standard_is_the_first_that_both_files_can_answer() -> None:
    """Our checker judges cat by its bits and gradients of mul against the GPU; another's files have other columns."""
    cat, mul = "Torch.cat.0.forward.output.0", "Torch.mul.0.backward.output.0"
    label = {standard: LABELS[standard] for standard in APIS}
    bits, figures = {"binary": 0}, GOOD["benchmark"]
    assert judged(row(cat, **bits), row(cat, **bits))["algorithm"] == label["binary_consistency"]
    assert judged(row(cat, **figures), row(cat, **figures))["algorithm"] == label["benchmark"]
    assert judged(row(cat, **bits, **figures), row(cat, **figures))["algorithm"] == label["binary_consistency"]
    rates = GOOD["absolute_threshold"]
    assert judged(row(mul, **figures), row(mul, **figures))["algorithm"] == label["benchmark"]
    assert judged(row(mul, **rates), row(mul, **figures))["algorithm"] == label["absolute_threshold"]
    matmul = "Torch.matmul.0.forward.output.0"
    assert judged(row(matmul, **figures), row(matmul, **figures))["algorithm"] == label["benchmark"]


@pytest.mark.parametrize("dtype", ["torch.int64", "torch.bool", "torch.uint8", "torch.int8", "<class 'int'>"])
def test_whole_numbers_are_equal_or_not(dtype: str) -> None:
    name = "Torch.matmul.0.forward.output.0"
    found = judged(row(name, dtype, binary="0"), row(name, dtype))
    assert (found["verdict"], found["algorithm"]) == ("pass", LABELS["binary_consistency"])
    assert judged(row(name, dtype, binary="0.5"), row(name, dtype, binary="0"))["verdict"] == "error"


def test_rows_that_no_standard_judges() -> None:
    name = "Torch.exp.0.forward.output.0"
    good = GOOD["benchmark"]
    sound = row(name, **good)
    cases = {
        ("SKIP", "why"): row(name, BLANK, message="why"),
        ("SKIP", "the DEVICE Dtype is blank"): row(name, BLANK),
        ("SKIP", "the tensor has no elements"): row(name, shape="(0,)", **good),
        ("SKIP", "own words"): row(name, shape="(3, 0, 2)", message="own words", **good),
        ("SKIP", UNSUPPORTED): row(name, "torch.complex64", **good),
        ("pass", ""): row(name, shape="(10, 20)", **good),
    }
    for (word, message), npu in cases.items():
        found = judged(npu, sound | {"device_dtype": npu["device_dtype"], "shape": npu["shape"]})
        assert (found["verdict"], found["message"]) == (word, message)
    random = row("Torch.bernoulli.0.forward.output.0", **good)
    found = judged(random, random)
    assert found["verdict"] == "SKIP"
    assert "two draws never agree" in found["message"]


def test_rows_of_unlike_tensors_are_a_warning() -> None:
    name = "Functional.softmax.0.forward.output.0"
    good = GOOD["benchmark"]
    found = judged(row(name, **good), row(name, **good, shape="(4, 5)"))
    assert (found["verdict"], found["message"]) == ("warning", "shape (4, 4) here and (4, 5) in the GPU file\n")
    found = judged(row(name, "torch.float16", **good), row(name, "torch.float32", **good))
    assert (found["verdict"], found["message"]) == (
        "warning",
        "dtype torch.float16 here and torch.float32 in the GPU file\n",
    )
    assert judged(row(name, **good), row(name, **good, shape=BLANK))["verdict"] == "pass"


def outcome(*rows: Row, gpu: tuple[Row, ...] | None = None) -> list[tuple[str, ...]]:
    """Result rows; the GPU's rows are good ones of the same names unless given."""
    theirs = gpu if gpu is not None else tuple(one | {"cosine": "1"} for one in rows)
    found = compare_rows(frame(*rows), frame(*theirs))
    return [tuple(cell or "" for cell in cells) for cells in results(found).iter_rows()]


def rated(name: str, rate: float = 0, dtype: str = "torch.int64", **cells: object) -> Row:
    return row(name, dtype, binary=rate, **cells)


def test_results_take_the_gravest_of_a_direction() -> None:
    name = "Torch.foo.0"
    lax = row(f"{name}.forward.output.2", **(GOOD["benchmark"] | {"relative_mean": 2.0**-20}))
    strict = lax | {"relative_mean": "0"}
    good, bad = rated(f"{name}.forward.output.0"), rated(f"{name}.forward.output.1", 1)
    skip, back = row(f"{name}.forward.output.3", BLANK, message="m"), rated(f"{name}.backward.output.0")
    assert outcome(good) == [(name, "pass", BLANK, "")]
    assert outcome(good, bad, gpu=(good, bad | {"binary": "0"})) == [(name, "error", BLANK, "")]
    assert outcome(good, lax, gpu=(good, strict)) == [(name, "warning", BLANK, "")]
    assert outcome(lax, bad, good, gpu=(strict, bad | {"binary": "0"}, good)) == [(name, "error", BLANK, "")]
    assert outcome(good, skip) == [(name, "pass", BLANK, "")]
    assert outcome(skip) == [(name, "SKIP", BLANK, "m")]
    assert outcome(skip, skip | {"name": f"{name}.forward.output.4", "message": "last"}) == [
        (name, "SKIP", BLANK, "last")
    ]
    assert outcome(back) == [(name, BLANK, "pass", "")]
    assert outcome(good, back, rated(f"{name}.backward.output.1", 1), gpu=(good, back, back)) == [
        (name, "pass", "pass", "")
    ]


def test_results_of_dtypes_that_are_not_compared() -> None:
    double = row("Torch.exp.0.forward.output.0", "torch.float64")
    bad = rated("Torch.exp.0.forward.output.1", 1)
    assert outcome(double) == [("Torch.exp.0", "SKIP", "SKIP", UNSUPPORTED)]
    for rows in ((bad, double), (double, bad)):
        assert outcome(*rows, gpu=(double, bad | {"binary": "0"})) == [("Torch.exp.0", "error", BLANK, "")]


def test_topk_has_a_hint_where_it_fails() -> None:
    good, bad = rated("Torch.topk.0.forward.output.0"), rated("Torch.topk.0.forward.output.0", 1)
    assert outcome(bad, gpu=(good,)) == [("Torch.topk.0", "error", BLANK, TOPK)]
    assert outcome(good) == [("Torch.topk.0", "pass", BLANK, "")]


@pytest.mark.parametrize(
    "name",
    ["Torch.short.forward.output.0", "Torch.one.two.three.0.forward.output.0", "Torch.add.x.forward.output.0", "",
     "Torch.add.0.sideways.output.0"],
)  # fmt: skip
def test_names_of_no_output(name: str) -> None:
    text = f"The API name {name} is invalid."
    assert judged(rated(name), rated(name))["message"] == text
    assert outcome(rated(name)) == [(name, "SKIP", "SKIP", text)]


def test_names_of_sub_modules_and_of_nested_outputs() -> None:
    assert outcome(rated("Torch.linalg.inv.0.forward.output.0")) == [("Torch.linalg.inv.0", "pass", BLANK, "")]
    assert outcome(rated("Torch.split.2.forward.output.0.1")) == [("Torch.split.2", "pass", BLANK, "")]


def test_one_side_only() -> None:
    ours, both, theirs = (rated(f"Torch.{name}.0.forward.output.0") for name in ("ours", "both", "theirs"))
    rows = compare_rows(frame(ours, both), frame(theirs, both))
    assert rows.select("name", "verdict", "message").rows() == [
        (ours["name"], "SKIP", "not in the GPU file"),
        (both["name"], "pass", None),
        (theirs["name"], "SKIP", "not in the NPU file"),
    ]
    assert outcome(ours, both, gpu=(theirs, both)) == [
        ("Torch.ours.0", "SKIP", BLANK, "not in the GPU file"),
        ("Torch.both.0", "pass", BLANK, ""),
        ("Torch.theirs.0", "SKIP", BLANK, "not in the NPU file"),
    ]


def test_rows_that_stand_twice() -> None:
    name = "Torch.both.0.forward.output.0"
    good, bad = rated(name), rated(name, 1)
    rows = compare_rows(frame(good, bad), frame(good))
    assert [(one["verdict"], one["message"]) for one in rows.to_dicts()] == [
        ("pass", None),
        ("SKIP", "row 2 of this name in the NPU file; the first was compared"),
    ]
    assert outcome(good, bad, gpu=(good,)) == [("Torch.both.0", "pass", BLANK, "")]
    found = judged(bad, good)
    assert found["verdict"] == "error"
    (twice,) = compare_rows(frame(bad), frame(good, bad)).to_dicts()
    assert (twice["verdict"], twice["gpu_rows"]) == ("error", 2)
    assert twice["message"].endswith("the GPU file has 2 rows of this name, the first was used\n")


NAMES = [
    f"{api}.{index}.{way}.output.0" for api in APIS.values() for index in (0, 1) for way in ("forward", "backward")
]
FILES = st.lists(
    st.builds(
        lambda name, rate, dtype: row(name, dtype, **{key: rate for key in USED[3:-3] if key != "message"}),
        st.sampled_from(NAMES),
        st.sampled_from([0, 0.25, 0.5, 1, 2, "nan", BLANK]),
        st.sampled_from(["torch.float16", "torch.float32", "torch.int64", "torch.float64", BLANK]),
    ),
    max_size=20,
)


@settings(max_examples=30, deadline=None)
@given(FILES, FILES, st.randoms())
def test_every_row_is_in_the_details_once_and_the_order_of_the_gpu_does_not_matter(
    npu: list[Row], gpu: list[Row], random: Random
) -> None:
    found = compare_rows(frame(*npu), frame(*gpu))
    others = list(dict.fromkeys(one["name"] for one in gpu if one["name"] not in {mine["name"] for mine in npu}))
    assert found.get_column("name").to_list() == [*(one["name"] for one in npu), *others]
    assert found.get_column("verdict").is_in(["pass", "warning", "error", "SKIP"]).all()
    assert found.filter((pl.col("verdict") == "SKIP") & pl.col("message").is_null()).is_empty()
    once = list({one["name"]: one for one in reversed(gpu)}.values())
    shuffled = once.copy()
    random.shuffle(shuffled)
    left, right = (compare_rows(frame(*npu), frame(*rows)).drop("index") for rows in (once, shuffled))
    assert (
        left.sort("name", maintain_order=True)
        .filter("in_npu")
        .equals(right.sort("name", maintain_order=True).filter("in_npu"))
    )
    calls = results(found)
    assert not calls.get_column("name").is_duplicated().any() or found.get_column("kind").is_in(["alone"]).any()


@settings(max_examples=30, deadline=None)
@given(FILES)
def test_a_file_with_itself_has_no_errors(rows: list[Row]) -> None:
    sound = [one | {"inf_nan": "0"} for one in rows]
    found = compare_rows(frame(*sound), frame(*sound))
    first = found.filter(pl.col("kind") == "judged", ~pl.col("message").fill_null("").str.contains("rows of this name"))
    assert first.filter(pl.col("verdict") != "pass").is_empty()
