"""Outputs come back whole, and only into the directory they were meant for."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from run_tools import Desk, run

from j2c_lab.errors import DigestMismatchError, NotFoundError, UnsafePathError
from j2c_lab.formats.run import OutputFile, SavedOutputs
from j2c_lab.runs.outputs import Fetched, fetch
from j2c_lab.store import layout


def saved(desk: Desk, files: dict[str, bytes], damaged: bool = False) -> str:
    """Return a run that ended with these outputs."""

    async def work() -> str:
        run_id = await desk.make_run()
        await desk.submitted(run_id)
        await desk.started(run_id)
        outputs = []
        for path, content in files.items():
            sha256 = hashlib.sha256(content).hexdigest()
            outputs.append(
                OutputFile(path=path, size=len(content), sha256=sha256, executable=path == "run")
            )
            data = content[:-1] + b"?" if damaged else content
            await desk.store.put(layout.output(desk.user, run_id, sha256), data)
        await desk.ended(run_id, outputs=outputs)
        return run_id

    return run(work())


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_what_was_saved_comes_back_byte_for_byte(desk: Desk, tmp_path: Path) -> None:
    files = {"model": os.urandom(3_000_000), "deep/er/log": b"", "run": b"#!/bin/sh\n", "жук": b"x"}
    run_id = saved(desk, files)
    fetched = run(fetch(desk.ledger, run_id, tmp_path / "out"))
    assert tree(tmp_path / "out") == files
    assert (fetched.files, fetched.skipped) == (4, 0)
    assert os.access(tmp_path / "out/run", os.X_OK)
    assert not os.access(tmp_path / "out/model", os.X_OK)


def test_what_is_there_already_is_not_read_again(desk: Desk, tmp_path: Path) -> None:
    run_id = saved(desk, {"a": b"one", "b": b"two"})
    run(fetch(desk.ledger, run_id, tmp_path / "out"))
    (tmp_path / "out/b").write_bytes(b"???")
    again = run(fetch(desk.ledger, run_id, tmp_path / "out"))
    assert again == Fetched(tmp_path / "out", 2, 3, 1)
    assert tree(tmp_path / "out") == {"a": b"one", "b": b"two"}


def test_a_part_from_an_interrupted_fetch_is_gone_on_with(desk: Desk, tmp_path: Path) -> None:
    content = os.urandom(5_000_000)
    run_id = saved(desk, {"model": content})
    target = tmp_path / "out"
    target.mkdir()
    part = target / f".{hashlib.sha256(content).hexdigest()[:32]}.j2c-part"
    part.write_bytes(content[:2_000_000])
    starts = []
    read = desk.store.read

    def counted(key: str, start: int = 0) -> object:
        starts.append(start)
        return read(key, start)

    desk.store.read = counted  # type: ignore[method-assign,assignment]
    run(fetch(desk.ledger, run_id, target))
    assert starts == [2_000_000]
    assert tree(target) == {"model": content}


def test_a_wrong_part_is_thrown_away_and_the_next_fetch_is_right(
    desk: Desk, tmp_path: Path
) -> None:
    run_id = saved(desk, {"model": b"content"})
    target = tmp_path / "out"
    target.mkdir()
    part = target / f".{hashlib.sha256(b'content').hexdigest()[:32]}.j2c-part"
    part.write_bytes(b"wro")
    with pytest.raises(DigestMismatchError):
        run(fetch(desk.ledger, run_id, target))
    run(fetch(desk.ledger, run_id, target))
    assert tree(target) == {"model": b"content"}


def test_damaged_content_never_gets_its_name(desk: Desk, tmp_path: Path) -> None:
    run_id = saved(desk, {"model": b"content"}, damaged=True)
    with pytest.raises(DigestMismatchError):
        run(fetch(desk.ledger, run_id, tmp_path / "out"))
    assert tree(tmp_path / "out") == {}


@pytest.mark.parametrize(
    "path", ["../evil", "/etc/evil", "a/../../evil", "", ".", "a//b", "a/", "x\0y"]
)
def test_names_that_lead_out_are_refused_before_anything_is_written(
    desk: Desk, tmp_path: Path, path: str
) -> None:
    run_id = saved(desk, {"good": b"1", path: b"2"})
    with pytest.raises(UnsafePathError):
        run(fetch(desk.ledger, run_id, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_links_that_lie_in_the_directory_are_not_followed(desk: Desk, tmp_path: Path) -> None:
    run_id = saved(desk, {"sub/file": b"1"})
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/sub").symlink_to(outside)
    with pytest.raises(UnsafePathError):
        run(fetch(desk.ledger, run_id, tmp_path / "out"))
    assert list(outside.iterdir()) == []


def test_a_link_in_the_place_of_a_file_is_replaced_not_written_through(
    desk: Desk, tmp_path: Path
) -> None:
    run_id = saved(desk, {"file": b"new"})
    outside = tmp_path / "outside"
    outside.write_bytes(b"old")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/file").symlink_to(outside)
    run(fetch(desk.ledger, run_id, tmp_path / "out"))
    assert outside.read_bytes() == b"old"
    assert (tmp_path / "out/file").read_bytes() == b"new"


def test_a_run_that_has_not_ended_has_no_outputs_yet(desk: Desk, tmp_path: Path) -> None:
    async def work() -> str:
        run_id = await desk.make_run()
        await desk.submitted(run_id)
        return run_id

    with pytest.raises(NotFoundError, match="has not ended"):
        run(fetch(desk.ledger, run(work()), tmp_path / "out"))


async def save(desk: Desk, run_id: str, attempt: int, files: dict[str, bytes]) -> None:
    """Do what an attempt does every `save_every` seconds."""
    outputs = []
    for path, content in files.items():
        sha256 = hashlib.sha256(content).hexdigest()
        outputs.append(OutputFile(path=path, size=len(content), sha256=sha256))
        await desk.store.put(layout.output(desk.user, run_id, sha256), content)
    key = layout.saved_outputs(desk.user, run_id, attempt)
    await desk.store.put(key, SavedOutputs(saved=1.0, outputs=outputs).to_json())


def test_a_run_that_goes_on_or_was_lost_gives_its_last_saved_state(
    desk: Desk, tmp_path: Path
) -> None:
    async def work() -> str:
        run_id = await desk.make_run()
        await desk.submitted(run_id)
        await desk.started(run_id)
        await save(desk, run_id, 1, {"step": b"1", "log": b""})
        await save(desk, run_id, 1, {"step": b"2"})
        return run_id

    run_id = run(work())
    run(fetch(desk.ledger, run_id, tmp_path / "out"))
    assert tree(tmp_path / "out") == {"step": b"2"}


def test_an_attempt_that_saved_nothing_leaves_the_state_of_the_one_before(
    desk: Desk, tmp_path: Path
) -> None:
    async def work() -> str:
        run_id = await desk.make_run()
        await desk.submitted(run_id)
        await desk.started(run_id)
        await save(desk, run_id, 1, {"step": b"1"})
        await desk.started(run_id, attempt=2)
        await desk.ended(run_id, state="cancelled", attempt=2)
        return run_id

    run(fetch(desk.ledger, run(work()), tmp_path / "out"))
    assert tree(tmp_path / "out") == {"step": b"1"}
