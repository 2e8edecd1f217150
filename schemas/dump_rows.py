"""The first table: one dump.json (or debug.json) as columns. Filled by ``pipeline.read``, joined by ``pipeline.match``.

Strings that repeat (slots, dtypes, shapes, values) are stored once in a dictionary and named by a code, so that a row costs about
70 bytes and a dump of a million rows fits beside its partner in the memory budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import polars as pl
from opassay.schemas.vocab import JoinKind

STATISTICS: Final = ("max", "min", "mean", "norm")

OPS: Final[Mapping[str, pl.DataType]] = {
    "name": pl.String(),  # record name, in file order; the row number of this table is the op's number
}

ROWS: Final[Mapping[str, pl.DataType]] = {
    "op": pl.UInt32(),  # row number in the ops table
    "section": pl.UInt8(),  # vocab.Section; rows are sorted by (op, section), stable in file order
    "slot": pl.UInt32(),  # code in ``slots``: structural place within the record, ".input.0", ".input.bias", ".output.0.1", ".weight"
    "kind": pl.UInt8(),  # vocab.RowKind
    "dtype": pl.UInt32(),  # code in ``dtypes``; texts of the report: "torch.float32", "<class 'int'>", "" for None
    "shape": pl.UInt32(),  # code in ``shapes``: "[2, 3]", "[]", "(3,)", "" for None
    "requires_grad": pl.Int8(),  # 1, 0, or -1 where there is none
    "max": pl.Float64(),  # null unless max_kind is FLOAT, INT or BOOL
    "min": pl.Float64(),
    "mean": pl.Float64(),
    "norm": pl.Float64(),
    "max_kind": pl.UInt8(),  # vocab.StatKind
    "min_kind": pl.UInt8(),
    "mean_kind": pl.UInt8(),
    "norm_kind": pl.UInt8(),
    "value": pl.UInt32(),  # code in ``values``; 0 is "no text". For rows that are no tensor: the printed value, which stands in all four
    # statistic cells (their kinds are TEXT unless the value is a number). For a tensor with a TEXT statistic: the four printed texts
    # joined by U+001F.
    "md5": pl.String(),  # checksum, "" or null where there is none
    "name": pl.String(),  # display name where it is not ops.name + slot (a data_name that is spelt otherwise), else null
    "data_name": pl.String(),  # file of the tensor, null where none is recorded
}


@dataclass(frozen=True, slots=True)
class Join:
    """A row's tensor put together from several files (fused projections, tensor-parallel shards), or from one in another order.

    Attributes
    ----------
    parts : tuple of (str, str)
        Folder and file name of each part, in order; a folder of "" is the dump's own.
    how : JoinKind
        What is done with them.
    axis : int
        For CONCAT and ``regroup``; negative counts from the end, over the dimensions as the files have them.
    regroup : tuple of int
        Sizes along ``axis`` of the blocks that repeat, group by group ((queries, key, value) of a query group; (gate, up) of a
        rank): all first blocks come first, then all second ones. () leaves the order alone.
    trim : bool
        A longer first dimension (of those longer than 1) is cut to the golden's, at its end or its beginning, whichever agrees:
        padding.
    told : str
        What was done, for the report's reason; "" lets the reader of the parts say it.
    """

    parts: tuple[tuple[str, str], ...]
    how: JoinKind = JoinKind.CONCAT
    axis: int = 0
    regroup: tuple[int, ...] = ()
    trim: bool = False
    told: str = ""


@dataclass(frozen=True, slots=True)
class P2P:
    """What a row's point-to-point operation (an item of ``batch_isend_irecv``) does with its tensor.

    Attributes
    ----------
    op : str
        ``isend`` or ``irecv``; "" where the dump does not say.
    peer : int or None
        The other rank.
    tag : int or None
        Tag of the message.
    group : str
        Id of the process group: CRC-32 of the text of its ranks, 8 hex digits; "" where there is none.
    """

    op: str
    peer: int | None
    tag: int | None
    group: str


@dataclass(frozen=True, slots=True)
class DumpProblem:
    """Something in a dump that could not be taken as it stands; the rest was read.

    Attributes
    ----------
    kind : str
        ``cut``, ``duplicate``, ``record``, ``leaf``, ``direction``, ``header`` or ``stack``.
    where : str
        Record name, or a byte offset.
    text : str
        One sentence.
    count : int
        How many there are of the same kind; ``where`` names the first.
    fatal : bool
        Whether rows were lost (exit status 3), or the dump is only odd.
    """

    kind: str
    where: str
    text: str
    count: int = 1
    fatal: bool = False


@dataclass(slots=True)
class DumpTable:
    """One side of one rank.

    Attributes
    ----------
    path : Path
        The JSON file.
    task, level, framework : str
        Header fields; "" where missing.
    ops : polars.DataFrame
        Schema ``OPS``.
    rows : polars.DataFrame
        Schema ``ROWS``.
    slots, dtypes, shapes, values : sequence of str
        The dictionaries; ``values[0]`` is "".
    problems : list of DumpProblem
        What was odd or lost.
    has_md5 : bool
        Whether any tensor row has a checksum.
    checksum : {"", "md5", "xor"}
        Kind of the checksums ("xor" values begin with ``0x``).
    joins : mapping of int to Join
        Rows (by number) whose tensor stands in several files; their ``data_name`` only shows the names.
    p2p : mapping of int to P2P
        Rows (by number) that are the tensor of a point-to-point operation.
    """

    path: Path
    task: str
    level: str
    framework: str
    ops: pl.DataFrame
    rows: pl.DataFrame
    slots: Sequence[str]
    dtypes: Sequence[str]
    shapes: Sequence[str]
    values: Sequence[str]
    problems: list[DumpProblem] = field(default_factory=list)
    checksum: str = ""
    joins: Mapping[int, Join] = field(default_factory=dict)
    p2p: Mapping[int, P2P] = field(default_factory=dict)

    @property
    def has_md5(self) -> bool:
        """Whether any tensor row has a checksum."""
        return bool(self.checksum)

    @property
    def is_debug(self) -> bool:
        """Whether this is a debug.json."""
        return self.path.name.endswith("debug.json") or self.level == "debug"
