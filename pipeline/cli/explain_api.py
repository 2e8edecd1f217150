"""``opassay explain-api``: how the accuracy pre-check judges an operator, from the tables that it uses itself."""

from __future__ import annotations

import argparse
import difflib
import textwrap
from collections.abc import Iterator
from typing import Final

from opassay.kernels.precision.ratios import (
    FLOOR,
    FLOORS,
    RATIO_LIMITS,
    THOUSANDTH_MIN,
    ULP_MEAN_BELOW,
    ULP_RATIO_MAX,
    ULP_SHARE_BELOW,
    ULP_SHARE_BELOW_16_BITS,
)
from opassay.kernels.precision.standards import Direction, Standard, api_of, standard_of
from opassay.kernels.precision.tables import (
    ABSOLUTE,
    ACCUMULATIVE,
    ADDED,
    ALSO_RANDOM,
    BENCHMARK,
    BINARY,
    LIMITS,
    LISTED,
    RANDOM_APIS,
    THOUSANDTH,
    ULP,
)
from opassay.pipeline.check.lists import ALWAYS_SKIPPED
from opassay.schemas.check_rows import DETAILS
from opassay.schemas.errors import UsageError

_DTYPES: Final = tuple(dtype for dtype, limits in LIMITS.items() if limits.metrics)
_DIRECTIONS: Final[tuple[Direction, ...]] = ("forward", "backward")
_WIDTH: Final = 100
_NEAR: Final = 0.6
_WHOLE: Final = "torch.int64"
_ALSO: Final = {
    "type_as": "the reference keeps the dtypes of the call",
    "conv1d": "float32 operands are rounded to HF32 (11 bits) on both sides, as the NPU computes",
    "conv2d": "float32 operands are rounded to HF32 (11 bits) on both sides, as the NPU computes",
}


def run(arguments: argparse.Namespace) -> int:
    """Print what an operator gets.

    Raises
    ------
    UsageError
        Nothing is called by that name; the message names the nearest.
    """
    api = api_of(arguments.api)
    fused = _fused()
    if not _is_known(api, fused):
        raise UsageError(f"no operator is called {api!r}; {_hint(api, fused)}")
    print("\n".join(_told(api, fused)))
    return 0


def _told(api: str, fused: dict[str, str]) -> Iterator[str]:
    yield api
    ways = {way: standard_of(api, "torch.float32", way) for way in _DIRECTIONS}
    groups = (
        [_DIRECTIONS] if len({standard.name for standard in ways.values()}) == 1 else [(way,) for way in _DIRECTIONS]
    )
    for group in groups:
        yield from _standard(api, ways[group[0]], " and ".join(group), group[0])
    if ways["forward"].columns:
        whole = standard_of(api, _WHOLE)
        yield from _fact("integers", f"{whole.label} ({whole.name}): int, bool and plain numbers are equal or not")
        yield from _fact("others", "float64, complex, 8-bit floats: only Status of run_ut judges them")
    yield from _fact("reference", _reference(api, fused))
    if api in ALWAYS_SKIPPED:
        yield from _fact(
            "skipped",
            "run_ut and multi_run_ut skip it by name: it copies, or gives an address or whatever the memory held",
        )
    if api in _ALSO:
        yield from _fact("inputs", _ALSO[api])


def _standard(api: str, standard: Standard, ways: str, way: Direction) -> Iterator[str]:
    label = f"{standard.label} ({standard.name})" if standard.label else standard.name
    yield from _fact("standard", f"{ways}: {label}")
    yield from _fact("why", standard.why)
    if standard.columns:
        yield from _fact("figures", ", ".join(DETAILS[column] for column in standard.columns))
    for dtype in _DTYPES if standard.columns else ():
        limits = standard_of(api, dtype, way).thresholds
        if limits:
            yield from _fact("", f"{dtype}: " + ", ".join(f"{name} {_number(value)}" for name, value in limits.items()))
    if standard.name in _VERDICTS:
        yield from _fact("verdict", _VERDICTS[standard.name])


