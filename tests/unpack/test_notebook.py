import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]


def module(python):
    return [python, "-m", "j2c_lab.unpack.notebook"]


@pytest.fixture
def start(tmp_path):
    """Start a notebook of the given cells; its directory has a space, and is the current one."""
    directory = tmp_path / "a project"
    directory.mkdir()
    running = []

    def run(*cells, arguments=(), python=sys.executable, own=sys.executable):
        document = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(source) for source in cells]
        )
        nbformat.write(document, directory / "train.ipynb")
        process = subprocess.Popen(
            [*module(own), "train.ipynb", "out/train.ipynb", python, *arguments],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        running.append(process)
        return process

    run.directory = directory
    run.executed = lambda: nbformat.read(directory / "out" / "train.ipynb", as_version=4)
    yield run
    for process in running:
        process.kill()
        process.communicate()


def outputs(cell):
    return "".join(o.get("text", "") for o in cell.outputs)


def test_cells_run_in_order_with_the_arguments_and_what_they_print_is_printed(start):
    process = start(
        "import sys, os; print(sys.argv, os.path.basename(os.getcwd()))",
        "print('::j2c-metrics {\"loss\": 1}'); 6 * 7",
        arguments=["--lr", "", "a b", "{x}", "'"],
    )
    stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stderr) == (0, b"")
    argv = ["train.ipynb", "--lr", "", "a b", "{x}", "'"]
    assert stdout.decode() == f'{argv} a project\n::j2c-metrics {{"loss": 1}}\n42\n'
    executed = start.executed()
    assert outputs(executed.cells[0]) == f"{argv} a project\n"
    assert executed.cells[1].outputs[-1].data["text/plain"] == "42"
    assert [cell.execution_count for cell in executed.cells] == [1, 2]
    nbformat.validate(executed)


def test_a_failing_cell_is_named_and_its_error_is_in_the_notebook(start):
    process = start("print('before')", "1 / 0", "print('never')")
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 1
    assert stderr.decode() == (
        "j2c: cell 2 of train.ipynb failed: ZeroDivisionError: division by zero\n"
    )
    assert b"before\n" in stdout and b"ZeroDivisionError" in stdout and b"never" not in stdout
    cells = start.executed().cells
    assert outputs(cells[0]) == "before\n"
    assert cells[1].outputs[0].ename == "ZeroDivisionError"
    assert not cells[2].outputs


def test_output_comes_while_the_cell_runs_and_the_notebook_after_every_cell(start):
    process = start(
        "print('first')",
        "import time, pathlib\nprint('second', flush=True)\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.05)",
    )
    assert process.stdout.readline() == b"first\n"
    assert process.stdout.readline() == b"second\n"
    assert outputs(start.executed().cells[0]) == "first\n"
    (start.directory / "go").touch()
    assert process.wait(120) == 0


def test_term_interrupts_the_cell_saves_the_notebook_and_ends_by_term(start):
    process = start(
        "import time\ntry:\n    print('ready', flush=True); time.sleep(100)\n"
        "finally:\n    print('cleaned up')",
        "print('never')",
    )
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert b"cleaned up\n" in stdout and b"never" not in stdout
    assert stderr == b"j2c: train.ipynb was ended by SIGTERM\n"
    cell = start.executed().cells[0]
    assert outputs(cell) == "ready\ncleaned up\n"
    assert cell.outputs[-1].ename == "KeyboardInterrupt"


def test_a_kernel_that_is_killed_passes_its_signal_on(start):
    process = start("print('here', flush=True)", "import os; os.kill(os.getpid(), 9)")
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert stderr == b"j2c: the kernel was killed by SIGKILL in cell 2 of train.ipynb\n"
    assert outputs(start.executed().cells[0]) == "here\n"


def test_a_killed_runner_leaves_no_kernel_behind(start):
    process = start("import os, time; print(os.getpid(), flush=True)", "time.sleep(100)")
    kernel = int(process.stdout.readline())
    process.kill()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and Path(f"/proc/{kernel}").exists():
        time.sleep(0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(kernel, 0)


@pytest.mark.parametrize(("code", "value"), [(0, "0"), (0, ""), (7, "7"), (1, "'words'")])
def test_sys_exit_ends_a_notebook_as_it_ends_a_script(start, code, value):
    process = start(f"import sys; sys.exit({value})", "print('never')")
    stdout, _ = process.communicate(timeout=120)
    assert process.returncode == code
    assert b"never" not in stdout


def test_what_is_missing_is_said(start, tmp_path):
    import venv

    venv.create(tmp_path / "bare", with_pip=False)
    bare = str(tmp_path / "bare" / "bin" / "python")
    process = start("1", python=bare)
    assert process.wait(120) == 125
    assert process.stderr.read().splitlines()[-1] == (
        b"j2c: the run's environment cannot run notebooks: ModuleNotFoundError: No module named "
        b"'ipykernel'; install ipykernel in the environment or in the base image"
    )
    process = start("1", own=bare)
    assert process.wait(120) == 125
    assert b"notebooks need nbclient beside j2c in" in process.stderr.read()


@pytest.mark.parametrize("text", ["not json", "[]", '{"cells": 3, "nbformat": 4}'])
def test_a_file_that_is_no_notebook_is_said(start, text):
    (start.directory / "bad.ipynb").write_text(text)
    done = subprocess.run(
        [*module(sys.executable), "bad.ipynb", "out.ipynb", sys.executable],
        cwd=start.directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 125
    assert done.stderr.startswith("j2c: bad.ipynb is no notebook: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_notebook_of_another_language_is_refused(start):
    document = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "ir", "display_name": "R", "language": "R"}}
    )
    (start.directory / "r.ipynb").write_text(json.dumps(document))
    done = subprocess.run(
        [*module(sys.executable), "r.ipynb", "out.ipynb", sys.executable],
        cwd=start.directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr == "j2c: r.ipynb is a notebook of R; j2c runs those of Python\n"
