"""From a request to its bundle. The pack room is imported here, when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from j2c_lab.errors import NotFoundError, PackError
from j2c_lab.store.base import Store

if TYPE_CHECKING:
    from j2c_lab.pack.bundle import PackResult
    from j2c_lab.pack.plan import EnvironmentPlan, ProjectPlan
    from j2c_lab.runs.request import Request

Report = Callable[[dict[str, Any]], None]


class Sources(NamedTuple):
    """What is packed; a `Request` has these too."""

    project: str
    prefix: str
    exclude: Sequence[str]
    #: File with the base image's inventory, or empty.
    base: str


class Packed(NamedTuple):
    """A bundle in the store, and the interpreter below its environment."""

    result: PackResult
    python: str


async def pack(sources: Sources | Request, store: Store, report: Report) -> Packed:
    """Put what the sources need into the store; reports as `pack_bundle`, and warnings.

    Raises
    ------
    UsageError
        The project or the environment is not there.
    PackError
        They cannot be packed.
    """
    from j2c_lab.pack.bundle import pack_bundle

    project, environment = plan(sources, store, report)
    result = await pack_bundle(project, environment, store, report)
    for message in result.warnings:
        report({"event": "warning", "message": message})
    from j2c_lab.installed.prefix import read_prefix

    # Known since the environment was planned: no interpreter is started for it.
    return Packed(result, read_prefix(sources.prefix).base.base_executable)


async def preview(sources: Sources | Request, store: Store, report: Report) -> dict[str, Any]:
    """Return what `pack` would send and reuse, and report what it would leave out."""
    from j2c_lab.pack.bundle import preview as preview_bundle

    project, environment = plan(sources, store, report)
    result = await preview_bundle(project, environment, store, report)
    for message in result.warnings:
        report({"event": "warning", "message": message})
    for left in result.left_out:
        report({"event": "left_out", "path": left.path, "rule": left.rule, "size": left.size})
    return {
        "send": {"layers": len(result.sent), "bytes": result.sent_bytes},
        "reuse": {"layers": len(result.reused), "bytes": result.reused_bytes},
        "layers": [
            {"name": layer.name, "bytes": layer.packed_size, "send": layer in result.sent}
            for layer in result.manifest.layers
        ],
    }


def plan(
    sources: Sources | Request, store: Store, report: Report
) -> tuple[ProjectPlan, EnvironmentPlan | None]:
    """Return what of the project and of the environment is to travel."""
    import time

    from j2c_lab.pack.environment import plan_environment
    from j2c_lab.pack.project import plan_project

    report({"event": "stage", "stage": "pack", "at": time.time()})
    # A store or an environment inside the project must not be packed with it.
    own = [str(path) for path in [store.local_path("")] if path is not None]
    project = plan_project(
        sources.project, exclude=sources.exclude, extra_exclude_dirs=[*own, sources.prefix]
    )
    if not isinstance(sources, Sources):
        _check_entry(sources, project)
    environment = plan_environment(
        sources.prefix,
        base=_base(sources.base),
        project_root=sources.project,
        report=report,
    )
    return project, environment


def _check_entry(request: Request, project: ProjectPlan) -> None:
    """Refuse what could not be run, before it waits in a queue for hours."""
    target = request.entry.target
    if request.entry.kind not in ("script", "notebook"):
        return
    for left in project.left_out:
        if left.path == target or (left.path.endswith("/") and target.startswith(left.path)):
            raise PackError(
                f"{target} cannot be run: it is left out of the bundle ({left.rule})",
                f"take it along by a line !/{target} in .j2cignore, or change that rule",
            )


def _base(file: str) -> Any:
    if not file:
        return None
    from j2c_lab.formats.inventory import Inventory

    try:
        return Inventory.from_json(Path(file).read_bytes())
    except OSError as error:
        raise NotFoundError(
            f"the base image's inventory {file} cannot be read: {error.strerror}",
            "make it with j2c base -o FILE in that image",
        ) from None
