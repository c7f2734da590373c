"""From plans to a bundle in the store: what is not there yet is sent, and nothing else.

The order is: what is remembered, what `RECORD` foretells, one question to the store, and only then
reading. A layer that the store probably has is hashed to be sure; one that it lacks is hashed and
compressed in the same pass. Layers are written before the bundle that lists them, so a pack that
was killed anywhere finds its finished layers again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable
from typing import Any

from j2c_lab.errors import PackError
from j2c_lab.formats.manifest import (
    Distribution,
    EnvironmentRef,
    LayerRef,
    LeftOut,
    Manifest,
)
from j2c_lab.pack.file_hashes import LayerFacts, TreeCache, cache_directory
from j2c_lab.pack.foretell import Foretold, foretell, remember
from j2c_lab.pack.layer_writer import LayerResult, unreadable_error
from j2c_lab.pack.plan import EnvironmentPlan, LayerPlan, ProjectPlan
from j2c_lab.pack.progress import Meter
from j2c_lab.store import layout
from j2c_lab.store.base import ObjectInfo, Store

#: Takes one event: a JSON object with a key `event` (docs/events.md).
Report = Callable[[dict[str, Any]], None]

#: Layers that may lie finished and wait for the store, beyond those being made.
_WAITING = 4
#: Files of packs that were killed are removed from the staging directory after this many seconds.
_STALE = 24 * 3600.0
_STAGED = "layer-"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackResult:
    """What became of a pack; of a preview, what would become of it.

    In a preview the packed sizes of layers to send are not known: their unpacked sizes stand
    instead, and `digest` is empty when there are any.
    """

    # Not in the text form: asyncio makes that of every result, which takes milliseconds.
    manifest: Manifest = dataclasses.field(repr=False)
    digest: str
    sent: list[LayerRef] = dataclasses.field(repr=False)
    reused: list[LayerRef] = dataclasses.field(repr=False)
    left_out: list[LeftOut] = dataclasses.field(repr=False)
    warnings: list[str] = dataclasses.field(repr=False)
    #: Whether the bundle itself is new in the store.
    new: bool
    #: Seconds that it took.
    seconds: float

    @property
    def sent_bytes(self) -> int:
        """Packed bytes of the layers that were sent."""
        return sum(layer.packed_size for layer in self.sent)

    @property
    def reused_bytes(self) -> int:
        """Packed bytes of the layers that the store had."""
        return sum(layer.packed_size for layer in self.reused)

    def summary(self) -> dict[str, Any]:
        """Return the event `packed`."""
        return {
            "event": "packed",
            "bundle": self.digest,
            "sent": {"layers": len(self.sent), "bytes": self.sent_bytes},
            "reused": {"layers": len(self.reused), "bytes": self.reused_bytes},
            "left_out": len(self.left_out),
            "seconds": round(self.seconds, 3),
        }


async def pack_bundle(
    project: ProjectPlan | None,
    environment: EnvironmentPlan | None,
    store: Store,
    report: Report | None = None,
) -> PackResult:
    """Put what the plans say into the store, and the bundle that lists it.

    Reports `progress`, one `layer` for each layer sent or reused, and `packed` at the end. Can be
    cancelled or killed at any moment and repeated.

    Raises
    ------
    PackError
        Files cannot be read (`details` names all of them) or change while they are read.
    StoreError
        The store cannot be reached or refuses.
    """
    started = time.monotonic()
    pack = _Pack(project, environment, store, report or (lambda event: None))
    manifest = pack.remembered_manifest()
    if manifest is not None:
        digest = manifest.digest()
        if await store.stat([layout.bundle(digest)]):
            # A bundle is written after its layers: there is no need to ask for each.
            return pack.finish(manifest, digest, new=False, started=started)
    await pack.ask_store()
    try:
        await pack.make_layers()
    finally:
        pack.save_caches()
    manifest = pack.manifest()
    digest = manifest.digest()
    new = await store.put(layout.bundle(digest), manifest.to_json(), if_absent=True)
    return pack.finish(manifest, digest, new=new, started=started)


async def preview(
    project: ProjectPlan | None,
    environment: EnvironmentPlan | None,
    store: Store,
    report: Report | None = None,
) -> PackResult:
    """Return what `pack_bundle` would send and reuse; writes nothing into the store."""
    started = time.monotonic()
    pack = _Pack(project, environment, store, report or (lambda event: None))
    await pack.ask_store()
    try:
        await pack.hash_layers(everything=True)
    finally:
        pack.save_caches()
    for item in pack.carried():
        item.sent = not item.present
    manifest = pack.manifest()
    digest = "" if any(item.sent for item in pack.carried()) else manifest.digest()
    return pack.result(manifest, digest, new=False, started=started)


def staging_directory(store: Store) -> str:
    """Return the directory for layers that are being made, freed of what killed packs left."""
    directory = store.staging()
    path = os.path.join(cache_directory(), "staging") if directory is None else str(directory)
    os.makedirs(path, exist_ok=True)
    limit = time.time() - _STALE
    with os.scandir(path) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.name.startswith(_STAGED) and entry.stat().st_mtime < limit:
                    os.unlink(entry.path)
    return path


@dataclasses.dataclass
class _Item:
    """A layer on its way."""

    plan: LayerPlan
    cache: TreeCache
    foretold: Foretold
    #: Digest that the base image has for this distribution, or None.
    held: str | None
    digest: str | None
    #: Whether the digest is proven: by remembered or fresh hashes.
    certain: bool
    unpacked_size: int
    #: Size in the store, once it is known to be there (or was, when last seen).
    packed_size: int | None
    present: bool = False
    sent: bool = False

    @property
    def in_base(self) -> bool:
        """Whether the base image has exactly this, so that it does not travel."""
        return self.held is not None and self.certain and self.digest == self.held

    @property
    def may_be_in_base(self) -> bool:
        """Whether it is worth hashing to find out if the base image has exactly this."""
        return self.held is not None and self.digest in (None, self.held)

    def ref(self) -> LayerRef:
        """Return the layer as the manifest lists it."""
        assert self.digest is not None
        return LayerRef(
            digest=self.digest,
            name=self.plan.name,
            place=self.plan.place,
            packed_size=self.unpacked_size if self.packed_size is None else self.packed_size,
            unpacked_size=self.unpacked_size,
            files=len(self.plan.files),
        )


class _Pack:
    """One pack at work."""

    def __init__(
        self,
        project: ProjectPlan | None,
        environment: EnvironmentPlan | None,
        store: Store,
        report: Report,
    ) -> None:
        self._project = project
        self._environment = environment
        self._store = store
        self._report = report
        self._caches: list[TreeCache] = []
        self.items: list[_Item] = []
        if project is not None:
            self._add(os.fsencode(project.root), project.layers, {})
        if environment is not None:
            held = {
                id(distribution.layer): environment.held[distribution.name]
                for distribution in environment.distributions
                if distribution.name in environment.held
            }
            self._add(_tree_of(environment), environment.layers, held)

    def _add(self, tree: bytes, layers: list[LayerPlan], held: dict[int, str]) -> None:
        cache = TreeCache(tree)
        self._caches.append(cache)
        for layer in layers:
            known = foretell(layer, cache)
            self.items.append(
                _Item(
                    layer,
                    cache,
                    known,
                    held.get(id(layer)),
                    known.digest,
                    known.certain,
                    known.unpacked_size,
                    known.packed_size,
                )
            )

    def carried(self) -> list[_Item]:
        """Return the layers that travel: all but those that the base image has."""
        return [item for item in self.items if not item.in_base]

    def remembered_manifest(self) -> Manifest | None:
        """Return the manifest if everything in it is remembered, else None."""
        for item in self.carried():
            if not item.certain or item.packed_size is None:
                return None
        return self.manifest()

    async def ask_store(self) -> None:
        """Find out, with one question, which of the foretold layers the store has."""
        keys = {layout.layer(item.digest): item for item in self.carried() if item.digest}
        self._mark(await self._store.stat(keys))

    def _mark(self, found: dict[str, ObjectInfo]) -> None:
        for item in self.carried():
            info = found.get(layout.layer(item.digest)) if item.digest else None
            if info is not None:
                item.present = True
                item.packed_size = info.size

    async def make_layers(self) -> None:
        """Hash what the store seems to have, then make and send what it lacks."""
        await self.hash_layers(everything=False)
        todo = [item for item in self.carried() if not (item.certain and item.present)]
        if not todo:
            return
        from j2c_lab.pack.pool import run_all

        todo.sort(key=lambda item: -item.unpacked_size)
        staging = staging_directory(self._store)
        meter = self._meter("packing", todo, [item.unpacked_size for item in todo])
        total = sum(item.unpacked_size for item in todo)
        async with self._workers(len(todo), total, meter) as workers:
            waiting = workers.size + _WAITING

            async def make(item: _Item) -> None:
                path = os.path.join(staging, f"{_STAGED}{os.getpid()}-{id(item):x}")
                try:
                    result = await workers.pack(item.plan.files, path)
                    await self._send(item, result, path)
                finally:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path)

            await self._guarded(run_all([functools.partial(make, item) for item in todo], waiting))
        meter.finish()

    async def hash_layers(self, *, everything: bool) -> None:
        """Read, without compressing, what may turn out not to be needed in the store.

        Those are the layers that it seems to have, those that the base image seems to have, and
        with `everything` all others too.
        """
        todo = [
            item
            for item in self.items
            if not item.certain and (everything or item.present or item.may_be_in_base)
        ]
        if not todo:
            return
        from j2c_lab.pack.pool import run_all

        todo.sort(key=lambda item: -item.foretold.unread_size)
        meter = self._meter("checking", todo, [item.foretold.unread_size for item in todo])
        total = sum(item.foretold.unread_size for item in todo)
        async with self._workers(len(todo), total, meter) as workers:

            async def check(item: _Item) -> None:
                result = await workers.hash(item.plan.files, item.foretold.known)
                self._learn(item, result)

            jobs = [functools.partial(check, item) for item in todo]
            await self._guarded(run_all(jobs, workers.size))
        meter.finish()
        surprises = [item for item in todo if not item.present and not item.in_base]
        keys = [layout.layer(item.digest) for item in surprises if item.digest]
        if keys:
            self._mark(await self._store.stat(keys))

    def _learn(self, item: _Item, result: LayerResult) -> None:
        """Take what was found out by reading a layer."""
        for key, content in result.hashes.items():
            item.cache.hashes.put(key, content)
        if result.digest != item.digest:
            item.present = False
            item.packed_size = None
        item.digest = result.digest
        item.unpacked_size = result.unpacked_size
        item.certain = True

    async def _send(self, item: _Item, result: LayerResult, path: str) -> None:
        foretold = item.digest
        self._learn(item, result)
        if item.in_base:
            return
        key = layout.layer(result.digest)
        if result.digest != foretold:
            # Nobody has asked for this one yet.
            self._mark(await self._store.stat([key]))
        if not item.present:
            from pathlib import Path

            item.sent = await self._store.put_file(key, Path(path), if_absent=True, consume=True)
            item.present = True
            item.packed_size = result.packed_size
            if not item.sent:
                self._mark(await self._store.stat([key]))

    async def _guarded(self, work: Any) -> None:
        """Await `work`; an error about unreadable files is completed to name all of them."""
        try:
            await work
        except PackError as error:
            if error.details:
                raise unreadable_error(
                    [file for item in self.items for file in item.plan.files]
                ) from None
            raise

    def _workers(self, jobs: int, size: int, meter: Meter) -> Any:
        from j2c_lab.pack.pool import workers_for

        return workers_for(jobs, size, meter.advance)

    def _meter(self, what: str, items: list[_Item], sizes: list[int]) -> Meter:
        files = sum(len(item.plan.files) for item in items)
        return Meter(self._report, sum(sizes), files, what)

    def save_caches(self) -> None:
        """Write what was learned, for the next pack."""
        for item in self.items:
            if item.certain and item.digest is not None and (item.present or item.in_base):
                facts = LayerFacts(item.digest, item.packed_size or 0, item.unpacked_size)
                remember(item.cache, item.foretold.signature, item.plan.files, facts)
        for cache in self._caches:
            cache.save()

    def manifest(self) -> Manifest:
        """Return the manifest; the same content gives the same."""
        carried = sorted(self.carried(), key=lambda item: (item.plan.place, item.plan.name))
        left_out = [dataclasses.replace(entry, size=None) for entry in self._left_out()]
        project, environment = self._project, self._environment
        return Manifest(
            project=project.name if project else "",
            layers=[item.ref() for item in carried],
            environment=self._environment_ref(),
            dangling=project.dangling if project else [],
            left_out=left_out,
            base=environment.base if environment else "",
        )

    def _environment_ref(self) -> EnvironmentRef:
        if self._environment is None:
            return EnvironmentRef(
                kind="none",
                python="",
                python_full="",
                implementation="",
                platform="",
                libc="",
                system_site=True,
                distributions=[],
            )
        items = {id(item.plan): item for item in self.items}
        sent: list[Distribution] = []
        base = list(self._environment.ref.base_distributions)
        for planned in self._environment.distributions:
            item = items[id(planned.layer)]
            found = Distribution(
                name=planned.name, version=planned.version, layer=item.digest or ""
            )
            (base if item.in_base else sent).append(found)
        return dataclasses.replace(
            self._environment.ref,
            distributions=sorted(sent, key=_name_of),
            base_distributions=sorted(base, key=_name_of),
        )

    def _left_out(self) -> list[LeftOut]:
        left_out = list(self._project.left_out) if self._project else []
        if self._environment is not None:
            left_out += self._environment.left_out
            items = {id(item.plan): item for item in self.items}
            for planned in self._environment.distributions:
                item = items[id(planned.layer)]
                if item.in_base:
                    name = f"{planned.name} {planned.version}"
                    left_out.append(LeftOut(path=name, rule="base", size=item.unpacked_size))
        return left_out

    def result(self, manifest: Manifest, digest: str, *, new: bool, started: float) -> PackResult:
        """Return the result, with the layers as the manifest sorts them."""
        sent = {item.digest for item in self.carried() if item.sent}
        warnings = list(self._project.warnings) if self._project else []
        if self._environment is not None:
            warnings += self._environment.warnings
        return PackResult(
            manifest=manifest,
            digest=digest,
            sent=[layer for layer in manifest.layers if layer.digest in sent],
            reused=[layer for layer in manifest.layers if layer.digest not in sent],
            left_out=self._left_out(),
            warnings=warnings,
            new=new,
            seconds=time.monotonic() - started,
        )

    def finish(self, manifest: Manifest, digest: str, *, new: bool, started: float) -> PackResult:
        """Report the end and return the result."""
        result = self.result(manifest, digest, new=new, started=started)
        for action, layers in (("sent", result.sent), ("reused", result.reused)):
            for layer in layers:
                self._report(
                    {
                        "event": "layer",
                        "name": layer.name,
                        "digest": layer.digest,
                        "action": action,
                        "bytes": layer.packed_size,
                    }
                )
        self._report(result.summary())
        return result


def _tree_of(environment: EnvironmentPlan) -> bytes:
    """Return what names the environment's cache: its prefix, or what its files have in common."""
    if environment.prefix:
        return os.fsencode(environment.prefix)
    sources = [layer.files[0].source for layer in environment.layers if layer.files]
    return os.path.commonpath([source for source in sources if source] or [b"/"])


def _name_of(distribution: Distribution) -> tuple[str, str]:
    return distribution.name, distribution.version
