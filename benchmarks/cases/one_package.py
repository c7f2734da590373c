"""One package is added to the environment: counts, not times."""

from __future__ import annotations

import os
import subprocess
import time

from benchmarks import ours
from benchmarks.harness import Case, Row, megabytes
from benchmarks.workspace import Workspace

#: Small, pure Python, and needed by none of the others.
PACKAGE = "tabulate==0.9.0"


def run(space: Workspace, repeats: int) -> list[Row]:
    """Install it, pack, and see which files were opened and what was sent."""
    del repeats
    lab = ours.fresh_lab(space, "one-package")
    lab.packed(space.project, space.venv)
    time.sleep(2.1)
    lab.packed(space.project, space.venv)
    before = set(lab.store.rglob("*.tar.zst"))
    python = str(space.venv / "bin" / "python")
    uv = [space.uv, "pip"]
    env = {**os.environ, **space.uv_env()}
    subprocess.run([*uv, "install", "-q", "--python", python, PACKAGE], check=True, env=env)
    try:
        site = space.site_packages(space.venv)
        counted = ours.opened(lab.pack(space.project, space.venv), site)
        new = set(lab.store.rglob("*.tar.zst")) - before
        own = sum(
            path.is_file()
            for name in ("tabulate", "tabulate-0.9.0.dist-info")
            for path in (site / name).rglob("*")
        )
    finally:
        subprocess.run(
            [*uv, "uninstall", "-q", "--python", python, "tabulate"], check=True, env=env
        )
    sent = sum(path.stat().st_size for path in new)
    opened = "not counted (no strace)" if counted is None else str(counted.files)
    lab.forget()
    # Its own layer, and the small one that lists what differs between installs.
    holds = len(new) == 2 and sent < 1e6 and (counted is None or counted.files <= own + 5)
    return [
        Row(
            case="one package added",
            target="that package alone is read, hashed and sent",
            measured=f"**{len(new)} layers**, {megabytes(sent)}",
            holds=holds,
            figures=f"the package and the environment's own small layer; files opened in "
            f"site-packages: {opened}, of which the package has {own}",
        )
    ]


CASE = Case(
    name="one_package",
    run=run,
    repeats=1,
    about=f"`{PACKAGE}`, installed by uv into the packed environment.",
)