def _fact(label: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=f"  {label:<10}", subsequent_indent=" " * 12)


def _number(value: float) -> str:
    """A threshold as people write it: 2^-10, 1, 0.001."""
    mantissa, exponent = float(value).hex().removeprefix("0x1.0000000000000").partition("p")[::2]
    return f"2^{int(exponent)}" if not mantissa and int(exponent) < -4 else f"{value:g}"


def _reference(api: str, fused: dict[str, str]) -> str:
    if api in fused:
        return f"own formula on the CPU in raised precision: {fused[api]}"
    if api.startswith("npu_"):
        if not fused:
            return "own formulas of fused operators need torch: pip install 'opassay[torch]'"
        near = difflib.get_close_matches(api, sorted(fused), n=3, cutoff=_NEAR)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        return f"none: there is no own formula for it, and where there is no NPU it is skipped{hint}"
    return "the same call on the CPU with float inputs raised to a higher precision"


def _fused() -> dict[str, str]:
    """Fused operators and what is said of their references; none without torch."""
    try:
        from opassay.kernels.fused import FUSED
    except ImportError:
        return {}
    return {name: op.note for name, op in FUSED.items()}


def _is_known(api: str, fused: dict[str, str]) -> bool:
    if api in _listed() or api.rpartition(".")[2] in _listed() or api in fused:
        return True
    try:
        from opassay.pipeline.check.lookup import is_known
    except ImportError:  # without torch any name may be an operator's
        return api.replace(".", "_").isidentifier()
    return is_known(api)


def _hint(api: str, fused: dict[str, str]) -> str:
    names = {*_listed(), *fused}
    try:
        import torch
    except ImportError:
        pass
    else:
        places = (torch._C._VariableFunctions, torch.nn.functional, torch.Tensor)
        names |= {name for place in places for name in dir(place) if not name.startswith("_")}
    near = difflib.get_close_matches(api.rpartition(".")[2], sorted(names), n=3, cutoff=_NEAR)
    return (
        f"did you mean {' or '.join(near)}?" if near else "name one as dumps do: matmul, Torch.matmul.0, npu_rms_norm"
    )


def _listed() -> frozenset[str]:
    added = (names for names, _ in ADDED.values())
    return frozenset().union(*LISTED.values(), *added, RANDOM_APIS, ALSO_RANDOM)


_PASSES: Final = "api_precision_compare passes"
_VERDICTS: Final = {
    BENCHMARK: f"{_PASSES} if NPU / GPU is at most {RATIO_LIMITS['rmse']:g} for 小值域错误占比, 均方根误差 and 相对误差平均值, and at most "
    f"{RATIO_LIMITS['relative_max']:g} for 相对误差最大值 (denominator at least {_number(FLOORS['torch.float16'])} for float16, "
    f"{_number(FLOORS['torch.bfloat16'])} for bfloat16, {_number(FLOOR)} else); 误差均衡性 is shown and does not count",
    ABSOLUTE: f"{_PASSES} if all three rates of the NPU are 0",
    BINARY: f"{_PASSES} if the NPU's rate is 0",
    ULP: f"{_PASSES} float32 if the mean is below {ULP_MEAN_BELOW:g}, the share below {ULP_SHARE_BELOW['torch.float32']:g}, or NPU / GPU "
    f"of the shares at most {ULP_RATIO_MAX:g}; 16-bit floats if the share is below {ULP_SHARE_BELOW_16_BITS:g} or NPU / GPU of the "
    f"shares at most {ULP_RATIO_MAX:g}",
    THOUSANDTH: f"{_PASSES} if the NPU's share is at least {THOUSANDTH_MIN:g}; in bfloat16 a warning if it is no less than the GPU's",
    ACCUMULATIVE: f"{_PASSES} if all three rates of the NPU are 0 and 误差均衡性 is within its limit",
}
"""How the second tool judges."""
