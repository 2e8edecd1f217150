"""A tensor that stands in several files, read like one.

Nothing is held whole: every window is put together from windows of the parts, as a `JoinPlan` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from opassay.kernels.decode import to_float64
from opassay.kernels.joining import Arrangement, gather
from opassay.pipeline.read.tensors import PageBuffer, TensorFile
from opassay.schemas.dtypes import DType

_PART: Final = PageBuffer()


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """A `Join` with nothing left open.

    Attributes
    ----------
    parts : tuple of (str, str)
        Folder and file name of each part; a folder of "" is the dump's own.
    whole : Arrangement
        Where the elements stand; of the sum: where they stand in every part.
    summed : bool
        Elements of all parts are added, in float64.
    dtype : DType
        Of what is read.
    found : str
        Element types in the files, and the shape before padding was left out.
    nbytes : int
        Of all parts.
    told : str or None
        What was done.
    """

    parts: tuple[tuple[str, str], ...]
    whole: Arrangement
    summed: bool
    dtype: DType
    found: str
    nbytes: int
    told: str | None = None

    def used(self) -> frozenset[int]:
        """Numbers of the parts that are read."""
        return frozenset(range(len(self.parts))) if self.summed else self.whole.used


class JoinedTensor:
    """What `TensorFile` is, for a tensor of several files.

    Attributes
    ----------
    plan : JoinPlan
        How it is put together.
    dtype, shape, size, nbytes, side, found, whole
        As in `TensorFile`; ``whole`` is never true.
    """

    __slots__ = ("_files", "plan", "side")

    whole: Final = False

    def __init__(self, files: Mapping[int, TensorFile], plan: JoinPlan) -> None:
        self._files = files
        self.plan = plan
        self.side = ""

    @property
    def dtype(self) -> DType:
        """Element type of what is read."""
        return self.plan.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole."""
        return self.plan.whole.shape

    @property
    def size(self) -> int:
        """Elements of the whole."""
        return self.plan.whole.size

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return self.plan.nbytes

    @property
    def found(self) -> str:
        """Element types in the files and the shape they make."""
        return self.plan.found

    def read(self, start: int, count: int, out: PageBuffer | None = None) -> NDArray[Any]:
        """Elements ``start`` to ``start + count`` in C order; as `TensorFile.read`.

        Raises
        ------
        TensorUnreadable
            If a part shrank or cannot be read any more.
        """
        if start < 0 or count < 0 or start + count > self.size:
            raise IndexError(f"elements {start} to {start + count} of {self.size}")
        storage = np.dtype(self.dtype.storage)
        each = self.dtype.width // storage.itemsize
        memory = out or PageBuffer()

        def empty(elements: int) -> NDArray[Any]:
            if not elements:
                return np.empty(0, storage)
            return np.frombuffer(memory.take(elements * self.dtype.width), storage)

        if not self.plan.summed:
            return gather(self.plan.whole, start, count, self._fetch, empty, each)
        total = empty(count)
        total[:] = 0.0
        with np.errstate(all="ignore"):  # inf - inf is nan, and meant
            for file in self._files.values():
                total += to_float64(file.read(start + self.plan.whole.skipped, count, _PART), file.dtype)
        return total

    def _fetch(self, part: int, first: int, count: int) -> NDArray[Any]:
        file = self._files[part]
        values = file.read(first, count, _PART)
        return values if file.dtype is self.dtype or file.dtype == self.dtype else to_float64(values, file.dtype)

    def close(self) -> None:
        """Let go of the files."""
        for file in self._files.values():
            file.close()


Opened = TensorFile | JoinedTensor
