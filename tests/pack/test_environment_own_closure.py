"""j2c-lab installed in the environment that is packed, by real tools."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from environment_tools import install, make_venv, make_wheel, move, run_in

from j2c_lab.pack.environment import plan_environment


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Stand-ins by the names of the real ones, so that no other index is asked for j2c-lab."""
    wheels = tmp_path / "wheels"
    make_wheel(
        wheels, "j2c_lab", {"j2c_lab/__init__.py": ""}, requires=("liba", "libb", "ipykernel")
    )
    make_wheel(wheels, "liba", {"liba.py": "import libc_of_a"}, requires=("libc_of_a",))
    make_wheel(wheels, "libb", {"libb.py": ""})
    make_wheel(wheels, "libc_of_a", {"libc_of_a.py": ""})
    make_wheel(wheels, "ipykernel", {"ipykernel.py": ""})
    make_wheel(wheels, "user_code", {"user_code.py": ""}, requires=("libb; extra == 'x'",))
    return wheels


def names(venv: Path, project: Path | None = None) -> tuple[list[str], list[str]]:
    plan = plan_environment(
        os.fspath(venv), project_root=None if project is None else os.fspath(project)
    )
    left_out = [o.path for o in plan.left_out if o.rule == "only for j2c-lab"]
    return sorted(d.name for d in plan.distributions), sorted(left_out)


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_what_only_j2c_needs_stays(tmp_path: Path, wheels: Path, tool: str) -> None:
    venv = make_venv(tmp_path / "venv", system_site=False)
    install(venv, "--no-index", "--find-links", wheels, "j2c-lab", "user_code", tool=tool)

    travelling, left_out = names(venv)

    assert travelling == ["ipykernel", "libb", "user-code"]
    assert left_out == ["j2c-lab 1.0", "liba 1.0", "libc-of-a 1.0"]


def test_what_was_asked_for_travels(tmp_path: Path, wheels: Path) -> None:
    venv = make_venv(tmp_path / "venv", system_site=False)
    install(venv, "--no-index", "--find-links", wheels, "j2c-lab", "liba", tool="pip")

    assert names(venv)[0] == ["ipykernel", "liba", "libc-of-a"]


def test_what_the_project_names_travels(tmp_path: Path, wheels: Path) -> None:
    venv = make_venv(tmp_path / "venv", "uv", system_site=False)
    install(venv, "--no-index", "--find-links", wheels, "j2c-lab", tool="uv")
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("from liba import x\n")

    assert names(venv, project)[0] == ["ipykernel", "liba", "libc-of-a"]


def test_without_j2c_everything_travels(tmp_path: Path, wheels: Path) -> None:
    venv = make_venv(tmp_path / "venv", system_site=False)
    install(venv, "--no-index", "--find-links", wheels, "liba")

    assert names(venv) == (["liba", "libc-of-a"], [])


@pytest.mark.parametrize("system_site", [True, False])
def test_the_run_can_import_j2c_lab_all_the_same(tmp_path: Path, system_site: bool) -> None:
    import j2c_lab

    venv = make_venv(tmp_path / "venv", system_site=system_site)

    _, environment = move(venv, tmp_path / "root")

    code = "import j2c_lab, os; print(os.path.realpath(j2c_lab.__file__))"
    assert run_in(environment, "python", "-c", code) == os.path.realpath(j2c_lab.__file__)


def test_editable_j2c_lab_brings_no_sources(tmp_path: Path) -> None:
    venv = make_venv(tmp_path / "venv", system_site=False)
    install(venv, "--no-deps", "-e", Path(__file__).parents[2])

    plan = plan_environment(os.fspath(venv))

    assert plan.layers == []
    assert [left.rule for left in plan.left_out] == ["only for j2c-lab"]
