"""Standard streams that are closed or full: no traceback, and the exit status of the work itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands import STATISTICS
from tests.dumps import write_dump

PROGRAM = f"{sys.executable} -c 'from opassay.pipeline.cli.main import run; run()'"


def shell(command: str, folder: Path) -> tuple[int, str]:
    """Run a line of bash in a folder; status and all that was said."""
    told = subprocess.run(
        ["bash", "-c", f"{PROGRAM} {command}"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    return told.returncode, told.stdout + told.stderr


@pytest.mark.slow
@pytest.mark.parametrize("where", [">&-", "2>&-", ">&- 2>&- <&-", ">/dev/full", "2>/dev/full", ">/dev/full --quiet"])
def test_a_comparison_whose_words_are_lost(tmp_path: Path, where: str) -> None:
    for side in ("t", "g"):
        for rank in range(2):
            write_dump(tmp_path / side / f"rank{rank}", STATISTICS)
    (tmp_path / "t" / "rank1" / "dump.json").write_text("{")
    status, said = shell(f"compare -tp t -gp g --workers 1 {where}", tmp_path)
    assert status == 3
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    assert len(os.listdir(tmp_path / "output")) == 1


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("explain >/dev/full", 0),
        ("explain >&-", 0),
        ("--help >/dev/full", 0),
        ("compare --nonsense 2>/dev/full", 2),
        ("compare --nonsense 2>&-", 2),
        ("compare -tp nowhere -gp nowhere 2>/dev/full", 2),
        ("explain no_such_rule 2>&-", 2),
    ],
)
def test_other_commands_whose_words_are_lost(tmp_path: Path, command: str, status: int) -> None:
    assert shell(command, tmp_path) == (status, "")


def test_the_reader_goes_away(tmp_path: Path) -> None:
    assert shell("explain | true; exit ${PIPESTATUS[0]}", tmp_path) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.3, 0.7, 1.2])
def test_ctrl_c_twice_is_one_line(tmp_path: Path, delay: float) -> None:
    for side in ("t", "g"):
        for rank in range(2):
            write_dump(
                tmp_path / side / f"rank{rank}", {f"{op}{i}": r for op, r in STATISTICS.items() for i in range(1)}
            )
    with subprocess.Popen(
        [sys.executable, "-c", "from opassay.pipeline.cli.main import run; run()",
         "compare", "-tp", "t", "-gp", "g", "--workers", "2"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        time.sleep(delay)
        for _ in range(2):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.05)
        out, err = process.communicate(timeout=60)
    assert "Traceback" not in out + err
    assert process.returncode in (0, 2, 130)
