"""The magics with the real `j2c`: a real kernel, a real environment, a run on this machine."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import json, os, sys
import onlyhere
print("arguments", json.dumps(sys.argv[1:]))
print("environment", sys.prefix)
with open(os.path.join(os.environ["J2C_OUTPUT_DIR"], "answer.json"), "w") as file:
    json.dump(onlyhere.ANSWER, file)
"""


@pytest.fixture
def variables(tmp_path):
    """What keeps runs below the test's directory, and says which Python is the lab's."""
    return {
        "J2C_COMMAND": json.dumps([sys.executable, "-m", "j2c_lab"]),
        "J2C_STORE": str(tmp_path / "store"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }


@pytest.fixture
def project(tmp_path):
    directory = tmp_path / "a project"
    directory.mkdir()
    (directory / "pyproject.toml").write_text("[tool.j2c]\noutputs = ['*.json']\n")
    (directory / "train.py").write_text(SCRIPT)
    return directory


@pytest.fixture
def make_environment(tmp_path):
    """Make an environment with ipykernel and a module `onlyhere`, by a Python of a version."""

    def make(python):
        directory = tmp_path / "environment"
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "-q", "--python", python, str(directory)], check=True)
        interpreter = directory / "bin" / "python"
        install = [*uv, "pip", "install", "-q", "--python", str(interpreter), "ipykernel"]
        subprocess.run(install, check=True)
        wheel = _wheel(tmp_path)
        subprocess.run([*install[:-1], "--no-deps", "--no-index", str(wheel)], check=True)
        return interpreter

    return make


def _wheel(directory):
    """Build a wheel of one module, with pip's own idea of a project."""
    path = directory / "onlyhere-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("onlyhere.py", "ANSWER = 42\n")
        info = "onlyhere-1.0.dist-info/"
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: onlyhere\nVersion: 1.0\n")
        tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(info + "WHEEL", tag)
        wheel.writestr(info + "RECORD", "")
    return path


def _other_python():
    """Return a Python of another version than this one, from pyenv or PATH."""
    own = ".".join(map(str, sys.version_info[:2]))
    for version in [v for v in ("3.13", "3.10", "3.12") if v != own]:
        found = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
        on_path = shutil.which(f"python{version}")
        for candidate in [*map(str, found), *([on_path] if on_path else [])]:
            if "shims" not in candidate:
                return candidate
    return pytest.skip(f"this machine has no Python beside {own}")


def shown(outputs):
    return "\n".join(o["data"]["text/plain"] if "data" in o else o.get("text", "") for o in outputs)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["same", "other"])
def test_the_environment_of_the_kernel_is_packed_and_the_results_come_back(
    which, start_kernel, make_environment, project, variables
):
    base = sys.executable if which == "same" else _other_python()
    # "The cluster" is this machine: its base image has the same Pythons, found on the PATH.
    variables["PATH"] = os.pathsep.join([str(Path(base).parent), os.environ["PATH"]])
    python = make_environment(base)
    kernel = start_kernel(python, cwd=project, **variables)
    outputs, reply = kernel.run(
        "lr = 'a b'\nrun = %j2c submit train.py -- --lr {lr} '' '{\"a\": {}}' ${HOME} \\\n  end"
    )
    assert reply["status"] == "ok", shown(outputs)
    text = shown(outputs)
    line = re.search(r"^\| arguments (.*)", text, re.MULTILINE)[1]
    assert json.loads(line) == ["--lr", "a b", "", '{"a": {}}', "${HOME}", "end"]
    prefix = re.search(r"^\| environment (.*)", text, re.MULTILINE)[1]
    assert not prefix.startswith(str(python.parents[1]))
    assert "succeeded after" in text.splitlines()[0]

    outputs, reply = kernel.run("%j2c fetch {run} -o 'my results'")
    assert reply["status"] == "ok", shown(outputs)
    assert json.loads((project / "my results" / "answer.json").read_text()) == 42

    cell = "%%j2c submit --name cell\nimport onlyhere, os\nprint('café', onlyhere.ANSWER)\n"
    outputs, reply = kernel.run(cell + "print(os.path.basename(os.getcwd()))\nraise SystemExit(3)")
    assert reply["ename"] == "RunFailedError"
    assert "| café 42\n| project" in shown(outputs)
    assert "exit code 3" in shown(outputs).splitlines()[0]


