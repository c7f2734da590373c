"""One job of the local scheduler: runs its command and writes down how it ended.

A process of its own, in its own session, so that the job and the record of its end outlive the
supervisor, the terminal, the notebook and the lab. On Linux it adopts what the command leaves
behind and ends that too: when the job is over, nothing of it runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from j2c_lab.schedulers.local_state import LocalState, read, write_once
from j2c_lab.schedulers.processes import mark_of


def main(directory: str, gpus: list[str]) -> None:
    """Run the job in `directory` on these GPUs, unless another runner or a cancel was first."""
    path = Path(directory)
    job = read(path / "job.json")
    if job is None:
        return
    runner = _Runner(path, job, gpus)
    # Before the start is told, so that whoever reads it can already send the signal.
    signal.signal(signal.SIGTERM, runner.on_term)
    signal.signal(signal.SIGALRM, runner.on_alarm)
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    start = {"process": mark_of(), "gpus": gpus, "at": time.time()}
    if write_once(path / "start.json", start):
        end = runner.run()
        write_once(path / "end.json", {**end, "at": time.time()})
        LocalState(path.parent.parent).wake()


class _Runner:
    def __init__(self, path: Path, job: dict[str, Any], gpus: list[str]) -> None:
        self._path = path
        self._job = job
        self._gpus = gpus
        self._child = 0
        self._ended = False
        self._ending = False
        self._reason = ""

    def run(self) -> dict[str, Any]:
        if (self._path / "cancel").exists() or self._ending:
            return {"code": None, "reason": "cancelled before it began"}
        _adopt_orphans()
        # Blocked until the child's number is known: a signal in between would go to nobody.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        self._child = os.fork()
        if self._child == 0:
            self._execute()
        if self._job.get("time"):
            signal.alarm(max(1, int(self._job["time"])))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        status = _wait(self._child)
        self._ended = True
        signal.alarm(0)
        _end_descendants()
        code = os.waitstatus_to_exitcode(status)
        return {"code": code if code >= 0 else 128 - code, "reason": self._reason}

    def on_term(self, number: int, frame: FrameType | None) -> None:
        self._end("")

    def on_alarm(self, number: int, frame: FrameType | None) -> None:
        if self._ending:
            # What the command leaves behind comes to this process, and `run` ends it.
            self._signal(signal.SIGKILL)
        else:
            self._end(f"the time limit of {_duration(int(self._job['time']))} was reached")

    def _end(self, reason: str) -> None:
        """Ask the command to end, and make it end when it has had its time for saving outputs."""
        if not self._ending:
            self._ending = True
            self._reason = reason
            signal.alarm(max(1, int(self._job.get("kill_after", 600))))
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        if self._child and not self._ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, number)

    def _inherited(self) -> dict[str, str]:
        """Take what the job inherits: from here on only the process itself has it."""
        path = self._path / "environ.json"
        inherited = read(path) or {}
        path.unlink(missing_ok=True)
        return inherited

    def _execute(self) -> NoReturn:
        """In the child: become the command."""
        try:
            # The child itself says its number, before the command begins: no moment is left in
            # which a killed runner leaves a command that nobody knows of.
            write_once(self._path / "child.json", {"process": mark_of()})
            for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            log = os.open(self._path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            null = os.open(os.devnull, os.O_RDONLY)
            for descriptor, target in ((null, 0), (log, 1), (log, 2)):
                os.dup2(descriptor, target)
            # The submitter's, not that of whoever happened to start the supervisor.
            os.umask(self._job.get("umask", 0o077))
            os.chdir(self._job["cwd"])
            env = {
                **self._inherited(),
                **self._job["env"],
                "CUDA_VISIBLE_DEVICES": ",".join(self._gpus),
            }
            command = self._job["command"]
            os.execvpe(command[0], command, env)  # noqa: S606
        except BaseException as error:
            os.write(2, f"j2c: the command cannot be started: {error}\n".encode())
        os._exit(127)


def _wait(child: int) -> int:
    """Reap everything adopted until the child itself has ended; its status."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return status


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        import ctypes

        set_child_subreaper = 36  # PR_SET_CHILD_SUBREAPER, prctl(2)
        ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)


def _end_descendants() -> None:
    """Kill all processes below this one; those that fork meanwhile are found again."""
    for _ in range(100):
        children = _children()
        if not children:
            return
        for pid in children:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _duration(seconds: int) -> str:
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "m"), (seconds, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"
