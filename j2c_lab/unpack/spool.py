"""Journal records on disk until the store has them.

The spool is a row of files `<number>-<at>.records` (those of the first
record), each a whole number of encoded records; files
whose records have arrived are deleted. One thread appends, another reads and forgets.

A run may delete its own directory (`rm -rf $TMPDIR/*`), and this one with it: the files that are
most likely to be needed are held open, and new ones are made in a new directory.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from pathlib import Path
from typing import NamedTuple

#: A file takes no more records past this: the grain in which space is given back.
_FILE_SIZE = 1 << 20
#: So many files are held open, and no more: a process has a limit for them.
_HELD = 32
#: Most bytes that one segment takes when much is waiting.
BURST = 4 << 20


class Mark(NamedTuple):
    """A place between two records: bytes before it, and the next record's `n` and `at`."""

    position: int
    number: int
    at: int


class _File:
    def __init__(self, path: Path, start: Mark) -> None:
        self.path = path
        self.start = start
        #: -1 once it is not held open any more.
        self.descriptor = -1

    def open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self.descriptor = os.open(self.path, flags, 0o600)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def read(self, skip: int, size: int) -> bytes:
        if self.descriptor >= 0:
            return _read(self.descriptor, skip, size)
        with open(self.path, "rb", buffering=0) as opened:
            return _read(opened.fileno(), skip, size)


class Spool:
    """Appends never wait for the store; `waiting` tells how much it lacks.

    Parameters
    ----------
    directory : Path
        Made if it is not there.
    number, at : int
        Those of the first record to come.
    """

    def __init__(self, directory: Path, number: int = 1, at: int = 0) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._files: deque[_File] = deque()
        self._end = self._kept = Mark(0, number, at)
        #: The file that grows.
        self._open: _File | None = None
        self._file_size = 0

    @property
    def end(self) -> Mark:
        """The place after the last record."""
        with self._lock:
            return self._end

    @property
    def start(self) -> Mark:
        """The place before which nothing is kept."""
        with self._lock:
            return self._kept

    @property
    def waiting(self) -> int:
        """Bytes that the store lacks."""
        with self._lock:
            return self._end.position - self._kept.position

    def append(self, encoded: bytes, at: int) -> None:
        """Append one record, after which the log has `at` bytes.

        Raises
        ------
        OSError
            The disk is full; nothing of the record was kept.
        """
        if self._open is None or self._file_size >= _FILE_SIZE:
            self._open = self._open_next()
            self._file_size = 0
        size = self._file_size
        try:
            view = memoryview(encoded)
            while view:
                view = view[os.pwrite(self._open.descriptor, view, size) :]
                size = self._file_size + len(encoded) - len(view)
        except OSError:
            os.ftruncate(self._open.descriptor, self._file_size)
            raise
        self._file_size += len(encoded)
        with self._lock:
            end = self._end
            self._end = Mark(end.position + len(encoded), end.number + 1, at)

    def until(self, start: Mark) -> Mark:
        """Return how far a segment that begins at `start` can go: all, or about `BURST` bytes."""
        with self._lock:
            if self._end.position - start.position <= BURST:
                return self._end
            reach = [file.start for file in self._files if file.start.position > start.position]
            within = [mark for mark in reach if mark.position - start.position <= BURST]
            # A file is a little over its size at most, unless one record is as large as that.
            return within[-1] if within else (reach[0] if reach else self._end)

    def read(self, start: Mark, end: Mark) -> bytes:
        """Return the bytes between two marks.

        Raises
        ------
        OSError
            They are gone: somebody deleted files of the spool that were not held open.
        """
        parts = []
        # Under the lock, since a file may stop being held open at any moment.
        with self._lock:
            files = [f for f in self._files if f.start.position < end.position]
            for index, file in enumerate(files):
                stop = files[index + 1].start.position if index + 1 < len(files) else end.position
                if stop <= start.position:
                    continue
                skip = max(start.position - file.start.position, 0)
                parts.append(file.read(skip, stop - file.start.position - skip))
        return b"".join(parts)

    def forget(self, mark: Mark) -> None:
        """Give back the space of what lies before `mark`: the store has it."""
        with self._lock:
            self._kept = mark
            gone = []
            while len(self._files) > 1 and self._files[1].start.position <= mark.position:
                gone.append(self._files.popleft())
            for file in gone:
                file.close()
        for file in gone:
            file.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close what is open; nothing can be appended any more."""
        with self._lock:
            for file in self._files:
                file.close()
        self._open = None

    def remove(self) -> None:
        """Delete all files and the directory: everything has arrived."""
        self.close()
        with self._lock:
            files = list(self._files)
            self._files.clear()
        for file in files:
            file.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.directory.rmdir()

    def _open_next(self) -> _File:
        path = self.directory / f"{self._end.number:012d}-{self._end.at}.records"
        file = _File(path, self._end)
        try:
            file.open()
        except FileNotFoundError:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.open()
        with self._lock:
            self._files.append(file)
            # The first ones are read next, the last one grows.
            if len(self._files) > _HELD:
                self._files[-2].close()
        return file


def spooled_files(directory: Path) -> list[Path]:
    """Return the files of a spool that a process left behind, in order."""
    return sorted(directory.glob("*.records"))


def spooled_start(path: Path) -> tuple[int, int]:
    """Return the number of a spool file's first record, and the log bytes before it."""
    number, _, at = path.stem.partition("-")
    return int(number), int(at)


def _read(descriptor: int, start: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.pread(descriptor, size, start)
        if not part:
            raise OSError(5, "the journal's spool was cut short")
        parts.append(part)
        start += len(part)
        size -= len(part)
    return b"".join(parts)
