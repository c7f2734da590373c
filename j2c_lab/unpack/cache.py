"""The node's cache: each layer unpacked once, for all runs on this node.

::

    <cache>/layers/ab/<digest>/index.json      how each file must look
    <cache>/layers/ab/<digest>/tree/…          the files, named as in the layer
    <cache>/staging/<digest>.<random>/         a layer that is being unpacked
    <cache>/locks/<digest>                     held by who unpacks it

A layer appears whole, by one rename. The lock only saves the work of unpacking it twice: where
locks do not work (some network file systems), the first rename wins and both are right.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from j2c_lab.formats.digest import DIRECTORY, FILE
from j2c_lab.formats.tar import mtime_of
from j2c_lab.unpack.extract import Expected, extract_layer
from j2c_lab.unpack.place import KeptFile, is_intact

_INDEX = b"index.json"
_TREE = b"tree"


class CachedLayer(NamedTuple):
    """A layer that is complete and unchanged. Links are given by their names in the layer."""

    tree: bytes
    files: list[KeptFile]
    links: list[tuple[bytes, bytes]]
    directories: list[bytes]


def open_cache(path: str | None) -> LayerCache | None:
    """Return the cache at `path`, or None when there can be none (not ours, not writable)."""
    if not path:
        return None
    root = os.fsencode(os.path.abspath(path))
    try:
        for name in (b"layers", b"staging", b"locks"):
            os.makedirs(os.path.join(root, name), mode=0o700, exist_ok=True)
        if os.stat(root).st_uid not in (os.geteuid(), 0) or not os.access(root, os.W_OK):
            return None
        os.rmdir(_new_directory(root, b"probe"))
    except OSError:
        return None
    return LayerCache(root)


class LayerCache:
    """See the module's text. Any number of processes may use one cache at once."""

    def __init__(self, root: bytes) -> None:
        self.root = root

    def find(self, digest: str) -> CachedLayer | None:
        """Return the layer if it is complete and nobody has changed its files."""
        directory = self._directory(digest)
        try:
            with open(os.path.join(directory, _INDEX), "rb") as file:
                index = json.loads(file.read())
            if os.stat(directory).st_uid not in (os.geteuid(), 0):
                return None
        except (OSError, ValueError):
            return None
        layer = CachedLayer(
            os.path.join(directory, _TREE),
            [KeptFile(_bytes(path), *rest) for path, *rest in index["files"]],
            [(_bytes(path), _bytes(target)) for path, target in index["links"]],
            [_bytes(path) for path in index["directories"]],
        )
        return layer if is_intact(layer.tree, layer.files) else None

    def add(
        self, expected: Expected, pieces: Callable[[], Iterable[bytes]], tops: Iterable[bytes]
    ) -> CachedLayer:
        """Unpack the layer into the cache, unless another process just did.

        `tops` are the first path components that the layer may hold.

        Raises
        ------
        OSError
            The cache cannot hold it (its disk is full, say).
        FormatError
            As `extract.extract_layer`.
        """
        with self._lock(expected.digest) as locked:
            if found := self.find(expected.digest):
                return found
            if locked:
                # Nobody else is at it, so what lies there was left by a process that died.
                for name in os.listdir(os.path.join(self.root, b"staging")):
                    if name.startswith(expected.digest.encode()):
                        self._remove(os.path.join(self.root, b"staging", name))
            staging = _new_directory(self.root, expected.digest.encode())
            try:
                layer = self._fill(staging, expected, pieces(), tops)
                self._publish(staging, expected.digest)
            except BaseException:
                self._remove(staging)
                raise
        return layer._replace(tree=os.path.join(self._directory(expected.digest), _TREE))

    def _fill(
        self, staging: bytes, expected: Expected, pieces: Iterable[bytes], tops: Iterable[bytes]
    ) -> CachedLayer:
        tree = os.path.join(staging, _TREE)
        os.mkdir(tree, 0o700)
        extracted = extract_layer(pieces, expected, {top: tree + b"/" + top for top in tops})
        layer = CachedLayer(
            tree,
            [
                KeptFile(e.path, e.size, mtime_of(e.path, e.content), e.executable)
                for e in extracted.entries
                if e.type == FILE
            ],
            # Links are made where the run is, never here: nothing in the cache is followed.
            [(place[len(tree) + 1 :], target) for place, target in extracted.links],
            [e.path for e in extracted.entries if e.type == DIRECTORY],
        )
        index = {
            "files": [(_text(path), *rest) for path, *rest in layer.files],
            "links": [(_text(path), _text(target)) for path, target in layer.links],
            "directories": [_text(path) for path in layer.directories],
        }
        with open(os.path.join(staging, _INDEX), "w", encoding="ascii") as file:
            file.write(json.dumps(index))
        return layer

    def _publish(self, staging: bytes, digest: str) -> None:
        directory = self._directory(digest)
        os.makedirs(os.path.dirname(directory), mode=0o700, exist_ok=True)
        while True:
            try:
                os.rename(staging, directory)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            if self.find(digest):
                self._remove(staging)
                return
            # What is there was changed by somebody; runs that use it keep their hard links.
            self._remove(directory)

    def _remove(self, directory: bytes) -> None:
        # Renamed first, so that nobody finds a layer with half of its files.
        import shutil  # 8 ms, and rarely needed

        gone = _new_directory(self.root, b"gone")
        with contextlib.suppress(OSError):
            os.rename(directory, os.path.join(gone, b"layer"))
        shutil.rmtree(gone, ignore_errors=True)

    def _directory(self, digest: str) -> bytes:
        return os.path.join(self.root, b"layers", digest[:2].encode(), digest.encode())

    @contextlib.contextmanager
    def _lock(self, digest: str) -> Iterator[bool]:
        """Wait until nobody else unpacks the layer; gives False where locks do not work."""
        import fcntl

        path = os.path.join(self.root, b"locks", digest.encode())
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            locked = True
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL):
                    raise
                locked = False
            yield locked
        finally:
            os.close(descriptor)


def _new_directory(root: bytes, name: bytes) -> bytes:
    path = os.path.join(root, b"staging", name + b"." + os.urandom(6).hex().encode())
    os.mkdir(path, 0o700)
    return path


def _text(path: bytes) -> str:
    return path.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")
