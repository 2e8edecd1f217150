"""Makes the example dumps of docs/matching.md: pairs of runs whose operators do not bear the same names.

    pip install torch mindstudio-probe
    python examples/make_matching.py --out examples/matching

Each folder holds a situation; ``golden`` and ``target`` compute the same thing from the same weights, and in ``target`` (in
``train_infer``: in ``golden``) one op was made wrong on purpose. The dumps are written by the hooks of mindstudio-probe's
``PrecisionDebugger``. Wrappers such as FSDP, torch.compile and vLLM are imitated: modules bear the names and classes that those give
them. Only paths inside the json files are shortened afterwards. opassay itself never runs this file.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

PROCESSES = {"shards": {"target": 2}}  # all other runs are one process
LEVELS = {"drift": "L1", "modules": "L0", "rows": "L1", "train_infer": "L0", "shards": "L1"}
WITH_TENSORS = ("train_infer", "shards")
HIDDEN, FFN, VOCAB, TOKENS, BLOCKS = 16, 32, 32, 8, 2
HEADS, GROUPS, HEAD = 4, 2, 4  # query heads, key and value heads, size of each


def drift(side: str):
    """Two blocks of functional calls; the target looks at the embedding with one more gelu and one more linear, so the numbers of
    all their later calls move. Fault: its gelu of the second block doubles what it is given.
    """
    import torch
    import torch.nn.functional as F
    from torch import nn

    if side == "target":
        true_gelu, calls = F.gelu, []

        def gelu(x):
            calls.append(x)
            return true_gelu(x + x if len(calls) == 3 else x)

        F.gelu = gelu

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(VOCAB, HIDDEN))
            self.up = nn.ParameterList(nn.Parameter(torch.randn(FFN, HIDDEN) / 4) for _ in range(BLOCKS))
            self.down = nn.ParameterList(nn.Parameter(torch.randn(HIDDEN, FFN) / 4) for _ in range(BLOCKS))

        def forward(self, tokens):
            x = F.embedding(tokens, self.table)
            if side == "target":  # a look at the numbers, the result is thrown away
                F.linear(F.gelu(x.detach()), self.table)
            for up, down in zip(self.up, self.down, strict=True):
                x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, (HIDDEN,)), up)), down)
            return F.linear(x, self.table)

    return Net()


def modules(side: str):
    """The same network in two spellings. Fault: the target's second RowParallelLinear adds up what is added up already, as an
    all_reduce too many on two devices would.
    """
    import torch.nn.functional as F
    from torch import nn

    class ColumnParallelLinear(nn.Linear):
        pass

    class RowParallelLinear(nn.Linear):
        summed_twice = False

        def forward(self, x):
            out = super().forward(x)
            return out + out if self.summed_twice else out

    class OptimizedModule(nn.Module):
        """What torch.compile returns: the module under ``_orig_mod``."""

        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self._orig_mod = inner

        def forward(self, x):
            return self._orig_mod(x)

    class FullyShardedDataParallel(nn.Module):
        """What FSDP makes of a module: it stands under ``_fsdp_wrapped_module``."""

        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self._fsdp_wrapped_module = inner

        def forward(self, x):
            return self._fsdp_wrapped_module(x)

    class Timed(nn.Module):
        """A wrapper of the house, which nobody else knows."""

        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.timed = inner

        def forward(self, x):
            return self.timed(x)

    class MLP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(HIDDEN, FFN), nn.Linear(FFN, HIDDEN)

        def forward(self, x):
            return self.down(F.gelu(self.up(x)))

    class ParallelMLP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense_h_to_4h = ColumnParallelLinear(HIDDEN, FFN)
            self.dense_4h_to_h = RowParallelLinear(FFN, HIDDEN)

        def forward(self, x):
            return self.dense_4h_to_h(F.gelu(self.dense_h_to_4h(x)))

    class Block(nn.Module):
        def __init__(self, mlp: nn.Module) -> None:
            super().__init__()
            self.norm, self.mlp = nn.LayerNorm(HIDDEN), mlp

        def forward(self, x):
            return x + self.mlp(self.norm(x))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            make = ParallelMLP if side == "target" else MLP
            self.embedding = nn.Embedding(VOCAB, HIDDEN)
            self.blocks = nn.ModuleList(Block(make()) for _ in range(BLOCKS))
            if side == "target":
                self.output_layer = nn.Linear(HIDDEN, VOCAB)
            else:
                self.lm_head = nn.Linear(HIDDEN, VOCAB)

        def forward(self, tokens):
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x)
            return (self.output_layer if side == "target" else self.lm_head)(x)

    net = Net()
    if side == "target":
        net.blocks[1].mlp.dense_4h_to_h.summed_twice = True
        net.embedding = Timed(net.embedding)
        net.blocks = nn.ModuleList([OptimizedModule(net.blocks[0]), FullyShardedDataParallel(net.blocks[1])])
    return net


def rows(side: str):
    """Attention and the last projection by other calls: fused and einsum on the target, spelt out and linear on the golden side.
    Fault: the target's fused call drops half of the weights.
    """
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(VOCAB, HIDDEN))
            self.qkv = nn.Parameter(torch.randn(3 * HIDDEN, HIDDEN) / 2)
            self.proj = nn.Parameter(torch.randn(HIDDEN, HIDDEN) / 4)

        def forward(self, tokens):
            x = F.embedding(tokens, self.table)
            q, k, v = F.linear(F.layer_norm(x, (HIDDEN,)), self.qkv).split(HIDDEN, dim=-1)
            q, k, v = (part.view(1, TOKENS, HEADS, HEAD).transpose(1, 2) for part in (q, k, v))
            if side == "target":
                heads = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.5)
            else:
                mask = torch.full((TOKENS, TOKENS), float("-inf")).triu(1)
                weights = F.softmax(torch.matmul(q, k.transpose(2, 3)) / math.sqrt(HEAD) + mask, dim=-1)
                heads = torch.matmul(weights, v)
            x = x + F.linear(heads.transpose(1, 2).reshape(1, TOKENS, HIDDEN), self.proj)
            if side == "target":
                return torch.einsum("bth,vh->btv", x, self.table)
            return F.linear(x, self.table)

    return Net()


def train_infer(side: str):
    """A decoder of one layer as Hugging Face names it, under FSDP (target, trained), and as vLLM names it (golden, prefill). Fault:
    vLLM's rotary embedding has another base.
    """
    import torch
    import torch.nn.functional as F
    from torch import nn

    training = side == "target"

    def rotate(x):
        """Rotary embedding of [tokens, heads, size]."""
        angles = torch.arange(TOKENS)[:, None] * (1e6 if training else 1e4) ** (-torch.arange(0, HEAD, 2) / HEAD)
        cos, sin = angles.cos().repeat(1, 2)[:, None], angles.sin().repeat(1, 2)[:, None]
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-second, first], dim=-1) * sin

    def attend(q, k, v):
        """Causal attention of [tokens, heads, size] with grouped keys."""
        q, k, v = (part.transpose(0, 1) for part in (q, k, v))
        k, v = (part.repeat_interleave(HEADS // GROUPS, dim=0) for part in (k, v))
        scores = q @ k.transpose(1, 2) / math.sqrt(HEAD) + torch.full((TOKENS, TOKENS), float("-inf")).triu(1)
        return (scores.softmax(-1) @ v).transpose(0, 1).reshape(TOKENS, HEADS * HEAD)

    def heads(x, count):
        return x.reshape(TOKENS, count, HEAD)

    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(HIDDEN))

        def forward(self, x, residual=None):
            total = x if residual is None else x + residual
            normed = F.rms_norm(total, (HIDDEN,), self.weight, 1e-6)
            return normed if training else (normed, total)

    def linear(kind, inner, outer, bias=False):
        return type(kind, (nn.Linear,), {})(inner, outer, bias=bias)

    def norm():
        return type("Qwen2RMSNorm" if training else "RMSNorm", (Norm,), {})()

    class Attention(nn.Module):
        def forward(self, q, k, v):
            return attend(heads(q, HEADS), heads(k, GROUPS), heads(v, GROUPS))

    class RotaryEmbedding(nn.Module):
        def forward(self, q, k):
            return rotate(heads(q, HEADS)).flatten(1), rotate(heads(k, GROUPS)).flatten(1)

    class SiluAndMul(nn.Module):
        def forward(self, x):
            gate, up = x.chunk(2, dim=-1)
            return F.silu(gate) * up

    class Qwen2Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [HEADS * HEAD, GROUPS * HEAD, GROUPS * HEAD]
            if training:
                self.q_proj, self.k_proj, self.v_proj = (linear("Linear", HIDDEN, width, bias=True) for width in widths)
                self.o_proj = linear("Linear", HEADS * HEAD, HIDDEN)
            else:
                self.qkv_proj = linear("QKVParallelLinear", HIDDEN, sum(widths), bias=True)
                self.rotary_emb, self.attn = RotaryEmbedding(), Attention()
                self.o_proj = linear("RowParallelLinear", HEADS * HEAD, HIDDEN)
            self.widths = widths

        def forward(self, x):
            if training:
                q, k, v = (projection(x)[0] for projection in (self.q_proj, self.k_proj, self.v_proj))
                return self.o_proj(attend(rotate(heads(q, HEADS)), rotate(heads(k, GROUPS)), heads(v, GROUPS))[None])
            q, k, v = self.qkv_proj(x).split(self.widths, dim=-1)
            return self.o_proj(self.attn(*self.rotary_emb(q, k), v))

    class Qwen2MLP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if training:
                self.gate_proj, self.up_proj = (linear("Linear", HIDDEN, FFN) for _ in range(2))
                self.down_proj, self.act_fn = linear("Linear", FFN, HIDDEN), nn.SiLU()
            else:
                self.gate_up_proj = linear("MergedColumnParallelLinear", HIDDEN, 2 * FFN)
                self.down_proj, self.act_fn = linear("RowParallelLinear", FFN, HIDDEN), SiluAndMul()

        def forward(self, x):
            if training:
                return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
            return self.down_proj(self.act_fn(self.gate_up_proj(x)))

    class Qwen2DecoderLayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.input_layernorm, self.post_attention_layernorm = norm(), norm()
            self.self_attn, self.mlp = Qwen2Attention(), Qwen2MLP()

        def forward(self, x, residual=None):
            if training:
                x = x + self.self_attn(self.input_layernorm(x))
                return x + self.mlp(self.post_attention_layernorm(x))
            x, residual = self.input_layernorm(x, residual)
            x, residual = self.post_attention_layernorm(self.self_attn(x), residual)
            return self.mlp(x), residual

    class FullyShardedDataParallel(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self._fsdp_wrapped_module = inner

        def forward(self, *inputs):
            return self._fsdp_wrapped_module(*inputs)

    class Qwen2Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed_tokens = type("Embedding" if training else "VocabParallelEmbedding", (nn.Embedding,), {})(
                VOCAB, HIDDEN
            )
            self.layers = nn.ModuleList(Qwen2DecoderLayer() for _ in range(1))
            self.norm = norm()

        def forward(self, tokens):
            x, residual = self.embed_tokens(tokens), None
            for layer in self.layers:
                x, residual = (layer(x), None) if training else layer(x, residual)
            return self.norm(x) if training else self.norm(x, residual)[0]

    class Qwen2ForCausalLM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = Qwen2Model()

        def forward(self, tokens):
            return self.model(tokens)

    net = Qwen2ForCausalLM()
    generator = torch.Generator().manual_seed(7)

    def fill(weight, *shapes):
        """Split or fused, the same numbers: drawn part by part."""
        with torch.no_grad():
            parts = [torch.randn(shape, generator=generator) / 3 for shape in shapes]
            if isinstance(weight, list):
                for one, part in zip(weight, parts, strict=True):
                    one.copy_(part)
            else:
                weight.copy_(torch.cat(parts))

    fill(net.model.embed_tokens.weight, (VOCAB, HIDDEN))
    for layer in net.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        apart = [attention.q_proj, attention.k_proj, attention.v_proj] if training else []
        both = [mlp.gate_proj, mlp.up_proj] if training else []
        fill(
            [one.weight for one in apart] or attention.qkv_proj.weight, *((width, HIDDEN) for width in attention.widths)
        )
        fill([one.bias for one in apart] or attention.qkv_proj.bias, *((width,) for width in attention.widths))
        fill(attention.o_proj.weight, (HIDDEN, HEADS * HEAD))
        fill([one.weight for one in both] or mlp.gate_up_proj.weight, (FFN, HIDDEN), (FFN, HIDDEN))
        fill(mlp.down_proj.weight, (HIDDEN, FFN))
    if training:
        net.model.layers = nn.ModuleList(FullyShardedDataParallel(layer) for layer in net.model.layers)
        net = FullyShardedDataParallel(net)
    return net


def shards(side: str, rank: int = 0):
    """An MLP whose two matrices are cut across two processes as Megatron cuts them (target), and whole (golden). Fault: rank 1
    rounds what goes into its gelu to quarters.
    """
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch import nn

    cut = side == "target"
    if cut and rank == 1:
        true_gelu = F.gelu
        F.gelu = lambda x: true_gelu(x + (torch.round(x * 4) / 4 - x).detach())

    class Spread(torch.autograd.Function):
        """Each process takes all of the input; their gradients are added up."""

        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            dist.all_reduce(gradient)
            return gradient

    class AddUp(torch.autograd.Function):
        """The sum of what the processes hold; each takes all of the gradient."""

        @staticmethod
        def forward(ctx, x):
            total = x.clone()
            dist.all_reduce(total)
            return total

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            table, up, down = torch.randn(VOCAB, HIDDEN), torch.randn(FFN, HIDDEN) / 2, torch.randn(HIDDEN, FFN) / 4
            if cut:
                up, down = up.chunk(2, dim=0)[rank].contiguous(), down.chunk(2, dim=1)[rank].contiguous()
            self.table, self.up, self.down = nn.Parameter(table), nn.Parameter(up), nn.Parameter(down)

        def forward(self, tokens):
            x = F.embedding(tokens, self.table)
            normed = F.layer_norm(x, (HIDDEN,))
            part = F.linear(F.gelu(F.linear(Spread.apply(normed) if cut else normed, self.up)), self.down)
            x = x + (AddUp.apply(part) if cut else part)
            return F.linear(F.layer_norm(x, (HIDDEN,)), self.table)

    return Net()


def run(situation: str, side: str, rank: int, port: int, dump: Path) -> None:
    """One process: a forward pass, and a backward pass unless the run is one of inference, under the debugger."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    processes = PROCESSES.get(situation, {}).get(side, 1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=processes)
    torch.manual_seed(0)
    build = globals()[situation]
    model = build(side, rank) if situation == "shards" else build(side)
    from msprobe.pytorch import PrecisionDebugger

    task = "tensor" if situation in WITH_TENSORS else "statistics"
    kinds = {"scope": [], "list": [], "data_mode": ["all"]}
    config = dump.parent / f"config_{side}_{rank}.json"
    config.write_text(
        json.dumps(
            {"task": task, "dump_path": str(dump), "rank": [], "step": [], "level": LEVELS[situation], task: kinds}
        )
    )
    debugger = PrecisionDebugger(config_path=str(config))
    inference = situation == "train_infer" and side == "golden"
    torch.manual_seed(1)
    tokens = torch.randint(0, VOCAB, (TOKENS,) if inference else (1, TOKENS))
    debugger.start([model] if situation == "modules" and side == "target" else model)
    with torch.inference_mode(inference):
        out = model(tokens)
    if not inference:
        out.square().mean().backward()
    debugger.stop()
    debugger.step()
    config.unlink()
    dist.barrier()
    dist.destroy_process_group()