@pytest.mark.slow
def test_an_interrupt_leaves_the_run_alive(start_kernel, project, variables):
    (project / "slow.py").write_text(
        "import os, time\nprint('ready', flush=True)\n"
        "while not os.path.exists(os.environ['GO']): time.sleep(0.05)\nprint('finished')\n"
    )
    go = project.parent / "go"
    kernel = start_kernel(cwd=project, **variables)
    sent = []

    def interrupt(message):
        if not sent and "| ready" in str(message["content"]):
            sent.append(True)
            kernel.manager.interrupt_kernel()

    outputs, reply = kernel.run(f"%j2c submit slow.py --env 'GO={go}'", on_message=interrupt)
    assert reply["ename"] == "RunDetachedError", shown(outputs)
    assert "detached, the run goes on" in shown(outputs)
    go.touch()
    outputs, reply = kernel.run("run = %j2c logs -f last")
    assert reply["status"] == "ok", shown(outputs)
    assert "| finished" in shown(outputs)


@pytest.mark.slow
def test_plain_ipython_shows_text(project, variables):
    env = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
    code = (
        "get_ipython().run_line_magic('load_ext', 'j2c_lab'); lr = 0.5; "
        "run = get_ipython().run_line_magic('j2c', 'submit hello.py -- {lr}'); "
        "print('id', run.id, run.state)"
    )
    (project / "hello.py").write_text("import sys; print('hello', sys.argv[1:])\n")
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", code],
        cwd=project,
        env=env,
        capture_output=True,
        text=True,
    )
    assert "hello ['0.5']\n" in done.stdout, done.stdout + done.stderr
    assert re.search(r"^run [\d-]+[0-9a-f]+: succeeded after", done.stdout, re.MULTILINE)
    assert re.search(r"^id \d{8}-\d{6}-[0-9a-f]{6} succeeded$", done.stdout, re.MULTILINE)


def test_a_kernel_needs_nothing_but_the_standard_library_and_ipython(tmp_path):
    code = (
        "import sys; from j2c_lab.magics import extension; "
        "own = {m.split('.')[0] for m in sys.modules}; print(sorted(own & set(sys.argv[1:])))"
    )
    engine = ["rich", "shtab", "pathspec", "jupyter_core", "backports", "tomli", "uvloop"]
    done = subprocess.run(
        [sys.executable, "-c", code, *engine],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_files_of_the_user_do_not_shadow_what_j2c_imports(project, variables, start_kernel):
    for name in ("queue.py", "rich.py", "json.py", "j2c_lab.py"):
        (project / name).write_text("raise RuntimeError('the wrong module')\n")
    # Without J2C_COMMAND the kernel's own Python has all that is needed here.
    del variables["J2C_COMMAND"]
    kernel = start_kernel(cwd=project.parent, **variables)
    outputs, reply = kernel.run("import os; os.chdir('a project')\n%j2c list")
    assert reply["status"] == "ok", shown(outputs)


@pytest.mark.slow
def test_ipython_on_a_terminal_shows_the_log_as_it_is(project, variables):
    import pty

    (project / "bar.py").write_text(
        "for n in range(0, 101, 50): print(f'\\r{n}%', end='', flush=True)\nprint()\n"
    )
    code = (
        "get_ipython().run_line_magic('load_ext', 'j2c_lab'); "
        "run = get_ipython().run_line_magic('j2c', 'submit bar.py')"
    )
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", code],
        cwd=project,
        env={**os.environ, **variables, "PYTHONPATH": str(ROOT)},
        stdin=child,
        stdout=child,
        stderr=child,
    )
    os.close(child)
    shown_bytes = b""
    # A terminal whose other side was closed answers with an error on Linux, with nothing on macOS.
    with contextlib.suppress(OSError):
        while data := os.read(parent, 4096):
            shown_bytes += data
    os.close(parent)
    assert process.wait() == 0, shown_bytes
    text = shown_bytes.decode().replace("\r\n", "\n")
    assert "\r0%\r50%\r100%\n" in text
    assert re.search(r"^✓ pack  .*files", text, re.MULTILINE)
    assert re.search(r"^run \S+: succeeded after", text, re.MULTILINE)
