"""Who gets in, and how far."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("tornado", reason="needs the extra test-lab")

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from tests.lab_tools import TOKEN, LabServer
from tests.server.tools import run_async

PATHS = [
    ("GET", "j2c/runs"),
    ("POST", "j2c/runs"),
    ("GET", "j2c/runs/20260101-000000-aaaaaa"),
    ("DELETE", "j2c/runs/20260101-000000-aaaaaa"),
    ("POST", "j2c/runs/20260101-000000-aaaaaa/cancel"),
    ("POST", "j2c/runs/20260101-000000-aaaaaa/resume"),
    ("POST", "j2c/runs/20260101-000000-aaaaaa/fetch"),
    ("GET", "j2c/runs/20260101-000000-aaaaaa/files"),
    ("GET", "j2c/runs/20260101-000000-aaaaaa/files/a"),
    ("GET", "j2c/runs/20260101-000000-aaaaaa/log"),
    ("GET", "j2c/runs/20260101-000000-aaaaaa/metrics"),
    ("POST", "j2c/preview"),
    ("GET", "j2c/schedulers"),
    ("GET", "j2c/config"),
    ("GET", "j2c/openapi.yaml"),
    ("GET", "j2c/nothing"),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize("token", ["", "token wrong"])
def test_without_a_good_token_nothing_is_answered(
    lab: LabServer, method: str, path: str, token: str
) -> None:
    body = {} if method == "POST" else None
    status, error, _ = lab.call(method, path, body, {"Authorization": token})
    assert status == 403
    assert set(error) <= {"code", "message", "request_id"}


@pytest.mark.parametrize("path", ["j2c/stream", "j2c/runs/20260101-000000-aaaaaa/stream"])
@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "token wrong"}, {"Origin": "http://evil.example"}],
    ids=["none", "bad", "foreign origin"],
)
def test_a_websocket_lets_in_only_who_may(
    lab: LabServer, path: str, headers: dict[str, str]
) -> None:
    async def connect() -> None:
        url = f"ws://127.0.0.1:{lab.port}/{path}"
        await websocket_connect(HTTPRequest(url, headers=headers))

    with pytest.raises(HTTPClientError) as refused:
        run_async(connect())
    assert refused.value.code == 403


def test_a_cookie_alone_changes_nothing_without_the_xsrf_token(lab: LabServer) -> None:
    async def post() -> tuple[int, int]:
        client = AsyncHTTPClient()
        signed_in = await client.fetch(f"{lab.url}j2c/config?token={TOKEN}")
        cookies = "; ".join(c.split(";")[0] for c in signed_in.headers.get_list("Set-Cookie"))
        request = HTTPRequest(f"{lab.url}j2c/runs", headers={"Cookie": cookies})
        read = await client.fetch(request, raise_error=False)
        request = HTTPRequest(
            f"{lab.url}j2c/runs", method="POST", body="{}", headers={"Cookie": cookies}
        )
        written = await client.fetch(request, raise_error=False)
        return read.code, written.code

    assert run_async(post()) == (200, 403)


@pytest.mark.parametrize(
    "entry", ["../secret.py", "project/../../secret.py", "/../secret.py", "link/secret.py", "a\0b"]
)
@pytest.mark.parametrize("where", ["j2c/runs", "j2c/preview"])
def test_paths_that_lead_out_of_the_root_are_refused(
    lab: LabServer, entry: str, where: str
) -> None:
    (lab.home / "secret.py").write_text("print('secret')")
    link = lab.root / "link"
    if not link.is_symlink():
        os.symlink(lab.home, link)
    status, error, _ = lab.call("POST", where, {"entry": entry})
    assert (status, error["code"]) == (400, "usage")
    status, error, _ = lab.call("POST", where, {"entry": "m", "kind": "module", "project": "link"})
    assert (status, error["code"]) == (400, "usage")


def test_an_environment_must_be_a_kernels_or_in_the_root(lab: LabServer) -> None:
    entry = lab.script("print(1)")
    for venv in ("/usr", "../..", str(lab.home)):
        status, error, _ = lab.call("POST", "j2c/preview", {"entry": entry, "venv": venv})
        assert (status, error["code"]) == (400, "usage"), venv


def test_another_users_run_does_not_exist(lab: LabServer) -> None:
    other = lab.home / ".local/share/j2c/store/runs/bob/20260101-000000-bbbbbb"
    other.mkdir(parents=True)
    (other / "run.json").write_text("{}")
    assert lab.call("GET", "j2c/runs/20260101-000000-bbbbbb")[0] == 404
    assert lab.call("GET", "j2c/runs/..%2fbob%2f20260101-000000-bbbbbb")[0] == 404


def test_errors_have_one_shape(lab: LabServer) -> None:
    for method, path, body, status, code in (
        ("GET", "j2c/nothing/here", None, 404, "not-found"),
        ("PUT", "j2c/runs", b"{}", 405, "method"),
        ("POST", "j2c/runs", b"{bad", 400, "usage"),
        ("POST", "j2c/runs", b"\xff\xfe", 400, "usage"),
        ("POST", "j2c/runs", b"[" * 100_000, 400, "usage"),
        ("POST", "j2c/runs", b"[]", 400, "usage"),
        ("GET", "j2c/runs?limit=0", None, 400, "usage"),
        ("GET", "j2c/runs?cursor=%25a%20b", None, 400, "usage"),
    ):
        got, error, headers = lab.call(method, path, body)
        assert (got, error["code"]) == (status, code), (path, error)
        assert error["message"]
        assert len(error["request_id"]) == 32
        if got == 405:
            assert headers["Allow"] == "GET, POST, OPTIONS"
