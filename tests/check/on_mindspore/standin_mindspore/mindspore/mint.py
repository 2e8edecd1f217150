"""A few functions of ``mindspore.mint``."""

import types

from mindspore import _add as add
from mindspore import _cat as cat
from mindspore import _die as abs
from mindspore import _faulty as exp
from mindspore import _max as max
from mindspore import _missing as acos

nn = types.SimpleNamespace(functional=types.SimpleNamespace())
__all__ = ["abs", "acos", "add", "cat", "exp", "max", "nn"]
