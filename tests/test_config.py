"""Where settings come from, and which wins."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from j2c_lab.config import default_prefix, load_settings
from j2c_lab.errors import UsageError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".jupyter").mkdir()
    (tmp_path / "project/sub").mkdir(parents=True)
    return tmp_path


def environ(home: Path, **rest: str) -> dict[str, str]:
    return {"HOME": str(home), "USER": "ada", "LOGNAME": "ada", **rest}


def test_defaults_need_no_file(home: Path) -> None:
    found = load_settings({}, str(home), environ(home))
    assert found.store == str(home / ".local/share/j2c/store")
    assert (found.scheduler, found.gpus, found.user) == ("local", 0, found.user)


def test_each_source_wins_over_the_ones_below_it(home: Path) -> None:
    (home / ".jupyter/jupyter_config.py").write_text(
        "c.J2C.store = '/jupyter'\nc.J2C.queue = 'jupyter'\nc.J2C.image = 'jupyter'\n"
        "c.J2C.gpus = 8\n"
    )
    (home / "project/pyproject.toml").write_text(
        "[tool.j2c]\nimage = 'project'\ngpus = 4\nsplit-streams = true\n"
    )
    variables = environ(home, J2C_QUEUE="environment", J2C_IMAGE="environment")
    found = load_settings({"gpus": 2}, str(home / "project/sub"), variables)
    assert (found.store, found.queue, found.image, found.gpus, found.split_streams) == (
        "/jupyter",
        "environment",
        "project",
        2,
        True,
    )


def test_variables_from_several_sources_are_joined(home: Path) -> None:
    (home / "project/pyproject.toml").write_text("[tool.j2c]\nenv = {A = 'project', N = 3}\n")
    found = load_settings({"env": {"B": "flag"}}, str(home / "project"), environ(home))
    assert found.env == {"A": "project", "N": "3", "B": "flag"}


def test_json_and_server_configs_count_too(home: Path) -> None:
    (home / ".jupyter/jupyter_server_config.json").write_text('{"J2C": {"store": "/json"}}')
    assert load_settings({}, None, environ(home)).store == "/json"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpu = 1", "did you mean 'gpus'?"),
        ("gpus = 'two'", "gpus is 'two', and not a whole number"),
        ("outputs = [1]", "outputs is [1], and not a list of texts"),
        ("zzz = 1", "known are"),
        ("gpus = ", "is no TOML"),
    ],
)
def test_a_wrong_setting_is_named_with_its_file(home: Path, text: str, says: str) -> None:
    path = home / "project/pyproject.toml"
    path.write_text(f"[tool.j2c]\n{text}\n")
    with pytest.raises(UsageError) as caught:
        load_settings({}, str(home / "project"), environ(home))
    assert says in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_pyproject_without_our_table_is_not_even_parsed(home: Path) -> None:
    (home / "project/pyproject.toml").write_text("this is no toml")
    load_settings({}, str(home / "project"), environ(home))


def test_traitlets_is_imported_only_for_a_config_that_mentions_us(home: Path) -> None:
    import subprocess

    (home / ".jupyter/jupyter_config.py").write_text("c.ServerApp.port = 1\n")
    code = (
        "import sys, os; from j2c_lab.config import load_settings;"
        "load_settings({}, None, os.environ); print('traitlets' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environ(home), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"


def test_in_a_hub_the_hubs_name_of_the_user_counts(home: Path) -> None:
    found = load_settings({}, None, environ(home, JUPYTERHUB_USER="ada@example.org"))
    assert found.user == "ada@example.org"
    odd = [
        load_settings({}, None, environ(home, JUPYTERHUB_USER=name)).user
        for name in ("a/b", "a b", "a+2f+b", "-x", "жук")
    ]
    assert len(set(odd)) == 5


def test_the_callers_environment_is_packed_before_j2cs_own(tmp_path: Path) -> None:
    venv, conda = tmp_path / "venv", tmp_path / "conda"
    for prefix in (venv, conda):
        (prefix / "bin").mkdir(parents=True)
        (prefix / "bin/python").symlink_to(sys.executable)
    path = f"{Path(sys.prefix, 'bin')}:{conda / 'bin'}"
    assert default_prefix({"VIRTUAL_ENV": str(venv), "PATH": path}) == str(venv)
    assert default_prefix({"CONDA_PREFIX": str(conda), "PATH": ""}) == str(conda)
    assert default_prefix({"PATH": path}) == str(conda)
    assert default_prefix({"PATH": str(Path(sys.prefix, "bin"))}) == sys.prefix


def test_an_environment_that_is_gone_is_not_replaced_by_another(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="VIRTUAL_ENV"):
        default_prefix({"VIRTUAL_ENV": str(tmp_path / "gone"), "PATH": os.environ["PATH"]})


def test_a_shim_is_asked_where_its_python_lives(home: Path) -> None:
    shim = home / "shims" / "python"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    shim.chmod(0o755)
    assert default_prefix({"PATH": str(shim.parent)}) == sys.prefix
    shim.write_text("#!/bin/sh\nexit 127\n")
    assert default_prefix({"PATH": str(shim.parent)}) == sys.prefix


@pytest.mark.skipif(os.geteuid() == 0, reason="root may search every directory")
def test_a_home_that_may_not_be_searched_has_no_settings(home: Path) -> None:
    (home / ".jupyter").chmod(0)
    try:
        assert load_settings({}, None, environ(home)).gpus == 0
    finally:
        (home / ".jupyter").chmod(0o700)


def test_a_user_without_a_home_is_told_what_to_set() -> None:
    with pytest.raises(UsageError, match="set HOME or XDG_DATA_HOME"):
        load_settings({}, None, {"HOME": "nowhere"})
