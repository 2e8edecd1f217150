"""Real dumps keep their promises; of copies with one violation planted, that call and that rank are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opassay.pipeline.collectives.contents import _figures

from tests.collectives.planting import DATA, Checked, Dump, check

Check = Callable[..., Checked]
EARLY = "recorded too early"
Plant = tuple[int, str, tuple[Any, ...], str, str]


def spelt(plant: Plant) -> Plant:
    """A plant with its message in full."""
    return (*plant[:4], plant[4].replace("…", "its output is not"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Check:
    """The command, in this process."""
    return lambda path, *options: check(path, capsys, *options)


@pytest.fixture
def dump(tmp_path: Path) -> Callable[[str], Dump]:
    """A copy to change."""
    return lambda mode: Dump(tmp_path / mode, mode)


@pytest.mark.parametrize(("mode", "calls", "early"), [("tensor", 9, 0), ("statistics", 17, 3), ("md5", 13, 0)])
def test_real_dumps_hold(mode: str, calls: int, early: int, dump: Callable[[str], Dump], run: Check) -> None:
    found = run(dump(mode).path)
    assert found.status == 0
    assert len(found.rows) == calls
    assert [(api, word) for api, word, _ in found.not_passed()] == [("batch_isend_irecv", "warning")] * early
    assert all(EARLY in message for *_, message in found.not_passed())
    assert [int(row["Order"]) for row in found.rows] == list(range(calls))
    assert f"{calls - early} pass + {early} warning + 0 error" in found.out


def test_what_is_verified_on_what(dump: Callable[[str], Dump], run: Check) -> None:
    how = {
        mode: {row["API"]: row["Verified"] for row in run(dump(mode).path).rows}
        for mode in ("tensor", "statistics", "md5")
    }
    assert "equal within the group (bits)" in how["tensor"]["all_reduce"]
    assert "reduction of the inputs (values)" in how["tensor"]["all_reduce"]
    assert "reduction of the inputs (values)" in how["tensor"]["reduce_scatter_tensor"]
    for api in ("all_gather", "all_gather_into_tensor", "broadcast", "all_to_all_single", "batch_isend_irecv"):
        assert "what its source gave (bits)" in how["tensor"][api]
    assert "equal within the group (checksum)" in how["md5"]["all_reduce"]
    assert "what its source gave (checksum)" in how["md5"]["isend -> irecv"]
    assert "reduction of the inputs (statistics)" in how["statistics"]["reduce_scatter"]
    assert "what its source gave (statistics)" in how["statistics"]["broadcast"]


# rank, record, place, API, message ("…" stands for "its output is not")
STATISTICS_PLANTS = {
    "one rank's all_reduce": (2, "all_reduce.0", ("output", 0), "all_reduce", "rank 2: … rank 0's output"),
    "one rank's input of a reduction": (1, "reduce_scatter.0", ("input_args", 1, 3), "reduce_scatter", "rank 3: … the reduction"),
    "a wrong reduce on its root": (0, "reduce.0", ("output", 0), "reduce", "rank 0: … the reduction (SUM)"),
    "one part of an all_gather": (3, "all_gather.0", ("output", 0, 1), "all_gather", "rank 3: … what rank 1 gave"),
    "a gathered tensor": (1, "all_gather_into_tensor.0", ("output", 0), "all_gather_into_tensor", "rank 1: …"),
    "a broadcast": (3, "broadcast.0", ("output", 0), "broadcast", "rank 3: … what rank 0 gave"),
    "a part of a scattered sum": (2, "reduce_scatter_tensor.0", ("output", 0), "reduce_scatter_tensor",
      "not the reduction (SUM) of the inputs"),
    "an exchange": (0, "all_to_all_single.0", ("output", 0), "all_to_all_single", "not the inputs put together"),
    "a message": (1, "irecv.0", ("output", 0), "isend -> irecv", "rank 1: … what rank 0 gave"),
    "a message of a batch": (3, "batch_isend_irecv.0", ("output", 0, 1, "tensor"), "batch_isend_irecv", "rank 3: … what rank 2 gave"),
}  # fmt: skip


@pytest.mark.parametrize("what", STATISTICS_PLANTS)
def test_a_violation_in_statistics_is_named(what: str, dump: Callable[[str], Dump], run: Check) -> None:
    rank, op, place, api, told = spelt(STATISTICS_PLANTS[what])
    planted = dump("statistics")
    planted.scale(rank, op, *place)
    found = run(planted.path)
    ((name, message),) = found.errors()
    assert name == api
    assert told in message
    assert "first violated call" in found.out
    assert found.status == 0
    assert run(planted.path, "--fail-on", "error").status == 1


MD5_PLANTS = {
    "one rank's all_reduce": (3, "all_reduce.0", ("output", 0), "all_reduce", "rank 3: … rank 0's output: checksum 0badc0de"),
    "a broadcast": (1, "broadcast.0", ("output", 0), "broadcast", "rank 1: … what rank 0 gave: checksum 0badc0de"),
    "a message": (3, "irecv.0", ("output", 0), "isend -> irecv", "rank 3: … what rank 2 gave: checksum 0badc0de"),
}  # fmt: skip


@pytest.mark.parametrize("what", MD5_PLANTS)
def test_a_violation_in_checksums_is_named(what: str, dump: Callable[[str], Dump], run: Check) -> None:
    rank, op, place, api, told = spelt(MD5_PLANTS[what])
    planted = dump("md5")
    planted.scale(rank, op, *place)
    ((name, message),) = run(planted.path).errors()
    assert (name, told in message) == (api, True)


def test_a_checksum_alone_makes_a_copy_wrong_and_a_sum_doubtful(dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump("md5")
    planted.scale(3, "broadcast.0", "output", 0, by=1.0)
    planted.scale(2, "all_reduce.0", "output", 0, by=1.0)
    found = run(planted.path).not_passed()
    assert [(api, word) for api, word, _ in found] == [("all_reduce", "warning"), ("broadcast", "error")]


TENSOR_PLANTS = {
    "a wrong value on one rank": (1, "all_reduce.0", ("output", 0), "all_reduce", "rank 1: … the SUM of the inputs: 1 of 32 elements"),
    "one part of an all_gather": (0, "all_gather.0", ("output", 0, 1), "all_gather",
      "rank 0: … what rank 1 gave: 1 of 32 elements differ, the first at [2, 5]"),
    "a gathered tensor": (1, "all_gather_into_tensor.0", ("output", 0), "all_gather_into_tensor",
      "rank 1: … what rank 0 gave: 1 of 32 elements differ, the first at [2, 5]"),
    "a broadcast": (1, "broadcast.0", ("output", 0), "broadcast", "rank 1: … what rank 0 gave: 1 of 32"),
    "a scattered sum": (0, "reduce_scatter_tensor.0", ("output", 0), "reduce_scatter_tensor",
      "rank 0: … the SUM of the inputs: 1 of 32 elements"),
    "a message": (1, "batch_isend_irecv.0", ("output", 0, 1, "tensor"), "batch_isend_irecv", "rank 1: … what rank 0 gave"),
}  # fmt: skip


@pytest.mark.parametrize("what", TENSOR_PLANTS)
@pytest.mark.parametrize("nan", [False, True])
def test_a_violation_in_tensors_is_named(what: str, nan: bool, dump: Callable[[str], Dump], run: Check) -> None:
    rank, op, place, api, told = spelt(TENSOR_PLANTS[what])
    planted = dump("tensor")
    values = planted.values(rank, op, *place)
    values[2, 5] = np.nan if nan else values[2, 5] + np.float32(0.5)
    planted.save(rank, op, values, *place)
    found = run(planted.path)
    ((name, message),) = found.errors()
    assert name == api
    assert told in message
    assert ("nan" in message) == nan


def test_an_exchange_puts_each_part_in_its_place(dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump("tensor")
    values = planted.values(0, "all_to_all_single.0", "output", 0)
    planted.save(0, "all_to_all_single.0", values[::-1].copy(), "output", 0)
    ((name, message),) = run(planted.path).errors()
    assert name == "all_to_all_single"
    assert message.startswith(
        "rank 0: its output is not what rank 0 gave: 1 of 2 elements differ, the first at [0]: 2.0 for 0.0"
    )


def test_figures_have_six_digits_unless_more_tell_them_apart(dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump("tensor")
    values = planted.values(1, "all_reduce.0", "output", 0)
    values[2, 5] = np.float32(np.pi * 100)
    planted.save(1, "all_reduce.0", values, "output", 0)
    ((_, message),) = run(planted.path).errors()
    found, due = message.rpartition("the first at [2, 5]: ")[2].partition(";")[0].split(" for ")
    assert found == "314.159"
    assert len(due.strip("-0.").replace(".", "")) <= 6
    assert _figures(16777217.0, 16777216.0) == "16777217.0 for 16777216.0"


def test_all_outputs_wrong_alike_is_a_wrong_reduction(dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump("tensor")
    for rank in range(2):
        planted.save(rank, "all_reduce.0", 2 * planted.values(rank, "all_reduce.0", "output", 0), "output", 0)
    ((_, message),) = run(planted.path).errors()
    assert message.startswith("ranks 0, 1: its output is not the SUM of the inputs: 32 of 32 elements")


def test_of_two_ranks_the_wrong_one_is_blamed(dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump("tensor")
    planted.save(0, "all_reduce.0", planted.values(0, "all_reduce.0", "output", 0) + 1, "output", 0)
    ((_, message),) = run(planted.path).errors()
    assert message.startswith("rank 0: its output is not the SUM of the inputs")
    assert "rank 1" not in message


def test_outputs_that_differ_within_rounding_are_a_warning(dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump("tensor")
    values = planted.values(1, "all_reduce.0", "output", 0)
    values[0, 0] = np.nextafter(values[0, 0], np.float32(np.inf), dtype=np.float32)
    planted.save(1, "all_reduce.0", values, "output", 0)
    ((api, word, message),) = run(planted.path).not_passed()
    assert (api, word) == ("all_reduce", "warning")
    assert "rank 1: its output is not rank 0's output" in message
    assert "within rounding" in message


def test_another_operation_is_no_sum(dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump("tensor")
    for rank in range(2):
        planted.put(
            rank, "all_reduce.1", {"type": "torch.distributed.ReduceOp", "value": "RedOpType.MAX"}, "input_kwargs", "op"
        )
    ((api, message),) = run(planted.path).errors()
    assert api == "all_reduce"
    assert "not the MAX of the inputs" in message


def test_ranks_that_disagree_about_the_call(dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump("statistics")
    planted.put(
        1, "all_reduce.1", {"type": "torch.distributed.ReduceOp", "value": "RedOpType.MAX"}, "input_kwargs", "op"
    )
    planted.put(2, "broadcast.0", {"type": "int", "value": 2}, "input_kwargs", "src")
    messages = dict(run(planted.path).errors())
    assert "ranks reduce differently: MAX, SUM" in messages["all_reduce"]
    assert "ranks name different roots: 0, 2" in messages["broadcast"]


def test_inputs_of_different_shapes(dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump("statistics")
    planted.put(1, "broadcast.0", [4, 9], "input_args", 0, "shape")
    messages = dict(run(planted.path).errors())
    assert "inputs differ in dtype or shape: torch.float32 [4, 8], torch.float32 [4, 9]" in messages["broadcast"]


def test_a_member_that_makes_no_such_call_is_an_error(dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump("statistics")
    planted.drop(2, "broadcast.0")
    planted.drop(3, "irecv.0")
    found = run(planted.path)
    messages = dict(found.errors())
    assert set(messages) == {
        "broadcast",
        "batch_isend_irecv",
    }  # the receive of the batch takes the place of the lost one
    assert "rank 2: makes no such call, though it is a member of the group" in messages["broadcast"]
    assert "rank 3: has no recv for it" in messages["batch_isend_irecv"]
    (row,) = [row for row in found.rows if row["API"] == "broadcast"]
    assert "rank 2: no such call" in row["Calls"]


def test_a_rank_without_a_dump_is_a_warning_for_what_it_takes_part_in(dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump("statistics")
    (planted.rank(3) / "dump.json").unlink()
    found = run(planted.path)
    assert found.status == 3
    assert not found.errors()
    by_ranks = {(row["API"], row["Ranks"]): (row["Result"], row["Err_message"]) for row in found.rows}
    assert by_ranks["all_reduce", "0, 1"][0] == "pass"
    word, message = by_ranks["all_reduce", "0, 1, 2, 3"]
    assert (word, "rank 3: there is no dump of this rank" in message) == ("warning", True)
    assert "the dump lacks inputs: the reduction was not verified" in message
    assert "rank3 holds no dump.json" in found.err


def test_a_rank_whose_dump_is_cut_proves_nothing_by_what_it_lacks(dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump("statistics")
    path = planted.rank(1) / "dump.json"
    text = path.read_text()
    path.write_text(text[: text.index('"Distributed.broadcast.0.forward"')])
    found = run(planted.path)
    assert found.status == 3
    assert not found.errors()
    assert any("its dump is damaged and lacks the call" in message for *_, message in found.not_passed())


@pytest.mark.parametrize("mode", ["tensor", "statistics"])
def test_masked_buffers_are_never_a_pass(mode: str, dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump(mode)
    for op, place in (("broadcast.0", ("output", 0)), ("all_gather.0", ("output", 0, 0)), ("all_reduce.0", ("output", 0)),
                      ("all_gather_into_tensor.0", ("output", 0)), ("all_to_all_single.0", ("output", 0)),
                      ("reduce_scatter_tensor.0", ("output", 0))):  # fmt: skip
        planted.put(1, op, None, *place)
    found = [row for row in run(planted.path).rows if "1" in row["Ranks"] and "[2, 3]" not in row["Group"]]
    results = {row["API"]: (row["Result"], row["Err_message"]) for row in reversed(found)}
    for api in (
        "broadcast",
        "all_gather",
        "all_gather_into_tensor",
        "all_to_all_single",
        "reduce_scatter_tensor",
        "all_reduce",
    ):
        assert results[api][0] == "warning", api
        assert "masked in the dump" in results[api][1], api


def test_no_output_at_all_is_never_a_pass(dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump("tensor")
    for rank in range(2):
        for op in ("all_reduce.0", "broadcast.0", "all_gather.0", "batch_isend_irecv.0"):
            planted.put(rank, op, [], "output")
    found = run(planted.path).not_passed()
    assert sorted(api for api, *_ in found) == [
        "all_gather",
        "all_reduce",
        "batch_isend_irecv",
        "batch_isend_irecv",
        "broadcast",
    ]
    assert {word for _, word, _ in found} == {"warning"}


def test_a_missing_file_leaves_statistics_and_a_warning(dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump("tensor")
    (planted.rank(1) / "dump_tensor_data" / "Distributed.broadcast.0.forward.output.0.pt").unlink()
    (planted.rank(0) / "dump_tensor_data" / "Distributed.all_reduce.0.forward.input.0.pt").unlink()
    found = run(planted.path).not_passed()
    assert [(api, word) for api, word, _ in found] == [("all_reduce", "warning"), ("broadcast", "warning")]
    assert all("no such file" in message for *_, message in found)


def test_a_name_that_leaves_its_folder_is_not_followed(dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump("tensor")
    name = "../../rank0/dump_tensor_data/Distributed.broadcast.0.forward.output.0.pt"
    planted.put(1, "broadcast.0", name, "output", 0, "data_name")
    ((api, word, _),) = run(planted.path).not_passed()
    assert (api, word) == ("broadcast", "warning")


def test_an_asynchronous_call_may_be_recorded_too_early(dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump("tensor")
    before = planted.values(1, "all_reduce.0", "input_args", 0)
    planted.save(1, "all_reduce.0", before, "output", 0)
    ((_, message),) = run(planted.path).errors()
    assert "rank 1: its output is not" in message
    planted.put(1, "all_reduce.0", {"type": "bool", "value": True}, "input_kwargs", "async_op")
    ((api, word, message),) = run(planted.path).not_passed()
    assert (api, word) == ("all_reduce", "warning")
    assert EARLY in message


def test_the_first_violated_call_is_first_in_time(dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump("statistics")
    planted.scale(0, "reduce.0", "output", 0)
    planted.scale(3, "all_gather.0", "output", 0, 1)
    found = run(planted.path, "--quiet")
    assert [api for api, _ in found.errors()] == ["all_gather", "reduce"]
    counts, first = found.out.splitlines()
    assert counts.startswith("2 error, 3 warning, 12 pass: ")
    assert first.startswith(
        "first violated call: step0 all_gather, world, ranks 0, 1, 2, 3 (Distributed.all_gather.0.forward): rank 3"
    )


def test_workers_change_no_byte(dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump("tensor")
    values = planted.values(1, "broadcast.0", "output", 0)
    planted.save(1, "broadcast.0", values + 1, "output", 0)
    assert run(planted.path, "--workers", "1").rows == run(planted.path, "--workers", "5").rows


def test_several_steps_stand_in_one_file(tmp_path: Path, dump: Callable[[str], Dump], run: Check) -> None:
    planted = dump("statistics")
    (planted.path / "step0").rename(planted.path / "step3")
    second = Dump(tmp_path / "second", "statistics")
    second.scale(1, "broadcast.0", "output", 0)
    (second.path / "step0").rename(planted.path / "step10")
    found = run(planted.path)
    assert [row["Step"] for row in found.rows] == ["3"] * 17 + ["10"] * 17
    assert "step10 broadcast" in found.out
    assert {row["Step"] for row in run(planted.path / "step10").rows} == {""}


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("step0/rank0", "is the dump of one rank; name the step folder above it"),
        ("step0/rank0/dump.json", "is the dump of one rank"),
        ("step7", "does not exist; check the path"),
    ],
)
def test_a_path_that_is_no_dump_of_several_ranks(
    place: str, told: str, run: Check, tmp_path: Path, dump: Callable[[str], Dump]
) -> None:
    found = run(dump("statistics").path / place, "-o", str(tmp_path / "other"))
    assert found.status == 2
    assert told in found.err
    assert len(found.err.splitlines()) == 1
    assert not (tmp_path / "other").exists()


def test_dumps_without_communication_are_said_so(run: Check, dump: Callable[[str], Dump]) -> None:
    planted = dump("md5")
    for rank in range(4):
        planted.edit(rank, lambda data: data.clear())
    found = run(planted.path)
    assert found.status == 2
    assert (
        "holds no communication calls of two ranks or more; dump all ranks at level L1 or mix (step0: no communication calls"
        in found.err
    )
    assert not found.rows


def test_the_panel_in_ascii_and_narrow() -> None:
    from opassay.pipeline.collectives.panel import Call, Outcome, render

    outcome = Outcome(1, 2, {"pass": 0, "warning": 0, "error": 2}, problems=["ünruly"], files=[Path("a.csv")])
    for number in range(2):
        outcome.note(Call("", "send -> recv", "message, tag 0", f"0 -> {number}", "x", "error", "wörong\n" * 30))
    text = render(outcome, 60, ascii_only=True)
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 60
    assert "first violated call" in text
    assert "violated later (1)" in text
    assert "\x1b[" in render(outcome, color=True)


def test_the_data_is_what_the_issue_of_rounding_needs() -> None:
    """The real reduce_scatter parts differ between ranks in the last place, and that is no violation."""
    texts = [(DATA / "md5" / "step0" / f"rank{k}" / "dump.json").read_text() for k in range(2)]
    assert "7f49ed3b" in texts[0]
    assert "3aabca8f" in texts[1]
