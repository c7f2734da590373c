"""What is remembered between two packs, and what is not trusted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pack_tools import pack_tree, settle, write_tree

from j2c_lab.pack.file_hashes import Section, TreeCache, is_settled, key_of, signature_of
from j2c_lab.pack.plan import FileKey, PlannedFile
from j2c_lab.store.local import LocalStore

KEY = FileKey(1, 2, 3, 1_000_000_000_000_000_001, 1_000_000_000_000_000_001)


class TestSection:
    def test_what_was_saved_is_found_by_the_next(self, tmp_path: Path):
        section = Section(str(tmp_path / "a" / "hashes"))
        section.put(KEY, b"x" * 32)
        section.save()
        again = Section(str(tmp_path / "a" / "hashes"))
        assert again.get(KEY) == b"x" * 32
        assert again.get(KEY._replace(inode=3)) is None

    @pytest.mark.parametrize(
        "damage",
        [
            lambda data: data[:-1],
            lambda data: data[: len(data) // 2],
            lambda data: b"",
            lambda data: data[:50] + bytes([data[50] ^ 1]) + data[51:],
            lambda data: b"j2c-cache-2\n" + data[12:],
            lambda data: os.urandom(200),
        ],
    )
    def test_a_damaged_file_reads_as_empty_and_is_replaced(self, tmp_path: Path, damage):
        path = tmp_path / "hashes"
        section = Section(str(path))
        section.put(KEY, b"x" * 32)
        section.save()
        path.write_bytes(damage(path.read_bytes()))
        again = Section(str(path))
        assert again.get(KEY) is None
        again.put(KEY, b"y" * 32)
        again.save()
        assert Section(str(path)).get(KEY) == b"y" * 32

    def test_a_cache_that_cannot_be_written_is_no_error(self, tmp_path: Path):
        (tmp_path / "file").write_text("")
        section = Section(str(tmp_path / "file" / "hashes"))
        section.put(KEY, b"x")
        section.save()
        assert section.get(KEY) == b"x"

    def test_nothing_new_writes_nothing(self, tmp_path: Path):
        path = tmp_path / "hashes"
        section = Section(str(path))
        section.put(KEY, b"x")
        section.save()
        before = path.stat()
        again = Section(str(path))
        again.put(KEY, b"x")
        again.get(KEY)
        again.save()
        assert path.stat().st_ino == before.st_ino

    def test_what_two_writers_found_is_merged(self, tmp_path: Path):
        one, two = Section(str(tmp_path / "h")), Section(str(tmp_path / "h"))
        one.put(KEY, b"1")
        two.put(KEY._replace(inode=7), b"2")
        one.save()
        two.save()
        again = Section(str(tmp_path / "h"))
        assert (again.get(KEY), again.get(KEY._replace(inode=7))) == (b"1", b"2")

    def test_it_does_not_grow_for_ever(self, tmp_path: Path):
        for turn in range(6):
            section = Section(str(tmp_path / "h"))
            for number in range(1500):
                section.put((turn, number), b"x")
            section.save()
        kept = Section(str(tmp_path / "h"))
        assert kept.get((5, 0)) and kept.get((4, 1499)) and kept.get((0, 0)) is None

    def test_many_processes_at_once_leave_a_sound_file(self, tmp_path: Path):
        script = (
            "import sys; from j2c_lab.pack.file_hashes import Section\n"
            "for turn in range(30):\n"
            "    section = Section(sys.argv[1])\n"
            "    section.put((int(sys.argv[2]), turn), b'x' * 1000)\n"
            "    section.save()\n"
        )
        path = tmp_path / "h"
        running = [
            subprocess.Popen([sys.executable, "-c", script, str(path), str(n)]) for n in range(4)
        ]
        assert [process.wait() for process in running] == [0] * 4
        last = Section(str(path))
        assert any(last.get((n, 29)) for n in range(4))
        assert [entry.name for entry in tmp_path.iterdir()] == ["h"]


class TestTrust:
    def test_a_file_changed_within_a_tick_of_the_clock_is_not_trusted(self):
        now = KEY.ctime_ns
        assert not is_settled(KEY, now)
        assert not is_settled(KEY, now + 10_000_000)
        assert is_settled(KEY, now + 60_000_000)

    def test_a_change_in_the_future_is_not_trusted(self):
        assert not is_settled(KEY, KEY.ctime_ns - 10**12)

    def test_whole_seconds_are_taken_for_a_coarse_clock(self):
        coarse = KEY._replace(ctime_ns=1_000_000_000_000_000_000)
        assert not is_settled(coarse, coarse.ctime_ns + 1_900_000_000)
        assert is_settled(coarse, coarse.ctime_ns + 2_100_000_000)

    def test_a_set_modification_time_does_not_hide_a_change(self, root: Path, store: LocalStore):
        write_tree(root, {"a.txt": "one"})
        os.utime(root / "a.txt", (1, 1))
        settle()
        first = pack_tree(root, store)
        (root / "a.txt").write_text("two")
        os.utime(root / "a.txt", (1, 1))
        assert pack_tree(root, store).digest != first.digest

    def test_changes_in_quick_succession_are_all_seen(self, root: Path, store: LocalStore):
        digests = set()
        for number in range(20):
            (root / "a.txt").write_text(f"{number:03}")
            digests.add(pack_tree(root, store).digest)
        assert len(digests) == 20


class TestSignature:
    FILE = PlannedFile(b"project/a", "f", False, b"/x/a", KEY)

    def test_everything_that_may_change_the_layer_changes_it(self):
        variants = [
            self.FILE,
            self.FILE._replace(path=b"project/b"),
            self.FILE._replace(executable=True),
            self.FILE._replace(type="d"),
            self.FILE._replace(data=b"x"),
            self.FILE._replace(key=None),
            *[self.FILE._replace(key=KEY._replace(**{name: 99})) for name in FileKey._fields],
        ]
        assert len({signature_of([variant]) for variant in variants}) == len(variants)

    def test_it_is_the_same_in_every_process(self):
        script = (
            "from j2c_lab.pack.file_hashes import signature_of\n"
            "from j2c_lab.pack.plan import FileKey, PlannedFile\n"
            f"key = FileKey{tuple(KEY)}\n"
            "file = PlannedFile(b'project/' + bytes([97]), 'f', False, b'/elsewhere', key)\n"
            "print(signature_of([file]).hex())\n"
        )
        printed = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout
        assert printed.strip() == signature_of([self.FILE]).hex()


def test_the_cache_of_one_tree_does_not_hold_for_another(cache: Path):
    one = TreeCache(b"/a")
    one.hashes.put(KEY, b"x")
    one.save()
    assert TreeCache(b"/a").hashes.get(KEY) == b"x"
    assert TreeCache(b"/b").hashes.get(KEY) is None
    assert (cache / "trees").is_dir()


def test_a_key_names_what_stat_tells(tmp_path: Path):
    path = tmp_path / "a"
    path.write_text("x")
    info = path.stat()
    assert key_of(info) == (
        info.st_dev,
        info.st_ino,
        1,
        info.st_mtime_ns,
        info.st_ctime_ns,
    )
    assert is_settled(key_of(info), time.time_ns() + 10**10)
