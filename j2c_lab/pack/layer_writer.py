"""Makes one layer: reads, hashes and compresses its files in one pass, in bounded memory."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, Protocol

from j2c_lab.errors import PackError
from j2c_lab.formats import tar
from j2c_lab.formats.digest import DIRECTORY, FILE, LINK, Entry, layer_digest
from j2c_lab.formats.paths import show
from j2c_lab.pack.file_hashes import is_settled, key_of
from j2c_lab.pack.plan import FileKey, PlannedFile

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

#: Level 1 costs 15 % of size and saves 36 % of the CPU of level 3 (docs/benchmarks.md).
LEVEL = 1

#: What a match may reach back over, as a power of two: all of a frame. It costs no time and saves
#: 2 % of size.
_WINDOW_LOG = 22
#: Bytes of content in one frame. Given to zstd at once, a frame is compressed where it lies; fed in
#: pieces, it goes through a ring buffer, and matching across its seam takes 15 % longer.
_FRAME = 1 << _WINDOW_LOG
#: A large file is read and hashed in pieces that stay in the processor's cache.
_PIECE = 256 << 10
#: Files up to this size are read whole.
_WHOLE = 1 << 20
_TRIES = 3
#: More than any header takes: a name or a link's target is at most PATH_MAX long.
_LARGEST_HEADER = 64 << 10

#: Called with the number of bytes read since the last call, and of files finished.
Advance = Callable[[int, int], None]


class Output(Protocol):
    """Where the layer's bytes go."""

    def write(self, data: bytes, /) -> object: ...
    def seek(self, place: int, /) -> object: ...
    def truncate(self) -> object: ...


class LayerResult(NamedTuple):
    """A layer that was made, or only hashed (`packed_size` is 0 then)."""

    digest: str
    packed_size: int
    unpacked_size: int
    #: The files that were read and may be remembered: content hash by key.
    hashes: dict[FileKey, bytes]


class _ChangedError(Exception):
    """A file changed while it was read."""


def make_layer(files: Sequence[PlannedFile], path: str, advance: Advance) -> LayerResult:
    """Write the layer to the new file `path`, which is removed when that fails.

    Raises
    ------
    PackError
        As `write_layer`, or the file cannot be written.
    """
    try:
        with open(path, "xb") as output:
            return write_layer(files, output, advance)
    except BaseException as error:
        if os.path.exists(path):
            os.unlink(path)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise PackError(
                f"the layer cannot be written to {path}: {error.strerror}",
                "free some space there and repeat the command",
            ) from error
        raise


def write_layer(files: Sequence[PlannedFile], output: Output, advance: Advance) -> LayerResult:
    """Write the layer to `output`, from its start; entries are sorted by their path.

    A file that changes while it is read makes the layer start again.

    Raises
    ------
    PackError
        Files cannot be read (`details` names them all), or one of them will not hold still.
    """
    ordered = sorted(files, key=_path_of)
    for _ in range(_TRIES):
        output.seek(0)
        output.truncate()
        try:
            return _LayerWriter(output, advance).write(ordered)
        except _ChangedError as error:
            changed = error
        except PermissionError:
            raise unreadable_error(files) from None
    raise _restless(changed)


def hash_layer(
    files: Sequence[PlannedFile], known: Sequence[bytes | None], advance: Advance
) -> LayerResult:
    """Return the layer's digest, reading only the files whose hash is None in `known`.

    Raises
    ------
    PackError
        As `write_layer`.
    """
    entries, hashes, unpacked = [], {}, 0
    for file, content in zip(files, known, strict=True):
        size = len(file.data)
        if file.source is not None and file.key is not None:
            size = file.key.size
            if content is None:
                size, content, key = _hash_again(file, files, advance)
                if key is not None:
                    hashes[key] = content
        elif file.type == FILE:
            content = sha256(file.data).digest()
        entries.append(entry_of(file, size, content or b""))
        unpacked += size if file.type == FILE else 0
    return LayerResult(layer_digest(entries), 0, unpacked, hashes)


def entry_of(file: PlannedFile, size: int, content_sha256: bytes) -> Entry:
    """Return the digest's entry of a planned file whose content is known."""
    if file.type == LINK:
        return Entry(file.path, LINK, False, 0, file.data)
    if file.type == DIRECTORY:
        return Entry(file.path, DIRECTORY, False, 0, b"")
    return Entry(file.path, FILE, file.executable, size, content_sha256)


