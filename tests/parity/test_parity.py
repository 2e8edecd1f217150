"""Our reports against the stored ones, cell by cell."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.parity.__main__ import default_tool, judge_all
from tests.parity.cases import find_cases
from tests.parity.report import finding_text, text_report, totals

CASES = Path(__file__).parent.parent / "data" / "cases"
BESIDE = Path(__file__).parents[2].parent / "shared" / "cases"


@pytest.mark.slow
@pytest.mark.parametrize("case", find_cases([CASES]), ids=lambda case: case.name)
def test_stored_case(case, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (outcome,) = judge_all([case.folder], default_tool(), tmp_path, loud=False)
    assert not outcome.tally.unexplained, "\n".join(finding_text(f) for f in outcome.tally.unexplained[:20])


@pytest.mark.slow
@pytest.mark.skipif(
    os.environ.get("OPASSAY_PARITY") != "1" or not BESIDE.is_dir(), reason="needs OPASSAY_PARITY=1 and ../shared/cases"
)
def test_whole_corpus(tmp_path: Path) -> None:
    outcomes = judge_all([BESIDE], default_tool(), tmp_path)
    assert totals(outcomes)[3] == 0, text_report(outcomes, 40)
