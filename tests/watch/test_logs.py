from __future__ import annotations

import io
import logging
import os
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opassay.pipeline.watch import logs

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \((\d+)\) \[([A-Z]+)\] (.*)")


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in logs.LEVEL_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    before = (logs.LOGGER.handlers[:], logs.LOGGER.level, logs.LOGGER.propagate)
    yield
    logs.LOGGER.handlers[:], logs.LOGGER.propagate = before[0], before[2]
    logs.LOGGER.setLevel(before[1])


def said(verbosity: logs.Verbosity) -> list[str]:
    stream = io.StringIO()
    logger = logs.setup(verbosity, stream)
    stream.truncate(0)
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        logger.log(level, "x")
    return re.findall(r"\[([A-Z]+)\] x", stream.getvalue())


def test_a_line_has_time_process_level_and_text() -> None:
    stream = io.StringIO()
    logs.setup(stream=stream).getChild("report").info("wrote %s", "a.csv")
    match = LINE.fullmatch(stream.getvalue().removesuffix("\n"))
    assert match
    assert match.groups() == (str(os.getpid()), "INFO", "wrote a.csv")


def test_streams_by_level(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logs.setup()
    logger.info("course")
    logger.warning("care")
    logger.error("fault")
    out, err = capsys.readouterr()
    assert "course" in out
    assert out.count("\n") == 1
    assert "[WARNING] care" in err
    assert "[ERROR] fault" in err


def test_verbosity() -> None:
    assert said("quiet") == ["WARNING", "ERROR"]
    assert said("normal") == ["INFO", "WARNING", "ERROR"]
    assert said("verbose") == ["DEBUG", "INFO", "WARNING", "ERROR"]


@pytest.mark.parametrize("name", logs.LEVEL_VARIABLES)
def test_level_of_the_environment(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for value, count in (("0", 4), ("1", 3), ("2", 2), ("3", 1)):
        monkeypatch.setenv(name, value)
        assert len(said("normal")) == count
    assert len(said("verbose")) == 4


def test_our_own_variable_wins_and_nonsense_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSPROBE_LOG_LEVEL", "0")
    monkeypatch.setenv("OPASSAY_LOG_LEVEL", "3")
    assert said("normal") == ["ERROR"]
    monkeypatch.setenv("OPASSAY_LOG_LEVEL", "loud")
    stream = io.StringIO()
    logs.setup(stream=stream)
    assert "OPASSAY_LOG_LEVEL is 'loud'" in stream.getvalue()
    assert logs.LOGGER.level == logging.INFO


def test_setting_up_twice_does_not_double_lines() -> None:
    logs.setup(stream=io.StringIO())
    stream = io.StringIO()
    logs.setup(stream=stream).info("x")
    assert stream.getvalue().count("x\n") == 1


@given(st.text(max_size=40))
def test_one_event_is_one_line(text: str) -> None:
    line = logs.one_line(text)
    assert len(f"{line}.".splitlines()) == 1
    assert not re.search(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]", line)


def test_a_traceback_is_one_line_too() -> None:
    stream = io.StringIO()
    logger = logs.setup(stream=stream)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logger.exception("a\nb\x1b[31m")
    (line,) = stream.getvalue().splitlines()
    assert r"a\nb\x1b[31m\nTraceback" in line
    assert r"ValueError: two\nlines" in line


def test_no_encoding_and_no_closed_stream_ends_a_run() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    handler = logs.StandardStreams(
        stream
    )  # not through the logger: the test runner captures that, and cannot send surrogates

    def tell(text: str) -> None:
        handler.handle(logging.LogRecord("opassay", logging.INFO, __file__, 1, text, (), None))

    tell("算子 \udc80")
    assert b"\\u7b97\\u5b50 \\udc80" in raw.getvalue()
    stream.close()
    tell("nobody listens")


def test_banner_is_three_framed_lines() -> None:
    stream = io.StringIO()
    logs.setup(stream=stream)
    logs.success_banner()
    above, text, below = (match[2] for match in re.findall(LINE, stream.getvalue()))
    assert above == below == "*" * len(above)
    assert len(text) == len(above)
    assert text.strip("* ") == "msprobe compare ends successfully."
    assert text[0] == text[-1] == "*"


def test_a_line_has_a_bounded_length() -> None:
    record = logging.LogRecord("opassay", logging.ERROR, __file__, 1, "a" * 100_000 + "; try less", (), None)
    line = logs.OneLine().format(record)
    assert len(line) <= logs.LINE_LIMIT
    assert line.endswith("; try less")
