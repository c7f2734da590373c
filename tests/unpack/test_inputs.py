"""Inputs arrive where the run can read them, whole and proved, and are fetched once a node."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unpack_tools import RUN_ID, Prepare

SHOW = """
import json, os
path = os.environ["J2C_INPUT_DATA"]
tree = [path] if os.path.isfile(path) else sorted(
    os.path.join(d, f) for d, _, names in os.walk(path) for f in names)
print(json.dumps({os.path.relpath(p, path): open(p).read() for p in tree}))
"""


class Web:
    """A real HTTP server whose answers break as a test wishes."""

    def __init__(self) -> None:
        self.content = {"/data.txt": b"0123456789" * 100_000}
        self.asked: list[tuple[str, str]] = []
        self.headers: dict[str, str] = {}
        #: Bytes after which each of the next answers breaks off.
        self.cut: list[int] = []
        self.failures: list[int] = []
        self.etags = True
        #: Cleared, answers stop after their headers.
        self.held = threading.Event()
        self.held.set()
        web = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                wanted = self.headers.get("Range", "")
                web.asked.append((self.path, wanted))
                content = web.content.get(self.path.partition("?")[0])
                if content is None or web.failures:
                    self.send_error(404 if content is None else web.failures.pop(0))
                    return
                start = int(wanted[len("bytes=") : -1]) if wanted else 0
                self.send_response(206 if wanted else 200)
                self.send_header("Content-Length", str(len(content) - start))
                if web.etags:
                    self.send_header("ETag", f'"{hashlib.md5(content).hexdigest()}"')
                for item in web.headers.items():
                    self.send_header(*item)
                self.end_headers()
                self.wfile.flush()
                web.held.wait()
                body = content[start:]
                with contextlib.suppress(ConnectionError):
                    self.wfile.write(body[: web.cut.pop(0)] if web.cut else body)
                self.close_connection = True

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    yield web
    web.close()


def test_a_path_is_handed_over_as_it_is(prepare: Prepare, tmp_path: Path) -> None:
    (tmp_path / "in put").mkdir()
    (tmp_path / "in put/a").write_text("1")
    for given in (str(tmp_path / "in put"), (tmp_path / "in put").as_uri()):
        unpack = prepare(SHOW, inputs={"DATA": given})
        code, errors = unpack.run()
        assert (code, errors) == (0, "")
    assert json.loads(unpack.log(1)) == {"a": "1"}


def test_a_url_is_fetched_once_for_a_node_while_it_is_the_same(prepare: Prepare, web: Web) -> None:
    unpack = prepare(SHOW, inputs={"DATA": f"{web.url}/data.txt?signature=secret"})
    for attempt in (1, 2):
        code, errors = unpack.run()
        assert (code, errors) == (0, "")
        assert json.loads(unpack.log(attempt)) == {".": web.content["/data.txt"].decode()}
    progress = [e for e in unpack.events(1) if e["event"] == "progress" and e["bytes"] == 10**6]
    assert progress and progress[-1]["total_files"] == 1
    first = [e for e in unpack.events(2) if e["event"] == "progress" and e["bytes"] == 10**6]
    assert not first
    web.content["/data.txt"] = b"new"
    assert unpack.run() == (0, "")
    assert json.loads(unpack.log(3)) == {".": "new"}


def test_a_broken_connection_goes_on_where_it_was(prepare: Prepare, web: Web) -> None:
    web.cut = [300_000, 400_000]
    web.failures = [503]
    unpack = prepare(SHOW, inputs={"DATA": f"{web.url}/data.txt"})
    assert unpack.run() == (0, "")
    assert json.loads(unpack.log()) == {".": web.content["/data.txt"].decode()}
    assert [asked for _, asked in web.asked] == ["", "", "bytes=300000-", "bytes=700000-"]


def test_checksums_that_are_given_are_proved(prepare: Prepare, web: Web) -> None:
    right = hashlib.sha256(web.content["/data.txt"]).digest()
    unpack = prepare(SHOW, inputs={"DATA": f"{web.url}/data.txt#sha256={right.hex()}"})
    assert unpack.run() == (0, "")
    web.asked.clear()
    assert unpack.run() == (0, "")
    assert web.asked == []
    web.headers = {"Repr-Digest": f"sha-256=:{base64.b64encode(right).decode()}:"}
    web.content["/data.txt"] = b"replaced by somebody"
    unpack = prepare(SHOW, inputs={"DATA": f"{web.url}/data.txt"})
    code, errors = unpack.run()
    assert code == 125
    assert "input DATA: the sha256 of" in errors and "damaged on the way or replaced" in errors


def test_a_kept_input_that_a_run_has_changed_is_fetched_again(prepare: Prepare, web: Web) -> None:
    unpack = prepare(
        "import os; p = os.environ['J2C_INPUT_DATA']; print(len(open(p).read()))\n"
        "os.chmod(p, 0o600); open(p, 'w').write('spoiled')",
        inputs={"DATA": f"{web.url}/data.txt"},
    )
    for attempt in (1, 2):
        assert unpack.run() == (0, "")
        assert unpack.log(attempt) == b"1000000\n"


def test_a_source_without_a_version_is_not_kept(prepare: Prepare, web: Web) -> None:
    web.etags = False
    unpack = prepare(SHOW, inputs={"DATA": f"{web.url}/data.txt"})
    assert unpack.run() == (0, "")
    assert os.listdir(unpack.workdir / RUN_ID / "inputs")
    assert not (unpack.cache / "inputs").exists()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("{web}/none?signature=secret", "/none answers 404 Not Found; check the address"),
        ("http://127.0.0.1:9/x", "cannot be reached from"),
        ("ftp://host/x", "ftp:// cannot be fetched by this j2c"),
        ("https://ada:pw@host/x", "a password in a URL would be stored"),
        ("relative/path", "is relative; give an absolute path"),
        ("/no/such/path", "is not there on"),
    ],
)
def test_what_cannot_be_had_is_said_in_one_line(
    prepare: Prepare, web: Web, url: str, words: str
) -> None:
    unpack = prepare(SHOW, inputs={"DATA": url.format(web=web.url)})
    code, errors = unpack.run()
    assert code in (2, 125)
    assert words in errors and len(errors.splitlines()) == 1
    assert "secret" not in errors and "secret" not in json.dumps(unpack.events())


def test_a_cancel_while_an_input_is_fetched_ends_the_run_at_once(
    prepare: Prepare, web: Web
) -> None:
    web.held.clear()
    unpack = prepare(SHOW, inputs={"DATA": f"{web.url}/data.txt"})
    process = unpack.start()
    while not web.asked:
        time.sleep(0.02)
    began = time.monotonic()
    process.terminate()
    try:
        process.communicate(timeout=60)
        assert time.monotonic() - began < 4
    finally:
        web.held.set()
    assert unpack.outcome().state == "cancelled"
    assert [p.name for p in (unpack.cache / "inputs").glob("*")] == []
