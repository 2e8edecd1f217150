"""The command line: parses, sends to a command, turns errors into one line and a status. Imports nothing heavy."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from opassay.pipeline.cli import shim
from opassay.pipeline.cli.options_table import (
    COLLECTIVES,
    COMPARE,
    EXPLAIN_API,
    MERGE,
    MINDSPORE_MULTI_RUN_UT,
    MINDSPORE_RUN_UT,
    MULTI_RUN_UT,
    PLAN,
    PRECISION,
    RUN_UT,
    Option,
)
from opassay.pipeline.cli.usage_examples import USAGE_EXAMPLES, epilog
from opassay.pipeline.run.missing import missing_package
from opassay.schemas.errors import OpassayError

Command = Callable[[argparse.Namespace], int]
INTERRUPTED: Final = 130
FRAMEWORKS: Final = ("pytorch", "mindspore")
PYTORCH_ONLY: Final = ("api_precision_compare", "explain-api")
"""Commands that know PyTorch's standards only. The check is told its framework; a comparison finds it in the dumps' headers."""


def _of(module: str, function: str = "run") -> Command:
    """A command of a module that is imported when it is called: ``--help`` and ``shim`` wait for no library."""

    def command(arguments: argparse.Namespace) -> int:
        run: Command = getattr(importlib.import_module(f"opassay.pipeline.cli.{module}"), function)
        return run(arguments)

    return command


def _shim(arguments: argparse.Namespace) -> int:
    return shim.run_shim(arguments.rest)


COMMANDS: Final[dict[str, Command]] = {
    "compare": _of("compare"),
    "plan": _of("plan"),
    "merge_result": _of("merge"),
    "collectives": _of("collectives"),
    "run_ut": _of("run_ut"),
    "acc_check": _of("run_ut"),
    "multi_run_ut": _of("run_ut", "run_multi"),
    "multi_acc_check": _of("run_ut", "run_multi"),
    "api_precision_compare": _of("precision_compare"),
    "explain": _of("explain"),
    "explain-api": _of("explain_api"),
    "shim": _shim,
}


class _Help(argparse.HelpFormatter):
    """As usual, but examples stay on lines of their own."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)


