"""One entry of a layer that is to be made, or found again: what a planner hands to a packer."""

from __future__ import annotations

from typing import NamedTuple

from j2c_lab.formats.digest import EntryType


class FileKey(NamedTuple):
    """What tells that a file has not changed since it was hashed."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


class PlannedFile(NamedTuple):
    """One entry of a layer to be made."""

    #: Its place in the bundle: `project/train.py`, `site-packages/numpy/core.py`.
    path: bytes
    type: EntryType
    executable: bool
    #: The file to read, absolute; None when `data` holds the content.
    source: bytes | None
    #: As `stat` saw the source; None when `data` holds the content.
    key: FileKey | None
    #: A file's content that the planner made itself, or a link's target.
    data: bytes = b""
    #: SHA-256 that `RECORD` gives: foretells the layer's digest, never trusted.
    expected: bytes | None = None
