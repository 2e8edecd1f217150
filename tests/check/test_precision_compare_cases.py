"""The incumbent's own comparisons: every cell is its, or a named rule says why the right one differs, and what it is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from opassay.schemas.check_rows import BLANK, DETAILS
from opassay.schemas.precision_rows import COMPARED

from tests.check.precision_files import Row, compare, read, unpacked

FIGURES = [title for name, title in DETAILS.items() if name not in ("name", "status", "message")][3:]
VERDICT, MESSAGE = "比对结果", "Message"
Rule = Callable[[Row, Row, Row], "set[str] | None"]
"""(NPU row, GPU row, our row) -> headers of cells that may differ from the incumbent's; None if the rule does not hold."""


def number(text: str) -> float:
    """A cell as a number; a blank is nan too, and no case here turns on the difference."""
    return float(text) if text.strip() else math.nan


def nan_only_on_the_device(npu: Row, gpu: Row, ours: Row) -> set[str] | None:
    """Decision 17, section 12.1 item 1: a nan of the device alone is an error under every standard."""
    spoilt = [
        title
        for title in ("余弦相似度", "最大绝对误差")
        if npu[title] == "nan" and gpu[title].strip() not in ("", "nan")
    ]
    if not spoilt or ours[VERDICT] != "error" or ours["inf/nan判定结果"] != "error":
        return None
    return {VERDICT, MESSAGE, "inf/nan判定结果"} if "nan or inf only on the device" in ours[MESSAGE] else None


def equal_shares(npu: Row, gpu: Row, ours: Row) -> set[str] | None:
    """Section 8.3 [B]: a share of ULPs equal to the GPU's is no worse than it."""
    if (
        ours["比对算法"] != "ULP误差比对法"
        or ours[VERDICT] != "pass"
        or ours["ULP误差大于阈值占比比值"] != "1.00000000000000"
    ):
        return None
    return {VERDICT, MESSAGE, "ULP误差判定结果"}


def equal_rows(npu: Row, gpu: Row, ours: Row) -> set[str] | None:
    """Decision 17: equal files compare as pass."""
    if any(npu[title] != gpu[title] for title in FIGURES) or ours[VERDICT] != "pass":
        return None
    return {VERDICT, MESSAGE, *(title for title in ours if title.endswith("判定结果"))}


def no_elements(npu: Row, gpu: Row, ours: Row) -> set[str] | None:
    """Section 8.2 step 4 [B]: any shape with a 0 is skipped with the row's own message."""
    empty = "0" in npu["Shape"].strip("()").replace(" ", "").split(",")
    return {MESSAGE} if empty and ours[VERDICT] == "SKIP" and ours[MESSAGE] == npu[MESSAGE] else None


def floor_hides(npu: Row, gpu: Row, ours: Row) -> set[str] | None:
    """Section 12.1 item 7: the floor 2^-14 lets a float32 error pass that is far beyond the GPU's: a warning says so."""
    far = [
        title
        for title, limit, fine in (("相对误差平均值", 2, 4 * 2.0**-24), ("相对误差最大值", 10, 16 * 2.0**-24))
        if number(npu[title]) > limit * max(number(gpu[title]), fine)
    ]
    told = all(f"{title} " in ours[MESSAGE] for title in far)
    held = far and told and npu["DEVICE Dtype"] == "torch.float32" and ours[VERDICT] == "warning"
    return {VERDICT, MESSAGE} if held else None


RULES: tuple[Rule, ...] = (nan_only_on_the_device, equal_shares, equal_rows, no_elements, floor_hides)
USED = {
    "branches": {"equal_shares": 11, "equal_rows": 2, "no_elements": 1, "one side only": 2},
    "faulty_cnn": {"nan_only_on_the_device": 4, "floor_hides": 13},
    "faulty_ops": {"nan_only_on_the_device": 12, "equal_rows": 3, "no_elements": 1, "floor_hides": 23},
}
"""How often each rule explains a row; a change is a change of verdicts and wants a look."""


@pytest.fixture(params=USED)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """A case's name and its unpacked files."""
    for part in ("npu", "gpu", "details", "result"):
        unpacked(request.param, part, tmp_path)
    return request.param, tmp_path


def explained(npu: Row | None, gpu: Row | None, ours: Row, theirs: Row | None) -> str | None:
    """The name of the rule behind a row that is not the incumbent's; "" if it is; None if nothing explains it."""
    if theirs is None or npu is None or gpu is None:
        missing = "not in the NPU file" if npu is None else "not in the GPU file"
        held = (
            theirs is None and (npu is None) != (gpu is None) and ours[VERDICT] == "SKIP" and ours[MESSAGE] == missing
        )
        return "one side only" if held else None
    changed = {title for title in COMPARED.values() if ours[title] != theirs[title]}
    if not changed:
        return ""
    for rule in RULES:
        allowed = rule(npu, gpu, ours)
        if allowed is not None and changed <= allowed:
            return rule.__name__
    return None


