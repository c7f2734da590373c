"""Calls the real command in a home of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

# `python -m` with the directory of the project first on the path would import its files.
_J2C = [sys.executable, "-m", "j2c_lab"]


class Lab:
    """Calls the real command in a home of its own."""

    def __init__(self, home: Path, venv: Path) -> None:
        self.home = home
        self.project = home / "project"
        self.project.mkdir(parents=True)
        (self.project / ".git").mkdir()
        self.environ = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "VIRTUAL_ENV": str(venv),
            "J2C_LOCAL_CPUS": "4",
            "J2C_LOCAL_GPUS": "2",
            "J2C_USER": "ada",
        }

    @property
    def store(self) -> Path:
        return self.home / ".local/share/j2c/store"

    @property
    def runs(self) -> Path:
        return self.store / "runs/ada"

    def script(self, text: str, name: str = "train.py") -> Path:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def start(self, *arguments: str, **rest: Any) -> subprocess.Popen[bytes]:
        environ: Mapping[str, str] = {**self.environ, **rest.pop("environ", {})}
        rest = {"cwd": self.project, "stdin": subprocess.DEVNULL, **rest}
        return subprocess.Popen(
            [*_J2C, *arguments],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **rest,
        )

    def __call__(self, *arguments: str, **rest: Any) -> subprocess.CompletedProcess[bytes]:
        given = rest.pop("input", None)
        if given is not None:
            rest["stdin"] = subprocess.PIPE
        process = self.start(*arguments, **rest)
        with process:
            out, err = process.communicate(given, timeout=120)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def events(self, *arguments: str, **rest: Any) -> list[dict[str, Any]]:
        done = self(*arguments, "--json", **rest)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def jobs(self) -> list[str]:
        """The handles of all jobs that the local scheduler ever got."""
        state = self.home / ".local/state/j2c/local"
        return sorted(
            path.name
            for parent in ("active", "done")
            if (state / parent).is_dir()
            for path in (state / parent).iterdir()
        )


@pytest.fixture(scope="session")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("venvs") / "venv"
    command = ["uv", "venv", "-q", "--python", sys.executable, "--system-site-packages", path]
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(command, check=True, env=environ)
    return path


@pytest.fixture
def lab(tmp_path: Path, venv: Path) -> Lab:
    return Lab(tmp_path / "home", venv)
