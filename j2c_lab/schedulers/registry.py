"""From a name to a scheduler. Others come in by the entry point group `j2c_lab.schedulers`."""

from __future__ import annotations

from collections.abc import Mapping

from j2c_lab.errors import UsageError
from j2c_lab.schedulers.base import Scheduler

GROUP = "j2c_lab.schedulers"


def open_scheduler(name: str, environ: Mapping[str, str] | None = None) -> Scheduler:
    """Open the scheduler of that name; its class is called with the submitter's environment.

    Raises
    ------
    UsageError
        There is none of that name.
    """
    # Ours without reading every installed package's metadata (50 ms).
    if name == "local":
        from j2c_lab.schedulers.local import LocalScheduler

        return LocalScheduler(environ)
    if name == "slurm":
        from j2c_lab.schedulers.slurm import SlurmScheduler

        return SlurmScheduler(environ)
    from importlib.metadata import entry_points

    found = entry_points(group=GROUP)
    for entry in found:
        if entry.name == name:
            scheduler: Scheduler = entry.load()(environ)
            return scheduler
    known = ", ".join(sorted({"local", "slurm", *(entry.name for entry in found)}))
    raise UsageError(f"there is no scheduler {name!r}", f"give one of: {known}")
