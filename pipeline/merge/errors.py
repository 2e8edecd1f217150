"""Why one report is left out of a merge; the others go on."""

from __future__ import annotations


class BrokenReport(Exception):
    """A file that cannot be taken as a comparison report with metrics; the text is one line."""
