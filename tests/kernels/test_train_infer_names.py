"""Where modules stand, which training records count, how heads are grouped: the pure half of training against inference."""

from __future__ import annotations

import itertools

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opassay.kernels.train_infer import (
    Place,
    head_blocks,
    is_padded,
    joined_sizes,
    longest_increasing,
    place_of,
    sizes_of,
    used_records,
)

W = "_fsdp_wrapped_module"


@pytest.mark.parametrize(
    ("base", "layer", "path"),
    [
        (f"Module.{W}.model.embed_tokens.Embedding", -1, "embed_tokens"),
        ("Module.model.embed_tokens.Embedding", -1, "embed_tokens"),  # the second fsdp wraps without a name of its own
        (f"Module.{W}.model.layers.11.{W}.self_attn.o_proj.Linear", 11, "self_attn.o_proj"),
        ("Module.0.model.layers.3.self_attn.o_proj.Linear", 3, "self_attn.o_proj"),
        (f"Module.{W}.model.layers.0.{W}._checkpoint_wrapped_module.mlp.Qwen2MLP", 0, "mlp"),
        (f"Module.{W}.model.layers.0.{W}.Qwen2DecoderLayer", 0, ""),
        (f"Module.{W}.model.norm.Qwen2RMSNorm", -1, "norm"),
        (f"Module.{W}.lm_head.Linear", -1, "lm_head"),
        (f"Module.{W}.model.Qwen3Model", -1, "model"),
        ("Module.Qwen3MoeModel", -1, "model"),
        (f"Module.{W}.Qwen2ForCausalLM", -1, None),
        (f"Module.{W}.model.layers.0.FullyShardedDataParallel", -1, None),
        ("Torch.matmul", -1, None),
        ("Module", -1, None),
    ],
)
def test_places_under_fsdp(base: str, layer: int, path: str | None) -> None:
    found = place_of(base, "fsdp", training=True)
    assert (found.layer, found.path) == (layer, path)


@pytest.mark.parametrize(
    ("base", "layer", "path"),
    [
        ("Module.module.module.embedding.word_embeddings.VocabParallelEmbedding", -1, "embed_tokens"),
        ("Module.module.module.embedding.LanguageModelEmbedding", -1, "embedding"),
        ("Module.module.module.decoder.TransformerBlock", -1, "decoder"),
        ("Module.module.module.decoder.final_layernorm.RMSNorm", -1, "norm"),
        ("Module.0.module.module.decoder.layers.7.mlp.linear_fc2.RowParallelLinear", 7, "mlp.down_proj"),
        ("Module.module.module.decoder.layers.0.TransformerLayer", 0, ""),
        ("Module.module.module.GPTModel", -1, None),
        ("Module.module.Float16Module", -1, None),
    ],
)
def test_places_under_megatron(base: str, layer: int, path: str | None) -> None:
    found = place_of(base, "megatron", training=True)
    assert (found.layer, found.path) == (layer, path)


def test_names_are_translated_on_the_training_side_only() -> None:
    base = "Module.model.layers.0.self_attention.linear_proj.Linear"
    assert place_of(base, "megatron", training=False).path == "self_attention.linear_proj"
    assert place_of(base, "fsdp", training=True).path == "self_attention.linear_proj"


def test_parts_know_the_whole_and_their_order() -> None:
    layer = "Module.model.layers.2"
    found = [place_of(f"{layer}.self_attn.{name}_proj.Linear", "fsdp", training=True) for name in "qkv"]
    assert [(place.fused, place.part) for place in found] == [("self_attn.qkv_proj", part) for part in (1, 2, 3)]
    up = place_of(f"{layer}.mlp.experts.5.up_proj.Linear", "fsdp", training=True)
    assert up == Place(2, "mlp.experts.5.up_proj", "mlp.experts.5.gate_up_proj", 2)
    assert place_of(f"{layer}.mlp.down_proj.Linear", "fsdp", training=True).fused == ""


LAYER = f"Module.{W}.model.layers.0.{W}.mlp.Qwen2MLP"
EMBED = f"Module.{W}.model.embed_tokens.Embedding"
ROOT = f"Module.{W}.model.Qwen2Model"


def used(*names: str, backend: str = "fsdp") -> list[bool]:
    return used_records(pl.Series("name", names, dtype=pl.String), backend).to_list()


def test_backward_passes_and_what_they_compute_anew_are_left_out() -> None:
    passed = (f"{EMBED}.forward.0", f"{LAYER}.forward.0", f"{ROOT}.forward.0")
    backward = (f"{ROOT}.backward.0", f"{LAYER}.forward.1", f"{LAYER}.backward.1", f"{LAYER}.parameters_grad.0")
    again = (f"{EMBED}.forward.1", f"{LAYER}.forward.2")
    assert used(*passed, *backward, *again) == [True] * 3 + [False] * 4 + [True] * 2


def test_backward_of_the_head_in_front_of_the_models_is_no_forward() -> None:
    assert used(f"{ROOT}.forward.0", "Module.lm_head.Linear.backward.0", f"{ROOT}.backward.0") == [True, False, False]


def test_without_the_models_backward_any_backward_ends_the_pass() -> None:
    names = (
        f"{EMBED}.forward.0",
        f"{LAYER}.forward.0",
        f"{LAYER}.backward.0",
        f"{LAYER}.forward.1",
        f"{EMBED}.forward.1",
    )
    assert used(*names) == [True, True, False, False, True]


