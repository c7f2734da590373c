"""Collecting what no run needs, on directories with real bundles, beside packs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from j2c_lab.errors import FormatError, UsageError
from j2c_lab.formats.manifest import EnvironmentRef, LayerRef, Manifest
from j2c_lab.formats.run import EntryPoint, Run
from j2c_lab.runs.gc import collect
from j2c_lab.store import layout
from j2c_lab.store.local import LocalStore
from j2c_lab.store.renewal import counted_on
from tests.real.loops import asynchronous

DAY = 24 * 3600.0


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def make_old(store: LocalStore, days: float) -> None:
    """Move everything in the store into the past."""
    then = time.time() - days * DAY
    for path in store.directory.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


async def put_bundle(store: LocalStore, *names: str) -> str:
    """A bundle of tiny layers; returns its digest."""
    layers = []
    for name in names:
        digest = name * 64
        await store.put(layout.layer(digest), name.encode(), if_absent=True)
        layers.append(
            LayerRef(
                digest=digest, name=name, place="project", packed_size=1, unpacked_size=1, files=1
            )
        )
    python = EnvironmentRef(
        kind="none",
        python="3.11",
        python_full="3.11.7",
        implementation="cpython",
        platform="linux-x86_64",
        libc="",
        system_site=False,
        distributions=[],
    )
    manifest = Manifest(project="p", layers=layers, environment=python)
    await store.put(layout.bundle(manifest.digest()), manifest.to_json(), if_absent=True)
    return manifest.digest()


async def put_run(store: LocalStore, number: int, bundle: str) -> None:
    run_id = f"20261201-02502{number}-7f3a9c"
    run = Run(
        id=run_id,
        user="ann",
        name="train",
        created=0.0,
        bundle=bundle,
        entry=EntryPoint(kind="script", target="train.py"),
    )
    await store.put(layout.run("ann", run_id), run.to_json())


async def layers_in(store: LocalStore) -> set[str]:
    return {info.key.rsplit("/", 1)[1][0] async for info in store.scan(layout.LAYERS)}


@asynchronous
async def test_what_no_run_needs_goes_and_what_one_needs_stays(store: LocalStore) -> None:
    kept = await put_bundle(store, "a", "b")
    dropped = await put_bundle(store, "b", "c")
    await put_run(store, 1, kept)
    await store.put(layout.layer("d" * 64), b"of an upload that was given up")
    make_old(store, 40)
    await put_bundle(store, "e")
    await store.put(layout.layer("f" * 64), b"of an upload that goes on")

    plan = await collect(store, 30 * DAY, dry_run=True)
    assert (plan.bundles, plan.layers) == (1, 2)
    assert await layers_in(store) == set("abcdef")

    done = await collect(store, 30 * DAY)
    assert (done.bundles, done.layers, done.kept_layers) == (1, 2, 4)
    assert done.bytes == plan.bytes
    assert await layers_in(store) == set("abef")
    assert await store.stat([layout.bundle(dropped)]) == {}
    assert [info.key async for info in store.scan("gc/")] == []
    again = await collect(store, 30 * DAY)
    assert (again.bundles, again.layers, again.bytes) == (0, 0, 0)


@asynchronous
async def test_a_pack_that_counts_on_an_old_layer_keeps_it(store: LocalStore) -> None:
    await put_bundle(store, "a", "b")
    make_old(store, 40)
    key = layout.layer("a" * 64)
    assert key in await counted_on(store, await store.stat([key]))
    await collect(store, 30 * DAY)
    assert await layers_in(store) == {"a"}


@asynchronous
async def test_a_layer_that_went_meanwhile_is_not_counted_on(store: LocalStore) -> None:
    await put_bundle(store, "a")
    make_old(store, 40)
    key = layout.layer("a" * 64)
    seen = await store.stat([key])
    await collect(store, 30 * DAY)
    assert await counted_on(store, seen) == {}


class Interrupting(LocalStore):
    """At gc's last look, something happens elsewhere."""

    def __init__(self, directory: Path, other: Any) -> None:
        super().__init__(directory)
        self.other = other

    async def stat(self, keys: Any) -> Any:
        keys = list(keys)
        if any(key.startswith(layout.LAYERS) for key in keys):
            await self.other()
        return await super().stat(keys)


@asynchronous
async def test_a_renewal_before_the_last_look_is_seen(store: LocalStore) -> None:
    await put_bundle(store, "a")
    make_old(store, 40)
    key = layout.layer("a" * 64)

    async def renew() -> None:
        await store.renew([key])

    await collect(Interrupting(store.directory, renew), 30 * DAY)
    assert await layers_in(store) == {"a"}


@asynchronous
async def test_a_renewal_after_the_last_look_waits_for_the_end(store: LocalStore) -> None:
    import asyncio

    await put_bundle(store, "a")
    make_old(store, 40)
    key = layout.layer("a" * 64)
    seen = await store.stat([key])
    await store.put(layout.COLLECTING, b"")
    waiting = asyncio.ensure_future(counted_on(store, seen))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    # gc had looked before the renewal, and deletes now.
    await store.delete([key])
    await store.delete([layout.COLLECTING])
    assert await waiting == {}


@asynchronous
async def test_a_time_that_is_too_short_to_be_safe_is_refused(store: LocalStore) -> None:
    with pytest.raises(UsageError, match="2d"):
        await collect(store, 3600)


@asynchronous
async def test_nothing_goes_when_a_run_cannot_be_read(store: LocalStore) -> None:
    await put_bundle(store, "a")
    await store.put(layout.run("ann", "20261201-025029-7f3a9c"), b"{")
    make_old(store, 40)
    with pytest.raises(FormatError):
        await collect(store, 30 * DAY)
    assert await layers_in(store) == {"a"}
