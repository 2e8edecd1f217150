"""Build hook: the three rooms at the top of the repository become one package, ``opassay``.

A wheel gets the rooms by the ``sources`` table of pyproject.toml and the face (what ``import opassay`` shows) from here.
An editable install gets a folder of links under ``build/dev``, so that every tool sees the same import names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOMS = ("pipeline", "kernels", "schemas")


class OneName(BuildHookInterface):
    """Lays the rooms and the face under the single import name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        face = sorted(p for p in Path(self.root, "pipeline", "face").iterdir() if p.is_file())
        if version == "editable":
            farm = Path(self.root, "build", "dev", "opassay")
            farm.mkdir(parents=True, exist_ok=True)
            for target in [*(Path(self.root, room) for room in ROOMS), *face]:
                link = farm / target.name
                link.unlink(missing_ok=True)
                link.symlink_to(target)
        elif self.target_name == "wheel":
            build_data["force_include"] |= {str(p): f"opassay/{p.name}" for p in face}
