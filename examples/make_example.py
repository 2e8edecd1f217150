"""Makes the example dump pair: one training step of a tiny decoder on two processes, once clean and once with a
planted fault.

    pip install torch mindstudio-probe
    python examples/make_example.py --out examples/two_ranks

The dumps are written by the hooks of mindstudio-probe's ``PrecisionDebugger`` around a real forward pass, backward
pass and gradient all_reduce (gloo, CPU). Only paths inside the json files are shortened afterwards. opassay itself
never runs this file.
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

RANKS = 2
LAYERS = 2
HIDDEN, HEADS, FFN, VOCAB, SEQUENCE = 16, 2, 32, 48, 8


def build_model():
    """Return a decoder-only transformer whose attention spells out matmul and softmax, so that each is an op of
    its own.
    """
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
            self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)
            self.proj = nn.Linear(HIDDEN, HIDDEN)
            self.up, self.down = nn.Linear(HIDDEN, FFN), nn.Linear(FFN, HIDDEN)

        def forward(self, x, mask):
            batch, length, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).split(HIDDEN, dim=-1)
            q, k, v = (part.view(batch, length, HEADS, HIDDEN // HEADS).transpose(1, 2) for part in (q, k, v))
            scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(HIDDEN // HEADS)
            weights = F.softmax(scores + mask, dim=-1)
            heads = torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, HIDDEN)
            x = x + self.proj(heads)
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCAB, HIDDEN)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.norm = nn.LayerNorm(HIDDEN)

        def forward(self, tokens):
            mask = torch.full((tokens.shape[1],) * 2, float("-inf")).triu(1)
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x, mask)
            return F.linear(self.norm(x), self.embedding.weight)

    return Decoder()


def plant_fault() -> None:
    """Give the softmax of the second layer an exponential from a coarse table: its input is rounded to quarters."""
    import torch
    import torch.nn.functional as F

    true_softmax = F.softmax
    calls = 0

    def softmax(scores, dim=-1):
        nonlocal calls
        calls += 1
        if calls != 2:
            return true_softmax(scores, dim=dim)
        rounding = (torch.round(scores * 4) / 4 - scores).nan_to_num(0.0).detach()  # masked positions stay -inf
        return true_softmax(scores + rounding, dim=dim)

    F.softmax = softmax


def train(rank: int, port: int, dump: Path, faulty: bool) -> None:
    """Run one process: the training step between ``start`` and ``stop`` of the debugger."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    if faulty and rank == 1:
        plant_fault()
    from msprobe.pytorch import PrecisionDebugger

    config = dump.parent / f"config_{dump.name}_{rank}.json"
    config.write_text(
        json.dumps(
            {
                "task": "tensor",
                "dump_path": str(dump),
                "rank": [],
                "step": [],
                "level": "L1",
                "tensor": {"scope": [], "list": [], "data_mode": ["all"]},
            }
        )
    )
    debugger = PrecisionDebugger(config_path=str(config))
    torch.manual_seed(0)
    model = build_model()
    with torch.no_grad():
        for parameter in model.parameters():  # layers that say something: scores spread over a few units
            if parameter.dim() == 2:
                parameter.mul_(2.5)
    torch.manual_seed(100 + rank)
    tokens = torch.randint(0, VOCAB, (1, SEQUENCE + 1))
    debugger.start(model)
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.view(-1, VOCAB), tokens[:, 1:].reshape(-1))
    loss.backward()
    bucket = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])  # gradients travel as one bucket
    dist.all_reduce(bucket)
    bucket.div_(RANKS)
    debugger.stop()
    debugger.step()
    config.unlink()
    dist.barrier()
    dist.destroy_process_group()


def shorten_paths(dump: Path) -> None:
    """Cut the folders of the machine that made the dump out of every json file."""
    here = str(Path(__file__).resolve().parent) + os.sep
    for path in dump.rglob("*.json"):
        text = path.read_text().replace(here, "").replace(f"{dump.parent}{os.sep}", "")
        path.write_text(re.sub(r"File /[^\s,]*?/(?:lib/python[0-9.]+/)?(?:site-packages/)", "File ", text))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder that receives target/ and golden/")
    parser.add_argument("--worker", nargs=3, metavar=("RANK", "PORT", "SIDE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    out = options.out.resolve()
    if options.worker:
        rank, port, side = options.worker
        train(int(rank), int(port), out / side, faulty=side == "target")
        return
    out.mkdir(parents=True, exist_ok=True)
    for side in ("golden", "target"):
        shutil.rmtree(out / side, ignore_errors=True)
        port = free_port()
        workers = [
            subprocess.Popen([sys.executable, __file__, "--out", str(out), "--worker", str(rank), str(port), side])
            for rank in range(RANKS)
        ]
        failed = [worker.wait() for worker in workers]
        if any(failed):
            sys.exit(f"the {side} run failed: exit statuses {failed}")
        shorten_paths(out / side)
    print(f"{out}: golden (clean), target (planted fault)")


if __name__ == "__main__":
    main()
