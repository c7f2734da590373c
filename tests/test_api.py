"""The same as the command, from Python, with and without a running event loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from cli_tools import Lab, lab, venv  # noqa: F401

import j2c_lab
from j2c_lab.errors import UsageError


@pytest.fixture
def here(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:  # noqa: F811
    for name, value in lab.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.chdir(lab.project)
    return lab


def test_a_run_from_python_to_its_outputs(here: Lab) -> None:
    here.script(
        "import os, sys\nprint('hello', *sys.argv[1:])\n"
        "open(os.environ['J2C_OUTPUT_DIR'] + '/model', 'w').write('w')\nsys.exit(3)\n"
    )
    events: list[str] = []
    run = j2c_lab.submit(
        "train.py", ["a b"], venv=here.environ["VIRTUAL_ENV"],
        report=lambda event: events.append(event["event"]),
    )  # fmt: skip
    assert "".join(run.logs()) == "hello a b\n"
    end = run.wait()
    assert (end.state, end.exit_code) == ("failed", 3)
    assert run.status().ended
    assert "".join(run.logs(follow=False)) == "hello a b\n"
    assert (run.fetch("results") / "model").read_text() == "w"
    assert events[0] == "run" and events[-1] == "submitted"
    assert j2c_lab.get_run().id == run.id
    assert repr(run) == f"<RunHandle {run.id}>"


def test_a_warning_points_at_the_line_that_submits(here: Lab) -> None:
    here.script("open('big.csv')")
    (here.project / "big.csv").touch()
    (here.project / ".j2cignore").write_text("big.csv\n")
    with pytest.warns(UserWarning, match=r"big\.csv") as warned:
        run = j2c_lab.submit("train.py", venv=here.environ["VIRTUAL_ENV"])
    assert warned[0].filename == __file__
    run.wait()


def test_it_works_where_a_loop_runs_and_a_run_can_be_cancelled(here: Lab) -> None:
    here.script("import time\nprint('up', flush=True)\ntime.sleep(60)")

    async def notebook() -> str:
        run = j2c_lab.submit("train.py", venv=here.environ["VIRTUAL_ENV"])
        pieces = run.logs()
        assert next(pieces).startswith("up")
        pieces.close()  # type: ignore[attr-defined]
        with pytest.raises(TimeoutError):
            run.wait(timeout=0.1)
        run.cancel()
        return run.wait().state

    assert asyncio.run(notebook()) == "cancelled"


def test_wrong_usage_is_an_error_of_ours(here: Lab) -> None:
    with pytest.raises(UsageError):
        j2c_lab.submit("none.py")


def test_the_public_names_are_these() -> None:
    assert j2c_lab.__all__ == ["RunHandle", "get_run", "log_metrics", "submit"]
    assert all(hasattr(j2c_lab, name) for name in j2c_lab.__all__)
    with pytest.raises(AttributeError):
        _ = j2c_lab.nonsense  # type: ignore[attr-defined]


def test_metrics_are_lines_that_need_only_the_standard_library(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from j2c_lab import log_metrics;"
        "log_metrics(step=3, loss=0.25); log_metrics(acc=1)"
    )
    root = str(Path(j2c_lab.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, root], capture_output=True, text=True, check=True
    )
    first, second = '::j2c-metrics {"step": 3, "loss": 0.25}', '::j2c-metrics {"acc": 1.0}'
    assert done.stdout.replace("\r", "\n").split() == f"{first} {second}".split()
