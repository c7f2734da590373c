"""Puts the built JupyterLab extension into the wheel, building it first where it has to be.

`J2C_LABEXTENSION` says what to do when `j2c_lab/labextension` is absent: `auto` (the default)
builds it when Node.js is there and goes without it when not, since a base image on a cluster needs
no front end; `require` makes going without an error (releases); `skip` never builds.

An editable install never builds: it must be quick, and its front end is made and linked by
`make labextension`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_BUILT = Path("j2c_lab/labextension")
_SOURCE = Path("labextension")
_SHARE = "share/jupyter/labextensions/j2c-lab"


class LabExtensionHook(BuildHookInterface[Any]):
    """The build hook named `custom` in pyproject.toml."""

    def dependencies(self) -> list[str]:
        """Return what a build of the front end needs: nothing when there will be none."""
        return ["jupyter-builder>=1.3,<2"] if self._must_build() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the front end where it is wanted and absent, and add it to the distribution."""
        if version != "editable" and self._must_build():
            self._build()
        if version == "editable":
            # scripts/labextension.py links the bundle where JupyterLab looks.
            return
        if not self._is_built():
            if _mode() == "require":
                raise RuntimeError("no Node.js to build the JupyterLab extension with")
            self.app.display_warning("built without the JupyterLab extension")
            return
        build_data["artifacts"].append(f"/{_BUILT}")
        if self.target_name == "wheel":
            build_data["shared_data"] = {str(_BUILT): _SHARE}
            if not (Path(self.root) / _BUILT / "install.json").is_file():
                # jupyter-builder puts it there, older ones do not.
                source = str(_SOURCE / "install.json")
                build_data["shared_data"][source] = f"{_SHARE}/install.json"

    def _is_built(self) -> bool:
        return (Path(self.root) / _BUILT / "package.json").is_file()

    def _must_build(self) -> bool:
        wanted = _mode() == "require" or (_mode() == "auto" and shutil.which("node") is not None)
        return wanted and not self._is_built()

    def _build(self) -> None:
        folder = Path(self.root) / _SOURCE
        for arguments in (["install", "--immutable"], ["build:prod"]):
            # The module, not the command: an isolated build's scripts are not always on PATH.
            code = "import sys; from jupyter_builder.jlpm import main; sys.exit(main())"
            path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
            subprocess.run(
                [sys.executable, "-c", code, *arguments],
                cwd=folder,
                env={**os.environ, "PATH": path},
                check=True,
            )


def _mode() -> str:
    return os.environ.get("J2C_LABEXTENSION", "auto")
