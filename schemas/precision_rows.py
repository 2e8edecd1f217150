"""Columns of the two files of ``api_precision_compare`` (accuracy_checker.md 8.4, 8.5): internal name -> header, in order."""

from __future__ import annotations

from typing import Final

COMPARED: Final = {
    "name": "API Name",
    "small_value_ratio": "小值域错误比值",
    "small_value_verdict": "小值域判定结果",
    "rmse_ratio": "均方根误差比值",
    "rmse_verdict": "均方根误差判定结果",
    "relative_max_ratio": "相对误差最大值比值",
    "relative_max_verdict": "相对误差最大值判定结果",
    "relative_mean_ratio": "相对误差平均值比值",
    "relative_mean_verdict": "相对误差平均值判定结果",
    "balance_ratio": "误差均衡性比值",
    "balance_verdict": "误差均衡性判定结果",
    "inf_nan": "inf/nan错误率",
    "inf_nan_verdict": "inf/nan判定结果",
    "relative_rate": "相对误差错误率",
    "relative_rate_verdict": "相对误差判定结果",
    "absolute_rate": "绝对误差错误率",
    "absolute_rate_verdict": "绝对误差判定结果",
    "binary": "二进制一致错误率",
    "binary_verdict": "二进制一致错误率判定结果",
    "ulp_mean": "ULP误差平均值",
    "ulp_share": "ULP误差大于阈值占比",
    "ulp_ratio": "ULP误差大于阈值占比比值",
    "ulp_verdict": "ULP误差判定结果",
    "thousandth": "双千指标",
    "thousandth_verdict": "双千指标判定结果",
    "verdict": "比对结果",
    "algorithm": "比对算法",
    "message": "Message",
}
"""Columns of api_precision_compare_details."""

COMPARED_RESULT: Final = {
    "name": "API Name",
    "forward": "Forward Test Success",
    "backward": "Backward Test Success",
    "message": "Message",
}
"""Columns of api_precision_compare_result; unlike that of the checker the first has a capital N."""

NEEDED: Final = (
    "name", "device_dtype", "shape", "small_value", "rmse", "relative_max", "relative_mean", "balance", "binary", "inf_nan",
    "relative_rate", "absolute_rate", "ulp_mean", "ulp_share", "thousandth", "message",
)  # fmt: skip
"""Columns of accuracy_checking_details that both files must have, by their internal names."""

USED: Final = (*NEEDED, "cosine", "error_max")
"""Those and the ones that are read where a file has them."""
