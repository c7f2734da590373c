"""The inventory of a base image, and which of an environment's distributions it holds."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

from j2c_lab.formats.inventory import Inventory
from j2c_lab.formats.manifest import Distribution
from j2c_lab.installed.base import BaseDistribution, base_distributions, digest_of
from j2c_lab.installed.interpreter import Interpreter, ask, cache_directory, own

Report = Callable[[dict[str, Any]], None]


def take_inventory(*, digests: bool = True, report: Report | None = None) -> Inventory:
    """Return what the image holds that this code runs in, seen by the Python that runs it.

    Parameters
    ----------
    digests : bool
        Compute the layer digest of every distribution, which reads all of their files.
    report : callable, optional
        Takes `progress` events.
    """
    python = own()
    found = base_distributions(python)
    listed = []
    for count, (name, one) in enumerate(sorted(found.items())):
        if digests and report is not None:
            report(_progress(name, count, len(found)))
        layer = digest_of(one.read(python).files) if digests else ""
        listed.append(Distribution(name=name, version=one.version, layer=layer))
    return Inventory(
        python=python.python,
        python_full=python.python_full,
        implementation=python.implementation,
        platform=python.platform,
        libc=python.libc,
        cuda=cuda_version(),
        libraries=shared_libraries(),
        distributions=listed,
    )


def held_by_local_base(
    wanted: Iterable[tuple[str, str]],
    python: Interpreter,
    *,
    not_in: bytes,
    report: Report | None = None,
) -> dict[str, str]:
    """Return the layer digests of those distributions that this machine's base image has.

    The base image is the Python that runs this code, or the one below it when this one is itself
    what is packed.

    Parameters
    ----------
    wanted : iterable of (name, version)
        What the environment has.
    python : Interpreter
        The environment's Python: one of another version holds nothing for it.
    not_in : bytes
        Prefix of the environment that is packed.
    report : callable, optional
        Takes `progress` events while digests are computed for the first time.
    """
    base = own()
    if os.path.realpath(base.prefix) == os.path.realpath(os.fsdecode(not_in)):
        base = ask(base.base_executable)
    if (base.python, base.implementation) != (python.python, python.implementation):
        return {}
    found = base_distributions(base)
    same = [found[n] for n, version in wanted if n in found and found[n].version == version]
    memory = _Memory()
    held = {}
    for count, one in enumerate(same):
        digest = memory.get(one)
        if digest is None:
            if report is not None:
                report(_progress(one.name, count, len(same)))
            digest = digest_of(one.read(base).files)
            memory.put(one, digest)
        held[one.name] = digest
    memory.save()
    return held


def cuda_version() -> str:
    """Return the version of the CUDA toolkit that the image has (`12.4`), or empty."""
    try:
        with open("/usr/local/cuda/version.json", encoding="utf-8") as file:
            return str(json.load(file)["cuda"]["version"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    match = re.search(r"cuda-([\d.]+)$", os.path.realpath("/usr/local/cuda"))
    return match[1] if match else os.environ.get("CUDA_VERSION", "")


def shared_libraries() -> list[str]:
    """Return the sorted names of the libraries that the dynamic loader's cache lists."""
    import shutil
    import subprocess

    path = os.environ.get("PATH", "") + os.pathsep + "/sbin:/usr/sbin"
    ldconfig = shutil.which("ldconfig", path=path)
    if ldconfig is None:
        return []
    try:
        done = subprocess.run([ldconfig, "-p"], capture_output=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return sorted({line.split()[0] for line in lines if "=>" in line})


class _Memory:
    """Digests of the base's distributions, kept while their RECORD stays as it is.

    A file edited in place goes unseen here. That can only make a bundle count on content that the
    cluster's base lacks, which is found there, before the run starts: its unpacker reads.
    """

    def __init__(self) -> None:
        self._path = os.path.join(cache_directory(), "base-digests.json")
        self._changed = False
        try:
            with open(self._path, encoding="utf-8") as file:
                self._known: dict[str, str] = dict(json.load(file))
        except (OSError, ValueError, TypeError):
            self._known = {}

    def get(self, one: BaseDistribution) -> str | None:
        return self._known.get(self._key(one))

    def put(self, one: BaseDistribution, digest: str) -> None:
        self._known[self._key(one)] = digest
        self._changed = True

    def save(self) -> None:
        if not self._changed:
            return
        temporary = f"{self._path}.{os.getpid()}"
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(self._known, file)
            os.replace(temporary, self._path)
        except OSError:
            pass

    @staticmethod
    def _key(one: BaseDistribution) -> str:
        info = one.site + b"/" + one.info
        try:
            stat = os.stat(info + b"/RECORD")
        except OSError:
            stat = os.stat(info)
        return repr((info, stat.st_ino, stat.st_size, stat.st_mtime_ns))


def _progress(name: str, count: int, total: int) -> dict[str, Any]:
    return {
        "event": "progress",
        "stage": "pack",
        "what": f"comparing {name} with the base image",
        "files": count,
        "total_files": total,
    }
