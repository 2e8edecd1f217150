"""The fourth table: what the search of the first difference knows of a rank's ops and calls; filled while slices are judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

import polars as pl


class Kind(IntEnum):
    """How an op's outputs compare; of several the gravest counts."""

    SAME = 0
    ALONE = 1  # an output without a partner: the other side does not have it
    DTYPE = 2  # numbers agree, the declared dtype differs
    NUMBERS = 3  # values, nan and inf, or shapes differ


class Seen(IntEnum):
    """How values that go in or come out compare, several taken together."""

    NOTHING = 0  # nothing that could be compared: there are none, or the dump holds null in their place
    AGREE = 1
    DIFFER = 2


OP_FACTS: Final[Mapping[str, pl.DataType]] = {
    "op": pl.UInt32(),  # row number in the target's ops table
    "name": pl.String(),
    "kind": pl.UInt8(),  # Kind
    "inputs": pl.UInt8(),  # Seen, of inputs and parameters
    "input_gap": pl.Float64(),  # how far the worst input is off: relative error of its norm, or share of elements beyond a thousandth;
    # of a backward the call of its forward counts too, whose values it uses
    "fed": pl.UInt8(),  # Seen, of inputs without parameters
    "fed_gap": pl.Float64(),  # how far the worst of these is off
    "output_gap": pl.Float64(),  # the same of the worst output; null where it has no such figure
    "far_in": pl.Boolean(),  # a tensor among the inputs is as far off as makes an output differ by itself
    "weighs": pl.Boolean(),  # a parameter differs, and an output with it
    "inputless": pl.Boolean(),  # a gradient of parameters or a debug save: it has no input side at all
    "follows": pl.Boolean(),  # an earlier op of this rank explains it (see ``kernels.consequences``)
    "row": pl.String(),  # name of the first output that is of this kind
    "figures": pl.String(),  # what differs there, in figures
    "message": pl.String(),  # Err_message of that row
    "input_row": pl.String(),  # name of the first input that differs, null where none does
    "input_at": pl.UInt32(),  # its row number in the target's table
    "input_figures": pl.String(),
    "before": pl.String(),  # the op of one side directly before it, and which side ("X, which only the target has"); null for none
    "twin": pl.String(),  # golden op of its kind that was given just what its first differing input holds; null for none
}

CALL_FACTS: Final[Mapping[str, pl.DataType]] = {
    "op": pl.UInt32(),
    "item": pl.UInt32(),  # number within a batch_isend_irecv, else 0
    "gives": pl.UInt8(),  # Seen, of the tensors that this rank gives into the call
    "gets": pl.UInt8(),  # Seen, of those that it gets from it
    "given_gap": pl.Float64(),  # how far the worst of them is off
    "got_gap": pl.Float64(),
    "row": pl.String(),  # name of the first given tensor that differs, null where none does
    "figures": pl.String(),
    "sizes": pl.String(),  # how many ranks make the call on either side, where that differs; else null
}


MISSING: Final[Mapping[str, pl.DataType]] = {
    "op": pl.UInt32(),  # of the target, behind which it is missing; 0 where it would be the first
    "name": pl.String(),
}


@dataclass(slots=True)
class RankFacts:
    """What one rank contributes to the search.

    Attributes
    ----------
    rank : int
        Number of the rank; 0 for single files.
    label : str
        ``rank3``, ``proc4242`` or "".
    ops : polars.DataFrame
        Schema ``OP_FACTS``, in execution order: every op that may be an answer (see ``kernels.op_facts.candidates``).
    calls : polars.DataFrame
        The target's communications, schema ``schemas.communication_rows.CALLS``.
    exchanged : polars.DataFrame
        Schema ``CALL_FACTS``: what the calls give and get. A call that is not here shows nothing.
    missing : polars.DataFrame
        Schema ``MISSING``: ops that only the golden side has, in its order.
    places : polars.DataFrame
        ``op`` and ``counted`` of the ops in these tables: how many ops that compute stand before it on this rank.
    details : dict of int to dict
        Rows of the ops that may be an answer: ``input`` and ``output`` -> row name -> figures, and ``stack`` -> list of lines or None.
    """

    rank: int
    label: str
    ops: pl.DataFrame
    calls: pl.DataFrame
    exchanged: pl.DataFrame
    missing: pl.DataFrame
    places: pl.DataFrame
    details: dict[int, dict[str, Any]] = field(default_factory=dict)
