"""Pairs whose target stands in several files: real tensors, cut as tensor-parallel ranks cut them, against the whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from opassay.pipeline.measure import tensors as measuring
from opassay.pipeline.measure.tensors import measure_tensors
from opassay.pipeline.run.budget import Budget
from opassay.pipeline.run.pool import Pool
from opassay.schemas.dump_rows import Join
from opassay.schemas.vocab import JoinKind, MetricState

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.slow  # kernels compile on the first run

NAME = "op.pt"


class Ranks:
    """A golden tensor, and the parts of the target, each in the folder of its rank under the same name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.count = 0

    def folder(self, name: str) -> Path:
        path = self.root / name
        path.mkdir(exist_ok=True)
        return path

    def measure(self, golden: Any, parts: Sequence[Any], pool: Pool | None = None, **join: Any) -> dict[str, Any]:
        torch.save(golden, self.folder("golden") / NAME)
        for number, part in enumerate(parts):
            torch.save(part.contiguous() if part.ndim else part, self.folder(f"rank{number}") / NAME)
        return self.again(len(parts), pool, **join)

    def again(self, count: int, pool: Pool | None = None, golden_side: bool = False, **join: Any) -> dict[str, Any]:
        options = {"budget": Budget(1 << 30, 1), "engine": "numpy"} | join.pop("options", {})
        join.setdefault("how", JoinKind.AUTO)
        one = Join(tuple((str(self.root / f"rank{number}"), NAME) for number in range(count)), **join)
        pairs = pl.DataFrame(
            {"pair": [7], "target_file": [NAME], "golden_file": [NAME]}, schema_overrides={"pair": pl.UInt32}
        )
        folders = (
            (self.folder("golden"), self.folder("rank0"))
            if golden_side
            else (self.folder("rank0"), self.folder("golden"))
        )
        side = "golden_joins" if golden_side else "target_joins"
        frame = measure_tensors(pairs, *folders, pool=pool or Pool(1), **{side: {7: one}}, **options)
        return frame.row(0, named=True)


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    return Ranks(tmp_path)


def noise(*shape: int, seed: int = 1, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def exact(row: dict[str, Any]) -> bool:
    return row["state"] == MetricState.COMPUTED and row["error_max"] == 0.0 and row["cosine"] == 1.0


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.complex64])
def test_column_parallel(ranks: Ranks, axis: int, dtype: Any) -> None:
    golden = (noise(4, 8, 12) * 20).to(dtype)
    parts = golden.view(torch.uint8).reshape(4, 8, 12, -1).chunk(4, axis)
    parts = [part.contiguous().view(dtype).squeeze(-1) for part in parts]
    row = ranks.measure(golden, parts)
    assert exact(row)
    assert row["joined"] == f"concatenated along axis {axis} (4 parts)"
    assert row["target_found"] == row["golden_found"] == f"torch.{str(dtype)[6:]} [4, 8, 12]"
    assert row["bytes"] == 2 * golden.nbytes
    assert row["size"] == golden.numel()


def test_uneven_parts_and_dimensions_of_one(ranks: Ranks) -> None:
    golden = noise(5, 10)
    assert exact(ranks.measure(golden, list(golden.unsqueeze(0).split([4, 3, 3], 2))))


def test_the_worst_element_counts_in_the_whole(ranks: Ranks) -> None:
    golden = noise(6, 8)
    target = golden.clone()
    target[4, 5] += 3.0
    row = ranks.measure(golden, target.chunk(4, 1))
    assert row["worst_index"] == 4 * 8 + 5
    assert row["error_max"] == pytest.approx(3.0, rel=1e-6)


def test_row_parallel_partial_sums(ranks: Ranks) -> None:
    x, weight = noise(16, 64), noise(32, 64, seed=2)
    golden = (x.double() @ weight.double().T).float()
    parts = [(a @ b.T) for a, b in zip(x.chunk(4, 1), weight.chunk(4, 1), strict=True)]
    row = ranks.measure(golden, parts)
    assert row["joined"] == "sum of 4 parts"
    assert 0 < row["error_max"] < 1e-4
    assert row["target_found"] == "torch.float32 [16, 32]"
    expected = sum(part.double() for part in parts) - golden.double()
    assert row["error_max"] == pytest.approx(expected.abs().max().item(), rel=1e-9)


