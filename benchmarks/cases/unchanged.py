"""Packing again: nothing changed, or one line of code did."""

from __future__ import annotations

import time

from benchmarks import ours, peers
from benchmarks.harness import Case, Command, Pairs, Row, Timing, paired, ratio_row, timed
from benchmarks.workspace import Workspace


def run(space: Workspace, repeats: int) -> list[Row]:
    """Against `find -printf` over the same trees; venv-pack for the second limit."""
    lab = ours.fresh_lab(space, "unchanged", bare=False)
    lab.packed(space.project, space.venv)
    # A file touched within the clock's grain of the pack is not trusted: let it settle.
    time.sleep(2.1)
    lab.packed(space.project, space.venv)
    pack = lab.pack(space.project, space.venv, name="j2c pack")
    walk = Command(name="find", argv=peers.find(space.venv, space.project))
    counted = ours.opened(pack, space.venv, space.project)
    count = "strace is not here: nothing counted"
    if counted:
        count = f"files opened in the trees: {len(counted.files)}; system calls: {counted.calls:,}"

    same = paired(pack, walk, repeats)
    code = space.project / "train.py"
    original = code.read_text()

    def edit() -> None:
        code.write_text(f"{original}# {time.monotonic_ns()}\n")

    try:
        edited = Command(name="j2c pack", argv=pack.argv, env=pack.env, before=edit)
        changed = paired(edited, walk, repeats)
    finally:
        code.write_text(original)

    peer = Command(name="venv-pack", argv=peers.venv_pack(space, space.fresh("v.tar.gz")))
    slow = [timed(peer)]
    lab.forget()
    return [
        ratio_row("nothing changed", "find -printf", 5, same, count),
        ratio_row("one line changed", "find -printf", 5, changed),
        _against(slow, same, "nothing changed"),
        _against(slow, changed, "one line changed"),
    ]


def _against(slow: list[Timing], pairs: Pairs, case: str) -> Row:
    """All repeats of ours against one run of venv-pack, which takes a hundred times as long."""
    return ratio_row(case, "venv-pack", 0.02, Pairs(pairs.ours, slow * len(pairs.ours)))


CASE = Case(
    name="unchanged",
    run=run,
    repeats=15,
    about="The whole process, interpreter start included, everything in the page cache. "
    "Compared with the Python that runs j2c, as when nothing is said. "
    "`find -printf` prints path, type, mode, size, times, device and inode of every file of the "
    "environment and the project.",
)
