"""Training against inference: which training records count, what a module of one is called in the other, how fused heads stand.

The names are data (``NAMES``, ``FUSED``, ``ROW_RULES``); what reads them works on unique module names and shape texts, never on rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import polars as pl

BACKENDS: Final = ("fsdp", "megatron")

ROOTS: Final[Mapping[str, tuple[str, ...]]] = {
    "fsdp": ("Qwen2Model", "Qwen3Model", "Qwen3MoeModel"),
    "megatron": ("GPTModel",),
}
"""Classes whose backward begins a backward pass."""

EMBEDDINGS: Final[Mapping[str, str]] = {"fsdp": "Embedding", "megatron": "VocabParallelEmbedding"}
"""Classes whose forward begins a micro-batch."""

WRAPPER_CLASSES: Final = frozenset(
    {
        "FullyShardedDataParallel", "DistributedDataParallel", "Float16Module", "CheckpointWrapper", "OptimizedModule",
    }
)  # fmt: skip
"""Modules that only hold another: their records meet nothing, lest they meet what the held one should."""

WRAPPERS: Final = frozenset({"_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module"})
"""Parts of module paths that wrappers put in; left out wherever they stand."""

HEADS: Final = frozenset({"model", "decoder", "embedding"})
"""Parts that only hold the model together; left out in front of other parts, outside of layers."""


class NameRule(NamedTuple):
    """One part of a training module's path under its inference name; "" leaves it out."""

    backend: str
    training: str
    inference: str


NAMES: Final[tuple[NameRule, ...]] = (
    NameRule("megatron", "word_embeddings", "embed_tokens"),
    NameRule("megatron", "self_attention", "self_attn"),
    NameRule("megatron", "linear_qkv", "qkv_proj"),
    NameRule("megatron", "q_layernorm", "q_norm"),
    NameRule("megatron", "k_layernorm", "k_norm"),
    NameRule("megatron", "core_attention", "attn"),
    NameRule("megatron", "linear_proj", "o_proj"),
    NameRule("megatron", "router", "gate"),
    NameRule("megatron", "linear_fc1", "gate_up_proj"),
    NameRule("megatron", "linear_fc2", "down_proj"),
    NameRule("megatron", "pre_mlp_layernorm", "post_attention_layernorm"),
    NameRule("megatron", "final_layernorm", "norm"),
    NameRule("megatron", "output_layer", "lm_head"),
    NameRule("megatron", "local_experts", ""),
    NameRule("megatron", "shared_experts", "shared_expert"),
)


class FusedRule(NamedTuple):
    """Projections that one side runs apart and the other as one module, in the order in which the one holds them."""

    parts: tuple[str, ...]
    fused: str


