"""A real Jupyter server with the extension, in a home of its own, and a browser's view of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

TOKEN = "test-token"


class LabServer:
    """Starts and stops `jupyter lab` (or `jupyter server`) on a free port, by process id.

    Its home holds the store, the state and the settings; its root has a project; its one kernel
    has a small environment of its own.
    """

    def __init__(self, home: Path, *, app: str = "server", config: dict[str, Any] | None = None):
        self.home = home
        self.app = app
        self.config = config or {}
        self.root = home / "work"
        self.project = self.root / "project"
        self.project.mkdir(parents=True)
        (self.project / ".git").mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.base = "/"
        self.process: subprocess.Popen[bytes] | None = None
        self._write_kernel()
        self._write_settings()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.base}"

    def start(self) -> LabServer:
        environ = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "JUPYTER_PATH": str(self.home / "jupyter"),
            "JUPYTER_CONFIG_DIR": str(self.home / "config"),
            "JUPYTER_TOKEN": TOKEN,
            "J2C_USER": "ada",
            "J2C_LOCAL_CPUS": "32",
            "J2C_LOCAL_GPUS": "4",
        }
        options = {
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.port": self.port,
            "ServerApp.port_retries": 0,
            "ServerApp.root_dir": str(self.root),
            "ServerApp.open_browser": False,
            "ServerApp.allow_root": True,
        }
        if self.app == "lab":
            options["LabApp.user_settings_dir"] = str(self.home / "settings")
            options["LabApp.workspaces_dir"] = str(self.home / "workspaces")
            options["LabApp.extension_manager"] = "readonly"
        command = [sys.executable, "-m", "jupyter", self.app]
        command += [f"--{name}={value}" for name, value in options.items()]
        with open(self.home / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                command, env=environ, stdout=log, stderr=log, cwd=self.home, start_new_session=True
            )
        deadline = time.monotonic() + 60
        while True:
            try:
                self.get("api/status")
                return self
            except OSError:
                assert self.process.poll() is None, self.log()
                assert time.monotonic() < deadline, self.log()
                time.sleep(0.05)

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                # A kernel that cannot start holds Jupyter's own shutdown up.
                self.process.kill()
                self.process.wait(10)
            self.process = None

    def log(self) -> str:
        return (self.home / "server.log").read_text()

    def get(self, path: str) -> Any:
        return self.call("GET", path)[1]

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        """Return status, JSON (or bytes) and headers."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        for name, value in {"Authorization": f"token {TOKEN}", **(headers or {})}.items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, _parse(answer.read(), answer.headers), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _parse(error.read(), error.headers), dict(error.headers)

    def script(self, text: str, name: str = "train.py") -> str:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return f"project/{name}"

    def submit(self, entry: str, *args: str, **more: Any) -> str:
        status, run, _ = self.call("POST", "j2c/runs", {"entry": entry, "args": list(args), **more})
        assert status == 202, run
        return str(run["id"])

    def wait(self, run_id: str, *states: str, seconds: float = 60) -> dict[str, Any]:
        """Return the run once it is in one of the states (any end, if none is given)."""
        wanted = states or ("succeeded", "failed", "cancelled", "lost")
        deadline = time.monotonic() + seconds
        while True:
            run: dict[str, Any] = self.get(f"j2c/runs/{run_id}")
            if run["state"] in wanted:
                return run
            assert time.monotonic() < deadline, (run, self.log()[-3000:])
            time.sleep(0.05)

    def _write_kernel(self) -> None:
        prefix = self.home / "kernel-env"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(prefix)], check=True, timeout=60
        )
        folder = self.home / "jupyter" / "kernels" / "python3"
        folder.mkdir(parents=True)
        argv = [str(prefix / "bin/python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec = {"argv": argv, "display_name": "Python 3", "language": "python"}
        (folder / "kernel.json").write_text(json.dumps(spec))

    def _write_settings(self) -> None:
        config = self.home / "config"
        config.mkdir()
        (config / "jupyter_server_config.json").write_text(json.dumps(self.config))
        self.setting("@jupyterlab/apputils-extension", "notification", fetchNews="false")

    def setting(self, package: str, name: str, **values: Any) -> None:
        """Write a user setting of the front end; before it is loaded."""
        folder = self.home / "settings" / package
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.jupyterlab-settings"
        path.write_text(
            json.dumps({"checkForUpdates": False, **values} if name == "notification" else values)
        )


def _parse(data: bytes, headers: Any) -> Any:
    if headers.get_content_type() == "application/json":
        return json.loads(data)
    return data
