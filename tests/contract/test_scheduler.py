"""What every scheduler must do. A new one adds itself to `harness` and passes as it is."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from j2c_lab.errors import UsageError
from j2c_lab.formats.run import Job, Resources, new_run_id
from j2c_lab.schedulers.base import ENDED, PENDING, RUNNING, UNKNOWN, JobState, Scheduler
from j2c_lab.schedulers.registry import open_scheduler


class Harness:
    """A scheduler on a machine with two CPUs and two GPUs, and a place its jobs can write to."""

    #: Where such a machine is; None where there is only one.
    queue: str | None = None

    def __init__(self, name: str, place: Path, environ: dict[str, str]) -> None:
        self.name = name
        self.place = place
        self.environ = environ
        self.scheduler = self.make()

    def make(self) -> Scheduler:
        return open_scheduler(self.name, self.environ)

    def job(self, script: str, *, run_id: str = "", submission: int = 1, **asked: int) -> Job:
        run_id = run_id or new_run_id()
        return Job(
            run_id=run_id,
            name="a name with 'quotes'",
            user="ada",
            run_url=f"file:///nowhere/runs/ada/{run_id}",
            command=["/bin/sh", "-c", script],
            resources=Resources(**asked),  # type: ignore[arg-type]
            submission=submission,
            queue=self.queue,
            env={"PLACE": str(self.place)},
        )

    def submit(self, script: str, **rest: int | str) -> str:
        return asyncio.run(self.scheduler.submit(self.job(script, **rest)))  # type: ignore[arg-type]

    def state(self, handle: str) -> JobState:
        return asyncio.run(self.scheduler.state(handle))

    def wait(self, handle: str, phase: str = ENDED) -> JobState:
        deadline = time.monotonic() + 60
        while (state := self.state(handle)).phase != phase:
            assert time.monotonic() < deadline, state
            time.sleep(0.02)
        return state

    def wait_for_file(self, name: str) -> Path:
        deadline = time.monotonic() + 60
        while not (self.place / name).exists():
            assert time.monotonic() < deadline, name
            time.sleep(0.02)
        return self.place / name


@pytest.fixture(params=["local", "slurm"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    environ = {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "J2C_LOCAL_CPUS": "2",
        "J2C_LOCAL_GPUS": "2",
        "J2C_LOCAL_KILL_AFTER": "1",
        "J2C_SLURM_KILL_AFTER": "1",
    }
    place = tmp_path / "place"
    place.mkdir()
    if request.param == "local":
        yield Harness("local", place, environ)
    else:
        cluster = request.getfixturevalue("slurm")
        harness = Harness("slurm", place, {**environ, **cluster.environ})
        harness.queue = "small"
        yield harness
        cluster.run("scancel", "--partition=small", "--user", getpass.getuser())


def test_a_job_runs_and_its_exit_code_is_known(harness: Harness) -> None:
    handle = harness.submit("exit 7")
    assert harness.wait(handle).exit_code == 7


def test_a_job_ended_by_a_signal_has_128_and_its_number(harness: Harness) -> None:
    handle = harness.submit("kill -KILL $$")
    assert harness.wait(handle).exit_code == 137


def test_the_scheduler_keeps_what_the_command_wrote_itself(harness: Harness) -> None:
    handle = harness.submit("echo out; echo err >&2")
    harness.wait(handle)
    assert asyncio.run(harness.scheduler.log(handle)) == b"out\nerr\n"


def test_a_command_that_does_not_exist_is_told_in_the_log(harness: Harness) -> None:
    job = harness.job("")
    job = type(job).from_dict({**job.to_dict(), "command": ["/no/such/command"]})
    handle = asyncio.run(harness.scheduler.submit(job))
    assert harness.wait(handle).exit_code == 127
    assert b"/no/such/command" in asyncio.run(harness.scheduler.log(handle))


def test_arguments_and_environment_arrive_byte_for_byte(harness: Harness) -> None:
    values = ["", "a b", "new\nline", "'\"", ";$HOME`id`", "{x}", "--", "\\", "a=b,c", "жук"]
    code = (
        "import json,os,sys;"
        "open(os.environ['PLACE']+'/got','w').write(json.dumps([sys.argv[1:],"
        "[os.environ[f'V{i}'] for i in range(10)]]))"
    )
    job = harness.job("")
    values_env = {f"V{i}": value for i, value in enumerate(values)}
    job = type(job).from_dict(
        {
            **job.to_dict(),
            "command": [sys.executable, "-c", code, *values],
            "env": {**job.env, **values_env},
        }
    )
    harness.wait(asyncio.run(harness.scheduler.submit(job)))
    assert json.loads((harness.place / "got").read_text()) == [values, values]


def test_a_job_submitted_again_is_the_same_job(harness: Harness) -> None:
    run_id = new_run_id()
    handles = {harness.submit("echo x >> $PLACE/count", run_id=run_id) for _ in range(3)}
    (handle,) = handles
    harness.wait(handle)
    assert harness.submit("echo x >> $PLACE/count", run_id=run_id) == handle
    assert (harness.place / "count").read_text() == "x\n"


def test_many_processes_that_submit_one_run_start_one_job(harness: Harness) -> None:
    job = harness.job("echo x >> $PLACE/count")
    code = (
        "import asyncio,sys,time,os\n"
        "from j2c_lab.formats.run import Job\n"
        "from j2c_lab.schedulers.registry import open_scheduler\n"
        "job=Job.from_json(sys.argv[1].encode())\n"
        "sys.stdin.read()\n"
        "print(asyncio.run(open_scheduler(sys.argv[2]).submit(job)))\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, job.to_json().decode(), harness.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=harness.environ,
            text=True,
        )
        for _ in range(20 if harness.name == "local" else 8)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    handles = set()
    for process in processes:
        assert process.stdout is not None
        handles.add(process.stdout.read().strip())
        process.stdout.close()
        assert process.wait() == 0
    (handle,) = handles
    assert harness.wait(handle).exit_code == 0
    assert (harness.place / "count").read_text() == "x\n"


def test_a_run_submitted_anew_after_its_end_is_a_second_job(harness: Harness) -> None:
    run_id = new_run_id()
    first = harness.submit("exit 3", run_id=run_id)
    assert harness.wait(first).exit_code == 3
    second = harness.submit("exit 4", run_id=run_id, submission=2)
    assert second != first
    assert harness.wait(second).exit_code == 4
    assert harness.state(first).exit_code == 3


def test_a_job_is_found_by_its_run_id_waiting_running_and_ended(harness: Harness) -> None:
    find = harness.scheduler.find
    assert asyncio.run(find(new_run_id())) is None
    run_id = new_run_id()
    handle = harness.submit("touch $PLACE/up; sleep 0.2", run_id=run_id)
    assert asyncio.run(find(run_id)) == handle
    harness.wait_for_file("up")
    assert asyncio.run(find(run_id)) == handle
    harness.wait(handle)
    assert asyncio.run(find(run_id)) == handle
    assert asyncio.run(find(run_id, 2)) is None


def test_a_job_nobody_submitted_is_unknown(harness: Harness) -> None:
    assert harness.state(new_run_id()).phase == UNKNOWN


def test_what_can_never_run_is_wrong_usage_at_once(harness: Harness) -> None:
    with pytest.raises(UsageError, match="3 GPUs"):
        harness.scheduler.check(harness.job("", gpus=3))
    with pytest.raises(UsageError, match="CPUs"):
        harness.scheduler.check(harness.job("", cpus=99))
    harness.scheduler.check(harness.job("", gpus=2, cpus=2))


def test_a_job_waits_until_there_is_room_and_says_why(harness: Harness) -> None:
    first = harness.submit("until test -e $PLACE/go; do sleep 0.02; done", cpus=2)
    harness.wait(first, RUNNING)
    second = harness.submit("true", cpus=2)
    state = harness.state(second)
    assert state.phase == PENDING
    assert state.reason
    (harness.place / "go").touch()
    assert harness.wait(second).exit_code == 0
    assert harness.wait(first).exit_code == 0


def test_jobs_start_in_turn_and_small_ones_do_not_starve_a_big_one(harness: Harness) -> None:
    if harness.name != "local":
        pytest.skip("a cluster orders its jobs by its own rules")
    first = harness.submit(
        "echo first >> $PLACE/order; until test -e $PLACE/go; do sleep 0.02; done", cpus=1
    )
    harness.wait(first, RUNNING)
    big = harness.submit("echo big >> $PLACE/order", cpus=2)
    small = [harness.submit("echo small >> $PLACE/order", cpus=1) for _ in range(3)]
    (harness.place / "go").touch()
    for handle in [big, *small]:
        assert harness.wait(handle).exit_code == 0
    assert (harness.place / "order").read_text().split() == ["first", "big", *["small"] * 3]


def test_jobs_at_the_same_time_see_different_gpus(harness: Harness) -> None:
    script = (
        "echo $CUDA_VISIBLE_DEVICES > $PLACE/gpu%d; until test -e $PLACE/go; do sleep 0.02; done"
    )
    handles = [harness.submit(script % number, gpus=1) for number in (1, 2)]
    for number in (1, 2):
        path = harness.wait_for_file(f"gpu{number}")
        while not path.read_text():
            time.sleep(0.01)
    seen = {(harness.place / f"gpu{number}").read_text().strip() for number in (1, 2)}
    (harness.place / "go").touch()
    for handle in handles:
        harness.wait(handle)
    assert seen == {"0", "1"}


def test_a_waiting_job_that_is_cancelled_never_runs(harness: Harness) -> None:
    first = harness.submit("until test -e $PLACE/go; do sleep 0.02; done", cpus=2)
    second = harness.submit("touch $PLACE/ran", cpus=2)
    asyncio.run(harness.scheduler.cancel(second))
    state = harness.state(second)
    assert state.phase == ENDED
    assert "cancelled" in state.reason
    (harness.place / "go").touch()
    harness.wait(first)
    third = harness.submit("true", cpus=2)
    harness.wait(third)
    assert not (harness.place / "ran").exists()


def test_a_running_job_that_is_cancelled_may_clean_up_first(harness: Harness) -> None:
    handle = harness.submit(
        "trap 'echo saved > $PLACE/saved; exit 9' TERM; touch $PLACE/up;"
        "while :; do sleep 0.02; done"
    )
    harness.wait_for_file("up")
    asyncio.run(harness.scheduler.cancel(handle))
    assert harness.wait(handle).exit_code == 9
    assert (harness.place / "saved").read_text() == "saved\n"


def test_a_job_that_does_not_heed_a_cancel_is_killed_with_all_it_started(harness: Harness) -> None:
    handle = harness.submit(
        "trap '' TERM; (trap '' TERM; sleep 300) & echo $! > $PLACE/pid; touch $PLACE/up; wait"
    )
    harness.wait_for_file("up")
    asyncio.run(harness.scheduler.cancel(handle))
    assert harness.wait(handle).exit_code == 137
    pid = int((harness.place / "pid").read_text())
    # Its new parent may not have reaped it yet.
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_cancelling_an_ended_job_changes_nothing(harness: Harness) -> None:
    handle = harness.submit("exit 5")
    harness.wait(handle)
    asyncio.run(harness.scheduler.cancel(handle))
    assert harness.state(handle).exit_code == 5


def test_a_job_outlives_the_session_that_submitted_it(harness: Harness) -> None:
    job = harness.job("until test -e $PLACE/go; do sleep 0.02; done; exit 6")
    code = (
        "import asyncio,sys,os,signal\n"
        "from j2c_lab.formats.run import Job\n"
        "from j2c_lab.schedulers.registry import open_scheduler\n"
        "job=Job.from_json(sys.argv[1].encode())\n"
        "print(asyncio.run(open_scheduler(sys.argv[2]).submit(job)),flush=True)\n"
        "os.killpg(0, signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, job.to_json().decode(), harness.name],
        env=harness.environ,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert done.returncode == -9
    handle = done.stdout.strip()
    harness.wait(handle, RUNNING)
    (harness.place / "go").touch()
    assert harness.wait(handle).exit_code == 6


def test_a_dry_run_shows_the_command_and_no_secret(harness: Harness) -> None:
    shown = json.dumps(harness.make().render(harness.job("echo hello")))
    assert "echo hello" in shown
