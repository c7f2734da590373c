"""This machine as the cluster: a queue without a daemon, kept in a directory.

See `local_state` for what is on disk, `local_supervisor` for who starts jobs, `local_runner` for
the process that a job is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from j2c_lab.errors import NotFoundError, SchedulerError, UsageError
from j2c_lab.formats.run import Job
from j2c_lab.homes import user_directory
from j2c_lab.schedulers import local_supervisor
from j2c_lab.schedulers.base import ENDED, PENDING, RUNNING, UNKNOWN, JobState
from j2c_lab.schedulers.local_machine import Capacity, discover, job_environment
from j2c_lab.schedulers.local_state import (
    LocalState,
    process_in,
    read,
    runs_still,
    write_once,
)
from j2c_lab.schedulers.processes import is_alive

#: A longer log of a job is shown from its end.
_LOG_SHOWN = 1 << 20


class LocalScheduler:
    """See `schedulers.base.Scheduler`.

    Parameters
    ----------
    environ : mapping, optional
        The submitter's environment. `J2C_LOCAL_CPUS` and `J2C_LOCAL_GPUS` say what the machine
        gives to jobs; `J2C_LOCAL_PASS` names variables that jobs inherit besides the usual ones,
        with commas between (`LD_LIBRARY_PATH` is not inherited unless named here).
    """

    name = "local"

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self._directory = Path(user_directory("XDG_STATE_HOME", self._environ), "j2c", "local")
        self._kill_after = int(self._environ.get("J2C_LOCAL_KILL_AFTER") or 600)

    def check(self, job: Job) -> None:
        asked = job.resources
        has = self._capacity()
        wants = [
            (asked.gpus > len(has.gpus), f"{asked.gpus} GPUs", f"{len(has.gpus)}", "--gpus"),
            ((asked.cpus or 0) > has.cpus, f"{asked.cpus} CPUs", f"{has.cpus}", "--cpus"),
            (asked.nodes > 1, f"{asked.nodes} nodes", "1", "--nodes"),
            (
                has.memory is not None and (asked.memory or 0) > has.memory,
                f"{_gigabytes(asked.memory)} of memory",
                _gigabytes(has.memory),
                "--memory",
            ),
        ]
        for too_much, want, there, option in wants:
            if too_much:
                raise UsageError(
                    f"the run asks for {want}, this machine has {there}",
                    f"give a smaller {option}, or another --scheduler",
                )

    def render(self, job: Job) -> dict[str, Any]:
        # Variables by name alone: a dry run is shown around, and these hold credentials.
        inherited = sorted(job_environment(self._environ, self._passed()))
        return {
            "handle": _handle(job.run_id, job.submission),
            "command": _command(job),
            "env": job.env,
            "inherited": inherited,
            **self._needs(job),
        }

    async def submit(self, job: Job) -> str:
        self.check(job)
        handle = _handle(job.run_id, job.submission)
        try:
            state = LocalState(self._directory)
            self._tell_capacity()
            state.add(
                handle,
                {
                    "submitted_ns": time.time_ns(),
                    "command": _command(job),
                    "cwd": str(state.directory),
                    "env": job.env,
                    "umask": _umask(),
                    "kill_after": self._kill_after,
                    "job": job.to_dict(),
                    **self._needs(job),
                },
                job_environment(self._environ, self._passed()),
            )
            local_supervisor.ensure(state)
        except OSError as error:
            raise SchedulerError(
                f"the job cannot be queued in {self._directory}: {error.strerror}",
                "free some space there, or set XDG_STATE_HOME to another directory",
            ) from error
        return handle

    async def find(self, run_id: str, submission: int = 1) -> str | None:
        if not self._directory.exists():
            return None
        handle = _handle(run_id, submission)
        return handle if LocalState(self._directory).find(handle) else None

    async def state(self, handle: str) -> JobState:
        if not self._directory.exists():
            return JobState(UNKNOWN, "this machine's local scheduler does not know it")
        state = LocalState(self._directory)
        while True:
            path = state.find(handle)
            if path is None:
                return JobState(UNKNOWN, "this machine's local scheduler does not know it")
            # It may move from active to done between two looks at it: then look again.
            with contextlib.suppress(FileNotFoundError):
                answer = self._look(state, path)
                if path.exists():
                    return answer

    async def cancel(self, handle: str) -> None:
        if not self._directory.exists():
            return
        state = LocalState(self._directory)
        path = state.find(handle)
        if path is None or (path / "end.json").exists():
            return
        with contextlib.suppress(FileNotFoundError):
            (path / "cancel").touch()
            if write_once(path / "start.json", {"cancelled": True, "at": time.time()}):
                local_supervisor.settle(path, {"cancelled": True})
        runner = process_in(path / "start.json")
        with contextlib.suppress(ProcessLookupError):
            if runner is not None and is_alive(runner):
                os.kill(runner.pid, signal.SIGTERM)
            elif (child := process_in(path / "child.json")) is not None and is_alive(child):
                os.kill(child.pid, signal.SIGTERM)
        local_supervisor.ensure(state)

    async def log(self, handle: str) -> bytes:
        path = LocalState(self._directory).find(handle)
        if path is None:
            raise NotFoundError(f"this machine's local scheduler does not know {handle}")
        return _tail(path / "log")

    def _look(self, state: LocalState, path: Path) -> JobState:
        end = read(path / "end.json")
        start = read(path / "start.json")
        if end is None and start is not None and not start.get("cancelled"):
            if runs_still(path):
                return JobState(RUNNING)
            end = read(path / "end.json")
        if end is None:
            # Somebody must move it on: after a reboot, or when the supervisor was killed.
            local_supervisor.ensure(state)
            if start is None:
                return JobState(PENDING, self._why_it_waits(state, path))
            local_supervisor.settle(path, start)
            end = read(path / "end.json") or {"code": None, "reason": local_supervisor.LOST}
        return JobState(ENDED, end["reason"], end["code"])

    def _why_it_waits(self, state: LocalState, path: Path) -> str:
        waiting = 0
        running = []
        for other in state.queue():
            if other == path:
                break
            needs = read(other / "job.json")
            if needs is None or (other / "end.json").exists():
                continue
            if (other / "start.json").exists():
                running.append(needs)
            else:
                waiting += 1
        if waiting:
            return f"{_count(waiting, 'run')} before it in this machine's queue"
        job = read(path / "job.json")
        if job is None:
            return ""
        has = self._capacity()
        for name, there, word in (("gpus", len(has.gpus), "GPU"), ("cpus", has.cpus, "CPU")):
            if job[name] > there - sum(needs[name] for needs in running):
                runs = _count(len(running), "other run")
                return f"waits for {_count(job[name], word)}: {runs} on this machine"
        return ""  # It has its place, and starts in a moment.

    def _capacity(self) -> Capacity:
        return discover(self._environ)

    def _tell_capacity(self) -> None:
        """Write down for the supervisor what it may give out."""
        value = dataclasses.asdict(self._capacity())
        path = self._directory / "capacity.json"
        if read(path) == value:
            return
        descriptor, temporary = tempfile.mkstemp(prefix=".", dir=self._directory)
        with open(descriptor, "w") as file:
            json.dump(value, file)
        os.replace(temporary, path)

    def _needs(self, job: Job) -> dict[str, Any]:
        return {
            "cpus": job.resources.cpus or 1,
            "gpus": job.resources.gpus,
            "time": job.resources.time,
        }

    def _passed(self) -> list[str]:
        return [name for name in self._environ.get("J2C_LOCAL_PASS", "").split(",") if name]


def _handle(run_id: str, submission: int) -> str:
    return run_id if submission == 1 else f"{run_id}.{submission}"


def _umask() -> int:
    # There is no asking without setting.
    value = os.umask(0o077)
    os.umask(value)
    return value


def _command(job: Job) -> list[str]:
    """`j2c` here is this very j2c, whatever PATH says."""
    if job.command[0] == "j2c":
        return [sys.executable, "-m", "j2c_lab", *job.command[1:]]
    return job.command


def _tail(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_SHOWN))
            return file.read()
    except FileNotFoundError:
        return b""


def _gigabytes(size: int | None) -> str:
    return f"{(size or 0) / (1 << 30):.3g}G"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
