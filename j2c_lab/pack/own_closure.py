"""Which distributions are in an environment for j2c-lab alone, and so do not travel.

When in doubt a distribution travels: every requirement of the others counts, whatever its marker
or extra, and where the installer left no note of what was asked for, only j2c-lab itself stays.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from j2c_lab.installed.distributions import Installed, Site, normalised, read_file

OWN_NAME = "j2c-lab"

#: Needed where a notebook is run, even when they came with j2c-lab[notebook].
_ALWAYS = frozenset({"ipykernel", "nbclient", "nbformat"})
_REQUIREMENT = re.compile(rb"^Requires-Dist:\s*([A-Za-z0-9][A-Za-z0-9._-]*)", re.MULTILINE)

#: What of a project is searched for names of packages, and how much of it.
_READ = (".py", ".ipynb", ".toml", ".txt", ".cfg", ".yml", ".yaml")
_SKIPPED = frozenset({".git", ".hg", "__pycache__", "node_modules", ".ipynb_checkpoints"})
_LARGEST = 4 << 20
_MOST_FILES = 2000


def only_for_j2c(sites: Iterable[Site], project_root: str | None) -> set[str]:
    """Return the names of the distributions that are there for j2c-lab alone, itself included.

    A distribution stays when j2c-lab needs it, nobody asked for it by name, nothing that travels
    requires it, and no text of the project names it or a module of it.
    """
    found = {one.name: (site, one) for site in sites for one in site.distributions}
    if OWN_NAME not in found:
        return set()
    installers = {name: _installer(site, one) for name, (site, one) in found.items()}
    if installers[OWN_NAME] not in (b"pip", b"uv"):
        return {OWN_NAME}
    # uv marks everything as asked for, so its marks say nothing.
    asked = {n for n, (_, one) in found.items() if b"REQUESTED" in one.notes}
    asked = {name for name in asked if installers[name] != b"uv"}
    requirements = {name: _requirements(site, one) for name, (site, one) in found.items()}
    of_j2c = _closure({OWN_NAME}, requirements) & set(found)
    roots = (set(found) - of_j2c) | asked | _ALWAYS
    candidates = of_j2c - _closure(roots - {OWN_NAME}, requirements)
    named = _named_in(project_root, {n: _words(found[n][1]) for n in candidates - {OWN_NAME}})
    return candidates - _closure(named, requirements)


def _closure(roots: set[str], requirements: dict[str, set[str]]) -> set[str]:
    seen, pending = set(roots), list(roots)
    while pending:
        for name in requirements.get(pending.pop(), ()):
            if name not in seen:
                seen.add(name)
                pending.append(name)
    return seen


def _requirements(site: Site, one: Installed) -> set[str]:
    info = site.path + b"/" + one.info
    data = read_file(info + b"/METADATA") or read_file(info + b"/PKG-INFO") or b""
    headers = data.partition(b"\n\n")[0].replace(b"\r\n", b"\n")
    names = {normalised(name.decode()) for name in _REQUIREMENT.findall(headers)}
    for line in (read_file(info + b"/requires.txt") or b"").splitlines():
        if match := re.match(rb"[A-Za-z0-9][A-Za-z0-9._-]*", line):
            names.add(normalised(match[0].decode()))
    # An environment may require j2c-lab for its log_metrics; it is offered on the cluster anyway.
    return names - {OWN_NAME}


def _installer(site: Site, one: Installed) -> bytes:
    return (read_file(site.path + b"/" + one.info + b"/INSTALLER") or b"").strip()


def _words(one: Installed) -> set[bytes]:
    """Return the names by which code or a list of requirements would mean a distribution."""
    words = {one.name.encode(), one.name.replace("-", "_").encode()}
    for file in one.files:
        top = file.path.split(b"/", 2)[1].partition(b".")[0]
        if file.path.startswith(b"site-packages/") and not top.startswith(b"_"):
            words.add(top)
    return words


def _named_in(project_root: str | None, words: dict[str, set[bytes]]) -> set[str]:
    if project_root is None or not words:
        return set()
    named: set[str] = set()
    for text in _texts(project_root):
        present = set(re.findall(rb"[A-Za-z0-9_-]+", text))
        named |= {name for name, wanted in words.items() if wanted & present}
        if len(named) == len(words):
            break
    return named


def _texts(root: str) -> Iterator[bytes]:
    count = 0
    for directory, names, files in os.walk(root):
        names[:] = [
            n for n in names if n not in _SKIPPED and not _is_venv(os.path.join(directory, n))
        ]
        for name in files:
            path = os.path.join(directory, name)
            if name.endswith(_READ) and os.path.getsize(path) < _LARGEST:
                count += 1
                yield read_file(os.fsencode(path)) or b""
        if count > _MOST_FILES:
            return


def _is_venv(directory: str) -> bool:
    return os.path.exists(os.path.join(directory, "pyvenv.cfg"))
