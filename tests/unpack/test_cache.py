"""The node's cache: hard links, copies, damage, and many processes at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from unpack_tools import RUN_ID, Item, Made, Prepare, Unpack, make_layer

from j2c_lab.formats.digest import DIRECTORY, LINK
from j2c_lab.formats.manifest import ENVIRONMENT
from j2c_lab.store import layout
from j2c_lab.unpack.cache import open_cache

SITE = f"env/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


def package(name: str = "pack", files: int = 3) -> Made:
    base = f"site-packages/{name}".encode()
    items = [Item(base + b"/m%d.py" % n, b"value = %d\n" % n) for n in range(files)]
    return make_layer(
        [
            *items,
            Item(base + b"/tool.sh", b"#!/bin/sh\n", executable=True),
            Item(base + b"/alias.py", b"m0.py", LINK),
            Item(base + b"/empty", b"", DIRECTORY),
        ],
        ENVIRONMENT,
    )


def placed(unpack: Unpack, name: str = "pack/m0.py") -> Path:
    return unpack.workdir / RUN_ID / SITE / name


def remove_layer(unpack: Unpack, made: Made) -> None:
    """So that only the cache can have it."""
    path = unpack.store.local_path(layout.layer(made.ref.digest))
    assert path is not None
    path.unlink()


def test_next_run_is_hard_linked_from_the_cache(prepare: Prepare) -> None:
    made = package()
    unpack = prepare("import pack.m1, pack.alias; print(pack.m1.value)", made)
    assert unpack.run() == (0, "")
    remove_layer(unpack, made)
    assert unpack.run() == (0, "")
    assert unpack.log(2) == b"1\n"
    cached = unpack.cache / f"layers/{made.ref.digest[:2]}/{made.ref.digest}/tree/site-packages"
    assert os.path.samefile(placed(unpack), cached / "pack/m0.py")
    assert os.readlink(placed(unpack, "pack/alias.py")) == "m0.py"
    assert placed(unpack, "pack/empty").is_dir()
    assert placed(unpack, "pack/tool.sh").stat().st_mode & 0o777 == 0o755
    assert list((unpack.cache / "staging").iterdir()) == []


@pytest.mark.parametrize("damage", ["write", "append", "truncate", "chmod", "remove"])
def test_cached_file_that_a_run_changed_is_fetched_again(prepare: Prepare, damage: str) -> None:
    unpack = prepare("import pack.m0; print(pack.m0.value)", package())
    assert unpack.run() == (0, "")
    path = placed(unpack)
    cached = next(unpack.cache.glob("layers/*/*/tree/site-packages/pack/m0.py"))
    if damage == "write":
        path.write_text("value = 7\n")
    elif damage == "append":
        with path.open("a") as file:
            file.write("value = 7\n")
    elif damage == "truncate":
        path.write_text("")
    elif damage == "chmod":
        path.chmod(0o755)
    else:
        cached.unlink()
    assert unpack.run() == (0, "")
    assert unpack.log(2) == b"0\n"
    assert unpack.run() == (0, "")
    assert unpack.log(3) == b"0\n"


def test_run_that_writes_into_its_project_harms_no_later_run(prepare: Prepare) -> None:
    big = make_layer([Item(b"project/data.bin", os.urandom(17 << 20))])
    main = "f = open('data.bin', 'r+b'); print(f.read(5) == b'wrong'); f.seek(0); f.write(b'wrong')"
    unpack = prepare(main, big)
    for attempt in (1, 2, 3):
        assert unpack.run() == (0, "")
        assert unpack.log(attempt) == b"False\n"
        if attempt == 1:
            remove_layer(unpack, big)


def test_half_written_layer_in_the_cache_is_no_layer(prepare: Prepare) -> None:
    made = package()
    unpack = prepare("import pack.m2; print(pack.m2.value)", made)
    assert open_cache(str(unpack.cache)) is not None
    left = unpack.cache / "staging" / f"{made.ref.digest}.000000000000"
    (left / "tree/site-packages/pack").mkdir(parents=True)
    (left / "tree/site-packages/pack/m0.py").write_text("half")
    halfway = unpack.cache / f"layers/{made.ref.digest[:2]}/{made.ref.digest}"
    halfway.mkdir(parents=True)
    assert unpack.run() == (0, "")
    assert unpack.log() == b"2\n"
    assert not left.exists()


def test_cache_on_another_file_system_is_copied(prepare: Prepare) -> None:
    shm = Path("/dev/shm")
    if not os.access(shm, os.W_OK):
        pytest.skip("/dev/shm is not writable here")
    unpack = prepare("import pack.m1; print(pack.m1.value)", package())
    if shm.stat().st_dev == unpack.store.directory.stat().st_dev:
        pytest.skip("/dev/shm is no file system of its own here")
    other = shm / f"j2c-test-{os.getpid()}"
    try:
        unpack = unpack._replace(cache=other)
        assert unpack.run() == (0, "")
        assert unpack.run() == (0, "")
        assert unpack.log(2) == b"1\n"
        assert placed(unpack).stat().st_nlink == 1
    finally:
        subprocess.run(["rm", "-rf", other], check=True)


def test_unwritable_cache_is_done_without(prepare: Prepare, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    unpack = prepare("print('ran')", package())._replace(cache=tmp_path / "file" / "cache")
    assert unpack.run() == (0, "")
    assert unpack.log() == b"ran\n"


def test_unpacks_of_the_same_layers_at_once(prepare: Prepare, tmp_path: Path) -> None:
    layers = [package(f"p{n}", 120) for n in range(6)]
    unpack = prepare("import p0.m5, p5.m9; print(p0.m5.value + p5.m9.value)", *layers)
    beside = [unpack._replace(workdir=tmp_path / f"work{n}") for n in range(5)]
    with ThreadPoolExecutor(5) as pool:
        results = list(pool.map(Unpack.run, beside))
    assert results == [(0, "")] * 5
    assert [unpack.log(attempt) for attempt in range(1, 6)] == [b"14\n"] * 5
    assert len(list(unpack.cache.glob("layers/*/*"))) == 6
    assert list((unpack.cache / "staging").iterdir()) == []


def test_two_attempts_in_one_workdir_at_once_keep_apart(prepare: Prepare) -> None:
    unpack = prepare(
        "import os, time; open('mine', 'x'); print(os.getcwd())\n"
        "while not os.path.exists(os.environ['GO']): time.sleep(0.02)\n",
        env={"GO": str(prepare("").workdir) + "-go"},
    )
    first = unpack.start()
    unpack.wait_for_log(b"project", 1)
    second = unpack.start()
    unpack.wait_for_log(b"project", 2)
    Path(f"{unpack.workdir}-go").touch()
    assert (first.wait(30), second.wait(30)) == (0, 0)
    assert unpack.log(1) != unpack.log(2)
    for process in (first, second):
        process.communicate()


def test_files_of_two_packages_may_be_the_same_but_not_differ(prepare: Prepare) -> None:
    shared = Item(b"site-packages/tests/__init__.py", b"")
    one = make_layer([shared, Item(b"site-packages/one.py", b"x = 1\n")], ENVIRONMENT)
    two = make_layer([shared, Item(b"site-packages/two.py", b"x = 2\n")], ENVIRONMENT)
    unpack = prepare("import one, two, tests; print(one.x + two.x)", one, two)
    for attempt in (1, 2):
        assert unpack.run() == (0, "")
        assert unpack.log(attempt) == b"3\n"
        files = [path.name for path in placed(unpack, "tests").iterdir() if path.is_file()]
        assert files == ["__init__.py"]
    other = make_layer([Item(b"site-packages/one.py", b"x = 9\n")], ENVIRONMENT)
    clash = prepare("", one, other)._replace(workdir=unpack.workdir.with_name("other"))
    code, errors = clash.run()
    assert code == 125
    assert "two packages of the environment hold different files" in errors


@pytest.mark.parametrize("seed", range(6))
def test_killed_unpack_is_taken_up_again(prepare: Prepare, seed: int) -> None:
    layers = [package(f"p{n}", 150) for n in range(8)]
    unpack = prepare("import p7.m149; print(p7.m149.value)", *layers)
    process = unpack.start()
    # Moments spread over the fetch; which one is hit does not matter to the result.
    time.sleep(0.1 + 0.06 * seed)
    process.kill()
    process.communicate()
    assert unpack.run() == (0, "")
    attempts = sorted(int(p.name) for p in unpack.store.directory.glob("runs/*/*/attempts/*"))
    assert unpack.log(attempts[-1]) == b"149\n"
    assert unpack.outcome(attempts[-1]).state == "succeeded"
    for cached in unpack.cache.glob("layers/*/*"):
        assert (cached / "index.json").exists()
