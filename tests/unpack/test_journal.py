"""What the process writes arrives byte for byte, whatever it is and whatever the store does."""

from __future__ import annotations

import asyncio
import hashlib
import random
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unpack_tools import RUN_ID, USER, Prepare, Unpack, read_journal

from j2c_lab.errors import StoreError
from j2c_lab.formats.journal import GAP, LOG, SegmentParser
from j2c_lab.store import layout
from j2c_lab.store.local import LocalStore
from j2c_lab.unpack.journal import Journal
from j2c_lab.unpack.spool import Spool
from j2c_lab.unpack.uploader import Uploader


def key_of(segment: int) -> str:
    return layout.journal_segment(USER, RUN_ID, 1, 0, segment)


WRITERS = {
    "partial UTF-8": "for b in 'héé€𝄞'.encode(): os.write(1, bytes([b])); time.sleep(0.01)",
    "carriage returns": "[os.write(1, b'\\r%3d%%' % n) for n in range(101)]",
    "no newline at the end": "os.write(1, b'the last words')",
    "NULs and noise": "os.write(1, bytes(range(256)) * 500)",
    "a 20 MB line": "sys.stdout.write('x' * 20_000_000)",
    "journal's own records": 'os.write(1, b\'{"n":1,"k":"seal","len":0}\\n\\n\' * 50)',
    "both streams": "[os.write(1 + n % 2, b'%d\\n' % n) for n in range(500)]",
    "nothing": "pass",
    "at exit": "import atexit; atexit.register(os.write, 2, b'bye'); print('x', end='')",
}


@pytest.mark.parametrize("writer", WRITERS)
def test_output_is_kept_byte_for_byte(prepare: Prepare, writer: str, tmp_path: Path) -> None:
    code = WRITERS[writer]
    unpack = prepare(f"import os, sys, time\n{code}\n")
    assert unpack.run() == (0, "")
    direct = subprocess.run(
        ["../env/bin/python", "-u", "main.py"],
        cwd=unpack.workdir / RUN_ID / "project",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    # By digests: pytest would take minutes to show how 20 MB differ.
    assert hashlib.sha256(unpack.log()).digest() == hashlib.sha256(direct.stdout).digest()
    ats = [(r.at, len(r.payload)) for r in unpack.records() if r.kind == LOG]
    assert [at for at, _ in ats] == [sum(n for _, n in ats[:i]) for i in range(len(ats))]


def test_streams_are_told_apart_when_asked(prepare: Prepare) -> None:
    unpack = prepare(
        "import os\nfor n in range(300): os.write(1, b'o%d\\n' % n); os.write(2, b'e%d\\n' % n)",
        split_streams=True,
    )
    assert unpack.run() == (0, "")
    for stream in ("stdout", "stderr"):
        lines = b"".join(b"%c%d\n" % (ord(stream[3]), n) for n in range(300))
        assert unpack.log(stream=stream) == lines.replace(b"o", stream[3].encode())


def test_metric_lines_become_events_and_stay_in_the_log(prepare: Prepare) -> None:
    line = '::j2c-metrics {"step": 3, "loss": 0.25}'
    unpack = prepare(f"print('epoch')\nprint({line!r})\n")
    assert unpack.run() == (0, "")
    assert unpack.log().decode() == f"epoch\n{line}\n"
    metrics = [event for event in unpack.events() if event["event"] == "metrics"]
    assert metrics == [{"event": "metrics", "values": {"loss": 0.25}, "step": 3}]


def test_first_bytes_are_there_while_the_process_runs(prepare: Prepare) -> None:
    unpack = prepare("import time; print('hello', end='', flush=True); time.sleep(60)")
    process = unpack.start()
    unpack.wait_for_log(b"hello")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)


def test_fast_writer_costs_bounded_memory(prepare: Prepare) -> None:
    size = 400 << 20
    unpack = prepare(
        "import os\nblock = bytes(range(256)) * 256\n"
        f"left = {size}\nwhile left: left -= os.write(1, block[:left])\n"
    )
    process = unpack.start(env={"J2C_SPOOL_LIMIT": str(64 << 20)})
    watched = psutil.Process(process.pid)
    peak = 0
    while process.poll() is None:
        try:
            peak = max(peak, watched.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.02)
    process.communicate()
    assert process.returncode == 0
    assert peak < 100 << 20, peak
    records = unpack.records()
    logged = sum(len(r.payload) for r in records if r.kind == LOG)
    lost = sum(r.event()["bytes"] for r in records if r.kind == GAP)
    # A store slower than the writer costs a gap that is counted, never the writer's time.
    assert logged + lost == size


class BadStore(LocalStore):
    """Fails as told: before a write, or after it (the answer is lost), or late."""

    def __init__(self, directory: Path, faults: random.Random, rate: float) -> None:
        super().__init__(directory)
        self.faults = faults
        self.rate = rate
        self.late: list[tuple[str, bytes]] = []

    async def put(
        self, key: str, data: bytes, *, if_absent: bool = False, once: bool = False
    ) -> bool:
        fault = self.faults.random()
        if fault < self.rate / 3:
            raise StoreError("refused")
        if fault < self.rate * 2 / 3:
            # The request is on its way still, and arrives after later ones.
            self.late.append((key, data))
            raise StoreError("no answer")
        done = await super().put(key, data, if_absent=if_absent)
        if self.late and self.faults.random() < 0.5:
            await super().put(*self.late.pop(0))
        if fault < self.rate:
            raise StoreError("answer lost")
        return done


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), rate=st.sampled_from([0.0, 0.3, 0.7]))
def test_no_byte_is_lost_or_repeated_on_a_bad_store(
    tmp_path_factory: pytest.TempPathFactory, seed: int, rate: float
) -> None:
    root = tmp_path_factory.mktemp("bad")
    faults = random.Random(seed)
    store = BadStore(root / "store", faults, rate)
    written = [faults.randbytes(faults.choice([1, 100, 70_000])) for _ in range(60)]

    async def scenario() -> int:
        spool = Spool(root / "spool")
        uploader = Uploader(store, spool, key_of, pause=0.001, interval=0.002)
        journal = Journal(spool, wake=uploader.wake)
        task = asyncio.create_task(uploader.run())
        for data in written:
            journal.log("output", data)
            await asyncio.sleep(faults.choice([0, 0, 0.001, 0.004]))
        records = journal.finish()
        uploader.finish()
        await asyncio.wait_for(task, 60)
        for key, data in store.late:
            await LocalStore.put(store, key, data)
        return records

    records = asyncio.run(scenario())
    found = read_journal(store)
    assert len(found) == records == len(written)
    assert [record.payload for record in found] == written


