"""The incumbent's merges of real reports, cell by cell: equal, or different for a reason that has a name here."""

from __future__ import annotations

import shutil
from pathlib import Path

import openpyxl
import pytest

from tests.merge.merging import DATA, Merge, Sheet

STATISTICS, TENSOR = DATA / "statistics", DATA / "tensor"
GROUP, TRUTH, SAME = "group: the merged table shows the ranks", "truth: the text of the report, no boolean", "same"
CASES: dict[str, tuple[Path, set[str]]] = {
    "nonexistent": (STATISTICS, set()),
    "overlap": (STATISTICS, {GROUP}),
    "stat": (STATISTICS, {GROUP}),
    "stat_all": (STATISTICS, {TRUTH}),
    "tensor": (TENSOR, {TRUTH}),
    "tensor_idx": (TENSOR, set()),
    "two_of_four": (STATISTICS, {GROUP}),
    "type": (STATISTICS, {GROUP, TRUTH}),
}
"""The reports of a case, and why cells of it differ from the incumbent's."""
FIVE = {"Five Thousandths Err Ratio": "Five Thousandth Err Ratio"}  # decision 1


def put(merge: Merge, folder: Path, ranks: tuple[int, ...] = (0, 1, 2, 3), suffix: str = "xlsx") -> None:
    """Copy reports of a stored folder to the folder of the merge."""
    for rank in ranks:
        for path in folder.glob(f"compare_result_rank{rank}_*.{suffix}"):
            shutil.copy(path, merge.input)


def config_of(case: str) -> bytes:
    """The stored config."""
    return (DATA / "cases" / case / "config.yaml").read_bytes()


def expected_of(case: str) -> dict[str, Sheet]:
    """The incumbent's sheets, under our names."""
    book = openpyxl.load_workbook(DATA / "cases" / case / "expected.xlsx")
    return {FIVE.get(one.title, one.title): [list(line) for line in one.iter_rows(values_only=True)] for one in book}


def why(name: str, ours: object, theirs: object) -> str:
    """Why a cell is not the incumbent's; SAME if it is."""
    if ours == theirs and type(ours) is type(theirs):
        return SAME
    if isinstance(ours, int | float) and isinstance(theirs, int | float) and not isinstance(theirs, bool):
        return SAME if ours == pytest.approx(theirs, rel=1e-14) else "number"  # 16 digits are written by both
    if name.endswith(".group") and str(ours).startswith("NPU:[") and theirs == ("0" if isinstance(theirs, str) else 0):
        return GROUP
    if isinstance(theirs, bool) and ours == str(theirs):
        return TRUTH
    return f"{ours!r} in place of {theirs!r}"


def first_seen(sheets: list[list[str]]) -> list[str]:
    """Names in the order of the first rank that has them, others behind the row that they follow: done one by one."""
    order: list[str] = []
    for names in sheets:
        place = 0
        for name in names:
            if name in order:
                place = order.index(name) + 1
            else:
                order.insert(place, name)
                place += 1
    return order


def names_of(folder: Path) -> list[list[str]]:
    """Target names of the reports, in dump order."""
    return [
        [line[0] for line in openpyxl.load_workbook(path).worksheets[0].iter_rows(min_row=2, values_only=True)]
        for path in sorted(folder.glob("*.xlsx"))
    ]


@pytest.mark.parametrize("case", CASES)
def test_every_cell_is_the_incumbents_or_differs_for_a_reason(case: str, merge: Merge) -> None:
    folder, expected_reasons = CASES[case]
    put(merge, folder, (1, 3) if case == "two_of_four" else (0, 1, 2, 3))
    assert merge(config_of(case)) == 0
    ours, theirs = merge.sheets(), expected_of(case)
    assert list(ours) == list(theirs)
    reasons: set[str] = set()
    for title, sheet in theirs.items():
        assert ours[title][0] == sheet[0]
        rows = {line[0]: line[1:] for line in ours[title][1:]}
        assert len(rows) == len(ours[title]) - 1
        assert rows.keys() == {line[0] for line in sheet[1:]}
        for name, *cells in sheet[1:]:
            assert name is not None
            reasons |= {why(name, *pair) for pair in zip(rows[name], cells, strict=True)}
    assert reasons - {SAME} == expected_reasons


