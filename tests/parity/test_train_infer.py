"""The harness's own reading of training against inference: records, keys, joined projections, order, leniency."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parity.compare import compare_tables, right_mode, work_out
from tests.parity.oracle import agrees
from tests.parity.pairing import Matching, pair_by
from tests.parity.reference import right_table
from tests.parity.small_dumps import Records, dump_of, names, sides, tally, tensor
from tests.parity.tables import Table
from tests.parity.tensors import load_row
from tests.parity.train_infer import joined, shapes_agree, used_records

FSDP = "Module._fsdp_wrapped_module.model.layers.0._fsdp_wrapped_module."
VLLM = "Module.model.layers.0."


def test_backward_and_recomputed_records_are_not_read() -> None:
    root = "Module.model"
    told = [
        f"{root}.embed_tokens.Embedding.forward.0",
        f"{root}.norm.Norm.forward.0",
        f"{root}.Qwen2Model.backward.0",
        f"{root}.norm.Norm.forward.1",
        f"{root}.embed_tokens.Embedding.forward.1",
        f"{root}.norm.Norm.forward.2",
        "odd",
        f"{root}.norm.Norm.forward.3",
    ]
    assert used_records(told, "fsdp") == [told[0], told[1], told[4], told[5]]


def projections(**values: tuple[int, float]) -> Records:
    """Records of fsdp projections: width of the output and value of everything."""
    return {
        f"{FSDP}self_attn.{name}.Linear.forward.0": {
            "input_args": [tensor((1, 3, 8), 5.0)],
            "parameters": {"weight": tensor((width, 8), value)},
            "output": [tensor((1, 3, width), value)],
        }
        for name, (width, value) in values.items()
    }


def fused(width: int, value: float) -> Records:
    return {
        f"{VLLM}self_attn.qkv_proj.QKV.forward.0": {
            "input_args": [tensor((3, 8), 5.0)],
            "parameters": {"weight": tensor((width, 8), value)},
            "output": [tensor((3, width), value)],
        }
    }


def test_split_projections_are_one_row(tmp_path: Path) -> None:
    split = projections(q_proj=(4, 2.0), k_proj=(2, 1.0), v_proj=(2, -1.0))
    target, golden = sides(tmp_path, split, fused(8, 2.0))
    found = pair_by(Matching("train", backend="fsdp"), target, golden)
    assert len(found) == 3
    for met in found:
        assert met.target is not None
        assert met.target.name.count(";  ") == 2
        assert met.target.shape.count(";") == 2
    _, weight, output = (met.target for met in found)
    assert found[0].target is not None
    assert weight is not None
    assert output is not None
    assert found[0].target.statistics == (5.0, 5.0, 5.0, 5.0 * 24**0.5)
    assert weight.statistics[:3] == (2.0, -1.0, 1.0)
    assert weight.statistics[3] == pytest.approx((4 * 32 + 16 + 16) ** 0.5)
    assert (found[0].target.axis, weight.axis, output.axis) == (None, 0, -1)
    assert weight.elements == 64


def test_without_a_fused_partner_projections_stay_apart(tmp_path: Path) -> None:
    target, golden = sides(tmp_path, projections(q_proj=(4, 2.0), k_proj=(2, 1.0)), [f"{VLLM}mlp.M.forward.0"])
    found = names(Matching("train", backend="fsdp"), target, golden)
    assert len(found) == 7
    assert all(";" not in name for name, _ in found)


def test_joined_tensors_follow_each_other(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    made = {name: torch.full((1, 3, width), float(value)) for name, width, value in (("q", 4, 2), ("k", 1, 7))}
    folder = tmp_path / "dump_tensor_data"
    folder.mkdir()
    data = {}
    for name, values in made.items():
        torch.save(values, folder / f"{name}.pt")
        data[f"Module.{name}.L.forward.0"] = {"output": [tensor(values.shape, data_name=f"{name}.pt")]}
    row = joined(dump_of(tmp_path, data, task="tensor").rows)
    found = load_row(row)
    assert not isinstance(found, str)
    assert found.shape == (1, 3, 5)
    assert found.real.tolist() == [2, 2, 2, 2, 7] * 3
    (folder / "k.pt").unlink()
    from tests.parity.tensors import load

    load.cache_clear()
    assert load_row(row) == "missing"


def test_golden_only_rows_stand_between_and_orders_may_cross(tmp_path: Path) -> None:
    def ends(names: str, base: str) -> list[str]:
        return [f"{base}{n}.N.forward.0" for n in names]

    matching = Matching("train", backend="fsdp")
    found = names(matching, *sides(tmp_path / "a", ends("ac", FSDP), ends("abcd", VLLM)))
    assert ["-" if not t else g[len(VLLM)] for t, g in found] == ["a", "-", "c", "-"]
    found = names(matching, *sides(tmp_path / "b", ends("bax", FSDP), ends("abyx", VLLM)))
    assert ["-" if not t else g[len(VLLM)] for t, g in found] == ["b", "a", "-", "x"]


def test_megatron_names_beyond_the_incumbents_table(tmp_path: Path) -> None:
    base = "Module.module.module.decoder.layers.0."
    target = [f"{base}self_attention.linear_proj.Row.forward.0", f"{base}pre_mlp_layernorm.Norm.forward.0"]
    golden = [f"{VLLM}self_attn.o_proj.Row.forward.0", f"{VLLM}post_attention_layernorm.Norm.forward.0"]
    found = pair_by(Matching("train", backend="megatron"), *sides(tmp_path, target, golden))
    assert [(m.golden.record if m.golden else "", m.how) for m in found] == [
        (golden[0], "train"),
        (golden[1], "train table"),
    ]


def test_training_shapes_and_requires_grad_are_lenient_and_nothing_else(tmp_path: Path) -> None:
    matching = Matching("train", backend="fsdp")
    for shape, dtype, level in (
        ((3, 8), "torch.float32", ""),
        ((4, 8), "torch.float32", "error"),
        ((3, 8), "torch.int32", "error"),
    ):
        golden = {f"{VLLM}act.A.forward.0": {"input_args": [tensor(shape, requires_grad=False, dtype=dtype)]}}
        pair = sides(tmp_path, {f"{FSDP}act.A.forward.0": {"input_args": [tensor((1, 3, 8))]}}, golden)
        row = work_out(*pair, right_mode(*pair), matching)[0]
        assert {f.level for f in row.firings[0] if f.rule in ("shape", "dtype", "requires_grad")} == ({level} - {""})


def test_joined_rows_are_checked_to_the_last_digits(tmp_path: Path) -> None:
    matching = Matching("train", backend="fsdp")
    split = projections(q_proj=(4, 0.3), k_proj=(2, 0.1), v_proj=(2, 0.7))
    pair = sides(tmp_path, split, fused(8, 0.35))
    rows = right_table(*pair, matching).rows
    assert tally(matching, *pair, rows) == []
    mean = float(rows[1]["NPU mean"])
    near = [{**rows[0]}, {**rows[1], "NPU mean": repr(mean * (1 + 3e-16))}, {**rows[2]}]
    assert tally(matching, *pair, near) == []
    far = [{**rows[0]}, {**rows[1], "NPU mean": repr(mean * (1 + 1e-7))}, {**rows[2]}]
    assert len(tally(matching, *pair, far)) == 1
    assert not agrees("NPU mean", mean, repr(mean * (1 + 3e-16)))
    texts = [{**rows[0]}, {**rows[1], "NPU mean": "0.3;0.1;0.7"}, {**rows[2]}]
    assert len(tally(matching, *pair, texts)) == 1


def test_a_workbook_puts_joined_names_on_lines(tmp_path: Path) -> None:
    matching = Matching("train", backend="fsdp")
    pair = sides(tmp_path, projections(q_proj=(4, 2.0), k_proj=(4, 2.0)), fused(8, 2.0))
    right = right_table(*pair, matching)
    for suffix, separator, good in ((".csv", ";  ", True), (".xlsx", ";\n", True), (".xlsx", ";  ", False)):
        rows = [{**row, "NPU Name": row["NPU Name"].replace(";  ", separator)} for row in right.rows]
        ours = Table(Path(f"right{suffix}"), right.header, rows, [])
        found = compare_tables("t", None, ours, *pair, "incumbent stops", None, matching)
        assert (found.unexplained == []) is good


@pytest.mark.parametrize(
    ("target", "golden", "backend", "agree"),
    [
        ("[1, 6, 8]", "[6, 8]", "fsdp", True),
        ("[1, 6, 8]", "[6, 9]", "fsdp", False),
        ("[6, 2, 4]", "[6, 8]", "fsdp", False),
        ("[6, 2, 4]", "[6, 8]", "megatron", True),
        ("[6, 1, 4]", "[6, 4]", "megatron", True),
        ("", "[6, 4]", "megatron", False),
    ],
)
def test_shapes_without_dimensions_of_one(target: str, golden: str, backend: str, agree: bool) -> None:
    assert shapes_agree(target, golden, backend) is agree


def test_a_file_that_is_not_what_the_json_says_is_a_warning(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    made = []
    for name, base in (("target", FSDP), ("golden", VLLM)):
        content = {f"{base}act.A.forward.0": {"input_args": [tensor((3, 8), data_name="a.pt")]}}
        made.append(dump_of(tmp_path / name, content, task="tensor"))
        (tmp_path / name / "dump_tensor_data").mkdir()
    for width, fires in ((8, False), (4, True)):
        from tests.parity.tensors import load

        load.cache_clear()
        for name in ("target", "golden"):
            torch.save(torch.ones(3, width), tmp_path / name / "dump_tensor_data" / "a.pt")
        row = work_out(made[0], made[1], "tensor", Matching("train", backend="fsdp"))[0]
        assert ("file contradicts" in {f.rule for f in row.firings[0]}) is fires
