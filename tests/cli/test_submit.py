"""`j2c submit`, the whole cycle, with the real command, the real scheduler, a real venv."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_tools import Lab


def test_a_script_runs_elsewhere_and_its_output_comes_back(lab: Lab) -> None:
    lab.script(
        "import os, sys\n"
        "print('arguments', sys.argv[1:])\n"
        "open(os.path.join(os.environ['J2C_OUTPUT_DIR'], 'model'), 'w').write('weights')\n"
    )
    done = lab("submit", "train.py", "--", "--lr", "3e-4 x", "")
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"arguments ['--lr', '3e-4 x', '']\n"
    assert re.search(rb"succeeded after .* j2c fetch \S+ brings 1 output", done.stderr)
    assert lab("fetch", "last", "-o", "results").returncode == 0
    assert (lab.project / "results/model").read_text() == "weights"


def test_the_command_ends_as_the_run_did(lab: Lab) -> None:
    lab.script("raise SystemExit(7)")
    assert lab("submit", "train.py").returncode == 7
    lab.script("import os; os.kill(os.getpid(), 9)")
    done = lab("submit", "train.py")
    assert done.returncode == 137, done.stderr


def test_json_tells_every_stage_and_the_result(lab: Lab) -> None:
    lab.script("print('hello')")
    events = lab.events("submit", "train.py")
    kinds = [event["event"] for event in events]
    assert kinds[0] == "run"
    assert kinds[-1] == "result"
    assert [e["state"] for e in events if e["event"] == "state"][-1] == "succeeded"
    assert "packed" in kinds and "submitted" in kinds
    assert "".join(e["text"] for e in events if e["event"] == "log") == "hello\n"
    assert events[-1]["exit_code"] == 0


def test_a_cell_from_standard_input_runs_in_the_callers_place(lab: Lab) -> None:
    (lab.project / "nb").mkdir()
    (lab.project / "nb/data.txt").write_text("beside")
    cell = b"print(open('data.txt').read())"
    done = lab("submit", "-", input=cell, cwd=lab.project / "nb")
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"beside\n"


def test_a_module_runs_as_python_m_would(lab: Lab) -> None:
    lab.script("", "package/__init__.py")
    lab.script("import sys; print(__package__, sys.argv[1:])", "package/train.py")
    done = lab("submit", "-m", "package.train", "--", "a")
    assert (done.returncode, done.stdout) == (0, b"package ['a']\n"), done.stderr


def test_a_dry_run_shows_the_job_and_writes_nothing(lab: Lab, tmp_path: Path) -> None:
    lab.script("print('hello')")
    done = lab("submit", "train.py", "--dry-run", "--gpus", "1")
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)
    assert job["gpus"] == 1
    assert "unpack" in job["command"]
    assert b"project" in done.stderr
    assert not lab.store.exists()
    assert not (lab.home / ".local/state").exists()


def test_a_detached_run_is_followed_later(lab: Lab) -> None:
    lab.script("print('hello'); raise SystemExit(4)")
    done = lab("submit", "train.py", "--detach")
    assert done.returncode == 0
    run_id = done.stdout.decode().strip()
    later = lab("logs", "-f", run_id)
    assert (later.returncode, later.stdout) == (4, b"hello\n")
    assert lab("logs", "last").stdout == b"hello\n"
    (document,) = [json.loads(line) for line in lab("list", "--json").stdout.splitlines()]
    assert (document["id"], document["state"], document["exit_code"]) == (run_id, "failed", 4)


def test_a_failed_run_is_resumed_as_its_next_attempt(lab: Lab) -> None:
    lab.script("import os; print(os.environ['J2C_ATTEMPT']); raise SystemExit(5)")
    assert lab("submit", "train.py").returncode == 5
    done = lab("resume", "last")
    assert (done.returncode, done.stdout) == (5, b"2\n"), done.stderr
    assert len(list(lab.runs.iterdir())) == 1
    assert len(lab.jobs()) == 2


def test_resuming_a_run_that_succeeded_is_wrong_usage(lab: Lab) -> None:
    lab.script("")
    assert lab("submit", "train.py").returncode == 0
    done = lab("resume", "last")
    assert done.returncode == 2
    assert b"nothing to resume" in done.stderr


def test_a_time_limit_is_told_as_what_it_was(lab: Lab) -> None:
    lab.script("import time; print('up', flush=True); time.sleep(60)")
    done = lab("submit", "train.py", "--time", "1s")
    assert done.returncode == 143
    assert b"failed after" in done.stderr
    assert b"the time limit of 1s was reached" in done.stderr


OTHERS = [
    path
    for path in sorted(Path(sys.base_prefix).parent.glob("3.*/bin/python3.[0-9][0-9]"))
    if f"python3.{sys.version_info[1]}" != path.name and int(path.name[8:]) >= 10
]


@pytest.mark.parametrize("python", OTHERS, ids=[path.name for path in OTHERS])
def test_an_environment_of_another_python_than_j2cs_own_is_moved(lab: Lab, python: Path) -> None:
    subprocess.run([python, "-m", "venv", "--without-pip", lab.home / "other"], check=True)
    lab.script("import sys; print(*sys.version_info[:2], sys.prefix != sys.base_prefix)")
    done = lab("submit", "train.py", environ={"VIRTUAL_ENV": str(lab.home / "other")})
    assert (done.returncode, done.stdout.decode()) == (0, f"3 {python.name[8:]} True\n")


def test_a_run_is_cancelled_while_it_is_unpacked(lab: Lab) -> None:
    for number in range(40):
        (lab.project / f"{number}.bin").write_bytes(os.urandom(5_000_000))
    lab.script("print('ran')")
    run_id = lab("submit", "train.py", "--detach").stdout.decode().strip()
    journal = lab.runs / run_id / "attempts/1/0/journal/0000000001"
    while not journal.exists():
        time.sleep(0.002)
    assert lab("cancel", run_id).returncode == 0
    followed = lab("logs", "-f", run_id)
    (document,) = [json.loads(line) for line in lab("list", "--json").stdout.splitlines()]
    if followed.stdout:
        pytest.skip("it ran before the cancel was made")
    assert document["state"] == "cancelled"
    assert document["reason"].startswith("cancelled by ada")


def test_the_job_is_the_users_whose_run_it_is_whatever_the_environment_says(lab: Lab) -> None:
    (lab.project / "pyproject.toml").write_text("[tool.j2c]\nuser = 'bob'\n")
    lab.script("print('ran')")
    done = lab("submit", "train.py")
    assert (done.returncode, done.stdout) == (0, b"ran\n"), done.stderr
    assert [path.name for path in (lab.store / "runs").iterdir()] == ["bob"]


@pytest.mark.parametrize(("ignored", "entry"), [("*.py", "train.py"), ("jobs/", "jobs/train.py")])
def test_an_entry_that_is_left_out_is_told_before_it_is_queued(
    lab: Lab, ignored: str, entry: str
) -> None:
    lab.script("print('never')", entry)
    (lab.project / ".j2cignore").write_text(ignored + "\n")
    for more in ([], ["--dry-run"]):
        done = lab("submit", entry, *more)
        assert (done.returncode, done.stdout) == (125, b"")
        assert f"{entry} cannot be run: it is left out".encode() in done.stderr
    assert lab.jobs() == []
