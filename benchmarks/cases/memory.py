"""Peak memory of both sides, with a file of 10 GB in the project."""

from __future__ import annotations

import random
from pathlib import Path

from benchmarks import ours
from benchmarks.harness import Case, Command, Row, megabytes
from benchmarks.memory import Peak, peak_of
from benchmarks.workspace import Workspace, make_project, remove

LIMIT = 300_000_000
SIZE = 10_000_000_000
#: One MiB that does not compress at the start of every 16: the rest is a hole.
_STRIDE = 16 << 20


def run(space: Workspace, repeats: int) -> list[Row]:
    """Pack, then unpack; memory is summed over all processes of the tree."""
    del repeats
    project = space.fresh("big-project")
    make_project(project)
    make_big_file(project / "checkpoint.bin")
    lab = ours.fresh_lab(space, "memory")
    workdir, cache = space.fresh("big-work"), space.fresh("big-cache")
    try:
        pack = lab.pack(project, space.venv)
        packing = peak_of(pack)
        bundle = lab.packed(project, space.venv)["bundle"]
        workdir.mkdir()
        unpack = ours.unpack(lab.run(bundle), workdir, cache)
        unpacking = peak_of(Command(name="j2c unpack", argv=unpack.argv))
    finally:
        for path in (project, workdir, cache):
            remove(path)
        lab.forget()
    return [_row("pack", packing), _row("unpack", unpacking)]


def make_big_file(path: Path) -> None:
    """Write 10 GB, of which a sixteenth takes space and will not compress."""
    noise = random.Random(7)
    with open(path, "wb") as file:
        for place in range(0, SIZE, _STRIDE):
            file.seek(place)
            file.write(noise.randbytes(1 << 20))
        file.truncate(SIZE)


def _row(side: str, peak: Peak) -> Row:
    return Row(
        case=f"peak memory, {side}, with a 10 GB file",
        target="300 MB",
        measured=f"**{megabytes(peak.pss)}**",
        holds=peak.pss <= LIMIT,
        figures=f"sum of RSS {megabytes(peak.rss)}; up to {peak.processes} processes; "
        f"{peak.seconds:.0f} s",
    )


CASE = Case(
    name="memory",
    run=run,
    repeats=1,
    about="The sum of the proportional set sizes (PSS) of all processes of the tree, looked at "
    "fifty times a second; the whole environment and the project travel with the big file.",
)
