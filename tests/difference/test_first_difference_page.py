"""The page on the first difference shows what really happens."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from opassay.kernels.first_difference import Origin, Stage

from tests.test_docs_matching import assert_shown_is_printed, blocks, output_of, printed_by

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "first-difference.md").read_text(encoding="utf-8")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example at the place where the page's commands look for it."""
    shutil.copytree(ROOT / "examples" / "two_ranks", tmp_path / "examples" / "two_ranks")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_what_the_page_shows_is_printed_and_written(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed: list[str] = []
    checked = 0
    for kind, text in blocks(PAGE):
        if kind == "sh":
            shutil.rmtree("output", ignore_errors=True)
            printed = [re.sub(r"_\d{14}\.json$", "_", line) for line in printed_by(text.strip(), 0, capsys)]
            assert output_of(text) == "output/first"
        elif kind == "text":
            assert_shown_is_printed(text, printed)
            checked += 1
        elif kind == "json":
            (path,) = Path("output/first").glob("diff_analyze_*.json")
            assert_shown_is_printed(text, [line.strip() for line in path.read_text().splitlines()])
            checked += 1
    assert checked == 3


def test_every_origin_and_stage_is_explained() -> None:
    for word in (*Origin, *Stage):
        assert re.search(rf"^\|[^|]*`{word.value}`", PAGE, re.MULTILINE), word
