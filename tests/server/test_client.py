"""The typed client, against a real server."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

pytest.importorskip("httpx", reason="needs the extra test-lab")

from j2c_lab.client import LabClient, LabError
from j2c_lab.errors import NotFoundError
from tests.lab_tools import TOKEN, LabServer


@pytest.fixture
def client(lab: LabServer) -> Iterator[LabClient]:
    with LabClient(lab.url, TOKEN) as opened:
        yield opened


def test_a_run_from_submit_to_its_outputs(lab: LabServer, client: LabClient) -> None:
    entry = lab.script(
        "import os, sys\nprint(sys.argv[1:])\n"
        "open(os.environ['J2C_OUTPUT_DIR'] + '/result', 'w').write('42')",
        "client.py",
    )
    assert client.preview(entry, ["--x"])["line"] == "%j2c submit client.py -- --x"
    run = client.submit(entry, ["--x", "a b"], name="by client")
    done = client.wait(run.id, timeout=60)
    assert (done.state, done.exit_code, done.ended, done.name) == (
        "succeeded",
        0,
        True,
        "by client",
    )
    assert client.log(run.id) == b"['--x', 'a b']\n"
    assert client.log(run.id, 2, 5) == b"--x"
    assert [file["size"] for file in client.files(run.id)] == [2]
    assert client.fetch(run.id)["files"] == 1
    assert [found.id for found in client.runs(text="client.py", group="succeeded")] == [run.id]
    client.delete(run.id)
    with pytest.raises(LabError) as refused:
        client.run(run.id)
    assert (refused.value.status, refused.value.code) == (404, "not-found")
    assert len(refused.value.request_id) == 32


def test_an_error_of_the_server_is_raised_with_its_remedy(client: LabClient) -> None:
    with pytest.raises(LabError, match="at most 4") as refused:
        client.submit("project/client.py", gpus=9)
    assert refused.value.code == "usage"


def test_a_server_that_is_not_there_is_said_so() -> None:
    with LabClient("http://127.0.0.1:9/", "x") as client, pytest.raises(LabError) as refused:
        client.run("20260101-000000-aaaaaa")
    assert (refused.value.status, "does not answer" in refused.value.message) == (0, True)


def test_the_running_server_is_found_with_its_token(
    lab: LabServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lab.process is not None
    runtime = lab.home / ".local/share/jupyter/runtime"
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(runtime))
    with LabClient.running() as client:
        assert isinstance(list(client.runs(text="no such run")), list)
    empty = lab.home / "empty"
    empty.mkdir()
    (empty / "jpserver-1.json").write_text(json.dumps({"pid": 2**22 + os.getpid(), "url": "x"}))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(empty))
    with pytest.raises(NotFoundError):
        LabClient.running()
