"""Editable installs by meson-python, packed as if they were ordinary ones.

Their loader starts `ninja` in the build directory when the package is imported: nothing that a
bundle could carry. Meson's install plan says which file goes where, so the files as they are now,
sources and what was built of them, take the places that an ordinary install would give them.

Format: Meson's `meson-info/intro-install_plan.json` (introspection API).
"""

from __future__ import annotations

import json
import os
import re

from j2c_lab.installed.distributions import Installed, Site, read_file, renew_record
from j2c_lab.installed.tree import planned_file, walk
from j2c_lab.pack.plan import PlannedFile

_LOADER = re.compile(rb"_(.+)_editable_loader\.py")
_PATH = re.compile(r"'(/[^'\\\n]+)'|\"(/[^\"\\\n]+)\"")
_PLAN = "meson-info/intro-install_plan.json"
_PLACES = ("{py_purelib}/", "{py_platlib}/")


def settle_meson_editables(site: Site) -> list[str]:
    """Give every editable install by meson-python in `site` its files; return warnings."""
    warnings = []
    for name in sorted(site.top_names):
        owner = site.top_names.get(name)
        if owner is None or not _LOADER.fullmatch(name):
            continue
        plan = _install_plan(read_file(site.path + b"/" + name) or b"")
        if plan is None:
            warnings.append(
                f"{owner.name} is an editable install by meson-python whose build directory is "
                "gone, so it will be missing: install it again"
            )
            continue
        _settle(site, owner, plan)
    return warnings


def _settle(site: Site, owner: Installed, plan: dict[str, str]) -> None:
    for name in [n for n, one in site.top_names.items() if one is owner]:
        if name.endswith(b".pth") or _LOADER.fullmatch(name):
            owner.files[:] = [f for f in owner.files if f.path != b"site-packages/" + name]
            del site.top_names[name]
    there = {file.path for file in owner.files}
    for source, destination in sorted(plan.items()):
        place = b"site-packages/" + os.fsencode(destination)
        owner.files.extend(f for f in _files(os.fsencode(source), place) if f.path not in there)
    renew_record(owner, site.path)


def _files(source: bytes, place: bytes) -> list[PlannedFile]:
    if os.path.isdir(source):
        return walk(source, place)
    file = planned_file(source, place)
    return [] if file is None else [file]


def _install_plan(loader: bytes) -> dict[str, str] | None:
    """Return from each source to its place in site-packages, or None if the plan is not there."""
    for match in _PATH.finditer(loader.decode("utf-8", "surrogateescape")):
        content = read_file(os.fsencode(os.path.join(match[1] or match[2], _PLAN)))
        if content is None:
            continue
        try:
            plan = json.loads(content)
            pairs = [
                (source, entry["destination"])
                for kind in plan.values()
                for source, entry in kind.items()
            ]
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        return {
            source: destination[len(_PLACES[0]) :]
            for source, destination in pairs
            if destination.startswith(_PLACES)
        }
    return None
