"""`RECORD`: which files a distribution says it has, and the SHA-256 of each.

Format: the packaging specification "Recording installed projects": csv with path, hash, size.
Sixty of them hold 13,000 lines, so what was parsed is kept for as long as the file is unchanged.
"""

from __future__ import annotations

import binascii
import marshal
import os
import re
import sys
from hashlib import sha256
from typing import NamedTuple

from j2c_lab.installed.interpreter import cache_directory, remember

#: A line whose path is quoted, as csv does for commas and quotes, or for everything.
_QUOTED_LINE = re.compile(rb'"((?:[^"]|"")*)","?([^",]*)')
_URLSAFE = bytes.maketrans(b"-_", b"+/")

_Key = tuple[int, int, int, int]


class Record(NamedTuple):
    """What one RECORD says."""

    #: From a file's place (`site-packages/numpy/core.py`) to its SHA-256, None where none is given.
    hashes: dict[bytes, bytes | None]
    #: Names of files outside the directory of packages, as written: `../../../bin/x`, `/etc/x`.
    elsewhere: list[bytes]


class Records:
    """The RECORD files of one directory of packages, and what is remembered of them."""

    def __init__(self, site: bytes) -> None:
        self._site = site
        name = f"{sha256(site).hexdigest()[:32]}-{sys.implementation.cache_tag}"
        self._memory = os.path.join(cache_directory(), "records", name)
        self._known = self._load()
        self._seen: dict[bytes, tuple[_Key, Record]] = {}
        self._changed = False

    def read(self, info: bytes) -> Record:
        """Return what the RECORD in the directory `info` says; raises `OSError`."""
        path = self._site + b"/" + info + b"/RECORD"
        stat = os.stat(path)
        key = (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        known = self._known.get(info)
        if known is not None and known[0] == key:
            record = Record(*known[1])
        else:
            with open(path, "rb") as file:
                record = parse_record(file.read())
            self._changed = True
        self._seen[info] = (key, record)
        return record

    def save(self) -> None:
        """Remember what was read, if anything was new."""
        if self._changed or len(self._seen) != len(self._known):
            plain = {info: (key, tuple(record)) for info, (key, record) in self._seen.items()}
            remember(self._memory, marshal.dumps(plain))

    def _load(self) -> dict[bytes, tuple[_Key, tuple[dict[bytes, bytes | None], list[bytes]]]]:
        # marshal, because it is four times as fast as pickle; it is the user's own file, named for
        # this version of Python.
        try:
            with open(self._memory, "rb") as file:
                known = marshal.loads(file.read())  # noqa: S302
        except (OSError, ValueError, EOFError, TypeError):
            return {}
        return known if isinstance(known, dict) else {}


def parse_record(content: bytes) -> Record:
    """Return what `content` says; lines that say nothing sensible are passed over."""
    record = Record({}, [])
    hashes = record.hashes
    for line in content.splitlines():
        if match := _QUOTED_LINE.match(line):
            name, digest = match[1].replace(b'""', b'"'), match[2]
        else:
            parts = line.rsplit(b",", 2)
            if len(parts) != 3:
                continue
            name, digest, _ = parts
        if name.startswith((b"../", b"/")):
            record.elsewhere.append(name)
        elif name:
            hashes[b"site-packages/" + name] = _decoded(digest)
    return record


def _decoded(digest: bytes) -> bytes | None:
    if not digest.startswith(b"sha256=") or len(digest) != 50:
        return None
    try:
        return binascii.a2b_base64(digest[7:].translate(_URLSAFE) + b"=")
    except ValueError:
        return None
