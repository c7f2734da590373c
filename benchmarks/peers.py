"""The commands that j2c is measured against."""

from __future__ import annotations

import shlex
from pathlib import Path

from benchmarks.harness import shell
from benchmarks.workspace import REQUIREMENTS, Workspace


def tar_zstd(space: Workspace, target: Path) -> list[str]:
    """`tar -cf - | zstd -3 -T0` of the environment and the project: what `j2c pack` sends."""
    names = [space.venv.name, space.project.name]
    tar = shlex.join(["tar", "-C", str(space.venv.parent), "-cf", "-", *names])
    return shell(f"{tar} | zstd -3 -T0 -q > {shlex.quote(str(target))}")


def zstd_tar(archive: Path, target: Path) -> list[str]:
    """`zstd -dc | tar -x`."""
    command = ["zstd", "-dc", "-q", str(archive)]
    return shell(f"{shlex.join(command)} | {shlex.join(['tar', '-C', str(target), '-xf', '-'])}")


def venv_pack(space: Workspace, target: Path) -> list[str]:
    """venv-pack with its defaults: a `.tar.gz` of the environment."""
    command = str(space.peers / "bin" / "venv-pack")
    return [command, "-q", "-f", "-p", str(space.venv), "-o", str(target)]


def find(*trees: Path) -> list[str]:
    """A bare walk that prints what `stat` says of every file."""
    return ["find", *map(str, trees), "-printf", "%p %y %m %s %T@ %C@ %D %i\\n"]


def uv_install(space: Workspace, venv: Path) -> list[str]:
    """The same packages from uv's warm cache into a new venv, hard-linked, no index asked."""
    uv = shlex.quote(space.uv)
    make = f"{uv} venv -q --system-site-packages --python {shlex.quote(str(base(space)))}"
    install = f"{uv} pip install -q --offline --python"
    place = shlex.quote(str(venv))
    requirements = shlex.quote(str(REQUIREMENTS))
    return shell(f"{make} {place} && {install} {place}/bin/python -r {requirements}")


def base(space: Workspace) -> Path:
    """The interpreter that the environments were made of."""
    return (space.venv / "bin" / "python").resolve()
