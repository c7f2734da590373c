"""Move a running experiment from JupyterLab to a compute cluster."""

from __future__ import annotations

from typing import Any


def load_ipython_extension(ipython: Any) -> None:
    """Register `%j2c` and `%%j2c`: IPython calls this for `%load_ext j2c_lab`."""
    from j2c_lab.magics.extension import load

    load(ipython)
