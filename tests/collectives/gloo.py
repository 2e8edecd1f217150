"""A run of real collectives on a few processes, recorded in the layout of the dump tool: inputs before, outputs after each call."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from tests.dumps import saved, scalar, write_dump

RANKS = 3


class Recorder:
    """Makes calls and writes them down; a plant changes what one call got on one rank, as a fault of the hardware would."""

    def __init__(self, folder: Path, rank: int, plant: tuple[str, int, float] | None) -> None:
        self.folder, self.rank, self.plant = folder / "step0" / f"rank{rank}", rank, plant
        self.data: dict[str, Any] = {}
        self.counts: dict[str, int] = {}
        self.groups: dict[int, list[int]] = {}

    def call(self, api: str, *arguments: Any, masked: tuple[int, ...] = (), **keywords: Any) -> None:
        """One call of ``torch.distributed``; ``masked`` arguments are receive buffers, which dumps leave out before the call."""
        number = self.counts[api] = self.counts.get(api, -1) + 1
        name = f"Distributed.{api}.{number}.forward"
        shown = [None if place in masked else value for place, value in enumerate(arguments)]
        inputs = [self._leaf(value, f"{name}.input.{place}") for place, value in enumerate(shown)]
        named = {key: self._leaf(value, f"{name}.kwargs.{key}") for key, value in keywords.items()}
        work = getattr(dist, api)(*arguments, **keywords)
        for request in work if isinstance(work, list) else [work] if hasattr(work, "wait") else []:
            request.wait()
        if self.plant is not None and self.plant[:2] == (f"{api}.{number}", self.rank):
            _spoil(arguments[0], self.plant[2])
        outputs = [
            self._leaf(value, f"{name}.output.{place}") for place, value in enumerate((*arguments, *keywords.values()))
        ]
        self.data[name] = {"input_args": inputs, "input_kwargs": named, "output": outputs}

    def _leaf(self, value: Any, label: str) -> Any:
        if isinstance(value, torch.Tensor):
            return saved(self.folder, label, value.detach().numpy().copy())
        if isinstance(value, (list, tuple)):
            return [self._leaf(one, f"{label}.{place}") for place, one in enumerate(value)]
        if isinstance(value, dist.P2POp):
            return {
                "class_type": "torch.distributed.P2POp", "tensor": self._leaf(value.tensor, label),
                "op": value.op.__name__, "peer": value.peer, "tag": value.tag, "group_id": "",
            }  # fmt: skip
        if isinstance(value, dist.ProcessGroup):
            return {"type": "torch.ProcessGroup", "group_ranks": dist.get_process_group_ranks(value), "group_id": "0"}
        if isinstance(value, dist.ReduceOp.RedOpType):
            return {"type": "torch.distributed.ReduceOp", "value": str(value)}
        return None if value is None else scalar(value)


def _spoil(got: Any, by: float) -> None:
    """Change one element of the first tensor in what a call got."""
    while isinstance(got, (list, tuple)):
        got = got[-1]
    if isinstance(got, dist.P2POp):
        got = got.tensor
    got.view(-1)[1] += by


def _rank(rank: int, folder: Path, plant: tuple[str, int, float] | None) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    pair = dist.new_group([0, 2])
    one = Recorder(folder, rank, plant)
    draw = np.random.default_rng(rank)

    def values(*shape: int, dtype: Any = np.float32) -> torch.Tensor:
        return torch.from_numpy(draw.standard_normal(shape).astype(dtype))

    def room(*shape: int) -> torch.Tensor:
        return torch.zeros(shape)

    one.call("all_reduce", values(6, 4))
    one.call("all_reduce", values(5, dtype=np.float16), dist.ReduceOp.SUM)
    one.call("all_reduce", values(2, 3), op=dist.ReduceOp.MAX)
    one.call("all_reduce", torch.tensor([rank, 7, -rank]))
    if rank in (0, 2):
        one.call("all_reduce", values(3), group=pair)
        one.call("broadcast", values(2, 2), 2, pair)
    one.call("all_gather", [room(4) for _ in range(RANKS)], values(4), masked=(0,))
    one.call("all_gather_into_tensor", room(6, 2), values(2, 2), masked=(0,))
    one.call("broadcast", values(5), src=1)
    one.call("reduce", values(4), dst=0)
    one.call("gather", values(3), [room(3) for _ in range(RANKS)] if rank == 1 else None, dst=1, masked=(1,))
    one.call("scatter", room(2), [values(2) for _ in range(RANKS)] if rank == 2 else None, 2, masked=(0,))
    one.call("all_to_all_single", room(6), values(6), masked=(0,))
    if rank == 0:
        one.call("send", values(4), 1)
    elif rank == 1:
        one.call("recv", room(4), 0, masked=(0,))
    into, out_of = P2P_RING(rank)
    one.call("batch_isend_irecv", [dist.P2POp(dist.isend, values(3), into), dist.P2POp(dist.irecv, room(3), out_of)])
    write_dump(one.folder, one.data, task="tensor")
    dist.barrier()
    dist.destroy_process_group()


P2P_RING: Callable[[int], tuple[int, int]] = lambda rank: ((rank + 1) % RANKS, (rank - 1) % RANKS)  # noqa: E731


def record(folder: Path, plant: tuple[str, int, float] | None = None) -> Path:
    """Run the program and give the dump's root.

    Parameters
    ----------
    folder : Path
        Of its own for each run.
    plant : (str, int, float), optional
        Call (``all_reduce.0``), rank, and what is added to one element of what the call got there.
    """
    folder.mkdir(parents=True)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_rank, args=(rank, folder, plant)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        if process.exitcode != 0:
            for one in processes:
                one.kill()
            raise RuntimeError(f"a rank ended with {process.exitcode}")
    return folder
