"""Where layers are made, and what happens when that goes wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from pack_tools import CountingStore, FarStore, extract, listing, pack, pack_tree, write_tree

from j2c_lab.errors import PackError
from j2c_lab.pack import pool
from j2c_lab.pack.bundle import pack_bundle
from j2c_lab.pack.layer_writer import hash_layer
from j2c_lab.pack.pool import workers_for
from j2c_lab.pack.project import plan_project
from j2c_lab.store.local import LocalStore

SCRIPT = """
import asyncio, sys
from pathlib import Path
from j2c_lab.pack.bundle import pack_bundle
from j2c_lab.pack.project import plan_project
from j2c_lab.store.local import LocalStore
result = asyncio.run(pack_bundle(plan_project(sys.argv[1]), None, LocalStore(Path(sys.argv[2]))))
print(result.digest, len(result.sent), len(result.reused))
"""


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start worker processes however little there is to do."""
    monkeypatch.setattr(pool, "_SMALL", 0)


@pytest.mark.usefixtures("processes")
class TestProcesses:
    def test_they_make_the_same_layers(self, root: Path, store: LocalStore, tmp_path: Path):
        write_tree(root, {"a.py": "x", "big.bin": os.urandom(5 << 20), "é b": "y", "d/": ""})
        result = pack_tree(root, store)
        extract(result, store, tmp_path / "out")
        assert listing(tmp_path / "out" / "project") == listing(root)

    def test_they_hash_as_this_process_does(self, root: Path):
        write_tree(root, {"a.py": "x", "b": "y" * 100})
        files = plan_project(str(root)).layers[0].files

        async def hashed() -> tuple[str, int]:
            async with workers_for(1, 1, ignore) as workers:
                result = await workers.hash(files, [None, None])
                return result.digest, result.unpacked_size

        expected = hash_layer(files, [None, None], ignore)
        assert asyncio.run(hashed()) == (expected.digest, expected.unpacked_size)

    def test_a_project_with_modules_named_like_the_standard_ones_does_no_harm(
        self, root: Path, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ):
        for name in ("struct", "marshal", "hashlib", "j2c_lab"):
            write_tree(root, {f"{name}.py": "raise SystemExit('wrong module')\n"})
        monkeypatch.chdir(root)
        assert len(pack_tree(root, store).sent) == 1

    def test_they_know_nothing_of_the_program_that_started_them(self, root: Path, tmp_path: Path):
        # multiprocessing would import this file once more in each worker.
        write_tree(root, {"a": "x"})
        script = "print('imported', flush=True)\nimport j2c_lab.pack.pool as p; p._SMALL = 0\n"
        (tmp_path / "main.py").write_text(script + SCRIPT)
        done = subprocess.run(
            [sys.executable, str(tmp_path / "main.py"), str(root), str(tmp_path / "store")],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.count("imported") == 1

    def test_an_error_in_one_comes_back_as_it_was(self, root: Path, store: LocalStore):
        write_tree(root, {"a": "1"})
        plan = plan_project(str(root))
        (root / "a").unlink()
        with pytest.raises(PackError, match="/a changes while it is read") as caught:
            pack(plan, store)
        assert caught.value.remedy

    def test_one_that_is_killed_is_a_clear_error(self, root: Path, store: LocalStore):
        write_tree(root, {"big.bin": os.urandom(5 << 20)})
        plan = plan_project(str(root))

        async def kill_and_pack() -> None:
            async with workers_for(1, 1, ignore) as workers:
                (child,) = children_of(os.getpid())
                child.kill()
                await workers.pack(plan.layers[0].files, str(root / "out"))

        with pytest.raises(PackError, match="was killed by signal 9") as caught:
            asyncio.run(kill_and_pack())
        assert "free some memory" in caught.value.remedy
        assert children_of(os.getpid()) == []

    def test_after_an_error_no_process_and_no_file_is_left(self, root: Path, store: LocalStore):
        write_tree(root, {f"{n}.bin": os.urandom(5 << 20) for n in range(4)})
        plan = plan_project(str(root))
        (root / "2.bin").unlink()
        with pytest.raises(PackError):
            pack(plan, store)
        assert children_of(os.getpid()) == []
        assert list((store.directory / ".staging").iterdir()) == []

    def test_cancelling_ends_the_processes(self, root: Path, store: LocalStore):
        write_tree(root, {"big.bin": b""})
        os.truncate(root / "big.bin", 4 << 30)
        plan = plan_project(str(root))

        async def cancel() -> None:
            task = asyncio.ensure_future(pack_bundle(plan, None, store))
            while not list(store.directory.glob(".staging/layer-*")):
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancel())
        assert children_of(os.getpid()) == []
        assert list((store.directory / ".staging").iterdir()) == []

    def test_progress_is_reported_and_ends_at_the_total(self, root: Path, store: LocalStore):
        write_tree(root, {f"{n}.bin": bytes(40 << 20) for n in range(4)})
        _, events = pack(plan_project(str(root)), store)
        progress = [event for event in events if event["event"] == "progress"]
        assert progress[-1]["bytes"] == progress[-1]["total_bytes"] == 160 << 20
        assert progress[-1]["files"] == progress[-1]["total_files"] == 4
        done = [event["bytes"] for event in progress]
        assert done == sorted(done)

    def test_what_waits_for_a_slow_store_is_bounded(self, root: Path, tmp_path: Path):
        write_tree(root, {f"{n:02}.bin": os.urandom(4 << 20) for n in range(12)})
        far = FarStore(tmp_path / "far")
        pack(plan_project(str(root)), far)
        assert len([key for key in far.given if key.startswith("layers/")]) == 12
        assert far.most_uploading <= 8 + 4


