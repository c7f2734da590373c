"""The local scheduler's memory: a directory for each job, below the user's state directory.

::

    active/<handle>/   a job that waits or runs      done/<handle>/   one that has ended
        job.json       what to run, and when it was submitted
        environ.json   what the job inherits of its submitter's environment, credentials too: only
                       the user may read it, and it is gone once the job has it, or has ended
        start.json     made once: the runner's process and the GPUs it got, or that the job was
                       cancelled before it began; whoever makes it decides
        child.json     the process of the command
        end.json       made once: how it ended
        cancel         somebody wants it to end
        log            what the command wrote itself
    lock               held for a moment by who submits, and by who moves a job to `done`
    supervisor.lock    held by the supervisor as long as it lives
    wake               a FIFO that ends the supervisor's sleep

Documents are written beside and linked into place, so they are whole or absent, and of many
writers one wins. Only the standard library is used: the supervisor starts in milliseconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from j2c_lab.schedulers.processes import ProcessMark, is_alive


class LocalState:
    """Opens the directory, making it when it is not there (only the user may read it)."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.active = directory / "active"
        self.done = directory / "done"
        for path in (directory, self.active, self.done):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def add(self, handle: str, job: dict[str, Any], inherited: dict[str, str]) -> bool:
        """Put a job into the queue, with what it inherits; False when it is known already."""
        with self.locked():
            if self.find(handle) is not None:
                return False
            temporary = Path(tempfile.mkdtemp(prefix=".", dir=self.directory))
            write_once(temporary / "environ.json", inherited)
            write_once(temporary / "job.json", job)
            os.rename(temporary, self.active / handle)
        return True

    def find(self, handle: str) -> Path | None:
        """Return the job's directory, wherever it is."""
        # A job moves from active to done only: looked for in this order and once more, it is seen.
        for parent in (self.active, self.done, self.active):
            if (parent / handle / "job.json").exists():
                return parent / handle
        return None

    def queue(self) -> list[Path]:
        """Return the directories of all active jobs, in the order they were submitted."""
        found = []
        for path in self.active.iterdir():
            job = read(path / "job.json")
            if job is not None:
                found.append((job["submitted_ns"], path.name, path))
        return [path for _, _, path in sorted(found)]

    def finish(self, path: Path) -> None:
        """Move an ended job to `done`."""
        with self.locked(), contextlib.suppress(FileNotFoundError):
            # Of a job that never began.
            (path / "environ.json").unlink(missing_ok=True)
            os.rename(path, self.done / path.name)

    def prune(self, before: float) -> None:
        """Forget jobs that ended before that time, in seconds since the epoch.

        And remove what submitters left that were killed in the middle of `add`, an hour ago.
        """
        old = [(path, before) for path in self.done.iterdir()]
        old += [(path, time.time() - 3600) for path in self.directory.glob(".*")]
        for path, limit in old:
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < limit:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock that makes adding and moving jobs one after the other."""
        descriptor = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def try_supervise(self) -> int | None:
        """Take the supervisor's lock; its descriptor, or None when another process has it."""
        path = self.directory / "supervisor.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor

    def open_wake(self) -> int:
        """Open the supervisor's end of the FIFO, making it when it is not there."""
        path = self.directory / "wake"
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def wake(self) -> None:
        """End the supervisor's sleep, if it lives."""
        with contextlib.suppress(OSError):
            descriptor = os.open(
                self.directory / "wake", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
            )
            try:
                os.write(descriptor, b"w")
            finally:
                os.close(descriptor)


def write_once(path: Path, value: dict[str, Any]) -> bool:
    """Write a document unless it is there; of many writers exactly one gets True.

    Raises `FileNotFoundError` when the job has been moved meanwhile.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with open(descriptor, "w") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(descriptor)
        os.link(temporary, path)
        return True
    except FileExistsError:
        return False
    finally:
        # Gone with its directory when the job was moved meanwhile.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def read(path: Path) -> dict[str, Any] | None:
    """Return a document, or None when it is not there."""
    try:
        with open(path) as file:
            value: dict[str, Any] = json.load(file)
            return value
    except FileNotFoundError:
        return None


def process_in(path: Path) -> ProcessMark | None:
    """Return the process that a `start.json` or `child.json` names."""
    value = read(path)
    return ProcessMark(*value["process"]) if value and value.get("process") else None


def runs_still(path: Path) -> bool:
    """Whether the job's runner or, should that have been killed, its command still lives."""
    return any(
        mark is not None and is_alive(mark)
        for mark in (process_in(path / "start.json"), process_in(path / "child.json"))
    )
