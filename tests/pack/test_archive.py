"""A bundle as one file."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from pack_tools import listing, pack_tree, write_tree

from j2c_lab.errors import FormatError
from j2c_lab.formats.manifest import ENVIRONMENT, USER, EnvironmentRef, Manifest
from j2c_lab.pack.archive import read_archive, write_archive
from j2c_lab.pack.bundle import pack_bundle
from j2c_lab.pack.plan import EnvironmentPlan, LayerPlan, PlannedFile
from j2c_lab.store import layout
from j2c_lab.store.local import LocalStore

TREE = {"a.py": "x = 1\n", "data.bin": b"\0\1" * (3 << 20), "empty/": "", "é/b": "y"}


def test_plain_tar_opens_it_with_the_manifest_first(root: Path, store: LocalStore, tmp_path: Path):
    write_tree(root, TREE)
    (root / "link").symlink_to("a.py")
    result = pack_tree(root, store)
    archive = tmp_path / "experiment.tar.zst"
    size = asyncio.run(write_archive(result.manifest, store, archive))
    assert size == archive.stat().st_size
    names = run("tar", "--zstd", "-tf", archive).splitlines()
    assert names[0] == "manifest.json"
    (tmp_path / "out").mkdir()
    assert run("tar", "--zstd", "-xf", archive, "-C", tmp_path / "out") == ""
    assert listing(tmp_path / "out" / "project") == listing(root)
    stored = (tmp_path / "out" / "manifest.json").read_bytes()
    assert Manifest.from_json(stored) == result.manifest


def test_another_store_gets_the_same_bundle_from_it(root: Path, store: LocalStore, tmp_path: Path):
    write_tree(root, TREE)
    result = pack_tree(root, store)
    asyncio.run(write_archive(result.manifest, store, tmp_path / "e.tar.zst"))
    other = LocalStore(tmp_path / "other")
    assert asyncio.run(read_archive(tmp_path / "e.tar.zst", other)) == result.manifest
    for layer in result.manifest.layers:
        key = layout.layer(layer.digest)
        assert (other.directory / key).read_bytes() == (store.directory / key).read_bytes()
    assert (other.directory / layout.bundle(result.digest)).exists()


def test_packages_of_the_user_base_do_not_clash_with_those_of_the_environment(
    store: LocalStore, tmp_path: Path
):
    plan = environment_with_both_places()
    result = asyncio.run(pack_bundle(None, plan, store))
    archive = tmp_path / "e.tar.zst"
    asyncio.run(write_archive(result.manifest, store, archive))
    (tmp_path / "out").mkdir()
    run("tar", "--zstd", "-xf", archive, "-C", tmp_path / "out")
    assert (tmp_path / "out" / "site-packages" / "m.py").read_text() == "environment"
    assert (tmp_path / "out" / "user" / "site-packages" / "m.py").read_text() == "user"
    assert os.readlink(tmp_path / "out" / "user" / "site-packages" / "link") == "m.py"
    other = LocalStore(tmp_path / "other")
    manifest = asyncio.run(read_archive(archive, other))
    digests = [layer.digest for layer in result.manifest.layers]
    assert [layer.digest for layer in manifest.layers] == digests
    for layer in manifest.layers:
        assert (other.directory / layout.layer(layer.digest)).stat().st_size == layer.packed_size


@pytest.mark.parametrize("place", [0.02, 0.3, 0.6, 0.9])
def test_a_damaged_archive_gives_no_layer_of_a_wrong_name(
    root: Path, store: LocalStore, tmp_path: Path, place: float
):
    write_tree(root, {"a.bin": os.urandom(1 << 20)})
    result = pack_tree(root, store)
    archive = tmp_path / "e.tar.zst"
    asyncio.run(write_archive(result.manifest, store, archive))
    content = bytearray(archive.read_bytes())
    content[int(len(content) * place)] ^= 0xFF
    archive.write_bytes(content)
    other = LocalStore(tmp_path / "other")
    with pytest.raises(FormatError):
        asyncio.run(read_archive(archive, other))
    assert not list(other.directory.glob("layers/**/*.zst"))
    assert not list(other.directory.glob("bundles/*"))


def test_a_truncated_archive_is_refused(root: Path, store: LocalStore, tmp_path: Path):
    write_tree(root, {"a.bin": os.urandom(1 << 20)})
    result = pack_tree(root, store)
    archive = tmp_path / "e.tar.zst"
    asyncio.run(write_archive(result.manifest, store, archive))
    os.truncate(archive, archive.stat().st_size // 2)
    with pytest.raises(FormatError, match="ends too early"):
        asyncio.run(read_archive(archive, LocalStore(tmp_path / "other")))


def test_another_tar_file_is_refused(tmp_path: Path):
    (tmp_path / "x").write_text("x")
    run("tar", "--zstd", "-cf", tmp_path / "x.tar.zst", "-C", tmp_path, "x")
    with pytest.raises(FormatError, match="does not begin with"):
        asyncio.run(read_archive(tmp_path / "x.tar.zst", LocalStore(tmp_path / "other")))


def environment_with_both_places() -> EnvironmentPlan:
    layers = []
    for place in (ENVIRONMENT, USER):
        files = [
            PlannedFile(b"site-packages/m.py", "f", False, None, None, place.encode()),
            PlannedFile(b"site-packages/link", "l", False, None, None, b"m.py"),
        ]
        layers.append(LayerPlan("m", place, files))
    ref = EnvironmentRef(
        kind="venv",
        python="3.11",
        python_full="3.11.7",
        implementation="cpython",
        platform="linux-x86_64",
        libc="",
        system_site=True,
        distributions=[],
    )
    return EnvironmentPlan(
        ref=ref, distributions=[], layers=layers, held={}, left_out=[], warnings=[]
    )


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr
