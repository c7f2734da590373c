"""From a layer's bytes to files: one pass of decompressing, checking, writing and hashing.

The parser takes exactly what `formats.tar.header` writes: each header is made anew from what was
read of it and compared, so nothing that another tool could understand differently gets through.
Symbolic links are not made here: the caller makes them when all files of all layers are written,
so that no write can go through one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from j2c_lab.errors import DigestMismatchError, FormatError, UnsafePathError
from j2c_lab.formats import tar
from j2c_lab.formats.digest import DIRECTORY, FILE, LINK, Entry, layer_digest
from j2c_lab.formats.paths import check_entry_path, link_stays_inside, show
from j2c_lab.unpack.plain import PlainStream

#: A longer name cannot be opened on any system (PATH_MAX is 4096 on Linux, 1024 on macOS).
_LONGEST_NAME = 4096
_PIECE = 1 << 20
_OPEN_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Expected(NamedTuple):
    """What the manifest says of a layer: anything beyond it is refused before it is written."""

    digest: str
    packed_size: int
    unpacked_size: int
    files: int


class Clash(NamedTuple):
    """A file that another layer had written already; `beside` holds this layer's content."""

    path: bytes
    beside: bytes


class Extracted(NamedTuple):
    """What was written. Paths in `links` and `clashes` are places on disk."""

    entries: list[Entry]
    links: list[tuple[bytes, bytes]]
    clashes: list[Clash]


def extract_layer(
    pieces: Iterable[bytes], expected: Expected, directories: Mapping[bytes, bytes]
) -> Extracted:
    """Write a layer's files and empty directories, and prove that they are what was packed.

    Parameters
    ----------
    pieces : iterable of bytes
        The `.tar.zst` in pieces of any size.
    expected : Expected
        Digest and limits.
    directories : mapping
        From the first component of an entry's path to the directory that stands for it; a layer
        may hold no other. They hold no links yet, and nobody else writes there but other layers.

    Raises
    ------
    UnsafePathError
        An entry that must not be unpacked: a path or link that leads out, a device, two entries
        with one name.
    FormatError
        The archive is damaged, or holds more than the manifest says.
    DigestMismatchError
        The content is not what the digest names.
    """
    return _Extraction(expected, directories).run(pieces)


class _Extraction:
    def __init__(self, expected: Expected, directories: Mapping[bytes, bytes]) -> None:
        self.expected = expected
        self.directories = directories
        self.entries: list[Entry] = []
        self.links: list[tuple[bytes, bytes]] = []
        self.clashes: list[Clash] = []
        self.made: set[bytes] = set()
        self.bytes_left = expected.unpacked_size

    def run(self, pieces: Iterable[bytes]) -> Extracted:
        # Another packer may have compressed the same content a little worse: the layer is named
        # by its content, so the packed size bounds the work but proves nothing.
        stream = PlainStream(pieces, limit=2 * self.expected.packed_size + _PIECE)
        last = b""
        while header := _read_header(stream):
            if header.path <= last:
                raise UnsafePathError(f"the layer holds {show(header.path)} twice, or out of order")
            last = header.path
            if len(self.entries) == self.expected.files:
                raise FormatError(f"the layer holds more than its {self.expected.files} entries")
            self.entries.append(self._write(header, stream))
        digest = layer_digest(self.entries)
        if digest != self.expected.digest:
            raise DigestMismatchError(
                f"the layer {self.expected.digest[:12]} holds other content ({digest[:12]})"
            )
        return Extracted(self.entries, self.links, self.clashes)

    def _write(self, header: _Header, stream: PlainStream) -> Entry:
        path, kind = header.path, header.kind
        place = self._place(path, kind)
        if kind == tar.TYPE_FILE:
            self.bytes_left -= header.size
            if self.bytes_left < 0:
                raise FormatError(
                    f"the layer holds more than its {self.expected.unpacked_size} bytes"
                )
            content = self._write_file(place, header, stream)
            return Entry(path, FILE, header.executable, header.size, content)
        if kind == tar.TYPE_LINK:
            if not link_stays_inside(path, header.target):
                raise UnsafePathError(
                    f"the link {show(path)} leads out of its place: {show(header.target)}"
                )
            self._make_directory(place[: place.rindex(b"/")])
            self.links.append((place, header.target))
            return Entry(path, LINK, False, 0, header.target)
        self._make_directory(place)
        return Entry(path, DIRECTORY, False, 0, b"")

    def _place(self, path: bytes, kind: bytes) -> bytes:
        check_entry_path(path)
        top, slash, rest = path.partition(b"/")
        directory = self.directories.get(top)
        # A place itself may only be said to be there, as an empty directory.
        if directory is None or not (rest or kind == tar.TYPE_DIRECTORY):
            raise UnsafePathError(f"{show(path)} is no place that this layer may write to")
        return directory + slash + rest

    def _write_file(self, place: bytes, header: _Header, stream: PlainStream) -> bytes:
        parent = place[: place.rindex(b"/")]
        if parent not in self.made:
            self._make_directory(parent)
        mode = 0o755 if header.executable else 0o644
        descriptor = self._open(place, mode)
        try:
            size = header.size
            if size <= _PIECE:
                data = stream.take(size)
                content = hashlib.sha256(data).digest()
                if os.write(descriptor, data) != size:
                    raise OSError(28, "short write", place)
            else:
                content = _copy(stream, size, descriptor)
            stream.skip_zeros(-size % tar.BLOCK)
            mtime = tar.mtime_of(header.path, content)
            if mtime != header.mtime:
                raise FormatError(f"{show(header.path)} has not the time that its content gives")
            os.utime(descriptor, (mtime, mtime))
            # Looking costs less than setting, and under the usual umask it is right already.
            if os.fstat(descriptor).st_mode & 0o7777 != mode:
                os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)
        return content

    def _open(self, place: bytes, mode: int) -> int:
        try:
            return os.open(place, _OPEN_NEW, mode)
        except FileExistsError:
            # Two distributions may own one file. Whether both mean the same content is judged
            # when both are written; see `place.settle`.
            beside = place + b".j2c-" + self.expected.digest[:16].encode()
            self.clashes.append(Clash(place, beside))
            return os.open(beside, _OPEN_NEW, mode)
        except NotADirectoryError:
            raise UnsafePathError(f"{show(place)} lies below a file") from None

    def _make_directory(self, path: bytes) -> None:
        make_directory(path, self.made)


