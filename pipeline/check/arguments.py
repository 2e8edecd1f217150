"""The arguments of one side of a call, made from those of the dump: on its device, in its dtypes, with leaves for gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from opassay.kernels.precision.conditioning import rounded_at_random
from opassay.pipeline.check.inputs import Stand


@dataclass(slots=True)
class Arguments:
    """Makes fresh arguments for one side, detached from everything else.

    Attributes
    ----------
    device : torch.device
        Of the side.
    ups : mapping of torch.dtype to torch.dtype
        What dtypes are raised to.
    rounded_to : torch.dtype or None
        What float32 tensors are rounded to first, as autocast does.
    gradients : bool
        Tensors that require a gradient get a leaf to collect it.
    moved_by : torch.Generator or None
        Draws another rounding of each float.
    leaves : list of torch.Tensor or None
        Filled by `value`: the leaf of each tensor, None where it wants no gradient.
    """

    device: torch.device
    ups: Mapping[torch.dtype, torch.dtype] = field(default_factory=dict)
    rounded_to: torch.dtype | None = None
    gradients: bool = False
    moved_by: torch.Generator | None = None
    leaves: list[torch.Tensor | None] = field(default_factory=list)

    def value(self, value: Any) -> Any:
        """The same structure with tensors, dtypes and devices of this side."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, dict):
            return {key: self.value(item) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self.value(item) for item in value)
        if isinstance(value, torch.dtype):
            return self.ups.get(value, value)
        return self.device if value is Stand.DEVICE else value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        leaf = tensor.detach()
        if self.rounded_to is not None and leaf.dtype is torch.float32:
            leaf = leaf.to(self.rounded_to)
        dtype = self.ups.get(tensor.dtype, tensor.dtype)
        leaf = self.moved(leaf.to(device=self.device, dtype=dtype, copy=True), self.rounded_to or tensor.dtype)
        if not (self.gradients and tensor.requires_grad):
            self.leaves.append(None)
            return leaf
        self.leaves.append(leaf.requires_grad_())
        return leaf.clone()  # no leaf: operators may write into it

    def moved(self, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The values themselves, or as another rounding of them would have been."""
        if self.moved_by is None or not (dtype.is_floating_point or dtype.is_complex):
            return values
        return rounded_at_random(values, dtype, self.moved_by)
