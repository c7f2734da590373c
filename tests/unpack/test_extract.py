"""Attacks on the unpacker, one by one, and what must get through unharmed."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unpack_tools import Item, Made, compress, digest_of, make_layer, tar_entry

from j2c_lab.errors import DigestMismatchError, FormatError, UnsafePathError
from j2c_lab.formats import tar
from j2c_lab.formats.digest import DIRECTORY, LINK
from j2c_lab.formats.zstd import CompressionParameter, ZstdCompressor
from j2c_lab.unpack.extract import Expected, Extracted, extract_layer
from j2c_lab.unpack.place import make_links


def extract(made: Made, root: Path, piece: int = 1 << 16, packed: bytes | None = None) -> Extracted:
    packed = made.packed if packed is None else packed
    ref = made.ref
    pieces = (packed[at : at + piece] for at in range(0, len(packed), piece))
    expected = Expected(ref.digest, ref.packed_size, ref.unpacked_size, ref.files)
    target = root / "target"
    target.mkdir(exist_ok=True)
    return extract_layer(pieces, expected, {b"project": os.fsencode(target)})


def outside(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.name != "target"]


def archive(*items: Item) -> Made:
    """Items in the order given, however wrong, with a manifest that agrees to all."""
    plain = b"".join(map(tar_entry, items))
    return make_layer(items, plain=plain)


def with_type(kind: bytes) -> Made:
    head = tar.header(b"project/x", kind)
    return make_layer([Item(b"project/x")], plain=head)


def patched(at: int, field: bytes) -> Made:
    """A one-file layer whose header has another field, and a right checksum."""
    block = bytearray(tar_entry(Item(b"project/x", b"abc")))
    block[at : at + len(field)] = field
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    return make_layer([Item(b"project/x", b"abc")], plain=bytes(block))


GOOD = [Item(b"project/a", b"aa"), Item(b"project/b", b"b" * 3000)]
SKIPPABLE = b"\x50\x2a\x4d\x18" + bytes(4)
PLAIN = b"".join(map(tar_entry, GOOD))

HOSTILE: dict[str, Callable[[], Made]] = {
    "parent directory": lambda: archive(Item(b"project/../evil", b"x")),
    "parent at the end": lambda: archive(Item(b"project/a/..", b"x")),
    "absolute path": lambda: archive(Item(b"/tmp/evil", b"x")),
    "absolute in place": lambda: archive(Item(b"project//etc/evil", b"x")),
    "dot": lambda: archive(Item(b"project/./x", b"x")),
    "other place": lambda: archive(Item(b"site-packages/x", b"x")),
    "no place": lambda: archive(Item(b"x", b"x")),
    "empty name": lambda: archive(Item(b"", b"x")),
    "the place as a file": lambda: archive(Item(b"project", b"x")),
    "link to parent": lambda: archive(Item(b"project/l", b"../evil", LINK)),
    "link to absolute": lambda: archive(Item(b"project/l", b"/etc/passwd", LINK)),
    "empty link": lambda: archive(Item(b"project/l", b"", LINK)),
    "write through a link": lambda: archive(
        Item(b"project/l", b"..", LINK), Item(b"project/l/evil", b"x")
    ),
    "twice": lambda: archive(Item(b"project/a", b"1"), Item(b"project/a", b"2")),
    "out of order": lambda: archive(Item(b"project/b", b"1"), Item(b"project/a", b"2")),
    "file as a directory": lambda: archive(Item(b"project/a", b"1"), Item(b"project/a/b", b"2")),
    "hard link": lambda: with_type(b"1"),
    "character device": lambda: with_type(b"3"),
    "block device": lambda: with_type(b"4"),
    "fifo": lambda: with_type(b"6"),
    "contiguous file": lambda: with_type(b"7"),
    "pax header": lambda: with_type(b"x"),
    "global pax header": lambda: with_type(b"g"),
    "sparse file": lambda: with_type(b"S"),
    "multi volume": lambda: with_type(b"M"),
    "old regular file": lambda: with_type(b"\0"),
    "setuid": lambda: patched(100, b"0004755"),
    "owner": lambda: patched(108, b"0001750"),
    "device number": lambda: patched(329, b"0000001"),
    "prefix field": lambda: patched(345, b"../../evil"),
    "other mtime": lambda: patched(136, b"00000000001"),
    "negative size": lambda: patched(124, b"\xff" * 12),
    "huge size": lambda: patched(124, b"\x80" + b"\xff" * 11),
    "no number": lambda: patched(124, b"xxxxxxxxxxx\0"),
    "bytes behind the name": lambda: patched(20, b"hidden"),
    "wrong checksum": lambda: make_layer(GOOD, plain=PLAIN[:148] + b"777777" + PLAIN[154:]),
    "data in the padding": lambda: make_layer(GOOD, plain=PLAIN[:600] + b"!" + PLAIN[601:]),
    "end of archive": lambda: make_layer(GOOD, plain=PLAIN + tar.END_OF_ARCHIVE),
    "half a block behind": lambda: make_layer(GOOD, plain=PLAIN + b"x" * 100),
    "cut within content": lambda: make_layer(GOOD, plain=PLAIN[:-1024]),
    "cut within a header": lambda: make_layer(GOOD, plain=PLAIN[:700]),
    "an entry less": lambda: make_layer(GOOD, plain=PLAIN[:1024]),
    "more entries": lambda: make_layer(GOOD, files=1),
    "more bytes": lambda: make_layer(GOOD, unpacked_size=3001),
    "other content": lambda: make_layer(GOOD, plain=PLAIN.replace(b"aa", b"ab", 1)),
    "other digest": lambda: make_layer(GOOD, digest="0" * 64),
    "endless name": lambda: make_layer(
        [Item(b"project/x")], plain=tar_entry(Item(b"project/" + b"x" * 100_000))
    ),
    "two long names": lambda: make_layer(
        [Item(b"project/x")],
        plain=tar_entry(Item(b"project/" + b"x" * 200))[:1024]
        + tar_entry(Item(b"project/" + b"y" * 200)),
    ),
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_hostile_layer_is_refused(attack: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError) as raised:
        extract(HOSTILE[attack](), tmp_path)
    assert "\n" not in str(raised.value)
    assert outside(tmp_path) == []
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


def test_nul_in_a_long_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        extract(archive(Item(b"project/" + b"x" * 200 + b"\0y", b"x")), tmp_path)


@pytest.mark.parametrize(
    ("case", "change"),
    [
        ("cut", lambda packed: packed[:-3]),
        ("cut early", lambda packed: packed[: len(packed) // 2]),
        ("empty", lambda packed: b""),
        ("text behind", lambda packed: packed + b"trailing garbage"),
        ("zeros behind", lambda packed: packed + bytes(512)),
        ("damaged", lambda packed: packed[:40] + bytes([packed[40] ^ 255]) + packed[41:]),
        ("no zstd", lambda packed: b"PK\3\4" + packed),
        ("endless empty frames", lambda packed: packed + compress(b"") * 300_000),
        (
            "endless skippable frames",
            lambda packed: packed + (b"\x50\x2a\x4d\x18" + bytes(4)) * 10**6,
        ),
    ],
)
def test_damaged_archive_is_refused(
    case: str, change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    made = make_layer(GOOD)
    with pytest.raises(FormatError):
        extract(made, tmp_path, packed=change(made.packed))


def test_bomb_is_refused_before_it_is_written(tmp_path: Path) -> None:
    made = make_layer([Item(b"project/zeros", bytes(200 << 20))], unpacked_size=1 << 20)
    with pytest.raises(FormatError, match="more than its 1048576 bytes"):
        extract(made, tmp_path)
    assert sum(p.stat().st_size for p in tmp_path.rglob("zeros")) == 0


def test_window_bomb_is_refused(tmp_path: Path) -> None:
    compressor = ZstdCompressor(
        options={CompressionParameter.window_log: 30, CompressionParameter.compression_level: 1}
    )
    packed = compressor.compress(PLAIN) + compressor.flush(ZstdCompressor.FLUSH_BLOCK)
    packed += compressor.flush()
    with pytest.raises(FormatError):
        extract(make_layer(GOOD), tmp_path, packed=packed)


def test_link_that_climbs_through_another_link_is_refused(tmp_path: Path) -> None:
    # By its names alone k/x stays inside (down, up); on disk k/d is the project itself.
    made = archive(Item(b"project/k/d", b"..", LINK), Item(b"project/k/x", b"d/../evil", LINK))
    (tmp_path / "evil").write_text("secret")
    target = tmp_path / "target"
    extracted = extract(made, tmp_path)
    with pytest.raises(UnsafePathError, match="leads out"):
        make_links(extracted.links, [os.fsencode(target)])
    assert not os.path.lexists(target / "k" / "x")


def test_digest_mismatch_says_what_it_found(tmp_path: Path) -> None:
    with pytest.raises(DigestMismatchError, match="holds other content"):
        extract(make_layer(GOOD, digest="0" * 64), tmp_path)


names = st.binary(min_size=1, max_size=40).filter(
    lambda name: not set(name) & {0, 0x2F} and name not in (b".", b"..")
)
contents = st.one_of(st.binary(max_size=2000), st.integers(0, 3 << 20).map(lambda n: b"x" * n))


@settings(max_examples=60, deadline=None)
@given(
    files=st.dictionaries(st.tuples(names, names), st.tuples(contents, st.booleans()), max_size=8),
    piece=st.sampled_from([1, 7, 100, 1 << 16]),
    umask=st.sampled_from([0o022, 0o077, 0o000]),
)
def test_any_files_arrive_exactly(
    tmp_path_factory: pytest.TempPathFactory,
    files: dict[tuple[bytes, bytes], tuple[bytes, bool]],
    piece: int,
    umask: int,
) -> None:
    root = tmp_path_factory.mktemp("any")
    items = [
        Item(b"project/d%s/%s.py" % (directory, name), data, executable=executable)
        for (directory, name), (data, executable) in files.items()
    ]
    items = list({item.path: item for item in items}.values())
    before = os.umask(umask)
    try:
        extract(make_layer(items), root, max(piece, 1))
    finally:
        os.umask(before)
    for item in items:
        place = os.fsencode(root / "target") + item.path[len(b"project") :]
        with open(place, "rb") as file:
            assert file.read() == item.data
            info = os.fstat(file.fileno())
        assert info.st_mode & 0o7777 == (0o755 if item.executable else 0o644)
        assert info.st_mtime == tar.mtime_of(item.path, hashlib.sha256(item.data).digest())
        assert os.stat(os.path.dirname(place)).st_mode & 0o7777 == 0o755


def test_long_names_links_and_empty_directories_arrive(tmp_path: Path) -> None:
    deep = b"project/" + b"/".join([b"d" * 90] * 4)
    items = [
        Item(deep + b"/file", b"x"),
        Item(b"project/empty", b"", DIRECTORY),
        Item(b"project/l", b"/".join([b"d" * 90] * 4) + b"/file", LINK),
        Item(b"project/self", b".", LINK),
        Item(b"project/gone", b"nowhere", LINK),
    ]
    extracted = extract(make_layer(items), tmp_path)
    target = tmp_path / "target"
    make_links(extracted.links, [os.fsencode(target)])
    assert (target / "l").read_bytes() == b"x"
    assert (target / "empty").is_dir()
    assert os.readlink(target / "gone") == "nowhere"
    assert os.readlink(target / "self") == "."


def test_size_beyond_eight_gibibytes_is_understood() -> None:
    head = tar.header(b"project/x", tar.TYPE_FILE, size=10 << 30)
    assert struct.unpack(">Q", head[128:136]) == (10 << 30,)
    with pytest.raises(FormatError, match="more than its 5 bytes"):
        extract_layer(
            [compress(head)], Expected(digest_of([]), 1000, 5, 1), {b"project": b"/nonexistent"}
        )
