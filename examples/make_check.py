"""Makes the example dumps of the accuracy check: one training step of a tiny decoder under bfloat16 autocast, once with
statistics and once with tensors.

    pip install torch mindstudio-probe
    python examples/make_check.py --out examples/check

The dumps are written by the hooks of mindstudio-probe's ``PrecisionDebugger`` (level L1) around a real forward and
backward pass on the CPU. Only what the check does not read is left out afterwards. opassay itself never runs this file.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HIDDEN, HEADS, FFN, VOCAB, SEQUENCE = 8, 2, 16, 24, 6
TASKS = ("statistics", "tensor")


def train(task: str, out: Path) -> None:
    """Run the step between ``start`` and ``stop`` of the debugger and keep what the check reads."""
    import torch
    import torch.nn.functional as F
    from msprobe.pytorch import PrecisionDebugger
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
            self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)
            self.proj = nn.Linear(HIDDEN, HIDDEN)
            self.up, self.down = nn.Linear(HIDDEN, FFN), nn.Linear(FFN, HIDDEN)

        def forward(self, x):
            batch, length, _ = x.shape
            q, k, v = torch.split(self.qkv(self.norm1(x)), HIDDEN, dim=-1)
            q, k, v = (part.reshape(batch, length, HEADS, HIDDEN // HEADS).permute(0, 2, 1, 3) for part in (q, k, v))
            scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(HIDDEN // HEADS)
            mask = torch.triu(torch.ones(length, length), diagonal=1).bool()
            weights = F.dropout(F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1), 0.1)
            heads = torch.matmul(weights, v).permute(0, 2, 1, 3).reshape(batch, length, HIDDEN)
            x = x + self.proj(heads)
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    torch.manual_seed(0)
    torch.set_num_threads(1)
    embedding, block, norm = nn.Embedding(VOCAB, HIDDEN), Block(), nn.LayerNorm(HIDDEN)
    model = nn.ModuleList([embedding, block, norm])
    tokens = torch.randint(0, VOCAB, (1, SEQUENCE + 1))
    with tempfile.TemporaryDirectory() as scratch:
        settings = {"task": task, "dump_path": scratch, "rank": [], "step": [], "level": "L1"}
        settings[task] = {"scope": [], "list": [], "data_mode": ["all"]}
        config = Path(scratch, "config.json")
        config.write_text(json.dumps(settings))
        debugger = PrecisionDebugger(config_path=str(config))
        debugger.start(model)
        with torch.autocast("cpu", torch.bfloat16):
            logits = F.linear(norm(block(embedding(tokens[:, :-1]))), embedding.weight)
            loss = F.cross_entropy(logits.reshape(-1, VOCAB), tokens[:, 1:].reshape(-1))
        loss.backward()
        debugger.stop()
        debugger.step()
        (dump,) = Path(scratch).rglob("dump.json")
        keep(dump, out)


def keep(dump: Path, out: Path) -> None:
    """Copy the dump.json, without the places of the machine that made it, and its tensors."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    document = json.loads(dump.read_text())
    tensors = dump.parent / "dump_tensor_data"
    has_tensors = tensors.is_dir() and any(tensors.iterdir())
    document["dump_data_dir"] = tensors.name if has_tensors else None
    (out / "dump.json").write_text(json.dumps(document, indent=1) + "\n")
    if has_tensors:
        read = {  # the check reads what goes in; outputs are computed anew
            item["data_name"]
            for name, record in document["data"].items()
            for item in described(
                record["input"] if name.endswith("backward") else [record["input_args"], record["input_kwargs"]]
            )
        }
        (out / tensors.name).mkdir()
        for name in sorted(read):
            shutil.copyfile(tensors / name, out / tensors.name / name)


def described(value: object):
    """All tensor descriptors with a file, wherever they stand."""
    if isinstance(value, dict):
        if value.get("data_name"):
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from described(item)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder that receives statistics/ and tensor/")
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    out = options.out.resolve()
    if options.task:
        train(options.task, out / options.task)
        return
    for task in TASKS:  # the debugger is one a process
        subprocess.run([sys.executable, __file__, "--out", str(out), "--task", task], check=True)


if __name__ == "__main__":
    main()
