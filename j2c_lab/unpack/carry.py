"""What an earlier attempt saved, brought to a later one: so a preempted run goes on."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import NamedTuple

from j2c_lab.errors import DigestMismatchError, NotFoundError, UnsafePathError
from j2c_lab.formats.paths import check_entry_path, from_text, show
from j2c_lab.formats.run import AttemptStart, Outcome, OutputFile, Run, SavedOutputs
from j2c_lab.store import layout
from j2c_lab.store.base import Store


class Saved(NamedTuple):
    """What an attempt saved last."""

    attempt: int
    outputs: list[OutputFile]


async def last_saved(store: Store, run: Run, start: AttemptStart) -> Saved | None:
    """Return what the newest earlier attempt that saved anything has saved, of the same rank."""
    for attempt in range(start.attempt - 1, 0, -1):
        where = (run.user, run.id, attempt, start.rank)
        with contextlib.suppress(NotFoundError):
            outcome = Outcome.from_json(await store.get(layout.outcome(*where)))
            # One that was stopped before it started has saved nothing, and says nothing.
            if outcome.outputs:
                return Saved(attempt, outcome.outputs)
        # Of one whose node was lost, there is what it saved on its way.
        with contextlib.suppress(NotFoundError):
            saved = SavedOutputs.from_json(await store.get(layout.saved_outputs(*where)))
            if saved.outputs:
                return Saved(attempt, saved.outputs)
    return None


async def bring(store: Store, run: Run, file: OutputFile, root: str) -> None:
    """Write a saved output to its place below `root`, whole or not at all.

    Raises
    ------
    DigestMismatchError
        The store's content is not what was saved.
    UnsafePathError
        Its place is not below `root`.
    """
    path = _place(from_text(file.path), os.fsencode(root))
    part = os.path.join(os.path.dirname(path), b".%s.j2c-part" % file.sha256[:32].encode())
    content = hashlib.sha256()
    with open(part, "wb") as target:  # noqa: ASYNC230 - the loop does nothing else meanwhile
        async for piece in store.read(layout.output(run.user, run.id, file.sha256)):
            content.update(piece)
            target.write(piece)
    if content.hexdigest() != file.sha256:
        os.unlink(part)
        raise DigestMismatchError(f"the saved output {file.path} has other content")
    os.chmod(part, 0o755 if file.executable else 0o644)
    # Never written through: the project's own file of that name may be shared with a cache.
    os.replace(part, path)


def _place(name: bytes, root: bytes) -> bytes:
    """Return the path of an output, whose directory is made."""
    check_entry_path(name)
    path = os.path.join(root, name)
    directory = os.path.dirname(path)
    os.makedirs(directory, exist_ok=True)
    if not (os.path.realpath(directory) + b"/").startswith(os.path.realpath(root) + b"/"):
        raise UnsafePathError(
            f"the output {show(name)} would be written outside of {os.fsdecode(root)}"
        )
    return path
