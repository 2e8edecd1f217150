"""Faults that ``run_ranks`` plants on the target side, and what the search must say of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

Answer = tuple[int, str, str, str]  # rank, op, origin, stage

GELU, MATMUL, ZERO = "Functional.gelu.0.forward", "Torch.matmul.0.forward", "Tensor.__sub__.0.forward"
SUM, PAIR_SUM = "Distributed.all_reduce.0.forward", "Distributed.all_reduce.1.forward"
SCALE, TANH, CAT = "Tensor.__mul__.0.forward", "Torch.tanh.0.forward", "Torch.cat.0.forward"
FLOOR, SIGMOID = "Torch.floor.0.forward", "Torch.sigmoid.0.forward"
GATHER, LIST_GATHER = "Distributed.all_gather_into_tensor.0.forward", "Distributed.all_gather.0.forward"
SCATTER, LIST_SCATTER = "Distributed.reduce_scatter_tensor.0.forward", "Distributed.reduce_scatter.0.forward"
BROADCAST, SEND, RECV = (
    "Distributed.broadcast.0.forward",
    "Distributed.send.0.forward",
    "Distributed.recv.0.forward",
)
ISEND, IRECV, BATCH = (
    "Distributed.isend.0.forward",
    "Distributed.irecv.0.forward",
    "Distributed.batch_isend_irecv.0.forward",
)
RING_ADD, LAST = "Tensor.__add__.0.forward", "Torch.softmax.0.forward"
LAST_BACK, MATMUL_BACK, GRAD_SUM = (
    "Torch.softmax.0.backward",
    "Torch.matmul.0.backward",
    "Distributed.all_reduce.2.forward",
)


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong on one rank.

    Attributes
    ----------
    rank, op : int, str
        Where.
    effect : str
        What happens: ``times`` (values times 3), ``nan``, ``inf``, ``shift``, ``double`` (dtype), ``row`` (one row more),
        ``extra`` (one more op after it, that is of no use), ``negated`` (one more that changes the sign), ``drop`` (the op is not
        in the dump).
    before : bool
        It happens to what the op is given, and no op shows it.
    """

    rank: int
    op: str
    effect: str = "times"
    before: bool = False


@dataclass(frozen=True)
class Plant:
    """A scenario: its faults, and what must be found.

    Attributes
    ----------
    faults : tuple of Fault
        On the target side.
    first, then : tuple of Answer
        The answer and the independent ones after it, in order.
    masked : tuple of (int, str, str)
        Rank, op and side (``input``, ``output``) of which the dumps of both sides hold null.
    world : int
        Processes.
    modes : tuple of str
        Kinds of dumps in which it is looked for.
    """

    faults: tuple[Fault, ...]
    first: tuple[Answer, ...]
    then: tuple[Answer, ...] = ()
    masked: tuple[tuple[int, str, str], ...] = ()
    world: int = 4
    modes: tuple[str, ...] = field(default=("statistics", "md5"))


ALL: Final = ("statistics", "md5", "tensor")
STATISTICS: Final = ("statistics",)

