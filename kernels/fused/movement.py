"""npu_confusion_transpose and npu_sort_v2: they move elements and change none, so that results are compared bit by bit."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def npu_confusion_transpose(self: Tensor, perm: Sequence[int], shape: Sequence[int], transpose_first: bool) -> Tensor:
    """Permute, then reshape; or the other way round where ``transpose_first`` is false."""
    if transpose_first:
        return self.permute(*perm).reshape(*shape)
    return self.reshape(*shape).permute(*perm)


def npu_sort_v2(self: Tensor, dim: int = -1, descending: bool = False, out: Tensor | None = None) -> Tensor:
    """Sorted values along ``dim``, without their places; ``out`` is left alone, its new value is what comes back."""
    return self.sort(dim, descending).values
