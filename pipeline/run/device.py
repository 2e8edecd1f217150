"""Whether the device that was asked for can be used, asked once before any work is done."""

from __future__ import annotations

import re

from opassay.schemas.errors import MissingLibrary, UsageError

_DEVICE = re.compile(r"(cpu|cuda|npu)(?::([0-9]{1,4}))?\Z")


def check_device(text: str) -> None:
    """See that a device is spelt well, that its library is there and that it exists.

    Parameters
    ----------
    text : str
        ``cpu``, ``cuda``, ``cuda:1``, ``npu``, ``npu:0``.

    Raises
    ------
    UsageError
        Another word, or a device that this machine does not have.
    MissingLibrary
        torch, or torch_npu, is not installed.
    """
    found = _DEVICE.match(text)
    if found is None:
        raise UsageError(f"--device {text} is none; give cpu, cuda[:N] or npu[:N]")
    kind, index = found[1], int(found[2] or 0)
    if kind == "cpu":
        return
    try:
        import torch
    except ImportError as error:
        raise MissingLibrary(f"--device {text} needs torch; pip install 'opassay[torch]'") from error
    if kind == "npu":
        try:
            import torch_npu  # noqa: F401 - registers the device with torch
        except ImportError as error:
            raise MissingLibrary(f"--device {text} needs torch_npu ({error}); pip install 'opassay[npu]'") from error
    devices = getattr(torch, kind).device_count()
    if index >= devices:
        raise UsageError(f"--device {text}: this machine has {devices} {kind} devices; use --device cpu")
