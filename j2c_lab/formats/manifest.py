"""The bundle's manifest: which layers, where each goes, and how the environment is made of them.

It says nothing that differs between two packs of the same content (no times, no host names), so
the same content gives the same bundle digest.
"""

from __future__ import annotations

import dataclasses
import hashlib

from j2c_lab.formats.record import Record

# Where a layer goes. Entries of an environment layer are named `site-packages/…`, `scripts/…` and
# `prefix/…`; `USER` layers have the same names but go to the user base (`~/.local`'s successor).
PROJECT = "project"
ENVIRONMENT = "environment"
USER = "user"
#: Sources of editable installs that lie outside the project: `editable/<name>/…`.
EDITABLE = "editable"

#: First path components that a layer of each place may hold.
TOP_LEVELS: dict[str, frozenset[str]] = {
    PROJECT: frozenset({"project"}),
    ENVIRONMENT: frozenset({"site-packages", "scripts", "prefix"}),
    USER: frozenset({"site-packages", "scripts", "prefix"}),
    EDITABLE: frozenset({"editable"}),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerRef(Record):
    """A layer as the manifest lists it."""

    digest: str
    #: What a person calls it: `numpy 2.1.0`, `project`, `environment`.
    name: str
    #: One of `PROJECT`, `ENVIRONMENT`, `USER`, `EDITABLE`.
    place: str
    #: Bytes of the `.tar.zst`, and of the file contents in it.
    packed_size: int
    unpacked_size: int
    #: Number of entries.
    files: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distribution(Record):
    """An installed package; `layer` is the digest of its layer."""

    name: str
    version: str
    layer: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Script(Record):
    """A console script, made anew at the place where the environment is unpacked."""

    name: str
    #: `package.module:attribute`, as in `entry_points.txt`.
    target: str
    #: `ENVIRONMENT` or `USER`.
    place: str = ENVIRONMENT


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rewrite(Record):
    """A file whose content names places, written anew when its new place is known.

    Attributes
    ----------
    path : str
        The file, as its layer names it (`site-packages/__editable___x_finder.py`).
    kind : str
        `pth`: `values` maps each line to replace to its new target.
        `setuptools-finder`: `values` maps each original path in MAPPING and NAMESPACES likewise.
        `text`: every occurrence of each key is replaced.
    values : dict
        From the text as packed to a bundle path (`project/src`, `editable/lib/src`), which the
        unpacker makes absolute, or to `base:` for the site-packages of the base image.
    """

    path: str
    kind: str
    values: dict[str, str]
    place: str = ENVIRONMENT


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeftOut(Record):
    """A file, directory or distribution that was not packed, and the rule that left it out."""

    path: str
    #: `built-in: __pycache__`, `.gitignore:3: *.ckpt`, `base`, `only for j2c-lab`, `socket`.
    rule: str
    #: Bytes, where that is known without walking a directory.
    size: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class DanglingLink(Record):
    """A link to nothing, leading out of the bundle: made last, never written through."""

    path: str
    target: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvironmentRef(Record):
    """The Python environment that the layers make."""

    #: `venv`, `conda`, `user` or `none` (the base image's Python as it is).
    kind: str
    #: `3.11`
    python: str
    #: `3.11.7`
    python_full: str
    #: `cpython`
    implementation: str
    #: `sysconfig.get_platform()`: `linux-x86_64`.
    platform: str
    #: `glibc 2.36`, or empty.
    libc: str
    #: Whether the base image's own packages are visible in the environment.
    system_site: bool
    distributions: list[Distribution]
    #: What the base image must provide, in this version and content, for this environment.
    base_distributions: list[Distribution] = dataclasses.field(default_factory=list)
    scripts: list[Script] = dataclasses.field(default_factory=list)
    rewrites: list[Rewrite] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest(Record):
    """`bundles/<digest>.json`, and `manifest.json` in a joined archive."""

    FORMAT = 1

    format: int = 1
    #: The project's own name (its directory's).
    project: str
    layers: list[LayerRef]
    environment: EnvironmentRef
    dangling: list[DanglingLink] = dataclasses.field(default_factory=list)
    left_out: list[LeftOut] = dataclasses.field(default_factory=list)
    #: The inventory's digest of the base image that this was compared with, or empty.
    base: str = ""

    def digest(self) -> str:
        """Return the bundle's digest: SHA-256 of the canonical bytes, 64 hexadecimal digits."""
        return hashlib.sha256(self.to_json()).hexdigest()
