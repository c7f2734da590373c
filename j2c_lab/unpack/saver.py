"""Outputs saved while the run goes on, so that a lost node costs minutes and not the run.

A file is copied and hashed in one pass, and the copy is sent: what is stored under a digest has
that digest, whatever the run does to its file meanwhile. A file that changed under the copy is
passed over, and what was saved of it before stays: half a checkpoint is never saved.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from j2c_lab.errors import J2CError
from j2c_lab.formats.paths import to_text
from j2c_lab.formats.run import OutputFile
from j2c_lab.unpack.outputs import Found

_PIECE = 1 << 20
#: Bytes of the disk that copies leave to the run.
_KEEP_FREE = 1 << 30
#: Nanoseconds for which a file must have been left alone before its hash is remembered: a change
#: within the file system's clock grain would not show.
_SETTLED = 2_000_000_000
#: Seconds that the end of the run waits for a save that is going on.
_STOP = 2.0


class _Changed(Exception):
    """The file was written to while it was copied."""


class _Stop(Exception):
    """The run has ended."""


class Known(NamedTuple):
    """A file that was saved, and how it looked then."""

    looks: tuple[int, ...]
    file: OutputFile


class Saver:
    """Saves outputs every `interval` seconds in a thread of its own, between start and stop.

    Parameters
    ----------
    find : callable
        Returns the files to save.
    put : callable
        Sends a file, given its SHA-256 and path, which is the callee's afterwards; may raise
        `J2CError`.
    publish : callable
        Writes down what is saved now.
    told : callable
        Is given the number of files and bytes that are saved now, and how many of the files could
        not be saved this time.
    directory : str
        A private directory for copies.
    interval : float
        Seconds.
    """

    def __init__(
        self,
        find: Callable[[], list[Found]],
        put: Callable[[str, Path], None],
        publish: Callable[[list[OutputFile]], None],
        told: Callable[[int, int, int], None],
        directory: str,
        interval: float,
    ) -> None:
        self._find = find
        self._put = put
        self._publish = publish
        self._told = told
        self._directory = os.fsencode(directory)
        self._interval = interval
        self._known: dict[bytes, Known] = {}
        self._published: list[OutputFile] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="j2c-saver", daemon=True)

    def start(self) -> None:
        """Begin; the first save comes after one interval."""
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        self._thread.start()

    def stop(self) -> None:
        """End; a save that is going on is broken off and leaves the one before it standing."""
        self._stop.set()
        self._thread.join(_STOP)

    def save(self) -> None:
        """Save now what has changed since the last time."""
        saved: list[OutputFile] = []
        missed = 0
        for name, path in self._find():
            file = None
            try:
                file = self._save_one(name, path)
            except (J2CError, OSError, _Changed):
                missed += 1
                if name in self._known:
                    file = self._known[name].file
            if file is not None:
                saved.append(file)
        self._check()
        # A run that has deleted everything does not take its last saved state along.
        if saved and saved != self._published:
            self._publish(saved)
            self._published = saved
            self._told(len(saved), sum(file.size for file in saved), missed)

    def _serve(self) -> None:
        if sys.platform.startswith("linux"):
            # On Linux this is the thread's own: the run comes first.
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        while not self._stop.wait(self._interval):
            try:
                self.save()
            except _Stop:
                return
            except (J2CError, OSError):
                continue  # The store is away, say: the next time comes.

    def _save_one(self, name: bytes, path: bytes) -> OutputFile:
        self._check()
        known = self._known.get(name)
        began = time.time_ns()
        if known is not None and known.looks == _looks(os.stat(path)):
            return known.file
        copy = os.path.join(self._directory, b"copy")
        try:
            looks, file = self._copy(name, path, copy)
            self._put(file.sha256, Path(os.fsdecode(copy)))
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(copy)
        if max(looks[3:]) > began - _SETTLED:
            looks = ()
        self._known[name] = Known(looks, file)
        return file

    def _copy(self, name: bytes, path: bytes, copy: bytes) -> tuple[tuple[int, ...], OutputFile]:
        content = hashlib.sha256()
        with open(path, "rb", buffering=0) as source, open(copy, "wb") as target:
            before = os.fstat(source.fileno())
            disk = os.fstatvfs(target.fileno())
            if disk.f_bavail * disk.f_frsize < before.st_size + _KEEP_FREE:
                raise OSError(28, "no space for a copy", path)
            size = 0
            while piece := source.read(_PIECE):
                self._check()
                content.update(piece)
                target.write(piece)
                size += len(piece)
            after = os.fstat(source.fileno())
        if _looks(before) != _looks(after) or size != after.st_size:
            raise _Changed
        return _looks(after), OutputFile(
            path=to_text(name),
            size=size,
            sha256=content.hexdigest(),
            executable=bool(after.st_mode & 0o100),
        )

    def _check(self) -> None:
        if self._stop.is_set():
            raise _Stop


def _looks(status: os.stat_result) -> tuple[int, ...]:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