PLANTS: Final = {
    "clean": Plant((), (), modes=ALL),
    "before": Plant((Fault(2, GELU),), ((2, GELU, "added", "before"),), modes=ALL),
    "after": Plant((Fault(1, SCALE),), ((1, SCALE, "added", "during"),), modes=ALL),
    "reduction": Plant((Fault(3, SUM),), ((3, SUM, "communication", "during"),), modes=ALL),
    "gather": Plant((Fault(1, GATHER),), ((1, GATHER, "communication", "during"),)),
    "list_gather": Plant((Fault(2, LIST_GATHER),), ((2, LIST_GATHER, "communication", "during"),)),
    "scatter": Plant((Fault(0, SCATTER),), ((0, SCATTER, "communication", "during"),)),
    "list_scatter": Plant((Fault(3, LIST_SCATTER),), ((3, LIST_SCATTER, "communication", "during"),)),
    "nan": Plant((Fault(0, TANH, "nan"),), ((0, TANH, "added", "during"),), modes=ALL),
    "inf": Plant((Fault(1, MATMUL, "inf"),), ((1, MATMUL, "added", "before"),)),
    "golden_zero": Plant((Fault(2, ZERO, "shift"),), ((2, ZERO, "added", "before"),), modes=ALL),
    "sent": Plant((Fault(0, SEND, before=True),), ((0, SEND, "given", "during"),), modes=ALL),
    "received": Plant((Fault(1, RECV),), ((1, RECV, "communication", "during"),)),
    "ring_sent": Plant((Fault(0, ISEND, before=True),), ((0, ISEND, "given", "during"),)),
    "batch_sent": Plant((Fault(0, BATCH, before=True),), ((0, BATCH, "given", "during"),)),
    "batch_received": Plant((Fault(2, BATCH),), ((2, BATCH, "communication", "during"),)),
    "root": Plant((Fault(0, BROADCAST, before=True),), ((0, BROADCAST, "given", "during"),), modes=ALL),
    "op_then_sent": Plant((Fault(0, SIGMOID),), ((0, SIGMOID, "added", "during"),)),
    "sub_group": Plant(
        (Fault(2, PAIR_SUM), Fault(3, PAIR_SUM)),
        ((2, PAIR_SUM, "communication", "during"), (3, PAIR_SUM, "communication", "during")),
    ),
    "dtype": Plant((Fault(1, FLOOR, "double"),), ((1, FLOOR, "dtype", "before"),), modes=("statistics", "tensor")),
    "shape": Plant((Fault(3, CAT, "row"),), ((3, CAT, "added", "during"),), modes=ALL),
    "extra_op": Plant((Fault(2, FLOOR, "extra"),), ((2, "Torch.relu.0.forward", "alone", "before"),)),
    "extra_negation": Plant(
        (Fault(1, CAT, "negated"),), ((1, RING_ADD, "inherited", "during"),)
    ),
    "dropped": Plant((Fault(3, FLOOR, "drop"),), ((3, FLOOR, "missing", "before"),)),
    "backward": Plant((Fault(1, MATMUL_BACK),), ((1, MATMUL_BACK, "added", "during"),), modes=ALL),
    "backward_only": Plant((Fault(3, LAST_BACK),), ((3, LAST_BACK, "added", "during"),)),
    "gradient_sum": Plant((Fault(2, GRAD_SUM),), ((2, GRAD_SUM, "communication", "during"),)),
    "two": Plant(
        (Fault(2, TANH), Fault(0, SCALE)),
        ((0, SCALE, "added", "during"),),
        ((2, TANH, "added", "during"),),
    ),
    "both_before": Plant(
        (Fault(3, GELU), Fault(1, MATMUL)),
        ((1, MATMUL, "added", "before"), (3, GELU, "added", "before")),
    ),
    "masked_output": Plant((Fault(2, TANH),), ((2, GATHER, "given", "during"),), masked=((2, TANH, "output"),)),
    "masked_received": Plant(
        (Fault(2, IRECV),), ((2, RING_ADD, "inherited", "during"),), masked=((2, IRECV, "output"),)
    ),
    "masked_relay": Plant(
        (Fault(2, SEND, before=True),), ((3, RECV, "unseen", "during"),), ((2, ISEND, "given", "during"),),
        masked=((2, SEND, "input"), (2, SEND, "output"))
    ),
    "masked_given": Plant(
        (Fault(0, ISEND, before=True),), ((0, ISEND, "given", "during"),), masked=((1, IRECV, "output"),)
    ),
    "weights": Plant((Fault(1, MATMUL, before=True),), ((1, MATMUL, "inherited", "before"),)),
    "pair_clean": Plant((), (), world=2),
    "pair_reduction": Plant((Fault(1, SUM),), ((1, SUM, "communication", "during"),), world=2),
    "pair_before": Plant((Fault(0, GELU, "nan"),), ((0, GELU, "added", "before"),), world=2),
    "pair_sent": Plant((Fault(0, SEND, before=True),), ((0, SEND, "given", "during"),), world=2),
    "pair_root": Plant((Fault(0, BROADCAST, before=True),), ((0, BROADCAST, "given", "during"),), world=2),
}  # fmt: skip
"""By name. Dumps of the golden side are those of ``clean`` (``pair_clean``), masked alike."""
