"""The stages of one attempt, in order; each says in the journal that it began and is done."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from j2c_lab.errors import FormatError, J2CError, StoreError
from j2c_lab.formats.manifest import PROJECT, LayerRef, Manifest
from j2c_lab.formats.paths import check_entry_path, from_text
from j2c_lab.formats.run import AttemptStart, Cancellation, Outcome, OutputFile, Run
from j2c_lab.store import layout
from j2c_lab.unpack import records
from j2c_lab.unpack.cache import open_cache
from j2c_lab.unpack.carry import bring, last_saved
from j2c_lab.unpack.command import Places, make_command, run_directory
from j2c_lab.unpack.control import Control
from j2c_lab.unpack.deliver import keep_output
from j2c_lab.unpack.extract import Expected
from j2c_lab.unpack.fetch import do_layers
from j2c_lab.unpack.inputs import resolve_inputs
from j2c_lab.unpack.journal import Journal
from j2c_lab.unpack.launch import Ended, run_process
from j2c_lab.unpack.layer import LayerDone, LayerJob
from j2c_lab.unpack.link import StoreLink
from j2c_lab.unpack.memory import oom_kills
from j2c_lab.unpack.outputs import Found, find_outputs, matcher, save_outputs
from j2c_lab.unpack.place import make_links, settle
from j2c_lab.unpack.settings import Settings
from j2c_lab.unpack.workdir import RunDirectory

if TYPE_CHECKING:
    from j2c_lab.unpack.environment import InstalledEnvironment

FETCHING, UNPACKING, RUNNING, SAVING = "fetching", "unpacking", "running", "saving"

_ANSWER = 120.0
#: Part of the grace time that is kept for outputs and the journal, and its most, in seconds.
_SAVING_PART = 0.25
_SAVING_MOST = 10.0
_PROGRESS_PAUSE = 0.2
#: Below this the cache would fill with versions of the user's code; large files are worth it.
_WORTH_KEEPING = 16 << 20
#: What `unpack.notebook` says of a failed cell.
_OWN_WORDS = re.compile(rb"j2c: ([^\n]{1,300})")
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
_EXCEPTION = re.compile(rb"(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b[^\n]{0,300}")


class Stages:
    """Does the stages of an attempt; `current` is the one that is going on."""

    def __init__(
        self,
        settings: Settings,
        run: Run,
        start: AttemptStart,
        directory: RunDirectory,
        control: Control,
        link: StoreLink,
        journal: Journal,
    ) -> None:
        self.settings = settings
        self.run = run
        self.start = start
        self.directory = directory
        self.control = control
        self.link = link
        self.journal = journal
        self.current = FETCHING
        #: When progress was last told.
        self.told = 0.0
        self.project = os.path.join(directory.path, "project")
        self.outputs = os.path.join(directory.path, "outputs")

    def go(self) -> Outcome:
        """Do all stages and return the outcome.

        Raises
        ------
        Stopped
            The end was asked for before the user's process was started.
        J2CError, OSError
            It could not be started.
        """
        with self._stage(FETCHING):
            manifest = self._manifest()
            done = self._layers(manifest)
            inputs = resolve_inputs(
                self.run.inputs,
                self.settings.cache,
                self.directory.path,
                self.control,
                lambda size, files, total, total_files: self._progress(
                    size, files, total, total_files
                ),
            )
        with self._stage(UNPACKING):
            self._complete(manifest, done)
            environment = self._environment(manifest)
            self._carry_over()
        self.control.check()
        kills = oom_kills()
        with self._stage(RUNNING):
            places = Places(self.project, self.outputs, self.start.attempt)
            environ = environment.applied_to(_outer_environment())
            command = make_command(self.run, places, str(environment.python), environ, inputs)
            with self._saved_on_the_way():
                ended = run_process(
                    command,
                    self.control,
                    self.journal,
                    grace=self.run.grace - min(self.run.grace * _SAVING_PART, _SAVING_MOST),
                    split_streams=self.run.split_streams,
                )
        if self.control.ending:
            learn_who(self.control, self.link, self.run)
        with self._stage(SAVING):
            try:
                files, failed = self._save()
            except Exception as error:
                # The run itself is over: how it ended must be told, whatever goes wrong here.
                files, failed = [], [f"saving failed: {type(error).__name__}: {error}"]
        return self._outcome(ended, files, failed, oom_kills() > kills)

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self.current = name
        self.journal.stage(name, "started")
        yield
        self.journal.stage(name, "done")

    def _manifest(self) -> Manifest:
        return self.link.call(lambda store: records.read_manifest(store, self.run.bundle), _ANSWER)

    def _layers(self, manifest: Manifest) -> list[LayerDone]:
        from j2c_lab.unpack.places import place_directories

        places = {
            place: {os.fsencode(top): os.fsencode(path) for top, path in tops.items()}
            for place, tops in place_directories(manifest, self.directory.path).items()
        }
        for layer in manifest.layers:
            if layer.place not in places:
                raise FormatError(
                    f"the layer {layer.name} is for an unknown place, {layer.place!r}"
                )
        jobs = [_job(layer, places[layer.place]) for layer in manifest.layers]
        total_bytes = sum(layer.packed_size for layer in manifest.layers)
        total_files = sum(layer.files for layer in manifest.layers)

        def report(size: int, files: int) -> None:
            self._progress(size, files, total_bytes, total_files)

        return do_layers(
            jobs,
            self.settings.store_url,
            open_cache(self.settings.cache),
            self.control,
            report,
            [self.directory.lock],
        )

    def _complete(self, manifest: Manifest, done: list[LayerDone]) -> None:
        """Do what can only be done when all files are there."""
        for directory in (self.project, self.outputs):
            os.makedirs(directory, exist_ok=True)
        settle(clash for layer in done for clash in layer.clashes)
        root = os.fsencode(self.directory.path)
        make_links((link for layer in done for link in layer.links), [root])
        for link in manifest.dangling:
            path = from_text(link.path)
            check_entry_path(path)
            place = os.path.join(root, path)
            if not path.startswith(b"project/") or os.path.lexists(place):
                continue
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.symlink(from_text(link.target), place)

    def _carry_over(self) -> None:
        """Put what an earlier attempt saved where it lay, so that this one can go on from there."""
        if self.start.attempt == 1:
            return
        earlier = self.link.call(lambda store: last_saved(store, self.run, self.start), _ANSWER)
        if earlier is None:
            return
        try:
            cwd = run_directory(self.run, self.project)
        except J2CError:
            cwd = self.project
        match = matcher([from_text(glob) for glob in self.run.outputs])
        for file in earlier.outputs:
            self.control.check()
            root = cwd if match(from_text(file.path)) else self.outputs
            self.link.call(
                lambda store, file=file, root=root: bring(store, self.run, file, root)  # type: ignore[misc]
            )
        size = sum(file.size for file in earlier.outputs)
        event = {"event": "restored", "from_attempt": earlier.attempt, "bytes": size}
        self.journal.event({**event, "files": len(earlier.outputs)})

    def _environment(self, manifest: Manifest) -> InstalledEnvironment:
        from j2c_lab.unpack.environment import make_environment

        return make_environment(
            manifest, self.directory.path, os.environ.get("J2C_PYTHON"), self.run.python
        )

    @contextlib.contextmanager
    def _saved_on_the_way(self) -> Iterator[None]:
        """Save outputs every now and then, if that was asked for."""
        if not self.run.save_every:
            yield
            return
        from j2c_lab.unpack.saving import open_saver

        def told(event: dict[str, Any]) -> None:
            self.journal.event(event)

        where = (self.settings.store_url, self.run, self.start, self.directory.path)
        with open_saver(*where, lambda: self._find()[0], told):
            yield

    def _find(self) -> tuple[list[Found], list[str]]:
        """Return what there is to save, and a line for each thing that is left out."""
        try:
            cwd = run_directory(self.run, self.project)
        except J2CError:
            cwd = self.project
        globs = [from_text(glob) for glob in self.run.outputs]
        return find_outputs(os.fsencode(self.outputs), os.fsencode(cwd), globs)

    def _save(self) -> tuple[list[OutputFile], list[str]]:
        """Save what there is to save; never fails, because the run itself is over."""
        found, left_out = self._find()
        for line in left_out:
            message = f"an output was not saved: {line}"
            self.journal.event({"event": "warning", "message": message, "remedy": ""})
        until = time.monotonic() + self.control.grace_left(self.run.grace)
        away = False

        def put(digest: str, path: Path) -> None:
            nonlocal away
            if not away:
                key = layout.output(self.run.user, self.run.id, digest)
                timeout = max(until - time.monotonic(), 1.0) if self.control.ending else None
                try:
                    self.link.call(lambda store: store.put_file(key, path, if_absent=True), timeout)
                    return
                except StoreError:
                    away = True
            # It goes with the rest of what waits for the store to come back.
            keep_output(self.journal.spool.directory, digest, path)

        saved = save_outputs(
            found, put, lambda size, files: self._progress(size, files, None, len(found))
        )
        return saved.files, saved.failed

    def _progress(self, size: int, files: int, total_bytes: int | None, total_files: int) -> None:
        now = time.monotonic()
        if now - self.told < _PROGRESS_PAUSE and files < total_files:
            return
        self.told = now
        event = {"event": "progress", "stage": self.current, "bytes": size, "files": files}
        if total_bytes is not None:
            event["total_bytes"] = total_bytes
        self.journal.event({**event, "total_files": total_files})

    def _outcome(
        self, ended: Ended, files: list[OutputFile], failed: list[str], out_of_memory: bool
    ) -> Outcome:
        if self.control.ending:
            state, reason = "cancelled", self.control.why()
            if ended.killed:
                reason += f"; it did not end by itself within {self.run.grace:g} s and was killed"
        elif ended.exit_code == 0:
            state, reason = "succeeded", ""
        else:
            state, reason = "failed", _why(ended, self.journal.tail, out_of_memory)
        if failed:
            shown = "; ".join(failed[:3]) + (" …" if len(failed) > 3 else "")
            lost = f"{len(failed)} output files could not be saved: {shown}"
            reason = f"{reason}; {lost}" if reason else lost
        return Outcome(
            attempt=self.start.attempt,
            rank=self.start.rank,
            state=state,
            exit_code=ended.exit_code,
            signal=ended.signal,
            reason=reason,
            started=self.start.started,
            finished=time.time(),
            outputs=files,
        )


def learn_who(control: Control, link: StoreLink, run: Run) -> None:
    """Find the name behind a signal: a cancelled job gets it from the scheduler."""
    if control.cancelled_by:
        return
    with contextlib.suppress(J2CError, OSError):
        key = layout.cancellation(run.user, run.id)
        data = link.call(lambda store: store.get(key), 2.0)
        control.cancelled_by = Cancellation.from_json(data).by


def _job(layer: LayerRef, directories: dict[bytes, bytes]) -> LayerJob:
    expected = Expected(layer.digest, layer.packed_size, layer.unpacked_size, layer.files)
    is_project = layer.place == PROJECT
    return LayerJob(
        key=layout.layer(layer.digest),
        expected=expected,
        directories=directories,
        keep=not is_project or layer.packed_size >= _WORTH_KEEPING,
        link=not is_project,
    )


def _outer_environment() -> dict[str, str]:
    """Return j2c's own environment without what concerns only j2c."""
    own = {
        "J2C_WORKDIR",
        "J2C_CACHE",
        "J2C_ATTEMPT_NUMBER",
        "J2C_SPOOL_LIMIT",
        "J2C_PYTHON",
        "J2C_SIGNAL_ECHO",
    }
    return {name: value for name, value in os.environ.items() if name not in own}


def _why(ended: Ended, tail: bytes, out_of_memory: bool) -> str:
    if ended.signal is None:
        last = tail.rstrip().rpartition(b"\n")[2]
        match = _EXCEPTION.match(_COLOUR.sub(b"", last)) or _OWN_WORDS.match(last)
        if match is None:
            return f"exit code {ended.exit_code}"
        words = match[match.lastindex or 0].decode("utf-8", "backslashreplace")
        return f"exit code {ended.exit_code}: {words}"
    name = signal.Signals(ended.signal).name
    if out_of_memory:
        return f"killed by {name}: the job was out of memory"
    if ended.signal == signal.SIGKILL:
        return f"killed by {name}, most likely out of memory"
    return f"killed by {name}"
