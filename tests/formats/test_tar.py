"""Tar headers, read by those who know tar: Python's tarfile and GNU tar."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from j2c_lab.formats import tar

_part = st.binary(min_size=1, max_size=150).filter(
    lambda b: b not in (b".", b"..") and b"/" not in b and b"\0" not in b
)
_path = st.lists(_part, min_size=1, max_size=4).map(b"/".join)


@settings(max_examples=200, deadline=None)
@given(_path, st.binary(max_size=1500), st.booleans(), st.integers(0, 1 << 33))
def test_tarfile_reads_what_was_written(path: bytes, data: bytes, executable: bool, mtime: int):
    head = tar.header(path, tar.TYPE_FILE, size=len(data), executable=executable, mtime=mtime)
    member, content = only_member(head + data + tar.padding(len(data)))
    assert member.name.encode("utf-8", "surrogateescape") == path
    assert content == data
    assert member.mode == (0o755 if executable else 0o644)
    assert member.mtime == mtime
    assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")


@given(_path, _path)
def test_tarfile_reads_links_of_any_length(path: bytes, target: bytes):
    member, _ = only_member(tar.header(path, tar.TYPE_LINK, target=target))
    assert member.issym()
    assert member.linkname.encode("utf-8", "surrogateescape") == target


@pytest.mark.parametrize("size", [0, 1, (1 << 33) - 1, 1 << 33, 10 << 30, 1 << 60])
def test_sizes_of_8_gib_and_more_are_read_as_they_are(size: int):
    info = tarfile.TarInfo.frombuf(tar.header(b"x", tar.TYPE_FILE, size=size), "utf-8", "strict")
    assert info.size == size


@given(st.integers(0, 1 << 20))
def test_content_is_padded_to_whole_blocks(size: int):
    assert (size + len(tar.padding(size))) % tar.BLOCK == 0
    assert len(tar.padding(size)) < tar.BLOCK


def test_gnu_tar_has_nothing_to_complain_of():
    version = subprocess.run(["tar", "--version"], capture_output=True, text=True).stdout
    if "GNU tar" not in version:
        pytest.skip("tar is not GNU tar here")
    entries = [
        tar.header(b"project/empty/", tar.TYPE_DIRECTORY),
        tar.header(b"project/" + b"n" * 200, tar.TYPE_FILE, size=3) + b"abc" + tar.padding(3),
        tar.header(b"project/link", tar.TYPE_LINK, target=b"t" * 200),
        tar.END_OF_ARCHIVE,
    ]
    done = subprocess.run(["tar", "-tvf", "-"], input=b"".join(entries), capture_output=True)
    assert done.returncode == 0 and done.stderr == b""
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("drwxr-xr-x") and lines[0].endswith("project/empty/")
    assert lines[1].startswith("-rw-r--r--") and lines[1].endswith("project/" + "n" * 200)
    assert lines[2].startswith("lrwxr-xr-x") and lines[2].endswith("project/link -> " + "t" * 200)


def test_sources_of_another_content_have_another_time():
    one, two = hashlib.sha256(b"1").digest(), hashlib.sha256(b"2").digest()
    assert tar.mtime_of(b"a.py", one) != tar.mtime_of(b"a.py", two)
    assert tar.mtime_of(b"a.txt", one) == tar.mtime_of(b"a.txt", two) == tar.FIXED_MTIME


@given(st.binary(min_size=32, max_size=32))
def test_times_fit_into_what_bytecode_files_hold(content: bytes):
    assert tar.FIXED_MTIME <= tar.mtime_of(b"a.py", content) < 1 << 32


def only_member(data: bytes) -> tuple[tarfile.TarInfo, bytes | None]:
    stream = io.BytesIO(data + tar.END_OF_ARCHIVE)
    with tarfile.open(fileobj=stream, encoding="utf-8", errors="surrogateescape") as archive:
        (member,) = archive.getmembers()
        opened = archive.extractfile(member) if member.isreg() else None
        return member, opened.read() if opened else None
