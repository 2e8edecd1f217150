"""What one comparison, or several merged, came to: the numbers and texts of the closing panel. Counts add up on both sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_SEVERITY: Final = {"error": 0, "warning": 1, "pass": 2}


@dataclass(frozen=True, slots=True)
class WorstOp:
    """An op worth looking at.

    Attributes
    ----------
    name : str
        Name of the op or of its worst row.
    result : {"pass", "warning", "error"}
        Its verdict.
    message : str
        Why, in one sentence.
    figure : str
        The number that decided, ready to print.
    rank : int, str or None
        A rank's number, or a name such as ``step1/rank0``; None where there is one device only.
    order : int
        For merging: smaller is shown first.
    source : str
        Where in the user's code it was called, "" where not known.
    formal : bool
        Only how it is declared differs (dtype, shape, requires_grad): the search of the first difference looks at numbers.
    """

    name: str
    result: str
    message: str = ""
    figure: str = ""
    rank: int | str | None = None
    order: int = 0
    source: str = ""
    formal: bool = False


@dataclass(frozen=True, slots=True)
class FirstOp:
    """An op of the answer: where the numbers go wrong first.

    Attributes
    ----------
    name : str
        Its output that differs.
    reason : str
        Why it is an answer, and what differs.
    where : str
        Where it stands among the communications.
    rank : str or None
        The ranks; None where there is one device only.
    source : str
        Where in the user's code it was called, "" where not known.
    leads : bool
        Whether it is the first, or a later one that does not follow from it.
    of_numbers : bool
        Whether numbers differ, not only which ops, outputs or dtypes the two sides have.
    """

    name: str
    reason: str
    where: str = ""
    rank: str | None = None
    source: str = ""
    leads: bool = True
    of_numbers: bool = True

    @property
    def title(self) -> str:
        """The heading it stands under."""
        if not self.leads:
            return "then, independent of it"
        return "first difference" if self.of_numbers else "not a difference of numbers"


@dataclass(frozen=True, slots=True)
class Summary:
    """What one comparison, or several merged, came to.

    Attributes
    ----------
    title : str
        What was compared: ``statistics``, ``tensor rank0`` ...
    target_rows, golden_rows : int
        Rows read on each side.
    passed, warnings, errors : int
        Compared pairs of rows by verdict.
    not_compared : mapping of str to int
        Reason -> matched pairs that could not be compared.
    reused : int
        Matched rows whose golden row serves another target row too (a mapping may have it so).
    target_only, golden_only : int
        Rows without a partner.
    ops : int
        Ops of the target.
    first : tuple of FirstOp
        The answer: the first op that differs, then the next that do not follow from it.
    worst : tuple of WorstOp
        Worst first.
    problems : tuple of str
        What could not be read or was odd in the input; one line each.
    files : tuple of Path
        Result files, complete.
    elapsed_s : float
        Seconds.
    dump_bytes : int
        Bytes read of both dumps together.
    peak_bytes, budget_bytes : int
        Memory of the process tree at its highest, and what it was allowed; 0 where not known.
    workers : int
        Processes that measured.
    exit_status : int
        0, 1, 2, 3 or 130.
    """

    title: str
    target_rows: int = 0
    golden_rows: int = 0
    passed: int = 0
    warnings: int = 0
    errors: int = 0
    not_compared: Mapping[str, int] = field(default_factory=dict)
    target_only: int = 0
    golden_only: int = 0
    reused: int = 0
    ops: int = 0
    first: tuple[FirstOp, ...] = ()
    worst: tuple[WorstOp, ...] = ()
    problems: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    elapsed_s: float = 0.0
    dump_bytes: int = 0
    peak_bytes: int = 0
    budget_bytes: int = 0
    workers: int = 1
    exit_status: int = 0

    @property
    def matched(self) -> int:
        """Pairs of rows: compared or not."""
        return self.passed + self.warnings + self.errors + sum(self.not_compared.values())

    @property
    def answer(self) -> tuple[FirstOp, ...]:
        """``first``, but for a comparison in which nothing met: that has no answer."""
        return self.first if self.matched else ()

    @property
    def no_difference(self) -> str:
        """What stands in place of an answer: ``none`` where numbers were compared and agree, "" where that cannot be said."""
        if self.first or not self.matched or any(not op.formal for op in self.worst):
            return ""
        whole = not (self.not_compared or self.target_only or self.golden_only) and self.exit_status < 2
        return "none" if whole else "none in what was compared"

    @property
    def one_sided(self) -> bool:
        """Whether more than a tenth of the rows of a side have no partner."""
        return 10 * self.target_only > self.target_rows or 10 * self.golden_only > self.golden_rows

    @property
    def adds_up(self) -> bool:
        """Whether every row read is accounted for on both sides."""
        return (
            self.target_rows == self.matched + self.target_only
            and self.golden_rows == self.matched - self.reused + self.golden_only
        )


def merge(summaries: Iterable[Summary], *, title: str | None = None, elapsed_s: float | None = None) -> Summary:
    """One summary of several ranks or steps.

    Counts, bytes and times are added, peak, budget and workers are the largest, the worst ops are the worst of all.

    Parameters
    ----------
    summaries : iterable of Summary
        At least one.
    title : str, optional
        Title of the whole; that of the first if not given.
    elapsed_s : float, optional
        Time of the whole, where the parts ran side by side.

    Returns
    -------
    Summary
        Its exit status is 130 if one part was interrupted, 2 if no part could be compared, 3 if some part could not be
        read, 1 if ``--fail-on`` was met, else 0.
    """
    every = list(summaries)
    reasons: Counter[str] = Counter()
    for summary in every:
        reasons.update(summary.not_compared)
    worst = sorted(
        (op for summary in every for op in summary.worst), key=lambda op: (op.order, _SEVERITY.get(op.result, 3))
    )
    return Summary(
        title=every[0].title if title is None else title,
        target_rows=sum(s.target_rows for s in every),
        golden_rows=sum(s.golden_rows for s in every),
        passed=sum(s.passed for s in every),
        warnings=sum(s.warnings for s in every),
        errors=sum(s.errors for s in every),
        not_compared=dict(reasons),
        target_only=sum(s.target_only for s in every),
        golden_only=sum(s.golden_only for s in every),
        reused=sum(s.reused for s in every),
        ops=sum(s.ops for s in every),
        first=tuple(op for s in every for op in s.first),
        worst=tuple(worst),
        problems=tuple(line for s in every for line in s.problems),
        files=tuple(path for s in every for path in s.files),
        elapsed_s=sum(s.elapsed_s for s in every) if elapsed_s is None else elapsed_s,
        dump_bytes=sum(s.dump_bytes for s in every),
        peak_bytes=max(s.peak_bytes for s in every),
        budget_bytes=max(s.budget_bytes for s in every),
        workers=max(s.workers for s in every),
        exit_status=_status([s.exit_status for s in every]),
    )


def _status(statuses: list[int]) -> int:
    if 130 in statuses:
        return 130
    if all(status == 2 for status in statuses):
        return 2
    return 3 if 3 in statuses or 2 in statuses else max(statuses)
