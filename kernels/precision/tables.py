"""The tables of the accuracy pre-check: which operator is judged by which standard, and every threshold, as data. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ABSOLUTE: Final = "absolute_threshold"
BINARY: Final = "binary_consistency"
ULP: Final = "ulp_compare"
THOUSANDTH: Final = "thousandth_threshold"
ACCUMULATIVE: Final = "accumulative_error_compare"
BENCHMARK: Final = "benchmark"
ZEROS: Final = "share_of_zeros"
RANDOM: Final = "random"
UNSUPPORTED: Final = "unsupported"

LABELS: Final = {
    ABSOLUTE: "绝对阈值法",
    BINARY: "二进制一致法",
    ULP: "ULP误差比对法",
    THOUSANDTH: "双千指标法",
    ACCUMULATIVE: "累积误差比对法",
    BENCHMARK: "标杆比对法",
    ZEROS: "",
    RANDOM: "",
    UNSUPPORTED: "",
}
"""What api_precision_compare writes as the algorithm; "" where it judges nothing."""

COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    ABSOLUTE: ("inf_nan", "relative_rate", "absolute_rate"),
    BINARY: ("binary",),
    ULP: ("ulp_max", "ulp_mean", "ulp_share"),
    THOUSANDTH: ("thousandth",),
    ACCUMULATIVE: ("inf_nan", "relative_rate", "absolute_rate", "balance"),
    BENCHMARK: ("balance", "rmse", "small_value", "relative_max", "relative_mean"),
    ZEROS: (),
    RANDOM: (),
    UNSUPPORTED: (),
}
"""Figures that a standard adds to a details row (names of ``check_rows.METRICS``)."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


LISTED: Final[dict[str, frozenset[str]]] = {
    ABSOLUTE: _names(
        "__add__ __div__ __iadd__ __idiv__ __imul__ __isub__ __mul__ __radd__ __rmul__ __sub__ add add_ div div_ divide divide_"
        " leaky_relu leaky_relu_ mul mul_ prelu reciprocal reciprocal_ rsqrt rsqrt_ rsub square square_ sub sub_"
    ),
    BINARY: _names(
        "abs abs_ absolute absolute_ argmin bitwise_and bitwise_and_ broadcast_to ceil ceil_ equal fill_ flatten floor floor_"
        " gather greater greater_ greater_equal greater_equal_ histc isfinite isnan less less_ less_equal less_equal_"
        " logical_and logical_and_ logical_not logical_not_ logical_or logical_or_ masked_fill masked_fill_ max_pool3d maximum"
        " minimum neg neg_ nonzero not_equal not_equal_ one_hot pad relu reshape round round_ select sign sign_ sort tile topk"
        " transpose transpose_ tril tril_ triu triu_ type_as"
    ),
    ULP: _names(
        "__matmul__ addbmm addbmm_ addmm addmm_ baddbmm baddbmm_ bilinear bmm chain_matmul hspmm linear matmul mm mv smm"
        " sspaddmm"
    ),
    THOUSANDTH: frozenset(("conv1d", "conv2d")),
    ACCUMULATIVE: frozenset(("test_api",)),
}
"""The document's lists: plain operator name -> standard; an operator in none is judged by the benchmark standard."""

ADDED: Final[dict[str, tuple[frozenset[str], str]]] = {
    ULP: (
        _names(
            "addmv addmv_ addr addr_ dot einsum inner kron multi_dot outer ger tensordot vdot __rmatmul__ npu_linear"
            " npu_bmmV2"
        ),
        "sums of products like a matrix product, though the document's list leaves it out",
    ),
    THOUSANDTH: (
        _names("conv3d conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc"),
        "a convolution, though the document's list leaves it out",
    ),
    BINARY: (
        _names(
            "amax amin as_strided cat chunk clamp clone contiguous copy_ expand flip hstack index_select max min movedim narrow"
            " permute repeat roll split squeeze stack swapaxes t take unbind unflatten unsqueeze view vstack where zeros_like"
            " ones_like __getitem__"
        ),
        "moves values without arithmetic, though the document's list leaves it out",
    ),
}
"""Operators that the lists leave out, for forward outputs: standard -> (names, why)."""

RANDOM_APIS: Final = _names(
    "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout feature_dropout native_dropout rand randn randint"
    " rand_like randn_like randint_like randperm normal normal_ uniform_ random_ bernoulli bernoulli_ multinomial exponential_"
    " geometric_ cauchy_ log_normal_ rrelu rrelu_ gumbel_softmax poisson"
)
"""Operators that draw numbers: two runs never agree."""

ALSO_RANDOM: Final = _names(
    "binomial fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d fractional_max_pool3d_with_indices"
    " lobpcg pca_lowrank rrelu_with_noise rrelu_with_noise_ svd_lowrank"
)
"""More of them, that the document leaves out."""

NO_ZEROS: Final = frozenset(("alpha_dropout", "feature_alpha_dropout"))
"""Dropouts that drop to a value other than zero, so that the share of zeros tells nothing."""

UP_TO_SIGN: Final = frozenset(("eig", "eigh", "svd"))
"""Operators with several right answers: an error says so."""