def test_sums_are_not_rounded_to_the_dtype_of_the_parts(ranks: Ranks) -> None:
    parts = [torch.full((3,), 1.0, dtype=torch.bfloat16), torch.full((3,), 2.0**-10, dtype=torch.bfloat16)]
    row = ranks.measure(torch.full((3,), 1 + 2.0**-10), parts, how=JoinKind.SUM)
    assert row["error_max"] == 0.0


def test_replicas(ranks: Ranks) -> None:
    golden = noise(6, 5, dtype=torch.bfloat16)
    row = ranks.measure(golden, [golden] * 4)
    assert exact(row)
    assert row["joined"] == "4 equal parts"
    assert row["bytes"] == 5 * golden.nbytes


@pytest.mark.parametrize("how", [JoinKind.AUTO, JoinKind.EQUAL])
@pytest.mark.parametrize("broken", range(4))
def test_a_broken_replica_never_hides_behind_a_good_one(ranks: Ranks, how: JoinKind, broken: int) -> None:
    golden = noise(40, 50)
    parts = [golden.clone() for _ in range(4)]
    parts[broken][30:] = 9.0
    row = ranks.measure(golden, parts, how=how)
    assert row["error_max"] > 8
    odd = "parts 2, 3, 4" if broken == 0 else f"part {broken + 1}"
    assert row["joined"] == (
        f"4 parts that are not equal (the first differs from {odd}): "
        f"part {broken + 1}, the furthest from the other side, is compared"
    )


def test_key_value_heads_that_fewer_groups_share(ranks: Ranks) -> None:
    golden = noise(7, 2, 8)
    parts = [golden[:, head : head + 1] for head in (0, 0, 1, 1)]
    row = ranks.measure(golden, parts)
    assert exact(row)
    assert row["joined"] == "concatenated along axis 1 (4 parts), every 2 neighbours hold the same"
    parts[3] = parts[3] + 1
    row = ranks.measure(golden, parts)
    assert row["error_max"] == pytest.approx(1.0)
    assert "copies that are not equal" in row["joined"]


@pytest.mark.parametrize("axis", [0, 1])
def test_gate_and_up_side_by_side_on_every_rank(ranks: Ranks, axis: int) -> None:
    gate, up = noise(16, 16), noise(16, 16, seed=2)
    parts = [torch.cat(pair, axis) for pair in zip(gate.chunk(2, axis), up.chunk(2, axis), strict=True)]
    row = ranks.measure(torch.cat([gate, up], axis), parts)
    assert exact(row)
    assert row["joined"] == f"concatenated along axis {axis} (2 parts), blocks (gate, up) of each part put together"


@pytest.mark.parametrize("heads", [1, 4, 7])
def test_q_k_v_side_by_side_on_every_rank(ranks: Ranks, heads: int) -> None:
    q, k, v = noise(5, heads * 16), noise(5, 16, seed=2), noise(5, 16, seed=3)
    parts = [torch.cat(three, 1) for three in zip(*(block.chunk(2, 1) for block in (q, k, v)), strict=True)]
    row = ranks.measure(torch.cat([q, k, v], 1), parts)
    assert exact(row)
    assert row["joined"] == "concatenated along axis 1 (2 parts), blocks (q, k, v) of each part put together"


