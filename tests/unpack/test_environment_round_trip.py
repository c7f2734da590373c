"""Environments made by real tools, packed, moved away, and used from another place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from environment_tools import install, make_venv, make_wheel, move, run_in

GREET = """
import sys
def main():
    print("greetings", *sys.argv[1:])
"""


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(
        tmp_path / "wheels",
        "greet",
        {
            "greet/__init__.py": GREET,
            "greet/words, and more.txt": "hello",
            "greet-1.0.data/scripts/greet-raw": "#!python\nimport greet\ngreet.main()\n",
            "greet-1.0.data/data/share/greet/data.txt": "data",
        },
        entry_points="[console_scripts]\ngreet = greet:main\n[gui_scripts]\ngreet-gui=greet:main\n",
    )


@pytest.mark.parametrize("tool", ["venv", "virtualenv", "uv"])
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_system_site_venv_works_from_another_place(
    tmp_path: Path, wheel: Path, tool: str, installer: str
) -> None:
    venv = make_venv(tmp_path / "venv", tool)
    install(venv, wheel, tool=installer)

    _, environment = move(venv, tmp_path / "root")

    assert run_in(environment, "greet", "", "a b") == "greetings  a b"
    assert run_in(environment, "greet-gui") == "greetings"
    assert run_in(environment, "greet-raw", "x") == "greetings x"
    data = (
        "import sys, pathlib; print(pathlib.Path(sys.prefix, 'share/greet/data.txt').read_text())"
    )
    assert run_in(environment, environment.python, "-c", data) == "data"
    files = (
        "import importlib.metadata as m; print(all(f.locate().exists() for f in m.files('greet')))"
    )
    assert run_in(environment, "python", "-c", files) == "True"
    assert os.fspath(environment.python).startswith(os.fspath(tmp_path / "root" / "env"))


@pytest.mark.parametrize("name", ["a place with spaces", "x" * 120])
def test_scripts_work_below_any_path(tmp_path: Path, wheel: Path, name: str) -> None:
    venv = make_venv(tmp_path / "venv")
    install(venv, wheel)

    _, environment = move(venv, tmp_path / name / "root")

    assert run_in(environment, "greet", "a b") == "greetings a b"
    assert run_in(environment, "greet-raw", "a b") == "greetings a b"
