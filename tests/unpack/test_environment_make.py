"""Making an environment from a manifest: which Python, what is refused, what is left alone."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import pytest
from environment_tools import install, make_venv, make_wheel, move, run_in

from j2c_lab.errors import FormatError, UnpackError, UnsafePathError
from j2c_lab.formats.manifest import EnvironmentRef, Manifest, Rewrite, Script
from j2c_lab.unpack.environment import make_environment
from j2c_lab.unpack.places import place_directories

REF = EnvironmentRef(
    kind="venv",
    python=".".join(map(str, sys.version_info[:2])),
    python_full=".".join(map(str, sys.version_info[:3])),
    implementation="cpython",
    platform="any",
    libc="",
    system_site=False,
    distributions=[],
)


def manifest(**changes: object) -> Manifest:
    return Manifest(project="p", layers=[], environment=dataclasses.replace(REF, **changes))


def test_no_python_of_the_version_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UnpackError) as refused:
        make_environment(manifest(python="3.99", python_full="3.99.0"), os.fspath(tmp_path))

    assert refused.value.message == "the run needs cpython 3.99, and this machine has none"
    assert any(sys.executable in line for line in refused.value.details)


def test_a_python_of_another_version_is_found_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sorted(Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python3.*"))
    others = [p for p in found if p.name in ("python3.10", "python3.12", "python3.13")]
    if not others:
        pytest.skip("this machine has no second Python")
    broken = tmp_path / "shims"
    broken.mkdir()
    (broken / others[0].name).write_text("#!/bin/sh\necho no such version >&2\nexit 1\n")
    (broken / others[0].name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken}:{others[0].parent}:{os.environ['PATH']}")

    version = others[0].name.removeprefix("python")
    environment = make_environment(manifest(python=version), os.fspath(tmp_path / "root"))

    code = "import sys, j2c_lab; print('%d.%d' % sys.version_info[:2])"
    assert run_in(environment, "python", "-c", code) == version


@pytest.mark.parametrize("name", ["../python", "a/b", "", "..", "x\0y"])
def test_a_script_that_would_leave_bin_is_refused(tmp_path: Path, name: str) -> None:
    bundle = manifest(scripts=[Script(name=name, target="a:b")])

    with pytest.raises(FormatError):
        make_environment(bundle, os.fspath(tmp_path))


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("site-packages/../../../etc", "project"),
        ("/etc/passwd", "project"),
        ("site-packages/x.pth", "../../etc"),
        ("site-packages/x.pth", "/etc"),
        ("elsewhere/x.pth", "project"),
    ],
)
def test_a_rewrite_that_leaves_the_bundle_is_refused(
    tmp_path: Path, path: str, target: str
) -> None:
    bundle = manifest(rewrites=[Rewrite(path=path, kind="pth", values={"a": target})])
    site = place_directories(bundle, os.fspath(tmp_path))["environment"]["site-packages"]
    os.makedirs(site)
    Path(site, "x.pth").write_text("a\n")

    with pytest.raises((UnsafePathError, FormatError)):
        make_environment(bundle, os.fspath(tmp_path))
    assert Path(site, "x.pth").read_text() == "a\n"


def test_a_rewrite_of_a_file_that_did_not_come_says_which(tmp_path: Path) -> None:
    bundle = manifest(
        rewrites=[Rewrite(path="site-packages/x.pth", kind="pth", values={"a": "project"})]
    )

    with pytest.raises(UnpackError, match=r"x\.pth"):
        make_environment(bundle, os.fspath(tmp_path))


def test_mended_files_are_not_written_through_hard_links(tmp_path: Path) -> None:
    cached = tmp_path / "cached"
    cached.write_text("#!python\nprint('mended')\n")
    cached.chmod(0o644)
    bin_directory = tmp_path / "root" / "env" / "bin"
    bin_directory.mkdir(parents=True)
    os.link(cached, bin_directory / "tool")

    environment = make_environment(manifest(), os.fspath(tmp_path / "root"))

    assert run_in(environment, "tool") == "mended"
    assert cached.read_text() == "#!python\nprint('mended')\n"


def test_making_it_twice_gives_the_same(tmp_path: Path) -> None:
    venv = make_venv(tmp_path / "venv")
    entry = "[console_scripts]\ntwice = twice:main\n"
    code = "def main():\n    print('twice')\n"
    install(venv, make_wheel(tmp_path, "twice", {"twice.py": code}, entry_points=entry))
    root = tmp_path / "root"
    _, environment = move(venv, root)
    before = sorted(p.relative_to(root) for p in root.rglob("*") if "__pycache__" not in p.parts)

    scripts = [Script(name="twice", target="twice:main")]
    again = make_environment(manifest(scripts=scripts, system_site=True), os.fspath(root))

    after = sorted(p.relative_to(root) for p in root.rglob("*") if "__pycache__" not in p.parts)
    assert before == after
    assert run_in(again, "twice") == "twice"
    assert again.python == environment.python


def test_variables_of_other_pythons_do_not_reach_the_run(tmp_path: Path) -> None:
    environment = make_environment(manifest(), os.fspath(tmp_path))

    seen = environment.applied_to(
        {"PYTHONPATH": "/lab", "PYTHONHOME": "/lab", "PATH": "/cluster/bin", "KEEP": "x"}
    )

    assert "PYTHONPATH" not in seen
    assert "PYTHONHOME" not in seen
    assert seen["KEEP"] == "x"
    assert seen["PATH"].split(":")[0] == os.fspath(tmp_path / "env" / "bin")
    assert seen["VIRTUAL_ENV"] == os.fspath(tmp_path / "env")


def test_nothing_is_asked_of_a_home_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", os.devnull)

    environment = make_environment(manifest(), os.fspath(tmp_path))

    assert run_in(environment, "python", "-c", "print('runs')") == "runs"
