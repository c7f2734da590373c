"""What a base image holds: written by `j2c base`, compared before anything is sent or queued."""

from __future__ import annotations

import dataclasses
import hashlib

from j2c_lab.formats.manifest import Distribution
from j2c_lab.formats.record import Record


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inventory(Record):
    """A base image, as seen by the Python in it. Says nothing of when or where it was taken."""

    FORMAT = 1

    format: int = 1
    #: `3.11`
    python: str
    #: `3.11.7`
    python_full: str
    #: `cpython`
    implementation: str
    #: `linux-x86_64`
    platform: str
    #: `glibc 2.36`, or empty.
    libc: str
    #: `12.4`, or empty where none is found.
    cuda: str = ""
    #: Names of shared libraries that the loader finds (`libcudart.so.12`).
    libraries: list[str] = dataclasses.field(default_factory=list)
    #: `layer` is empty where the digest was not asked for.
    distributions: list[Distribution] = dataclasses.field(default_factory=list)

    def digest(self) -> str:
        """Return SHA-256 of the canonical bytes, 64 hexadecimal digits."""
        return hashlib.sha256(self.to_json()).hexdigest()
