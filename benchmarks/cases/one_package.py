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
_OWN = ("tabulate", "tabulate-0.9.0.dist-info", "__pycache__")


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
    finally:
        subprocess.run(
            [*uv, "uninstall", "-q", "--python", python, "tabulate"], check=True, env=env
        )
    sent = sum(path.stat().st_size for path in new)
    files = counted.files if counted else set()
    notes = {path for path in files if path.parent.name.endswith(".dist-info")}
    others = {path for path in files - notes if path.relative_to(site).parts[0] not in _OWN}
    opened = f"{len(files)}" if counted else "not counted (no strace)"
    lab.forget()
    # Its own layer, and the small one that lists what differs between installs.
    holds = 1 <= len(new) <= 2 and sent < 1e6 and not others
    return [
        Row(
            case="one package added",
            target="that package alone is read, hashed and sent",
            measured=f"**{len(new)} layers**, {megabytes(sent)}",
            holds=holds,
            figures=f"files opened in site-packages: {opened}, of which {len(notes)} say what is "
            f"installed (RECORD and the like), and {len(others)} belong to other packages",
        )
    ]


CASE = Case(
    name="one_package",
    run=run,
    repeats=1,
    about=f"`{PACKAGE}`, installed by uv into the packed environment.",
)
