"""``python -m tests.parity FOLDER...``: run stored cases, compare every cell; status 1 when anything is unexplained."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.parity.cases import Outcome, find_cases
from tests.parity.judge import judge_case
from tests.parity.report import case_line, markdown_report, text_report, totals


def default_tool() -> list[str]:
    """``opassay`` beside this interpreter, else on the search path."""
    beside = Path(sys.executable).with_name("opassay")
    return [str(beside) if beside.exists() else shutil.which("opassay") or "opassay"]


def judge_all(
    folders: Sequence[Path],
    tool: Sequence[str],
    out: Path,
    names: Sequence[str] = (),
    *,
    later: bool = False,
    loud: bool = True,
) -> list[Outcome]:
    """Run every case found.

    Parameters
    ----------
    folders : sequence of Path
        Folders of cases, or cases.
    tool : sequence of str
        Command line of the tool, without sub-command.
    out : Path
        Where the runs happen, a folder each.
    names : sequence of str
        Cases to run (beginnings of names); none means all.
    later : bool
        Run the cases that need commands of later work too.
    loud : bool
        Print a line a case.
    """
    outcomes = []
    for case in find_cases(folders):
        if names and not any(case.name.startswith(n) for n in names):
            continue
        skip = case.later if not later else ""
        outcome = Outcome(case, skipped=skip) if skip else judge_case(case, tool, out / case.name)
        outcomes.append(outcome)
        if loud:
            print(case_line(outcome), flush=True)
    return outcomes


def main(argv: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="folder of cases, or a case")
    parser.add_argument("--tool", help="command line of the tool (default: opassay beside this interpreter)")
    parser.add_argument("--case", nargs="+", default=[], metavar="NAME", help="only cases whose name begins so")
    parser.add_argument("--out", type=Path, help="keep the runs in this folder")
    parser.add_argument("--markdown", type=Path, help="write the report as markdown too")
    parser.add_argument("--all", action="store_true", help="also cases that need commands of later work")
    parser.add_argument("--limit", type=int, default=40, help="unexplained cells to print in full (default 40)")
    options = parser.parse_args(argv)
    for folder in options.folders:
        if not folder.is_dir():
            parser.error(f"{folder} is no folder")
    tool = shlex.split(options.tool) if options.tool else default_tool()
    tool[0] = str(Path(shutil.which(tool[0]) or tool[0]).absolute())
    with tempfile.TemporaryDirectory(prefix="parity-") as temporary:
        out = (options.out or Path(temporary)).absolute()
        outcomes = judge_all(options.folders, tool, out, options.case, later=options.all)
    if not outcomes:
        parser.error("no case found")
    print(text_report(outcomes, options.limit))
    if options.markdown:
        options.markdown.write_text(markdown_report(outcomes, 200), encoding="utf-8")
    ran, _, _, unexplained = totals(outcomes)
    return 1 if unexplained or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
