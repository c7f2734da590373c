"""Metrics of a training, told by printing a line: for code that runs on the cluster.

Only the standard library is needed; where j2c-lab is not installed, printing the line does the
same::

    print('::j2c-metrics {"step": 3, "loss": 0.25}', flush=True)
"""

from __future__ import annotations

import json
import sys

PREFIX = "::j2c-metrics "


def log_metrics(step: int | None = None, **values: float) -> None:
    """Tell numbers that are drawn beside the log: `log_metrics(step=3, loss=0.25)`.

    Parameters
    ----------
    step : int, optional
        What the numbers are plotted over; the time if not given.
    **values : float
        Anything `float()` takes: numpy scalars and tensors of one element too. Values that are
        not finite are told as `NaN`, `Infinity`.
    """
    numbers = {name: float(value) for name, value in values.items()}
    line: dict[str, float] = numbers if step is None else {"step": int(step), **numbers}
    # One write, so that lines of several threads or ranks do not mix. It begins with a carriage
    # return, for a progress bar may stand on this line: only at a line's start is it a metric.
    sys.stdout.write(f"\r{PREFIX}{json.dumps(line)}\n")
    sys.stdout.flush()
