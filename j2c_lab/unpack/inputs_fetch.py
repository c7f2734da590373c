"""Inputs from far away: fetched in parallel, proved where that is possible, kept on the node.

::

    <cache>/inputs/<hash of what it is>/index.json    size and time of each file
    <cache>/inputs/<hash of what it is>/content/…     the file, or all files below the prefix

What it is: its SHA-256 if that was given, else the URL with the version that the source tells (an
ETag, or sizes and times). A source that tells none is fetched into the run's own directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from j2c_lab.errors import DigestMismatchError, FormatError, UnpackError
from j2c_lab.formats.inputs import S3, Source
from j2c_lab.formats.paths import check_entry_path
from j2c_lab.unpack.control import Control
from j2c_lab.unpack.inputs_http import open_http
from j2c_lab.unpack.inputs_s3 import open_s3

#: Files of all inputs that are fetched at once.
_AT_ONCE = 8
_LOOK = 0.1
_PIECE = 1 << 20

Report = Callable[[int, int, "int | None", int], None]


class Remote(NamedTuple):
    """One file of an input.

    `path` is its place below the prefix, empty when the input is this one file; `checks` pairs
    hashlib's names with digests in hexadecimal.
    """

    path: str
    name: str
    size: int | None
    read: Callable[[], AsyncIterator[bytes]]
    checks: list[tuple[str, str]]


class Opened(NamedTuple):
    """An input whose source has answered. `version` is empty where the source tells none."""

    version: str
    files: list[Remote]


def fetch_inputs(
    sources: dict[str, Source], cache: str | None, directory: str, control: Control, report: Report
) -> dict[str, str]:
    """Return the paths of inputs; else as `inputs.resolve_inputs`."""
    fetching = _Fetching(sources, cache, directory)
    thread = threading.Thread(target=fetching.run, name="j2c-inputs", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_LOOK)
            control.check()
            if fetching.total_files:
                report(fetching.bytes, fetching.files, fetching.total_bytes, fetching.total_files)
    except BaseException:
        fetching.stop()
        thread.join(5)
        raise
    if fetching.error is not None:
        raise fetching.error
    return fetching.paths


def check_file(name: str, path: str, source: Source) -> None:
    """Prove that a file here has the SHA-256 that was given; raises `DigestMismatchError`."""
    content = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            content.update(piece)
    _prove(name, source, "sha256", content.hexdigest(), source.sha256)


class _Fetching:
    def __init__(self, sources: dict[str, Source], cache: str | None, directory: str) -> None:
        self.paths: dict[str, str] = {}
        self.error: BaseException | None = None
        self.bytes = self.files = self.total_files = 0
        self.total_bytes: int | None = 0
        self._sources = sources
        self._cache = cache
        self._directory = directory
        self._loop = asyncio.new_event_loop()
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._task: asyncio.Task[None] | None = None

    def run(self) -> None:
        try:
            self._task = self._loop.create_task(self._all())
            self._loop.run_until_complete(self._task)
        except BaseException as error:
            self.error = error
        finally:
            self._loop.close()

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())

    async def _all(self) -> None:
        tasks = [asyncio.ensure_future(self._one(*item)) for item in self._sources.items()]
        try:
            for paths in await asyncio.gather(*tasks):
                self.paths.update(paths)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, name: str, source: Source) -> dict[str, str]:
        if source.sha256 and (found := self._kept(f"sha256:{source.sha256}")):
            return {name: found}
        opening = open_s3 if source.kind == S3 else open_http
        async with opening(name, source) as opened:
            if source.sha256 and (len(opened.files) != 1 or opened.files[0].path):
                raise UnpackError(
                    f"input {name}: #sha256= is for one object, and {source.shown} is a prefix",
                    "leave it out",
                )
            version = f"sha256:{source.sha256}" if source.sha256 else opened.version
            if version and (found := self._kept(version)):
                return {name: found}
            return {name: await self._fetch(name, source, opened, version)}

    def _kept(self, version: str) -> str | None:
        """Return where an input is kept, if nobody has changed it."""
        if self._cache is None:
            return None
        place = self._place(version)
        try:
            with open(os.path.join(place, "index.json"), encoding="utf-8") as file:
                index = json.load(file)
            for path, size, mtime in index["files"]:
                status = os.stat(os.path.join(place, "content", path))
                if (status.st_size, status.st_mtime_ns) != (size, mtime):
                    return None
            return os.path.join(place, "content", index["single"]).rstrip("/")
        except (OSError, ValueError, KeyError):
            return None

    def _place(self, version: str) -> str:
        assert self._cache is not None
        return os.path.join(self._cache, "inputs", hashlib.sha256(version.encode()).hexdigest())

    async def _fetch(self, name: str, source: Source, opened: Opened, version: str) -> str:
        self.total_files += len(opened.files)
        sizes = [file.size for file in opened.files]
        for size in sizes:
            if self.total_bytes is not None:
                self.total_bytes = None if size is None else self.total_bytes + size
        keep = self._cache is not None and bool(version)
        parent = (
            os.path.dirname(self._place(version))
            if keep
            else os.path.join(self._directory, "inputs")
        )
        staging = os.path.join(parent, f"{name}.{os.urandom(6).hex()}.part")
        os.makedirs(os.path.join(staging, "content"), mode=0o700)
        try:
            tasks = [
                asyncio.ensure_future(self._file(name, source, file, staging))
                for file in opened.files
            ]
            try:
                index = await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            only = opened.files[0]
            single = "" if only.path else only.name
            with open(os.path.join(staging, "index.json"), "w", encoding="utf-8") as out:  # noqa: ASYNC230
                json.dump({"single": single, "files": index}, out)
            place = self._place(version) if keep else staging.removesuffix(".part")
            self._publish(staging, place)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        return os.path.join(place, "content", single).rstrip("/")

    def _publish(self, staging: str, place: str) -> None:
        for _ in range(10):
            try:
                os.rename(staging, place)
                return
            except OSError:
                if not os.path.isdir(place):
                    raise
            # Another run has just fetched it; or somebody changed what was kept.
            gone = f"{place}.{os.urandom(6).hex()}.gone"
            with contextlib.suppress(OSError):
                os.rename(place, gone)
            shutil.rmtree(gone, ignore_errors=True)
        raise UnpackError(f"{place} cannot be replaced", "remove it, or give another --cache")

    async def _file(
        self, name: str, source: Source, file: Remote, staging: str
    ) -> tuple[str, int, int]:
        relative = file.path or file.name
        check_entry_path(os.fsencode(relative))
        path = os.path.join(staging, "content", relative)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        checks = list(file.checks)
        if source.sha256:
            checks.append(("sha256", source.sha256))
        hashes = {kind: hashlib.new(kind, usedforsecurity=False) for kind, _ in checks}
        size = 0
        async with self._gate:
            with open(path, "wb") as out:  # noqa: ASYNC230 - the loop does nothing else
                async for piece in file.read():
                    for content in hashes.values():
                        content.update(piece)
                    out.write(piece)
                    size += len(piece)
                    self.bytes += len(piece)
                os.fchmod(out.fileno(), 0o444)
        if file.size is not None and size != file.size:
            raise UnpackError(
                f"input {name}: {source.shown} has {size} bytes, not {file.size}: it changed "
                "while it was fetched",
                "run it again when nobody writes to it",
            )
        for kind, digest in checks:
            _prove(name, source, kind, hashes[kind].hexdigest(), digest)
        self.files += 1
        status = os.stat(path)
        return relative, status.st_size, status.st_mtime_ns


def _prove(name: str, source: Source, kind: str, is_now: str, should_be: str) -> None:
    if is_now != should_be:
        error: type[FormatError] = DigestMismatchError
        raise error(
            f"input {name}: the {kind} of {source.shown} is {is_now}, not {should_be}",
            "it was damaged on the way or replaced: try again, or correct the checksum",
        )
