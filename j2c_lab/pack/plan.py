"""What is to be packed, before anything is read: plans made by `project` and `environment`."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from j2c_lab.formats.manifest import DanglingLink, EnvironmentRef, LeftOut
from j2c_lab.formats.planned import FileKey, PlannedFile

__all__ = [
    "EnvironmentPlan",
    "FileKey",
    "LayerPlan",
    "PlannedDistribution",
    "PlannedFile",
    "ProjectPlan",
]


class LayerPlan(NamedTuple):
    """A layer to be made; `place` is one of the manifest's places."""

    name: str
    place: str
    files: list[PlannedFile]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProjectPlan:
    """The project's part of a bundle."""

    name: str
    #: Absolute path of the project.
    root: str
    layers: list[LayerPlan]
    left_out: list[LeftOut]
    dangling: list[DanglingLink]
    #: Sentences for the user, such as a left-out file that the code names.
    warnings: list[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedDistribution:
    """An installed package and the layer that will carry it (an item of `layers`)."""

    name: str
    version: str
    layer: LayerPlan


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvironmentPlan:
    """The environment's part of a bundle.

    `ref` is complete but for its `distributions`, which get their layers' digests once those are
    known; `held` are distributions of which the base image may have the same content: they are
    hashed, and sent only if their digest is not the one that the base has.
    """

    #: Absolute path of the environment: names what is remembered of its files between two packs.
    prefix: str = ""
    ref: EnvironmentRef
    distributions: list[PlannedDistribution]
    #: All layers to send: those of `distributions`, and the one of the environment's own files.
    layers: list[LayerPlan]
    #: Base digest for each distribution that base has in the same version, by name.
    held: dict[str, str]
    left_out: list[LeftOut]
    warnings: list[str]
    #: Digest of the base image's inventory, or empty.
    base: str = ""
