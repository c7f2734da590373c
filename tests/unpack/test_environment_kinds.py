"""The kinds of environments beyond the venv with system packages, each from another place."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from environment_tools import BASE_PYTHON, install, make_venv, make_wheel, move, paths, run, run_in

from j2c_lab.installed.interpreter import own
from j2c_lab.pack.environment import plan_environment

PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(
        tmp_path / "wheels",
        "hello",
        {
            "hello.py": "def main():\n    print('hello')\n",
            "hello-1.0.data/scripts/hello-raw": "#!python\nimport hello\nhello.main()\n",
            "hello-1.0.data/data/share/hello.txt": "shared",
        },
        entry_points="[console_scripts]\nhello = hello:main\n",
    )


@pytest.fixture
def user_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    base = tmp_path / "home" / ".local"
    base.mkdir(parents=True)
    monkeypatch.setenv("PYTHONUSERBASE", os.fspath(base))
    monkeypatch.delenv("PYTHONNOUSERSITE", raising=False)
    return base


def install_for_user(user_base: Path, *what: Path) -> None:
    options = ["install", "-q", "--user", "--no-warn-script-location", "--break-system-packages"]
    run(BASE_PYTHON, "-m", "pip", *options, *what, PYTHONUSERBASE=os.fspath(user_base))


def test_packages_of_the_user_travel_from_a_base_python(
    tmp_path: Path, user_base: Path, wheel: Path
) -> None:
    install_for_user(user_base, wheel)
    (user_base / "bin" / "unrelated-tool").write_text("#!/bin/sh\n")
    plan = plan_environment(own().base_prefix)
    assert plan.ref.kind == "user"
    assert plan.ref.system_site
    assert [(layer.name, layer.place) for layer in plan.layers] == [("hello 1.0", "user")]

    _, environment = move(Path(own().base_prefix), tmp_path / "root", keep=True, away=(user_base,))

    assert run_in(environment, "hello") == "hello"
    assert run_in(environment, "hello-raw") == "hello"
    where = run_in(environment, "python", "-c", "import hello; print(hello.__file__)")
    assert Path(where).is_relative_to(tmp_path / "root" / "user")
    assert (tmp_path / "root" / "user" / "share" / "hello.txt").read_text() == "shared"


def test_the_users_directory_itself_can_be_named(user_base: Path, wheel: Path) -> None:
    install_for_user(user_base, wheel)

    assert plan_environment(os.fspath(user_base)).ref == plan_environment(own().base_prefix).ref


def test_a_base_python_alone_sends_nothing(tmp_path: Path, user_base: Path) -> None:
    plan, environment = move(Path(own().base_prefix), tmp_path / "root", keep=True)

    assert plan.ref.kind == "none"
    assert plan.layers == []
    assert run_in(environment, "python", "-c", "print('runs')") == "runs"


def test_a_system_site_venv_brings_packages_of_the_user_too(
    tmp_path: Path, user_base: Path, wheel: Path
) -> None:
    install_for_user(user_base, wheel, make_wheel(tmp_path, "both", {"both.py": "where = 'user'"}))
    venv = make_venv(tmp_path / "venv")
    install(venv, make_wheel(tmp_path, "both", {"both.py": "where = 'venv'"}))

    plan, environment = move(venv, tmp_path / "root", away=(user_base,))

    assert {layer.place for layer in plan.layers} == {"environment", "user"}
    code = "import both, hello; print(both.where)"
    assert run_in(environment, "python", "-c", code) == "venv"
    assert run_in(environment, "hello") == "hello"


def test_an_isolated_venv_neither_brings_nor_sees_packages_of_the_user(
    tmp_path: Path, user_base: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_for_user(user_base, wheel)
    venv = make_venv(tmp_path / "venv", system_site=False)
    (tmp_path / "leak").mkdir()
    (tmp_path / "leak" / "leaked.py").write_text("")

    plan, environment = move(venv, tmp_path / "root")

    assert plan.layers == []
    monkeypatch.setenv("PYTHONPATH", os.fspath(tmp_path / "leak"))
    for module in ("hello", "leaked", "pytest"):
        code = f"import importlib.util as u; print(u.find_spec('{module}'))"
        assert run_in(environment, "python", "-c", code) == "None"


def test_a_system_site_venv_does_not_see_the_jobs_own_user_packages(
    tmp_path: Path, user_base: Path, wheel: Path
) -> None:
    venv = make_venv(tmp_path / "venv")
    _, environment = move(venv, tmp_path / "root")
    install_for_user(user_base, wheel)

    code = "import importlib.util as u; print(u.find_spec('hello'))"
    assert run_in(environment, "python", "-c", code) == "None"


def make_conda_prefix(prefix: Path, venv: Path) -> Path:
    """Lay out a conda prefix by hand: no index here has conda itself.

    As conda does: a Python in `bin`, `conda-meta/*.json` that lists each package's files, no
    pyvenv.cfg; packages in site-packages with `INSTALLER` conda; scripts that name the prefix.
    """
    (venv / "pyvenv.cfg").unlink()
    venv.rename(prefix)
    meta = prefix / "conda-meta"
    meta.mkdir()
    (meta / "history").write_text("")
    (site,) = prefix.glob("lib/*/site-packages")
    for info in site.glob("*.dist-info"):
        (info / "INSTALLER").write_text("conda")
        files = [os.fspath(p.relative_to(prefix)) for p in site.rglob("*") if p.is_file()]
        name, version = info.stem.split("-")
        record = {"name": name, "version": version, "build": "py_0", "files": files}
        (meta / f"{name}-{version}-py_0.json").write_text(json.dumps(record))
    (prefix / "share").mkdir(exist_ok=True)
    (prefix / "share" / "conda-own").write_text("")
    (prefix / "bin" / "tool-of-conda").write_text("#!/bin/sh\n")
    for script in (prefix / "bin").iterdir():
        if script.is_file() and not script.is_symlink():
            text = script.read_text().replace(os.fspath(venv), os.fspath(prefix))
            script.write_text(text)
    return prefix


def test_the_python_packages_of_a_conda_prefix_travel(tmp_path: Path, wheel: Path) -> None:
    venv = make_venv(tmp_path / "venv", system_site=False)
    install(venv, wheel, "idna")
    prefix = make_conda_prefix(tmp_path / "conda", venv)

    plan, environment = move(prefix, tmp_path / "root")

    assert plan.ref.kind == "conda"
    assert not plan.ref.system_site
    assert sorted(d.name for d in plan.distributions) == ["hello", "idna"]
    packed = set().union(*(paths(layer) for layer in plan.layers))
    assert "scripts/tool-of-conda" not in packed
    assert run_in(environment, "hello") == "hello"
    assert run_in(environment, "hello-raw") == "hello"
    assert run_in(environment, "python", "-c", "import idna; print(idna.encode('a'))") == "b'a'"


def test_compiled_packages_of_conda_bring_the_libraries_they_need(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler on Linux: other systems name libraries in another format")
    venv = make_venv(tmp_path / "venv", system_site=False)
    code = (
        "import ctypes, pathlib\n"
        "library = ctypes.CDLL(str(pathlib.Path(__file__).with_name('_native.so')))\n"
        "print(library.outer())\n"
    )
    install(venv, make_wheel(tmp_path, "native", {"native/__init__.py": code}))
    prefix = make_conda_prefix(tmp_path / "conda", venv)
    (package,) = prefix.glob("lib/*/site-packages/native")
    library = prefix / "lib" / "libdeep.so.1"
    (tmp_path / "deep.c").write_text("int deep(void) { return 42; }")
    (tmp_path / "middle.c").write_text("int deep(void); int middle(void) { return deep(); }")
    (tmp_path / "outer.c").write_text("int middle(void); int outer(void) { return middle(); }")
    shared = [compiler, "-shared", "-fPIC", "-o"]
    run(*shared, f"{library}.0.0", tmp_path / "deep.c", "-Wl,-soname,libdeep.so.1")
    library.symlink_to("libdeep.so.1.0.0")
    middle = prefix / "lib" / "libmiddle.so"
    run(*shared, middle, tmp_path / "middle.c", library, "-Wl,-rpath,$ORIGIN")
    (prefix / "lib" / "libunrelated.so").write_bytes(library.read_bytes())
    origin = "-Wl,-rpath,$ORIGIN/../../.."
    run(
        *shared,
        package / "_native.so",
        tmp_path / "outer.c",
        origin,
        "-L",
        prefix / "lib",
        "-lmiddle",
    )

    plan, environment = move(prefix, tmp_path / "root")

    assert run_in(environment, "python", "-c", "import native") == "42"
    names = [layer.name for layer in plan.layers]
    assert "libdeep.so.1" in names
    assert "libmiddle.so" in names
    assert "libunrelated.so" not in names


@pytest.mark.parametrize("version", PYTHONS)
def test_each_python_that_is_here_makes_the_way(tmp_path: Path, wheel: Path, version: str) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"this machine has no Python {version}")
    venv = make_venv(tmp_path / "venv", python=python)
    install(venv, wheel)

    plan, environment = move(venv, tmp_path / "root", python=python)

    assert plan.ref.python == version
    assert run_in(environment, "hello") == "hello"
    code = "import sys, j2c_lab; print('%d.%d' % sys.version_info[:2])"
    assert run_in(environment, "python", "-c", code) == version


def find_python(version: str) -> str | None:
    """Return a Python `version` (no venv's, no shim) that starts, from pyenv or PATH."""
    found = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    candidates = [os.fspath(path) for path in found]
    candidates += [
        f"{d}/python{version}" for d in os.environ["PATH"].split(":") if "shims" not in d
    ]
    for candidate in candidates:
        real = Path(candidate)
        if real.exists() and not (real.parent.parent / "pyvenv.cfg").exists():
            return candidate
    return None


def test_a_venv_of_a_venvs_python_works(tmp_path: Path, wheel: Path) -> None:
    first = make_venv(tmp_path / "first", system_site=False)
    install(first, make_wheel(tmp_path, "below", {"below.py": ""}))
    second = make_venv(tmp_path / "second", python=os.fspath(first / "bin" / "python"))
    install(second, wheel)
    (site,) = second.glob("lib/*/site-packages")
    (first_site,) = first.glob("lib/*/site-packages")
    (site / "first.pth").write_text(f"{first_site}\n")

    _, environment = move(second, tmp_path / "root", away=(first,))

    assert run_in(environment, "hello") == "hello"
    assert run_in(environment, "python", "-c", "import below; print('below')") == "below"


def test_the_environment_of_this_very_python_can_be_packed() -> None:
    plan = plan_environment(sys.prefix)

    assert "pytest" in {d.name for d in plan.distributions}
    assert "j2c-lab" not in {d.name for d in plan.distributions}
