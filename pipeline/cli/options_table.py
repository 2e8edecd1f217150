"""One table of options: the parser, the help and the README's table are made from it.

Spellings with one dash and words are the incumbent's; additions of ours are long options only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a command.

    Attributes
    ----------
    flags : tuple of str
        Spellings.
    help : str
        One sentence.
    group : str
        Heading in the help.
    ours : bool
        Not an option of the incumbent.
    settings : dict
        For ``argparse``.
    """

    flags: tuple[str, ...]
    help: str
    group: str
    ours: bool = True
    settings: dict[str, Any] = field(default_factory=dict)


WHAT, REPORT, VERDICTS, RUN, TALK = "what to compare", "reports", "verdicts", "running", "talking"

COMPARE: Final = (
    Option(("-tp", "--target_path"), "dump under test: a dump.json or debug.json, or a rank, step or dump-root folder", WHAT, ours=False,
           settings={"dest": "target", "required": True, "metavar": "PATH"}),
    Option(("-gp", "--golden_path"), "dump to compare with, of the same kind", WHAT, ours=False,
           settings={"dest": "golden", "required": True, "metavar": "PATH"}),
    Option(("-o", "--output_path"), "folder of the results, made if needed (default: ./output)", REPORT, ours=False,
           settings={"dest": "output", "nargs": "?", "const": "./output", "default": "./output", "metavar": "DIR"}),
    Option(("--xlsx",), "write xlsx (coloured, filterable) in place of csv", REPORT, ours=False, settings={"action": "store_true"}),
    Option(("--parquet",), "write typed rows to parquet as well, for notebooks", REPORT, settings={"action": "store_true"}),
    Option(("--csv-safe",), "put an apostrophe before csv cells that a spreadsheet would run as a formula", REPORT,
           settings={"action": "store_true", "dest": "csv_safe"}),
    Option(("--strict",), "no rounding allowance: the thousandth rule gives error even within one step of the dtype", VERDICTS,
           settings={"action": "store_true"}),
    Option(("--document-rules",), "only the rules that msprobe documents, none of opassay's own", VERDICTS,
           settings={"action": "store_true", "dest": "document_rules"}),
    Option(("--fail-on",), "exit status 1 if a row is at least this", VERDICTS,
           settings={"choices": ("warning", "error"), "dest": "fail_on"}),
    Option(("--workers",), "processes that measure (default: one a core, as the memory allows)", RUN,
           settings={"type": int, "default": 0, "metavar": "N"}),
    Option(("--memory",), "memory budget of the whole run, such as 4G (default: most of what is free)", RUN,
           settings={"default": "0", "metavar": "SIZE"}),
    Option(("--device",), "where tensors are measured: cpu, cuda[:N] or npu[:N] (the latter two need opassay[torch])", RUN,
           settings={"default": "cpu", "metavar": "DEVICE"}),
    Option(("--io",), "how tensor files are read: map (local disks), read (network file systems), auto", RUN,
           settings={"choices": ("auto", "map", "read"), "default": "auto"}),
    Option(("-tensor_log", "--is_print_compare_log"), "log every tensor comparison", TALK, ours=False,
           settings={"action": "store_true", "dest": "tensor_log"}),
    Option(("--quiet",), "warnings, errors and results only", TALK, settings={"action": "store_true"}),
    Option(("--verbose",), "more about what happens, tracebacks of unexpected errors", TALK, settings={"action": "store_true"}),
)  # fmt: skip
"""Options of ``compare``."""


def markdown(options: tuple[Option, ...]) -> str:
    """The table of options as the README shows it."""
    lines = ["| option | meaning |", "|---|---|"]
    for option in options:
        value = option.settings.get("metavar") or "\\|".join(option.settings.get("choices", ()))
        flags = ", ".join(f"`{flag}`" for flag in option.flags) + (f" `{value}`" if value else "")
        lines.append(f"| {flags} | {option.help}{'' if option.ours else ' ¹'} |")
    return "\n".join([*lines, "", "¹ as msprobe's"])