def test_q_k_v_with_shared_key_heads(ranks: Ranks) -> None:
    q, k, v = noise(5, 32), noise(5, 8, seed=2), noise(5, 8, seed=3)
    kv = [torch.cat([one[:, :4], two[:, :4]], 1) for one, two in [(k, v)]] + [torch.cat([k[:, 4:], v[:, 4:]], 1)]
    parts = [torch.cat([part, kv[rank // 2]], 1) for rank, part in enumerate(q.chunk(4, 1))]
    row = ranks.measure(torch.cat([q, k, v], 1), parts)
    assert exact(row)
    assert row["joined"].endswith("blocks (q, k, v) of each part put together, every 2 neighbours hold the same")


def test_the_plain_order_wins_where_nothing_is_clearly_better(ranks: Ranks) -> None:
    golden = noise(4, 16)
    assert ranks.measure(golden, noise(4, 16, seed=5).chunk(2, 1))["joined"] == "concatenated along axis 1 (2 parts)"
    flat = torch.ones(4, 16)
    assert ranks.measure(flat, flat.chunk(2, 1))["joined"] == "concatenated along axis 1 (2 parts)"


def test_single_numbers(ranks: Ranks) -> None:
    row = ranks.measure(torch.tensor(2.5), [torch.tensor(2.5)] * 3)
    assert (row["state"], row["error_max"], row["joined"]) == (MetricState.ONE_ELEMENT, 0.0, "3 equal parts")
    row = ranks.measure(torch.tensor(6.0), [torch.tensor(float(n)) for n in (1, 2, 3)])
    assert (row["error_max"], row["joined"]) == (0.0, "sum of 3 parts")
    row = ranks.measure(torch.ones(3), [torch.tensor(1.0)] * 3)
    assert row["state"] == MetricState.SHAPE
    assert row["reason"] == "target: 3 parts of shape [] do not make [3], whole or along one axis"


def test_empty_parts(ranks: Ranks) -> None:
    golden = noise(4, 6)
    assert exact(ranks.measure(golden, [golden[:0], golden]))
    row = ranks.measure(golden[:0], [golden[:0, :3], golden[:0, 3:]])
    assert (row["state"], row["joined"]) == (MetricState.EMPTY_EQUAL, "concatenated along axis 1 (2 parts)")


def test_shapes_that_nothing_explains_are_named(ranks: Ranks) -> None:
    row = ranks.measure(noise(5, 3), [noise(2, 3), noise(2, 3, seed=2)])
    assert row["state"] == MetricState.SHAPE
    assert row["reason"] == "target: 2 parts of shape [2, 3] do not make [5, 3], whole or along one axis"
    # 2 * 6 - 10 could be one shared key row and one shared value row, but neither bits nor values say so
    row = ranks.measure(noise(10, 2), [noise(6, 2, seed=3), noise(6, 2, seed=4)])
    assert row["state"] == MetricState.SHAPE


def test_a_missing_and_a_cut_part_are_named(ranks: Ranks) -> None:
    golden = noise(400, 80)
    ranks.measure(golden, golden.chunk(4, 0))
    file = ranks.root / "rank2" / NAME
    file.write_bytes(file.read_bytes()[:-20_000])
    row = ranks.again(4)
    assert row["state"] == MetricState.UNREADABLE
    assert row["reason"].startswith(f"target file (part 3 of 4, in {file.parent}) {NAME}: cut short")
    file.unlink()
    row = ranks.again(4)
    assert row["state"] == MetricState.FILE_MISSING
    assert row["reason"] == f"target file (part 3 of 4) {NAME}: no such file in {file.parent}"


def test_parts_of_several_dtypes(ranks: Ranks) -> None:
    golden = noise(4, 6).bfloat16().float()
    row = ranks.measure(golden, [golden[:2].bfloat16(), golden[2:]])
    assert exact(row)
    assert row["target_found"] == "torch.bfloat16+torch.float32 [4, 6]"
    row = ranks.measure(golden, [golden[:2].to(torch.complex64), golden[2:]])
    assert row["state"] == MetricState.UNREADABLE
    assert "parts of torch.complex64 and torch.float32 cannot be joined" in row["reason"]


def test_blocks_regrouped_as_asked(ranks: Ranks) -> None:
    """Fused q, k, v that hold, group by group, the heads of the group."""
    q, k, v = noise(5, 4, 3, 2), noise(5, 4, 1, 2, seed=2), noise(5, 4, 1, 2, seed=3)
    fused = torch.cat([q, k, v], 2).reshape(5, 40)
    golden = torch.cat([block.reshape(5, -1) for block in (q, k, v)], 1)
    row = ranks.measure(golden, [fused], how=JoinKind.CONCAT, axis=-1, regroup=(6, 2, 2))
    assert exact(row)
    assert row["joined"] == "blocks of 6, 2, 2 along axis -1 put together"
    assert exact(ranks.measure(golden, fused.chunk(2, 1), how=JoinKind.CONCAT, axis=1, regroup=(6, 2, 2), told="x"))
    row = ranks.measure(golden, [fused], how=JoinKind.CONCAT, axis=-1, regroup=(6, 2, 3))
    assert row["state"] == MetricState.SHAPE
    assert "do not fill an axis of length 40" in row["reason"]


@pytest.mark.parametrize("at_end", [True, False])
def test_padding_is_left_out_at_the_end_that_agrees(ranks: Ranks, at_end: bool) -> None:
    golden, padding = noise(9, 4), torch.zeros(3, 4)
    target = torch.cat([golden, padding] if at_end else [padding, golden]).unsqueeze(0)
    row = ranks.measure(golden, target.chunk(2, 2), how=JoinKind.CONCAT, axis=-1, trim=True)
    assert exact(row)
    end = "end" if at_end else "beginning"
    assert row["joined"] == f"concatenated along axis 2 (2 parts), 3 padded tokens left out at the {end}"
    assert row["target_found"] == "torch.float32 [1, 12, 4]"
    assert ranks.measure(golden, [golden], how=JoinKind.CONCAT, trim=True)["joined"] is None


def test_what_the_join_says_is_told(ranks: Ranks) -> None:
    golden = noise(4, 6)
    assert ranks.measure(golden, golden.chunk(2), how=JoinKind.CONCAT, told="gate, up")["joined"] == "gate, up"
    assert ranks.measure(golden, [golden], how=JoinKind.CONCAT, told="rank0 only")["joined"] == "rank0 only"
    assert ranks.measure(golden, [golden], how=JoinKind.CONCAT)["joined"] is None


def test_the_golden_side_can_be_joined(ranks: Ranks) -> None:
    whole = noise(6, 4)
    ranks.measure(whole, whole.chunk(3))
    row = ranks.again(3, golden_side=True, how=JoinKind.CONCAT)
    assert exact(row)
    assert row["joined"] == "golden: concatenated along axis 0 (3 parts)"


def test_large_joins_are_cut_like_large_files(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes for any number of workers, size of parts, window and way of reading; scaled passes included."""
    gate, up = noise(2100, 1024).double() * 1e200, noise(2100, 1024, seed=2).double()
    parts = [torch.cat(pair, 1) for pair in zip(gate.chunk(4, 1), up.chunk(4, 1), strict=True)]
    golden = torch.cat([gate, up], 1)
    golden[2099, 2047] *= 1.5
    expected = ranks.measure(golden, parts)
    assert expected["worst_index"] == golden.numel() - 1
    assert expected["error_max"] == pytest.approx(golden[2099, 2047].abs().item() / 3, rel=1e-12)
    assert expected["joined"].endswith("blocks (gate, up) of each part put together")
    small = {"budget": Budget(1 << 30, 1, window_bytes=100_000)}
    assert repr(ranks.again(4, options=small)) == repr(expected)
    assert repr(ranks.again(4, options={"io": "read"})) == repr(expected)
    monkeypatch.setattr(measuring, "PART_BYTES", 1 << 20)
    assert repr(ranks.again(4)) == repr(expected)
    with Pool(2) as pool:
        assert repr(ranks.again(4, pool)) == repr(expected)
        assert repr(ranks.again(4, pool, options=small)) == repr(expected)
        file = ranks.root / "rank1" / NAME
        file.unlink()
        row = ranks.again(4, pool)
    assert row["state"] == MetricState.FILE_MISSING
