"""What Python packages of a conda prefix need of its other packages: shared libraries.

conda builds numpy against `<prefix>/lib/libopenblas.so.0`, found by `$ORIGIN/../../../..`. The
libraries that compiled modules ask for, and those that these ask for, go along to the same place.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from j2c_lab.formats.manifest import ENVIRONMENT
from j2c_lab.installed.tree import planned_file
from j2c_lab.pack.elf import needed_libraries
from j2c_lab.pack.plan import LayerPlan, PlannedFile


def library_layers(prefix: bytes, files: Iterable[PlannedFile]) -> list[LayerPlan]:
    """Return one layer for each shared library of `prefix` that `files` need, by name.

    Libraries that the prefix has not got are the system's, and so are those of Python itself.
    """
    directory = prefix + b"/lib/"
    pending = [
        file.source for file in files if file.source is not None and b".so" in file.path[-24:]
    ]
    found: dict[str, PlannedFile] = {}
    while pending:
        for name in needed_libraries(pending.pop()):
            if name in found or "/" in name or name.startswith("libpython"):
                continue
            path = directory + os.fsencode(name)
            file = planned_file(path, b"prefix/lib/" + os.fsencode(name))
            if file is not None:
                found[name] = file
                pending.append(path)
    return [LayerPlan(name, ENVIRONMENT, [found[name]]) for name in sorted(found)]
