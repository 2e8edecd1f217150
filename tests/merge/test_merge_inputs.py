"""Which files of a folder are reports, and which of several reports of one rank is taken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from opassay.pipeline.merge.inputs import Found, find_reports
from opassay.schemas.errors import UsageError

OLD, NEW = "20260101120000", "20260101130000"


def find(folder: Path, *names: str) -> Found:
    """What a folder with these empty files holds."""
    for name in names:
        (folder / name).touch()
    return find_reports(folder)


def taken(found: Found) -> list[tuple[int, list[str]]]:
    """Ranks and names of their files."""
    return [(report.rank, [path.name for path in report.files]) for report in found.reports]


def test_ranks_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    names = [f"compare_result_rank{rank}_{OLD}.csv" for rank in (10, 2, 0)]
    found = find(tmp_path, *names, f"compare_result_rank7-rank7_{OLD}.xlsx")
    assert taken(found) == [
        (0, [names[2]]),
        (2, [names[1]]),
        (7, [f"compare_result_rank7-rank7_{OLD}.xlsx"]),
        (10, [names[0]]),
    ]
    assert not found.lost + found.notes


@pytest.mark.parametrize(
    "name",
    [
        "other.xlsx",
        "results.csv",
        f"compare_result_rank_{OLD}.xlsx",
        f"compare_result_{OLD}.xlsx",
        f"compare_result_rank0-rank1_{OLD}.xlsx",
        f"debug_compare_result_rank0_{OLD}.xlsx",
        f"compare_result_proc42_{OLD}.csv",
        "compare_result_rank0_2026.xlsx",
        f"compare_result_rank0_{OLD}_part_1.xlsx",
        f"compare_result_rank٣_{OLD}.csv",
    ],
)
def test_other_tables_are_told_and_left_out(tmp_path: Path, name: str) -> None:
    found = find(tmp_path, name)
    assert found.reports == []
    assert len(found.lost) == 1
    assert f"{name} is left out" in found.lost[0]


@pytest.mark.parametrize(
    "name",
    [
        f"multi_ranks_compare_merge_{OLD}.xlsx",
        f"~$compare_result_rank0_{OLD}.xlsx",
        f".compare_result_rank0_{OLD}.csv.1.2.part",
        f".compare_result_rank0_{OLD}.csv",
        "diff_analyze_20260101120000.json",
        f"compare_result_rank0_{OLD}.parquet",
    ],
)
def test_what_is_no_table_or_no_report_of_a_comparison_is_passed_over(tmp_path: Path, name: str) -> None:
    assert find(tmp_path, name) == Found()


def test_the_newest_report_of_a_rank_is_taken_and_the_line_says_so(tmp_path: Path) -> None:
    found = find(tmp_path, *(f"compare_result_rank0_{stamp}.xlsx" for stamp in (NEW, OLD)))
    assert taken(found) == [(0, [f"compare_result_rank0_{NEW}.xlsx"])]
    assert found.notes == [
        f"compare_result_rank0_{OLD}.xlsx: not read, compare_result_rank0_{NEW}.xlsx of the same rank is taken"
    ]


def test_of_a_csv_and_an_xlsx_of_one_time_the_csv_is_taken(tmp_path: Path) -> None:
    found = find(tmp_path, *(f"compare_result_rank0_{OLD}{suffix}" for suffix in (".xlsx", ".csv")))
    assert taken(found) == [(0, [f"compare_result_rank0_{OLD}.csv"])]
    assert "is the same report" in found.notes[0]


def test_parts_of_a_csv_belong_together_in_their_order(tmp_path: Path) -> None:
    names = [f"compare_result_rank3_{OLD}_part_{part}.csv" for part in range(1, 12)]
    assert taken(find(tmp_path, *reversed(names))) == [(3, names)]


def test_a_missing_part_is_told_and_an_older_report_steps_in(tmp_path: Path) -> None:
    parts = [f"compare_result_rank0_{NEW}_part_{part}.csv" for part in (1, 3)]
    found = find(tmp_path, *parts, f"compare_result_rank0_{OLD}.csv")
    assert taken(found) == [(0, [f"compare_result_rank0_{OLD}.csv"])]
    assert found.lost == [f"{parts[0]}, {parts[1]}: left out, part 2 is missing"]


def test_a_partial_report_is_taken_with_a_line_and_a_whole_one_before_it(tmp_path: Path) -> None:
    part, whole = f"compare_result_rank0_partial_{OLD}.csv", f"compare_result_rank0_{OLD}.csv"
    found = find(tmp_path, part)
    assert taken(found) == [(0, [part])]
    assert f"{part} is partial" in found.notes[0]
    assert taken(find(tmp_path, whole)) == [(0, [whole])]


def test_one_rank_in_two_spellings_is_one_rank(tmp_path: Path) -> None:
    found = find(tmp_path, f"compare_result_rank3_{OLD}.csv", f"compare_result_rank03_{OLD}.csv")
    assert taken(found) == [(3, [f"compare_result_rank03_{OLD}.csv"])]
    assert "same rank and time" in found.notes[0]


def test_pipes_folders_and_dead_links_are_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"compare_result_rank0_{OLD}.csv")
    (tmp_path / f"compare_result_rank1_{OLD}.csv").mkdir()
    (tmp_path / f"compare_result_rank2_{OLD}.csv").symlink_to(tmp_path / "nowhere")
    found = find_reports(tmp_path)
    assert found.reports == []
    assert len(found.lost) == 3


def test_a_folder_that_cannot_be_listed(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path / "file"):
        (tmp_path / "file").touch()
        with pytest.raises(UsageError, match=r"cannot list .*check -i"):
            find_reports(path)
