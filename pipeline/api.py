"""The library: ``opassay.compare`` and the report it returns. The command line goes through the same steps and streams them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from opassay.pipeline.match.options import matching_of
from opassay.pipeline.read.trees import open_tree
from opassay.pipeline.run.budget import Budget, parse_bytes
from opassay.pipeline.run.plan import Plan, make_plan
from opassay.pipeline.run.pool import Pool
from opassay.schemas.errors import OpassayError
from opassay.schemas.options import CompareOptions

if TYPE_CHECKING:
    import polars as pl
    from opassay.kernels.first_difference import FirstDifference
    from opassay.pipeline.report.summary import FirstOp
    from opassay.pipeline.report.tally import Tally
    from opassay.pipeline.run.rank import RankReport


@dataclass(slots=True, repr=False)
class CompareReport:
    """What ``compare`` found, as tables.

    Attributes
    ----------
    plan : Plan
        Steps, ranks and files, and what has no partner.
    ranks : list of RankReport
        One a pair of dump files, in the plan's order; each has ``mode``, ``rows`` and ``problems``.
    failed : dict of str to str
        Pairs of files that could not be compared, and why.
    options : CompareOptions
        As given.
    """

    plan: Plan
    ranks: list[RankReport]
    failed: dict[str, str]
    options: CompareOptions
    _tallies: dict[str, Tally] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        counts = ", ".join(f"{self.count(word)} {word}" for word in ("pass", "warning", "error"))
        return f"<CompareReport of {len(self.ranks)} pairs of dumps: {counts}; {len(self.failed)} not compared>"

    @property
    def rows(self) -> pl.DataFrame:
        """All rows of all ranks: ``step`` and ``rank`` in front, then the report's columns under their internal names, then
        the numbers behind the texts. Modes may differ between ranks; what one lacks is null.

        Computed anew on every access; keep it.
        """
        import polars as pl

        frames = [
            report.rows.select(
                pl.lit(report.pair.step, dtype=pl.UInt32).alias("step"),
                pl.lit(report.pair.label).alias("rank"),
                pl.all(),
            )
            for report in self.ranks
        ]
        return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()

    def tallies(self) -> Iterator[tuple[str, Tally]]:
        """Name and counts of every pair."""
        for report in self.ranks:
            name = report.pair.name
            if name not in self._tallies:
                tally = report.tally()
                for judged in report.judged():
                    tally.add(judged)
                self._tallies[name] = tally
            yield name, self._tallies[name]

    def count(self, result: Literal["pass", "warning", "error"]) -> int:
        """Rows of all ranks with a Result."""
        return sum(tally.results[result] for _, tally in self.tallies())

    def first_difference(self) -> list[FirstOp]:
        """Where the numbers go wrong first, over all ranks: the first op that differs, then the next that do not follow from it.

        Returns
        -------
        list of FirstOp
            Step by step; each has ``name``, ``reason``, ``rank``, ``where``, ``leads`` and ``source``, the line of the user's code that
            called it ("" where the dump has no call stacks). Empty where nothing differs.
        """
        from opassay.pipeline.difference.collect import FactsCollector
        from opassay.pipeline.difference.search import first_difference, told

        steps: dict[int | None, list[RankReport]] = {}
        for report in self.ranks:
            steps.setdefault(report.pair.step, []).append(report)
        found: list[FirstOp] = []
        for held in steps.values():
            facts = []
            for report in held:
                collector = FactsCollector(report.judging, detailed=False)
                for judged in report.judged():
                    collector.add(judged, judged)
                facts.append(collector.finish(report.pair.rank, report.pair.label, None))
            labels = {report.pair.rank: report.pair.name for report in held if len(held) > 1 or report.pair.is_device}
            first = first_difference(facts)
            found += told(first, facts, labels, _sources(first, held))
        return found

    def write_csv(self, folder: str | PathLike[str]) -> list[Path]:
        """Write ``compare_result…csv``, one a rank, as the command does.

        Raises
        ------
        OutputError
            If a file cannot be written.
        """
        return self._write(folder, xlsx=False, parquet=False)

    def write_xlsx(self, folder: str | PathLike[str]) -> list[Path]:
        """Write ``compare_result…xlsx``, one a rank. Raises as ``write_csv``."""
        return self._write(folder, xlsx=True, parquet=False)

    def write_parquet(self, folder: str | PathLike[str]) -> list[Path]:
        """Write ``compare_result…parquet``, one a rank, typed, for notebooks. Raises as ``write_csv``."""
        return [path for path in self._write(folder, xlsx=False, parquet=True) if path.suffix == ".parquet"]

    def _write(self, folder: str | PathLike[str], *, xlsx: bool, parquet: bool) -> list[Path]:
        from dataclasses import replace

        from opassay.pipeline.report.files import timestamp
        from opassay.pipeline.run.compare import report_folder, write_reports

        options = replace(self.options, output=Path(folder), xlsx=xlsx, parquet=parquet)
        stamp = timestamp()
        files: list[Path] = []
        for report in self.ranks:
            files += write_reports(report, options, report_folder(report.pair, options), stamp)[1]
        return files


def _sources(first: FirstDifference, ranks: Sequence[RankReport]) -> dict[tuple[int, str], str]:
    """(rank, op) -> line of the user's own code, of the ops of an answer."""
    from opassay.pipeline.report.tally import own_line

    found: dict[tuple[int, str], str] = {}
    for report in ranks:
        names = [node.name for node in (*first.nodes, *first.independent) if node.rank == report.pair.rank]
        if names and report.stacks is not None:
            lines = map(own_line, report.stacks.text_for(names))
            found |= {(report.pair.rank, name): line for name, line in zip(names, lines, strict=True) if line}
    return found


