"""The whole way, by the real command, on a real Slurm."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_tools import Lab, venv
from slurm_tools import slurm_lab, until

from j2c_lab.schedulers.base import ENDED, JobState
from j2c_lab.schedulers.slurm import SlurmScheduler
from tests.real.slurm_cluster import SlurmCluster

__all__ = ["slurm_lab", "venv"]


@pytest.fixture
def lab(slurm_lab: Lab) -> Lab:
    return slurm_lab


def test_a_run_on_slurm_shows_its_log_and_ends_as_the_script_did(lab: Lab) -> None:
    lab.script(
        "import os, sys\n"
        "print('args', sys.argv[1:], 'gpus', os.environ['CUDA_VISIBLE_DEVICES'])\n"
        "print('attempt', os.environ['J2C_ATTEMPT'], os.environ['ODD'], flush=True)\n"
        "open(os.environ['J2C_OUTPUT_DIR'] + '/model', 'w').write('weights')\n"
        "sys.exit(3)\n"
    )
    odd = "a,b=c\n'\"$HOME \r\n;жук"
    done = lab("submit", "train.py", "--gpus", "2", "--env", f"ODD={odd}", "--", "--lr", "3e-4")
    assert done.returncode == 3, done.stderr.decode()
    assert done.stdout.decode() == f"args ['--lr', '3e-4'] gpus 0,1\nattempt 1 {odd}\n"
    done = lab("fetch", "last", "-o", "out")
    assert (lab.project / "out/model").read_text() == "weights"
    (shown,) = lab.events("list")[:1]
    assert shown["scheduler"] == "slurm"


def test_the_labs_own_environment_does_not_leak_into_the_job(lab: Lab) -> None:
    lab.script("import os; print(sorted(k for k in os.environ if 'LEAK' in k))")
    leak = {"LEAKED": "1", "SLURM_LEAK": "1", "SBATCH_HOLD": "1", "LD_LIBRARY_PATH": "/LEAK"}
    done = lab("submit", "train.py", environ=leak)
    assert done.stdout == b"[]\n", done.stderr.decode()


def test_a_dry_run_shows_the_batch_script_and_queues_nothing(lab: Lab, slurm: SlurmCluster) -> None:
    lab.script("print(1)")
    before = slurm.run("squeue", "-h", "-t", "all", "-o", "%i")
    *_, shown = lab.events("submit", "train.py", "--dry-run")
    assert "--gres" not in json.dumps(shown["job"]["command"])
    assert "unpack" in shown["job"]["script"]
    assert slurm.run("squeue", "-h", "-t", "all", "-o", "%i") == before


def test_options_of_the_project_reach_slurm(lab: Lab, slurm: SlurmCluster) -> None:
    (lab.project / "pyproject.toml").write_text(
        "[tool.j2c.schedulers.slurm]\npartition = 'high'\noptions = '--comment=\"a b\" --nice=7'\n"
        "setup = 'export FROM_SETUP=1'\n"
    )
    lab.script("import os; print(os.environ['FROM_SETUP'])")
    done = lab("submit", "train.py")
    assert done.stdout == b"1\n", done.stderr.decode()
    (shown,) = lab.events("list")[:1]
    row = slurm.run("squeue", "-h", "-t", "all", "-j", shown["handle"].split(":")[0], "-o", "%P|%k")
    assert row == "high|a b\n"


def test_a_j2c_that_is_not_there_is_told_with_what_slurm_saw(lab: Lab) -> None:
    (lab.project / "pyproject.toml").write_text(
        "[tool.j2c.schedulers.slurm]\nj2c = '/no/such/j2c'\n"
    )
    lab.script("print(1)")
    done = lab("submit", "train.py")
    assert done.returncode == 125
    assert b"/no/such/j2c: No such file or directory" in done.stderr


def test_cancelling_a_running_run_saves_its_outputs(lab: Lab, slurm: SlurmCluster) -> None:
    lab.script(
        "import os, signal, sys, time\n"
        "def end(number, frame):\n"
        "    open(os.environ['J2C_OUTPUT_DIR'] + '/saved', 'a').write('x')\n"
        "    sys.exit(9)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('up', flush=True)\n"
        "time.sleep(300)\n"
    )
    lab("submit", "train.py", "--detach")
    until(lambda: lab("logs", "last").stdout == b"up\n")
    lab("cancel", "last")
    lab("logs", "-f", "last")
    (shown,) = lab.events("status", "last")
    assert (shown["state"], shown["reason"]) == ("cancelled", "cancelled by ada"), shown
    lab("fetch", "last", "-o", "out")
    assert (lab.project / "out/saved").read_text() == "x"
    until(lambda: slurm.run("squeue", "-h", "-j", shown["handle"].split(":")[0]) == "")


def test_a_run_that_waits_says_why(lab: Lab) -> None:
    lab.script("import time; time.sleep(300)")
    lab("submit", "train.py", "--queue", "small", "--cpus", "2", "--detach")
    until(lambda: lab.events("status", "last")[0]["state"] == "running")
    lab("submit", "train.py", "--queue", "small", "--cpus", "2", "--detach")

    def waits() -> bool:
        (shown,) = lab.events("status", "last")
        assert shown["state"] == "queued", shown
        return "(Resources)" in shown["reason"] or "(Priority)" in shown["reason"]

    until(waits)
    for run in lab.events("list"):
        lab("cancel", run["id"])
        lab("logs", "-f", run["id"])
    assert {run["state"] for run in lab.events("list")} == {"cancelled"}


def test_what_can_never_run_is_refused_before_anything_is_packed(lab: Lab) -> None:
    lab.script("print(1)")
    done = lab("submit", "train.py", "--gpus", "9")
    assert done.returncode == 2
    assert b"9 GPUs" in done.stderr
    assert not list(lab.store.glob("layers/*"))


def test_a_submit_killed_before_its_job_was_released_is_completed(
    lab: Lab, slurm: SlurmCluster, tmp_path: Path
) -> None:
    """sbatch's answer is lost, with the process that waited for it."""
    lab.script("print('ran')")
    # A wrapper in front of the real sbatch, which then kills whoever called it.
    wrapper = tmp_path / "bin/sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text(
        '#!/bin/sh\n/usr/bin/sbatch "$@"; code=$?\n'
        'case "$*" in *--test-only*) exit $code;; esac\nkill -KILL $PPID\n'
    )
    wrapper.chmod(0o755)
    path = f"{wrapper.parent}:{lab.environ['PATH']}"
    done = lab("submit", "train.py", environ={"PATH": path})
    assert done.returncode == -9
    held = slurm.run("squeue", "-h", "-t", "PD", "-o", "%r")
    assert held == "JobHeldUser\n"
    done = lab("submit", "train.py")
    assert (done.returncode, done.stdout) == (0, b"ran\n"), done.stderr.decode()
    (run,) = lab.events("list")
    jobs = slurm.run("squeue", "-h", "-t", "all", "-o", "%j").split()
    assert [job for job in jobs if job.endswith(run["id"])] == [f"train-{run['id']}"]


