"""Communication operators: which there are, what their arguments are, and the tables of their calls and tensors.

The tables are filled by ``kernels.communication``, a rank at a time; ``kernels.call_events`` joins the calls of several ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

WORLD: Final = ""
"""Group of a call that names none: all ranks."""

UNKNOWN_GROUP: Final = "?"
"""Group of a call that names one without its ranks."""

TYPES: Final = ("Distributed",)
"""First components of the names of communication records."""

RANK_WORDS: Final = ("src", "dst", "group_src", "group_dst")
BATCH: Final = "batch_isend_irecv"


@dataclass(frozen=True, slots=True)
class Communication:
    """One communication API.

    Attributes
    ----------
    role : {"collective", "send", "recv"}
        What a call is in its event; for ``batch_isend_irecv`` each of its operations has a role of its own.
    arguments : tuple of str
        Names of the positional arguments, in order.
    sent, got : str
        The argument whose value before the call is what the rank gives, and the one whose value after it is what it gets.
    """

    role: str
    arguments: tuple[str, ...]
    sent: str = ""
    got: str = ""


def _point_to_point(role: str, what: str, *, option: str = "tag") -> Communication:
    rank = "dst" if role == "send" else "src"
    arguments = (what, rank, "group", option, f"group_{rank}")
    return Communication(role, arguments, *((what, "") if role == "send" else ("", what)))


def _collective(arguments: str, sent: str, got: str) -> Communication:
    return Communication("collective", tuple(arguments.split()), sent, got)


_GATHER_INTO: Final = _collective("output_tensor input_tensor group async_op", "input_tensor", "output_tensor")
_SCATTER_TENSOR: Final = _collective("output input op group async_op", "input", "output")

COMMUNICATIONS: Final[Mapping[str, Communication]] = {
    "send": _point_to_point("send", "tensor"),
    "isend": _point_to_point("send", "tensor"),
    "recv": _point_to_point("recv", "tensor"),
    "irecv": _point_to_point("recv", "tensor"),
    "send_object_list": _point_to_point("send", "object_list", option="device"),
    "recv_object_list": _point_to_point("recv", "object_list", option="device"),
    BATCH: Communication("collective", ("p2p_op_list",)),
    "broadcast": _collective("tensor src group async_op group_src", "tensor", "tensor"),
    "all_reduce": _collective("tensor op group async_op", "tensor", "tensor"),
    "reduce": _collective("tensor dst op group async_op group_dst", "tensor", "tensor"),
    "all_gather": _collective("tensor_list tensor group async_op", "tensor", "tensor_list"),
    "all_gather_into_tensor": _GATHER_INTO,
    "_all_gather_base": _GATHER_INTO,
    "gather": _collective("tensor gather_list dst group async_op group_dst", "tensor", "gather_list"),
    "scatter": _collective("tensor scatter_list src group async_op group_src", "scatter_list", "tensor"),
    "reduce_scatter": _collective("output input_list op group async_op", "input_list", "output"),
    "reduce_scatter_tensor": _SCATTER_TENSOR,
    "_reduce_scatter_base": _SCATTER_TENSOR,
    "all_to_all_single": _collective(
        "output input output_split_sizes input_split_sizes group async_op", "input", "output"
    ),
    "all_to_all": _collective("output_tensor_list input_tensor_list group async_op", "input_tensor_list", "output_tensor_list"),
}  # fmt: skip
"""By exact API name: ``reduce`` is not ``reduce_scatter``."""

CALLS: Final[Mapping[str, pl.DataType]] = {
    "op": pl.UInt32(),  # row number in the ops table
    "item": pl.UInt32(),  # number of the operation within a batch_isend_irecv, else 0
    "api": pl.String(),
    "way": pl.String(),  # forward or backward
    "role": pl.String(),  # collective, send, recv
    "group": pl.String(),  # member ranks "[0, 2]"; WORLD; UNKNOWN_GROUP; "#1f2e3d4c" for an id whose ranks no record says
    "root": pl.Int64(),  # global rank of src or dst of a collective that has one
    "peer": pl.Int64(),  # global rank at the other end of a send or recv; null in a recv from any source
    "tag": pl.Int64(),  # of a send or recv, 0 where none is given
    "order": pl.UInt32(),  # how many calls of the same rank before this one are alike (see ``numbered``)
    "reduce": pl.String(),  # SUM, AVG, MAX ...; null for APIs that reduce nothing
    "asynchronous": pl.Boolean(),  # the call returned before it was done: what it got may have been recorded too early
    "parts": pl.Int64(),  # ranks in the group as the lengths of lists and tensors show them; null where they do not
}

TENSORS: Final[Mapping[str, pl.DataType]] = {
    "op": pl.UInt32(),
    "item": pl.UInt32(),
    "side": pl.String(),  # sent; got; before: what a receive buffer held before an irecv of a batch
    "part": pl.UInt32(),  # place in a list of tensors; 0 for a tensor that stands alone
    "listed": pl.Boolean(),  # whether it stands in a list
    "row": pl.UInt32(),  # row number in the dump
    "kind": pl.UInt8(),  # vocab.RowKind; NONE for a masked buffer
    "dtype": pl.String(),
    "shape": pl.String(),
    "elements": pl.Int64(),  # product of the shape, null where it is not told
    "max": pl.Float64(),
    "min": pl.Float64(),
    "mean": pl.Float64(),
    "norm": pl.Float64(),
    "md5": pl.String(),
    "data_name": pl.String(),
    "splits": pl.List(
        pl.Int64()
    ),  # rows of each part of an all_to_all_single with uneven parts; null where they are even
}
