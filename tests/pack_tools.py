"""What the tests of packing share."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from j2c_lab.formats.digest import Entry, layer_digest
from j2c_lab.formats.tar import mtime_of
from j2c_lab.pack.bundle import PackResult, pack_bundle
from j2c_lab.pack.plan import ProjectPlan
from j2c_lab.pack.project import plan_project
from j2c_lab.store import layout
from j2c_lab.store.base import ObjectInfo, Progress
from j2c_lab.store.local import LocalStore

_watchers: list[list[bytes]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _watchers and event == "open" and isinstance(arguments[0], (str, bytes)):
        for watcher in _watchers:
            watcher.append(os.fsencode(arguments[0]))


sys.addaudithook(_audit)


@contextmanager
def files_opened(below: Path) -> Iterator[list[bytes]]:
    """Collect the files below a directory that are opened meanwhile by this process."""
    found: list[bytes] = []
    _watchers.append(found)
    try:
        yield found
    finally:
        _watchers[:] = [watcher for watcher in _watchers if watcher is not found]
        start = os.fsencode(os.path.realpath(below)) + b"/"
        found[:] = [path for path in found if path.startswith(start)]


def write_tree(root: Path, tree: dict[str, str | bytes]) -> None:
    """Write files; parents are made, a name that ends with `/` is an empty directory."""
    for name, content in tree.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def settle() -> None:
    """Wait until what was written is old enough for its hash to be remembered."""
    time.sleep(0.08)


def pack(project: ProjectPlan, store: LocalStore) -> tuple[PackResult, list[dict[str, Any]]]:
    """Pack a project; return the result and the events."""
    events: list[dict[str, Any]] = []
    return asyncio.run(pack_bundle(project, None, store, events.append)), events


def pack_tree(root: Path, store: LocalStore) -> PackResult:
    """Plan and pack a project."""
    return pack(plan_project(str(root)), store)[0]


def extract(result: PackResult, store: LocalStore, target: Path) -> None:
    """Unpack all layers with plain tar and check that each has the digest that names it."""
    target.mkdir(parents=True, exist_ok=True)
    for number, layer in enumerate(result.manifest.layers):
        archive = store.directory / layout.layer(layer.digest)
        assert archive.stat().st_size == layer.packed_size
        alone = target.parent / f"{target.name}.{number}"
        for place in (alone, target):
            place.mkdir(exist_ok=True)
            command = ["tar", "--zstd", "-xf", str(archive), "-C", str(place)]
            # Layers have no end-of-archive blocks; tar says so and is content.
            subprocess.run(command, check=True, capture_output=True)
        assert layer_digest(entries_of(alone)) == layer.digest


class CountingStore(LocalStore):
    """A store that notes what it is asked and given."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        #: The keys of each call.
        self.asked: list[list[str]] = []
        self.given: list[str] = []

    async def stat(self, keys: Iterable[str]) -> dict[str, ObjectInfo]:
        self.asked.append(list(keys))
        return await super().stat(self.asked[-1])

    async def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        self.given.append(key)
        return await super().put(key, data, if_absent=if_absent)

    async def put_file(
        self,
        key: str,
        path: Path,
        *,
        if_absent: bool = False,
        consume: bool = False,
        progress: Progress | None = None,
    ) -> bool:
        self.given.append(key)
        return await super().put_file(
            key, path, if_absent=if_absent, consume=consume, progress=progress
        )


class FarStore(CountingStore):
    """A store that is reached over a network: it takes time, and has no directory here."""

    #: Uploads at the same time, now and at most; layers that were finished but not yet sent.
    uploading = 0
    most_uploading = 0

    def staging(self) -> Path | None:
        return None

    def local_path(self, key: str) -> Path | None:
        return None

    async def put_file(self, key: str, path: Path, **options: Any) -> bool:
        self.uploading += 1
        self.most_uploading = max(self.most_uploading, self.uploading)
        try:
            await asyncio.sleep(0.01)
            return await super().put_file(key, path, **options)
        finally:
            self.uploading -= 1


def entries_of(root: Path) -> list[Entry]:
    """List a directory as a layer does, with none of the code under test but the digest's."""
    import hashlib

    top = os.fsencode(root)
    entries = []
    for directory, directories, files in os.walk(top):
        for name in files + [d for d in directories if os.path.islink(os.path.join(directory, d))]:
            path = os.path.join(directory, name)
            place = os.path.relpath(path, top)
            if os.path.islink(path):
                entries.append(Entry(place, "l", False, 0, os.readlink(path)))
                continue
            info = os.stat(path)
            with open(path, "rb") as file:
                content = hashlib.sha256(file.read()).digest()
            assert info.st_mtime == mtime_of(place, content)
            assert info.st_mode & 0o777 in (0o644, 0o755)
            entries.append(Entry(place, "f", info.st_mode & 0o777 == 0o755, info.st_size, content))
        if not files and not directories and directory != top:
            entries.append(Entry(os.path.relpath(directory, top), "d", False, 0, b""))
    return entries


def listing(root: Path) -> dict[str, str]:
    """Return, for each file and link below a directory, what it holds or points to."""
    found = {}
    for entry in entries_of_any(root):
        found[str(entry.relative_to(root))] = (
            f"-> {os.readlink(entry)}"
            if entry.is_symlink()
            else entry.read_bytes().decode("latin1")
        )
    return found


def entries_of_any(root: Path) -> list[Path]:
    """Return all files and links below a directory."""
    return sorted(p for p in root.rglob("*") if p.is_symlink() or p.is_file())
