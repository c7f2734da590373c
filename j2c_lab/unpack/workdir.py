"""The run's directory on this machine: made clean, locked, and removed."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import NamedTuple

from j2c_lab.errors import UnpackError

#: Seconds to wait for the workers of a killed attempt to end.
_LOCK_WAIT = 5.0
_MOST_BESIDE = 100
_SPOOL = "spool"


class RunDirectory(NamedTuple):
    """`lock` is a descriptor; whoever holds it (workers too) keeps other attempts out."""

    path: str
    lock: int

    @property
    def spool(self) -> Path:
        """Where journals wait; survives the next attempt until it has been delivered."""
        return Path(self.path, _SPOOL)


def take_run_directory(workdir: str, run_id: str) -> RunDirectory:
    """Make `<workdir>/<run id>`, private and empty but for undelivered journals, and lock it.

    While another attempt of the same run lives in it, `<run id>.2` and so on are taken.

    Raises
    ------
    UnpackError
        The directory cannot be made.
    """
    wait = _LOCK_WAIT
    for number in range(1, _MOST_BESIDE):
        path = os.path.join(workdir, run_id if number == 1 else f"{run_id}.{number}")
        try:
            lock = _lock(path, wait)
            if lock is None:
                wait = 0
                continue
            clean(path)
        except OSError as error:
            raise UnpackError(
                f"cannot work in {path}: {error.strerror}",
                "give a writable directory with --workdir, or set TMPDIR",
            ) from error
        return RunDirectory(path, lock)
    raise UnpackError(f"too many attempts of this run are at work in {workdir}")


def run_directories(workdir: str, run_id: str) -> list[str]:
    """Return the directories that attempts of the run have left in `workdir`."""
    names = [run_id, *(f"{run_id}.{number}" for number in range(2, _MOST_BESIDE))]
    return [path for name in names if os.path.isdir(path := os.path.join(workdir, name))]


def try_lock(path: str) -> int | None:
    """Lock a run's directory that is there; None when an attempt lives in it."""
    return _lock(path, 0)


def clean(path: str) -> None:
    """Remove everything that an earlier attempt left, but for journals that wait."""
    import shutil  # 8 ms, and mostly there is nothing to remove

    for entry in list(os.scandir(path)):
        if entry.name == _SPOOL:
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def _lock(path: str, wait: float) -> int | None:
    until = time.monotonic() + wait
    while True:
        descriptor = _lock_once(path)
        if descriptor is None:
            if time.monotonic() >= until:
                return None
            time.sleep(0.05)
        elif _is_at(path, descriptor):
            return descriptor
        else:
            # The attempt that lived here ended meanwhile, and removed it: what is locked now has
            # no name any more, and a new directory is made.
            os.close(descriptor)


def _lock_once(path: str) -> int | None:
    """Make the directory if it is not there, and lock it; None when another holds the lock."""
    import fcntl

    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        pass  # No locks on this file system: the scheduler starts one attempt at a time anyway.
    return descriptor


def _open(path: str) -> int:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    while True:
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not _is_own(path):
                raise UnpackError(
                    f"{path} belongs to somebody else", "give another --workdir"
                ) from None
        try:
            # The directory itself is locked: a file in it could be removed by the run.
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # Removed since, by the attempt that lived in it.


def _is_own(path: str) -> bool:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return True
    return not stat.S_ISLNK(status.st_mode) and status.st_uid == os.geteuid()


def _is_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
