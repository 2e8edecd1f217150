"""Fourth station: pairs and metrics become judged rows, slice by slice, so that a report of any length costs one slice of memory.

A slice holds whole ops; where it is cut never changes a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl
from opassay.kernels import api_names, rules, scopes, stat_metrics, verdict
from opassay.schemas.dtypes import BY_NAME, mindspore_dtype, parse_dtype
from opassay.schemas.dump_rows import STATISTICS, DumpTable
from opassay.schemas.metric_rows import METRIC_ROWS
from opassay.schemas.vocab import DumpMode, MetricState

SLICE_ROWS = 32_768

_WIDENED = ("bfloat16", *(name for name in BY_NAME if name.startswith("float8")))
_CARRIED = ("section", "kind", "requires_grad", "md5", "data_name", "name", "op")


@dataclass(frozen=True, slots=True)
class Judging:
    """Everything a verdict rests on.

    Attributes
    ----------
    target, golden : DumpTable
        The two sides.
    pairs : polars.DataFrame
        Schema ``PAIR_ROWS``.
    metrics : polars.DataFrame or None
        Schema ``METRIC_ROWS``; None but in tensor mode.
    mode : DumpMode
        What is compared.
    strict, document_rules : bool
        See ``CompareOptions``.
    lenient : bool
        Training against inference: shapes without dimensions of length 1, no word on Requires_grad.
    """

    target: DumpTable
    golden: DumpTable
    pairs: pl.DataFrame
    metrics: pl.DataFrame | None
    mode: DumpMode
    strict: bool = False
    document_rules: bool = False
    lenient: bool = False

    def slices(self, slice_rows: int = SLICE_ROWS) -> Iterator[pl.DataFrame]:
        """Judged rows in report order.

        Parameters
        ----------
        slice_rows : int
            Aim for the number of rows; an op is never cut.

        Yields
        ------
        polars.DataFrame
            All columns of both sides (prefixed), of the metrics, of the scopes and of ``verdict.judge``.
        """
        sides = {"target": _Side(self.target), "golden": _Side(self.golden)}
        wanted = rules.rules_for(self.mode, document_rules=self.document_rules)
        for start, stop in _cuts(self.pairs["group"], slice_rows):
            frame = self.pairs.slice(start, stop - start)
            parts = [side.gather(frame[f"{name}_row"], name) for name, side in sides.items()]
            if any(side.mindspore for side in sides.values()):
                parts += [side.plain(frame[f"{name}_row"], name) for name, side in sides.items()]
            frame = pl.concat(
                [frame.with_columns(pair=pl.int_range(start, stop, dtype=pl.UInt32)), *parts], how="horizontal"
            )
            if self.metrics is not None:
                frame = frame.join(self.metrics, on="pair", how="left", maintain_order="left")
            yield verdict.judge(self._scoped(frame, list(sides.values())), wanted, self.mode)

    def _scoped(self, frame: pl.DataFrame, sides: Sequence[_Side]) -> pl.DataFrame:
        four = any(side.values.four for side in sides)
        lazy = scopes.with_kinds(frame.lazy().with_columns(strict=pl.lit(self.strict), lenient=pl.lit(self.lenient)))
        lazy = scopes.with_scalars(stat_metrics.with_texts(scopes.with_declarations(lazy), four=four))
        if any(side.mindspore for side in sides):
            lazy = scopes.across_frameworks(lazy)
        if self.mode is DumpMode.STATISTICS:
            lazy = stat_metrics.with_differences(lazy, big=any(side.values.big for side in sides))
        return scopes.with_scopes(lazy, self.mode)


def empty_metrics(pairs: pl.DataFrame) -> pl.DataFrame:
    """Metrics of pairs of which no tensor is to be measured."""
    rows = pl.DataFrame({"pair": pl.Series([], dtype=pl.UInt32)}) if pairs.is_empty() else pairs.select("pair")
    missing = {name: kind for name, kind in METRIC_ROWS.items() if name not in ("pair", "state")}
    return rows.with_columns(
        pl.lit(int(MetricState.NOT_A_TENSOR), dtype=pl.UInt8).alias("state"),
        *[pl.lit(None, dtype=kind).alias(name) for name, kind in missing.items()],
    ).select(list(METRIC_ROWS))


class _Side:
    """One dump, ready to hand out rows by number."""

    def __init__(self, table: DumpTable) -> None:
        self.rows = table.rows
        self.ops = table.ops["name"]
        self.slots = pl.Series(table.slots, dtype=pl.String)
        self.dtypes = pl.Series(table.dtypes, dtype=pl.String)
        self.known_dtypes = pl.Series([_dtype_in_file(text) for text in table.dtypes], dtype=pl.String)
        self.mindspore = api_names.framework_of(table.framework, table.dtypes) == api_names.MINDSPORE or any(
            map(mindspore_dtype, table.dtypes)
        )
        self.plain_dtypes = pl.Series(list(map(_plain, table.dtypes)), dtype=pl.String)
        self.plain_values = pl.Series([None, *map(_plain, table.values[1:])], dtype=pl.String)
        self.grad_told = not self.mindspore or bool((table.rows["requires_grad"] >= 0).any())
        self.shapes = pl.Series(table.shapes, dtype=pl.String)
        self.bare_shapes = pl.Series([scopes.bare_shape(shape) for shape in table.shapes], dtype=pl.String)
        self.merged_shapes = pl.Series([scopes.heads_merged(shape) for shape in self.bare_shapes], dtype=pl.String)
        told = {row: join.told for row, join in table.joins.items()}
        self.joined = pl.DataFrame(
            {"row": list(told), "joined": list(told.values())}, schema={"row": pl.UInt32(), "joined": pl.String()}
        )
        self.elements = pl.Series([scopes.elements_of(shape) for shape in table.shapes], dtype=pl.Float64)
        self.values = stat_metrics.value_facts(table.values)
        facts = scopes.op_facts(self.ops)
        self.redundant, self.placeholder = facts["redundant"], facts["placeholder"]

    def gather(self, numbers: pl.Series, side: str) -> pl.DataFrame:
        """The rows with these numbers (null gives nulls), columns prefixed with the side."""
        picked = self.rows.select(pl.all().gather(numbers))
        op_name = self.ops.gather(picked["op"])
        statistics = [f"{stat}{suffix}" for stat in STATISTICS for suffix in ("", "_kind")]
        return picked.select(
            *[pl.col(name).alias(f"{side}_{name}") for name in _CARRIED if name != "name"],
            *[pl.col(name).alias(f"{side}_{name}") for name in statistics],
            op_name.alias(f"{side}_op_name"),
            pl.coalesce(pl.col("name"), op_name + self.slots.gather(picked["slot"])).alias(f"{side}_name"),
            self.dtypes.gather(picked["dtype"]).alias(f"{side}_dtype"),
            self.known_dtypes.gather(picked["dtype"]).alias(f"{side}_known_dtype"),
            self.shapes.gather(picked["shape"]).alias(f"{side}_shape"),
            self.bare_shapes.gather(picked["shape"]).alias(f"{side}_bare_shape"),
            self.merged_shapes.gather(picked["shape"]).alias(f"{side}_merged_shape"),
            self._joined(numbers).alias(f"{side}_joined"),
            self.elements.gather(picked["shape"]).alias(f"{side}_elements"),
            self.values.text.gather(picked["value"]).alias(f"{side}_value"),
            self.values.number.gather(picked["value"]).alias(f"{side}_value_number"),
            self.values.device.gather(picked["value"]).alias(f"{side}_device"),
            self.redundant.gather(picked["op"]).alias(f"{side}_redundant"),
            self.placeholder.gather(picked["op"]).alias(f"{side}_placeholder"),
            pl.col("requires_grad")
            .replace_strict([1, 0, -1], ["True", "False", "N/A"], return_dtype=pl.String)
            .alias(f"{side}_requires_grad_text"),
        )

    def plain(self, numbers: pl.Series, side: str) -> pl.DataFrame:
        """What MindSpore spells its own way in PyTorch's spelling, of the rows with these numbers."""
        picked = self.rows.select(pl.col("dtype", "value").gather(numbers))
        return picked.select(
            self.plain_dtypes.gather(picked["dtype"]).alias(f"{side}_plain_dtype"),
            self.plain_values.gather(picked["value"]).alias(f"{side}_plain_value"),
            pl.lit(self.grad_told).alias(f"{side}_grad_told"),
        )

    def _joined(self, numbers: pl.Series) -> pl.Series:
        """How each row was joined from several, null for rows that were not."""
        if self.joined.is_empty():
            return pl.repeat(None, numbers.len(), dtype=pl.String, eager=True)
        rows = pl.DataFrame({"row": numbers.cast(pl.UInt32)})
        return rows.join(self.joined, on="row", how="left", maintain_order="left")["joined"]


def _plain(text: str) -> str:
    """PyTorch's spelling of a dtype that MindSpore writes; any other text as it is."""
    kind = mindspore_dtype(text)
    return f"torch.{kind.name}" if kind else text


def _dtype_in_file(text: str) -> str | None:
    """What a tensor file must hold by the JSON's dtype; None where that is not known.

    MindSpore saves bfloat16 and smaller floats as float32, as NumPy has no such types.
    """
    if mindspore := mindspore_dtype(text):
        return None if mindspore.name in _WIDENED else f"torch.{mindspore.name}"
    known = parse_dtype(text) if text.startswith("torch.") else None
    return f"torch.{known.name}" if known else None


def _cuts(groups: pl.Series, slice_rows: int) -> Iterator[tuple[int, int]]:
    """Borders of slices of about ``slice_rows`` rows that part no run of equal group numbers."""
    starts = (groups != groups.shift(1)).fill_null(True).arg_true().to_list() if groups.len() else []
    begin = 0
    for border in [*starts[1:], groups.len()]:
        if border - begin >= slice_rows or (border == groups.len() and border > begin):
            yield begin, border
            begin = border
