"""Reads by torch, with the weights-only restriction, what the own reader does not: sparse, quantised ..."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from opassay.pipeline.read.tensor_layout import TensorUnreadable, one_line
from opassay.schemas.dtypes import DType, parse_dtype


def load_by_torch(path: str, name: str, why: str) -> tuple[DType, str, tuple[int, ...], Any]:
    """Load a whole tensor by torch, by value: dense, dequantised, C order.

    Parameters
    ----------
    path : str
        The file.
    name : str
        What messages call it.
    why : str
        What made the file unusual, for the message where torch is not installed.

    Returns
    -------
    dtype : DType
        Element type after dequantising.
    kept : str
        Name of the element type in the file, before dequantising, without ``torch.``.
    shape : tuple of int
        Shape.
    values : numpy.ndarray
        1-D, of ``dtype.storage``; complex interleaved.

    Raises
    ------
    TensorUnreadable
        If torch is not installed, cannot read the file, or finds no tensor of a known type in it.
    """
    try:
        import torch
    except ImportError:
        raise TensorUnreadable(f"{name}: needs torch to read ({one_line(why)}); install opassay[torch]") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = torch.load(Path(path), map_location="cpu", weights_only=True)
            if not isinstance(value, torch.Tensor):
                raise TensorUnreadable(f"{name}: holds one {type(value).__name__}, not one tensor")
            value = value.detach()
            kept = str(value.dtype).removeprefix("torch.")
            if value.is_meta:
                raise TensorUnreadable(f"{name}: a tensor without data (meta device)")
            if value.is_nested:
                raise TensorUnreadable(f"{name}: a nested tensor has no single shape")
            if value.is_quantized:
                value = value.dequantize()
            if value.layout is not torch.strided:
                value = value.to_dense()
            value = value.resolve_conj().resolve_neg().contiguous()
            dtype = parse_dtype(str(value.dtype))
            if dtype is None:
                raise TensorUnreadable(f"{name}: elements of type {value.dtype} are not supported")
            flat = value.reshape(-1).view(torch.uint8).numpy()
    except TensorUnreadable:
        raise
    except Exception as error:  # whatever torch raises on an odd file becomes this file's reason
        text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        if text.startswith("Weights only load failed"):  # goes on with advice that would run the file's code
            text = "its safe loader refuses the file"
        raise TensorUnreadable(f"{name}: torch cannot read it ({one_line(why)}): {one_line(text)}") from None
    return dtype, kept, tuple(value.shape), flat.view(dtype.storage)
