"""Tar headers as layers hold them: GNU format, no owner, fixed times, modes 0644 and 0755.

Format: GNU tar manual, "Basic Tar Format" and "GNU Extensions to the Archive Format". Names are
bytes of any encoding; those that do not fit go into a preceding `L` (name) or `K` (link) entry,
and sizes of 8 GiB and more into a base-256 field. `tarfile` writes the same at about ten times
the cost, which shows when 15,000 small files are packed.
"""

from __future__ import annotations

import struct

BLOCK = 512
#: Two blocks of zeros close an archive; layers end without them, so that they can be joined.
END_OF_ARCHIVE = bytes(2 * BLOCK)

TYPE_FILE = b"0"
TYPE_LINK = b"2"
TYPE_DIRECTORY = b"5"
_LONG_NAME = b"L"
_LONG_LINK = b"K"

#: 1980-01-01: the earliest time that zip files hold too.
FIXED_MTIME = 315532800

_HEADER = struct.Struct("100s8s8s8s12s12s8s1s100s8s32s32s8s8s155s12x")


def mtime_of(path: bytes, content_sha256: bytes) -> int:
    """Return the modification time, in seconds, that a file has in a layer and when unpacked.

    Python takes a `.pyc` for current when the source's time and size are what it recorded. With
    one fixed time for all files a bytecode file of an older version with the same length would be
    taken for current, so sources get a time made from their content: another content, another
    time. All other files have one fixed time.
    """
    if path.endswith(b".py"):
        return FIXED_MTIME + (int.from_bytes(content_sha256[:4], "big") & 0x3FFFFFFF)
    return FIXED_MTIME


def padding(size: int) -> bytes:
    """Return the zeros that fill the last block of `size` bytes of content."""
    return bytes(-size % BLOCK)


def header(
    path: bytes,
    kind: bytes,
    *,
    size: int = 0,
    executable: bool = False,
    mtime: int = FIXED_MTIME,
    target: bytes = b"",
) -> bytes:
    """Return the header blocks of one entry, those for a long name or link target included."""
    blocks = b""
    if len(target) > 100:
        blocks += _long(_LONG_LINK, target)
        target = target[:100]
    if len(path) > 100:
        blocks += _long(_LONG_NAME, path)
        path = path[:100]
    mode = b"0000755\0" if executable or kind != TYPE_FILE else b"0000644\0"
    return blocks + _block(path, kind, mode, size, mtime, target)


def header_size(path: bytes) -> int:
    """Return the length of a file's header: it depends on the name alone."""
    if len(path) <= 100:
        return BLOCK
    return 2 * BLOCK + len(path) + 1 + -(len(path) + 1) % BLOCK


def _long(kind: bytes, name: bytes) -> bytes:
    data = name + b"\0"
    block = _block(b"././@LongLink", kind, b"0000644\0", len(data), 0, b"")
    return block + data + padding(len(data))


def _block(path: bytes, kind: bytes, mode: bytes, size: int, mtime: int, target: bytes) -> bytes:
    # 11 octal digits hold sizes below 8 GiB; above, GNU's base-256 form, marked by its top bit.
    octal = b"%011o\0" % size if size < 1 << 33 else b"\x80" + size.to_bytes(11, "big")
    fields = [
        path,
        mode,
        b"0000000\0",
        b"0000000\0",
        octal,
        b"%011o\0" % mtime,
        b" " * 8,
        kind,
        target,
        b"ustar  \0",
        b"",
        b"",
        b"",
        b"",
        b"",
    ]
    blank = _HEADER.pack(*fields)
    return blank[:148] + b"%06o\0 " % sum(blank) + blank[156:]
