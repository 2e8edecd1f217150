"""What the fork server imports before it forks workers, so that they share it: numeric libraries and kernels."""

from __future__ import annotations

from contextlib import suppress

with suppress(ImportError):  # without numba the plain pass serves
    pass
