"""The table of fused operators: for each name its reference, its gradient and what takes its place on cuda."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import torch
from opassay.kernels.fused import activations, attention, movement, norms, optimizers, products, softmaxes
from opassay.kernels.fused.widening import rounded_once, tensors, wide
from torch import Tensor
from torch.nn import functional

Grads = Tensor | Sequence[Tensor | None]


@dataclass(frozen=True, slots=True)
class FusedOp:
    """A fused operator.

    Attributes
    ----------
    name : str
        As dumps have it, without type and number.
    call : callable
        The operator's documented arguments, positional or by keyword, to its outputs, in the precision of its inputs: raise
        them first for a reference. 16-bit inputs are computed in float32 and rounded once. Inputs are left alone, also ``out``.
        Differentiable where ``backward`` is not None; outputs without a gradient do not require one.
    backward : callable or None
        ``backward(grads, *args, **kwargs)``: grads is the gradient of the first output, or one or None for each output; the
        result has one gradient or None for each tensor of the call, positional ones first, lists walked. None if the operator
        has no gradient.
    note : str
        One line for explanations: the formula, and where the gradient comes from.
    checked : int or None
        So many outputs, from the first, are compared; None is all of them.
    statistics : tuple of int
        Outputs that are float32 on the device whatever the inputs are: judge them by the limits of the inputs' dtype.
    """

    name: str
    call: Callable[..., Any]
    backward: Callable[..., tuple[Tensor | None, ...]] | None
    note: str
    checked: int | None = None
    statistics: tuple[int, ...] = ()


def by_formula(
    call: Callable[..., Any], formula: Callable[..., dict[str, Tensor]]
) -> Callable[..., tuple[Tensor | None, ...]]:
    """A backward that takes the gradient of the first output and computes those of the named arguments.

    Parameters
    ----------
    call : callable
        The forward: its signature gives places their names.
    formula : callable
        ``formula(grad, *args, **kwargs)`` -> gradients by argument name.
    """
    names = inspect.signature(call)

    def backward(grads: Grads, *args: Any, **kwargs: Any) -> tuple[Tensor | None, ...]:
        grad = grads if isinstance(grads, Tensor) else grads[0]
        if grad is None:
            return (None,) * len(tensors(args, kwargs))
        found = formula(wide(grad), *wide(args), **wide(kwargs))
        places = list(names.bind(*args, **kwargs).arguments)[: len(args)]
        named = [*zip(places, args, strict=True), *kwargs.items()]
        results = []
        for name, value in named:
            if isinstance(value, Tensor):
                result = found.get(name)
                results.append(None if result is None else result.to(value.dtype))
        return tuple(results)

    return backward


def by_autograd(call: Callable[..., Any]) -> Callable[..., tuple[Tensor | None, ...]]:
    """A backward that runs the forward and differentiates it.

    Parameters
    ----------
    call : callable
        The forward, made of differentiable steps.
    """

    def backward(grads: Grads, *args: Any, **kwargs: Any) -> tuple[Tensor | None, ...]:
        with torch.enable_grad():
            leaves: list[Tensor] = []
            args, kwargs = _leaves(args, leaves), _leaves(kwargs, leaves)
            result = call(*args, **kwargs)
            outputs = (result,) if isinstance(result, Tensor) else tuple(result)
        given = (grads,) if isinstance(grads, Tensor) else tuple(grads)
        pairs = [
            (output, grad)
            for output, grad in zip(outputs, given, strict=False)
            if grad is not None and output.requires_grad
        ]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        if not pairs or not wanted:
            return (None,) * len(leaves)
        found = iter(torch.autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True))
        return tuple(next(found) if leaf.requires_grad else None for leaf in leaves)

    return backward


def _leaves(value: Any, leaves: list[Tensor]) -> Any:
    if isinstance(value, Tensor):
        leaf = value.detach().requires_grad_(value.is_floating_point())
        leaves.append(leaf)
        return leaf
    if isinstance(value, (list, tuple)):
        return type(value)(_leaves(item, leaves) for item in value)
    if isinstance(value, dict):
        return {key: _leaves(item, leaves) for key, item in value.items()}
    return value


def _with_formula(
    call: Callable[..., Any], formula: Callable[..., dict[str, Tensor]], note: str, statistics: tuple[int, ...] = ()
) -> FusedOp:
    rounded = rounded_once(call, statistics)
    return FusedOp(call.__name__, rounded, by_formula(rounded, formula), note, statistics=statistics)


def _with_autograd(
    call: Callable[..., Any], note: str, checked: int | None = None, statistics: tuple[int, ...] = ()
) -> FusedOp:
    rounded = rounded_once(call, statistics)
    return FusedOp(call.__name__, rounded, by_autograd(rounded), note, checked, statistics)


_GELU: Final = "x sigmoid(1.702 x); gradient by its formula"
_OPS: Final = (
    FusedOp(
        "npu_apply_adam_w",
        optimizers.npu_apply_adam_w,
        None,
        "one AdamW step, powers before it; amsgrad takes max(max_grad_norm, v); no gradient",
    ),
    _with_autograd(movement.npu_confusion_transpose, "permute and reshape, moves elements only; gradient by autograd"),
    _with_formula(activations.fast_gelu, activations.fast_gelu_backward, _GELU),
    _with_formula(activations.npu_fast_gelu, activations.npu_fast_gelu_backward, _GELU),
    _with_autograd(
        norms.npu_layer_norm_eval, "(x - mean) / sqrt(var + eps) weight + bias, var biased; gradient by autograd"
    ),
    _with_formula(products.npu_linear, products.npu_linear_backward, "input weight^T + bias; gradient by its formula"),
    _with_autograd(
        attention.npu_fusion_attention,
        "softmax((Q K^T + pse) scale, -inf where masked) V; first output compared; gradient in closed form, in pieces",
        checked=1,
        statistics=(1, 2),
    ),
    _with_formula(
        norms.npu_rms_norm,
        norms.npu_rms_norm_backward,
        "x rstd gamma, rstd = 1 / sqrt(mean(x^2) + epsilon); gradient by its formula",
        statistics=(1,),
    ),
    _with_formula(
        products.npu_rotary_mul,
        products.npu_rotary_mul_backward,
        "r1 x + r2 x', x' turned by halves or in pairs; gradient by its formula",
    ),
    _with_formula(
        softmaxes.npu_scaled_masked_softmax,
        softmaxes.npu_scaled_masked_softmax_backward,
        "softmax(x scale, -10000 where masked); gradient by its formula",
    ),
    _with_formula(
        activations.npu_swiglu, activations.npu_swiglu_backward, "silu(A) B of two halves; gradient by its formula"
    ),
    FusedOp(
        "npu_apply_adam",
        optimizers.npu_apply_adam,
        None,
        "one Adam step, powers of it; Nesterov where asked; no gradient",
    ),
    _with_autograd(norms.npu_group_norm_silu, "silu of the group norm, with mean and rstd; gradient by autograd"),
    _with_formula(activations.npu_mish, activations.npu_mish_backward, "x tanh(softplus(x)); gradient by its formula"),
    _with_autograd(
        softmaxes.npu_moe_gating_top_k_softmax,
        "the k greatest of softmax(x), their experts and row numbers; gradient by autograd",
    ),
    _with_autograd(movement.npu_sort_v2, "sorted values, moves elements only; gradient by autograd"),
)

FUSED: Final[Mapping[str, FusedOp]] = MappingProxyType({op.name: op for op in _OPS})
"""The fused operators by name; ``fast_gelu`` and ``npu_fast_gelu`` are one."""


def reference(name: str) -> Callable[..., Any] | None:
    """The reference of an operator, or None if there is none: raise its inputs before the call."""
    op = FUSED.get(name)
    return None if op is None else op.call


def _layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Tensor:
    shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
    return functional.layer_norm(input, shape, weight, bias, eps)


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return functional.linear(input, weight, bias)


def _mish(self: Tensor) -> Tensor:
    return functional.mish(self)


_CUDA: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "npu_fusion_attention": attention.scaled_dot_product,
        "npu_layer_norm_eval": _layer_norm,
        "npu_linear": _linear,
        "npu_mish": _mish,
    }
)


def cuda_equivalent(name: str) -> Callable[..., Any] | None:
    """What a cuda device runs in place of an operator, with the operator's arguments, in their dtypes.

    Returns
    -------
    callable or None
        torch's own fused function where it has one; None elsewhere: run ``FUSED[name].call``.
    """
    return _CUDA.get(name)
