"""What every store does: the directory, and S3 as three servers speak it."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from j2c_lab.errors import NotFoundError
from j2c_lab.store import layout
from j2c_lab.store.base import Store
from j2c_lab.store.check import check
from j2c_lab.store.opener import open_store
from tests.real.loops import asynchronous
from tests.real.s3_servers import BUCKET

MIB = 1 << 20


@pytest.fixture(params=["directory", "seaweed", "moto", "rclone"])
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The address of an empty store."""
    if request.param == "directory":
        yield (tmp_path / "store").as_uri()
        return
    server = request.getfixturevalue(request.param)
    for name, value in server.settings().items():
        monkeypatch.setenv(name, value)
    yield f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}"


@pytest.fixture
def store(url: str) -> Store:
    return open_store(url)


def test_the_url_opens_the_same_store_again(url: str) -> None:
    assert open_store(url).url == url
    assert open_store(url + "/").url == url
    assert open_store(open_store(url).url).url == url


@asynchronous
async def test_what_was_put_is_what_comes_back(store: Store) -> None:
    for data in (b"", b"x", os.urandom(70_000), bytes(range(256)) * 5000):
        assert await store.put("a/key", data) is True
        assert await store.get("a/key") == data
        assert b"".join([piece async for piece in store.read("a/key")]) == data


@asynchronous
async def test_a_get_begins_where_it_is_told(store: Store) -> None:
    await store.put("k", b"0123456789")
    assert await store.get("k", 4) == b"456789"
    assert await store.get("k", 9) == b"9"
    assert await store.get("k", 10) == b""
    assert await store.get("k", 11) == b""
    assert [piece async for piece in store.read("k", 7)] == [b"789"]
    await store.put("empty", b"")
    assert await store.get("empty", 0) == b""
    assert await store.get("empty", 3) == b""


@asynchronous
async def test_a_growing_object_gives_its_new_end(store: Store) -> None:
    text = b""
    for line in (b"first\n", b"second\n", b"third\n"):
        seen = len(text)
        text += line
        await store.put("journal/0000000001", text)
        assert await store.get("journal/0000000001", seen) == line


@asynchronous
async def test_a_missing_object_is_not_found(store: Store) -> None:
    await store.put("a/there", b"")
    for start in (0, 5):
        with pytest.raises(NotFoundError):
            await store.get("a/missing", start)
        with pytest.raises(NotFoundError):
            await store.get("a/there/below", start)
        with pytest.raises(NotFoundError):
            await store.get("a", start)
    with pytest.raises(NotFoundError):
        async for _ in store.read("missing"):
            pass


@asynchronous
async def test_a_put_replaces_the_whole_object(store: Store) -> None:
    await store.put("k", b"a long old value")
    await store.put("k", b"new")
    assert await store.get("k") == b"new"


@asynchronous
async def test_a_put_if_absent_leaves_what_is_there(store: Store) -> None:
    assert await store.put("k", b"first", if_absent=True) is True
    assert await store.put("k", b"second", if_absent=True) is False
    assert await store.get("k") == b"first"
    await store.delete(["k"])
    assert await store.put("k", b"third", if_absent=True) is True
    assert await store.get("k") == b"third"


@asynchronous
async def test_of_many_puts_if_absent_one_wins(url: str) -> None:
    stores = [open_store(url) for _ in range(4)]
    try:
        for round_ in range(3):
            key = f"runs/submission-{round_}"
            values = [f"{index}".encode() for index in range(8)]
            won = await asyncio.gather(
                *(
                    stores[index % len(stores)].put(key, value, if_absent=True)
                    for index, value in enumerate(values)
                )
            )
            assert won.count(True) == 1
            assert await stores[0].get(key) == values[won.index(True)]
    finally:
        for store in stores:
            await store.close()


