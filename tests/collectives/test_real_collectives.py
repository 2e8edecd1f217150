"""Dumps of real collectives (gloo): a sound run passes, and a value spoilt on one rank is found at its call."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collectives.planting import check

pytest.importorskip("torch.distributed")
pytestmark = pytest.mark.slow
NAN = float("nan")


def test_a_sound_run_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.collectives.gloo import record

    found = check(record(tmp_path / "sound"), capsys, "--fail-on", "warning")
    assert found.not_passed() == []
    assert found.status == 0
    assert len(found.rows) == 17
    assert sum("(values)" in row["Verified"] for row in found.rows) == 6
    assert sum("gave (bits)" in row["Verified"] for row in found.rows) == 11


@pytest.mark.parametrize(
    ("call", "rank", "by", "api", "told"),
    [
        ("all_reduce.0", 1, 0.01, "all_reduce", "rank 1: its output is not the SUM of the inputs: 1 of 24"),
        ("all_reduce.1", 2, 0.5, "all_reduce", "rank 2: its output is not the SUM of the inputs: 1 of 5"),
        ("all_reduce.2", 0, NAN, "all_reduce", "rank 0: its output is not the MAX of the inputs: 1 of 6"),
        ("all_reduce.3", 2, 1, "all_reduce", "rank 2: its output is not the SUM of the inputs: 1 of 3 elements are off"),
        ("broadcast.0", 0, 1e-6, "broadcast", "rank 0: its output is not what rank 2 gave: 1 of 4 elements differ"),
        ("all_gather.0", 2, NAN, "all_gather", "rank 2: its output is not what rank 2 gave: 1 of 4"),
        ("all_gather_into_tensor.0", 1, 2, "all_gather_into_tensor", "rank 1: its output is not what rank 0 gave: 1 of 4"),
        ("reduce.0", 0, 1, "reduce", "rank 0: its output is not the SUM of the inputs: 1 of 4"),
        ("scatter.0", 1, 1, "scatter", "rank 1: its output is not what rank 2 gave: 1 of 2"),
        ("all_to_all_single.0", 2, -1, "all_to_all_single", "rank 2: its output is not what rank 0 gave: 1 of 2"),
        ("recv.0", 1, 1, "send -> recv", "rank 1: its output is not what rank 0 gave: 1 of 4"),
        ("batch_isend_irecv.0", 0, 1, "batch_isend_irecv", "rank 0: its output is not what rank 2 gave: 1 of 3"),
    ],
)  # fmt: skip
def test_a_spoilt_value_is_found(
    call: str, rank: int, by: float, api: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.collectives.gloo import record

    found = check(record(tmp_path / "spoilt", (call, rank, by)), capsys, "--fail-on", "error")
    ((name, message),) = found.errors()
    assert (name, found.status) == (api, 1)
    assert told in message
    assert len(found.not_passed()) == 1
