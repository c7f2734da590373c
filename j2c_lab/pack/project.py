"""Finds the project and plans what of it travels."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from hashlib import sha256

from j2c_lab.errors import UsageError
from j2c_lab.formats.manifest import PROJECT
from j2c_lab.pack.layer_writer import unreadable
from j2c_lab.pack.plan import LayerPlan, PlannedFile, ProjectPlan
from j2c_lab.pack.project_rules import Rules
from j2c_lab.pack.project_walk import Walk
from j2c_lab.pack.uncollected import uncollected

#: Files of this size and more are layers of their own.
_BIG = 4 << 20
#: Up to so many files and bytes all small files are one layer.
_ONE_LAYER_FILES = 2000
_ONE_LAYER_SIZE = 64 << 20
#: Beyond, a layer has about so many files, or bytes.
_GROUP_FILES = 1024
_GROUP_SIZE = 32 << 20


def find_project(entry_directory: str, explicit: str | None = None) -> str:
    """Return the absolute path of the project that holds `entry_directory`.

    That is `explicit` if given; else the nearest directory upwards with `[tool.j2c]` in its
    `pyproject.toml`; else the nearest with `.git`; else `entry_directory` itself. The home
    directory is no project because of a `.git` in it (people keep their dotfiles so), nor is any
    directory above it.

    Raises
    ------
    UsageError
        The directory does not exist, or it would be the root of the file system.
    """
    start = os.path.abspath(explicit or entry_directory)
    if not os.path.isdir(start):
        raise UsageError(f"there is no directory {start}", "give the project with --project")
    if explicit is None:
        start = _marked_parent(start) or start
    if start == os.path.dirname(start):
        raise UsageError(
            "the project would be the whole file system", "give its directory with --project"
        )
    return start


def plan_project(
    root: str,
    *,
    exclude: Sequence[str] = (),
    extra_exclude_dirs: Iterable[str] = (),
    cache_directory: str | None = None,
) -> ProjectPlan:
    """Return what of the project at `root` travels, and in which layers; reads no packed file.

    Parameters
    ----------
    root : str
        Absolute path of the project, as `find_project` returns it.
    exclude : sequence of str
        Lines of gitignore rules from `[tool.j2c]`, above those of any file.
    extra_exclude_dirs : iterable of str
        Absolute paths that never travel, such as the store and the packed environment.
    cache_directory : str, optional
        Where to remember what code files name; the user's cache by default.

    Raises
    ------
    PackError
        Files or directories cannot be read; `details` names all of them.
    """
    top = os.fsencode(os.path.abspath(root))
    rules = Rules(top, exclude, [os.fsencode(os.path.abspath(d)) for d in extra_exclude_dirs])
    walk = Walk(top, rules)
    with uncollected():
        walk.run()
    if walk.unreadable:
        raise unreadable(walk.unreadable)
    warnings = walk.warnings
    if rules.is_home:
        warnings.append(
            "the project is the whole home directory, without what is hidden in it; "
            "move the code into a directory of its own, or name one with --project"
        )
    if walk.worth_a_warning:
        # Not needed for most projects, and it compiles large patterns.
        from j2c_lab.pack.literals import named_but_left_out

        warnings += named_but_left_out(
            top, walk.files, walk.left_out, walk.worth_a_warning, cache_directory
        )
    return ProjectPlan(
        name=os.path.basename(top).decode("utf-8", "replace"),
        root=os.fsdecode(top),
        layers=cut_into_layers(walk.files),
        left_out=walk.left_out,
        dangling=walk.dangling,
        warnings=warnings,
    )


def cut_into_layers(files: list[PlannedFile]) -> list[LayerPlan]:
    """Return the project's layers: each big file alone, the small ones in groups.

    The groups are cut where the hash of a path says so, in the order of the paths. So a file that
    is changed, added or removed changes its own group, and at most splits it or joins it to the
    next; all other groups stay what they were.
    """
    files = sorted(files, key=lambda file: file.path)
    layers = []
    small: list[PlannedFile] = []
    for file in files:
        if _size(file) >= _BIG:
            name = file.path.decode("utf-8", "replace")
            layers.append(LayerPlan(name, PROJECT, [file]))
        else:
            small.append(file)
    groups = [small] if small else []
    if len(small) > _ONE_LAYER_FILES or sum(map(_size, small)) > _ONE_LAYER_SIZE:
        groups = _groups(small)
    for number, group in enumerate(groups, 1):
        name = "project" if len(groups) == 1 else f"project, part {number}"
        layers.append(LayerPlan(name, PROJECT, group))
    return layers


def _groups(files: list[PlannedFile]) -> list[list[PlannedFile]]:
    groups: list[list[PlannedFile]] = [[]]
    for file in files:
        groups[-1].append(file)
        # A file ends its group with a chance that grows with its size (a power of two, so that a
        # small change of the size moves no boundary).
        share = (1 << _size(file).bit_length()) / _GROUP_SIZE + 1 / _GROUP_FILES
        if int.from_bytes(sha256(file.path).digest()[:8], "big") < share * 2**64:
            groups.append([])
    return [group for group in groups if group]


def _size(file: PlannedFile) -> int:
    return file.key.size if file.key is not None else 0


def _marked_parent(start: str) -> str | None:
    """Return the nearest directory from `start` upwards that is marked as a project."""
    home = os.path.abspath(os.path.expanduser("~"))
    repository = None
    directory = start
    while True:
        if _has_settings(os.path.join(directory, "pyproject.toml")):
            return directory
        above = os.path.dirname(directory)
        at_home = directory == home and directory != start
        possible = repository is None and not at_home and above != directory
        if possible and os.path.exists(os.path.join(directory, ".git")):
            repository = directory
        if directory == home or above == directory:
            return repository
        directory = above


def _has_settings(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return False
    if b"j2c" not in content:
        return False
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        settings = tomllib.loads(content.decode("utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is not valid TOML: {error}", "correct it") from None
    return isinstance(settings.get("tool", {}).get("j2c"), dict)