@pytest.mark.parametrize("size", [0, 1000, 3 * MIB, 20 * MIB + 7])
@asynchronous
async def test_a_file_arrives_whole(store: Store, tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(data := os.urandom(size))
    seen: list[int] = []
    assert await store.put_file("layers/x", path, progress=seen.append) is True
    assert await store.get("layers/x") == data
    assert sum(seen) == size
    assert path.read_bytes() == data
    assert (await store.stat(["layers/x"]))["layers/x"].size == size
    pieces = [piece async for piece in store.read("layers/x", max(0, size - 5))]
    assert b"".join(pieces) == data[-5:]
    assert all(len(piece) <= MIB for piece in pieces)


@pytest.mark.parametrize("size", [1000, 17 * MIB])
@asynchronous
async def test_a_file_put_if_absent_leaves_what_is_there(
    store: Store, tmp_path: Path, size: int
) -> None:
    path = tmp_path / "file"
    path.write_bytes(data := os.urandom(size))
    assert await store.put_file("k", path, if_absent=True) is True
    (tmp_path / "other").write_bytes(os.urandom(size))
    assert await store.put_file("k", tmp_path / "other", if_absent=True) is False
    assert await store.get("k") == data


@pytest.mark.parametrize("there", [False, True])
@asynchronous
async def test_a_consumed_file_is_gone(store: Store, tmp_path: Path, there: bool) -> None:
    if there:
        await store.put("k", b"old")
    path = (store.staging() or tmp_path) / "file"
    path.write_bytes(b"content")
    assert await store.put_file("k", path, if_absent=there, consume=True) is not there
    assert not path.exists()
    assert await store.get("k") == (b"old" if there else b"content")


@asynchronous
async def test_stat_knows_what_exists(store: Store) -> None:
    before = time.time()
    await store.put("a/b", b"12345")
    await store.put("a/b.c", b"")
    found = await store.stat(["a/b", "a/b.c", "a/missing", "z", "a/b/c", "a"])
    assert {key: info.size for key, info in found.items()} == {"a/b": 5, "a/b.c": 0}
    assert all(abs(info.modified - before) < 60 for info in found.values())
    assert found["a/b"].key == "a/b"
    assert await store.stat([]) == {}


@asynchronous
async def test_stat_knows_many_layers(store: Store) -> None:
    digests = [f"{index * 7919 % 256:02x}" * 32 for index in range(60)]
    keys = [layout.layer(digest) for digest in digests]
    await asyncio.gather(*(store.put(key, b"x" * 3) for key in keys[::2]))
    await store.put("layers/sha256/zz", b"")
    found = await store.stat(iter([*keys, keys[0]]))
    assert set(found) == set(keys[::2])
    assert {info.size for info in found.values()} == {3}


@asynchronous
async def test_scan_is_sorted_and_goes_on_after_a_key(store: Store) -> None:
    keys = sorted(
        [
            *("runs/a/1", "runs/a/10", "runs/a/2/x", "runs/a/2/y/z", "runs/a/3"),
            *("runs/ab/1", "runs/b/1", "bundles/1", "runs/a/2-1"),
        ]
    )
    for index, key in enumerate(keys):
        await store.put(key, b"." * index)
    assert [info.key async for info in store.scan("")] == keys
    assert [info.size async for info in store.scan("")] == list(range(len(keys)))
    for prefix in ("runs/", "runs/a", "runs/a/", "runs/a/1", "runs/a/2/", "none/", "run"):
        below = [key for key in keys if key.startswith(prefix)]
        assert [info.key async for info in store.scan(prefix)] == below
        for after in (*keys, "runs/a/2", "runs/a/2/", "runs/a/zzz", "runs/a/2/y"):
            expected = [key for key in below if key > after]
            assert [info.key async for info in store.scan(prefix, after)] == expected, after


@asynchronous
async def test_names_are_the_next_components(store: Store) -> None:
    for key in ("runs/a/2/x", "runs/a/2/y/z", "runs/a/1", "runs/a/10/q", "runs/ab/1"):
        await store.put(key, b"")
    assert await store.list_names("runs/") == ["a", "ab"]
    assert await store.list_names("runs/a/") == ["1", "10", "2"]
    assert await store.list_names("runs/a/2/") == ["x", "y"]
    assert await store.list_names("runs/none/") == []


@asynchronous
async def test_more_than_a_page_of_objects_is_listed(url: str, store: Store) -> None:
    # A page is 1,000 keys. moto and rclone are too slow for so many, and page in no other way.
    slow = any(kind in os.environ.get("PYTEST_CURRENT_TEST", "") for kind in ("moto", "rclone"))
    keys = [f"many/{index:04d}/x" for index in range(120 if slow else 1050)]
    for start in range(0, len(keys), 150):
        await asyncio.gather(*(store.put(key, b"") for key in keys[start : start + 150]))
    assert [info.key async for info in store.scan("many/")] == keys
    assert [info.key async for info in store.scan("many/", keys[3])] == keys[4:]
    assert len(await store.list_names("many/")) == len(keys)
    assert len(await store.stat(keys)) == len(keys)


@asynchronous
async def test_deleted_objects_are_gone_and_missing_ones_no_error(store: Store) -> None:
    for key in ("d/a", "d/b/c", "d/e"):
        await store.put(key, b"x")
    await store.delete(iter(["d/a", "d/b/c", "d/missing"]))
    assert [info.key async for info in store.scan("")] == ["d/e"]
    # SeaweedFS clears up directories later: "b" may still be named.
    assert await store.list_names("d/") in (["e"], ["b", "e"])
    await store.delete([])


@asynchronous
async def test_keys_of_users_survive(store: Store) -> None:
    for user in ("ann@example.org", "a+b", "x_y.z-1"):
        await store.put(f"runs/{user}/1", user.encode())
        assert await store.get(f"runs/{user}/1") == user.encode()
    assert await store.list_names("runs/") == sorted(["ann@example.org", "a+b", "x_y.z-1"])


def test_a_store_serves_one_event_loop_after_another(url: str) -> None:
    store = open_store(url)

    async def put(value: bytes) -> None:
        await store.put("k", value)
        await store.close()

    async def get() -> bytes:
        try:
            return await store.get("k")
        finally:
            await store.close()

    asyncio.run(put(b"one"))
    assert asyncio.run(get()) == b"one"
    asyncio.run(put(b"two"))
    assert asyncio.run(get()) == b"two"


@asynchronous
async def test_a_renewed_object_is_young_and_the_same(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(data := os.urandom(17 * MIB))
    await store.put("small", b"x", if_absent=True)
    await store.put_file("large", path)
    before = await store.stat(["small", "large"])
    await asyncio.sleep(1.1)
    assert await store.renew(["small", "large", "missing", "small/below"]) == {"small", "large"}
    after = await store.stat(["small", "large"])
    assert all(after[key].modified > before[key].modified for key in before)
    assert await store.get("small") == b"x"
    assert await store.get("large") == data
    assert await store.put("small", b"y", if_absent=True) is False


@asynchronous
async def test_sweeping_leaves_what_is_young(store: Store) -> None:
    await store.put("k", b"x")
    assert await store.sweep(3600) == 0
    assert await store.get("k") == b"x"


@asynchronous
async def test_the_check_finds_a_good_store_good(store: Store) -> None:
    findings = [finding async for finding in check(store)]
    expected = "warning" if "rclone" in os.environ.get("PYTEST_CURRENT_TEST", "") else "ok"
    assert {finding.name: finding.severity for finding in findings} == {
        **dict.fromkeys(["write", "read", "range", "list", "parts", "clock", "delete"], "ok"),
        "once": expected,
    }
    assert [info.key async for info in store.scan("")] == []
