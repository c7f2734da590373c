"""Loads into a Jupyter server: makes the service and puts handlers under `/j2c/`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from datetime import datetime, timezone
from typing import Any

from jupyter_server.utils import url_path_join

from j2c_lab.server.config import J2CServer
from j2c_lab.server.handlers import Unknown, handlers
from j2c_lab.server.jobs import j2c_command
from j2c_lab.server.kernels import Kernels
from j2c_lab.server.service import Service
from j2c_lab.server.streams import streams


def load(server_app: Any) -> Service:
    """Put the extension into a server; what this returns is there for tests."""
    web_app = server_app.web_app
    activity = web_app.settings["last_activity_times"]

    def on_activity() -> None:
        activity["j2c"] = datetime.now(timezone.utc)

    service = Service(
        J2CServer(parent=server_app),
        server_app.root_dir,
        server_app.runtime_dir,
        Kernels(server_app.kernel_spec_manager, server_app.kernel_manager.default_kernel_name),
        on_activity,
    )
    # Kernels inherit it: how `%j2c` reaches the lab's own Python from any environment.
    os.environ.setdefault("J2C_COMMAND", json.dumps(j2c_command()))
    base = web_app.settings["base_url"]
    options = {"service": service}
    routes = [
        (url_path_join(base, "j2c", pattern), handler, options)
        for pattern, handler in [*streams, *handlers]
    ]
    routes.append((url_path_join(base, "j2c", ".*"), Unknown, options))
    web_app.add_handlers(".*$", routes)
    web_app.settings["j2c_service"] = service
    if service.config.resume_interrupted:
        server_app.io_loop.call_later(
            2, lambda: asyncio.ensure_future(_resume(service, server_app.log))
        )
    server_app.log.info("j2c serves the runs of %s", service.ledger.user)
    return service


async def _resume(service: Service, log: Any) -> None:
    with contextlib.suppress(Exception):
        await service.resume_interrupted(log)
