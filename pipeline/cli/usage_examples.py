"""Command lines that the help of a command ends with."""

from __future__ import annotations

from typing import Final

USAGE_EXAMPLES: Final[dict[str, tuple[str, str]]] = {
    "compare": (
        "opassay compare -tp npu/step0 -gp gpu/step0 -o output",
        "opassay compare -tp npu/step0/rank3/dump.json -gp gpu/step0/rank3/dump.json --xlsx --fail-on error",
    ),
    "plan": (
        "opassay plan -tp npu/step0 -gp gpu/step0",
        "opassay plan -tp npu/step0 -gp gpu/step0 -cm cells.yaml --all",
    ),
    "merge_result": (
        "opassay merge_result -i output -o merged -config examples/merge.yaml",
        "opassay merge_result -i output -o merged -config config.yaml --quiet",
    ),
    "collectives": (
        "opassay collectives npu/step0 -o output",
        "opassay collectives npu -o output --fail-on error --quiet",
    ),
    "run_ut": (
        "opassay run_ut -api_info npu/step0/rank0/dump.json -o output",
        "opassay run_ut -api_info npu/step0/rank0/dump.json -o output --device cpu -save_error_data",
    ),
}
"""Two for each: the usual one, and one with what is asked for next."""


def epilog(command: str) -> str:
    """The end of a command's help."""
    return "\n".join(["examples:", *(f"  {line}" for line in USAGE_EXAMPLES[command])])