def test_a_small_job_starts_no_process(root: Path, store: LocalStore):
    write_tree(root, {"a.py": "x"})
    started: list[str] = []
    sys.addaudithook(
        lambda event, _: started.append(event) if event == "subprocess.Popen" else None
    )
    pack_tree(root, store)
    assert started == []


@pytest.mark.parametrize("moment", ["workers", "first layer", "second layer"])
def test_a_pack_that_was_killed_goes_on_where_it_was(root: Path, tmp_path: Path, moment: str):
    write_tree(root, {f"{n}.bin": os.urandom(24 << 20) for n in range(4)})
    store = CountingStore(tmp_path / "store")
    command = [sys.executable, "-c", SCRIPT, str(root), str(store.directory)]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    reached: Callable[[], bool] = {
        "workers": lambda: bool(list(store.directory.glob(".staging/layer-*"))),
        "first layer": lambda: len(layers_in(store)) >= 1,
        "second layer": lambda: len(layers_in(store)) >= 2,
    }[moment]
    workers: list[psutil.Process] = []
    while not reached() and first.poll() is None:
        workers = children_of(first.pid) or workers
        time.sleep(0.002)
    first.send_signal(signal.SIGKILL)
    first.wait()
    psutil.wait_procs(workers, timeout=20)
    finished = layers_in(store)
    result = pack_tree(root, store)
    assert len(result.sent) + len(result.reused) == 4
    # No finished layer was given to the store again.
    assert finished.isdisjoint(store.directory / key for key in store.given)
    extract(result, store, tmp_path / "out")
    assert listing(tmp_path / "out" / "project") == listing(root)
    assert not any(worker.is_running() for worker in workers)


def test_ctrl_c_in_a_terminal_ends_everything(root: Path, tmp_path: Path):
    (root / "big.bin").write_bytes(b"")
    os.truncate(root / "big.bin", 8 << 30)
    store = LocalStore(tmp_path / "store")
    command = [sys.executable, "-c", SCRIPT, str(root), str(store.directory)]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    while not list(store.directory.glob(".staging/layer-*")):
        time.sleep(0.01)
    workers = children_of(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=60)
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert workers and not alive
    assert list((store.directory / ".staging").iterdir()) == []


def layers_in(store: LocalStore) -> set[Path]:
    return set(store.directory.glob("layers/**/*.zst"))


@pytest.fixture(autouse=True)
def _others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that other tests' fixtures keep are children of this process too."""
    monkeypatch.setattr(sys.modules[__name__], "OTHERS", frozenset(psutil.Process().children()))


OTHERS: frozenset[psutil.Process] = frozenset()


def children_of(pid: int) -> list[psutil.Process]:
    try:
        return [child for child in psutil.Process(pid).children() if child not in OTHERS]
    except psutil.NoSuchProcess:
        return []


def ignore(_size: int, _files: int) -> None:
    pass
