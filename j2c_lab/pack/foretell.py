"""What a layer's digest will be, as far as it can be known without reading its files."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from j2c_lab.formats.digest import FILE, layer_digest
from j2c_lab.pack.file_hashes import LayerFacts, TreeCache, signature_of
from j2c_lab.pack.layer_writer import entry_of
from j2c_lab.pack.plan import LayerPlan, PlannedFile

_EMPTY = sha256().digest()


class Foretold(NamedTuple):
    """What is known of a layer before anything is read."""

    signature: bytes
    #: The digest, or None when some file's content is not even foretold.
    digest: str | None
    #: Whether every file's hash is remembered; else the digest rests on what `RECORD` says.
    certain: bool
    #: For each file in the plan's order its hash, or None when it must be read.
    known: list[bytes | None]
    #: Bytes of content, and of that what must be read to be sure; number of files to read.
    unpacked_size: int
    unread_size: int
    unread_files: int
    #: Size in the store as it was last seen, or None.
    packed_size: int | None


def foretell(layer: LayerPlan, cache: TreeCache) -> Foretold:
    """Return what `cache` and the plan know of `layer`; reads no file of it."""
    signature = signature_of(layer.files)
    facts = cache.layer(signature)
    if facts is not None:
        return Foretold(
            signature, facts.digest, True, [], facts.unpacked_size, 0, 0, facts.packed_size or None
        )
    known: list[bytes | None] = []
    guessed: list[bytes | None] = []
    unpacked = unread = unread_files = 0
    for file in layer.files:
        content = _known_hash(file, cache)
        known.append(content)
        guessed.append(content or file.expected)
        size = size_of(file)
        unpacked += size
        if content is None:
            unread += size
            unread_files += 1
    digest = None
    if None not in guessed:
        pairs = zip(layer.files, guessed, strict=True)
        digest = layer_digest(entry_of(file, size_of(file), hash_ or b"") for file, hash_ in pairs)
    return Foretold(
        signature, digest, unread_files == 0, known, unpacked, unread, unread_files, None
    )


def remember(
    cache: TreeCache, signature: bytes, files: Iterable[PlannedFile], facts: LayerFacts
) -> None:
    """Remember a layer's facts, if each of its files is one whose changes would show."""
    for file in files:
        if file.key is not None and file.key.size and cache.hashes.get(file.key) is None:
            return
    cache.layers.put(signature, tuple(facts))


def size_of(file: PlannedFile) -> int:
    """Return the bytes of a file's content, 0 for links and directories."""
    if file.type != FILE:
        return 0
    return len(file.data) if file.key is None else file.key.size


def _known_hash(file: PlannedFile, cache: TreeCache) -> bytes | None:
    if file.type != FILE:
        return b""
    if file.key is None:
        return sha256(file.data).digest()
    if file.key.size == 0:
        return _EMPTY
    found: bytes | None = cache.hashes.get(file.key)
    return found