def compare(
    target: str | PathLike[str],
    golden: str | PathLike[str],
    *,
    strict: bool = False,
    document_rules: bool = False,
    fuzzy: bool = False,
    data_mapping: str | PathLike[str] | None = None,
    cell_mapping: str | PathLike[str] | Literal[True] | None = None,
    wrappers: bool = True,
    more_wrappers: Sequence[str] = (),
    backend: Literal["fsdp", "megatron"] | None = None,
    shards: Literal["off", "auto"] = "off",
    workers: int = 1,
    memory: str | int = 0,
    device: str = "cpu",
    io: Literal["auto", "map", "read"] = "auto",
) -> CompareReport:
    """Compare two dumps and return the report as tables.

    Parameters
    ----------
    target, golden : path
        A dump.json or debug.json, or a rank, step or dump-root folder. Target is the side under test.
    strict : bool
        No rounding allowance in the thousandth rule.
    document_rules : bool
        Only the rules that msprobe documents, none of ours.
    fuzzy : bool
        Pair ops of one level and name whatever their call index.
    data_mapping : path, optional
        Yaml file of row names, target: golden.
    cell_mapping : path or True, optional
        Yaml file of module names, target: golden; True reads ``Cell`` as ``Module`` and no more.
    wrappers : bool
        Leave what wrappers add to module paths out where nothing else pairs.
    more_wrappers : sequence of str
        Regular expressions of further parts of module paths to leave out.
    backend : {None, "fsdp", "megatron"}
        Compare training (target) with inference (golden), with the module names of this backend.
    shards : {"off", "auto"}
        ``auto`` joins the target's tensor-parallel ranks where the golden side has fewer.
    workers : int
        Processes that measure tensors; 1 measures in this process, 0 takes one a core.
    memory : str or int
        Budget of the process tree: ``"4G"``, bytes, or 0 for what the machine has.
    device : str
        ``cpu``, ``cuda`` or ``npu``, the latter two with an optional index.
    io : {"auto", "map", "read"}
        How tensor files are read.

    Returns
    -------
    CompareReport
        Ranks that could not be compared are in ``failed``, never silently missing.

    Raises
    ------
    OpassayError
        A path that does not exist, levels that do not fit, or nothing that could be compared; see ``opassay.schemas.errors``.

    Examples
    --------
    >>> import opassay
    >>> report = opassay.compare("examples/two_ranks/target/step0", "examples/two_ranks/golden/step0")
    >>> [rank.mode.value for rank in report.ranks]
    ['tensor', 'tensor']
    >>> report.count("error") > 0
    True
    >>> report.first_difference()[0].name
    'Functional.softmax.1.forward.output.0'
    >>> worst = report.rows.filter(report.rows["result"] == "error")["target_name"][0]
    """
    from opassay.pipeline.run.rank import compare_pair

    budget = Budget(parse_bytes(str(memory)) if memory else 0, workers)
    options = CompareOptions(
        Path(target),
        Path(golden),
        strict=strict,
        document_rules=document_rules,
        fuzzy=fuzzy,
        data_mapping=None if data_mapping is None else Path(data_mapping),
        cell_mapping=cell_mapping if cell_mapping is None or cell_mapping is True else Path(cell_mapping),
        wrappers=wrappers,
        more_wrappers=tuple(more_wrappers),
        backend=backend,
        shards=shards,
        workers=workers,
        device=device,
        io=io,
    )
    matching = matching_of(options)
    plan = make_plan(
        open_tree(options.target, "target"), open_tree(options.golden, "golden"), shards=options.shards == "auto"
    )
    reports: list[RankReport] = []
    failed: dict[str, str] = {}
    pool = Pool(budget.workers)
    try:
        for pair in plan.pairs:
            try:
                reports.append(compare_pair(pair, options, matching=matching, pool=pool, budget=budget))
            except OpassayError as error:
                if len(plan.pairs) == 1:
                    raise
                failed[pair.name] = str(error)
    finally:
        pool.close()
    return CompareReport(plan, reports, failed, options)
