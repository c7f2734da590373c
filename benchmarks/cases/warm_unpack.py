"""The next run on a node that has the layers."""

from __future__ import annotations

from benchmarks import ours, peers
from benchmarks.harness import Case, Command, Row, paired, ratio_row, timed
from benchmarks.workspace import Workspace, discard


def run(space: Workspace, repeats: int) -> list[Row]:
    """Against `uv venv` and `uv pip install` of the same set from uv's warm cache."""
    lab = ours.fresh_lab(space, "warm-unpack")
    bundle = lab.packed(space.project, space.venv)["bundle"]
    workdir, cache = space.fresh("warm-work"), space.fresh("warm-cache")
    target = space.fresh("warm-peer")

    def clean() -> None:
        discard(workdir)
        discard(target)
        workdir.mkdir()

    unpack = ours.unpack(lab.run(bundle), workdir, cache)
    unpack = Command(name="j2c unpack", argv=unpack.argv, before=clean)
    timed(unpack)
    uv = Command(name="uv", argv=peers.uv_install(space, target), env=space.uv_env(), before=clean)
    pairs = paired(unpack, uv, repeats)
    clean()
    discard(cache)
    lab.forget()
    return [ratio_row("unpack on a node that has the layers", "uv pip install", 0.5, pairs)]


CASE = Case(
    name="warm_unpack",
    run=run,
    repeats=9,
    about="uv links from its own cache into a new venv, offline (`UV_LINK_MODE=hardlink`). Ours "
    "is all of `j2c unpack`, the project and the run's process (an empty script) included.",
    why="both sides ask the kernel for the same 15,000 `link` and 1,800 `mkdir` (18 µs and 60 µs "
    "each here, measured alone: 0.38 s of CPU, about what uv takes), and ours also proves "
    "each file by `lstat`, starts a run and stores its outcome. Linking relative to directory"
    " descriptors saves a tenth. Only fewer links would do: a tree linked ahead of time for "
    "the next run, or links to whole directories, which break `$ORIGIN/../other_package` and "
    "let a run write into the cache.",
)
