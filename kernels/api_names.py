"""One API, two frameworks: MindSpore's names of operators beside PyTorch's, as data, and the keys by which they meet.

Only records whose tensors stand in the same places are in the tables: ``Primitive.gather.Gather`` (table, indices) is no
``embedding`` (indices, table), and ``Conv2D`` leaves the bias to a primitive of its own, so they meet nothing. Pure: names in,
keys out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl
from opassay.kernels import match_keys
from opassay.schemas.dtypes import mindspore_dtype

MINDSPORE: Final = "mindspore"
PYTORCH: Final = "pytorch"

TYPES: Final = {"Mint": "Torch", "MintFunctional": "Functional"}
"""First component of a record: MindSpore's -> PyTorch's, where the rest of the name is the same."""

PRIMITIVES: Final = {
    "Abs": "Torch.abs", "Add": "Torch.add", "AllReduce": "Distributed.all_reduce", "BatchMatMul": "Torch.bmm",
    "Cos": "Torch.cos", "Dense": "Functional.linear",
    "Div": "Torch.div", "Equal": "Torch.eq", "Erf": "Torch.erf", "Exp": "Torch.exp", "Floor": "Torch.floor",
    "GeLU": "Functional.gelu", "Greater": "Torch.gt", "GreaterEqual": "Torch.ge", "Less": "Torch.lt", "LessEqual": "Torch.le",
    "Log": "Torch.log", "LogSoftmax": "Functional.log_softmax", "LogicalAnd": "Torch.logical_and",
    "LogicalNot": "Torch.logical_not", "LogicalOr": "Torch.logical_or", "MatMul": "Torch.matmul", "Maximum": "Torch.maximum",
    "Minimum": "Torch.minimum", "Mul": "Torch.mul", "Neg": "Torch.neg", "NotEqual": "Torch.ne", "Pow": "Torch.pow",
    "ReLU": "Functional.relu", "ReLU6": "Functional.relu6", "RealDiv": "Torch.div", "Reciprocal": "Torch.reciprocal",
    "ReduceMean": "Torch.mean", "ReduceSum": "Torch.sum", "Reshape": "Torch.reshape", "Rsqrt": "Torch.rsqrt",
    "SiLU": "Functional.silu", "Sigmoid": "Torch.sigmoid", "Sin": "Torch.sin", "Softmax": "Functional.softmax",
    "Sqrt": "Torch.sqrt", "Square": "Torch.square", "Sub": "Torch.sub", "Tanh": "Torch.tanh", "Transpose": "Torch.permute",
}  # fmt: skip
"""Class of a MindSpore primitive (``Primitive.{attribute}.{class}``) -> the PyTorch function that takes the same arguments."""

COMMUNICATION: Final = {
    "all_to_all_with_output_shape": "all_to_all", "all_to_all_single_with_output_shape": "all_to_all_single",
    "_all_gather_base": "all_gather_into_tensor", "_reduce_scatter_base": "reduce_scatter_tensor",
}  # fmt: skip
"""Functions of ``Distributed`` in either framework -> the one whose tensors stand in the same places."""

OPS: Final = {"Functional.transpose": "Torch.permute", "Functional.gather": "Ops.gather"}
"""Functions of ``mindspore.ops`` whose PyTorch namesake takes other arguments -> the function that takes theirs, or none (``Ops``)."""

SPELLINGS: Final = {
    "__add__": "add", "__sub__": "sub", "__mul__": "mul", "__truediv__": "div", "__floordiv__": "floor_divide",
    "__matmul__": "matmul", "__pow__": "pow", "__neg__": "neg", "__abs__": "abs", "__mod__": "remainder", "__eq__": "eq",
    "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge", "absolute": "abs", "arccos": "acos",
    "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh",
    "batch_matmul": "bmm", "concat": "cat", "concatenate": "cat", "divide": "div", "true_divide": "div", "expand_dims": "unsqueeze",
    "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "multiply": "mul", "negative": "neg",
    "not_equal": "ne", "subtract": "sub", "swapaxes": "transpose", "swapdims": "transpose",
}  # fmt: skip
"""Spellings of one function in either framework -> the one they share: operators of tensors, and second names."""

_HOMES: Final = ("Torch", "Functional", "Tensor", *TYPES)
_API: Final = r"(?s)^([^.]+)\.(.+)$"
_PRIMITIVE_CLASS: Final = r"(?s)^Primitive\.(?:.*\.)?([^.]+)$"


def framework_of(header: str, dtypes: Sequence[str]) -> str:
    """The framework that a dump was made with: what its header says; where that says nothing, MindSpore writes dtypes its own way.

    Parameters
    ----------
    header : str
        The header's ``framework``; "" where there is none.
    dtypes : sequence of str
        Dtype texts of the dump.
    """
    return header or (MINDSPORE if any(mindspore_dtype(text) for text in dtypes) else PYTORCH)


def frameworks_differ(target: str, golden: str) -> bool:
    """Whether one side's APIs are MindSpore's and the other's PyTorch's; MSAdapter (mindtorch) has the names of PyTorch."""
    return (target == MINDSPORE) != (golden == MINDSPORE)


def torch_base(base: pl.Expr) -> pl.Expr:
    """Names of MindSpore APIs as PyTorch has them, as far as the tables go.

    Parameters
    ----------
    base : polars.Expr
        String column of record names without call index and direction (``base`` of ``match_keys.parts``).

    Returns
    -------
    polars.Expr
        ``Torch.add`` for ``Mint.add``, ``Functional.relu`` for ``Primitive.relu.ReLU``; other names as they are.
    """
    home, rest = base.str.extract(_API, 1), base.str.extract(_API, 2)
    primitive = base.str.extract(_PRIMITIVE_CLASS).replace_strict(PRIMITIVES, default=None, return_dtype=pl.String)
    return (
        pl.when(primitive.is_not_null())
        .then(primitive)
        .when(base.is_in(list(OPS)))
        .then(base.replace(OPS))
        .when(home.is_in(list(TYPES)))
        .then(home.replace(TYPES) + "." + rest)
        .when(home == "Distributed")
        .then(pl.lit("Distributed.") + rest.replace(COMMUNICATION))
        .otherwise(base)
    )


def family(base: pl.Expr) -> pl.Expr:
    """What a function computes, wherever it lives: ``add`` for ``Torch.add``, ``Tensor.__add__``, ``Mint.add`` and ``Tensor.add``.

    Parameters
    ----------
    base : polars.Expr
        String column, as in ``torch_base``; of either framework.

    Returns
    -------
    polars.Expr
        Names of other things (modules, communication) as ``torch_base`` has them.
    """
    known = torch_base(base)
    home, rest = known.str.extract(_API, 1), known.str.extract(_API, 2)
    return pl.when(home.is_in(_HOMES)).then(rest.replace(SPELLINGS)).otherwise(known)


def family_key(fuzzy: pl.Expr) -> pl.Expr:
    """``match_keys.fuzzy_key`` by families: ``add.forward`` for ``Mint.add.forward``; names of modules stay as they are."""
    api = fuzzy.str.extract_groups(r"(?s)^(?P<base>.+)\.(?P<way>forward|backward)$").struct
    base = api.field("base")
    module = fuzzy.str.contains(r"^(?:Module|Cell)\.")
    return pl.when(module | base.is_null()).then(fuzzy).otherwise(family(base) + "." + api.field("way"))


def paired_calls(ours: pl.DataFrame, theirs: pl.DataFrame) -> pl.DataFrame:
    """API calls of two frameworks that meet by the tables.

    Parameters
    ----------
    ours, theirs : polars.DataFrame
        ``op`` and ``name`` of calls that nothing has paired, in order.

    Returns
    -------
    polars.DataFrame
        ``op`` and ``op_golden``; each op once at most.

    Notes
    -----
    PyTorch's own name first (``Torch.add`` for ``Mint.add``), then the family. Calls meet by index; where several APIs of one side
    are one of the other (``Primitive.relu.ReLU`` and ``MintFunctional.relu`` against ``Functional.relu``), in order of appearance
    if there are as many, and not at all if not. A backward meets where its forward does.
    """
    sides = [
        side.with_columns(match_keys.parts(pl.col("name"))).filter(
            pl.col("base").is_not_null() & ~pl.col("name").str.contains(r"^(?:Module|Cell)\.")
        )
        for side in (ours, theirs)
    ]
    found = pl.DataFrame(schema={"op": pl.UInt32, "op_golden": pl.UInt32})
    for key in (torch_base, family):
        for way in ("forward", "backward"):
            sides = _left(sides, found)
            calls = [side.filter(pl.col("way") == way).with_columns(key=key(pl.col("base"))) for side in sides]
            met = _met(calls[0], calls[1])
            found = pl.concat([found, met])
            if way == "forward":
                found = pl.concat([found, _backward_of(sides[0], sides[1], met)])
    return found.sort("op")


def _left(sides: list[pl.DataFrame], found: pl.DataFrame) -> list[pl.DataFrame]:
    return [
        side.join(found, left_on="op", right_on=column, how="anti", maintain_order="left")
        for side, column in zip(sides, ("op", "op_golden"), strict=True)
    ]


def _met(ours: pl.DataFrame, theirs: pl.DataFrame) -> pl.DataFrame:
    """Calls of one direction whose keys are equal."""
    counts = [
        side.group_by("key").agg(
            size=pl.len(), bases=pl.col("base").n_unique(), indexes=pl.col("index").sort().str.join(",")
        )
        for side in (ours, theirs)
    ]
    both = counts[0].join(counts[1], on="key", suffix="_golden")
    single = (pl.col("bases") == 1) & (pl.col("bases_golden") == 1)
    counted = (pl.col("indexes") == pl.col("indexes_golden")) | (pl.col("size") != pl.col("size_golden"))
    by_index = both.filter(single & counted)  # with several APIs on a side, each counts its calls by itself
    by_order = both.join(by_index, on="key", how="anti").filter(pl.col("size") == pl.col("size_golden"))
    nth = pl.int_range(pl.len()).over("key").alias("nth")
    joined = [
        _joined(ours, theirs, by_index, "index"),
        _joined(ours.with_columns(nth), theirs.with_columns(nth), by_order, "nth"),
    ]
    return pl.concat(joined)


def _joined(ours: pl.DataFrame, theirs: pl.DataFrame, keys: pl.DataFrame, by: str) -> pl.DataFrame:
    chosen = ours.join(keys.select("key"), on="key", how="semi", maintain_order="left")
    return chosen.join(theirs, on=["key", by], suffix="_golden", maintain_order="left").select("op", "op_golden")


def _backward_of(ours: pl.DataFrame, theirs: pl.DataFrame, met: pl.DataFrame) -> pl.DataFrame:
    """The backward calls of forwards that have met."""
    call = ["base", "index"]
    names = met.join(ours.select("op", *call), on="op").join(
        theirs.select("op", *call), left_on="op_golden", right_on="op", suffix="_golden"
    )
    backward = [side.filter(pl.col("way") == "backward").select("op", *call) for side in (ours, theirs)]
    first = names.select(*call, "base_golden", "index_golden").join(backward[0], on=call)
    return first.join(
        backward[1], left_on=["base_golden", "index_golden"], right_on=call, suffix="_golden"
    ).select("op", "op_golden").sort("op")  # fmt: skip
