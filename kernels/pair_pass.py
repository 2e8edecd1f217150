"""The door to the tensor pass: feed two stored arrays piece by piece, get the sums that every metric is read from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

from numpy.typing import NDArray
from opassay.kernels.pair_sums import BLOCK, needs_scaling, rescale
from opassay.schemas.dtypes import DType
from opassay.schemas.metric_rows import PairSums

__all__ = ["Engine", "PairPass", "Scales", "make_pass", "needs_scaling", "rescale"]

Engine = Literal["auto", "numba", "numpy"]
Scales = tuple[int, int, int]


class PairPass(ABC):
    """One pass over one segment of a pair.

    Parameters
    ----------
    target, golden : DType
        What the stored bits of the two sides mean; they may differ.
    """

    def __init__(self, target: DType, golden: DType) -> None:
        self.target = target
        self.golden = golden

    @abstractmethod
    def feed(self, target: NDArray[Any], golden: NDArray[Any]) -> None:
        """Measure the next elements.

        Parameters
        ----------
        target, golden : ndarray, shape (n,) or (2n,) for complex
            C-contiguous arrays of the DType's storage dtype (complex: real and imaginary parts in turn), equally many
            elements. Every call but the last must bring a multiple of ``BLOCK`` elements. Read-only and unaligned
            arrays are fine.

        Raises
        ------
        ValueError
            If the element counts differ, or a piece follows one that was not a multiple of ``BLOCK``.
        """

    @abstractmethod
    def result(self) -> PairSums:
        """Sums of all that was fed; the same bytes however the elements were cut into pieces."""


def elements_of(target: NDArray[Any], golden: NDArray[Any], pair: PairPass, fed: int) -> int:
    """Element count of one piece, after checking what `PairPass.feed` demands.

    Raises
    ------
    ValueError
        See `PairPass.feed`.
    """
    count = target.size // 2 if pair.target.kind == "complex" else target.size
    golden_count = golden.size // 2 if pair.golden.kind == "complex" else golden.size
    if count != golden_count:
        raise ValueError(f"the pass got {count} target elements but {golden_count} golden elements; feed equal counts")
    if fed % BLOCK and count:
        raise ValueError(
            f"a piece follows {fed} elements; all pieces but the last must be multiples of {BLOCK} elements"
        )
    return count


def make_pass(target: DType, golden: DType, engine: Engine = "auto", scales: Scales | None = None) -> PairPass:
    """A fresh pass for one segment.

    Parameters
    ----------
    target, golden : DType
        The two sides' element types.
    engine : {"auto", "numba", "numpy"}
        ``auto`` takes numba where it can be imported, else numpy.
    scales : tuple of int, optional
        What `rescale` said for the merged sums of the first pass: the second pass divides by these powers of two.

    Returns
    -------
    PairPass
        Scaled passes and pairs of a complex with a real side always run on numpy: they are rare.

    Raises
    ------
    ImportError
        If ``engine`` is ``numba`` and numba cannot be imported.
    """
    if engine != "numpy" and scales is None and (target.kind == "complex") == (golden.kind == "complex"):
        compiled = _compiled_pass(engine)
        if compiled is not None:
            return compiled(target, golden)
    from opassay.kernels.numpy_pass import NumpyPass

    return NumpyPass(target, golden, scales)


@cache
def _compiled_pass(engine: Engine) -> Callable[[DType, DType], PairPass] | None:
    """The numba pass; None where ``engine`` leaves the choice and numba cannot be imported."""
    try:
        from opassay.kernels.numba_pass import NumbaPass
    except ImportError:
        if engine == "numba":
            raise
        return None
    return NumbaPass