def shorten_paths(dump: Path) -> None:
    """Cut the folders of the machine that made the dump out of every json file."""
    here = str(Path(__file__).resolve().parent) + os.sep
    for path in dump.rglob("*.json"):
        text = path.read_text().replace(f"{dump.parents[1]}{os.sep}", "").replace(here, "")
        path.write_text(re.sub(r"File /[^\s,]*?/(?:lib/python[0-9.]+/)?(?:site-packages/)", "File ", text))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder that receives a folder a situation")
    parser.add_argument("--only", choices=tuple(LEVELS), help="make one situation anew")
    parser.add_argument("--worker", nargs=4, metavar=("SITUATION", "SIDE", "RANK", "PORT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    out = options.out.resolve()
    if options.worker:
        situation, side, rank, port = options.worker
        run(situation, side, int(rank), int(port), out / situation / side)
        return
    for situation in [options.only] if options.only else LEVELS:
        for side in ("golden", "target"):
            dump = out / situation / side
            shutil.rmtree(dump, ignore_errors=True)
            dump.parent.mkdir(parents=True, exist_ok=True)
            port = str(free_port())
            workers = [
                subprocess.Popen(
                    [sys.executable, __file__, "--out", str(out), "--worker", situation, side, str(rank), port]
                )
                for rank in range(PROCESSES.get(situation, {}).get(side, 1))
            ]
            failed = [worker.wait() for worker in workers]
            if any(failed):
                sys.exit(f"the {side} run of {situation} failed: exit statuses {failed}")
            shorten_paths(dump)
    print(f"{out}: {', '.join(LEVELS)}")


if __name__ == "__main__":
    main()
