"""Where each layer's files go on the cluster: the layout in docs/design.md, and nowhere else."""

from __future__ import annotations

import os

from j2c_lab.errors import FormatError
from j2c_lab.formats.manifest import EDITABLE, ENVIRONMENT, PROJECT, TOP_LEVELS, USER, Manifest


def place_directories(manifest: Manifest, root: str) -> dict[str, dict[str, str]]:
    """Return the directory for each place and first path component: `[place][component]`.

    `["environment"]["site-packages"]` is `<root>/env/lib/python3.11/site-packages`: what a layer
    of that place calls `site-packages/x.py` goes there as `x.py`.
    """
    return {
        place: {top: directory(manifest, root, place, top) for top in sorted(tops)}
        for place, tops in TOP_LEVELS.items()
    }


def directory(manifest: Manifest, root: str, place: str, top: str) -> str:
    """Return where the layers' files below `top` go, for layers of `place`."""
    if place in (PROJECT, EDITABLE) and top == place:
        return os.path.join(root, top)
    if place in (ENVIRONMENT, USER) and top in TOP_LEVELS[place]:
        base = os.path.join(root, "env" if place == ENVIRONMENT else "user")
        if top == "prefix":
            return base
        return os.path.join(base, "bin") if top == "scripts" else site_packages(manifest, base)
    raise FormatError(f"the bundle has a layer of the unknown place {place!r}, {top!r}")


def site_packages(manifest: Manifest, base: str) -> str:
    """Return the directory of packages below `base` (`<root>/env`, `<root>/user`)."""
    name = "pypy" if manifest.environment.implementation == "pypy" else "python"
    return os.path.join(base, "lib", name + manifest.environment.python, "site-packages")
