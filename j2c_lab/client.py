"""The lab's REST from scripts::

    from j2c_lab.client import LabClient

    with LabClient.running() as lab:
        run = lab.submit("project/train.py", ["--lr", "3e-4"], gpus=1)
        print(lab.wait(run.id).state)
        print(lab.log(run.id).decode())

Needs httpx (`pip install j2c-lab[client]`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from j2c_lab.errors import J2CError, NotFoundError

_ENDS = frozenset({"succeeded", "failed", "cancelled", "lost"})
#: A request that may be repeated is, this often, when the server does not answer.
_TRIES = 4


class LabError(J2CError):
    """What the server answered, or that it did not; `code` is the server's own."""

    code = "lab"

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        super().__init__(
            str(document.get("message") or f"the lab answered {status}"),
            str(document.get("remedy") or ""),
            list(document.get("details") or []),
        )
        self.code = str(document.get("code") or "lab")
        #: HTTP status; 0 when there was no answer.
        self.status = status
        self.request_id = str(document.get("request_id") or "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabRun:
    """A run, as openapi.yaml describes it; `document` is all that was answered."""

    id: str
    name: str
    state: str
    reason: str
    created: float
    started: float | None = None
    finished: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    attempt: int | None = None
    args: list[str] = dataclasses.field(default_factory=list)
    outputs: int = 0
    document: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.state in _ENDS

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> LabRun:
        """Make a run of what was answered; fields that are not known here are kept apart."""
        names = {field.name for field in dataclasses.fields(cls)} - {"document"}
        known = {name: value for name, value in document.items() if name in names}
        return cls(**known, document=document)


class LabClient:
    """Speaks to one lab.

    Parameters
    ----------
    url : str
        The server's address, base path included: `http://127.0.0.1:8888/` or `…/user/ada/`.
    token : str
        The server's token, or a JupyterHub token for it.
    timeout : float
        Seconds to wait for an answer.
    """

    def __init__(self, url: str, token: str, timeout: float = 60.0) -> None:
        self._http = httpx.Client(
            base_url=f"{url.rstrip('/')}/j2c/",
            headers={"Authorization": f"token {token}"},
            timeout=timeout,
        )

    @classmethod
    def running(cls) -> LabClient:
        """Return a client of the newest server that this user runs on this machine.

        Raises
        ------
        NotFoundError
            There is none.
        """
        from jupyter_core.paths import jupyter_runtime_dir

        found = Path(jupyter_runtime_dir()).glob("jpserver-*.json")
        for path in sorted(found, key=lambda p: p.stat().st_mtime, reverse=True):
            info = json.loads(path.read_text())
            if _is_alive(info["pid"]):
                return cls(info["url"], info.get("token", ""))
        raise NotFoundError("no Jupyter server of yours runs here", "start jupyter lab")

    def __enter__(self) -> LabClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections."""
        self._http.close()

    def submit(self, entry: str, args: Sequence[str] = (), **request: Any) -> LabRun:
        """Start a run and return it at once.

        Parameters
        ----------
        entry : str
            A script or notebook, relative to the lab's root; with `kind="module"` a module.
        request
            Further fields of `SubmitRequest`: `gpus=2`, `time="4h"`, `profile="…"`, `env={…}`.

        Raises
        ------
        LabError
            The request is wrong or not allowed. A lost answer is asked for again: it is never
            submitted twice.
        """
        body = {"entry": entry, "args": list(args), **request}
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return LabRun.from_dict(self._json("POST", "runs", json=body, headers=headers))

    def preview(self, entry: str, args: Sequence[str] = (), **request: Any) -> dict[str, Any]:
        """Return what `submit` with the same arguments would send."""
        body = {"entry": entry, "args": list(args), **request}
        return dict(self._json("POST", "preview", json=body))

    def runs(self, text: str = "", group: str = "") -> Iterator[LabRun]:
        """Yield runs, newest first; `group` is `active`, `succeeded` or `failed`."""
        query = {"limit": "200", "text": text, "group": group}
        while True:
            page = self._json("GET", "runs", params=query)
            yield from map(LabRun.from_dict, page["runs"])
            if page["cursor"] is None:
                return
            query["cursor"] = page["cursor"]

    def run(self, run_id: str) -> LabRun:
        """Return a run as it is now."""
        return LabRun.from_dict(self._json("GET", f"runs/{run_id}"))

    def wait(self, run_id: str, timeout: float | None = None) -> LabRun:
        """Return a run once it is over; raises `TimeoutError` after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.1
        while not (run := self.run(run_id)).ended:
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"run {run_id} is still {run.state}")
            time.sleep(pause)
            pause = min(pause * 1.5, 5.0)
        return run

    def cancel(self, run_id: str) -> LabRun:
        """Ask for the end of a run."""
        return LabRun.from_dict(self._json("POST", f"runs/{run_id}/cancel"))

    def resume(self, run_id: str) -> LabRun:
        """Go on with an interrupted run, or run a failed one again."""
        return LabRun.from_dict(self._json("POST", f"runs/{run_id}/resume"))

    def delete(self, run_id: str) -> None:
        """Delete a run that is over, with its log and saved outputs."""
        self._request("DELETE", f"runs/{run_id}")

    def log(self, run_id: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the log, or the part of it from byte `start` to `end`."""
        query = {"start": str(start)} if end is None else {"start": str(start), "end": str(end)}
        return self._request("GET", f"runs/{run_id}/log", params=query).content

    def files(self, run_id: str) -> list[dict[str, Any]]:
        """Return the files that a run has saved: `path`, `size` and `sha256` of each."""
        return list(self._json("GET", f"runs/{run_id}/files")["files"])

    def fetch(self, run_id: str) -> dict[str, Any]:
        """Let the lab bring a run's outputs into its project; returns where, and how much."""
        return dict(self._json("POST", f"runs/{run_id}/fetch"))

    def _json(self, method: str, path: str, **options: Any) -> Any:
        return self._request(method, path, **options).json()

    def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        for attempt in range(_TRIES):
            try:
                answer = self._http.request(method, path, **options)
            except httpx.TransportError as error:
                if attempt + 1 == _TRIES:
                    raise LabError(0, {"message": f"the lab does not answer: {error}"}) from None
            else:
                if answer.is_success:
                    return answer
                if answer.status_code not in (502, 503, 504) or attempt + 1 == _TRIES:
                    raise LabError(answer.status_code, _document(answer))
            time.sleep(0.2 * 2**attempt)
        raise AssertionError("the loop returns or raises")


def _document(answer: httpx.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
