"""The layers of a pack on their way, and the manifest they make."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from j2c_lab.formats.manifest import Distribution, EnvironmentRef, LayerRef, LeftOut, Manifest
from j2c_lab.pack.file_hashes import LayerFacts, TreeCache
from j2c_lab.pack.foretell import Foretold, foretell, remember
from j2c_lab.pack.layer_writer import LayerResult
from j2c_lab.pack.plan import EnvironmentPlan, LayerPlan, ProjectPlan
from j2c_lab.pack.uncollected import uncollected


@dataclasses.dataclass
class Item:
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

    def learn(self, result: LayerResult) -> None:
        """Take what was found out by reading the layer."""
        for key, content in result.hashes.items():
            self.cache.hashes.put(key, content)
        if result.digest != self.digest:
            self.present = False
            self.packed_size = None
        self.digest = result.digest
        self.unpacked_size = result.unpacked_size
        self.certain = True

    def remember(self) -> None:
        """Note, for the next pack, what is proven of the layer."""
        if self.certain and self.digest is not None and (self.present or self.in_base):
            facts = LayerFacts(self.digest, self.packed_size or 0, self.unpacked_size)
            remember(self.cache, self.foretold.signature, self.plan.files, facts)

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


def make_items(project: ProjectPlan | None, environment: EnvironmentPlan | None) -> list[Item]:
    """Return the layers of both plans with what is known of them; reads no packed file."""
    items: list[Item] = []
    with uncollected():
        if project is not None:
            cache = TreeCache(os.fsencode(project.root))
            items += [_item(layer, cache, None) for layer in project.layers]
        if environment is not None:
            held = {
                id(distribution.layer): environment.held[distribution.name]
                for distribution in environment.distributions
                if distribution.name in environment.held
            }
            cache = TreeCache(_tree_of(environment))
            items += [_item(layer, cache, held.get(id(layer))) for layer in environment.layers]
    return items


def carried(items: Sequence[Item]) -> list[Item]:
    """Return the layers that travel: all but those that the base image has."""
    return [item for item in items if not item.in_base]


def make_manifest(
    project: ProjectPlan | None, environment: EnvironmentPlan | None, items: Sequence[Item]
) -> Manifest:
    """Return the manifest; the same content gives the same."""
    layers = sorted(carried(items), key=lambda item: (item.plan.place, item.plan.name))
    return Manifest(
        project=project.name if project else "",
        layers=[item.ref() for item in layers],
        environment=_environment_ref(environment, items),
        dangling=project.dangling if project else [],
        # Without sizes: a log that grows, and stays behind, makes no other bundle.
        left_out=[
            dataclasses.replace(entry, size=None)
            for entry in all_left_out(project, environment, items)
        ],
        base=environment.base if environment else "",
    )


def all_left_out(
    project: ProjectPlan | None, environment: EnvironmentPlan | None, items: Sequence[Item]
) -> list[LeftOut]:
    """Return what does not travel: of the project, of the environment, and what the base has."""
    left_out = list(project.left_out) if project else []
    if environment is not None:
        left_out += environment.left_out
        of_plan = {id(item.plan): item for item in items}
        for planned in environment.distributions:
            item = of_plan[id(planned.layer)]
            if item.in_base:
                name = f"{planned.name} {planned.version}"
                left_out.append(
                    LeftOut(path=name, rule="in the base image", size=item.unpacked_size)
                )
    return left_out


def _item(layer: LayerPlan, cache: TreeCache, held: str | None) -> Item:
    known = foretell(layer, cache)
    return Item(
        layer,
        cache,
        known,
        held,
        known.digest,
        known.certain,
        known.unpacked_size,
        known.packed_size,
    )


def _environment_ref(environment: EnvironmentPlan | None, items: Sequence[Item]) -> EnvironmentRef:
    if environment is None:
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
    of_plan = {id(item.plan): item for item in items}
    sent: list[Distribution] = []
    base = list(environment.ref.base_distributions)
    for planned in environment.distributions:
        item = of_plan[id(planned.layer)]
        assert item.digest is not None
        found = Distribution(name=planned.name, version=planned.version, layer=item.digest)
        (base if item.in_base else sent).append(found)
    return dataclasses.replace(
        environment.ref,
        distributions=sorted(sent, key=_name_of),
        base_distributions=sorted(base, key=_name_of),
    )


def _tree_of(environment: EnvironmentPlan) -> bytes:
    """Return what names the environment's cache: its prefix, or what its files have in common."""
    if environment.prefix:
        return os.fsencode(environment.prefix)
    sources = [layer.files[0].source for layer in environment.layers if layer.files]
    return os.path.commonpath([source for source in sources if source] or [b"/"])


def _name_of(distribution: Distribution) -> tuple[str, str]:
    return distribution.name, distribution.version