def test_each_backend_has_its_own_root_and_embedding() -> None:
    names = (
        "Module.module.module.GPTModel.backward.0",
        "Module.module.module.decoder.layers.0.mlp.MLP.forward.1",
        "Module.module.module.embedding.word_embeddings.VocabParallelEmbedding.forward.1",
    )
    assert used(*names, backend="megatron") == [False, False, True]


def test_calls_of_the_api_level_count_where_forwards_do() -> None:
    assert used("Torch.matmul.0.forward", f"{ROOT}.backward.0", "Torch.matmul.1.forward") == [True, False, False]


def test_names_without_a_call_are_left_out_alone() -> None:
    assert used("x", f"{LAYER}.forward.0") == [False, True]


@pytest.mark.parametrize(
    ("text", "want"), [("[1, 6, 8]", (1, 6, 8)), ("[]", ()), ("", None), ("[2, x]", None), ("(3,)", None)]
)
def test_sizes_of_a_shape(text: str, want: tuple[int, ...] | None) -> None:
    assert sizes_of(text) == want


@pytest.mark.parametrize(
    ("shapes", "axis", "want"),
    [
        ("[1, 6, 8];[1, 6, 4];[1, 6, 4]", -1, (1, 6, 16)),
        ("[8, 8];[4, 8]", 0, (12, 8)),
        ("[8];[4]", 0, (12,)),
        ("[1, 6, 8];[1, 6, 8]", None, (1, 6, 8)),
        ("[6, 8]", -1, (6, 8)),
        ("[6, 8];[7, 4]", -1, None),
        ("[6, 8];[6]", -1, None),
        ("[];[]", 0, None),
        ("[6, 8];None", 0, None),
    ],
)
def test_joined_shapes(shapes: str, axis: int | None, want: tuple[int, ...] | None) -> None:
    assert joined_sizes(shapes, axis) == want


@pytest.mark.parametrize(
    ("target", "golden", "want"),
    [
        ((1, 8, 4), (6, 4), True),
        ((8, 1, 4), (6, 4), True),
        ((8,), (6,), True),
        ((1, 8, 4), (1, 4), True),
        ((8,), (1,), True),
        ((1, 6, 4), (6, 4), False),
        ((1, 1, 4), (1, 4), False),
        ((1, 8, 4), (4,), False),
        ((1, 5, 4), (6, 4), False),
        ((1, 8, 4), (6, 5), False),
        ((1, 8, 4), (6, 4, 2), False),
        ((), (), False),
        (None, (6,), False),
    ],
)
def test_padding_is_more_tokens_and_nothing_else(
    target: tuple[int, ...] | None, golden: tuple[int, ...] | None, want: bool
) -> None:
    assert is_padded(target, golden) is want


CORE = {"core_attention.input.0": (7, 1, 4, 2), "core_attention.input.1": (7, 1, 2, 2)}
NORMS = {"q_layernorm.output.0": (7, 1, 4, 2), "k_layernorm.output.0": (7, 1, 2, 2)}
WIDTHS = {"q_layernorm.parameters.weight": (2,), "linear_proj.input.0": (7, 1, 8)}


@pytest.mark.parametrize("shapes", [CORE, NORMS, WIDTHS])
def test_head_blocks_from_each_source(shapes: dict[str, tuple[int, ...]]) -> None:
    assert head_blocks(16, shapes) == (4, 2, 2)
    assert head_blocks(18, shapes) is None  # the shapes belong to another width


def test_repeated_keys_are_no_guide_where_another_source_is_right() -> None:
    repeated = CORE | {"core_attention.input.1": (7, 1, 4, 2)}
    assert head_blocks(16, repeated) is None
    assert head_blocks(16, repeated | WIDTHS) == (4, 2, 2)


def test_one_group_stands_in_plain_order() -> None:
    one = {"core_attention.input.0": (6, 2, 4), "core_attention.input.1": (6, 1, 4)}
    assert head_blocks(16, one) == ()


@pytest.mark.parametrize(
    "shapes",
    [
        {},
        {"core_attention.input.0": (7, 1, 4, 2)},
        {"core_attention.input.0": (7, 8), "core_attention.input.1": (7, 4)},  # flat: the size of a head is not there
        {"q_layernorm.parameters.weight": (3,), "linear_proj.input.0": (7, 1, 8)},
        {"q_layernorm.parameters.weight": (2,), "linear_proj.input.0": (7, 1, 16)},
    ],
)
def test_head_blocks_that_cannot_be_told(shapes: dict[str, tuple[int, ...]]) -> None:
    assert head_blocks(16, shapes) is None


@given(st.lists(st.integers(0, 12), max_size=9))
def test_longest_increasing_is_the_longest(numbers: list[int]) -> None:
    found = longest_increasing(numbers)
    values = [numbers[place] for place in found]
    assert found == sorted(set(found))
    assert all(a < b for a, b in itertools.pairwise(values))
    every = (c for size in range(len(numbers) + 1) for c in itertools.combinations(numbers, size))
    assert len(found) == max(len(c) for c in every if all(a < b for a, b in itertools.pairwise(c)))