def test_a_controller_that_is_away_makes_the_state_unknown_and_is_waited_for(
    lab: Lab, slurm: SlurmCluster
) -> None:
    lab.script(
        "import os, time\nprint('up', flush=True)\n"
        "while not os.path.exists(os.environ['GO']): time.sleep(0.05)\nprint('end')\n"
    )
    go = lab.home / "go"
    process = lab.start("submit", "train.py", "--env", f"GO={go}")
    until(lambda: lab("logs", "last").stdout == b"up\n")
    slurm.end("slurmctld")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "j2c_lab", "submit", "train.py"],
            env=lab.environ,
            cwd=lab.project,
            capture_output=True,
        )
        assert done.returncode == 125
        assert b"Slurm did not answer" in done.stderr
    finally:
        slurm.start_controller()
        slurm.wait_for_nodes()
    go.touch()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"up\nend\n"), err.decode()


def test_a_job_that_slurm_has_forgotten_is_over_and_is_not_submitted_again(
    lab: Lab, slurm: SlurmCluster
) -> None:
    lab.script("print('ran', flush=True)")
    assert lab("submit", "train.py").returncode == 0
    (before,) = lab.events("status", "last")
    slurm.end("slurmctld")
    slurm.start_controller("-c")
    slurm.wait_for_nodes()
    scheduler = SlurmScheduler(lab.environ)
    run_id = before["id"]
    assert asyncio.run(scheduler.find(run_id)) == before["handle"]
    assert asyncio.run(scheduler.state(before["handle"])) == JobState(ENDED, "", 0)
    other = before["handle"].replace(run_id[-6:], "000000")
    assert "does not remember" in asyncio.run(scheduler.state(other)).reason


def test_munge_that_is_away_makes_the_state_unknown(lab: Lab, slurm: SlurmCluster) -> None:
    lab.script("import time; print('up', flush=True); time.sleep(300)")
    lab("submit", "train.py", "--detach")
    until(lambda: lab("logs", "last").stdout == b"up\n")
    slurm.kill("munged")
    try:
        (shown,) = lab.events("status", "last")
        assert shown["state"] == "unknown", shown
        assert shown["reason"].startswith("last seen running; the scheduler does not answer")
    finally:
        slurm.start_munge()
    until(lambda: lab.events("status", "last")[0]["state"] == "running")
    lab("cancel", "last")
    assert lab("logs", "-f", "last").returncode == 143
