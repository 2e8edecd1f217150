"""How long a call will take, by its shapes: good enough to begin with the longest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

Shape = Sequence[int]

PER_CALL: Final = 50_000.0
"""What any call costs, in elements."""

_PRODUCTS: Final = frozenset(
    {
        "__matmul__", "__rmatmul__", "addbmm", "addmm", "addmv", "baddbmm", "bmm", "chain_matmul", "dot", "einsum", "inner",
        "linear", "matmul", "mm", "mv", "npu_bmmV2", "npu_linear", "outer", "tensordot",
    }
)  # fmt: skip
_PRODUCT_SPEED: Final = 8.0  # multiply-adds in the time of one plain element
_ATTENTION: Final = ("attention", "attn")


def call_cost(api: str, inputs: Sequence[Shape], outputs: Sequence[Shape], *, backward: bool = False) -> float:
    """Estimate a call.

    Parameters
    ----------
    api : str
        Operator, plain: ``matmul``.
    inputs, outputs : sequence of shapes
        Of its tensors, in order.
    backward : bool
        Whether gradients are computed as well.

    Returns
    -------
    float
        In plain elements; comparable with the cost of other calls only.
    """
    elements = sum(map(math.prod, inputs)) + sum(map(math.prod, outputs))
    work = elements + _multiplications(api.rpartition(".")[2], inputs, outputs) / _PRODUCT_SPEED
    return PER_CALL + work * (3 if backward else 1)


def _multiplications(api: str, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> float:
    """Multiply-adds beyond one an element."""
    if not inputs or not inputs[0]:
        return 0.0
    first, results = inputs[0], math.prod(outputs[0]) if outputs else 0
    if api in _PRODUCTS or api.removesuffix("_") in _PRODUCTS:
        return float(results * first[-1])
    if "conv" in api and len(inputs) > 1 and inputs[1]:
        return results * math.prod(inputs[1]) / max(inputs[1][0], 1)
    if any(word in api for word in _ATTENTION) and len(inputs) > 1 and len(inputs[1]) > 1:
        return 2.0 * math.prod(first) * max(inputs[1][-2], inputs[1][0])
    return 0.0
