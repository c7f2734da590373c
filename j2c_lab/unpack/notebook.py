"""Executes a notebook as a run: `python -m j2c_lab.unpack.notebook NOTEBOOK OUTPUT PYTHON ARGS…`.

Runs in j2c's own Python with nbclient; the kernel is PYTHON's ipykernel, the run environment's, so
no kernel has to be installed anywhere. What cells print goes to standard output as it comes, and
is thereby in the journal. OUTPUT is written anew after every cell, and when a cell fails, the
kernel dies or TERM arrives: the executed notebook is an artifact whatever happens.

In the notebook `sys.argv` is NOTEBOOK's name and ARGS.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from j2c_lab.errors import FormatError, J2CError, UnpackError, UsageError

if TYPE_CHECKING:
    from nbclient import NotebookClient

#: Seconds that a cell has, after TERM, to clean up after its KeyboardInterrupt.
_PATIENCE = 10.0
#: Seconds between two writes of the notebook while one cell runs.
_SAVE_INTERVAL = 30.0
#: A socket's path has room for about a hundred bytes.
_LONGEST_DIRECTORY = 70


class Ending(NamedTuple):
    """How a notebook ended: its exit code, or the signal to end by, and one line that says why."""

    code: int
    signal: int = 0
    reason: str = ""


def main(argv: list[str]) -> int:
    """Execute the notebook and end as it did; returns the exit code."""
    if len(argv) < 3:
        print("usage: j2c_lab.unpack.notebook NOTEBOOK OUTPUT PYTHON [ARGS...]", file=sys.stderr)
        return 2
    notebook, output, python, *arguments = argv
    try:
        ending = execute(notebook, output, python, arguments)
    except J2CError as error:
        print(f"j2c: {error}", file=sys.stderr)
        return error.exit_code
    sys.stdout.flush()
    if ending.reason:
        print(f"j2c: {ending.reason}", file=sys.stderr, flush=True)
    if ending.signal:
        _end_by(ending.signal)
    return ending.code


def execute(notebook: str, output: str, python: str, arguments: list[str]) -> Ending:
    """Execute `notebook` in the current directory, writing it to `output` as it goes.

    Parameters
    ----------
    python : str
        The interpreter whose ipykernel runs the cells.
    arguments : list of str
        What the notebook finds in `sys.argv[1:]`.

    Raises
    ------
    UnpackError
        nbclient is missing here, or ipykernel there.
    FormatError
        The file is no notebook.
    UsageError
        It is a notebook of another language.
    """
    try:
        import nbclient  # noqa: F401
        import nbformat

        read: Any = nbformat.read
    except ImportError as error:
        raise UnpackError(
            f"notebooks need nbclient beside j2c in {sys.prefix} ({error})",
            "install j2c-lab[notebook] in the base image",
        ) from None
    try:
        document = read(notebook, as_version=4)
    except Exception as error:  # nbformat raises whatever the broken file leads to
        raise FormatError(f"{notebook} is no notebook: {_first_line(error)}") from None
    language = document.metadata.get("kernelspec", {}).get("language", "python")
    if language != "python":
        raise UsageError(f"{notebook} is a notebook of {language}; j2c runs those of Python")
    with _private_directory() as private:
        run = _Execution(notebook, document, Path(output), [notebook, *arguments])
        return asyncio.run(run.run(python, private))


class _Execution:
    """One execution of one notebook."""

    def __init__(self, path: str, document: Any, output: Path, argv: list[str]) -> None:
        self._name = os.path.basename(path)
        self._document = document
        self._output = output
        self._argv = argv
        self._saved = 0.0
        self._signal = 0

    async def run(self, python: str, private: Path) -> Ending:
        client = _make_client(self._document, python, private, self._message)
        self._save()
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(self._cells(client, python))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number, client, task)
        try:
            ending = await task
        except asyncio.CancelledError:
            ending = Ending(1, self._signal, "")
        finally:
            self._save()
            await _shut_down(client)
        if self._signal:
            name = signal.Signals(self._signal).name
            return Ending(1, self._signal, f"{self._name} was ended by {name}")
        return ending

    async def _cells(self, client: NotebookClient, python: str) -> Ending:
        from nbclient.exceptions import CellExecutionError, DeadKernelError

        await _start(client, python)
        assert client.kc is not None
        code = f"import sys; sys.argv[:] = {self._argv!r}"
        await client.async_wait_for_reply(client.kc.execute(code, silent=True))
        for index, cell in enumerate(self._document.cells):
            if self._signal:
                break
            where = f"cell {index + 1} of {self._name}"
            try:
                await client.async_execute_cell(cell, index)
            except CellExecutionError as error:
                return _failure(where, str(error.ename), str(error.evalue))
            except DeadKernelError:
                return await _death(where, client)
            finally:
                self._save()
        client.set_widgets_metadata()
        return Ending(0)

    def _message(self, message: dict[str, Any]) -> None:
        _print(message)
        if time.monotonic() - self._saved > _SAVE_INTERVAL:
            self._save()

    def _save(self) -> None:
        """Write the notebook as it is now, whole or not at all."""
        import nbformat

        writes: Any = nbformat.writes
        self._output.parent.mkdir(parents=True, exist_ok=True)
        new = self._output.with_name(f".{self._output.name}.{os.getpid()}")
        text: str = writes(self._document)
        with new.open("w", encoding="utf-8") as file:
            file.write(text if text.endswith("\n") else text + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._output)
        self._saved = time.monotonic()

    def _stop(self, number: int, client: NotebookClient, task: asyncio.Future[Ending]) -> None:
        """Interrupt the cell, whose `finally` blocks run then; give up on it after a while."""
        if self._signal:
            task.cancel()
            return
        self._signal = number
        loop = asyncio.get_running_loop()
        loop.call_later(_PATIENCE, task.cancel)
        if client.km is not None and client.km.has_kernel:
            self._interrupt = asyncio.ensure_future(_interrupt(client))


def _make_client(document: Any, python: str, private: Path, on_message: Any) -> NotebookClient:
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    class Client(NotebookClient):
        """Hands over every message of a cell as it comes."""

        def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
            result = super().process_message(msg, cell, cell_index)
            on_message(msg)
            return result

    spec = private / "kernels" / "j2c"
    spec.mkdir(parents=True)
    # History would be a database in a home directory that may be read-only.
    argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    argv.append("--HistoryManager.hist_file=:memory:")
    description = {"argv": argv, "display_name": "j2c", "language": "python"}
    (spec / "kernel.json").write_text(json.dumps(description), encoding="utf-8")
    # Sockets in a directory of our own, not ports that others on the node could reach or take.
    manager = AsyncKernelManager(
        kernel_name="j2c",
        kernel_spec_manager=KernelSpecManager(
            kernel_dirs=[str(private / "kernels")], ensure_native_kernel=False
        ),
        transport="ipc",
        connection_file=str(private / "kernel.json"),
    )
    # A run may be silent for days, and then print more in a second than is read in four.
    return Client(document, km=manager, timeout=None, iopub_timeout=3600)


async def _start(client: NotebookClient, python: str) -> None:
    environment = {**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    try:
        await client.async_start_new_kernel(env=environment, cwd=os.getcwd())
        await client.async_start_new_kernel_client()
    except (RuntimeError, OSError) as error:
        probe = await asyncio.create_subprocess_exec(
            *(python, "-c", "import ipykernel"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        said = (await probe.communicate())[1].decode("utf-8", "replace").strip()
        if "No module named" in said:
            raise UnpackError(
                f"the run's environment cannot run notebooks: {said.splitlines()[-1]}",
                "install ipykernel in the environment or in the base image",
            ) from None
        raise UnpackError(f"the notebook's kernel did not start: {_first_line(error)}") from None


async def _interrupt(client: NotebookClient) -> None:
    with contextlib.suppress(RuntimeError, OSError):
        manager: Any = client.km
        await manager.interrupt_kernel()


async def _shut_down(client: NotebookClient) -> None:
    manager: Any = client.km
    if manager is None:  # it never came up, and nbclient cleaned up after it
        return
    if client.kc is not None:
        channels: Any = client.kc
        channels.stop_channels()
    with contextlib.suppress(RuntimeError, OSError):
        await manager.shutdown_kernel(now=True)
    await manager.cleanup_resources()


def _failure(where: str, name: str, value: str) -> Ending:
    if name == "SystemExit":
        # `sys.exit(0)` is a way to leave a script early; in a notebook it means the same.
        code = 0 if value in ("", "0", "None") else int(value) if value.isdigit() else 1
        return Ending(min(code, 255), 0, f"{where} called sys.exit({value})" if code else "")
    return Ending(1, 0, f"{where} failed: {name}: {_first_line(value)}".rstrip(": "))


async def _death(where: str, client: NotebookClient) -> Ending:
    """Return how the kernel died, to die likewise: an out-of-memory kill stays recognisable."""
    provisioner: Any = getattr(client.km, "provisioner", None)
    status = await provisioner.poll() if provisioner is not None else None
    if status is not None and status < 0:
        name = signal.Signals(-status).name
        return Ending(1, -status, f"the kernel was killed by {name} in {where}")
    return Ending(1, 0, f"the kernel ended with exit code {status} in {where}")


def _print(message: dict[str, Any]) -> None:
    """Write what a message shows, as text."""
    kind, content = message["msg_type"], message["content"]
    stream = sys.stdout
    if kind == "stream":
        text = content["text"]
        stream = sys.stderr if content["name"] == "stderr" else sys.stdout
    elif kind in ("display_data", "execute_result"):
        plain = content["data"].get("text/plain")
        text = "" if plain is None else f"{plain}\n"
    elif kind == "error":
        text = "\n".join(content["traceback"]) + "\n"
    else:
        return
    stream.write(text)
    stream.flush()


@contextlib.contextmanager
def _private_directory() -> Iterator[Path]:
    """Make a directory for the kernel's files and sockets, with a short path."""
    parent = tempfile.gettempdir()
    if len(os.fsencode(parent)) > _LONGEST_DIRECTORY and os.access("/tmp", os.W_OK):  # noqa: S108
        parent = "/tmp"  # noqa: S108
    private = tempfile.mkdtemp(prefix="j2c-", dir=parent)
    try:
        yield Path(private)
    finally:
        shutil.rmtree(private, ignore_errors=True)


def _end_by(number: int) -> None:
    import resource

    # The core would be ours, not the kernel's.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
    os.kill(os.getpid(), number)


def _first_line(error: object) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


if __name__ == "__main__":
    for channel in (sys.stdout, sys.stderr):
        # A notebook's text is not the locale's business.
        getattr(channel, "reconfigure", lambda **_: None)(encoding="utf-8", errors="replace")
    sys.exit(main(sys.argv[1:]))
