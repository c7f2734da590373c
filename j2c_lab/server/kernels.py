"""The Python environments that this lab's kernels run in: what can be packed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any


class Kernels:
    """Knows kernels by the server's kernel spec manager.

    Parameters
    ----------
    manager : KernelSpecManager
    default : str
        Name of the kernel that a new notebook gets.
    """

    def __init__(self, manager: Any, default: str) -> None:
        self._manager = manager
        self._default = default

    async def environments(self) -> list[dict[str, str]]:
        """Return name and prefix of each environment, the default kernel's first."""
        specs = await self._specs()
        names = sorted(specs, key=lambda name: (name != self._default, name))
        found: dict[str, str] = {}
        for name in names:
            prefix = _prefix(specs[name])
            if prefix is not None:
                found.setdefault(prefix, specs[name].get("display_name") or name)
        return [{"name": name, "prefix": prefix} for prefix, name in found.items()]

    async def prefix_for(self, notebook: str | None) -> str:
        """Return the environment of a notebook's kernel, or of the default one."""
        specs = await self._specs()
        name = None
        if notebook is not None:
            name = await asyncio.to_thread(_kernel_name, notebook)
        for candidate in (name, self._default):
            prefix = _prefix(specs.get(candidate or "", {}))
            if prefix is not None:
                return prefix
        return sys.prefix

    async def _specs(self) -> dict[str, dict[str, Any]]:
        found = self._manager.get_all_specs()
        if asyncio.iscoroutine(found):
            found = await found
        return {name: model["spec"] for name, model in found.items()}


def _prefix(spec: dict[str, Any]) -> str | None:
    argv = spec.get("argv") or []
    if not argv or spec.get("language", "python").lower() != "python":
        return None
    program = argv[0]
    if not os.path.isabs(program):
        # Jupyter starts `python` as its own Python.
        return sys.prefix if program.startswith("python") else None
    # bin/python of a venv is a link out of it: the prefix is where the link is.
    prefix = os.path.dirname(os.path.dirname(os.path.abspath(program)))
    return prefix if os.path.isdir(prefix) else None


def _kernel_name(notebook: str) -> str | None:
    try:
        with open(notebook, encoding="utf-8") as file:
            name = json.load(file)["metadata"]["kernelspec"]["name"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) else None
