"""Which rows an entry names, in which order rows of several ranks stand, what a cell shows."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opassay.kernels.merge_cells import (
    CONSISTENT,
    COPY,
    GOLDEN_MAX,
    NAME,
    PLACE,
    TARGET_MAX,
    cell,
    copies,
    found,
    is_numeric,
    maxima,
    metric_title,
    mode_of,
    number,
    selected,
    spliced,
)
from opassay.schemas.headers import report_columns
from opassay.schemas.vocab import DumpMode

NAMES = [
    "Distributed.all_reduce.1.forward.input.0",
    "Distributed.all_reduce.10.forward.input.0",
    "Distributed.reduce.1.backward.output.0",
    "Module.layers.1.Linear.forward.0.input.0",
    "Cell.layers.1.Dense.forward.0.input.0",
    "layers.1.w(x)",
]


@pytest.mark.parametrize(
    ("entry", "places"),
    [
        ("Distributed", [0, 1, 2]),
        ("Distributed.all_reduce", [0, 1]),
        ("Distributed.reduce", [2]),
        ("reduce", []),
        ("all_reduce", []),
        ("Distributed.all", []),
        ("Distributed.all_reduce.1", [0]),
        ("Distributed.reduce.1.backward", [2]),
        ("Distributed.reduce.1.forward", []),
        ("layers.1", [3, 4, 5]),
        ("Module.layers.1", [3]),
        ("layers.1.w(x)", [5]),
        ("layers.1.w.x.", []),
        ("Module", [3]),
    ],
)
def test_an_entry_names_whole_components_from_the_start(entry: str, places: list[int]) -> None:
    frame = pl.DataFrame({NAME: NAMES})
    assert frame.select(selected(pl.col(NAME), [entry])).to_series().arg_true().to_list() == places
    assert found(frame[NAME], [entry, "nowhere"]) == ({entry} if places else set())


def test_thousands_of_entries_are_one_question() -> None:
    entries = [f"Functional.op{number}" for number in range(5_000)] + ["Distributed.reduce"]
    frame = pl.DataFrame(
        {NAME: [*NAMES, "Functional.op4999.0.forward.input.0", "Functional.op49990.0.forward.input.0"]}
    )
    assert frame.select(selected(pl.col(NAME), entries)).to_series().arg_true().to_list() == [2, 6]
    assert found(frame[NAME], entries) == {"Functional.op4999", "Distributed.reduce"}


def rank_rows(names: list[str]) -> pl.DataFrame:
    """Rows of a rank, copies counted."""
    return pl.DataFrame({NAME: names}, schema={NAME: pl.String}).with_columns(copies(pl.col(NAME)).alias(COPY))


def merged(ranks: list[list[str]]) -> pl.DataFrame:
    """The order of all ranks."""
    order = pl.DataFrame(schema={NAME: pl.String, COPY: pl.UInt32, PLACE: pl.Int64})
    for names in ranks:
        order = spliced(order, rank_rows(names))
    return order


@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=8), max_size=5))
def test_rows_come_behind_the_row_they_follow(ranks: list[list[str]]) -> None:
    """The same, one by one: a row that is not known goes in behind its predecessor, which may have just come."""
    order: list[tuple[str, int]] = []
    for names in ranks:
        keys = [(name, names[:place].count(name)) for place, name in enumerate(names)]
        known = set(order)
        behind = -1
        for key in keys:
            if key in known:
                behind = order.index(key)
            else:
                behind += 1
                order.insert(behind, key)
    table = merged(ranks)
    assert list(table.select(NAME, COPY).iter_rows()) == order
    assert table[PLACE].to_list() == list(range(len(order)))


def test_the_first_rank_keeps_its_order_and_rows_of_one_name_are_not_mixed() -> None:
    assert merged([["b", "a", "b"], ["x", "b", "y", "b", "z"]])[NAME].to_list() == ["x", "b", "y", "a", "b", "z"]


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("f.0.input.0", "0.5", "0.5"),
        ("f.0.input.0", "inf", "inf"),
        ("f.0.input.0", "Diff", "Diff"),
        ("f.0.input.0", "", ""),
        ("f.0.input.0", "N/A", "NPU:7  Bench:N/A"),
        ("f.0.input.0", "unsupported", "NPU:7  Bench:N/A"),
        ("f.0.input.0", "Nan", "NPU:7  Bench:N/A"),
        ("f.0.input.0", "shape unmatched", "shape unmatched"),
        ("f.0.input.group", "0", "NPU:7  Bench:N/A"),
        ("f.0.input.groups", "0", "0"),
        ("f.0.input.0", None, None),
    ],
)
def test_what_was_not_measured_and_groups_show_both_maxima(name: str, text: str | None, shown: str | None) -> None:
    frame = pl.DataFrame(
        {NAME: [name], TARGET_MAX: ["7"], GOLDEN_MAX: [None], "Cosine": [text]},
        schema=dict.fromkeys([NAME, TARGET_MAX, GOLDEN_MAX, "Cosine"], pl.String),
    )
    assert frame.with_columns(maxima()).select(cell("Cosine")).item() == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0.10000000000000001", "0.1"),
        ("1E-30", "1e-30"),
        ("12345678901234567890", "12345678901234567890"),
        ("1.0", "1.0"),
        ("v1.5", "v1.5"),
        ("[0.5, 1]", "[0.5, 1]"),
        (None, "N/A"),
    ],
)
def test_maxima_are_told_in_their_shortest_text(text: str | None, shown: str) -> None:
    frame = pl.DataFrame({TARGET_MAX: ["a"], GOLDEN_MAX: [text]}, schema={TARGET_MAX: pl.String, GOLDEN_MAX: pl.String})
    assert frame.select(maxima()).item() == f"NPU:a  Bench:{shown}"


def test_requires_grad_of_a_group_stays() -> None:
    frame = pl.DataFrame({NAME: ["f.0.input.group"], TARGET_MAX: ["a"], GOLDEN_MAX: ["b"], CONSISTENT: ["True"]})
    assert frame.with_columns(maxima()).select(cell(CONSISTENT)).item() == "True"


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0.0), ("-1.5e-7", -1.5e-7), (".5", 0.5), ("3.", 3.0), ("1e999", None), ("0.5%", None), ("inf", None), ("1 ", None), ("", None)],
)  # fmt: skip
def test_only_whole_finite_numbers_are_numbers(text: str, value: float | None) -> None:
    assert pl.DataFrame({"text": [text]}).select(number(pl.col("text"))).item() == value


def test_percentages_stay_text_and_tensor_errors_do_not() -> None:
    assert not is_numeric("MaxRelativeErr", DumpMode.STATISTICS)
    assert is_numeric("MaxRelativeErr", DumpMode.TENSOR)
    assert is_numeric("Max diff", DumpMode.STATISTICS)
    assert not is_numeric(CONSISTENT, DumpMode.TENSOR)


@pytest.mark.parametrize("mode", DumpMode)
def test_modes_are_told_by_the_columns_of_our_reports(mode: DumpMode) -> None:
    titles = report_columns(mode, stack=True).values()
    assert mode_of(set(titles)) is mode
    assert mode_of(set(titles) - {NAME}) is None


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Max diff", "Max diff"),
        ("max  DIFF ", "Max diff"),
        ("Five Thousandths Err Ratio", "Five Thousandth Err Ratio"),
        ("Five Thousandth Err Ratio", "Five Thousandth Err Ratio"),
        ("Result", None),
        ("", None),
    ],
)
def test_metrics_are_known_in_either_spelling(text: str, title: str | None) -> None:
    assert metric_title(text) == title
