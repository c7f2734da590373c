"""A node that has never seen any of it."""

from __future__ import annotations

from benchmarks import ours, peers
from benchmarks.harness import Case, Command, Row, paired, ratio_row
from benchmarks.workspace import Workspace, discard


def run(space: Workspace, repeats: int) -> list[Row]:
    """Against `zstd -dc | tar -x` of the same environment and project."""
    lab = ours.fresh_lab(space, "cold-unpack")
    bundle = lab.packed(space.project, space.venv)["bundle"]
    workdir, cache = space.fresh("cold-work"), space.fresh("cold-cache")
    target = space.fresh("cold-peer")

    def clean() -> None:
        for path in (workdir, cache, target):
            discard(path)
        for path in (workdir, cache, target):
            path.mkdir()

    unpack = ours.unpack(lab.run(bundle), workdir, cache)
    unpack = Command(name="j2c unpack", argv=unpack.argv, before=clean)
    peer = Command(name="zstd | tar", argv=peers.zstd_tar(space.archive, target), before=clean)
    pairs = paired(unpack, peer, repeats)
    clean()
    lab.forget()
    return [ratio_row("cold unpack, verifying", "zstd -dc \\| tar -x", 0.7, pairs)]


CASE = Case(
    name="cold_unpack",
    run=run,
    repeats=7,
    about="An empty node cache and an empty workdir, the archives in the page cache for both. "
    "Ours is all of `j2c unpack`: every byte verified, the venv and its scripts made, the run's "
    "process started (an empty script) and its outcome stored.",
    why="reading, decompressing, hashing and writing costs one process 3.0 s of CPU (2.0 s user, "
    "0.9 s system), and two at once 3.7 s together; the peer hashes nothing and links nothing"
    " (a new layer is written to the node's cache, then linked). Tried: leaving files the "
    "time of their writing (no gain), memory that workers keep (about 0.1 s), the garbage "
    "collector off and no second look at new layers (from 3.8 s to 2.9 s together, on a "
    "smaller environment). Not tried: unpacking into the run first and linking the cache "
    "behind it, while the run already works.",
)
