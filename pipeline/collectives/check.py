"""One step's calls -> a verdict for each: puts contents beside the records and asks ``kernels.promises``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl
from opassay.kernels import call_verdicts, promises, reduced_statistics
from opassay.kernels.phrases import phrase
from opassay.kernels.promises import BROKEN, CLAIMS, CUT, HELD, IN_PLACE, PIECES, REDUCED, REDUCING, SCATTERING, UNKNOWN
from opassay.pipeline.collectives.contents import (
    Cutting,
    Finding,
    ReductionJob,
    difference,
    digests,
    in_threads,
    reduce,
)
from opassay.pipeline.collectives.read import StepCalls
from opassay.schemas.communication_rows import UNKNOWN_GROUP, WORLD
from opassay.schemas.vocab import RowKind

ROWS: Final = {
    "step": "Step", "event": "Order", "api": "API", "group": "Group", "ranks": "Ranks", "calls": "Calls",
    "verified": "Verified", "result": "Result", "message": "Err_message",
}  # fmt: skip
"""Column -> head of the csv."""

_NAMED: Final = 8  # ranks whose calls are named where they differ


@dataclass(slots=True)
class StepChecked:
    """A step's rows (``ROWS``, all text, in order) and the numbers of its verdicts."""

    rows: pl.DataFrame
    results: dict[str, int]


def check_step(step: StepCalls, workers: int) -> StepChecked:
    """Verify every call of a step.

    Parameters
    ----------
    step : StepCalls
        As read.
    workers : int
        Threads that read tensors; they change no verdict.
    """
    pieces, files = _with_contents(step, workers)
    events = step.events
    claims = pl.concat(
        [
            promises.copies(events, pieces),
            promises.equals(events, pieces),
            _filled(reduced_statistics.reductions(events, pieces)),
            _filled(reduced_statistics.joins(events, pieces)),
            promises.consistency(events, pieces, step.damaged),
        ]
    )
    claims = call_verdicts.with_values(claims, _computed(step, pieces, files, workers))
    claims = promises.too_early(events, pieces, claims)
    claims = pl.concat([claims, promises.silent(events, claims)])
    claims = _described(claims, files, workers)
    found = call_verdicts.verdicts(events, claims)
    rows = _rows(step, found)
    counts = dict(found["result"].value_counts().iter_rows())
    return StepChecked(rows, {word: int(counts.get(word, 0)) for word in ("pass", "warning", "error")})


@dataclass(frozen=True, slots=True)
class _Files:
    """Path, and for parts of a tensor first element and count, by (rank, row, part)."""

    paths: dict[tuple[int, int], str]
    cuts: dict[tuple[int, int, int], tuple[int, int]]


def _filled(claims: pl.DataFrame) -> pl.DataFrame:
    missing = [name for name in CLAIMS if name not in claims.columns]
    return claims.with_columns(pl.lit(None).alias(name) for name in missing).select(
        pl.col(name).cast(kind) for name, kind in CLAIMS.items()
    )


