"""A directory as the store: for one machine, and for file systems that both clusters mount."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import BinaryIO

from j2c_lab.errors import NotFoundError, StoreError
from j2c_lab.store.base import ObjectInfo, Progress

_PIECE = 1 << 20


class LocalStore:
    """See `store.base.Store`. Objects are files; writes are made beside and renamed or linked.

    Nothing here awaits: the calls are short, and whoever moves gigabytes does it in a process of
    its own.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = Path(os.path.abspath(directory))
        self.url = self.directory.as_uri()

    async def get(self, key: str, start: int = 0) -> bytes:
        with self._opened(key) as file:
            file.seek(start)
            return file.read()

    async def read(self, key: str, start: int = 0) -> AsyncIterator[bytes]:
        with self._opened(key) as file:
            file.seek(start)
            while piece := file.read(_PIECE):
                yield piece

    async def put(
        self, key: str, data: bytes, *, if_absent: bool = False, once: bool = False
    ) -> bool:
        temporary = self._temporary()
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                # Small objects say what exists; they must outlive a power cut as a whole.
                file.flush()
                if if_absent:
                    os.fsync(file.fileno())
            return self._publish(temporary, key, if_absent)
        except OSError as error:
            raise _store_error(error) from error
        finally:
            temporary.unlink(missing_ok=True)

    async def put_file(
        self,
        key: str,
        path: Path,
        *,
        if_absent: bool = False,
        consume: bool = False,
        progress: Progress | None = None,
    ) -> bool:
        temporary = self._temporary()
        try:
            size = os.stat(path).st_size
            try:
                if not consume:
                    if if_absent and os.path.lexists(self._path(key)):
                        return False
                    raise OSError(errno.EXDEV, "not ours to move")
                os.rename(path, temporary)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                shutil.copyfile(path, temporary)
            done = self._publish(temporary, key, if_absent)
            if progress is not None:
                progress(size)
            return done
        except OSError as error:
            raise _store_error(error) from error
        finally:
            temporary.unlink(missing_ok=True)
            if consume:
                Path(path).unlink(missing_ok=True)

    async def stat(self, keys: Iterable[str]) -> dict[str, ObjectInfo]:
        found = {}
        for key in keys:
            try:
                info = os.stat(self._path(key))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise _store_error(error) from error
            if not stat.S_ISREG(info.st_mode):
                continue
            found[key] = ObjectInfo(key, info.st_size, info.st_mtime)
        return found

    async def scan(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        directory, _, start = prefix.rpartition("/")
        for info in self._walk(directory, start, after):
            yield info

    async def list_names(self, prefix: str) -> list[str]:
        try:
            return sorted(os.listdir(self._path(prefix.rstrip("/"))))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _store_error(error) from error

    async def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            path = self._path(key)
            try:
                path.unlink(missing_ok=True)
                # Directories are no objects: the emptied ones go too, up to the store's own.
                for parent in path.parents:
                    if parent == self.directory:
                        break
                    parent.rmdir()
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.ENOENT, errno.EEXIST):
                    raise _store_error(error) from error

    async def renew(self, keys: Iterable[str]) -> set[str]:
        there = set()
        for key in keys:
            path = self._path(key)
            try:
                try:
                    os.utime(path)
                except PermissionError:
                    # Another user's file: a copy of it can be ours.
                    temporary = self._temporary()
                    shutil.copyfile(path, temporary)
                    os.replace(temporary, path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise _store_error(error) from error
            there.add(key)
        return there

    async def sweep(self, older_than: float) -> int:
        removed = 0
        limit = time.time() - older_than
        with os.scandir(self._staging()) as entries:
            for entry in entries:
                try:
                    if entry.is_file(follow_symlinks=False) and entry.stat().st_mtime < limit:
                        os.unlink(entry.path)
                        removed += 1
                except FileNotFoundError:
                    continue
        return removed

    def local_path(self, key: str) -> Path | None:
        return self._path(key)

    def staging(self) -> Path | None:
        return self._staging()

    def _staging(self) -> Path:
        path = self.directory / ".staging"
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _store_error(error) from error
        return path

    async def close(self) -> None:
        pass

    def _path(self, key: str) -> Path:
        return self.directory / key

    def _opened(self, key: str) -> BinaryIO:
        try:
            return open(self._path(key), "rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise NotFoundError(f"the store has no {key}") from None
        except OSError as error:
            raise _store_error(error) from error

    def _temporary(self) -> Path:
        staging = self.staging()
        descriptor, name = tempfile.mkstemp(dir=staging)
        os.fchmod(descriptor, 0o666 & ~_umask())
        os.close(descriptor)
        return Path(name)

    def _publish(self, temporary: Path, key: str, if_absent: bool) -> bool:
        target = self._path(key)
        while True:
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                if not if_absent:
                    os.replace(temporary, target)
                    return True
                os.link(temporary, target)
                return True
            except FileExistsError:
                return False
            except FileNotFoundError:
                # Another process emptied and removed the directory in between.
                if not temporary.exists():
                    raise

    def _walk(self, directory: str, start: str, after: str) -> Iterable[ObjectInfo]:
        try:
            with os.scandir(self._path(directory)) as found:
                # "a/" sorts after "a.b" but "a" does not: sort by what the keys begin with.
                entries = sorted((f"{e.name}/" if e.is_dir() else e.name, e) for e in found)
        except (FileNotFoundError, NotADirectoryError):
            return
        base = f"{directory}/" if directory else ""
        for name, entry in entries:
            key = base + name
            if not name.startswith(start) and not start.startswith(name):
                continue
            if name.startswith("."):
                continue
            if entry.is_dir():
                if key > after or after.startswith(key):
                    yield from self._walk(key.rstrip("/"), "", after)
            elif key > after and name.startswith(start):
                try:
                    info = entry.stat()
                except FileNotFoundError:
                    continue
                yield ObjectInfo(key, info.st_size, info.st_mtime)


def _umask() -> int:
    value = os.umask(0o077)
    os.umask(value)
    return value


def _store_error(error: OSError) -> StoreError:
    remedy = {
        errno.ENOSPC: "free some space on the store's disk and repeat the command",
        errno.EDQUOT: "free some of your quota and repeat the command",
        errno.EACCES: "ask for write access, or give another directory with --store",
        errno.EROFS: "give another directory with --store",
    }.get(error.errno or 0, "")
    name = error.filename or ""
    return StoreError(f"the store failed: {error.strerror} {name}".rstrip(), remedy)
