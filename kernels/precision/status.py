"""Figures and verdict of one compared output, from what a pass found; the text of figures in the files. No torch here."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from opassay.kernels.precision.tables import (
    ABSOLUTE,
    ACCUMULATIVE,
    BENCHMARK,
    BINARY,
    COSINE_ABOVE,
    ERROR_MAX_BELOW,
    HUNDREDTH_LIMIT,
    SCALE_FROM,
    TEN_THOUSANDTH_LIMIT,
    THOUSANDTH,
    THOUSANDTH_LIMIT,
    ULP,
    ZERO_WITHIN,
    Limits,
)
from opassay.schemas.check_rows import DetailRow, Status

if TYPE_CHECKING:
    from opassay.kernels.precision.pairwise import Totals

Figures = dict[str, float | int]

_SKIPPED = ", skip other check and set to SPACE."


def share(part: int, whole: int) -> float | int:
    """Part of a whole; the integer 0 where there is nothing to count."""
    return part / whole if whole else 0


def standard_figures(totals: Totals, standard: str) -> Figures:
    """Figures that a standard adds.

    Parameters
    ----------
    totals : Totals
        Of a pass with the same standard.
    standard : str
        Its name.

    Returns
    -------
    dict of str to float or int
        By names of ``check_rows.METRICS``. ``inf_nan`` is there under every standard if a position is apart.
    """
    counted = totals.size - totals.alike
    normal = totals.finite - totals.small
    figures: Figures = {}
    if standard in (BENCHMARK, ACCUMULATIVE):
        figures["balance"] = share(abs(totals.above - totals.below), counted)
    if standard == BENCHMARK:
        figures["rmse"] = math.sqrt(totals.sums["error_sq"] / normal) if normal else 0.0
        figures["small_value"] = share(totals.small_beyond, totals.small)
        figures["relative_max"] = totals.relative_max if normal else 0
        figures["relative_mean"] = totals.sums["relative"] / normal if normal else 0
    elif standard in (ABSOLUTE, ACCUMULATIVE):
        figures["inf_nan"] = share(totals.apart, totals.size if totals.apart or totals.alike else 0)
        figures["relative_rate"] = share(totals.normal_beyond, normal)
        figures["absolute_rate"] = share(totals.small_beyond, totals.small)
    elif standard == BINARY:
        figures["binary"] = share(totals.differ + totals.apart, totals.size)
    elif standard == ULP:
        figures |= _ulp(totals, counted)
    elif standard == THOUSANDTH:
        figures["thousandth"] = share(totals.within[THOUSANDTH_LIMIT], counted)
    if totals.apart:
        figures["inf_nan"] = totals.apart / totals.size
    return figures


def _ulp(totals: Totals, counted: int) -> Figures:
    """Positions that are apart are infinitely many units apart, or nan if one side is."""
    figures: Figures = {"ulp_share": share(totals.ulp_beyond + totals.apart, counted)}
    if totals.apart:
        worst = math.nan if totals.apart_nan else math.inf
        return {"ulp_max": worst, "ulp_mean": worst} | figures
    units = totals.sums.get("ulp", 0.0)
    return {"ulp_max": totals.ulp_max, "ulp_mean": units / counted if counted else 0} | figures


def judge(totals: Totals, limits: Limits, bench_rounded: float, first: str = "") -> tuple[Status, str, Figures]:
    """Status of a pair of float tensors: positions of inf and nan, cosine, largest error, relative errors, in this order.

    Parameters
    ----------
    totals : Totals
        With at least one element.
    limits : Limits
        Of the dtype that judges.
    bench_rounded : float
        ``totals.bench_max`` in the device's dtype: 0 where the reference is too small for it.
    first : str
        What the message begins with.

    Returns
    -------
    tuple of Status, str and dict
        Verdict; message, ended by a line break; the figures up to the step that decided.
    """
    lines = [first] if first else []
    if totals.apart:
        lines.append(f"inf/nan differ at {totals.apart} of {totals.size} positions")
        return Status.ERROR, _text(lines), {}
    if totals.alike == totals.size:
        lines.append(f"All {totals.size} positions are inf or nan, alike on both sides.")
        return Status.PASS, _text(lines), {}
    if totals.alike:
        lines.append(f"{totals.alike} of {totals.size} positions are inf or nan, alike on both sides, and left out.")
    cosine, text, verdict = _cosine(totals, bench_rounded)
    figures: Figures = {} if cosine is None else {"cosine": cosine}
    lines += [text] if text or not lines else []
    if verdict is Status.ERROR:
        lines.append("Cosine similarity is less than 0.99, consider as error" + _SKIPPED)
        return Status.ERROR, _text(lines), figures
    figures["error_max"] = totals.error_max
    passing = _small_error(totals, limits, bench_rounded)
    if passing:
        lines.append(passing)
        return Status.PASS, _text(lines), figures
    status, text, ratios = _relative(totals, limits)
    lines.append(text)
    return status, _text(lines), figures | ratios


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def _zeros(totals: Totals, bench_rounded: float) -> tuple[bool, bool]:
    """Whether reference and device count as zeros; a reference that the device's dtype rounds to zero is zero if the device is."""
    device = totals.device_max <= ZERO_WITHIN
    return totals.bench_max <= ZERO_WITHIN or (device and bench_rounded <= ZERO_WITHIN), device


