"""What the options of a comparison say about matching: mapping files read, patterns checked, before any dump is opened."""

from __future__ import annotations

from collections.abc import Sequence

from opassay.pipeline.watch.logs import clip
from opassay.schemas.errors import UsageError
from opassay.schemas.options import WRAPPERS, CompareOptions, Matching


def matching_of(options: CompareOptions) -> Matching:
    """Read and check everything that decides how ops and rows meet.

    Parameters
    ----------
    options : CompareOptions
        As given.

    Raises
    ------
    UsageError
        Options that exclude each other, a mapping file that cannot be used (with every problem in it), a pattern that is none.
    """
    _refuse_contradictions(options)
    data = cell = None
    if options.data_mapping is not None:
        from opassay.pipeline.read.mapping_file import read_data_mapping

        data = read_data_mapping(options.data_mapping).entries
    if options.cell_mapping is True:
        cell = {}
    elif options.cell_mapping is not None:
        from opassay.pipeline.read.mapping_file import read_cell_mapping

        cell = read_cell_mapping(options.cell_mapping).entries
    wrappers = (tuple(WRAPPERS) if options.wrappers else ()) + options.more_wrappers
    _check_patterns(wrappers, options.more_wrappers)
    return Matching(options.fuzzy, data, cell, wrappers, options.backend)


def _refuse_contradictions(options: CompareOptions) -> None:
    mapped = options.data_mapping is not None
    if mapped and options.fuzzy:
        raise UsageError("-dm and -fm exclude each other: a data mapping names its pairs; leave one out")
    if mapped and options.cell_mapping is not None:
        raise UsageError("-dm and -cm exclude each other: give one mapping, of rows or of modules")
    if options.backend is None:
        return
    for given, flag in (
        (options.fuzzy, "-fm"),
        (mapped, "-dm"),
        (options.cell_mapping is not None, "-cm"),
        (options.shards != "off", "--shards"),
    ):
        if given:
            raise UsageError(f"--consistent_check has names of its own for every module; leave {flag} out")


def _check_patterns(wrappers: Sequence[str], given: Sequence[str]) -> None:
    """Each pattern by itself, lest half of one leans on what is put around it (``a)|(b``), then all of them together."""
    if not given:
        return
    from opassay.kernels.match_keys import whole_part

    for pattern in given:
        _compiled(f"--wrapper {pattern!r}", pattern)
        if _compiled(f"--wrapper {pattern!r}", whole_part([pattern])):
            raise UsageError(f"--wrapper {pattern!r} matches an empty part; name a whole part of a module path")
    _compiled(f"--wrapper, {len(wrappers):,} patterns together,", whole_part(wrappers))


def _compiled(what: str, pattern: str) -> bool:
    """Whether a regular expression matches the empty text."""
    import polars as pl
    from polars.exceptions import PolarsError

    try:
        return bool(pl.select(pl.lit("").str.contains(pattern)).item())
    except PolarsError as error:
        told = str(error).partition("This error occurred")[0]
        reason = " ".join(told.rpartition("error:")[2].split())  # what is wrong, without the drawing that shows where
        raise UsageError(f"{what} is no regular expression: {clip(reason, 300)}") from None
