"""`j2c submit` is killed, interrupted, or loses its reader; then it is called again."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable

import pytest
from cli_tools import Lab

SCRIPT = """
import os
with open({count!r}, "a") as file:
    file.write(os.environ["J2C_RUN_ID"] + "\\n")
print("hello")
"""


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def started(lab: Lab) -> list[str]:
    path = lab.home / "count"
    return path.read_text().split() if path.exists() else []


def prepare(lab: Lab) -> None:
    lab.script(SCRIPT.format(count=str(lab.home / "count")))
    (lab.project / "big.bin").write_bytes(random.Random(1).randbytes(6_000_000))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_moment_and_called_again_one_job_runs(lab: Lab, seed: int) -> None:
    prepare(lab)
    chance = random.Random(seed)
    began = time.monotonic()
    lab("submit", "train.py", "--dry-run")
    whole = time.monotonic() - began + 0.15
    for round_number in range(5):
        # Each round is a command of its own, killed a few times before it is let through.
        arguments = ("submit", "train.py", "--detach", "--env", f"ROUND={round_number}")
        killed_ids = set()
        for _ in range(3):
            process = lab.start(*arguments, "--json")
            time.sleep(chance.uniform(0.02, whole))
            process.kill()
            out, _ = process.communicate()
            killed_ids.update(re.findall(rb'"run":"([^"]+)"', out))
            if b'"submitted"' in out:
                break  # told: the same command is now another run
        else:
            done = lab(*arguments)
            assert done.returncode == 0, done.stderr
            run_id = done.stdout.strip()
            assert killed_ids <= {run_id}, "an interrupted request is gone on with, not left"
        assert lab("logs", "-f", "last").returncode == 0
        ran = started(lab)
        assert len(ran) == round_number + 1
        assert len(set(ran)) == len(ran)
        assert sorted(lab.jobs()) == sorted(ran)


def test_killed_after_the_job_was_submitted_but_before_it_was_told(lab: Lab) -> None:
    prepare(lab)
    process = lab.start("submit", "train.py", "--detach")
    wait_until(lambda: bool(lab.jobs()) or process.poll() is not None)
    process.kill()
    process.communicate()
    done = lab("submit", "train.py")
    assert done.returncode == 0, done.stderr
    assert len(lab.jobs()) in (1, 2)  # 2 when it had come so far as to tell it
    if b"goes on from where it was interrupted" in done.stderr:
        assert len(lab.jobs()) == 1
        assert started(lab) == lab.jobs()


def test_an_interrupted_request_is_gone_on_with_by_resume(lab: Lab) -> None:
    prepare(lab)
    process = lab.start("submit", "train.py")
    wait_until(lambda: lab.runs.is_dir() and any(lab.runs.glob("*/request.json")))
    process.kill()
    process.communicate()
    (run,) = lab.runs.iterdir()
    if not lab.jobs():
        assert b"interrupted" in lab("list").stdout
    done = lab("resume", "last")
    assert (done.returncode, done.stdout) == (0, b"hello\n"), done.stderr
    assert lab.jobs() == started(lab) == [run.name]


def test_an_interrupted_request_whose_project_was_edited_is_another_run(lab: Lab) -> None:
    prepare(lab)
    process = lab.start("submit", "train.py")
    wait_until(lambda: lab.runs.is_dir() and any(lab.runs.glob("*/run.json")))
    process.kill()
    process.communicate()
    if lab.jobs():
        pytest.skip("it was faster than the kill")
    lab.script("print('edited')")
    done = lab("submit", "train.py")
    assert (done.returncode, done.stdout) == (0, b"edited\n"), done.stderr
    assert len(lab.jobs()) == 1
    assert len(list(lab.runs.iterdir())) == 2


def waiting_script(lab: Lab) -> None:
    lab.script(
        f"import os, time\nprint('up', flush=True)\n"
        f"while not os.path.exists({str(lab.home / 'go')!r}):\n    time.sleep(0.02)\n"
        "print('done')\n"
    )


def follow_until_up(lab: Lab, *arguments: str) -> subprocess.Popen[bytes]:
    waiting_script(lab)
    process = lab.start("submit", "train.py", *arguments)
    assert process.stdout is not None
    while b"up" not in (line := process.stdout.readline()):
        assert line, process.communicate()
    return process


def test_ctrl_c_detaches_and_says_how_to_come_back(lab: Lab) -> None:
    process = follow_until_up(lab)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    (run,) = lab.runs.iterdir()
    assert f"j2c logs -f {run.name}".encode() in err
    assert b"Traceback" not in err
    (lab.home / "go").touch()
    done = lab("logs", "-f", "last")
    assert (done.returncode, done.stdout) == (0, b"up\ndone\n")


def test_a_second_ctrl_c_cancels_and_the_end_is_shown(lab: Lab) -> None:
    process = follow_until_up(lab)
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    while b"detached" not in (line := process.stderr.readline()):
        assert line
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert b"cancelled" in err
    assert process.returncode == 143
    assert b"cancelled" in lab("list").stdout


def test_sigterm_detaches(lab: Lab) -> None:
    process = follow_until_up(lab, "--json")
    process.terminate()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 143
    assert b'"event":"detached"' in out.splitlines()[-1]
    (lab.home / "go").touch()
    assert lab("logs", "-f", "last").returncode == 0


def test_a_reader_that_goes_away_ends_the_command_quietly_and_not_the_run(lab: Lab) -> None:
    process = follow_until_up(lab)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    (lab.home / "go").touch()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 141
    assert b"Traceback" not in err
    assert b"Exception" not in err
    assert lab("logs", "-f", "last").stdout == b"up\ndone\n"


def test_ctrl_c_before_the_job_is_submitted_stops_and_the_same_command_goes_on(lab: Lab) -> None:
    prepare(lab)
    process = lab.start("submit", "train.py")
    wait_until(lambda: lab.runs.is_dir() and any(lab.runs.glob("*/request.json")))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert b"Traceback" not in err
    if not lab.jobs():
        assert process.returncode == 130
        assert b"the same command goes on" in err
    done = lab("submit", "train.py")
    assert (done.returncode, done.stdout) == (0, b"hello\n"), done.stderr


def test_on_a_terminal_the_log_is_whole_and_the_terminal_is_left_as_it_was(lab: Lab) -> None:
    lab.script("print('hello')")
    master, slave = pty.openpty()
    environ = {**lab.environ, "TERM": "xterm"}
    process = lab.start("submit", "train.py", environ=environ)
    process.communicate()
    process = subprocess.Popen(
        [*process.args],  # type: ignore[misc]
        cwd=lab.project,
        env=environ,
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(master)
    assert process.wait() == 0
    assert b"hello\r\n" in shown
    assert b"succeeded after" in shown
    assert shown.count(b"\x1b[?25l") == shown.count(b"\x1b[?25h"), "the cursor is shown again"


def test_ctrl_c_once_it_was_told_that_the_run_is_submitted_detaches(lab: Lab) -> None:
    lab.script("print('hello')")
    process = lab.start("submit", "train.py")
    assert process.stderr is not None
    while b"submitted to" not in (line := process.stderr.readline()):
        assert line
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    # The run may have ended before the signal came.
    assert process.returncode == 0 or (process.returncode == 130 and b"detached" in err), err
    assert lab("logs", "-f", "last").stdout == b"hello\n"
    # The same command is another run from here on.
    assert lab("submit", "train.py").returncode == 0
    assert len(lab.jobs()) == 2


def test_damaged_documents_of_one_run_do_not_hide_the_others(lab: Lab) -> None:
    lab.script("print('hello')")
    for name in ("good", "bad"):
        assert lab("submit", "train.py", "--name", name).returncode == 0
    bad, good = sorted(lab.runs.iterdir(), reverse=True)
    (bad / "run.json").write_text("{")
    done = lab("list", "--json")
    assert done.returncode == 0
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(run["id"], run["state"]) for run in shown] == [
        (bad.name, "unknown"),
        (good.name, "succeeded"),
    ]
    assert f"runs/ada/{bad.name}/run.json in the store is damaged" in shown[0]["reason"]
    assert lab("logs", "good").stdout == b"hello\n"
    for verb in (["status", bad.name], ["gc", "--dry-run"]):
        done = lab(*verb)
        assert (done.returncode, done.stderr.count(b"\n")) == (125, 1)
    assert f"j2c rm {bad.name}".encode() in done.stderr
    assert lab("rm", bad.name).returncode == 0
    assert lab("gc", "--dry-run").returncode == 0
