"""Small dumps for tests: records in plain Python, written in the layout of the dump tool."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Record = Mapping[str, Any]


def tensor(
    *,
    dtype: str = "torch.float32",
    shape: tuple[int, ...] = (2, 3),
    stats: tuple[Any, Any, Any, Any] = (1.0, -1.0, 0.0, 2.0),
    requires_grad: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """A tensor leaf with its four statistics (max, min, mean, norm)."""
    named = dict(zip(("Max", "Min", "Mean", "Norm"), stats, strict=True))
    return {
        "type": "torch.Tensor",
        "dtype": dtype,
        "shape": list(shape),
        **named,
        "requires_grad": requires_grad,
        **more,
    }


def scalar(value: Any) -> dict[str, Any]:
    """A scalar leaf."""
    return {"type": type(value).__name__, "value": value}


def call(inputs: list[Any], outputs: list[Any], **kwargs: Any) -> dict[str, Any]:
    """A forward record."""
    return {"input_args": inputs, "input_kwargs": kwargs, "output": outputs}


def write_dump(
    folder: Path,
    data: Mapping[str, Any],
    *,
    task: str = "statistics",
    level: str = "L1",
    name: str = "dump.json",
    **header: Any,
) -> Path:
    """Write a dump.json (or debug.json) and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"task": task, "level": level, "framework": "pytorch", "dump_data_dir": None, **header, "data": data}
    path = folder / name
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False), encoding="utf-8")
    return path


def saved(folder: Path, name: str, values: NDArray[Any], *, dtype: str | None = None) -> dict[str, Any]:
    """Save an array as ``dump_tensor_data/{name}.npy`` and return its leaf with true statistics."""
    store = folder / "dump_tensor_data"
    store.mkdir(parents=True, exist_ok=True)
    np.save(store / f"{name}.npy", values)
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64) if values.dtype != bool else values
        stats: tuple[Any, ...] = (None,) * 4
        if values.size and values.dtype == bool:
            stats = (bool(values.any()), bool(values.all()), None, None)
        elif values.size and values.dtype.kind in "iu":
            stats = (int(values.max()), int(values.min()), None, None)
        elif values.size:
            stats = (float(wide.max()), float(wide.min()), float(wide.mean()), float(np.linalg.norm(wide.ravel())))
    return tensor(dtype=dtype or f"torch.{values.dtype}", shape=values.shape, stats=stats, data_name=f"{name}.npy")  # type: ignore[arg-type]


def tensor_call(folder: Path, op: str, inputs: list[Any], outputs: list[Any]) -> dict[str, Any]:
    """A forward record whose arrays are saved beside it; other values stay as they are."""

    def leaf(label: str, number: int, value: Any) -> Any:
        return saved(folder, f"{op}.{label}.{number}", value) if isinstance(value, np.ndarray) else value

    return call(
        [leaf("input", i, value) for i, value in enumerate(inputs)],
        [leaf("output", i, value) for i, value in enumerate(outputs)],
    )
