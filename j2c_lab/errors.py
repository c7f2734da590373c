"""The one exception tree. The CLI, REST and the magics only format what is raised here."""

from __future__ import annotations

from typing import Any


class J2CError(Exception):
    """Something that j2c could not do, said in one sentence with what to do about it.

    Parameters
    ----------
    message : str
        What happened, in one sentence for a person, without a full stop at the end.
    remedy : str
        What to do, in one sentence; may be empty when `message` says it already.
    details : list of str
        Further lines (such as every unreadable file), shown below the sentence.
    """

    #: Stable name of the kind of error, for programs.
    code = "error"
    #: Exit code of the `j2c` command: 125 when j2c itself could not do it, 2 for wrong usage.
    exit_code = 125

    def __init__(self, message: str, remedy: str = "", details: list[str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.details = details or []

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message

    def event(self, most_details: int | None = None) -> dict[str, Any]:
        """Return the event `error` of docs/events.md, with at most so many details."""
        return {
            "event": "error",
            "code": self.code,
            "message": self.message,
            "remedy": self.remedy,
            "details": self.details[:most_details],
            "exit_code": self.exit_code,
        }


class UsageError(J2CError):
    """The request itself is wrong: a bad option, a missing file, a limit that can never be met."""

    code = "usage"
    exit_code = 2


class FormatError(J2CError):
    """A document or an archive is not what its format says (damaged, hostile, or too new)."""

    code = "format"


class UnsafePathError(FormatError):
    """A path, link or entry type that must not be unpacked."""

    code = "unsafe-path"


class DigestMismatchError(FormatError):
    """Content does not have the digest that names it."""

    code = "digest-mismatch"


class StoreError(J2CError):
    """The store could not be reached or refused the request."""

    code = "store"


class NotFoundError(J2CError):
    """No such object, run, or file."""

    code = "not-found"


class PackError(J2CError):
    """The project or the environment cannot be packed as it is."""

    code = "pack"


class EnvironmentNotSupportedError(PackError):
    """The Python prefix is of no kind that j2c can move."""

    code = "environment"


class SchedulerError(J2CError):
    """The scheduler refused the job or did not answer."""

    code = "scheduler"


class UnpackError(J2CError):
    """The cluster side could not make the run's environment."""

    code = "unpack"
