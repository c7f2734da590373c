"""Preemption and time limits on a real Slurm: warned, saved, requeued, gone on with."""

from __future__ import annotations

import time

import pytest
from cli_tools import Lab, venv
from slurm_tools import slurm_lab, until

from tests.real.slurm_cluster import SlurmCluster

__all__ = ["slurm_lab", "venv"]

#: Counts the warnings it gets, saves what it has reached, and in its second attempt goes on.
TRAIN = """
import os, signal, sys, time
out = os.environ["J2C_OUTPUT_DIR"] + "/state"
before = open(out).read() if os.path.exists(out) else ""
print("attempt", os.environ["J2C_ATTEMPT"], "has", repr(before), flush=True)
if before:
    sys.exit(0)
warnings = []
signal.signal(signal.SIGTERM, lambda number, frame: warnings.append(number))
print("up", flush=True)
while not warnings:
    time.sleep(0.02)
time.sleep(0.5)
open(out, "w").write(f"warned {len(warnings)}")
sys.exit(75)
"""


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["warned", "main"])
def test_a_preempted_run_goes_on_in_a_second_attempt(
    slurm_lab: Lab, slurm: SlurmCluster, partition: str
) -> None:
    lab = slurm_lab
    lab.script(TRAIN)
    process = lab.start("submit", "train.py", "--queue", partition, "--gpus", "4", "--json")
    until(lambda: b"up\n" in lab("logs", "last").stdout)
    wanted = ["--partition=high", "--nodes=2", "--gres=gpu:4", "--wrap=sleep 1"]
    slurm.run("sbatch", "--output=/dev/null", *wanted)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err.decode()
    (shown,) = lab.events("status", "last")
    assert (shown["state"], shown["attempts"]) == ("succeeded", 2)
    text = lab("logs", "last").stdout.decode()
    if partition == "warned":
        # Without a warning, Slurm signals every process of the job by itself.
        assert "attempt 2 has 'warned 1'" in text
    else:
        assert "attempt 2 has 'warned" in text
    assert b'"queued"' in out


@pytest.mark.slow
def test_a_run_whose_time_is_up_saves_its_outputs_and_resumes(
    slurm_lab: Lab, slurm: SlurmCluster
) -> None:
    lab = slurm_lab
    lab.script(TRAIN)
    started = time.monotonic()
    done = lab("submit", "train.py", "--time", "1m")
    assert time.monotonic() - started > 20
    (shown,) = lab.events("status", "last")
    assert shown["state"] == "failed"
    assert shown["reason"] == "its time limit was reached (TIMEOUT)"
    assert done.returncode == 75
    done = lab("resume", "last")
    assert done.returncode == 0
    assert b"attempt 2 has 'warned 1'" in lab("logs", "last").stdout


def test_a_node_that_dies_makes_another_attempt(slurm_lab: Lab, slurm: SlurmCluster) -> None:
    lab = slurm_lab
    lab.script(
        "import os, time\nprint('attempt', os.environ['J2C_ATTEMPT'], flush=True)\n"
        "time.sleep(300 if os.environ['J2C_ATTEMPT'] == '1' else 0)\n"
    )
    process = lab.start("submit", "train.py", "--gpus", "4")
    until(lambda: lab("logs", "last").stdout == b"attempt 1\n")
    (shown,) = lab.events("status", "last")
    node = slurm.run("squeue", "-h", "-j", shown["handle"].split(":")[0], "-o", "%N").strip()
    slurm.kill(node)
    slurm.run("scontrol", "update", f"nodename={node}", "state=down", "reason=died")
    try:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out) == (0, b"attempt 1\nattempt 2\n"), err.decode()
    finally:
        slurm.start_node(node)
        slurm.run("scontrol", "update", f"nodename={node}", "state=resume")
    (shown,) = lab.events("status", "last")
    assert (shown["state"], shown["attempts"]) == ("succeeded", 2)
