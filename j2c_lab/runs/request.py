"""What the user asked for, kept before anything is packed, so that it can be gone on with."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping

from j2c_lab.formats.record import Record
from j2c_lab.formats.run import EntryPoint, Job, Resources, Run
from j2c_lab.store.opener import job_settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(Record):
    """`request.json`; fields as in `Run`, and what is to be packed."""

    FORMAT = 1

    format: int = 1
    id: str
    user: str
    name: str
    #: Seconds since the epoch.
    created: float
    entry: EntryPoint
    #: Absolute path of the project on `host`.
    project: str
    #: Absolute path of the environment there.
    prefix: str
    host: str
    args: list[str] = dataclasses.field(default_factory=list)
    cwd: str = ""
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    inputs: dict[str, str] = dataclasses.field(default_factory=dict)
    outputs: list[str] = dataclasses.field(default_factory=list)
    resources: Resources = dataclasses.field(default_factory=Resources)
    scheduler: str = "local"
    image: str | None = None
    queue: str | None = None
    options: dict[str, str] = dataclasses.field(default_factory=dict)
    grace: float = 30.0
    save_every: float = 0.0
    split_streams: bool = False
    #: Gitignore rules of `[tool.j2c]`, above those of the project's files.
    exclude: list[str] = dataclasses.field(default_factory=list)
    #: File with the inventory of the base image, or empty.
    base: str = ""

    def fingerprint(self) -> str:
        """Return what two requests share that ask for the same: all but the id and the time."""
        same = {k: v for k, v in self.to_dict().items() if k not in ("id", "created")}
        return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()

    def with_id(self, run_id: str) -> Request:
        """Return the same request under another run id."""
        return dataclasses.replace(self, id=run_id)

    def run(self, bundle: str, python: str = "") -> Run:
        """Return the run that executes this bundle; `python` is as in `Run`."""
        return Run(
            id=self.id,
            user=self.user,
            name=self.name,
            created=self.created,
            bundle=bundle,
            entry=self.entry,
            args=self.args,
            cwd=self.cwd,
            env=self.env,
            inputs=self.inputs,
            outputs=self.outputs,
            resources=self.resources,
            scheduler=self.scheduler,
            image=self.image,
            queue=self.queue,
            options=self.options,
            grace=self.grace,
            save_every=self.save_every,
            split_streams=self.split_streams,
            host=self.host,
            project=self.project,
            python=python,
        )


def job_of(
    run: Run,
    run_url: str,
    submission: int = 1,
    environ: Mapping[str, str] | None = None,
    attempts_before: int = 0,
) -> Job:
    """Return what the scheduler is given for a run; of `environ` only where the store is."""
    return Job(
        run_id=run.id,
        name=run.name,
        user=run.user,
        run_url=run_url,
        command=["j2c", "unpack", run_url],
        resources=run.resources,
        submission=submission,
        image=run.image,
        queue=run.queue,
        options=run.options,
        grace=run.grace,
        attempts_before=attempts_before,
        # `j2c unpack` refuses runs of anybody else.
        env={
            "J2C_USER": run.user,
            **{
                name: value
                for url in (run_url, *run.inputs.values())
                for name, value in job_settings(url, environ or {}).items()
            },
        },
    )


def host_name() -> str:
    """Return this machine's name."""
    return os.uname().nodename
