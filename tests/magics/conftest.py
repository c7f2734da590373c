"""Real kernels, and a `j2c` that says what a test wants it to say."""

import json
import sys
import textwrap
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

ROOT = Path(__file__).resolve().parents[2]


class Kernel:
    """A kernel of its own for a test; `run` executes a cell and collects what it shows."""

    def __init__(self, python, directory, cwd, env):
        specs = directory / "kernels"
        spec = specs / "test"
        spec.mkdir(parents=True)
        argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        (spec / "kernel.json").write_text(
            json.dumps({"argv": argv, "display_name": "test", "language": "python"})
        )
        self.manager = KernelManager(
            kernel_name="test",
            kernel_spec_manager=KernelSpecManager(
                kernel_dirs=[str(specs)], ensure_native_kernel=False
            ),
            transport="ipc",
            connection_file=str(directory / "connection.json"),
        )
        self.manager.start_kernel(cwd=str(cwd), env=env)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)

    def run(self, code, on_message=lambda message: None):
        """Return the cell's outputs as a front end would keep them, and its reply."""
        outputs, by_id = [], {}
        self.updates = 0

        def collect(message):
            kind, content = message["msg_type"], message["content"]
            if kind in ("display_data", "execute_result"):
                outputs.append(content)
                by_id[(content.get("transient") or {}).get("display_id")] = content
            elif kind == "update_display_data":
                self.updates += 1
                by_id[content["transient"]["display_id"]]["data"] = content["data"]
            elif kind in ("stream", "error"):
                outputs.append(content)
            on_message(message)

        reply = self.client.execute_interactive(
            code, output_hook=collect, timeout=120, allow_stdin=False
        )
        return outputs, reply["content"]

    def stop(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


@pytest.fixture
def start_kernel(tmp_path_factory, monkeypatch):
    """Start kernels: `start_kernel(python, cwd, **environment)`."""
    started = []

    def start(python=sys.executable, cwd=None, **variables):
        import os

        env = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
        # Short, for a socket's path has room for a hundred bytes.
        directory = tmp_path_factory.mktemp("k")
        kernel = Kernel(python, directory, cwd or directory, env)
        started.append(kernel)
        outputs, reply = kernel.run("%load_ext j2c_lab")
        assert reply["status"] == "ok", outputs
        return kernel

    yield start
    for kernel in started:
        kernel.stop()


@pytest.fixture
def speak(tmp_path):
    """Return `J2C_COMMAND` for a program that does as the test's lines say.

    The lines see `emit(event, **fields)`, `arguments`, and the standard library's `sys` and
    `time`. This is docs/events.md from the other side; tests against the real `j2c` are apart.
    """

    def write(lines):
        script = tmp_path / "speaker.py"
        script.write_text(
            "import json, os, signal, sys, time\n"
            "arguments = sys.argv[1:]\n"
            "def emit(event, **fields):\n"
            "    print(json.dumps({'event': event, **fields}), flush=True)\n"
            + textwrap.dedent(lines)
        )
        return json.dumps([sys.executable, str(script)])

    return write
