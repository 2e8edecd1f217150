"""What the fork server of the check imports before it forks workers, so that they share it: torch and all that stands on it."""

from __future__ import annotations

import contextlib

from opassay.pipeline.check.devices import load_torch
from opassay.schemas.errors import MissingLibrary

with contextlib.suppress(MissingLibrary, ImportError):  # the first worker says it
    load_torch()
    import opassay.pipeline.check.torch_framework  # noqa: F401
