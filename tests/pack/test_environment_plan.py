"""What of real environments is planned to travel, and that it is the same for everyone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from environment_tools import (
    BASE_PYTHON,
    content_of,
    digests,
    install,
    layer_named,
    make_venv,
    make_wheel,
    paths,
    run,
)

from j2c_lab.errors import EnvironmentNotSupportedError, UsageError
from j2c_lab.pack.environment import plan_environment

REAL = ("rich==14.0.0", "idna==3.10", "dill==0.4.0", "setuptools==80.9.0", "greenlet==3.2.4")


def test_the_same_wheels_give_the_same_layers_whoever_installs_them(tmp_path: Path) -> None:
    one = make_venv(tmp_path / "ann" / "venv", "venv", system_site=False)
    two = make_venv(tmp_path / "somebody else" / "deeper" / "env", "uv", system_site=False)
    install(one, *REAL, tool="pip")
    install(two, *REAL, tool="uv")
    for venv in (one, two):  # bytecode that only one of them has
        run(venv / "bin" / "python", "-c", "import rich" if venv == one else "import idna")

    plans = [plan_environment(os.fspath(venv)) for venv in (one, two)]

    assert digests(plans[0]) == digests(plans[1])
    assert plans[0].ref.scripts == plans[1].ref.scripts
    assert "dill" in digests(plans[0])
    assert [layer.name for layer in plans[0].layers if layer.name.startswith("environment")] == []


def test_a_package_added_leaves_all_other_layers_as_they_were(tmp_path: Path) -> None:
    venv = make_venv(tmp_path / "venv")
    install(venv, "idna==3.10")
    before = digests(plan_environment(os.fspath(venv)))
    install(venv, make_wheel(tmp_path, "added", {"added.py": ""}))

    after = digests(plan_environment(os.fspath(venv)))

    assert set(after) - set(before) == {"added"}
    assert after["idna"] == before["idna"]


def test_files_of_nobody_travel_and_installers_notes_do_not(tmp_path: Path) -> None:
    venv = make_venv(tmp_path / "venv")
    install(venv, make_wheel(tmp_path, "owned", {"owned/__init__.py": "", "owned/a,b.txt": "x"}))
    (site,) = venv.glob("lib/*/site-packages")
    (site / "stray.py").write_text("print('stray')")
    (site / "owned" / "dropped_in.py").write_text("")
    (site / "owned" / "__pycache__").mkdir()
    (site / "owned" / "__pycache__" / "x.cpython-311.pyc").write_text("")
    (site / "nothing_in_it").mkdir()
    (venv / "bin" / "mine").write_text(f"#!{venv}/bin/python\nprint('mine')\n")
    (venv / "bin" / "mine").chmod(0o755)
    (venv / "share" / "jupyter").mkdir(parents=True)
    (venv / "share" / "jupyter" / "kernel.json").write_text("{}")

    plan = plan_environment(os.fspath(venv))

    assert paths(layer_named(plan, "owned")) == {
        "site-packages/owned/__init__.py",
        "site-packages/owned/a,b.txt",
        "site-packages/owned-1.0.dist-info/METADATA",
        "site-packages/owned-1.0.dist-info/WHEEL",
        "site-packages/owned-1.0.dist-info/RECORD",
    }
    loose = layer_named(plan, "environment")
    assert paths(loose) == {
        "site-packages/stray.py",
        "site-packages/owned/dropped_in.py",
        "site-packages/nothing_in_it",
        "scripts/mine",
        "prefix/share/jupyter/kernel.json",
    }
    (mine,) = [f for f in loose.files if f.path == b"scripts/mine"]
    assert mine.data == b"#!python\nprint('mine')\n"


def test_record_foretells_the_content_of_unedited_files(tmp_path: Path) -> None:
    import hashlib

    venv = make_venv(tmp_path / "venv")
    install(venv, "idna==3.10")

    layer = layer_named(plan_environment(os.fspath(venv)), "idna")

    told = [file for file in layer.files if file.expected is not None]
    assert len(told) > 10
    assert all(hashlib.sha256(content_of(file)).digest() == file.expected for file in told)


def test_links_into_uvs_cache_are_taken_as_the_files_they_are(tmp_path: Path) -> None:
    venv = make_venv(tmp_path / "linked", "uv")
    install(venv, "--link-mode=symlink", "idna==3.10")
    copied = make_venv(tmp_path / "copied", "uv")
    install(copied, "idna==3.10")
    (site,) = venv.glob("lib/*/site-packages/idna")
    assert (site / "core.py").is_symlink()

    assert digests(plan_environment(os.fspath(venv))) == digests(
        plan_environment(os.fspath(copied))
    )


def test_links_inside_stay_links_and_loops_end(tmp_path: Path) -> None:
    venv = make_venv(tmp_path / "venv")
    (site,) = venv.glob("lib/*/site-packages")
    (site / "real.py").write_text("")
    (site / "alias.py").symlink_to("real.py")
    (site / "loop").mkdir()
    (site / "loop" / "again").symlink_to(site / "loop")
    (site / "dangling").symlink_to("nowhere")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "far.py").write_text("far")
    (site / "linked").symlink_to(outside)
    os.mkfifo(site / "pipe")

    layer = layer_named(plan_environment(os.fspath(venv)), "environment")

    found = {os.fsdecode(f.path): (f.type, f.data) for f in layer.files}
    assert found == {
        "site-packages/real.py": ("f", b""),
        "site-packages/alias.py": ("l", b"real.py"),
        "site-packages/dangling": ("l", b"nowhere"),
        "site-packages/linked/far.py": ("f", b""),
    }


def test_a_venv_whose_python_is_gone_says_so(tmp_path: Path) -> None:
    venv = make_venv(tmp_path / "venv")
    for python in (venv / "bin").glob("python*"):
        python.unlink()
    (venv / "bin" / "python").symlink_to(tmp_path / "nowhere" / "python")

    with pytest.raises(EnvironmentNotSupportedError, match="is gone"):
        plan_environment(os.fspath(venv))


def test_a_venv_whose_python_was_upgraded_says_so(tmp_path: Path) -> None:
    venv = make_venv(tmp_path / "venv")
    (library,) = venv.glob("lib/python3.*")
    library.rename(library.with_name("python3.5"))

    with pytest.raises(EnvironmentNotSupportedError, match=r"made with Python 3\.5"):
        plan_environment(os.fspath(venv))


def test_a_venv_of_copies_is_read_like_one_of_links(tmp_path: Path) -> None:
    run(BASE_PYTHON, "-m", "venv", "--without-pip", "--copies", tmp_path / "copies")
    linked = make_venv(tmp_path / "linked", system_site=False)

    plans = [plan_environment(os.fspath(venv)) for venv in (tmp_path / "copies", linked)]

    assert plans[0].ref == plans[1].ref


@pytest.mark.parametrize("name", ["nothing", "a-file", "empty"])
def test_what_is_no_environment_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a-file").write_text("")
    (tmp_path / "empty").mkdir()

    with pytest.raises(UsageError, match="environment"):
        plan_environment(os.fspath(tmp_path / name))


def test_the_interpreter_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from j2c_lab.installed import interpreter

    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "cache"))
    venv = make_venv(tmp_path / "venv")
    first = plan_environment(os.fspath(venv))
    monkeypatch.setattr(interpreter, "_run", lambda _: pytest.fail("asked again"))

    assert plan_environment(os.fspath(venv)).ref == first.ref


def test_a_cache_that_cannot_be_written_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file where the directory should be")
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "cache"))
    venv = make_venv(tmp_path / "venv")

    assert plan_environment(os.fspath(venv)).ref.kind == "venv"


def test_a_legacy_install_without_record_is_one_layer(tmp_path: Path) -> None:
    venv = make_venv(tmp_path / "venv")
    install(venv, make_wheel(tmp_path, "oldpack", {"oldpack/__init__.py": "", "oldmod.py": ""}))
    (site,) = venv.glob("lib/*/site-packages")
    info = site / "oldpack-1.0.dist-info"
    (info / "RECORD").unlink()
    (info / "top_level.txt").write_text("oldpack\noldmod\n")
    shutil.move(info, site / "oldpack-1.0-py3.11.egg-info")

    plan = plan_environment(os.fspath(venv))

    assert [(d.name, d.version) for d in plan.distributions] == [("oldpack", "1.0")]
    assert {"site-packages/oldpack/__init__.py", "site-packages/oldmod.py"} <= paths(
        layer_named(plan, "oldpack")
    )


def test_of_two_scripts_of_one_name_the_installed_one_is_meant(tmp_path: Path) -> None:
    script = "[console_scripts]\ntool = {}:main\n"
    wheels = [
        make_wheel(tmp_path, name, {f"{name}.py": ""}, entry_points=script.format(name))
        for name in ("aaa", "zzz")
    ]
    for order in (wheels, wheels[::-1]):
        venv = make_venv(tmp_path / f"venv-{order[0].name[:3]}")
        for wheel in order:
            install(venv, wheel)

        (tool,) = plan_environment(os.fspath(venv)).ref.scripts

        assert tool.target == f"{order[1].name[:3]}:main"


def test_no_path_of_this_machine_is_in_layers_or_manifest(tmp_path: Path) -> None:
    venv = make_venv(tmp_path / "venv")
    install(venv, *REAL, make_wheel(tmp_path, "own", {"own.py": ""}))

    plan = plan_environment(os.fspath(venv))

    assert os.fsencode(tmp_path) not in plan.ref.to_json()
    for layer in plan.layers:
        for file in layer.files:
            assert os.fsencode(tmp_path) not in content_of(file), file.path