def unreadable_error(files: Sequence[PlannedFile]) -> PackError:
    """Return the error that names all of `files` that cannot be opened."""
    found = []
    for file in files:
        if file.source is None:
            continue
        try:
            os.close(os.open(file.source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            found.append(f"{show(file.source)}: {error.strerror}")
    return unreadable(found)


def unreadable(details: list[str]) -> PackError:
    """Return the error for files that cannot be read; each of `details` names one and says why."""
    count = f"{len(details)} files" if len(details) > 1 else "one file"
    return PackError(
        f"{count} of what is to be packed cannot be read",
        "make them readable, or leave them out by a line in .j2cignore",
        sorted(details),
    )


class _LayerWriter:
    """Fills one buffer with headers and contents, and compresses it each time a frame is full.

    Files are read straight into their place in the buffer, which is simpler than joining pieces;
    measured, it costs about the same CPU time.
    """

    def __init__(self, output: Output, advance: Advance) -> None:
        # Not needed to plan or to hash, and it costs 8 ms.
        from j2c_lab.formats.zstd import CompressionParameter, ZstdCompressor

        self._output = output
        self._advance = advance
        options: dict[int, int] = {
            CompressionParameter.compression_level: LEVEL,
            CompressionParameter.window_log: _WINDOW_LOG,
        }
        self._compressor = ZstdCompressor(options=options)
        self._buffer = memoryview(bytearray(_FRAME + _WHOLE + _LARGEST_HEADER))
        self._filled = 0
        self._packed = 0
        self._hashes: dict[FileKey, bytes] = {}

    def write(self, files: Sequence[PlannedFile]) -> LayerResult:
        entries, unpacked = [], 0
        for file in files:
            if file.type == LINK:
                size, content = 0, b""
                self._put(tar.header(file.path, tar.TYPE_LINK, target=file.data))
            elif file.type == DIRECTORY:
                size, content = 0, b""
                self._put(tar.header(file.path + b"/", tar.TYPE_DIRECTORY))
            elif file.source is None:
                size, content = len(file.data), sha256(file.data).digest()
                self._put(_header(file, size, content))
                self._put(file.data)
                self._put(tar.padding(size))
            else:
                size, content = self._read(file, file.source)
            entries.append(entry_of(file, size, content))
            unpacked += size
        if self._filled or not self._packed:
            self._flush()
        return LayerResult(layer_digest(entries), self._packed, unpacked, self._hashes)

    def _read(self, file: PlannedFile, source: bytes) -> tuple[int, bytes]:
        """Add a file's header and content; return its size and hash."""
        started = time.time_ns()
        descriptor = _open(source)
        try:
            before = os.fstat(descriptor)
            size = before.st_size
            if size <= _WHOLE:
                content = self._read_whole(descriptor, file, size, source)
            else:
                content = self._stream(descriptor, file, size, source)
            _check_unchanged(descriptor, before, source)
        finally:
            os.close(descriptor)
        key = key_of(before)
        if is_settled(key, started):
            self._hashes[key] = content
        return size, content

    def _read_whole(self, descriptor: int, file: PlannedFile, size: int, source: bytes) -> bytes:
        """Read a small file behind the place of its header, which needs its hash."""
        start = self._filled + tar.header_size(file.path)
        end = start + size
        data = self._buffer[start:end]
        _read_into(descriptor, data, source)
        content = sha256(data).digest()
        self._buffer[self._filled : start] = _header(file, size, content)
        self._filled = end
        self._put(tar.padding(size))
        self._advance(size, 1)
        return content

    def _stream(self, descriptor: int, file: PlannedFile, size: int, source: bytes) -> bytes:
        """Add the header and content of a file too large to keep; return its hash."""
        foreknown = b""
        if file.path.endswith(b".py"):
            # A source's header needs its hash: such a file is read twice.
            running = sha256()
            for _ in _pieces(descriptor, size, source, running):
                pass
            foreknown = running.digest()
            os.lseek(descriptor, 0, os.SEEK_SET)
        self._put(_header(file, size, foreknown))
        running = sha256()
        left = size
        while left:
            end = self._filled + min(left, _PIECE)
            piece = self._buffer[self._filled : end]
            _read_into(descriptor, piece, source)
            running.update(piece)
            left -= len(piece)
            self._advance(len(piece), 0)
            self._fill_to(end)
        self._advance(0, 1)
        if foreknown and foreknown != running.digest():
            raise _ChangedError(source)
        self._put(tar.padding(size))
        return running.digest()

    def _put(self, data: bytes) -> None:
        for start in range(0, len(data), _WHOLE):
            piece = data[start : start + _WHOLE]
            end = self._filled + len(piece)
            self._buffer[self._filled : end] = piece
            self._fill_to(end)

    def _fill_to(self, end: int) -> None:
        self._filled = end
        if end >= _FRAME:
            self._flush()

    def _flush(self) -> None:
        frame = self._buffer[: self._filled]
        packed = self._compressor.compress(frame, self._compressor.FLUSH_FRAME)
        self._output.write(packed)
        self._packed += len(packed)
        self._filled = 0


def _header(file: PlannedFile, size: int, content: bytes) -> bytes:
    return tar.header(
        file.path,
        tar.TYPE_FILE,
        size=size,
        executable=file.executable,
        mtime=tar.mtime_of(file.path, content) if content else tar.FIXED_MTIME,
    )


def _read_into(descriptor: int, place: memoryview, source: bytes) -> None:
    """Fill `place` from the file; one that is shorter by now has changed."""
    while place:
        try:
            count = os.readv(descriptor, [place])
        except OSError as error:
            raise _failed(source, error) from error
        if not count:
            raise _ChangedError(source)
        place = place[count:]


def _hash_again(
    file: PlannedFile, files: Sequence[PlannedFile], advance: Advance
) -> tuple[int, bytes, FileKey | None]:
    """Return the size, the hash and, if it may be remembered, the key of a file."""
    assert file.source is not None
    for _ in range(_TRIES):
        try:
            size, content, key = _hash_file(file.source, advance)
            advance(0, 1)
            return size, content, key
        except _ChangedError as error:
            changed = error
        except PermissionError:
            raise unreadable_error(files) from None
    raise _restless(changed)


def _hash_file(source: bytes, advance: Advance) -> tuple[int, bytes, FileKey | None]:
    started = time.time_ns()
    descriptor = _open(source)
    try:
        before = os.fstat(descriptor)
        running = sha256()
        for piece in _pieces(descriptor, before.st_size, source, running):
            advance(len(piece), 0)
        _check_unchanged(descriptor, before, source)
    finally:
        os.close(descriptor)
    key = key_of(before)
    return before.st_size, running.digest(), key if is_settled(key, started) else None


def _open(source: bytes) -> int:
    """Open a regular file; one that is gone, or something else by now, has changed."""
    try:
        # What was a file a moment ago may be a FIFO by now, which would wait for a writer.
        descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            raise _ChangedError(source) from None
        if error.errno in (errno.EACCES, errno.EPERM):
            raise
        raise _failed(source, error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _ChangedError(source)
    return descriptor


def _pieces(descriptor: int, size: int, source: bytes, running: Hash) -> Iterator[bytes]:
    """Yield the content in pieces, each of which `running` has taken in."""
    while size:
        piece = _read_exactly(descriptor, min(size, _PIECE), source)
        size -= len(piece)
        running.update(piece)
        yield piece


def _read_exactly(descriptor: int, size: int, source: bytes) -> bytes:
    pieces = []
    while size:
        try:
            piece = os.read(descriptor, size)
        except OSError as error:
            raise _failed(source, error) from error
        if not piece:
            raise _ChangedError(source)
        pieces.append(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _check_unchanged(descriptor: int, before: os.stat_result, source: bytes) -> None:
    after = os.fstat(descriptor)
    if key_of(after) != key_of(before):
        raise _ChangedError(source)


def _path_of(file: PlannedFile) -> bytes:
    return file.path


def _restless(changed: _ChangedError) -> PackError:
    return PackError(
        f"{show(changed.args[0])} changes while it is read",
        "wait until it is complete, or leave it out by a line in .j2cignore",
    )


def _failed(source: bytes, error: OSError) -> PackError:
    return PackError(f"{show(source)} cannot be read: {error.strerror}")
