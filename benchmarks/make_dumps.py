"""Makes pairs of dumps with the shapes of a large language model: the same bytes for the same options, and without
torch.

    python -m benchmarks.make_dumps tensor --gb 1 --out build/bench/tensor
    python -m benchmarks.make_dumps small --pairs 100000 --out build/bench/small
    python -m benchmarks.make_dumps statistics --json-mb 300 --out build/bench/statistics
    python -m benchmarks.make_dumps md5 --json-mb 50 --ranks 2 --out build/bench/md5

The target is the golden side plus relative noise, with a wrong output every N ops. At the end every file is
written back, dropped from the page cache and read once, so that what is timed afterwards sees a cache that reading
has filled.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from benchmarks.model_ops import MODELS, Op, Tensor, decoder_ops, small_ops
from benchmarks.pt_files import write_pt

Kind = Literal["tensor", "small", "statistics", "md5"]
KINDS: tuple[Kind, ...] = ("tensor", "small", "statistics", "md5")
SIDES = ("target", "golden")
GB = 1e9


@dataclass(frozen=True, slots=True)
class DumpSpec:
    """What to make.

    Attributes
    ----------
    kind : {"tensor", "small", "statistics", "md5"}
        Large tensors, many tensors of 10 KB, statistics only, or statistics with checksums.
    gb : float
        Bytes of tensors a side over all ranks, in 1e9 (kind tensor).
    pairs : int
        Tensor pairs over all ranks (kind small).
    json_mb : float
        Size of one dump.json, in 1e6 bytes (kinds statistics and md5).
    ranks, fault_every, seed : int
        Ranks; every how many ops an output is wrong (0: never); start of the random numbers.
    noise : float
        Relative noise of the target.
    model : str
        A key of `MODELS`.
    """

    kind: Kind
    gb: float = 1.0
    pairs: int = 10_000
    json_mb: float = 50.0
    ranks: int = 1
    fault_every: int = 97
    noise: float = 1e-5
    model: str = "7b"
    seed: int = 0


@dataclass(slots=True)
class DumpInfo:
    """What was made: pairs of slots, and bytes of both sides."""

    pairs: int = 0
    tensor_bytes: int = 0
    json_bytes: int = 0


class Numbers:
    """A pool of normal random numbers, from which any op takes a slice at its own place."""

    def __init__(self, seed: int, size: int) -> None:
        self._pool = np.random.default_rng(seed).standard_normal(size, dtype=np.float32)

    def take(self, place: int, size: int) -> npt.NDArray[np.float32]:
        """Return `size` numbers from `place` on, going round the pool; shape (size,)."""
        start = place % len(self._pool)
        if start + size <= len(self._pool):
            return self._pool[start : start + size]
        return np.resize(np.roll(self._pool, -start), size)


def as_bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Round finite float32 to bfloat16, ties to even; the result holds the bits."""
    bits = values.view(np.uint32)
    rounded = bits + ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    return (rounded >> np.uint32(16)).astype(np.uint16)


