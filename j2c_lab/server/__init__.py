"""The Jupyter server extension: REST and websockets under `/j2c/`, for the lab and for strangers.

`openapi.yaml` describes the REST, docs/rest.md the websockets. Imports nothing by itself: tornado
and jupyter_server come in only when a server loads it.

The event loop of the server does little more than parse and answer. What is heavy (packing,
sending, fetching) is done by the `j2c` command in processes of their own (`jobs`); what waits for
the store is done by a second loop in a thread (`engine`), where also the list of runs is kept
(`index`).
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    return [{"module": "j2c_lab.server"}]


def _load_jupyter_server_extension(server_app: Any) -> None:
    from j2c_lab.server.extension import load

    load(server_app)
