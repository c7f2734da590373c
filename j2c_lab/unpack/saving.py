"""A `Saver` that works for one attempt and its store."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from j2c_lab.formats.run import AttemptStart, OutputFile, Run, SavedOutputs
from j2c_lab.store import layout
from j2c_lab.unpack.link import StoreLink
from j2c_lab.unpack.outputs import Found
from j2c_lab.unpack.saver import Saver

#: Seconds that writing the list down may take.
_ANSWER = 60.0


@contextlib.contextmanager
def open_saver(
    store_url: str,
    run: Run,
    start: AttemptStart,
    directory: str,
    find: Callable[[], list[Found]],
    told: Callable[[dict[str, Any]], None],
) -> Iterator[None]:
    """Save what `find` returns every `run.save_every` seconds while the context is open.

    Parameters
    ----------
    directory : str
        The attempt's; copies are made in it.
    told : callable
        Is given an event `saved` for each new state.
    """
    # A connection of its own: the journal does not wait behind gigabytes.
    link = StoreLink(store_url)
    where = (run.user, run.id, start.attempt, start.rank)

    def put(digest: str, path: Path) -> None:
        key = layout.output(run.user, run.id, digest)
        link.call(lambda store: store.put_file(key, path, if_absent=True, consume=True))

    def publish(files: list[OutputFile]) -> None:
        data = SavedOutputs(saved=time.time(), outputs=files).to_json()
        link.call(lambda store: store.put(layout.saved_outputs(*where), data), _ANSWER)

    def tell(files: int, size: int, missed: int) -> None:
        told({"event": "saved", "files": files, "bytes": size, "missed": missed})

    copies = os.path.join(directory, "saving")
    saver = Saver(find, put, publish, tell, copies, run.save_every)
    saver.start()
    try:
        yield
    finally:
        saver.stop()
        link.close()
        shutil.rmtree(copies, ignore_errors=True)
