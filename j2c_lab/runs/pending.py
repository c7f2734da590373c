"""Requests that a process here is at work on: so that a killed one is gone on with.

One small file for each, in the user's state directory, removed when the user has been told that
the run is submitted. The same request made again finds the file of a process that is dead and
takes over its run id; two of the same at once are two runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from j2c_lab.errors import J2CError
from j2c_lab.homes import user_directory
from j2c_lab.schedulers.processes import ProcessMark, is_alive, mark_of

#: A request that was interrupted longer ago than this is not taken up by itself: by then the same
#: command means a new run. `j2c resume` takes up any.
_TAKEN_UP_FOR = 86400.0


class Pending:
    """The directory of these files.

    Parameters
    ----------
    environ : mapping
        Where `XDG_STATE_HOME` and `HOME` are looked up.
    store_url : str
        Runs of other stores are nobody's business here.
    """

    def __init__(self, environ: Mapping[str, str], store_url: str) -> None:
        self._directory = Path(user_directory("XDG_STATE_HOME", environ), "j2c", "pending")
        self._store_url = store_url

    def claim(self, fingerprint: str, new_id: str) -> str:
        """Return the id of an interrupted request with this fingerprint, else `new_id`.

        Either way it is this process's now.

        Raises
        ------
        J2CError
            It cannot be written down.
        """
        with self._locked():
            for path, mark in self._all():
                values = mark["fingerprint"], mark["store"]
                if values == (fingerprint, self._store_url) and not _working(mark):
                    self._write(path.stem, fingerprint)
                    return path.stem
            self._write(new_id, fingerprint)
            return new_id

    def take_over(self, run_id: str, fingerprint: str) -> None:
        """Make a request this process's, whoever had it; raises as `claim`."""
        with self._locked():
            self._write(run_id, fingerprint)

    def release(self, run_id: str) -> None:
        """Forget a request: it has been told that its run is submitted."""
        with contextlib.suppress(OSError):
            (self._directory / f"{run_id}.json").unlink()

    def is_worked_on(self, run_id: str) -> bool:
        """Whether a living process here works on the request."""
        mark = _read(self._directory / f"{run_id}.json")
        return mark is not None and _working(mark)

    def _all(self) -> list[tuple[Path, dict[str, str]]]:
        found = []
        for path in sorted(self._directory.glob("*.json"), reverse=True):
            mark = _read(path)
            if mark is None:
                continue
            if time.time() - path.stat().st_mtime > _TAKEN_UP_FOR and not _working(mark):
                path.unlink(missing_ok=True)
                continue
            found.append((path, mark))
        return found

    def _write(self, run_id: str, fingerprint: str) -> None:
        value = {"fingerprint": fingerprint, "store": self._store_url, "process": mark_of()}
        temporary = self._directory / f".{os.getpid()}"
        temporary.write_text(json.dumps(value))
        temporary.replace(self._directory / f"{run_id}.json")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)
        except OSError as error:
            raise J2CError(
                f"the run cannot be noted in {self._directory}: {error.strerror}",
                "make room for it there, or set XDG_STATE_HOME to a directory you can write to",
            ) from error


def _read(path: Path) -> dict[str, str] | None:
    try:
        value: dict[str, str] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return value


def _working(mark: Mapping[str, object]) -> bool:
    process = ProcessMark(*mark["process"])  # type: ignore[misc]
    # A process may take up its own request again: a notebook's kernel submits many times.
    return process.pid != os.getpid() and is_alive(process)
