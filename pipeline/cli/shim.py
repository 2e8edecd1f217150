"""The stand-in for ``msprobe``: lays a command of that name where the user asks, and routes what is typed to it.

Our sub-commands go to opassay, all others to the incumbent where one is installed. Nothing here compares anything,
and the wheel never installs a command named ``msprobe``; only ``opassay shim --into DIR`` does, and only over a
file of its own.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Sequence
from importlib import metadata
from pathlib import Path

from opassay.schemas.errors import OpassayError, OutputError, UsageError

COMMAND = "msprobe"
MARK = "opassay-shim"
OURS = frozenset(
    {
        "compare",
        "merge_result",
        "run_ut",
        "acc_check",
        "multi_run_ut",
        "multi_acc_check",
        "api_precision_compare",
    }
)
"""Sub-commands of the incumbent that opassay answers, as soon as its own command line has them."""

ALIASES = {"acc_check": "run_ut", "multi_acc_check": "multi_run_ut"}
FRAMEWORKS = ("pytorch", "mindspore")

_SCRIPT = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
# {mark}: compare and its relatives go to opassay, all other sub-commands to the incumbent if it is installed.
# Laid by `opassay shim`; delete this file to take it away.
import sys

from opassay.pipeline.cli.shim import route

sys.exit(route(sys.argv[1:]))
"""


def lay(into: Path, *, force: bool = False) -> Path:
    """Write the executable ``msprobe`` into a folder.

    Parameters
    ----------
    into : Path
        Folder, usually one that is on the PATH; made if it does not exist.
    force : bool, default False
        Replace a file of that name that is not a shim of ours.

    Returns
    -------
    Path
        The file written. It runs under the interpreter that runs this function.

    Raises
    ------
    UsageError
        If a foreign ``msprobe`` stands there and `force` is not given, or a folder of that name does.
    OutputError
        If the folder or the file cannot be written.
    """
    script = into / COMMAND
    if script.is_dir():
        raise UsageError(f"cannot lay the shim: {script} is a folder; name another folder with --into")
    if os.path.lexists(script) and not _is_ours(script) and not force:
        raise UsageError(
            f"cannot lay the shim: {script} exists and is not ours; "
            "name a folder that comes earlier on the PATH, or replace it with --force"
        )
    draft = into / f".{COMMAND}.{os.getpid()}"
    try:
        into.mkdir(parents=True, exist_ok=True)
        draft.write_text(_SCRIPT.format(python=_shell_quoted(sys.executable), mark=MARK), encoding="utf-8")
        draft.chmod(0o755)
        draft.replace(script)
    except OSError as error:
        if into.is_dir():
            draft.unlink(missing_ok=True)
        raise OutputError(f"cannot lay the shim at {script}: {error.strerror}; name a writable folder") from error
    return script


def run_shim(argv: Sequence[str]) -> int:
    """Run ``opassay shim``; `argv` are the words after the sub-command. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="opassay shim",
        description="Lay an `msprobe` command that sends our sub-commands to opassay and all others to the incumbent.",
    )
    parser.add_argument("--into", type=Path, required=True, metavar="DIR", help="folder that receives the command")
    parser.add_argument("--force", action="store_true", help="replace an msprobe there that is not ours")
    options = parser.parse_args(list(argv))
    try:
        script = lay(options.into, force=options.force)
    except OpassayError as error:
        print(f"opassay shim: {error}", file=sys.stderr)
        return error.exit_status
    print(f"laid {script}")
    folder = script.parent.resolve()
    if all(Path(entry).resolve() != folder for entry in _path_entries()):
        print(f'put it on the PATH to use it: export PATH="{folder}:$PATH"')
    return 0


def route(argv: Sequence[str]) -> int:
    """Answer one ``msprobe`` command line.

    Parameters
    ----------
    argv : sequence of str
        The words after ``msprobe``. A leading ``-f pytorch`` or ``-f mindspore`` (the older spelling) may come first.

    Returns
    -------
    int
        Exit status: opassay's for our sub-commands, 2 if nobody is there to answer. Where the incumbent answers,
        it takes the place of this process and the function does not return.
    """
    command = _sub_command(argv)
    ours = _our_commands()
    if command in ours:
        from opassay.pipeline.cli.main import main

        return main(argv)
    incumbent = _incumbent()
    if incumbent is not None:
        os.execv(incumbent[0], [*incumbent, *argv])
    if command is None:
        print(f"{COMMAND} (laid by opassay): {', '.join(sorted(ours))}; try `{COMMAND} compare --help`")
        return 0 if set(argv) & {"-h", "--help"} else 2
    print(
        f"{COMMAND}: opassay has no sub-command {command!r} (it has {', '.join(sorted(ours))}) "
        "and no other msprobe is installed; install mindstudio-probe for it",
        file=sys.stderr,
    )
    return 2


def _sub_command(argv: Sequence[str]) -> str | None:
    words = list(argv)
    if len(words) >= 2 and words[0] in ("-f", "--framework") and words[1] in FRAMEWORKS:
        words = words[2:]
    return words[0] if words and not words[0].startswith("-") else None


def _our_commands() -> frozenset[str]:
    from opassay.pipeline.cli.main import COMMANDS

    known: Collection[str] = COMMANDS
    return frozenset(name for name in OURS if name in known or ALIASES.get(name) in known)


def _incumbent() -> list[str] | None:
    """Return the words that start the other ``msprobe``: a distribution beside us first, then a command on the PATH."""
    for entry in metadata.entry_points(group="console_scripts", name=COMMAND):
        module, _, function = entry.value.partition(":")
        first = function.split(".")[0]
        start = f"import sys; from {module} import {first}; sys.argv[0] = {COMMAND!r}; sys.exit({function}())"
        return [sys.executable, "-c", start]
    for folder in _path_entries():
        script = Path(folder) / COMMAND
        if script.is_file() and os.access(script, os.X_OK) and not _is_ours(script):
            return [str(script)]
    return None


def _is_ours(script: Path) -> bool:
    try:
        with script.open("rb") as file:
            return MARK.encode() in file.read(1024)
    except OSError:
        return False


def _path_entries() -> list[str]:
    return [entry for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]


def _shell_quoted(path: str) -> str:
    """Escape a path for the inside of double quotes in sh."""
    return "".join("\\" + letter if letter in '\\"$`' else letter for letter in path)
