"""Small models of the structure of Qwen2.5, Qwen3 and Qwen3-MoE under the names of fsdp, Megatron and vLLM, as dump records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from opassay.pipeline.read.dump_json import read_dump
from opassay.schemas.dump_rows import DumpTable

from tests.dumps import call, tensor, write_dump

HIDDEN, HEADS, GROUPS, SIZE, MIDDLE, VOCABULARY, EXPERTS = 8, 4, 2, 2, 6, 20, 2
Q, K = HEADS * SIZE, GROUPS * SIZE
QKV = Q + 2 * K

Shape = tuple[int, ...]


class Module(NamedTuple):
    """A module call: where, class, shapes of inputs, parameters and outputs (None for an output that is None)."""

    path: str
    kind: str
    inputs: Sequence[Shape]
    outputs: Sequence[Shape | None]
    parameters: Mapping[str, Shape] = {}


def fsdp_layer(tokens: int, family: str, *, experts: str = "") -> list[Module]:
    """One layer as transformers has it; ``family`` is Qwen2, Qwen3 or Qwen3Moe, ``experts`` apart or stacked."""
    hidden = (1, tokens, HIDDEN)
    bias = family == "Qwen2"

    def linear(path: str, wide: int, high: int, seen: Shape) -> Module:
        weights: dict[str, Shape] = {"weight": (high, wide)} | ({"bias": (high,)} if bias and "proj" in path else {})
        return Module(path, "Linear", [(*seen[:-1], wide)], [(*seen[:-1], high)], weights)

    def norm(path: str, shape: Shape) -> Module:
        return Module(path, f"{family}RMSNorm", [shape], [shape], {"weight": shape[-1:]})

    def mlp(path: str, seen: Shape) -> list[Module]:
        return [
            linear(f"{path}.gate_proj", HIDDEN, MIDDLE, seen),
            Module(f"{path}.act_fn", "SiLU", [(*seen[:-1], MIDDLE)], [(*seen[:-1], MIDDLE)]),
            linear(f"{path}.up_proj", HIDDEN, MIDDLE, seen),
            linear(f"{path}.down_proj", MIDDLE, HIDDEN, seen),
            Module(path, f"{family}MLP", [seen], [seen]),
        ]

    layer = [
        norm("input_layernorm", hidden),
        linear("self_attn.q_proj", HIDDEN, Q, hidden),
        *([] if bias else [norm("self_attn.q_norm", (1, tokens, HEADS, SIZE))]),
        linear("self_attn.k_proj", HIDDEN, K, hidden),
        *([] if bias else [norm("self_attn.k_norm", (1, tokens, GROUPS, SIZE))]),
        linear("self_attn.v_proj", HIDDEN, K, hidden),
        linear("self_attn.o_proj", Q, HIDDEN, hidden),
        Module("self_attn", f"{family}Attention", [hidden], [hidden, None]),
        norm("post_attention_layernorm", hidden),
    ]
    if experts == "apart":
        layer.append(linear("mlp.gate", HIDDEN, EXPERTS, (tokens, HIDDEN)))
        for number in range(EXPERTS):
            layer += mlp(f"mlp.experts.{number}", (tokens - number, HIDDEN))
    elif experts == "stacked":
        layer.append(linear("mlp.gate", HIDDEN, EXPERTS, (tokens, HIDDEN)))
        weights = {"gate_up_proj": (EXPERTS, 2 * MIDDLE, HIDDEN), "down_proj": (EXPERTS, HIDDEN, MIDDLE)}
        layer.append(Module("mlp.experts", f"{family}Experts", [(tokens, HIDDEN)], [(tokens, HIDDEN)], weights))
    else:
        layer += mlp("mlp", hidden)[:-1]
    layer.append(Module("mlp", f"{family}SparseMoeBlock" if experts else f"{family}MLP", [hidden], [hidden]))
    return [*layer, Module("", f"{family}DecoderLayer", [hidden], [hidden])]


def megatron_layer(tokens: int, family: str, *, experts: str = "", fused_norm: bool = False) -> list[Module]:
    """One layer as Megatron has it; with ``fused_norm`` as its transformer engine modules have it."""
    hidden = (tokens, 1, HIDDEN)
    bias = family == "Qwen2"

    def linear(path: str, kind: str, wide: int, high: int, *, normed: bool = False, biased: bool = False) -> Module:
        weights: dict[str, Shape] = {"layer_norm_weight": (wide,)} if normed else {}
        weights |= {"weight": (high, wide)} | ({"bias": (high,)} if biased else {})
        return Module(path, kind, [(tokens, 1, wide)], [(tokens, 1, high), None], weights)

    def norm(path: str, shape: Shape) -> Module:
        return Module(path, "RMSNorm", [shape], [shape], {"weight": shape[-1:]})

    heads = [(tokens, 1, HEADS, SIZE), (tokens, 1, GROUPS, SIZE), (tokens, 1, GROUPS, SIZE)]
    layer = [] if fused_norm else [norm("input_layernorm", hidden)]
    layer += [
        linear("self_attention.linear_qkv", "ColumnParallelLinear", HIDDEN, QKV, normed=fused_norm, biased=bias),
        *([] if bias else [norm("self_attention.q_layernorm", heads[0]), norm("self_attention.k_layernorm", heads[1])]),
        Module("self_attention.core_attention", "DotProductAttention", heads, [(tokens, 1, Q)]),
        linear("self_attention.linear_proj", "RowParallelLinear", Q, HIDDEN),
        Module("self_attention", "SelfAttention", [hidden], [hidden, None]),
    ]
    if not fused_norm:
        layer.append(norm("pre_mlp_layernorm", hidden))

    def mlp(path: str, *, normed: bool = False) -> list[Module]:
        return [
            linear(f"{path}.linear_fc1", "ColumnParallelLinear", HIDDEN, 2 * MIDDLE, normed=normed),
            linear(f"{path}.linear_fc2", "RowParallelLinear", MIDDLE, HIDDEN),
        ]

    if experts:
        layer.append(Module("mlp.router", "TopKRouter", [hidden], [(tokens, EXPERTS)], {"weight": (EXPERTS, HIDDEN)}))
        for number in range(EXPERTS):
            layer += mlp(f"mlp.experts.local_experts.{number}")
        layer += mlp("mlp.shared_experts")
    else:
        layer += mlp("mlp", normed=fused_norm)
    layer.append(Module("mlp", "MoELayer" if experts else "MLP", [hidden], [hidden, None]))
    return [*layer, Module("", "TransformerLayer", [hidden], [hidden])]


def inference_layer(tokens: int, family: str, *, experts: str = "") -> list[Module]:
    """One layer as vLLM has it."""
    hidden = (tokens, HIDDEN)
    bias = family == "Qwen2"

    def linear(path: str, kind: str, wide: int, high: int, *, biased: bool = False) -> Module:
        weights: dict[str, Shape] = {"weight": (high, wide)} | ({"bias": (high,)} if biased else {})
        return Module(path, kind, [(tokens, wide)], [(tokens, high), None], weights)

    def norm(path: str, shape: Shape, count: int = 1) -> Module:
        return Module(path, "RMSNorm", [shape] * count, [shape] * count, {"weight": shape[-1:]})

    def mlp(path: str) -> list[Module]:
        return [
            linear(f"{path}.gate_up_proj", "MergedColumnParallelLinear", HIDDEN, 2 * MIDDLE),
            Module(f"{path}.act_fn", "SiluAndMul", [(tokens, 2 * MIDDLE)], [(tokens, MIDDLE)]),
            linear(f"{path}.down_proj", "RowParallelLinear", MIDDLE, HIDDEN),
        ]

    heads = [(tokens, HEADS, SIZE), (tokens, GROUPS, SIZE), (tokens, GROUPS, SIZE)]
    layer = [
        norm("input_layernorm", hidden),
        linear("self_attn.qkv_proj", "QKVParallelLinear", HIDDEN, QKV, biased=bias),
        *([] if bias else [norm("self_attn.q_norm", heads[0]), norm("self_attn.k_norm", heads[1])]),
        Module("self_attn.rotary_emb", "RotaryEmbedding", heads[:2], heads[:2]),
        Module("self_attn.attn", "Attention", heads, [(tokens, Q)]),
        linear("self_attn.o_proj", "RowParallelLinear", Q, HIDDEN),
        Module("self_attn", f"{family}Attention", [hidden], [hidden]),
        norm("post_attention_layernorm", hidden, 2),
    ]
    if experts:
        layer.append(linear("mlp.gate", "ReplicatedLinear", HIDDEN, EXPERTS))
    if experts == "apart":
        for number in range(EXPERTS):
            layer += mlp(f"mlp.experts.{number}")
        layer += mlp("mlp.shared_expert")
    elif experts == "stacked":
        weights = {"w13_weight": (EXPERTS, 2 * MIDDLE, HIDDEN), "w2_weight": (EXPERTS, HIDDEN, MIDDLE)}
        layer.append(Module("mlp.experts", "FusedMoE", [hidden], [hidden], weights))
    else:
        layer += mlp("mlp")
    layer.append(Module("mlp", f"{family}SparseMoeBlock" if experts else f"{family}MLP", [hidden], [hidden]))
    return [*layer, Module("", f"{family}DecoderLayer", [hidden], [hidden, hidden])]


def outside(tokens: int, layers: Iterable[Module], names: Mapping[str, tuple[str, str]], lead: Shape) -> list[Module]:
    """The model around its layers; ``names`` has path and class of embedding, norm, model and head."""
    hidden, ids = (*lead, HIDDEN), (1, tokens) if len(lead) > 1 else (tokens,)
    return [
        Module(*names["embedding"], [ids], [hidden], {"weight": (VOCABULARY, HIDDEN)}),
        *layers,
        Module(*names["norm"], [hidden], [hidden], {"weight": (HIDDEN,)}),
        Module(*names["model"], [ids], [hidden]),
        Module(*names["head"], [hidden], [(*lead, VOCABULARY)], {"weight": (VOCABULARY, HIDDEN)}),
    ]


def _numbered(layer: list[Module], prefix: str, count: int) -> list[Module]:
    def path(number: int, inner: str) -> str:
        return f"{prefix.format(number)}{inner}".rstrip(".")

    return [module._replace(path=path(number, module.path)) for number in range(count) for module in layer]


def fsdp(tokens: int, family: str, *, layers: int = 2, experts: str = "") -> list[Module]:
    """The training model under fsdp."""
    inner = _numbered(
        fsdp_layer(tokens, family, experts=experts),
        "_fsdp_wrapped_module.model.layers.{}._fsdp_wrapped_module.",
        layers,
    )
    top = "_fsdp_wrapped_module.model"
    names = {
        "embedding": (f"{top}.embed_tokens", "Embedding"),
        "norm": (f"{top}.norm", f"{family}RMSNorm"),
        "model": (top, f"{family}Model"),
        "head": ("_fsdp_wrapped_module.lm_head", "Linear"),
    }
    return outside(tokens, inner, names, (1, tokens))


def megatron(tokens: int, family: str, *, layers: int = 2, experts: str = "", fused_norm: bool = False) -> list[Module]:
    """The training model under Megatron."""
    layer = megatron_layer(tokens, family, experts=experts, fused_norm=fused_norm)
    inner = _numbered(layer, "module.module.decoder.layers.{}.", layers)
    names = {
        "embedding": ("module.module.embedding.word_embeddings", "VocabParallelEmbedding"),
        "norm": ("module.module.decoder.final_layernorm", "RMSNorm"),
        "model": ("module.module.decoder", "TransformerBlock"),
        "head": ("module.module.output_layer", "ColumnParallelLinear"),
    }
    model = Module("module.module", "GPTModel", [(1, tokens)], [(1, tokens, VOCABULARY)])
    return [*outside(tokens, inner, names, (tokens, 1)), model]


def inference(tokens: int, family: str, *, layers: int = 2, experts: str = "") -> list[Module]:
    """The model as the inference engine has it."""
    inner = _numbered(inference_layer(tokens, family, experts=experts), "model.layers.{}.", layers)
    names = {
        "embedding": ("model.embed_tokens", "VocabParallelEmbedding"),
        "norm": ("model.norm", "RMSNorm"),
        "model": ("model", f"{family}Model"),
        "head": ("lm_head", "ParallelLMHead"),
    }
    return outside(tokens, inner, names, (tokens,))


Leaf = Callable[[str, Shape], dict[str, Any]]


def plain_leaf(name: str, shape: Shape) -> dict[str, Any]:
    """A leaf of a statistics dump."""
    return tensor(shape=shape)


def file_leaf(name: str, shape: Shape) -> dict[str, Any]:
    """A leaf of a tensor dump; the file is named as the dump tool names it."""
    return tensor(shape=shape, data_name=f"{name}.pt")


def records(
    modules: Iterable[Module], number: int = 0, *, leaf: Leaf = plain_leaf, way: str = "forward"
) -> dict[str, Any]:
    """One pass over the model as records with this call index, in order of execution."""
    found: dict[str, Any] = {}
    for module in modules:
        name = ".".join(part for part in ("Module", module.path, module.kind, way, str(number)) if part)
        if way == "backward":
            found[name] = {"input": [leaf(f"{name}.input.0", (2,))], "output": [leaf(f"{name}.output.0", (2,))]}
            continue
        inputs = [leaf(f"{name}.input.{at}", shape) for at, shape in enumerate(module.inputs)]
        outputs = [
            None if shape is None else leaf(f"{name}.output.{at}", shape) for at, shape in enumerate(module.outputs)
        ]
        weights = {key: leaf(f"{name}.parameters.{key}", shape) for key, shape in module.parameters.items()}
        found[name] = {**call(inputs, outputs), "parameters": weights}
    return found


def table(folder: Path, *passes: Mapping[str, Any], task: str = "statistics") -> DumpTable:
    """The dump of some passes, read."""
    data: dict[str, Any] = {}
    for one in passes:
        data |= one
    return read_dump(write_dump(folder, data, task=task, level="L0"))