def test_full_spool_drops_with_a_gap_and_goes_on(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    journal = Journal(spool, limit=4 << 20)
    block = bytes(1 << 18)
    for _ in range(40):
        journal.log("output", block)
    journal.event({"event": "stage", "stage": "saving"})
    assert spool.waiting < 4 << 20
    spool.forget(spool.end)
    journal.log("output", b"after")
    journal.finish()
    parser = SegmentParser()
    parser.feed(b'{"j2c-journal":1,"segment":1,"n":1,"at":0}\n')
    records = []
    for path in sorted((tmp_path / "spool").iterdir()):
        records += parser.feed(path.read_bytes())
    gap = next(record for record in records if record.kind == GAP)
    assert records[-1].payload == b"after"
    assert records[-1].at == 40 * len(block)
    assert gap.event()["bytes"] + gap.at == 40 * len(block)


def test_sealed_segments_end_with_a_seal_and_open_ones_grow(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")

    async def scenario() -> list[bool]:
        spool = Spool(tmp_path / "spool")
        uploader = Uploader(store, spool, key_of, interval=0.0)
        journal = Journal(spool, wake=uploader.wake)
        task = asyncio.create_task(uploader.run())
        for _ in range(20):
            journal.log("output", bytes(100_000))
            await asyncio.sleep(0.01)
        uploader.finish()
        await task
        spool.remove()
        assert not (tmp_path / "spool").exists()
        sealed = []
        for name in await store.list_names(layout.journal_prefix(USER, RUN_ID, 1)):
            parser = SegmentParser()
            parser.feed(await store.get(key_of(int(name))))
            sealed.append(parser.sealed)
        return sealed

    sealed = asyncio.run(scenario())
    assert len(sealed) > 1
    assert all(sealed[:-1])
    assert sum(len(r.payload) for r in read_journal(store)) == 20 * 100_000


def move(unpack: Unpack, there: bool) -> None:
    """Take the store away, or bring it back: a mount that is lost."""
    away = unpack.store.directory.with_name("away")
    if there:
        unpack.store.directory.unlink()
        away.rename(unpack.store.directory)
    else:
        unpack.store.directory.rename(away)
        # A file in its place: nothing can be written there.
        unpack.store.directory.touch()


def test_store_that_is_down_for_a_while_costs_nothing(prepare: Prepare, tmp_path: Path) -> None:
    go = tmp_path / "go"
    unpack = prepare(
        "import os, time\nprint('ready', flush=True)\n"
        f"while not os.path.exists({str(go)!r}): print('.', flush=True); time.sleep(0.01)\n"
        "for n in range(200): print(n, 'x' * 1000)\n"
        f"open({str(go)!r} + '-written', 'w'); time.sleep(0.5)\nprint('end')\n"
    )
    process = unpack.start()
    unpack.wait_for_log(b"ready")
    move(unpack, there=False)
    go.touch()
    while not Path(f"{go}-written").exists():
        assert process.poll() is None
        time.sleep(0.02)
    move(unpack, there=True)
    process.communicate(timeout=60)
    assert process.returncode == 0
    log = unpack.log()
    assert log.endswith(b"".join(b"%d %s\n" % (n, b"x" * 1000) for n in range(200)) + b"end\n")
    assert unpack.outcome().journal_records == len(unpack.records())


def test_store_that_stays_away_is_delivered_to_later(prepare: Prepare) -> None:
    unpack = prepare(
        "import os, sys, time\n"
        "open(os.environ['J2C_OUTPUT_DIR'] + '/model', 'w').write('weights')\n"
        "print('ready', flush=True)\n"
        f"while os.path.isdir({str(prepare('').store.directory)!r}): time.sleep(0.01)\n"
        "print('x' * 100_000); sys.exit(7)\n"
    )
    process = unpack.start(env={"J2C_DELIVERY_SECONDS": "1"})
    unpack.wait_for_log(b"ready")
    move(unpack, there=False)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 7
    assert f"j2c unpack --deliver {unpack.url} --workdir {unpack.workdir}".encode() in errors
    move(unpack, there=True)
    assert not unpack.store.local_path(layout.outcome(USER, RUN_ID, 1)).exists()
    assert unpack.run("--deliver") == (0, "")
    assert unpack.log() == b"ready\n" + b"x" * 100_000 + b"\n"
    outcome = unpack.outcome()
    assert outcome.exit_code == 7
    assert outcome.journal_records == len(unpack.records())
    assert [output.path for output in outcome.outputs] == ["model"]
    saved = unpack.store.local_path(layout.output(USER, RUN_ID, outcome.outputs[0].sha256))
    assert saved.read_text() == "weights"
    assert not list((unpack.workdir / RUN_ID / "spool").iterdir())
