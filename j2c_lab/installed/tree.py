"""Walks over installed files: what is really there, in the words of a layer."""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Callable, Mapping

from j2c_lab.formats.paths import link_stays_inside
from j2c_lab.formats.planned import FileKey, PlannedFile

#: Who gets a file, by its place: the list to add it to.
Claims = Mapping[bytes, list[PlannedFile]]
#: The SHA-256 that RECORD gives a file, by its place.
Hashes = Mapping[bytes, "bytes | None"]

_NO_CLAIMS: Claims = {}
_NO_HASHES: Hashes = {}


def walk(
    root: bytes, top: bytes, claims: Claims = _NO_CLAIMS, hashes: Hashes = _NO_HASHES
) -> list[PlannedFile]:
    """Return all entries below the directory `root`, named `top/…`, bytecode caches excepted.

    Regular files that somebody claims go to the claimant's list instead. That is done here, and
    each entry made once, because a walk over 15,000 files is most of a pack that changes nothing.

    Links that stay below `root` remain links. What other links point at is taken in their place
    (uv can link every file of a package into its cache); a loop of such links ends where it closes.
    Sockets, pipes and devices are passed over. A directory that vanishes meanwhile is empty.
    """
    found: list[PlannedFile] = []
    append = found.append
    scandir = os.scandir
    claimant = claims.get
    hash_of = hashes.get
    new = tuple.__new__  # half the cost of NamedTuple's own constructor, 15,000 times
    pending = [(root, top + b"/")]
    while pending:
        directory, prefix = pending.pop()
        try:
            entries = scandir(directory)
        except (FileNotFoundError, NotADirectoryError):
            continue
        empty = True
        with entries:
            for entry in entries:
                empty = False
                name = entry.name
                if entry.is_dir(follow_symlinks=False):
                    if name != b"__pycache__":
                        pending.append((entry.path, prefix + name + b"/"))
                    continue
                stat = entry.stat(follow_symlinks=False)
                mode = stat.st_mode
                if not stat_module.S_ISREG(mode):
                    _special(entry.path, prefix + name, mode, root, pending, append)
                    continue
                key = new(
                    FileKey,
                    (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns),
                )
                place = prefix + name
                executable, expected = mode & 0o100 != 0, hash_of(place)
                file = new(PlannedFile, (place, "f", executable, entry.path, key, b"", expected))
                claim = claimant(place)
                if claim is None:
                    append(file)
                else:
                    claim.append(file)
        if empty and directory != root:
            append(PlannedFile(prefix[:-1], "d", False, None, None))
    return found


def planned_file(path: bytes, place: bytes) -> PlannedFile | None:
    """Return the entry `place` for the file at `path`, links followed; None if it is no file."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    if not stat_module.S_ISREG(stat.st_mode):
        return None
    key = FileKey(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    return PlannedFile(place, "f", stat.st_mode & 0o100 != 0, path, key)


def _special(
    path: bytes,
    place: bytes,
    mode: int,
    root: bytes,
    pending: list[tuple[bytes, bytes]],
    append: Callable[[PlannedFile], None],
) -> None:
    if not stat_module.S_ISLNK(mode):
        return
    target = os.readlink(path)
    if link_stays_inside(place, target) or not os.path.exists(path):
        append(PlannedFile(place, "l", False, None, None, target))
    elif os.path.isdir(path):
        real = os.path.realpath(path)
        # A link to a directory that holds it would be walked for ever.
        if not (os.path.realpath(os.path.dirname(path)) + b"/").startswith(real + b"/"):
            pending.append((path, place + b"/"))
    elif (file := planned_file(path, place)) is not None:
        append(file)
