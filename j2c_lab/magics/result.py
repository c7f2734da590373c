"""What a magic returns, and what it raises."""

from __future__ import annotations

import dataclasses

from j2c_lab.magics import view as views
from j2c_lab.magics.view import RunView


@dataclasses.dataclass(frozen=True)
class MagicRun:
    """A run as the magic left it. As text it is its id: `%j2c fetch {run}`.

    Attributes
    ----------
    id, name : str
        The run's; empty when the verb made no run.
    state : str
        `succeeded`, `failed`, `cancelled`, `lost`, or where it was when it was last seen.
    outcome : str
        How it ended, in one line.
    exit_code : int
        Of the command: the run's own where it was followed to its end.
    duration : float
        Seconds.
    metrics : dict
        The last value of each metric.
    """

    id: str
    name: str
    state: str
    outcome: str
    exit_code: int
    duration: float
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"<run {self.id or '-'}: {self.outcome}>"


def from_view(view: RunView) -> MagicRun:
    """Return the run as the events tell it."""
    return MagicRun(
        id=view.run,
        name=view.name,
        state=view.state,
        outcome=views.outcome_line(view),
        exit_code=view.exit_code or 0,
        duration=view.duration,
        metrics={name: metric.values[-1] for name, metric in view.metrics.items()},
    )


class _Quiet:
    """IPython shows such an exception in one line: a traceback of j2c helps nobody."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class RunFailedError(_Quiet, Exception):
    """The run, or the command, did not succeed. `run` is what is known of it.

    Raised so that "Run all" stops here, as it does after a failed `%%bash` cell.
    """

    def __init__(self, message: str, run: MagicRun) -> None:
        super().__init__(message)
        self.run = run


class RunDetachedError(_Quiet, KeyboardInterrupt):
    """The user interrupted the cell; the run goes on. `run` is what is known of it."""

    def __init__(self, message: str, run: MagicRun) -> None:
        super().__init__(message)
        self.run = run