def _with_contents(step: StepCalls, workers: int) -> tuple[pl.DataFrame, _Files]:
    """Pieces: the tensors with digests of their bits, those that hold a part for every rank cut into these."""
    tensors = step.tensors.with_columns(
        digest=pl.lit(None, pl.String), trouble=pl.lit(None, pl.String), block=pl.lit(False)
    )
    on_disk = tensors.filter(pl.col("data_name").is_not_null() & (pl.col("kind") == RowKind.TENSOR))
    paths = {
        (rank, row): f"{step.folders[rank]}/{name}"
        for rank, row, name in on_disk.select("rank", "row", "data_name").iter_rows()
    }
    # inputs of a reduction are read when it is verified
    only_input = (pl.col("side") == "sent") & pl.col("api").is_in(list(REDUCING)) & ~pl.col("api").is_in(list(IN_PLACE))
    sizes = step.events.group_by("event").agg(size=pl.col("place").count())
    wanted = on_disk.filter(~only_input).join(sizes, on="event", how="left", maintain_order="left")
    tasks, keys = [], []
    for rank, row, name, api, side, size, splits in wanted.select(
        "rank", "row", "data_name", "api", "side", "size", "splits"
    ).iter_rows():
        cut = (api, side) in CUT
        path = _safe(paths[rank, row], name)
        tasks.append(Cutting(path, size or 1, tuple(splits or ())) if cut else Cutting(path))
        keys.append((rank, row, cut))
    found = in_threads(digests, tasks, workers)
    parts: list[tuple[int, int, int | None, str | None, int | None, str | None]] = []
    cuts: dict[tuple[int, int, int], tuple[int, int]] = {}
    for (rank, row, cut), one in zip(keys, found, strict=True):
        start = 0
        for part, (digest, size) in enumerate(zip(one.parts, one.sizes, strict=True)):
            parts.append((rank, row, part if cut else None, digest, size, None))
            if cut:
                cuts[rank, row, part] = (start, size)
            start += size
        if one.trouble:
            parts.append((rank, row, None, None, None, one.trouble))
    read = pl.DataFrame(
        parts,
        schema={
            "rank": pl.Int64,
            "row": pl.UInt32,
            "cut": pl.UInt32,
            "bits": pl.String,
            "size": pl.Int64,
            "said": pl.String,
        },
        orient="row",
    )
    pieces = tensors.join(read, on=["rank", "row"], how="left", maintain_order="left").with_columns(
        digest="bits", trouble="said", block=pl.col("cut").is_not_null(), part=pl.coalesce("cut", "part")
    )
    whole = ~pl.col("block")
    pieces = pieces.with_columns(
        elements=pl.when(whole).then("elements").otherwise("size"),
        md5=pl.when(whole).then("md5"),
        **{name: pl.when(whole).then(name) for name in ("max", "min", "mean", "norm")},
    )
    return pieces.select(pl.col(name).cast(kind) for name, kind in PIECES.items()), _Files(paths, cuts)


def _safe(path: str, name: str) -> str:
    """A name that would leave its folder becomes one that no file has."""
    return path if "/" not in name and "\\" not in name and "\0" not in name else f"{path}.refused"


def _computed(step: StepCalls, pieces: pl.DataFrame, files: _Files, workers: int) -> pl.DataFrame:
    """Claims about reductions whose tensors are all there. Equal outputs of one event are held against the inputs once."""
    calls = step.events.filter(pl.col("role") == "collective").select(
        "event", "rank", "op", "reduce", "root", size=pl.len().over("event")
    )
    rows = pieces.filter(pl.col("api").is_in(list(REDUCING))).join(
        calls, on=["event", "rank", "op"], how="inner", maintain_order="left"
    )
    inputs: dict[tuple[int, int], list[str]] = {}
    for event, rank, row, part, api in (
        rows.filter(pl.col("side") == "sent")
        .sort("event", "place", "part")
        .select("event", "rank", "row", "part", "api")
        .iter_rows()
    ):
        if path := files.paths.get((rank, row)):
            inputs.setdefault((event, part if api == "reduce_scatter" else 0), []).append(path)
    jobs: dict[tuple[int, str], ReductionJob] = {}
    outputs = []
    got = rows.filter((pl.col("side") == "got") & ((pl.col("api") != "reduce") | (pl.col("rank") == pl.col("root"))))
    columns = "event", "rank", "row", "api", "place", "digest", "reduce", "size"
    for event, rank, row, api, place, digest, op, size in got.select(columns).iter_rows():
        sources = inputs.get((event, (place or 0) if api == "reduce_scatter" else 0), [])
        if digest is None or len(sources) != size:
            continue
        key = (event, digest if api == "all_reduce" else f"rank {rank}")
        outputs.append((event, rank, row, key))
        if key not in jobs:
            jobs[key] = ReductionJob(files.paths[rank, row], tuple(sources), op, place if api in SCATTERING else None)
    found = dict(zip(jobs, in_threads(reduce, list(jobs.values()), workers), strict=True))
    claims = [(event, rank, row, *_state(found[key])) for event, rank, row, key in outputs]
    schema = {
        "event": pl.UInt32,
        "rank": pl.Int64,
        "row": pl.UInt32,
        "state": pl.UInt8,
        "how": pl.String,
        "why": pl.String,
    }
    return _filled(pl.DataFrame(claims, schema=schema, orient="row").with_columns(what=pl.lit(REDUCED)))


