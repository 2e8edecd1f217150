"""Report columns: internal name -> header, in order, for each mode. Spelling of the governing document (decision 1)."""

from __future__ import annotations

from typing import Final

from opassay.schemas.vocab import DumpMode

HEAD: Final = {
    "target_name": "NPU Name",
    "golden_name": "Bench Name",
    "target_dtype": "NPU Dtype",
    "golden_dtype": "Bench Dtype",
    "target_shape": "NPU Tensor Shape",
    "golden_shape": "Bench Tensor Shape",
    "target_requires_grad": "NPU Requires_grad",
    "golden_requires_grad": "Bench Requires_grad",
}
TENSOR_METRICS: Final = {
    "cosine": "Cosine",
    "euclidean": "EucDist",
    "error_max": "MaxAbsErr",
    "relative_max": "MaxRelativeErr",
    "thousandth": "One Thousandth Err Ratio",
    "five_thousandth": "Five Thousandth Err Ratio",
}
STATISTIC_METRICS: Final = {
    "max_diff": "Max diff",
    "min_diff": "Min diff",
    "mean_diff": "Mean diff",
    "norm_diff": "L2norm diff",
    "max_relative": "MaxRelativeErr",
    "min_relative": "MinRelativeErr",
    "mean_relative": "MeanRelativeErr",
    "norm_relative": "NormRelativeErr",
}
STATISTICS: Final = {
    f"{side}_{stat}": f"{title} {'l2norm' if stat == 'norm' else stat}"
    for side, title in (("target", "NPU"), ("golden", "Bench"))
    for stat in ("max", "min", "mean", "norm")
}
CHECKSUMS: Final = {"target_md5": "NPU MD5", "golden_md5": "BENCH MD5"}
VERDICT: Final = {
    "requires_grad_consistent": "Requires_grad Consistent",
    "result": "Result",
    "message": "Err_message",
}
STACK: Final = {"stack": "NPU_Stack_Info"}
DATA_NAME: Final = {"data_name": "Data_Name"}


def report_columns(mode: DumpMode, *, stack: bool) -> dict[str, str]:
    """Internal column name -> report header, in report order.

    Parameters
    ----------
    mode : DumpMode
        What was compared.
    stack : bool
        Whether a stack.json stands beside the target JSON.
    """
    tail = VERDICT | (STACK if stack else {})
    if mode is DumpMode.TENSOR:
        return HEAD | TENSOR_METRICS | STATISTICS | tail | DATA_NAME
    if mode is DumpMode.STATISTICS:
        return HEAD | STATISTIC_METRICS | STATISTICS | tail
    return HEAD | CHECKSUMS | tail
