"""A lab of its own for each test: home, store, scheduler, a project and a real venv."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_tools import Lab


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