@dataclass(slots=True)
class RankWriter:
    """Writes one side's rank folder: records go out one by one, nothing is kept but names."""

    folder: Path
    kind: Kind
    stored_tensors: bool
    names: dict[str, list[str]] = field(default_factory=dict)
    bytes_json: int = 0
    bytes_tensor: int = 0
    _file: IO[str] | None = None

    def __enter__(self) -> RankWriter:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.stored_tensors:
            (self.folder / "dump_tensor_data").mkdir(exist_ok=True)
        self._file = (self.folder / "dump.json").open("w", encoding="utf-8")
        task = "tensor" if self.stored_tensors else "statistics"
        self._put(
            f'{{\n "task": "{task}",\n "level": "L1",\n "framework": "pytorch",\n "dump_data_dir": null,\n "data": {{'
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._file is not None
        self._put("\n }\n}" if self.names else "}\n}")
        self._file.close()
        groups = []
        for number, (op, members) in enumerate(self.names.items()):
            listed = ",\n".join(f'   "{name}"' for name in members)
            line = f'   "File model.py, line {100 + number}, in forward, \\n y = {op.rsplit(".", 1)[-1]}(x)"'
            caller = '   "File train.py, line 40, in step, \\n model(x)"'
            groups.append(f' "{number}": [\n  [\n{listed}\n  ],\n  [\n{line},\n{caller}\n  ]\n ]')
        (self.folder / "stack.json").write_text("{\n" + ",\n".join(groups) + "\n}", encoding="utf-8")
        (self.folder / "construct.json").write_text("{}", encoding="utf-8")

    def record(self, name: str, op: Op, leaves: list[str]) -> None:
        """Write one record whose slots are already text."""
        split = len(op.inputs)
        text = "," if self.names else ""
        if op.direction == "forward":
            text += f'\n  "{name}": {{\n   "input_args": {_listing(leaves[:split])},\n   "input_kwargs": {{}},\n'
            self.names.setdefault(op.name, []).append(name)
        else:
            text += f'\n  "{name}": {{\n   "input": {_listing(leaves[:split])},\n'
            self.names.setdefault(op.name, [])
        self._put(f'{text}   "output": {_listing(leaves[split:])}\n  }}')

    def tensor_file(self, name: str, data: npt.NDArray[Any], dtype: str, shape: tuple[int, ...]) -> None:
        """Write one tensor file."""
        write_pt(self.folder / "dump_tensor_data" / name, data, dtype, shape)
        self.bytes_tensor += data.nbytes

    def _put(self, text: str) -> None:
        assert self._file is not None
        self._file.write(text)
        self.bytes_json += len(text)


def _listing(leaves: list[str]) -> str:
    return "[\n" + ",\n".join(leaves) + "\n   ]" if leaves else "[]"


def _leaf(tensor: Tensor, stats: tuple[float, ...] | None, checksum: str | None, data_name: str | None) -> str:
    shape = "[" + ",".join(f"\n      {n}" for n in tensor.shape) + ("\n     ]" if tensor.shape else "]")
    values = ["null"] * 4 if stats is None else [_number(v) for v in stats]
    if tensor.dtype == "int64":
        values[2:] = ["null", "null"]
    lines = [
        '"type": "torch.Tensor"',
        f'"dtype": "torch.{tensor.dtype}"',
        f'"shape": {shape}',
        *(f'"{key}": {value}' for key, value in zip(("Max", "Min", "Mean", "Norm"), values, strict=True)),
        f'"requires_grad": {"true" if tensor.requires_grad else "false"}',
    ]
    if checksum is not None:
        lines.append(f'"md5": "{checksum}"')
    if data_name is not None:
        lines.append(f'"data_name": "{data_name}"')
    return "    {\n" + ",\n".join(f"     {line}" for line in lines) + "\n    }"


def _number(value: float) -> str:
    return (
        repr(value)
        if math.isfinite(value)
        else ("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")
    )


def build(spec: DumpSpec, out: Path) -> DumpInfo:
    """Make both sides under ``out/{target,golden}/step0`` and return what was made.

    Raises
    ------
    FileExistsError
        If `out` already holds something.
    """
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out} is not empty; remove it or name another folder with --out")
    info = DumpInfo()
    pool_size = 1 << (24 if spec.kind == "tensor" and spec.model != "tiny" else 20)
    numbers, wobble = Numbers(spec.seed, pool_size), Numbers(spec.seed + 1, pool_size)
    for rank in range(spec.ranks):
        folders = [out / side / "step0" / f"rank{rank}" for side in SIDES]
        stored = spec.kind in ("tensor", "small")
        with RankWriter(folders[0], spec.kind, stored) as target, RankWriter(folders[1], spec.kind, stored) as golden:
            for count, (name, op) in enumerate(_named_ops(spec)):
                if _enough(spec, golden, info.pairs, rank):
                    break
                faulty = spec.fault_every > 0 and count % spec.fault_every == spec.fault_every - 1
                leaves: tuple[list[str], list[str]] = ([], [])
                for slot, tensor in enumerate((*op.inputs, *op.outputs)):
                    is_output = slot >= len(op.inputs)
                    label = f"output.{slot - len(op.inputs)}" if is_output else f"input.{slot}"
                    place = (rank * 7919 + info.pairs) * 12289
                    wrong = faulty and is_output
                    make = _stored_pair if stored else _described_pair
                    texts = make(spec, (target, golden), tensor, f"{name}.{label}", (numbers, wobble), place, wrong)
                    for side, text in zip(leaves, texts, strict=True):
                        side.append(text)
                    info.pairs += 1
                target.record(name, op, leaves[0])
                golden.record(name, op, leaves[1])
        for writer in (target, golden):
            info.tensor_bytes += writer.bytes_tensor
            info.json_bytes += writer.bytes_json
    return info


def _enough(spec: DumpSpec, golden: RankWriter, pairs: int, rank: int) -> bool:
    if spec.kind == "tensor":
        return golden.bytes_tensor >= spec.gb * GB / spec.ranks
    if spec.kind == "small":
        return pairs >= spec.pairs * (rank + 1) // spec.ranks
    return golden.bytes_json >= spec.json_mb * 1e6


