"""Move a running experiment from JupyterLab to a compute cluster."""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it, without importing typing
if TYPE_CHECKING:
    from typing import Any

    from j2c_lab.api import RunHandle, get_run, submit
    from j2c_lab.metrics import log_metrics

__all__ = ["RunHandle", "get_run", "log_metrics", "submit"]


def load_ipython_extension(ipython: Any) -> None:
    """Register `%j2c` and `%%j2c`: IPython calls this for `%load_ext j2c_lab`."""
    from j2c_lab.magics.extension import load

    load(ipython)


def __getattr__(name: str) -> Any:
    # Looked up when used: importing j2c_lab itself must cost a kernel or a job nothing.
    if name in ("submit", "get_run", "RunHandle"):
        from j2c_lab import api

        return getattr(api, name)
    if name == "log_metrics":
        from j2c_lab.metrics import log_metrics

        return log_metrics
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
