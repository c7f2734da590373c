"""Starts the local scheduler's jobs in turn. Lives as long as there is something to do.

Nothing is kept in its memory: killed at any moment and started again, it reads what is there. It
is started by whoever submits or looks, when none lives.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from j2c_lab.schedulers.local_state import (
    LocalState,
    process_in,
    read,
    runs_still,
    write_once,
)
from j2c_lab.schedulers.processes import boot_mark

#: Seconds after which it looks, should nobody have woken it: for jobs whose runner was killed.
_LOOK_EVERY = 2.0
#: Seconds without a job before it ends.
_LINGER = 3.0
_KEEP_DONE = 90 * 86400.0

LOST = "its processes disappeared: somebody killed them, or the machine was out of memory"
REBOOTED = "the machine restarted while it ran"


def ensure(state: LocalState) -> None:
    """Start a supervisor unless one lives; it looks at the queue either way."""
    lock = state.try_supervise()
    if lock is None:
        state.wake()
        return
    os.close(lock)
    spawn("local_supervisor", str(state.directory)).wait()


def spawn(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start `main(*arguments)` of a module beside this one, cut off from terminal and session.

    Without `site`, to start in 20 ms; only the standard library and these modules are needed.
    """
    root = str(Path(__file__).parents[2])
    code = (
        f"import sys, json; sys.path.append({root!r}); "
        f"from j2c_lab.schedulers.{module} import main; main(*json.loads(sys.argv[1]))"
    )
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code, json.dumps(arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def main(directory: str) -> None:
    """Become the supervisor of that state directory, or end when there is one."""
    # The starter waits for this process alone and need not reap the one that stays.
    if os.fork():
        os._exit(0)
    state = LocalState(Path(directory))
    wake = state.open_wake()
    while True:
        lock = state.try_supervise()
        if lock is None:
            return
        _supervise(state, wake)
        os.close(lock)
        # Who added a job while the lock was still held has started nobody: look once more.
        if not state.queue():
            return


def step(state: LocalState) -> bool:
    """Look at every active job once, start those whose turn it is; whether any is active."""
    capacity = read(state.directory / "capacity.json") or {"cpus": 1, "gpus": []}
    free_cpus, free_gpus = capacity["cpus"], list(capacity["gpus"])
    waiting = []
    active = False
    for path in state.queue():
        start = read(path / "start.json")
        if settle(path, start):
            state.finish(path)
        elif start is None:
            waiting.append(path)
        else:
            active = True
            free_cpus -= _job(path)["cpus"]
            free_gpus = [gpu for gpu in free_gpus if gpu not in start["gpus"]]
    for path in waiting:
        active = True
        job = _job(path)
        # Strictly in turn: a small job never overtakes, so a big one gets its turn for certain.
        if job["cpus"] > free_cpus or job["gpus"] > len(free_gpus):
            break
        free_cpus -= job["cpus"]
        gpus, free_gpus = free_gpus[: job["gpus"]], free_gpus[job["gpus"] :]
        _start(path, gpus)
    return active


def settle(path: Path, start: dict[str, Any] | None) -> bool:
    """Whether the job has ended; writes down the end of one that could not do it itself."""
    if (path / "end.json").exists():
        return True
    if start is None:
        return False
    if start.get("cancelled"):
        end = {"code": None, "reason": "cancelled while it waited", "at": time.time()}
    elif runs_still(path):
        return False
    else:
        process = process_in(path / "start.json")
        rebooted = process is not None and process.boot != boot_mark()
        end = {"code": None, "reason": REBOOTED if rebooted else LOST, "at": time.time()}
    # The runner may have written the true end between the two looks; then that stays.
    write_once(path / "end.json", end)
    return True


def _supervise(state: LocalState, wake: int) -> None:
    idle_since = time.monotonic()
    _tidy(state)
    while True:
        if step(state):
            idle_since = time.monotonic()
        elif time.monotonic() - idle_since > _LINGER:
            return
        select.select([wake], [], [], _LOOK_EVERY)
        with contextlib.suppress(BlockingIOError):
            os.read(wake, 4096)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _start(path: Path, gpus: list[str]) -> None:
    """Start the job's runner, and wait until it has said so: then it counts as running."""
    runner = spawn("local_runner", str(path), gpus)  # type: ignore[arg-type]
    while not (path / "start.json").exists():
        if runner.poll() is not None:
            return
        time.sleep(0.005)
    # Reaped by the loop's waitpid, not by the object.
    runner.returncode = 0


def _tidy(state: LocalState) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    state.prune(time.time() - _KEEP_DONE)


def _job(path: Path) -> dict[str, Any]:
    return read(path / "job.json") or {"cpus": 0, "gpus": 0}
