"""Each thing that can break between a client and its S3 server, injected, on a real server.

The outcome is success, or one clear error with everything kept for the next try.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from j2c_lab.errors import StoreError
from j2c_lab.store import multipart
from j2c_lab.store.retry import Patience
from j2c_lab.store.s3 import S3Store
from tests.faults.proxy import Fault, FaultProxy, Request, Schedule
from tests.real.loops import asynchronous
from tests.real.s3_servers import BUCKET, S3Server, running, seaweed_server

MIB = 1 << 20
#: The smallest that S3 allows.
PART = 5 * MIB
#: Small enough for a test, large enough for a busy machine.
PATIENT = Patience(stall=1.0, first=20.0, total=20.0, pause=0.02, longest_pause=0.5)
HASTY = Patience(stall=1.0, first=0.5, total=0.5, pause=0.02, longest_pause=0.2)


@pytest.fixture
def proxy(seaweed: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    with FaultProxy(seaweed.endpoint) as proxy:
        for name, value in seaweed.settings(proxy.endpoint).items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multipart, "PART", PART)
    monkeypatch.setattr(multipart, "THRESHOLD", 2 * PART)


@pytest.fixture
def url() -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}"


@pytest.fixture
def store(proxy: FaultProxy, url: str) -> S3Store:
    return S3Store(url, PATIENT)


def first(operation: str, fault: Fault, times: int = 2) -> Schedule:
    """A schedule that breaks the first few requests of one kind."""
    seen = 0

    def schedule(request: Request) -> Fault | None:
        nonlocal seen
        if request.operation != operation:
            return None
        seen += 1
        return fault if seen <= times else None

    return schedule


TRANSIENT = [
    Fault("reset"),
    Fault("reset-body"),
    Fault("lose-answer"),
    Fault("answer", 500),
    Fault("answer", 502, "BadGateway"),
    Fault("answer", 503, "SlowDown"),
    Fault("answer", 429, "TooManyRequests"),
    Fault("answer-after", 500),
    Fault("stall", seconds=1.5),
]
names = [f"{fault.kind}-{fault.status}" for fault in TRANSIENT]


@pytest.mark.parametrize("fault", TRANSIENT, ids=names)
@asynchronous
async def test_a_passing_fault_is_not_seen(proxy: FaultProxy, store: S3Store, fault: Fault) -> None:
    data = os.urandom(200_000)
    for operation in ("put", "get", "head", "list", "delete"):
        proxy.schedule = first(operation, fault, times=1 if fault.kind == "stall" else 2)
        await store.put("k", data)
        assert await store.get("k") == data
        assert (await store.stat(["k"]))["k"].size == len(data)
        assert [info.key async for info in store.scan("")] == ["k"]
        await store.delete(["k"])
        assert await store.stat(["k"]) == {}
        assert proxy.faults[fault.kind] > 0


@pytest.mark.parametrize("fault", TRANSIENT, ids=names)
@asynchronous
async def test_a_put_if_absent_whose_answer_was_lost_knows_that_it_won(
    proxy: FaultProxy, store: S3Store, fault: Fault
) -> None:
    assert await store.put("warm", b"", if_absent=True)
    for times in (1, 2) if fault.kind != "stall" else (1,):
        proxy.schedule = first("put", fault, times)
        assert await store.put(f"k{times}", b"mine", if_absent=True) is True
        assert await store.get(f"k{times}") == b"mine"
        proxy.schedule = first("put", fault, times)
        assert await store.put(f"k{times}", b"mine", if_absent=True) is False
        assert await store.get(f"k{times}") == b"mine"


#: No server answers a part with a body.
IN_PARTS = [
    (operation, fault)
    for operation in ("create", "part", "complete")
    for fault in [*TRANSIENT[:5], Fault("answer", 200), Fault("answer-after", 200)]
    if operation != "part" or fault.status != 200
]


@pytest.mark.parametrize(
    ("operation", "fault"), IN_PARTS, ids=[f"{op}-{f.kind}-{f.status}" for op, f in IN_PARTS]
)
@asynchronous
async def test_an_upload_in_parts_survives(
    proxy: FaultProxy, store: S3Store, tmp_path: Path, operation: str, fault: Fault
) -> None:
    path = tmp_path / "file"
    path.write_bytes(data := os.urandom(2 * PART + 5))
    proxy.schedule = first(operation, fault)
    assert await store.put_file("k", path, if_absent=True) is True
    assert await store.get("k") == data
    assert await store.put_file("k", path, if_absent=True) is False


@asynchronous
async def test_a_put_once_is_sent_once(proxy: FaultProxy, store: S3Store) -> None:
    await store.put("k", b"warm: the connection is kept")
    for fault in (Fault("lose-answer"), Fault("reset"), Fault("answer", 500)):
        proxy.requests.clear()
        proxy.schedule = first("put", fault, times=9)
        with pytest.raises(StoreError):
            await store.put("k", b"x", once=True)
        assert proxy.requests["put"] == 1
        proxy.schedule = None
        await store.get("k")


@asynchronous
async def test_a_download_that_is_cut_goes_on_where_it_was(
    proxy: FaultProxy, store: S3Store
) -> None:
    data = os.urandom(4 * MIB)
    await store.put("k", data)
    proxy.schedule = first("get", Fault("cut"), times=5)
    assert b"".join([piece async for piece in store.read("k")]) == data
    assert proxy.requests["get"] == 6
    proxy.schedule = first("get", Fault("cut"), times=3)
    assert await store.get("k", 1_000_000) == data[1_000_000:]


@asynchronous
async def test_a_body_that_is_shortened_with_its_length_is_not_taken_for_all(
    proxy: FaultProxy, store: S3Store
) -> None:
    await store.put("k", data := os.urandom(100_000))
    proxy.schedule = first("get", Fault("shorten"), times=3)
    assert await store.get("k") == data
    assert proxy.requests["get"] == 4


@asynchronous
async def test_an_object_replaced_during_a_cut_download_is_an_error_and_no_mixture(
    proxy: FaultProxy, store: S3Store
) -> None:
    await store.put("k", b"a" * MIB)
    proxy.schedule = first("get", Fault("cut"), times=1)
    reading = store.read("k")
    assert set(await reading.__anext__()) == {ord("a")}
    await store.put("k", b"b" * MIB)
    with pytest.raises(StoreError, match="replaced"):
        async for piece in reading:
            assert set(piece) == {ord("a")}


@asynchronous
async def test_a_refused_connection_is_waited_for(proxy: FaultProxy, store: S3Store) -> None:
    await store.put("k", b"1")
    proxy.refuse()
    later = threading.Timer(1.0, proxy.accept)
    later.start()
    assert await store.get("k") == b"1"
    later.join()


def error_of(call: Callable[[S3Store], object], url: str) -> StoreError:
    """The error that a call ends with when patience is short."""

    async def run() -> StoreError:
        store = S3Store(url, HASTY)
        try:
            with pytest.raises(StoreError) as caught:
                await call(store)  # type: ignore[misc]
            return caught.value
        finally:
            await store.close()

    return asyncio.run(run())


def test_a_refused_connection_ends_as_one_sentence(proxy: FaultProxy, url: str) -> None:
    proxy.refuse()
    begun = time.monotonic()
    error = error_of(lambda store: store.get("k"), url)
    assert "cannot be reached" in error.message and proxy.endpoint in error.message
    assert "AWS_ENDPOINT_URL_S3" in error.remedy
    assert time.monotonic() - begun < 15
    proxy.accept()


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (403, "AccessDenied", "ask its owner"),
        (403, "RequestTimeTooSkewed", "clock"),
        (403, "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"),
        (403, "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
        (400, "ExpiredToken", "sign in again"),
        (507, "XMinioStorageFull", "no space left"),
        (404, "NoSuchBucket", "create the bucket"),
        (501, "NotImplemented", "j2c store check"),
        (500, "InternalError", "repeat|failed"),
    ],
)
def test_what_does_not_pass_is_told_at_once_with_a_remedy(
    proxy: FaultProxy, url: str, status: int, code: str, words: str
) -> None:
    proxy.schedule = lambda request: Fault("answer", status, code)
    error = error_of(lambda store: store.put("k", b""), url)
    assert re.search(words, str(error))
    assert "\n" not in str(error)
    assert "labadminsecret" not in str(error)


def test_wrong_credentials_are_told_apart(
    proxy: FaultProxy, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert "AWS_SECRET_ACCESS_KEY" in error_of(lambda store: store.put("k", b""), url).remedy
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    assert "AWS_ACCESS_KEY_ID" in error_of(lambda store: store.put("k", b""), url).remedy
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "labreader")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "labreadersecret")
    assert "ask its owner" in error_of(lambda store: store.put("k", b""), url).remedy
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "no credentials" in error_of(lambda store: store.put("k", b""), url).message


def test_a_clock_that_is_twenty_minutes_off_is_told(
    proxy: FaultProxy, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datetime

    import botocore.auth

    late = datetime.timedelta(minutes=20)
    now = botocore.auth.get_current_datetime
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *a, **k: now(*a, **k) - late)
    assert "clock" in str(error_of(lambda store: store.put("k", b""), url))


def test_credentials_that_expire_in_mid_upload_are_read_again(
    proxy: FaultProxy, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    credentials = tmp_path / "credentials"
    text = "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n"
    credentials.write_text(text.format("labreader", "labreadersecret"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    secret = {name: os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    for name in secret:
        monkeypatch.delenv(name)
    path = tmp_path / "file"
    path.write_bytes(data := os.urandom(3 * PART))
    signed_in = False

    def schedule(request: Request) -> Fault | None:
        nonlocal signed_in
        if request.operation == "part" and not signed_in:
            signed_in = True
            return Fault("answer", 400, "ExpiredToken")
        return None

    proxy.schedule = schedule
    credentials.write_text(text.format(*secret.values()))

    async def upload() -> bytes:
        store = S3Store(url, PATIENT)
        try:
            await store.put_file("k", path)
            return await store.get("k")
        finally:
            await store.close()

    assert asyncio.run(upload()) == data


async def content(url: str, key: str) -> bytes:
    store = S3Store(url, PATIENT)
    try:
        return await store.get(key)
    finally:
        await store.close()


def test_an_upload_killed_at_sixty_percent_goes_on_from_its_parts(
    proxy: FaultProxy, url: str, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(data := os.urandom(10 * PART + 3))
    upload = (
        "import asyncio, os, signal, sys\n"
        "from pathlib import Path\n"
        "from j2c_lab.store import multipart\n"
        "from j2c_lab.store.opener import open_store\n"
        f"multipart.PART, multipart.THRESHOLD = {PART}, {2 * PART}\n"
        "sent, most = 0, float(sys.argv[3])\n"
        "def progress(count):\n"
        "    global sent\n"
        "    sent += count\n"
        "    if sent >= most * os.path.getsize(sys.argv[2]): os.kill(os.getpid(), signal.SIGKILL)\n"
        "async def main():\n"
        "    store = open_store(sys.argv[1])\n"
        "    file = Path(sys.argv[2])\n"
        "    print(await store.put_file('k', file, if_absent=True, progress=progress))\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", upload, url, str(path)]
    assert subprocess.run([*command, "0.6"], check=False).returncode == -9
    proxy.sent.clear()
    done = subprocess.run([*command, "2"], check=True, capture_output=True, text=True)
    assert done.stdout == "True\n"
    # At the kill at least six parts were there, and up to three on their way.
    assert proxy.sent["part"] <= 5 * PART
    assert asyncio.run(content(url, "k")) == data
    assert proxy.requests["create"] == 1


@asynchronous
async def test_an_object_too_large_for_one_copy_is_renewed_in_parts(
    proxy: FaultProxy, store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multipart, "LARGEST_COPY", 6 * MIB)
    path = tmp_path / "large"
    path.write_bytes(data := os.urandom(17 * MIB))
    await store.put_file("large", path, if_absent=True)
    before = await store.stat(["large"])
    await asyncio.sleep(1.1)
    # SeaweedFS copies any size; AWS says this.
    proxy.schedule = lambda request: (
        Fault("answer", 400, "InvalidRequest") if request.operation == "put" else None
    )
    assert await store.renew(["large"]) == {"large"}
    assert (await store.stat(["large"]))["large"].modified > before["large"].modified
    assert await store.get("large") == data


@asynchronous
async def test_parts_of_another_packing_of_the_same_layer_are_not_mixed_in(
    proxy: FaultProxy, store: S3Store, tmp_path: Path
) -> None:
    (tmp_path / "old").write_bytes(os.urandom(3 * PART))
    (tmp_path / "new").write_bytes(data := os.urandom(3 * PART))
    proxy.schedule = lambda request: (
        Fault("answer", 403, "AccessDenied") if request.operation == "complete" else None
    )
    with pytest.raises(StoreError):
        await store.put_file("k", tmp_path / "old")
    proxy.schedule = None
    proxy.sent.clear()
    assert await store.put_file("k", tmp_path / "new")
    assert proxy.sent["part"] == len(data)
    assert await store.get("k") == data


@asynchronous
async def test_a_server_killed_and_started_again_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data := os.urandom(12 * PART))
    (tmp_path / "server").mkdir()
    with (
        running(seaweed_server(tmp_path / "server")) as server,
        pytest.MonkeyPatch.context() as env,
    ):
        for name, value in server.settings().items():
            env.setenv(name, value)
        store = S3Store(f"s3://{BUCKET}/x", Patience(stall=5, total=60, pause=0.05))
        await store.put("before", b"kept")
        sent = 0

        def progress(count: int) -> None:
            nonlocal sent
            sent += count
            if sent == 5 * PART:
                server.kill()
                threading.Thread(target=server.start).start()

        await store.put_file("k", path, progress=progress)
        assert await store.get("k") == data
        assert await store.get("before") == b"kept"
        await store.close()


@asynchronous
async def test_a_frozen_server_is_given_up_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data := os.urandom(3 * PART))
    (tmp_path / "server").mkdir()
    with (
        running(seaweed_server(tmp_path / "server")) as server,
        pytest.MonkeyPatch.context() as env,
    ):
        for name, value in server.settings().items():
            env.setenv(name, value)
        store = S3Store(f"s3://{BUCKET}/x", HASTY._replace(total=2.0))
        await store.put("warm", b"")
        server.freeze()
        begun = time.monotonic()
        with pytest.raises(StoreError, match=r"nothing moved|stopped answering|reached"):
            await store.put_file("k", path)
        assert time.monotonic() - begun < 30
        server.thaw()
        await store.close()
        store = S3Store(f"s3://{BUCKET}/x", PATIENT)
        await store.put_file("k", path)
        assert await store.get("k") == data
        await store.close()
