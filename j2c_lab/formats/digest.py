"""The name of a layer: SHA-256 over a canonical listing of what it holds.

Because the listing needs only the files' hashes, a layer's name is known without compressing
anything, and the unpacker proves every byte by making the same listing from what it wrote.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

FILE: Final = "f"
DIRECTORY: Final = "d"
LINK: Final = "l"
EntryType = Literal["f", "d", "l"]

_MAGIC = b"j2c-layer-1\n"
_LENGTH = struct.Struct(">Q")


class Entry(NamedTuple):
    """One entry of a layer.

    `path` is the place in the bundle (`project/train.py`, `site-packages/numpy/core.py`), as
    bytes with `/` between components. Only empty directories are entries: the others follow from
    the paths of what is in them, so that two layers can share a directory.
    """

    path: bytes
    type: EntryType
    executable: bool
    size: int
    #: SHA-256 (32 bytes) of a file's content; a link's target; empty for a directory.
    content: bytes


def layer_digest(entries: Iterable[Entry]) -> str:
    """Return the hexadecimal digest of a layer, 64 characters.

    The listing is the magic line, then for each entry, in the order of the paths' bytes, five
    fields: path, type (`f`, `d`, `l`), executable (`0`, `1`), size in decimal, and the content's
    SHA-256 or the link's target. Each field is preceded by its length as a 64-bit big-endian
    integer, so no choice of names can make two listings equal.
    """
    listing = hashlib.sha256(_MAGIC)
    pack = _LENGTH.pack
    for entry in sorted(entries):
        for field in (
            entry.path,
            entry.type.encode(),
            b"1" if entry.executable else b"0",
            b"%d" % entry.size,
            entry.content,
        ):
            listing.update(pack(len(field)) + field)
    return listing.hexdigest()
