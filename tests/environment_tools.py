"""Real environments for tests: made by the real tools, packed, moved, unpacked elsewhere."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from j2c_lab.formats.digest import Entry, layer_digest
from j2c_lab.formats.manifest import Distribution, Manifest
from j2c_lab.pack.environment import plan_environment
from j2c_lab.pack.plan import EnvironmentPlan, LayerPlan, PlannedFile
from j2c_lab.unpack.environment import InstalledEnvironment, make_environment
from j2c_lab.unpack.places import directory

BASE_PYTHON = os.path.realpath(sys.executable)


def clean_environ(**more: str) -> dict[str, str]:
    """Return this process's environment without what would change a Python's packages."""
    left_out = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONUSERBASE", "PIP_USER")
    environ = {k: v for k, v in os.environ.items() if k not in left_out}
    return {**environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "UV_LINK_MODE": "copy", **more}


def run(*command: str | os.PathLike[str], cwd: Path | None = None, **env: str) -> str:
    """Run a command that must succeed and return what it printed."""
    done = subprocess.run(
        [os.fspath(part) for part in command],
        cwd=cwd,
        env=clean_environ(**env),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


@functools.cache
def uv() -> str:
    """Return the path of the project's own uv."""
    from uv import find_uv_bin

    return os.fspath(find_uv_bin())


def make_venv(
    path: Path, tool: str = "venv", *, python: str = BASE_PYTHON, system_site: bool = True
) -> Path:
    """Make a virtual environment with `venv`, `virtualenv` or `uv`."""
    option = ["--system-site-packages"] if system_site else []
    if tool == "venv":
        run(python, "-m", "venv", "--without-pip", *option, path)
    elif tool == "virtualenv":
        run(sys.executable, "-m", "virtualenv", "-q", "--no-seed", "-p", python, *option, path)
    else:
        run(uv(), "venv", "-q", "--python", python, *option, path)
    return path


def install(venv: Path, *what: str | os.PathLike[str], tool: str = "uv") -> None:
    """Install into a venv with uv, or with pip (this Python's pip, told to use the venv's)."""
    if tool == "uv":
        run(uv(), "pip", "install", "-q", "--python", venv / "bin" / "python", *what)
    else:
        python = venv / "bin" / "python"
        run(sys.executable, "-m", "pip", "--python", python, "install", "-q", *what)


def make_wheel(
    directory: Path,
    name: str,
    files: dict[str, str | bytes],
    *,
    version: str = "1.0",
    entry_points: str = "",
    requires: tuple[str, ...] = (),
) -> Path:
    """Write a wheel; `files` may hold `name-version.data/scripts/…` entries too."""
    info = f"{name}-{version}.dist-info"
    requirements = "".join(f"Requires-Dist: {r}\n" for r in requires)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requirements}"
    tag = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    contents = {**files, f"{info}/METADATA": metadata, f"{info}/WHEEL": tag}
    if entry_points:
        contents[f"{info}/entry_points.txt"] = entry_points
    path = directory / f"{name}-{version}-py3-none-any.whl"
    directory.mkdir(parents=True, exist_ok=True)
    lines = []
    with zipfile.ZipFile(path, "w") as wheel:
        for place, content in contents.items():
            data = content.encode() if isinstance(content, str) else content
            member = zipfile.ZipInfo(place)
            member.external_attr = (0o755 if "/scripts/" in place else 0o644) << 16
            wheel.writestr(member, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            quoted = f'"{place}"' if "," in place else place
            lines.append(f"{quoted},sha256={digest},{len(data)}\n")
        wheel.writestr(f"{info}/RECORD", "".join(lines) + f"{info}/RECORD,,\n")
    return path


def content_of(file: PlannedFile) -> bytes:
    """Return a planned file's content, or a link's target."""
    if file.source is None:
        return file.data
    return Path(os.fsdecode(file.source)).read_bytes()


def digest_of(layer: LayerPlan) -> str:
    """Return a planned layer's digest, every file read."""
    return layer_digest(_entry(file) for file in layer.files)


def digests(plan: EnvironmentPlan) -> dict[str, str]:
    """Return the digest of each distribution's layer, by name."""
    return {d.name: digest_of(d.layer) for d in plan.distributions}


def paths(layer: LayerPlan) -> set[str]:
    """Return the places of a layer's entries."""
    return {os.fsdecode(file.path) for file in layer.files}


def layer_named(plan: EnvironmentPlan, name: str) -> LayerPlan:
    """Return the one layer whose name begins with `name`."""
    (layer,) = [one for one in plan.layers if one.name.split(" ")[0] == name]
    return layer


def manifest_of(plan: EnvironmentPlan) -> Manifest:
    """Return a manifest of an environment alone, as the packer completes it."""
    found = [
        Distribution(name=d.name, version=d.version, layer=digest_of(d.layer))
        for d in plan.distributions
    ]
    held = [d for d in found if plan.held.get(d.name) == d.layer]
    ref = dataclasses.replace(
        plan.ref, distributions=[d for d in found if d not in held], base_distributions=held
    )
    return Manifest(project="test", layers=[], environment=ref, left_out=plan.left_out)


def place_layers(plan: EnvironmentPlan, manifest: Manifest, root: Path) -> None:
    """Put every planned file where the unpacker would, read-only as in a shared node cache."""
    held = {f"{d.name} {d.version}" for d in manifest.environment.base_distributions}
    for layer in plan.layers:
        if layer.name in held:
            continue
        for file in layer.files:
            place = layer.place
            top, _, rest = os.fsdecode(file.path).partition("/")
            path = Path(directory(manifest, os.fspath(root), place, top), rest)
            path.parent.mkdir(parents=True, exist_ok=True)
            assert not os.path.lexists(path), f"{path} is in two layers"
            if file.type == "l":
                path.symlink_to(os.fsdecode(file.data))
            elif file.type == "d":
                path.mkdir()
            else:
                path.write_bytes(content_of(file))
                path.chmod(0o755 if file.executable else 0o644)


def move(
    prefix: Path,
    root: Path,
    *,
    away: tuple[Path, ...] = (),
    project_root: Path | None = None,
    python: str | None = None,
    keep: bool = False,
) -> tuple[EnvironmentPlan, InstalledEnvironment]:
    """Pack `prefix`, unpack it in `root`, and make the original (and `away`) unreachable.

    `keep` leaves `prefix` where it is: it is the base's own.
    """
    plan = plan_environment(
        os.fspath(prefix), project_root=None if project_root is None else os.fspath(project_root)
    )
    manifest = Manifest.from_json(manifest_of(plan).to_json())
    place_layers(plan, manifest, root)
    if project_root is not None:
        shutil.copytree(project_root, root / "project", symlinks=True)
    for original in (*([] if keep else [prefix]), *away, *([project_root] if project_root else [])):
        if original.exists():
            original.rename(original.with_name(original.name + ".away"))
    return plan, make_environment(manifest, os.fspath(root), python)


def run_in(environment: InstalledEnvironment, *command: str | os.PathLike[str]) -> str:
    """Run a command as the run would, found on the environment's PATH."""
    environ = environment.applied_to(os.environ)
    name = os.fspath(command[0])
    program = shutil.which(name, path=environ["PATH"]) or name
    done = subprocess.run(
        [program, *[os.fspath(part) for part in command[1:]]],
        env=environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def _entry(file: PlannedFile) -> Entry:
    content = content_of(file)
    if file.type == "f":
        digest = hashlib.sha256(content).digest()
        return Entry(file.path, "f", file.executable, len(content), digest)
    return Entry(file.path, file.type, False, 0, content)
