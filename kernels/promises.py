"""What each collective promises, and whether a dump keeps it: claims about every output, each held, doubtful or broken.

Frames in, frames out; bits are compared as digests that the caller has computed, or as checksums, or as the four statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl
from opassay.kernels.call_events import ABSENT, MADE, MISSING
from opassay.kernels.phrases import phrase
from opassay.schemas.communication_rows import TENSORS
from opassay.schemas.dtypes import BY_NAME
from opassay.schemas.dump_rows import STATISTICS
from opassay.schemas.vocab import RowKind

HELD, ROUNDING, UNKNOWN, BROKEN = range(4)
"""States of a claim: kept; kept within rounding where more was promised; cannot be told; broken."""

PIECES: Final[Mapping[str, pl.DataType]] = {
    "event": pl.UInt32(),
    "rank": pl.Int64(),
    "api": pl.String(),
    "place": pl.UInt32(),  # of the rank within the group
    **{name: kind for name, kind in TENSORS.items() if name != "splits"},
    "block": pl.Boolean(),  # cut out of a tensor that holds one part a rank; ``part`` is its place
    "digest": pl.String(),  # of the stored bits, with type and count; null where no tensor was read
    "trouble": pl.String(),  # why a tensor that the dump names was not read, else null
}

CLAIMS: Final[Mapping[str, pl.DataType]] = {
    "event": pl.UInt32(),
    "rank": pl.Int64(),  # whose output it is about; null for all of them
    "what": pl.String(),  # what was promised
    "how": pl.String(),  # bits, checksum, statistics, values, records; "" where it could not be told
    "state": pl.UInt8(),
    "why": pl.String(),  # one phrase where the state is not HELD
    "row": pl.UInt32(),  # row of the output, null where there is none
    "part": pl.UInt32(),
    "other": pl.Int64(),  # rank of the tensor that it was held against, its row, side and part
    "other_row": pl.UInt32(),
    "other_part": pl.UInt32(),
}

GATHERING: Final = ("all_gather", "gather", "all_gather_into_tensor", "_all_gather_base")
INTO: Final = ("all_gather_into_tensor", "_all_gather_base")
SCATTERING: Final = ("reduce_scatter_tensor", "_reduce_scatter_base")
REDUCING: Final = ("all_reduce", "reduce", "reduce_scatter", *SCATTERING)
CUT: Final[Mapping[tuple[str, str], bool]] = {
    **{(api, "got"): True for api in (*INTO, "all_to_all_single")},
    ("all_to_all_single", "sent"): True,
}
"""API and side whose tensor holds a part for every rank."""

TO_ROOT: Final = ("reduce", "gather")
OBJECTS: Final = ("send_object_list", "recv_object_list")
IN_PLACE: Final = ("all_reduce", "broadcast", "reduce")
_EVEN: Final = ("all_reduce", "reduce", "broadcast", *INTO, *SCATTERING)  # inputs have one shape on all members

SOURCE: Final = "the output is what its source gave"
EQUAL: Final = "outputs are equal within the group"
REDUCED: Final = "the output is the reduction of the inputs"
JOINED: Final = "outputs together are the inputs together"
CONSISTENT: Final = "the group agrees on the call"

_EPS: Final = {f"torch.{name}": row.eps for name, row in BY_NAME.items()} | {n: r.eps for n, r in BY_NAME.items()}
_SLACK: Final = 8  # roundings that a mean or norm, computed in the tensor's own dtype, may differ by


def tolerance(dtype: pl.Expr) -> pl.Expr:
    """Distance from 1 to the next number of a dtype (its text), 0 for exact and unknown ones."""
    return dtype.replace_strict(_EPS, default=0.0, return_dtype=pl.Float64)


def copies(events: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """Claims about outputs that are copies: broadcast, gathers, scatter, all_to_all, messages.

    Parameters
    ----------
    events : polars.DataFrame
        ``call_events.EVENTS``.
    pieces : polars.DataFrame
        ``PIECES``.

    Returns
    -------
    polars.DataFrame
        Schema ``CLAIMS``, a row an output (or part of one).
    """
    api, listed = pl.col("api"), pl.col("block") | pl.col("listed")
    got = pieces.filter(pl.col("side") == "got").join(
        events.select("event", "rank", "op", "item", "root", "peer", "role"),
        on=["event", "rank", "op", "item"],
        how="inner",
        maintain_order="left",
    )
    by_part = api.is_in([*GATHERING, "all_to_all", "all_to_all_single"])
    got = got.filter(
        api.is_in(["broadcast", "scatter"])
        | (pl.col("role") == "recv") & ~api.is_in(list(OBJECTS))
        | by_part & listed
    ).filter(~api.is_in(list(TO_ROOT)) | (pl.col("rank") == pl.col("root")))  # fmt: skip
    got = got.with_columns(
        source_place=pl.when(by_part).then("part"),
        source_part=pl.when(api.is_in(["scatter", "all_to_all", "all_to_all_single"])).then("place").otherwise(0),
        other=pl.coalesce("peer", "root"),
    )
    places = events.filter(pl.col("place").is_not_null()).select("event", source_place="place", member="rank")
    got = got.join(places, on=["event", "source_place"], how="left", maintain_order="left").with_columns(
        other=pl.when(by_part).then("member").otherwise("other")
    )
    source = pieces.filter(pl.col("side") == "sent").with_columns(found=pl.lit(True))
    paired = got.join(
        source.rename({"rank": "other", "part": "source_part"}),
        on=["event", "other", "source_part"], how="left", suffix="_source", maintain_order="left",
    )  # fmt: skip
    paired = paired.with_columns(what=pl.lit(SOURCE), other_part="source_part")
    return _claims(_unread(_compared(paired, exact=True)))


def equals(events: pl.DataFrame, pieces: pl.DataFrame) -> pl.DataFrame:
    """Claims that every member gets the same: all_reduce, and all_gather_into_tensor where its parts are not to be had.

    What most members have is taken for the group's; the lowest rank's where there are as many of each.
    """
    api = pl.col("api")
    got = pieces.filter((pl.col("side") == "got") & ((api == "all_reduce") | api.is_in(list(INTO)) & ~pl.col("block")))
    figures = pl.concat_str([pl.col(name).cast(pl.String).fill_null("") for name in STATISTICS], separator=" ")
    keyed = got.with_columns(
        key=pl.concat_str("dtype", "elements", pl.coalesce("digest", "md5", figures), ignore_nulls=True)
    )
    reference = (
        keyed.filter(pl.col("kind") == RowKind.TENSOR)
        .group_by("event", "key")
        .agg(pl.len(), other=pl.col("rank").min())
        .sort("event", -pl.col("len").cast(pl.Int64), "other")
        .unique("event", keep="first", maintain_order=True)
        .select("event", "other")
    )
    paired = got.join(reference, on="event", how="left", maintain_order="left").filter(
        pl.col("other").is_null() | (pl.col("other") != pl.col("rank"))
    )
    source = got.with_columns(found=pl.lit(True)).rename({"rank": "other"})
    paired = paired.join(source, on=["event", "other"], how="left", suffix="_source", maintain_order="left")
    paired = paired.with_columns(what=pl.lit(EQUAL), other_part=pl.lit(0, pl.UInt32))
    return _claims(_unread(_compared(paired, exact=False)))


def _compared(paired: pl.DataFrame, *, exact: bool) -> pl.DataFrame:
    """State, how and why of outputs beside what they should be."""

    def both(name: str) -> pl.Expr:
        return pl.col(name).is_not_null() & pl.col(f"{name}_source").is_not_null()

    def equal(name: str) -> pl.Expr:
        return pl.col(name).eq_missing(pl.col(f"{name}_source"))

    def near(name: str, size: pl.Expr) -> pl.Expr:
        return equal(name) | (
            (pl.col(name) - pl.col(f"{name}_source")).abs() <= _SLACK * tolerance(pl.col("dtype")) * size
        )

    tensors = (pl.col("kind") == RowKind.TENSOR) & (pl.col("kind_source") == RowKind.TENSOR)
    form = equal("dtype") & equal("elements")
    told = pl.any_horizontal(both(name) for name in STATISTICS)
    same = pl.all_horizontal(equal(name) for name in STATISTICS)
    norm = pl.col("norm").abs()
    rms = norm / pl.col("elements").clip(1).sqrt()
    alike = (equal("max") & equal("min") & near("mean", rms) & near("norm", norm)).fill_null(False)
    other = pl.col("other").cast(pl.String).fill_null("?")
    of_bits = pl.when(equal("digest")).then(HELD).otherwise(BROKEN)
    of_sums = pl.when(equal("md5")).then(HELD).when(alike & (not exact) & told).then(ROUNDING).otherwise(BROKEN)
    of_figures = pl.when(same).then(HELD).when(alike).then(ROUNDING).otherwise(BROKEN)
    paired = paired.with_columns(
        state=pl.when(pl.col("found").is_null() | ~tensors).then(UNKNOWN)
        .when(~form).then(BROKEN)
        .when(pl.col("elements") == 0).then(HELD)
        .when(both("digest")).then(of_bits)
        .when(both("md5")).then(of_sums)
        .when(told).then(of_figures)
        .otherwise(UNKNOWN),
        how=pl.when(pl.col("found").is_null() | ~tensors).then(pl.lit(""))
        .when(~form | (pl.col("elements") == 0)).then(pl.lit("records"))
        .when(both("digest")).then(pl.lit("bits"))
        .when(both("md5")).then(pl.lit("checksum"))
        .when(told).then(pl.lit("statistics"))
        .otherwise(pl.lit("")),
    )  # fmt: skip
    # promises of copies say "what rank 0 gave", those of equality "rank 0's output"
    theirs = phrase("what rank {} gave" if exact else "rank {}'s output", other)
    form_words = [
        pl.col(name).cast(pl.String).fill_null("?") for name in ("dtype", "elements", "dtype_source", "elements_source")
    ]
    forms = phrase("{} of {} elements for {} of {}", *form_words)
    sums = phrase("checksum {} for {}", pl.col("md5"), pl.col("md5_source"))
    which = pl.concat_list(
        pl.when(~equal(name)).then(
            phrase(f"{name} {{}} for {{}}", pl.col(name).fill_null(float("nan")), pl.col(f"{name}_source").fill_null(float("nan")))
        )
        for name in STATISTICS
    ).list.drop_nulls().list.first().fill_null("")  # fmt: skip
    return paired.with_columns(
        why=pl.when(pl.col("kind") != RowKind.TENSOR).then(pl.lit("its output is masked in the dump or no tensor"))
        .when(pl.col("found").is_null()).then(phrase("{} is not in the dump", theirs))
        .when(pl.col("kind_source") != RowKind.TENSOR).then(phrase("{} is masked in the dump or no tensor", theirs))
        .when(~form).then(phrase("its output is not {}: {}", theirs, forms))
        .when(pl.col("how") == "bits").then(phrase("its output is not {}", theirs))
        .when(pl.col("how") == "checksum").then(phrase("its output is not {}: {}", theirs, sums))
        .when(pl.col("how") == "statistics").then(phrase("its output is not {}: {}", theirs, which))
        .otherwise(phrase("neither tensors, checksums nor statistics to hold its output against {}", theirs)),
    )  # fmt: skip


def _unread(paired: pl.DataFrame) -> pl.DataFrame:
    """What only fell back on statistics, because a tensor could not be read, is not held but unknown."""
    trouble = pl.coalesce("trouble", "trouble_source")
    unread = trouble.is_not_null() & (pl.col("state") < BROKEN)
    return paired.with_columns(
        state=pl.when(unread).then(UNKNOWN).otherwise("state"), why=pl.when(unread).then(trouble).otherwise("why")
    )


def too_early(events: pl.DataFrame, pieces: pl.DataFrame, claims: pl.DataFrame) -> pl.DataFrame:
    """Claims, those that broke on a buffer that was recorded too early made unknown.

    An asynchronous call returns before it is done; where its buffer shows after the call just what it held before, the dump
    proves nothing.

    Parameters
    ----------
    events, pieces : polars.DataFrame
        As for ``copies``.
    claims : polars.DataFrame
        ``CLAIMS``.
    """
    later = events.filter("asynchronous").select("event", "rank", "op", "item")
    contents = ("digest", "md5", *STATISTICS)
    rows = pieces.join(later, on=["event", "rank", "op", "item"], how="semi").select(
        "event", "rank", "api", "side", *contents
    )
    was_sent = (pl.col("side") == "sent") & pl.col("api").is_in(list(IN_PLACE))
    before = rows.filter((pl.col("side") == "before") | was_sent)
    both = rows.filter(pl.col("side") == "got").join(before, on=["event", "rank"], suffix="_before")
    kept = {name: pl.col(name) == pl.col(f"{name}_before") for name in contents}
    figures = pl.all_horizontal(kept[name] for name in STATISTICS)
    same = pl.coalesce(kept["digest"], kept["md5"], figures).fill_null(False)
    early = both.filter(same).select("event", "rank", early=pl.lit(True)).unique()
    of_other = early.rename({"rank": "other", "early": "other_early"})
    claims = claims.join(early, on=["event", "rank"], how="left", maintain_order="left")
    claims = claims.join(of_other, on=["event", "other"], how="left", maintain_order="left")
    # a reference for all members may itself be the one that was too early
    doubtful = pl.col("early").fill_null(False) | (pl.col("other_early").fill_null(False) & (pl.col("what") == EQUAL))
    doubtful &= (pl.col("state") == BROKEN) & (pl.col("what") != CONSISTENT)
    text = "the buffer holds after the call, which is asynchronous, what it held before: recorded too early"
    return claims.with_columns(
        state=pl.when(doubtful).then(pl.lit(UNKNOWN, pl.UInt8)).otherwise("state"),
        why=pl.when(doubtful).then(pl.lit(text)).otherwise("why"),
        how=pl.when(doubtful).then(pl.lit("")).otherwise("how"),
    ).select(*CLAIMS)


def consistency(events: pl.DataFrame, pieces: pl.DataFrame, damaged: list[int]) -> pl.DataFrame:
    """Claims about the calls themselves: every member makes the call, with one root, one reduction, tensors of one form.

    Parameters
    ----------
    events, pieces : polars.DataFrame
        As for ``copies``.
    damaged : list of int
        Ranks whose dump is cut or lost records: a call that they lack proves nothing.
    """
    state, rank = pl.col("state"), pl.col("rank")
    collective = pl.col("role") == "collective"
    lacking = (state == MISSING) & ~rank.is_in(damaged)
    stranger = collective & (state == MADE) & pl.col("place").is_null() & ~pl.col("open")
    whose = events.with_columns(
        what=pl.lit(CONSISTENT),
        how=pl.lit("records"),
        why=pl.when(state == ABSENT).then(pl.lit("there is no dump of this rank"))
        .when(lacking).then(pl.when(collective).then(pl.lit("makes no such call, though it is a member of the group"))
                            .otherwise(phrase("has no {} for it", pl.col("role"))))
        .when(state == MISSING).then(pl.lit("its dump is damaged and lacks the call"))
        .when(stranger).then(pl.lit("makes the call and is no member of the group"))
        .when("open").then(pl.when(collective).then(pl.lit("the dump does not say who is in the group"))
                           .otherwise(pl.lit("a receive from any source takes part: who met whom cannot be told"))),
        verdict=pl.when(lacking | stranger).then(BROKEN)
        .when((state != MADE) | pl.col("open")).then(UNKNOWN)
        .otherwise(HELD),
    ).with_columns(state="verdict")  # fmt: skip
    made = events.filter((state == MADE) & collective)
    sizes = events.filter(collective).group_by("event").agg(size=pl.col("place").count())
    made = made.join(sizes, on="event", how="left", maintain_order="left")
    groups = made.group_by("event", maintain_order=True).agg(
        roots=pl.col("root").drop_nulls().unique().sort(),
        reductions=pl.col("reduce").drop_nulls().unique().sort(),
        parts=pl.col("parts").filter(pl.col("parts") != pl.col("size")).first(),
        size=pl.col("size").first(),
        known=pl.col("place").count() > 0,
    )
    forms = (
        pieces.filter((pl.col("side") == "sent") & pl.col("api").is_in(list(_EVEN)) & (pl.col("kind") == RowKind.TENSOR))
        .group_by("event").agg(forms=phrase("{} {}", pl.col("dtype"), pl.col("shape").fill_null("?")).unique().sort(),
                               even=pl.struct("dtype", "elements").n_unique() == 1)
    )  # fmt: skip
    groups = groups.join(forms, on="event", how="left", maintain_order="left")
    why = (
        pl.when(pl.col("roots").list.len() > 1).then(phrase("ranks name different roots: {}", _words(pl.col("roots"))))
        .when(pl.col("reductions").list.len() > 1).then(phrase("ranks reduce differently: {}", _words(pl.col("reductions"))))
        .when(pl.col("known") & pl.col("parts").is_not_null())
        .then(phrase("the group has {} ranks and the tensors hold parts for {}", pl.col("size"), pl.col("parts")))
        .when(~pl.col("even")).then(phrase("inputs differ in dtype or shape: {}", _words(pl.col("forms"))))
    )  # fmt: skip
    odd = groups.with_columns(
        rank=pl.lit(None, pl.Int64), what=pl.lit(CONSISTENT), how=pl.lit("records"), why=why
    ).filter(pl.col("why").is_not_null())
    objects = events.filter(pl.col("api").is_in(list(OBJECTS))).unique("event", maintain_order=True)
    objects = objects.with_columns(
        rank=pl.lit(None, pl.Int64), what=pl.lit(SOURCE), how=pl.lit(""), state=pl.lit(UNKNOWN),
        why=pl.lit("objects are not dumped: nothing to verify"),
    )  # fmt: skip
    return pl.concat([_claims(whose), _claims(odd.with_columns(state=pl.lit(BROKEN))), _claims(objects)])


def silent(events: pl.DataFrame, claims: pl.DataFrame) -> pl.DataFrame:
    """Claims that stand for outputs of which nothing could be said: every call that was made has at least one claim."""
    api = pl.col("api")
    due = (pl.col("state") == MADE) & (pl.col("role") != "send") & ~api.is_in(list(OBJECTS))
    due &= ~api.is_in(list(TO_ROOT)) | (pl.col("rank") == pl.col("root"))
    said = claims.filter(pl.col("what") != CONSISTENT)
    of_all = said.filter(pl.col("rank").is_null()).select("event").unique()
    alone = events.filter(due).join(said, on=["event", "rank"], how="anti").join(of_all, on="event", how="anti")
    # the rank that the others are held against has no claim of its own
    held_against = said.filter(pl.col("what") == EQUAL).select("event", rank="other").unique()
    alone = alone.join(held_against, on=["event", "rank"], how="anti")
    return _claims(
        alone.with_columns(
            what=pl.lit(SOURCE),
            how=pl.lit(""),
            state=pl.lit(UNKNOWN),
            why=pl.lit("its output is masked in the dump, cannot be read or is not there"),
        )
    )


def _claims(frame: pl.DataFrame) -> pl.DataFrame:
    """Brought to the schema; no reason for what held."""
    if "row_source" in frame.columns:
        frame = frame.with_columns(other_row="row_source")
    known = [name for name in CLAIMS if name in frame.columns]
    frame = frame.select(known).with_columns(pl.lit(None).alias(name) for name in CLAIMS if name not in known)
    frame = frame.select(pl.col(name).cast(kind) for name, kind in CLAIMS.items())
    return frame.with_columns(why=pl.when(pl.col("state") != HELD).then("why"))


def _words(items: pl.Expr) -> pl.Expr:
    return items.cast(pl.List(pl.String)).list.join(", ")
