"""The run's directory, when attempts of one run follow each other closely."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

from j2c_lab.unpack.workdir import take_run_directory, try_lock


def test_an_attempt_gets_a_directory_though_the_one_before_removes_its_own(tmp_path: Path) -> None:
    first = take_run_directory(os.fspath(tmp_path), "run")

    def end() -> None:
        time.sleep(0.2)
        # As an attempt ends: its directory goes while it still holds the lock.
        shutil.rmtree(first.path)
        os.close(first.lock)

    ending = threading.Thread(target=end)
    ending.start()
    second = take_run_directory(os.fspath(tmp_path), "run")
    ending.join()
    assert os.path.samestat(os.stat(second.path), os.fstat(second.lock))
    assert try_lock(second.path) is None
    os.close(second.lock)


def test_many_short_attempts_never_meet_in_a_directory_that_is_gone(tmp_path: Path) -> None:
    faults: list[BaseException] = []

    def attempts() -> None:
        try:
            for _ in range(10):
                taken = take_run_directory(os.fspath(tmp_path), "run")
                Path(taken.path, "file").touch()
                shutil.rmtree(taken.path)
                os.close(taken.lock)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=attempts) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_the_next_attempt_takes_the_directory_that_was_let_go(tmp_path: Path) -> None:
    first = take_run_directory(os.fspath(tmp_path), "run")
    os.close(first.lock)
    again = take_run_directory(os.fspath(tmp_path), "run")
    assert again.path == first.path
    os.close(again.lock)