class _Header(NamedTuple):
    path: bytes
    kind: bytes
    size: int
    executable: bool
    mtime: int
    target: bytes


def make_directory(path: bytes, made: set[bytes]) -> None:
    """Make a directory and its parents, mode 0755, and remember them in `made`."""
    if path in made:
        return
    try:
        os.mkdir(path)
        os.chmod(path, 0o755)  # noqa: S103 (the run's own directory is 0700)
    except FileExistsError:
        if not os.path.isdir(path) or os.path.islink(path):
            raise UnsafePathError(f"{show(path)} is a file and a directory") from None
    except FileNotFoundError:
        make_directory(path[: path.rindex(b"/")], made)
        make_directory(path, made)
    except NotADirectoryError:
        raise UnsafePathError(f"{show(path)} lies below a file") from None
    made.add(path)


def _read_header(stream: PlainStream) -> _Header | None:
    """Return the next entry's header, or None at the end."""
    block = stream.block()
    if block is None:
        return None
    raw = block
    target = path = None
    while block[156:157] in (b"K", b"L"):
        size = _number(block[124:136])
        if size > _LONGEST_NAME:
            raise FormatError("the layer holds a name that is too long")
        padded = size + -size % tar.BLOCK
        data = bytes(stream.take(padded))
        if block[156:157] == b"K" and target is None and path is None:
            target = data[: size - 1]
        elif path is None:
            path = data[: size - 1]
        else:
            raise FormatError("the layer holds a name twice")
        following = stream.block()
        if following is None:
            raise FormatError("the layer ends within an entry")
        block = following
        raw += data + block
    kind = block[156:157]
    if kind not in (tar.TYPE_FILE, tar.TYPE_LINK, tar.TYPE_DIRECTORY):
        raise UnsafePathError(f"the layer holds an entry of type {kind!r}")
    if path is None:
        path = _text(block[0:100])
    header = _Header(
        path=path[:-1] if kind == tar.TYPE_DIRECTORY and path.endswith(b"/") else path,
        kind=kind,
        size=_number(block[124:136]),
        executable=kind == tar.TYPE_FILE and block[100:107] == b"0000755",
        mtime=_number(block[136:148]),
        target=_text(block[157:257]) if target is None else target,
    )
    if raw != tar.header(
        path,
        kind,
        size=header.size,
        executable=header.executable,
        mtime=header.mtime,
        target=header.target,
    ) or (kind != tar.TYPE_FILE and header.size):
        raise FormatError(f"the header of {show(header.path)} is not one that j2c writes")
    return header


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _number(field: bytes) -> int:
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big")
    try:
        return int(field[:11], 8)
    except ValueError:
        raise FormatError("the layer is damaged: a header holds no number") from None


def _copy(stream: PlainStream, size: int, descriptor: int) -> bytes:
    content = hashlib.sha256()
    for piece in stream.pieces(size):
        content.update(piece)
        while written := os.write(descriptor, piece):
            if written == len(piece):
                break
            piece = piece[written:]
    return content.digest()
