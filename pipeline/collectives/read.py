"""The dumps of all ranks of a step -> their communication calls, joined, and the tensors these gave and got."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from opassay.kernels.call_events import join_calls
from opassay.kernels.communication import communication_calls, communication_tensors
from opassay.pipeline.read.dump_json import read_dump
from opassay.pipeline.read.trees import DUMP, Rank, Step
from opassay.schemas.communication_rows import TENSORS
from opassay.schemas.dump_rows import DumpProblem
from opassay.schemas.errors import DumpError


@dataclass(slots=True)
class StepCalls:
    """One step, read.

    Attributes
    ----------
    label : str
        ``step3``, "" where the path points below the steps.
    ranks : list of int
        Ranks that were read.
    events : polars.DataFrame
        ``call_events.EVENTS``.
    tensors : polars.DataFrame
        ``communication.TENSORS`` with ``event``, ``rank``, ``api`` and ``place``.
    names : polars.DataFrame
        ``rank``, ``op``, ``name`` of the calls.
    folders : dict of int to str
        Rank -> folder of its tensor files.
    problems, lost : list of str
        What was odd; what could not be read (exit status 3).
    damaged : list of int
        Ranks whose dump is cut or lost records.
    dump_bytes : int
        Size of the JSON files.
    """

    label: str
    ranks: list[int] = field(default_factory=list)
    events: pl.DataFrame = field(default_factory=pl.DataFrame)
    tensors: pl.DataFrame = field(default_factory=pl.DataFrame)
    names: pl.DataFrame = field(default_factory=pl.DataFrame)
    folders: dict[int, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)
    dump_bytes: int = 0


def read_step(step: Step) -> StepCalls:
    """Read the dumps of a step, one after the other; only what has to do with communication is kept.

    Parameters
    ----------
    step : Step
        Where they are. Folders without a rank number (``proc...``) take no part; a lone ``rank`` is rank 0.
    """
    read = StepCalls(f"step{step.number}" if step.number is not None else "")
    calls, tensors, names = {}, [], []
    for rank in step.ranks:
        number = _number(rank, step)
        if number is None:
            read.problems.append(f"{step.path / rank.label}: no rank number; left out")
            continue
        path = next((file for file in rank.files if file.name == DUMP), None)
        if path is None:
            read.lost.append(rank.error or f"{step.path / rank.label} holds no {DUMP}; rank {number} takes no part")
            continue
        try:
            table = read_dump(path)
        except DumpError as error:
            read.lost.append(str(error))
            continue
        for problem in table.problems:
            (read.lost if problem.fatal else read.problems).append(_told(path, problem))
        if any(problem.fatal for problem in table.problems):
            read.damaged.append(number)
        read.dump_bytes += path.stat().st_size
        calls[number] = communication_calls(table)
        found = communication_tensors(table, calls[number])
        tensors.append(found.with_columns(rank=pl.lit(number, pl.Int64)))
        ops = calls[number]["op"].unique().sort()
        names.append(
            pl.DataFrame({"op": ops, "name": table.ops["name"].gather(ops)}).with_columns(rank=pl.lit(number, pl.Int64))
        )
        read.ranks.append(number)
        read.folders[number] = str(path.parent / "dump_tensor_data")
    read.events = join_calls(calls)
    read.names = (
        pl.concat(names) if names else pl.DataFrame(schema={"op": pl.UInt32, "name": pl.String, "rank": pl.Int64})
    )
    known = read.events.filter(pl.col("op").is_not_null()).select("event", "rank", "op", "item", "api", "place")
    every = pl.concat(tensors) if tensors else pl.DataFrame(schema={**TENSORS, "rank": pl.Int64()})
    read.tensors = every.join(known, on=["rank", "op", "item"], how="inner", maintain_order="left").sort(
        "event", "rank", "side", "part", maintain_order=True
    )
    return read


def _number(rank: Rank, step: Step) -> int | None:
    if rank.number is None and rank.label == "rank" and len(step.ranks) == 1:
        return 0
    return rank.number


def _told(path: Path, problem: DumpProblem) -> str:
    more = f" (and {problem.count - 1:,} more like it)" if problem.count > 1 else ""
    return f"{path}: {problem.where}: {problem.text}{more}"
