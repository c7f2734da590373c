"""Where a user's files go: the directories of the XDG Base Directory Specification."""

from __future__ import annotations

import os
from collections.abc import Mapping

from j2c_lab.errors import UsageError

_DEFAULTS = {
    "XDG_DATA_HOME": (".local", "share"),
    "XDG_STATE_HOME": (".local", "state"),
}


def user_directory(variable: str, environ: Mapping[str, str]) -> str:
    """Return the directory that an XDG variable names, else its default in the home directory.

    A relative path is passed over, as the specification asks: it would be another directory for
    every process that starts elsewhere, and a job would never be found again.

    Raises
    ------
    UsageError
        The user has no home directory.
    """
    given = environ.get(variable, "")
    if os.path.isabs(given):
        return given
    home = environ.get("HOME") or os.path.expanduser("~")
    if not os.path.isabs(home):
        raise UsageError("this user has no home directory", f"set HOME or {variable}")
    return os.path.join(home, *_DEFAULTS[variable])
