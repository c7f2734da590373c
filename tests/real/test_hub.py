"""Behind a real JupyterHub and its proxy, with a base path, as two users."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab_tools import LabServer
from tests.real.lab_browser import ROOT, need_browser, open_browser

TRAIN = """
import time
for step in range(5):
    print('::j2c-metrics {"step": %d, "loss": %f}' % (step, 1 / (step + 1)), flush=True)
    print("step", step, flush=True); time.sleep(0.1)
print("all done")
"""


class Hub:
    """JupyterHub with its proxy, in processes of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        ports = []
        for _ in range(3):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                ports.append(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{ports[0]}/base/"
        # Its kernel and settings are those that a single server's tests have.
        LabServer(home / "like")
        for name in ("settings", "jupyter"):
            shutil.move(home / "like" / name, home / name)
        for user in ("ann", "bob"):
            (home / "homes" / user).mkdir(parents=True)
        (home / "homes/ann/train.py").write_text(TRAIN)
        environ = {
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "J2C_HUB_HOME": str(home),
            "J2C_HUB_PORTS": ",".join(map(str, ports)),
            "J2C_PROXY": str(ROOT / "labextension/node_modules/.bin/configurable-http-proxy"),
        }
        config = str(Path(__file__).with_name("jupyterhub_config.py"))
        with open(home / "hub.log", "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", config],
                env=environ,
                cwd=home,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + 90
        while self.api("GET", "")[0] != 200:
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.1)

    def api(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return self.call(method, f"hub/api/{path}", "a-token-of-the-tests", body)

    def call(self, method: str, path: str, token: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        request.add_header("Authorization", f"token {token}")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()
        except OSError:
            return 0, None

    def token(self, user: str) -> str:
        return str(self.api("POST", f"users/{user}/tokens", {"expires_in": 600})[1]["token"])

    def log(self) -> str:
        return (self.home / "hub.log").read_text()[-4000:]

    def stop(self) -> None:
        for user in ("ann", "bob"):
            self.api("DELETE", f"users/{user}/server")
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    need_browser()
    pytest.importorskip("jupyterhub", reason="needs the extra test-lab")
    started = Hub(tmp_path_factory.mktemp("hub"))
    yield started
    started.stop()


def sign_in(browser: Any, hub: Hub, user: str) -> Any:
    page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{hub.url}hub/login")
    page.fill("#username_input", user)
    page.fill("#password_input", "a shared password")
    page.click("#login_submit")
    page.wait_for_url(f"**/user/{user}/lab**")
    page.locator('.jp-SideBar [data-id="j2c-lab-panel"]').click()
    return page


def test_two_users_of_a_hub_run_their_own_and_see_nothing_of_each_other(hub: Hub) -> None:
    with open_browser(need_browser()) as browser:
        page = sign_in(browser, hub, "ann")
        page.get_by_role("button", name="Run on cluster…").click()
        page.get_by_label("What to run").fill("train.py")
        page.get_by_text("new, in 1 layer").wait_for()
        page.get_by_role("button", name="Run", exact=True).click()
        page.locator('.j2c-LogBar-state:has-text("Succeeded")').wait_for()
        page.locator('.j2c-Plot[data-metric="loss"]').wait_for()
        page.wait_for_function(
            "() => window.jupyterapp.shell.currentWidget.content.text.includes('all done')"
        )
        with page.expect_download() as download:
            page.get_by_label("Download the whole log").click()
        assert b"all done" in Path(download.value.path()).read_bytes()

        other = sign_in(browser, hub, "bob")
        other.get_by_text("Run your code on the cluster").wait_for()
        assert other.locator(".j2c-Run").count() == 0

    ann, bob = hub.token("ann"), hub.token("bob")
    status, listed = hub.call("GET", "user/ann/j2c/runs", ann)
    (run,) = listed["runs"]
    assert (status, run["user"], run["state"]) == (200, "ann", "succeeded")
    assert hub.call("GET", "user/bob/j2c/runs", bob)[1]["runs"] == []
    for path in ("runs", f"runs/{run['id']}", f"runs/{run['id']}/log", "config"):
        assert hub.call("GET", f"user/ann/j2c/{path}", bob)[0] == 403, path
        assert hub.call("GET", f"user/ann/j2c/{path}", "expired")[0] == 403, path
    # The store is one, and still a run of the other does not exist.
    assert hub.call("GET", f"user/bob/j2c/runs/{run['id']}", bob)[0] == 404
    assert hub.call("POST", f"user/bob/j2c/runs/{run['id']}/cancel", bob, {})[0] == 404
