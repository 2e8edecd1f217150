"""Opens the files of a joined tensor and settles how they join.

What a `Join` leaves open (the axis, the order of blocks, which of several copies, which end of the padding) is settled
once, against the other side's tensor, and becomes a `JoinPlan`, so that every worker that takes a piece of the pair reads
the same elements.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from opassay.kernels.joining import (
    Arrangement,
    Candidate,
    Misfit,
    ShapesDoNotFit,
    alone,
    arrange,
    candidates,
    cuts,
    misfit,
    sample,
    shapes_text,
    squeezed,
)
from opassay.pipeline.measure.joined import JoinedTensor, JoinPlan, Opened
from opassay.pipeline.read.tensor_layout import one_line, shape_text, shown
from opassay.pipeline.read.tensors import (
    PageBuffer,
    TensorFile,
    TensorMissing,
    TensorUnreadable,
    open_tensor,
    tensor_path,
)
from opassay.schemas.dtypes import BY_NAME, DType
from opassay.schemas.dump_rows import Join
from opassay.schemas.vocab import JoinKind

_WINDOW: Final = 1 << 17  # elements compared at a time while a join is settled

_OURS: Final = PageBuffer()
_THEIRS: Final = PageBuffer()


def open_questions(source: object) -> int:
    """How much a side leaves open until it sees the other one: 0 nothing, 1 which copy or end, 2 its very shape."""
    if not isinstance(source, Join) or (len(source.parts) == 1 and not source.trim):
        return 0
    return 2 if source.how is JoinKind.AUTO else int(source.trim or source.how is JoinKind.EQUAL)


def source_name(source: str | Join | JoinPlan) -> str:
    """What messages call a side of a pair: its file, or the first of its files."""
    return source if isinstance(source, str) else source.parts[0][1]


def open_joined(side: str, folder: str, source: Join | JoinPlan, mapped: bool, other: Opened | None) -> JoinedTensor:
    """Open the parts of a tensor.

    Parameters
    ----------
    side : {"target", "golden"}
        For messages.
    folder : str
        Folder of the dump's tensor files.
    source : Join or JoinPlan
        The parts; a `Join` is settled here.
    mapped : bool
        Map files, or read them.
    other : TensorFile or JoinedTensor, optional
        The other side, open, where it is known already.

    Returns
    -------
    JoinedTensor
        Open; its ``plan`` opens the same elements again.

    Raises
    ------
    TensorMissing, TensorUnreadable
        If a part cannot be opened, or parts cannot be joined for their dtypes; the message names the part.
    ShapesDoNotFit
        If the shapes of the parts do not make one tensor.
    """
    with contextlib.ExitStack() as stack:
        wanted = range(len(source.parts)) if isinstance(source, Join) else sorted(source.used())
        files = {
            number: stack.enter_context(_open_part(side, folder, source.parts, number, mapped)) for number in wanted
        }
        if isinstance(source, JoinPlan):
            tensor = JoinedTensor(files, source)
        else:
            try:
                tensor = _settled(source, list(files.values()), other)
            except ShapesDoNotFit as error:
                raise ShapesDoNotFit(one_line(f"{side}: {error}", 400)) from None
        tensor.side = f"{side} file "
        stack.pop_all()
    return tensor


def _open_part(side: str, folder: str, parts: Sequence[tuple[str, str]], number: int, mapped: bool) -> TensorFile:
    own, name = parts[number]
    place = f" (part {number + 1} of {len(parts)})" if len(parts) > 1 else ""
    try:
        file = open_tensor(tensor_path(own or folder, name), mapped=mapped)
    except TensorMissing as error:
        raise TensorMissing(f"{side} file{place} {error}") from None
    except TensorUnreadable as error:
        raise TensorUnreadable(f"{side} file{_with_folder(place, own)} {error}") from None
    file.side = f"{side} file{_with_folder(place, own)} "
    return file


def _with_folder(place: str, folder: str) -> str:
    """Parts in folders of their own have one file name."""
    return f"{place[:-1]}, in {shown(folder)})" if place and folder else place


def _settled(join: Join, files: Sequence[TensorFile], other: Opened | None) -> JoinedTensor:
    """The parts with every question answered."""
    parts = _Parts(join, files, other)
    shapes = [file.shape for file in files]
    if join.how is JoinKind.AUTO and len(files) > 1:
        tensor, told = _best(parts, shapes)
    elif join.how is JoinKind.EQUAL and len(files) > 1:
        tensor, equal, told = _one_of(parts, _same_shapes(shapes))
        told = join.told if equal and join.told else told
    elif join.how is JoinKind.SUM and len(files) > 1:
        tensor, told = parts.total(_same_shapes(shapes)), join.told or _sum_text(len(files))
    else:
        whole = arrange(shapes, join.axis, join.regroup)
        tensor, told = parts.tensor(whole), join.told or _concat_text(join, shapes)
    if join.trim and other is not None:
        tensor, cut = _trimmed(parts, tensor)
        told = ", ".join(text for text in (told, cut) if text)
    return JoinedTensor(parts.files, replace(tensor.plan, told=told or None))


def _concat_text(join: Join, shapes: Sequence[tuple[int, ...]]) -> str:
    """What concatenation did; nothing for one part that is left as it is."""
    texts = [_along_text(join.axis % len(shapes[0]), len(shapes))] if len(shapes) > 1 else []
    if join.regroup:
        texts.append(f"blocks of {', '.join(map(str, join.regroup))} along axis {join.axis} put together")
    return ", ".join(texts)


def _along_text(axis: int, count: int) -> str:
    return f"concatenated along axis {axis} ({count} parts)"


def _sum_text(count: int) -> str:
    return f"sum of {count} parts"


def _same_shapes(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    if len({squeezed(shape) for shape in shapes}) > 1:
        raise ShapesDoNotFit(f"{shapes_text(shapes)}, which should be of one shape")
    return shapes[0]


class _Parts:
    """The open parts and what they are compared with, as long as the join is not settled."""

    def __init__(self, join: Join, files: Sequence[TensorFile], other: Opened | None) -> None:
        self.join = join
        self.files = dict(enumerate(files))
        self.other = other
        self.count = len(files)
        kinds = list(dict.fromkeys(file.found.partition(" ")[0] for file in files))
        self._kinds = "+".join(kinds)
        self._dtype = files[0].dtype
        self._wide = BY_NAME["complex128" if files[0].dtype.kind == "complex" else "float64"]
        if len({file.dtype.kind == "complex" for file in files}) > 1:
            raise TensorUnreadable(f"parts of {' and '.join(kinds)} cannot be joined: real and complex numbers")
        if any(file.dtype != self._dtype for file in files):
            self._dtype = self._wide

    def tensor(self, whole: Arrangement) -> JoinedTensor:
        """The parts in one arrangement."""
        return self._made(whole, self._dtype, summed=False)

    def total(self, shape: tuple[int, ...]) -> JoinedTensor:
        """The sum of the parts: float64, lest it is rounded a second time."""
        return self._made(alone(shape, 0, self.count), self._wide, summed=True)

    def _made(self, whole: Arrangement, dtype: DType, *, summed: bool) -> JoinedTensor:
        found = f"{self._kinds} {list(whole.shape) if len(whole.shape) <= 128 else shape_text(whole.shape)}"
        nbytes = sum(file.nbytes for file in self.files.values())
        return JoinedTensor(self.files, JoinPlan(self.join.parts, whole, summed, dtype, found, nbytes))

    def score(self, tensor: JoinedTensor, *, all_of_it: bool = False) -> Misfit:
        """How far a tensor is from the other side's, by a sample of a large one."""
        assert self.other is not None
        if tensor.size != self.other.size:
            return Misfit(mismatches=tensor.size + self.other.size)
        looks = _windows(tensor.size) if all_of_it else sample(tensor.size)
        found = Misfit()
        for start, count in looks:
            pieces = tensor.read(start, count, _OURS), self.other.read(start, count, _THEIRS)
            found += misfit(*pieces, tensor.dtype, self.other.dtype)
        return found