class _Parser(argparse.ArgumentParser):
    """One line for an error, and where to look, in place of the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def build_parser(framework: str = "pytorch") -> argparse.ArgumentParser:
    """The parser of all commands, with the options of the check for one framework."""
    from opassay import __version__

    parser = _Parser(
        prog="opassay",
        description="Finds where a neural network's numbers go wrong: compares op-level dumps of two runs.",
        epilog="exit status: 0 compared, 1 --fail-on met, 2 wrong usage or nothing to compare, 3 a part could not be read, 130 interrupted",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"opassay {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    compare = commands.add_parser(
        "compare", help="compare two dumps, op by op and rank by rank", allow_abbrev=False,
        description="Compare two dumps, op by op and rank by rank; write what differs and how much.",
    )  # fmt: skip
    _add(compare, COMPARE)
    plan = commands.add_parser(
        "plan", help="say what compare would pair with what, without reading a tensor", allow_abbrev=False,
        description="Say what compare would do with two dumps: steps, ranks, modes, how the ops pair and which do not.",
    )  # fmt: skip
    _add(plan, PLAN)
    merge = commands.add_parser(
        "merge_result", help="gather chosen rows of all ranks' reports in one workbook", allow_abbrev=False,
        description="Gather chosen rows of all ranks' reports in one workbook: a sheet a metric, a column a rank.",
    )  # fmt: skip
    _add(merge, MERGE)
    collectives = commands.add_parser(
        "collectives", help="verify what the collectives of one multi-rank dump promise", allow_abbrev=False,
        description="Verify the communication of one multi-rank dump: equal outputs, true reductions, messages that arrive as sent.",
    )  # fmt: skip
    _add(collectives, COLLECTIVES)
    run_ut = commands.add_parser(
        "run_ut", aliases=["acc_check"], help="run every call of a dump again and check its accuracy", allow_abbrev=False,
        description="Run every call of a dump again, on the device and in high precision on the cpu, and judge the difference.",
    )  # fmt: skip
    _add(run_ut, RUN_UT if framework == "pytorch" else MINDSPORE_RUN_UT)
    multi_run_ut = commands.add_parser(
        "multi_run_ut", aliases=["multi_acc_check"], help="run_ut in several processes and on several devices", allow_abbrev=False,
        description="Run every call of a dump again, as run_ut does, in several processes and on several devices.",
    )  # fmt: skip
    _add(multi_run_ut, MULTI_RUN_UT if framework == "pytorch" else MINDSPORE_MULTI_RUN_UT)
    for check in (run_ut, multi_run_ut):
        check.set_defaults(framework=framework)
    precision = commands.add_parser(
        "api_precision_compare", help="judge the NPU's accuracy against the GPU's, from two details files of run_ut", allow_abbrev=False,
        description="Judge the NPU's accuracy against the GPU's: join two accuracy_checking_details files by name, standard by standard.",
    )  # fmt: skip
    _add(precision, PRECISION)
    explain_api = commands.add_parser(
        "explain-api", help="print which standard, thresholds and reference an operator gets, and why", allow_abbrev=False,
        description="Print which standard, thresholds and reference an operator gets in the accuracy pre-check, and why.",
    )  # fmt: skip
    _add(explain_api, EXPLAIN_API)
    explain = commands.add_parser(
        "explain", help="print a verdict rule, its thresholds and its reason", allow_abbrev=False
    )
    explain.add_argument(
        "rule", nargs="?", metavar="RULE", help="name of a rule, as messages and parquet have it; none lists all"
    )
    explain.add_argument("--markdown", action="store_true", help="the whole table as the docs have it")
    lay = commands.add_parser("shim", help="lay a stand-in for msprobe", add_help=False)
    lay.add_argument("rest", nargs=argparse.REMAINDER)
    for name in USAGE_EXAMPLES:
        commands.choices[name].epilog = epilog(name)
        commands.choices[name].formatter_class = _Help
    return parser


def _add(parser: argparse.ArgumentParser, options: tuple[Option, ...]) -> None:
    groups: dict[str, argparse._ArgumentGroup] = {}
    for option in options:
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        groups[option.group].add_argument(*option.flags, help=option.help, **option.settings)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; those of the process if not given.

    Returns
    -------
    int
        Exit status: 0 compared, 1 ``--fail-on`` met, 2 wrong usage or nothing could be compared, 3 some part could not be
        read, 130 interrupted.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    framework = "pytorch"
    if words[:1] in (["-f"], ["--framework"]) and len(words) > 1 and words[1] in FRAMEWORKS:
        framework, words = words[1], words[2:]
        if framework != "pytorch" and words[:1] and words[0] in PYTORCH_ONLY:
            print(
                f"opassay: error: {words[0]} knows the standards of pytorch only; leave -f mindspore out",
                file=sys.stderr,
            )
            return 2
    if words[:1] == ["shim"]:
        return _guarded(lambda _: shim.run_shim(words[1:]), argparse.Namespace(verbose=False))
    if words and not words[0].startswith("-") and words[0] not in COMMANDS:
        near = difflib.get_close_matches(words[0], COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else "opassay --help lists them"
        _tell(f"error: there is no command {words[0]}; {hint}")
        return 2
    parser = build_parser(framework)
    try:
        arguments = parser.parse_args(words)
    except SystemExit as stop:
        return int(stop.code or 0)
    if arguments.command is None:
        parser.print_help()
        return 2
    return _guarded(COMMANDS[arguments.command], arguments)


def _guarded(command: Command, arguments: argparse.Namespace) -> int:
    try:
        return command(arguments)
    except OpassayError as error:
        _tell(f"error: {error}")
        return error.exit_status
    except KeyboardInterrupt:
        _tell("interrupted; reports finished so far are kept")
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the interpreter's last flush is silent
        return 0
    except Exception as error:  # the last resort: a bug of ours is one line as well
        if getattr(arguments, "verbose", False):
            raise
        unexpected = f"unexpected {type(error).__name__}: {error}; run with --verbose for the traceback"
        _tell(f"error: {missing_package(error) or unexpected}")
        return 2


def _tell(text: str) -> None:
    """One line on stderr, wherever that leads."""
    from opassay.pipeline.watch.logs import LINE_LIMIT, clip, one_line

    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(f"opassay: {clip(one_line(' '.join(text.split())), LINE_LIMIT)}", file=sys.stderr)


def run() -> NoReturn:
    """Entry point of the console script."""
    try:
        from opassay.pipeline.watch.streams import make_safe

        make_safe()
        status = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _tell("interrupted")
        status = INTERRUPTED
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to interrupt, and cleaning up must not be
    sys.exit(status)
