"""The commands of j2c that are measured, as a user would type them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness import Command, environment
from benchmarks.workspace import Workspace, discard
from j2c_lab.formats.run import EntryPoint, Run, new_run_id
from j2c_lab.store import layout
from j2c_lab.store.opener import open_store

J2C = Path(sys.executable).with_name("j2c")


@dataclasses.dataclass(frozen=True)
class Lab:
    """One user's side: a store, and a home of their own with its caches.

    `base` is the inventory of the base image; not given, it is the Python that runs j2c, as for a
    user who says nothing.
    """

    store: Path
    home: Path
    base: Path | None = None

    def env(self) -> dict[str, str]:
        """Settings under which j2c finds nothing but this home."""
        return {
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "XDG_STATE_HOME": str(self.home / "state"),
            "XDG_CONFIG_HOME": str(self.home / "config"),
        }

    def forget(self) -> None:
        """Empty the store and the caches: the next pack is the first."""
        discard(self.store)
        discard(self.home)
        self.home.mkdir(parents=True)

    def pack(self, project: Path, venv: Path | None, name: str = "j2c") -> Command:
        """`j2c pack` into the store."""
        argv: list[str | Path] = [J2C, "pack", project, "--store", self.store]
        if venv is not None:
            argv += ["--venv", venv]
        if self.base is not None:
            argv += ["--base", self.base]
        return Command(name=name, argv=argv, env=self.env())

    def packed(self, project: Path, venv: Path | None) -> dict[str, Any]:
        """Pack, and return the `packed` event."""
        command = self.pack(project, venv)
        result = subprocess.run(
            [*command.argv, "--json"], env=environment(command), capture_output=True
        )
        if result.returncode:
            text = (result.stdout + result.stderr).decode(errors="replace")[-2000:]
            raise RuntimeError(f"j2c pack exited with {result.returncode}:\n{text}")
        events = map(json.loads, result.stdout.splitlines())
        return next(event for event in events if event.get("event") == "packed")

    def run(self, bundle: str) -> str:
        """Ask for a run of the bundle that ends at once; return the run's URL."""
        return asyncio.run(_write_run(self.store, bundle))


def unpack(run_url: str, workdir: Path, cache: Path, name: str = "j2c") -> Command:
    """`j2c unpack`, the whole of it: the run's own process included, which does nothing."""
    argv: list[str | Path] = [J2C, "unpack", run_url, "--workdir", workdir, "--cache", cache]
    return Command(name=name, argv=argv)


class Opened(NamedTuple):
    """Files below some trees that a command opened, counted by strace."""

    files: set[Path]
    #: All system calls of all its processes.
    calls: int


def opened(command: Command, *trees: Path) -> Opened | None:
    """Run once under strace; None where there is no strace."""
    if shutil.which("strace") is None:
        return None
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "strace"
        argv = ["strace", "-f", "-qq", "-o", log, "-e", "signal=none", *command.argv]
        subprocess.run(argv, env=environment(command), check=True, capture_output=True)
        text = log.read_text(errors="replace")
    files: set[Path] = set()
    for path, flags in re.findall(r'open(?:at)?\(.*?"([^"]+)", ([A-Z_|]+)', text):
        if "O_DIRECTORY" not in flags and any(Path(path).is_relative_to(tree) for tree in trees):
            files.add(Path(path))
    return Opened(files, sum("(" in line for line in text.splitlines()))


def fresh_lab(space: Workspace, name: str, *, bare: bool = True) -> Lab:
    """Return a lab that has never packed anything; `bare`: its base image has no packages."""
    base = space.bare_base if bare else None
    lab = Lab(space.scratch / f"{name}-store", space.scratch / f"{name}-home", base)
    lab.forget()
    return lab


async def _write_run(directory: Path, bundle: str) -> str:
    store = open_store(str(directory))
    run = Run(
        id=new_run_id(),
        user="bench",
        name="bench",
        created=0.0,
        bundle=bundle,
        entry=EntryPoint(kind="script", target="nothing.py"),
    )
    await store.put(layout.run(run.user, run.id), run.to_json(), if_absent=True)
    url = layout.run_url(store.url, run.user, run.id)
    await store.close()
    return url
