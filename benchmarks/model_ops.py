"""The ops of a decoder with their tensor shapes and dtypes: what a made dump is a dump of."""

from __future__ import annotations

from dataclasses import dataclass

LAYERS = 4


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of the decoder whose ops are dumped."""

    hidden: int = 4096
    heads: int = 32
    ffn: int = 11008
    vocab: int = 32000
    sequence: int = 512


MODELS = {"7b": ModelShape(), "1b": ModelShape(2048, 16, 5632, 32000, 512), "tiny": ModelShape(64, 4, 176, 512, 32)}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A slot that holds a tensor."""

    dtype: str
    shape: tuple[int, ...]
    requires_grad: bool = False


@dataclass(frozen=True, slots=True)
class Op:
    """One record: name without call index, direction, and its slots."""

    name: str
    direction: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def decoder_ops(shape: ModelShape) -> list[Op]:
    """Return the ops of `LAYERS` layers, then of embedding and loss; forward before backward in each."""
    h, f, s, v, a = shape.hidden, shape.ffn, shape.sequence, shape.vocab, shape.heads

    def half(*dims: int) -> Tensor:
        return Tensor("bfloat16", dims, requires_grad=True)

    def single(*dims: int) -> Tensor:
        return Tensor("float32", dims, requires_grad=True)

    x, q = half(1, s, h), half(1, a, s, h // a)
    scores, wide = half(1, a, s, s), half(1, s, f)
    layer = [
        Op("Functional.rms_norm", "forward", (single(1, s, h), single(h)), (single(1, s, h),)),
        *[Op("Functional.linear", "forward", (x, half(h, h)), (x,)) for _ in range(3)],
        Op("Torch.matmul", "forward", (q, half(1, a, h // a, s)), (scores,)),
        Op("Functional.softmax", "forward", (scores,), (scores,)),
        Op("Torch.matmul", "forward", (scores, q), (q,)),
        Op("Functional.linear", "forward", (x, half(h, h)), (x,)),
        Op("Distributed.all_reduce", "forward", (x,), (x,)),
        Op("Tensor.__add__", "forward", (x, x), (x,)),
        Op("Functional.rms_norm", "forward", (single(1, s, h), single(h)), (single(1, s, h),)),
        Op("Functional.linear", "forward", (x, half(f, h)), (wide,)),
        Op("Functional.silu", "forward", (wide,), (wide,)),
        Op("Torch.mul", "forward", (wide, wide), (wide,)),
        Op("Functional.linear", "forward", (wide, half(h, f)), (x,)),
        Op("Distributed.all_reduce", "forward", (x,), (x,)),
    ]
    ends = [
        Op("Functional.embedding", "forward", (Tensor("int64", (1, s)), half(v, h)), (x,)),
        Op("Functional.cross_entropy", "forward", (single(s, v), Tensor("int64", (s,))), (single(),)),
    ]
    return (layer + _backward(layer)) * LAYERS + ends + _backward(ends)


def _backward(forward: list[Op]) -> list[Op]:
    return [
        Op(op.name, "backward", op.outputs, tuple(t for t in op.inputs if t.dtype != "int64"))
        for op in reversed(forward)
        if not op.name.startswith("Distributed")
    ]


def small_ops() -> list[Op]:
    """Return three ops on tensors of 10 KB."""
    single, half = (
        Tensor("float32", (1, 40, 64), requires_grad=True),
        Tensor("bfloat16", (1, 80, 64), requires_grad=True),
    )
    return [
        Op("Functional.silu", "forward", (half,), (half,)),
        Op("Torch.mul", "forward", (single, single), (single,)),
        Op("Tensor.__add__", "forward", (half, half), (half,)),
    ]
