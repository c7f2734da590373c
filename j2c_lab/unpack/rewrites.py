"""Gives files that name places their new places, as the manifest's rewrites say."""

from __future__ import annotations

import os

from j2c_lab.errors import FormatError, UnpackError
from j2c_lab.formats.manifest import TOP_LEVELS, Manifest, Rewrite
from j2c_lab.formats.paths import check_entry_path, from_text
from j2c_lab.unpack.places import directory
from j2c_lab.unpack.replace import write_file

_BASE = "base:"


def apply_rewrites(manifest: Manifest, root: str, base_sites: list[str]) -> None:
    """Write every file of `manifest.environment.rewrites` anew, with the paths of this machine.

    Parameters
    ----------
    manifest : Manifest
        The bundle.
    root : str
        The run's directory, absolute.
    base_sites : list of str
        Directories of packages of the base image.

    Raises
    ------
    FormatError
        A rewrite names a file or a target outside the bundle, or is of an unknown kind.
    UnpackError
        The file is not there.
    """
    for rewrite in manifest.environment.rewrites:
        path = _file(manifest, root, rewrite)
        try:
            with open(path, "rb") as file:
                text = file.read().decode("utf-8", "surrogateescape")
        except OSError as error:
            raise UnpackError(
                f"the bundle wants {rewrite.path} rewritten: {error.strerror}"
            ) from None
        places = {
            packed: _absolute(target, root, base_sites) for packed, target in rewrite.values.items()
        }
        write_file(path, _rewritten(rewrite.kind, text, places).encode("utf-8", "surrogateescape"))


def _rewritten(kind: str, text: str, places: dict[str, list[str]]) -> str:
    if kind == "pth":
        lines = text.splitlines(keepends=True)
        return "".join(_pth_line(line, places) for line in lines)
    # The longest first: one packed text may be the beginning of another.
    for packed in sorted(places, key=len, reverse=True):
        new = places[packed][0]
        if kind == "setuptools-finder":
            text = text.replace(repr(packed), repr(new))
        elif kind == "text":
            text = text.replace(packed, new)
        else:
            raise FormatError(f"the bundle has a rewrite of the unknown kind {kind!r}")
    return text


def _pth_line(line: str, places: dict[str, list[str]]) -> str:
    end = line[len(line.rstrip()) :]
    if (new := places.get(line.strip())) is not None:
        return "\n".join(new) + end
    if line.startswith("import"):
        return _rewritten("setuptools-finder", line, places)
    return line


def _absolute(target: str, root: str, base_sites: list[str]) -> list[str]:
    if target.startswith(_BASE):
        rest = target[len(_BASE) :]
        found = [os.path.join(site, rest) if rest else site for site in base_sites]
        return [path for path in found if os.path.exists(path)] or found[:1] or [root]
    check_entry_path(from_text(target))
    return [os.path.join(root, os.fsdecode(from_text(target)))]


def _file(manifest: Manifest, root: str, rewrite: Rewrite) -> str:
    check_entry_path(from_text(rewrite.path))
    top, _, rest = rewrite.path.partition("/")
    if rewrite.place not in TOP_LEVELS or not rest:
        raise FormatError(f"the bundle wants {rewrite.path!r} of {rewrite.place!r} rewritten")
    return os.path.join(directory(manifest, root, rewrite.place, top), os.fsdecode(from_text(rest)))
