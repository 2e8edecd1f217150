"""The closed words of the field: one word a thing, in code, tables and messages. No text of a report is built here."""

from __future__ import annotations

from enum import Enum, IntEnum


class DumpMode(str, Enum):
    """What two dumps are compared on: real data, four statistics, or a checksum."""

    TENSOR = "tensor"
    STATISTICS = "statistics"
    MD5 = "md5"


class Section(IntEnum):
    """Where in its record a row stands; the numbers are the order of rows within a record.

    It comes from the key of the record, never from the text of a name (decision 5).
    """

    INPUT_ARGS = 0
    INPUT_KWARGS = 1
    INPUT = 2  # of a backward record: gradients with respect to the outputs of the forward
    PARAMETERS = 3
    OUTPUT = 4
    PARAMETERS_GRAD = 5  # has no input side (decision 19b)
    DEBUG = 6  # a value of debug.json; has no input side either


class RowKind(IntEnum):
    """What a dump row holds."""

    TENSOR = 0  # a leaf with a dtype: torch.Tensor, DTensor, numpy.ndarray, mindspore.Tensor ...
    SCALAR = 1  # int, float, bool, str and every leaf without a kind of its own
    NONE = 2  # JSON null
    SIZE = 3  # torch.Size
    SLICE = 4
    ELLIPSIS = 5
    GROUP = 6  # torch.ProcessGroup
    PEER = 7  # src, dst, group_src, group_dst: a rank


class StatKind(IntEnum):
    """What stands in one of the four statistic cells of a row."""

    FLOAT = 0  # the float64 column holds it (nan and infinities too)
    INT = 1  # a JSON integer of magnitude <= 2**53; the float64 column holds it exactly
    NONE = 2  # missing or null: printed ``None``
    BOOL = 3  # JSON true/false; the float64 column holds 1.0 or 0.0
    TEXT = 4  # anything else: the text stands in the row's ``value`` (see DumpTable)


class Result(IntEnum):
    """The three words of the Result column, in order of severity."""

    PASS = 0
    WARNING = 1
    ERROR = 2

    @property
    def word(self) -> str:
        """The cell text."""
        return self.name.lower()


class MatchKind(IntEnum):
    """How a target row found its golden row."""

    NONE = 0  # no partner
    EXACT = 1  # same op name, same slot
    APPEARANCE = 2  # backward records of an op whose call indexes differ, paired in order of appearance (decision 6)
    LAYOUT = 3  # old and numbered layout of parameters_grad (decision 21)
    WRAPPER = 4  # names that agree once the parts of wrappers are left out
    FUZZY = 5  # same level and name, another call index: met by alignment (-fm)
    MAPPED = 6  # named by the user's file (-dm, -cm) under another name
    MAPPED_WRAPPER = 8  # by the user's file, and without the parts of wrappers
    TRANSLATED = 7  # training against inference: met by the table of module names (--consistent_check)
    API_TABLE = 9  # MindSpore against PyTorch: met by the table of API names


class JoinKind(str, Enum):
    """How the files of a joined row become one tensor."""

    CONCAT = "concat"  # along an axis; one part is the tensor itself
    EQUAL = "equal"  # every part holds the same values: the first is read, the others are checked against it
    SUM = "sum"  # parts are partial sums
    AUTO = "auto"  # CONCAT, EQUAL or SUM, and the order of blocks: whichever comes closest to the golden tensor


class MetricState(IntEnum):
    """What came of measuring one pair of tensors; names are the texts of the reason, see kernels.unusual."""

    COMPUTED = 0
    ONE_ELEMENT = 1  # 0-d after squeezing: only MaxAbsErr and MaxRelativeErr are shown
    EMPTY_EQUAL = 2  # no elements on both sides, same shape and dtype: equal
    NO_PARTNER = 3
    NO_FILE_RECORDED = 4  # no data_name on one or both sides
    FILE_MISSING = 5
    UNREADABLE = 6  # cut, damaged, of another type, outside its folder; the reason column says which
    SHAPE = 7  # shapes differ after removing dimensions of length 1
    NOT_A_TENSOR = 8  # both sides are scalars, None, slices ...: compared by value, not measured
    WORKER_LOST = 9  # the worker died twice on this pair
