"""Ranks that share a model, joined: dumps of a small model cut as tensor parallelism cuts it, against the whole model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opassay.pipeline.match import shards
from opassay.pipeline.match.pairing import pair_dumps
from opassay.pipeline.match.shards import join_ranks
from opassay.pipeline.measure.tensors import measure_tensors
from opassay.pipeline.read.dump_json import read_dump
from opassay.pipeline.run.budget import Budget
from opassay.pipeline.run.mode import tensor_folder
from opassay.pipeline.run.pool import Pool
from opassay.schemas.dump_rows import ROWS, STATISTICS, DumpTable
from opassay.schemas.errors import UsageError
from opassay.schemas.vocab import JoinKind, MetricState, StatKind

from tests.dumps import call, scalar, tensor, tensor_call, write_dump

Calls = Mapping[str, tuple[Sequence[Any], Sequence[Any]]]


@dataclass
class Run:
    """Ranks of a target and one golden rank, each a mapping of op name to inputs and outputs."""

    root: Path

    def read(self, side: str, calls: Calls, task: str = "tensor") -> DumpTable:
        folder = self.root / side
        data = {op: tensor_call(folder, op, list(ins), list(outs)) for op, (ins, outs) in calls.items()}
        return read_dump(write_dump(folder, data, task=task))

    def join(self, ranks: Sequence[Calls], golden: Calls) -> tuple[DumpTable, DumpTable]:
        reference = self.read("golden", golden)
        return join_ranks([self.read(f"rank{at}", calls) for at, calls in enumerate(ranks)], reference), reference


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def noise(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


def one(table: DumpTable, name: str) -> dict[str, Any]:
    """The row of a name, with its texts and how it was joined."""
    ops, slots = table.ops["name"], table.slots
    for number, row in enumerate(table.rows.iter_rows(named=True)):
        if ops[row["op"]] + slots[row["slot"]] == name:
            texts = {"shape": table.shapes[row["shape"]], "dtype": table.dtypes[row["dtype"]]}
            return row | texts | {"join": table.joins.get(number)}
    raise AssertionError(f"no row {name}")


def told(table: DumpTable, name: str) -> str:
    return one(table, name)["join"].told


def measured(target: DumpTable, golden: DumpTable) -> dict[str, dict[str, Any]]:
    """Metrics of every pair of tensors, by the name of the target row."""
    rows = pair_dumps(target, golden).rows.with_row_index("pair").drop_nulls(["target_row", "golden_row"])
    coded = zip(target.rows["op"], target.rows["slot"], strict=True)
    names = [target.ops["name"][op] + target.slots[slot] for op, slot in coded]
    pairs = rows.select(
        "pair",
        target_file=target.rows["data_name"].gather(rows["target_row"]),
        golden_file=golden.rows["data_name"].gather(rows["golden_row"]),
    )
    joins = {
        pair: target.joins[row]
        for pair, row in zip(rows["pair"], rows["target_row"], strict=True)
        if row in target.joins
    }
    frame = measure_tensors(
        pairs, tensor_folder(target), tensor_folder(golden), pool=Pool(1), engine="numpy", budget=Budget(1 << 30, 1),
        target_joins=joins,
    )  # fmt: skip
    by_pair = {pair: names[row] for pair, row in zip(rows["pair"], rows["target_row"], strict=True)}
    return {by_pair[row["pair"]]: row for row in frame.iter_rows(named=True)}


OP = "Functional.linear.0.forward"


def test_a_tensor_parallel_mlp_is_the_whole_one(run: Run) -> None:
    x, gate, up, down = noise(6, 8), noise(16, 8, seed=2), noise(16, 8, seed=3), noise(8, 16, seed=4)

    def forward(gate: Any, up: Any, down: Any) -> Calls:
        fused = np.concatenate([gate, up])
        middle = x @ fused.T
        half = middle.shape[1] // 2
        inner = middle[:, :half] * middle[:, half:]
        return {
            "Functional.linear.0.forward": ([x, fused], [middle]),
            "Torch.mul.0.forward": ([middle[:, :half], middle[:, half:]], [inner]),
            "Functional.linear.1.forward": ([inner, down], [inner @ down.T]),
            "Distributed.all_reduce.0.forward": ([inner @ down.T], [(noise(6, 8) * 0 + 1)]),
        }

    cut = [np.split(one, 4, axis) for one, axis in ((gate, 0), (up, 0), (down, 1))]
    target, golden = run.join([forward(*parts) for parts in zip(*cut, strict=True)], forward(gate, up, down))
    assert target.ops.equals(golden.ops)
    assert target.rows.schema == dict(ROWS)
    rows = measured(target, golden)
    assert all(row["state"] == MetricState.COMPUTED for row in rows.values())
    assert max(row["error_max"] for row in rows.values()) < 1e-4
    said = {name: (told(target, name), row["joined"]) for name, row in rows.items()}
    columns = ("concatenated along axis 1 of 4 ranks", "concatenated along axis 1 (4 parts)")
    blocks = "blocks (gate, up) of each part put together"
    assert said == {
        "Functional.linear.0.forward.input.0": ("equal on 4 ranks", "4 equal parts"),
        "Functional.linear.0.forward.input.1": (
            "concatenated along axis 0 of 4 ranks", f"concatenated along axis 0 (4 parts), {blocks}"
        ),
        "Functional.linear.0.forward.output.0": (columns[0], f"{columns[1]}, {blocks}"),
        "Torch.mul.0.forward.input.0": columns,
        "Torch.mul.0.forward.input.1": columns,
        "Torch.mul.0.forward.output.0": columns,
        "Functional.linear.1.forward.input.0": columns,
        "Functional.linear.1.forward.input.1": columns,
        "Functional.linear.1.forward.output.0": ("partial sums of 4 ranks: only the mean is known", "sum of 4 parts"),
        "Distributed.all_reduce.0.forward.input.0": ("partial sums of 4 ranks: only the mean is known", "sum of 4 parts"),
        "Distributed.all_reduce.0.forward.output.0": ("equal on 4 ranks", "4 equal parts"),
    }  # fmt: skip
    for name in said:
        ours, theirs = one(target, name), one(golden, name)
        assert ours["shape"] == theirs["shape"]
        assert ours["mean"] == pytest.approx(theirs["mean"], abs=1e-6)
        if "sums" in said[name][0]:
            kinds = [ours[f"{stat}_kind"] for stat in STATISTICS]
            assert kinds == [StatKind.NONE, StatKind.NONE, StatKind.FLOAT, StatKind.NONE]
            assert ours["max"] is None
        else:
            assert [ours[stat] for stat in ("max", "min", "norm")] == pytest.approx(
                [theirs[stat] for stat in ("max", "min", "norm")], rel=1e-6
            )


def test_parts_name_the_folder_of_each_rank(run: Run) -> None:
    x = noise(4, 6)
    target, _ = run.join([{OP: ([part], [])} for part in np.split(x, 2, 1)], {OP: ([x], [])})
    join = one(target, f"{OP}.input.0")["join"]
    name = f"{OP}.input.0.npy"
    assert join.parts == tuple((str(run.root / rank / "dump_tensor_data"), name) for rank in ("rank0", "rank1"))
    assert join.how is JoinKind.AUTO


def test_key_value_heads_that_ranks_share(run: Run) -> None:
    k = noise(5, 2, 4)
    parts = [k[:, :1], k[:, :1], k[:, 1:], k[:, 1:]]
    target, golden = run.join([{OP: ([part], [])} for part in parts], {OP: ([k], [])})
    ours, theirs = one(target, f"{OP}.input.0"), one(golden, f"{OP}.input.0")
    assert ours["join"].told == "concatenated along axis 1 of 4 ranks, every 2 of which hold the same"
    assert [ours[stat] for stat in STATISTICS] == pytest.approx([theirs[stat] for stat in STATISTICS], rel=1e-6)
    bad = [*parts[:3], parts[3] * 3]
    target, _ = run.join([{OP: ([part], [])} for part in bad], {OP: ([k], [])})
    ours = one(target, f"{OP}.input.0")
    assert ours["join"].told.endswith("every 2 of which hold the same, or should: their statistics differ")
    assert ours["max"] > theirs["max"]
    assert ours["norm"] > 1.5 * theirs["norm"]


def test_copies_of_another_shape_are_not_taken_for_shared_heads(run: Run) -> None:
    x = noise(4, 6)
    target, golden = run.join([{OP: ([x], [])}] * 4, {OP: ([noise(8, 6, seed=2)], [])})
    row = one(target, f"{OP}.input.0")
    assert (row["shape"], row["join"].told) == (
        "[4, 6]",
        "equal on 4 ranks, and no part of golden's shape: rank0 is shown",
    )
    assert measured(target, golden)[f"{OP}.input.0"]["state"] == MetricState.SHAPE


def test_fused_q_k_v_with_shared_heads(run: Run) -> None:
    q, k, v = noise(5, 16), noise(5, 4, seed=2), noise(5, 4, seed=3)
    parts = [
        np.concatenate([part, k[:, at // 2 * 2 : at // 2 * 2 + 2], v[:, at // 2 * 2 : at // 2 * 2 + 2]], 1)
        for at, part in enumerate(np.split(q, 4, 1))
    ]
    whole = np.concatenate([q, k, v], 1)
    target, golden = run.join([{OP: ([], [part])} for part in parts], {OP: ([], [whole])})
    ours, theirs = one(target, f"{OP}.output.0"), one(golden, f"{OP}.output.0")
    assert (ours["shape"], ours["max"], ours["min"]) == ("[5, 24]", theirs["max"], theirs["min"])
    assert ours["norm_kind"] == ours["mean_kind"] == StatKind.NONE
    assert ours["join"].told.startswith("q, k and v put together along axis 1 of 4 ranks")
    assert measured(target, golden)[f"{OP}.output.0"]["error_max"] == 0.0


@pytest.mark.parametrize("broken", range(3))
def test_a_copy_that_differs_is_the_one_shown(run: Run, broken: int) -> None:
    x = noise(50, 40)
    ranks = [{OP: ([x * np.float32(1 + 4e-4 * (at == broken))], [])} for at in range(3)]
    target, golden = run.join(ranks, {OP: ([x], [])})
    ours, theirs = one(target, f"{OP}.input.0"), one(golden, f"{OP}.input.0")
    assert ours["join"].told == f"not equal on 3 ranks: rank{broken}, the furthest from golden, is shown"
    assert ours["norm"] / theirs["norm"] == pytest.approx(1.0004, rel=1e-5)
    assert measured(target, golden)[f"{OP}.input.0"]["error_max"] > 1e-4


def test_nan_on_one_rank_is_never_lost(run: Run) -> None:
    x = noise(6, 4)
    bad = x.copy()
    bad[2, 2] = np.nan
    target, _ = run.join([{OP: ([x], [x])}, {OP: ([bad], [x])}], {OP: ([x], [np.concatenate([x, x])])})
    assert np.isnan(one(target, f"{OP}.input.0")["mean"])
    target, _ = run.join([{OP: ([x], [])}, {OP: ([bad], [])}], {OP: ([np.concatenate([x, x])], [])})
    assert all(np.isnan(one(target, f"{OP}.input.0")[stat]) for stat in STATISTICS)


def test_what_only_some_ranks_have(run: Run) -> None:
    x = noise(4, 6)
    common, late = "Functional.relu.0.forward", "Functional.expert.0.forward"
    ranks = [
        {OP: ([x], [x]), common: ([x], [x])},
        {late: ([x], [x]), OP: ([x, x], [x]), common: ([x], [x])},
        {OP: ([x, x], [x]), common: ([x], [x])},
    ]
    target, golden = run.join(ranks, {OP: ([x, x], [x]), common: ([x], [x]), late: ([x], [x])})
    assert target.ops["name"].to_list() == [OP, common, late]
    order = target.rows.select("op", "section")
    assert order.equals(order.sort("op", "section", maintain_order=True))
    assert target.rows.height == 3 + 2 + 2
    assert told(target, f"{OP}.input.0") == "equal on 3 ranks"
    second = one(target, f"{OP}.input.1")["join"]
    assert second.told == "a tensor on rank1, rank2 of 3 ranks only: rank1 is shown"
    assert second.parts == ((str(run.root / "rank1" / "dump_tensor_data"), f"{OP}.input.1.npy"),)
    assert told(target, f"{late}.output.0") == "a tensor on rank1 of 3 ranks only: rank1 is shown"
    assert all(row["error_max"] == 0.0 for row in measured(target, golden).values())


def test_shapes_that_do_not_fit_and_ops_that_golden_lacks(run: Run) -> None:
    x = noise(4, 6)
    target, golden = run.join([{OP: ([x], [x])}] * 2, {OP: ([noise(7, 6)], [])})
    assert told(target, f"{OP}.input.0") == "2 parts of shape [4, 6] do not make [7, 6]: rank0 is shown"
    assert told(target, f"{OP}.output.0") == "no golden tensor of this name tells how 2 ranks join: rank0 is shown"
    assert measured(target, golden)[f"{OP}.input.0"]["state"] == MetricState.SHAPE


def test_values_that_are_no_tensors_stay_the_first_rank_s(run: Run) -> None:
    x = noise(2, 4)
    target, golden = run.join([{OP: ([x, scalar(at), None], [x])} for at in (5, 6)], {OP: ([x, scalar(5), None], [x])})
    number = one(target, f"{OP}.input.1")
    assert (number["max"], number["join"].told) == (5, "not equal on 2 ranks: that of rank0 is shown")
    assert one(target, f"{OP}.input.2")["join"] is None
    assert target.rows.height == golden.rows.height


def test_values_that_only_some_ranks_have_say_so(run: Run) -> None:
    x = noise(2, 4)
    target, _ = run.join([{OP: ([x], [])}, {OP: ([x, scalar(7)], [])}], {OP: ([x, scalar(7)], [])})
    assert told(target, f"{OP}.input.1") == "on 1 of 2 ranks only: that of rank1 is shown"


def test_dtypes_that_differ_between_ranks_show(run: Run) -> None:
    x = noise(4, 6)
    target, _ = run.join([{OP: ([x], [])}, {OP: ([x.astype("f2")], [])}], {OP: ([x], [])})
    assert one(target, f"{OP}.input.0")["dtype"] == "torch.float32;torch.float16"


def plain(root: Path, side: str, leaf: Any, **header: Any) -> DumpTable:
    return read_dump(write_dump(root / side, {OP: call([leaf], [scalar(1)])}, **header))


def test_statistics_dumps_have_no_files(tmp_path: Path) -> None:
    golden = plain(tmp_path, "golden", tensor(shape=(4, 3), stats=(5.0, -2.0, 1.0, 9.0)))
    ranks = [
        plain(tmp_path, "rank0", tensor(shape=(1, 3), stats=(5.0, -1.0, 2.0, 3.0))),
        plain(tmp_path, "rank1", tensor(shape=(3, 3), stats=(4.0, -2.0, 1.0, 4.0))),
    ]
    row = one(join_ranks(ranks, golden), f"{OP}.input.0")
    assert [row[stat] for stat in STATISTICS] == [5.0, -2.0, 1.25, 5.0]
    assert row["shape"] == "[4, 3]"
    assert (row["join"].parts, row["join"].told) == ((), "concatenated along axis 0 of 2 ranks")


def test_checksums_are_equal_or_stay(tmp_path: Path) -> None:
    def leaf(md5: str, *shape: int) -> Any:
        return tensor(shape=shape, md5=md5)

    golden = plain(tmp_path, "golden", leaf("aa", 4, 3), summary_mode="md5")
    ranks = [plain(tmp_path, f"rank{at}", leaf("aa", 4, 3)) for at in range(2)]
    assert told(join_ranks(ranks, golden), f"{OP}.input.0") == "equal on 2 ranks"
    ranks[1] = plain(tmp_path, "rank1", leaf("bb", 4, 3))
    row = one(join_ranks(ranks, golden), f"{OP}.input.0")
    assert (row["md5"], row["join"].told) == ("bb", "checksums differ on 2 ranks: that of rank1 is shown")
    ranks = [plain(tmp_path, f"rank{at}", leaf("aa", 2, 3)) for at in range(2)]
    row = one(join_ranks(ranks, golden), f"{OP}.input.0")
    assert (row["md5"], row["shape"]) == (None, "[2, 3]"), "what a part's checksum is equal to proves nothing"
    assert row["join"].told == "checksums of 2 parts cannot be joined: rank0 is shown"
    ranks = [plain(tmp_path, f"rank{at}", leaf(sums, 4, 3)) for at, sums in enumerate(("bb", "cc"))]
    row = one(join_ranks(ranks, golden), f"{OP}.input.0")
    assert (row["md5"], row["join"].told) == (
        None,
        "checksums differ on 2 ranks, and none is golden's: copies or partial sums",
    )


def test_ranks_that_were_not_dumped_alike(tmp_path: Path) -> None:
    one_rank = plain(tmp_path, "rank0", tensor())
    with pytest.raises(
        UsageError, match=r"rank0/dump.json is a dump of task 'statistics', .*rank1/dump.json of task 'tensor'"
    ):
        join_ranks([one_rank, plain(tmp_path, "rank1", tensor(), task="tensor")], one_rank)
    with pytest.raises(UsageError, match="with md5 checksums"):
        join_ranks([plain(tmp_path, "rank2", tensor(md5="ab")), plain(tmp_path, "rank3", tensor(md5="0x12"))], one_rank)
    assert join_ranks([one_rank], one_rank) is one_rank


def test_slices_change_no_row(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    x = noise(4, 6)
    ops = {f"Functional.op{at}.0.forward": ([x, x * at], [x[at % 4 :]]) for at in range(20)}
    cut = [{op: ([half(v, rank) for v in ins], outs) for op, (ins, outs) in ops.items()} for rank in range(2)]
    whole, golden = run.join(cut, ops)
    monkeypatch.setattr(shards, "_SLICE_ROWS", 14)
    again = join_ranks([read_dump(run.root / f"rank{at}" / "dump.json") for at in range(2)], golden)
    texts = ["shape", "dtype", "slot"]
    assert again.rows.drop(texts).equals(whole.rows.drop(texts))
    assert again.joins == whole.joins
    for number in range(whole.rows.height):
        assert again.shapes[again.rows["shape"][number]] == whole.shapes[whole.rows["shape"][number]]


def half(values: Any, rank: int) -> Any:
    return np.split(values, 2, 1)[rank]
