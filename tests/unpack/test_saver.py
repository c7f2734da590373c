"""Outputs are saved while the run goes on, whole, and a next attempt starts from them."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from pathlib import Path

import pytest
from unpack_tools import RUN_ID, USER, Prepare, Unpack

from j2c_lab.errors import StoreError
from j2c_lab.formats.run import OutputFile, SavedOutputs
from j2c_lab.store import layout
from j2c_lab.unpack.outputs import find_outputs
from j2c_lab.unpack.saver import Saver

STEPS = """
import os, time
path = os.path.join(os.environ["J2C_OUTPUT_DIR"], "step")
step = int(open(path).read()) if os.path.exists(path) else 0
print("begins at", step, flush=True)
if step:
    raise SystemExit
with open(path + ".part", "w") as file:
    file.write("7")
os.replace(path + ".part", path)
parent = os.getppid()
while os.getppid() == parent:
    time.sleep(0.05)
"""


class Place:
    """A directory of outputs, a saver, and what it sent."""

    def __init__(self, directory: Path) -> None:
        self.outputs = directory / "outputs"
        self.outputs.mkdir()
        self.copies = directory / "copies"
        self.copies.mkdir()
        self.sent: dict[str, bytes] = {}
        self.published: list[list[OutputFile]] = []
        self.told: list[tuple[int, int, int]] = []
        self.away = False
        self.saver = Saver(
            self.find,
            self.put,
            self.published.append,
            lambda *values: self.told.append(values),
            str(self.copies),
            3600,
        )

    def find(self) -> list:
        return find_outputs(os.fsencode(self.outputs), b"/nowhere", [])[0]

    def put(self, digest: str, path: Path) -> None:
        if self.away:
            raise StoreError("away")
        content = path.read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest
        self.sent[digest] = content

    def state(self) -> dict[str, bytes]:
        return {file.path: self.sent[file.sha256] for file in self.published[-1]}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def saved_state(unpack: Unpack, attempt: int = 1) -> SavedOutputs | None:
    path = unpack.store.local_path(layout.saved_outputs(USER, RUN_ID, attempt))
    assert path is not None
    return SavedOutputs.from_json(path.read_bytes()) if path.exists() else None


def test_each_save_publishes_what_is_there_now(place: Place) -> None:
    (place.outputs / "a").write_bytes(b"one")
    place.saver.save()
    (place.outputs / "a").write_bytes(b"two")
    (place.outputs / "b").write_bytes(b"")
    place.saver.save()
    assert place.state() == {"a": b"two", "b": b""}
    assert place.told == [(1, 3, 0), (2, 3, 0)]
    assert list(place.copies.iterdir()) == []


def test_nothing_new_publishes_nothing_and_sends_nothing(place: Place) -> None:
    path = place.outputs / "a"
    path.write_bytes(b"one")
    os.utime(path, (1, 1))
    place.saver.save()
    place.saver.save()
    assert len(place.published) == 1


def test_a_file_that_is_being_written_keeps_its_last_saved_state(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place.outputs / "checkpoint"
    path.write_bytes(b"whole")
    place.saver.save()
    path.write_bytes(b"half of")
    checks = iter(range(3))

    def write_on() -> None:
        if next(checks, None) is not None:
            with open(path, "ab") as file:
                file.write(b" the next")

    # Called before each piece that is copied.
    monkeypatch.setattr(place.saver, "_check", write_on)
    (place.outputs / "other").write_bytes(b"")
    place.saver.save()
    assert place.state() == {"checkpoint": b"whole", "other": b""}
    assert place.told[-1] == (2, 5, 1)
    place.saver.save()
    assert place.state()["checkpoint"].startswith(b"half of the next")


def test_a_run_that_deletes_all_does_not_take_its_saved_state_along(place: Place) -> None:
    (place.outputs / "a").write_bytes(b"one")
    place.saver.save()
    (place.outputs / "a").unlink()
    place.saver.save()
    assert place.state() == {"a": b"one"}


def test_a_store_that_is_away_keeps_the_state_before(place: Place) -> None:
    (place.outputs / "a").write_bytes(b"one")
    place.saver.save()
    place.away = True
    (place.outputs / "a").write_bytes(b"two!")
    place.saver.save()
    assert place.state() == {"a": b"one"}
    place.away = False
    place.saver.save()
    assert place.state() == {"a": b"two!"}


def test_an_attempt_that_was_killed_is_gone_on_with_from_its_last_save(prepare: Prepare) -> None:
    unpack = prepare(STEPS, save_every=0.2)
    process = unpack.start()
    until = time.monotonic() + 30
    while saved_state(unpack) is None and time.monotonic() < until:
        time.sleep(0.05)
    saved = saved_state(unpack)
    assert saved is not None
    assert [(file.path, file.size) for file in saved.outputs] == [("step", 1)]
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    code, errors = unpack.run()
    assert (code, errors) == (0, "")
    assert unpack.log(2) == b"begins at 7\n"
    (restored,) = [event for event in unpack.events(2) if event["event"] == "restored"]
    assert (restored["from_attempt"], restored["files"]) == (1, 1)


def test_a_run_that_does_not_ask_has_no_saves_on_the_way(prepare: Prepare) -> None:
    unpack = prepare("import os; open(os.environ['J2C_OUTPUT_DIR'] + '/a', 'w').write('x')")
    assert unpack.run() == (0, "")
    assert saved_state(unpack) is None
