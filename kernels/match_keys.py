"""Keys by which ops of two dumps meet, as polars expressions over op names. Pure: names in, keys out."""

from __future__ import annotations

import polars as pl

# An API record ends in ``{index}.{direction}``, a module record in ``{direction}.{index}`` (dump_format.md, 2.1).
_DIRECTED = (
    r"^(?:(?P<api>.*)\.(?P<api_index>[^.]+)\.(?P<api_way>forward|backward)"
    r"|(?P<module>.*)\.(?P<module_way>forward|backward)\.(?P<module_index>[^.]+))$"
)
WRAPPERS = ("_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module")
"""Parts that wrappers (FSDP, torch.compile, activation checkpointing) put into module paths; they hold no numbers of their own."""

_WRAPPED = rf"(?:{'|'.join(WRAPPERS)})\."
_OLD_GRADIENT = r"\.parameters_grad$"


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


def unwrapped(name: pl.Expr) -> pl.Expr:
    """Module names without the parts that wrappers put into them."""
    return name.str.replace_all(_WRAPPED, "")


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
