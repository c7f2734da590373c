"""What is particular to the local scheduler: it is killed, the machine restarts, nothing leaks."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from j2c_lab.formats.run import Job, Resources, new_run_id
from j2c_lab.schedulers.base import ENDED, PENDING, RUNNING, JobState
from j2c_lab.schedulers.local import LocalScheduler
from j2c_lab.schedulers.local_machine import discover, job_environment


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path),
        "J2C_LOCAL_CPUS": "2",
        "J2C_LOCAL_GPUS": "0",
        "PLACE": str(tmp_path),
    }


@pytest.fixture
def scheduler(environ: dict[str, str]) -> LocalScheduler:
    return LocalScheduler(environ)


def submit(scheduler: LocalScheduler, place: Path, script: str, cpus: int = 1) -> str:
    run_id = new_run_id()
    job = Job(
        run_id=run_id,
        name="n",
        user="ada",
        run_url=f"file:///s/runs/ada/{run_id}",
        command=["/bin/sh", "-c", script],
        resources=Resources(cpus=cpus),
        env={"PLACE": str(place)},
    )
    return asyncio.run(scheduler.submit(job))


def wait(scheduler: LocalScheduler, handle: str, phase: str = ENDED) -> JobState:
    deadline = time.monotonic() + 60
    while (state := asyncio.run(scheduler.state(handle))).phase != phase:
        assert time.monotonic() < deadline, state
        time.sleep(0.02)
    return state


def supervisor_of(tmp_path: Path) -> int | None:
    """The process that holds the supervisor's lock, as /proc/locks tells it."""
    path = tmp_path / "j2c/local/supervisor.lock"
    inode = path.stat().st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
            return int(fields[4])
    return None


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux
def test_a_killed_supervisor_costs_no_job_and_no_exit_code(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    until = "until test -e $PLACE/go; do sleep 0.02; done; exit "
    first = submit(scheduler, tmp_path, until + "3", cpus=2)
    wait(scheduler, first, RUNNING)
    second = submit(scheduler, tmp_path, "exit 4", cpus=2)
    pid = supervisor_of(tmp_path)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    assert wait(scheduler, first).exit_code == 3
    assert wait(scheduler, second).exit_code == 4


@linux
def test_the_supervisor_ends_when_there_is_nothing_to_do(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    wait(scheduler, submit(scheduler, tmp_path, "true"))
    with open(tmp_path / "j2c/local/supervisor.lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
    assert wait(scheduler, submit(scheduler, tmp_path, "exit 2")).exit_code == 2


def test_after_a_restart_of_the_machine_running_jobs_are_lost_and_say_so(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    handle = submit(scheduler, tmp_path, "until test -e $PLACE/go; do sleep 0.02; done")
    wait(scheduler, handle, RUNNING)
    path = tmp_path / "j2c/local/active" / handle
    for name in ("start.json", "child.json"):
        while not (path / name).exists():
            time.sleep(0.01)
        value = json.loads((path / name).read_text())
        value["process"][2] = "another boot"
        (path / name).unlink()
        (path / name).write_text(json.dumps(value))
    state = wait(scheduler, handle)
    (tmp_path / "go").touch()
    assert (state.exit_code, state.reason) == (None, "the machine restarted while it ran")


def test_a_job_waits_for_cpus_only_where_they_are_taken(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    until = "until test -e $PLACE/go; do sleep 0.02; done"
    first = submit(scheduler, tmp_path, until)
    wait(scheduler, first, RUNNING)
    wide = submit(scheduler, tmp_path, "true", cpus=2)
    assert asyncio.run(scheduler.state(wide)) == JobState(
        PENDING, "waits for 2 CPUs: 1 other run on this machine"
    )
    asyncio.run(scheduler.cancel(wide))
    narrow = submit(scheduler, tmp_path, until)
    while (state := asyncio.run(scheduler.state(narrow))).phase == PENDING:
        assert "CPU" not in state.reason
    (tmp_path / "go").touch()
    assert wait(scheduler, narrow).exit_code == 0


@linux
def test_after_a_restart_waiting_jobs_are_started_by_whoever_looks(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    first = submit(scheduler, tmp_path, "sleep 300", cpus=2)
    wait(scheduler, first, RUNNING)
    second = submit(scheduler, tmp_path, "exit 4", cpus=2)
    assert asyncio.run(scheduler.state(second)).phase == PENDING
    supervisor = supervisor_of(tmp_path)
    assert supervisor is not None
    path = tmp_path / "j2c/local/active" / first
    while not (path / "child.json").exists():
        time.sleep(0.01)
    processes = [
        json.loads((path / name).read_text())["process"][0] for name in ("start.json", "child.json")
    ]
    for pid in (supervisor, *processes):
        os.kill(pid, signal.SIGKILL)
    assert wait(scheduler, second).exit_code == 4
    state = wait(scheduler, first)
    assert state.exit_code is None
    assert "disappeared" in state.reason


@linux
def test_a_job_whose_runner_was_killed_runs_until_its_command_has_ended(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    handle = submit(scheduler, tmp_path, "until test -e $PLACE/go; do sleep 0.02; done")
    wait(scheduler, handle, RUNNING)
    path = tmp_path / "j2c/local/active" / handle
    while not (path / "child.json").exists():
        time.sleep(0.01)
    os.kill(json.loads((path / "start.json").read_text())["process"][0], signal.SIGKILL)
    time.sleep(0.1)
    assert asyncio.run(scheduler.state(handle)).phase == RUNNING
    (tmp_path / "go").touch()
    assert wait(scheduler, handle).exit_code is None


def test_a_time_limit_ends_the_job_and_is_the_reason(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    run_id = new_run_id()
    job = Job(
        run_id=run_id,
        name="n",
        user="ada",
        run_url="file:///s",
        command=["/bin/sh", "-c", "trap 'exit 9' TERM; while :; do sleep 0.02; done"],
        resources=Resources(time=1),
    )
    state = wait(scheduler, asyncio.run(scheduler.submit(job)))
    assert (state.exit_code, state.reason) == (9, "the time limit of 1s was reached")


def test_the_labs_python_does_not_leak_into_a_job() -> None:
    env = job_environment(
        {
            "PATH": "/lab/venv/bin:/conda/bin:/usr/bin:/bin",
            "VIRTUAL_ENV": "/lab/venv",
            "CONDA_PREFIX": "/conda",
            "PYTHONPATH": "/lab/lib",
            "LD_LIBRARY_PATH": "/lab/lib",
            "JUPYTERHUB_API_TOKEN": "secret",
            "HOME": "/home/ada",
            "LC_ALL": "C.UTF-8",
            "https_proxy": "http://proxy",
            "AWS_PROFILE": "lab",
            "J2C_STORE": "/store",
            "J2C_RUN_ID": "outer",
            "J2C_INPUT_DATA": "outer",
        },
        passed=[],
    )
    assert env == {
        "PATH": "/usr/bin:/bin",
        "HOME": "/home/ada",
        "LC_ALL": "C.UTF-8",
        "https_proxy": "http://proxy",
        "AWS_PROFILE": "lab",
        "J2C_STORE": "/store",
    }
    assert job_environment({"PATH": "/bin", "LD_LIBRARY_PATH": "/cuda"}, ["LD_LIBRARY_PATH"]) == {
        "PATH": "/bin",
        "LD_LIBRARY_PATH": "/cuda",
    }


@pytest.mark.parametrize(
    ("environ", "gpus"),
    [
        ({"J2C_LOCAL_GPUS": "3"}, ["0", "1", "2"]),
        ({"J2C_LOCAL_GPUS": "GPU-a,GPU-b"}, ["GPU-a", "GPU-b"]),
        ({"CUDA_VISIBLE_DEVICES": "4,5"}, ["4", "5"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, []),
        ({"J2C_LOCAL_GPUS": "0", "CUDA_VISIBLE_DEVICES": "4"}, []),
    ],
)
def test_gpus_are_those_of_the_setting_or_those_that_are_visible(
    environ: dict[str, str], gpus: list[str]
) -> None:
    assert discover(environ).gpus == gpus


def test_credentials_of_the_submitter_are_not_shown_by_a_dry_run(environ: dict[str, str]) -> None:
    scheduler = LocalScheduler({**environ, "AWS_SECRET_ACCESS_KEY": "hush"})
    job = Job(
        run_id=new_run_id(),
        name="n",
        user="ada",
        run_url="file:///s",
        command=["j2c", "unpack", "file:///s"],
        resources=Resources(),
    )
    with contextlib.suppress(FileNotFoundError):
        assert not list(Path(environ["XDG_STATE_HOME"]).iterdir())
    shown = json.dumps(scheduler.render(job))
    assert "AWS_SECRET_ACCESS_KEY" in shown
    assert "hush" not in shown
    assert not list(Path(environ["XDG_STATE_HOME"]).iterdir())


def test_a_job_has_the_umask_of_its_submitter_whoever_started_the_supervisor(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    before = os.umask(0o022)
    try:
        wait(scheduler, submit(scheduler, tmp_path, "umask > $PLACE/first"))
        os.umask(0o077)
        wait(scheduler, submit(scheduler, tmp_path, "umask > $PLACE/second"))
    finally:
        os.umask(before)
    assert (tmp_path / "first").read_text().strip() == "0022"
    assert (tmp_path / "second").read_text().strip() == "0077"


def test_a_job_waits_for_what_is_really_lacking(scheduler: LocalScheduler, tmp_path: Path) -> None:
    first = submit(scheduler, tmp_path, "sleep 60", cpus=1)
    wait(scheduler, first, RUNNING)
    second = submit(scheduler, tmp_path, "true", cpus=2)
    assert asyncio.run(scheduler.state(second)) == JobState(
        PENDING, "waits for 2 CPUs: 1 other run on this machine"
    )
    third = submit(scheduler, tmp_path, "true", cpus=1)
    assert asyncio.run(scheduler.state(third)).reason == "1 run before it in this machine's queue"
    for handle in (third, second, first):
        asyncio.run(scheduler.cancel(handle))
        wait(scheduler, handle)


def holders(tmp_path: Path, secret: bytes) -> list[str]:
    """The files of the scheduler's directory that hold a text."""
    files = [path for path in (tmp_path / "j2c").rglob("*") if path.is_file()]
    return sorted(path.name for path in files if secret in path.read_bytes())


def test_credentials_reach_the_job_and_lie_nowhere_once_it_runs(
    environ: dict[str, str], tmp_path: Path
) -> None:
    secret = "s3cr3t/of+ada"
    scheduler = LocalScheduler({**environ, "AWS_SECRET_ACCESS_KEY": secret})
    first = submit(scheduler, tmp_path, "until test -e $PLACE/go; do sleep 0.02; done", cpus=2)
    wait(scheduler, first, RUNNING)
    seen = submit(
        scheduler, tmp_path, 'test "$AWS_SECRET_ACCESS_KEY" = s3cr3t""/of+ada && exit 5', cpus=2
    )
    cancelled = submit(scheduler, tmp_path, "exit 6", cpus=2)
    # Jobs that wait have it in a file that only the user may read; their descriptions have not.
    deadline = time.monotonic() + 30
    while holders(tmp_path, secret.encode()) != ["environ.json"] * 2:
        assert time.monotonic() < deadline, holders(tmp_path, secret.encode())
        time.sleep(0.02)
    waiting = tmp_path / "j2c/local/active" / seen / "environ.json"
    assert waiting.stat().st_mode & 0o777 == 0o600
    asyncio.run(scheduler.cancel(cancelled))
    (tmp_path / "go").touch()
    assert wait(scheduler, seen).exit_code == 5
    wait(scheduler, cancelled)
    while holders(tmp_path, secret.encode()):
        assert time.monotonic() < deadline, holders(tmp_path, secret.encode())
        time.sleep(0.02)