@pytest.mark.parametrize("case", ["stat", "type", "stat_all"])
def test_rows_stand_as_first_seen_and_not_by_the_alphabet(case: str, merge: Merge) -> None:
    put(merge, STATISTICS)
    assert merge(config_of(case)) == 0
    for sheet in merge.sheets().values():
        names = [line[0] for line in sheet[1:]]
        chosen = [[name for name in rank if name in names] for rank in names_of(STATISTICS)]
        assert names == first_seen(chosen)
        assert names != sorted(names)


def test_csv_gives_the_cells_that_xlsx_gives(merge: Merge) -> None:
    put(merge, STATISTICS, (0, 1))
    config = b"api:\n- Distributed\n- Torch\n"
    assert merge(config) == 0
    from_xlsx = merge.sheets()
    shutil.rmtree(merge.input)
    shutil.rmtree(merge.output)
    shutil.copytree(DATA / "csv", merge.input)
    assert merge(config) == 0
    assert merge.sheets() == from_xlsx
    assert len(from_xlsx) == 9


def test_a_foreign_xlsx_is_left_out_and_the_others_merged(merge: Merge) -> None:
    put(merge, STATISTICS)
    shutil.copy(next(STATISTICS.glob("*.xlsx")), merge.input / "other_result.xlsx")
    assert merge(config_of("overlap")) == 3
    assert merge.told("other_result.xlsx is left out", "compare_result_rank<number>")
    (sheet,) = merge.sheets().values()
    assert sheet[0] == ["NPU Name", "rank0", "rank1", "rank2", "rank3"]


def test_a_rank_of_another_mode_is_blank_where_it_has_no_column(merge: Merge) -> None:
    put(merge, STATISTICS, (0, 2, 3))
    put(merge, TENSOR, (1,))
    assert merge(config_of("mixed")) == 0
    assert merge.told("Max diff is blank for rank1", "tensor")
    (sheet,) = merge.sheets().values()
    assert {line[2] for line in sheet[1:]} == {None}
    assert None not in {line[1] for line in sheet[1:]}


def test_mixed_modes_without_compare_index_show_the_metrics_of_both(merge: Merge) -> None:
    put(merge, STATISTICS, (0,))
    put(merge, TENSOR, (1,))
    assert merge(b"api: [Distributed.all_reduce]") == 0
    assert list(merge.sheets()) == [
        "Max diff", "Min diff", "Mean diff", "L2norm diff", "MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr",
        "NormRelativeErr", "Cosine", "EucDist", "MaxAbsErr", "One Thousandth Err Ratio", "Five Thousandth Err Ratio",
        "Requires_grad Consistent",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "folder", "ranks", "words"),
    [
        ("bad_index", STATISTICS, (0, 1), ("no report has the column Cosine", "Max diff, Min diff")),
        ("empty_config", STATISTICS, (0, 1), ("config.yaml", "the file is empty")),
        ("index_type", STATISTICS, (0, 1), ("line 3", "'compare_index'", "a single text")),
        ("no_api", STATISTICS, (0, 1), ("there is no key 'api'",)),
        ("overlap", STATISTICS, (1,), ("two ranks or more", "only that of rank1")),
        ("overlap", DATA / "md5", (0, 1), ("two ranks or more", "none")),
    ],
)
def test_what_the_incumbent_refuses_is_refused_in_one_line(
    case: str, folder: Path, ranks: tuple[int, ...], words: tuple[str, ...], merge: Merge
) -> None:
    put(merge, folder, ranks)
    assert merge(config_of(case)) == 2
    assert sum("error: " in line for line in merge.lines) == 1
    assert merge.told(*words)
    assert merge.left() == []


def test_checksums_are_refused_with_the_reason_and_the_others_merged(merge: Merge) -> None:
    put(merge, STATISTICS, (1, 2))
    put(merge, DATA / "md5", (0,))
    assert merge(config_of("overlap")) == 3
    assert merge.told("rank0 is left out", "checksums")
    (sheet,) = merge.sheets().values()
    assert sheet[0] == ["NPU Name", "rank1", "rank2"]
