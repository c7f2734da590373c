"""Plans what of a Python environment travels: one layer a distribution, one for the rest."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from j2c_lab.errors import PackError
from j2c_lab.formats.inventory import Inventory
from j2c_lab.formats.manifest import (
    ENVIRONMENT,
    USER,
    Distribution,
    EnvironmentRef,
    LeftOut,
    Rewrite,
    Script,
)
from j2c_lab.formats.paths import to_text
from j2c_lab.installed.distributions import Installed, Site, read_site
from j2c_lab.installed.interpreter import own, user_base
from j2c_lab.installed.prefix import CONDA, Prefix, read_prefix
from j2c_lab.pack.base_image import held_by_local_base
from j2c_lab.pack.editable import linked_distributions, repoint
from j2c_lab.pack.loose import loose_files, one_of_each_name
from j2c_lab.pack.meson_editable import settle_meson_editables
from j2c_lab.pack.own_closure import only_for_j2c
from j2c_lab.pack.plan import (
    EnvironmentPlan,
    LayerPlan,
    PlannedDistribution,
    PlannedFile,
)
from j2c_lab.pack.sources import Sources

#: virtualenv and uv put these into every venv, to keep distutils out of pip's way.
_VENVS_MODULES = frozenset({b"site-packages/_virtualenv.py", b"site-packages/_virtualenv.pth"})

#: What no layer of a distribution holds, listed once and not for each.
_NEVER = [
    LeftOut(path="site-packages/**/__pycache__", rule="built-in: __pycache__"),
    LeftOut(
        path="site-packages/*.dist-info/{INSTALLER,REQUESTED,direct_url.json,uv_cache.json}",
        rule="built-in: notes of the installer",
    ),
]

Report = Callable[[dict[str, Any]], None]


def plan_environment(
    prefix: str,
    *,
    base: Inventory | None = None,
    project_root: str | None = None,
    report: Report | None = None,
) -> EnvironmentPlan:
    """Plan the layers of the Python environment at `prefix`.

    Parameters
    ----------
    prefix : str
        Directory of a venv, a conda environment, `~/.local`, or the Python they are made from.
    base : Inventory, optional
        The base image to compare with; otherwise the Python that runs this code, or, when that is
        the environment to be packed, the Python below it.
    project_root : str, optional
        The project that travels along: editable installs inside it are pointed at it.
    report : callable, optional
        Takes one event.

    Raises
    ------
    UsageError
        There is no environment at `prefix`.
    EnvironmentNotSupportedError
        Its Python is gone or does not start.
    PackError
        A file or directory of it cannot be read.
    """
    try:
        return _plan(read_prefix(prefix), base, project_root, report or (lambda event: None))
    except PermissionError as error:
        raise PackError(
            f"{os.fsdecode(error.filename or prefix)} cannot be read: permission denied",
            "make it readable, or install the environment anew as yourself",
        ) from None


def _plan(
    found: Prefix, base: Inventory | None, project_root: str | None, report: Report
) -> EnvironmentPlan:
    report({"event": "progress", "stage": "pack", "what": "files of the environment"})
    sites = _read_sites(found)
    sources = _sources(found, [site.path for site, _ in sites], project_root)
    collector = _Collector()
    for site, _ in sites:
        site.distributions.extend(linked_distributions(site))
    collector.leave_out_own(sites, project_root)
    for site, place in sites:
        collector.warnings.extend(settle_meson_editables(site))
        collector.rewrites.extend(repoint(site, place, sources))
        collector.add(site, place)
    collector.add_loose(found, sites)
    collector.add_sources(sources)
    if found.kind == CONDA:
        collector.add_conda_libraries(found)
    held = _held(found, collector, base, report)
    return EnvironmentPlan(
        prefix=os.fsdecode(found.path),
        ref=_reference(found, collector),
        distributions=collector.distributions,
        layers=collector.all_layers(),
        held=held,
        left_out=collector.left_out,
        warnings=collector.warnings,
        base="" if base is None else base.digest(),
    )


def _read_sites(prefix: Prefix) -> list[tuple[Site, str]]:
    directories = prefix.bin_directories
    sites = [
        (read_site(path, prefix.path, directories), ENVIRONMENT) for path in prefix.site_packages
    ]
    if prefix.user_site is not None:
        # <user base>/lib/python3.11/site-packages
        base = os.path.dirname(os.path.dirname(os.path.dirname(prefix.user_site)))
        below = os.fsencode(os.path.dirname(prefix.base.base_executable))
        sites.append((read_site(prefix.user_site, base, [*directories, below]), USER))
    return sites


def _sources(prefix: Prefix, sites: list[bytes], project_root: str | None) -> Sources:
    own_python = own()
    pythons = [own_python] if own_python.python == prefix.base.python else []
    if os.fsencode(own_python.prefix) == prefix.path:
        pythons = []
    pythons.append(prefix.base)
    return Sources(
        project_root,
        prefix.path,
        sites,
        [site for python in pythons for site in python.site_packages],
        [python.base_prefix for python in pythons],
    )


def _held(
    prefix: Prefix, collector: _Collector, base: Inventory | None, report: Report
) -> dict[str, str]:
    wanted = {d.name: d.version for d in collector.distributions if d.layer.place == ENVIRONMENT}
    if base is None:
        return held_by_local_base(wanted.items(), prefix.base, not_in=prefix.path, report=report)
    if (base.python, base.implementation) != (prefix.base.python, prefix.base.implementation):
        return {}
    return {
        d.name: d.layer for d in base.distributions if d.layer and wanted.get(d.name) == d.version
    }


class _Collector:
    """What the plan will hold, gathered directory by directory."""

    def __init__(self) -> None:
        self.distributions: list[PlannedDistribution] = []
        self.scripts: list[Script] = []
        self.rewrites: list[Rewrite] = []
        self.left_out: list[LeftOut] = []
        self.warnings: list[str] = []
        self.sources: list[LayerPlan] = []
        #: Files that no distribution owns, by place.
        self.own: dict[str, list[PlannedFile]] = {ENVIRONMENT: [], USER: []}

    def leave_out_own(self, sites: list[tuple[Site, str]], project_root: str | None) -> None:
        """Take j2c-lab out of `sites`, with what only it needs, and the venv's own modules."""
        names = only_for_j2c((site for site, _ in sites), project_root)
        for site, _ in sites:
            for one in [one for one in site.distributions if one.name in names]:
                site.remove(one)
                self.left_out.append(
                    LeftOut(path=f"{one.name} {one.version}", rule="only for j2c-lab")
                )
            for file in [f for f in site.loose if f.path in _VENVS_MODULES]:
                site.loose.remove(file)
                self.left_out.append(
                    LeftOut(path=to_text(file.path), rule="built-in: the venv's own")
                )

    def add(self, site: Site, place: str) -> None:
        for installed in site.distributions:
            self._add_distribution(installed, place)
        self.own[place].extend(site.loose)
        if site.distributions:
            self.left_out.extend(_NEVER)

    def _add_distribution(self, installed: Installed, place: str) -> None:
        name = f"{installed.name} {installed.version}"
        layer = LayerPlan(name, place, installed.files)
        self.distributions.append(
            PlannedDistribution(name=installed.name, version=installed.version, layer=layer)
        )
        self.scripts.extend(
            Script(name=script.name, target=script.target, place=place)
            for script in installed.scripts
        )

    def add_loose(self, prefix: Prefix, sites: list[tuple[Site, str]]) -> None:
        """Add what belongs to nobody, and settle which of two scripts of one name is meant."""
        for place, directory in ((ENVIRONMENT, prefix.path), (USER, os.fsencode(user_base()))):
            ours = [script for script in self.scripts if script.place == place]
            others = [script for script in self.scripts if script.place != place]
            self.scripts = others + one_of_each_name(ours, directory + b"/bin")
        self.scripts.sort(key=lambda script: (script.place, script.name))
        owned = frozenset().union(*(site.outside for site, _ in sites))
        self.own[ENVIRONMENT].extend(loose_files(prefix, owned, self.scripts))

    def add_sources(self, sources: Sources) -> None:
        """Add what lies outside the project and the environment, and is imported from there."""
        self.sources, left_out = sources.layers()
        self.left_out.extend(left_out)
        self.warnings.extend(sources.warnings)

    def add_conda_libraries(self, prefix: Prefix) -> None:
        """Add the shared libraries of a conda prefix that its Python packages need."""
        from j2c_lab.pack.conda import library_layers

        layers = self.all_layers()
        self.sources += library_layers(prefix.path, (f for one in layers for f in one.files))

    def all_layers(self) -> list[LayerPlan]:
        layers = [d.layer for d in self.distributions] + self.sources
        for place, files in self.own.items():
            if files:
                name = "environment" if place == ENVIRONMENT else "environment of the user"
                layers.append(LayerPlan(name, place, files))
        return layers


def _reference(prefix: Prefix, collector: _Collector) -> EnvironmentRef:
    base = prefix.base
    return EnvironmentRef(
        kind=prefix.kind,
        python=base.python,
        python_full=base.python_full,
        implementation=base.implementation,
        platform=base.platform,
        libc=base.libc,
        system_site=prefix.system_site,
        distributions=[
            Distribution(name=d.name, version=d.version, layer="") for d in collector.distributions
        ],
        scripts=collector.scripts,
        rewrites=collector.rewrites,
    )
