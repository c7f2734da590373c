"""A process that does layers: one job a line on stdin, one answer a line on stdout, as JSON.

Started by `fetch`. `multiprocessing` would import the parent's modules again and costs 30 ms more;
threads would share one interpreter lock, and most of a small file's cost is in the interpreter.
"""

from __future__ import annotations

import gc
import json
import sys

from j2c_lab.errors import J2CError
from j2c_lab.unpack.cache import LayerCache
from j2c_lab.unpack.layer import LayerJob, do_layer
from j2c_lab.unpack.source import ObjectSource


def main() -> None:
    """Serve until stdin ends. The first line names the store and the cache."""
    # Nothing here makes cycles, and the collector would walk the entries of every layer.
    gc.disable()
    start = json.loads(sys.stdin.readline())
    source = ObjectSource(start["store"])
    cache = LayerCache(start["cache"].encode("latin-1")) if start["cache"] else None
    for line in sys.stdin:
        answer: dict[str, object]
        try:
            job = LayerJob.from_json(json.loads(line))
            answer = do_layer(job, source, cache, _tell).to_json()
        except J2CError as error:
            answer = {
                "error": type(error).__name__,
                "message": error.message,
                "remedy": error.remedy,
                "details": error.details,
            }
        except OSError as error:
            answer = {"errno": error.errno, "message": error.strerror, "path": _path(error)}
        _write(answer)
    source.close()


def _tell(fetched: int) -> None:
    _write({"progress": fetched})


def _write(answer: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _path(error: OSError) -> str:
    name = error.filename
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name or "")


if __name__ == "__main__":
    main()
