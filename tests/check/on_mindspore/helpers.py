"""Dumps and runs of MindSpore's checker as its tests use them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import opassay
from numpy.typing import NDArray

from tests.check.checking import Checked
from tests.dumps import write_dump

HERE = Path(__file__).parent
STANDIN = HERE / "standin_mindspore"
ADAPTER = HERE / "standin_adapter"


def described(
    values: NDArray[Any] | None = None, *, dtype: str = "Float32", shape: tuple[int, ...] = (2, 3), low: float = -1.0
) -> dict[str, Any]:
    """A tensor as MindSpore's dumps describe it."""
    is_made = values is None or not values.size
    least, most = (low, 1.0) if is_made else (float(values.min()), float(values.max()))
    form = shape if values is None else values.shape
    return {"type": "mindspore.Tensor", "dtype": dtype, "shape": list(form), "Max": most, "Min": least, "Mean": 0.0}


def saved(folder: Path, name: str, values: NDArray[Any], dtype: str = "Float32") -> dict[str, Any]:
    """A tensor with its file."""
    (folder / "dump_tensor_data").mkdir(parents=True, exist_ok=True)
    np.save(folder / "dump_tensor_data" / f"{name}.npy", values)
    return {**described(values, dtype=dtype), "data_name": f"{name}.npy"}


def tensor_dump(folder: Path, data: dict[str, Any], **header: Any) -> Path:
    """A tensor dump of MindSpore."""
    header = {"framework": "mindspore", "dump_data_dir": "./dump_tensor_data", **header}
    return write_dump(folder, data, task="tensor", **header)


def statistics_dump(folder: Path, data: dict[str, Any], framework: str = "mindspore") -> Path:
    """A statistics dump of MindSpore."""
    return write_dump(folder, data, framework=framework)


def run_apart(*words: str, path: tuple[Path, ...] = (), folder: Path | None = None) -> Checked:
    """The command in a process of its own, with these folders in front of the module path."""
    home = str(Path(opassay.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, path), home])}
    done = subprocess.run(
        [sys.executable, "-m", "opassay", "-f", "mindspore", *words], env=environment, capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr
    return Checked(done.returncode, (done.stdout + done.stderr).splitlines(), folder or Path())
