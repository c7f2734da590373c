"""Slurm through its commands: sbatch, squeue, scancel, scontrol, and sacct where it is kept."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Mapping

from j2c_lab.errors import SchedulerError, UsageError
from j2c_lab.schedulers.slurm_render import Batch
from j2c_lab.schedulers.slurm_states import FIELDS, SlurmJob, parse_job, run_id_time

#: All that Slurm's commands see of the lab's environment. What they do not see cannot leak into
#: the job: no PATH, no LD_LIBRARY_PATH, and no SLURM_ or SBATCH_ variables of a job that the lab
#: itself may be.
_KEPT = ("HOME", "USER", "LOGNAME", "SLURM_CONF", "SLURM_CLUSTERS", "TZ", "KRB5CCNAME", "LANG")
_PATH = "/usr/local/bin:/usr/bin:/bin"
#: Seconds to wait for an answer: to a submit, and to a question, which somebody looks at.
_TIMEOUT = 60.0
_QUESTION = 8.0
_FORMAT = ",".join(f"{field}:|" for field in FIELDS)
_NODES_AWAY = "node configuration is not available"
_NO_ANSWER = ("contact slurm controller", "timed out", "connection refused", "munge", "socket")


class SlurmCommands:
    """Calls the commands; every method raises `SchedulerError` when Slurm does not answer.

    Parameters
    ----------
    environ : mapping
        The submitter's environment; the commands are looked for in its `PATH`.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._path = f"{environ.get('PATH', os.defpath)}:{_PATH}"
        self._environ = {name: environ[name] for name in _KEPT if name in environ}
        self._environ["PATH"] = _PATH

    def test(self, batch: Batch, asked: str) -> None:
        """Ask Slurm whether the job could ever run; raises `UsageError` with its answer if not."""
        command = [self._find("sbatch"), "--test-only", *batch.arguments]
        try:
            done = subprocess.run(
                command,
                input=batch.script.encode(),
                env=self._environ,
                capture_output=True,
                timeout=_TIMEOUT,
                cwd="/",
            )
        except subprocess.TimeoutExpired:
            raise _silent("sbatch") from None
        if done.returncode:
            words = _words(done.stderr)
            if _is_no_answer(words):
                raise _silent("sbatch", words)
            if _NODES_AWAY in words and self._has_nodes_away():
                # Slurm says so, too, while nodes are down; then only the submit itself can tell.
                return
            raise UsageError(
                f"Slurm can never run this job, which asks for {asked}: {words}",
                "ask for less, or for another --queue",
            )

    def _has_nodes_away(self) -> bool:
        command = [self._find("sinfo"), "-h", "-o", "%t"]
        done = subprocess.run(
            command, env=self._environ, capture_output=True, text=True, timeout=_TIMEOUT, cwd="/"
        )
        states = done.stdout.split()
        return any(state.startswith(("unk", "down")) or state.endswith("*") for state in states)

    async def submit_held(self, batch: Batch) -> None:
        """Queue the job, held, so that it cannot start before it is released."""
        await self._call("sbatch", "--hold", *batch.arguments, given=batch.script.encode())

    async def jobs(self) -> list[SlurmJob]:
        """Return all the user's jobs that Slurm remembers, ended ones too."""
        out = await self._call("squeue", "-h", "--me", "-t", "all", "-O", _FORMAT)
        return [parse_job(line) for line in out.splitlines() if line]

    async def job(self, ident: str) -> SlurmJob | None:
        """Return one job; None when Slurm does not remember it."""
        try:
            out = await self._call("squeue", "-h", "-j", ident, "-t", "all", "-O", _FORMAT)
        except SchedulerError as error:
            if "Invalid job id" in error.message:
                return None
            raise
        lines = [line for line in out.splitlines() if line]
        return parse_job(lines[0]) if lines else None

    async def release(self, ident: int) -> None:
        await self._call("scontrol", "release", str(ident))

    async def cancel(self, *arguments: str) -> None:
        await self._call("scancel", *arguments)

    async def accounted(self, key: str, run_id: str) -> int | None:
        """Return the id of a job whose name ends so, from accounting; None where none is kept."""
        rows = await self._sacct("-S", run_id_time(run_id), "-o", "JobID,JobName")
        found = [int(ident) for ident, name in rows if name.endswith(key) and ident.isdigit()]
        return min(found, default=None)

    async def accounted_end(self, ident: str, key: str) -> tuple[str, str] | None:
        """Return state and `code:signal` of an ended job, as accounting remembers it."""
        for state, rest in await self._sacct("-j", ident, "-o", "State,ExitCode,JobName"):
            code, _, name = rest.partition("|")
            if name.endswith(f"-{key}"):
                return state, code
        return None

    async def _sacct(self, *arguments: str) -> list[list[str]]:
        try:
            out = await self._call("sacct", "-n", "-P", "-X", *arguments)
        except SchedulerError:
            # No accounting here, or its database is down: it only ever adds to what is known.
            return []
        return [line.split("|", 1) for line in out.splitlines() if "|" in line]

    async def _call(self, name: str, *arguments: str, given: bytes = b"") -> str:
        process = await asyncio.create_subprocess_exec(
            self._find(name),
            *arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environ,
            cwd="/",
        )
        timeout = _QUESTION if name in ("squeue", "sacct") else _TIMEOUT
        try:
            out, err = await asyncio.wait_for(process.communicate(given), timeout)
        except BaseException as error:
            if process.returncode is None:
                process.kill()
                await process.wait()
            if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
                raise _silent(name) from None
            raise
        if process.returncode:
            words = _words(err)
            if _is_no_answer(words):
                raise _silent(name, words)
            raise SchedulerError(f"{name} failed: {words}")
        return out.decode("utf-8", "replace")

    def _find(self, name: str) -> str:
        path = shutil.which(name, path=self._path)
        if path is None:
            raise SchedulerError(
                f"Slurm's command {name} is not on this machine",
                "submit from a login node, or put Slurm's bin directory on the PATH",
            )
        return path


def _words(err: bytes) -> str:
    """Return what a command complained of, on one line, without its prefixes."""
    lines = []
    for line in err.decode("utf-8", "replace").splitlines():
        for prefix in ("sbatch: ", "scancel: ", "squeue: ", "scontrol: ", "error: "):
            line = line.removeprefix(prefix)
        if line.strip() and line.strip() not in lines:
            lines.append(line.strip())
    return "; ".join(lines) or "without a word"


def _is_no_answer(words: str) -> bool:
    return any(sign in words.lower() for sign in _NO_ANSWER)


def _silent(name: str, words: str = "") -> SchedulerError:
    return SchedulerError(
        f"Slurm did not answer {name}{': ' + words if words else ''}",
        "it may be restarting: repeat the command, nothing is done twice",
    )
