"""Fixtures of merges."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.merge.merging import Merge


@pytest.fixture
def merge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Merge:
    """The command, with empty folders."""
    return Merge(tmp_path, capsys)