def _named_ops(spec: DumpSpec) -> Iterator[tuple[str, Op]]:
    ops = small_ops() if spec.kind == "small" else decoder_ops(MODELS[spec.model])
    calls: dict[tuple[str, str], int] = {}
    while True:
        for op in ops:
            index = calls.get((op.name, op.direction), 0)
            calls[op.name, op.direction] = index + 1
            yield f"{op.name}.{index}.{op.direction}", op


def _stored_pair(
    spec: DumpSpec,
    writers: tuple[RankWriter, RankWriter],
    tensor: Tensor,
    slot_name: str,
    pools: tuple[Numbers, Numbers],
    place: int,
    wrong: bool,
) -> list[str]:
    """Write the two files of one slot and return its two leaves."""
    numbers, wobble = pools
    size = math.prod(tensor.shape)
    base = numbers.take(place, size)
    near = numbers.take(place + 4099, size) if wrong else base * (1 + np.float32(spec.noise) * wobble.take(place, size))
    texts = []
    for writer, values in zip(writers, (near, base), strict=True):
        data: npt.NDArray[Any] = values
        if tensor.dtype == "int64":
            data = (np.abs(base) * 1000).astype(np.int64)
        elif tensor.dtype == "bfloat16":
            data = as_bfloat16(values)
        file_name = f"{slot_name}.pt"
        writer.tensor_file(file_name, data, tensor.dtype, tensor.shape)
        shown = data if tensor.dtype == "int64" else values
        norm = float(np.sqrt(np.dot(values, values)))
        stats = (shown.max().item(), shown.min().item(), float(values.mean()), norm)
        texts.append(_leaf(tensor, stats, None, file_name))
    return texts


def _described_pair(
    spec: DumpSpec,
    writers: tuple[RankWriter, RankWriter],
    tensor: Tensor,
    slot_name: str,
    pools: tuple[Numbers, Numbers],
    place: int,
    wrong: bool,
) -> list[str]:
    """Return the two leaves of one slot whose tensor is not stored: statistics as a tensor of that shape would have."""
    root = math.sqrt(math.prod(tensor.shape))
    z = pools[0].take(place, 4)
    golden: tuple[float, ...] = (
        abs(float(z[0])) + 3,
        -abs(float(z[1])) - 3,
        float(z[2]) / root,
        root * (1 + 0.01 * float(z[3])),
    )
    near: tuple[float, ...]
    if tensor.dtype == "int64":
        golden = (int(abs(z[0]) * 1000), 0, 0, 0)
        near = golden
    else:
        factors = [2.0] * 4 if wrong else [1 + spec.noise * float(e) for e in pools[1].take(place, 4)]
        near = tuple(float(np.float32(v * f)) for v, f in zip(golden, factors, strict=True))
        golden = tuple(float(np.float32(v)) for v in golden)
    checksums: list[str | None] = [None, None]
    if spec.kind == "md5":
        golden_sum = f"{zlib.crc32(slot_name.encode()):08x}"
        changed = wrong or place % 10 == 0
        checksums = [f"{zlib.crc32(golden_sum.encode()):08x}" if changed else golden_sum, golden_sum]
    return [_leaf(tensor, stats, total, None) for stats, total in zip((near, golden), checksums, strict=True)]


def refill_cache(folder: Path) -> int:
    """Write every file back, drop it from the page cache and read it once; returns the bytes read."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    os.sync()
    total = 0
    for path in files:
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(1 << 20):
                total += len(chunk)
    return total


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--out", type=Path, required=True, help="empty folder for target/ and golden/")
    parser.add_argument("--gb", type=float, default=DumpSpec("tensor").gb, help="1e9 bytes of tensors a side")
    parser.add_argument("--pairs", type=int, default=DumpSpec("small").pairs, help="tensor pairs (kind small)")
    parser.add_argument("--json-mb", type=float, default=DumpSpec("md5").json_mb, help="1e6 bytes of one dump.json")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--fault-every", type=int, default=97, help="a wrong output every N ops; 0: never")
    parser.add_argument("--noise", type=float, default=1e-5, help="relative noise of the target")
    parser.add_argument("--model", choices=sorted(MODELS), default="7b")
    parser.add_argument("--seed", type=int, default=0)
    options = vars(parser.parse_args(argv))
    out = options.pop("out")
    began = time.perf_counter()
    try:
        info = build(DumpSpec(**options), out)
    except OSError as error:
        print(f"make_dumps: {error}", file=sys.stderr)
        return 2
    refill_cache(out)
    print(
        f"{out}: {info.pairs} pairs, {info.tensor_bytes / GB:.3f} GB of tensors and {info.json_bytes / 1e6:.1f} MB of "
        f"dump.json on both sides, {time.perf_counter() - began:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
