"""Links what the bundle takes from the base image, instead of carrying it.

Each file is linked, not its directory: a namespace that base and bundle share stays whole, and
what a library finds by `$ORIGIN/..` it finds in the environment.
"""

from __future__ import annotations

import os

from j2c_lab.errors import UnpackError
from j2c_lab.formats.manifest import ENVIRONMENT, Manifest
from j2c_lab.formats.planned import PlannedFile
from j2c_lab.installed.base import base_distributions, digest_of
from j2c_lab.installed.interpreter import Interpreter
from j2c_lab.unpack.places import place_directories
from j2c_lab.unpack.replace import write_file, write_link


def link_base_distributions(manifest: Manifest, root: str, python: Interpreter) -> None:
    """Put all of `manifest.environment.base_distributions` into the environment in `root`.

    Raises
    ------
    UnpackError
        The base image lacks one of them, or has it with another content.
    """
    wanted = manifest.environment.base_distributions
    if not wanted:
        return
    found = base_distributions(python)
    lacking: list[str] = []
    directories = place_directories(manifest, root)[ENVIRONMENT]
    made: set[str] = set()
    for one in wanted:
        held = found.get(one.name)
        if held is None:
            lacking.append(f"{one.name} {one.version}: not there")
        elif held.version != one.version:
            lacking.append(f"{one.name} {one.version}: it has {held.version}")
        else:
            files = held.read(python).files
            if digest_of(files) != one.layer:
                lacking.append(f"{one.name} {one.version}: its files are not the same")
            elif not lacking:
                _link_all(files, directories, made)
    if lacking:
        raise UnpackError(
            "the base image lacks packages that the bundle counts on",
            "run on the image that the bundle was packed for, or pack again with this image's "
            "inventory (j2c base)",
            lacking,
        )


def _link_all(files: list[PlannedFile], directories: dict[str, str], made: set[str]) -> None:
    #: Names of modules, by their directory in the base and in the environment.
    modules: dict[tuple[bytes, str], set[bytes]] = {}
    for file in files:
        top, _, rest = os.fsdecode(file.path).partition("/")
        path = os.path.join(directories[top], rest)
        parent = os.path.dirname(path)
        if parent not in made:
            os.makedirs(parent, exist_ok=True)
            made.add(parent)
        if file.type == "d":
            os.makedirs(path, exist_ok=True)
        elif file.source is None and file.type == "f":
            write_file(path, file.data, executable=file.executable)
        else:
            target = file.data if file.source is None else file.source
            _link(target, path)
            if file.source is not None and path.endswith(".py"):
                modules.setdefault((os.path.dirname(file.source), parent), set()).add(
                    os.path.basename(file.source)[: -len(b".py")]
                )
    for (source, parent), names in modules.items():
        _link_bytecode(source, parent, names)


def _link_bytecode(source: bytes, parent: str, names: set[bytes]) -> None:
    """Link what the base has compiled of its modules: it holds for the links to them too.

    Python replaces a compiled file that is stale, it does not write into it.
    """
    try:
        compiled = os.listdir(source + b"/__pycache__")
    except OSError:
        return
    directory = os.path.join(parent, "__pycache__")
    os.makedirs(directory, exist_ok=True)
    for name in compiled:
        if name.partition(b".")[0] in names:
            path = os.path.join(directory, os.fsdecode(name))
            _link(source + b"/__pycache__/" + name, path)


def _link(target: bytes, path: str) -> None:
    try:
        os.symlink(target, os.fsencode(path))
    except FileExistsError:
        write_link(os.fsdecode(target), path)
