"""The Jupyter server extension: REST and websockets under `/j2c/`, for the lab and for strangers.

Imports nothing by itself: tornado and jupyter_server come in only when a server loads it.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    return [{"module": "j2c_lab.server"}]
