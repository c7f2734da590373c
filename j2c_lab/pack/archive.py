"""A bundle as one file: `j2c pack -o experiment.tar.zst`, which plain `tar --zstd -xf` opens.

`manifest.json` comes first, then the layers as they lie in the store, one after another, then a
frame with tar's end of archive. Layers of the user base, whose entries have the same names as those
of the environment, are put below `user/`; they alone are compressed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from j2c_lab.errors import DigestMismatchError, FormatError, PackError
from j2c_lab.formats import tar
from j2c_lab.formats.digest import DIRECTORY, FILE, LINK, Entry, layer_digest
from j2c_lab.formats.manifest import USER, LayerRef, Manifest
from j2c_lab.formats.zstd import ZstdCompressor, ZstdDecompressor, ZstdError
from j2c_lab.pack.layer_writer import LEVEL
from j2c_lab.pack.sending import staging_directory
from j2c_lab.store import layout
from j2c_lab.store.base import Store
from j2c_lab.store.renewal import counted_on

if TYPE_CHECKING:
    from tarfile import TarInfo

_MANIFEST = b"manifest.json"
_USER = b"user/"
_PIECE = 1 << 20
#: A manifest lists what was left out, which can be much; this much is a hostile file.
_LARGEST_MANIFEST = 256 << 20


async def write_archive(manifest: Manifest, store: Store, path: Path) -> int:
    """Write the bundle, whose layers are in `store`, to the file `path`; return its size in bytes.

    The file appears when it is complete.

    Raises
    ------
    NotFoundError
        The store lacks a layer.
    PackError
        The file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:  # noqa: ASYNC230  (nothing else runs on this loop)
            content = manifest.to_json()
            head = tar.header(_MANIFEST, tar.TYPE_FILE, size=len(content))
            file.write(_frame(head + content + tar.padding(len(content))))
            for layer in manifest.layers:
                if layer.place == USER:
                    await _write_below_user(layer, store, file)
                    continue
                async for piece in store.read(layout.layer(layer.digest)):
                    file.write(piece)
            file.write(_frame(tar.END_OF_ARCHIVE))
        size = os.stat(temporary).st_size
        os.replace(temporary, path)
    except OSError as error:
        raise PackError(
            f"{path} cannot be written: {error.strerror}", "give another file with -o"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    return size


async def read_archive(path: Path, store: Store) -> Manifest:
    """Put the bundle in the file `path` into `store`, every layer proven; return its manifest.

    Layers of the user base are compressed again, so their packed sizes may have changed.

    Raises
    ------
    FormatError
        The file is no bundle, or is damaged; the store gets nothing that is not what it is named.
    """
    with open(path, "rb") as file:  # noqa: ASYNC230  (nothing else runs on this loop)
        try:
            manifest = _read_manifest(file)
            layers = []
            for layer in manifest.layers:
                layers.append(await _read_layer(layer, file, store))
        except (ZstdError, EOFError) as error:
            raise FormatError(f"{path} is damaged: {error}") from error
    changes = manifest.to_dict()
    changes["layers"] = [layer.to_dict() for layer in layers]
    manifest = Manifest.from_dict(changes)
    await store.put(layout.bundle(manifest.digest()), manifest.to_json(), if_absent=True)
    return manifest


async def _write_below_user(layer: LayerRef, store: Store, file: IO[bytes]) -> None:
    import tempfile

    with tempfile.TemporaryFile() as packed:
        async for piece in store.read(layout.layer(layer.digest)):
            packed.write(piece)
        packed.seek(0)
        with contextlib.closing(_Rewriter(file)) as rewriter:
            for info, content in _entries(_Frames(packed, layer.packed_size)):
                rewriter.add(info, _USER + _name(info), content)


async def _read_layer(layer: LayerRef, file: IO[bytes], store: Store) -> LayerRef:
    """Prove one layer of an archive and put it into the store."""
    staged = Path(staging_directory(store)) / f"layer-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with open(staged, "xb") as out:  # noqa: ASYNC230  (nothing else runs on this loop)
            size = _take_layer(layer, file, out)
        key = layout.layer(layer.digest)
        # Kept from `consume` for the case that `j2c gc` takes an old one away just now.
        while not await store.put_file(key, staged, if_absent=True):
            there = await counted_on(store, await store.stat([key]))
            if key in there:
                # Compressed again, those of the user base may have another size here.
                size = there[key].size
                break
    finally:
        staged.unlink(missing_ok=True)
    return LayerRef.from_dict({**layer.to_dict(), "packed_size": size})


def _take_layer(layer: LayerRef, file: IO[bytes], out: IO[bytes]) -> int:
    """Copy a layer to `out` as it belongs in a store; return its size there."""
    entries = []
    if layer.place == USER:
        frames = _Frames(file, None)
        with contextlib.closing(_Rewriter(out)) as rewriter:
            for info, content in _entries(frames):
                name = _name(info).removeprefix(_USER)
                entries.append(rewriter.add(info, name, content))
    else:
        frames = _Frames(file, layer.packed_size, copy=out)
        for info, content in _entries(frames):
            entries.append(_Rewriter(None).add(info, _name(info), content))
    frames.finish()
    if layer_digest(entries) != layer.digest:
        raise DigestMismatchError(f"the layer {layer.name} is not what its digest says")
    return out.tell()


def _read_manifest(file: IO[bytes]) -> Manifest:
    frames = _Frames(file, None)
    for info, content in _entries(frames):
        if _name(info) != _MANIFEST or info.size > _LARGEST_MANIFEST:
            break
        manifest = Manifest.from_json(b"".join(content))
        frames.finish()
        return manifest
    raise FormatError("the file is no bundle: it does not begin with manifest.json")


def _entries(frames: _Frames) -> Iterator[tuple[TarInfo, Iterator[bytes]]]:
    """Yield each entry of a tar stream with its content in pieces."""
    import tarfile

    try:
        with tarfile.open(
            fileobj=cast("IO[bytes]", frames),
            mode="r|",
            encoding="utf-8",
            errors="surrogateescape",
        ) as archive:
            for info in archive:
                opened = archive.extractfile(info) if info.isreg() else None
                yield info, _pieces(opened)
                # tarfile remembers every entry; an archive can have many.
                cast(Any, archive).members = []
    except tarfile.TarError as error:
        raise FormatError(f"the archive is damaged: {error}") from error


def _pieces(opened: IO[bytes] | None) -> Iterator[bytes]:
    while opened is not None and (piece := opened.read(_PIECE)):
        yield piece


def _name(info: TarInfo) -> bytes:
    return info.name.encode("utf-8", "surrogateescape")


def _frame(data: bytes) -> bytes:
    compressor = ZstdCompressor(level=LEVEL)
    packed: bytes = compressor.compress(data) + compressor.flush()
    return packed


class _Rewriter:
    """Takes entries and writes them, in one frame, below other names; or only lists them."""

    def __init__(self, out: IO[bytes] | None) -> None:
        self._out = out
        self._compressor = ZstdCompressor(level=LEVEL)

    def add(self, info: TarInfo, name: bytes, content: Iterator[bytes]) -> Entry:
        """Write one entry and return what the digest lists of it."""
        executable = bool(info.mode & 0o100)
        if info.isdir():
            self._put(tar.header(name + b"/", tar.TYPE_DIRECTORY))
            return Entry(name, DIRECTORY, False, 0, b"")
        if info.issym():
            target = info.linkname.encode("utf-8", "surrogateescape")
            self._put(tar.header(name, tar.TYPE_LINK, target=target))
            return Entry(name, LINK, False, 0, target)
        if not info.isreg():
            raise FormatError(f"the archive holds an entry of the kind {info.type!r}")
        mtime = int(info.mtime)
        self._put(
            tar.header(name, tar.TYPE_FILE, size=info.size, executable=executable, mtime=mtime)
        )
        running = hashlib.sha256()
        for piece in content:
            running.update(piece)
            self._put(piece)
        self._put(tar.padding(info.size))
        return Entry(name, FILE, executable, info.size, running.digest())

    def close(self) -> None:
        """Write the frame's end."""
        if self._out is not None:
            self._out.write(self._compressor.flush())

    def _put(self, data: bytes) -> None:
        if self._out is not None:
            self._out.write(self._compressor.compress(data))


class _Frames:
    """Reads what is compressed in the next `size` bytes of a file, or in its next frame.

    Parameters
    ----------
    file : binary file
        Is left right behind what was read.
    size : int or None
        Compressed bytes; None for one frame.
    copy : binary file, optional
        Gets the compressed bytes.
    """

    def __init__(self, file: IO[bytes], size: int | None, copy: IO[bytes] | None = None) -> None:
        self._file = file
        self._left = size
        self._copy = copy
        self._decompressor = ZstdDecompressor()
        self._done = False

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes; empty at the end."""
        out: bytes = b""
        while not out and not self._done:
            out = self._more(size)
        return out

    def finish(self) -> None:
        """Read to the end, of which tar may have left something."""
        while self.read(_PIECE):
            pass

    def _more(self, size: int) -> bytes:
        data = b""
        if self._decompressor.eof:
            if self._left in (None, 0):
                self._done = True
                return b""
            self._decompressor = ZstdDecompressor()
        if self._decompressor.needs_input:
            data = self._file.read(_PIECE if self._left is None else min(_PIECE, self._left))
            if not data:
                raise EOFError("it ends too early")
        out: bytes = self._decompressor.decompress(data, size)
        if self._left is not None:
            self._left -= len(data)
        if self._copy is not None:
            self._copy.write(data)
        if self._decompressor.eof:
            self._step_back(len(self._decompressor.unused_data))
        return out

    def _step_back(self, size: int) -> None:
        """Leave the last bytes, which may have been read some calls ago, to the next frame."""
        self._file.seek(-size, os.SEEK_CUR)
        if self._left is not None:
            self._left += size
        if self._copy is not None:
            self._copy.seek(-size, os.SEEK_CUR)
