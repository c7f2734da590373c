"""Runs binder/demo.ipynb as `make demo` does: headless, its output shown as it comes.

.venv plays the base image that both sides share: JupyterLab, scikit-learn and j2c live there. The
user's own environment is .demo/venv, a virtual environment on top of it, with one package that the
base has not got. Everything stays below the repository: store, job records, kernel specification.
`--lab` opens the notebook in JupyterLab instead. With STORE=s3 in the environment the store is a
SeaweedFS that lives as long as the demo.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / ".demo"
NOTEBOOK = ROOT / "binder" / "demo.ipynb"
EXECUTED = DEMO / "demo.ipynb"
#: What the base has not got.
PACKAGE = "tqdm"


def main() -> int:
    python = make_environment()
    for variable, value in settings().items():
        os.environ[variable] = str(value)
    write_kernel_specification(python)
    store = os.environ.get("STORE", "")
    if store not in ("", "s3"):
        print(f"there is no demo with STORE={store}; there is STORE=s3", file=sys.stderr)
        return 2
    if not store:
        return show()
    from demo_s3 import seaweed

    with seaweed(DEMO / "seaweed") as found:
        os.environ.update(found)
        return show()


def show() -> int:
    """Execute the notebook, or open it; returns the exit code."""
    if "--lab" in sys.argv[1:]:
        lab = [sys.executable, "-m", "jupyter", "lab", str(NOTEBOOK)]
        return subprocess.run(lab, cwd=ROOT).returncode
    code = execute()
    if code == 0:
        print(f"\nThe executed notebook is {EXECUTED.relative_to(ROOT)}.")
        print("Open it in JupyterLab, and run it again by hand:  make lab")
    return code


def make_environment() -> Path:
    """Make the user's environment, if it is not there, and return its Python."""
    environment = DEMO / "venv"
    python = environment / "bin" / "python"
    done = environment / ".complete"
    if done.exists() and python.exists():
        return python
    print(f"making the user's environment, {environment.relative_to(ROOT)}, with {PACKAGE}")
    options = ["--clear", "--system-site-packages", "--without-pip"]
    subprocess.run([sys.executable, "-m", "venv", *options, str(environment)], check=True)
    # A venv made from a venv sees the system's Python only; this line makes it see .venv as well,
    # with the .pth files in there.
    base = sysconfig.get_path("purelib")
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    site_packages = environment / "lib" / version / "site-packages"
    (site_packages / "base_image.pth").write_text(f"import site; site.addsitedir({base!r})\n")
    uv = [str(ROOT / ".venv" / "bin" / "uv"), "pip", "install", "-q", "--python", str(python)]
    if subprocess.run([*uv, PACKAGE], stderr=subprocess.DEVNULL).returncode:
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", PACKAGE]
        subprocess.run([*pip, "--disable-pip-version-check", "--ignore-installed"], check=True)
    done.touch()
    return python


def settings() -> dict[str, Path | str]:
    """Return the variables that keep all that is written below .demo."""
    return {
        "J2C_STORE": DEMO / "store",
        "J2C_COMMAND": json.dumps([sys.executable, "-m", "j2c_lab"]),
        "XDG_STATE_HOME": DEMO / "state",
        "XDG_CACHE_HOME": DEMO / "cache",
        "XDG_DATA_HOME": DEMO / "data",
        "JUPYTER_PATH": DEMO / "jupyter",
        "JUPYTER_DATA_DIR": DEMO / "jupyter",
        "JUPYTER_RUNTIME_DIR": DEMO / "runtime",
        "IPYTHONDIR": DEMO / "ipython",
    }


def write_kernel_specification(python: Path) -> None:
    """Write the kernel of the user's environment where only this demo looks."""
    directory = DEMO / "jupyter" / "kernels" / "python3"
    directory.mkdir(parents=True, exist_ok=True)
    specification = {
        "argv": [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Python 3 (j2c demo)",
        "language": "python",
    }
    (directory / "kernel.json").write_text(json.dumps(specification, indent=1))


def execute() -> int:
    """Execute the notebook and return the exit code."""
    import nbformat
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    printer = Printer()

    class Client(NotebookClient):
        def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
            result = super().process_message(msg, cell, cell_index)
            printer.message(msg)
            return result

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    # Sockets in a directory of our own; their paths must be short, so not below .demo.
    private = tempfile.mkdtemp(prefix="j2c-demo-")
    client = Client(
        notebook,
        km=AsyncKernelManager(
            kernel_name="python3", transport="ipc", connection_file=f"{private}/kernel.json"
        ),
        timeout=1800,
        resources={"metadata": {"path": str(NOTEBOOK.parent)}},
        on_cell_execute=printer.cell,
    )
    try:
        client.execute(cleanup_kc=True)
    except CellExecutionError as error:
        print(f"\nthe demo failed: {error.ename}: {error.evalue}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(private, ignore_errors=True)
        nbformat.write(notebook, EXECUTED)
    return 0


class Printer:
    """Shows a notebook's outputs on a terminal or in a log while they come.

    A display that is updated is printed line by line, each line once it will not change any more.
    """

    def __init__(self) -> None:
        self._display = ""
        self._printed: set[str] = set()
        self._log_lines = 0

    def cell(self, cell: Any, **_: Any) -> None:
        self._finish()
        print("\n" + "\n".join(f">>> {line}" for line in cell.source.splitlines()), flush=True)

    def message(self, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            print(content["text"], end="", flush=True)
        elif kind == "error":
            self._finish()
            print("\n".join(content["traceback"]), flush=True)
        elif kind in ("display_data", "update_display_data"):
            self._update(content["data"].get("text/plain", ""))
        elif kind == "execute_result":
            self._finish()
            print(content["data"].get("text/plain", ""), flush=True)

    def _update(self, text: str) -> None:
        self._display = text
        self._show(final=False)

    def _finish(self) -> None:
        if self._display:
            self._show(final=True)
        self._display, self._printed, self._log_lines = "", set(), 0

    def _show(self, *, final: bool) -> None:
        head, *lines = self._display.split("\n")
        earlier = re.search(r"… ([\d,]+) earlier line", self._display)
        number = int(earlier[1].replace(",", "")) if earlier else 0
        last = max((n for n, line in enumerate(lines) if line.startswith("| ")), default=-1)
        # When the run is over, so is its log: that belongs before the stages that follow.
        over = final or any(line[2:9] == "running" and line[0] != "·" for line in lines)
        stages, facts, log, rest = [], [], [], []
        for place, line in enumerate(lines):
            if line.startswith("| "):
                # The last line may be a progress bar, which is drawn over and over.
                if number >= self._log_lines and (over or place != last):
                    log.append(line)
                    self._log_lines = number + 1
                number += 1
            elif (final or line.startswith(("✓", "✗", "- "))) and line not in self._printed:
                self._printed.add(line)
                later = line[2:].startswith(("running", "saving")) or line[:1] not in "✓✗-"
                (rest if later else facts if line[0] == "-" else stages).append(line)
        for line in [*stages[:1], *facts, *stages[1:], *log, *rest]:
            print(line)
        if final:
            print(head)
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
