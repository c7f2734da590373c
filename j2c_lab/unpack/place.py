"""Files into their place: hard-linked or copied from the cache; then links, last of all."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from j2c_lab.errors import UnpackError, UnsafePathError
from j2c_lab.formats.paths import show
from j2c_lab.unpack.extract import Clash, make_directory

_PIECE = 1 << 20
#: The file systems differ, or this one has no hard links, or no more for this file.
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS, errno.EACCES)
_NO_RANGE = (errno.EXDEV, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF, errno.EPERM)


class KeptFile(NamedTuple):
    """A file of the cache: its name in the layer, and how it must look."""

    path: bytes
    size: int
    mtime: int
    executable: bool

    @property
    def mode(self) -> int:
        return 0o755 if self.executable else 0o644


def is_intact(tree: bytes, files: Iterable[KeptFile]) -> bool:
    """Whether every file has the size, time and mode that it was written with.

    A process that wrote into a file through one of its hard links is found out by this.
    """
    prefix = tree + b"/"
    regular = stat.S_IFREG
    try:
        for path, size, mtime, executable in files:
            found = os.lstat(prefix + path)
            if (
                found.st_size != size
                or int(found.st_mtime) != mtime
                or found.st_mode != regular | (0o755 if executable else 0o644)
            ):
                return False
    except OSError:
        return False
    return True


def place_files(
    tree: bytes, files: Sequence[KeptFile], directories: Mapping[bytes, bytes], *, link: bool
) -> list[Clash]:
    """Put files of the cache into their places.

    Parameters
    ----------
    tree : bytes
        The cached layer's directory.
    files : sequence of KeptFile
        What to place.
    directories : mapping
        As for `extract.extract_layer`.
    link : bool
        Hard links where the file systems can; else copies, which share their blocks where the
        file system can do that.

    Returns
    -------
    list of Clash
        Files whose place was taken, to be settled when all layers are there.
    """
    made: set[bytes] = set()
    clashes: list[Clash] = []
    prefix = tree + b"/"
    for file in files:
        top, slash, rest = file.path.partition(b"/")
        place = directories[top] + slash + rest
        parent = place[: place.rindex(b"/")]
        if parent not in made:
            make_directory(parent, made)
        source = prefix + file.path
        if link:
            try:
                os.link(source, place)
                continue
            except FileExistsError:
                pass
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
                link = error.errno == errno.EMLINK
        if os.path.lexists(place):
            clashes.append(Clash(place, place + b".j2c-" + os.path.basename(tree)[:16]))
            place = clashes[-1].beside
        copy_file(source, place, file)
    return clashes


def copy_file(source: bytes, place: bytes, file: KeptFile) -> None:
    """Copy one file within the kernel where that is possible, and give it its time and mode."""
    reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        writer = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _copy_content(reader, writer, file.size)
            os.utime(writer, (file.mtime, file.mtime))
            os.fchmod(writer, file.mode)
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def settle(clashes: Iterable[Clash]) -> None:
    """Remove the second copies of files that two layers hold; both must have meant the same.

    Raises
    ------
    UnpackError
        They did not.
    """
    for path, beside in clashes:
        with open(path, "rb") as first, open(beside, "rb") as second:
            while piece := first.read(_PIECE):
                if piece != second.read(_PIECE):
                    break
            else:
                if not second.read(1):
                    os.unlink(beside)
                    continue
        raise UnpackError(
            f"two packages of the environment hold different files at {show(path)}",
            "reinstall one of them in the environment and submit again",
        )


def make_links(links: Iterable[tuple[bytes, bytes]], roots: Iterable[bytes]) -> None:
    """Make symbolic links, given as place and target, when everything else is written.

    The names of each link were judged when its layer was read. A target that climbs after it has
    gone down may still lead out through another link, so those are followed on disk.

    Raises
    ------
    UnsafePathError
        A link leads out of `roots`, or its place is taken.
    """
    climbing = []
    for place, target in links:
        try:
            os.symlink(target, place)
        except FileExistsError:
            if not os.path.islink(place) or os.readlink(place) != target:
                raise UnsafePathError(f"{show(place)} is there twice") from None
        except FileNotFoundError:
            os.makedirs(place[: place.rindex(b"/")], mode=0o755, exist_ok=True)
            os.symlink(target, place)
        parts = [part for part in target.split(b"/") if part not in (b"", b".")]
        if b".." in parts[parts.count(b"..") and _leading(parts) :]:
            climbing.append(place)
    insides = [os.path.realpath(root) + b"/" for root in roots]
    for place in climbing:
        end = os.path.realpath(place) + b"/"
        if not any(end.startswith(inside) for inside in insides):
            os.unlink(place)
            raise UnsafePathError(f"the link {show(place)} leads out of the run's directory")


def _leading(parts: list[bytes]) -> int:
    count = 0
    while count < len(parts) and parts[count] == b"..":
        count += 1
    return count


def _copy_content(reader: int, writer: int, size: int) -> None:
    copied = 0
    if hasattr(os, "copy_file_range"):
        try:
            while copied < size:
                count = os.copy_file_range(reader, writer, size - copied)
                if not count:
                    break
                copied += count
        except OSError as error:
            if error.errno not in _NO_RANGE:
                raise
    while piece := os.read(reader, _PIECE):
        while piece:
            piece = piece[os.write(writer, piece) :]