DTYPE_BOUND: Final = frozenset(("nan_to_num", "nan_to_num_"))
"""Operators whose result depends on the largest number of their dtype: the reference is clipped to that of the device's."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds of one element type.

    Attributes
    ----------
    error_limit, error_share : float
        Status is error unless more than this share of elements differs relatively by less than this.
    pass_limit, pass_share : float
        Status is pass if more than this share does by less than this, else warning.
    step : float
        The smallest positive number of a narrow dtype: a difference of one step is rounding at any value, and Status does not
        hold it against the device. 0 where numbers that small mean nothing.
    small_value, small_atol : float
        Elements up to the first are judged by their absolute error, against the second.
    rtol : float
        Largest relative error of the others under the absolute threshold standard.
    accumulative_bound, accumulative_balance : float
        The one bound of the accumulative standard, and its limit of the balance of errors.
    mantissa_bits, min_exponent, ulp_above : int
        Explicit mantissa bits, smallest exponent of a normal number, and above how many units in the last place to count.
    metrics : bool
        False where the document has no standard for the dtype: Status alone judges it.
    """

    error_limit: float
    error_share: float
    pass_limit: float
    pass_share: float
    step: float
    small_value: float = 0.0
    small_atol: float = 0.0
    rtol: float = 0.0
    accumulative_bound: float = 0.0
    accumulative_balance: float = 0.0
    mantissa_bits: int = 0
    min_exponent: int = 0
    ulp_above: int = 0
    metrics: bool = True


_FLOAT32: Final = Limits(
    error_limit=0.001,
    error_share=0.999,
    pass_limit=0.0001,
    pass_share=0.9999,
    step=0.0,
    small_value=2.0**-20,
    small_atol=2.0**-30,
    rtol=2.0**-20,
    accumulative_bound=2.0**-11,
    accumulative_balance=2.0**-14,
    mantissa_bits=23,
    min_exponent=-126,
    ulp_above=32,
)

LIMITS: Final[dict[str, Limits]] = {
    "torch.float16": Limits(
        error_limit=0.01,
        error_share=0.99,
        pass_limit=0.001,
        pass_share=0.999,
        step=2.0**-24,
        small_value=2.0**-10,
        small_atol=2.0**-16,
        rtol=2.0**-10,
        accumulative_bound=2.0**-8,
        accumulative_balance=2.0**-20,
        mantissa_bits=10,
        min_exponent=-14,
        ulp_above=1,
    ),
    # Half a unit in bfloat16's last place is up to 0.002 of the value: nothing correct stays within a thousandth.
    "torch.bfloat16": Limits(
        error_limit=0.01,
        error_share=0.99,
        pass_limit=0.01,
        pass_share=0.999,
        step=0.0,
        small_value=2.0**-10,
        small_atol=2.0**-16,
        rtol=2.0**-8,
        accumulative_bound=2.0**-7,
        accumulative_balance=2.0**-7,
        mantissa_bits=7,
        min_exponent=-126,
        ulp_above=1,
    ),
    "torch.float32": _FLOAT32,
    "torch.float64": Limits(0.001, 0.999, 0.0001, 0.9999, 0.0, metrics=False),
    # The document has no limits for eight bits: one unit in the last place, relative to the value.
    "torch.float8_e4m3fn": Limits(2.0**-3, 0.99, 2.0**-3, 0.999, 2.0**-9, metrics=False),
    "torch.float8_e4m3fnuz": Limits(2.0**-3, 0.99, 2.0**-3, 0.999, 2.0**-10, metrics=False),
    "torch.float8_e5m2": Limits(2.0**-2, 0.99, 2.0**-2, 0.999, 2.0**-16, metrics=False),
    "torch.float8_e5m2fnuz": Limits(2.0**-2, 0.99, 2.0**-2, 0.999, 2.0**-17, metrics=False),
    # Real and imaginary parts.
    "torch.complex32": Limits(0.01, 0.99, 0.001, 0.999, 2.0**-24, metrics=False),
    "torch.complex64": Limits(0.001, 0.999, 0.0001, 0.9999, 0.0, metrics=False),
    "torch.complex128": Limits(0.001, 0.999, 0.0001, 0.9999, 0.0, metrics=False),
}
"""Device dtype -> thresholds."""

KINDS: Final[dict[str, str]] = {
    **dict.fromkeys(LIMITS, "float"),
    **dict.fromkeys(("torch.complex32", "torch.complex64", "torch.complex128"), "complex"),
    **dict.fromkeys(("torch.bool", "torch.uint8"), "bool"),
    **dict.fromkeys(
        ("torch.int8", "torch.int16", "torch.int32", "torch.int64", "torch.uint16", "torch.uint32", "torch.uint64"),
        "int",
    ),
}
"""Element types that can be compared; both sides must be of one kind."""

COSINE_ABOVE: Final = 0.99
"""Cosine similarity must be greater."""

ERROR_MAX_BELOW: Final = 0.001
"""A largest absolute error below this passes, where the reference reaches ``SCALE_FROM``."""

SCALE_FROM: Final = 0.1
"""Largest reference value from which the absolute limit means anything."""

ZERO_WITHIN: Final = 2.2e-16
"""A tensor without a larger value counts as zeros."""

HUNDREDTH_LIMIT: Final = 0.01
THOUSANDTH_LIMIT: Final = 0.001
TEN_THOUSANDTH_LIMIT: Final = 0.0001
"""Relative errors below these are counted for the columns of their names; the thousandth standard counts the second."""

ACCUMULATIVE_SMALL: Final = 1.0
"""The small-value domain of the accumulative standard."""

ZEROS_FROM: Final = 100
"""Fewest elements for which the share of zeros is compared."""

ZEROS_WITHIN: Final = 0.1
"""Shares of zeros must differ by less."""
