"""Prints the numbers of the reported situations that need no command this release lacks."""

import json
import shlex
import sys
from pathlib import Path

from opassay.pipeline.cli.main import COMMANDS

for folder in sorted(Path(sys.argv[1]).glob("[0-9][0-9]_*")):
    steps = [shlex.split(step) for step in json.loads((folder / "checks.json").read_text())["run"].split(";")]
    if all(words[0] in COMMANDS for words in steps):
        print(int(folder.name[:2]), end=" ")
