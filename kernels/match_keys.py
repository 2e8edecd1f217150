"""Keys by which ops of two dumps meet, as polars expressions over op names. Pure: names in, keys out."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

# An API record ends in ``{index}.{direction}``, a module record in ``{direction}.{index}`` (dump_format.md, 2.1).
_DIRECTED = (
    r"(?s)^(?:(?P<api>.*)\.(?P<api_index>[^.]+)\.(?P<api_way>forward|backward)"
    r"|(?P<module>.*)\.(?P<module_way>forward|backward)\.(?P<module_index>[^.]+))$"
)
_LIST_INDEX = r"^(Module|Cell)\.\d+\."
_OLD_GRADIENT = r"\.parameters_grad$"
_GRADIENT = r"\.parameters_grad(?:\.\d+)?$"
_DEBUG_COUNT = r"\.\d+\.debug$"


def parts(name: pl.Expr) -> list[pl.Expr]:
    """Columns ``base``, ``way``, ``index`` of op names.

    Parameters
    ----------
    name : polars.Expr
        String column of record names.

    Returns
    -------
    list of polars.Expr
        ``base`` is the name without call index and direction, ``way`` is ``forward`` or ``backward``, ``index`` the call index as
        text. All null for names without a direction (parameter gradients, debug saves).
    """
    found = name.str.extract_groups(_DIRECTED)

    def either(what: str) -> pl.Expr:
        return pl.coalesce(found.struct.field(f"api{what}"), found.struct.field(f"module{what}"))

    return [either("").alias("base"), either("_way").alias("way"), either("_index").alias("index")]


def gradient_layout(name: pl.Expr) -> pl.Expr:
    """Names with the old layout of parameter gradients brought to the numbered one (decision 21)."""
    return name.str.replace(_OLD_GRADIENT, ".parameters_grad.0")


def whole_part(patterns: Sequence[str]) -> str:
    """One regular expression for a whole part of a path, of several."""
    return rf"^(?:{'|'.join(f'(?:{pattern})' for pattern in patterns)})$"


def unwrapped(name: pl.Expr, wrappers: Sequence[str]) -> pl.Expr:
    """Module names without the parts that wrappers put into them, and without the index of a list of models.

    Parameters
    ----------
    name : polars.Expr
        String column of record names.
    wrappers : sequence of str
        Regular expressions, each for a whole part of the path; none leaves only the list index out.
    """
    bare = name.str.replace(_LIST_INDEX, "$1.")
    if not wrappers:
        return bare
    whole = whole_part(wrappers)
    place, last = pl.int_range(pl.len()), pl.element().last() == "parameters_grad"
    tail = pl.when(last).then(2).otherwise(3)  # class, direction and number are no path
    kept = ~pl.element().str.contains(whole) | (place == 0) | (place >= pl.len() - tail)
    path = bare.str.split(".").list.eval(pl.element().filter(kept)).list.join(".")
    return pl.when(name.str.contains(r"^(?:Module|Cell)\.")).then(path).otherwise(name)


def fuzzy_key(name: pl.Expr) -> pl.Expr:
    """Names without what counts calls: the call index, the number of a gradient hook, the count of a debug save (mapping.md, 1.2)."""
    found = parts(name)
    calls = pl.concat_str([found[0], pl.lit("."), found[1]])
    return pl.coalesce(calls, name.str.replace(_GRADIENT, ".parameters_grad").str.replace(_DEBUG_COUNT, ".debug"))


def api_name(name: pl.Expr) -> pl.Expr:
    """The API's own name (``matmul`` of ``Torch.matmul.3.forward``), null for modules, gradients and debug saves.

    Rules that exempt an API look at this and never at a module's path, whatever words it holds.
    """
    return (
        pl.when(name.str.contains(r"^(?:Module|Cell)\."))
        .then(None)
        .otherwise(name.str.extract(r"^[^.]+\.(.+)\.[^.]+\.(?:forward|backward)$"))
    )


def renumbered(target: pl.DataFrame, golden: pl.DataFrame) -> pl.DataFrame:
    """Backward bases whose call indexes differ between the sides while their numbers agree.

    Recomputation runs the forward again, so the backward of the same call carries a higher index. Order of appearance is used for
    these bases alone (decision 6).

    Parameters
    ----------
    target, golden : polars.DataFrame
        Columns ``base``, ``way``, ``index`` (see ``parts``), one row an op.

    Returns
    -------
    polars.DataFrame
        One column ``base``.
    """

    def indexes(ops: pl.DataFrame, label: str) -> pl.DataFrame:
        backward = ops.lazy().filter(pl.col("way") == "backward")
        return (
            backward.group_by("base")
            .agg(pl.col("index").sort().str.join(",").alias(label), pl.len().alias(f"{label}_count"))
            .collect()
        )

    both = indexes(target, "target").join(indexes(golden, "golden"), on="base")
    same_size = pl.col("target_count") == pl.col("golden_count")
    return both.filter(same_size & (pl.col("target") != pl.col("golden"))).select("base").sort("base")
