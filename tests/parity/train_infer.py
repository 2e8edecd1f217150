"""Training against inference (consistent_check.md): the training records that count, keys, joined projections, order of the rows."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from tests.parity.dump import Dump, DumpRow

ROOTS = {"fsdp": ("Qwen2Model", "Qwen3Model", "Qwen3MoeModel"), "megatron": ("GPTModel",)}
EMBEDDING = {"fsdp": "Embedding", "megatron": "VocabParallelEmbedding"}
TABLES = {
    "fsdp": {
        "q_proj": "qkv_proj",
        "k_proj": "qkv_proj",
        "v_proj": "qkv_proj",
        "gate_proj": "gate_up_proj",
        "up_proj": "gate_up_proj",
    },
    "megatron": {
        "word_embeddings": "embed_tokens",
        "self_attention": "self_attn",
        "linear_qkv": "qkv_proj",
        "q_layernorm": "q_norm",
        "k_layernorm": "k_norm",
        "core_attention": "attn",
        "linear_proj": "o_proj",
        "router": "gate",
        "linear_fc1": "gate_up_proj",
        "linear_fc2": "down_proj",
    },
}
MORE = {  # consistent_check.md 6: what the incumbent's tables lack
    "fsdp": {},
    "megatron": {
        "pre_mlp_layernorm": "post_attention_layernorm",
        "final_layernorm": "norm",
        "output_layer": "lm_head",
    },
}
LAYER = re.compile(r"layers\.(\d+)\.")

Key = tuple[str, str, int, str]
Found = tuple[DumpRow | None, DumpRow | None, Hashable, str]


def used_records(records: Iterable[str], backend: str) -> list[str]:
    """Training records that are read: none of a backward pass, none that it computes anew (section 1)."""
    reading, used = True, []
    for record in records:
        parts = record.split(".")
        if len(parts) < 3:
            reading = False
            continue
        if parts[-3] in ROOTS[backend] and parts[-2] == "backward":
            reading = False
        elif parts[-2] == "forward" and parts[-3] in EMBEDDING[backend]:
            reading = True
        if reading:
            used.append(record)
    return used


def _tail(base: str, backend: str, *, training: bool) -> str:
    if not training:
        found = LAYER.search(base)
        return (base[found.end() :] if found else base).removeprefix("Module.model.")
    if backend == "fsdp":
        tail = base.rpartition("_fsdp_wrapped_module.")[2]
    else:
        tail = base[max((m.end() for m in LAYER.finditer(base)), default=0) :]
    return tail.rpartition("module.module.")[2]


def module_key(base: str, backend: str, *, training: bool, more: bool) -> tuple[int, str]:
    """Layer and module of a record without its last two components (section 2), with or without the tables of section 6."""
    found = LAYER.search(base)
    layer = int(found.group(1)) if found else -1
    path = _tail(base, backend, training=training).rpartition(".")[0]
    if more and training and layer == -1 and path == "model":
        path = ""  # the model itself
    if backend == "fsdp" and not training:
        return layer, path.rpartition(".")[2]
    name = path.partition(".")[2] or path
    table = {**TABLES[backend], **(MORE[backend] if more else {})}
    return layer, table.get(name, name)


def row_keys(dump: Dump, backend: str, *, training: bool, more: bool) -> dict[int, Key]:
    """Row number -> (direction, suffix, layer, module); training rows that are not read have none."""
    records = used_records(dump.records, backend) if training else dump.records
    calls: Counter[str] = Counter()
    found: dict[str, tuple[str, int, str]] = {}
    for record in records:
        base, way, call = (["", "", *record.split(".")][-3:]) if record.count(".") < 2 else record.rsplit(".", 2)
        if training and way == "forward":
            call = str(calls[base])
            calls[base] += 1
        found[record] = (f"{way}.{call}", *module_key(base, backend, training=training, more=more))
    keys = {}
    for at, row in enumerate(dump.rows):
        if row.record in found:
            way, layer, module = found[row.record]
            keys[at] = (way, row.slot, layer, module)
    return keys


def shapes_agree(target: str, golden: str, backend: str) -> bool:
    """Whether two shape texts are equal but for dimensions of length one (section 5)."""
    try:
        one, other = ([n for n in ast.literal_eval(text) if n != 1] for text in (target, golden))
    except (ValueError, SyntaxError, TypeError):
        return target == golden
    if backend == "megatron" and len(one) == 3 and len(other) != 3:
        one = [one[0], one[1] * one[2]]
    return one == other


def merged_statistics(parts: Sequence[DumpRow]) -> tuple[Any, ...]:
    """Statistics of the tensor that the parts make together, exactly; None where a part lacks one."""
    sizes = [part.elements for part in parts]
    total = sum(n or 0 for n in sizes)
    found: list[Any] = []
    for at in range(4):
        values = [part.statistics[at] for part in parts]
        if any(isinstance(v, bool) or not isinstance(v, (int, float)) for v in values):
            found.append(None)
        elif any(isinstance(v, float) and math.isnan(v) for v in values):
            found.append(math.nan)
        elif at < 2:
            found.append((max, min)[at](values))
        elif at == 2:
            found.append(math.fsum(v * n / total for v, n in zip(values, sizes, strict=True)) if total else None)
        else:
            found.append(math.hypot(*values))
    return tuple(found)


def joined(parts: Sequence[DumpRow]) -> DumpRow:
    """Several rows as one: the tensors follow each other, but inputs are one tensor that each part was given."""
    first = parts[0]
    axis = None if first.slot.startswith(".input") else 0 if first.section == "parameters" else -1
    return replace(
        first,
        name=";  ".join(p.name for p in parts),
        dtype=";".join(p.dtype for p in parts),
        shape=";".join(p.shape for p in parts),
        statistics=first.statistics if axis is None else merged_statistics(parts),
        data_name=";".join(p.data_name for p in parts) if all(p.data_name for p in parts) else "",
        parts=tuple(parts),
        axis=axis,
    )


def _matched(target: Dump, golden: Dump, backend: str) -> tuple[list[int], list[tuple[list[int], list[int]]], set[Key]]:
    """Target rows that are read; pairs as row numbers of both sides; target keys that the incumbent has too."""
    ours = row_keys(target, backend, training=True, more=True)
    theirs = row_keys(golden, backend, training=False, more=True)
    places: dict[Key, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, keys in enumerate((ours, theirs)):
        for at, key in keys.items():
            places[key][side].append(at)
    plain = [row_keys(d, backend, training=t, more=False) for d, t in ((target, True), (golden, False))]
    known = {key for key, (mine, other) in places.items() if mine and other and plain[0][mine[0]] == plain[1][other[0]]}
    pairs = []
    for mine, other in places.values():
        if not mine or not other:
            continue
        if len(other if backend == "fsdp" else mine) == 1:
            pairs.append((mine, other))
        else:
            pairs += [([one], [two]) for one, two in zip(mine, other, strict=False)]
    return list(ours), pairs, known


def train_infer_pairs(target: Dump, golden: Dump, backend: str) -> list[Found]:
    """Rows of the right report: target row, golden row, group, and ``train`` or ``train table`` where a name of section 6 matched.

    Target rows stand in target order. A golden-only row stands before the next golden row in golden order that a target row met,
    where orders do not cross.
    """
    read, pairs, known = _matched(target, golden, backend)
    ours = row_keys(target, backend, training=True, more=True)
    met: dict[int, Found] = {}
    place: dict[int, int] = {}
    hidden: set[int] = set()
    paired: set[int] = set()
    groups: dict[str, str] = {}
    for mine, other in pairs:
        rows = [joined([d.rows[n] for n in side]) if len(side) > 1 else d.rows[side[0]]
                for d, side in ((target, mine), (golden, other))]  # fmt: skip
        met[mine[0]] = (rows[0], rows[1], rows[0].record, "train" if ours[mine[0]] in known else "train table")
        place[mine[0]] = other[0]
        hidden.update(mine[1:])
        paired.update(other)
        groups.setdefault(rows[1].record, rows[0].record)
    waiting = [n for n in range(len(golden.rows)) if n not in paired]
    result: list[Found] = []
    for at in read:
        if at in hidden:
            continue
        if at in met:
            ahead = [n for n in waiting if n < place[at] and _straight(at, place)]
            result += [_alone(golden.rows[n], groups) for n in ahead]
            waiting = waiting[len(ahead) :]
        row = target.rows[at]
        result.append(met.get(at, (row, None, row.record, "train")))
    return result + [_alone(golden.rows[n], groups) for n in waiting]


def _straight(at: int, place: dict[int, int]) -> bool:
    """Whether a pair stands in the same order as all others on both sides."""
    return all((other < at) == (where < place[at]) for other, where in place.items() if other != at)


def _alone(row: DumpRow, groups: dict[str, str]) -> Found:
    """A golden-only row in the group of the training record that its record met, else in its own."""
    return None, row, groups.get(row.record, f"golden {row.record}"), "train"
