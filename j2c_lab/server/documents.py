"""Runs as the REST shows them."""

from __future__ import annotations

import json
import shlex
from typing import Any

from j2c_lab.formats.run import Resources, Run
from j2c_lab.runs.ledger import Ledger, RunDocuments
from j2c_lab.runs.request import Request
from j2c_lab.runs.view import attempt_ended, judge, view

Document = dict[str, Any]


async def document(ledger: Ledger, run_id: str) -> Document:
    """Return a run's document: that of `j2c status --json`, and what the lab shows besides.

    Raises
    ------
    NotFoundError
        There is no such run.
    """
    documents = await ledger.documents(run_id)
    asked = asked_of(documents)
    if documents.submission is None or attempt_ended(documents):
        # Thousands of runs are listed: what nobody has to be asked about is not read twice.
        seen = judge(ledger, documents, None, "")
    else:
        seen = await view(ledger, run_id)
    shown = seen.to_dict()
    # Paths of the store and the cluster are nobody's business in a browser.
    for name in ("url", "handle", "bundle", "attempts"):
        shown.pop(name, None)
    shown["entry"] = {"kind": asked.entry.kind, "target": asked.entry.target}
    shown["queue"] = asked.queue
    shown["progress"] = None
    shown["notebook"] = _notebook(asked, [file.path for file in seen.outputs])
    shown["line"] = line_of(asked)
    return shown


def asked_of(documents: RunDocuments) -> Run | Request:
    """Return what was asked for."""
    asked = documents.run or documents.request
    assert asked is not None  # the ledger raises when there is neither
    return asked


def request_of(asked: Run | Request, project: str) -> Document | None:
    """Return the body that submits the same again; None for a cell, whose text is the notebook's.

    Parameters
    ----------
    project : str
        The project's path as the browser names it.
    """
    if asked.entry.kind == "cell":
        return None
    resources = asked.resources
    in_project = asked.entry.kind != "module"
    return {
        "entry": f"{project}/{asked.entry.target}".lstrip("/")
        if in_project
        else asked.entry.target,
        "kind": asked.entry.kind,
        "project": project,
        "args": asked.args,
        "name": asked.name,
        "gpus": resources.gpus,
        "cpus": resources.cpus,
        "memory": _memory(resources),
        "nodes": resources.nodes,
        "time": None if resources.time is None else f"{resources.time}s",
        "image": asked.image,
        "queue": asked.queue,
        "scheduler": asked.scheduler,
        "env": asked.env,
        "inputs": asked.inputs,
        "outputs": asked.outputs,
    }


def line_of(asked: Run | Request) -> str:
    """Return the `%j2c` line that submits it again."""
    words = ["%j2c", "submit"]
    resources = asked.resources
    for option, value, default in (
        ("--gpus", resources.gpus, 0),
        ("--cpus", resources.cpus, None),
        ("--memory", _memory(resources), None),
        ("--nodes", resources.nodes, 1),
        ("--time", None if resources.time is None else f"{resources.time}s", None),
        ("--scheduler", asked.scheduler, "local"),
        ("--queue", asked.queue, None),
        ("--image", asked.image, None),
        ("--save-every", f"{asked.save_every:g}s" if asked.save_every else None, None),
    ):
        if value != default:
            words += [option, str(value)]
    for option, pairs in (("--env", asked.env), ("--input", asked.inputs)):
        for name, value in pairs.items():
            words += [option, f"{name}={value}"]
    for glob in asked.outputs:
        words += ["--output", glob]
    words += ["-m", asked.entry.target] if asked.entry.kind == "module" else [asked.entry.target]
    if asked.args:
        words += ["--", *asked.args]
    return shlex.join(words)


def matches(shown: Document, text: str, group: str) -> bool:
    """Whether a run passes the filter; the browser's `matches` says the same."""
    state = shown["state"]
    if group == "active" and is_final(state):
        return False
    if group == "succeeded" and state != "succeeded":
        return False
    if group == "failed" and (not is_final(state) or state == "succeeded"):
        return False
    parts = [shown["id"], shown["name"], shown["entry"]["target"], *shown["args"], shown["reason"]]
    haystack = " ".join(parts).lower()
    return all(word in haystack for word in text.lower().split())


def is_final(state: str) -> bool:
    """Whether a run in this state is over."""
    return state in ("succeeded", "failed", "cancelled", "lost")


def dump(value: Any) -> str:
    """Return JSON; what a path's odd bytes became (lone surrogates) is escaped."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)


def _notebook(asked: Run | Request, paths: list[str]) -> str | None:
    if asked.entry.kind != "notebook":
        return None
    name = asked.entry.target.rsplit("/", 1)[-1]
    found = [path for path in paths if path.rsplit("/", 1)[-1] == name]
    others = [path for path in paths if path.endswith(".ipynb")]
    return next(iter(found or others), None)


def _memory(resources: Resources) -> str | None:
    memory = resources.memory
    if memory is None:
        return None
    for unit, size in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if memory % size == 0:
            return f"{memory // size}{unit}"
    return str(memory)
