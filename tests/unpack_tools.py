"""Layers, bundles and runs made by hand for the cluster side's tests."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from j2c_lab.formats import manifest as places
from j2c_lab.formats import tar
from j2c_lab.formats.digest import DIRECTORY, FILE, LINK, Entry, layer_digest
from j2c_lab.formats.journal import LOG, JournalRecord, SegmentParser
from j2c_lab.formats.manifest import EnvironmentRef, LayerRef, Manifest
from j2c_lab.formats.run import EntryPoint, Outcome, Run
from j2c_lab.formats.zstd import ZstdCompressor
from j2c_lab.store import layout
from j2c_lab.store.local import LocalStore

USER = "ada"
RUN_ID = "20261201-025028-7f3a9c"


class Item(NamedTuple):
    """One entry of a layer to make."""

    path: bytes
    data: bytes = b""
    type: str = FILE
    executable: bool = False


class Made(NamedTuple):
    """A layer and what the manifest says of it."""

    packed: bytes
    ref: LayerRef


def tar_entry(item: Item) -> bytes:
    """Return an entry's bytes as `j2c pack` writes them."""
    if item.type == LINK:
        return tar.header(item.path, tar.TYPE_LINK, target=item.data)
    if item.type == DIRECTORY:
        return tar.header(item.path + b"/", tar.TYPE_DIRECTORY)
    content = hashlib.sha256(item.data).digest()
    head = tar.header(
        item.path,
        tar.TYPE_FILE,
        size=len(item.data),
        executable=item.executable,
        mtime=tar.mtime_of(item.path, content),
    )
    return head + item.data + tar.padding(len(item.data))


def compress(data: bytes) -> bytes:
    """Return one zstd frame."""
    compressor = ZstdCompressor(level=1)
    return compressor.compress(data) + compressor.flush()


def digest_of(items: Iterable[Item]) -> str:
    """Return the digest of a layer that holds `items`."""
    entries = [
        Entry(
            item.path,
            item.type,  # type: ignore[arg-type]
            item.executable,
            len(item.data) if item.type == FILE else 0,
            {FILE: hashlib.sha256(item.data).digest(), LINK: item.data}.get(item.type, b""),
        )
        for item in items
    ]
    return layer_digest(entries)


def make_layer(
    items: Sequence[Item], place: str = places.PROJECT, plain: bytes | None = None, **changes: Any
) -> Made:
    """Return a layer; `plain` is the archive if it is to be another, `changes` go into the ref."""
    items = sorted(items)
    if plain is None:
        plain = b"".join(map(tar_entry, items))
    packed = compress(plain)
    values: dict[str, Any] = {
        "digest": digest_of(items),
        "name": place,
        "place": place,
        "packed_size": len(packed),
        "unpacked_size": sum(len(item.data) for item in items if item.type == FILE),
        "files": len(items),
    }
    return Made(packed, LayerRef(**{**values, **changes}))


def project(files: Mapping[str, str | bytes]) -> Made:
    """Return a project layer of text or binary files."""
    return make_layer(
        [
            Item(f"project/{name}".encode(), data.encode() if isinstance(data, str) else data)
            for name, data in files.items()
        ]
    )


def make_run(
    store: LocalStore,
    layers: Sequence[Made],
    entry: EntryPoint | str = "main.py",
    **options: Any,
) -> str:
    """Put layers, a bundle and a run into the store; return the run URL."""
    if isinstance(entry, str):
        entry = EntryPoint(kind="script", target=entry)
    bundle = Manifest(
        project="example",
        layers=[layer.ref for layer in layers],
        environment=EnvironmentRef(
            kind="none",
            python=f"{sys.version_info[0]}.{sys.version_info[1]}",
            python_full=sys.version.split()[0],
            implementation=sys.implementation.name,
            platform=sysconfig.get_platform(),
            libc="",
            system_site=True,
            distributions=[],
        ),
        **{key: options.pop(key) for key in ("dangling",) if key in options},
    )
    values = {"id": RUN_ID, "user": USER, "name": "test", "created": 1.0, **options}
    run = Run(bundle=bundle.digest(), entry=entry, **values)

    async def put() -> None:
        for layer in layers:
            await store.put(layout.layer(layer.ref.digest), layer.packed)
        await store.put(layout.bundle(bundle.digest()), bundle.to_json())
        await store.put(layout.run(run.user, run.id), run.to_json())

    asyncio.run(put())
    return layout.run_url(store.url, run.user, run.id)


class Unpack(NamedTuple):
    """A `j2c unpack` to be started as a process of its own."""

    store: LocalStore
    url: str
    workdir: Path
    cache: Path

    def command(self, *arguments: str) -> list[str]:
        where = ["--workdir", str(self.workdir), "--cache", str(self.cache)]
        return [sys.executable, "-m", "j2c_lab.unpack", self.url, *where, *arguments]

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        outer = {k: v for k, v in os.environ.items() if not k.startswith("J2C_")}
        env = {**outer, "J2C_DELIVERY_SECONDS": "20", **options.pop("env", {})}
        options = {"stderr": subprocess.PIPE, "start_new_session": True, "cwd": "/", **options}
        return subprocess.Popen(self.command(*arguments), env=env, **options)

    def run(self, *arguments: str, timeout: float = 60, **options: Any) -> tuple[int, str]:
        """Run to the end; returns the exit code (negative: a signal) and stderr."""
        process = self.start(*arguments, **options)
        try:
            _, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, errors.decode()

    def outcome(self, attempt: int = 1) -> Outcome:
        path = self.store.local_path(layout.outcome(USER, RUN_ID, attempt))
        assert path is not None
        return Outcome.from_json(path.read_bytes())

    def records(self, attempt: int = 1) -> list[JournalRecord]:
        return read_journal(self.store, attempt)

    def log(self, attempt: int = 1, stream: str = "output") -> bytes:
        records = self.records(attempt)
        return b"".join(r.payload for r in records if r.kind == LOG and r.stream == stream)

    def events(self, attempt: int = 1) -> list[dict[str, Any]]:
        return [record.event() for record in self.records(attempt) if record.kind == "event"]

    def wait_for_log(self, text: bytes, attempt: int = 1, timeout: float = 30) -> None:
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            if text in self.log(attempt):
                return
            time.sleep(0.02)
        raise AssertionError(f"{text!r} did not come: {self.log(attempt)!r}")


Prepare = Callable[..., Unpack]


def read_journal(store: LocalStore, attempt: int = 1) -> list[JournalRecord]:
    """Return all records in the store, as a follower gets them: by segments, without repeats."""
    directory = store.local_path(layout.journal_prefix(USER, RUN_ID, attempt))
    assert directory is not None
    records: list[JournalRecord] = []
    if not directory.is_dir():
        return records
    for path in sorted(directory.iterdir()):
        for record in SegmentParser().feed(path.read_bytes()):
            if not records or record.number > records[-1].number:
                records.append(record)
    assert [record.number for record in records] == list(range(1, len(records) + 1))
    return records
