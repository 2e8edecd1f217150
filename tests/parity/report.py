"""The outcome of a run as text and as markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.parity.cases import Outcome
from tests.parity.compare import Finding
from tests.parity.rules import REASONS


def case_line(outcome: Outcome) -> str:
    """One line for one case."""
    if outcome.skipped:
        return f"{outcome.case.name:32} skipped: needs later work, {outcome.skipped}"
    tally = outcome.tally
    counts = (
        f"equal {tally.equal:7,}  explained {sum(tally.explained.values()):6,}  unexplained {len(tally.unexplained):5,}"
    )
    status = f"exit {outcome.status} (incumbent {outcome.case.status})"
    return f"{outcome.case.name:32} {counts}  {status}  {outcome.seconds:5.1f} s"


def reason_counts(outcomes: Sequence[Outcome]) -> Counter[tuple[str, str]]:
    """Explained cells by reason and column."""
    total: Counter[tuple[str, str]] = Counter()
    for outcome in outcomes:
        total.update(outcome.tally.explained)
    return total


def _rows(outcomes: Sequence[Outcome]) -> list[tuple[str, str, str, str, str]]:
    rows = []
    for (reason, column), count in sorted(reason_counts(outcomes).items(), key=lambda item: (item[0][0], -item[1])):
        sentence, basis = REASONS[reason]
        rows.append((reason, column, f"{count:,}", basis, sentence))
    return rows


def finding_text(finding: Finding) -> str:
    """One unexplained thing in full."""
    lines = [f"{finding.file} | {finding.row or '-'} | {finding.column or '-'}: {finding.note}"]
    if finding.expected or finding.ours:
        lines.append(f"    expected {finding.expected!r}  ours {finding.ours!r}")
    if finding.context:
        lines.append(f"    {finding.context}")
    return "\n".join(lines)


def totals(outcomes: Sequence[Outcome]) -> tuple[int, int, int, int]:
    """Cases run, cells equal, explained, unexplained."""
    ran = [o for o in outcomes if not o.skipped]
    explained = sum(sum(o.tally.explained.values()) for o in ran)
    return len(ran), sum(o.tally.equal for o in ran), explained, sum(len(o.tally.unexplained) for o in ran)


def total_line(outcomes: Sequence[Outcome]) -> str:
    """The last line."""
    ran, equal, explained, unexplained = totals(outcomes)
    skipped = len(outcomes) - ran
    return (
        f"{ran} cases ({skipped} skipped): {equal:,} cells equal, {explained:,} explained, {unexplained:,} unexplained"
    )


def text_report(outcomes: Sequence[Outcome], limit: int) -> str:
    """Everything below the lines of the cases."""
    lines = ["", "explained cells by rule and column"]
    for reason, column, count, basis, sentence in _rows(outcomes):
        lines.append(f"  {count:>7}  {column:26} {reason:40} {basis}: {sentence}")
    findings = [f for o in outcomes for f in o.tally.unexplained]
    if findings:
        notes = Counter((f.column, f.note.partition(":")[0][:60]) for f in findings)
        lines += ["", "unexplained by column and note"]
        lines += [f"  {count:7,}  {column:26} {note}" for (column, note), count in notes.most_common(40)]
        lines += ["", f"first {min(limit, len(findings))} of {len(findings)} unexplained"]
        lines += [finding_text(f) for f in findings[:limit]]
    return "\n".join([*lines, "", total_line(outcomes)])


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def markdown_report(outcomes: Sequence[Outcome], limit: int) -> str:
    """The same as a markdown page."""
    lines = ["# Parity with the incumbent", "", total_line(outcomes), "", "## Explained cells", ""]
    lines += ["| rule | column | cells | basis | what differs |", "| --- | --- | ---: | --- | --- |"]
    for reason, column, count, basis, sentence in _rows(outcomes):
        lines.append(f"| {_escape(reason)} | {column} | {count} | {basis} | {_escape(sentence)} |")
    lines += [
        "",
        "## Cases",
        "",
        "| case | equal | explained | unexplained | exit | incumbent |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for outcome in outcomes:
        tally = outcome.tally
        if outcome.skipped:
            lines.append(f"| {outcome.case.name} | needs later work: {_escape(outcome.skipped)} | | | | |")
            continue
        counts = f"{tally.equal:,} | {sum(tally.explained.values()):,} | {len(tally.unexplained):,}"
        lines.append(f"| {outcome.case.name} | {counts} | {outcome.status} | {outcome.case.status} |")
    findings = [f for o in outcomes for f in o.tally.unexplained][:limit]
    if findings:
        lines += ["", "## Unexplained", ""]
        lines += [
            f"- `{f.file}` `{f.row}` {f.column}: {_escape(f.note)}; expected `{f.expected}`, ours `{f.ours}`"
            for f in findings
        ]
    return "\n".join([*lines, ""])
