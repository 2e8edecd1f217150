"""Makes the statistics example of MindSpore's checker from the tensor dump of ``make_mindspore.py``: its calls, without the tensors.

    python examples/make_check_mindspore.py

The statistics are those that the dump tool recorded in that run; only names of files and what is no call are left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CALLS = ("Mint.", "MintFunctional.", "Tensor.", "Functional.", "Primitive.")


def without_files(value: Any) -> Any:
    """The same description without the tensor's file."""
    if isinstance(value, dict):
        return {key: without_files(item) for key, item in value.items() if key != "data_name"}
    return [without_files(item) for item in value] if isinstance(value, list) else value


def main() -> None:
    """Write examples/check_mindspore/dump.json."""
    dump = json.loads((HERE / "mindspore" / "mindspore" / "step0" / "rank0" / "dump.json").read_text(encoding="utf-8"))
    calls = {name: without_files(record) for name, record in dump["data"].items() if name.startswith(CALLS)}
    dump = {**dump, "task": "statistics", "level": "L1", "dump_data_dir": None, "data": calls}
    folder = HERE / "check_mindspore"
    folder.mkdir(exist_ok=True)
    (folder / "dump.json").write_text(json.dumps(dump, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
