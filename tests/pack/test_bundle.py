"""Packing a project into a store."""

from __future__ import annotations

from pathlib import Path

from pack_tools import extract, files_opened, listing, pack, pack_tree, settle, write_tree

from j2c_lab.formats.manifest import Manifest
from j2c_lab.pack.project import plan_project
from j2c_lab.store import layout
from j2c_lab.store.local import LocalStore

TREE = {
    "train.py": "print('hello')\n",
    "src/model.py": "x = 1\n",
    "src/empty.txt": "",
    "weights.bin": b"\0\1\2\3" * (2 << 20),
    "logs/": "",
}


def test_what_is_packed_comes_out_of_plain_tar(root: Path, store: LocalStore, tmp_path: Path):
    write_tree(root, TREE)
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o750)
    (root / "link").symlink_to("src/model.py")
    result = pack_tree(root, store)
    extract(result, store, tmp_path / "out")
    assert listing(tmp_path / "out" / "project") == listing(root)
    assert (tmp_path / "out" / "project" / "logs").is_dir()
    assert [layer.name for layer in result.manifest.layers] == ["project", "project/weights.bin"]
    assert len(result.sent) == 2 and not result.reused and result.new


def test_the_bundle_in_the_store_is_the_manifest(root: Path, store: LocalStore):
    write_tree(root, TREE)
    result = pack_tree(root, store)
    stored = (store.directory / layout.bundle(result.digest)).read_bytes()
    assert Manifest.from_json(stored) == result.manifest
    assert result.manifest.digest() == result.digest


def test_an_unchanged_project_is_neither_read_nor_sent(root: Path, store: LocalStore):
    write_tree(root, TREE)
    settle()
    first = pack_tree(root, store)
    with files_opened(root) as opened, files_opened(store.directory) as stored:
        second = pack_tree(root, store)
    assert opened == [] and stored == []
    assert second.digest == first.digest and not second.new
    assert second.sent == [] and second.sent_bytes == 0
    assert second.reused == first.manifest.layers


def test_one_changed_line_reads_and_sends_one_layer(root: Path, store: LocalStore):
    write_tree(root, TREE)
    settle()
    pack_tree(root, store)
    (root / "src" / "model.py").write_text("x = 2\n")
    with files_opened(root) as opened:
        result = pack_tree(root, store)
    assert [layer.name for layer in result.sent] == ["project"]
    assert not any(path.endswith(b"weights.bin") for path in opened)


def test_a_second_store_gets_everything(root: Path, store: LocalStore, tmp_path: Path):
    write_tree(root, TREE)
    settle()
    first = pack_tree(root, store)
    second = pack_tree(root, LocalStore(tmp_path / "other"))
    assert second.digest == first.digest
    assert second.sent == first.sent


def test_the_event_packed_sums_up(root: Path, store: LocalStore):
    write_tree(root, TREE)
    result, events = pack(plan_project(str(root)), store)
    assert events[-1]["event"] == "packed"
    assert events[-1]["bundle"] == result.digest
    assert events[-1]["sent"] == {"layers": 2, "bytes": result.sent_bytes}
    assert [event["action"] for event in events if event["event"] == "layer"] == ["sent", "sent"]


def test_nothing_is_left_in_staging(root: Path, store: LocalStore):
    write_tree(root, TREE)
    pack_tree(root, store)
    assert list((store.directory / ".staging").iterdir()) == []


def test_a_layer_that_somebody_removed_is_sent_again(root: Path, store: LocalStore):
    write_tree(root, TREE)
    settle()
    first = pack_tree(root, store)
    gone = first.manifest.layers[0]
    (store.directory / layout.layer(gone.digest)).unlink()
    second = pack_tree(root, store)
    assert [layer.digest for layer in second.sent] == [gone.digest]
    assert (store.directory / layout.layer(gone.digest)).exists()


def test_a_bundle_that_was_damaged_is_written_again(root: Path, store: LocalStore):
    write_tree(root, TREE)
    settle()
    first = pack_tree(root, store)
    path = store.directory / layout.bundle(first.digest)
    path.write_text("{}")
    assert pack_tree(root, store).sent == []
    assert Manifest.from_json(path.read_bytes()) == first.manifest
