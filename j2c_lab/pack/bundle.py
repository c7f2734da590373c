"""From plans to a bundle in the store: what is not there yet is sent, and nothing else.

The order is: what is remembered, what `RECORD` foretells, one question to the store, and only then
reading. A layer that the store probably has is hashed to be sure; one that it lacks is hashed and
compressed in the same pass. Layers are written before the bundle that lists them, so a pack that
was killed anywhere finds its finished layers again.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from j2c_lab.formats.manifest import LayerRef, LeftOut, Manifest
from j2c_lab.pack.items import Item, all_left_out, carried, make_items, make_manifest
from j2c_lab.pack.plan import EnvironmentPlan, ProjectPlan
from j2c_lab.pack.sending import Report, Sender
from j2c_lab.store import layout
from j2c_lab.store.base import Store
from j2c_lab.store.renewal import is_young

__all__ = ["PackResult", "Report", "pack_bundle", "preview"]


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
    #: Whether the bundle itself had to be written.
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
    report = report or _silent
    items = make_items(project, environment)
    new = False
    manifest = make_manifest(project, environment, items) if _all_remembered(items) else None
    # A bundle is written after its layers: where there is a young one, `j2c gc` will leave them.
    if manifest is None or not await _is_there(store, manifest):
        sender = Sender(items, store, report)
        await sender.ask_store()
        try:
            await sender.hash_layers(everything=False)
            await sender.make_layers()
        finally:
            sender.save_caches()
        manifest = make_manifest(project, environment, items)
        # Not `if_absent`: its name says what it has to hold, so writing it twice does no harm (it
        # mends a damaged one and makes an old one young), and a directory store would wait half a
        # second for the disk to take all the layers' bytes first.
        new = await store.put(layout.bundle(manifest.digest()), manifest.to_json())
    result = _result(project, environment, items, manifest, manifest.digest(), new, started)
    _report_end(result, report)
    return result


async def preview(
    project: ProjectPlan | None,
    environment: EnvironmentPlan | None,
    store: Store,
    report: Report | None = None,
) -> PackResult:
    """Return what `pack_bundle` would send and reuse; writes nothing into the store.

    Reports `progress` while it reads what it does not remember. Raises as `pack_bundle`.
    """
    started = time.monotonic()
    items = make_items(project, environment)
    sender = Sender(items, store, report or _silent, writes=False)
    await sender.ask_store()
    try:
        await sender.hash_layers(everything=True)
    finally:
        sender.save_caches()
    for item in carried(items):
        item.sent = not item.present
    manifest = make_manifest(project, environment, items)
    digest = "" if any(item.sent for item in carried(items)) else manifest.digest()
    return _result(project, environment, items, manifest, digest, False, started)


async def _is_there(store: Store, manifest: Manifest) -> bool:
    """Return whether the store has the bundle, young and whole, and so what it lists."""
    keys = [layout.bundle(manifest.digest())]
    if store.local_path("") is not None:
        # Where it costs nothing, layers that somebody removed by hand are missed as well.
        keys += {layout.layer(layer.digest) for layer in manifest.layers}
    found = await store.stat(keys)
    bundle = found.get(keys[0])
    if bundle is None or len(found) < len(keys):
        return False
    return is_young(bundle) and bundle.size == len(manifest.to_json())


def _all_remembered(items: Sequence[Item]) -> bool:
    return all(item.certain and item.packed_size is not None for item in carried(items))


def _result(
    project: ProjectPlan | None,
    environment: EnvironmentPlan | None,
    items: Sequence[Item],
    manifest: Manifest,
    digest: str,
    new: bool,
    started: float,
) -> PackResult:
    sent = {item.digest for item in carried(items) if item.sent}
    return PackResult(
        manifest=manifest,
        digest=digest,
        sent=[layer for layer in manifest.layers if layer.digest in sent],
        reused=[layer for layer in manifest.layers if layer.digest not in sent],
        left_out=all_left_out(project, environment, items),
        warnings=[
            *(project.warnings if project else []),
            *(environment.warnings if environment else []),
        ],
        new=new,
        seconds=time.monotonic() - started,
    )


def _report_end(result: PackResult, report: Report) -> None:
    for action, layers in (("sent", result.sent), ("reused", result.reused)):
        for layer in layers:
            report(
                {
                    "event": "layer",
                    "name": layer.name,
                    "digest": layer.digest,
                    "action": action,
                    "bytes": layer.packed_size,
                }
            )
    report(result.summary())


def _silent(event: dict[str, Any]) -> None:
    pass
