"""Outputs brought back: verified, gone on with after an interruption, never outside the target."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from j2c_lab.errors import DigestMismatchError, J2CError, NotFoundError, UnsafePathError
from j2c_lab.formats.paths import check_entry_path, from_text, show
from j2c_lab.formats.run import OutputFile, SavedOutputs
from j2c_lab.runs.ledger import Ledger
from j2c_lab.store import layout

Report = Callable[[dict[str, Any]], None]

_PIECE = 1 << 20


class Fetched(NamedTuple):
    """What was brought back."""

    directory: Path
    files: int
    bytes: int
    #: Files that were there already, with the right content.
    skipped: int


async def fetch(
    ledger: Ledger, run_id: str, directory: Path | None = None, report: Report | None = None
) -> Fetched:
    """Bring what a run has saved last into `directory`: at its end, or on its way.

    Parameters
    ----------
    directory : Path, optional
        Made when it is not there; `j2c_outputs/<run id>` by default.
    report : callable, optional
        Takes events `progress`.

    Raises
    ------
    NotFoundError
        The run has saved nothing yet.
    UnsafePathError
        An output's name leads out of `directory`, by itself or by a link that lies there.
    DigestMismatchError
        The store's content is not what the run wrote.
    """
    outputs = await _outputs(ledger, run_id)
    target = Path("j2c_outputs", run_id) if directory is None else directory
    for file in outputs:
        check_entry_path(from_text(file.path))
    target.mkdir(parents=True, exist_ok=True)
    root = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    total = sum(file.size for file in outputs)
    done = sent = skipped = 0
    try:
        for number, file in enumerate(outputs):
            if await _fetch_file(ledger, run_id, root, file):
                sent += file.size
            else:
                skipped += 1
            done += file.size
            if report is not None:
                report(
                    {
                        "event": "progress",
                        "stage": "fetch",
                        "bytes": done,
                        "total_bytes": total,
                        "files": number + 1,
                        "total_files": len(outputs),
                        "what": file.path,
                    }
                )
    finally:
        os.close(root)
    return Fetched(target, len(outputs), sent, skipped)


async def _outputs(ledger: Ledger, run_id: str) -> list[OutputFile]:
    """Return the files of the newest attempt that saved any."""
    any_ended = False
    for attempt in reversed(await ledger.attempts(run_id)):
        # Two ranks that saved the same name: the first rank's stays.
        files: dict[str, OutputFile] = {}
        for rank in await ledger.ranks(run_id, attempt):
            outcome = await ledger.outcome(run_id, attempt, rank)
            any_ended |= outcome is not None
            saved = outcome.outputs if outcome is not None else []
            for file in saved or await _saved_on_the_way(ledger, run_id, attempt, rank):
                files.setdefault(file.path, file)
        if files:
            return list(files.values())
    if any_ended:
        return []
    raise NotFoundError(
        f"run {run_id} has not ended and has saved nothing yet: outputs are saved at the end",
        f"j2c logs -f {run_id} waits for it; --save-every 10m saves them on the way",
    )


async def _saved_on_the_way(
    ledger: Ledger, run_id: str, attempt: int, rank: int
) -> list[OutputFile]:
    key = layout.saved_outputs(ledger.user, run_id, attempt, rank)
    saved = await ledger.read(SavedOutputs, key)
    return saved.outputs if saved is not None else []


async def _fetch_file(ledger: Ledger, run_id: str, root: int, file: OutputFile) -> bool:
    """Bring one file; False when it was there."""
    *parents, name = from_text(file.path).split(b"/")
    directory = _enter(root, parents, file.path)
    try:
        if _is_there(directory, name, file):
            return False
        part = b".%s.j2c-part" % file.sha256[:32].encode()
        await _download(ledger, run_id, directory, part, file)
        os.replace(part, name, src_dir_fd=directory, dst_dir_fd=directory)
        return True
    except IsADirectoryError:
        raise J2CError(
            f"a directory stands where the output {show(from_text(file.path))} belongs",
            "move it away, or give another directory with -o",
        ) from None
    finally:
        os.close(directory)


def _enter(root: int, parents: list[bytes], path: str) -> int:
    """Open the directory of a file below `root`, making it; links are not followed."""
    current = os.dup(root)
    for part in parents:
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, dir_fd=current)
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            following = os.open(part, flags, dir_fd=current)
        except OSError:
            raise UnsafePathError(
                f"a link or a file stands where the output {show(from_text(path))} belongs",
                "move it away, or give another directory with -o",
            ) from None
        finally:
            os.close(current)
        current = following
    return current


def _is_there(directory: int, name: bytes, file: OutputFile) -> bool:
    try:
        descriptor = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory
        )
    except OSError:
        return False
    try:
        info = os.fstat(descriptor)
        return info.st_size == file.size and _sha256(descriptor).hexdigest() == file.sha256
    except IsADirectoryError:
        return False
    finally:
        os.close(descriptor)


async def _download(
    ledger: Ledger, run_id: str, directory: int, part: bytes, file: OutputFile
) -> None:
    """Make the file `part` the whole content; an earlier part is gone on with."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(part, flags, 0o666, dir_fd=directory)
    try:
        content = _sha256(descriptor)
        have = os.lseek(descriptor, 0, os.SEEK_CUR)
        key = layout.output(ledger.user, run_id, file.sha256)
        if have < file.size or not file.size:
            async for piece in ledger.store.read(key, have):
                content.update(piece)
                have += len(piece)
                os.write(descriptor, piece)
        if have != file.size or content.hexdigest() != file.sha256:
            # Nothing of it can be trusted: the next try begins anew.
            os.unlink(part, dir_fd=directory)
            raise DigestMismatchError(
                f"the output {show(from_text(file.path))} is damaged in the store",
                "repeat j2c fetch; if it stays so, the run has to be repeated",
            )
        os.fchmod(descriptor, (0o777 if file.executable else 0o666) & ~_umask())
    finally:
        os.close(descriptor)


def _sha256(descriptor: int) -> Any:
    content = hashlib.sha256()
    while piece := os.read(descriptor, _PIECE):
        content.update(piece)
    return content


def _umask() -> int:
    value = os.umask(0o077)
    os.umask(value)
    return value
