"""MSAdapter's torch: the names of torch on the tensors of MindSpore."""

from mindspore import Tensor
from mindspore import _add as add
from mindspore import _die as abs
from mindspore import _faulty as exp

from torch import nn


def tensor(value):
    return Tensor(value)


__all__ = ["Tensor", "abs", "add", "exp", "nn", "tensor"]
