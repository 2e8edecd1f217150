"""Training against inference: each rule of the tables on a dump of that structure, joined rows, order, and what is left out."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import opassay
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opassay.kernels import train_infer as rules
from opassay.kernels.scopes import heads_merged
from opassay.pipeline.match.pairing import pair_dumps
from opassay.pipeline.match.train_infer import TrainInfer, pair_train_infer
from opassay.pipeline.measure.tensors import measure_tensors
from opassay.pipeline.read.dump_json import read_dump
from opassay.pipeline.run.budget import Budget
from opassay.pipeline.run.pool import Pool
from opassay.schemas.dump_rows import ROWS, DumpTable, Join
from opassay.schemas.errors import UsageError
from opassay.schemas.options import Matching
from opassay.schemas.pair_rows import PAIR_ROWS
from opassay.schemas.vocab import MatchKind, MetricState, StatKind

from tests.dumps import call, saved, tensor, tensor_call, write_dump
from tests.match.train_infer_models import (
    GROUPS,
    HEADS,
    HIDDEN,
    SIZE,
    Module,
    file_leaf,
    fsdp,
    inference,
    megatron,
    records,
    table,
)

W = "_fsdp_wrapped_module"
LAYER = f"Module.{W}.model.layers.0.{W}."
Names = tuple[str | None, str | None]


def names_of(side: DumpTable) -> list[str]:
    ops = side.ops["name"]
    rows = side.rows.select("name", "op", "slot").iter_rows()
    return [name if name is not None else ops[op] + side.slots[slot] for name, op, slot in rows]


def met(found: TrainInfer) -> list[Names]:
    """Names of the rows that meet, in report order; checks what holds for every outcome."""
    assert dict(found.rows.schema) == dict(PAIR_ROWS)
    for side, height in (("target", found.target.rows.height), ("golden", found.golden.rows.height)):
        assert sorted(found.rows[f"{side}_row"].drop_nulls()) == list(range(height)), "every row once"
    assert found.rows["target_row"].drop_nulls().is_sorted()
    runs = [group for group, _ in itertools.groupby(found.rows["group"])]
    assert len(runs) == len(set(runs)), "rows of one record stand together"
    both = found.rows["target_row"].is_not_null() & found.rows["golden_row"].is_not_null()
    want = pl.select(pl.when(both).then(int(MatchKind.TRANSLATED)).otherwise(int(MatchKind.NONE))).to_series()
    assert found.rows["match"].to_list() == want.to_list()
    ours, theirs = names_of(found.target), names_of(found.golden)
    return [
        (None if mine is None else ours[mine], None if other is None else theirs[other])
        for mine, other in found.rows.select("target_row", "golden_row").iter_rows()
    ]


def pairs_of(found: TrainInfer) -> list[tuple[str, str]]:
    return [(mine, other) for mine, other in met(found) if mine is not None and other is not None]


def compared(tmp_path: Path, backend: str, training: Sequence[Module], inferred: Sequence[Module]) -> TrainInfer:
    sides = table(tmp_path / "training", records(training)), table(tmp_path / "inference", records(inferred))
    return pair_train_infer(*sides, backend)


MODELS = {
    "Qwen2.5 fsdp": ("fsdp", fsdp(5, "Qwen2"), inference(5, "Qwen2")),
    "Qwen3 fsdp": ("fsdp", fsdp(5, "Qwen3"), inference(5, "Qwen3")),
    "Qwen3-MoE fsdp": ("fsdp", fsdp(5, "Qwen3Moe", experts="apart"), inference(5, "Qwen3Moe", experts="apart")),
    "Qwen3-MoE fsdp, stacked experts": (
        "fsdp",
        fsdp(5, "Qwen3Moe", experts="stacked"),
        inference(5, "Qwen3Moe", experts="stacked"),
    ),
    "Qwen2.5 megatron": ("megatron", megatron(5, "Qwen2"), inference(5, "Qwen2")),
    "Qwen3 megatron": ("megatron", megatron(5, "Qwen3"), inference(5, "Qwen3")),
    "Qwen3 megatron, norms inside": ("megatron", megatron(5, "Qwen3", fused_norm=True), inference(5, "Qwen3")),
    "Qwen3-MoE megatron": (
        "megatron",
        megatron(5, "Qwen3Moe", experts="apart"),
        inference(5, "Qwen3Moe", experts="apart"),
    ),
}


# --- the tables of names -------------------------------------------------------------------------------------------------------


def _part(name: str, part: str) -> bool:
    return f".{part}." in name


def _moved(mine: str, other: str) -> bool:
    """Whether a row of a linear module met one of the norm that is inside of it."""
    return "_layernorm." not in mine and "_layernorm." in other


@pytest.mark.parametrize("rule", rules.NAMES, ids=lambda rule: f"{rule.backend} {rule.training}")
def test_each_name_is_translated_and_only_by_its_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: rules.NameRule
) -> None:
    models = [model for model in MODELS.values() if model[0] == rule.backend]

    def through(folder: str) -> list[tuple[str, str]]:
        found = [
            pair
            for number, model in enumerate(models)
            for pair in pairs_of(compared(tmp_path / f"{folder}{number}", *model))
        ]
        return [(mine, other) for mine, other in found if _part(mine, rule.training) and not _moved(mine, other)]

    pairs = through("with")
    assert pairs
    assert all(not rule.inference or _part(other, rule.inference) for _, other in pairs)
    monkeypatch.delitem(rules._NAMES_OF[rule.backend], rule.training)
    assert not through("without")


@pytest.mark.parametrize(
    ("model", "parts", "fused"),
    [
        ("Qwen2.5 fsdp", ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], "self_attn.qkv_proj"),
        ("Qwen3 fsdp", ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], "self_attn.qkv_proj"),
        ("Qwen3 fsdp", ["mlp.gate_proj", "mlp.up_proj"], "mlp.gate_up_proj"),
        ("Qwen3-MoE fsdp", ["mlp.experts.1.gate_proj", "mlp.experts.1.up_proj"], "mlp.experts.1.gate_up_proj"),
    ],
)
def test_projections_that_run_apart_meet_the_fused_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, parts: list[str], fused: str
) -> None:
    found = dict(pairs_of(compared(tmp_path / "with", *MODELS[model])))
    for slot in ("input.0", "parameters.weight", "output.0"):
        mine = ";  ".join(f"{LAYER}{part}.Linear.forward.0.{slot}" for part in parts)
        assert f".layers.0.{fused}." in found[mine]
        assert found[mine].endswith(slot)
    for part in parts:
        monkeypatch.delitem(rules._PART_OF, part.rpartition(".")[2])
    assert not any(fused in other for _, other in pairs_of(compared(tmp_path / "without", *MODELS[model])))


@pytest.mark.parametrize("rule", rules.ROW_RULES, ids=lambda rule: f"{rule.module}{rule.slot}")
def test_rows_that_stand_in_another_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: rules.RowRule
) -> None:
    def wanted(folder: str) -> list[tuple[str, str]]:
        found = [
            pair
            for number, name in enumerate(("Qwen3-MoE fsdp, stacked experts", "Qwen3 megatron, norms inside"))
            for pair in pairs_of(compared(tmp_path / f"{folder}{number}", *model_with_norm_bias(name)))
        ]
        return [
            (mine, other)
            for mine, other in found
            if mine.endswith(rule.slot)
            and "_layernorm." not in mine
            and f".{rule.inference_module}." in other
            and other.endswith(rule.inference_slot)
        ]

    assert len(wanted("with")) == 2  # one in each layer
    monkeypatch.setattr(rules, "ROW_RULES", tuple(other for other in rules.ROW_RULES if other != rule))
    assert not wanted("without")


def model_with_norm_bias(name: str) -> tuple[str, list[Module], list[Module]]:
    """A model whose norms have a bias as well."""

    def biased(module: Module) -> Module:
        weights = dict(module.parameters)
        if "layer_norm_weight" in weights:
            weights["layer_norm_bias"] = weights["layer_norm_weight"]
        if "layernorm" in module.path and "weight" in weights:
            weights["bias"] = weights["weight"]
        return module._replace(parameters=weights)

    backend, training, inferred = MODELS[name]
    return backend, [biased(module) for module in training], [biased(module) for module in inferred]


def test_a_norm_inside_takes_the_input_along(tmp_path: Path) -> None:
    found = compared(tmp_path, *MODELS["Qwen3 megatron, norms inside"])
    layer = "Module.module.module.decoder.layers.0"
    qkv = f"{layer}.self_attention.linear_qkv.ColumnParallelLinear.forward.0"
    theirs = "Module.model.layers.0"
    assert met(found)[3:11] == [
        (f"{qkv}.input.0", f"{theirs}.input_layernorm.RMSNorm.forward.0.input.0"),
        (f"{qkv}.parameters.layer_norm_weight", f"{theirs}.input_layernorm.RMSNorm.forward.0.parameters.weight"),
        (None, f"{theirs}.input_layernorm.RMSNorm.forward.0.output.0"),
        (None, f"{theirs}.self_attn.qkv_proj.QKVParallelLinear.forward.0.input.0"),
        (f"{qkv}.parameters.weight", f"{theirs}.self_attn.qkv_proj.QKVParallelLinear.forward.0.parameters.weight"),
        (f"{qkv}.output.0", f"{theirs}.self_attn.qkv_proj.QKVParallelLinear.forward.0.output.0"),
        (f"{qkv}.output.1", f"{theirs}.self_attn.qkv_proj.QKVParallelLinear.forward.0.output.1"),
        (
            f"{layer}.self_attention.q_layernorm.RMSNorm.forward.0.input.0",
            f"{theirs}.self_attn.q_norm.RMSNorm.forward.0.input.0",
        ),
    ]
    assert found.rows["group"][3:10].n_unique() == 1


UNMATCHED = {
    "Qwen2.5 fsdp": {"rotary_emb", "attn"},
    "Qwen3 fsdp": {"rotary_emb", "attn"},
    "Qwen3-MoE fsdp": {"rotary_emb", "attn", "shared_expert.gate_up_proj", "shared_expert.act_fn", "shared_expert.down_proj"},
    "Qwen3-MoE fsdp, stacked experts": {"rotary_emb", "attn"},
    "Qwen2.5 megatron": {"rotary_emb", "act_fn", "model"},
    "Qwen3 megatron": {"rotary_emb", "act_fn", "model"},
    "Qwen3 megatron, norms inside": {"rotary_emb", "act_fn", "model"},
    "Qwen3-MoE megatron": {"rotary_emb", "experts.0.act_fn", "experts.1.act_fn", "shared_expert.act_fn", "model"},
}  # fmt: skip
"""Records of inference that training has not, by the end of their paths."""


@pytest.mark.parametrize("model", MODELS)
def test_nothing_else_of_the_model_is_left_alone(tmp_path: Path, model: str) -> None:
    found = compared(tmp_path, *MODELS[model])
    met(found)
    home = found.golden.rows["op"].gather(found.rows["golden_row"])
    frame = found.rows.with_columns(op=found.golden.ops["name"].gather(home), paired=pl.col("target_row").is_not_null())
    alone = frame.drop_nulls("golden_row").group_by("op").agg(pl.col("paired").any()).filter(~pl.col("paired"))["op"]
    paths = {name.rsplit(".", 3)[0] for name in alone}
    assert all(any(path.endswith(f".{end}") for end in UNMATCHED[model]) for path in paths)
    assert all(any(path.endswith(f".{end}") for path in paths) for end in UNMATCHED[model])


def test_heads_and_wrappers_meet_nothing(tmp_path: Path) -> None:
    plain = Module("", "Qwen2ForCausalLM", [(1, 5)], [(1, 5, 20)])
    wrapper = Module("model.layers.0", "FullyShardedDataParallel", [(1, 5, 8)], [(1, 5, 8)])
    inner = Module(f"model.layers.0.{W}", "Qwen2DecoderLayer", [(1, 5, 8)], [(1, 5, 8)])
    theirs = [Module("model.layers.0", "Qwen2DecoderLayer", [(5, 8)], [(5, 8)]), plain]
    found = pairs_of(compared(tmp_path, "fsdp", [wrapper, inner, plain], theirs))
    assert {mine for mine, _ in found} == {
        f"Module.model.layers.0.{W}.Qwen2DecoderLayer.forward.0.{slot}.0" for slot in ("input", "output")
    }


# --- records and calls ---------------------------------------------------------------------------------------------------------


def test_micro_batches_meet_by_order_of_appearance(tmp_path: Path) -> None:
    model, theirs = fsdp(5, "Qwen2", layers=1), inference(5, "Qwen2", layers=1)
    backward = records([m for m in reversed(model) if m.kind != "Linear"], 0, way="backward")
    layer = [module for module in model if ".layers." in module.path]
    target = table(
        tmp_path / "training",
        *(records(model, 0), backward, records(layer, 1)),  # a pass; its backward, which computes the layer anew
        *(records([model[0]], 1), records(layer, 2), records(model[-3:], 1)),
    )
    golden = table(tmp_path / "inference", records(theirs, 0), records(theirs, 1))
    found = pair_train_infer(target, golden, "fsdp")
    pairs = pairs_of(found)
    assert (
        f"{LAYER}self_attn.o_proj.Linear.forward.2.output.0",
        "Module.model.layers.0.self_attn.o_proj.RowParallelLinear.forward.1.output.0",
    ) in pairs
    assert not any(".forward.1." in mine for mine, _ in pairs if ".layers." in mine)
    ops = found.target.ops["name"].to_list()
    assert len(ops) == 2 * len(model)
    assert found.left_out == (
        f"{len(backward) + len(layer)} of {2 * len(model) + len(backward) + len(layer)} training ops are left out: "
        f"{len(backward)} of backward passes, {len(layer)} forwards between a backward pass and the next forward of the "
        "embedding (recomputation)"
    )
    assert found.notes == []
    both = pair_dumps(target, golden, Matching(backend="fsdp"))
    assert (both.notes, both.warnings) == ([found.left_out], [])  # by design: nothing to be warned of


def test_inference_calls_keep_their_index(tmp_path: Path) -> None:
    target = table(tmp_path / "training", records(fsdp(5, "Qwen2")))
    golden = table(tmp_path / "inference", records(inference(5, "Qwen2"), 3))
    assert pairs_of(pair_train_infer(target, golden, "fsdp")) == []


def test_sides_that_are_swapped_are_named_and_not_matched(tmp_path: Path) -> None:
    training = records(fsdp(5, "Qwen2")) | records(fsdp(5, "Qwen2")[:1], way="backward")
    sides = table(tmp_path / "training", training), table(tmp_path / "inference", records(inference(5, "Qwen2")))
    found = pair_train_infer(sides[1], sides[0], "fsdp")
    assert pairs_of(found) == []
    assert "training belongs to the target (-tp)" in found.notes[0]
    assert pairs_of(pair_train_infer(*sides, "fsdp"))


def test_an_unknown_backend_is_refused(tmp_path: Path) -> None:
    side = table(tmp_path, records(fsdp(5, "Qwen2")))
    with pytest.raises(UsageError, match="--backend deepspeed: not known; try fsdp or megatron"):
        pair_train_infer(side, side, "deepspeed")


def test_two_stacks_of_layers_meet_one_by_one(tmp_path: Path) -> None:
    def stacks(*prefixes: str) -> list[Module]:
        return [Module(f"{prefix}.layers.0.mlp.down_proj", "Linear", [(5, 6)], [(5, 8)]) for prefix in prefixes]

    found = compared(tmp_path, "fsdp", stacks("model", "draft"), stacks("model", "mtp"))
    assert [(mine.split(".")[1], other.split(".")[1]) for mine, other in pairs_of(found)] == [
        ("model", "model"),
        ("model", "model"),
        ("draft", "mtp"),
        ("draft", "mtp"),
    ]


# --- order ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
def test_both_orders_increase(tmp_path: Path, model: str) -> None:
    found = compared(tmp_path, *MODELS[model])
    assert found.rows["golden_row"].drop_nulls().is_sorted()
    assert not any("another order" in note for note in found.notes)


def test_golden_only_rows_stand_in_their_record(tmp_path: Path) -> None:
    found = compared(tmp_path, *MODELS["Qwen2.5 fsdp"])
    norm = f"{LAYER}post_attention_layernorm.Qwen2RMSNorm.forward.0"
    other = "Module.model.layers.0.post_attention_layernorm.RMSNorm.forward.0"
    rows = met(found)
    start = rows.index((f"{norm}.input.0", f"{other}.input.0"))
    assert rows[start : start + 5] == [
        (f"{norm}.input.0", f"{other}.input.0"),
        (None, f"{other}.input.1"),
        (f"{norm}.parameters.weight", f"{other}.parameters.weight"),
        (f"{norm}.output.0", f"{other}.output.0"),
        (None, f"{other}.output.1"),
    ]
    assert found.rows["group"][start : start + 5].n_unique() == 1
    layer = f"{LAYER}Qwen2DecoderLayer.forward.0.output.0", "Module.model.layers.0.Qwen2DecoderLayer.forward.0.output.0"
    assert rows[rows.index(layer) + 1] == (None, "Module.model.layers.0.Qwen2DecoderLayer.forward.0.output.1")


def test_records_of_one_side_stand_between(tmp_path: Path) -> None:
    found = compared(tmp_path, *MODELS["Qwen2.5 megatron"])
    rows = [(mine or "", other or "") for mine, other in met(found)]
    rotary = [at for at, (_, other) in enumerate(rows) if ".layers.0.self_attn.rotary_emb." in other]
    assert ".linear_qkv." in rows[rotary[0] - 1][0]
    assert ".core_attention." in rows[rotary[-1] + 1][0]
    groups = found.rows["group"].gather(rotary)
    assert groups.n_unique() == 1
    assert groups[0] >= found.target.ops.height


def test_orders_that_contradict_fall_back_to_the_targets(tmp_path: Path) -> None:
    backend, training, straight = MODELS["Qwen3 fsdp"]
    crossed = list(straight)
    norms = [at for at, module in enumerate(crossed) if "k_norm" in module.path or "q_norm" in module.path]
    crossed[norms[0]], crossed[norms[1]] = crossed[norms[1]], crossed[norms[0]]
    found = compared(tmp_path / "crossed", backend, training, crossed)
    assert found.notes == ["1 op runs in another order on the golden side: the target's order is shown"]
    assert pairs_of(found) == pairs_of(compared(tmp_path / "straight", backend, training, straight))


every = list(records(fsdp(5, "Qwen3", layers=1)).items()), list(records(inference(5, "Qwen3", layers=1)).items())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), backend=st.sampled_from(rules.BACKENDS))
def test_every_row_once_whatever_is_missing_or_moved(tmp_path: Path, data: st.DataObject, backend: str) -> None:
    sides = [
        table(tmp_path / name, dict(data.draw(st.lists(st.sampled_from(one), unique_by=lambda item: item[0]))))
        for name, one in zip(("target", "golden"), every, strict=True)
    ]
    found = pair_train_infer(sides[0], sides[1], backend)
    met(found)
    assert dict(found.target.rows.schema) == dict(ROWS)
    again = pair_train_infer(sides[0], sides[1], backend)
    assert again.rows.equals(found.rows)
    assert again.target.rows.equals(found.target.rows)
    assert again.notes == found.notes


# --- joined rows ---------------------------------------------------------------------------------------------------------------


def facts(side: DumpTable, name: str) -> tuple[int, dict[str, Any]]:
    """Row number and columns of a row by its display name."""
    row = names_of(side).index(name)
    held = side.rows.row(row, named=True)
    return row, held | {"dtype": side.dtypes[held["dtype"]], "shape": side.shapes[held["shape"]]}


def projections(
    folder: Path, stats: Mapping[str, tuple[float | None, ...]], names: Sequence[str] = ("q", "k", "v"), **more: Any
) -> DumpTable:
    """A dump of q, k and v projections with these statistics of their outputs."""
    sizes = {"q": 8, "k": 4, "v": 4}
    data = {}
    for name in names:
        op = f"Module.model.layers.0.self_attn.{name}_proj.Linear.forward.0"
        leaves = {
            slot: tensor(shape=shape, stats=values, data_name=f"{op}.{slot}.pt", requires_grad=name == "q", **more)  # type: ignore[arg-type]
            for slot, shape, values in (
                ("input.0", (1, 5, 8), (9, 9, 9, 9)),
                ("parameters.weight", (sizes[name], 8), (3, -3, 1, 2)),
                ("output.0", (1, 5, sizes[name]), stats[name]),
            )
        }
        data[op] = {
            **call([leaves["input.0"]], [leaves["output.0"]]),
            "parameters": {"weight": leaves["parameters.weight"]},
        }
    return table(folder, data, task="tensor")


def fused(folder: Path) -> DumpTable:
    op = "Module.model.layers.0.self_attn.qkv_proj.QKVParallelLinear.forward.0"
    return table(
        folder,
        {
            op: {
                **call([tensor(shape=(5, 8))], [tensor(shape=(5, 16))]),
                "parameters": {"weight": tensor(shape=(16, 8))},
            }
        },
    )


STATS = {"q": (4.0, -1.0, 1.0, 2.0), "k": (7.0, 0.0, 2.0, 3.0), "v": (5.0, -6.0, 4.0, 6.0)}


def joined_names(slot: str, names: str = "qkv") -> str:
    return ";  ".join(f"Module.model.layers.0.self_attn.{name}_proj.Linear.forward.0.{slot}" for name in names)


def test_a_joined_row_holds_all_its_parts(tmp_path: Path) -> None:
    found = pair_train_infer(projections(tmp_path / "t", STATS), fused(tmp_path / "g"), "fsdp")
    assert [mine for mine, _ in met(found)] == [joined_names(s) for s in ("input.0", "parameters.weight", "output.0")]
    row, output = facts(found.target, joined_names("output.0"))
    assert output["dtype"] == "torch.float32;torch.float32;torch.float32"
    assert output["shape"] == "[1, 5, 8];[1, 5, 4];[1, 5, 4]"
    assert output["requires_grad"] == 1
    assert (output["max"], output["min"], output["norm"]) == (7.0, -6.0, 7.0)
    assert output["mean"] == pytest.approx((8 * 1.0 + 4 * 2.0 + 4 * 4.0) / 16)
    files = [f"Module.model.layers.0.self_attn.{name}_proj.Linear.forward.0.output.0.pt" for name in "qkv"]
    assert output["data_name"] == ";".join(files)
    assert found.target.joins[row] == Join(tuple(("", file) for file in files), axis=-1)
    row, weight = facts(found.target, joined_names("parameters.weight"))
    assert weight["max"] == 3
    assert (found.target.joins[row].axis, len(found.target.joins[row].parts)) == (0, 3)
    row, first = facts(found.target, joined_names("input.0"))
    assert first["norm"] == 9
    assert [file for _, file in found.target.joins[row].parts] == [files[0].replace("output", "input")]
    assert found.target.ops.height == 3  # all records that were read


def test_parts_are_joined_in_their_own_order_not_the_calls(tmp_path: Path) -> None:
    found = pair_train_infer(projections(tmp_path / "t", STATS, "vkq"), fused(tmp_path / "g"), "fsdp")
    assert [mine for mine, _ in met(found)][2] == joined_names("output.0")


def test_a_missing_part_is_named_and_the_others_do_not_pass_for_the_whole(tmp_path: Path) -> None:
    found = pair_train_infer(projections(tmp_path / "t", STATS, "kv"), fused(tmp_path / "g"), "fsdp")
    for slot in ("parameters.weight", "output.0"):
        row, facts_of = facts(found.target, joined_names(slot, "kv"))
        assert len(found.target.joins[row].parts) == 2
        assert {facts_of[f"{stat}_kind"] for stat in ("max", "min", "mean", "norm")} == {StatKind.NONE}
        assert facts_of["max"] is None
    assert facts(found.target, joined_names("input.0", "kv"))[1]["max"] == 9.0, "each part is given the whole input"
    assert found.notes == [
        "q_proj is not in the dump beside Module.model.layers.0.self_attn.k_proj.Linear: what is there is joined and its inputs "
        "compared with qkv_proj's; its parameters and outputs are not the whole"
    ]


def test_statistics_of_some_parts_are_not_compared(tmp_path: Path) -> None:
    """Without q, k and v may have the very statistics of the fused projection."""
    layer = [module for module in inference(5, "Qwen3", layers=1) if "qkv_proj" in module.path]
    parts = [module for module in fsdp(5, "Qwen3", layers=1) if module.path.endswith(("k_proj", "v_proj"))]
    sides = [write_dump(tmp_path / at, records(one), level="L0") for at, one in (("t", parts), ("g", layer))]
    report = opassay.compare(*sides, backend="fsdp").rows
    results = dict(
        report.filter(pl.col("target_name").str.contains("k_proj")).select("golden_name", "result").iter_rows()
    )
    qkv = "Module.model.layers.0.self_attn.qkv_proj.QKVParallelLinear.forward.0"
    assert results == {f"{qkv}.input.0": "pass", f"{qkv}.parameters.weight": "warning", f"{qkv}.output.0": "warning"}


def test_a_side_that_holds_the_parts_and_the_fused_module(tmp_path: Path) -> None:
    """The fused modules meet; the parts beside one are no second partner of the other."""
    both = [module for module in fsdp(5, "Qwen3", layers=1) if module.path.endswith(("q_proj", "k_proj", "v_proj"))]
    layer = [module for module in inference(5, "Qwen3", layers=1) if "qkv_proj" in module.path]
    target = table(tmp_path / "t", records([*both, *layer]))
    found = pair_train_infer(target, table(tmp_path / "g", records(layer)), "fsdp")
    assert {mine for mine, _ in pairs_of(found)} == {other for _, other in pairs_of(found)}
    assert len(pairs_of(found)) == 4
    assert not found.target.joins
    met(found)


@pytest.mark.parametrize("digits", [19, 5000])
def test_a_layer_number_beyond_all_bounds_is_a_name(tmp_path: Path, digits: int) -> None:
    op = f"Module.layers.{'9' * digits}.fc.Linear.forward.0"
    sides = [table(tmp_path / at, {op: call([tensor()], [tensor()])}) for at in ("t", "g")]
    assert len(pairs_of(pair_train_infer(*sides, "fsdp"))) == 2


def test_a_statistic_that_one_part_lacks_is_none(tmp_path: Path) -> None:
    stats = STATS | {"k": (None, 0.0, None, 3.0)}
    found = pair_train_infer(projections(tmp_path / "t", stats), fused(tmp_path / "g"), "fsdp")
    _, output = facts(found.target, joined_names("output.0"))
    assert [output[f"{stat}_kind"] for stat in ("max", "min", "mean", "norm")] == [
        StatKind.NONE,
        StatKind.FLOAT,
        StatKind.NONE,
        StatKind.FLOAT,
    ]
    assert output["max"] is None


def test_a_checksum_of_parts_is_none_of_the_whole(tmp_path: Path) -> None:
    found = pair_train_infer(projections(tmp_path / "t", STATS, md5="1234abcd"), fused(tmp_path / "g"), "fsdp")
    assert facts(found.target, joined_names("output.0"))[1]["md5"] is None
    assert facts(found.target, joined_names("input.0"))[1]["md5"] == "1234abcd"


def test_a_slot_that_only_some_parts_have(tmp_path: Path) -> None:
    """A bias of the keys alone stands in the record of the projection all the same."""
    target = projections(tmp_path / "t", STATS)
    text = target.path.read_text(encoding="utf-8")
    at = text.index('"parameters"', text.index("k_proj"))
    renamed = text[at:].replace('"weight"', '"bias"', 1).replace("parameters.weight.pt", "parameters.bias.pt", 1)
    target.path.write_text(text[:at] + renamed, encoding="utf-8")
    found = pair_train_infer(read_dump(target.path), fused(tmp_path / "g"), "fsdp")
    assert [mine for mine, _ in met(found)] == [
        joined_names("input.0"),
        joined_names("parameters.weight", "qv"),
        joined_names("parameters.bias", "k"),
        joined_names("output.0"),
    ]


def test_projections_that_run_apart_on_both_sides_meet_one_by_one(tmp_path: Path) -> None:
    sides = projections(tmp_path / "t", STATS), projections(tmp_path / "g", STATS)
    found = pair_train_infer(*sides, "fsdp")
    assert len(pairs_of(found)) == 9
    assert all(mine == other for mine, other in pairs_of(found))
    assert not found.target.joins


def test_the_golden_side_is_joined_where_the_target_is_fused(tmp_path: Path) -> None:
    qkv = Module(
        "module.module.decoder.layers.0.self_attention.linear_qkv",
        "Linear",
        [(5, 1, 8)],
        [(5, 1, 16)],
        {"weight": (16, 8)},
    )
    found = pair_train_infer(table(tmp_path / "t", records([qkv])), projections(tmp_path / "g", STATS), "megatron")
    assert [other for _, other in met(found)] == [joined_names(s) for s in ("input.0", "parameters.weight", "output.0")]
    assert not found.target.joins
    row, output = facts(found.golden, joined_names("output.0"))
    assert (output["max"], found.golden.joins[row].axis) == (7.0, -1)


def test_without_files_a_joined_row_is_known_all_the_same(tmp_path: Path) -> None:
    found = compared(tmp_path, *MODELS["Qwen2.5 fsdp"])
    told = {join.told for join in found.target.joins.values()}
    assert told == {
        f"{what} {n} parts{end}"
        for n in (2, 3)
        for what, end in (("input of the first of", ""), ("statistics of", " put together"))
    }
    assert all(join.parts == () for join in found.target.joins.values())


# --- tensors -------------------------------------------------------------------------------------------------------------------


def measured(found: TrainInfer) -> dict[str, dict[str, Any]]:
    """Metrics of all pairs that have tensors, by the golden name."""
    frame = found.rows.with_row_index("pair").select(
        "pair",
        "target_row",
        "golden_row",
        target_file=found.target.rows["data_name"].gather(found.rows["target_row"]),
        golden_file=found.golden.rows["data_name"].gather(found.rows["golden_row"]),
    )
    frame = frame.drop_nulls()
    joins = [
        {pair: side.joins[row] for pair, row in zip(frame["pair"], frame[name], strict=True) if row in side.joins}
        for side, name in ((found.target, "target_row"), (found.golden, "golden_row"))
    ]
    metrics = measure_tensors(
        frame.select("pair", "target_file", "golden_file"),
        *(side.path.parent / "dump_tensor_data" for side in (found.target, found.golden)),
        pool=Pool(1),
        engine="numpy",
        budget=Budget(1 << 30, 1),
        target_joins=joins[0],
        golden_joins=joins[1],
    )
    names = names_of(found.golden)
    golden_row = dict(frame.select("pair", "golden_row").iter_rows())
    return {names[golden_row[row["pair"]]]: row for row in metrics.iter_rows(named=True)}


def dumped(folder: Path, tensors: Mapping[str, Mapping[str, Any]]) -> DumpTable:
    """A tensor dump of modules: path and class -> slot -> array."""
    data: dict[str, Any] = {}
    for module, slots in tensors.items():
        op = f"Module.{module}.forward.0"
        leaves = {slot: saved(folder, f"{op}.{slot}", values) for slot, values in slots.items()}
        data[op] = {
            "input_args": [leaf for slot, leaf in leaves.items() if slot.startswith("input")],
            "parameters": {slot.split(".")[1]: leaf for slot, leaf in leaves.items() if slot.startswith("parameters")},
            "output": [leaf for slot, leaf in leaves.items() if slot.startswith("output")],
        }
    return read_dump(write_dump(folder, data, task="tensor", level="L0"))


RANDOM = np.random.default_rng(7)
WEIGHTS = {
    name: RANDOM.normal(size=(heads * SIZE, HIDDEN)).astype(np.float32)
    for name, heads in (("q", HEADS), ("k", GROUPS), ("v", GROUPS))
}
QKV = np.concatenate([WEIGHTS["q"], WEIGHTS["k"], WEIGHTS["v"]])
SEEN = RANDOM.normal(size=(5, HIDDEN)).astype(np.float32)


def inferred(folder: Path, seen: Any = SEEN) -> DumpTable:
    return dumped(
        folder,
        {
            "model.layers.0.self_attn.qkv_proj.QKVParallelLinear": {
                "input.0": seen,
                "parameters.weight": QKV,
                "parameters.bias": QKV[:, 0],
                "output.0": seen @ QKV.T,
            }
        },
    )


def apart(folder: Path, seen: Any) -> DumpTable:
    """Projections one by one; ``seen`` has tokens in front of its last axis."""
    modules = {
        f"{W}.model.layers.0.{W}.self_attn.{name}_proj.Linear": {
            "input.0": seen,
            "parameters.weight": weight,
            "parameters.bias": weight[:, 0],
            "output.0": seen @ weight.T,
        }
        for name, weight in WEIGHTS.items()
    }
    return dumped(folder, modules)


@pytest.mark.parametrize("tokens", [5, 1])
def test_projections_put_together_are_the_fused_one(tmp_path: Path, tokens: int) -> None:
    seen = SEEN[:tokens]
    found = pair_train_infer(apart(tmp_path / "t", seen[None]), inferred(tmp_path / "g", seen), "fsdp")
    metrics = measured(found)
    assert len(metrics) == 4
    for name, row in metrics.items():
        assert row["state"] == MetricState.COMPUTED, name
        assert row["error_max"] < 1e-5, name


def grouped(weights: Any) -> Any:
    """Rows of all heads as Megatron holds them: per group its queries, its key, its value."""
    parts = [
        part.reshape(GROUPS, -1, *part.shape[1:]) for part in np.split(weights, [HEADS * SIZE, (HEADS + GROUPS) * SIZE])
    ]
    return np.concatenate(parts, axis=1).reshape(weights.shape)


def megatron_qkv(folder: Path, *, attention: bool = True) -> DumpTable:
    layer, weights = "module.module.decoder.layers.0.self_attention", grouped(QKV)
    heads = {
        f"input.{at}": np.zeros((5, 1, count, SIZE), np.float32) for at, count in enumerate((HEADS, GROUPS, GROUPS))
    }
    modules = {
        f"{layer}.linear_qkv.ColumnParallelLinear": {
            "input.0": SEEN[:, None],
            "parameters.weight": weights,
            "parameters.bias": weights[:, 0],
            "output.0": SEEN[:, None] @ weights.T,
        },
        f"{layer}.core_attention.DotProductAttention": heads,
    }
    return dumped(folder, dict(list(modules.items())[: 2 if attention else 1]))


def test_heads_that_stand_group_by_group_are_put_in_order(tmp_path: Path) -> None:
    found = pair_train_infer(megatron_qkv(tmp_path / "t"), inferred(tmp_path / "g"), "megatron")
    blocks = (HEADS // GROUPS * SIZE, SIZE, SIZE)
    assert {join.regroup for join in found.target.joins.values()} == {blocks}
    assert sorted(join.axis for join in found.target.joins.values()) == [-1, 0, 0]
    metrics = measured(found)
    assert len(metrics) == 4
    assert all(row["error_max"] < 1e-5 for row in metrics.values())
    assert found.notes == []


def test_heads_that_cannot_be_told_are_compared_as_they_stand(tmp_path: Path) -> None:
    found = pair_train_infer(megatron_qkv(tmp_path / "t", attention=False), inferred(tmp_path / "g"), "megatron")
    assert not found.target.joins
    assert len(found.notes) == 1
    assert found.notes[0].startswith("how the heads of linear_qkv are grouped cannot be told for 3 tensors")
    metrics = measured(found)
    assert sum(row["error_max"] > 0.1 for row in metrics.values()) == 3


def test_statistics_say_nothing_of_the_order_of_heads(tmp_path: Path) -> None:
    found = compared(tmp_path, *MODELS["Qwen3 megatron"])
    assert not found.target.joins
    assert found.notes == []


@pytest.mark.parametrize("front", [False, True])
def test_padded_tokens_are_left_out(tmp_path: Path, front: bool) -> None:
    padding = np.zeros((3, HIDDEN), np.float32)
    seen = np.concatenate([padding, SEEN] if front else [SEEN, padding])
    found = pair_train_infer(apart(tmp_path / "t", seen[None]), inferred(tmp_path / "g"), "fsdp")
    trimmed = {
        names_of(found.target)[row].rpartition(".forward.0.")[2]: join.trim for row, join in found.target.joins.items()
    }
    assert trimmed == {"input.0": True, "parameters.weight": False, "parameters.bias": False, "output.0": True}
    assert found.notes == ["2 target tensors hold more tokens than golden's: taken for padding and left out"]
    assert all(row["error_max"] < 1e-5 for row in measured(found).values())


def test_fewer_tokens_are_no_padding(tmp_path: Path) -> None:
    found = pair_train_infer(apart(tmp_path / "t", SEEN[None, :3]), inferred(tmp_path / "g"), "fsdp")
    assert not any(join.trim for join in found.target.joins.values())
    states = {name.rpartition(".forward.0.")[2]: row["state"] for name, row in measured(found).items()}
    assert states["input.0"] == states["output.0"] == MetricState.SHAPE


def test_padding_of_a_plain_row(tmp_path: Path) -> None:
    one = Module("model.embed_tokens", "Embedding", [(1, 8)], [(1, 8, 4)], {"weight": (24, 4)})
    other = Module("model.embed_tokens", "VocabParallelEmbedding", [(5,)], [(5, 4)], {"weight": (20, 4)})
    sides = (
        table(tmp_path / "t", records([one], leaf=file_leaf), task="tensor"),
        table(tmp_path / "g", records([other], leaf=file_leaf), task="tensor"),
    )
    found = pair_train_infer(*sides, "fsdp")
    assert {names_of(found.target)[row].rpartition(".forward.0.")[2] for row in found.target.joins} == {
        "input.0",
        "output.0",
    }
    assert all(join.trim and len(join.parts) == 1 for join in found.target.joins.values())
    statistics = compared(tmp_path / "s", "fsdp", [one], [other])
    assert not statistics.target.joins
    assert statistics.notes == [
        "2 target tensors hold more tokens than golden's: if that is padding, their statistics count it in"
    ]


def test_a_part_without_a_file_is_not_measured(tmp_path: Path) -> None:
    target = apart(tmp_path / "t", SEEN[None])
    text = target.path.read_text(encoding="utf-8")
    at = text.index('"output"', text.index("k_proj"))
    target.path.write_text(text[:at] + text[at:].replace('"data_name"', '"unsaved"', 1), encoding="utf-8")
    found = pair_train_infer(read_dump(target.path), inferred(tmp_path / "g"), "fsdp")
    row, output = facts(found.target, names_of(found.target)[3])
    assert output["data_name"] is None
    assert found.target.joins[row] == Join(())
    assert len(measured(found)) == 3


# --- documents -----------------------------------------------------------------------------------------------------------------


def test_the_page_shows_the_tables_as_they_are() -> None:
    page = (Path(__file__).parents[2] / "docs" / "train-infer.md").read_text(encoding="utf-8")
    lines = {line for line in page.splitlines() if line.startswith("| ")}
    names = {f"| {rule.backend} | {rule.training} | {rule.inference or 'left out'} |" for rule in rules.NAMES}
    moved = {
        f"| {rule.backend} | {rule.module}`{rule.slot}`{' (with a layer_norm_weight)' if rule.only_with else ''} "
        f"| {rule.inference_module}`{rule.inference_slot}` |"
        for rule in rules.ROW_RULES
    }
    joined = {f"| {', '.join(rule.parts)} | {rule.fused} |" for rule in rules.FUSED}
    heads = {"| backend | training | inference |", "| parts, in this order | fused |"}
    assert lines == names | moved | joined | heads


def test_heads_may_be_a_dimension_of_their_own_on_one_side(tmp_path: Path) -> None:
    """Megatron's core attention takes (tokens, heads, size), vLLM's attention (tokens, heads x size)."""
    values = np.arange(24, dtype=np.float32)
    name = "Module.module.module.decoder.layers.0.self_attention.core_attention.DotProductAttention.forward.0"
    other = "Module.model.layers.0.self_attn.attn.Attention.forward.0"
    for side, op, shape in (("target", name, (3, 2, 4)), ("golden", other, (3, 8))):
        held = {op: tensor_call(tmp_path / side, op, [values.reshape(shape)], [values.reshape(shape)])}
        write_dump(tmp_path / side, held, task="tensor", level="L0")
    rows = opassay.compare(tmp_path / "target", tmp_path / "golden", backend="megatron").rows
    assert rows["golden_name"].to_list() == [f"{other}.input.0", f"{other}.output.0"]
    assert rows["result"].to_list() == ["pass", "pass"]
    assert rows["cosine_number"].to_list() == pytest.approx([1.0, 1.0])
    for text, merged in (("[6, 2, 4]", "[6, 8]"), ("[6, 8]", ""), ("", ""), ("(3,)", ""), ("[1, 2, x]", "")):
        assert heads_merged(text) == merged
