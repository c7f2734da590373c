"""What an installed j2c-lab holds, with a front end that was built and without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARE = "data/share/jupyter/labextensions/j2c-lab/"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A clone without what is built, and without the front end's own dependencies."""
    target = tmp_path / "clone"
    for name in ("j2c_lab", "jupyter-config"):
        ignored = shutil.ignore_patterns("__pycache__", "labextension")
        shutil.copytree(ROOT / name, target / name, ignore=ignored)
    (target / "labextension").mkdir()
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, target / name)
    shutil.copy(ROOT / "labextension/install.json", target / "labextension")
    return target


def add_bundle(clone: Path) -> None:
    built = clone / "j2c_lab/labextension"
    (built / "static").mkdir(parents=True)
    for name in ("package.json", "install.json", "static/style.js"):
        (built / name).write_text("{}")


def uv(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("uv")), *arguments],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=200,
    )


def build(clone: Path, **environ: str) -> set[str]:
    out = clone.parent / "dist"
    done = uv("build", "--wheel", "-q", "-o", str(out), str(clone), **environ)
    assert done.returncode == 0, done.stderr
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name.removeprefix("j2c_lab-0.1.0.data/") for name in archive.namelist()}


def test_a_wheel_holds_the_front_end_that_was_built(copy: Path) -> None:
    add_bundle(copy)
    names = build(copy)
    assert {SHARE + "package.json", SHARE + "install.json", SHARE + "static/style.js"} <= names
    assert "data/etc/jupyter/jupyter_server_config.d/j2c_lab.json" in names
    assert "j2c_lab/server/openapi.yaml" in names
    assert "j2c_lab/locale/ru_RU/LC_MESSAGES/j2c_lab.json" in names


def test_a_wheel_without_the_front_end_is_whole_otherwise(copy: Path) -> None:
    names = build(copy, J2C_LABEXTENSION="skip")
    assert not any(name.startswith(SHARE) for name in names)
    assert "j2c_lab/server/openapi.yaml" in names


@pytest.mark.parametrize("built", [False, True])
def test_an_editable_install_neither_builds_nor_holds_the_front_end(
    copy: Path, built: bool
) -> None:
    if built:
        add_bundle(copy)
    venv = copy.parent / "venv"
    assert uv("venv", "-q", "-p", sys.executable, str(venv)).returncode == 0
    done = uv(
        *["pip", "install", "-q", "--no-deps", "-e", str(copy)],
        VIRTUAL_ENV=str(venv),
        J2C_LABEXTENSION="auto",
    )
    assert done.returncode == 0, done.stderr
    assert not (venv / "share/jupyter/labextensions").exists()
    assert (venv / "etc/jupyter/jupyter_server_config.d/j2c_lab.json").is_file()
    assert not (copy / "labextension/node_modules").exists()
