"""What lies in a venv beside its packages and belongs to nobody: own scripts, `share`, `etc`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from j2c_lab.formats.manifest import Script
from j2c_lab.installed.distributions import read_file, script_file
from j2c_lab.installed.prefix import VENV, Prefix
from j2c_lab.installed.tree import walk
from j2c_lab.pack.plan import PlannedFile

#: What venv, virtualenv and uv put into `bin`.
_VENVS_SCRIPTS = re.compile(
    rb"(de)?activate(\.\w+|_this\.py)?|(python|pypy)w?[\d.]*t?|pydoc\.bat|__pycache__",
    re.IGNORECASE,
)
_DIRECTORIES = (b"share", b"etc")


def loose_files(
    prefix: Prefix, owned: frozenset[bytes], scripts: Iterable[Script]
) -> list[PlannedFile]:
    """Return the files of a venv that are neither its own nor any distribution's.

    Only a venv's: a conda prefix is full of files of packages that are not Python's.

    Parameters
    ----------
    prefix : Prefix
        The environment.
    owned : frozenset of bytes
        Paths relative to the prefix that distributions own.
    scripts : iterable of Script
        Console scripts, which are made anew.
    """
    if prefix.kind != VENV or not os.path.exists(prefix.path + b"/pyvenv.cfg"):
        return []
    made = {script.name.encode("utf-8", "surrogateescape") for script in scripts}
    found = []
    directory = prefix.path + b"/bin"
    for name in sorted(os.listdir(directory)):
        if name in made or b"bin/" + name in owned or _VENVS_SCRIPTS.fullmatch(name):
            continue
        file = script_file(directory + b"/" + name, b"scripts/" + name, prefix.bin_directories)
        if file is not None:
            found.append(file)
    for top in _DIRECTORIES:
        for file in walk(prefix.path + b"/" + top, b"prefix/" + top):
            if file.path[len(b"prefix/") :] not in owned:
                found.append(file)
    return found


def one_of_each_name(scripts: list[Script], bin_directory: bytes) -> list[Script]:
    """Return `scripts` with each name once: where two packages have a script of the same name, the
    one that is installed in `bin_directory`, which is the one that was installed last."""
    by_name: dict[str, list[Script]] = {}
    for script in scripts:
        by_name.setdefault(script.name, []).append(script)
    chosen = []
    for name, same in by_name.items():
        if len(same) > 1:
            content = read_file(bin_directory + b"/" + os.fsencode(name)) or b""
            installed = [
                s for s in same if f"from {s.target.partition(':')[0]} import".encode() in content
            ]
            same = installed or same
        chosen.append(same[0])
    return chosen
