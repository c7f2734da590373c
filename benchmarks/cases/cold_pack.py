"""The first pack of an environment and a project into a directory store."""

from __future__ import annotations

from benchmarks import ours, peers
from benchmarks.harness import Case, Command, Row, megabytes, paired, ratio_row
from benchmarks.workspace import Workspace, discard


def run(space: Workspace, repeats: int) -> list[Row]:
    """Against `tar | zstd -3 -T0` of the same files, then against venv-pack."""
    lab = ours.fresh_lab(space, "cold-pack")
    pack = lab.pack(space.project, space.venv)
    pack = Command(name="j2c pack", argv=pack.argv, env=pack.env, before=lab.forget)
    archive = space.fresh("peer.tar.zst")

    def clean() -> None:
        discard(archive)

    tar = Command(name="tar | zstd", argv=peers.tar_zstd(space, archive), before=clean)
    against_tar = paired(pack, tar, repeats)
    layers = [path.stat().st_size for path in lab.store.rglob("*.tar.zst")]
    sizes = (
        f"{len(layers)} layers, {megabytes(sum(layers))}; "
        f"tar | zstd {megabytes(archive.stat().st_size)}"
    )
    rows = [ratio_row("cold pack", "tar \\| zstd -3 -T0", 0.9, against_tar, sizes)]

    packed = space.fresh("venv-pack.tar.gz")
    peer = Command(name="venv-pack", argv=peers.venv_pack(space, packed))
    # It takes 20 s: half as many repeats tell enough of a factor of ten.
    against_venv_pack = paired(pack, peer, max(1, repeats // 2), warm_up=False)
    size = f"venv-pack {megabytes(packed.stat().st_size)}, without the project"
    rows.append(ratio_row("cold pack", "venv-pack", 0.15, against_venv_pack, size))
    lab.forget()
    return rows


CASE = Case(
    name="cold_pack",
    run=run,
    repeats=5,
    about="Nothing in the store, no cache of hashes; the files are in the page cache for both. "
    "The base image has no packages, so everything travels. venv-pack packs the environment alone, "
    "j2c the project too.",
    why="against venv-pack the median lies at the limit. Of 2.7 s, 0.4 s pass before the workers "
    "begin (0.08 s start, 0.24 s planning on one processor) and 0.1 s after they end.",
)
