"""The plan: which files meet, at every level of the tree, and what is said of the rest."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from opassay.pipeline.read.trees import open_tree
from opassay.pipeline.run.plan import Plan, make_plan
from opassay.schemas.errors import DumpNotFound, NothingToCompare, UsageError


def tree(root: Path, *files: str) -> Path:
    """Empty files under a folder; a name that ends in a slash is a folder."""
    for name in files:
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    return root


def planned(target: Path, golden: Path) -> Plan:
    return make_plan(open_tree(target, "target"), open_tree(golden, "golden"))


def labels(plan: Plan) -> list[tuple[str, str]]:
    return [(pair.target.parent.name, pair.golden.parent.name) for pair in plan.pairs]


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    names = [f"step0/rank{number}/dump.json" for number in range(3)]
    return tree(tmp_path / "t", *names), tree(tmp_path / "g", *names)


@pytest.mark.parametrize(
    ("below", "count", "label"),
    [("step0/rank1/dump.json", 1, ""), ("step0/rank1", 1, "rank1"), ("step0", 3, "rank0"), (".", 3, "rank0")],
)
def test_every_level_can_be_named(sides: tuple[Path, Path], below: str, count: int, label: str) -> None:
    plan = planned(sides[0] / below, sides[1] / below)
    assert len(plan.pairs) == count
    assert (plan.pairs[0].label, plan.pairs[0].step, plan.pairs[0].debug) == (label, None, False)
    assert plan.notes == plan.lost == ()


@pytest.mark.parametrize(
    ("below", "name", "device"),
    [
        ("target/dump.json", "dump.json", False),  # the line may speak of either side
        ("target", "dump.json", False),
        ("npu/dump.json", "npu/dump.json", False),
        ("npu", "npu", False),
        ("step0/rank3/dump.json", "rank3/dump.json", False),
        ("step0/rank3", "rank3", True),
        ("step0/proc77", "proc77", True),
    ],
)
def test_a_folder_that_is_called_like_a_side_is_no_name(tmp_path: Path, below: str, name: str, device: bool) -> None:
    folder = below.removesuffix("/dump.json")
    for side in ("t", "g"):
        tree(tmp_path / side, f"{folder}/dump.json")
    (pair,) = planned(tmp_path / "t" / below, tmp_path / "g" / below).pairs
    assert (pair.name, pair.is_device) == (name, device)


def test_a_root_with_one_step_meets_a_step(sides: tuple[Path, Path]) -> None:
    plan = planned(sides[0], sides[1] / "step0")
    assert labels(plan) == [(f"rank{number}", f"rank{number}") for number in range(3)]


def test_steps_meet_by_number(tmp_path: Path) -> None:
    target = tree(tmp_path / "t", *[f"step{step}/rank0/dump.json" for step in (0, 2, 10)])
    golden = tree(tmp_path / "g", *[f"step{step}/rank0/dump.json" for step in (10, 2, 5)])
    plan = planned(target, golden)
    assert [pair.step for pair in plan.pairs] == [2, 10]
    assert [pair.golden.parts[-3] for pair in plan.pairs] == ["step2", "step10"]
    assert [pair.name for pair in plan.pairs] == ["step2/rank0", "step10/rank0"]
    assert sorted(plan.notes) == [
        "golden step5 has no partner and is not compared",
        "target step0 has no partner and is not compared",
    ]


def test_no_common_step(tmp_path: Path) -> None:
    target = tree(tmp_path / "t", "step0/rank0/dump.json", "step1/rank0/dump.json")
    golden = tree(tmp_path / "g", "step2/rank0/dump.json", "step3/rank0/dump.json")
    with pytest.raises(NothingToCompare, match=r"no step number is on both sides.*step0.*step3.*name one step"):
        planned(target, golden)


def test_the_only_steps_meet_whatever_their_numbers(tmp_path: Path) -> None:
    target = tree(tmp_path / "t", "step5/rank0/dump.json")
    golden = tree(tmp_path / "g", "step6/rank0/dump.json")
    plan = planned(target, golden)
    assert (len(plan.pairs), plan.pairs[0].step) == (1, None)
    assert any("step5 with step6" in note for note in plan.notes)


def test_several_steps_against_one_step_is_refused(tmp_path: Path) -> None:
    target = tree(tmp_path / "t", "step0/rank0/dump.json", "step1/rank0/dump.json")
    golden = tree(tmp_path / "g", "rank0/dump.json")
    with pytest.raises(UsageError, match=r"step0, step1.*name one step") as caught:
        planned(target, golden)
    assert str(target) in str(caught.value)
    assert str(golden) in str(caught.value)


def test_rank_numbers_with_holes_meet_by_number(tmp_path: Path) -> None:
    target = tree(tmp_path / "t", *[f"rank{number}/dump.json" for number in (0, 2, 7, 10)])
    golden = tree(tmp_path / "g", *[f"rank{number}/dump.json" for number in (1, 2, 10, 11)])
    plan = planned(target, golden)
    assert labels(plan) == [("rank2", "rank2"), ("rank10", "rank10")]
    one_sided = [note.split(" has")[0] for note in plan.notes]
    assert sorted(one_sided) == ["golden rank1", "golden rank11", "target rank0", "target rank7"]


def test_disjoint_ranks_meet_in_order_and_say_so(tmp_path: Path) -> None:
    target = tree(tmp_path / "t", "rank0/dump.json", "rank2/dump.json", "rank4/dump.json")
    golden = tree(tmp_path / "g", "rank1/dump.json", "rank3/dump.json")
    plan = planned(target, golden)
    assert labels(plan) == [("rank0", "rank1"), ("rank2", "rank3")]
    assert any("paired in order (rank0 with rank1, rank2 with rank3)" in note for note in plan.notes)
    assert any(note.startswith("target rank4 has no partner") for note in plan.notes)


def test_a_rank_without_a_number_and_a_rank_that_is_not_one(tmp_path: Path) -> None:
    target = tree(tmp_path / "t", "rank/dump.json", "rank01/dump.json", "rank1/dump.json", "logs/")
    golden = tree(tmp_path / "g", "rank/dump.json", "rank1/dump.json")
    plan = planned(target, golden)
    assert labels(plan) == [("rank", "rank"), ("rank1", "rank1")]
    assert plan.notes == ("ignored folder rank01: not named rankN",)


def test_procs_only_where_there_is_no_rank(tmp_path: Path) -> None:
    target = tree(tmp_path / "t", "proc77/dump.json")
    golden = tree(tmp_path / "g", "proc99/dump.json")
    plan = planned(target, golden)
    assert (labels(plan), plan.pairs[0].label) == ([("proc77", "proc99")], "proc77")
    tree(target, "rank0/dump.json")
    tree(golden, "rank0/dump.json")
    assert labels(planned(target, golden)) == [("rank0", "rank0")]


def test_both_files_of_a_rank_are_compared(tmp_path: Path) -> None:
    names = ("rank0/dump.json", "rank0/debug.json")
    plan = planned(tree(tmp_path / "t", *names), tree(tmp_path / "g", *names))
    assert [(pair.target.name, pair.golden.name, pair.debug) for pair in plan.pairs] == [
        ("dump.json", "dump.json", False),
        ("debug.json", "debug.json", True),
    ]


def test_the_kind_of_file_is_looked_up_in_every_rank(tmp_path: Path) -> None:
    names = ("rank0/dump.json", "rank1/debug.json")
    plan = planned(tree(tmp_path / "t", *names), tree(tmp_path / "g", *names))
    assert [pair.debug for pair in plan.pairs] == [False, True]


def test_a_rank_without_a_file_is_lost_and_the_others_go_on(tmp_path: Path) -> None:
    target = tree(tmp_path / "t", "rank0/dump.json", "rank1/", "rank2/debug.json", "rank3/")
    golden = tree(tmp_path / "g", "rank0/dump.json", "rank1/dump.json", "rank2/dump.json", "rank3/")
    plan = planned(target, golden)
    assert labels(plan) == [("rank0", "rank0")]
    assert sorted({line.split(":")[0] for line in plan.lost}) == ["rank1", "rank2", "rank3"]
    assert any("debug.json" in line for line in plan.lost)


def test_a_lone_rank_folder_meets_the_only_rank_of_a_step(tmp_path: Path) -> None:
    target = tree(tmp_path / "t", "rank3/dump.json")
    golden = tree(tmp_path / "g", "rank3/dump.json")
    plan = planned(target / "rank3", golden)
    assert labels(plan) == [("rank3", "rank3")]
    tree(golden, "rank4/dump.json")
    with pytest.raises(UsageError, match=r"2 ranks.*name one rank"):
        planned(target / "rank3", golden)


def test_ranks_of_other_numbers_meet_where_the_user_names_them(sides: tuple[Path, Path]) -> None:
    plan = planned(sides[0] / "step0" / "rank0", sides[1] / "step0" / "rank2")
    assert labels(plan) == [("rank0", "rank2")]


@pytest.mark.parametrize("file_side", [0, 1])
def test_a_file_against_a_folder_is_refused(sides: tuple[Path, Path], file_side: int) -> None:
    paths = [side / "step0" / "rank0" for side in sides]
    paths[file_side] = paths[file_side] / "dump.json"
    with pytest.raises(UsageError, match=r"is a file and .* is a folder; give two files or two folders") as caught:
        planned(*paths)
    assert all(str(path) in str(caught.value) for path in paths)


def test_dump_json_against_debug_json_is_refused(tmp_path: Path) -> None:
    target, golden = tree(tmp_path, "t/dump.json", "g/debug.json") / "t/dump.json", tmp_path / "g/debug.json"
    for pair in ((target, golden), (golden, target)):
        with pytest.raises(UsageError, match=r"not of the same kind.*dump\.json with dump\.json") as caught:
            planned(*pair)
        assert str(target) in str(caught.value)


def test_what_is_no_dump_is_refused(tmp_path: Path) -> None:
    tree(tmp_path, "t/my_dump.json", "g/dump.json", "empty/", "other/logs/", "other/cache/")
    with pytest.raises(UsageError, match=r"my_dump\.json is not called dump\.json or debug\.json"):
        open_tree(tmp_path / "t" / "my_dump.json", "target")
    with pytest.raises(DumpNotFound, match=r"target path .*missing does not exist; check -tp"):
        open_tree(tmp_path / "missing", "target")
    with pytest.raises(DumpNotFound, match=r"check -gp"):
        open_tree(tmp_path / "missing", "golden")
    with pytest.raises(DumpNotFound, match=r"empty holds no dump\.json.*found nothing"):
        open_tree(tmp_path / "empty", "target")
    with pytest.raises(DumpNotFound, match=r"found cache, logs.*point -gp at"):
        open_tree(tmp_path / "other", "golden")


def test_no_rank_in_common_with_files(tmp_path: Path) -> None:
    target, golden = tree(tmp_path / "t", "rank0/"), tree(tmp_path / "g", "rank0/dump.json")
    with pytest.raises(NothingToCompare, match=r"rank0"):
        planned(target, golden)


def test_links_are_followed(sides: tuple[Path, Path], tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(sides[0] / "step0")
    assert len(planned(link, sides[1] / "step0").pairs) == 3


@pytest.mark.parametrize("side", [0, 1])
def test_a_link_to_itself_costs_that_rank_alone(sides: tuple[Path, Path], side: int) -> None:
    shutil.rmtree(sides[side] / "step0" / "rank1")
    (sides[side] / "step0" / "rank1").symlink_to("rank1")
    plan = planned(*sides)
    assert labels(plan) == [("rank0", "rank0"), ("rank2", "rank2")]
    (line,) = plan.lost
    assert line.startswith(f"rank1: {('target', 'golden')[side]} ")
    assert "cannot be looked into" in line


def test_a_rank_without_permission_is_lost(sides: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.stat

    def stat(path: Path, *more: Any, **options: Any) -> os.stat_result:
        if "rank2" in os.fspath(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *more, **options)

    monkeypatch.setattr(os, "stat", stat)  # a user without rights, whoever runs this test
    plan = planned(*sides)
    assert len(plan.pairs) == 2
    assert [line.partition(":")[0] for line in plan.lost] == ["rank2", "rank2"]
    with pytest.raises(DumpNotFound, match=r"rank2 cannot be looked into \(Permission denied\)"):
        open_tree(sides[0] / "step0" / "rank2", "target")


def test_a_step_that_cannot_be_looked_into_is_lost(tmp_path: Path) -> None:
    names = [f"step{step}/rank0/dump.json" for step in (0, 1)]
    target, golden = tree(tmp_path / "t", *names), tree(tmp_path / "g", *names, "step2/rank0/dump.json")
    (target / "step2").symlink_to("step2")
    plan = planned(target, golden)
    assert [pair.step for pair in plan.pairs] == [0, 1]
    (line,) = plan.lost
    assert "step2 cannot be looked into" in line


@pytest.mark.parametrize("name", ["x" * 300, "y/" * 3000, "loop"])
def test_a_path_that_cannot_be_looked_into(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(DumpNotFound, match="cannot be looked into") as caught:
        open_tree(tmp_path / name, "target")
    assert len(str(caught.value)) < 400


def test_two_steps_of_one_number(tmp_path: Path) -> None:
    target = tree(tmp_path / "t", *[f"{name}/rank0/dump.json" for name in ("step0", "step01", "step1")])
    golden = tree(tmp_path / "g", *[f"step{step}/rank0/dump.json" for step in (0, 1)])
    plan = planned(target, golden)
    assert [pair.target.parts[-3] for pair in plan.pairs] == ["step0", "step1"]
    (line,) = plan.lost
    assert "step01 has the number of step1" in line
