"""The harness's own pairing under -fm, -dm, -cm and wrappers: what must pair, what must not, what a report may not say."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.parity.fuzzy import MATCH, align, aligned_records, fuzzy_key, queued_partners
from tests.parity.oracle import Pair
from tests.parity.pairing import Matching, bare_name, cell_name, is_refused, read_matching
from tests.parity.reference import right_table
from tests.parity.rules import pairing_reason
from tests.parity.small_dumps import dump_of, names, records, sides, tally, tensor

# fuzzy match


def test_alignment_of_the_specification(tmp_path: Path) -> None:
    target = ["Torch.relu.0.forward", "Torch.gelu.0.forward", "Torch.relu.1.forward"]
    found = records(Matching("fuzzy"), *sides(tmp_path, target, ["Torch.relu.7.forward", "Torch.relu.8.forward"]))
    assert found == dict(zip(target, ["Torch.relu.7.forward", "", "Torch.relu.8.forward"], strict=True))


@pytest.mark.parametrize(
    ("record", "key"),
    [
        ("Torch.relu.7.forward", "Torch.relu.forward"),
        ("Module.a.0.fc.Linear.backward.3", "Module.a.0.fc.Linear.backward"),
        ("Module.fc.Linear.parameters_grad.1", "Module.fc.Linear.parameters_grad"),
        ("Module.fc.Linear.parameters_grad", "Module.fc.Linear.parameters_grad"),
        ("hidden.3.debug", "hidden.debug"),
    ],
)
def test_fuzzy_key(record: str, key: str) -> None:
    assert fuzzy_key(record) == key


def test_structure_then_names_decide_between_equally_long_alignments(tmp_path: Path) -> None:
    shapes = {"Torch.relu.0.forward": 3, "Torch.relu.1.forward": 2}
    target = {name: {"input_args": [tensor((n,))]} for name, n in shapes.items()}
    golden = {"Torch.relu.0.forward": {"input_args": [tensor((2,))]}}
    assert records(Matching("fuzzy"), *sides(tmp_path / "a", target, golden))["Torch.relu.1.forward"] != ""
    alike = ["Torch.relu.0.forward", "Torch.relu.1.forward"]
    found = records(Matching("fuzzy"), *sides(tmp_path / "b", alike, ["Torch.relu.1.forward"]))
    assert found == {"Torch.relu.0.forward": "", "Torch.relu.1.forward": "Torch.relu.1.forward"}


@given(st.lists(st.integers(0, 2), max_size=6), st.lists(st.integers(0, 2), max_size=6))
@settings(max_examples=60, deadline=None)
def test_the_alignment_is_longest(target: list[int], golden: list[int]) -> None:
    score = [[MATCH if a == b else 0 for b in golden] for a in target]
    worth, pairs = align(score) if golden else (0, [])
    longest = max(
        n
        for n in range(len(target) + 1)
        if any(
            [target[i] for i in some] == [golden[j] for j in other]
            for some in combinations(range(len(target)), n)
            for other in combinations(range(len(golden)), n)
        )
    )
    assert worth == longest * MATCH
    assert len(pairs) == longest
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in combinations(pairs, 2))


def test_an_equally_good_alignment_of_a_report_is_taken_and_no_other(tmp_path: Path) -> None:
    target, golden = sides(tmp_path, ["Torch.relu.5.forward", "Torch.relu.6.forward"], ["Torch.relu.0.forward"])
    for other in target.records:
        told = [(f"{other}.input.0", "Torch.relu.0.forward.input.0")]
        assert aligned_records(target, golden, told) == {other: "Torch.relu.0.forward"}
    crossed = sides(
        tmp_path / "b", ["Torch.a.0.forward", "Torch.b.0.forward"], ["Torch.b.1.forward", "Torch.a.1.forward"]
    )
    told = [(f"Torch.{x}.0.forward.input.0", f"Torch.{x}.1.forward.input.0") for x in "ab"]
    assert len(aligned_records(*crossed, told)) == 1


def test_rows_of_an_aligned_pair_meet_by_slot(tmp_path: Path) -> None:
    target = {"Torch.add.3.forward": {"input_args": [tensor(), tensor()], "output": [tensor()]}}
    golden = {"Torch.add.0.forward": {"input_args": [tensor()], "output": [tensor()]}}
    found = names(Matching("fuzzy"), *sides(tmp_path, target, golden))
    assert [g.rpartition("forward")[2] for _, g in found] == [".input.0", "", ".output.0"]


def test_the_incumbents_queues_lose_what_the_alignment_keeps(tmp_path: Path) -> None:
    target, golden = sides(
        tmp_path, ["Module.a.A.forward.1", "Torch.b.1.forward"], ["Module.a.A.forward.0", "Torch.b.0.forward"]
    )
    assert queued_partners(target, golden) == {"Torch.b.1.forward.input.0": "Torch.b.0.forward.input.0"}
    assert len(aligned_records(target, golden)) == 2


# data mapping


def test_data_mapping_names_rows_and_leaves_the_rest(tmp_path: Path) -> None:
    target = ["Torch.a.0.forward", "Torch.b.0.forward", "Torch.c.0.forward", "Torch.d.0.forward"]
    golden = ["Torch.x.0.forward", "Torch.c.0.forward"]
    row = "{}.forward.input.0".format
    table = {
        row("Torch.a.0"): row("Torch.x.0"),
        row("Torch.b.0"): row("Torch.x.0"),
        row("Torch.d.0"): row("Torch.no.0"),
    }
    found = records(Matching("data", table), *sides(tmp_path, target, golden))
    assert found == dict(zip(target, ["Torch.x.0.forward"] * 2 + ["Torch.c.0.forward", ""], strict=True))


def test_data_mapping_does_not_renumber(tmp_path: Path) -> None:
    both = ["Torch.a.1.backward", "Torch.a.0.backward"], ["Torch.a.2.backward", "Torch.a.1.backward"]
    assert records(Matching(), *sides(tmp_path, *both))["Torch.a.1.backward"] == "Torch.a.2.backward"
    assert records(Matching("data", {"no": "no"}), *sides(tmp_path, *both)) == {
        "Torch.a.1.backward": "Torch.a.1.backward",
        "Torch.a.0.backward": "",
    }


def test_data_mapping_accepts_both_spellings_of_a_row(tmp_path: Path) -> None:
    leaf = tensor(data_name="saved.0.pt")
    target, golden = sides(tmp_path, {"Torch.a.0.forward": {"input_args": [leaf]}}, ["Torch.b.0.forward"])
    for key in ("saved.0", "Torch.a.0.forward.input.0"):
        table = {key: "Torch.b.0.forward.input.0"}
        assert records(Matching("data", table), target, golden) == {"Torch.a.0.forward": "Torch.b.0.forward"}


# cell mapping


@pytest.mark.parametrize(
    ("record", "table", "named"),
    [
        ("Module.head.FusedLinear.forward.0", {"FusedLinear": "Linear"}, "Module.head.Linear.forward.0"),
        ("Module.head.F.forward.0", {"F": "G", "head.F": "fc2.L"}, "Module.fc2.L.forward.0"),
        ("Module.enc.fc1.F.backward.1", {"fc1.F": "fc2.L"}, "Module.enc.fc2.L.backward.1"),
        ("Module.encfc1.F.backward.1", {"fc1.F": "fc2.L"}, "Module.encfc1.F.backward.1"),
        ("Module.fc1.F.x.backward.1", {"fc1.F": "fc2.L"}, "Module.fc1.F.x.backward.1"),
        ("Module.a.a.B.forward.0", {"a": "b"}, "Module.b.a.B.forward.0"),
        ("Module.ab.X.forward.0", {"a": "b", "b": "c"}, "Module.bc.X.forward.0"),
        ("Module.Te.TeNorm.forward.0", {"Te": ""}, "Module..TeNorm.forward.0"),
        ("Cell.fc.Dense.parameters_grad.0", {}, "Module.fc.Dense.parameters_grad.0"),
        ("Module.rnn.LSTMCell.forward.0", {}, "Module.rnn.LSTMCell.forward.0"),
        ("Module.forward.Net.forward.0", {"Net": "N"}, "Module.forward.N.forward.0"),
        ("Torch.matmul.0.forward", {"matmul": "mm"}, "Torch.mm.0.forward"),
        ("Cell.x.0.debug", {"x": "y"}, "Cell.x.0.debug"),
    ],
)
def test_cell_name(record: str, table: dict[str, str], named: str) -> None:
    assert cell_name(record, table) == named


def test_cell_mapping_pairs_many_with_one_and_leaves_debug_saves(tmp_path: Path) -> None:
    target = ["Module.a.L.forward.0", "Module.b.L.forward.0", "x.0.debug"]
    found = records(
        Matching("cell", {"a": "c", "b": "c"}), *sides(tmp_path, target, ["Module.c.L.forward.0", "x.0.debug"])
    )
    assert found["Module.a.L.forward.0"] == found["Module.b.L.forward.0"] == "Module.c.L.forward.0"
    saves = [dump_of(tmp_path / n, {"x.0.debug": tensor()}, "debug.json") for n in "ab"]
    assert names(Matching("cell"), *saves) == [("x.0.debug", "x.0.debug")]


# wrappers, options


def test_wrappers_only_where_nothing_else_pairs_and_names_stay_unique(tmp_path: Path) -> None:
    assert bare_name("Module.0.module._orig_mod.fc.Linear.forward.0") == "Module.fc.Linear.forward.0"
    assert bare_name("Torch.module.0.forward") == "Torch.module.0.forward"
    target = ["Module.module.fc.L.forward.0", "Module._orig_mod.a.L.forward.0", "Module.module.a.L.forward.0"]
    golden = ["Module.fc.L.forward.0", "Module.a.L.forward.0"]
    found = records(Matching(), *sides(tmp_path, target, golden))
    assert found == dict(zip(target, ["Module.fc.L.forward.0", "", ""], strict=True))


def test_options_of_a_command_line(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("a: b\n1: 2\nTe: ''\n")
    table = {"a": "b", "1": "2", "Te": ""}
    assert read_matching(["compare", "-dm", "m.yaml"], tmp_path) == Matching("data", table)
    assert read_matching(["compare", "-cm", "m.yaml", "-o", "x"], tmp_path) == Matching("cell", table)
    assert read_matching(["compare", "-cm", "-o", "x"], tmp_path) == Matching("cell")
    assert read_matching(["compare", "-fm"], tmp_path).kind == "fuzzy"
    assert read_matching(["compare", "--backend", "fsdp"], tmp_path) == Matching()
    assert read_matching(["--consistent_check", "--backend", "fsdp"], tmp_path) == Matching("train", backend="fsdp")
    assert is_refused(["-dm", "m.yaml", "-fm"])
    assert not is_refused(["-cm", "-fm"])


# what a report may and may not say


@pytest.mark.parametrize("kind", ["exact", "fuzzy", "data", "cell"])
def test_a_wrong_partner_is_never_explained(tmp_path: Path, kind: str) -> None:
    both = ["Module.a.L.forward.0", "Module.b.L.forward.0"], ["Module.a.L.forward.0", "Module.b.L.forward.0"]
    pair = sides(tmp_path, *both)
    matching = Matching(kind)
    rows = [dict(row) for row in right_table(*pair, matching).rows]
    assert tally(matching, *pair, rows) == []
    rows[0]["Bench Name"], rows[1]["Bench Name"] = rows[1]["Bench Name"], rows[0]["Bench Name"]
    assert len(tally(matching, *pair, rows)) == 2


def test_reasons_of_a_moved_partner_hold_under_their_option_only(tmp_path: Path) -> None:
    target, golden = sides(tmp_path, ["Torch.a.1.forward"], ["Torch.a.0.forward"])

    def reason(shown: str, how: str, peer: str | None = None, kind: str = "fuzzy") -> str | None:
        pair = Pair(target.rows[0], golden.rows[0], "statistics", how=how, peer=peer, matching=Matching(kind))
        return pairing_reason({"Bench Name": shown}, pair)

    assert reason("N/A", "aligned") == "fuzzy alignment"
    assert reason("Torch.a.9.forward.input.0", "aligned", "Torch.a.9.forward.input.0") == "fuzzy alignment"
    assert reason("Torch.a.9.forward.input.0", "aligned", "Torch.a.8.forward.input.0") is None
    assert reason("N/A", "wrappers", kind="exact") == "wrappers"
    assert reason("N/A", "train table", kind="train") == "train table"
    assert reason("N/A", "name", kind="cell") is None
    assert reason("Torch.a.0.forward.input.0", "name", kind="cell") == ""
