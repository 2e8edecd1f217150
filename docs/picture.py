"""Draws ``docs/terminal.svg``: the closing panel of the example comparison, as a terminal shows it.

Run ``python docs/picture.py`` from the repository root after a change of the panel.
"""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 104
COMMAND = "msprobe compare -tp examples/two_ranks/target/step0 -gp examples/two_ranks/golden/step0 -o output/demo"
SHOW = """
import sys
from opassay.pipeline.report import console
console_show = console.show
def show(summary, stream=None):
    sys.stdout.write(console.render(summary, color=True))
console.show = show
from opassay.pipeline.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def main() -> None:
    """Run the example and write the picture."""
    words = COMMAND.split()[1:]
    done = subprocess.run([sys.executable, "-c", SHOW, *words], capture_output=True, text=True, check=True)
    screen = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    screen.print(Text(f"$ {COMMAND}", style="bold"))
    start = done.stdout.index("\x1b") if "\x1b" in done.stdout else 0
    panel = done.stdout[done.stdout.index("╭") :] if "╭" in done.stdout else done.stdout[start:]
    for line in panel.splitlines():
        screen.print(Text.from_ansi(line))
    Path(__file__).with_name("terminal.svg").write_text(screen.export_svg(title="opassay"), encoding="utf-8")


if __name__ == "__main__":
    main()
