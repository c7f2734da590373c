"""One layer's job: find it or fetch it, and put its files where they belong."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from j2c_lab.errors import FormatError, UnsafePathError
from j2c_lab.formats.paths import show
from j2c_lab.unpack.cache import CachedLayer, LayerCache
from j2c_lab.unpack.extract import Clash, Expected, extract_layer, make_directory
from j2c_lab.unpack.place import place_files
from j2c_lab.unpack.source import ObjectSource

_PROGRESS_STEP = 16 << 20


class LayerJob(NamedTuple):
    """What a worker is asked, and (by `to_json`) how.

    `keep` says whether the layer belongs into the cache, `link` whether its files may be hard
    links to the cache's: never those of a project, because a run writes into its project.
    """

    key: str
    expected: Expected
    directories: dict[bytes, bytes]
    keep: bool
    link: bool

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; paths are bytes, written as Latin-1."""
        return {
            "key": self.key,
            "expected": list(self.expected),
            "directories": {_text(k): _text(v) for k, v in self.directories.items()},
            "keep": self.keep,
            "link": self.link,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> LayerJob:
        """Return the job that `to_json` wrote."""
        return cls(
            values["key"],
            Expected(*values["expected"]),
            {_bytes(k): _bytes(v) for k, v in values["directories"].items()},
            values["keep"],
            values["link"],
        )


class LayerDone(NamedTuple):
    """What a worker answers: what is left to do when all layers are there."""

    links: list[tuple[bytes, bytes]]
    clashes: list[Clash]
    #: Bytes that came from the store; 0 when the cache had the layer.
    fetched: int

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "links": [[_text(part) for part in link] for link in self.links],
            "clashes": [[_text(part) for part in clash] for clash in self.clashes],
            "fetched": self.fetched,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> LayerDone:
        """Return what `to_json` wrote."""
        return cls(
            [(_bytes(place), _bytes(target)) for place, target in values["links"]],
            [Clash(_bytes(path), _bytes(beside)) for path, beside in values["clashes"]],
            values["fetched"],
        )


def do_layer(
    job: LayerJob,
    source: ObjectSource,
    cache: LayerCache | None,
    progress: Callable[[int], None],
) -> LayerDone:
    """Do the job; `progress` is given the bytes fetched so far, now and then.

    Raises
    ------
    FormatError, StoreError, NotFoundError
        As `extract.extract_layer` and the store do.
    OSError
        The disk is full, say.
    """
    try:
        return _do_layer(job, source, cache, progress)
    except FormatError as error:
        # Which of many layers it is, and what helps, are not known further down.
        remedy = f"remove {job.key} from the store and submit again"
        raise type(error)(f"{error.message} (layer {job.key})", remedy, error.details) from error


def _do_layer(
    job: LayerJob,
    source: ObjectSource,
    cache: LayerCache | None,
    progress: Callable[[int], None],
) -> LayerDone:
    fetched = told = 0

    def pieces() -> Iterator[bytes]:
        nonlocal fetched, told
        for piece in source.pieces(job.key):
            fetched += len(piece)
            if fetched - told >= _PROGRESS_STEP:
                progress(fetched)
                told = fetched
            yield piece

    if cache is not None and job.keep:
        layer = cache.find(job.expected.digest)
        if layer is None:
            # A cache that is full must not stop the run: it can still be unpacked in its place.
            with contextlib.suppress(OSError):
                layer = cache.add(job.expected, pieces, job.directories)
        if layer is not None:
            return _from_cache(job, layer, fetched)
    extracted = extract_layer(pieces(), job.expected, job.directories)
    return LayerDone(extracted.links, extracted.clashes, fetched)


def _from_cache(job: LayerJob, layer: CachedLayer, fetched: int) -> LayerDone:
    _check_places(job, (file.path for file in layer.files))
    _check_places(job, (path for path, _ in layer.links))
    _check_places(job, layer.directories)
    clashes = place_files(layer.tree, layer.files, job.directories, link=job.link)
    made: set[bytes] = set()
    for path in layer.directories:
        make_directory(_place(job, path), made)
    links = [(_place(job, path), target) for path, target in layer.links]
    for place, _ in links:
        make_directory(os.path.dirname(place), made)
    return LayerDone(links, clashes, fetched)


def _check_places(job: LayerJob, paths: Iterable[bytes]) -> None:
    for path in paths:
        if path.partition(b"/")[0] not in job.directories:
            raise UnsafePathError(f"{show(path)} is no place that this layer may write to")


def _place(job: LayerJob, path: bytes) -> bytes:
    top, slash, rest = path.partition(b"/")
    return job.directories[top] + slash + rest


def _text(path: bytes) -> str:
    return path.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")
