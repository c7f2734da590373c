"""What a client asks for: parsed and checked at the border, then a command line of `j2c`."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Any

from j2c_lab.errors import UsageError
from j2c_lab.formats.run import parse_memory, parse_time
from j2c_lab.server.config import J2CServer
from j2c_lab.server.paths import Root

KINDS = ("script", "notebook", "module")
_TEXT = ("entry", "name", "project", "venv", "memory", "time", "image", "queue", "scheduler")
_NUMBERS = {"gpus": 0, "cpus": 1, "nodes": 1}
_MAPS = ("env", "inputs")
_LISTS = ("args", "outputs")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST = 1 << 16


@dataclasses.dataclass(frozen=True)
class Ask:
    """A submit request; fields are those of `SubmitRequest` in openapi.yaml."""

    entry: str
    kind: str
    values: Mapping[str, Any]

    @classmethod
    def parse(cls, body: Any, config: J2CServer) -> Ask:
        """Check a request's body, and what it asks for against what is allowed here.

        Raises
        ------
        UsageError
            A field is missing, unknown, of the wrong type, or not allowed.
        """
        if not isinstance(body, dict):
            raise UsageError("the body is not a JSON object")
        body = {name: value for name, value in body.items() if value is not None}
        profile = body.pop("profile", None)
        if profile is not None:
            if not isinstance(profile, str) or profile not in config.profiles:
                raise UsageError(f"there is no profile {profile!r}", "GET /j2c/config lists them")
            body = {**config.profiles[profile], **body}
        known = {"kind", *_TEXT, *_NUMBERS, *_MAPS, *_LISTS}
        for name, value in body.items():
            if name not in known:
                raise UsageError(f"there is no field {name!r}", "openapi.yaml lists the fields")
            _check(name, value)
        entry = body.get("entry", "")
        if not entry:
            raise UsageError("entry is missing", "give a script, a notebook or a module")
        kind = body.get("kind") or ("notebook" if entry.endswith(".ipynb") else "script")
        if kind == "module" and not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", entry):
            raise UsageError(f"{entry!r} is no module's name")
        values = {k: v for k, v in body.items() if k not in ("entry", "kind")}
        _check_limits(values, config)
        return cls(entry, kind, values)

    def command(self, root: Root, prefixes: list[str]) -> tuple[list[str], str, str]:
        """Return the arguments of `j2c submit`, the directory to call it in, and the entry's path.

        Raises
        ------
        UsageError
            A path leads out of the root, or the entry is not there.
        """
        project = self.values.get("project")
        arguments = []
        if self.kind == "module":
            directory = root.resolve(project or "")
            target = ["-m", self.entry]
        else:
            path = root.resolve(self.entry)
            if not os.path.isfile(path):
                raise UsageError(f"there is no file {self.entry}")
            directory, name = os.path.split(path)
            target = [f"./{name}" if name.startswith("-") else name]
        if not os.path.isdir(directory):
            raise UsageError(f"there is no directory {project}")
        if project is not None:
            arguments.append(f"--project={root.resolve(project)}")
        venv = self.values.get("venv")
        if venv is not None:
            arguments.append(f"--venv={_prefix(venv, root, prefixes)}")
        for name in ("name", "memory", "time", "image", "queue", "scheduler", *_NUMBERS):
            if name in self.values:
                arguments.append(f"--{name}={self.values[name]}")
        for option, name in (("env", "env"), ("input", "inputs")):
            for key, value in self.values.get(name, {}).items():
                arguments.append(f"--{option}={key}={value}")
        arguments += [f"--output={glob}" for glob in self.values.get("outputs", [])]
        arguments += [*target, "--", *self.values.get("args", [])]
        return arguments, directory, self.entry

    def to_dict(self) -> dict[str, Any]:
        """Return the request as a client would send it."""
        return {"entry": self.entry, "kind": self.kind, **self.values}


def _check(name: str, value: Any) -> None:
    def text(item: Any) -> bool:
        return isinstance(item, str) and "\0" not in item and len(item) <= _LONGEST

    if name == "kind":
        right = value in KINDS
    elif name in _TEXT:
        right = text(value) and _encodable(value)
    elif name in _NUMBERS:
        right = type(value) is int and _NUMBERS[name] <= value <= 100_000
    elif name in _LISTS:
        right = isinstance(value, list) and all(text(v) and _encodable(v) for v in value)
    else:
        right = isinstance(value, dict) and all(
            _NAME.fullmatch(k) and text(v) and _encodable(v) for k, v in value.items()
        )
    if not right:
        raise UsageError(f"{name} is not what it should be", "openapi.yaml describes it")
    if name == "memory":
        parse_memory(value)
    if name == "time":
        parse_time(value)


def _encodable(text: str) -> bool:
    """Whether it can be an argument of a process: no half of a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _check_limits(values: Mapping[str, Any], config: J2CServer) -> None:
    scheduler = values.get("scheduler") or (config.schedulers or ["local"])[0]
    if scheduler not in config.schedulers:
        raise UsageError(
            f"the scheduler {scheduler!r} is not allowed here",
            f"allowed are {', '.join(config.schedulers)}",
        )
    queues = config.queues.get(scheduler)
    if values.get("queue") and queues is not None and values["queue"] not in queues:
        raise UsageError(
            f"the queue {values['queue']!r} is not allowed here",
            f"allowed are {', '.join(queues)}",
        )
    if values.get("image") and config.images and values["image"] not in config.images:
        raise UsageError(
            f"the image {values['image']!r} is not allowed here",
            f"allowed are {', '.join(config.images)}",
        )
    gpus = values.get("gpus", 0) * values.get("nodes", 1)
    if config.max_gpus is not None and gpus > config.max_gpus:
        raise UsageError(
            f"{gpus} GPUs are more than a run may have here", f"at most {config.max_gpus}"
        )


def _prefix(venv: str, root: Root, prefixes: list[str]) -> str:
    """An environment of a kernel, or one that lies in the root."""
    if venv in prefixes:
        return venv
    full = os.path.abspath(os.path.join(root.directory, venv))
    if not root.holds(os.path.realpath(os.path.dirname(full))):
        raise UsageError(
            f"{venv!r} is no environment of this lab", "GET /j2c/config lists those of its kernels"
        )
    return full
