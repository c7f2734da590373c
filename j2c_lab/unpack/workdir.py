"""The run's directory on this machine: made clean, locked, and removed."""

from __future__ import annotations

import os
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
    import fcntl

    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if os.path.islink(path) or os.lstat(path).st_uid != os.geteuid():
            raise UnpackError(
                f"{path} belongs to somebody else", "give another --workdir"
            ) from None
    # The directory itself is locked: a file in it could be removed by the run.
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    until = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() >= until:
                os.close(descriptor)
                return None
            time.sleep(0.05)
        except OSError:
            # No locks on this file system: the scheduler starts one attempt at a time anyway.
            return descriptor
