"""Editable installs by the real build backends, used where their sources have moved to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from environment_tools import (
    content_of,
    install,
    layer_named,
    make_venv,
    make_wheel,
    move,
    run,
    run_in,
    uv,
)

from j2c_lab.pack.environment import plan_environment

BACKENDS = {
    "setuptools-src": ('["setuptools>=80"]', "setuptools.build_meta", "src"),
    "setuptools-flat": ('["setuptools>=80"]', "setuptools.build_meta", ""),
    "hatchling": ('["hatchling"]', "hatchling.build", "src"),
    "flit": ('["flit_core>=3.9"]', "flit_core.buildapi", "src"),
    "uv": ('["uv_build"]', "uv_build", "src"),
}


def make_project(root: Path, backend: str, name: str = "lively") -> Path:
    """Write a package with a console script and a data file beside its code."""
    requires, build, source = BACKENDS[backend]
    package = root / source / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        '"""Lively."""\nfrom pathlib import Path\n__version__ = "1.0"\n'
        "def main():\n    print(Path(__file__).with_name('data.txt').read_text(), __file__)\n"
    )
    (package / "data.txt").write_text("data")
    (root / "pyproject.toml").write_text(
        f'[project]\nname = "{name}"\nversion = "1.0"\ndescription = "Lively"\n'
        f'requires-python = ">=3.10"\nscripts = {{ {name} = "{name}:main" }}\n'
        f'[build-system]\nrequires = {requires}\nbuild-backend = "{build}"\n'
    )
    return root


def check(environment, where: Path, name: str = "lively") -> None:
    printed = run_in(environment, name)
    assert printed.startswith(f"data {where}"), printed
    version = f"import importlib.metadata as m; print(m.version('{name}'))"
    assert run_in(environment, "python", "-c", version) == "1.0"


@pytest.mark.parametrize("backend", list(BACKENDS))
@pytest.mark.parametrize("inside", [True, False], ids=["in-project", "outside"])
def test_an_editable_install_works_from_another_place(
    tmp_path: Path, backend: str, inside: bool
) -> None:
    project = tmp_path / "project"
    source = make_project(project / "libs" / "one" if inside else tmp_path / "one", backend)
    project.mkdir(exist_ok=True)
    venv = make_venv(tmp_path / "venv")
    install(venv, "-e", source)
    root = tmp_path / "root"

    plan, environment = move(venv, root, away=(source,), project_root=project)

    check(environment, root / "project" / "libs" / "one" if inside else root / "editable" / "one")
    assert not [f for one in plan.layers for f in one.files if os.fsencode(tmp_path) in f.data]


def test_strict_editable_mode_of_setuptools_works(tmp_path: Path) -> None:
    source = make_project(tmp_path / "one", "setuptools-flat")
    with (source / "pyproject.toml").open("a") as file:
        file.write('[tool.setuptools.package-data]\nlively = ["*.txt"]\n')
    venv = make_venv(tmp_path / "venv")
    install(venv, "--config-settings=editable_mode=strict", "-e", source)

    _, environment = move(venv, tmp_path / "root", away=(source,))

    check(environment, tmp_path / "root" / "editable")


def test_a_uv_sync_project_with_a_workspace_member_works(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", "uv")
    make_project(project / "packages" / "helper", "hatchling", "helper")
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.uv.workspace]\nmembers = ["packages/*"]\n')
        file.write("[tool.uv.sources]\nhelper = { workspace = true }\n")
    run(uv(), "add", "-q", "helper", cwd=project)
    run(uv(), "sync", "-q", "--all-packages", cwd=project)
    root = tmp_path / "root"

    _, environment = move(project / ".venv", root, project_root=project)

    check(environment, root / "project" / "src")
    check(environment, root / "project" / "packages" / "helper" / "src", "helper")


def test_a_legacy_egg_link_works(tmp_path: Path) -> None:
    source = tmp_path / "old"
    (source / "oldie").mkdir(parents=True)
    (source / "oldie" / "__init__.py").write_text("def main():\n    print('data', __file__)\n")
    (source / "setup.py").write_text(
        "from setuptools import setup\n"
        "setup(name='oldie', version='1.0', packages=['oldie'],\n"
        "      entry_points={'console_scripts': ['oldie = oldie:main']})\n"
    )
    venv = make_venv(tmp_path / "venv", system_site=False)
    install(venv, "setuptools==69.5.1")
    python = venv / "bin" / "python"
    run(python, "setup.py", "-q", "develop", "--no-deps", cwd=source)
    assert list(venv.glob("lib/*/site-packages/oldie.egg-link"))

    _, environment = move(venv, tmp_path / "root", away=(source,))

    check(environment, tmp_path / "root" / "editable" / "old", "oldie")


def test_path_lines_are_repointed_and_those_of_the_base_not_packed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "loose_module.py").write_text("print('loose')")
    project = tmp_path / "project"
    (project / "lib").mkdir(parents=True)
    (project / "lib" / "of_project.py").write_text("print('of project')")
    venv = make_venv(tmp_path / "venv", system_site=False)
    (site,) = venv.glob("lib/*/site-packages")
    (base,) = {Path(p).parent for p in [os.fspath(pytest.__path__[0])]}
    (site / "paths.pth").write_text(f"# a comment\n{outside}\n{project}/lib\n{base}\nno such dir\n")

    plan, environment = move(venv, tmp_path / "root", away=(outside,), project_root=project)

    assert run_in(environment, "python", "-c", "import loose_module, of_project") == (
        "loose\nof project"
    )
    assert run_in(environment, "python", "-c", "import pytest; print(pytest.__file__)") == (
        pytest.__file__
    )
    assert len([layer for layer in plan.layers if layer.place == "editable"]) == 1


def test_two_people_with_the_same_project_give_the_same_layers(tmp_path: Path) -> None:
    plans = []
    for person in ("ann", "bob"):
        project = make_project(tmp_path / person / "project", "setuptools-flat")
        venv = make_venv(tmp_path / person / "venv")
        install(venv, "-e", project)
        plans.append(plan_environment(os.fspath(venv), project_root=os.fspath(project)))

    one, two = (
        [(f.path, f.executable, content_of(f)) for f in layer_named(plan, "lively").files]
        for plan in plans
    )
    assert sorted(one) == sorted(two)
    assert plans[0].ref == plans[1].ref


def test_a_home_directory_on_the_path_is_warned_about_not_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", os.fspath(tmp_path))
    venv = make_venv(tmp_path / "venv")
    (site,) = venv.glob("lib/*/site-packages")
    (site / "home.pth").write_text(f"{tmp_path}\n")

    plan = plan_environment(os.fspath(venv))

    assert not [layer for layer in plan.layers if layer.place == "editable"]
    assert len(plan.warnings) == 1
    assert "too much to send" in plan.warnings[0]


def test_wheel_made_nspkg_pth_and_namespaces_work(tmp_path: Path) -> None:
    nspkg = (
        "import sys, types, os;p = os.path.join(sys._getframe(1).f_locals['sitedir'], *('old',));"
        "m = sys.modules.setdefault('old', types.ModuleType('old'));"
        "mp = m.__dict__.setdefault('__path__', []);(p not in mp) and mp.append(p)\n"
    )
    wheels = tmp_path / "wheels"
    names = ["alpha", "beta"]
    built = [
        make_wheel(
            wheels,
            name,
            {
                f"shared/{name}.py": f"print('{name}')",
                f"old/{name}.py": "",
                f"{name}-nspkg.pth": nspkg,
            },
        )
        for name in names
    ]
    venv = make_venv(tmp_path / "venv")
    install(venv, *built)

    _, environment = move(venv, tmp_path / "root")

    code = "import shared.alpha, shared.beta, old.alpha, old.beta"
    assert run_in(environment, "python", "-c", code) == "alpha\nbeta"


def test_a_source_that_the_project_ignores_travels_by_itself(tmp_path: Path) -> None:
    project = tmp_path / "project"
    make_project(project / "vendor" / "one", "hatchling")
    (project / ".gitignore").write_text("/vendor\n")
    (project / "vendor" / "one" / ".gitignore").write_text("*.log\n")
    (project / "vendor" / "one" / "big.log").write_text("")
    venv = make_venv(tmp_path / "venv")
    install(venv, "-e", project / "vendor" / "one")
    root = tmp_path / "root"

    plan, environment = move(venv, root, project_root=project)

    check(environment, root / "editable" / "one")
    assert not (root / "editable" / "one" / "big.log").exists()
    assert ("editable/one/big.log", ".gitignore:1: *.log") in [
        (left.path, left.rule) for left in plan.left_out
    ]


def test_an_editable_install_from_a_clone_inside_the_venv_works(tmp_path: Path) -> None:
    project = tmp_path / "project"
    venv = project / ".venv"
    project.mkdir()
    make_venv(venv)
    source = make_project(venv / "src" / "one", "setuptools-src")
    install(venv, "-e", source)

    _, environment = move(venv, tmp_path / "root", project_root=project)

    check(environment, tmp_path / "root" / "editable" / "one")


def test_a_meson_editable_arrives_as_an_ordinary_install(tmp_path: Path) -> None:
    source = tmp_path / "one"
    (source / "mesonic").mkdir(parents=True)
    (source / "mesonic" / "__init__.py").write_text(
        "from pathlib import Path\n"
        "def main():\n    print(Path(__file__).with_name('data.txt').read_text(), __file__)\n"
    )
    (source / "mesonic" / "data.txt").write_text("data")
    (source / "meson.build").write_text(
        "project('mesonic', version: '1.0')\n"
        "py = import('python').find_installation(pure: true)\n"
        "py.install_sources('mesonic/__init__.py', 'mesonic/data.txt', subdir: 'mesonic')\n"
    )
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["meson-python"]\nbuild-backend = "mesonpy"\n'
        '[project]\nname = "mesonic"\nversion = "1.0"\nrequires-python = ">=3.10"\n'
        'scripts = { mesonic = "mesonic:main" }\n'
    )
    venv = make_venv(tmp_path / "venv")
    install(venv, "meson-python", "meson", "ninja")
    path = f"{venv / 'bin'}:{os.environ['PATH']}"
    python = venv / "bin" / "python"
    options = ["--python", python, "--no-build-isolation", "-e", source]
    run(uv(), "pip", "install", "-q", *options, PATH=path)
    root = tmp_path / "root"

    plan, environment = move(venv, root, away=(source,))

    assert plan.warnings == []
    check(environment, root / "env", "mesonic")
    code = (
        "import importlib.metadata as m; print([f.locate().exists() for f in m.files('mesonic')])"
    )
    assert "False" not in run_in(environment, "python", "-c", code)


def test_code_in_a_pth_that_names_files_of_the_machine_brings_none_of_them(tmp_path: Path) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "extra_module.py").write_text("print('extra')")
    (tmp_path / "notes.txt").write_text("")
    venv = make_venv(tmp_path / "venv", system_site=False)
    (site,) = venv.glob("lib/*/site-packages")
    (site / "code.pth").write_text(
        f"import os, site; os.path.isfile('/etc/passwd'); os.path.isdir('/etc/ssl'); "
        f"os.path.isfile('{tmp_path}/notes.txt'); site.addsitedir('{extra}')\n"
    )

    plan, environment = move(venv, tmp_path / "root", away=(extra,))

    assert run_in(environment, "python", "-c", "import extra_module") == "extra"
    assert [layer.name for layer in plan.layers] == ["source of extra", "environment"]
