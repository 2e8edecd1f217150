"""``opassay explain-api``: what it says is what the checker does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from opassay.kernels.precision.tables import LABELS, LISTED
from opassay.pipeline.cli.main import main

Explain = Callable[[str], tuple[int, str]]


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str]) -> Explain:
    """Status and the text, lines joined."""

    def run(name: str) -> tuple[int, str]:
        status = main(["explain-api", name])
        told = capsys.readouterr()
        return status, re.sub(r"\s+", " ", told.out + told.err)

    return run


@pytest.mark.parametrize(
    "name", ["matmul", "Torch.matmul", "Torch.matmul.0", "Torch.matmul.0.forward", "Tensor.matmul.3.backward"]
)
def test_every_way_to_name_an_operator(name: str, explain: Explain) -> None:
    status, text = explain(name)
    assert status == 0
    assert text.startswith("matmul standard forward and backward: ULP误差比对法 (ulp_compare)")
    assert "torch.float32: mantissa_bits 23, min_exponent -126, count_above 32" in text
    assert "float32 if the mean is below 64, the share below 0.05" in text


def test_a_gradient_may_have_another_standard(explain: Explain) -> None:
    text = explain("__mul__")[1]
    assert "standard forward: 绝对阈值法 (absolute_threshold)" in text
    assert "standard backward: 标杆比对法 (benchmark)" in text
    assert "torch.bfloat16: small_value 2^-10, small_value_atol 2^-16, rtol 2^-8" in text
    assert "at most 2 for 小值域错误占比, 均方根误差 and 相对误差平均值, and at most 10 for 相对误差最大值" in text
    assert "2^-11 for float16, 2^-8 for bfloat16, 2^-14 else" in text


@pytest.mark.parametrize("standard", LISTED)
def test_every_listed_operator_is_told_its_standard(standard: str, explain: Explain) -> None:
    for name in sorted(LISTED[standard])[:5]:
        status, text = explain(name)
        assert (status, f"{LABELS[standard]} ({standard})" in text) == (0, True)


def test_a_fused_operator_has_its_formula(explain: Explain) -> None:
    pytest.importorskip("torch")
    for name in ("npu_rms_norm", "NPU.npu_rms_norm.0.forward"):
        text = explain(name)[1]
        assert text.startswith("npu_rms_norm ")
        assert "reference own formula on the CPU in raised precision: x rstd gamma" in text
    assert "none: there is no own formula" in explain("npu_rms_nrm")[1]
    assert "did you mean npu_rms_norm" in explain("npu_rms_nrm")[1]


def test_operators_that_draw_numbers(explain: Explain) -> None:
    assert "only the share of zeros" in explain("dropout")[1]
    text = explain("multinomial")[1]
    assert "two draws never agree" in text
    assert "integers" not in text


def test_operators_that_compute_otherwise(explain: Explain) -> None:
    assert "rounded to HF32" in explain("conv2d")[1]
    assert "keeps the dtypes" in explain("type_as")[1]


def test_operators_in_no_list(explain: Explain) -> None:
    pytest.importorskip("torch")
    for name in ("linalg.inv", "Torch.linalg.inv.0.forward", "softmax", "lstm"):
        status, text = explain(name)
        assert (status, "in no list: every other operator" in text) == (0, True)


@pytest.mark.parametrize(
    ("name", "near"), [("matmull", "matmul"), ("Torch.soft_max.0", "softmax"), ("conv22d", "conv2d")]
)
def test_an_unknown_name_gets_the_nearest(name: str, near: str, explain: Explain) -> None:
    pytest.importorskip("torch")
    status, text = explain(name)
    assert status == 2
    assert f"no operator is called '{name.removeprefix('Torch.').removesuffix('.0')}'" in text
    assert near in text.partition("did you mean")[2]


def test_a_name_like_nothing(explain: Explain) -> None:
    pytest.importorskip("torch")
    status, text = explain("zzzzqqqq")
    assert status == 2
    assert text.endswith(
        "no operator is called 'zzzzqqqq'; name one as dumps do: matmul, Torch.matmul.0, npu_rms_norm "
    )


def test_the_page_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "precision-compare.md").read_text("utf-8")
    shown = re.search(r"^\$ opassay (explain-api \S+)\n(.*?)```", page, re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert main(shown[1].split()) == 0
    assert capsys.readouterr().out == shown[2]


def test_what_is_always_skipped_is_told(explain: Explain) -> None:
    assert "run_ut and multi_run_ut skip it by name" in explain("Tensor.data_ptr")[1]
    assert "skip it by name" not in explain("matmul")[1]
