"""Which process is meant: a number that the system may give again, its start time, and the boot."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from typing import NamedTuple


class ProcessMark(NamedTuple):
    """A process, told apart from all later ones with the same number."""

    pid: int
    #: The system's own notation; only ever compared.
    start: str
    #: The machine's boot and the container in it.
    boot: str


def mark_of(pid: int | None = None) -> ProcessMark:
    """Return the mark of a living process, by default of this one; `start` is empty if unknown."""
    pid = os.getpid() if pid is None else pid
    return ProcessMark(pid, _start_time(pid) or "", boot_mark())


def is_alive(mark: ProcessMark) -> bool:
    """Whether that very process still runs (a zombie does not)."""
    return mark.boot == boot_mark() and mark.start != "" and _start_time(mark.pid) == mark.start


@functools.cache
def boot_mark() -> str:
    """Return what differs after each boot of the machine, and between containers on it."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        pass
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"
    return "unknown"


def _start_time(pid: int) -> str | None:
    if os.path.exists("/proc/self/stat"):
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                # The name in parentheses may hold spaces and parentheses itself.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            return None
        return None if fields[0] in (b"Z", b"X") else fields[19].decode()
    command = ["ps", "-o", "lstart=,stat=", "-p", str(pid)]
    answer = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    start, _, state = answer.rpartition(" ")
    return None if not answer or state.startswith("Z") else start.strip()
