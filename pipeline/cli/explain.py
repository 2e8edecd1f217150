"""``opassay explain``: a row of the verdict table in words. The docs page is the same table."""

from __future__ import annotations

import argparse
import difflib
import textwrap

from opassay.kernels.rules import RULES, Rule
from opassay.schemas.errors import UsageError


def run(arguments: argparse.Namespace) -> int:
    """Print one rule, the list of all, or the docs page.

    Raises
    ------
    UsageError
        There is no rule of that name; the message names the nearest.
    """
    if arguments.markdown:
        print(markdown(), end="")
    elif arguments.rule is None:
        width = max(len(rule.name) for rule in RULES)
        for rule in RULES:
            print(f"{rule.name:<{width}}  {rule.result.word:<7}  {rule.condition}")
    else:
        print(_told(_find(arguments.rule)))
    return 0


def _find(name: str) -> Rule:
    by_name = {rule.name: rule for rule in RULES}
    name = name.removeprefix("opassay rule ").strip("[] ")
    if name in by_name:
        return by_name[name]
    near = difflib.get_close_matches(name, by_name, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(by_name)}"
    raise UsageError(f"no rule is called {name!r}; {hint}")


def _told(rule: Rule) -> str:
    facts = {
        "gives": rule.result.word,
        "when": rule.condition,
        "marks": rule.on,
        "modes": ", ".join(sorted(mode.value for mode in rule.modes)),
        "means": rule.why,
        "off for": exemptions(rule),
        "source": rule.source + ("; a rule of opassay's own, off with --document-rules" if rule.ours else ""),
    }
    lines = [rule.name]
    for label, text in facts.items():
        lines += textwrap.wrap(text, 92, initial_indent=f"  {label:<8}", subsequent_indent=" " * 10)
    return "\n".join(lines)


def exemptions(rule: Rule) -> str:
    """APIs for which a rule is off, in words."""
    if rule.always:
        return "nothing: it says that a row was not compared"
    return "APIs that compute nothing (empty, to, ...)" + (
        " and those with placeholder inputs" if rule.uses_inputs else ""
    )


def markdown() -> str:
    """The docs page ``docs/rules.md``."""
    head = [
        "# Verdict rules",
        "",
        "Rendered from the table in `kernels/rules.py` (`opassay explain --markdown`). Severity only moves upward.",
        "",
        "| rule | gives | modes | marks | when | most likely means | off for | source |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = [
        f"| `{rule.name}` | {rule.result.word} | {', '.join(sorted(mode.value for mode in rule.modes))} | {rule.on} "
        f"| {rule.condition.replace('|', chr(92) + '|')} | {rule.why} | {exemptions(rule)} "
        f"| {rule.source}{' (ours)' if rule.ours else ''} |"
        for rule in RULES
    ]
    return "\n".join([*head, *rows]) + "\n"
