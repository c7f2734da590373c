"""Which j2c a kernel calls: asked of real environments, by the Python that would be the kernel."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from j2c_lab.magics import command

ROOT = Path(__file__).resolve().parents[2]
ASK = """
import json, os
from j2c_lab.magics import command
found = command.find_command(os.environ)
print(json.dumps([found.argv, found.own, command.kernel_environment(os.environ, found)]))
"""


def ask(python, **variables):
    done = subprocess.run(
        [str(python), "-c", ASK],
        env={"PATH": os.defpath, **variables},
        cwd="/",  # -c imports from the current directory first
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.splitlines()[-1]


@pytest.fixture
def venv(tmp_path):
    def make(name, *packages):
        directory = tmp_path / name
        uv = [sys.executable, "-m", "uv"]
        python = directory / "bin" / "python"
        subprocess.run([*uv, "venv", "-q", "-p", sys.executable, str(directory)], check=True)
        if packages:
            install = [*uv, "pip", "install", "-q", "--python", str(python), *packages]
            subprocess.run(install, check=True, env={**os.environ, "J2C_LABEXTENSION": "skip"})
        return python

    return make


def test_the_python_that_j2c_is_installed_in_is_called_from_an_environment_on_top(venv, tmp_path):
    # A copy, for a build writes beside the sources.
    source = tmp_path / "source"
    ignore = shutil.ignore_patterns(".*", "tests", "node_modules", "benchmarks")
    shutil.copytree(ROOT, source, ignore=ignore)
    base = venv("base image", "--no-deps", str(source))
    user = venv("user")
    (site,) = (base.parents[1]).glob("lib/*/site-packages")
    (own_site,) = (user.parents[1]).glob("lib/*/site-packages")
    (own_site / "base.pth").write_text(f"{site}\n")

    argv, own, environment = ask(user, PYTHONPATH="/elsewhere", MPLBACKEND="agg")

    assert Path(argv[0]).parent == base.parent
    assert not own
    assert "PYTHONPATH" not in environment
    assert environment["J2C_VENV"] == str(user.parents[1])
    assert environment["MPLBACKEND"] == "agg"


def test_a_kernel_that_sees_only_the_sources_looks_for_j2c_on_the_path(venv, tmp_path):
    user = venv("user")
    assert "no j2c command was found from this kernel" in ask(user, PYTHONPATH=str(ROOT))
    tool = tmp_path / "bin" / "j2c"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    argv, own, _ = ask(user, PYTHONPATH=str(ROOT), PATH=str(tool.parent))
    assert (argv, own) == ([str(tool)], False)


def test_j2c_command_wins(venv):
    user = venv("user")
    argv, own, _ = ask(user, PYTHONPATH=str(ROOT), J2C_COMMAND='["/a b/python", "-m", "j2c_lab"]')
    assert (argv, own) == (["/a b/python", "-m", "j2c_lab"], False)
    ((found,), *_) = ask(user, PYTHONPATH=str(ROOT), J2C_COMMAND="sh")
    assert Path(found).name == "sh"


def test_what_only_a_kernel_needs_stays_there():
    mine = command.Command(["j2c"], own=True)
    inline = {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "PYDEVD_X": "1"}
    kept = command.kernel_environment({**inline, "PYTHONPATH": "/p", "J2C_VENV": "/v"}, mine)
    assert kept == {"PYTHONPATH": "/p", "J2C_VENV": "/v"}


@pytest.mark.parametrize(
    ("session", "option"),
    [("/home/me/My Notes.ipynb", ["--name=My Notes"]), ("", []), ("3f-uuid", [])],
)
def test_a_cell_is_named_for_its_notebook(session, option):
    assert command.notebook_name({"JPY_SESSION_NAME": session}) == option
