"""What is remembered of a tree between two packs, so that what did not change is not read again.

One directory for each tree (a project, an environment) in the user's cache, with one file for each
kind of fact. A file is a dictionary written by `marshal`, which loads 15,000 hashes in 9 ms
(sqlite: 39, and its locks are not safe over NFS), behind a checksum, since a damaged file must read
as an empty one. Writers merge with what is there and rename over it: two at once lose nothing but,
at worst, some of each other's news, which is then found out again.
"""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import os
import time
from typing import Any, NamedTuple

from j2c_lab.pack.plan import FileKey, PlannedFile

_MAGIC = b"j2c-cache-1\n"
_HEAD = len(_MAGIC) + 32
#: Entries kept beyond those in use, for another branch or another set of excludes.
_SPARE = 2000


class LayerFacts(NamedTuple):
    """What a layer is known to be when none of its files has changed."""

    digest: str
    packed_size: int
    unpacked_size: int


class TreeCache:
    """The remembered facts of one tree. A cache that cannot be read or written is no error."""

    def __init__(self, tree: bytes, directory: str | None = None) -> None:
        name = hashlib.sha256(tree).hexdigest()[:32]
        base = os.path.join(directory or cache_directory(), "trees", name)
        #: From `signature_of` a layer's files to `LayerFacts`.
        self.layers = Section(os.path.join(base, "layers"))
        #: From a `FileKey` to the content's SHA-256.
        self.hashes = Section(os.path.join(base, "hashes"))
        #: From a code file's `FileKey` to the paths that it seems to name.
        self.literals = Section(os.path.join(base, "literals"))

    def layer(self, signature: bytes) -> LayerFacts | None:
        """Return what is known of a layer, or None."""
        found = self.layers.get(signature)
        return None if found is None else LayerFacts(*found)

    def save(self) -> None:
        """Write what is new; costs nothing when nothing is."""
        for section in (self.layers, self.hashes, self.literals):
            section.save()


class Section:
    """A dictionary in a file, loaded when it is first asked. Keys and values are plain data."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[Any, Any] | None = None
        self._used: dict[Any, Any] = {}
        self._changed = False

    def get(self, key: Any) -> Any:
        """Return the value, or None."""
        if self._known is None:
            self._known = _load(self._path)
        value = self._known.get(key)
        if value is not None:
            self._used[key] = value
        return value

    def put(self, key: Any, value: Any) -> None:
        """Remember a value; written by `save`."""
        if self.get(key) == value:
            return
        if self._known is not None:
            self._known[key] = value
        self._used[key] = value
        self._changed = True

    def save(self) -> None:
        """Merge with the file and replace it, when something is new."""
        if not self._changed:
            return
        used = {_plain(key): _plain(value) for key, value in self._used.items()}
        # The order is the order of use: what nobody asked for the longest time goes first.
        merged = {key: value for key, value in _load(self._path).items() if key not in used}
        surplus = len(merged) - len(used) - _SPARE
        if surplus > 0:
            merged = dict(list(merged.items())[surplus:])
        merged.update(used)
        if _store(self._path, merged):
            self._changed = False


def cache_directory() -> str:
    """Return j2c's directory in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "j2c")


def key_of(info: os.stat_result) -> FileKey:
    """Return the key of a file from its `stat`."""
    return FileKey(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def is_settled(key: FileKey, now_ns: int | None = None) -> bool:
    """Whether every later change of the file will show in its key.

    A file that was changed less than a tick of the clock ago can be changed again within the same
    tick, and keep its key. `now_ns` is the time just before the content was read (by default: now).
    A tick is at most 10 ms on Linux and is taken for 50; a file system that keeps whole seconds,
    seen by the change time, for two. The change time alone counts: it cannot be set.
    """
    now = time.time_ns() if now_ns is None else now_ns
    grain = 50_000_000 if key.ctime_ns % 1_000_000_000 else 2_000_000_000
    return key.ctime_ns + grain < now


def signature_of(files: list[PlannedFile]) -> bytes:
    """Return what changes when any of a layer's files might have changed, 32 bytes.

    Made from names and keys alone, without reading anything.
    """
    listing = [(f.path, f.type, f.executable, f.data, f.key and tuple(f.key)) for f in files]
    # Version 2 writes no references, which depend on the interpreter's mood.
    return hashlib.sha256(marshal.dumps(listing, 2)).digest()


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, tuple) else value


def _load(path: str) -> dict[Any, Any]:
    try:
        with open(path, "rb") as file:
            data = file.read()
        body = memoryview(data)[_HEAD:]
        if data[: len(_MAGIC)] == _MAGIC and (
            hashlib.sha256(body).digest() == data[len(_MAGIC) : _HEAD]
        ):
            loaded = marshal.loads(body)  # noqa: S302  (our own file, proven by its checksum)
            return loaded if isinstance(loaded, dict) else {}
    except (OSError, ValueError, EOFError, TypeError):
        pass
    return {}


def _store(path: str, values: dict[Any, Any]) -> bool:
    body = marshal.dumps(values, 4)
    temporary = f"{path}.{os.getpid()}.{time.monotonic_ns()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(temporary, "xb") as file:
            file.write(_MAGIC + hashlib.sha256(body).digest() + body)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        return False
    return True
