"""The peak memory of a whole tree of processes."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import Command, environment

_SECONDS_BETWEEN_LOOKS = 0.02


class Peak(NamedTuple):
    """Peaks over time of sums over all processes of the tree, in bytes.

    `pss` counts a page that n processes share as 1/n in each: the memory the tree really takes.
    `rss` counts it n times.
    """

    pss: int
    rss: int
    processes: int
    seconds: float


def peak_of(command: Command) -> Peak:
    """Run once, looking at all its processes many times a second (Linux only).

    Raises
    ------
    RuntimeError
        It exited with an error.
    """
    command.before()
    pss = rss = most = 0
    start = time.monotonic()
    with open(command.output or os.devnull, "wb") as output:
        process = subprocess.Popen(
            command.argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            env=environment(command),
        )
        while process.poll() is None:
            members = _tree(process.pid)
            sums = [_memory(pid) for pid in members]
            pss = max(pss, sum(found[0] for found in sums))
            rss = max(rss, sum(found[1] for found in sums))
            most = max(most, len(members))
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    if process.returncode:
        raise RuntimeError(f"{command.name} exited with {process.returncode}")
    return Peak(pss, rss, most, time.monotonic() - start)


def _tree(root: int) -> list[int]:
    """The process and its descendants."""
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return found


def _memory(pid: int) -> tuple[int, int]:
    """Proportional and resident set size."""
    pss = rss = 0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                pss = int(line.split()[1]) * 1024
            elif line.startswith("Rss:"):
                rss = int(line.split()[1]) * 1024
    except OSError:
        pass
    return pss, rss
