"""A case run and judged: every file of the tool against the incumbent's, or against what is right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.parity.analysis import compare_analysis
from tests.parity.cases import Case, Outcome, dumps_of, rank_folders, steps
from tests.parity.compare import OTHER_COLUMNS, Finding, Tally, compare_tables
from tests.parity.dump import Dump
from tests.parity.merging import compare_merge, right_merge
from tests.parity.op_json import compare_ops, first_mode, side_of
from tests.parity.pairing import is_refused
from tests.parity.reference import titles
from tests.parity.runs import Run, check_run, run_case
from tests.parity.tables import read_table


def _rank_has_partner(case: Case, name: str) -> bool:
    """Whether the golden side has the rank that a report of the incumbent is named after."""
    label = re.search(r"_(rank\d+)_TIMESTAMP", name)
    golden = case.option("-gp", "--golden_path")
    if label is None or golden is None:
        return True
    return any((p / label.group(1)).is_dir() for p in steps(case.folder / golden))


def _paired_by_position(case: Case, target: Dump, golden: Dump) -> bool:
    """Whether the incumbent, who pairs ranks by position, compares this target rank with another golden rank."""
    places = []
    for side, dump in (("-tp", target), ("-gp", golden)):
        ranks = [p.name for p in rank_folders(case.folder / (case.option(side) or ""))]
        places.append(ranks.index(dump.path.parent.name) if dump.path.parent.name in ranks else -1)
    return places[0] != places[1]


def judge_case(case: Case, tool: Sequence[str], scratch: Path) -> Outcome:
    """Run a case and put every cell into its place."""
    run = run_case(case, tool, scratch)
    outcome = Outcome(case, status=run.status, seconds=run.seconds)
    merge = right_merge(case) if case.command == "merge_result" else None
    if merge is None:
        faults = check_run(case, run)
    else:
        faults = check_run(case, run, damage="must" if merge.lost else "", lost=len(merge.lost))
        if bool(run.files) != merge.usable:
            faults.append(
                f"{len(run.files)} files were written, and there is {'something' if merge.usable else 'nothing'} to merge"
            )
    tally = outcome.tally
    for text in faults:
        output = (run.err.strip() or run.out.strip())[-400:]
        tally.unexplained.append(
            Finding(case.name, "", "run", f"status {case.status}", f"status {run.status}", text, output)
        )
    partners = _partners(case, run, tally)
    for report in run.files:
        if merge is not None:
            tally.add(compare_merge(case, merge, report, partners.get(report), "incumbent stops"))
        elif report.suffix != ".json":
            tally.add(_compare(case, report, partners.get(report)))
    if case.wants_first and run.files:
        tally.add(_compare_first(case, run, partners))
    if not run.files and not case.files and not tally.unexplained:
        tally.explained["incumbent stops" if case.status else "nothing to compare", "(run)"] += 1
    return outcome


def _partners(case: Case, run: Run, tally: Tally) -> dict[Path, Path]:
    """Our files -> the incumbent's; what has no partner is counted or reported."""
    found: dict[Path, Path] = {}
    refused = not run.files and run.status == 2 and is_refused(case.argv)
    for name in case.files:
        if refused:
            tally.explained["refused together", "(file)"] += 1
            continue
        pattern = re.compile(re.escape(name).replace("TIMESTAMP", r"\d{14,20}"))
        mine = [p for p in run.files if pattern.fullmatch(p.name)]
        if len(mine) == 1:
            found[mine[0]] = case.folder / "expected" / name
        elif not mine and name.startswith("diff_analyze_") and case.wants_first:
            continue  # nothing differs by our rules: the search is judged with the other files of the search
        elif not mine and not _rank_has_partner(case, name):
            tally.explained["rank by number", "(file)"] += 1
        else:
            text = ", ".join(p.name for p in mine)
            tally.unexplained.append(Finding(f"{case.name}/{name}", "", "", name, text, f"{len(mine)} such files"))
    return found


def _unknown(report: Path) -> Tally:
    text = "cannot tell which dumps this report is about"
    return Tally(unexplained=[Finding(report.name, "", "", "", report.name, text)])


def _compare(case: Case, report: Path, expected: Path | None) -> Tally:
    dumps = dumps_of(case, report)
    if dumps is None:
        return _unknown(report)
    theirs = read_table(expected) if expected is not None else None
    ours = read_table(report)
    instead = "rank by number" if expected is not None and _paired_by_position(case, *dumps) else "incumbent stops"
    mode = ""
    if case.wants_first:
        mode = first_mode(*dumps)
        instead = instead if expected is None and case.status else "first: report too" if expected is None else instead
        instead = OTHER_COLUMNS if theirs is not None and theirs.mode != mode else instead
    return compare_tables(
        f"{case.name}/{report.name}", theirs, ours, *dumps, instead, matching=case.matching, mode=mode
    )


def _compare_first(case: Case, run: Run, partners: dict[Path, Path]) -> Tally:
    """The files of ``-da``: one a rank, and the answer of each step."""
    tally = Tally()
    files = [p for p in run.files if p.suffix == ".json"]
    searched = any(name.endswith(".json") for name in case.files)
    for folder in sorted({p.parent for p in run.files}):
        sides = {}
        for report in (p for p in files if p.parent == folder and p.name.startswith("compare_result_rank")):
            dumps = dumps_of(case, report)
            if dumps is None:
                tally.add(_unknown(report))
                continue
            side = side_of(*dumps, case.matching)
            sides[int(report.name.split("_")[2].removeprefix("rank"))] = side
            header = titles(side.mode, stack=side.target.has_stack)
            instead = "" if searched else "first: every form"
            name = f"{case.name}/{report.name}"
            tally.add(compare_ops(name, report, partners.get(report), side, header, instead, case.matching))
        reports = [p for p in run.files if p.parent == folder and p.suffix != ".json"]
        if {_rank_of(p) for p in reports} != set(sides) or len(reports) != len(sides):
            text = "the ranks with a report are not those with a file for the search"
            tally.unexplained.append(Finding(case.name, "", "", str(reports), str(sorted(sides)), text))
        answers = [p for p in files if p.parent == folder and p.name.startswith("diff_analyze_")]
        ours = answers[0] if answers else None
        theirs = case.folder / "expected" / "diff_analyze_TIMESTAMP.json"
        instead = "" if searched else "first: every form"
        there = theirs if theirs.is_file() else None
        tally.add(compare_analysis(f"{case.name}/diff_analyze", ours, there, sides, instead))
    return tally


def _rank_of(report: Path) -> int:
    """Rank that a report's name says; 0 where it says none."""
    found = re.search(r"_rank(\d+)_", report.name)
    return int(found.group(1)) if found else 0
