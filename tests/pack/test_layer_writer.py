"""Making one layer."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pack_tools import settle, write_tree

from j2c_lab.errors import PackError
from j2c_lab.formats.digest import Entry, layer_digest
from j2c_lab.formats.tar import FIXED_MTIME, mtime_of
from j2c_lab.formats.zstd import ZstdDecompressor
from j2c_lab.pack.file_hashes import key_of
from j2c_lab.pack.layer_writer import LayerResult, hash_layer, make_layer, write_layer
from j2c_lab.pack.plan import PlannedFile

_name = st.binary(min_size=1, max_size=130).filter(
    lambda b: b not in (b".", b"..") and b"/" not in b and b"\0" not in b
)
_content = st.one_of(st.binary(max_size=2000), st.integers(0, 3 << 20).map(bytes))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    files=st.dictionaries(_name, st.tuples(_content, st.booleans()), max_size=6),
    links=st.dictionaries(_name, st.binary(min_size=1, max_size=300).filter(lambda b: 0 not in b)),
    empty=st.sets(_name, max_size=3),
)
def test_any_entries_are_read_back_by_tarfile_as_they_were(files, links, empty):
    planned = [
        PlannedFile(b"project/f/" + name, "f", executable, None, None, data)
        for name, (data, executable) in files.items()
    ]
    planned += [PlannedFile(b"project/l/" + n, "l", False, None, None, t) for n, t in links.items()]
    planned += [PlannedFile(b"project/d/" + n, "d", False, None, None) for n in empty]
    result, data = written(planned)
    entries = read_back(data)
    assert [entry.path for entry in entries] == sorted(file.path for file in planned)
    assert layer_digest(entries) == result.digest
    assert result.packed_size == len(data)
    assert result.unpacked_size == sum(len(content) for content, _ in files.values())
    assert hash_layer(planned, [None] * len(planned), ignore).digest == result.digest


def test_files_of_every_size_around_the_pieces(tmp_path: Path):
    sizes = [0, 1, 511, 512, 513, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (3 << 20) + 7]
    write_tree(tmp_path, {f"{size}.{end}": os.urandom(size) for size in sizes for end in "ab"})
    planned = plan(tmp_path)
    result, data = written(planned)
    assert layer_digest(read_back(data)) == result.digest
    assert hash_layer(planned, [None] * len(planned), ignore).digest == result.digest


def test_a_layer_ends_without_end_of_archive_so_that_layers_can_be_joined(tmp_path: Path):
    _, one = written([PlannedFile(b"project/a", "f", False, None, None, b"a")])
    _, two = written([PlannedFile(b"project/b", "f", False, None, None, b"b")])
    (tmp_path / "joined.tar.zst").write_bytes(one + two)
    done = subprocess.run(
        ["tar", "--zstd", "-tf", str(tmp_path / "joined.tar.zst")], capture_output=True, text=True
    )
    assert done.stdout.split() == ["project/a", "project/b"]


def test_the_same_files_give_the_same_bytes(tmp_path: Path):
    write_tree(tmp_path, {"b": "x" * 100, "a/c.py": "y = 1\n"})
    first = written(plan(tmp_path))[1]
    os.utime(tmp_path / "b", (1, 1))
    assert written(list(reversed(plan(tmp_path))))[1] == first


def test_python_sources_of_equal_size_get_different_times(tmp_path: Path):
    write_tree(tmp_path, {"a.py": "x = 1\n", "b.py": "x = 2\n", "c.txt": "x"})
    members = {m.name: m.mtime for m in tar_of(written(plan(tmp_path))[1]).getmembers()}
    assert members["project/a.py"] != members["project/b.py"]
    assert members["project/c.txt"] == FIXED_MTIME


def test_a_python_source_too_large_for_the_buffer_is_read_twice(tmp_path: Path):
    source = b"x = 1\n" * 400_000
    write_tree(tmp_path, {"a.py": source})
    result, data = written(plan(tmp_path))
    assert layer_digest(read_back(data)) == result.digest
    content = hashlib.sha256(source).digest()
    assert tar_of(data).getmembers()[0].mtime == mtime_of(b"a.py", content)


def test_hashes_of_settled_files_are_returned_to_be_remembered(tmp_path: Path):
    write_tree(tmp_path, {"a": "x", "b": "y" * (2 << 20)})
    settle()
    planned = plan(tmp_path)
    result, _ = written(planned)
    assert result.hashes == {
        planned[0].key: hashlib.sha256(b"x").digest(),
        planned[1].key: hashlib.sha256(b"y" * (2 << 20)).digest(),
    }
    (tmp_path / "a").write_text("z")
    assert planned[0].key not in hash_layer(plan(tmp_path), [None, None], ignore).hashes


@pytest.mark.parametrize("size", [100, 5 << 20])
def test_a_file_that_changes_once_while_it_is_read_is_read_again(tmp_path: Path, size: int):
    write_tree(tmp_path, {"a": b"1" * size, "b": b"1" * size})
    planned = plan(tmp_path)
    changed = []

    def change(_size: int, _files: int) -> None:
        # Called while or after the first file is read, before the layer is finished.
        if not changed:
            changed.append(True)
            (tmp_path / "b").write_bytes(b"2" * (size + 1))

    with open(tmp_path.parent / "out", "w+b") as output:
        result = write_layer(planned, output, change)
        output.seek(0)
        entries = read_back(output.read())
    assert layer_digest(entries) == result.digest
    assert entries[1].size == size + 1


def test_a_file_that_grows_without_end_is_an_error(tmp_path: Path):
    write_tree(tmp_path, {"log": b"1" * (8 << 20)})
    planned = plan(tmp_path)
    stop = threading.Event()

    def grow() -> None:
        with open(tmp_path / "log", "ab", buffering=0) as file:
            while not stop.is_set():
                file.write(b"more")

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        with pytest.raises(PackError, match="log changes while it is read") as caught:
            make_layer(planned, str(tmp_path / "out"), ignore)
        with pytest.raises(PackError, match="log changes while it is read"):
            hash_layer(planned, [None], ignore)
    finally:
        stop.set()
        writer.join()
    assert "leave it out" in caught.value.remedy
    assert not (tmp_path / "out").exists()


def test_a_file_that_became_a_fifo_does_not_hang(tmp_path: Path):
    write_tree(tmp_path, {"a": "x"})
    planned = plan(tmp_path)
    (tmp_path / "a").unlink()
    os.mkfifo(tmp_path / "a")
    with pytest.raises(PackError):
        make_layer(planned, str(tmp_path / "out"), ignore)


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path):
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    write_tree(tmp_path, {"a": os.urandom(3 << 20)})
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(OSError):
        write_layer(plan(tmp_path), full, ignore)


def plan(root: Path) -> list[PlannedFile]:
    return [
        PlannedFile(
            b"project/" + os.fsencode(path.relative_to(root)),
            "f",
            bool(path.stat().st_mode & 0o100),
            os.fsencode(path),
            key_of(path.stat()),
        )
        for path in sorted(root.rglob("*"))
        if path.is_file()
    ]


def written(files: list[PlannedFile]) -> tuple[LayerResult, bytes]:
    output = io.BytesIO()
    result = write_layer(files, output, ignore)
    return result, output.getvalue()


def tar_of(data: bytes) -> tarfile.TarFile:
    plain = io.BytesIO(plain_of(data))
    return tarfile.open(fileobj=plain, encoding="utf-8", errors="surrogateescape")


def plain_of(data: bytes) -> bytes:
    """Return what whole frames, one after another, hold."""
    plain = b""
    while data:
        decompressor = ZstdDecompressor()
        plain += decompressor.decompress(data)
        assert decompressor.eof
        data = decompressor.unused_data
    return plain


def read_back(data: bytes) -> list[Entry]:
    entries = []
    if not plain_of(data):
        return []
    archive = tar_of(data)
    for member in archive.getmembers():
        path = os.fsencode(member.name)
        assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
        if member.isdir():
            entries.append(Entry(path, "d", False, 0, b""))
        elif member.issym():
            entries.append(Entry(path, "l", False, 0, os.fsencode(member.linkname)))
        else:
            content = archive.extractfile(member)
            assert content is not None
            hashed = hashlib.sha256(content.read()).digest()
            assert member.mode in (0o644, 0o755)
            assert member.mtime == mtime_of(path, hashed)
            entries.append(Entry(path, "f", member.mode == 0o755, member.size, hashed))
    return entries


def ignore(_size: int, _files: int) -> None:
    pass
