"""Where a path that the environment names lies in the bundle: the project, a source, the base."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable

from j2c_lab.formats.manifest import EDITABLE, LeftOut
from j2c_lab.installed.tree import walk
from j2c_lab.pack.plan import LayerPlan

#: Bundle path of the base image's directory of packages.
BASE = "base:"

#: Where setuptools' strict mode puts a tree of links to the source, which no project would pack.
_LINK_TREE = "/build/__editable__."

#: Directories of the system: what lies there is of the image, or of no use elsewhere.
_SYSTEM = frozenset(
    {"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr"}
)


class Sources:
    """Turns absolute paths into bundle paths, and remembers which directories must travel.

    Parameters
    ----------
    project_root : str or None
        Its files travel as the project.
    prefix : bytes
        The environment; what lies in it is no part of the project, though it may lie below it.
    site_packages : iterable of bytes
        The environment's own directories of packages: they travel anyway.
    base_sites : iterable of str
        Directories of packages that the base image has.
    base_prefixes : iterable of str
        What lies there is of the base image, too.
    """

    def __init__(
        self,
        project_root: str | None,
        prefix: bytes,
        site_packages: Iterable[bytes],
        base_sites: Iterable[str],
        base_prefixes: Iterable[str],
    ) -> None:
        self._project = None if project_root is None else os.path.realpath(project_root)
        self._prefix = os.path.realpath(os.fsdecode(prefix))
        self._sites = [os.path.realpath(os.fsdecode(site)) for site in site_packages]
        self._base_sites = [os.path.realpath(site) for site in base_sites]
        self._base_prefixes = [os.path.realpath(p) for p in base_prefixes]
        #: From the real path of a directory outside the project to its name below `editable`.
        self._roots: dict[str, str] = {}
        self.warnings: list[str] = []

    def is_own_site(self, path: str) -> bool:
        """Whether `path` is in one of the environment's own directories of packages."""
        return any(_inside(os.path.realpath(path), site) is not None for site in self._sites)

    def bundle_path(self, path: str, root: str | None = None) -> str | None:
        """Return where `path` will be in the bundle, or None when it is to be left as it is.

        Parameters
        ----------
        path : str
            Absolute path of a directory or file on this machine.
        root : str, optional
            The directory to pack when `path` lies outside the project and inside this directory.
        """
        real = os.path.realpath(path)
        for site in self._base_sites:
            if (rest := _inside(real, site)) is not None:
                return BASE + rest
        if not os.path.exists(real):
            return None
        in_prefix = _inside(real, self._prefix) is not None
        if self._project is not None and not in_prefix:
            rest = _inside(real, self._project)
            if rest is not None and not self._stays_behind(rest):
                return _join("project", rest)
        if self._is_of_the_image(real, in_prefix):
            return None
        return self._outside(real, None if root is None else os.path.realpath(root))

    def layers(self) -> tuple[list[LayerPlan], list[LeftOut]]:
        """Return the layers of all directories that must travel, and what of them does not."""
        if not self._roots:
            return [], []
        from j2c_lab.pack.project import plan_project

        layers: list[LayerPlan] = []
        left_out: list[LeftOut] = []
        for root, name in self._roots.items():
            if _LINK_TREE in root:
                files = walk(os.fsencode(root), b"editable/" + os.fsencode(name))
                layers.append(LayerPlan(f"source of {name}", EDITABLE, files))
                continue
            plan = plan_project(root, extra_exclude_dirs=[self._prefix])
            layers.extend(_renamed(layer, name) for layer in plan.layers)
            left_out.extend(
                dataclasses.replace(one, path=f"editable/{name}/{one.path}")
                for one in plan.left_out
            )
            left_out.extend(
                LeftOut(path=f"editable/{name}/" + one.path.partition("/")[2], rule="dangling link")
                for one in plan.dangling
            )
        return layers, left_out

    def _stays_behind(self, rest: str) -> bool:
        """Whether the project's rules leave out what lies at `rest` in it."""
        if self._project is None or not rest:
            return False
        from j2c_lab.pack.project_rules import Rules

        top = os.fsencode(self._project)
        rules = Rules(top, (), ())
        above, path, directory = rules.at_top(), b"", top
        for name in os.fsencode(rest).split(b"/"):
            above = rules.below(above, directory, path, set(os.listdir(directory)))
            directory += b"/" + name
            is_directory = os.path.isdir(directory)
            if rules.left_out(above, path + name, name, is_directory, directory) is not None:
                return True
            if os.path.exists(directory + b"/pyvenv.cfg"):
                return True
            if not is_directory:
                break
            path += name + b"/"
        return False

    def _is_of_the_image(self, real: str, in_prefix: bool) -> bool:
        if in_prefix or _inside(real, "/usr/src") is not None:
            return False
        top = real.split("/", 2)[1]
        return top in _SYSTEM or any(
            _inside(real, prefix) is not None for prefix in self._base_prefixes
        )

    def _outside(self, real: str, wanted: str | None) -> str | None:
        link_tree = _LINK_TREE in real
        for root, name in self._roots.items():
            if (rest := _inside(real, root)) is not None and link_tree == (_LINK_TREE in root):
                return _join(f"editable/{name}", rest)
        directory = real if os.path.isdir(real) else os.path.dirname(real)
        root = directory
        if wanted is not None and not link_tree and _inside(real, wanted) is not None:
            root = wanted
        if root in ("/", os.path.realpath(os.path.expanduser("~"))) or self._holds_prefix(root):
            self.warnings.append(
                f"the environment names {root} as a place of packages; that is too much to send, "
                "so what is imported from there will be missing: put the code into the project"
            )
            return None
        self._roots[root] = self._new_name(root)
        rest = _inside(real, root)
        return _join(f"editable/{self._roots[root]}", rest or "")

    def _holds_prefix(self, root: str) -> bool:
        # A source with its own .venv is usual; a directory that is only a parent of it is not.
        if _inside(self._prefix, root) is None:
            return False
        marks = ("pyproject.toml", "setup.py", "setup.cfg")
        return not any(os.path.exists(os.path.join(root, mark)) for mark in marks)

    def _new_name(self, root: str) -> str:
        name = re.sub(r"[^A-Za-z0-9._+-]", "_", os.path.basename(root)).strip(".") or "source"
        taken = set(self._roots.values())
        count, unique = 2, name
        while unique in taken:
            unique, count = f"{name}-{count}", count + 1
        return unique


def _renamed(layer: LayerPlan, name: str) -> LayerPlan:
    top = b"editable/" + os.fsencode(name)
    files = [file._replace(path=top + file.path[len(b"project") :]) for file in layer.files]
    what = layer.name.removeprefix("project").strip(", ")
    return LayerPlan(f"source of {name}" + (f", {what}" if what else ""), EDITABLE, files)


def _inside(path: str, root: str) -> str | None:
    """Return `path` relative to `root` (empty for itself), or None when it is elsewhere."""
    if path == root:
        return ""
    return path[len(root) + 1 :] if path.startswith(root.rstrip("/") + "/") else None


def _join(top: str, rest: str) -> str:
    return f"{top}/{rest}" if rest else top