FUSED: Final[tuple[FusedRule, ...]] = (
    FusedRule(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    FusedRule(("gate_proj", "up_proj"), "gate_up_proj"),
)


class RowRule(NamedTuple):
    """A row of a training module that stands elsewhere in inference.

    ``module`` and ``inference_module`` are paths within the layer, by their inference names. With ``only_with`` the rule holds for
    records that have that slot too.
    """

    backend: str
    module: str
    slot: str
    inference_module: str
    inference_slot: str
    only_with: str = ""


_FUSED_NORM: Final = ".parameters.layer_norm_weight"

ROW_RULES: Final[tuple[RowRule, ...]] = (
    # a linear module with its norm inside (transformer engine): its input is the norm's, its norm's parameters are the norm's
    RowRule("megatron", "self_attn.qkv_proj", _FUSED_NORM, "input_layernorm", ".parameters.weight"),
    RowRule("megatron", "self_attn.qkv_proj", ".parameters.layer_norm_bias", "input_layernorm", ".parameters.bias"),
    RowRule("megatron", "self_attn.qkv_proj", ".input.0", "input_layernorm", ".input.0", _FUSED_NORM),
    RowRule("megatron", "mlp.gate_up_proj", _FUSED_NORM, "post_attention_layernorm", ".parameters.weight"),
    RowRule(
        "megatron", "mlp.gate_up_proj", ".parameters.layer_norm_bias", "post_attention_layernorm", ".parameters.bias"
    ),
    RowRule("megatron", "mlp.gate_up_proj", ".input.0", "post_attention_layernorm", ".input.0", _FUSED_NORM),
    # all experts in one parameter: [experts, gate and up, hidden] and [experts, hidden, intermediate] on both sides
    RowRule("fsdp", "mlp.experts", ".parameters.gate_up_proj", "mlp.experts", ".parameters.w13_weight"),
    RowRule("fsdp", "mlp.experts", ".parameters.down_proj", "mlp.experts", ".parameters.w2_weight"),
)

_NAMES_OF: Final = {backend: {r.training: r.inference for r in NAMES if r.backend == backend} for backend in BACKENDS}
_MOVED_TO: Final = {(r.backend, r.module): r.inference_module for r in ROW_RULES}
_PART_OF: Final = {name: (rule.fused, place) for rule in FUSED for place, name in enumerate(rule.parts, start=1)}
_MOST_DIGITS: Final = 18  # of the number of a layer: what 64 bits hold
_ROOT_CLASSES: Final = frozenset(ROOTS["fsdp"])


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the model a module stands, by its inference name.

    Attributes
    ----------
    layer : int
        Number of the layer, -1 outside of layers.
    path : str or None
        Path within the layer, "" for the layer itself; None for modules that can meet nothing.
    fused : str
        Path of the module that holds this one as a part, "" where there is none.
    part : int
        Place among the parts, from 1; 0 where there is none.
    moved : str
        Path of the module that some rows of this one belong to (``ROW_RULES``), "" where there is none.
    """

    layer: int
    path: str | None
    fused: str = ""
    part: int = 0
    moved: str = ""


def place_of(base: str, backend: str, *, training: bool) -> Place:
    """Where a module stands.

    Parameters
    ----------
    base : str
        Record name without direction and call index: ``Module.model.layers.0.self_attn.q_proj.Linear``.
    backend : {"fsdp", "megatron"}
        What the training side ran on.
    training : bool
        Side of the record.
    """
    first, *parts = base.split(".")
    if first not in ("Module", "Cell") or not parts:
        return Place(-1, None)
    kind = parts.pop()
    if kind in WRAPPER_CLASSES:
        return Place(-1, None)
    path = [part for part in parts if part not in WRAPPERS]
    layer = -1
    for at in range(len(path) - 1):
        if path[at] == "layers" and path[at + 1].isdecimal() and len(path[at + 1]) <= _MOST_DIGITS:
            layer, path = int(path[at + 1]), path[at + 2 :]
            break
    if layer < 0:
        if kind in _ROOT_CLASSES:
            return Place(-1, "model")
        while path and (path[0] == "module" or path[0].isdecimal()):
            path = path[1:]
        while len(path) > 1 and path[0] in HEADS:
            path = path[1:]
        if not path:
            return Place(-1, None)  # the model with its head: logits on one side, hidden states on the other
    if training:
        names = _NAMES_OF[backend]
        path = [names.get(part, part) for part in path if names.get(part, part)]
    here = ".".join(path)
    fused, place = _PART_OF.get(path[-1], ("", 0)) if path else ("", 0)
    moved = _MOVED_TO.get((backend, here), "") if training else ""
    return Place(layer, here, ".".join([*path[:-1], fused]) if fused else "", place, moved)


def used_records(names: pl.Series, backend: str) -> pl.Series:
    """Which training records are compared: forwards, but none of those that a backward pass computes anew.

    The backward of the whole model (``ROOTS``; where the dump has none, of any module) switches reading off, the next forward of the
    embedding switches it on again.

    Parameters
    ----------
    names : polars.Series, shape (n,)
        Record names in order of execution.
    backend : {"fsdp", "megatron"}
        What the training side ran on.

    Returns
    -------
    polars.Series, shape (n,)
        Boolean.
    """
    frame = pl.DataFrame({"name": names}).with_columns(
        kind=pl.col("name").str.extract(r"([^.]+)\.[^.]+\.[^.]+$"),
        way=pl.col("name").str.extract(r"[^.]+\.([^.]+)\.[^.]+$"),
    )
    backward = (pl.col("way") == "backward").fill_null(False)
    root = backward & pl.col("kind").is_in(ROOTS[backend]).fill_null(False)
    stops = root if frame.select(root.any()).item() else backward
    starts = ((pl.col("way") == "forward") & (pl.col("kind") == EMBEDDINGS[backend])).fill_null(False)
    reading = pl.when(stops).then(False).when(starts).then(True).otherwise(None).forward_fill().fill_null(True)
    forward = (pl.col("way") == "forward").fill_null(False) | pl.col("name").str.ends_with(".forward")
    return frame.select(used=reading & forward)["used"]


def sizes_of(shape: str) -> tuple[int, ...] | None:
    """The sizes of a shape text (``[2, 3]``: (2, 3)); None for what is no list of sizes."""
    if not (shape.startswith("[") and shape.endswith("]")):
        return None
    try:
        return tuple(int(size) for size in shape[1:-1].split(",") if size.strip())
    except ValueError:
        return None


def joined_sizes(shapes: str, axis: int | None) -> tuple[int, ...] | None:
    """Shape of a joined tensor.

    Parameters
    ----------
    shapes : str
        Shape texts of the parts, joined by ``;``.
    axis : int or None
        Axis of the concatenation; None where the first part is the whole.

    Returns
    -------
    tuple of int or None
        None where a text is no shape or the shapes do not fit.
    """
    parts = [sizes_of(text) for text in shapes.split(";")]
    first = parts[0]
    if first is None or axis is None or len(parts) == 1:
        return first
    if any(part is None or len(part) != len(first) for part in parts) or not first:
        return None
    at = axis % len(first)
    known = [part for part in parts if part is not None]
    if any(part[:at] + part[at + 1 :] != first[:at] + first[at + 1 :] for part in known):
        return None
    return (*first[:at], sum(part[at] for part in known), *first[at + 1 :])


def is_padded(target: Sequence[int] | None, golden: Sequence[int] | None) -> bool:
    """Whether the target has more tokens than golden and the same shape otherwise (dimensions of length 1 left out)."""
    if target is None or golden is None:
        return False
    ours, theirs = ([size for size in shape if size != 1] for shape in (target, golden))
    if golden and golden[0] == 1 and ours[1:] == theirs:
        return len(ours) > 0  # one token
    return len(ours) == len(theirs) > 0 and ours[1:] == theirs[1:] and ours[0] > theirs[0]


HEAD_PLACES: Final = (
    "core_attention.input.0", "core_attention.input.1", "q_layernorm.output.0", "k_layernorm.output.0",
    "q_layernorm.parameters.weight", "linear_proj.input.0",
)  # fmt: skip
"""Modules and slots beside a fused projection whose shapes tell how its heads are grouped."""


def head_blocks(width: int, shapes: Mapping[str, Sequence[int]]) -> tuple[int, ...] | None:
    """How query, key and value heads stand in a fused projection that holds them group by group.

    Parameters
    ----------
    width : int
        Outputs of the projection.
    shapes : mapping of str to sequence of int
        Shapes around it, as far as they are known, by module and slot (``HEAD_PLACES``): ``core_attention.input.0`` and ``.input.1``,
        ``q_layernorm.output.0`` and ``k_layernorm.output.0`` ([..., heads, head size]), or ``q_layernorm.parameters.weight`` ([head
        size]) with ``linear_proj.input.0`` ([..., query width]).

    Returns
    -------
    tuple of int or None
        Widths of the queries, key and value of one group; () where there is one group, so that the order is the plain one; None where
        the shapes do not tell.
    """
    guesses = [
        _by_heads(shapes.get("core_attention.input.0"), shapes.get("core_attention.input.1")),
        _by_heads(shapes.get("q_layernorm.output.0"), shapes.get("k_layernorm.output.0")),
        _by_width(width, shapes.get("q_layernorm.parameters.weight"), shapes.get("linear_proj.input.0")),
    ]
    for heads, groups, size in filter(None, guesses):
        if groups and heads % groups == 0 and (heads + 2 * groups) * size == width:
            return (heads // groups * size, size, size) if groups > 1 else ()
    return None


def _by_heads(query: Sequence[int] | None, key: Sequence[int] | None) -> tuple[int, int, int] | None:
    """Heads, groups and head size where queries and keys are there head by head."""
    if query is None or key is None or min(len(query), len(key)) < 3 or query[-1] != key[-1]:
        return None
    return query[-2], key[-2], query[-1]


def _by_width(width: int, norm: Sequence[int] | None, projected: Sequence[int] | None) -> tuple[int, int, int] | None:
    """Heads, groups and head size by the weight of the norm of each head and the width of all heads together."""
    if norm is None or projected is None or len(norm) != 1 or not projected or not norm[0]:
        return None
    size, queries = norm[0], projected[-1]
    keys, odd = divmod(width - queries, 2)
    if odd or keys <= 0 or queries % size or keys % size:
        return None
    return queries // size, keys // size, size


def longest_increasing(numbers: Sequence[int]) -> list[int]:
    """Places of a longest strictly increasing subsequence.

    Parameters
    ----------
    numbers : sequence of int
        In any order.

    Returns
    -------
    list of int
        Increasing places. Of several longest ones, always the same.
    """
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for place, number in enumerate(numbers):
        length = bisect_left(tails, number)
        before.append(ends[length - 1] if length else -1)
        tails[length : length + 1] = [number]
        ends[length : length + 1] = [place]
    found: list[int] = []
    place = ends[-1] if ends else -1
    while place >= 0:
        found.append(place)
        place = before[place]
    return found[::-1]
