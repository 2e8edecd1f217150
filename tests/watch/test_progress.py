from __future__ import annotations

import io
import logging

import pytest
from opassay.pipeline.watch.progress import Progress


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("opassay"), "propagate", True)
    caplog.set_level(logging.INFO, "opassay")
    return caplog


def test_a_job_log_gets_a_line_every_ten_seconds(lines: pytest.LogCaptureFixture) -> None:
    clock, stream = Clock(), io.StringIO()
    progress = Progress(stream=stream, clock=clock)
    progress.start(40_000_000_000, 4_000, "measuring rank0")
    for _ in range(25):
        clock.now += 1
        progress.advance(bytes=1_000_000_000, pairs=100)
    progress.finish()
    assert lines.messages == [
        "measuring rank0: 25 %, 1,000 of 4,000 tensors, 100 a second, 1 GB/s, 0:00:30 left",
        "measuring rank0: 50 %, 2,000 of 4,000 tensors, 100 a second, 1 GB/s, 0:00:20 left",
        "measuring rank0: done, 2,500 tensors, 25.0 GB, 1 GB/s in 25.0 s",
    ]
    assert stream.getvalue() == ""


def test_pairs_measure_where_there_are_no_bytes(lines: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with Progress(stream=io.StringIO(), clock=clock) as progress:
        progress.start(0, 400, "matching")
        clock.now = 11
        progress.advance(pairs=100)
        assert lines.messages == ["matching: 25 %, 100 of 400 tensors, 9 a second, 0:00:33 left"]
        progress.start(0, 0, "saving")
        assert lines.messages[1] == "matching: done, 100 tensors in 11.0 s"
        clock.now = 30
        progress.advance(pairs=1)
        assert lines.messages[2] == "saving: 0 %, 1 of 0 tensors, 0 a second"


def test_quiet_is_quiet(lines: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    for stream in (io.StringIO(), Terminal()):
        progress = Progress("quiet", stream, clock=clock)
        progress.start(10, 10, "x")
        clock.now += 60
        progress.advance(5, 5)
        progress.finish()
        assert stream.getvalue() == ""
    assert lines.messages == []


def test_a_terminal_gets_one_live_line(lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    clock, stream = Clock(), Terminal()
    progress = Progress(stream=stream, clock=clock)
    progress.start(100, 10, "measuring [rank0]")
    clock.now = 20
    progress.advance(bytes=50, pairs=5)
    assert lines.messages == []
    assert "measuring [rank0]" in stream.getvalue()
    assert "5 of 10 tensors" in stream.getvalue()
    assert "0:00:20 left" in stream.getvalue()
    drawn = stream.getvalue()
    clock.now = 20.01
    progress.advance(bytes=1, pairs=1)
    assert stream.getvalue() == drawn
    progress.finish()
    assert "6 tensors" in lines.messages[0]


def test_finishing_twice_says_it_once(lines: pytest.LogCaptureFixture) -> None:
    progress = Progress(stream=io.StringIO())
    progress.finish()
    progress.start(1, 1, "x")
    progress.finish()
    progress.finish()
    assert len(lines.messages) == 1
