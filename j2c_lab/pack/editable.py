"""Files of an environment that name places: `.pth`, `.egg-link`, finders of editable installs.

Each is packed with a token (`j2c:project/src`) where it named a path of this machine, so that it
is the same wherever the project lies and tells nothing of this machine; a `Rewrite` says what
the token becomes where the environment is unpacked.
"""

from __future__ import annotations

import json
import os
import re

from j2c_lab.formats.manifest import Rewrite
from j2c_lab.formats.paths import to_text
from j2c_lab.installed.distributions import Installed, Site, name_and_version, read_file
from j2c_lab.installed.scripts import parse_entry_scripts
from j2c_lab.installed.tree import walk
from j2c_lab.pack.plan import PlannedFile
from j2c_lab.pack.sources import Sources

_TOKEN = "j2c:"  # noqa: S105 (no password)

#: Modules that build backends write for editable installs (setuptools, editables, scikit-build).
_FINDER = re.compile(
    rb"__editable___.*_finder\.py|_editable_impl_.*\.py|__editables_.*\.py|_.*_editable\.py"
)
_STRING = re.compile(r"'(/[^'\\\n]+)'|\"(/[^\"\\\n]+)\"")


def repoint(site: Site, place: str, sources: Sources) -> list[Rewrite]:
    """Change the planned files of `site` that name places; return how to mend them again."""
    rewrites = []
    for name in sorted(site.top_names):
        if not (name.endswith((b".pth", b".egg-link")) or _FINDER.fullmatch(name)):
            continue
        files, index = _planned(site, name)
        if files is None:
            continue
        content = read_file(site.path + b"/" + name) or b""
        text = content.decode("utf-8", "surrogateescape")
        root = editable_root(site.path, site.top_names[name])
        mender = _Mender(site.path, sources, root)
        if name.endswith((b".pth", b".egg-link")):
            kind, changed = "pth", mender.lines(text)
        else:
            kind, changed = "setuptools-finder", mender.strings(text)
        if changed == text:
            continue
        data = changed.encode("utf-8", "surrogateescape")
        old = files[index]
        files[index] = PlannedFile(old.path, "f", old.executable, None, None, data)
        if mender.values:
            rewrites.append(
                Rewrite(path=to_text(old.path), kind=kind, values=mender.values, place=place)
            )
    return rewrites


def editable_root(site: bytes, owner: Installed | None) -> str | None:
    """Return the directory that a distribution was installed from as editable, or None."""
    if owner is None or b"direct_url.json" not in owner.notes:
        return None
    from urllib.parse import unquote, urlsplit

    try:
        note = json.loads(read_file(site + b"/" + owner.info + b"/direct_url.json") or b"")
        url = urlsplit(note["url"])
        if url.scheme == "file" and note["dir_info"]["editable"]:
            return unquote(url.path, errors="surrogateescape")
    except (ValueError, KeyError, TypeError):
        pass
    return None


def linked_distributions(site: Site) -> list[Installed]:
    """Return the distributions whose metadata lies in their source, as `.egg-link` files tell.

    The metadata must come along by itself: a project's rules usually leave `*.egg-info` out, and
    without it no entry point is found.
    """
    found = []
    for name in sorted(site.top_names):
        if not name.endswith(b".egg-link"):
            continue
        source = (read_file(site.path + b"/" + name) or b"").partition(b"\n")[0].strip()
        info = name[: -len(b".egg-link")].replace(b"-", b"_") + b".egg-info"
        if not os.path.isdir(source + b"/" + info):
            continue
        installed = Installed(*name_and_version(source, info), info)
        entry_points = read_file(source + b"/" + info + b"/entry_points.txt") or b""
        installed.scripts = parse_entry_scripts(entry_points)
        installed.files = walk(source + b"/" + info, b"site-packages/" + info)
        found.append(installed)
    return found


class _Mender:
    """Replaces the paths of one file by tokens."""

    def __init__(self, site: bytes, sources: Sources, root: str | None) -> None:
        self._site = os.fsdecode(site)
        self._sources = sources
        self._root = root
        #: From a token to its bundle path.
        self.values: dict[str, str] = {}

    def lines(self, text: str) -> str:
        """Return a `.pth` with its path lines, and paths that its code names, replaced."""
        return "".join(self._line(line) for line in text.splitlines(keepends=True))

    def strings(self, text: str) -> str:
        """Return Python source with the string literals that name packed paths replaced."""
        return _STRING.sub(lambda match: self._literal(match[0], match[1] or match[2]), text)

    def _line(self, line: str) -> str:
        path = line.strip()
        if not path or path.startswith("#"):
            return line
        if path.startswith(("import ", "import\t")):
            return self.strings(line)
        end = line[len(line.rstrip()) :]
        absolute = os.path.normpath(os.path.join(self._site, path))
        if self._sources.is_own_site(absolute):
            if not os.path.isabs(path):
                return line
            return os.path.relpath(os.path.realpath(absolute), os.path.realpath(self._site)) + end
        token = self._token(absolute)
        return line if token is None else token + end

    def _literal(self, literal: str, path: str) -> str:
        # Code may name any file; only what can hold modules is meant here.
        is_place = path.endswith((".py", ".so")) or os.path.isdir(path)
        token = self._token(path) if is_place and path.count("/") > 1 else None
        return literal if token is None else repr(token)

    def _token(self, path: str) -> str | None:
        bundle_path = self._sources.bundle_path(path, self._root)
        if bundle_path is None:
            return None
        token = _TOKEN + bundle_path
        self.values[token] = bundle_path
        return token


def _planned(site: Site, name: bytes) -> tuple[list[PlannedFile] | None, int]:
    owner = site.top_names[name]
    path = b"site-packages/" + name
    for files in (site.loose, *([owner.files] if owner else [])):
        for index, file in enumerate(files):
            if file.path == path and file.type == "f":
                return files, index
    return None, -1
