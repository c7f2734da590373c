"""What the kernel counted of out-of-memory kills, where this process may read it."""

from __future__ import annotations

import os


def oom_kills() -> int:
    """Return how many processes of our cgroup were killed for lack of memory; 0 if unknown."""
    for path in _candidates():
        try:
            with open(path, encoding="ascii") as file:
                for line in file:
                    name, _, value = line.partition(" ")
                    if name == "oom_kill":
                        return int(value)
        except (OSError, ValueError):
            continue
    return 0


def _candidates() -> list[str]:
    paths = []
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                _, controllers, group = line.rstrip("\n").split(":", 2)
                if not controllers:
                    paths.append(os.path.join("/sys/fs/cgroup", group[1:], "memory.events"))
                elif "memory" in controllers.split(","):
                    base = os.path.join("/sys/fs/cgroup/memory", group[1:])
                    paths.append(os.path.join(base, "memory.oom_control"))
    except (OSError, ValueError):
        pass
    # In a container the path is often that of the host, and the group itself is the mount.
    return [*paths, "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"]
