"""What the benchmarks work on: two users' environments, two copies of a project, the peers.

Everything is made once, by the real tools, in `benchmarks/.work`, and found there again. The
first user's environment is made by uv, the second's by pip at another path (pip compiles bytecode,
uv does not); both see the packages of the base interpreter.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"
#: The packages that the pinned set needs are not made for older Pythons.
OLDEST = (3, 11)


class Workspace:
    """Paths below one directory; `prepare` makes what is missing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.venv = root / "anna" / "venv"
        self.project = root / "anna" / "experiment"
        self.second_venv = root / "home" / "bert" / ".virtualenvs" / "training"
        self.second_project = root / "home" / "bert" / "work" / "experiment"
        self.uv_cache = root / "uv-cache"
        self.peers = root / "peers"
        #: Inventory of a base image that holds no packages: everything travels, as with the peers.
        self.bare_base = root / "bare-base.json"
        self.scratch = root / "scratch"
        #: `tar | zstd -3` of the environment and the project, for the peers that unpack.
        self.archive = root / "peer.tar.zst"
        self.uv = shutil.which("uv", path=os.path.dirname(sys.executable)) or "uv"

    def prepare(self, say: Callable[[str], None]) -> None:
        """Make all that is missing.

        Raises
        ------
        SystemExit
            This Python is too old for the pinned packages.
        """
        if sys.version_info < OLDEST:
            raise SystemExit("the benchmarks' packages need Python 3.11 or newer")
        self.scratch.mkdir(parents=True, exist_ok=True)
        self._once("venv", say, self._make_venv)
        self._once("second-venv", say, self._make_second_venv)
        self._once("projects", say, self._make_projects)
        self._once("peers", say, self._make_peers)
        self._once("bare-base", say, self._make_bare_base)
        self._once("archive", say, self._make_archive)

    def uv_env(self) -> dict[str, str]:
        """Settings that keep uv to the workspace's own cache, from which it can hard-link."""
        return {"UV_CACHE_DIR": str(self.uv_cache), "UV_LINK_MODE": "hardlink"}

    def fresh(self, name: str) -> Path:
        """Return an absent path in the scratch directory."""
        path = self.scratch / name
        discard(path)
        return path

    def empty_trash(self) -> None:
        """Remove all that was made while measuring. Called when nothing is measured any more."""
        remove(self.scratch)

    def site_packages(self, venv: Path) -> Path:
        """Return the environment's `site-packages`."""
        return next(venv.glob("lib/python3*/site-packages"))

    def _once(self, name: str, say: Callable[[str], None], make: Callable[[], None]) -> None:
        done = self.root / f".{name}.done"
        stamp = REQUIREMENTS.read_text()
        if done.exists() and done.read_text() == stamp:
            return
        say(f"making {name} …")
        make()
        done.write_text(stamp)

    def _make_venv(self) -> None:
        remove(self.venv)
        options = ["--python", sys.executable, "--system-site-packages"]
        self._uv("venv", "-q", *options, str(self.venv))
        python = str(self.venv / "bin" / "python")
        self._uv("pip", "install", "-q", "--python", python, "-r", str(REQUIREMENTS))

    def _make_second_venv(self) -> None:
        remove(self.second_venv)
        venv = [sys.executable, "-m", "venv", "--system-site-packages", str(self.second_venv)]
        subprocess.run(venv, check=True)
        # `--ignore-installed`: the base interpreter may happen to hold one of the pinned versions.
        pip = [str(self.second_venv / "bin" / "python"), "-m", "pip", "install", "-q"]
        pip += ["--ignore-installed", "--disable-pip-version-check", "-r", str(REQUIREMENTS)]
        # Its resolver warns of the base's packages, which do not matter here.
        subprocess.run(pip, check=True, stderr=subprocess.DEVNULL)
        # The first user's venv, made by uv, has no pip.
        subprocess.run([*pip[:3], "uninstall", "-q", "-y", "pip", "setuptools"], check=True)

    def _make_projects(self) -> None:
        remove(self.project)
        remove(self.second_project)
        make_project(self.project)
        shutil.copytree(self.project, self.second_project)

    def _make_peers(self) -> None:
        remove(self.peers)
        self._uv("venv", "-q", "--python", sys.executable, str(self.peers))
        # venv-pack 0.2.0 imports pkg_resources, which newer setuptools no longer have.
        wanted = ["venv-pack==0.2.0", "setuptools<81"]
        self._uv("pip", "install", "-q", "--python", str(self.peers / "bin" / "python"), *wanted)

    def _make_bare_base(self) -> None:
        j2c = Path(sys.executable).with_name("j2c")
        subprocess.run([j2c, "base", "-o", self.bare_base], check=True)
        inventory = json.loads(self.bare_base.read_bytes())
        self.bare_base.write_text(json.dumps({**inventory, "distributions": []}))

    def _make_archive(self) -> None:
        from benchmarks import peers

        subprocess.run(peers.tar_zstd(self, self.archive), check=True)

    def _uv(self, *arguments: str) -> None:
        subprocess.run([self.uv, *arguments], check=True, env={**os.environ, **self.uv_env()})


def make_project(root: Path) -> None:
    """Write a small experiment: 200 source files in packages, and one file of 20 MB."""
    words = random.Random(2)
    root.mkdir(parents=True)
    (root / "train.py").write_text("print('trained')\n")
    (root / "nothing.py").write_text("")
    for number in range(199):
        package = root / "experiment" / f"part_{number // 20}"
        package.mkdir(parents=True, exist_ok=True)
        lines = [f"value_{words.randrange(10**6)} = {words.random()}" for _ in range(100)]
        (package / f"module_{number}.py").write_text("\n".join(lines) + "\n")
    (root / "weights.bin").write_bytes(words.randbytes(20_000_000))


def discard(path: Path) -> None:
    """Put a file or a tree out of the way, if it is there; `empty_trash` removes it.

    Nothing is deleted between repeats: for minutes ext4 does not take the inodes of deleted files
    again but looks past every one of them, which made `tar -x` of the same archive take 4, 7 and
    15 seconds in three runs.
    """
    if os.path.lexists(path):
        path.rename(path.with_name(f".trash-{time.monotonic_ns()}-{path.name}"))


def remove(path: Path) -> None:
    """Remove a file or a tree, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
