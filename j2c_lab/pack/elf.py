"""Which shared libraries a compiled file asks for: DT_NEEDED of 64-bit little-endian ELF.

Format: System V ABI, chapters 4 (object files) and 5 (program loading and dynamic linking).
"""

from __future__ import annotations

import os
import struct

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_LOAD, _DYNAMIC_SEGMENT = 1, 2
_NEEDED, _STRINGS, _STRINGS_SIZE = 1, 5, 10
#: More than any real table; a damaged file must not fill the memory.
_LARGEST = 1 << 24


def needed_libraries(path: bytes) -> list[str]:
    """Return the names that the dynamic section of the file at `path` lists.

    Empty for whatever is no such ELF file (another system's, a damaged one, a script).
    """
    try:
        with open(path, "rb") as file:
            return _needed(file.fileno())
    except (OSError, struct.error, ValueError, OverflowError):
        return []


def _needed(descriptor: int) -> list[str]:
    header = os.pread(descriptor, _HEADER.size, 0)
    # Magic, then 2: 64 bits, 1: little-endian. x86-64, AArch64, POWER and RISC-V are all of these.
    if header[:6] != b"\x7fELF\x02\x01":
        return []
    fields = _HEADER.unpack(header)
    offset, size, count = fields[5], fields[9], fields[10]
    if size != _PROGRAM.size:
        return []
    table = os.pread(descriptor, size * count, offset)
    loads: list[tuple[int, int, int]] = []
    dynamic = b""
    for kind, _, start, address, _, length, _, _ in _PROGRAM.iter_unpack(table):
        if kind == _LOAD:
            loads.append((address, length, start))
        elif kind == _DYNAMIC_SEGMENT:
            dynamic = os.pread(descriptor, min(length, _LARGEST) // 16 * 16, start)
    entries = list(_DYNAMIC.iter_unpack(dynamic))
    values = dict(entries)
    address, length = values.get(_STRINGS, 0), values.get(_STRINGS_SIZE, 0)
    for first, extent, start in loads:
        if first <= address < first + extent:
            strings = os.pread(descriptor, min(length, _LARGEST), address - first + start)
            names = [value for tag, value in entries if tag == _NEEDED]
            return [os.fsdecode(strings[at : strings.index(b"\0", at)]) for at in names]
    return []
