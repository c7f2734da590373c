"""Paths that the browser names: below the server's root, wherever links lead."""

from __future__ import annotations

import os

from j2c_lab.errors import UsageError


class Root:
    """The directory that the server shows; what lies outside does not exist for it."""

    def __init__(self, directory: str) -> None:
        self.directory = os.path.realpath(directory)

    def resolve(self, path: str) -> str:
        """Return the absolute path of a path that the browser names.

        Raises
        ------
        UsageError
            It leads out of the root.
        """
        if "\0" in path:
            raise UsageError("a path holds a NUL character")
        full = os.path.realpath(os.path.join(self.directory, path.lstrip("/")))
        if not self.holds(full):
            raise UsageError(f"{path!r} lies outside of the lab's root directory")
        return full

    def holds(self, full: str) -> bool:
        """Whether an absolute path without links lies in the root."""
        return full == self.directory or full.startswith(self.directory.rstrip("/") + "/")

    def show(self, full: str) -> str:
        """Return the path as the browser names it, or unchanged when it lies outside."""
        real = os.path.realpath(full)
        if not self.holds(real):
            return full
        return os.path.relpath(real, self.directory) if real != self.directory else ""
