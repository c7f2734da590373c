"""The distributions that a base image's Python has, and the digests of their layers."""

from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

from j2c_lab.formats.digest import Entry, layer_digest
from j2c_lab.formats.planned import PlannedFile
from j2c_lab.installed.distributions import (
    Installed,
    info_names,
    name_and_version,
    read_distribution,
)
from j2c_lab.installed.interpreter import Interpreter, ask, cache_directory

_CHUNK = 1 << 20


class BaseDistribution(NamedTuple):
    """A distribution of the base image, not yet read."""

    name: str
    version: str
    #: The directory of packages that has it, and the name of its `.dist-info` there.
    site: bytes
    info: bytes

    def read(self, interpreter: Interpreter) -> Installed:
        """Return the distribution with its files, as its layer would hold them."""
        # <prefix>/lib/python3.11/site-packages, and Debian's <prefix>/lib/python3/dist-packages.
        prefix = os.path.dirname(os.path.dirname(os.path.dirname(self.site)))
        directories = {prefix + b"/bin", os.fsencode(os.path.dirname(interpreter.executable))}
        directories.add(os.fsencode(os.path.dirname(interpreter.base_executable)))
        return read_distribution(self.site, prefix, self.info, sorted(directories))


def base_distributions(interpreter: Interpreter) -> dict[str, BaseDistribution]:
    """Return what `interpreter` has, and the Python below it when it is a venv's, by name."""
    sites = list(interpreter.site_packages)
    if interpreter.is_venv:
        sites += ask(interpreter.base_executable).site_packages
    found: dict[str, BaseDistribution] = {}
    for site in map(os.fsencode, sites):
        for info in info_names(site):
            name, version = name_and_version(site, info)
            found.setdefault(name, BaseDistribution(name, version, site, info))
    return found


def digest_of(files: list[PlannedFile]) -> str:
    """Return the digest of the layer that `files` make; every file is read.

    The digest is remembered for as long as no file's identity, size or times change.
    """
    # In order of their paths: a walk's order differs from one file system to another.
    listing = sorted((f.path, f.type, f.executable, f.key, f.data) for f in files)
    memory = os.path.join(
        cache_directory(), "digests", hashlib.sha256(repr(listing).encode()).hexdigest()
    )
    try:
        with open(memory, encoding="ascii") as file:
            remembered = file.read()
        if len(remembered) == 64:
            return remembered
    except (OSError, ValueError):
        pass
    digest = layer_digest(_entries(files))
    _remember(memory, digest)
    return digest


def _entries(files: list[PlannedFile]) -> list[Entry]:
    large = sum(f.key.size for f in files if f.key is not None) > 32 * _CHUNK
    if not large:
        return [_entry(file) for file in files]
    # Loaded only where it pays: hashing leaves the interpreter's lock.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(_entry, files))


def _entry(file: PlannedFile) -> Entry:
    if file.type != "f":
        return Entry(file.path, file.type, False, 0, file.data)
    if file.source is None:
        return Entry(
            file.path, "f", file.executable, len(file.data), hashlib.sha256(file.data).digest()
        )
    digest, size = hashlib.sha256(), 0
    with open(file.source, "rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return Entry(file.path, "f", file.executable, size, digest.digest())


def _remember(path: str, digest: str) -> None:
    # A memory that cannot be written costs time, nothing else.
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(temporary, "w", encoding="ascii") as file:
            file.write(digest)
        os.replace(temporary, path)
    except OSError:
        pass
