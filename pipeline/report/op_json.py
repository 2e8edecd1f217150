"""``compare_result_rank{id}_{timestamp}.json`` of ``-da``: every op with its rows, as documented, streamed slice by slice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opassay.pipeline.report.files import ClosedWriter, WholeFile
from opassay.schemas.vocab import Section

if TYPE_CHECKING:
    import polars as pl
    from opassay.schemas.dump_rows import DumpTable

_NUMBER: Final = r"^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$"  # what JSON takes for a number
_STATES: Final = {
    Section.INPUT_ARGS: "input",
    Section.INPUT_KWARGS: "input",
    Section.INPUT: "input",
    Section.PARAMETERS: "parameters",
    Section.OUTPUT: "output",
    Section.PARAMETERS_GRAD: "parameters_grad",
    Section.DEBUG: "debug",
}
_ITEM: Final = " " * 12
_FIELD: Final = " " * 16
_FIGURES: Final = ("_max", "_min", "_mean", "_norm")


class OpJsonWriter(ClosedWriter):
    """Writes slices of whole ops as one JSON object: record name -> ``is_same`` and ``op_items``.

    Parameters
    ----------
    path : Path
        Final name.
    columns : dict of str to str
        Internal column -> header, in report order.
    target, golden : DumpTable
        The two sides.

    Notes
    -----
    Numbers are JSON numbers with the digits of the report; ``Nan``, ``inf`` and ``None`` are texts, so that any reader takes the file.
    """

    def __init__(self, path: Path, columns: dict[str, str], target: DumpTable, golden: DumpTable) -> None:
        self._file = WholeFile(path)
        self._columns = {name: header for name, header in columns.items() if name not in ("stack", "data_name")}
        self._stack = "stack" in columns
        self._p2p = {"NPU": target.p2p, "Bench": golden.p2p}
        self._names = target.ops["name"]  # a record of the golden side alone that shares a name with one is told apart
        self._begun = False
        self._file.write(b"{")

    def add(self, judged: pl.DataFrame, cells: pl.DataFrame, differing: pl.Series) -> None:
        """Append one slice.

        Parameters
        ----------
        judged, cells : polars.DataFrame
            The slice, judged and as cells.
        differing : polars.Series
            Target ops that differ.
        """
        import polars as pl

        if not judged.height:
            return
        alone = pl.col("target_op").is_null()
        frame = cells.with_columns(judged.select("target_row", "golden_row", "target_op", "group", "section"))
        frame = frame.with_columns(
            judged.select(record=pl.coalesce("target_op_name", "golden_op_name")),
            named=judged["target_op"].is_not_null(),
        )
        held = pl.col("target_row").is_not_null().any().over("group")
        frame = frame.filter(~alone | ~held)  # a golden row of an op of both sides is told by the op's table, not here
        if not frame.height:
            return
        frame = frame.with_columns(
            key=pl.when("named")
            .then("record")
            .when(pl.col("record").is_in(self._names.implode()))
            .then(pl.col("record") + " (Bench)")
            .otherwise("record"),
            same=pl.col("named") & ~pl.col("target_op").is_in(differing.implode()),
        )
        ops = (
            frame.select("group", "named", "key", "same", item=self._item(frame))
            .group_by("group", "named", maintain_order=True)
            .agg(pl.col("key").first(), pl.col("same").first(), pl.col("item").str.join(",\n"))
        )
        flag = pl.when("same").then(pl.lit("true")).otherwise(pl.lit("false"))
        blocks = ops.select(
            pl.concat_str(
                [
                    pl.lit("\n    "), _quoted(pl.col("key")), pl.lit(': {\n        "is_same": '), flag,
                    pl.lit(',\n        "op_items": [\n'), pl.col("item"), pl.lit("\n        ]\n    }"),
                ]
            )
        ).to_series()  # fmt: skip
        self._file.write(("," if self._begun else "").encode() + ",".join(blocks.to_list()).encode())
        self._begun = True

    def close(self) -> list[Path]:
        """Give the file its name, which is returned."""
        self._file.write(b"\n}\n" if self._begun else b"}\n")
        return [self._file.commit()]

    def discard(self) -> None:
        """Remove the file if it has no final name."""
        self._file.discard()

    def _item(self, frame: pl.DataFrame) -> pl.Expr:
        """One row as a JSON object, indented as documented."""
        import polars as pl

        parts: list[tuple[str, pl.Expr]] = []
        for name, header in self._columns.items():
            cell = pl.col(name)
            if name == "requires_grad_consistent":
                value = cell.str.to_lowercase()
            elif name.endswith(_FIGURES):
                value = pl.when(cell.str.contains(_NUMBER)).then(cell).otherwise(_quoted(cell))
            else:
                value = _quoted(cell)
            parts.append((header, value))
            if name == "message" and self._stack:
                parts.append(("NPU_Stack_Info", self._stacks(frame)))
        states, words = [int(section) for section in _STATES], list(_STATES.values())
        parts.append(("state", _quoted(pl.col("section").replace_strict(states, words, return_dtype=pl.String))))
        parts.append(("api_origin_name", _quoted(pl.col("record"))))
        for what in ("op", "peer"):
            parts += [(f"{side} P2POp {what}", self._message(frame, side, what)) for side in self._p2p]
        pieces: list[pl.Expr] = [pl.lit(f"{_ITEM}{{\n")]
        for place, (header, value) in enumerate(parts):
            pieces += [pl.lit(f"{_FIELD}{json.dumps(header)}: "), value]
            pieces.append(pl.lit(",\n" if place + 1 < len(parts) else f"\n{_ITEM}}}"))
        return pl.concat_str(pieces)

    def _stacks(self, frame: pl.DataFrame) -> pl.Expr:
        """The lines of the call stack; the report has them printed as a Python list, and ``N/A`` on all rows but an op's first."""
        import polars as pl
        from opassay.pipeline.difference.collect import stack_lines

        texts = [json.dumps(stack_lines(text)) if text != "N/A" else None for text in frame["stack"].to_list()]
        filled = pl.DataFrame({"group": frame["group"], "text": pl.Series(texts, dtype=pl.String)})
        return pl.lit(filled.select(pl.col("text").forward_fill().over("group")).to_series().fill_null("null"))

    def _message(self, frame: pl.DataFrame, side: str, what: str) -> pl.Expr:
        import polars as pl

        known = self._p2p[side]
        if not known:
            return pl.lit('"None"')
        rows = frame["target_row" if side == "NPU" else "golden_row"].to_list()
        found = [known.get(row) if row is not None else None for row in rows]
        return pl.lit(pl.Series([json.dumps(str(getattr(one, what)) if one else "None") for one in found]))


def _quoted(text: pl.Expr) -> pl.Expr:
    """A text as a JSON string."""
    import polars as pl

    plain = text.str.replace_all("\\", "\\\\", literal=True).str.replace_all('"', '\\"', literal=True)
    odd = plain.str.contains(r"[\x00-\x1f]")
    escaped = pl.when(odd).then(_without_controls(plain)).otherwise(plain)
    return pl.concat_str([pl.lit('"'), escaped, pl.lit('"')])


def _without_controls(text: pl.Expr) -> pl.Expr:
    codes = [chr(code) for code in range(0x20)]
    return text.str.replace_many(codes, [json.dumps(code)[1:-1] for code in codes])
