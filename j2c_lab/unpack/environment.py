"""Makes the run's Python environment of what the layers brought.

No `venv` or `pip` is called: a virtual environment is a `pyvenv.cfg`, a few links and scripts.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from j2c_lab import errors
from j2c_lab.errors import EnvironmentNotSupportedError, FormatError, UnpackError
from j2c_lab.formats.manifest import ENVIRONMENT, USER, EnvironmentRef, Manifest
from j2c_lab.installed.interpreter import Interpreter, ask, own
from j2c_lab.installed.scripts import entry_script, with_place
from j2c_lab.unpack.base_links import link_base_distributions
from j2c_lab.unpack.places import directory, site_packages
from j2c_lab.unpack.replace import write_file, write_link
from j2c_lab.unpack.rewrites import apply_rewrites

#: Variables that would bring another Python's packages into the run.
REMOVED = ("PYTHONHOME", "PYTHONPATH", "PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__", "CONDA_PREFIX")


@dataclasses.dataclass(frozen=True)
class InstalledEnvironment:
    """An environment that is ready to run.

    Attributes
    ----------
    python : Path
        Its interpreter.
    variables : dict
        What the run's process needs to be told; see `applied_to`.
    """

    python: Path
    variables: dict[str, str]

    def applied_to(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return `environ` as the run sees it: our variables set, other Pythons' removed."""
        return {**{k: v for k, v in environ.items() if k not in REMOVED}, **self.variables}


def make_environment(
    manifest: Manifest, root: str, python: str | None = None, origin: str = ""
) -> InstalledEnvironment:
    """Make the environment of `manifest` in `root`, where its layers have been placed.

    Doing it again, after being killed at any point, gives the same.

    Parameters
    ----------
    manifest : Manifest
        The bundle.
    root : str
        The run's directory.
    python : str, optional
        Interpreter to use; otherwise the one that runs this code, or one of the right version
        from PATH.
    origin : str, optional
        The interpreter that the environment had where it was packed, tried when none of those
        fits: it is here too when both sides have the same image, or are one machine.

    Raises
    ------
    UnpackError
        There is no Python of the right version, or the base image lacks what the bundle counts on.
    """
    root = os.path.abspath(root)
    base = find_python(manifest.environment, python, origin)
    env = os.path.join(root, "env")
    executable = _make_venv(manifest, env, base)
    link_base_distributions(manifest, root, base)
    apply_rewrites(manifest, root, base.site_packages)
    _show_own_packages(manifest, root, env, base)
    _make_scripts(manifest, root, executable)
    return InstalledEnvironment(Path(executable), _variables(root, env))


def find_python(
    environment: EnvironmentRef, python: str | None = None, origin: str = ""
) -> Interpreter:
    """Return the interpreter to make the environment with; raises `UnpackError` if none fits."""
    tried: list[str] = []
    for path in _candidates(environment, python, origin):
        try:
            interpreter = own() if path == sys.executable else ask(path)
        except EnvironmentNotSupportedError as error:
            tried.append(error.message)
            continue
        fits = interpreter.python == environment.python
        if fits and interpreter.implementation == environment.implementation:
            return interpreter
        tried.append(f"{path}: {interpreter.implementation} {interpreter.python_full}")
    wanted = f"{environment.implementation} {environment.python}"
    raise UnpackError(
        f"the run needs {wanted}, and this machine has none",
        "use an image with that Python, or make the environment with the image's Python",
        tried,
    )


def _candidates(environment: EnvironmentRef, python: str | None, origin: str) -> Iterator[str]:
    if python is not None:
        yield os.path.abspath(shutil.which(python) or python)
        return
    yield sys.executable
    name = "pypy" if environment.implementation == "pypy" else "python"
    for each in (f"{name}{environment.python}", f"{name}3"):
        # All of PATH: the first may be a shim that has not got this version.
        for folder in (os.environ.get("PATH") or os.defpath).split(os.pathsep):
            path = os.path.join(folder, each)
            if os.path.isabs(path) and os.access(path, os.X_OK):
                yield path
    if os.path.isabs(origin) and os.access(origin, os.X_OK):
        yield origin


def _make_venv(manifest: Manifest, env: str, base: Interpreter) -> str:
    environment = manifest.environment
    os.makedirs(site_packages(manifest, env), exist_ok=True)
    os.makedirs(os.path.join(env, "bin"), exist_ok=True)
    home = os.path.dirname(base.base_executable)
    system_site = "true" if environment.system_site else "false"
    config = (
        f"home = {home}\n"
        f"include-system-site-packages = {system_site}\n"
        f"version = {base.python_full}\n"
        f"executable = {base.base_executable}\n"
    )
    write_file(os.path.join(env, "pyvenv.cfg"), os.fsencode(config))
    executable = os.path.join(env, "bin", "python")
    write_link(base.base_executable, executable)
    for name in ("python3", f"python{environment.python}"):
        write_link("python", os.path.join(env, "bin", name))
    return executable


def _show_own_packages(manifest: Manifest, root: str, env: str, base: Interpreter) -> None:
    """Let the run import j2c_lab (for `log_metrics`), and what a base that is a venv has."""
    site = site_packages(manifest, env)
    package = os.path.join(site, "j2c_lab")
    if os.path.islink(package) or not os.path.lexists(package):
        write_link(os.path.dirname(os.path.abspath(errors.__file__)), package)
    chain = os.path.join(site, "zz_j2c_base.pth")
    if os.path.lexists(chain):
        os.unlink(chain)
    if base.is_venv and manifest.environment.system_site:
        # The venv's parent is the parent of this one too, and visible already. Packages of the
        # user come before the base's, as they do in a Python that is no venv.
        user = site_packages(manifest, os.path.join(root, "user"))
        # No comprehension: in a `.pth` line it would not see the name `site`.
        calls = "; ".join(f"site.addsitedir({path!r})" for path in [user, *base.site_packages])
        line = f"import site; {calls}\n"
        write_file(chain, os.fsencode(line))


def _make_scripts(manifest: Manifest, root: str, python: str) -> None:
    for place in (ENVIRONMENT, USER):
        bin_directory = directory(manifest, root, place, "scripts")
        if os.path.isdir(bin_directory):
            _mend_scripts(bin_directory, python)
    for script in manifest.environment.scripts:
        if "/" in script.name or script.name in ("", ".", "..") or "\0" in script.name:
            raise FormatError(f"the bundle has a script of the unsafe name {script.name!r}")
        bin_directory = directory(manifest, root, script.place, "scripts")
        os.makedirs(bin_directory, exist_ok=True)
        path = os.path.join(bin_directory, script.name)
        write_file(path, entry_script(python, script.target), executable=True)


def _mend_scripts(bin_directory: str, python: str) -> None:
    for entry in os.scandir(bin_directory):
        if entry.is_symlink() or not entry.is_file():
            continue
        with open(entry.path, "rb") as file:
            content = file.read(16)
            if not content.startswith(b"#!python"):
                continue
            content += file.read()
        mended = with_place(content, python)
        if mended is not None:
            write_file(entry.path, mended, executable=True)


def _variables(root: str, env: str) -> dict[str, str]:
    user = os.path.join(root, "user")
    path = os.environ.get("PATH") or os.defpath
    directories = [os.path.join(env, "bin")]
    if os.path.isdir(os.path.join(user, "bin")):
        directories.append(os.path.join(user, "bin"))
    return {
        "PATH": os.pathsep.join([*directories, path]),
        "VIRTUAL_ENV": env,
        # Never the job's own ~/.local, which the lab did not see; `pip install --user` lands here.
        "PYTHONUSERBASE": user,
    }