def _cosine(totals: Totals, bench_rounded: float) -> tuple[float | None, str, Status]:
    if totals.size == 1:
        return (
            None,
            "All the data in device dump data is scalar. Please refer to other compare algorithms.",
            Status.PASS,
        )
    bench, device = _zeros(totals, bench_rounded)
    if bench and device:
        return None, "All the data in device and bench outputs are zero.", Status.PASS
    if bench or device:
        side = "device" if device else "bench"
        return None, f"All the data is zero in {side} dump data.", Status.ERROR
    sums = totals.sums
    cosine = sums["dot"] / math.sqrt(sums["bench_sq"] * sums["device_sq"])  # exactly 1 for equal sides
    cosine = min(1.0, max(-1.0, cosine))
    return cosine, "", Status.PASS if cosine > COSINE_ABOVE else Status.ERROR


def _small_error(totals: Totals, limits: Limits, bench_rounded: float) -> str:
    """Why the largest absolute error alone passes; "" if it does not. A limit of 0.001 says nothing about smaller values."""
    both_zero = all(_zeros(totals, bench_rounded))
    if totals.error_max < ERROR_MAX_BELOW and (both_zero or totals.bench_max >= SCALE_FROM):
        return "Max abs error is less than 0.001, consider as pass" + _SKIPPED
    if totals.error_max < min(ERROR_MAX_BELOW, limits.pass_limit * totals.bench_max):
        return f"Max abs error is less than {limits.pass_limit:g} of the largest value, consider as pass" + _SKIPPED
    return ""


def _relative(totals: Totals, limits: Limits) -> tuple[Status, str, Figures]:
    counted = totals.size - totals.alike
    # An epsilon in the denominator hides any error of values below it, so that small tensors are judged without.
    found = totals.within if totals.bench_max >= SCALE_FROM else totals.close
    shares = {limit: near / counted for limit, near in found.items()}
    coarse = limits.error_limit >= HUNDREDTH_LIMIT
    names = (
        {HUNDREDTH_LIMIT: "hundredth", THOUSANDTH_LIMIT: "thousandth"}
        if coarse
        else {THOUSANDTH_LIMIT: "thousandth", TEN_THOUSANDTH_LIMIT: "ten_thousandth"}
    )
    figures: Figures = {name: shares[limit] for limit, name in names.items()}
    if not shares[limits.error_limit] > limits.error_share:
        if coarse:
            del figures["thousandth"]
        return (
            Status.ERROR,
            f"Relative error is greater than {limits.error_limit:g}, consider as error{_SKIPPED}",
            figures,
        )
    if not shares[limits.pass_limit] > limits.pass_share:
        return (
            Status.WARNING,
            f"Relative error is greater than {limits.pass_limit:g}, consider as warning{_SKIPPED}",
            figures,
        )
    ending = _SKIPPED if coarse else "."
    return Status.PASS, f"Relative error is less than {limits.pass_limit:g}, consider as pass{ending}", figures


def verdict(rows: Iterable[DetailRow]) -> Status:
    """Verdict of one direction of a call: error beats warning beats pass; SKIP only if nothing was compared.

    Parameters
    ----------
    rows : iterable of DetailRow
        Of one call and direction.
    """
    found = {row.status for row in rows}
    return next((status for status in (Status.ERROR, Status.WARNING, Status.PASS) if status in found), Status.SKIP)


def format_metric(value: float | int, precision: int = 14) -> str:
    """Text of a figure: fixed point, or scientific where fixed point would lose its digits; integers as they are.

    Parameters
    ----------
    value : float or int
        Figure; nan and inf are written as such.
    precision : int
        Digits after the point, 0 to 20.

    Returns
    -------
    str
        ``0.99999997503731``, ``2.56651012345679e-11``, ``0``, ``nan``.
    """
    if isinstance(value, int) or not math.isfinite(value):
        return str(value)
    digits = precision - 4 if precision >= 8 else precision // 2
    scientific = 0 < abs(value) < 10.0**-digits
    return f"{value:.{precision}e}" if scientific else f"{value:.{precision}f}"
