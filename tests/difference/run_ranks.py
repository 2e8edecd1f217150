"""Real processes with real collectives (gloo) write a dump each, one folder a scenario.

    python -m tests.difference.run_ranks OUT

writes ``OUT/SCENARIO/{target,golden}/{statistics,md5,tensor}/step0/rankN``. The records are laid out as the dump tool has them:
what a call is given is recorded before it, what it gives back after it, receive buffers and the output of ``isend`` are null.
"""

from __future__ import annotations

import json
import multiprocessing
import operator
import sys
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.difference.plants import PLANTS, Fault, Plant

Leaf = Any  # a tensor, a list of leaves, or a record that is ready


class Recorder:
    """Calls ops, lets faults happen, and keeps a record of each.

    Parameters
    ----------
    rank : int
        This process.
    plant : Plant
        Which records are masked.
    faults : sequence of Fault
        Those of this rank; none on the golden side.
    """

    def __init__(self, rank: int, plant: Plant, faults: Sequence[Fault]) -> None:
        self.rank = rank
        self.records: dict[str, dict[str, Any]] = {}
        self._faults = faults
        self._masked = {(op, side) for at, op, side in plant.masked if at == rank}
        self._counts: dict[str, int] = {}

    def compute(self, api: str, function: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
        """An op that computes."""
        name = self._name(api)
        for fault in self._at(name, before=True):
            harm(args[-1], fault.effect)
        given = [recorded(one) for one in args]
        result = function(*args)
        for fault in self._at(name):
            result = harm(result, fault.effect)
        self._keep(name, {"input_args": given, "input_kwargs": {}, "output": [recorded(result)]})
        for fault in self._at(name):
            if fault.effect == "extra":
                self.compute("Torch.relu", torch.relu, result.abs())
            elif fault.effect == "drop":
                del self.records[name]
            elif fault.effect == "negated":
                return self.compute("Torch.neg", torch.neg, result)
        return result[:4].float() if result.dim() == 2 and result.shape[0] == 5 else result.float()

    def backward(self, forward: str, result: torch.Tensor, inputs: Sequence[torch.Tensor], given: torch.Tensor) -> Any:
        """The backward of an op."""
        name = forward.replace(".forward", ".backward")
        gradients = list(torch.autograd.grad(result, list(inputs), given))
        for fault in self._at(name):
            gradients = [harm(one, fault.effect) for one in gradients]
        self._keep(name, {"input": [recorded(given)], "output": [recorded(one) for one in gradients]})
        return gradients

    def talk(
        self, api: str, *args: Any, into: Sequence[int] = (), change: int = 0, **kwargs: Any
    ) -> Callable[[], None]:
        """A communication; ``into`` are the arguments that it only fills, ``change`` the one that it changes.

        Returns
        -------
        callable
            Waits for it and records what came of it, where it is asynchronous; else that is done already.
        """
        name = self._name(f"Distributed.{api}")
        for fault in self._at(name, before=True):
            harm(args[0], fault.effect)
        before = [None if place in into else recorded(one) for place, one in enumerate(args)]
        more = {key: recorded(one) for key, one in kwargs.items()}
        record: dict[str, Any] = {"input_args": before, "input_kwargs": more, "output": []}
        self.records[name] = record
        work = getattr(dist, api)(*args, **kwargs)
        waits = isinstance(work, dist.Work)

        def finish() -> None:
            if waits:
                work.wait()
            for fault in self._at(name):
                harm(args[change], fault.effect)
            after = [recorded(one) for one in args]
            record["output"] = [*([None, *after[1:]] if api == "isend" else after), *more.values()]
            self._keep(name, record)

        if not waits:
            finish()
        return finish

    def batch(self, sent: torch.Tensor, to: int, buffer: torch.Tensor, source: int) -> None:
        """One send and one receive at once."""
        name = self._name("Distributed.batch_isend_irecv")
        for fault in self._at(name, before=True):
            harm(sent, fault.effect)
        ends = (("isend", sent, to), ("irecv", buffer, source))
        before = [message(op, tensor, peer) for op, tensor, peer in ends]
        for work in dist.batch_isend_irecv([dist.P2POp(getattr(dist, op), tensor, peer) for op, tensor, peer in ends]):
            work.wait()
        for fault in self._at(name):
            harm(buffer, fault.effect)
        after = [message(op, tensor, peer) for op, tensor, peer in ends]
        self._keep(name, {"input_args": [before], "input_kwargs": {}, "output": [after]})

    def _name(self, api: str) -> str:
        number = self._counts[api] = self._counts.get(api, -1) + 1
        return f"{api}.{number}.forward"

    def _at(self, name: str, *, before: bool = False) -> list[Fault]:
        return [fault for fault in self._faults if fault.op == name and fault.before is before]

    def _keep(self, name: str, record: dict[str, Any]) -> None:
        for key in record:
            if (name, key.partition("_")[0]) in self._masked and key != "input_kwargs":
                record[key] = [None if isinstance(one, torch.Tensor) else one for one in record[key]]
        self.records[name] = record


def harm(tensor: torch.Tensor, effect: str) -> torch.Tensor:
    """Damage a tensor (or each of a list), in place where its kind stays."""
    if isinstance(tensor, list):
        for one in tensor:
            harm(one, effect)
        return tensor[0]
    with torch.no_grad():
        if effect == "times":
            tensor *= 3
        elif effect == "shift":
            tensor += 0.3
        elif effect in ("nan", "inf"):
            tensor[0, 0] = float(effect)
    if effect == "double":
        return tensor.double()
    return torch.cat([tensor, tensor[:1]]) if effect == "row" else tensor


def recorded(value: Any) -> Leaf:
    """What the record of a value needs, as it is now."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, (list, tuple)):
        return [recorded(one) for one in value]
    if isinstance(value, dist.ProcessGroup):
        ranks = dist.get_process_group_ranks(value)
        return {
            "type": "torch.ProcessGroup",
            "group_ranks": ranks,
            "group_id": f"{zlib.crc32(str(ranks).encode()):08x}",
        }
    if isinstance(value, dist.ReduceOp.RedOpType):
        return {"type": "torch.distributed.ReduceOp", "value": f"RedOpType.{value.name}"}
    return {"type": type(value).__name__, "value": value}


def message(op: str, tensor: torch.Tensor, peer: int) -> dict[str, Any]:
    """One operation of a batch."""
    return {
        "class_type": "torch.distributed.P2POp",
        "tensor": recorded(tensor),
        "op": op,
        "peer": peer,
        "tag": 0,
        "group_id": "",
    }


def step(run: Recorder, world: int, pair: dist.ProcessGroup) -> None:
    """What each rank does: forward with every kind of communication, backward, the sum of gradients."""
    rank, partner = run.rank, run.rank ^ 1
    after, earlier = (rank + 1) % world, (rank - 1) % world
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(rank)) + 1
    weight = torch.randn(8, 8, generator=torch.Generator().manual_seed(99)).requires_grad_()

    hidden = run.compute("Torch.matmul", torch.matmul, x, weight)
    value = run.compute("Functional.gelu", torch.nn.functional.gelu, hidden.detach())
    run.compute("Tensor.__sub__", operator.sub, value, value)
    run.compute("Torch.floor", torch.floor, value)
    total = value.clone()
    run.talk("all_reduce", total)
    scaled = run.compute("Tensor.__mul__", operator.mul, total, 0.25)
    of_pair = scaled + rank
    run.talk("all_reduce", of_pair, op=dist.ReduceOp.SUM, group=pair)
    bent = run.compute("Torch.tanh", torch.tanh, of_pair)
    whole = torch.zeros(4 * world, 8)
    run.talk("all_gather_into_tensor", whole, bent, into=[0])
    parts = [torch.zeros(4, 8), torch.zeros(4, 8)]
    run.talk("all_gather", parts, bent, group=pair, into=[0])
    joined = run.compute("Torch.cat", torch.cat, parts)
    piece = torch.zeros(4, 8)
    run.talk("reduce_scatter_tensor", piece, whole + rank, into=[0])
    share = torch.zeros(4, 8)
    run.talk("reduce_scatter", share, [piece + number for number in range(world)], into=[0])
    gate = run.compute("Torch.sigmoid", torch.sigmoid, share / 50)
    copied = gate + rank
    run.talk("broadcast", copied, src=0)
    held = torch.zeros(4, 8)
    if rank % 2:
        run.talk("recv", held, partner, into=[0])
    else:
        held = gate + copied
        run.talk("send", held, partner)
    come = torch.zeros(4, 8)
    sending = run.talk("isend", held + rank, after)
    receiving = run.talk("irecv", come, earlier, into=[0])
    receiving()
    sending()
    ringed = run.compute("Tensor.__add__", operator.add, come, joined[:4])
    taken = torch.zeros(4, 8)
    run.batch(ringed.clone(), after, taken, earlier)

    leaf = taken.requires_grad_()
    last = run.compute("Torch.softmax", torch.softmax, leaf, -1)
    (gradient,) = run.backward("Torch.softmax.0.forward", last, [leaf], torch.ones(4, 8) + held)
    _, of_weight = run.backward(
        "Torch.matmul.0.forward", torch.matmul(x.requires_grad_(), weight), [x, weight], gradient
    )
    run.talk("all_reduce", of_weight)
    run.compute("Tensor.__mul__", operator.mul, of_weight, 0.1)


class Writer:
    """Writes the records of a rank as the dump tool does."""

    def __init__(self, folder: Path, task: str) -> None:
        self._folder, self._task = folder, task
        self._store = folder / "dump_tensor_data"

    def write(self, records: dict[str, dict[str, Any]]) -> None:
        """One dump.json, with the tensors beside it in task ``tensor``."""
        (self._store if self._task == "tensor" else self._folder).mkdir(parents=True)
        data = {}
        for name, record in records.items():
            way = name.rpartition(".")[2]
            data[name] = {
                key: {word: self._leaf(one, f"{name}.input.{word}") for word, one in value.items()}
                if isinstance(value, dict)
                else [self._leaf(one, f"{name}.{key.partition('_')[0]}.{place}") for place, one in enumerate(value)]
                for key, value in record.items()
                if way == "forward" or key in ("input", "output")
            }
        store = str(self._store) if self._task == "tensor" else None
        task = (
            "tensor" if self._task == "tensor" else "statistics"
        )  # the dump tool has no task of its own for checksums
        head = {"task": task, "level": "L1", "framework": "pytorch", "dump_data_dir": store}
        (self._folder / "dump.json").write_text(json.dumps({**head, "data": data}, indent=1))

    def _leaf(self, value: Leaf, name: str) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value, name)
        if isinstance(value, list):
            return [self._leaf(one, f"{name}.{place}") for place, one in enumerate(value)]
        if isinstance(value, dict) and isinstance(value.get("tensor"), torch.Tensor):
            return {**value, "tensor": self._tensor(value["tensor"], name)}
        return value

    def _tensor(self, value: torch.Tensor, name: str) -> dict[str, Any]:
        wide = value.double()
        figures = {"Max": wide.max(), "Min": wide.min(), "Mean": wide.mean(), "Norm": wide.norm()}
        leaf = {"type": "torch.Tensor", "dtype": str(value.dtype), "shape": list(value.shape)}
        leaf |= {key: one.item() for key, one in figures.items()} | {"requires_grad": False}
        if self._task == "md5":
            leaf["md5"] = f"{zlib.crc32(value.numpy().tobytes()):08x}"
        elif self._task == "tensor":
            leaf["data_name"] = f"{name}.pt"
            torch.save(value, self._store / f"{name}.pt")
        return leaf


def work(rank: int, world: int, store: str, out: Path) -> None:
    """One process: every scenario of its world."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    pairs = [dist.new_group([first, first + 1]) for first in range(0, world, 2)]
    for name, plant in PLANTS.items():
        if plant.world != world:
            continue
        for side in ("golden", "target"):
            faults = [fault for fault in plant.faults if fault.rank == rank and side == "target"]
            run = Recorder(rank, plant, faults)
            step(run, world, pairs[rank // 2])
            for task in plant.modes:
                Writer(out / name / side / task / "step0" / f"rank{rank}", task).write(run.records)
    dist.barrier()
    dist.destroy_process_group()


def main(out: Path) -> int:
    """Run all worlds, one after the other.

    Returns
    -------
    int
        0 if every process ended well.
    """
    forked = multiprocessing.get_context("fork")  # torch is imported once
    for world in sorted({plant.world for plant in PLANTS.values()}):
        with tempfile.TemporaryDirectory() as folder:
            processes = [
                forked.Process(target=work, args=(rank, world, f"{folder}/store", out)) for rank in range(world)
            ]
            for process in processes:
                process.start()
            for process in processes:
                process.join(120)
            if any(process.exitcode != 0 for process in processes):
                for process in processes:
                    process.kill()
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