def _windows(size: int) -> Iterator[tuple[int, int]]:
    return ((start, min(_WINDOW, size - start)) for start in range(0, size, _WINDOW))


def _same_bits(one: JoinedTensor, other: JoinedTensor) -> bool:
    """Whether two tensors of one shape hold the same bits."""
    if one.dtype != other.dtype or one.size != other.size:
        return False
    return all(
        np.array_equal(one.read(start, count, _OURS).view(np.uint8), other.read(start, count, _THEIRS).view(np.uint8))
        for start, count in _windows(one.size)
    )


def _one_of(parts: _Parts, shape: tuple[int, ...]) -> tuple[JoinedTensor, bool, str]:
    """Copies: the first where all hold the same bits, else the one furthest from the other side, lest a bad copy hides."""
    copies = [parts.tensor(alone(shape, part, parts.count)) for part in range(parts.count)]
    odd = [part for part in range(1, parts.count) if not _equal_parts(parts, copies, part)]
    if not odd:
        return copies[0], True, f"{parts.count} equal parts"
    differ = f"{parts.count} parts that are not equal (the first differs from {_numbers(odd)})"
    if parts.other is None:
        return copies[0], False, f"{differ}: the first is compared"
    worst = _furthest(parts, copies)
    return copies[worst], False, f"{differ}: part {worst + 1}, the furthest from the other side, is compared"


