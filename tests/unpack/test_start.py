"""What is loaded on the cluster, and when: by counting modules, not by timing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from unpack_tools import Prepare

import j2c_lab

REPOSITORY = Path(j2c_lab.__file__).parents[1]
FOREIGN = {"IPython", "jupyter_core", "jupyter_server", "tornado", "traitlets", "pip", "setuptools"}
SLOW = {"asyncio", "dataclasses", "email", "importlib.metadata", "inspect", "json", "tempfile"}

HELP = """
import sys
sys.path.insert(0, {repository!r})
from j2c_lab.unpack.main import main
try:
    main(["--help"])
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""


def test_help_loads_nothing_slow_and_needs_no_packages() -> None:
    code = HELP.format(repository=str(REPOSITORY))
    # -S: not even site-packages are there.
    result = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, check=True)
    assert b"RUN_URL" in result.stdout
    loaded = set(result.stderr.decode().split())
    assert not loaded & (SLOW | FOREIGN)


def test_attempt_loads_no_package_but_its_own_and_zstd(prepare: Prepare) -> None:
    unpack = prepare("print('ran')")
    code = (
        "import json, sys; from j2c_lab.unpack.main import main; code = main(sys.argv[1:])\n"
        "places = {n: getattr(m, '__file__', None) for n, m in sys.modules.items()}\n"
        "print(json.dumps(places)); sys.exit(code)"
    )
    arguments = unpack.command()[3:]
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, check=True, cwd="/"
    )
    places = json.loads(result.stdout)
    packages = {
        name.partition(".")[0]
        for name, place in places.items()
        if place and f"site-packages{os.sep}" in place
    }
    # _distutils_hack comes by setuptools' own .pth file, before anything of ours.
    assert packages - {"_distutils_hack", "_virtualenv"} <= {"backports", "j2c_lab"}
    assert unpack.log() == b"ran\n"
