"""Statistics arithmetic: the table of differences row by row, in both orders, on frames made by hand."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opassay.kernels import stat_metrics
from opassay.kernels.scopes import with_kinds
from opassay.schemas.dump_rows import STATISTICS
from opassay.schemas.vocab import RowKind, Section, StatKind

ABSENT = object()  # the side has no such row
INF, NAN = math.inf, math.nan
BIG = 2**53


def cell(value: Any) -> tuple[float | None, int | None, str | None]:
    """Number, kind and text of one statistic, as a dump table holds it."""
    if value is ABSENT:
        return None, None, None
    if value is None:
        return None, StatKind.NONE, None
    if isinstance(value, bool):
        return float(value), StatKind.BOOL, None
    if isinstance(value, int) and abs(value) <= BIG:
        return float(value), StatKind.INT, None
    if isinstance(value, float):
        return value, StatKind.FLOAT, None
    return None, StatKind.TEXT, str(value)


def side_of(name: str, rows: list[tuple[Any, ...]]) -> dict[str, pl.Series]:
    """Columns of one side; each row holds max, min, mean and norm."""
    columns: dict[str, list[Any]] = {}
    for row in rows:
        facts = [cell(value) for value in row]
        texts = [str(value) for value in row] if any(kind == StatKind.TEXT for _, kind, _ in facts) else []
        for stat, (number, kind, _) in zip(STATISTICS, facts, strict=True):
            columns.setdefault(stat, []).append(number)
            columns.setdefault(f"{stat}_kind", []).append(kind)
        columns.setdefault("value", []).append("\x1f".join(texts) or None)
        columns.setdefault("kind", []).append(None if row[0] is ABSENT else RowKind.TENSOR)
        columns.setdefault("section", []).append(None if row[0] is ABSENT else Section.OUTPUT)
    facts_of = stat_metrics.value_facts(["", *[text or "" for text in columns["value"]]])
    kinds: dict[str, Any] = {"value": pl.String}
    kinds |= dict.fromkeys(STATISTICS, pl.Float64)
    made = {f"{name}_{key}": pl.Series(values, dtype=kinds.get(key, pl.UInt8)) for key, values in columns.items()}
    made[f"{name}_device"] = facts_of.device[1:]
    made[f"{name}_value_number"] = facts_of.number[1:]
    for fact in ("redundant", "placeholder"):
        made[f"{name}_{fact}"] = pl.repeat(False, len(rows), eager=True)
    return made


def differences(target: list[tuple[Any, ...]], golden: list[tuple[Any, ...]]) -> pl.DataFrame:
    frame = pl.DataFrame(side_of("target", target) | side_of("golden", golden)).lazy()
    texts = stat_metrics.with_texts(with_kinds(frame), four=True)
    return stat_metrics.with_differences(texts, big=True).collect()


def one(target: Any, golden: Any) -> dict[str, Any]:
    """The row of one pair of max cells; the other statistics are equal."""
    rows = [(value, value, value, value) if value is ABSENT else (value, 0.0, 0.0, 1.0) for value in (target, golden)]
    return differences([rows[0]], [rows[1]]).row(0, named=True)


TABLE = [  # target, golden, diff, relative: compare.md 7, with relative errors never negative
    (3.0, 2.0, "1.0", "50.0%"),
    (2.0, 3.0, "-1.0", None),
    (-2.0, -4.0, "2.0", "50.0%"),
    (2.0, -4.0, "6.0", "150.0%"),
    (2.0, 0.0, "2.0", "inf"),
    (0.0, 2.0, "-2.0", "100.0%"),
    (2.0, 0, "2.0", "inf"),
    (NAN, 2.0, "Nan", "Nan"),
    (NAN, 2, "Nan", "Nan"),
    (NAN, INF, "Nan", "Nan"),
    (NAN, -INF, "Nan", "Nan"),
    (2.0, NAN, "Nan", "Nan"),
    (INF, NAN, "Nan", "Nan"),
    (-INF, NAN, "Nan", "Nan"),
    (INF, 2.0, "inf", "inf"),
    (INF, -INF, "inf", "inf"),
    (-INF, 2.0, "-inf", "inf"),
    (-INF, INF, "-inf", "inf"),
    (2.0, INF, "-inf", "inf"),
    (2.0, -INF, "inf", "inf"),
    (ABSENT, 2.0, "N/A", "N/A"),
    (2.0, ABSENT, "N/A", "N/A"),
    (None, ABSENT, "N/A", "N/A"),
    (ABSENT, "npu:0", "N/A", "N/A"),
    ("npu:0", "cuda:0", "N/A", "N/A"),
    ("cpu", "npu:1", "N/A", "N/A"),
    ("npu:0", 2.0, "Diff", "Diff"),
    (2.0, "npu:0", "Diff", "Diff"),
    ("npu:0", "sum", "Diff", "Diff"),
    (None, 2.0, "Diff", "Diff"),
    (2.0, None, "Diff", "Diff"),
    (None, NAN, "Diff", "Diff"),
    (True, False, "Diff", "Diff"),
    (True, 1, "Diff", "Diff"),
    (True, None, "Diff", "Diff"),
    ("sum", "mean", "Diff", "Diff"),
    ("2.5", 2.0, "0.5", "25.0%"),
    ("2.5", "2.0", "0.5", "25.0%"),
    (2.0**-1000, 3 * 2.0**-1000, repr(-(2.0**-999)), None),
    (BIG + 3, BIG + 1, "2.0", None),
    (-(2**60) - 1, 2**60, "-2305843009213694000.0", None),
    (2**64, 2**64 - 1, "1.0", None),
]


@pytest.mark.parametrize(("target", "golden", "diff", "relative"), TABLE)
def test_differences(target: Any, golden: Any, diff: str, relative: str | None) -> None:
    row = one(target, golden)
    if diff in ("Nan", "inf", "-inf", "N/A", "Diff"):
        assert row["max_diff"] == diff
    else:
        assert float(row["max_diff"]) == float(diff)
    if relative is not None:
        assert row["max_relative"] == relative
    else:
        wanted = abs((float(target) - float(golden)) / float(golden))
        if isinstance(target, int):
            wanted = abs(target - golden) / abs(golden)
        assert row["max_relative_number"] == pytest.approx(wanted, rel=1e-12)
    assert not row["max_equal"]
    assert (row["min_diff"] == "0") is (target is not ABSENT and golden is not ABSENT)


EQUAL = [
    (2.0, 2.0), (3, 3.0), (0.0, -0.0), (0, -0.0), (NAN, NAN), (INF, INF), (-INF, -INF), (None, None), (True, True),
    (BIG + 1, BIG + 1), (2**64, 2**64), ("sum", "sum"), ("npu:0", "npu:0"), ("2.50", 2.5), ("2.50", "2.5"),
]  # fmt: skip


@pytest.mark.parametrize(("target", "golden"), EQUAL)
def test_equal_cells_give_zero(target: Any, golden: Any) -> None:
    for pair in ((target, golden), (golden, target)):
        row = one(*pair)
        assert (row["max_diff"], row["max_relative"], row["max_equal"]) == ("0", "0", True)
        assert (row["max_diff_number"], row["max_relative_number"]) == (0.0, 0.0)


def test_neighbours_beyond_the_53rd_bit_are_not_equal() -> None:
    row = one(2**60 + 1, 2**60)
    assert row["target_max_text"] == "1152921504606846977"
    assert row["max_diff_number"] == 1.0
    assert 0 < row["max_relative_number"] < 1e-17
    near = one(BIG, BIG + 1)  # one side fits into a float64 exactly, the other does not
    assert not near["max_equal"]
    assert near["max_diff_number"] == -1.0


@pytest.mark.parametrize("stat", ["mean", "norm"])
def test_an_overflowed_statistic_says_nothing(stat: str) -> None:
    place = STATISTICS.index(stat)
    for sign in (1, -1) if stat == "mean" else (1,):
        values = [2.0, -2.0, 0.5, 3.0]
        values[place] = sign * INF
        row = differences([tuple(values)], [tuple(values)]).row(0, named=True)
        assert (row[f"{stat}_diff"], row[f"{stat}_relative"], row[f"{stat}_equal"]) == ("Nan", "Nan", False)
        assert row["max_diff"] == "0"


def test_an_infinite_norm_beside_an_infinite_max_is_no_overflow() -> None:
    values = (INF, -2.0, INF, INF)
    row = differences([values], [values]).row(0, named=True)
    assert [row[f"{stat}_diff"] for stat in STATISTICS] == ["0"] * 4


def test_a_norm_that_overflowed_on_one_side_differs() -> None:
    row = differences([(2.0, -2.0, 0.5, INF)], [(2.0, -2.0, 0.5, 3.0)]).row(0, named=True)
    assert (row["norm_diff"], row["norm_relative"]) == ("inf", "inf")


def test_cell_texts() -> None:
    values = [(1.5, 1e-20, 3, -INF), (None, NAN, True, False), (2**60, "a", 2.0, 0.1), (ABSENT,) * 4]
    texts = differences(values, values).select([f"target_{stat}_text" for stat in STATISTICS]).rows()
    assert texts[0] == ("1.5", "1e-20", "3", "-inf")
    assert texts[1] == ("None", "Nan", "True", "False")
    assert texts[2] == ("1152921504606846976", "a", "2.0", "0.1")
    assert texts[3] == (None,) * 4


def test_scaled_error_knows_the_scale_of_the_tensor() -> None:
    frame = pl.DataFrame(side_of("target", [(1.0, -1.0, 1e-9, 2.0)]) | side_of("golden", [(1.0, -1.0, 4e-9, 2.0)]))
    lazy = stat_metrics.with_texts(with_kinds(frame.lazy()), four=False).with_columns(golden_elements=pl.lit(16.0))
    found = lazy.select(
        stat_metrics.scaled_error("mean").alias("e"), stat_metrics.scaled_error("max").alias("z")
    ).collect()
    assert found["e"][0] == pytest.approx(3e-9 / 0.5)  # norm / sqrt(16) = 0.5
    assert found["z"][0] == 0.0


finite = st.floats(allow_nan=False, allow_infinity=False, width=64)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=8))
def test_swapping_the_sides_flips_the_sign(pairs: list[tuple[float, float]]) -> None:
    rows = [[(value, 0.0, 0.0, 1.0) for value in side] for side in zip(*pairs, strict=True)]
    there, back = differences(rows[0], rows[1]), differences(rows[1], rows[0])
    for forward, backward, (a, b) in zip(there["max_diff_number"], back["max_diff_number"], pairs, strict=True):
        assert forward == -backward == a - b
    assert there["max_equal"].to_list() == [a == b for a, b in pairs]


@settings(max_examples=60, deadline=None)
@given(st.floats(width=64))
def test_a_float_text_reads_back(value: float) -> None:
    text = pl.select(stat_metrics.float_text(pl.lit(value, dtype=pl.Float64))).item()
    assert text == "Nan" if math.isnan(value) else float(text) == value
