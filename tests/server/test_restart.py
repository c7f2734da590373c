"""A lab that goes away in the middle of an upload."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil

from tests.lab_tools import LabServer


def start_upload(server: LabServer) -> tuple[str, psutil.Process]:
    """Submit a project that takes a while to pack; return the run and the process at work."""
    for number in range(24):
        (server.project / f"{number}.bin").write_bytes(os.urandom(8 << 20))
    assert server.process is not None
    run_id = server.submit(server.script("print('arrived')"))
    children = psutil.Process(server.process.pid).children()
    (worker,) = [child for child in children if "submit" in child.cmdline()]
    deadline = time.monotonic() + 30
    while not (server.get(f"j2c/runs/{run_id}")["progress"] or {}).get("bytes"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return run_id, worker


def test_an_upload_goes_on_when_the_server_is_killed(tmp_path: Path) -> None:
    server = LabServer(tmp_path, config={"J2CServer": {"resume_interrupted": False}}).start()
    try:
        run_id, worker = start_upload(server)
        server.stop(signal.SIGKILL)
        assert worker.is_running()
        server.start()
        assert server.wait(run_id)["state"] == "succeeded"
        assert server.get(f"j2c/runs/{run_id}/log") == b"arrived\n"
    finally:
        server.stop()


def test_an_upload_that_died_with_the_server_is_resumed_by_the_next(tmp_path: Path) -> None:
    server = LabServer(tmp_path).start()
    try:
        run_id, worker = start_upload(server)
        server.stop(signal.SIGKILL)
        for process in [*worker.children(recursive=True), worker]:
            process.kill()
        server.start()
        assert server.wait(run_id)["state"] == "succeeded"
        assert f"j2c goes on with the interrupted run {run_id}" in server.log()
    finally:
        server.stop()
