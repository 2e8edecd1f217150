"""As much of MindSpore as the check touches, on NumPy: tensors, a few functions, gradients by differences."""

from __future__ import annotations

import types

import numpy as np

__version__ = "0.0"
PYNATIVE_MODE = 1
float16, float32, float64, int64, bool_ = (
    np.dtype(name) for name in ("float16", "float32", "float64", "int64", "bool")
)
bfloat16 = "bfloat16"


class Tensor:
    def __init__(self, values, dtype=None):
        self.values = np.asarray(values, dtype=dtype)

    @property
    def dtype(self):
        return self.values.dtype.name.capitalize()

    @property
    def shape(self):
        return self.values.shape

    def asnumpy(self):
        return self.values

    def add(self, other):
        return Tensor(self.values + other.values)


def _add(input, other):
    return Tensor(input.values + other.values)


def _faulty(input):
    return Tensor(np.exp(input.values) * np.float32(1.01))


def _missing(input):
    raise RuntimeError("The kernel AcosExt unregistered.\n\n- C++ Call Stack: (For framework developers)")


def _max(input, dim):
    values = input.values
    return Tensor(values.max(axis=dim)), Tensor(values.argmax(axis=dim).astype(np.int64))


def _cat(tensors, dim=0):
    return Tensor(np.concatenate([one.values for one in tensors], axis=dim))


def _die(input):
    import os

    os._exit(7)


class _Gradient:
    """Gradients by central differences in float64."""

    def __init__(self, *, get_all, sens_param):
        assert get_all
        assert sens_param

    def __call__(self, function):
        def run(*leaves):
            *leaves, sens = leaves
            sens = sens if isinstance(sens, tuple) else (sens,)
            return tuple(self._of(function, leaves, place, sens) for place in range(len(leaves)))

        return run

    @staticmethod
    def _of(function, leaves, place, sens):
        base = leaves[place].values
        found = np.zeros(base.shape)
        for at in np.ndindex(*base.shape):
            sums = []
            for step in (1e-5, -1e-5):
                moved = base.astype(np.float64)
                moved[at] += step
                given = [Tensor(leaf.values.astype(np.float64)) for leaf in leaves]
                given[place] = Tensor(moved)
                made = function(*given)
                made = made if isinstance(made, tuple) else (made,)
                sums.append(sum(float((one.values * two.values).sum()) for one, two in zip(made, sens, strict=True)))
            found[at] = (sums[0] - sums[1]) / 2e-5
        return Tensor(found.astype(base.dtype))


ops = types.SimpleNamespace(GradOperation=_Gradient)
runtime = types.SimpleNamespace(launch_blocking=lambda: None)


def set_context(**_):
    pass


def get_context(_):
    return "CPU"


def set_device(target, number=0):
    assert target == "CPU"
