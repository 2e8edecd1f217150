"""Rows of the accuracy pre-check: cases that were run, their details, and the headers of the three csv files (accuracy_checker.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

BLANK: Final = " "
"""What stands in a cell that was not computed; never 0."""


class Status(str, Enum):
    """The words of the Status and Success columns; the gravest of several counts."""

    SKIP = "SKIP"
    PASS = "pass"
    WARNING = "warning"
    ERROR = "error"


DETAILS: Final = {
    "name": "API Name",
    "bench_dtype": "Bench Dtype",
    "device_dtype": "DEVICE Dtype",
    "shape": "Shape",
    "cosine": "余弦相似度",
    "error_max": "最大绝对误差",
    "hundredth": "双百指标",
    "thousandth": "双千指标",
    "ten_thousandth": "双万指标",
    "binary": "二进制一致错误率",
    "balance": "误差均衡性",
    "rmse": "均方根误差",
    "small_value": "小值域错误占比",
    "relative_max": "相对误差最大值",
    "relative_mean": "相对误差平均值",
    "inf_nan": "inf/nan错误率",
    "relative_rate": "相对误差错误率",
    "absolute_rate": "绝对误差错误率",
    "ulp_max": "ULP误差最大值",
    "ulp_mean": "ULP误差平均值",
    "ulp_share": "ULP误差大于阈值占比",
    "status": "Status",
    "message": "Message",
}
"""Columns of accuracy_checking_details: internal name -> header, in order."""

METRICS: Final = tuple(DETAILS)[4:-2]
"""The figures among them."""

RESULT: Final = {
    "name": "API name",
    "forward": "Forward Test Success",
    "backward": "Backward Test Success",
    "message": "Message",
}
"""Columns of accuracy_checking_result."""


@dataclass(slots=True)
class DetailRow:
    """One compared output of one call.

    Attributes
    ----------
    name : str
        ``Torch.matmul.0.forward.output.0``.
    bench_dtype, device_dtype, shape : str
        ``torch.float32``, ``torch.bfloat16``, ``(4, 3)``; "" where there is none.
    metrics : dict of str to float or int
        Those of ``METRICS`` that were computed.
    status : Status
        Verdict of this output.
    message : str
        Why; may hold several lines.
    """

    name: str
    bench_dtype: str = ""
    device_dtype: str = ""
    shape: str = ""
    metrics: dict[str, float | int] = field(default_factory=dict)
    status: Status = Status.SKIP
    message: str = ""


@dataclass(slots=True)
class CaseResult:
    """What became of one call: a row of the result file and its details.

    Attributes
    ----------
    name : str
        ``Torch.matmul.0``.
    forward : Status
        Verdict of the forward outputs.
    backward : Status or None
        Verdict of the gradients; None where none were asked for (a blank cell).
    message : str
        Reason of a SKIP, "" else.
    details : list of DetailRow
        In order of the outputs, forward first.
    """

    name: str
    forward: Status
    backward: Status | None = None
    message: str = ""
    details: list[DetailRow] = field(default_factory=list)


MINDSPORE_DETAILS: Final = {
    "name": "API Name",
    "bench_dtype": "Bench Dtype",
    "device_dtype": "Tested Dtype",
    "shape": "Shape",
    "cosine": "Cosine",
    "max_absolute": "MaxAbsErr",
    "max_relative": "MaxRelativeErr",
    "status": "Status",
    "message": "Message",
}
"""Columns of the details file of a MindSpore dump."""

MINDSPORE_RESULT: Final = {**RESULT, "name": "API Name"}
"""Columns of the result file of a MindSpore dump."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What the two files of a check look like.

    Attributes
    ----------
    result, details : dict of str
        Internal name -> header, in order.
    metrics : tuple of str
        The figures among the details.
    blank : str
        What stands in a cell that was not computed.
    """

    result: dict[str, str]
    details: dict[str, str]
    metrics: tuple[str, ...]
    blank: str


TORCH_COLUMNS: Final = Columns(RESULT, DETAILS, METRICS, BLANK)
MINDSPORE_COLUMNS: Final = Columns(MINDSPORE_RESULT, MINDSPORE_DETAILS, tuple(MINDSPORE_DETAILS)[4:-2], "")
