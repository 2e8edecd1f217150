"""Fixtures of the checker's tests."""

from __future__ import annotations

import pytest

from tests.check.checking import Checker


@pytest.fixture
def checker(capfd: pytest.CaptureFixture[str]) -> Checker:
    """Runs the command on the cpu."""
    return Checker(capfd)