def _equal_parts(parts: _Parts, copies: Sequence[JoinedTensor], part: int) -> bool:
    """Whether a part holds the bits of the first; parts of several dtypes never do."""
    return parts.files[0].dtype == parts.files[part].dtype and _same_bits(copies[0], copies[part])


def _all_equal(parts: _Parts) -> bool:
    """Whether every part holds the same bits."""
    copies = [parts.tensor(alone(file.shape, part, parts.count)) for part, file in parts.files.items()]
    return all(_equal_parts(parts, copies, part) for part in range(1, parts.count))


def _numbers(parts: Sequence[int]) -> str:
    """``part 2``, ``parts 2, 3``; of many the first four."""
    listed = ", ".join(str(part + 1) for part in parts[:4]) + (", ..." if len(parts) > 4 else "")
    return f"part{'s' if len(parts) > 1 else ''} {listed}"


def _furthest(parts: _Parts, tensors: Sequence[JoinedTensor]) -> int:
    """The number of the tensor that is furthest from the other side, by all elements; the first of equally far ones."""
    scores = [parts.score(tensor, all_of_it=True) for tensor in tensors]
    return scores.index(max(scores))


def _best(parts: _Parts, shapes: Sequence[tuple[int, ...]]) -> tuple[JoinedTensor, str]:
    """What the shapes allow and the values of the other side confirm."""
    if parts.other is None:
        raise ShapesDoNotFit("both sides are to be joined by the shape of the other one")
    wanted = parts.other.shape
    if all(squeezed(shape) == squeezed(wanted) for shape in shapes):
        return _sum_or_copy(parts, shapes[0])
    for candidate in candidates(shapes, wanted):
        found = _fitting(parts, candidate)
        if found is not None:
            return found
    raise ShapesDoNotFit(f"{shapes_text(shapes)} do not make {shape_text(wanted)}, whole or along one axis")


def _sum_or_copy(parts: _Parts, shape: tuple[int, ...]) -> tuple[JoinedTensor, str]:
    """Parts that have the shape of the whole: copies, or partial sums where the sum is closer than any part."""
    tensor, equal, told = _one_of(parts, shape)
    if not equal:
        total = parts.total(shape)
        each = [parts.score(parts.tensor(alone(shape, part, parts.count))) for part in range(parts.count)]
        if parts.score(total) < min(each):
            return total, _sum_text(parts.count)
    return tensor, told


def _fitting(parts: _Parts, candidate: Candidate) -> tuple[JoinedTensor, str] | None:
    """The best order of a candidate; None where only chance could have made the shapes fit."""
    orders = ((text, [parts.tensor(whole) for whole in copies]) for text, copies in candidate.orders)
    told, best = next(orders)
    near: Misfit | None = None
    for text, copies in orders:
        near = near or min(parts.score(tensor) for tensor in best)
        if not near.mismatches and not near.error:
            break
        score = min(parts.score(tensor) for tensor in copies)
        if score.closer_than(near):
            told, best, near = text, copies, score
    same = all(_same_bits(best[0], tensor) for tensor in best[1:])
    if candidate.copies > 1:
        shared = same and not _all_equal(parts)  # ranks that all hold the same are copies of a tensor of another shape
        if not shared and not (near or min(parts.score(tensor) for tensor in best)).confirms():
            return None
    texts = [_along_text(candidate.axis, parts.count)]
    if told:
        texts.append(f"{told} of each part put together")
    if candidate.copies > 1:
        texts.append(f"every {candidate.copies} neighbours hold {'the same' if same else 'copies that are not equal'}")
    return best[0 if same else _furthest(parts, best)], ", ".join(texts)


def _trimmed(parts: _Parts, tensor: JoinedTensor) -> tuple[JoinedTensor, str]:
    """Without the padding that the other side lacks."""
    assert parts.other is not None
    ends = [
        JoinedTensor(parts.files, replace(tensor.plan, whole=whole))
        for whole in cuts(tensor.plan.whole, parts.other.shape)
    ]
    if not ends:
        return tensor, ""
    scores = [parts.score(end) for end in ends]
    at_end = scores[0] <= scores[1]
    dropped = (tensor.size - ends[0].size) * _first(tensor.shape) // tensor.size
    count = f"{dropped} padded token{'s' if dropped > 1 else ''}"
    return ends[0 if at_end else 1], f"{count} left out at the {'end' if at_end else 'beginning'}"


def _first(shape: tuple[int, ...]) -> int:
    """The first length that is not 1."""
    return squeezed(shape)[0]