def _state(finding: Finding) -> tuple[int, str, str | None]:
    if finding.held is None:
        return UNKNOWN, "", finding.why
    return (HELD, "values", None) if finding.held else (BROKEN, "values", finding.why)


def _described(claims: pl.DataFrame, files: _Files, workers: int) -> pl.DataFrame:
    """The first broken claim about bits of each event says where they differ."""
    claims = claims.with_row_index("claim")
    first = claims.filter((pl.col("state") == BROKEN) & (pl.col("how") == "bits")).unique(
        "event", keep="first", maintain_order=True
    )

    def told(claim: tuple[int, int, int, int, int, int, int]) -> str:
        _, rank, row, part, other, other_row, other_part = claim
        start, count = files.cuts.get((rank, row, part), (0, None))
        their_start, their_count = files.cuts.get((other, other_row, other_part), (0, None))
        size = count if count is not None else their_count
        return difference(files.paths[rank, row], files.paths[other, other_row], start, their_start, size)

    columns = "claim", "rank", "row", "part", "other", "other_row", "other_part"
    tasks = list(first.select(columns).iter_rows())
    found = {task[0]: text for task, text in zip(tasks, in_threads(told, tasks, workers), strict=True) if text}
    if found:
        text = pl.col("claim").replace_strict(found, default=None, return_dtype=pl.String)
        claims = claims.with_columns(
            why=pl.when(text.is_not_null()).then(phrase("{}: {}", pl.col("why"), text)).otherwise("why")
        )
    return claims.drop("claim")


def _rows(step: StepCalls, found: pl.DataFrame) -> pl.DataFrame:
    """The report's rows, as text."""
    collective = pl.col("role") == "collective"
    group = (
        pl.when(pl.col("group") == WORLD).then(pl.lit("world"))
        .when(pl.col("group") == UNKNOWN_GROUP).then(pl.lit("not recorded"))
        .when(pl.col("group").str.starts_with("#")).then("id " + pl.col("group").str.slice(1))
        .otherwise("group")
    )  # fmt: skip
    within = pl.when(pl.col("group") == WORLD).then(pl.lit("")).otherwise(" in " + group)
    named = step.events.join(step.names, on=["rank", "op"], how="left", maintain_order="left")
    call = phrase("rank {}: {}", pl.col("rank"), pl.col("name").fill_null("no such call"))
    one_name = (pl.col("name").drop_nulls().n_unique() == 1) & pl.col("name").is_not_null().all()
    more = pl.when(pl.len() > _NAMED).then(phrase("; and {} more", pl.len() - _NAMED)).otherwise(pl.lit(""))
    rows = named.group_by("event", maintain_order=True).agg(
        api=pl.col("api").drop_nulls().unique(maintain_order=True).str.join(" -> "),
        group=pl.when(collective.first()).then(group.first())
        .otherwise(phrase("message, tag {}", pl.col("tag").first()) + within.first()),
        ranks=pl.when(collective.first()).then(pl.col("rank").cast(pl.String).str.join(", "))
        .otherwise(pl.col("rank").cast(pl.String).str.join(" -> ")),
        calls=pl.when(one_name).then(pl.col("name").first()).otherwise(call.head(_NAMED).str.join("; ") + more),
    )  # fmt: skip
    return (
        rows.join(found, on="event", how="left", maintain_order="left")
        .with_columns(step=pl.lit(step.label.removeprefix("step")))
        .select(pl.col(name).cast(pl.String) for name in ROWS)
        .with_columns(pl.col(name).replace({"": None}) for name in ("verified", "message"))
    )