def by_name(rows: list[Row]) -> dict[str, Row]:
    return {cells["API Name"]: cells for cells in rows}


def test_every_row_is_the_incumbents_or_explained(case: tuple[str, Path]) -> None:
    name, folder = case
    status, _, details = compare(folder / "npu.csv", folder / "gpu.csv", folder / "out")
    assert status == 0
    npu, gpu, theirs = (by_name(read(folder / f"{part}.csv")) for part in ("npu", "gpu", "details"))
    reasons = {
        row["API Name"]: explained(npu.get(row["API Name"]), gpu.get(row["API Name"]), row, theirs.get(row["API Name"]))
        for row in details
    }
    assert [(row, by_name(details)[row]) for row, reason in reasons.items() if reason is None] == []
    assert theirs.keys() <= reasons.keys()
    assert [row for row in reasons if row in theirs] == list(theirs)
    assert Counter(reason for reason in reasons.values() if reason) == USED[name]


def test_lines_that_are_the_incumbents_are_so_to_the_byte(case: tuple[str, Path]) -> None:
    name, folder = case
    compare(folder / "npu.csv", folder / "gpu.csv", folder / "out")
    (ours,) = (path.read_bytes().split(b"\r\n") for path in (folder / "out").glob("*details*"))
    theirs = (folder / "details.csv").read_bytes().split(b"\r\n")
    assert ours[0] == theirs[0]
    assert len(set(ours) - set(theirs)) == sum(USED[name].values())


def results_by_the_book(details: list[Row], npu: dict[str, Row]) -> dict[str, tuple[str, str]]:
    """Section 8.4 once more: call -> forward and backward, from our details, float64 rows left out where there are others."""
    calls: dict[str, list[tuple[str, str, bool]]] = {}
    alone = {}
    for row in details:
        name = row["API Name"]
        parts = name.split(".")
        if len(parts) not in (6, 7) or row[MESSAGE].startswith("ERROR: Input data"):
            alone[name] = ("SKIP", "SKIP")
            continue
        dtype = npu[name]["DEVICE Dtype"] if name in npu else ""
        out = dtype in ("torch.float64", "torch.complex64", "torch.complex128") and row[VERDICT] == "SKIP"
        calls.setdefault(".".join(parts[:-3]), []).append((parts[-3], row[VERDICT], out))
    found = {}
    for call, rows in calls.items():
        if all(out for *_, out in rows):
            found[call] = ("SKIP", "SKIP")
            continue
        words = [{word for way, word, out in rows if way == wanted and not out} for wanted in ("forward", "backward")]
        gravest = [next((w for w in ("error", "warning", "pass", "SKIP") if w in those), BLANK) for those in words]
        found[call] = (gravest[0], gravest[1])
    return alone | found


def test_every_result_follows_from_the_details_and_else_is_the_incumbents(case: tuple[str, Path]) -> None:
    _, folder = case
    _, result, details = compare(folder / "npu.csv", folder / "gpu.csv", folder / "out")
    npu, gpu, theirs = (by_name(read(folder / f"{part}.csv")) for part in ("npu", "gpu", "details"))
    ours = {row["API Name"]: (row["Forward Test Success"], row["Backward Test Success"]) for row in result}
    assert len(ours) == len(result)
    assert ours == results_by_the_book(details, npu)
    changed = {
        call
        for row in details
        if explained(npu.get(row["API Name"]), gpu.get(row["API Name"]), row, theirs.get(row["API Name"]))
        for call in (row["API Name"], row["API Name"].rsplit(".", 3)[0])
    }
    expected = read(folder / "result.csv")
    for row in expected:
        if row["API Name"] in changed or float64_last(row, npu):
            continue
        assert by_name(result)[row["API Name"]] == row
    for whole in (False, True):  # a row that stands for itself comes before the call that was open at the time
        kept = [
            row["API Name"] for row in expected if row["API Name"] in ours and (".output." in row["API Name"]) is whole
        ]
        assert [row["API Name"] for row in result if row["API Name"] in set(kept)] == kept


def float64_last(theirs: Row, npu: dict[str, Row]) -> bool:
    """Section 8.4 [B]: a last row in float64 does not hide the rows before it."""
    rows = [row for name, row in npu.items() if name.startswith(theirs["API Name"] + ".")]
    dtypes = {row["DEVICE Dtype"] for row in rows}
    return theirs[MESSAGE] == "This data type does not support benchmark compare." and len(dtypes) > 1


def test_a_file_compared_with_itself_passes(tmp_path: Path) -> None:
    """A file compared with itself is without errors where the device has no nan or inf of its own."""
    for name in USED:
        folder = tmp_path / name
        folder.mkdir()
        gpu = unpacked(name, "gpu", folder)
        _, _, details = compare(gpu, gpu, folder / "out")
        bad = [row for row in details if row[VERDICT] in ("error", "warning")]
        spoilt = {row["API Name"] for row in read(gpu) if number(row["inf/nan错误率"]) > 0}
        assert {row["API Name"] for row in bad} <= spoilt
        assert len(details) > len(bad)
