"""Replaces files that layers brought, at once and never through a hard link."""

from __future__ import annotations

import os


def write_file(path: str, content: bytes, *, executable: bool = False) -> None:
    """Write a file in place of whatever is there.

    A file that a layer brought may be a hard link into the node's cache, so it is never written
    through.
    """
    temporary = f"{path}.j2c-{os.getpid()}"
    with open(temporary, "wb") as file:
        file.write(content)
    os.chmod(temporary, 0o755 if executable else 0o644)
    os.replace(temporary, path)


def write_link(target: str, path: str) -> None:
    """Make a symbolic link in place of whatever file is there."""
    temporary = f"{path}.j2c-{os.getpid()}"
    if os.path.lexists(temporary):
        os.unlink(temporary)
    os.symlink(target, temporary)
    os.replace(temporary, path)
