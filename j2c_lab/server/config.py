"""Settings of the server extension, in the usual Jupyter config files as `c.J2CServer.…`."""

from __future__ import annotations

from traitlets import Bool, Dict, Integer, List, Unicode
from traitlets.config import Configurable


class J2CServer(Configurable):
    """What the lab offers and allows; what holds for every front door is `c.J2C.…`."""

    profiles = Dict(
        per_key_traits=None,
        help="""Resource profiles of the form, by name: each a dict with any of gpus, cpus, memory,
        nodes, time, image, queue and scheduler. For example
        {"1 × A100, 4 h": {"gpus": 1, "queue": "a100", "time": "4h"}}.""",
    ).tag(config=True)
    schedulers = List(
        Unicode(),
        ["local"],
        help="Schedulers that may be used here. The first is the form's default.",
    ).tag(config=True)
    queues = Dict(
        help="Queues that may be used, for each scheduler by name; one without an entry takes any.",
    ).tag(config=True)
    images = List(
        Unicode(),
        help="Images that may be used; empty allows any.",
    ).tag(config=True)
    max_gpus = Integer(
        None,
        allow_none=True,
        help="Most GPUs (of all nodes together) that one run may ask for; None sets no limit.",
    ).tag(config=True)
    resume_interrupted = Bool(
        True,
        help="""Whether requests that were interrupted with the last server (in the middle of an
        upload, say) are gone on with when this one starts.""",
    ).tag(config=True)
    max_jobs = Integer(
        8,
        help="Most packing, sending and fetching processes at a time; more wait for their turn.",
    ).tag(config=True)
