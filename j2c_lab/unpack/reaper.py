"""Processes that the run leaves behind: found, ended, and reaped."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36
_PAUSE = 0.02


def become_subreaper() -> None:
    """Let orphans below this process become its children, where the kernel can (Linux)."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap() -> dict[int, int]:
    """Return the wait status of each child that ended, by its pid; never waits."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            ended[pid] = status
    return ended


def end_group(group: int, grace: float) -> bool:
    """End what is left of a process group and of our own descendants: TERM, then KILL.

    Parameters
    ----------
    group : int
        The process group.
    grace : float
        Seconds between the two signals.

    Returns
    -------
    bool
        Whether anything was left.
    """
    reap()
    if not _alive(group):
        return False
    _signal_all(group, signal.SIGTERM)
    until = time.monotonic() + grace
    while time.monotonic() < until:
        reap()
        if not _alive(group):
            return True
        time.sleep(_PAUSE)
    _signal_all(group, signal.SIGKILL)
    until = time.monotonic() + 1
    while time.monotonic() < until and _alive(group):
        reap()
        time.sleep(_PAUSE)
    return True


def descendants() -> list[int]:
    """Return the processes below this one, where /proc tells; those of the run's daemons too."""
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        pid = todo.pop()
        for task in _listdir(f"/proc/{pid}/task"):
            try:
                with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                    children = [int(child) for child in file.read().split()]
            except (OSError, ValueError):
                continue
            found += children
            todo += children
    return found


def signal_group(group: int, number: int) -> None:
    """Send a signal to a process group that may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _signal_all(group: int, number: int) -> None:
    signal_group(group, number)
    for pid in descendants():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
        return True
    except ProcessLookupError:
        return bool(descendants())
    except PermissionError:
        return True


def _listdir(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []
