"""The errors a user can cause, each with its exit status. A message says what was being done, on which file and key, what was
found and what to try; it is one line."""

from __future__ import annotations


class OpassayError(Exception):
    """Base of every error this package raises on purpose.

    Not raised for an odd row, file or rank inside a run: those become a row or a line and status 3.
    """

    exit_status = 2


class UsageError(OpassayError, ValueError):
    """Wrong options, or a combination that cannot be."""


class DumpError(OpassayError, ValueError):
    """A dump cannot be read at all."""


class DumpNotFound(DumpError, FileNotFoundError):
    """A path of a dump, rank or step does not exist or holds nothing of ours."""


class DumpMalformed(DumpError):
    """A file exists but is not what its name promises."""


class NothingToCompare(OpassayError):
    """Both sides could be read, and no row of one has anything to do with the other."""


class BudgetError(OpassayError, MemoryError):
    """The memory budget cannot hold even the smallest piece of work; the message names the option to raise."""


class OutputError(OpassayError, OSError):
    """The output folder cannot be made or written."""


class MissingLibrary(OpassayError, ImportError):
    """An optional library is needed and not installed; the message names the extra to install."""
